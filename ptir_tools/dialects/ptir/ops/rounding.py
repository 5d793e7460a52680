"""Extension ops: rounding to integers, remainders, and the representation of floats. All are exact."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import divisor, op, signed
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Algebra, Asks, InPlace, Kernel
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.ops.constants import check_divisor, divisor_unknown
from ptir_tools.dialects.ptir.ops.elementwise import MAP, binary, of_float, of_ordered, of_signed_real, unary
from ptir_tools.dialects.ptir.ops.functions import of_float_pair
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute, truncated_quotient
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, attribute, rule, want

drawing = Later("ptir_tools.dialects.ptir.drawing")

STEPS = Algebra(monotone="increasing", idempotent=True)
ODD_STEPS = Algebra(parity="odd", monotone="increasing", idempotent=True)


@unary("ptir.floor", infer=of_float, algebra=STEPS, inplace=InPlace("float-ufunc", "floor"))
def floor(x: Array, *, result: Result) -> Array:
    """The largest integer that is not above `x`. Extension."""
    return compute(result, np.floor, x)


@unary("ptir.ceil", infer=of_float, algebra=STEPS, inplace=InPlace("float-ufunc", "ceil"))
def ceil(x: Array, *, result: Result) -> Array:
    """The smallest integer that is not below `x`. Extension."""
    return compute(result, np.ceil, x)


@unary(
    "ptir.round_even",
    infer=of_float,
    algebra=ODD_STEPS,
    inplace=InPlace("float-ufunc", "rint"),
    kernel=Kernel("map", "round_even", exact=True),
)
def round_even(x: Array, *, result: Result) -> Array:
    """The nearest integer, ties to even. Extension."""
    return compute(result, np.rint, x)


def _away(x: Array) -> Array:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.copysign(1.0, x), whole)


@unary("ptir.round_away", infer=of_float, algebra=ODD_STEPS)
def round_away(x: Array, *, result: Result) -> Array:
    """The nearest integer, ties away from 0. Extension."""
    return compute(result, _away, x)


def _sign(x: Array) -> Array:
    return np.where(x == 0, x, np.sign(x))


# Not odd: the least integer has no negative.
@unary("ptir.sign", infer=of_signed_real, algebra=STEPS, asks=Asks(passed=signed))
def sign(x: Array, *, result: Result) -> Array:
    """-1 for negative numbers, 1 for positive ones; zeros and NaN are unchanged. Extension."""
    return compute(result, _sign, x)


@rule
def is_finite_type(x: TensorType) -> TensorType:
    """A float operand; the result is i1 of its shape."""
    want(x.dtype, FLOATS)
    return x.with_dtype(I1)


@op("ptir.is_finite", infer=is_finite_type, traits=MAP, error=errors.pointwise(exact=True), inplace=InPlace("ufunc", "isfinite"))
def is_finite(x: Array, *, result: Result) -> Array:
    """Whether an element is neither infinite nor NaN. Extension.

    DTypeNotSupported: `x` is not a float.
    """
    return compute(result, np.isfinite, x)


def quotient_may_differ(step: errors.Step) -> Array:
    """Whether an error of the operands of `rem` or `mod` may change the integer quotient or the sign of the divisor."""
    (x, y), (ex, ey) = map(arrays.widen, step.operands), (step.error(0), step.error(1))
    quotients = [np.trunc((x + a * ex) / (y + b * ey)) for a in (-1, 1) for b in (-1, 1)]
    floors = [np.floor((x + a * ex) / (y + b * ey)) for a in (-1, 1) for b in (-1, 1)]
    same = [np.equal(q, found[0]) for found in (quotients, floors) for q in found]
    sure: Array = np.logical_and.reduce([*same, np.abs(y) > ey])
    return np.logical_not(sure)


def remainder_by(
    whole: Callable[[Array, Array], Array], exact: Callable[[Array, Array], Array]
) -> Callable[[Array, Array], Array]:
    """The remainder of division: for integers from the quotient function `whole`, for floats by `exact`."""

    def left(x: Array, y: Array) -> Array:
        if x.dtype.kind not in "iu":
            return np.asarray(exact(x, y))
        require(np.all(y != 0), "IntegerDivideByZero", "an integer remainder by zero")
        return np.asarray(x - whole(x, y) * y)

    return left


def _floor_remainder(x: Array, y: Array) -> Array:
    """The exact remainder of floats with the sign of `y`. For an infinite `y` of the other sign it is `y`."""
    left = np.fmod(x, y)
    return np.where((left != 0) & ((left < 0) != (y < 0)), left + y, np.where(left == 0, np.copysign(left, y), left))


@binary(
    "ptir.rem",
    infer=of_ordered,
    check=check_divisor,
    fails=divisor_unknown,
    error=errors.unless(quotient_may_differ, errors.pointwise(exact=True)),
    generate=drawing.draw_division,
    asks=divisor(1),
)
def rem(x: Array, y: Array, *, result: Result) -> Array:
    """The remainder of `x` divided by `y`, truncated: it has the sign of `x`, as C's `%` and `fmod`. Extension.

    Floats: NaN when `x` is infinite or `y` is 0; `x` when `y` is infinite.
    IntegerDivideByZero: an integer divisor has a zero (refused before the run when the divisor is a constant).
    """
    return compute(result, remainder_by(truncated_quotient, np.fmod), x, y)


@binary(
    "ptir.mod",
    infer=of_ordered,
    check=check_divisor,
    fails=divisor_unknown,
    error=errors.unless(quotient_may_differ, errors.pointwise(ulp=1)),
    generate=drawing.draw_division,
    asks=divisor(1),
)
def mod(x: Array, y: Array, *, result: Result) -> Array:
    """The remainder of `x` divided by `y`, rounded down: it has the sign of `y`, as Python's `%`. Extension.

    Floats: NaN when `x` is infinite or `y` is 0; when `y` is infinite, `x` if it has the sign of `y`, else `y`.
    IntegerDivideByZero: an integer divisor has a zero (refused before the run when the divisor is a constant).
    """
    return compute(result, remainder_by(np.floor_divide, _floor_remainder), x, y)


def _bits(x: Array) -> tuple[Array, Array]:
    """The magnitudes of floats as integers in the same order, and the sign bits."""
    word = np.asarray(x, order="C").view(f"u{x.dtype.itemsize}").astype(np.uint64)
    top = np.uint64(1 << 8 * x.dtype.itemsize - 1)
    return word & (top - np.uint64(1)), word & top


def _floats(bits: Array, like: Array) -> Array:
    """The floats of these bits, of the dtype of `like`."""
    return np.asarray(bits).astype(f"u{like.dtype.itemsize}").view(like.dtype)


@binary("ptir.nextafter", infer=of_float_pair, error=errors.discrete)
def nextafter(x: Array, y: Array) -> Array:
    """The number of the dtype next to `x` in the direction of `y`; `y` when they are equal, NaN when either is. Extension."""
    a, b = arrays.widen(x), arrays.widen(y)
    (size, sign), toward = _bits(x), _bits(y)[1]
    one = np.uint64(1)
    up = (a < b) == (a > 0)
    moved = np.where(size == 0, toward | one, np.where(up, size + one, size - one) | sign)
    found = np.where(a == b, y, _floats(moved, x))
    return np.where(np.isnan(a) | np.isnan(b), np.asarray(np.nan).astype(x.dtype), found)


@rule
def reduce_precision_type(x: TensorType, *, exponent_bits: int, mantissa_bits: int) -> TensorType:
    """A float operand; the result has its type."""
    want(x.dtype, FLOATS)
    attribute(exponent_bits >= 1, f"exponent_bits {exponent_bits} is less than 1", "exponent_bits")
    attribute(mantissa_bits >= 0, f"mantissa_bits {mantissa_bits} is negative", "mantissa_bits")
    return x


@op(
    "ptir.reduce_precision",
    infer=reduce_precision_type,
    traits=MAP,
    algebra=ODD_STEPS,
)
def reduce_precision(x: Array, *, exponent_bits: int, mantissa_bits: int) -> Array:
    """`x` rounded, to nearest even, to a float of that many bits, in its own dtype. Extension.

    A number that is too large becomes infinite (NaN in fp8_e4m3). One that is less than the smallest normal number becomes 0.
    Bits that the dtype does not have change nothing. NaN is unchanged.
    DTypeNotSupported: `x` is not a float. InvalidAttributeValue: `exponent_bits` is less than 1, or `mantissa_bits` is negative.
    """
    dtype = numerics.dtype_of(x)
    own = dtype.precision - 1
    exponents = dtype.bits - dtype.precision
    size, sign = _bits(x)
    drop = np.uint64(max(own - mantissa_bits, 0))
    one = np.uint64(1)
    if drop:
        half = (one << (drop - one)) - one + (size >> drop & one)
        size = (size + half) >> drop << drop
    bias, infinite = (1 << exponents - 1) - 1, _bits(np.asarray(np.inf).astype(x.dtype))[0]
    if exponent_bits < exponents:
        most = (1 << exponent_bits - 1) - 1  # the largest exponent, and 1 less than it negated the smallest
        exponent = (size >> np.uint64(own)).astype(np.int64) - bias
        size = np.where(exponent > most, infinite, np.where(exponent < 1 - most, np.uint64(0), size))
    found = _floats(np.minimum(size, infinite) | sign, x)
    return np.where(np.isnan(arrays.widen(x)), x, found)
