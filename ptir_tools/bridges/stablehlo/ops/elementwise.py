"""Constants and elementwise ops: arithmetic, comparisons, conversions, bits, and the functions of CHLO."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ptir_tools.bridges.constants import known
from ptir_tools.bridges.numbers import conjugate, converted, integers, magnitude, square_root, wrapped
from ptir_tools.bridges.stablehlo.table import HANDLERS, Handler, Site, Tensor, formula, handles, refused, sizes_of
from ptir_tools.core.dtypes import CF32, F32, F64, I1, SI64, UI8, DType, Kind
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import Violation, require

# One op of PTIR on the same operands.
SAME = {
    "stablehlo.ceil": "ceil", "stablehlo.cosine": "cos", "stablehlo.count_leading_zeros": "count_leading_zeros",
    "stablehlo.exponential": "exp", "stablehlo.exponential_minus_one": "expm1", "stablehlo.floor": "floor",
    "stablehlo.is_finite": "is_finite", "stablehlo.log": "log", "stablehlo.log_plus_one": "log1p", "stablehlo.popcnt": "popcount",
    "stablehlo.round_nearest_afz": "round_away", "stablehlo.round_nearest_even": "round_even", "stablehlo.rsqrt": "rsqrt",
    "stablehlo.shift_left": "shift_left", "stablehlo.shift_right_arithmetic": "shift_right_arithmetic",
    "stablehlo.shift_right_logical": "shift_right_logical", "stablehlo.sine": "sin", "stablehlo.subtract": "sub",
    "stablehlo.tan": "tan", "stablehlo.tanh": "tanh", "stablehlo.and": "bitwise_and", "stablehlo.or": "bitwise_or",
    "stablehlo.xor": "bitwise_xor", "stablehlo.not": "bitwise_not", "stablehlo.complex": "complex", "chlo.acos": "acos",
    "chlo.acosh": "acosh", "chlo.asin": "asin", "chlo.asinh": "asinh", "chlo.atan": "atan", "chlo.atanh": "atanh",
    "chlo.cosh": "cosh", "chlo.digamma": "digamma", "chlo.erf": "erf", "chlo.erf_inv": "erf_inv", "chlo.lgamma": "lgamma",
    "chlo.next_after": "nextafter", "chlo.sinh": "sinh", "chlo.tan": "tan",
}  # fmt: skip


def same(name: str) -> Callable[..., Tensor]:
    """One op of PTIR on the same operands."""

    def handler(site: Site, *operands: Tensor) -> Tensor:
        return site.op(name, *operands)

    return handler


for _name, _op in SAME.items():
    handles(_name)(same(_op))


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


@formula("stablehlo.add")
def add(x: Tensor, y: Tensor) -> Tensor:
    """The sum; for i1 logical or."""
    return x.bitwise_or(y) if x.dtype is I1 else x + y


@formula("stablehlo.multiply")
def multiply(x: Tensor, y: Tensor) -> Tensor:
    """The product; for i1 logical and."""
    return x.bitwise_and(y) if x.dtype is I1 else x * y


@formula("stablehlo.maximum")
def maximum(x: Tensor, y: Tensor) -> Tensor:
    """The larger; complex numbers are compared by real, then imaginary parts."""
    if x.dtype is I1:
        return x.bitwise_or(y)
    return above(x, y).select(x, y) if x.dtype.is_complex else x.maximum(y)


@formula("stablehlo.minimum")
def minimum(x: Tensor, y: Tensor) -> Tensor:
    """The smaller; complex numbers are compared by real, then imaginary parts."""
    if x.dtype is I1:
        return x.bitwise_and(y)
    return above(y, x).select(x, y) if x.dtype.is_complex else x.minimum(y)


def above(x: Tensor, y: Tensor) -> Tensor:
    """Whether `x` is greater than `y`: complex numbers are ordered by real, then imaginary parts."""
    (a, b), (c, d) = ((z.real(), z.imag()) for z in (x, y))
    return (a > c).bitwise_or(a.compare_eq(c).bitwise_and(b > d))


@formula("stablehlo.abs")
def absolute(x: Tensor) -> Tensor:
    """The absolute value, also of complex numbers."""
    return x if x.dtype.kind is Kind.UINT else magnitude(x)


@formula("stablehlo.atan2")
def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of a point; for complex numbers -i log((x + i y) / sqrt(x x + y y))."""
    if not x.dtype.is_complex:
        return y.atan2(x)
    return ((x + y * 1j) / square_root(x * x + y * y)).log() * -1j


