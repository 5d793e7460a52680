"""Programs whose regions run each other over many paths, or deep: each region is looked at once, and depth has a limit."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ptir_tools.dialects.ptir.check import DEPTH
from tests.conftest import Ran

Ptir = Callable[..., Ran]
HEAD = "(%p: tensor<i1>, %y0: tensor<f32>) -> tensor<f32> {"


def shared(depth: int, calls: int = 1) -> bytes:
    """Region after region; each runs the next in both branches of `calls` ops."""

    def body(below: int) -> str:
        run = "%y{} = cond(%p, %p, %y{}) true_region[^r{}] false_region[^r{}] -> tensor<f32>"
        return "\n".join([*(run.format(k + 1, k, below, below) for k in range(calls)), f"return %y{calls}"])

    regions = "\n".join(f"region ^r{i}{HEAD}\n{body(i + 1)}\n}}" for i in range(depth))
    leaf = f"region ^r{depth}{HEAD}\n%y1 = neg(%y0) -> tensor<f32>\nreturn %y1\n}}"
    return f"program @f (spec_version = ptir.v0.4) {{\nfunc @f{HEAD}\n{body(0)}\n}}\n{regions}\n{leaf}\n}}\n".encode()


COMMANDS = [
    *(["run", "--random", "0", "--engine", engine, "--compare", "reference"] for engine in ("numpy", "native")),
    ["opt", "--check"],
    ["opt", "-p", "sink,licm"],
    ["plan"],
    ["graph"],
    ["translate", "--to", "ptir-json"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_many_paths_and_the_deepest_regions_are_no_trouble(ptir: Ptir, command: list[str]) -> None:
    ran = ptir(*command, stdin=shared(DEPTH - 2))
    assert ran.status == 0, ran.err


def test_ops_that_run_regions_over_many_paths_are_moved(ptir: Ptir) -> None:
    assert ptir("opt", "-p", "sink", stdin=shared(40, calls=2)).status == 0


@pytest.mark.parametrize("target", ["pto", "tiny"])
@pytest.mark.parametrize(("depth", "calls"), [(30, 1), (50, 2), (90, 1)])
def test_what_would_be_too_much_in_line_is_refused(ptir: Ptir, target: str, depth: int, calls: int) -> None:
    ran = ptir("translate", "--to", target, stdin=shared(depth, calls))
    assert ran.status == 1 and "in line" in ran.err


def test_few_regions_are_put_in_line(ptir: Ptir) -> None:
    assert ptir("translate", "--to", "tiny", stdin=shared(3, 2)).status == 0


def test_deeper_regions_are_over_the_limit(ptir: Ptir) -> None:
    ran = ptir("verify", stdin=shared(DEPTH))
    assert ran.status == 3 and f"more than {DEPTH}" in ran.err
