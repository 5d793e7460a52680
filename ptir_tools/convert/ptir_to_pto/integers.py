"""Integer and bit ops for tiles: quotients, powers, shifts and counts that targets lack, computed in si32."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.operands import Place, cast
from ptir_tools.convert.ptir_to_pto.values import SIGNED, wider
from ptir_tools.core.dtypes import F32, I1, SI32, UI8, UI16, UI32, DType
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.rewrite.expression import compare_eq, compare_ne, function, minimum, select

_UNSIGNED = {1: UI8, 2: UI16, 4: UI32}  # by bytes
_round = function("round_even")


def _seen_as(x: Tensor, dtype: DType) -> Tensor:
    """The bits of `x` in another dtype of its width."""
    return x if x.dtype is dtype else x.bitcast(dtype)


def bits_of(x: Tensor) -> Tensor:
    """The bits of integers or floats, as si32 with zeros above them. Raises Violation for more than 32 bits."""
    require(x.dtype.size in _UNSIGNED, NOT_TRANSLATABLE, f"no tile op gives the bits of {x.dtype}")
    return _seen_as(x, SI32) if x.dtype.bits == SI32.bits else cast(_seen_as(x, _UNSIGNED[x.dtype.size]), SI32)


def _of_bits(x: Tensor, dtype: DType) -> Tensor:
    """The lowest bits of si32 as `dtype`; higher bits are dropped. Raises Violation for more than 32 bits."""
    require(dtype.size in _UNSIGNED, NOT_TRANSLATABLE, f"no tile op makes {dtype} of bits")
    if dtype.bits == SI32.bits:
        return _seen_as(x, dtype)
    return _seen_as(cast(x.bitwise_and((1 << dtype.bits) - 1), _UNSIGNED[dtype.size]), dtype)


def _shifted(x: Tensor, by: int) -> Tensor:
    """A logical right shift of si32."""
    return x.shift_right_arithmetic(by).bitwise_and((1 << (SI32.bits - by)) - 1) if by else x


# Counts


def _ones(x: Tensor) -> Tensor:
    """The number of set bits of si32: sums of neighbors, twice as wide in each step."""
    x = x - _shifted(x, 1).bitwise_and(0x55555555)
    x = x.bitwise_and(0x33333333) + _shifted(x, 2).bitwise_and(0x33333333)
    x = (x + _shifted(x, 4)).bitwise_and(0x0F0F0F0F)
    return _shifted(x * 0x01010101, 24)


def popcount(site: Place, x: Tensor) -> Tensor:
    """The bits that are set."""
    return cast(_ones(bits_of(x)), x.dtype)


def leading_zeros(site: Place, x: Tensor) -> Tensor:
    """The width minus the popcount after all bits below the highest are set."""
    bits, by = bits_of(x), 1
    while by < x.dtype.bits:
        bits, by = bits.bitwise_or(_shifted(bits, by)), 2 * by
    return cast(x.dtype.bits - _ones(bits), x.dtype)


# Reductions of bits


def every(site: Place, x: Tensor) -> Tensor:
    """Bitwise and, or, xor reductions: the minimum, maximum or sum of each bit along an axis. Bits are a new first axis, and the
    results are recombined by their weights."""
    short, t = site.root.defn.short, x.tensor_type
    axes = sorted({a % t.rank for a in site.root.attr("axes")}, reverse=True)
    if not axes:
        return x
    reduce = {"reduce_and": "reduce_min", "reduce_or": "reduce_max", "reduce_xor": "reduce_sum"}[short]
    result, first = x, 0
    if t.dtype is not I1:
        first, shape = 1, (t.dtype.bits, *t.shape)
        spread = bits_of(x.broadcast_to(shape))  # every op has all axes: one may be a loop
        result = spread.shift_right_arithmetic(site.iota(shape, SI32, 0)).bitwise_and(1)
    result = cast(result, SI32 if short == "reduce_xor" else F32)
    for a in axes:
        result = result.op(reduce, result, axes=(a + first,), keepdims=site.root.attr("keepdims"))
    result = cast(result, SI32)
    result = result.bitwise_and(1) if short == "reduce_xor" else result
    if t.dtype is I1:
        return cast(result, I1)
    if any(n != 1 for n in result.shape[1:]):
        result = site.concat([result], 0)  # in memory, else two reduced axes would be the rows and columns of tiles
    places = site.iota(result.shape, SI32, 0)
    return _of_bits(result.shift_left(places).reduce_sum((0,), keepdims=False), t.dtype)


# Quotients and powers


def quotient(site: Place, x: Tensor, y: Tensor) -> Tensor | None:
    """The quotient of integers, rounded toward zero."""
    if not x.dtype.is_integer or _divides(site, x.dtype):
        return None
    return _unsigned_quotient(site, x, y) if x.dtype is UI32 else _of_bits(_signed_quotient(site, x, y), x.dtype)


def remainder(site: Place, x: Tensor, y: Tensor) -> Tensor | None:
    """The remainder of a division toward zero (`rem`) or rounded down (`mod`)."""
    dtype, short = x.dtype, site.root.defn.short
    if not dtype.is_integer:
        return None
    if dtype is UI32:
        return x - _unsigned_quotient(site, x, y) * y
    small = dtype is SI32 and all(_is_small(site.ranges.of(v)) for v in site.root.operands)
    if small or _divides(site, SI32):
        return None if short == "mod" else _left(x, y)
    _, left, apart = _divided(x, y)
    if short == "mod":
        some = compare_ne(left, 0)
        left = select(apart, select(some, left + cast(y, SI32), left), left)
    return _of_bits(left, dtype)


def _is_small(bounds: tuple[int, int] | None) -> bool:
    """Whether f32 has all integers within `bounds`."""
    return bounds is not None and -(1 << F32.precision) <= bounds[0] <= bounds[1] <= 1 << F32.precision


def _left(x: Tensor, y: Tensor) -> Tensor:
    """The remainder of a division toward zero; of signed integers the floor remainder, minus the divisor where its sign differs
    from `x`."""
    left = x.mod(y)
    if not x.dtype.is_signed:
        return left
    less = left - y
    negative = select(left > 0, less, left)
    positive = select(left < 0, less, left)
    return select(x < 0, negative, positive)


def _nearest(x: Tensor, y: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """The quotient of si32 of at most `bits` bits, rounded to nearest, and the remainder. It is computed by f32; for 32 bits a
    second division corrects the remainder, at most a few hundred divisors."""

    def near(n: Tensor) -> Tensor:
        return cast(_round(cast(n, F32) / cast(y, F32)), SI32)

    result = near(x)
    left = x - result * y
    if bits < SI32.bits:
        return result, left
    more = near(left)
    return result + more, left - more * y


def _divided(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The si32 quotient toward zero, the remainder, which has the sign of `x`, and whether the signs of the operands differ."""
    bits = x.dtype.bits
    apart = x.bitwise_xor(y) < 0  # the first op reads both operands, so all ops are in one kernel
    x, y = cast(x, SI32), cast(y, SI32)
    result, left = _nearest(x, y, bits)
    turned = select(x < 0, 0 - left, left)
    beyond, unit = turned < 0, select(apart, -1, x.block.full(1, x))
    result = select(beyond, result - unit, result)
    return result, select(beyond, left + unit * y, left), apart