@formula("stablehlo.sign")
def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; for a complex number, the number divided by its magnitude."""
    if x.dtype.kind is Kind.UINT:
        return x.minimum(1)
    if not x.dtype.is_complex:
        return x.sign()
    zero = x.compare_eq(0)
    size = zero.select(1, magnitude(x))
    return (x.real() / size).complex(x.imag() / size)


@formula("stablehlo.power")
def power(x: Tensor, y: Tensor) -> Tensor:
    """`x` to the power of `y`."""
    return x.bitwise_and(y) if x.dtype is I1 else x.pow(y)


@formula("stablehlo.divide")
def divide(x: Tensor, y: Tensor) -> Tensor:
    """The quotient; for integers rounded toward zero, and -1 (all bits are 1) if the divisor is 0."""
    zero, divisor = zeros(y)
    if zero is None:
        return x / y
    return zero.select(x.dtype.max if x.dtype.kind is Kind.UINT else -1, x / divisor)


@formula("stablehlo.remainder")
def remainder(x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a division toward zero; for integers the dividend if the divisor is 0."""
    zero, divisor = zeros(y)
    return x.rem(y) if zero is None else zero.select(x, x.rem(divisor))


def zeros(y: Tensor) -> tuple[Tensor | None, Tensor]:
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
        return minimum(maximum(low, x), high)
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
        x, y = ordered(x), ordered(y)
    if x.dtype.is_complex and direction in ("LT", "LE", "GT", "GE"):
        before, after = (x, y) if direction in ("LT", "GE") else (y, x)
        result = above(after, before)
        return result if direction in ("LT", "GT") else result.bitwise_not()
    if x.dtype is I1 and direction not in ("EQ", "NE"):
        x, y = x.cast(UI8), y.cast(UI8)
    return site.op(f"compare_{direction.lower()}", x, y)


def ordered(x: Tensor) -> Tensor:
    """Floats as integers in the same total order: -NaN, -inf, …, -0, 0, …, inf, NaN."""
    if not x.dtype.is_float:
        return x
    bits = x.bitcast(integers(x.dtype.bits, signed=True))
    return (bits < 0).select(bits.bitwise_xor(bits.dtype.max), bits)


@handles("stablehlo.convert")
def convert(site: Site, x: Tensor) -> Tensor:
    """Each element as another dtype. Integers wrap, complex numbers lose their imaginary part."""
    return converted(x, site.dtype)


