"""Quantized numbers for tiles: products and rounding in pairs of f32."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.integers import bits_of, filled
from ptir_tools.convert.ptir_to_pto.operands import (
    f32_bytes,
    nearest_f32,
    tensor_of,
)
from ptir_tools.convert.ptir_to_pto.preparation import Preparation
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Literal, Op, Operand
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.rewrite.constants import element_of

_HALF = 16  # bits of half an integer


def quantize(work: Preparation, op: Op, x: Operand) -> Operand:
    """`x / scale`, rounded to quantized integers."""
    scales, axis, to = op.attr("scales"), op.attr("axis"), op.attr("output_dtype")
    if not scales:
        return work.cast(x, to, op.result.name)
    real = work.cast(x, F32)
    if set(scales) == {1.0} and to.is_integer:
        rounded = shifted(work, work.b.op("round_even", real), op.attr("zero_points"), axis)
        return work.cast(rounded, to, op.result.name)
    high, low = product_of(work, real, None, [1 / s for s in scales], axis)
    if to.is_float:
        return work.cast(work.b.op("add", high, low), to, op.result.name)
    return steps(work, high, low, op.attr("zero_points"), axis, to, op.result.name)


def dequantize(work: Preparation, op: Op, x: Operand) -> Operand:
    """The real numbers of quantized integers."""
    scales, axis, to = op.attr("scales"), op.attr("axis"), op.attr("output_dtype") or F32
    if not scales:
        return work.cast(x, to, op.result.name)
    number, rest = centered(work, x, op.attr("zero_points"), axis)
    if tensor_of(x).dtype.bits <= 16 and to is F32 and all(nearest_f32(s) == s for s in scales):
        return work.b.op("mul", number, laid(work, scales, F32, axis, tensor_of(number)))  # rounded once
    high, low = product_of(work, number, rest, scales, axis)
    return work.cast(work.b.op("add", high, low), to, op.result.name)


def requantize(work: Preparation, op: Op, x: Operand) -> Operand:
    """Quantized integers with another scale and zero point."""
    scales, others, axis, to = op.attr("scales"), op.attr("output_scales"), op.attr("axis"), op.attr("output_dtype")
    if not (scales or others):
        return work.cast(x, to, op.result.name)
    n = max(len(scales), len(others))
    pairs = zip(scales or (1.0,) * n, others or (1.0,) * n, strict=True)
    factors = [a / b for a, b in pairs]
    high, low = product_of(work, *centered(work, x, op.attr("zero_points"), axis), factors, axis)
    return steps(work, high, low, op.attr("output_zero_points"), axis, to, op.result.name)


def centered(work: Preparation, x: Operand, zero_points: Sequence[int], axis: int | None) -> tuple[Operand, Operand]:
    """Integers less their zero point, as two floats that add up to them. Raises Violation for more than 32 bits."""
    t, b = tensor_of(x), work.b.op
    require(t.dtype.bits <= SI32.bits, NOT_TRANSLATABLE, f"no tile op computes in {t.dtype}")
    if t.dtype.bits <= 16:
        whole = work.cast(x, SI32)
        if any(zero_points):
            whole = b("sub", whole, laid(work, zero_points, SI32, axis, t))
        return work.cast(whole, F32), work.fill(t.with_dtype(F32), bytes(4))
    bits = bits_of(work, x)
    upper = b("shift_right_arithmetic", bits, filled(work, bits, _HALF))
    if not t.dtype.is_signed:
        upper = b("bitwise_and", upper, filled(work, bits, (1 << _HALF) - 1))
    lower = b("bitwise_and", bits, filled(work, bits, (1 << _HALF) - 1))
    high = b("mul", work.cast(upper, F32), work.fill(t.with_dtype(F32), f32_bytes(2.0**_HALF)))
    low: Operand = work.cast(lower, F32)
    if any(zero_points):  # each half has few bits, so that differences are exact
        parts = [(z >> _HALF << _HALF, z & ((1 << _HALF) - 1)) for z in zero_points]
        high = b("sub", high, laid(work, [float(p) for p, _ in parts], F32, axis, t))
        low = b("sub", low, laid(work, [float(p) for _, p in parts], F32, axis, t))
    total = b("add", high, low)
    return total, b("sub", low, b("sub", total, high))


def laid(work: Preparation, values: Sequence[object], dtype: DType, axis: int | None, t: TensorType) -> Operand:
    """Numbers along an axis, broadcast to a tensor's shape."""
    table = work.table(values, dtype, "steps")
    if isinstance(table, Literal):
        return work.fill(t.with_dtype(dtype), element_of(table) or b"")
    shape = tuple(len(values) if axis is not None and d == axis % t.rank else 1 for d in range(t.rank))
    return work.b.op("broadcast_to", work.b.op("reshape", table, new_shape=shape), result_shape=t.shape)


def product_of(
    work: Preparation, x: Operand, rest: Operand | None, factors: Sequence[float], axis: int | None
) -> tuple[Operand, Operand]:
    """`(x + rest) * factor` as two f32 that add up to it, about twice as precise as one (Dekker)."""
    t = tensor_of(x)
    b = work.b.op
    rounded = [nearest_f32(f) for f in factors]
    high, low = (laid(work, values, F32, axis, t) for values in (rounded, [f - n for f, n in zip(factors, rounded, strict=True)]))
    top = b("mul", x, high)
    x1, x2 = halves(work, x)
    y1, y2 = halves(work, high)
    error = b("sub", b("mul", x1, y1), top)
    for p, q in ((x1, y2), (x2, y1), (x2, y2)):
        error = b("add", error, b("mul", p, q))
    error = b("add", error, b("mul", x, low))
    if rest is not None and not isinstance(rest, Literal):
        error = b("add", error, b("mul", rest, high))
    return top, error


def halves(work: Preparation, x: Operand) -> tuple[Operand, Operand]:
    """An f32 as the sum of two with half as many digits (Veltkamp)."""
    t = tensor_of(x)
    if isinstance(x, Literal):
        (value,) = unpack("<f", element_of(x) or b"")
        high = nearest_f32(nearest_f32(4097.0 * value) - nearest_f32(nearest_f32(4097.0 * value) - value))
        return work.fill(t, f32_bytes(high)), work.fill(t, f32_bytes(value - high))
    much = work.b.op("mul", x, work.fill(t, f32_bytes(4097.0)))
    first = work.b.op("sub", much, work.b.op("sub", much, x))
    return first, work.b.op("sub", x, first)


def steps(
    work: Preparation, high: Operand, low: Operand, zero_points: Sequence[int], axis: int | None, to: DType, name: str
) -> Operand:
    """The sum of two floats rounded to quantized integers, ties to even, saturated."""
    t, b = tensor_of(high), work.b.op
    one, half, zero = (work.fill(t, f32_bytes(n)) for n in (1.0, 0.5, 0.0))
    rounded = b("round_even", high)
    rest = b("sub", high, rounded)
    for sign, compare, more in (("sub", "compare_gt", "add"), ("add", "compare_lt", "sub")):
        over = b(compare, b("add", b(sign, rest, half), low), zero)
        moved = b("select", over, b(more, rounded, one), rounded)
        rounded, rest = moved, b("select", over, zero, rest)
    return work.cast(shifted(work, rounded, zero_points, axis), to, name)


def shifted(work: Preparation, rounded: Operand, zero_points: Sequence[int], axis: int | None) -> Operand:
    """Integral floats plus the zero points."""
    if not any(zero_points):
        return rounded
    return work.b.op("add", rounded, laid(work, [float(z) for z in zero_points], F32, axis, tensor_of(rounded)))
