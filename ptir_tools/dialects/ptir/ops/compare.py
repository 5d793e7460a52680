"""Comparisons, selection, cast and stop_gradient (contract: "Comparisons and selection", `cast`, `stop_gradient`)."""

from __future__ import annotations

from functools import partial

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op, same
from ptir_tools.core.dtypes import I1, DType, lossless
from ptir_tools.core.ir import (
    COMMUTES,
    ELEMENTWISE,
    MOVEMENT,
    PURE,
    Asks,
    InPlace,
    Kernel,
    Op,
    Operand,
    View,
    operand_type,
)
from ptir_tools.core.lazy import np
from ptir_tools.core.strides import as_it_is
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require, result
from ptir_tools.dialects.ptir.ops import needs
from ptir_tools.dialects.ptir.ops.elementwise import MAP
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute, dtype_of
from ptir_tools.dialects.ptir.ops.typerules import BOOLEANS, ORDERED, rule, same_dtype, same_shape, want
from ptir_tools.rewrite.constants import same_operand, scalar_of
from ptir_tools.rewrite.vocabulary import made_by, tensor_type

comparison = partial(op, traits=MAP, family="compare")


def comparison_type(x: TensorType, y: TensorType) -> TensorType:
    """Operands of one dtype and shape; the result is i1 of that shape."""
    same_dtype(x, y, "CompareDTypePromotionInvalid")
    same_shape(x, y, "CompareOperandsMustMatchShape")
    return x.with_dtype(I1)


@rule
def equality_type(x: TensorType, y: TensorType) -> TensorType:
    """Two operands of one type, of any dtype.

    CompareDTypePromotionInvalid, CompareOperandsMustMatchShape, DynamicDimensionMismatch: the operands' types differ.
    """
    return comparison_type(x, y)


@rule
def ordering_type(x: TensorType, y: TensorType) -> TensorType:
    """Two operands of one integer or float type.

    DTypeNotSupported: i1, complex. CompareDTypePromotionInvalid, CompareOperandsMustMatchShape, DynamicDimensionMismatch: the
    operands' types differ.
    """
    want(x.dtype, ORDERED)
    return comparison_type(x, y)


@comparison(
    "ptir.compare_lt",
    infer=ordering_type,
    kernel=Kernel("map", "compare_lt", swapped="compare_gt"),
    inplace=InPlace("ufunc", "less"),
)
def compare_lt(x: Array, y: Array, *, result: Result) -> Array:
    """Whether `x < y`, element by element; false when either is NaN. Contract: Compare."""
    return compute(result, np.less, x, y)


@comparison(
    "ptir.compare_le",
    infer=ordering_type,
    kernel=Kernel("map", "compare_le", swapped="compare_ge"),
    inplace=InPlace("ufunc", "less_equal"),
)
def compare_le(x: Array, y: Array, *, result: Result) -> Array:
    """Whether `x <= y`, element by element; false when either is NaN. Contract: Compare."""
    return compute(result, np.less_equal, x, y)


@comparison(
    "ptir.compare_eq",
    infer=equality_type,
    traits=MAP | COMMUTES,
    kernel=Kernel("map", "compare_eq", swapped="compare_eq"),
    inplace=InPlace("ufunc", "equal"),
)
def compare_eq(x: Array, y: Array, *, result: Result) -> Array:
    """Whether `x == y`, element by element; false when either is NaN, true for zeros of both signs. Contract: Compare."""
    return compute(result, np.equal, x, y)


@comparison(
    "ptir.compare_ge",
    infer=ordering_type,
    kernel=Kernel("map", "compare_ge", swapped="compare_le"),
    inplace=InPlace("ufunc", "greater_equal"),
)
def compare_ge(x: Array, y: Array, *, result: Result) -> Array:
    """Whether `x >= y`, element by element; false when either is NaN. Contract: Compare."""
    return compute(result, np.greater_equal, x, y)


@comparison(
    "ptir.compare_gt",
    infer=ordering_type,
    kernel=Kernel("map", "compare_gt", swapped="compare_lt"),
    inplace=InPlace("ufunc", "greater"),
)
def compare_gt(x: Array, y: Array, *, result: Result) -> Array:
    """Whether `x > y`, element by element; false when either is NaN. Contract: Compare."""
    return compute(result, np.greater, x, y)