def _divides(site: Place, dtype: DType) -> bool:
    """Whether the target divides integers of a dtype, or wider ones."""
    return DTYPE_TEXT[wider(site.target, "div", dtype)] in element_types(site.target)["div"]


def _signed_quotient(site: Place, x: Tensor, y: Tensor) -> Tensor:
    """The quotient of signed integers in si32, and of unsigned ones of fewer bits."""
    return cast(x, SI32) / cast(y, SI32) if _divides(site, SI32) else _divided(x, y)[0]


def _unsigned_quotient(site: Place, x: Tensor, y: Tensor) -> Tensor:
    """The quotient of ui32: twice that of `x / 2`, plus 1 where the remainder allows; 0 or 1 where `y` has the highest bit."""
    divisor = _seen_as(y, SI32)
    large = divisor < 0
    divisor = select(large, SI32.max, divisor)
    half = _signed_quotient(site, _shifted(_seen_as(x, SI32), 1), divisor)
    twice = _seen_as(half + half, UI32)
    left, one = x - twice * y, site.full(1, x)
    more = select(left >= y, one, 0)
    return select(large, select(x >= y, one, 0), twice + more)


def power(site: Place, x: Tensor, y: Tensor) -> Tensor | None:
    """Integer power by repeated squaring; a negative power gives 1, -1 or 0."""
    dtype = x.dtype
    if not dtype.is_integer:
        return None
    base, bits = bits_of(x), bits_of(y)
    total = site.full(1, base)
    square, first = base, total
    for k in range(dtype.bits - dtype.is_signed):
        odd = compare_ne(_shifted(bits, k).bitwise_and(1), 0)
        total = select(odd, total * square, total)
        first = total if k == 0 else first
        square = square * square
    result = _of_bits(total, dtype)
    if not dtype.is_signed:
        return result
    turned = select(compare_eq(x, -1), _of_bits(first, dtype), 0)
    inverse = select(compare_eq(x, 1), 1, turned)
    return select(y < 0, inverse, result)


