"""PTIR to MIND: ops that are several operations of Core v1, exactly or within rounding.

An i1 is represented as 0 or 1 in the dtype of the values that were compared. Of floats, x > y is `1 - n` with `n = Relu(1 -
Relu(x - y) * b * b)`, b so large that every positive difference becomes 1 or more. A choice is `m * x + (1 - m) * y` without the
NaNs of 0 times infinity, which Relu makes 0. `Exp(-Exp(x))` is NaN for a NaN and in 0 … 1 otherwise: it propagates NaNs. 1 / |x|
is `Exp(-Log |x|)`, then a step of Newton's method. Infinities, zeros and NaNs give the right results, so that MIND to PTIR can
recover the ops; the sign of a zero is lost.

Of integers, the Mean of x and zeros is a quotient. A number is below 0 where the quotient of its half and a quarter of the range
is; the signs of both sides show that a difference wraps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.patterns import constant_of, relu_operand, splat_of
from ptir_tools.convert.ptir_to_mind.emit import MindEmit, Read
from ptir_tools.convert.ptir_to_mind.windows import filled_around, gathered, padded_shape, reduce_window, settled
from ptir_tools.convert.series import ERF, ERFC
from ptir_tools.core.arrays import from_literal, numpy_dtype, pack, to_literal
from ptir_tools.core.dtypes import F32, F64, I1, SI32, SI64, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.core.walks import holds
from ptir_tools.dialects.mind.building import constant, reshaped, stretched, window
from ptir_tools.rewrite.constants import known
from ptir_tools.rewrite.vocabulary import tensor_type

FLOATS, INTEGERS = (F32, F64), (SI32, SI64)


def number(emit: MindEmit, value: float, dtype: DType) -> Value:
    """A scalar constant."""
    return emit.constant(Literal(tensor(dtype), pack(numpy_dtype(dtype).type(value), dtype)))


def of_floats(rule: Rule, note: str = "") -> Rule:
    """A rule for floats alone, with a note on what is rounded."""

    def guarded(emit: MindEmit, op: Op, *operands: Read) -> Value:
        dtypes = {tensor_type(x).dtype for x in op.operands} - {I1}
        if not dtypes <= set(FLOATS):
            raise Violation(NOT_TRANSLATABLE, f"{emit.title} has no `{op.defn.short}` of {next(iter(dtypes - set(FLOATS)))}")
        if note:
            emit.note(note)
        result: Value = rule(emit, op, *operands)
        return result

    return guarded


def is_integer(x: Value) -> bool:
    """Whether `x` is a tensor of integers."""
    return tensor_type(x).dtype in INTEGERS


def not_above(emit: MindEmit, x: Value, y: Value) -> Value:
    """1 where x > y does not hold, else 0."""
    dtype = tensor_type(x).dtype
    big = number(emit, 2.0 ** (127 if dtype is F32 else 1023), dtype)
    difference = emit("Relu", emit("Sub", x, y))
    return emit("Relu", emit("Sub", number(emit, 1, dtype), emit("Mul", emit("Mul", difference, big), big)))


def opposite(emit: MindEmit, mask: Value) -> Value:
    """1 - mask."""
    return emit("Sub", number(emit, 1, tensor_type(mask).dtype), mask)


def is_number(x: Value) -> bool:
    """Whether `x` is a constant without NaN."""
    literal = x.op.attr("value") if x.op is not None and x.op.defn.is_constant else None
    return isinstance(literal, Literal) and literal.data is not None and not np.isnan(from_literal(literal)).any()


# Integers


PARTS = 64  # a quotient by more is computed in factors, since a Mean of n numbers needs a tensor of n


def quotient(emit: MindEmit, x: Value, n: int) -> Value:
    """x / n of integers, toward zero: the Mean of x and n - 1 zeros. Raises Violation for an n with large prime factors."""
    shape = tensor_type(x).static_shape
    for part in parts(n):
        first = np.arange(part) == 0
        column = reshaped(emit, x, (*shape, 1))
        row = emit("Mul", column, constant(emit, first, tensor_type(x).dtype))
        x = emit("Mean", row, axes=(len(shape),), keepdims=False)
    return x


def parts(n: int) -> list[int]:
    """Factors whose product is `n`, each at most PARTS where possible. Raises Violation."""
    results, left, factor = [1], n, 2
    while left > 1:
        factor = factor if left % factor == 0 else factor + 1 if factor * factor <= left else left
        require(factor <= PARTS**2, NOT_TRANSLATABLE, f"a Mean of {factor} numbers would be too big")
        if left % factor == 0:
            left //= factor
            results[-1:] = [results[-1] * factor] if results[-1] * factor <= PARTS else [results[-1], factor]
    return [part for part in results if part > 1]


def negative(emit: MindEmit, x: Value) -> Value:
    """1 where an integer is below 0, else 0."""
    dtype = tensor_type(x).dtype
    quarter = 1 << dtype.bits - 2
    if x.op is not None and x.op.defn.is_constant:
        return constant(emit, from_literal(x.op.attr("value")) < 0, dtype)
    one = number(emit, 1, dtype)
    half = quotient(emit, x, 2)
    odd = emit("Sub", x, emit("Add", half, half))
    up = quotient(emit, emit("Add", half, number(emit, quarter, dtype)), quarter)  # 1 unless the half is below 0
    down = quotient(emit, emit("Mul", odd, emit("Sub", odd, one)), 2)  # 1 where the odd rest is -1
    return emit("Sub", one, emit("Mul", up, emit("Sub", one, down)))


def less(emit: MindEmit, x: Value, y: Value) -> Value:
    """1 where x < y, of integers. Where both have the same sign, their difference does not wrap, and its sign is the answer."""
    one = number(emit, 1, tensor_type(x).dtype)
    below, other = negative(emit, x), negative(emit, y)
    apart = emit("Sub", below, other)
    alike = emit("Sub", one, emit("Mul", apart, apart))
    return emit("Add", emit("Mul", below, emit("Sub", one, other)), emit("Mul", alike, negative(emit, emit("Sub", x, y))))


def not_zero(emit: MindEmit, x: Value) -> Value:
    """1 where an integer is not 0: then it or its negation is below 0 (both are, for the smallest integer)."""
    one = number(emit, 1, tensor_type(x).dtype)
    neither = emit("Mul", emit("Sub", one, negative(emit, x)), emit("Sub", one, negative(emit, emit("Neg", x))))
    return emit("Sub", one, neither)


def picked(emit: MindEmit, mask: Value, x: Value, y: Value) -> Value:
    """x where `mask` is 1, y where it is 0, of integers."""
    return emit("Add", y, emit("Mul", mask, emit("Sub", x, y)))


def integers_compared(emit: MindEmit, kind: str, a: Value, b: Value) -> Value:
    """The mask of a comparison of integers."""
    if kind in ("eq", "ne"):
        differs = not_zero(emit, emit("Sub", a, b))
        return differs if kind == "ne" else opposite(emit, differs)
    result = less(emit, *((b, a) if kind in ("gt", "le") else (a, b)))
    return result if kind in ("gt", "lt") else opposite(emit, result)


def converted(emit: MindEmit, x: Value, to: DType) -> Value:
    """Integers in another dtype: tables give their digits in it, and the halves of them are added. Raises Violation where a half
    is not exact."""
    source, exact = tensor_type(x).dtype, {F32: 24, F64: 53}.get(to, 64)
    require(source.bits // 2 <= exact, NOT_TRANSLATABLE, f"MIND has no digits of {source} in {to} that are exact")
    if to.is_integer and to.bits < source.bits:  # as in PTIR, to the nearest that there is
        x = smaller(emit, larger(emit, x, number(emit, to.min, source)), number(emit, to.max, source))
    digits = constant(emit, np.arange(-255, 256), to)
    halves: list[Value] = []
    for half in (range(source.bits // 2, source.bits, 8), range(0, source.bits // 2, 8)):
        total: Value | None = None
        for shift in reversed(half):
            digit = quotient(emit, x, 1 << shift)
            x = emit("Sub", x, emit("Mul", digit, number(emit, 1 << shift, source)))
            if to.is_integer and shift >= to.bits:
                continue  # what was moved into range has no such digits
            place = emit("Gather", digits, emit("Add", digit, number(emit, 255, source)))
            place = emit("Mul", place, number(emit, 1 << shift, to)) if shift else place
            total = place if total is None else emit("Add", total, place)
        halves += [] if total is None else [total]
    return halves[0] if len(halves) == 1 else emit("Add", *halves)


# Floats


def quiet(emit: MindEmit, x: Value) -> Value:
    """NaN for a NaN, in 0 … 1 otherwise."""
    return emit("Exp", emit("Neg", emit("Exp", x)))


def is_nan(emit: MindEmit, x: Value) -> Value:
    """1 for a NaN, else 0."""
    one = number(emit, 1, tensor_type(x).dtype)
    return emit("Relu", emit("Sub", one, emit("Relu", emit("Add", quiet(emit, x), one))))


def with_nans(emit: MindEmit, result: Value, *operands: Value) -> Value:
    """`result`, which has no NaNs, with NaN where one of the operands is NaN."""
    for x in operands:
        if not is_number(x):
            result = emit("Add", result, emit("Mul", quiet(emit, x), number(emit, 0, tensor_type(x).dtype)))
    return result


def among_numbers(emit: MindEmit, mask: Value, *operands: Value) -> Value:
    """`mask`, but 0 where one of the operands is a NaN."""
    for x in operands:
        if not is_number(x):
            mask = emit("Mul", mask, opposite(emit, is_nan(emit, x)))
    return mask


def choice(emit: MindEmit, mask: Value, x: Value, y: Value, other: Value | None = None) -> Value:
    """x where `mask` is 1, y where `other`, which is 1 - mask, is 1. A NaN becomes 0."""
    return emit("Add", kept(emit, mask, x), kept(emit, other or opposite(emit, mask), y))


def kept(emit: MindEmit, mask: Value, x: Value) -> Value:
    """x where `mask` is 1, else 0, also of an infinity, whose product with 0 is NaN: Relu makes that 0."""
    product = emit("Mul", mask, x)
    return emit("Sub", emit("Relu", product), emit("Relu", emit("Neg", product)))


def chosen(emit: MindEmit, mask: Value, x: Value, y: Value) -> Value:
    """x where `mask` is 1, y where it is 0. A selected NaN is recomputed as a difference of infinities."""
    other = opposite(emit, mask)
    result = choice(emit, mask, x, y, other)
    for own, v in ((mask, x), (other, y)):
        if not is_number(v):
            grown = emit("Exp", emit("Mul", emit("Mul", own, is_nan(emit, v)), number(emit, 1000, tensor_type(v).dtype)))
            result = emit("Add", result, emit("Sub", grown, grown))
    return result


def larger(emit: MindEmit, x: Value, y: Value) -> Value:
    """The larger of two numbers, exactly; NaN if one is."""
    return _first_where(emit, x, y, y, x)


def smaller(emit: MindEmit, x: Value, y: Value) -> Value:
    """The smaller of two numbers, exactly; NaN if one is."""
    return _first_where(emit, x, y, x, y)


def _first_where(emit: MindEmit, x: Value, y: Value, low: Value, high: Value) -> Value:
    """`x` where `low` is less than `high`, else `y`."""
    if is_integer(x):
        return picked(emit, less(emit, low, high), x, y)
    other = not_above(emit, high, low)
    return with_nans(emit, choice(emit, opposite(emit, other), x, y, other), x, y)


def whole(emit: MindEmit, result: Value) -> Value:
    """`result`, which broadcasts to the result, as the result."""
    if tensor_type(result).shape != emit.shape:
        result = stretched(emit, result, emit.type.static_shape)
    return settled(emit, result)


def _pair(build: Callable[[MindEmit, Value, Value], Value]) -> Rule:
    return lambda emit, op, x, y: whole(emit, build(emit, emit.narrow(x), emit.narrow(y)))


def _clamp(emit: MindEmit, op: Op, x: Read, low: Read, high: Read) -> Value:
    return whole(emit, smaller(emit, larger(emit, emit.narrow(x), emit.narrow(low)), emit.narrow(high)))


def _select(emit: MindEmit, op: Op, pred: Read, x: Read, y: Read) -> Value:
    if emit.type.dtype is I1:
        mask, a, b = masks(emit, pred, x, y)
        return whole(emit, (picked if is_integer(mask) else choice)(emit, mask, a, b))
    pick = picked if emit.type.dtype in INTEGERS else chosen
    return whole(emit, pick(emit, mask_in(emit, pred, emit.type.dtype), emit.narrow(x), emit.narrow(y)))


def mask_in(emit: MindEmit, x: Read, dtype: DType) -> Value:
    """A mask as 0 and 1 of `dtype`, from its representation, from integers or from a constant. Raises Violation."""
    mask = emit.narrow(x)
    if (source := tensor_type(mask).dtype) is dtype:
        return mask
    if is_integer(mask):
        return emit("Gather", constant(emit, (0, 1), dtype), mask)
    fixed = mask.op is not None and mask.op.defn.is_constant
    require(fixed, NOT_TRANSLATABLE, f"no operation of Core v1 makes {dtype} of {source}, in which this i1 is carried")
    assert mask.op is not None
    result = from_literal(mask.op.attr("value"))
    return emit.constant(to_literal(result.astype(numpy_dtype(dtype)), tensor(dtype, result.shape)))


def masks(emit: MindEmit, *operands: Read) -> list[Value]:
    """Masks in one dtype, that of the first float that is not a constant, or of the first integer. Raises Violation."""
    made = [emit.narrow(x) for x in operands]
    dtypes = [tensor_type(v).dtype for v in made if v.op is None or not v.op.defn.is_constant]
    dtype = next((d for d in dtypes if d in FLOATS), dtypes[0] if dtypes else F32)
    return [mask_in(emit, x, dtype) for x in operands]


def truth(emit: MindEmit, op: Op, x: Read) -> Value:
    """Whether each number is not 0, as a mask."""
    v = emit.narrow(x)
    if is_integer(v):
        return whole(emit, not_zero(emit, v))
    return whole(emit, compared(emit, "ne", v, number(emit, 0, tensor_type(v).dtype)))


def compared(emit: MindEmit, kind: str, a: Value, b: Value) -> Value:
    """The mask of a comparison."""
    if is_integer(a):
        return integers_compared(emit, kind, a, b)
    a, b = (b, a) if kind in ("lt", "ge") else (a, b)
    other = not_above(emit, a, b)
    if kind in ("gt", "lt"):
        return opposite(emit, other)
    if kind in ("eq", "ne"):
        other = emit("Mul", other, not_above(emit, b, a))  # neither is above
    result = among_numbers(emit, other, a, b)
    return opposite(emit, result) if kind == "ne" else result


def _compare(kind: str) -> Rule:
    def rule(emit: MindEmit, op: Op, x: Read, y: Read) -> Value:
        bools = tensor_type(op.operands[0]).dtype is I1
        a, b = masks(emit, x, y) if bools else (emit.narrow(x), emit.narrow(y))
        return whole(emit, compared(emit, kind, a, b))

    def folded(emit: MindEmit, op: Op, x: Read, y: Read) -> Value:
        """A mask made of constants alone, such as a causal mask, is a constant. So is one of integers."""
        result = known(op.result, emit.arrays, current().literal_bytes)
        if result is None:
            return rule(emit, op, x, y)
        return emit.constant(to_literal(result.astype(np.float32), tensor(F32, result.shape)), emit.name)

    return folded


def extreme(emit: MindEmit, x: Value, axis: int, build: Callable[[MindEmit, Value, Value], Value]) -> Value:
    """The largest (or smallest) elements along an axis, which keeps extent 1. The axis is halved, and the halves are compared,
    until one element is left."""
    while (n := tensor_type(x).static_shape[axis]) > 1:
        half, shape = (n + 1) // 2, tensor_type(x).static_shape
        sizes = tuple(half if i == axis else d for i, d in enumerate(shape))
        ends = tuple(n - half if i == axis else 0 for i in range(len(shape)))
        x = build(emit, window(emit, x, (0,) * len(shape), sizes), window(emit, x, ends, sizes))
    return x


def _reduced(build: Callable[[MindEmit, Value, Value], Value]) -> Rule:
    def rule(emit: MindEmit, op: Op, x: Read) -> Value:
        v = emit.value(x)
        rank = tensor_type(v).rank
        axes = sorted(a % rank for a in op.attr("axes"))
        require(op.attr("out_dtype") in (None, tensor_type(v).dtype), NOT_TRANSLATABLE, "MIND converts nothing")
        result = v
        for axis in axes:
            result = extreme(emit, result, axis, build)
        return settled(emit, reshaped(emit, result, emit.type.static_shape), v)

    return rule


def lowest(dtype: DType) -> float:
    """The lowest value of a dtype."""
    return -inf if dtype.is_float else dtype.min


def highest(dtype: DType) -> float:
    """The highest value of a dtype."""
    return inf if dtype.is_float else dtype.max


def windowed(emit: MindEmit, op: Op, x: Read) -> Value:
    """The sum of each window, which is exact, or its largest or smallest element."""
    if op.attr("reduce") == "sum":
        return reduce_window(emit, op, x)
    return extremes(emit, op, x)


def extremes(emit: MindEmit, op: Op, x: Read) -> Value:
    """The largest or smallest element of each window. The padding is a number that is never chosen."""
    v, kind, t = emit.value(x), op.attr("reduce"), emit.type
    build, empty = (larger, lowest(t.dtype)) if kind == "max" else (smaller, highest(t.dtype))
    require(all(d == 1 for d in op.attr("base_dilation")), NOT_TRANSLATABLE, "no windows over holes")
    pairs = op.attr("padding")
    v = filled_around(emit, v, pairs, padded_shape(v, pairs), empty)
    steps = list(zip(*(op.attr(n) for n in ("window_dims", "strides", "window_dilation")), strict=True))
    moved = [i for i, (taps, stride, _) in enumerate(steps) if (taps, stride) != (1, 1)]
    if not moved:
        return settled(emit, v, emit.value(x))
    read = gathered(emit, v, moved, [steps[i] for i in moved], [t.static_shape[i] for i in moved])
    k, shape = len(moved), tensor_type(read).static_shape
    flat = reshaped(emit, read, (*shape[:k], prod(shape[k : 2 * k]), *shape[2 * k :]))
    best = extreme(emit, flat, k, build)
    best = reshaped(emit, best, (*shape[:k], *shape[2 * k :]))
    order = [*moved, *(i for i in range(len(steps)) if i not in moved)]
    back = tuple(order.index(i) for i in range(len(order)))
    return settled(emit, best if list(back) == sorted(back) else emit("Transpose", best, permutation=back))


# Windows at starts that are data


def _placed(emit: MindEmit, start: Read, shape: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, Value, Value]]:
    """For each axis that the window does not cover whole: the axis, the start clamped to bounds, and the places of the window."""
    v = emit.value(start)
    dtype = tensor_type(v).dtype
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n != size:
            emit.affords(tensor(dtype, (n,)))
            first = emit("Index", v, indices=(axis,))
            first = smaller(emit, larger(emit, first, number(emit, 0, dtype)), number(emit, n - size, dtype))
            yield axis, first, emit("Add", first, constant(emit, np.arange(size), dtype))


def along(emit: MindEmit, x: Value, axis: int, places: Value) -> Value:
    """The elements of `x` at `places`, a vector, along `axis`."""
    rank = tensor_type(x).rank
    order = (axis, *(i for i in range(rank) if i != axis))
    turned = emit("Transpose", x, permutation=order) if axis else x
    rows = emit("Gather", turned, places)
    return emit("Transpose", rows, permutation=tuple(order.index(i) for i in range(rank))) if axis else rows


def _dynamic_slice(emit: MindEmit, op: Op, x: Read, start: Read) -> Value:
    """Along each axis a Gather of the places of the window."""
    v = result = emit.value(x)
    for axis, _, places in _placed(emit, start, tensor_type(v).static_shape, op.attr("sizes")):
        result = along(emit, result, axis, places)
    return settled(emit, result, v)


def _dynamic_update_slice(emit: MindEmit, op: Op, x: Read, update: Read, start: Read) -> Value:
    """Along each axis a Gather of the row of the update that is written at each place (any row where none is). Masks choose
    between update and operand."""
    v, result = emit.value(x), emit.value(update)
    shape, sizes = tensor_type(v).static_shape, op.attr("sizes")
    masks = list[Value]()
    for axis, first, _ in _placed(emit, start, shape, sizes):
        dtype, n = tensor_type(first).dtype, shape[axis]
        wanted = emit("Sub", constant(emit, np.arange(n), dtype), first)
        row = smaller(emit, larger(emit, wanted, number(emit, 0, dtype)), number(emit, sizes[axis] - 1, dtype))
        result = along(emit, result, axis, row)
        mask = opposite(emit, not_zero(emit, emit("Sub", wanted, row)))
        masks.append(reshaped(emit, mask, tuple(n if i == axis else 1 for i in range(len(shape)))))
    if not masks:
        return settled(emit, result, emit.value(update))
    mask = masks[0]
    for more in masks[1:]:
        mask = emit("Mul", mask, more)
    t = tensor_type(v)
    if t.dtype in INTEGERS and tensor_type(mask).dtype is t.dtype:
        return settled(emit, picked(emit, mask, result, v))
    chosen_by = emit("Gather", constant(emit, (0, 1), t.dtype), mask)
    return settled(emit, (picked if t.dtype in INTEGERS else chosen)(emit, chosen_by, result, v))


def _gather(emit: MindEmit, op: Op, x: Read, indices: Read) -> Value:
    """A Gather of the flattened elements. An index that is out of bounds, an error in PTIR, is clamped to those of the whole
    tensor."""
    v, at = emit.value(x), emit.value(indices)
    shape, dtype = tensor_type(v).static_shape, tensor_type(at).dtype
    axis, count = op.attr("axis") % len(shape), prod(shape)
    require(count <= dtype.max // 2, NOT_TRANSLATABLE, f"{count} places are too many for {dtype}")
    emit.affords(tensor(dtype, shape))
    below = prod(shape[axis + 1 :])
    places = (
        np.arange(count).reshape(shape)
        - np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]) * below
    )
    base = constant(emit, np.take(places, [0], axis), dtype)
    inside = smaller(emit, larger(emit, at, number(emit, 0, dtype)), number(emit, shape[axis] - 1, dtype))
    out = emit("Mul", not_zero(emit, emit("Sub", at, inside)), number(emit, count, dtype))
    flat = emit("Add", emit("Add", emit("Mul", inside, number(emit, below, dtype)), base), out)
    return settled(emit, emit("Gather", reshaped(emit, v, (count,)), flat))


# Quotients


_CLEAR_OF_CLEAR = frozenset(
    {"reshape", "broadcast_to", "transpose", "slice", "reduce_sum", "reduce_max", "reduce_min", "add", "mul", "div", "maximum"}
    | {"minimum", "reciprocal", "rsqrt", "select", "take", "tile", "concat", "cast"}
)


def unsigned(x: Operand) -> bool:
    """Whether `x` is never below 0, and never -0.0, by what defines it: exponentials, squares, constants and what these give."""
    return holds(x, _is_unsigned)


def _is_unsigned(x: Operand) -> bool | Sequence[Operand]:
    literal = constant_of(x)
    if literal is not None and literal.type.dtype in FLOATS:
        return not np.signbit(from_literal(literal)).any()
    op = x.op if isinstance(x, Value) else None
    if op is None:
        return False
    short, operands = op.defn.short, op.operands[1 if op.defn.short == "select" else 0 :]
    if tensor_type(x).dtype not in FLOATS:
        return False
    if short in ("exp", "abs") or (short == "mul" and operands[0] is operands[1]) or relu_of(op):
        return True
    return short in _CLEAR_OF_CLEAR and operands[: 1 if short == "take" else None]


def relu_of(op: Op) -> bool:
    """Whether `op` is `select(compare_gt(x, 0), x, 0)`."""
    return op.defn.short == "select" and relu_operand(op) is not None


def inverse(emit: MindEmit, x: Value) -> Value:
    """1 / x of an x that is not negative, within 2 units of the last place; 0 and infinity give each other."""
    dtype = tensor_type(x).dtype
    one, half = number(emit, 1, dtype), number(emit, 0.5, dtype)
    r = emit("Exp", emit("Neg", emit("Log", x)))
    q = emit("Mul", x, r)  # nearly 1, or NaN for 0 and infinity
    over = emit("Relu", emit("Sub", half, emit("Relu", emit("Sub", q, one))))
    return emit("Mul", r, emit("Add", emit("Relu", emit("Sub", one, q)), emit("Add", half, over)))


def sign(emit: MindEmit, x: Value) -> Value:
    """-1 below 0, else 1."""
    dtype = tensor_type(x).dtype
    up = not_above(emit, number(emit, 0, dtype), x)
    return emit("Sub", emit("Add", up, up), number(emit, 1, dtype))


def ratio(emit: MindEmit, x: Value | None, y: Value, clear: bool) -> Value:
    """x / y, or 1 / y. Where y or its reciprocal is nearly out of range, y is first scaled by a power of two."""
    dtype = tensor_type(y).dtype
    bound, step = (2.0**100, 2.0**24) if dtype is F32 else (2.0**1000, 2.0**52)
    one = number(emit, 1, dtype)
    turn = None if clear else sign(emit, y)
    size = y if turn is None else emit("Mul", y, turn)
    small = not_above(emit, size, number(emit, 1 / bound, dtype))
    large = not_above(emit, number(emit, bound, dtype), size)
    up, down = emit("Mul", small, number(emit, step - 1, dtype)), emit("Mul", large, number(emit, 1 / step - 1, dtype))
    factor = emit("Add", emit("Add", up, down), one)
    result = inverse(emit, emit("Mul", size, factor))
    result = result if x is None else emit("Mul", x, result)
    result = emit("Mul", result, factor)
    return result if turn is None else emit("Mul", result, turn)


def require_sign(emit: MindEmit, x: Operand) -> bool:
    """Whether `x` is unsigned. Raise Violation where it is not known to be and nothing may be lost: no operation of Core v1 tells
    -0.0 from 0.0, whose reciprocals are infinities of either sign."""
    clear = unsigned(x)
    help = "--lossy reads it as 0.0"
    require(clear or emit.options[LOSSY], NOT_TRANSLATABLE, "no operation of Core v1 tells a divisor -0.0 from 0.0", help=help)
    return clear


def _reciprocal(emit: MindEmit, op: Op, x: Read) -> Value:
    return whole(emit, ratio(emit, None, emit.narrow(x), require_sign(emit, op.operands[0])))


def _div(emit: MindEmit, op: Op, x: Read, y: Read) -> Value:
    """The product with the reciprocal."""
    return whole(emit, ratio(emit, emit.narrow(x), emit.narrow(y), require_sign(emit, op.operands[1])))


def _division(emit: MindEmit, op: Op, x: Read, y: Read) -> Value:
    if emit.type.dtype in FLOATS:
        emit.note("a quotient becomes a formula through Log, within 3 units of the last place")
        return _div(emit, op, x, y)
    n = _divisor(op)
    return emit.value(x) if n == 1 else whole(emit, _quotient(emit, emit.narrow(x), n))


def _divisor(op: Op) -> int:
    """The one number by which integers are divided. Raises Violation."""
    n = splat_of(op.operands[1])
    require(isinstance(n, int) and n != 0, NOT_TRANSLATABLE, "MIND divides integers by one number that is not 0")
    assert isinstance(n, int)
    return n


def _quotient(emit: MindEmit, x: Value, n: int) -> Value:
    """x / n, toward zero."""
    result = quotient(emit, x, abs(n))
    return emit("Neg", result) if n < 0 else result


def _left_over(emit: MindEmit, op: Op, x: Read) -> Value:
    """The remainder of the quotient toward zero by one number. Raises Violation for floats and other divisors."""
    dtype = tensor_type(op.operands[0]).dtype
    require(dtype in INTEGERS, NOT_TRANSLATABLE, f"MIND has no `{op.defn.short}` of {dtype}")
    v, n = emit.narrow(x), _divisor(op)
    return emit("Sub", v, emit("Mul", _quotient(emit, v, n), number(emit, n, dtype)))


def _rem(emit: MindEmit, op: Op, x: Read, y: Read) -> Value:
    return whole(emit, _left_over(emit, op, x))


def _mod(emit: MindEmit, op: Op, x: Read, y: Read) -> Value:
    """The remainder, and the divisor once more where that has the other sign."""
    left, n = _left_over(emit, op, x), _divisor(op)
    other = negative(emit, left if n > 0 else emit("Neg", left))
    return whole(emit, emit("Add", left, emit("Mul", other, number(emit, n, tensor_type(left).dtype))))


def _rsqrt(emit: MindEmit, op: Op, x: Read) -> Value:
    """Exp(-0.5 Log x), then a step of Newton's method."""
    require_sign(emit, op.operands[0])
    v, dtype = emit.narrow(x), emit.type.dtype
    r = emit("Exp", emit("Mul", emit("Log", v), number(emit, -0.5, dtype)))
    left = emit("Sub", number(emit, 1, dtype), emit("Relu", emit("Mul", emit("Mul", v, r), r)))
    return whole(emit, emit("Add", r, emit("Mul", emit("Mul", r, left), number(emit, 0.5, dtype))))