@handles("stablehlo.bitcast_convert")
def bitcast_convert(site: Site, x: Tensor) -> Tensor:
    """The bits of each element as another dtype, low bits first; also for complex numbers and i1."""
    target, shape = site.dtype, site.known(site.type.shape)
    if x.dtype is target:
        return x
    if I1 in (x.dtype, target):
        return bits_of(x) if target is I1 else from_bits(x, target)
    part = (F32 if target is CF32 else F64) if target.is_complex else target
    if x.dtype.is_complex:
        x = site.concat([part.reshape([*x.shape, 1]) for part in (x.real(), x.imag())], axis=x.rank)
    if part.bits > x.dtype.bits:
        x = x.reshape([*_grouped(sizes_of(x), part.bits // x.dtype.bits)])
    result = x if x.dtype is part else x.bitcast(part)
    if not target.is_complex:
        return result if result.shape == shape else result.reshape(shape)
    pairs = result.reshape([*shape, 2])
    first, second = (pairs.slice([*(0 for _ in shape), k], [*sizes_of(pairs)[:-1], 1]).reshape(shape) for k in (0, 1))
    return first.complex(second)


def _grouped(shape: Sequence[int], size: int) -> list[int]:
    """A shape whose last axis has `size` elements."""
    count = math.prod(shape)
    require(count % size == 0, "OperandShapeMismatch", f"{count} elements are not groups of {size}")
    return [count // size, size]


def bits_of(x: Tensor) -> Tensor:
    """The bits of real numbers along a new last axis."""
    whole = x if x.dtype.kind is Kind.UINT else x.bitcast(integers(x.dtype.bits, signed=False))
    shape = (*sizes_of(x), x.dtype.bits)
    wide = whole.reshape([*x.shape, 1]).broadcast_to(shape)
    return wide.shift_right_logical(x.block.iota(shape, whole.dtype, x.rank)).bitwise_and(1).cast(I1)


def from_bits(x: Tensor, target: DType) -> Tensor:
    """Real numbers of the bits along the last axis."""
    fine = x.rank and x.shape[-1] == target.bits
    require(fine, "OperandShapeMismatch", f"the last axis of {x.type} does not have {target.bits} bits")
    whole = integers(target.bits, signed=False)
    result = x.cast(whole).shift_left(x.block.iota(sizes_of(x), whole, x.rank - 1)).reduce_or([x.rank - 1])
    return result if whole is target else result.bitcast(target)


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
    negative = x.bitcast(integers(x.dtype.bits, signed=True)) < 0  # without mantissa bits, a NaN becomes an infinity of its sign
    return x.compare_ne(x).select(negative.select(-math.inf, x.block.full(math.inf, x)), result)


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


FORMULAS: dict[str, Callable[[Tensor], Tensor]] = {
    "stablehlo.sqrt": square_root,
    "chlo.conj": conjugate,
    "stablehlo.negate": lambda x: 0 - x if x.dtype.kind is Kind.UINT else -x,
    "stablehlo.logistic": lambda x: ((-x).exp() + 1).reciprocal(),
    "stablehlo.cbrt": lambda x: x.pow(x.block.full(1 / 3, x)) if x.dtype.is_complex else x.cbrt(),
    "stablehlo.real": lambda x: x.real() if x.dtype.is_complex else x,
    "stablehlo.imag": lambda x: x.imag() if x.dtype.is_complex else x.block.full(0, x),
    "chlo.erfc": lambda x: 1 - x.erf(),
    "chlo.square": lambda x: x * x,
    "chlo.is_inf": lambda x: x.abs().compare_eq(math.inf),
    "chlo.is_pos_inf": lambda x: x.compare_eq(math.inf),
    "chlo.is_neg_inf": lambda x: x.compare_eq(-math.inf),
}
for _name, _formula in FORMULAS.items():
    formula(_name)(_formula)


@handles("chlo.constant_like")
def constant_like(site: Site, x: Tensor) -> Tensor:
    """A constant in the type of the operand."""
    return site.full(site.value("value"), x.tensor_type)


def polynomial(coefficients: Sequence[float], y: Tensor) -> Tensor:
    """A sum of Chebyshev polynomials at `y / 2`, by Clenshaw's recurrence; the first coefficient is halved."""
    before = last = y.block.full(0, y)
    now = y.block.full(coefficients[-1], y)
    for c in coefficients[-2::-1]:
        before, last = last, now
        now = y * last - before + c
    return (now - (last if len(coefficients) < 3 else before)) * 0.5


# Chebyshev coefficients by mpmath with 50 digits: of exp(-x) I1(x) / x in x / 2 - 2 for x up to 8, and of exp(-x) I1(x) sqrt(x)
# in 32 / x - 2 for the rest.
_BESSEL = (
    0.25258718644363365, -0.17641651835783406, 0.1026436586898471, -0.05294598120809499, 0.024726449030626516,
    -0.010564084894626197, 0.004156422944312888, -0.0015135724506312532, 0.0005122859561685758, -0.00016176081582589674,
    4.781565107550054e-05, -1.3273163656039436e-05, 3.4702513081376785e-06, -8.568720264695455e-07, 2.0032947535521353e-07,
    -4.445059128796328e-08, 9.381537386495773e-09, -1.8872497517228294e-09, 3.625590281552117e-10, -6.663489723502027e-11,
    1.1736186298890901e-11, -1.9839743977649436e-12, 3.223793365945575e-13, -5.042185504727912e-14, 7.600684294735408e-15,
    -1.1055969477353862e-15, 1.5536319577362005e-16, -2.111421214358166e-17, 2.7779141127610464e-18,
)  # fmt: skip
_BESSEL_FAR = (
    0.7785762350182801, -0.009761097491361469, -0.00011058893876262371, -3.882564808877691e-06, -2.512236237870209e-07,
    -2.6314688468895196e-08, -3.835380385964237e-09, -5.589743462196584e-10, -1.8974958123505413e-11, 3.2526035830154884e-11,
    1.4125807436613782e-11, 2.0356285441470896e-12, -7.198551776245908e-13, -4.0835511110921974e-13, -2.1015418427726643e-14,
    4.272440016711951e-14, 1.0420276984128802e-14, -3.8144030724370075e-15, -1.8803547755107825e-15, 3.3082023109209285e-16,
    2.96262899764595e-16, -3.209525921993424e-17, -4.6503053684893586e-17, 4.414348323071708e-18, 7.517296310842105e-18,
    -9.314178867326884e-19, -1.242193275194891e-18,
)  # fmt: skip


@formula("chlo.bessel_i1e")
def bessel_i1e(x: Tensor) -> Tensor:
    """exp(-|x|) I1(x), the modified Bessel function of order 1."""
    if x.dtype.bits < 32:
        return bessel_i1e(x.cast(F32)).cast(x.dtype)
    size = x.abs()
    inside = size <= 8
    small_x = size.minimum(8)
    low = small_x * 0.5 - 2
    large_x = size.maximum(8)
    high = 32 / large_x - 2
    below = polynomial(_BESSEL, low) * small_x
    above_ = polynomial(_BESSEL_FAR, high) * large_x.rsqrt()
    result = inside.select(below, above_)
    return (x < 0).select(-result, result)


# B(2 k) / (2 k)! of the Bernoulli numbers.
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600, -3617 / 10670622842880000,
    43867 / 5109094217170944000, -174611 / 802857662698291200000,
)  # fmt: skip
_TERMS = 10  # terms before the Euler-Maclaurin formula


@formula("chlo.zeta")
def zeta(x: Tensor, q: Tensor) -> Tensor:
    """Hurwitz's zeta function, the sum of (q + k)^-x; infinite at poles, NaN where it is undefined."""
    if x.dtype.bits < 32:
        return zeta(x.cast(F32), q.cast(F32)).cast(x.dtype)

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
    at_pole = even.select(math.inf, x.block.full(math.nan, x))
    negative = whole(q).select(at_pole, whole(x).select(total, math.nan))
    total = low.select(negative, total)
    total = (x < 1).select(math.nan, total)
    return x.compare_eq(1).select(math.inf, total)


@formula("chlo.polygamma")
def polygamma(n: Tensor, x: Tensor) -> Tensor:
    """The derivative of order `n` of the digamma function; NaN if `n` is not an integer."""
    if x.dtype.bits < 32:
        return polygamma(n.cast(F32), x.cast(F32)).cast(x.dtype)
    up = n + 1
    even = n.mod(2).compare_eq(0)
    size = up.lgamma().exp() * zeta(up, x)
    result = n.compare_eq(0).select(x.digamma(), even.select(-size, size))
    return n.compare_eq(n.floor()).bitwise_and(n >= 0).select(result, math.nan)


@formula("chlo.mulhi")
def mulhi(x: Tensor, y: Tensor) -> Tensor:
    """The high half of the product, from the halves of the factors."""
    bits, shift = x.dtype.bits, "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
    if bits < 64 and bits != 4:
        wide = integers(2 * bits, x.dtype.is_signed)
        product = x.cast(wide) * y.cast(wide)
        return wrapped(product.op(shift, product, bits), x.dtype)
    half, mask = bits // 2, (1 << bits // 2) - 1
    (a, b), (c, d) = ((v.op(shift, v, half), v.bitwise_and(mask)) for v in (x, y))
    middle = a * d + (b * d).shift_right_logical(half)
    second = b * c + middle.bitwise_and(mask)
    return a * c + middle.op(shift, middle, half) + second.op(shift, second, half)


_BROADCAST = (
    "stablehlo.add", "stablehlo.subtract", "stablehlo.multiply", "stablehlo.divide", "stablehlo.maximum", "stablehlo.minimum",
    "stablehlo.power", "stablehlo.remainder", "stablehlo.and", "stablehlo.or", "stablehlo.xor", "stablehlo.atan2",
    "stablehlo.shift_left", "stablehlo.shift_right_logical", "stablehlo.shift_right_arithmetic", "stablehlo.compare",
    "stablehlo.complex", "stablehlo.select", "chlo.next_after", "chlo.polygamma", "chlo.zeta",
)  # fmt: skip


def broadcast(handler: Handler) -> Handler:
    """The handler on operands broadcast to a common shape, aligned at the right."""

    def result(site: Site, *operands: Tensor) -> object:
        shape = site.known(site.type.shape)
        return handler(site, *(x if x.shape == shape else x.broadcast_to(shape) for x in operands))

    return result


for _name in _BROADCAST:
    handles(f"chlo.broadcast_{_name.partition('.')[2]}")(broadcast(HANDLERS[_name].handler))