# Shifts


def arithmetic_shift(site: Place, x: Tensor, y: Tensor) -> Tensor | None:
    """A right shift that copies the sign; of unsigned integers on the same bits with a sign."""
    if x.dtype.is_signed:
        return None
    require(x.dtype in SIGNED, NOT_TRANSLATABLE, f"no tile op shifts {x.dtype} down")
    signed = SIGNED[x.dtype]
    return _seen_as(_seen_as(x, signed).shift_right_arithmetic(_seen_as(y, signed)), x.dtype)


def logical_shift(site: Place, x: Tensor, y: Tensor) -> Tensor | None:
    """A right shift that makes zeros. Tiles shift signed elements arithmetically, so the copies of the sign are masked. Short
    unsigned integers are left to `short_shift`."""
    dtype = x.dtype
    if dtype is UI32:
        made = logical_shift(site, _seen_as(x, SI32), _seen_as(y, SI32))
        return None if made is None else _seen_as(made, dtype)
    if not dtype.is_signed:
        require(dtype in SIGNED, NOT_TRANSLATABLE, f"no tile op shifts {dtype} down")
        return None
    result = x.shift_right_arithmetic(y)
    copies = site.shift_left(2, (dtype.bits - 1) - y)
    result = select(x < 0, result + copies, result)
    result = select(y < 0, 0, result)
    return select(y < dtype.bits, result, 0)


def short_shift(site: Place, x: Tensor, y: Tensor) -> Tensor | None:
    """A logical right shift of 8 or 16 unsigned bits. Tiles compute it in a wider type, where the sign is 0."""
    if x.dtype.is_signed or x.dtype is UI32:
        return None
    result = x.shift_right_arithmetic(y)
    return select(y < x.dtype.bits, result, 0)


# Bits of floats


def bitcast(site: Place, x: Tensor) -> Tensor | None:
    """A bitcast; to narrower elements along a new last axis."""
    source, to, shape = x.dtype, site.result.dtype, x.shape
    if source.bits == to.bits:
        return None
    if source.bits > to.bits:
        bits = bits_of(x)
        parts = [_of_bits(_shifted(bits, k * to.bits), to) for k in range(source.bits // to.bits)]
        return site.concat([part.reshape((*shape, 1)) for part in parts], x.rank)
    total: Tensor | None = None
    for k in range(to.bits // source.bits):
        part = site.op("slice", x, starts=(*[0] * (x.rank - 1), k), sizes=(*shape[:-1], 1))
        bits = bits_of(part.reshape(shape[:-1]))
        bits = bits.shift_left(k * source.bits) if k else bits
        total = bits if total is None else total + bits
    assert total is not None
    return _of_bits(total, to)


def next_after(site: Place, x: Tensor, y: Tensor) -> Tensor:
    """The bits of `x` plus or minus 1; from 0 the smallest number of the sign of `y`."""
    dtype = x.dtype
    bits = _seen_as(x, SIGNED[_UNSIGNED[dtype.size]])
    one = site.full(1, bits)
    up = select(x < y, one, -1)
    away = select(x > 0, up, -up)
    smallest = select(y < 0, 1 - (1 << (dtype.bits - 1)), one)
    result = select(compare_eq(x, 0), _seen_as(smallest, dtype), _seen_as(bits + away, dtype))
    result = select(compare_eq(x, y), y, result)
    for v in (y, x):
        result = select(compare_eq(v, v), result, v)
    return result


def reduced_precision(site: Place, x: Tensor) -> Tensor:
    """Rounding in the bits: half of the dropped part is added, minus 1 where the last kept bit is even."""
    dtype = x.dtype
    own, width, top = dtype.precision - 1, dtype.bits - dtype.precision, 1 << (dtype.bits - 1)
    bits = bits_of(x)
    sign, size = bits.bitwise_and(top), bits.bitwise_and(top - 1)
    infinite = ((1 << width) - 1) << own
    if (drop := max(own - site.root.attr("mantissa_bits"), 0)) > 0:
        last = _shifted(size, drop).bitwise_and(1)
        size = (size + (last + ((1 << (drop - 1)) - 1))).bitwise_and(-(1 << drop))
    if (exponents := site.root.attr("exponent_bits")) < width:
        bias, most = (1 << (width - 1)) - 1, (1 << (exponents - 1)) - 1
        large, small = ((n + bias) << own for n in (most + 1, 1 - most))
        size = select(size >= large, infinite, size)
        size = select(size < small, 0, size)
    size = minimum(size, infinite)
    result = _of_bits(size.bitwise_or(sign), dtype)
    return select(compare_eq(x, x), result, x)
