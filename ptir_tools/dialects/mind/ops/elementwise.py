"""Binary operations with broadcasting, activation and elementwise unary operations."""

from __future__ import annotations

from ptir_tools.core import errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import always, divisor, op
from ptir_tools.core.ir import COMMUTES, ELEMENTWISE, PURE
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind.ops.common import (
    CURRENT,
    Result,
    broadcast,
    divides,
    exact,
    float_only,
    quotient,
    rounded,
    same_dtype,
)


def binary_type(lhs: TensorType, rhs: TensorType) -> TensorType:
    """E2004: one dtype. E3001: the shapes broadcast; the result has the broadcast shape."""
    same_dtype(lhs, rhs)
    return lhs.with_shape(broadcast(lhs.static_shape, rhs.static_shape))


def neg_type(input: TensorType) -> TensorType:
    """Any dtype; the result has the operand's type."""
    return input


def relu_type(input: TensorType) -> TensorType:
    """E2005: a float dtype. Integers, an extension that Core v1 allows, are refused."""
    float_only("Relu", input)
    return input


def exp_type(input: TensorType) -> TensorType:
    """E2005: a float dtype."""
    float_only("Exp", input)
    return input


def log_type(input: TensorType) -> TensorType:
    """E2005: a float dtype."""
    float_only("Log", input)
    return input


@op("mind.Add", infer=binary_type, traits=PURE | ELEMENTWISE | COMMUTES, error=errors.rising(), safe=exact)
def add(lhs: Array, rhs: Array, *, result: Result) -> Array:
    """Elementwise sum of the broadcast operands; integers wrap. Binary operations, BinOp."""
    return rounded(np.add, result.dtype, lhs, rhs)


@op("mind.Sub", infer=binary_type, traits=PURE | ELEMENTWISE, safe=exact)
def sub(lhs: Array, rhs: Array, *, result: Result) -> Array:
    """Elementwise difference of the broadcast operands; integers wrap. Binary operations, BinOp."""
    return rounded(np.subtract, result.dtype, lhs, rhs)


@op("mind.Mul", infer=binary_type, traits=PURE | ELEMENTWISE | COMMUTES, safe=exact)
def mul(lhs: Array, rhs: Array, *, result: Result) -> Array:
    """Elementwise product of the broadcast operands; integers wrap. Binary operations, BinOp."""
    return rounded(np.multiply, result.dtype, lhs, rhs)


@op(
    "mind.Div",
    infer=binary_type,
    traits=PURE | ELEMENTWISE,
    error=errors.pointwise(ulp=1, pole=1),
    safe=divides,
    fails=always,
    asks=divisor(1),
    own=CURRENT,
)
def div(lhs: Array, rhs: Array, *, result: Result) -> Array:
    """Elementwise quotient of the broadcast operands: floats by IEEE 754, integers toward zero. Only in profile `current`. Binary
    operations, BinOp.

    E6006: an integer divisor is 0.
    """
    if result.dtype.is_float:
        return rounded(np.divide, result.dtype, lhs, rhs)
    require(np.all(rhs != 0), "E6006", "an integer is divided by 0")
    return rounded(quotient, result.dtype, lhs, rhs)


@op("mind.Relu", infer=relu_type, traits=PURE | ELEMENTWISE, error=errors.monotone, safe=exact)
def relu(input: Array) -> Array:
    """`x` where `x > 0`, else 0: 0 for a NaN and for -0.0. Activation, Relu."""
    return np.where(input > 0, input, input.dtype.type(0))


@op("mind.Neg", infer=neg_type, traits=PURE | ELEMENTWISE, error=errors.pointwise(exact=True), safe=exact)
def neg(input: Array, *, result: Result) -> Array:
    """`-x`; the smallest integer wraps to itself. Elementwise unary operations, Neg."""
    return rounded(np.negative, result.dtype, input)


@op("mind.Exp", infer=exp_type, traits=PURE | ELEMENTWISE, error=errors.pointwise(ulp=2), safe=exact)
def exp(input: Array, *, result: Result) -> Array:
    """`e^x`; overflow is infinity. Elementwise unary operations, Exp."""
    return rounded(np.exp, result.dtype, input)


@op("mind.Log", infer=log_type, traits=PURE | ELEMENTWISE, error=errors.pointwise(ulp=2), safe=exact)
def log(input: Array, *, result: Result) -> Array:
    """`ln(x)`; -infinity at 0, NaN below. Elementwise unary operations, Log."""
    return rounded(np.log, result.dtype, input)
