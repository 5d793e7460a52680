"""Quantized numbers for tiles: products and rounding in pairs of f32."""

from __future__ import annotations

from collections.abc import Sequence
from struct import unpack

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.integers import bits_of
from ptir_tools.convert.ptir_to_pto.operands import Place, cast, nearest_f32
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.constants import element_of
from ptir_tools.rewrite.expression import function, select

_HALF = 16  # bits of half an integer
_round = function("round_even")


def quantize(site: Place, x: Tensor) -> Tensor:
    """`x / scale`, rounded to quantized integers."""
    scales, axis, to = (site.root.attr(name) for name in ("scales", "axis", "output_dtype"))
    if not scales:
        return cast(x, to)
    real = cast(x, F32)
    if set(scales) == {1.0} and to.is_integer:
        return cast(_moved(site, _round(real), site.root.attr("zero_points"), axis), to)
    high, low = _product_of(site, real, None, [1 / s for s in scales], axis)
    if to.is_float:
        return cast(high + low, to)
    return _steps(site, high, low, site.root.attr("zero_points"), axis, to)


def dequantize(site: Place, x: Tensor) -> Tensor:
    """The real numbers of quantized integers."""
    scales, axis, to = site.root.attr("scales"), site.root.attr("axis"), site.root.attr("output_dtype") or F32
    if not scales:
        return cast(x, to)
    number, rest = _centered(site, x, site.root.attr("zero_points"), axis)
    if x.dtype.bits <= 16 and to is F32 and all(nearest_f32(s) == s for s in scales):
        return number * _laid(site, scales, F32, axis, number.tensor_type)  # rounded once
    high, low = _product_of(site, number, rest, scales, axis)
    return cast(high + low, to)


def requantize(site: Place, x: Tensor) -> Tensor:
    """Quantized integers with another scale and zero point."""
    scales, others, axis, to = (site.root.attr(name) for name in ("scales", "output_scales", "axis", "output_dtype"))
    if not (scales or others):
        return cast(x, to)
    n = max(len(scales), len(others))
    factors = [a / b for a, b in zip(scales or (1.0,) * n, others or (1.0,) * n, strict=True)]
    high, low = _product_of(site, *_centered(site, x, site.root.attr("zero_points"), axis), factors, axis)
    return _steps(site, high, low, site.root.attr("output_zero_points"), axis, to)


def _centered(site: Place, x: Tensor, zero_points: Sequence[int], axis: int | None) -> tuple[Tensor, Tensor | None]:
    """Integers less their zero point, as two floats that add up to them (None: 0). Raises Violation for more than 32 bits."""
    t = x.tensor_type
    require(t.dtype.bits <= SI32.bits, NOT_TRANSLATABLE, f"no tile op computes in {t.dtype}")
    if t.dtype.bits <= 16:
        whole = cast(x, SI32)
        if any(zero_points):
            whole = whole - _laid(site, zero_points, SI32, axis, t)
        return cast(whole, F32), None
    bits = bits_of(x)
    upper = bits.shift_right_arithmetic(_HALF)
    if not t.dtype.is_signed:
        upper = upper.bitwise_and((1 << _HALF) - 1)
    lower = bits.bitwise_and((1 << _HALF) - 1)
    high = cast(upper, F32) * 2.0**_HALF
    low = cast(lower, F32)
    if any(zero_points):  # each half has few bits, so that differences are exact
        parts = [(z >> _HALF << _HALF, z & ((1 << _HALF) - 1)) for z in zero_points]
        high = high - _laid(site, [float(p) for p, _ in parts], F32, axis, t)
        low = low - _laid(site, [float(p) for _, p in parts], F32, axis, t)
    total = high + low
    return total, low - (total - high)


def _laid(site: Place, values: Sequence[object], dtype: DType, axis: int | None, t: TensorType) -> Tensor:
    """Numbers along an axis, broadcast to a tensor's shape."""
    table = site.table(values, dtype, "steps")
    if isinstance(literal := table.operand, Literal):
        return site(Literal(t.with_dtype(dtype), element_of(literal) or b"", True))
    shape = tuple(len(values) if axis is not None and d == axis % t.rank else 1 for d in range(t.rank))
    return table.reshape(shape).broadcast_to(t.shape)


def _product_of(site: Place, x: Tensor, rest: Tensor | None, factors: Sequence[float], axis: int | None) -> tuple[Tensor, Tensor]:
    """`(x + rest) * factor` as two f32 that add up to it, about twice as precise as one (Dekker)."""
    t, rounded = x.tensor_type, [nearest_f32(f) for f in factors]
    high, low = (_laid(site, n, F32, axis, t) for n in (rounded, [f - n for f, n in zip(factors, rounded, strict=True)]))
    top = x * high
    x1, x2 = _halves(site, x)
    y1, y2 = _halves(site, high)
    error = x1 * y1 - top
    for p, q in ((x1, y2), (x2, y1), (x2, y2)):
        error = error + p * q
    error = error + x * low
    return top, error if rest is None else error + rest * high


def _halves(site: Place, x: Tensor) -> tuple[Tensor, Tensor]:
    """An f32 as the sum of two with half as many digits (Veltkamp)."""
    if isinstance(x.operand, Literal):
        (value,) = unpack("<f", element_of(x.operand) or b"")
        high = nearest_f32(nearest_f32(4097.0 * value) - nearest_f32(nearest_f32(4097.0 * value) - value))
        return site.full(high, x), site.full(value - high, x)
    much = x * 4097.0
    first = much - (much - x)
    return first, x - first


def _steps(site: Place, high: Tensor, low: Tensor, zero_points: Sequence[int], axis: int | None, to: DType) -> Tensor:
    """The sum of two floats rounded to quantized integers, ties to even, saturated."""
    rounded = _round(high)
    rest = high - rounded
    over = (rest - 0.5) + low > 0.0
    rounded, rest = select(over, rounded + 1.0, rounded), select(over, 0.0, rest)
    under = (rest + 0.5) + low < 0.0
    rounded, rest = select(under, rounded - 1.0, rounded), select(under, 0.0, rest)
    return cast(_moved(site, rounded, zero_points, axis), to)


def _moved(site: Place, rounded: Tensor, zero_points: Sequence[int], axis: int | None) -> Tensor:
    """Integral floats plus the zero points."""
    if not any(zero_points):
        return rounded
    return rounded + _laid(site, [float(z) for z in zero_points], F32, axis, rounded.tensor_type)
