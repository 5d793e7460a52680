"""`ptir gen`: what a seed gives is valid, and always the same."""

from __future__ import annotations

import pytest

from tests.conftest import run_ptir


@pytest.mark.parametrize("seed", range(40))
def test_a_seed_gives_one_valid_program(seed: int) -> None:
    made = run_ptir("gen", "--seed", str(seed), "--steps", "25")
    assert made.status == 0 and made == run_ptir("gen", "--seed", str(seed), "--steps", "25")
    verified = run_ptir("verify", "--strict", "-", stdin=made.out)
    assert (verified.status, verified.err) == (0, "")


def test_seeds_differ() -> None:
    assert len({run_ptir("gen", "--seed", str(seed)).out for seed in range(30)}) > 25
