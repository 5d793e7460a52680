"""PTIR to MIND: ops that are several operations of Core v1, exactly or within rounding.

An i1 is represented as 0 or 1 in the dtype of the values that were compared. Of floats, x > y is `1 - n` with `n = Relu(1 -
Relu(x - y) * b * b)`, b so large that every positive difference becomes 1 or more. A choice is `m * x + (1 - m) * y` without the
NaNs of 0 times infinity, which Relu makes 0. `Exp(-Exp(x))` is NaN for a NaN and in 0 … 1 otherwise: it propagates NaNs. 1 / |x|
is `Exp(-Log |x|)`, then a step of Newton's method. Infinities, zeros and NaNs give the right results, so that MIND to PTIR can
recover the ops; the sign of a zero is lost.

Of integers, the Mean of x and zeros is a quotient; in profile `current` Div is. `mind_to_ptir.integers` recognizes the formulas
that are made of quotients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf, prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.patterns import constant_of, relu_operand, splat_of
from ptir_tools.convert.ptir_to_mind.emit import MindEmit, Read
from ptir_tools.convert.ptir_to_mind.windows import filled_around, gathered, padded_shape, reduce_window, settled
from ptir_tools.convert.ranges import Range
from ptir_tools.convert.series import ERF, ERFC
from ptir_tools.core.arrays import Array, from_literal, numpy_dtype, to_literal
from ptir_tools.core.dialect import PROFILE
from ptir_tools.core.dtypes import F32, F64, I1, SI32, SI64, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.core.walks import holds
from ptir_tools.dialects.mind.building import constant, gather, mean, relu, reshaped, stretched, transposed, window
from ptir_tools.dialects.mind.ops.common import CURRENT
from ptir_tools.dialects.mind.ops.reduce import truncated
from ptir_tools.rewrite.constants import known, literal_of
from ptir_tools.rewrite.expression import Term, exp, log, series
from ptir_tools.rewrite.vocabulary import tensor_type

FLOATS, INTEGERS = (F32, F64), (SI32, SI64)
Pair = Callable[[Term, Term], Term]


def of_floats(rule: Rule, note: str = "") -> Rule:
    """A rule for floats alone, with a note on what is rounded."""

    def guarded(emit: MindEmit, op: Op, *operands: Read) -> Term:
        dtypes = {tensor_type(x).dtype for x in op.operands} - {I1}
        if not dtypes <= set(FLOATS):
            raise Violation(NOT_TRANSLATABLE, f"{emit.title} has no `{op.defn.short}` of {next(iter(dtypes - set(FLOATS)))}")
        if note:
            emit.note(note)
        result: Term = rule(emit, op, *operands)
        return result

    return guarded


def is_integer(x: Term) -> bool:
    """Whether `x` is a tensor of integers."""
    return x.dtype in INTEGERS


def not_above(x: Term, y: Term | float) -> Term:
    """1 where x > y does not hold, else 0."""
    return _not_positive(x - y)


def not_below(x: Term, y: float) -> Term:
    """1 where x < y does not hold, else 0."""
    return _not_positive(y - x)


def _not_positive(x: Term) -> Term:
    """1 where x > 0 does not hold, else 0."""
    big = 2.0 ** (127 if x.dtype is F32 else 1023)
    return relu(1 - relu(x) * big * big)


def fixed(x: Operand) -> Literal | None:
    """The literal that `x` is, with its payload."""
    literal = literal_of(x)
    return literal if literal is not None and literal.data is not None else None


def only(x: Term) -> int | None:
    """The integer that all elements of the constant `x` are."""
    literal = fixed(x.operand)
    array = None if literal is None else from_literal(literal).reshape(-1)
    return int(array[0]) if array is not None and array.size and (array == array[0]).all() else None


def is_number(x: Operand) -> bool:
    """Whether `x` is a constant without NaN."""
    literal = fixed(x)
    return literal is not None and not np.isnan(from_literal(literal)).any()


# Integers


MOST = 1 << 20  # the elements of the product of which a quotient is the Mean
LONGEST = 1 << 11  # the most terms of one Mean; a quotient by more is computed in factors


def quotient(x: Term, n: int, turned: Sequence[int] = (1,)) -> Term:
    """x / n of integers, toward zero: the Mean of x and n - 1 zeros, along an axis before the others. `turned` are 1, or -1 where
    the result is negated: one for all, or one for each element along the first axis. Where n has one factor and something is
    negated, x is not the smallest integer. Raises Violation for an n with large prime factors."""
    if n == 1:
        return x
    turn = np.asarray(turned, numpy_dtype(x.dtype)).reshape((-1, *[1] * (len(x.extents) - 1)) if x.extents else ())
    if (literal := fixed(x.operand)) is not None:
        return constant(x, truncated(from_literal(literal), n) * turn)
    assert isinstance(x.sink, MindEmit)
    if x.sink.options[PROFILE] == CURRENT:
        low = n > x.dtype.max  # only the negated number is one of the dtype
        return x / constant(x, (-n if low else n) * (-turn if low else turn))
    sizes = parts(n, max(64, min(LONGEST, MOST // max(prod(x.extents), 1))))
    for size in sizes[:-1]:
        x = _shared(x, size, np.ones_like(turn[:1] if turn.ndim else turn))
    return _shared(x, sizes[-1], turn)


def _shared(x: Term, n: int, turn: Array) -> Term:
    """The Mean of the product of `x` with `turn` and of n - 1 zeros."""
    row = np.concatenate([turn[None], np.zeros((n - 1, *turn.shape), turn.dtype)])
    return mean(x * constant(x, row), axes=(0,), keepdims=False)


def parts(n: int, most: int) -> list[int]:
    """Factors whose product is `n`, each at most `most` where possible: of a power of two as few as there can be, and alike.
    Raises Violation."""
    if n & (n - 1) == 0:
        bits = n.bit_length() - 1
        count = -(-bits // (most.bit_length() - 1))
        return [1 << (bits + i) // count for i in range(count)]
    results, left, factor = [1], n, 2
    while left > 1:
        factor = factor if left % factor == 0 else factor + 1 if factor * factor <= left else left
        require(factor <= 2 * LONGEST, NOT_TRANSLATABLE, f"a Mean of {factor} numbers would be too big")
        if left % factor == 0:
            left //= factor
            results[-1:] = [results[-1] * factor] if results[-1] * factor <= most else [results[-1], factor]
    return [part for part in results if part > 1]


FLAG = (0, 1)  # the span of a mask
FEW = 1 << 11  # the most entries of a table of all values


def span(x: Term) -> Range:
    """The least and the greatest of integers, as far as it is known."""
    if (literal := fixed(x.operand)) is not None and (array := from_literal(literal)).size:
        return int(array.min()), int(array.max())
    assert isinstance(x.sink, MindEmit)
    return x.sink.spans.get(x.operand, (x.dtype.min, x.dtype.max))


def spanning(x: Term, known: Range) -> Term:
    """`x`, whose integers are known to be in a range."""
    assert isinstance(x.sink, MindEmit)
    x.sink.spans[x.operand] = known
    return x


def apart(x: Term, y: Term) -> int:
    """The largest difference of two integers."""
    a, b = span(x), span(y)
    return max(a[1] - b[0], b[1] - a[0], 1)


def _close(x: Term, within: int | None) -> tuple[Term, int]:
    """An integer with the sign of x, and a power of two that it does not exceed, at most a quarter of the range. It is x if that
    is `within` so much, else x without its half."""
    quarter = 1 << x.dtype.bits - 2
    if within is not None and within <= quarter:
        return x, max(2, 1 << (within - 1).bit_length())
    return x - quotient(x, 2), quarter


def negative(x: Term, turned: Sequence[int] = (1,), within: int | None = None) -> Term:
    """1 where an integer is below 0, else 0, or what `turned` makes of it."""
    near, size = _close(x, within)
    return quotient(near - (size - 1), size, [-t for t in turned])


def positive(x: Term, within: int | None = None) -> Term:
    """1 where an integer is above 0, else 0."""
    near, size = _close(x, within)
    return quotient(near + (size - 1), size)


def inner(dtype: DType, m: int) -> bool:
    """Whether `m` is a number that is not next to an end of the range."""
    quarter = 1 << dtype.bits - 2
    return -quarter < m >> 1 < quarter - 1


def beyond(x: Term, m: int) -> tuple[Term, bool]:
    """Of an integer: a mask, and whether that is 1 where x > m, which it is for an m that is not negative. Else it is 1 where
    x <= m. Half of x, rounded to zero or away from it, shows it. m is `inner`."""
    quarter, k, above = 1 << x.dtype.bits - 2, m >> 1, m >= 0
    half = quotient(x, 2)
    near = half if (m % 2 == 1) == above else x - half
    return (quotient(near + (quarter - 1 - k), quarter) if above else quotient(near - (quarter + k), quarter, (-1,))), above


def less(x: Term, y: Term) -> Term:
    """1 where x < y, of integers."""
    mask, inverted = less_or_not(x, y)
    return 1 - mask if inverted else mask


def less_or_not(x: Term, y: Term) -> tuple[Term, bool]:
    """A mask, and whether that is 0 where x < y, of integers, else 1. At least two of `x < 0`, `not y < 0` and `x - y < 0` hold;
    the third may be wrong, because the difference wraps."""
    if span(x) == span(y) == FLAG:
        return y - x * y, False
    within = apart(x, y)
    a, b = only(x), only(y)
    if b == 0:
        return negative(x, within=within), False
    if a == 0:
        return positive(y, within), False
    if within <= 1 << x.dtype.bits - 2:
        return negative(x - y, within=within), False
    if b is not None and inner(x.dtype, b - 1):
        return beyond(x, b - 1)
    if a is not None and inner(x.dtype, a):
        mask, above = beyond(y, a)
        return mask, not above
    ones = (1,) * max(len(x.extents), len(y.extents))

    def along(*numbers: int) -> Term:
        return constant(x, np.reshape(numbers, (3, *ones)))

    tests = negative(x * along(1, 0, 1) + y * along(0, 1, -1), (1, -1, 1))
    return mean(tests + along(1, 1, 0), axes=(0,), keepdims=False), False


def is_zero(x: Term) -> Term:
    """1 where an integer is 0, else 0: only then its sum with the smallest integer is that."""
    return quotient(x + x.dtype.min, -x.dtype.min, (-1,))


def not_zero(x: Term) -> Term:
    """1 where an integer is not 0, else 0."""
    return x if span(x) == FLAG else 1 - is_zero(x)


def equal(x: Term, y: Term) -> Term:
    """1 where two integers are equal, else 0. Of integers that are never far apart, the square of the difference shows it."""
    within, one = apart(x, y), x - y
    if within == 1:
        return 1 - one * one
    size = 1 << (within * within - 1).bit_length()
    return quotient(size - one * one, size) if size <= LONGEST**2 else is_zero(one)


def picked(mask: Term, x: Term, y: Term) -> Term:
    """x where `mask` is 1, y where it is 0, of integers."""
    return y + mask * (x - y)


def integers_compared(kind: str, a: Term, b: Term) -> Term:
    """The mask of a comparison of integers."""
    if kind in ("eq", "ne"):
        if only(b) == 0 and kind == "ne":
            return not_zero(a)
        if kind == "ne" and apart(a, b) == 1:
            return (a - b) * (a - b)
        return equal(a, b) if kind == "eq" else 1 - equal(a, b)
    mask, inverted = less_or_not(b, a) if kind in ("gt", "le") else less_or_not(a, b)
    return mask if inverted == (kind in ("le", "ge")) else 1 - mask


def converted(x: Term, to: DType) -> Term:
    """Integers in another dtype: tables give their digits in it, and the halves of them are added. Raises Violation where a half
    is not exact."""
    least, most = span(x)
    if most - least < FEW:
        numbers = np.arange(least, most + 1)
        numbers = np.clip(numbers, to.min, to.max) if to.is_integer else numbers
        return gather(constant(x, numbers, to), x if least == 0 else x - least)
    source, exact = x.dtype, {F32: 24, F64: 53}.get(to, 64)
    require(source.bits // 2 <= exact, NOT_TRANSLATABLE, f"MIND has no digits of {source} in {to} that are exact")
    if to.is_integer and to.bits < source.bits:  # as in PTIR, to the nearest that there is
        x = smaller(larger(x, x.number(to.min)), x.number(to.max))
    digits = constant(x, np.arange(-255, 256), to)
    halves: list[Term] = []
    for half in (range(source.bits // 2, source.bits, 8), range(0, source.bits // 2, 8)):
        total: Term | None = None
        for shift in reversed(half):
            digit = quotient(x, 1 << shift)
            x = x - digit * (1 << shift)
            if to.is_integer and shift >= to.bits:
                continue  # what was moved into range has no such digits
            place = gather(digits, digit + 255)
            place = place * (1 << shift) if shift else place
            total = place if total is None else total + place
        halves += [] if total is None else [total]
    return halves[0] if len(halves) == 1 else halves[0] + halves[1]


# Floats


def quiet(x: Term) -> Term:
    """NaN for a NaN, in 0 … 1 otherwise."""
    return exp(-exp(x))


def is_nan(x: Term) -> Term:
    """1 for a NaN, else 0."""
    return relu(1 - relu(quiet(x) + 1))


def with_nans(result: Term, *operands: Term) -> Term:
    """`result`, which has no NaNs, with NaN where one of the operands is NaN."""
    for x in operands:
        if not is_number(x.operand):
            result = result + quiet(x) * 0
    return result


def among_numbers(mask: Term, *operands: Term) -> Term:
    """`mask`, but 0 where one of the operands is a NaN."""
    for x in operands:
        if not is_number(x.operand):
            mask = mask * (1 - is_nan(x))
    return mask


def choice(mask: Term, x: Term, y: Term, other: Term | None = None) -> Term:
    """x where `mask` is 1, y where `other`, which is 1 - mask, is 1. A NaN becomes 0."""
    return kept(mask, x) + kept(1 - mask if other is None else other, y)


def kept(mask: Term, x: Term) -> Term:
    """x where `mask` is 1, else 0, also of an infinity, whose product with 0 is NaN: Relu makes that 0."""
    product = mask * x
    return relu(product) - relu(-product)


def chosen(mask: Term, x: Term, y: Term) -> Term:
    """x where `mask` is 1, y where it is 0. A selected NaN is recomputed as a difference of infinities."""
    other = 1 - mask
    result = choice(mask, x, y, other)
    for own, v in ((mask, x), (other, y)):
        if not is_number(v.operand):
            grown = exp(own * is_nan(v) * 1000)
            result = result + (grown - grown)
    return result


def larger(x: Term, y: Term) -> Term:
    """The larger of two numbers, exactly; NaN if one is."""
    return _first_where(x, y, y, x)


def smaller(x: Term, y: Term) -> Term:
    """The smaller of two numbers, exactly; NaN if one is."""
    return _first_where(x, y, x, y)


def _first_where(x: Term, y: Term, low: Term, high: Term) -> Term:
    """`x` where `low` is less than `high`, else `y`."""
    if is_integer(x):
        if span(x) == span(y) == FLAG:
            return x * y if x is low else x + y - x * y
        mask, inverted = less_or_not(low, high)
        return picked(mask, y, x) if inverted else picked(mask, x, y)
    other = not_above(high, low)
    return with_nans(choice(1 - other, x, y, other), x, y)


def held(x: Term, low: float, high: float) -> Term:
    """`x` moved into the range."""
    return smaller(larger(x, x.number(low)), x.number(high))


def whole(emit: MindEmit, result: Term) -> Term:
    """`result`, which broadcasts to the result, as the result."""
    if result.shape != emit.shape:
        result = stretched(result, emit.type.static_shape)
    return settled(emit, result)


def _narrow(formula: Callable[..., Term]) -> Rule:
    """The rule of a formula whose operands broadcast by themselves."""
    return lambda emit, op, *operands: whole(emit, formula(*map(emit.narrow, operands)))


def _select(emit: MindEmit, op: Op, pred: Read, x: Read, y: Read) -> Term:
    if emit.type.dtype is I1:
        mask, a, b = masks(emit, pred, x, y)
        return whole(emit, (picked if is_integer(mask) else choice)(mask, a, b))
    pick = picked if emit.type.dtype in INTEGERS else chosen
    return whole(emit, pick(mask_in(emit, pred, emit.type.dtype), emit.narrow(x), emit.narrow(y)))


def mask_in(emit: MindEmit, x: Read, dtype: DType) -> Term:
    """A mask as 0 and 1 of `dtype`, from its representation, from integers or from a constant. Raises Violation."""
    mask = emit.narrow(x)
    if mask.dtype is dtype:
        return mask
    if is_integer(mask):
        return gather(constant(mask, (0, 1), dtype), mask)
    literal = fixed(mask.operand)
    why = f"no operation of Core v1 makes {dtype} of {mask.dtype}, in which this i1 is carried"
    require(literal is not None, NOT_TRANSLATABLE, why)
    assert literal is not None
    result = from_literal(literal)
    return emit.constant(to_literal(result.astype(numpy_dtype(dtype)), tensor(dtype, result.shape)))


def masks(emit: MindEmit, *operands: Read) -> list[Term]:
    """Masks in one dtype, that of the first float that is not a constant, or of the first integer. Raises Violation."""
    dtypes = [v.dtype for v in map(emit.narrow, operands) if fixed(v.operand) is None]
    dtype = next((d for d in dtypes if d in FLOATS), dtypes[0] if dtypes else F32)
    return [mask_in(emit, x, dtype) for x in operands]


def truth(emit: MindEmit, op: Op, x: Read) -> Term:
    """Whether each number is not 0, as a mask."""
    v = emit.narrow(x)
    return whole(emit, not_zero(v) if is_integer(v) else compared("ne", v, v.number(0)))


def compared(kind: str, a: Term, b: Term) -> Term:
    """The mask of a comparison."""
    if is_integer(a):
        return integers_compared(kind, a, b)
    a, b = (b, a) if kind in ("lt", "ge") else (a, b)
    other = not_above(a, b)
    if kind in ("gt", "lt"):
        return 1 - other
    if kind in ("eq", "ne"):
        other = other * not_above(b, a)  # neither is above
    result = among_numbers(other, a, b)
    return 1 - result if kind == "ne" else result


def _compare(kind: str) -> Rule:
    def folded(emit: MindEmit, op: Op, x: Read, y: Read) -> Term:
        """A mask made of constants alone, such as a causal mask, is a constant. So is one of integers."""
        result = known(op.result, emit.arrays, current().literal_bytes)
        if result is not None:
            return emit.constant(to_literal(result.astype(np.float32), tensor(F32, result.shape)), emit.name)
        bools = tensor_type(op.operands[0]).dtype is I1
        a, b = masks(emit, x, y) if bools else (emit.narrow(x), emit.narrow(y))
        return whole(emit, compared(kind, a, b))

    return folded


def extreme(x: Term, axis: int, pick: Pair) -> Term:
    """The largest (or smallest) elements along an axis, which keeps extent 1. The axis is halved, and the halves are compared,
    until one element is left."""
    while (n := x.extents[axis]) > 1:
        half, shape = (n + 1) // 2, x.extents
        sizes = tuple(half if i == axis else d for i, d in enumerate(shape))
        ends = tuple(n - half if i == axis else 0 for i in range(len(shape)))
        parts = window(x, (0,) * len(shape), sizes), window(x, ends, sizes)
        if is_integer(x):
            known = span(x)
            x = spanning(pick(*(spanning(part, known) for part in parts)), known)
        else:
            x = pick(*parts)
    return x


def _reduced(pick: Pair) -> Rule:
    def rule(emit: MindEmit, op: Op, x: Read) -> Term:
        result = v = emit.value(x)
        require(op.attr("out_dtype") in (None, v.dtype), NOT_TRANSLATABLE, "MIND converts nothing")
        axes = tuple(sorted(a % len(v.shape) for a in op.attr("axes")))
        if is_integer(v) and span(v) == FLAG and axes:
            least = pick is smaller
            found = mean(v if least else 1 - v, axes=axes, keepdims=False)
            return settled(emit, found if least else 1 - found, v)
        for axis in axes:
            result = extreme(result, axis, pick)
        return settled(emit, reshaped(result, emit.type.static_shape), v)

    return rule


def windowed(emit: MindEmit, op: Op, x: Read) -> Term:
    """The sum of each window, which is exact, or its largest or smallest element."""
    if op.attr("reduce") == "sum":
        return reduce_window(emit, op, x)
    return extremes(emit, op, x)


def extremes(emit: MindEmit, op: Op, x: Read) -> Term:
    """The largest or smallest element of each window. The padding is a number that is never chosen."""
    v, largest, t = emit.value(x), op.attr("reduce") == "max", emit.type
    ends = (-inf, inf) if t.dtype.is_float else (t.dtype.min, t.dtype.max)
    require(all(d == 1 for d in op.attr("base_dilation")), NOT_TRANSLATABLE, "no windows over holes")
    pairs = op.attr("padding")
    v = filled_around(emit, v, pairs, padded_shape(v, pairs), ends[0 if largest else 1])
    steps = list(zip(*(op.attr(n) for n in ("window_dims", "strides", "window_dilation")), strict=True))
    moved = [i for i, (taps, stride, _) in enumerate(steps) if (taps, stride) != (1, 1)]
    if not moved:
        return settled(emit, v, emit.value(x))
    read = gathered(emit, v, moved, [steps[i] for i in moved], [t.static_shape[i] for i in moved])
    k, shape = len(moved), read.extents
    flat = reshaped(read, (*shape[:k], prod(shape[k : 2 * k]), *shape[2 * k :]))
    best = reshaped(extreme(flat, k, larger if largest else smaller), (*shape[:k], *shape[2 * k :]))
    order = [*moved, *(i for i in range(len(steps)) if i not in moved)]
    return settled(emit, transposed(best, [order.index(i) for i in range(len(order))]))


# Windows at starts that are data


def _placed(emit: MindEmit, start: Read, shape: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[int, Term, Term]]:
    """For each axis that the window does not cover whole: the axis, the start clamped to bounds, and the places of the window."""
    v = emit.value(start)
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n != size:
            emit.affords(tensor(v.dtype, (n,)))
            first = held(v.op("Index", v, indices=(axis,)), 0, n - size)
            yield axis, first, first + constant(v, np.arange(size))


def along(x: Term, axis: int, places: Term) -> Term:
    """The elements of `x` at `places`, a vector, along `axis`."""
    order = (axis, *(i for i in range(len(x.shape)) if i != axis))
    return transposed(gather(transposed(x, order), places), [order.index(i) for i in range(len(order))])


def _dynamic_slice(emit: MindEmit, op: Op, x: Read, start: Read) -> Term:
    """Along each axis a Gather of the places of the window."""
    v = result = emit.value(x)
    for axis, _, places in _placed(emit, start, v.extents, op.attr("sizes")):
        result = along(result, axis, places)
    return settled(emit, result, v)


def _dynamic_update_slice(emit: MindEmit, op: Op, x: Read, update: Read, start: Read) -> Term:
    """Along each axis a Gather of the row of the update that is written at each place (any row where none is). Masks choose
    between update and operand."""
    v, result = emit.value(x), emit.value(update)
    shape, sizes = v.extents, op.attr("sizes")
    mask: Term | None = None
    for axis, first, _ in _placed(emit, start, shape, sizes):
        n = shape[axis]
        wanted = constant(first, np.arange(n)) - first
        row = held(wanted, 0, sizes[axis] - 1)
        result = along(result, axis, row)
        inside = reshaped(is_zero(wanted - row), tuple(n if i == axis else 1 for i in range(len(shape))))
        mask = inside if mask is None else mask * inside
    if mask is None:
        return settled(emit, result, emit.value(update))
    if is_integer(v) and mask.dtype is v.dtype:
        return settled(emit, picked(mask, result, v))
    chosen_by = gather(constant(v, (0, 1)), mask)
    return settled(emit, (picked if is_integer(v) else chosen)(chosen_by, result, v))


def _gather(emit: MindEmit, op: Op, x: Read, indices: Read) -> Term:
    """A Gather of the flattened elements. An index that is out of bounds, an error in PTIR, is clamped to those of the whole
    tensor."""
    v, at = emit.value(x), emit.value(indices)
    shape, dtype = v.extents, at.dtype
    axis, count = op.attr("axis") % len(shape), prod(shape)
    require(count <= dtype.max // 2, NOT_TRANSLATABLE, f"{count} places are too many for {dtype}")
    emit.affords(tensor(dtype, shape))
    below = prod(shape[axis + 1 :])
    places = (
        np.arange(count).reshape(shape)
        - np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(len(shape))]) * below
    )
    base = constant(at, np.take(places, [0], axis))
    inside = held(at, 0, shape[axis] - 1)
    out = not_zero(at - inside) * count
    return settled(emit, gather(reshaped(v, (count,)), inside * below + base + out))


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


def inverse(x: Term) -> Term:
    """1 / x of an x that is not negative, within 2 units of the last place; 0 and infinity give each other."""
    r = exp(-log(x))
    q = x * r  # nearly 1, or NaN for 0 and infinity
    over = relu(0.5 - relu(q - 1))
    return r * (relu(1 - q) + (0.5 + over))


def sign(x: Term) -> Term:
    """-1 below 0, else 1."""
    up = not_below(x, 0)
    return up + up - 1


def ratio(x: Term | None, y: Term, clear: bool) -> Term:
    """x / y, or 1 / y. Where y or its reciprocal is nearly out of range, y is first scaled by a power of two."""
    bound, step = (2.0**100, 2.0**24) if y.dtype is F32 else (2.0**1000, 2.0**52)
    turn = None if clear else sign(y)
    size = y if turn is None else y * turn
    small, large = not_above(size, 1 / bound), not_below(size, bound)
    factor = small * (step - 1) + large * (1 / step - 1) + 1
    result = inverse(size * factor)
    result = (result if x is None else x * result) * factor
    return result if turn is None else result * turn


def require_sign(emit: MindEmit, x: Operand) -> bool:
    """Whether `x` is unsigned. Raise Violation where it is not known to be and nothing may be lost: no operation of Core v1 tells
    -0.0 from 0.0, whose reciprocals are infinities of either sign."""
    clear = unsigned(x)
    help = "--lossy reads it as 0.0"
    require(clear or emit.options[LOSSY], NOT_TRANSLATABLE, "no operation of Core v1 tells a divisor -0.0 from 0.0", help=help)
    return clear


def _reciprocal(emit: MindEmit, op: Op, x: Read) -> Term:
    return whole(emit, ratio(None, emit.narrow(x), require_sign(emit, op.operands[0])))


def _division(emit: MindEmit, op: Op, x: Read, y: Read) -> Term:
    """Of floats the product with the reciprocal."""
    if emit.type.dtype in FLOATS:
        emit.note("a quotient becomes a formula through Log, within 3 units of the last place")
        return whole(emit, ratio(emit.narrow(x), emit.narrow(y), require_sign(emit, op.operands[1])))
    n = _divisor(op)
    return emit.value(x) if n == 1 else whole(emit, _quotient(emit.narrow(x), n))


def _divisor(op: Op) -> int:
    """The one number by which integers are divided. Raises Violation."""
    n = splat_of(op.operands[1])
    require(isinstance(n, int) and n != 0, NOT_TRANSLATABLE, "MIND divides integers by one number that is not 0")
    assert isinstance(n, int)
    return n


def _quotient(x: Term, n: int) -> Term:
    """x / n, toward zero."""
    result = quotient(x, abs(n))
    return -result if n < 0 else result


def _left_over(emit: MindEmit, op: Op, x: Read) -> Term:
    """The remainder of the quotient toward zero by one number. Raises Violation for floats and other divisors."""
    dtype = tensor_type(op.operands[0]).dtype
    require(dtype in INTEGERS, NOT_TRANSLATABLE, f"MIND has no `{op.defn.short}` of {dtype}")
    v, n = emit.narrow(x), _divisor(op)
    return v - _quotient(v, n) * n


def _rem(emit: MindEmit, op: Op, x: Read, y: Read) -> Term:
    return whole(emit, _left_over(emit, op, x))


def _mod(emit: MindEmit, op: Op, x: Read, y: Read) -> Term:
    """The remainder, and the divisor once more where that has the other sign."""
    left, n = _left_over(emit, op, x), _divisor(op)
    return whole(emit, left + (negative if n > 0 else positive)(left, within=abs(n)) * n)


def _rsqrt(emit: MindEmit, op: Op, x: Read) -> Term:
    """Exp(-0.5 Log x), then a step of Newton's method."""
    require_sign(emit, op.operands[0])
    v = emit.narrow(x)
    r = exp(log(v) * -0.5)
    left = 1 - relu(v * r * r)
    return whole(emit, r + r * left * 0.5)


