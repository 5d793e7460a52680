"""Constants and elementwise ops: arithmetic, comparisons, conversions, bits, and the functions of CHLO."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.stablehlo.table import Handler, Site, Tensor, handles, refused, sizes_of
from ptir_tools.core.dtypes import (
    CF32,
    F32,
    F64,
    I1,
    SI4,
    SI8,
    SI16,
    SI32,
    SI64,
    UI4,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
    Kind,
    lossless,
)
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import require

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

# One op of PTIR on the same operands.
SAME = {
    "stablehlo.ceil": "ceil",
    "stablehlo.cosine": "cos",
    "stablehlo.count_leading_zeros": "count_leading_zeros",
    "stablehlo.exponential": "exp",
    "stablehlo.exponential_minus_one": "expm1",
    "stablehlo.floor": "floor",
    "stablehlo.is_finite": "is_finite",
    "stablehlo.log": "log",
    "stablehlo.log_plus_one": "log1p",
    "stablehlo.popcnt": "popcount",
    "stablehlo.round_nearest_afz": "round_away",
    "stablehlo.round_nearest_even": "round_even",
    "stablehlo.rsqrt": "rsqrt",
    "stablehlo.shift_left": "shift_left",
    "stablehlo.shift_right_arithmetic": "shift_right_arithmetic",
    "stablehlo.shift_right_logical": "shift_right_logical",
    "stablehlo.sine": "sin",
    "stablehlo.tan": "tan",
    "stablehlo.tanh": "tanh",
    "stablehlo.and": "bitwise_and",
    "stablehlo.or": "bitwise_or",
    "stablehlo.xor": "bitwise_xor",
    "stablehlo.not": "bitwise_not",
    "chlo.acos": "acos",
    "chlo.acosh": "acosh",
    "chlo.asin": "asin",
    "chlo.asinh": "asinh",
    "chlo.atan": "atan",
    "chlo.atanh": "atanh",
    "chlo.cosh": "cosh",
    "chlo.digamma": "digamma",
    "chlo.erf": "erf",
    "chlo.erf_inv": "erf_inv",
    "chlo.lgamma": "lgamma",
    "chlo.next_after": "nextafter",
    "chlo.sinh": "sinh",
    "chlo.tan": "tan",
}


def same(name: str) -> Callable[..., Tensor]:
    """One op of PTIR on the same operands."""

    def handler(site: Site, *operands: Tensor) -> Tensor:
        return site.op(name, *operands)

    return handler


for _name, _op in SAME.items():
    handles(_name)(same(_op))


def both(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """Logical or bitwise and."""
    return site.op("bitwise_and", x, y)


def either(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """Logical or bitwise or."""
    return site.op("bitwise_or", x, y)


@handles("stablehlo.constant", "chlo.constant")
def constant(site: Site) -> Tensor:
    """A literal; a scalar literal is repeated."""
    t = site.type
    if site.scope.lift and t.shape == tuple(site.scope.lift):
        lifted = site.literal("value", t.with_shape(()))
        return site.splat(lifted, t.shape)
    result = site.literal("value", t)
    if result.splat:
        return site.splat(type(result)(t.with_shape(()), result.data), t.shape)
    return site.op("constant", value=result)


@handles("stablehlo.iota", dim="iota_dimension")
def iota(site: Site) -> Tensor:
    """0, 1, 2, … along an axis."""
    t = site.type
    return counted(site, t.dtype, site.known(t.shape), site.axis("iota_dimension", t.rank))


def counted(site: Site, dtype: DType, shape: object, axis: int) -> Tensor:
    """0, 1, 2, … along an axis, also of a complex dtype or i1."""
    plain = dtype if not dtype.is_complex and dtype is not I1 else SI64 if dtype is I1 else F32 if dtype is CF32 else F64
    x = site.op("iota", shape=shape, dtype=plain, axis=axis)
    return (
        x if plain is dtype else site.op("bitwise_and", x, site.full(1, x.tensor_type)).cast(I1) if dtype is I1 else x.cast(dtype)
    )


@handles("stablehlo.add")
def add(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The sum; for i1 logical or."""
    return either(site, x, y) if x.dtype is I1 else site.op("add", x, y)


