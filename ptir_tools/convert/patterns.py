"""Helpers for patterns of conversions from PTIR: definitions and constants."""

from __future__ import annotations

import math

from ptir_tools.core.arrays import from_literal
from ptir_tools.core.dtypes import F32, F64, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value, operand_type
from ptir_tools.core.typed import Any
from ptir_tools.core.types import NumericType, TensorType, tensor
from ptir_tools.rewrite.vocabulary import made_by


def constant_of(x: Operand) -> Literal | None:
    """The literal that `x` is, before any broadcast; None when it is not a constant or its payload is missing."""
    while (op := made_by(x, "broadcast_to")) is not None:
        x = op.operands[0]
    if (op := made_by(x, "constant")) is not None:
        x = op.attr("value")
    return x if isinstance(x, Literal) and x.data is not None else None


def splat_of(x: Operand) -> Any:
    """The one value of all elements of the constant `x`, or None."""
    literal = constant_of(x)
    if literal is None or not (literal.splat or literal.type.count == 1):
        return None
    return from_literal(scalar_literal(literal)).item()


def scalar_literal(literal: Literal) -> Literal:
    """The rank-0 literal of a literal whose elements are all one value."""
    return Literal(tensor(literal.type.dtype), literal.data)


def type_of(x: Operand) -> TensorType:
    """The tensor type of an operand."""
    t = operand_type(x)
    assert isinstance(t, NumericType)
    return tensor(t.dtype, t.extents)


def is_zero(x: Operand) -> bool:
    """Whether `x` is a constant of positive zeros."""
    literal = constant_of(x)
    return literal is not None and not any(literal.data or b"1")


def relu_operand(op: Op) -> Value | None:
    """`x` where the select `op` is `select(compare_gt(x, 0), x, 0)`, which is a Relu, for a NaN too."""
    pred, x, zero = op.operands
    test = made_by(pred, "compare_gt")
    if test is None or not isinstance(x, Value) or test.operands[0] is not x:
        return None
    return x if is_zero(zero) and is_zero(test.operands[1]) else None


def wider(dtype: DType) -> DType:
    """The wider float in which a value is computed before it is rounded once to `dtype`."""
    return F64 if dtype is F32 else F32


def exp2_operand(op: Op) -> Value | None:
    """`x` where the cast `op` is exp(x * ln 2), computed in a wider float and rounded once."""
    exp = made_by(op.operands[0], "exp")
    product = made_by(exp.operands[0], "mul") if exp else None
    wide = made_by(product.operands[0], "cast") if product else None
    if product is None or wide is None:
        return None
    x, dtype, factor = wide.operands[0], type_of(op.result).dtype, splat_of(product.operands[1])
    if not isinstance(x, Value) or type_of(x).dtype is not dtype or not dtype.is_float:
        return None
    is_ln2 = factor is not None and math.isclose(factor, math.log(2), rel_tol=2**-25)
    return x if is_ln2 and type_of(wide.result).dtype is wider(dtype) else None