def _tanh(emit: MindEmit, op: Op, x: Read) -> Value:
    """1 - 2 / (exp(2x) + 1), whose error is within the last place of 1."""
    v, dtype = emit.narrow(x), emit.type.dtype
    one = number(emit, 1, dtype)
    r = emit("Exp", emit("Neg", emit("Log", emit("Add", emit("Exp", emit("Add", v, v)), one))))
    return whole(emit, emit("Sub", one, emit("Add", r, r)))


def _erf(emit: MindEmit, op: Op, x: Read) -> Value:
    """1 - t * exp(-x**2 + P(t)), t = 1 / (1 + |x| / 2), with Chebyshev's fit of Numerical Recipes, within 1.2e-7. For |x| below
    1 the series 2 / sqrt(pi) * (x - x**3/3 + x**5/10 - …)."""
    dtype = emit.type.dtype
    require(dtype is F32, NOT_TRANSLATABLE, "the formula for `erf` is not precise enough for f64")
    v, one = emit.narrow(x), number(emit, 1, dtype)
    turn = sign(emit, v)
    size = emit("Mul", v, turn)
    t = inverse(emit, emit("Add", emit("Mul", size, number(emit, 0.5, dtype)), one))
    total = number(emit, ERFC[-1], dtype)
    for c in reversed(ERFC[:-1]):
        total = emit("Add", emit("Mul", t, total), number(emit, c, dtype))
    power = emit("Exp", emit("Sub", total, emit("Mul", v, v)))
    is_small = not_above(emit, size, one)
    inside = kept(emit, is_small, emit("Mul", v, v))  # what is not chosen stays finite
    series = number(emit, ERF[-1], dtype)
    for c in reversed(ERF[:-1]):
        series = emit("Add", emit("Mul", inside, series), number(emit, c, dtype))
    small = emit("Mul", kept(emit, is_small, v), series)
    large = emit("Mul", turn, emit("Sub", one, emit("Mul", t, power)))
    return whole(emit, emit("Add", small, emit("Mul", opposite(emit, is_small), large)))


