"""Option values that are numbers: what is none is wrong usage, what is far out does what it says."""

from __future__ import annotations

import pytest

from tests.conftest import run_ptir

NEG = b"func @f(%x: tensor<f32, 2>) -> tensor<f32, 2> {\n  %y = neg(%x) -> tensor<f32, 2>\n  return %y\n}\n"
DRAW = b"func @f() -> tensor<f32, 2> {\n  %y = rng_uniform() -> tensor<f32, 2>\n  return %y\n}\n"


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
@pytest.mark.parametrize("option", ["--timeout", "--rtol", "--atol"])
def test_no_number_of_an_option(option: str, value: str) -> None:
    ran = run_ptir("run", "--random", "1", option, value, stdin=NEG)
    assert ran.status == 2 and f"'{option}'" in ran.err


def test_a_timeout_is_positive() -> None:
    assert run_ptir("run", "--random", "1", "--timeout", "0", stdin=NEG).status == 2
    assert run_ptir("plan", "--time-limit", "nan", stdin=NEG).status == 2
    assert run_ptir("plan", "--time-limit", "0", stdin=NEG).status == 0


@pytest.mark.parametrize(("option", "text"), [("--random", NEG), ("--seed", DRAW)])
def test_seeds_are_told_apart(option: str, text: bytes) -> None:
    """Negative ones and those of more than 53 bits, too."""
    seeds = ("0", "1", "-1", "-2", str(2**63), str(2**63 + 1))
    outputs = [run_ptir("run", option, seed, stdin=text) for seed in seeds]
    assert {ran.err for ran in outputs} == {""} and len({ran.out for ran in outputs}) == len(seeds)
