"""Elementary functions that gpt.rs does not have: trigonometric and hyperbolic functions, their inverses, powers, gamma
functions.

Each is an extension of the contract (docs/ptir.md, "Extension ops"), computed in float64 and rounded once.
"""

from __future__ import annotations

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.ir import InPlace
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops import special
from ptir_tools.dialects.ptir.ops.elementwise import (
    EVEN,
    FALLING,
    ODD,
    ODD_RISING,
    RISING,
    alike,
    binary,
    of_float,
    of_inexact,
    of_numeric_pair,
    unary,
)
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, rule, want


@rule
def of_float_pair(x: TensorType, y: TensorType) -> TensorType:
    """Two operands of one float type; the result has it.

    DTypeNotSupported: not a float. OperandDTypeMismatch, OperandShapeMismatch, DynamicDimensionMismatch: the operands' types
    differ.
    """
    want(x.dtype, FLOATS)
    return alike(x, y)


def crosses_pole(step: errors.Step) -> Array:
    """Whether an interval of operands of `tan` may contain a pole."""
    x, e = arrays.widen(step.operands[0]), step.error(0)
    if x.dtype.kind == "c":
        return np.zeros(x.shape, bool)
    passed: Array = np.floor((x - e) / np.pi + 0.5) != np.floor((x + e) / np.pi + 0.5)
    return passed


def crosses_cut(step: errors.Step) -> Array:
    """Whether a box of points (x, y) of `atan2` may meet the negative x axis or the origin."""
    return (step.absolute(0) <= step.error(0)) & (arrays.widen(step.operands[1]) <= step.error(1))


def crosses_zero(step: errors.Step) -> Array:
    """Whether an interval of bases of `pow` may contain 0 or change sign while the exponent may be negative or 0."""
    return (step.absolute(0) <= step.error(0)) & ~(arrays.widen(step.operands[1]) > step.error(1))


@unary("ptir.sin", infer=of_inexact, error=errors.lipschitz(ulp=2), algebra=ODD, inplace=InPlace("float-ufunc", "sin"))
def sin(x: Array, *, result: Result) -> Array:
    """The sine of an angle in radians; NaN for an infinity. Extension."""
    return compute(result, np.sin, x)


@unary("ptir.cos", infer=of_inexact, error=errors.lipschitz(ulp=2), algebra=EVEN, inplace=InPlace("float-ufunc", "cos"))
def cos(x: Array, *, result: Result) -> Array:
    """The cosine of an angle in radians; NaN for an infinity. Extension."""
    return compute(result, np.cos, x)


@unary(
    "ptir.tan",
    infer=of_inexact,
    error=errors.unless(crosses_pole, errors.pointwise(ulp=4)),
    algebra=ODD,
    inplace=InPlace("float-ufunc", "tan"),
)
def tan(x: Array, *, result: Result) -> Array:
    """The tangent of an angle in radians; NaN for an infinity. Extension."""
    return compute(result, np.tan, x)


@unary("ptir.asin", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=ODD_RISING, inplace=InPlace("float-ufunc", "arcsin"))
def asin(x: Array, *, result: Result) -> Array:
    """The angle in [-pi/2, pi/2] whose sine is `x`; NaN for reals outside [-1, 1]. Extension."""
    return compute(result, np.arcsin, x)


@unary("ptir.acos", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=FALLING, inplace=InPlace("float-ufunc", "arccos"))
def acos(x: Array, *, result: Result) -> Array:
    """The angle in [0, pi] whose cosine is `x`; NaN for reals outside [-1, 1]. Extension."""
    return compute(result, np.arccos, x)


@unary("ptir.atan", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=ODD_RISING, inplace=InPlace("float-ufunc", "arctan"))
def atan(x: Array, *, result: Result) -> Array:
    """The angle in [-pi/2, pi/2] whose tangent is `x`. Extension."""
    return compute(result, np.arctan, x)


@binary(
    "ptir.atan2",
    infer=of_float_pair,
    error=errors.unless(crosses_cut, errors.pointwise(ulp=4, signed=(0, 1))),
    inplace=InPlace("float-ufunc", "arctan2"),
)
def atan2(y: Array, x: Array, *, result: Result) -> Array:
    """The angle in [-pi, pi] from the positive x axis to the point (x, y); the sign of a zero counts. Extension."""
    return compute(result, np.arctan2, y, x)


@unary("ptir.sinh", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=ODD_RISING, inplace=InPlace("float-ufunc", "sinh"))
def sinh(x: Array, *, result: Result) -> Array:
    """The hyperbolic sine. Extension."""
    return compute(result, np.sinh, x)


@unary("ptir.cosh", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=EVEN, inplace=InPlace("float-ufunc", "cosh"))
def cosh(x: Array, *, result: Result) -> Array:
    """The hyperbolic cosine. Extension."""
    return compute(result, np.cosh, x)


@unary(
    "ptir.asinh", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=ODD_RISING, inplace=InPlace("float-ufunc", "arcsinh")
)
def asinh(x: Array, *, result: Result) -> Array:
    """The number whose hyperbolic sine is `x`. Extension."""
    return compute(result, np.arcsinh, x)


