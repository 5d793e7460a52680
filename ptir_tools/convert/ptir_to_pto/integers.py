"""Integer and bit ops for tiles: quotients, powers, shifts and counts that targets lack, computed in si32."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.operands import Place, dtype_of, tensor_of
from ptir_tools.convert.ptir_to_pto.values import SIGNED, wider
from ptir_tools.core.dtypes import F32, I1, SI32, UI8, UI16, UI32, DType
from ptir_tools.core.ir import Op, Operand
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.names import DTYPE_TEXT

_UNSIGNED = {1: UI8, 2: UI16, 4: UI32}  # by bytes


def seen_as(site: Place, x: Operand, dtype: DType) -> Operand:
    """The bits of `x` in another dtype of its width."""
    return x if dtype_of(x) is dtype else site.op("bitcast", x, dtype=dtype)


def bits_of(site: Place, x: Operand) -> Operand:
    """The bits of integers or floats, as si32 with zeros above them. Raises Violation for more than 32 bits."""
    dtype = dtype_of(x)
    require(dtype.size in _UNSIGNED, NOT_TRANSLATABLE, f"no tile op gives the bits of {dtype}")
    if dtype.bits == SI32.bits:
        return seen_as(site, x, SI32)
    return site.cast(seen_as(site, x, _UNSIGNED[dtype.size]), SI32)


def of_bits(site: Place, x: Operand, dtype: DType) -> Operand:
    """The lowest bits of si32 as `dtype`; higher bits are dropped. Raises Violation for more than 32 bits."""
    require(dtype.size in _UNSIGNED, NOT_TRANSLATABLE, f"no tile op makes {dtype} of bits")
    if dtype.bits == SI32.bits:
        return seen_as(site, x, dtype)
    low = site.op("bitwise_and", x, (1 << dtype.bits) - 1)
    return seen_as(site, site.cast(low, _UNSIGNED[dtype.size]), dtype)


def shifted(site: Place, x: Operand, by: int) -> Operand:
    """A logical right shift of si32."""
    moved = site.op("shift_right_arithmetic", x, by)
    return site.op("bitwise_and", moved, (1 << (SI32.bits - by)) - 1) if by else x


# Counts


def _ones(site: Place, x: Operand) -> Operand:
    """The number of set bits of si32: sums of neighbors, twice as wide in each step."""
    b = site.op
    x = b("sub", x, b("bitwise_and", shifted(site, x, 1), 0x55555555))
    x = b("add", b("bitwise_and", x, 0x33333333), b("bitwise_and", shifted(site, x, 2), 0x33333333))
    x = b("bitwise_and", b("add", x, shifted(site, x, 4)), 0x0F0F0F0F)
    return shifted(site, b("mul", x, 0x01010101), 24)


def popcount(site: Place, op: Op, x: Operand) -> Operand:
    """The bits that are set."""
    return site.cast(_ones(site, bits_of(site, x)), dtype_of(x))


def leading_zeros(site: Place, op: Op, x: Operand) -> Operand:
    """The width minus the popcount after all bits below the highest are set."""
    bits, width, by = bits_of(site, x), dtype_of(x).bits, 1
    while by < width:
        bits, by = site.op("bitwise_or", bits, shifted(site, bits, by)), 2 * by
    left = site.op("sub", width, _ones(site, bits))
    return site.cast(left, dtype_of(x))


# Reductions of bits


def every(site: Place, op: Op, x: Operand) -> Operand:
    """Bitwise and, or, xor reductions: the minimum, maximum or sum of each bit along an axis. Bits are a new first axis, and the
    results are recombined by their weights."""
    short, kept, t = op.defn.short, op.attr("keepdims"), tensor_of(x)
    axes = sorted({a % t.rank for a in op.attr("axes")}, reverse=True)
    if not axes:
        return x
    reduce = {"reduce_and": "reduce_min", "reduce_or": "reduce_max", "reduce_xor": "reduce_sum"}[short]
    result, first = x, 0
    if t.dtype is not I1:
        first, shape = 1, (t.dtype.bits, *t.shape)
        spread = bits_of(site, site.op("broadcast_to", x, result_shape=shape))  # every op has all axes: one may be a loop
        moved = site.op("shift_right_arithmetic", spread, site.op("iota", shape=shape, dtype=SI32, axis=0))
        result = site.op("bitwise_and", moved, 1)
    result = site.cast(result, SI32 if short == "reduce_xor" else F32)
    for a in axes:
        result = site.op(reduce, result, axes=(a + first,), keepdims=kept)
    result = site.cast(result, SI32)
    result = site.op("bitwise_and", result, 1) if short == "reduce_xor" else result
    if t.dtype is I1:
        return site.cast(result, I1)
    if any(n != 1 for n in tensor_of(result).shape[1:]):
        result = site.concat([result], 0)  # in memory, else two reduced axes would be the rows and columns of tiles
    places = site.op("iota", shape=tensor_of(result).shape, dtype=SI32, axis=0)
    total = site.op("reduce_sum", site.op("shift_left", result, places), axes=(0,), keepdims=False)
    return of_bits(site, total, t.dtype)


# Quotients and powers


def quotient(site: Place, op: Op, x: Operand, y: Operand) -> Operand | None:
    """The quotient of integers, rounded toward zero."""
    dtype = dtype_of(x)
    if not dtype.is_integer or _divides(site, dtype):
        return None
    if dtype is UI32:
        return _unsigned_quotient(site, x, y)
    return of_bits(site, _signed_quotient(site, x, y), dtype)


def remainder(site: Place, op: Op, x: Operand, y: Operand) -> Operand | None:
    """The remainder of a division toward zero (`rem`) or rounded down (`mod`)."""
    dtype, short = dtype_of(x), op.defn.short
    if not dtype.is_integer:
        return None
    if dtype is UI32:
        return site.op("sub", x, site.op("mul", _unsigned_quotient(site, x, y), y))
    small = dtype is SI32 and all(_is_small(site.ranges.of(v)) for v in op.operands)
    if small or _divides(site, SI32):
        return None if short == "mod" else _left(site, x, y)
    _, left, apart = _divided(site, x, y)
    if short == "mod":
        some = site.op("compare_ne", left, 0)
        down = site.op("select", some, site.op("add", left, site.cast(y, SI32)), left)
        left = site.op("select", apart, down, left)
    return of_bits(site, left, dtype)


def _is_small(bounds: tuple[int, int] | None) -> bool:
    """Whether f32 has all integers within `bounds`."""
    return bounds is not None and -(1 << F32.precision) <= bounds[0] <= bounds[1] <= 1 << F32.precision


def _left(site: Place, x: Operand, y: Operand) -> Operand:
    """The remainder of a division toward zero; of signed integers the floor remainder, minus the divisor where its sign differs
    from `x`."""
    t, b = tensor_of(x), site.op
    left = b("mod", x, y)
    if not t.dtype.is_signed:
        return left
    less = b("sub", left, y)
    negative = b("select", b("compare_gt", left, 0), less, left)
    positive = b("select", b("compare_lt", left, 0), less, left)
    return b("select", b("compare_lt", x, 0), negative, positive)


def _nearest(site: Place, x: Operand, y: Operand, bits: int) -> tuple[Operand, Operand]:
    """The quotient of si32 of at most `bits` bits, rounded to nearest, and the remainder. It is computed by f32; for 32 bits a
    second division corrects the remainder, at most a few hundred divisors."""
    b = site.op

    def near(n: Operand) -> Operand:
        return site.cast(b("round_even", b("div", site.cast(n, F32), site.cast(y, F32))), SI32)

    result = near(x)
    left = b("sub", x, b("mul", result, y))
    if bits < SI32.bits:
        return result, left
    more = near(left)
    return b("add", result, more), b("sub", left, b("mul", more, y))


def _divided(site: Place, x: Operand, y: Operand) -> tuple[Operand, Operand, Operand]:
    """The si32 quotient toward zero, the remainder, which has the sign of `x`, and whether the signs of the operands differ."""
    b, bits = site.op, dtype_of(x).bits
    apart = b("bitwise_xor", x, y)  # the first op reads both operands, so all ops are in one kernel
    apart = b("compare_lt", apart, 0)
    x, y = site.cast(x, SI32), site.cast(y, SI32)
    result, left = _nearest(site, x, y, bits)
    turned = b("select", b("compare_lt", x, 0), b("sub", 0, left), left)
    beyond, unit = b("compare_lt", turned, 0), b("select", apart, -1, site.number(1, x))
    result = b("select", beyond, b("sub", result, unit), result)
    return result, b("select", beyond, b("add", left, b("mul", unit, y)), left), apart


def _divides(site: Place, dtype: DType) -> bool:
    """Whether the target divides integers of a dtype, or wider ones."""
    return DTYPE_TEXT[wider(site.target, "div", dtype)] in element_types(site.target)["div"]


def _signed_quotient(site: Place, x: Operand, y: Operand) -> Operand:
    """The quotient of signed integers in si32, and of unsigned ones of fewer bits."""
    return site.op("div", site.cast(x, SI32), site.cast(y, SI32)) if _divides(site, SI32) else _divided(site, x, y)[0]


def _unsigned_quotient(site: Place, x: Operand, y: Operand) -> Operand:
    """The quotient of ui32: twice that of `x / 2`, plus 1 where the remainder allows; 0 or 1 where `y` has the highest bit."""
    b = site.op
    divisor = seen_as(site, y, SI32)
    large = b("compare_lt", divisor, 0)
    divisor = b("select", large, SI32.max, divisor)
    half = _signed_quotient(site, shifted(site, seen_as(site, x, SI32), 1), divisor)
    twice = seen_as(site, b("add", half, half), UI32)
    left = b("sub", x, b("mul", twice, y))
    one = site.number(1, x)
    more = b("select", b("compare_ge", left, y), one, 0)
    return b("select", large, b("select", b("compare_ge", x, y), one, 0), b("add", twice, more))


def power(site: Place, op: Op, x: Operand, y: Operand) -> Operand | None:
    """Integer power by repeated squaring; a negative power gives 1, -1 or 0."""
    dtype, b = dtype_of(x), site.op
    if not dtype.is_integer:
        return None
    base, bits = bits_of(site, x), bits_of(site, y)
    total: Operand = site.number(1, base)
    square, first = base, total
    for k in range(dtype.bits - dtype.is_signed):
        odd = b("compare_ne", b("bitwise_and", shifted(site, bits, k), 1), 0)
        total = b("select", odd, b("mul", total, square), total)
        first = total if k == 0 else first
        square = b("mul", square, square)
    result = of_bits(site, total, dtype)
    if not dtype.is_signed:
        return result
    turned = b("select", b("compare_eq", x, -1), of_bits(site, first, dtype), 0)
    inverse = b("select", b("compare_eq", x, 1), 1, turned)
    return b("select", b("compare_lt", y, 0), inverse, result)


# Shifts


def arithmetic_shift(site: Place, op: Op, x: Operand, y: Operand) -> Operand | None:
    """A right shift that copies the sign; of unsigned integers on the same bits with a sign."""
    dtype = dtype_of(x)
    if dtype.is_signed:
        return None
    require(dtype in SIGNED, NOT_TRANSLATABLE, f"no tile op shifts {dtype} down")
    signed = SIGNED[dtype]
    return seen_as(site, site.op(op.defn.short, seen_as(site, x, signed), seen_as(site, y, signed)), dtype)


def logical_shift(site: Place, op: Op, x: Operand, y: Operand) -> Operand | None:
    """A right shift that makes zeros. Tiles shift signed elements arithmetically, so the copies of the sign are masked. Short
    unsigned integers are left to `short_shift`."""
    dtype, b = dtype_of(x), site.op
    if dtype is UI32:
        made = logical_shift(site, op, seen_as(site, x, SI32), seen_as(site, y, SI32))
        return None if made is None else seen_as(site, made, dtype)
    if not dtype.is_signed:
        require(dtype in SIGNED, NOT_TRANSLATABLE, f"no tile op shifts {dtype} down")
        return None
    result = b("shift_right_arithmetic", x, y)
    copies = b("shift_left", 2, b("sub", dtype.bits - 1, y))
    result = b("select", b("compare_lt", x, 0), b("add", result, copies), result)
    result = b("select", b("compare_lt", y, 0), 0, result)
    return b("select", b("compare_lt", y, dtype.bits), result, 0)


def short_shift(site: Place, op: Op, x: Operand, y: Operand) -> Operand | None:
    """A logical right shift of 8 or 16 unsigned bits. Tiles compute it in a wider type, where the sign is 0."""
    if dtype_of(x).is_signed or dtype_of(x) is UI32:
        return None
    result = site.op("shift_right_arithmetic", x, y)
    return site.op("select", site.op("compare_lt", y, dtype_of(x).bits), result, 0)


# Bits of floats


def bitcast(site: Place, op: Op, x: Operand) -> Operand | None:
    """A bitcast; to narrower elements along a new last axis."""
    source, to, t = dtype_of(x), dtype_of(op.result), tensor_of(x)
    if source.bits == to.bits:
        return None
    if source.bits > to.bits:
        bits, apart = bits_of(site, x), (*t.shape, 1)
        parts = [of_bits(site, shifted(site, bits, k * to.bits), to) for k in range(source.bits // to.bits)]
        return site.concat([site.op("reshape", part, new_shape=apart) for part in parts], t.rank)
    total: Operand | None = None
    for k in range(to.bits // source.bits):
        part = site.op("slice", x, starts=(*[0] * (t.rank - 1), k), sizes=(*t.shape[:-1], 1))
        bits = bits_of(site, site.op("reshape", part, new_shape=t.shape[:-1]))
        bits = site.op("shift_left", bits, k * source.bits) if k else bits
        total = bits if total is None else site.op("add", total, bits)
    assert total is not None
    return of_bits(site, total, to)


def next_after(site: Place, op: Op, x: Operand, y: Operand) -> Operand:
    """The bits of `x` plus or minus 1; from 0 the smallest number of the sign of `y`."""
    dtype, b = dtype_of(x), site.op
    bits = seen_as(site, x, SIGNED[_UNSIGNED[dtype.size]])
    one = site.number(1, bits)
    up = b("select", b("compare_lt", x, y), one, -1)
    away = b("select", b("compare_gt", x, 0), up, b("neg", up))
    smallest = b("select", b("compare_lt", y, 0), 1 - (1 << (dtype.bits - 1)), one)
    result = b("select", b("compare_eq", x, 0), seen_as(site, smallest, dtype), seen_as(site, b("add", bits, away), dtype))
    result = b("select", b("compare_eq", x, y), y, result)
    for v in (y, x):
        result = b("select", b("compare_eq", v, v), result, v)
    return result


def reduced_precision(site: Place, op: Op, x: Operand) -> Operand:
    """Rounding in the bits: half of the dropped part is added, minus 1 where the last kept bit is even."""
    dtype, b = dtype_of(x), site.op
    own, width = dtype.precision - 1, dtype.bits - dtype.precision
    bits = bits_of(site, x)
    top = 1 << (dtype.bits - 1)
    sign = b("bitwise_and", bits, top)
    size = b("bitwise_and", bits, top - 1)
    infinite = ((1 << width) - 1) << own
    if (drop := max(own - op.attr("mantissa_bits"), 0)) > 0:
        last = b("bitwise_and", shifted(site, size, drop), 1)
        size = b("add", size, b("add", last, (1 << (drop - 1)) - 1))
        size = b("bitwise_and", size, -(1 << drop))
    if (exponents := op.attr("exponent_bits")) < width:
        bias, most = (1 << (width - 1)) - 1, (1 << (exponents - 1)) - 1
        large, small = ((n + bias) << own for n in (most + 1, 1 - most))
        size = b("select", b("compare_ge", size, large), infinite, size)
        size = b("select", b("compare_lt", size, small), 0, size)
    size = b("minimum", size, infinite)
    result = of_bits(site, b("bitwise_or", size, sign), dtype)
    return b("select", b("compare_eq", x, x), result, x)
