"""Elementwise ops (contract: "Elementwise ops (no implicit broadcasting)"), `clamp` among them.

Floats are computed in float64 and rounded once; integers wrap in their dtype.
"""

from __future__ import annotations

from functools import partial

from ptir_tools.core import errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import divisor, op, signed
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import COMMUTES, ELEMENTWISE, PURE, Algebra, Asks, InPlace, Kernel
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.ops import needs
from ptir_tools.dialects.ptir.ops.constants import check_divisor, divisor_unknown
from ptir_tools.dialects.ptir.ops.erf import erf as erf_array
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute, truncated_quotient
from ptir_tools.dialects.ptir.ops.typerules import (
    FLOATS,
    INEXACT,
    NUMERIC,
    ORDERED,
    SIGNED,
    SIGNED_REAL,
    rule,
    same_dtype,
    same_shape,
    want,
)  # fmt: skip
from ptir_tools.rewrite.vocabulary import of_equal_operands

drawing = Later("ptir_tools.dialects.ptir.drawing")

MAP = PURE | ELEMENTWISE
# Declarations of ops of one operand and of two, element by element, and the laws that most of them have.
unary = partial(op, traits=MAP, family="elementwise_unary")
binary = partial(op, traits=MAP, family="elementwise_binary")
ODD, EVEN = Algebra(parity="odd"), Algebra(parity="even")
RISING, FALLING = Algebra(monotone="increasing"), Algebra(monotone="decreasing")
ODD_RISING = Algebra(parity="odd", monotone="increasing")


@rule
def of_signed(x: TensorType) -> TensorType:
    """A signed integer, float or complex operand; the result has its type."""
    want(x.dtype, SIGNED)
    return x


@rule
def of_signed_real(x: TensorType) -> TensorType:
    """A signed integer or float operand; the result has its type.

    DTypeNotSupported: `x` is i1, unsigned or complex.
    """
    want(x.dtype, SIGNED_REAL)
    return x


@rule
def of_inexact(x: TensorType) -> TensorType:
    """A float or complex operand; the result has its type.

    DTypeNotSupported: `x` is neither float nor complex.
    """
    want(x.dtype, INEXACT)
    return x


@rule
def of_float(x: TensorType) -> TensorType:
    """A float operand; the result has its type.

    DTypeNotSupported: `x` is not a float.
    """
    want(x.dtype, FLOATS)
    return x


def alike(*xs: TensorType) -> TensorType:
    """Operands of one dtype and shape; the result has their type."""
    for i, x in enumerate(xs[1:], 1):
        same_dtype(xs[0], x, of=(0, i))
        same_shape(xs[0], x, of=(0, i))
    return xs[0]


@rule
def of_numeric_pair(x: TensorType, y: TensorType) -> TensorType:
    """Two operands of one type, any dtype but i1; the result has it.

    DTypeNotSupported: i1. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: the operands' types differ.
    """
    want(x.dtype, NUMERIC)
    return alike(x, y)


@rule
def of_ordered(*xs: TensorType) -> TensorType:
    """Operands of one integer or float type; the result has it.

    DTypeNotSupported: i1, complex. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: the operands' types
    differ.
    """
    want(xs[0].dtype, ORDERED)
    return alike(*xs)


@unary(
    "ptir.neg",
    infer=of_signed,
    error=errors.pointwise(exact=True),
    algebra=Algebra(parity="odd", monotone="decreasing", involution=True),
    kernel=Kernel("map", "neg", exact=True),
    inplace=InPlace("ufunc", "negative"),
    asks=Asks(passed=needs.negated),
)
def neg(x: Array, *, result: Result) -> Array:
    """Negate each element. The lowest integer wraps to itself. Contract: ElementwiseUnary.

    DTypeNotSupported: `x` is i1 or unsigned.
    """
    return compute(result, np.negative, x)


@unary(
    "ptir.abs",
    infer=of_signed_real,
    error=errors.pointwise(exact=True),
    algebra=Algebra(parity="even", idempotent=True),
    kernel=Kernel("map", "abs", exact=True),
    inplace=InPlace("ufunc", "absolute"),
    asks=Asks(passed=signed),
)
def absolute(x: Array, *, result: Result) -> Array:
    """The magnitude of each element. The lowest integer wraps to itself. Contract: ElementwiseUnary."""
    return compute(result, np.abs, x)


@unary(
    "ptir.exp",
    infer=of_inexact,
    error=errors.pointwise(ulp=2),
    algebra=RISING,
    kernel=Kernel("map", "exp", pays=True),
    inplace=InPlace("float-ufunc", "exp"),
)
def exp(x: Array, *, result: Result) -> Array:
    """e to the power of each element. Contract: ElementwiseUnary."""
    return compute(result, np.exp, x)


@unary(
    "ptir.log",
    infer=of_inexact,
    error=errors.pointwise(ulp=2),
    algebra=RISING,
    kernel=Kernel("map", "log", pays=True),
    inplace=InPlace("float-ufunc", "log"),
)
def log(x: Array, *, result: Result) -> Array:
    """The natural logarithm: -inf at zero, NaN for negative reals. Contract: ElementwiseUnary."""
    return compute(result, np.log, x)


@unary(
    "ptir.tanh",
    infer=of_inexact,
    error=errors.pointwise(ulp=7),
    algebra=ODD_RISING,
    kernel=Kernel("map", "tanh", pays=True),
    inplace=InPlace("float-ufunc", "tanh"),
)
def tanh(x: Array, *, result: Result) -> Array:
    """The hyperbolic tangent. Contract: ElementwiseUnary."""
    return compute(result, np.tanh, x)


