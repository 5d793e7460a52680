"""Quantization (contract: Quantize, Dequantize, Requantize).

As in gpt.rs, an op without scales is a cast. `scales` and `zero_points` are attributes of this toolkit; the dump and JSON cannot
carry them. With them, an integer q represents the number (q - zero_point) * scale. There is one pair for the tensor, or one per
index of `axis`.
"""

from __future__ import annotations

from functools import partial
from math import isfinite

from ptir_tools.core import arrays, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import DECODES, PURE, InPlace, Op, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import attribute as place
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import dtype_of
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, INTEGERS, ORDERED, agree, attribute, axis_of, rule, want

Floats = tuple[float, ...]
Ints = tuple[int, ...]

quantization = partial(op, traits=PURE, error=errors.pointwise(), factors=factors.each)


def check_scales(x: TensorType, axis: int | None, scales: Floats, zero_points: Ints, dtype: DType, prefix: str = "") -> None:
    """Check that there is a positive scale, and a zero point of the integer `dtype`, for the tensor or for each index of `axis`.

    Raises Violation: "InvalidAttributeValue", "DynamicDimensionMismatch".
    """
    if axis is not None:
        axis_of(axis, x.rank)
    name = f"{prefix}scales"
    attribute(not zero_points or len(zero_points) == len(scales), f"{prefix}zero_points needs an entry per scale", name)
    for i, s in enumerate(scales):
        if not (isfinite(s) and s > 0):  # there may be thousands: a message is made when it is needed
            attribute(False, f"{name} {list(scales)} has one that is not a positive number", place(name, i))
    for i, z in enumerate(zero_points):
        if not (dtype.is_integer and dtype.min <= z <= dtype.max):
            message = f"{prefix}zero_points {list(zero_points)} has one that {dtype} has not"
            attribute(False, message, place(f"{prefix}zero_points", i))
    if axis is None:
        attribute(len(scales) <= 1, f"{len(scales)} {name} and no axis", name)
    elif scales:
        agree(x.shape[axis], len(scales), "InvalidAttributeValue", f"{name} needs an entry per index of axis {axis}", name)


def along_axis(values: Floats | Ints, x: Array, axis: int | None, missing: int) -> Array:
    """`values` in float64, broadcastable along `axis` of `x`; `missing` when there are none."""
    laid = np.asarray(values or (missing,), np.float64)
    return laid.reshape([-1 if axis is not None and i == axis % x.ndim else 1 for i in range(x.ndim)])


def to_quantized(real: Array, axis: int | None, scales: Floats, zero_points: Ints, dtype: DType) -> Array:
    """Float64 numbers quantized: nearest, ties to even, saturated; NaN is 0. A float `dtype` is rounded to."""
    with np.errstate(all="ignore"):
        scaled = real / along_axis(scales, real, axis, 1)
        if dtype.is_float:
            return arrays.round_float(scaled, dtype)
        return arrays.saturate_float(np.rint(scaled) + along_axis(zero_points, real, axis, 0), dtype)


def from_quantized(q: Array, axis: int | None, scales: Floats, zero_points: Ints) -> Array:
    """The numbers that quantized values represent, in float64."""
    wide = arrays.widen(q).astype(np.float64)
    return np.asarray((wide - along_axis(zero_points, wide, axis, 0)) * along_axis(scales, wide, axis, 1))


@rule
def quantize_type(x: TensorType, *, output_dtype: DType, axis: int | None, scales: Floats, zero_points: Ints) -> TensorType:
    """A float operand, an integer or float result."""
    want(x.dtype, FLOATS)
    want(output_dtype, ORDERED, "output_dtype", at="output_dtype")
    check_scales(x, axis, scales, zero_points, output_dtype)
    return x.with_dtype(output_dtype)


