"""Unary, binary and ternary UOps and CAST (Tiny IR 2.2, 3.1, 3.2).

Floats are computed in float64 and rounded once per node; i32 wraps. An immediate is a rank-0 literal that takes its sibling's
dtype.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op, same
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import COMMUTES, ELEMENTWISE, PURE, Asks
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.tiny import immediates
from ptir_tools.dialects.tiny.ops.rules import FLOATS, NUMBERS, check_scalars, require_dtype, same_dtype, same_shape
from ptir_tools.rewrite.vocabulary import of_same_type

if TYPE_CHECKING:
    from ptir_tools.dialects.tiny.ops.rules import Result


def unary_type(uop: str, allowed: tuple[DType, ...]) -> Callable[[TensorType], TensorType]:
    """The rule of a UOp of one operand: an allowed dtype, the same type out."""

    def rule(x: TensorType) -> TensorType:
        require_dtype(uop, x, allowed)
        return x

    return rule


def binary_type(uop: str, allowed: tuple[DType, ...]) -> Callable[[TensorType, TensorType], TensorType]:
    """The rule of a UOp of two operands: one allowed dtype, one shape."""

    def rule(a: TensorType, b: TensorType) -> TensorType:
        dtype = same_dtype(uop, (a, b))
        require_dtype(uop, a, allowed)
        return tensor(dtype, same_shape(uop, (a, b)))

    return rule


def where_type(cond: TensorType, a: TensorType, b: TensorType) -> TensorType:
    """A bool condition and two values of one dtype, all of one shape."""
    require_dtype("the condition of WHERE", cond, (I1,))
    return tensor(same_dtype("WHERE", (a, b), 1), same_shape("WHERE", (cond, a, b)))


def cast_type(x: TensorType, *, to: DType) -> TensorType:
    """Any dtype to any."""
    return x.with_dtype(to)


def _rounded(x: object, result: TensorType) -> Array:
    return arrays.narrow(np.asarray(x), result.dtype)


@op("tiny.NEG", infer=unary_type("NEG", NUMBERS), traits=PURE | ELEMENTWISE, error=errors.pointwise(exact=True))
def neg(x: Array, *, result: Result) -> Array:
    """`-x`; the smallest i32 stays as it is. Tiny IR 2.2, Unary."""
    with np.errstate(all="ignore"):
        return _rounded(-arrays.widen(x), result)


@op("tiny.EXP2", infer=unary_type("EXP2", FLOATS), traits=PURE | ELEMENTWISE, error=errors.pointwise(ulp=2))
def exp2(x: Array, *, result: Result) -> Array:
    """Two to the power `x`. Tiny IR 2.2, Unary."""
    with np.errstate(all="ignore"):
        return _rounded(np.exp2(arrays.widen(x)), result)


@op("tiny.RELU", infer=unary_type("RELU", NUMBERS), traits=PURE | ELEMENTWISE, error=errors.monotone)
def relu(x: Array, *, result: Result) -> Array:
    """`x` where `x > 0`, else 0: a NaN and -0.0 give 0. Tiny IR 2.2, Unary."""
    with np.errstate(invalid="ignore"):  # comparing a bf16 NaN warns
        return np.where(x > np.zeros((), x.dtype), x, np.zeros((), x.dtype))


@op("tiny.RSQRT", infer=unary_type("RSQRT", FLOATS), traits=PURE | ELEMENTWISE, error=errors.pointwise(ulp=2, pole=0))
def rsqrt(x: Array, *, result: Result) -> Array:
    """One over the square root of `x`. Tiny IR 2.2, Unary."""
    with np.errstate(all="ignore"):
        return _rounded(1.0 / np.sqrt(arrays.widen(x)), result)


@op("tiny.CAST", infer=cast_type, fold=of_same_type, traits=PURE | ELEMENTWISE, asks=Asks(passed=same))
def cast(x: Array, *, to: DType) -> Array:
    """`x` in the dtype `to`: floats round to nearest even, float to i32 truncates and saturates (a NaN gives 0), anything
    to bool is `x != 0`. Tiny IR 1.2 and 2.2."""
    return arrays.cast(x, immediates.dtype_of(x), to)


@op(
    "tiny.ADD",
    infer=binary_type("ADD", NUMBERS),
    traits=PURE | ELEMENTWISE | COMMUTES,
    check=check_scalars,
    error=errors.rising(),
)
def add(a: Array, b: Array, *, result: Result) -> Array:
    """`a + b`. Tiny IR 2.2, Binary."""
    with np.errstate(all="ignore"):
        return _rounded(arrays.widen(a) + arrays.widen(b), result)


@op("tiny.SUB", infer=binary_type("SUB", NUMBERS), traits=PURE | ELEMENTWISE, check=check_scalars)
def sub(a: Array, b: Array, *, result: Result) -> Array:
    """`a - b`. Tiny IR 2.2, Binary."""
    with np.errstate(all="ignore"):
        return _rounded(arrays.widen(a) - arrays.widen(b), result)


@op("tiny.MUL", infer=binary_type("MUL", NUMBERS), traits=PURE | ELEMENTWISE | COMMUTES, check=check_scalars)
def mul(a: Array, b: Array, *, result: Result) -> Array:
    """`a * b`. Tiny IR 2.2, Binary."""
    with np.errstate(all="ignore"):
        return _rounded(arrays.widen(a) * arrays.widen(b), result)


@op(
    "tiny.FDIV",
    infer=binary_type("FDIV", FLOATS),
    traits=PURE | ELEMENTWISE,
    check=check_scalars,
    error=errors.pointwise(ulp=1, pole=1),
)
def fdiv(a: Array, b: Array, *, result: Result) -> Array:
    """`a / b`, by IEEE 754. Tiny IR 2.2, Binary."""
    with np.errstate(all="ignore"):
        return _rounded(arrays.widen(a) / arrays.widen(b), result)


@op(
    "tiny.MAX",
    infer=binary_type("MAX", NUMBERS),
    traits=PURE | ELEMENTWISE | COMMUTES,
    check=check_scalars,
    error=errors.monotone,
)
def maximum(a: Array, b: Array, *, result: Result) -> Array:
    """The larger of `a` and `b`, where 0.0 is above -0.0; a NaN when either is. Tiny IR 2.2, Binary."""
    return _rounded(MAXIMUM(arrays.widen(a), arrays.widen(b)), result)


@op(
    "tiny.MIN",
    infer=binary_type("MIN", NUMBERS),
    traits=PURE | ELEMENTWISE | COMMUTES,
    check=check_scalars,
    error=errors.monotone,
)
def minimum(a: Array, b: Array, *, result: Result) -> Array:
    """The smaller of `a` and `b`, where -0.0 is below 0.0; a NaN when either is. Tiny IR 2.2, Binary."""
    return _rounded(MINIMUM(arrays.widen(a), arrays.widen(b)), result)


@op("tiny.WHERE", infer=where_type, traits=PURE | ELEMENTWISE, check=check_scalars, error=errors.pointwise(exact=True))
def where(cond: Array, a: Array, b: Array) -> Array:
    """`a` where `cond` holds, else `b`. Tiny IR 2.2, ternary."""
    return np.where(cond, a, b)
