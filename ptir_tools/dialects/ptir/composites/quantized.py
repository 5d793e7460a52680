"""Quantization in casts, products and sums of f64, as its ops are declared."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.dtypes import F64, DType
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast
from ptir_tools.rewrite.expression import function

_nearest = function("round_even")


def _along(x: Tensor, values: Sequence[float], axis: int | None) -> Tensor:
    """A number per index of `axis`, or the one of the tensor, in f64, for each element of `x`."""
    if axis is None:
        return x.block.full(float(values[0]), x)
    behind = x.rank - 1 - axis % x.rank
    return x.block.constant([float(v) for v in values], F64).reshape((len(values), *[1] * behind)).broadcast_like(x)


def _numbers(site: Site, x: Tensor) -> Tensor:
    """The numbers that quantized values represent."""
    axis, wide = site.root.attr("axis"), cast(x, F64)
    if zeros := site.root.attr("zero_points"):
        wide = wide - _along(wide, zeros, axis)
    scales = site.root.attr("scales")
    return wide * _along(wide, scales, axis) if scales else wide


def _quantized(site: Site, real: Tensor, dtype: DType, prefix: str = "") -> Tensor:
    """Numbers rounded to the nearest quantized value, saturated by the cast."""
    axis = site.root.attr("axis")
    if scales := site.root.attr(f"{prefix}scales"):
        real = real / _along(real, scales, axis)
    if dtype.is_float:
        return cast(real, dtype)
    whole = _nearest(real)
    if zeros := site.root.attr(f"{prefix}zero_points"):
        whole = whole + _along(whole, zeros, axis)
    return cast(whole, dtype)


def quantize(site: Site, x: Tensor) -> Tensor:
    """Floats as integers, or narrower floats."""
    dtype = site.root.attr("output_dtype")
    return _quantized(site, cast(x, F64), dtype) if site.root.attr("scales") else cast(x, dtype)


def requantize(site: Site, x: Tensor) -> Tensor:
    """Integers as other integers."""
    dtype = site.root.attr("output_dtype")
    if not site.root.attr("scales") and not site.root.attr("output_scales"):
        return cast(x, dtype)
    return _quantized(site, _numbers(site, x), dtype, "output_")


def dequantize(site: Site, x: Tensor) -> Tensor:
    """Integers as floats."""
    return cast(_numbers(site, x) if site.root.attr("scales") else x, site.result.dtype)