def tanh(x: Term) -> Term:
    """1 - 2 / (exp(2x) + 1), whose error is within the last place of 1."""
    r = exp(-log(exp(x + x) + 1))
    return 1 - (r + r)


def erf(x: Term) -> Term:
    """1 - t * exp(-x**2 + P(t)), t = 1 / (1 + |x| / 2), with Chebyshev's fit of Numerical Recipes, within 1.2e-7. For |x| below
    1 the series 2 / sqrt(pi) * (x - x**3/3 + x**5/10 - …)."""
    require(x.dtype is F32, NOT_TRANSLATABLE, "the formula for `erf` is not precise enough for f64")
    turn = sign(x)
    size = x * turn
    t = inverse(size * 0.5 + 1)
    power = exp(series(t, ERFC) - x * x)
    is_small = not_above(size, 1)
    inside = kept(is_small, x * x)  # what is not chosen stays finite
    small = kept(is_small, x) * series(inside, ERF)
    return small + (1 - is_small) * (turn * (1 - t * power))


def absolute(x: Term) -> Term:
    """The magnitude."""
    if is_integer(x):
        least, most = span(x)
        if least >= 0:
            return x
        below = negative(x, within=max(-least, most))
        return x * (1 - (below + below))
    return with_nans(relu(x) + relu(-x), x)


FORMULAS: dict[str, Rule] = {
    "maximum": _narrow(larger),
    "minimum": _narrow(smaller),
    "clamp": _narrow(lambda x, low, high: smaller(larger(x, low), high)),
    "select": _select,
    **{f"compare_{k}": _compare(k) for k in ("gt", "ge", "lt", "le", "eq", "ne")},
    "reduce_max": _reduced(larger),
    "reduce_min": _reduced(smaller),
    "reduce_window": windowed,
    "abs": _narrow(absolute),
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
    "tanh": of_floats(_narrow(tanh), "within 4 units of the last place of 1"),
    "erf": of_floats(_narrow(erf), "within 4 units of the last place of 1"),
}
