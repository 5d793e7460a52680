"""Arithmetic on symbolic extents, compared with Python's integers."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptir_tools.bridges.extents import Extent, Size, dim, divided_up, larger, of, poly, settled, smaller
from ptir_tools.core.expressions import to_dim
from ptir_tools.core.extents import parse
from ptir_tools.core.types import Sym, sym
from ptir_tools.core.violations import Violation

NAMES = "NMK"


def value(x: Size, numbers: dict[str, int]) -> int:
    return int(poly(x).evaluate(numbers))


def drawn(rng: random.Random, numbers: dict[str, int], depth: int) -> tuple[Size, int]:
    """A random extent and its value."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.5:
            return of(sym(name := rng.choice(NAMES))), numbers[name]
        n = rng.randint(-6, 6)
        return (np.int64(n) if rng.random() < 0.3 else n), n
    (x, a), (y, b) = (drawn(rng, numbers, depth - 1) for _ in "ab")
    match rng.choice("+-*/%n"):
        case "+":
            return x + y, a + b
        case "-":
            return x - y, a - b
        case "*":
            return x * y, a * b
        case "n":
            return -x, -a
        case op:
            by, n = rng.choice(
                [(4, 4), (6, 6), (np.int64(2), 2), (of(sym("N")), numbers["N"]), (2 * of(sym("K")), 2 * numbers["K"])]
            )
            return (x // by, a // n) if op == "/" else (x % by, a % n)


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None)
def test_arithmetic_agrees_with_integers(seed: int) -> None:
    rng = random.Random(seed)
    numbers = {n: rng.randint(1, 9) for n in NAMES}
    x, want = drawn(rng, numbers, 4)
    assert value(x, numbers) == want
    some: dict[Sym, Size] = {sym("N"): numbers["N"], sym("M"): of(sym("K")) + (numbers["M"] - numbers["K"])}
    assert not isinstance(x, Extent) or value(x.where(some), numbers) == want
    assert isinstance(x, (int, np.integer)) or dim(x) is dim(x + 0)


N, M = of(sym("N")), of(sym("M"))


@pytest.mark.parametrize(("x", "expression"), [
    (N, "?N"), (2 * N, "2 * ?N"), (N - 1, "?N - 1"), ((N + 1) // 2, "?N ceildiv 2"), (M * N + N, "?M * ?N + ?N"),
    ((4 * N + M + 8) // 4, "?M floordiv 4 + ?N + 2"), ((4 * N + 2) % 8, "(4 * ?N + 2) mod 8"), (-N // 2, "-(?N ceildiv 2)"),
    (smaller(N, M), "min(?N, ?M)"), (larger(N - 3, 0), "max(?N - 3, 0)"), (divided_up(N, 3), "?N ceildiv 3"),
])  # fmt: skip
def test_an_extent_of_a_type_is_the_expression(x: Size, expression: str) -> None:
    assert dim(x) is to_dim(parse(expression))


@pytest.mark.parametrize(("x", "number"), [
    (N - N, 0), ((2 * N + 7) % 2, 1), (N * M // (M * N), 1), ((N + M) // (M + N), 1), ((N + 1) % (N + 1), 0), (0 // N, 0),
])  # fmt: skip
def test_what_is_a_number_is_an_integer(x: Size, number: int) -> None:
    assert type(x) is int
    assert x == number


@pytest.mark.parametrize("by", [0, -2])
def test_a_number_below_one_does_not_divide(by: int) -> None:
    with pytest.raises(Violation, match="not positive"):
        _ = N // by


def test_objects_that_are_integers_become_int64() -> None:
    """Nothing else changes: other dtypes are kept, and so is what has an extent."""
    for array in (np.array([1, 2], object), np.array([np.int32(1), 2], object), np.array([[3]], object), np.array([], object)):
        made = settled(array)
        assert made.dtype == np.int64 and made.shape == array.shape and made.tolist() == array.tolist()
    for kept in (
        np.array([1, 2], np.int32),
        np.array([1.5]),
        np.array([True]),
        np.array([1, 1.5], object),
        np.array(["a", 1], object),
    ):
        assert settled(kept) is kept
