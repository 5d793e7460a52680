"""Integer and bit ops for tiles: quotients, powers, shifts and counts that targets lack, computed in si32."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import AffineExpr
from ptir_tools.convert.ptir_to_pto.operands import dtype_of, tensor_of
from ptir_tools.convert.ptir_to_pto.preparation import Preparation
from ptir_tools.convert.ptir_to_pto.values import wider
from ptir_tools.core.dtypes import F32, I1, SI8, SI16, SI32, UI8, UI16, UI32, DType
from ptir_tools.core.ir import Literal, Op, Operand
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.names import DTYPE_TEXT

_SIGNED = {UI8: SI8, UI16: SI16, UI32: SI32}
_UNSIGNED = {1: UI8, 2: UI16, 4: UI32}  # by bytes


def filled(work: Preparation, like: Operand, n: int) -> Literal:
    """The integer `n`, wrapped to the dtype, in the shape of `like`."""
    t = tensor_of(like)
    return work.fill(t, (n % (1 << t.dtype.bits)).to_bytes(t.dtype.size, "little"))


def seen_as(work: Preparation, x: Operand, dtype: DType) -> Operand:
    """The bits of `x` in another dtype of its width."""
    return x if dtype_of(x) is dtype else work.b.op("bitcast", x, dtype=dtype)


def bits_of(work: Preparation, x: Operand) -> Operand:
    """The bits of integers or floats, as si32 with zeros above them. Raises Violation for more than 32 bits."""
    dtype = dtype_of(x)
    require(dtype.size in _UNSIGNED, NOT_TRANSLATABLE, f"no tile op gives the bits of {dtype}")
    if dtype.bits == SI32.bits:
        return seen_as(work, x, SI32)
    return work.cast(seen_as(work, x, _UNSIGNED[dtype.size]), SI32)


def of_bits(work: Preparation, x: Operand, dtype: DType) -> Operand:
    """The lowest bits of si32 as `dtype`; higher bits are dropped. Raises Violation for more than 32 bits."""
    require(dtype.size in _UNSIGNED, NOT_TRANSLATABLE, f"no tile op makes {dtype} of bits")
    if dtype.bits == SI32.bits:
        return seen_as(work, x, dtype)
    low = work.b.op("bitwise_and", x, filled(work, x, (1 << dtype.bits) - 1))
    return seen_as(work, work.cast(low, _UNSIGNED[dtype.size]), dtype)


def shifted(work: Preparation, x: Operand, by: int) -> Operand:
    """A logical right shift of si32."""
    moved = work.b.op("shift_right_arithmetic", x, filled(work, x, by))
    return work.b.op("bitwise_and", moved, filled(work, x, (1 << (SI32.bits - by)) - 1)) if by else x


# Counts


def _ones(work: Preparation, x: Operand) -> Operand:
    """The number of set bits of si32: sums of neighbors, twice as wide in each step."""
    b = work.b.op
    x = b("sub", x, b("bitwise_and", shifted(work, x, 1), filled(work, x, 0x55555555)))
    low = filled(work, x, 0x33333333)
    x = b("add", b("bitwise_and", x, low), b("bitwise_and", shifted(work, x, 2), low))
    x = b("bitwise_and", b("add", x, shifted(work, x, 4)), filled(work, x, 0x0F0F0F0F))
    return shifted(work, b("mul", x, filled(work, x, 0x01010101)), 24)


def popcount(work: Preparation, op: Op, x: Operand) -> Operand:
    """The bits that are set."""
    return work.cast(_ones(work, bits_of(work, x)), dtype_of(x), op.result.name)


def leading_zeros(work: Preparation, op: Op, x: Operand) -> Operand:
    """The width minus the popcount after all bits below the highest are set."""
    bits, width, by = bits_of(work, x), dtype_of(x).bits, 1
    while by < width:
        bits, by = work.b.op("bitwise_or", bits, shifted(work, bits, by)), 2 * by
    left = work.b.op("sub", filled(work, bits, width), _ones(work, bits))
    return work.cast(left, dtype_of(x), op.result.name)


# Reductions of bits


def every(work: Preparation, op: Op, x: Operand) -> Operand:
    """Bitwise and, or, xor reductions: the minimum, maximum or sum of each bit along an axis. Bits are a new first axis, and the
    results are recombined by their weights."""
    short, kept, t = op.defn.short, op.attr("keepdims"), tensor_of(x)
    axes = sorted({a % t.rank for a in op.attr("axes")}, reverse=True)
    if not axes:
        return work.b.op("stop_gradient", x, name=op.result.name)
    reduce = {"reduce_and": "reduce_min", "reduce_or": "reduce_max", "reduce_xor": "reduce_sum"}[short]
    result, first = x, 0
    if t.dtype is not I1:
        first, shape = 1, (t.dtype.bits, *t.shape)
        spread = bits_of(work, work.b.op("broadcast_to", x, result_shape=shape))  # every op has all axes: one may be a loop
        moved = work.b.op("shift_right_arithmetic", spread, work.b.op("iota", shape=shape, dtype=SI32, axis=0))
        result = work.b.op("bitwise_and", moved, filled(work, moved, 1))
    result = work.cast(result, SI32 if short == "reduce_xor" else F32)
    for a in axes:
        result = work.b.op(reduce, result, axes=(a + first,), keepdims=kept)
    result = work.cast(result, SI32)
    result = work.b.op("bitwise_and", result, filled(work, result, 1)) if short == "reduce_xor" else result
    if t.dtype is I1:
        return work.cast(result, I1, op.result.name)
    if any(n != 1 for n in tensor_of(result).shape[1:]):  # two reduced axes would be the rows and columns of tiles
        memory = work.memory(tensor_of(result), "bits")
        work.write(memory, result)
        result = memory
    places = work.b.op("iota", shape=tensor_of(result).shape, dtype=SI32, axis=0)
    total = work.b.op("reduce_sum", work.b.op("shift_left", result, places), axes=(0,), keepdims=False)
    return of_bits(work, total, t.dtype)


# Quotients and powers


def quotient(work: Preparation, op: Op, x: Operand, y: Operand) -> Operand:
    """The quotient of integers, rounded toward zero."""
    dtype = dtype_of(x)
    if not dtype.is_integer or _divides(work, dtype):
        return work.copy(op, [x, y])
    if dtype is UI32:
        return _unsigned_quotient(work, x, y)
    return of_bits(work, _signed_quotient(work, x, y), dtype)


def remainder(work: Preparation, op: Op, x: Operand, y: Operand) -> Operand:
    """The remainder of a division toward zero (`rem`) or rounded down (`mod`)."""
    dtype, short = dtype_of(x), op.defn.short
    if not dtype.is_integer:
        return work.copy(op, [x, y])
    if dtype is UI32:
        return work.b.op("sub", x, work.b.op("mul", _unsigned_quotient(work, x, y), y), name=op.result.name)
    small = dtype is SI32 and all(_is_small(work.ranges.of(v)) for v in op.operands)
    if small or _divides(work, SI32):
        return work.copy(op, [x, y]) if short == "mod" else _left(work, x, y)
    _, left, apart = _divided(work, x, y)
    if short == "mod":
        some = work.b.op("compare_ne", left, filled(work, left, 0))
        down = work.b.op("select", some, work.b.op("add", left, work.cast(y, SI32)), left)
        left = work.b.op("select", apart, down, left)
    return of_bits(work, left, dtype)


def _is_small(bounds: tuple[int, int] | None) -> bool:
    """Whether f32 has all integers within `bounds`."""
    return bounds is not None and -(1 << F32.precision) <= bounds[0] <= bounds[1] <= 1 << F32.precision


def _left(work: Preparation, x: Operand, y: Operand) -> Operand:
    """The remainder of a division toward zero; of signed integers the floor remainder, minus the divisor where its sign differs
    from `x`."""
    t, b = tensor_of(x), work.b.op
    left = b("mod", x, y)
    if not t.dtype.is_signed:
        return left
    zero, less = filled(work, x, 0), b("sub", left, y)
    negative = b("select", b("compare_gt", left, zero), less, left)
    positive = b("select", b("compare_lt", left, zero), less, left)
    return b("select", b("compare_lt", x, zero), negative, positive)


def _nearest(work: Preparation, x: Operand, y: Operand, bits: int) -> tuple[Operand, Operand]:
    """The quotient of si32 of at most `bits` bits, rounded to nearest, and the remainder. It is computed by f32; for 32 bits a
    second division corrects the remainder, at most a few hundred divisors."""
    b = work.b.op

    def near(n: Operand) -> Operand:
        return work.cast(b("round_even", b("div", work.cast(n, F32), work.cast(y, F32))), SI32)

    result = near(x)
    left = b("sub", x, b("mul", result, y))
    if bits < SI32.bits:
        return result, left
    more = near(left)
    return b("add", result, more), b("sub", left, b("mul", more, y))


def _divided(work: Preparation, x: Operand, y: Operand) -> tuple[Operand, Operand, Operand]:
    """The si32 quotient toward zero, the remainder, which has the sign of `x`, and whether the signs of the operands differ."""
    b, bits = work.b.op, dtype_of(x).bits
    apart = b("bitwise_xor", x, y)  # the first op reads both operands, so all ops are in one kernel
    apart = b("compare_lt", apart, filled(work, apart, 0))
    x, y = work.cast(x, SI32), work.cast(y, SI32)
    result, left = _nearest(work, x, y, bits)
    zero, one, less = (filled(work, x, n) for n in (0, 1, -1))
    turned = b("select", b("compare_lt", x, zero), b("sub", zero, left), left)
    beyond, unit = b("compare_lt", turned, zero), b("select", apart, less, one)
    result = b("select", beyond, b("sub", result, unit), result)
    return result, b("select", beyond, b("add", left, b("mul", unit, y)), left), apart


def _divides(work: Preparation, dtype: DType) -> bool:
    """Whether the target divides integers of a dtype, or wider ones."""
    return DTYPE_TEXT[wider(work.target, "div", dtype)] in element_types(work.target)["div"]


def _signed_quotient(work: Preparation, x: Operand, y: Operand) -> Operand:
    """The quotient of signed integers in si32, and of unsigned ones of fewer bits."""
    return work.b.op("div", work.cast(x, SI32), work.cast(y, SI32)) if _divides(work, SI32) else _divided(work, x, y)[0]


def _unsigned_quotient(work: Preparation, x: Operand, y: Operand) -> Operand:
    """The quotient of ui32: twice that of `x / 2`, plus 1 where the remainder allows; 0 or 1 where `y` has the highest bit."""
    b = work.b.op
    divisor = seen_as(work, y, SI32)
    large = b("compare_lt", divisor, filled(work, divisor, 0))
    divisor = b("select", large, filled(work, divisor, SI32.max), divisor)
    half = _signed_quotient(work, shifted(work, seen_as(work, x, SI32), 1), divisor)
    twice = seen_as(work, b("add", half, half), UI32)
    left = b("sub", x, b("mul", twice, y))
    zero, one = filled(work, x, 0), filled(work, x, 1)
    more = b("select", b("compare_ge", left, y), one, zero)
    return b("select", large, b("select", b("compare_ge", x, y), one, zero), b("add", twice, more))


def power(work: Preparation, op: Op, x: Operand, y: Operand) -> Operand:
    """Integer power by repeated squaring; a negative power gives 1, -1 or 0."""
    dtype, b = dtype_of(x), work.b.op
    if not dtype.is_integer:
        return work.copy(op, [x, y])
    base, bits = bits_of(work, x), bits_of(work, y)
    one, zero = filled(work, base, 1), filled(work, base, 0)
    total: Operand = one
    square, first = base, total
    for k in range(dtype.bits - dtype.is_signed):
        odd = b("compare_ne", b("bitwise_and", shifted(work, bits, k), one), zero)
        total = b("select", odd, b("mul", total, square), total)
        first = total if k == 0 else first
        square = b("mul", square, square)
    result = of_bits(work, total, dtype)
    if not dtype.is_signed:
        return result
    less, unit = filled(work, x, -1), filled(work, x, 1)
    turned = b("select", b("compare_eq", x, less), of_bits(work, first, dtype), filled(work, x, 0))
    inverse = b("select", b("compare_eq", x, unit), unit, turned)
    return b("select", b("compare_lt", y, filled(work, y, 0)), inverse, result, name=op.result.name)


# Shifts


def shifted_right(work: Preparation, op: Op, x: Operand, y: Operand) -> Operand:
    """A right shift. Tiles shift signed elements arithmetically; a logical shift masks the copies of the sign."""
    dtype, logical = dtype_of(x), op.defn.short == "shift_right_logical"
    if not dtype.is_signed and (dtype is UI32 or not logical):
        require(dtype in _SIGNED, NOT_TRANSLATABLE, f"no tile op shifts {dtype} down")
        signed = _SIGNED[dtype]
        return seen_as(work, _moved(work, seen_as(work, x, signed), seen_as(work, y, signed), logical), dtype)
    return _moved(work, x, y, logical)


def _moved(work: Preparation, x: Operand, y: Operand, logical: bool) -> Operand:
    dtype, b = dtype_of(x), work.b.op
    result: Operand = b("shift_right_arithmetic", x, y)
    if not logical:
        return result
    zero = filled(work, x, 0)
    if dtype.is_signed:
        copies = b("shift_left", filled(work, x, 2), b("sub", filled(work, x, dtype.bits - 1), y))
        result = b("select", b("compare_lt", x, zero), b("add", result, copies), result)
        result = b("select", b("compare_lt", y, zero), zero, result)
    return b("select", b("compare_lt", y, filled(work, x, dtype.bits)), result, zero)


# Bits of floats


def bitcast(work: Preparation, op: Op, x: Operand) -> Operand:
    """A bitcast; to narrower elements along a new last axis."""
    source, to, t = dtype_of(x), dtype_of(op.result), tensor_of(x)
    if source.bits == to.bits:
        return work.copy(op, [x])
    if source.bits > to.bits:
        bits, memory = bits_of(work, x), work.memory(op.result.type, op.result.name)
        for k in range(source.bits // to.bits):
            part = of_bits(work, shifted(work, bits, k * to.bits), to)
            work.write(
                memory, work.b.op("reshape", part, new_shape=(*t.shape, 1)), [*(AffineExpr(),) * t.rank, AffineExpr((), k)]
            )
        return memory
    total: Operand | None = None
    for k in range(to.bits // source.bits):
        part = work.part(x, [*(AffineExpr(),) * (t.rank - 1), AffineExpr((), k)], (*t.shape[:-1], 1), "part")
        bits = bits_of(work, work.b.op("reshape", part, new_shape=t.shape[:-1]))
        bits = work.b.op("shift_left", bits, filled(work, bits, k * source.bits)) if k else bits
        total = bits if total is None else work.b.op("add", total, bits)
    assert total is not None
    return of_bits(work, total, to)


def next_after(work: Preparation, op: Op, x: Operand, y: Operand) -> Operand:
    """The bits of `x` plus or minus 1; from 0 the smallest number of the sign of `y`."""
    dtype, b = dtype_of(x), work.b.op
    zero = work.fill(tensor_of(x), bytes(dtype.size))
    bits = seen_as(work, x, _SIGNED[_UNSIGNED[dtype.size]])
    one, less = filled(work, bits, 1), filled(work, bits, -1)
    up = b("select", b("compare_lt", x, y), one, less)
    away = b("select", b("compare_gt", x, zero), up, b("neg", up))
    smallest = b("select", b("compare_lt", y, zero), filled(work, bits, 1 - (1 << (dtype.bits - 1))), one)
    result = b("select", b("compare_eq", x, zero), seen_as(work, smallest, dtype), seen_as(work, b("add", bits, away), dtype))
    result = b("select", b("compare_eq", x, y), y, result)
    for v in (y, x):
        result = b("select", b("compare_eq", v, v), result, v)
    return result


def reduced_precision(work: Preparation, op: Op, x: Operand) -> Operand:
    """Rounding in the bits: half of the dropped part is added, minus 1 where the last kept bit is even."""
    dtype, b = dtype_of(x), work.b.op
    own, width = dtype.precision - 1, dtype.bits - dtype.precision
    bits = bits_of(work, x)
    top = 1 << (dtype.bits - 1)
    sign = b("bitwise_and", bits, filled(work, bits, top))
    size = b("bitwise_and", bits, filled(work, bits, top - 1))
    infinite = filled(work, bits, ((1 << width) - 1) << own)
    if (drop := max(own - op.attr("mantissa_bits"), 0)) > 0:
        last = b("bitwise_and", shifted(work, size, drop), filled(work, bits, 1))
        size = b("add", size, b("add", last, filled(work, bits, (1 << (drop - 1)) - 1)))
        size = b("bitwise_and", size, filled(work, bits, -(1 << drop)))
    if (exponents := op.attr("exponent_bits")) < width:
        bias, most = (1 << (width - 1)) - 1, (1 << (exponents - 1)) - 1
        large, small = (filled(work, bits, (n + bias) << own) for n in (most + 1, 1 - most))
        size = b("select", b("compare_ge", size, large), infinite, size)
        size = b("select", b("compare_lt", size, small), filled(work, bits, 0), size)
    size = b("minimum", size, infinite)
    result = of_bits(work, b("bitwise_or", size, sign), dtype)
    return b("select", b("compare_eq", x, x), result, x, name=op.result.name)