@unary("ptir.acosh", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=RISING, inplace=InPlace("float-ufunc", "arccosh"))
def acosh(x: Array, *, result: Result) -> Array:
    """The nonnegative number whose hyperbolic cosine is `x`; NaN for reals less than 1. Extension."""
    return compute(result, np.arccosh, x)


@unary(
    "ptir.atanh", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=ODD_RISING, inplace=InPlace("float-ufunc", "arctanh")
)
def atanh(x: Array, *, result: Result) -> Array:
    """The number whose hyperbolic tangent is `x`; infinite at -1 and 1, NaN for reals outside [-1, 1]. Extension."""
    return compute(result, np.arctanh, x)


def _log1p(x: Array) -> Array:
    """log(1 + x). Complex numbers are computed by parts, because NumPy's function loses small ones."""
    if x.dtype.kind != "c":
        return np.asarray(np.log1p(x))
    parts = 0.5 * np.log1p(x.real * (2 + x.real) + np.square(x.imag)), np.arctan2(x.imag, 1 + x.real)
    return np.asarray(np.where(np.abs(x) < 0.5, parts[0] + 1j * parts[1], np.log(1 + x)))


@unary("ptir.log1p", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=RISING, inplace=InPlace("log1p"))
def log1p(x: Array, *, result: Result) -> Array:
    """The natural logarithm of 1 + `x`, precise near 0: -inf at -1, NaN for reals less than -1. Extension."""
    return compute(result, _log1p, x)


@unary("ptir.expm1", infer=of_inexact, error=errors.pointwise(ulp=4), algebra=RISING, inplace=InPlace("float-ufunc", "expm1"))
def expm1(x: Array, *, result: Result) -> Array:
    """e to the power of `x`, minus 1, precise near 0. Extension."""
    return compute(result, np.expm1, x)


@unary("ptir.cbrt", infer=of_float, error=errors.pointwise(ulp=2), algebra=ODD_RISING, inplace=InPlace("float-ufunc", "cbrt"))
def cbrt(x: Array, *, result: Result) -> Array:
    """The real cube root, also of negative numbers. Extension."""
    return compute(result, np.cbrt, x)


def _pow(x: Array, y: Array) -> Array:
    """`x` to the power of `y`. Integers wrap; 1 / x**n is truncated, and 0 for x = 0."""
    if x.dtype.kind not in "iu":
        return np.asarray(np.power(x, y))
    inverse = np.where((x == 1) | ((x.astype(np.int64) == -1) & (y % 2 == 0)), 1, np.where(x.astype(np.int64) == -1, -1, 0))
    return np.asarray(np.where(y < 0, inverse.astype(x.dtype), np.power(x, np.maximum(y, 0))))


@binary(
    "ptir.pow",
    infer=of_numeric_pair,
    error=errors.unless(crosses_zero, errors.pointwise(ulp=4, signed=(0,))),
    inplace=InPlace("power"),
)
def power(x: Array, y: Array, *, result: Result) -> Array:
    """`x` to the power of `y`: floats by IEEE `pow`, NaN for a negative base unless the exponent is an integer. Extension.

    Integers wrap. A negative integer exponent gives 1 / x**n truncated, and 0 where `x` is 0.
    """
    return compute(result, _pow, x, y)


@unary("ptir.erf_inv", infer=of_float, error=errors.pointwise(ulp=8), algebra=ODD_RISING)
def erf_inv(x: Array, *, result: Result) -> Array:
    """The number whose `erf` is `x`; infinite at -1 and 1, NaN outside [-1, 1]. Extension."""
    return compute(result, special.erf_inv, x)


def may_be_pole(step: errors.Step) -> Array:
    """Whether an interval of operands of `lgamma` or `digamma` may contain 0 or a negative integer."""
    x, e = arrays.widen(step.operands[0]), step.error(0)
    passed: Array = (np.floor(x - e) != np.floor(x + e)) & (x - e <= 0)
    return passed


def may_be_extremum(step: errors.Step) -> Array:
    """Whether an interval of operands of `lgamma` may contain a pole or the minimum."""
    x, e = arrays.widen(step.operands[0]), step.error(0)
    lowest = 1.4616321449683622
    return may_be_pole(step) | (x - e < 0) | ((x - e < lowest) & (x + e > lowest))


@unary("ptir.lgamma", infer=of_float, error=errors.unless(may_be_extremum, errors.pointwise(ulp=16, near=1.0)))
def lgamma(x: Array, *, result: Result) -> Array:
    """The logarithm of the magnitude of the gamma function; infinite at 0 and negative integers. Extension."""
    return compute(result, special.lgamma, x)


@unary("ptir.digamma", infer=of_float, error=errors.unless(may_be_pole, errors.pointwise(ulp=16, near=1.0)))
def digamma(x: Array, *, result: Result) -> Array:
    """The derivative of `lgamma`; NaN at 0 and negative integers. Extension."""
    return compute(result, special.digamma, x)