def _abs(emit: MindEmit, op: Op, x: Read) -> Value:
    v = emit.narrow(x)
    if is_integer(v):
        return whole(emit, picked(emit, negative(emit, v), emit("Neg", v), v))
    return whole(emit, with_nans(emit, emit("Add", emit("Relu", v), emit("Relu", emit("Neg", v))), v))


FORMULAS: dict[str, Rule] = {
    "maximum": _pair(larger),
    "minimum": _pair(smaller),
    "clamp": _clamp,
    "select": _select,
    **{f"compare_{k}": _compare(k) for k in ("gt", "ge", "lt", "le", "eq", "ne")},
    "reduce_max": _reduced(larger),
    "reduce_min": _reduced(smaller),
    "reduce_window": windowed,
    "abs": _abs,
    "div": _division,
    "rem": _rem,
    "mod": _mod,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "reciprocal": of_floats(_reciprocal, "a reciprocal becomes a formula through Log, within 2 units of the last place"),
    "rsqrt": of_floats(_rsqrt, "rsqrt becomes a formula through Log, within 2 units of the last place"),
}

LOSSY_FORMULAS: dict[str, Rule] = {
    "tanh": of_floats(_tanh, "within 4 units of the last place of 1"),
    "erf": of_floats(_erf, "within 4 units of the last place of 1"),
}
