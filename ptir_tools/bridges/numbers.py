"""Conversions of numbers, and formulas of complex ones."""

from __future__ import annotations

import math

from ptir_tools.core.dtypes import PTIR_DTYPES, DType, Kind, lossless
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import rounding

_INTEGERS = {(d.bits, d.is_signed): d for d in PTIR_DTYPES if d.is_integer}


def integers(bits: int, signed: bool) -> DType:
    """The dtype of integers with that many bits."""
    return _INTEGERS[bits, signed]


def converted(x: Tensor, target: DType) -> Tensor:
    """Each element as `target`: PTIR's cast, except where it saturates integers or refuses."""
    source = x.dtype
    if source is target:
        return x
    if source.is_complex and not target.is_complex:
        return converted(x.real(), target)
    if source.is_integer and target.is_integer and not lossless(source, target):
        return wrapped(x, target)
    return x.cast(target)


def wrapped(x: Tensor, target: DType) -> Tensor:
    """Integers modulo 2 to the number of bits of `target`. PTIR's cast would saturate, so the bits are cast."""
    source = x.dtype
    if source.bits == target.bits:
        return x.bitcast(target)
    if source.bits < target.bits:  # a negative number as unsigned
        return x.cast(integers(target.bits, signed=True)).bitcast(target)
    unsigned = x if source.kind is Kind.UINT else x.bitcast(integers(source.bits, signed=False))
    narrow = unsigned.bitwise_and((1 << target.bits) - 1).cast(integers(target.bits, signed=False))
    return narrow if target.kind is Kind.UINT else narrow.bitcast(target)


def conjugate(x: Tensor) -> Tensor:
    """The complex conjugate; of a real number itself."""
    return x.real().complex(-x.imag()) if x.dtype.is_complex else x


def magnitude(x: Tensor) -> Tensor:
    """The absolute value; of complex numbers the larger part times `sqrt(1 + (smaller / larger)^2)`."""
    if not x.dtype.is_complex:
        return x.abs()
    a, b = x.real().abs(), x.imag().abs()
    high, low = a.maximum(b), a.minimum(b)
    ratio = low / high.compare_eq(0).select(1, high)
    result = high * square_root(1 + ratio * ratio)
    return high.compare_eq(math.inf).bitwise_or(low.compare_eq(math.inf)).select(math.inf, result)


def square_root(x: Tensor) -> Tensor:
    """The square root, also of complex numbers."""
    return _complex_root(x) if x.dtype.is_complex else rounding.sqrt(x)


def _complex_root(x: Tensor) -> Tensor:
    """The square root of complex numbers, computed from the larger part so that no square overflows; infinities as in C99."""
    a, b = x.real(), x.imag()
    across, up = a.abs(), b.abs()
    larger = across.maximum(up)
    empty = larger.compare_eq(0)
    size = empty.select(1, larger)
    p, q = across / size, up / size
    u = rounding.sqrt(size) * rounding.sqrt((rounding.sqrt(p * p + q * q) + p) * 0.5)
    v = up / empty.select(1, u) * 0.5
    # If one part is infinite, so is the root, along the nearest axis.
    nothing = up * 0  # 0 or NaN
    tall = up.compare_eq(math.inf)
    infinite = tall.bitwise_or(across.compare_eq(math.inf))
    u = infinite.select(math.inf, u)
    v = infinite.select(tall.select(math.inf, nothing), v)
    negative = a < 0
    second = negative.select(u, v)
    return negative.select(v, u).complex(rounding.is_negative(b).select(-second, second))