@rule
def requantize_type(
    x: TensorType,
    *,
    output_dtype: DType,
    axis: int | None,
    scales: Floats,
    zero_points: Ints,
    output_scales: Floats,
    output_zero_points: Ints,
) -> TensorType:
    """An integer operand, an integer result."""
    want(x.dtype, INTEGERS)
    want(output_dtype, INTEGERS, "output_dtype", at="output_dtype")
    check_scales(x, axis, scales, zero_points, x.dtype)
    check_scales(x, axis, output_scales, output_zero_points, output_dtype, "output_")
    return x.with_dtype(output_dtype)


@rule
def dequantize_type(
    x: TensorType, *, axis: int | None, output_dtype: DType | None, scales: Floats, zero_points: Ints
) -> TensorType:
    """An integer operand, a float result."""
    want(x.dtype, INTEGERS)
    want(output_dtype or F32, FLOATS, "output_dtype", at="output_dtype")
    check_scales(x, axis, scales, zero_points, x.dtype)
    return x.with_dtype(output_dtype or F32)


def has_scales(op: Op) -> bool:
    """Whether a quantization op has scales. gpt.rs has no field for them."""
    names = ("scales", "output_scales")
    return op.defn.short.endswith("quantize") and any(op.attr(n) for n in names if n in op.defn.attr_index)


def fold_quantize(op: Op) -> Operand | None:
    """`x`, when it has the dtype and there are no scales."""
    return None if has_scales(op) else op.operands[0]


@quantization("ptir.quantize", infer=quantize_type, fold=fold_quantize, inplace=InPlace("quantize"))
def quantize(
    x: Array, *, output_dtype: DType, axis: int | None = None, scales: tuple[float, ...] = (), zero_points: tuple[int, ...] = ()
) -> Array:
    """A float tensor as `output_dtype`. Contract: Quantize.

    With scales: `round(x / scale) + zero_point`, ties to even, saturated, NaN to 0, computed in float64. Without scales: the
    cast, truncated toward zero. A scale and zero point are the tensor's, or one for each index of `axis`.
    DTypeNotSupported: `x` is not a float, or `output_dtype` is i1 or complex. InvalidAttributeValue: `axis` is out of range, a
    scale is not positive, a zero point is not of the dtype, or their number is not that of the indices.
    """
    if not scales:
        return arrays.cast(x, dtype_of(x), output_dtype)
    return to_quantized(arrays.widen(x), axis, scales, zero_points, output_dtype)


@quantization("ptir.requantize", infer=requantize_type, fold=fold_quantize, inplace=InPlace("requantize"))
def requantize(
    x: Array,
    *,
    output_dtype: DType,
    axis: int | None = None,
    scales: tuple[float, ...] = (),
    zero_points: tuple[int, ...] = (),
    output_scales: tuple[float, ...] = (),
    output_zero_points: tuple[int, ...] = (),
) -> Array:
    """An integer tensor as another integer dtype. Contract: Requantize.

    With scales on either side: the number that `x` represents, quantized by the output's scale and zero point (1 and 0 where a
    side has none), computed in float64. Without scales: saturated.
    DTypeNotSupported: `x` or `output_dtype` is not an integer. InvalidAttributeValue: as in `quantize`.
    """
    if not scales and not output_scales:
        return arrays.cast(x, dtype_of(x), output_dtype)
    return to_quantized(from_quantized(x, axis, scales, zero_points), axis, output_scales, output_zero_points, output_dtype)


@quantization("ptir.dequantize", traits=PURE | DECODES, infer=dequantize_type, inplace=InPlace("dequantize"))
def dequantize(
    x: Array,
    *,
    axis: int | None = None,
    output_dtype: DType | None = None,
    scales: tuple[float, ...] = (),
    zero_points: tuple[int, ...] = (),
    result: Result,
) -> Array:
    """An integer tensor as floats of `output_dtype` (f32). Contract: Dequantize.

    With scales: `(x - zero_point) * scale` in float64, rounded once. Without: the nearest float.
    DTypeNotSupported: `x` is not an integer, or `output_dtype` not a float. InvalidAttributeValue: as in `quantize`.
    """
    if not scales:
        return arrays.cast(x, dtype_of(x), result.dtype)
    return arrays.round_float(from_quantized(x, axis, scales, zero_points), result.dtype)
