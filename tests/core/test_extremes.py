"""Each form of the maximum and the minimum against Python's `max` on pairs (number, sign): NaN propagates, 0.0 is above -0.0."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import reduce

import ml_dtypes
import numpy as np
import pytest

from ptir_tools.core.extremes import MAXIMUM, MINIMUM, Extreme

DTYPES = [np.dtype(d) for d in ("f2", "f4", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, "i4", "u1", "?")]
FLOATS = [d for d in DTYPES if d.kind not in "iub"]
NUMBERS = (0.0, -0.0, 1.0, -2.0, math.nan, math.inf)
BOTH = pytest.mark.parametrize("extreme", [MAXIMUM, MINIMUM], ids=["maximum", "minimum"])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """As the engines run."""
    with np.errstate(all="ignore"):
        yield


def one(extreme: Extreme, values: Sequence[float]) -> float:
    """The extreme of some numbers."""
    if any(v != v for v in values):
        return math.nan
    pick = max if extreme is MAXIMUM else min
    return pick(values, key=lambda v: (v, math.copysign(1, v)))


def same(found: np.ndarray, wanted: Sequence[float], dtype: np.dtype) -> None:
    want = np.array(wanted).astype(dtype)
    assert found.dtype == dtype and found.shape == want.shape
    a, b = found.astype(np.float64), want.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    known = ~np.isnan(b)
    np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])


def numbers(dtype: np.dtype) -> list[float]:
    return [*NUMBERS] if dtype in FLOATS else [0, 1] if dtype.kind == "b" else [0, 1, 7, 100]


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_each_pair(extreme: Extreme, dtype: np.dtype) -> None:
    pairs = [*itertools.product(numbers(dtype), repeat=2)]
    x, y = (np.array([p[i] for p in pairs]).astype(dtype) for i in (0, 1))
    wanted = [one(extreme, p) for p in pairs]
    same(extreme(x, y), wanted, dtype)
    out = np.zeros_like(x)
    extreme(x, y, out=out)
    same(out, wanted, dtype)
    for place in (0, 1):  # the result may take the place of either
        own = [np.array([p[i] for p in pairs]).astype(dtype) for i in (0, 1)]
        same(extreme(*own, out=own[place]), wanted, dtype)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_with_a_number(extreme: Extreme, dtype: np.dtype) -> None:
    values = numbers(dtype)
    for number in values:
        x, scalar = np.array(values).astype(dtype), np.array(number).astype(dtype)
        y, out = np.full_like(x, scalar), np.empty_like(x)
        wanted = [one(extreme, (v, number)) for v in values]
        extreme.with_number(x, y, scalar, out)
        same(out, wanted, dtype)
        extreme.with_number(x, y, scalar, x)
        same(x, wanted, dtype)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_each_row(extreme: Extreme, dtype: np.dtype) -> None:
    rows = [*itertools.product(numbers(dtype), repeat=3)]
    x = np.array(rows).astype(dtype)
    wanted = [one(extreme, row) for row in rows]
    same(extreme.reduce(x, axis=1), wanted, dtype)
    same(extreme.reduce(x.T), wanted, dtype)
    same(extreme.reduce(x[:, None], axis=[1, 2]), wanted, dtype)
    same(extreme.reduce(x, axis=1, keepdims=True), [[w] for w in wanted], dtype)
    out = np.empty(len(rows), dtype)
    assert extreme.reduce(x, axis=1, out=out) is not None
    same(out, wanted, dtype)
    same(extreme.accumulate(x, 1), [[one(extreme, row[: i + 1]) for i in range(3)] for row in rows], dtype)
    same(
        extreme.accumulate(x), [[one(extreme, [r[k] for r in rows[: i + 1]]) for k in range(3)] for i in range(len(rows))], dtype
    )
    for initial in numbers(dtype):
        same(extreme.reduce(x, axis=1, initial=initial), [one(extreme, (initial, *row)) for row in rows], dtype)


@BOTH
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_at_an_index(extreme: Extreme, dtype: np.dtype) -> None:
    """Some elements are met twice, some by a zero that changes nothing, and some not at all."""
    rows = [*itertools.product(numbers(dtype), repeat=3)]
    start, first, second = (np.array([r[i] for r in rows]).astype(dtype) for i in range(3))
    out, index = np.concatenate([start, start]), np.arange(len(rows))
    extreme.at(out, np.concatenate([index, index]), np.concatenate([first, second]))
    same(out, [*(one(extreme, r) for r in rows), *(r[0] for r in rows)], dtype)
    table = start.reshape(1, -1).copy()
    extreme.at(table, (np.zeros_like(index), index), first)
    same(table[0], [reduce(lambda a, b: one(extreme, (a, b)), r[:2]) for r in rows], dtype)
