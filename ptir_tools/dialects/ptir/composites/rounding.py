"""Whole numbers, signs and roots, exactly."""

from __future__ import annotations

import math

from ptir_tools.core.dtypes import F64
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.expression import compare_eq, reciprocal, rsqrt, select


def signed(x: Tensor, size: Tensor) -> Tensor:
    """`size` with the sign of `x`; where `x` is a zero, `x`."""
    found = select(x < 0, -size, size)
    return select(compare_eq(x, 0), x, found)


def _least_whole(x: Tensor) -> float:
    """The power of two from which on all floats are integers."""
    return 2.0 ** (52 if x.dtype is F64 else 23)


def nearest(x: Tensor) -> Tensor:
    """The nearest integer, ties to even: adding a power of two rounds. Numbers beyond that power are integers."""
    high, size = _least_whole(x), abs(x)
    whole = size + high - high
    return select(size < high, signed(x, whole), x)


def floor(x: Tensor) -> Tensor:
    """The greatest integer that is not above `x`."""
    near = nearest(x)
    return select(near > x, near - 1, near)


def ceil(x: Tensor) -> Tensor:
    """The least integer that is not below `x`."""
    return -floor(-x)


def round_away(x: Tensor) -> Tensor:
    """The nearest integer, ties away from zero."""
    size = abs(x)
    below = floor(size)
    whole = select(size - below >= 0.5, below + 1, below)
    return select(size < _least_whole(x), signed(x, whole), x)


def sign(x: Tensor) -> Tensor:
    """-1 and 1; zeros and NaN are unchanged."""
    if x.dtype.is_integer:
        return (x > 0).cast(x.dtype) - (x < 0).cast(x.dtype)
    below = select(x < 0, -1, x)
    return select(x > 0, 1, below)


def is_finite(x: Tensor) -> Tensor:
    """Whether it is neither infinite nor NaN."""
    return abs(x) < math.inf


def is_negative(x: Tensor) -> Tensor:
    """Whether it is below 0, or -0.0."""
    return select(compare_eq(x, 0), reciprocal(x), x) < 0


def sqrt(x: Tensor) -> Tensor:
    """The square root, of 0 and infinity itself."""
    return reciprocal(rsqrt(x))