@handles("stablehlo.multiply")
def multiply(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The product; for i1 logical and."""
    return both(site, x, y) if x.dtype is I1 else site.op("mul", x, y)


@handles("stablehlo.subtract")
def subtract(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The difference."""
    return site.op("sub", x, y)


@handles("stablehlo.maximum")
def maximum(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The larger; complex numbers are compared by real, then imaginary parts."""
    if x.dtype is I1:
        return either(site, x, y)
    if x.dtype.is_complex:
        return site.op("select", above(site, x, y), x, y)
    return site.op("maximum", x, y)


@handles("stablehlo.minimum")
def minimum(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The smaller; complex numbers are compared by real, then imaginary parts."""
    if x.dtype is I1:
        return both(site, x, y)
    if x.dtype.is_complex:
        return site.op("select", above(site, y, x), x, y)
    return site.op("minimum", x, y)


def above(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """Whether `x` is greater than `y`: complex numbers are ordered by real, then imaginary parts."""
    (a, b), (c, d) = ((site.op("real", z), site.op("imag", z)) for z in (x, y))
    tied = both(site, site.op("compare_eq", a, c), site.op("compare_gt", b, d))
    return either(site, site.op("compare_gt", a, c), tied)


@handles("stablehlo.negate")
def negate(site: Site, x: Tensor) -> Tensor:
    """The negative; integers wrap."""
    if x.dtype.kind is Kind.UINT:
        return site.op("sub", site.full(0, x.tensor_type), x)
    return site.op("neg", x)


@handles("stablehlo.abs")
def absolute(site: Site, x: Tensor) -> Tensor:
    """The absolute value, also of complex numbers."""
    if x.dtype.is_complex:
        return magnitude(site, x)
    return x if x.dtype.kind is Kind.UINT else site.op("abs", x)


def magnitude(site: Site, x: Tensor) -> Tensor:
    """The absolute value of complex numbers: the larger part times `sqrt(1 + (smaller / larger)^2)`."""
    a, b = (site.op("abs", site.op(part, x)) for part in ("real", "imag"))
    high, low = site.op("maximum", a, b), site.op("minimum", a, b)
    t = high.tensor_type
    empty = site.op("compare_eq", high, site.full(0, t))
    ratio = site.op("div", low, site.op("select", empty, site.full(1, t), high))
    root = square_root(site, site.op("add", site.full(1, t), site.op("mul", ratio, ratio)))
    result = site.op("mul", high, root)
    infinite = site.op("compare_eq", high, site.full(math.inf, t))
    return site.op(
        "select", either(site, infinite, site.op("compare_eq", low, site.full(math.inf, t))), site.full(math.inf, t), result
    )


@handles("stablehlo.sqrt")
def sqrt(site: Site, x: Tensor) -> Tensor:
    """The square root."""
    return square_root(site, x)


def square_root(site: Site, x: Tensor) -> Tensor:
    """The square root as `1 / rsqrt(x)`, which is right at 0 and infinity, too."""
    if not x.dtype.is_complex:
        return site.op("reciprocal", site.op("rsqrt", x))
    return _complex_root(site, x)


def _complex_root(site: Site, x: Tensor) -> Tensor:
    """The square root of complex numbers, computed from the larger part so that no square overflows; infinities as in C99."""
    a, b = site.op("real", x), site.op("imag", x)
    t, (across, up) = a.tensor_type, (site.op("abs", part) for part in (a, b))
    zero, one, half, infinity = (site.full(n, t) for n in (0, 1, 0.5, math.inf))
    larger = site.op("maximum", across, up)
    empty = site.op("compare_eq", larger, zero)
    size = site.op("select", empty, one, larger)
    p, q = (site.op("div", part, size) for part in (across, up))
    length = square_root(site, site.op("add", site.op("mul", p, p), site.op("mul", q, q)))
    mean = site.op("mul", site.op("add", length, p), half)
    u = site.op("mul", square_root(site, size), square_root(site, mean))
    v = site.op("mul", site.op("div", up, site.op("select", empty, one, u)), half)
    # If one part is infinite, so is the root, along the nearest axis.
    nothing = site.op("mul", up, zero)  # 0 or NaN
    tall = site.op("compare_eq", up, infinity)
    infinite = either(site, tall, site.op("compare_eq", across, infinity))
    u = site.op("select", infinite, infinity, u)
    v = site.op("select", infinite, site.op("select", tall, infinity, nothing), v)
    negative, below = site.op("compare_lt", a, zero), site.op("compare_lt", b, zero)
    below = either(site, below, site.op("compare_lt", site.op("reciprocal", b), zero))  # -0, too
    second = site.op("select", negative, u, v)
    second = site.op("select", below, site.op("neg", second), second)
    return site.op("complex", site.op("select", negative, v, u), second)


@handles("stablehlo.logistic")
def logistic(site: Site, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    e = site.op("exp", site.op("neg", x))
    return site.op("reciprocal", site.op("add", e, site.full(1, e.tensor_type)))


@handles("stablehlo.atan2")
def atan2(site: Site, y: Tensor, x: Tensor) -> Tensor:
    """The angle of a point; for complex numbers -i log((x + i y) / sqrt(x x + y y))."""
    if not x.dtype.is_complex:
        return site.op("atan2", y, x)
    t = x.tensor_type
    size = square_root(site, site.op("add", site.op("mul", x, x), site.op("mul", y, y)))
    point = site.op("add", x, site.op("mul", y, site.full(1j, t)))
    return site.op("mul", site.op("log", site.op("div", point, size)), site.full(-1j, t))


@handles("stablehlo.cbrt")
def cbrt(site: Site, x: Tensor) -> Tensor:
    """The cube root; for complex numbers the principal one."""
    return site.op("pow", x, site.full(1 / 3, x.tensor_type)) if x.dtype.is_complex else site.op("cbrt", x)


@handles("stablehlo.sign")
def sign(site: Site, x: Tensor) -> Tensor:
    """-1, 0 or 1; for a complex number, the number divided by its magnitude."""
    t = x.tensor_type
    if x.dtype.kind is Kind.UINT:
        return site.op("minimum", x, site.full(1, t))
    if not x.dtype.is_complex:
        return site.op("sign", x)
    zero = site.op("compare_eq", x, site.full(0, t))
    size = magnitude(site, x)
    safe = site.op("select", zero, site.full(1, size.tensor_type), size)
    a, b = (site.op("div", site.op(part, x), safe) for part in ("real", "imag"))
    return site.op("complex", a, b)


@handles("stablehlo.power")
def power(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """`x` to the power of `y`."""
    return both(site, x, y) if x.dtype is I1 else site.op("pow", x, y)


@handles("stablehlo.divide")
def divide(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The quotient; for integers rounded toward zero, and -1 (all bits are 1) if the divisor is 0."""
    zero, divisor = zeros(site, y)
    if zero is None:
        return site.op("div", x, y)
    t = x.tensor_type
    ones = site.full(t.dtype.max if t.dtype.kind is Kind.UINT else -1, t)
    return site.op("select", zero, ones, site.op("div", x, divisor))


@handles("stablehlo.remainder")
def remainder(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a division toward zero; for integers the dividend if the divisor is 0."""
    zero, divisor = zeros(site, y)
    if zero is None:
        return site.op("rem", x, y)
    return site.op("select", zero, x, site.op("rem", x, divisor))


def zeros(site: Site, y: Tensor) -> tuple[Tensor | None, Tensor]:
    """A mask of zero divisors, and the divisors with 1 there, because PTIR fails on division by zero and XLA does not. None
    for floats, and for constants without a 0."""
    if not y.dtype.is_integer or ((number := known(y)) is not None and number.all()):
        return None, y
    t = y.tensor_type
    zero = site.op("compare_eq", y, site.full(0, t))
    return zero, site.op("select", zero, site.full(1, t), y)


@handles("stablehlo.clamp")
def clamp(site: Site, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """`min(max(x, low), high)`; bounds may be scalars."""
    low, high = (b if b.shape == x.shape else site.op("broadcast_to", b, result_shape=x.shape) for b in (low, high))
    if x.dtype.is_complex or x.dtype is I1:
        return minimum(site, maximum(site, low, x), high)
    return site.op("clamp", x, low, high)


@handles("stablehlo.select")
def select(site: Site, pred: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """`x` where `pred` holds, else `y`; the predicate may be a scalar."""
    if pred.shape != x.shape:
        pred = site.op("broadcast_to", pred, result_shape=x.shape)
    return site.op("select", pred, x, y)


@handles("stablehlo.compare")
def compare(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """A comparison; TOTALORDER compares floats by their bits."""
    words = site.words
    direction = words[0] if words else site.word("comparison_direction")
    kind = words[1] if len(words) > 1 else site.word("compare_type", "NOTYPE")
    if direction not in ("EQ", "NE", "LT", "LE", "GT", "GE"):
        raise refused(f"there is no comparison {direction}")
    if kind == "TOTALORDER":
        x, y = ordered(site, x), ordered(site, y)
    if x.dtype.is_complex and direction in ("LT", "LE", "GT", "GE"):
        before, after = (x, y) if direction in ("LT", "GE") else (y, x)
        result = above(site, after, before)
        return result if direction in ("LT", "GT") else site.op("bitwise_not", result)
    if x.dtype is I1 and direction not in ("EQ", "NE"):
        x, y = x.cast(UI8), y.cast(UI8)
    return site.op(f"compare_{direction.lower()}", x, y)


def ordered(site: Site, x: Tensor) -> Tensor:
    """Floats as integers in the same total order: -NaN, -inf, …, -0, 0, …, inf, NaN."""
    if not x.dtype.is_float:
        return x
    bits = site.op("bitcast", x, dtype=_of(x.dtype.bits, signed=True))
    t = bits.tensor_type
    turned = site.op("bitwise_xor", bits, site.full(t.dtype.max, t))
    return site.op("select", site.op("compare_lt", bits, site.full(0, t)), turned, bits)


@handles("stablehlo.convert")
def convert(site: Site, x: Tensor) -> Tensor:
    """Each element as another dtype. Integers wrap, complex numbers lose their imaginary part."""
    return converted(site, x, site.dtype)


def converted(site: Site, x: Tensor, target: DType) -> Tensor:
    """Each element as `target`: PTIR's cast, except where it saturates integers or refuses."""
    source = x.dtype
    if source is target:
        return x
    if source.is_complex and not target.is_complex:
        return converted(site, site.op("real", x), target)
    if source.is_integer and target.is_integer and not lossless(source, target):
        return wrapped(site, x, target)
    return site.op("cast", x, dtype=target)


def wrapped(site: Site, x: Tensor, target: DType) -> Tensor:
    """Integers modulo 2 to the number of bits of `target`. PTIR's cast would saturate, so the bits are cast."""
    source = x.dtype
    if source.bits == target.bits:
        return site.op("bitcast", x, dtype=target)
    if source.bits < target.bits:  # a negative number as unsigned
        return site.op("bitcast", x.cast(_of(target.bits, signed=True)), dtype=target)
    unsigned = x if source.kind is Kind.UINT else site.op("bitcast", x, dtype=_of(source.bits, signed=False))
    low = site.op("bitwise_and", unsigned, site.full((1 << target.bits) - 1, unsigned.tensor_type))
    narrow = low.cast(_of(target.bits, signed=False))
    return narrow if target.kind is Kind.UINT else site.op("bitcast", narrow, dtype=target)


_WIDTHS = {(d.bits, d.is_signed): d for d in (SI4, UI4, SI8, SI16, SI32, SI64, UI8, UI16, UI32, UI64)}


def _of(bits: int, signed: bool) -> DType:
    return _WIDTHS[bits, signed]


@handles("stablehlo.bitcast_convert")
def bitcast_convert(site: Site, x: Tensor) -> Tensor:
    """The bits of each element as another dtype, low bits first; also for complex numbers and i1."""
    target, shape = site.dtype, site.known(site.type.shape)
    if x.dtype is target:
        return x
    if I1 in (x.dtype, target):
        return bits_of(site, x) if target is I1 else from_bits(site, x, target)
    part = (F32 if target is CF32 else F64) if target.is_complex else target
    if x.dtype.is_complex:
        both = [site.op(name, x).reshape([*x.shape, 1]) for name in ("real", "imag")]
        x = site.op("concat", both, axis=x.rank)
    if part.bits > x.dtype.bits:
        x = x.reshape([*_grouped(sizes_of(x), part.bits // x.dtype.bits)])
    result = x if x.dtype is part else site.op("bitcast", x, dtype=part)
    if not target.is_complex:
        return result if result.shape == shape else result.reshape(shape)
    pairs = result.reshape([*shape, 2])
    sides = [pairs.slice([*(0 for _ in shape), k], [*sizes_of(pairs)[:-1], 1]).reshape(shape) for k in (0, 1)]
    return site.op("complex", *sides)


def _grouped(shape: Sequence[int], size: int) -> list[int]:
    """A shape whose last axis has `size` elements."""
    count = math.prod(shape)
    require(count % size == 0, "OperandShapeMismatch", f"{count} elements are not groups of {size}")
    return [count // size, size]


def bits_of(site: Site, x: Tensor) -> Tensor:
    """The bits of real numbers along a new last axis."""
    whole = x if x.dtype.kind is Kind.UINT else site.op("bitcast", x, dtype=_of(x.dtype.bits, signed=False))
    shape = (*sizes_of(x), x.dtype.bits)
    wide = site.broadcast(whole, shape, range(x.rank))
    one = site.op("shift_right_logical", wide, site.integers(shape, x.rank, whole.dtype))
    return site.op("bitwise_and", one, site.full(1, one.tensor_type)).cast(I1)


def from_bits(site: Site, x: Tensor, target: DType) -> Tensor:
    """Real numbers of the bits along the last axis."""
    require(
        x.rank and x.shape[-1] == target.bits,
        "OperandShapeMismatch",
        f"the last axis of {x.type} does not have {target.bits} bits",
    )
    whole = _of(target.bits, signed=False)
    wide = x.cast(whole)
    placed = site.op("shift_left", wide, site.integers(sizes_of(x), x.rank - 1, whole))
    result = site.op("reduce_or", placed, axes=[x.rank - 1])
    return result if whole is target else site.op("bitcast", result, dtype=target)


@handles("stablehlo.real")
def real(site: Site, x: Tensor) -> Tensor:
    """The real part."""
    return site.op("real", x) if x.dtype.is_complex else x


@handles("stablehlo.imag")
def imag(site: Site, x: Tensor) -> Tensor:
    """The imaginary part, 0 of a real number."""
    return site.op("imag", x) if x.dtype.is_complex else site.full(0, x.tensor_type)


@handles("stablehlo.complex")
def complex_(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The complex number of two parts."""
    return site.op("complex", x, y)


@handles("stablehlo.reduce_precision")
def reduce_precision(site: Site, x: Tensor) -> Tensor:
    """Rounded to fewer bits of exponent and mantissa."""
    if site.has("format"):
        exponent, _, mantissa = site.word("format").removeprefix("e").partition("m")
        require(exponent.isdecimal() and mantissa.isdecimal(), "InvalidAttributeValue", "`format` is `e5m10` and the like")
        bits = int(exponent), int(mantissa)
    else:
        bits = site.integer("exponent_bits"), site.integer("mantissa_bits")
    result = site.op("reduce_precision", x, exponent_bits=bits[0], mantissa_bits=bits[1])
    if bits[1]:
        return result
    t = x.tensor_type  # without mantissa bits, a NaN becomes an infinity of its sign
    whole = site.op("bitcast", x, dtype=_of(x.dtype.bits, signed=True))
    negative = site.op("compare_lt", whole, site.full(0, whole.tensor_type))
    infinite = site.op("select", negative, site.full(-math.inf, t), site.full(math.inf, t))
    return site.op("select", site.op("compare_ne", x, x), infinite, result)


@handles("stablehlo.rng", distribution="rng_distribution")
def rng(site: Site, a: Tensor, b: Tensor, shape: Tensor) -> Tensor:
    """Independent random numbers: uniform in [a, b), or normal with mean `a` and standard deviation `b`."""
    t, kind = site.type, site.word("rng_distribution")
    require(kind in ("UNIFORM", "NORMAL"), "InvalidAttributeValue", f"`rng_distribution` is {kind}")
    if not t.dtype.is_float:
        raise refused("random integers")
    drawn = site.op(f"rng_{kind.lower()}", shape=site.known(t.shape), dtype=t.dtype)
    first, factor = (site.broadcast(x, t.shape, []) for x in (a, site.op("sub", b, a) if kind == "UNIFORM" else b))
    return site.op("add", site.op("mul", drawn, factor), first)


@handles("stablehlo.optimization_barrier", "sdy.sharding_constraint", values=True)
def optimization_barrier(site: Site, *operands: object) -> list[object]:
    """The operands."""
    return list(operands)


# CHLO


@handles("chlo.erfc")
def erfc(site: Site, x: Tensor) -> Tensor:
    """1 - erf(x)."""
    return site.op("sub", site.full(1, x.tensor_type), site.op("erf", x))


@handles("chlo.square")
def square(site: Site, x: Tensor) -> Tensor:
    """The product with itself."""
    return site.op("mul", x, x)


@handles("chlo.conj")
def conj(site: Site, x: Tensor) -> Tensor:
    """The complex conjugate."""
    return conjugate(site, x)


def conjugate(site: Site, x: Tensor) -> Tensor:
    """The complex conjugate; of a real number itself."""
    if not x.dtype.is_complex:
        return x
    return site.op("complex", site.op("real", x), site.op("neg", site.op("imag", x)))


@handles("chlo.is_inf")
def is_inf(site: Site, x: Tensor) -> Tensor:
    """Whether a float is infinite."""
    return site.op("compare_eq", site.op("abs", x), site.full(math.inf, x.tensor_type))


@handles("chlo.is_pos_inf")
def is_pos_inf(site: Site, x: Tensor) -> Tensor:
    """Whether a float is infinity."""
    return site.op("compare_eq", x, site.full(math.inf, x.tensor_type))


@handles("chlo.is_neg_inf")
def is_neg_inf(site: Site, x: Tensor) -> Tensor:
    """Whether a float is minus infinity."""
    return site.op("compare_eq", x, site.full(-math.inf, x.tensor_type))


@handles("chlo.constant_like")
def constant_like(site: Site, x: Tensor) -> Tensor:
    """A constant in the type of the operand."""
    return site.full(site.value("value"), x.tensor_type)


def polynomial(site: Site, coefficients: Sequence[float], y: Tensor) -> Tensor:
    """A sum of Chebyshev polynomials at `y / 2`, by Clenshaw's recurrence; the first coefficient is halved."""
    t = y.tensor_type
    before, last, now = site.full(0, t), site.full(0, t), site.full(coefficients[-1], t)
    for c in coefficients[-2::-1]:
        before, last = last, now
        now = site.op("add", site.op("sub", site.op("mul", y, last), before), site.full(c, t))
    return site.op("mul", site.op("sub", now, last if len(coefficients) < 3 else before), site.full(0.5, t))


@cache
def _bessel(low: bool) -> list[float]:
    """Chebyshev coefficients. Of exp(-x) I1(x) / x in x / 2 - 2 for x in [0, 8], by the series. Or from 8 on, of exp(-x) I1(x)
    sqrt(x) in 32 / x - 2, by the integral over a period."""
    count = 30
    odd = 2 * np.arange(count) + 1
    y = _cosine(odd, count)
    if low:
        x = 4 * y + 4
        terms = np.stack([(x / 2) ** (2 * k) / (2.0 * math.factorial(k) * math.factorial(k + 1)) for k in range(60)])
        values = np.exp(-x) * _sums(terms.T)
    else:
        x = 16 / (y + 1)
        steps = 4096
        angle = np.pi * np.arange(steps + 1) / steps
        terms = np.exp(-2 * x[:, None] * np.sin(angle / 2) ** 2) * np.cos(angle)
        terms[:, [0, -1]] /= 2
        values = np.sqrt(x) * _sums(terms) / steps
    return [2 / count * float(c) for c in _sums(values * _cosine(np.outer(np.arange(count), odd), count))]


def _cosine(at: np.ndarray, count: int) -> np.ndarray:
    """cos(pi * at / (2 * count)); the angle is reduced while it is an integer, without rounding."""
    around = at % (4 * count)
    half = np.minimum(around, 4 * count - around)  # 0 to pi
    right = np.minimum(half, 2 * count - half)  # 0 to pi / 2
    unit = np.pi / (2 * count)
    size: np.ndarray = np.where(2 * right > count, np.sin(unit * (count - right)), np.cos(unit * right))
    return np.where(half > count, -size, size)


def _sums(rows: np.ndarray) -> np.ndarray:
    """The sum of each row, rounded once."""
    return np.array([math.fsum(row) for row in rows])


@handles("chlo.bessel_i1e")
def bessel_i1e(site: Site, x: Tensor) -> Tensor:
    """exp(-|x|) I1(x), the modified Bessel function of order 1."""
    if x.dtype.bits < 32:
        wider: Tensor = bessel_i1e(site, x.cast(F32))
        return wider.cast(x.dtype)
    t, size = x.tensor_type, site.op("abs", x)
    eight = site.full(8, t)
    inside = site.op("compare_le", size, eight)
    small_x = site.op("minimum", size, eight)
    low = site.op("sub", site.op("mul", small_x, site.full(0.5, t)), site.full(2, t))
    large_x = site.op("maximum", size, eight)
    high = site.op("sub", site.op("div", site.full(32, t), large_x), site.full(2, t))
    below = site.op("mul", polynomial(site, _bessel(True), low), small_x)
    above_ = site.op("mul", polynomial(site, _bessel(False), high), site.op("rsqrt", large_x))
    result = site.op("select", inside, below, above_)
    return site.op("select", site.op("compare_lt", x, site.full(0, t)), site.op("neg", result), result)


# B(2 k) / (2 k)! of the Bernoulli numbers.
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000, -174611 / 802857662698291200000,
)  # fmt: skip
_TERMS = 10  # terms before the Euler-Maclaurin formula


@handles("chlo.zeta")
def zeta(site: Site, x: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's zeta function, the sum of (q + k)^-x; infinite at poles, NaN where it is undefined."""
    if x.dtype.bits < 32:
        wider: Tensor = zeta(site, x.cast(F32), q.cast(F32))
        return wider.cast(x.dtype)
    t = x.tensor_type

    def number(value: float) -> Tensor:
        return site.full(value, t)

    def whole(v: Tensor) -> Tensor:
        return site.op("compare_eq", v, site.op("floor", v))

    minus = site.op("neg", x)
    total = site.op("pow", q, minus)
    for k in range(1, _TERMS):
        total = site.op("add", total, site.op("pow", site.op("add", q, number(k)), minus))
    w = site.op("add", q, number(_TERMS))
    power = site.op("pow", w, minus)
    one = number(1)
    total = site.op("add", total, site.op("mul", power, number(0.5)))
    total = site.op("add", total, site.op("div", site.op("mul", power, w), site.op("sub", x, one)))
    inverse = site.op("reciprocal", w)
    term = site.op("mul", site.op("mul", power, x), inverse)
    for k, b in enumerate(_BERNOULLI):
        total = site.op("add", total, site.op("mul", term, number(b)))
        up = site.op("mul", site.op("add", x, number(2 * k + 1)), site.op("add", x, number(2 * k + 2)))
        term = site.op("mul", term, site.op("mul", up, site.op("mul", inverse, inverse)))
    even = whole(site.op("mul", x, number(0.5)))
    low = site.op("compare_le", q, number(0))
    at_pole = site.op("select", even, number(math.inf), number(math.nan))
    negative = site.op("select", whole(q), at_pole, site.op("select", whole(x), total, number(math.nan)))
    total = site.op("select", low, negative, total)
    total = site.op("select", site.op("compare_lt", x, one), number(math.nan), total)
    return site.op("select", site.op("compare_eq", x, one), number(math.inf), total)


@handles("chlo.polygamma")
def polygamma(site: Site, n: Tensor, x: Tensor) -> Tensor:
    """The derivative of order `n` of the digamma function; NaN if `n` is not an integer."""
    if x.dtype.bits < 32:
        wider: Tensor = polygamma(site, n.cast(F32), x.cast(F32))
        return wider.cast(x.dtype)
    t = x.tensor_type
    one, zero = site.full(1, t), site.full(0, t)
    up = site.op("add", n, one)
    even = site.op("compare_eq", site.op("mod", n, site.full(2, t)), zero)
    sign = site.op("select", even, site.full(-1, t), one)
    size = site.op("mul", site.op("exp", site.op("lgamma", up)), zeta(site, up, x))
    result = site.op("select", site.op("compare_eq", n, zero), site.op("digamma", x), site.op("mul", sign, size))
    fine = both(site, site.op("compare_eq", n, site.op("floor", n)), site.op("compare_ge", n, zero))
    return site.op("select", fine, result, site.full(math.nan, t))


@handles("chlo.mulhi")
def mulhi(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The high half of the product, from the halves of the factors."""
    t, bits = x.tensor_type, x.dtype.bits
    if x.dtype.bits < 64 and x.dtype.bits != 4:
        wide = _of(2 * bits, x.dtype.is_signed)
        product = site.op("mul", x.cast(wide), y.cast(wide))
        shift = "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
        return wrapped(site, site.op(shift, product, site.full(bits, product.tensor_type)), x.dtype)
    half = site.full(bits // 2, t)
    mask = site.full((1 << bits // 2) - 1, t)
    shift = "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
    (a, b), (c, d) = ((site.op(shift, v, half), site.op("bitwise_and", v, mask)) for v in (x, y))
    low = site.op("shift_right_logical", site.op("mul", b, d), half)
    middle = site.op("add", site.op("mul", a, d), low)
    second = site.op("add", site.op("mul", b, c), site.op("bitwise_and", middle, mask))
    high = site.op("add", site.op("mul", a, c), site.op(shift, middle, half))
    return site.op("add", high, site.op(shift, second, half))


BROADCAST: dict[str, Handler] = {
    "add": add, "subtract": subtract, "multiply": multiply, "divide": divide, "maximum": maximum, "minimum": minimum,
    "power": power, "remainder": remainder, "and": both, "or": either, "xor": same("bitwise_xor"), "atan2": atan2,
    "shift_left": same("shift_left"), "shift_right_logical": same("shift_right_logical"), "compare": compare,
    "shift_right_arithmetic": same("shift_right_arithmetic"), "next_after": same("nextafter"), "complex": complex_,
    "select": select, "polygamma": polygamma, "zeta": zeta,
}  # fmt: skip


def broadcast(handler: Handler) -> Handler:
    """The handler on operands broadcast to a common shape, aligned at the right."""

    def result(site: Site, *operands: Tensor) -> object:
        shape = site.known(site.type.shape)
        return handler(site, *(x if x.shape == shape else site.op("broadcast_to", x, result_shape=shape) for x in operands))

    return result


for _name, _handler in BROADCAST.items():
    handles(f"chlo.broadcast_{_name}")(broadcast(_handler))