@unary(
    "ptir.erf",
    infer=of_float,
    error=errors.pointwise(ulp=7),
    algebra=ODD_RISING,
    kernel=Kernel("map", "erf", pays=True),
    inplace=InPlace("erf"),
)
def erf(x: Array, *, result: Result) -> Array:
    """The Gauss error function. Contract: ElementwiseUnary."""
    return compute(result, erf_array, x)


@unary(
    "ptir.rsqrt",
    infer=of_inexact,
    error=errors.pointwise(ulp=2, pole=0),
    algebra=FALLING,
    kernel=Kernel("map", "rsqrt", pays=True),
    inplace=InPlace("rsqrt"),
)
def rsqrt(x: Array, *, result: Result) -> Array:
    """One divided by the square root: infinity at zero (of its sign), NaN for negative reals. Contract: ElementwiseUnary."""
    return compute(result, lambda v: 1.0 / np.sqrt(v), x)


@unary(
    "ptir.reciprocal",
    infer=of_inexact,
    error=errors.pointwise(ulp=1, pole=0),
    algebra=ODD,
    kernel=Kernel("map", "reciprocal"),
    inplace=InPlace("reciprocal"),
    asks=divisor(0),
)
def reciprocal(x: Array, *, result: Result) -> Array:
    """One divided by each element. Contract: ElementwiseUnary."""
    return compute(result, lambda v: 1.0 / v, x)


@binary(
    "ptir.add",
    infer=of_numeric_pair,
    traits=MAP | COMMUTES,
    algebra=Algebra(monotone="increasing", identity=0),
    kernel=Kernel("map", "add", swapped="add", pays=True),
    inplace=InPlace("ufunc", "add"),
    asks=needs.SUM,
)
def add(x: Array, y: Array, *, result: Result) -> Array:
    """The sum of the elements. Integers wrap. Contract: ElementwiseBinary."""
    return compute(result, np.add, x, y)


@binary(
    "ptir.sub",
    infer=of_numeric_pair,
    algebra=Algebra(identity=0),
    kernel=Kernel("map", "sub", swapped="reverse_sub", pays=True),
    inplace=InPlace("ufunc", "subtract"),
    asks=needs.DIFFERENCE,
)
def sub(x: Array, y: Array, *, result: Result) -> Array:
    """The difference of the elements. Integers wrap. Contract: ElementwiseBinary."""
    return compute(result, np.subtract, x, y)


@binary(
    "ptir.mul",
    infer=of_numeric_pair,
    traits=MAP | COMMUTES,
    algebra=Algebra(identity=1, absorbing=0),
    kernel=Kernel("map", "mul", swapped="mul", pays=True),
    inplace=InPlace("ufunc", "multiply"),
    asks=needs.PRODUCT,
)
def mul(x: Array, y: Array, *, result: Result) -> Array:
    """The product of the elements. Integers wrap. Contract: ElementwiseBinary."""
    return compute(result, np.multiply, x, y)


@binary(
    "ptir.div",
    infer=of_numeric_pair,
    check=check_divisor,
    fails=divisor_unknown,
    error=errors.pointwise(ulp=1, pole=1),
    generate=drawing.draw_division,
    algebra=Algebra(identity=1),
    kernel=Kernel("map", "div", swapped="reverse_div"),
    inplace=InPlace("divide"),
    asks=Asks(divisor(1).own, needs.QUOTIENT.passed),
)
def div(x: Array, y: Array, *, result: Result) -> Array:
    """The quotient of the elements: floats by IEEE, integers toward zero. Contract: ElementwiseBinary.
    IntegerDivideByZero: an integer divisor has a zero (refused before the run when the divisor is a constant).
    """
    if not result.dtype.is_integer:
        return compute(result, np.divide, x, y)
    require(np.all(y != 0), "IntegerDivideByZero", f"division of {result.dtype} by zero")
    return compute(result, truncated_quotient, x, y)


@binary(
    "ptir.maximum",
    infer=of_ordered,
    fold=of_equal_operands,
    traits=MAP | COMMUTES,
    algebra=Algebra(monotone="increasing", idempotent=True),
    kernel=Kernel("map", "maximum", pays=True, exact=True),
    inplace=InPlace("larger-or-smaller", "maximum"),
    asks=needs.EITHER,
)
def maximum(x: Array, y: Array, *, result: Result) -> Array:
    """The larger of the elements, 0.0 of two zeros unless both are -0.0; NaN when either is NaN. Contract: ElementwiseBinary."""
    return compute(result, MAXIMUM, x, y)


@binary(
    "ptir.minimum",
    infer=of_ordered,
    fold=of_equal_operands,
    traits=MAP | COMMUTES,
    algebra=Algebra(monotone="increasing", idempotent=True),
    kernel=Kernel("map", "minimum", pays=True, exact=True),
    inplace=InPlace("larger-or-smaller", "minimum"),
    asks=needs.EITHER,
)
def minimum(x: Array, y: Array, *, result: Result) -> Array:
    """The smaller of the elements, -0.0 of two zeros unless both are 0.0; NaN when either is NaN. Contract: ElementwiseBinary."""
    return compute(result, MINIMUM, x, y)


@op(
    "ptir.clamp",
    infer=of_ordered,
    fold=of_equal_operands,
    traits=MAP,
    algebra=Algebra(monotone="increasing", idempotent=True),
    kernel=Kernel("map", "clamp", pays=True, exact=True),
    inplace=InPlace("clamp"),
    asks=needs.EITHER,
)
def clamp(x: Array, lo: Array, hi: Array, *, result: Result) -> Array:
    """`min(max(x, lo), hi)` of the elements; NaN when any of the three is NaN. Contract: Clamp."""
    return compute(result, lambda v, a, b: MINIMUM(MAXIMUM(v, a), b), x, lo, hi)
