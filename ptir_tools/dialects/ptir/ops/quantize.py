"""Quantization (contract: Quantize, Dequantize, Requantize). There is no scale or zero point: each is a cast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.opdef import ELEMENTWISE, PURE, op
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.numerics import dtype_of
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, INTEGERS, ORDERED, axis_of, rule, want

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array
    from ptir_tools.dialects.ptir.ops.kinds import Result


def _axis(x: TensorType, axis: int | None) -> None:
    if axis is not None:
        axis_of(axis, x.rank)


@rule
def quantized(x: TensorType, *, output_dtype: DType, axis: int | None) -> TensorType:
    """A float operand, an integer or float result."""
    want(x.dtype, FLOATS)
    want(output_dtype, ORDERED, "output_dtype", at="output_dtype")
    _axis(x, axis)
    return x.with_dtype(output_dtype)


@rule
def requantized(x: TensorType, *, output_dtype: DType, axis: int | None) -> TensorType:
    """An integer operand, an integer result."""
    want(x.dtype, INTEGERS)
    want(output_dtype, INTEGERS, "output_dtype", at="output_dtype")
    _axis(x, axis)
    return x.with_dtype(output_dtype)


@rule
def dequantized(x: TensorType, *, axis: int | None, output_dtype: DType | None) -> TensorType:
    """An integer operand, a float result."""
    want(x.dtype, INTEGERS)
    want(output_dtype or F32, FLOATS, "output_dtype", at="output_dtype")
    _axis(x, axis)
    return x.with_dtype(output_dtype or F32)


@op("ptir.quantize", infer=quantized, traits=PURE | ELEMENTWISE)
def quantize(x: Array, *, output_dtype: DType, axis: int | None = None) -> Array:
    """A float tensor as `output_dtype` by the cast table: truncated toward zero, saturated, NaN to 0. Contract: Quantize.

    `axis` is checked and otherwise without effect, as there is no scale.
    DTypeNotSupported: `x` is not a float, or `output_dtype` is i1 or complex. InvalidAttributeValue: `axis` is out of range.
    """
    return arrays.cast(x, dtype_of(x), output_dtype)


@op("ptir.requantize", infer=requantized, traits=PURE | ELEMENTWISE)
def requantize(x: Array, *, output_dtype: DType, axis: int | None = None) -> Array:
    """An integer tensor as another integer dtype, saturated. Contract: Requantize.

    DTypeNotSupported: `x` or `output_dtype` is not an integer. InvalidAttributeValue: `axis` is out of range.
    """
    return arrays.cast(x, dtype_of(x), output_dtype)


@op("ptir.dequantize", infer=dequantized, traits=PURE | ELEMENTWISE)
def dequantize(x: Array, *, axis: int | None = None, output_dtype: DType | None = None, result: Result) -> Array:
    """An integer tensor as the nearest floats of `output_dtype` (f32). Contract: Dequantize.

    DTypeNotSupported: `x` is not an integer, or `output_dtype` not a float. InvalidAttributeValue: `axis` is out of range.
    """
    return arrays.cast(x, dtype_of(x), result.dtype)
