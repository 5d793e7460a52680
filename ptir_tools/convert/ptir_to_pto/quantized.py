"""Quantized numbers for tiles: products and rounding in pairs of f32."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.integers import bits_of
from ptir_tools.convert.ptir_to_pto.operands import (
    Place,
    filled,
    nearest_f32,
    tensor_of,
)
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Literal, Op, Operand
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.rewrite.constants import element_of

_HALF = 16  # bits of half an integer


def quantize(site: Place, op: Op, x: Operand) -> Operand:
    """`x / scale`, rounded to quantized integers."""
    scales, axis, to = op.attr("scales"), op.attr("axis"), op.attr("output_dtype")
    if not scales:
        return site.cast(x, to)
    real = site.cast(x, F32)
    if set(scales) == {1.0} and to.is_integer:
        rounded = shifted(site, site.op("round_even", real), op.attr("zero_points"), axis)
        return site.cast(rounded, to)
    high, low = product_of(site, real, None, [1 / s for s in scales], axis)
    if to.is_float:
        return site.cast(site.op("add", high, low), to)
    return steps(site, high, low, op.attr("zero_points"), axis, to)


def dequantize(site: Place, op: Op, x: Operand) -> Operand:
    """The real numbers of quantized integers."""
    scales, axis, to = op.attr("scales"), op.attr("axis"), op.attr("output_dtype") or F32
    if not scales:
        return site.cast(x, to)
    number, rest = centered(site, x, op.attr("zero_points"), axis)
    if tensor_of(x).dtype.bits <= 16 and to is F32 and all(nearest_f32(s) == s for s in scales):
        return site.op("mul", number, laid(site, scales, F32, axis, tensor_of(number)))  # rounded once
    high, low = product_of(site, number, rest, scales, axis)
    return site.cast(site.op("add", high, low), to)


def requantize(site: Place, op: Op, x: Operand) -> Operand:
    """Quantized integers with another scale and zero point."""
    scales, others, axis, to = op.attr("scales"), op.attr("output_scales"), op.attr("axis"), op.attr("output_dtype")
    if not (scales or others):
        return site.cast(x, to)
    n = max(len(scales), len(others))
    pairs = zip(scales or (1.0,) * n, others or (1.0,) * n, strict=True)
    factors = [a / b for a, b in pairs]
    high, low = product_of(site, *centered(site, x, op.attr("zero_points"), axis), factors, axis)
    return steps(site, high, low, op.attr("output_zero_points"), axis, to)


def centered(site: Place, x: Operand, zero_points: Sequence[int], axis: int | None) -> tuple[Operand, Operand]:
    """Integers less their zero point, as two floats that add up to them. Raises Violation for more than 32 bits."""
    t, b = tensor_of(x), site.op
    require(t.dtype.bits <= SI32.bits, NOT_TRANSLATABLE, f"no tile op computes in {t.dtype}")
    if t.dtype.bits <= 16:
        whole = site.cast(x, SI32)
        if any(zero_points):
            whole = b("sub", whole, laid(site, zero_points, SI32, axis, t))
        return site.cast(whole, F32), site.fill(t.with_dtype(F32), bytes(4))
    bits = bits_of(site, x)
    upper = b("shift_right_arithmetic", bits, _HALF)
    if not t.dtype.is_signed:
        upper = b("bitwise_and", upper, (1 << _HALF) - 1)
    lower = b("bitwise_and", bits, (1 << _HALF) - 1)
    high = b("mul", site.cast(upper, F32), 2.0**_HALF)
    low: Operand = site.cast(lower, F32)
    if any(zero_points):  # each half has few bits, so that differences are exact
        parts = [(z >> _HALF << _HALF, z & ((1 << _HALF) - 1)) for z in zero_points]
        high = b("sub", high, laid(site, [float(p) for p, _ in parts], F32, axis, t))
        low = b("sub", low, laid(site, [float(p) for _, p in parts], F32, axis, t))
    total = b("add", high, low)
    return total, b("sub", low, b("sub", total, high))


def laid(site: Place, values: Sequence[object], dtype: DType, axis: int | None, t: TensorType) -> Operand:
    """Numbers along an axis, broadcast to a tensor's shape."""
    table = site.table(values, dtype, "steps")
    if isinstance(table, Literal):
        return site.fill(t.with_dtype(dtype), element_of(table) or b"")
    shape = tuple(len(values) if axis is not None and d == axis % t.rank else 1 for d in range(t.rank))
    return site.op("broadcast_to", site.op("reshape", table, new_shape=shape), result_shape=t.shape)


def product_of(
    site: Place, x: Operand, rest: Operand | None, factors: Sequence[float], axis: int | None
) -> tuple[Operand, Operand]:
    """`(x + rest) * factor` as two f32 that add up to it, about twice as precise as one (Dekker)."""
    t = tensor_of(x)
    b = site.op
    rounded = [nearest_f32(f) for f in factors]
    high, low = (laid(site, values, F32, axis, t) for values in (rounded, [f - n for f, n in zip(factors, rounded, strict=True)]))
    top = b("mul", x, high)
    x1, x2 = halves(site, x)
    y1, y2 = halves(site, high)
    error = b("sub", b("mul", x1, y1), top)
    for p, q in ((x1, y2), (x2, y1), (x2, y2)):
        error = b("add", error, b("mul", p, q))
    error = b("add", error, b("mul", x, low))
    if rest is not None and not isinstance(rest, Literal):
        error = b("add", error, b("mul", rest, high))
    return top, error


def halves(site: Place, x: Operand) -> tuple[Operand, Operand]:
    """An f32 as the sum of two with half as many digits (Veltkamp)."""
    t = tensor_of(x)
    if isinstance(x, Literal):
        (value,) = unpack("<f", element_of(x) or b"")
        high = nearest_f32(nearest_f32(4097.0 * value) - nearest_f32(nearest_f32(4097.0 * value) - value))
        return filled(high, t), filled(value - high, t)
    much = site.op("mul", x, 4097.0)
    first = site.op("sub", much, site.op("sub", much, x))
    return first, site.op("sub", x, first)


def steps(site: Place, high: Operand, low: Operand, zero_points: Sequence[int], axis: int | None, to: DType) -> Operand:
    """The sum of two floats rounded to quantized integers, ties to even, saturated."""
    b = site.op
    rounded = b("round_even", high)
    rest = b("sub", high, rounded)
    for sign, compare, more in (("sub", "compare_gt", "add"), ("add", "compare_lt", "sub")):
        over = b(compare, b("add", b(sign, rest, 0.5), low), 0.0)
        moved = b("select", over, b(more, rounded, 1.0), rounded)
        rounded, rest = moved, b("select", over, 0.0, rest)
    return site.cast(shifted(site, rounded, zero_points, axis), to)


def shifted(site: Place, rounded: Operand, zero_points: Sequence[int], axis: int | None) -> Operand:
    """Integral floats plus the zero points."""
    if not any(zero_points):
        return rounded
    return site.op("add", rounded, laid(site, [float(z) for z in zero_points], F32, axis, tensor_of(rounded)))
