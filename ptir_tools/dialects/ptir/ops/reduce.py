"""Reductions and argmax (contract: "Reductions and argmax", "Accumulator/output dtype policy")."""

from __future__ import annotations

from functools import partial

from ptir_tools.core import arrays, costs, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import SI32, DType
from ptir_tools.core.ir import PURE, Asks, InPlace, Kernel, Op, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape, TensorType, tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.ops import needs, numerics
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.typerules import (
    BITS,
    INDICES,
    NUMERIC,
    ORDERED,
    Among,
    accumulator,
    attribute,
    axes_of,
    axis_of,
    rule,
    want,
)  # fmt: skip
from ptir_tools.rewrite.vocabulary import tensor_type

reduction = partial(op, traits=PURE, cost=costs.reads, factors=factors.reduced)


def reduced_shape(shape: Shape, axes: tuple[int, ...], keepdims: bool) -> Shape:
    """`shape` with `axes` removed, or with extent 1 there."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


def _reduction_type(
    among: Among, x: TensorType, axes: tuple[int, ...], keepdims: bool, accum: DType | None, out: DType | None
) -> TensorType:
    want(x.dtype, among)
    gone = axes_of(axes, x.rank, "axes")
    return tensor(accumulator(x.dtype, accum, out), reduced_shape(x.shape, gone, keepdims))


@rule
def reduce_sum_type(
    x: TensorType, *, axes: tuple[int, ...], keepdims: bool, accum_dtype: DType | None, out_dtype: DType | None
) -> TensorType:
    """`x`, not i1, reduced over `axes`; of `out_dtype` or its own dtype.

    InvalidAttributeValue: an axis out of range or named twice. DTypeNotSupported: i1, or a real `out_dtype` of a complex `x`.
    InvalidAccumDTypeOverride: `accum_dtype` of another kind or narrower than the operand.
    """
    return _reduction_type(NUMERIC, x, axes, keepdims, accum_dtype, out_dtype)


@rule
def reduce_extreme_type(
    x: TensorType, *, axes: tuple[int, ...], keepdims: bool, accum_dtype: DType | None, out_dtype: DType | None
) -> TensorType:
    """`x`, integer or float, reduced over `axes`; of `out_dtype` or its own dtype.

    InvalidAttributeValue: an axis out of range or named twice. DTypeNotSupported: i1, complex. InvalidAccumDTypeOverride:
    `accum_dtype` of another kind or narrower than the operand.
    """
    return _reduction_type(ORDERED, x, axes, keepdims, accum_dtype, out_dtype)


def fold_reduction(op: Op) -> Operand | None:
    """`x`, when no axis longer than 1 is reduced and the result has its type, unless floats are summed (0.0 + -0.0 is 0.0)."""
    x = op.operands[0]
    t = tensor_type(x)
    whole = all(t.shape[a] == 1 for a in op.attr("axes"))
    return x if whole and numerics.keeps_one(op.defn.short.removeprefix("reduce_"), t.dtype) else None


@reduction(
    "ptir.reduce_sum",
    infer=reduce_sum_type,
    fold=fold_reduction,
    family="reduce",
    error=errors.linear(),
    asks=Asks(passed=needs.summed),
    kernel=Kernel("reduce", "reduce_sum", pays=True),
    inplace=InPlace("sum"),
)
def reduce_sum(
    x: Array,
    *,
    axes: tuple[int, ...],
    keepdims: bool = False,
    accum_dtype: DType | None = None,
    out_dtype: DType | None = None,
    result: Result,
) -> Array:
    """The sum over `axes`, 0 over nothing; `keepdims` leaves them with extent 1. Contract: Reduce.

    Accumulated in `accum_dtype` (f32 for floats up to f32, else the operand's dtype, in which integers wrap), then cast to
    `out_dtype` (the operand's). The order of summation is free; here floats are summed in float64 and rounded once.
    """
    return numerics.reduce("sum", x, numerics.dtype_of(x), accum_dtype, result.dtype, axes, keepdims)


@reduction(
    "ptir.reduce_max",
    infer=reduce_extreme_type,
    fold=fold_reduction,
    family="reduce",
    error=errors.monotone,
    asks=Asks(passed=needs.of_elements),
    kernel=Kernel("reduce", "reduce_max", pays=True, exact=True),
    inplace=InPlace("extreme", "maximum"),
)
def reduce_max(
    x: Array,
    *,
    axes: tuple[int, ...],
    keepdims: bool = False,
    accum_dtype: DType | None = None,
    out_dtype: DType | None = None,
    result: Result,
) -> Array:
    """The largest element over `axes`; NaN when one is NaN; -inf or the lowest integer over nothing. Contract: Reduce."""
    return numerics.reduce("max", x, numerics.dtype_of(x), accum_dtype, result.dtype, axes, keepdims)


@reduction(
    "ptir.reduce_min",
    infer=reduce_extreme_type,
    fold=fold_reduction,
    family="reduce",
    error=errors.monotone,
    asks=Asks(passed=needs.of_elements),
    kernel=Kernel("reduce", "reduce_min", pays=True, exact=True),
    inplace=InPlace("extreme", "minimum"),
)
def reduce_min(
    x: Array,
    *,
    axes: tuple[int, ...],
    keepdims: bool = False,
    accum_dtype: DType | None = None,
    out_dtype: DType | None = None,
    result: Result,
) -> Array:
    """The smallest element over `axes`; NaN when one is NaN; inf or the highest integer over nothing. Contract: Reduce."""
    return numerics.reduce("min", x, numerics.dtype_of(x), accum_dtype, result.dtype, axes, keepdims)


@reduction("ptir.reduce_prod", infer=reduce_sum_type, fold=fold_reduction, error=errors.multiplied())
def reduce_prod(
    x: Array,
    *,
    axes: tuple[int, ...],
    keepdims: bool = False,
    accum_dtype: DType | None = None,
    out_dtype: DType | None = None,
    result: Result,
) -> Array:
    """The product over `axes`, 1 over nothing; `keepdims` leaves them with extent 1. Extension.

    Accumulated as by `reduce_sum`. The order of multiplication is free; here floats are multiplied in float64 and rounded once.
    """
    return numerics.reduce("prod", x, numerics.dtype_of(x), accum_dtype, result.dtype, axes, keepdims)


@rule
def reduce_bits_type(x: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    """`x`, of integers or i1, reduced over `axes`.

    InvalidAttributeValue: an axis out of range or named twice. DTypeNotSupported: neither integers nor i1.
    """
    want(x.dtype, BITS)
    return x.with_shape(reduced_shape(x.shape, axes_of(axes, x.rank, "axes"), keepdims))


@reduction("ptir.reduce_and", infer=reduce_bits_type, fold=fold_reduction, error=errors.discrete)
def reduce_and(x: Array, *, axes: tuple[int, ...], keepdims: bool = False, result: Result) -> Array:
    """The bitwise and over `axes`; of i1, whether all are true. Over nothing, all bits are set. Extension."""
    return numerics.reduce_bits(np.bitwise_and.reduce, x, axes, keepdims, result.dtype)


@reduction("ptir.reduce_or", infer=reduce_bits_type, fold=fold_reduction, error=errors.discrete)
def reduce_or(x: Array, *, axes: tuple[int, ...], keepdims: bool = False, result: Result) -> Array:
    """The bitwise or over `axes`; of i1, whether any is true. Over nothing, 0. Extension."""
    return numerics.reduce_bits(np.bitwise_or.reduce, x, axes, keepdims, result.dtype)


@reduction("ptir.reduce_xor", infer=reduce_bits_type, fold=fold_reduction, error=errors.discrete)
def reduce_xor(x: Array, *, axes: tuple[int, ...], keepdims: bool = False, result: Result) -> Array:
    """The bitwise exclusive or over `axes`; of i1, whether an odd number is true. Over nothing, 0. Extension."""
    return numerics.reduce_bits(np.bitwise_xor.reduce, x, axes, keepdims, result.dtype)


@rule
def arg_reduce_type(x: TensorType, *, axis: int, keepdims: bool, output_dtype: DType) -> TensorType:
    """Indices along `axis` of an integer or float `x`, in si32 or si64.

    InvalidAttributeValue: `axis` is out of range or has extent 0. DTypeNotSupported: i1, complex, or an `output_dtype` other
    than si32 and si64.
    """
    want(x.dtype, ORDERED)
    want(output_dtype, INDICES, "output_dtype", at="output_dtype")
    at = axis_of(axis, x.rank)
    attribute(x.shape[at] != 0, f"axis {axis} of {x} has no element", "axis")
    return tensor(output_dtype, reduced_shape(x.shape, (at,), keepdims))


@reduction("ptir.argmax", infer=arg_reduce_type, error=errors.ranked(), inplace=InPlace("argmax"))
def argmax(x: Array, *, axis: int, keepdims: bool = False, output_dtype: DType = SI32) -> Array:
    """The smallest index of a largest element along `axis`; a NaN counts as larger than all. Contract: ArgMax."""
    require(x.shape[axis] != 0, "InvalidAttributeValue", f"axis {axis} has no element", at="axis")
    wide: Array = arrays.widen(x)
    found = np.argmax(wide, axis=axis, keepdims=keepdims)
    return np.asarray(found, arrays.numpy_dtype(output_dtype))


@reduction("ptir.argmin", infer=arg_reduce_type, error=errors.ranked(largest=False))
def argmin(x: Array, *, axis: int, keepdims: bool = False, output_dtype: DType = SI32) -> Array:
    """The smallest index of a smallest element along `axis`; a NaN counts as smaller than all. Extension."""
    require(x.shape[axis] != 0, "InvalidAttributeValue", f"axis {axis} has no element", at="axis")
    found = np.argmin(arrays.widen(x), axis=axis, keepdims=keepdims)
    return np.asarray(found, arrays.numpy_dtype(output_dtype))
