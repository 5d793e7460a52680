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
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import Violation, require

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
    return x.bitwise_and(y)


def either(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """Logical or bitwise or."""
    return x.bitwise_or(y)


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


def counted(site: Site, dtype: DType, shape: Shape, axis: int) -> Tensor:
    """0, 1, 2, … along an axis, also of a complex dtype or i1."""
    plain = dtype if not dtype.is_complex and dtype is not I1 else SI64 if dtype is I1 else F32 if dtype is CF32 else F64
    x = site.iota(shape, dtype=plain, axis=axis)
    return x if plain is dtype else x.bitwise_and(1).cast(I1) if dtype is I1 else x.cast(dtype)


@handles("stablehlo.add")
def add(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The sum; for i1 logical or."""
    return either(site, x, y) if x.dtype is I1 else x + y


@handles("stablehlo.multiply")
def multiply(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The product; for i1 logical and."""
    return both(site, x, y) if x.dtype is I1 else x * y


@handles("stablehlo.subtract")
def subtract(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The difference."""
    return x - y


@handles("stablehlo.maximum")
def maximum(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The larger; complex numbers are compared by real, then imaginary parts."""
    if x.dtype is I1:
        return either(site, x, y)
    if x.dtype.is_complex:
        return above(site, x, y).select(x, y)
    return x.maximum(y)


@handles("stablehlo.minimum")
def minimum(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The smaller; complex numbers are compared by real, then imaginary parts."""
    if x.dtype is I1:
        return both(site, x, y)
    if x.dtype.is_complex:
        return above(site, y, x).select(x, y)
    return x.minimum(y)


def above(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """Whether `x` is greater than `y`: complex numbers are ordered by real, then imaginary parts."""
    (a, b), (c, d) = ((z.real(), z.imag()) for z in (x, y))
    tied = both(site, a.compare_eq(c), b > d)
    return either(site, a > c, tied)


@handles("stablehlo.negate")
def negate(site: Site, x: Tensor) -> Tensor:
    """The negative; integers wrap."""
    if x.dtype.kind is Kind.UINT:
        return 0 - x
    return -x


@handles("stablehlo.abs")
def absolute(site: Site, x: Tensor) -> Tensor:
    """The absolute value, also of complex numbers."""
    if x.dtype.is_complex:
        return magnitude(site, x)
    return x if x.dtype.kind is Kind.UINT else x.abs()


def magnitude(site: Site, x: Tensor) -> Tensor:
    """The absolute value of complex numbers: the larger part times `sqrt(1 + (smaller / larger)^2)`."""
    a, b = (site.op(part, x).abs() for part in ("real", "imag"))
    high, low = a.maximum(b), a.minimum(b)
    empty = high.compare_eq(0)
    ratio = low / empty.select(1, high)
    root = square_root(site, 1 + ratio * ratio)
    result = high * root
    infinite = high.compare_eq(math.inf)
    return either(site, infinite, low.compare_eq(math.inf)).select(math.inf, result)


@handles("stablehlo.sqrt")
def sqrt(site: Site, x: Tensor) -> Tensor:
    """The square root."""
    return square_root(site, x)


def square_root(site: Site, x: Tensor) -> Tensor:
    """The square root as `1 / rsqrt(x)`, which is right at 0 and infinity, too."""
    if not x.dtype.is_complex:
        return x.rsqrt().reciprocal()
    return _complex_root(site, x)


def _complex_root(site: Site, x: Tensor) -> Tensor:
    """The square root of complex numbers, computed from the larger part so that no square overflows; infinities as in C99."""
    a, b = x.real(), x.imag()
    across, up = a.abs(), b.abs()
    larger = across.maximum(up)
    empty = larger.compare_eq(0)
    size = empty.select(1, larger)
    p, q = (part / size for part in (across, up))
    length = square_root(site, p * p + q * q)
    mean = (length + p) * 0.5
    u = square_root(site, size) * square_root(site, mean)
    v = up / empty.select(1, u) * 0.5
    # If one part is infinite, so is the root, along the nearest axis.
    nothing = up * 0  # 0 or NaN
    tall = up.compare_eq(math.inf)
    infinite = either(site, tall, across.compare_eq(math.inf))
    u = infinite.select(math.inf, u)
    v = infinite.select(tall.select(math.inf, nothing), v)
    negative, below = a < 0, b < 0
    below = either(site, below, b.reciprocal() < 0)  # -0, too
    second = negative.select(u, v)
    second = below.select(-second, second)
    return negative.select(v, u).complex(second)


@handles("stablehlo.logistic")
def logistic(site: Site, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    e = (-x).exp()
    return (e + 1).reciprocal()


@handles("stablehlo.atan2")
def atan2(site: Site, y: Tensor, x: Tensor) -> Tensor:
    """The angle of a point; for complex numbers -i log((x + i y) / sqrt(x x + y y))."""
    if not x.dtype.is_complex:
        return y.atan2(x)
    size = square_root(site, x * x + y * y)
    point = x + y * 1j
    return (point / size).log() * -1j


@handles("stablehlo.cbrt")
def cbrt(site: Site, x: Tensor) -> Tensor:
    """The cube root; for complex numbers the principal one."""
    return x.pow(site.full(1 / 3, x.tensor_type)) if x.dtype.is_complex else x.cbrt()


@handles("stablehlo.sign")
def sign(site: Site, x: Tensor) -> Tensor:
    """-1, 0 or 1; for a complex number, the number divided by its magnitude."""
    if x.dtype.kind is Kind.UINT:
        return x.minimum(1)
    if not x.dtype.is_complex:
        return x.sign()
    zero = x.compare_eq(0)
    size = magnitude(site, x)
    safe = zero.select(1, size)
    a, b = (site.op(part, x) / safe for part in ("real", "imag"))
    return a.complex(b)


@handles("stablehlo.power")
def power(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """`x` to the power of `y`."""
    return both(site, x, y) if x.dtype is I1 else x.pow(y)


@handles("stablehlo.divide")
def divide(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The quotient; for integers rounded toward zero, and -1 (all bits are 1) if the divisor is 0."""
    zero, divisor = zeros(site, y)
    if zero is None:
        return x / y
    t = x.tensor_type
    ones = site.full(t.dtype.max if t.dtype.kind is Kind.UINT else -1, t)
    return zero.select(ones, x / divisor)


@handles("stablehlo.remainder")
def remainder(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a division toward zero; for integers the dividend if the divisor is 0."""
    zero, divisor = zeros(site, y)
    if zero is None:
        return x.rem(y)
    return zero.select(x, x.rem(divisor))


def zeros(site: Site, y: Tensor) -> tuple[Tensor | None, Tensor]:
    """A mask of zero divisors, and the divisors with 1 there, because PTIR fails on division by zero and XLA does not. None
    for floats, and for constants without a 0."""
    if not y.dtype.is_integer or ((number := known(y)) is not None and number.all()):
        return None, y
    zero = y.compare_eq(0)
    return zero, zero.select(1, y)


@handles("stablehlo.clamp")
def clamp(site: Site, low: Tensor, x: Tensor, high: Tensor) -> Tensor:
    """`min(max(x, low), high)`; bounds may be scalars."""
    low, high = (b if b.shape == x.shape else b.broadcast_to(result_shape=x.shape) for b in (low, high))
    if x.dtype.is_complex or x.dtype is I1:
        return minimum(site, maximum(site, low, x), high)
    return x.clamp(low, high)


@handles("stablehlo.select")
def select(site: Site, pred: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """`x` where `pred` holds, else `y`; the predicate may be a scalar."""
    if pred.shape != x.shape:
        pred = pred.broadcast_to(result_shape=x.shape)
    return pred.select(x, y)


@handles("stablehlo.compare")
def compare(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """A comparison; TOTALORDER compares floats by their bits."""
    words = site.words
    direction = words[0] if words else site.word("comparison_direction")
    kind = words[1] if len(words) > 1 else site.word("compare_type", "NOTYPE")
    if direction not in (known := ("EQ", "NE", "LT", "LE", "GT", "GE")):
        help = f"it is one of {', '.join(known)}"
        raise Violation("InvalidAttributeValue", f"there is no comparison {direction}", help=help, at=direction)
    if kind == "TOTALORDER":
        x, y = ordered(site, x), ordered(site, y)
    if x.dtype.is_complex and direction in ("LT", "LE", "GT", "GE"):
        before, after = (x, y) if direction in ("LT", "GE") else (y, x)
        result = above(site, after, before)
        return result if direction in ("LT", "GT") else result.bitwise_not()
    if x.dtype is I1 and direction not in ("EQ", "NE"):
        x, y = x.cast(UI8), y.cast(UI8)
    return site.op(f"compare_{direction.lower()}", x, y)


def ordered(site: Site, x: Tensor) -> Tensor:
    """Floats as integers in the same total order: -NaN, -inf, …, -0, 0, …, inf, NaN."""
    if not x.dtype.is_float:
        return x
    bits = x.bitcast(dtype=_of(x.dtype.bits, signed=True))
    t = bits.tensor_type
    turned = bits.bitwise_xor(site.full(t.dtype.max, t))
    return (bits < 0).select(turned, bits)


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
        return converted(site, x.real(), target)
    if source.is_integer and target.is_integer and not lossless(source, target):
        return wrapped(site, x, target)
    return x.cast(dtype=target)


def wrapped(site: Site, x: Tensor, target: DType) -> Tensor:
    """Integers modulo 2 to the number of bits of `target`. PTIR's cast would saturate, so the bits are cast."""
    source = x.dtype
    if source.bits == target.bits:
        return x.bitcast(dtype=target)
    if source.bits < target.bits:  # a negative number as unsigned
        return x.cast(_of(target.bits, signed=True)).bitcast(dtype=target)
    unsigned = x if source.kind is Kind.UINT else x.bitcast(dtype=_of(source.bits, signed=False))
    low = unsigned.bitwise_and(site.full((1 << target.bits) - 1, unsigned.tensor_type))
    narrow = low.cast(_of(target.bits, signed=False))
    return narrow if target.kind is Kind.UINT else narrow.bitcast(dtype=target)


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
        x = site.concat(both, axis=x.rank)
    if part.bits > x.dtype.bits:
        x = x.reshape([*_grouped(sizes_of(x), part.bits // x.dtype.bits)])
    result = x if x.dtype is part else x.bitcast(dtype=part)
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
    whole = x if x.dtype.kind is Kind.UINT else x.bitcast(dtype=_of(x.dtype.bits, signed=False))
    shape = (*sizes_of(x), x.dtype.bits)
    wide = site.broadcast(whole, shape, range(x.rank))
    one = wide.shift_right_logical(site.iota(shape, whole.dtype, x.rank))
    return one.bitwise_and(1).cast(I1)


def from_bits(site: Site, x: Tensor, target: DType) -> Tensor:
    """Real numbers of the bits along the last axis."""
    require(
        x.rank and x.shape[-1] == target.bits,
        "OperandShapeMismatch",
        f"the last axis of {x.type} does not have {target.bits} bits",
    )
    whole = _of(target.bits, signed=False)
    wide = x.cast(whole)
    placed = wide.shift_left(site.iota(sizes_of(x), whole, x.rank - 1))
    result = placed.reduce_or(axes=[x.rank - 1])
    return result if whole is target else result.bitcast(dtype=target)


@handles("stablehlo.real")
def real(site: Site, x: Tensor) -> Tensor:
    """The real part."""
    return x.real() if x.dtype.is_complex else x


@handles("stablehlo.imag")
def imag(site: Site, x: Tensor) -> Tensor:
    """The imaginary part, 0 of a real number."""
    return x.imag() if x.dtype.is_complex else site.full(0, x.tensor_type)


@handles("stablehlo.complex")
def complex_(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The complex number of two parts."""
    return x.complex(y)


@handles("stablehlo.reduce_precision")
def reduce_precision(site: Site, x: Tensor) -> Tensor:
    """Rounded to fewer bits of exponent and mantissa."""
    if site.has("format"):
        exponent, _, mantissa = site.word("format").removeprefix("e").partition("m")
        require(exponent.isdecimal() and mantissa.isdecimal(), "InvalidAttributeValue", "`format` is `e5m10` and the like")
        bits = int(exponent), int(mantissa)
    else:
        bits = site.integer("exponent_bits"), site.integer("mantissa_bits")
    result = x.reduce_precision(exponent_bits=bits[0], mantissa_bits=bits[1])
    if bits[1]:
        return result
    t = x.tensor_type  # without mantissa bits, a NaN becomes an infinity of its sign
    whole = x.bitcast(dtype=_of(x.dtype.bits, signed=True))
    negative = whole < 0
    infinite = negative.select(site.full(-math.inf, t), site.full(math.inf, t))
    return x.compare_ne(x).select(infinite, result)


@handles("stablehlo.rng", distribution="rng_distribution")
def rng(site: Site, a: Tensor, b: Tensor, shape: Tensor) -> Tensor:
    """Independent random numbers: uniform in [a, b), or normal with mean `a` and standard deviation `b`."""
    t, kind = site.type, site.word("rng_distribution")
    require(kind in ("UNIFORM", "NORMAL"), "InvalidAttributeValue", f"`rng_distribution` is {kind}")
    if not t.dtype.is_float:
        raise refused("random integers")
    drawn = site.op(f"rng_{kind.lower()}", shape=site.known(t.shape), dtype=t.dtype)
    first, factor = (site.broadcast(x, t.shape, []) for x in (a, b - a if kind == "UNIFORM" else b))
    return drawn * factor + first


@handles("stablehlo.optimization_barrier", "sdy.sharding_constraint", values=True)
def optimization_barrier(site: Site, *operands: object) -> list[object]:
    """The operands."""
    return list(operands)


# CHLO


@handles("chlo.erfc")
def erfc(site: Site, x: Tensor) -> Tensor:
    """1 - erf(x)."""
    return 1 - x.erf()


@handles("chlo.square")
def square(site: Site, x: Tensor) -> Tensor:
    """The product with itself."""
    return x * x


@handles("chlo.conj")
def conj(site: Site, x: Tensor) -> Tensor:
    """The complex conjugate."""
    return conjugate(site, x)


def conjugate(site: Site, x: Tensor) -> Tensor:
    """The complex conjugate; of a real number itself."""
    if not x.dtype.is_complex:
        return x
    return x.real().complex(-x.imag())


@handles("chlo.is_inf")
def is_inf(site: Site, x: Tensor) -> Tensor:
    """Whether a float is infinite."""
    return x.abs().compare_eq(math.inf)


@handles("chlo.is_pos_inf")
def is_pos_inf(site: Site, x: Tensor) -> Tensor:
    """Whether a float is infinity."""
    return x.compare_eq(math.inf)


@handles("chlo.is_neg_inf")
def is_neg_inf(site: Site, x: Tensor) -> Tensor:
    """Whether a float is minus infinity."""
    return x.compare_eq(-math.inf)


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
        now = y * last - before + site.full(c, t)
    return (now - (last if len(coefficients) < 3 else before)) * 0.5


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
    size = x.abs()
    inside = size <= 8
    small_x = size.minimum(8)
    low = small_x * 0.5 - 2
    large_x = size.maximum(8)
    high = 32 / large_x - 2
    below = polynomial(site, _bessel(True), low) * small_x
    above_ = polynomial(site, _bessel(False), high) * large_x.rsqrt()
    result = inside.select(below, above_)
    return (x < 0).select(-result, result)


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

    def whole(v: Tensor) -> Tensor:
        return v.compare_eq(v.floor())

    minus = -x
    total = q.pow(minus)
    for k in range(1, _TERMS):
        total = total + (q + k).pow(minus)
    w = q + _TERMS
    power = w.pow(minus)
    total = total + power * 0.5
    total = total + power * w / (x - 1)
    inverse = w.reciprocal()
    term = power * x * inverse
    for k, b in enumerate(_BERNOULLI):
        total = total + term * b
        up = (x + 2 * k + 1) * (x + 2 * k + 2)
        term = term * (up * (inverse * inverse))
    even = whole(x * 0.5)
    low = q <= 0
    at_pole = even.select(site.full(math.inf, x.tensor_type), math.nan)
    negative = whole(q).select(at_pole, whole(x).select(total, math.nan))
    total = low.select(negative, total)
    total = (x < 1).select(math.nan, total)
    return x.compare_eq(1).select(math.inf, total)


@handles("chlo.polygamma")
def polygamma(site: Site, n: Tensor, x: Tensor) -> Tensor:
    """The derivative of order `n` of the digamma function; NaN if `n` is not an integer."""
    if x.dtype.bits < 32:
        wider: Tensor = polygamma(site, n.cast(F32), x.cast(F32))
        return wider.cast(x.dtype)
    up = n + 1
    even = n.mod(2).compare_eq(0)
    sign = even.select(site.full(-1, x.tensor_type), 1)
    size = up.lgamma().exp() * zeta(site, up, x)
    result = n.compare_eq(0).select(x.digamma(), sign * size)
    fine = both(site, n.compare_eq(n.floor()), n >= 0)
    return fine.select(result, math.nan)


@handles("chlo.mulhi")
def mulhi(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """The high half of the product, from the halves of the factors."""
    t, bits = x.tensor_type, x.dtype.bits
    if x.dtype.bits < 64 and x.dtype.bits != 4:
        wide = _of(2 * bits, x.dtype.is_signed)
        product = x.cast(wide) * y.cast(wide)
        shift = "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
        return wrapped(site, site.op(shift, product, site.full(bits, product.tensor_type)), x.dtype)
    half = site.full(bits // 2, t)
    mask = site.full((1 << bits // 2) - 1, t)
    shift = "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
    (a, b), (c, d) = ((site.op(shift, v, half), v.bitwise_and(mask)) for v in (x, y))
    low = (b * d).shift_right_logical(half)
    middle = a * d + low
    second = b * c + middle.bitwise_and(mask)
    high = a * c + site.op(shift, middle, half)
    return high + site.op(shift, second, half)


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
        return handler(site, *(x if x.shape == shape else x.broadcast_to(result_shape=shape) for x in operands))

    return result


for _name, _handler in BROADCAST.items():
    handles(f"chlo.broadcast_{_name}")(broadcast(_handler))