@comparison(
    "ptir.compare_ne",
    infer=equality_type,
    traits=MAP | COMMUTES,
    kernel=Kernel("map", "compare_ne", swapped="compare_ne"),
    inplace=InPlace("ufunc", "not_equal"),
)
def compare_ne(x: Array, y: Array, *, result: Result) -> Array:
    """Whether `x != y`, element by element; true when either is NaN. Contract: Compare."""
    return compute(result, np.not_equal, x, y)


@rule
def select_type(pred: TensorType, on_true: TensorType, on_false: TensorType) -> TensorType:
    """An i1 predicate and two branches of one dtype, all of one shape; the result has the branches' type."""
    want(pred.dtype, BOOLEANS, "the predicate")
    same_dtype(on_true, on_false, of=(1, 2))
    same_shape(on_true, on_false, of=(1, 2))
    same_shape(on_true, pred, of=(1, 0))
    return on_true


def fold_select(op: Op) -> Operand | None:
    """the branch that a constant `pred` selects; the branch, when both are one value; `pred`, when the branches are True (or
    `pred`) and False (or `pred`)."""
    pred, on_true, on_false = op.operands
    if same_operand(on_true, on_false):
        return on_true
    if (known := scalar_of(pred)) is not None:
        return on_true if known else on_false
    holds = scalar_of(on_true) is True or same_operand(pred, on_true)
    fails = scalar_of(on_false) is False or same_operand(pred, on_false)
    return pred if holds and fails else None


@op(
    "ptir.select",
    infer=select_type,
    fold=fold_select,
    traits=MAP,
    error=errors.pointwise(exact=True),
    kernel=Kernel("map", "select", exact=True),
    inplace=InPlace("select"),
    asks=Asks(passed=needs.selected),
)
def select(pred: Array, on_true: Array, on_false: Array) -> Array:
    """`on_true` where `pred` holds, else `on_false`. Contract: Select.

    DTypeNotSupported: `pred` is not i1. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: the branches
    differ, or the predicate's shape is another.
    """
    return np.where(pred, on_true, on_false)


@rule
def cast_type(x: TensorType, *, dtype: DType) -> TensorType:
    """The shape of `x` with `dtype`; complex to real is refused."""
    drops = x.dtype.is_complex and not dtype.is_complex and dtype is not I1
    require(not drops, "DTypeNotSupported", f"cast of {x.dtype} to {dtype} would drop the imaginary part", at=result())
    return x.with_dtype(dtype)


def fold_cast(op: Op) -> Operand | None:
    """`x`, when it has the dtype; `y`, when `x` is `cast(y)` and its dtype has every integer (or i1) of the dtype of `y`."""
    x = op.operands[0]
    inner = made_by(x, "cast")
    if operand_type(x) is op.results[0].type or inner is None:
        return x
    source = tensor_type(inner.operands[0]).dtype
    exact = not (source.is_float or source.is_complex)  # else a NaN may come back with another payload
    return inner.operands[0] if exact and lossless(source, inner.attr("dtype")) else None


@op(
    "ptir.cast",
    infer=cast_type,
    fold=fold_cast,
    traits=PURE | ELEMENTWISE,
    kernel=Kernel("map"),
    inplace=InPlace("cast"),
    asks=Asks(passed=same),
)
def cast(x: Array, *, dtype: DType) -> Array:
    """Each element as `dtype`. Contract: Cast; DTypes and casting.

    Float to float rounds to nearest even. Float to integer truncates toward zero and saturates; NaN gives 0. Integer to float
    rounds to the nearest. Integer to integer saturates. A cast to i1 is `x != 0` (NaN is 1), from i1 it gives 0 or 1. Real to
    complex has no imaginary part. The text form writes the dtype in the result type only.
    DTypeNotSupported: complex to real.
    """
    return arrays.cast(x, dtype_of(x), dtype)


@rule
def stop_gradient_type(x: TensorType) -> TensorType:
    """The type of the operand."""
    return x


@op(
    "ptir.stop_gradient",
    infer=stop_gradient_type,
    traits=PURE | ELEMENTWISE | MOVEMENT,
    view=View(as_it_is, in_order=True),
    asks=Asks(passed=same),
)
def stop_gradient(x: Array) -> Array:
    """`x` itself: a barrier for automatic differentiation, which no default pass drops. Contract: StopGradient.

    OperandTypeMismatch: `x` is a tuple.
    """
    return x
