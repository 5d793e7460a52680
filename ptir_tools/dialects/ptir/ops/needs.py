"""Which operands an op of integers needs for a result in bounds: indices are followed back through arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod

from ptir_tools.core import arrays
from ptir_tools.core.declare import moved
from ptir_tools.core.ir import Asked, Asks, Literal, Need, Op, Operand, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.constants import literal_of

Range = tuple[int, int]  # the least and the largest element


def known_range(x: Operand) -> Range | None:
    """The least and the largest element of a constant, an iota, elements of these, or what joins or pads these; None for any
    other value."""
    while isinstance(x, Value) and x.op is not None and _only_moves(x.op):
        x = x.op.operands[0]
    if isinstance(x, Value) and x.op is not None and x.op.defn.short in ("concat", "pad"):
        return _joined(x.op)
    if isinstance(x, Value) and x.op is not None and x.op.defn.is_constant:
        x = x.op.attr("value")
    if isinstance(x, Literal):
        t = x.type
        if x.data is None or not isinstance(t, TensorType) or not t.dtype.is_integer or 0 in t.shape:
            return None
        whole = arrays.from_literal(x)
        return int(np.min(whole)), int(np.max(whole))
    if isinstance(x, Value) and x.op is not None and x.op.defn.short == "iota":
        extents = x.type.shape if isinstance(x.type, TensorType) else ()
        extent = extents[x.op.attr("axis")] if extents else None
        return (0, max(extent - 1, 0)) if isinstance(extent, int) else None
    return None


def _joined(op: Op) -> Range | None:
    """The range of all operands of a `concat` or `pad`, and of the padding."""
    ranges = [known_range(x) for x in op.operands]
    if op.defn.short == "pad":
        value = op.attr("pad_value").value
        ranges.append((value, value) if isinstance(value, int) else None)
    known = [r for r in ranges if r is not None]
    return (min(r[0] for r in known), max(r[1] for r in known)) if len(known) == len(ranges) else None


def _only_moves(op: Op) -> bool:
    """Whether all elements of the result are of the first operand: moved, or read at indices. (A pad adds some.)"""
    asks = op.defn.asks
    return (op.defn.is_movement and len(op.operands) == 1) or (asks.passed in (moved, looked_up) and asks.own is not None)


def _within(need: Need, low: int, high: int) -> Need:
    """A need for elements from `low` to `high`; at least one number is left."""
    return Need((max(high, low) + 1,), need.nonzero, low)


def arithmetic(operand: Callable[[int, int, Range | None, bool], Range]) -> Asks:
    """Needs of the operands of a binary op. `operand` gives the bounds of one from those of the result and the range of the
    other, if it is known; the flag says whether it is the first."""

    def passed(op: Op, need: Need) -> Asked:
        t = operand_type(op.operands[0])
        if not need.bounds or not isinstance(t, TensorType) or not t.dtype.is_integer:
            return []
        ranges = [known_range(x) for x in op.operands]
        moved = [k for k in (0, 1) if ranges[k] is None] or [0]
        return [(op.operands[k], _within(need, *operand(need.low, min(need.bounds) - 1, ranges[1 - k], k == 0))) for k in moved]

    return Asks(passed=passed)


def _sum(low: int, high: int, other: Range | None, first: bool) -> Range:
    if other is not None:
        return low - other[0], high - other[1]
    return (low - low // 2, high - high // 2) if first else (low // 2, high // 2)


def _difference(low: int, high: int, other: Range | None, first: bool) -> Range:
    if other is not None:
        return (low + other[1], high + other[0]) if first else (other[1] - high, other[0] - low)
    half = (high - low) // 2
    return (low + half, high) if first else (0, half)


def _product(low: int, high: int, other: Range | None, first: bool) -> Range:
    if other is None:
        return max(low, 0), isqrt(max(high, 0))
    if other[0] > 0:
        return -(-low // other[0]) if low > 0 else -(-low // other[1]), high // other[1]
    return max(low, 0), high


def _quotient(low: int, high: int, other: Range | None, first: bool) -> Range:
    if not first:
        return 1, max(high, 1)
    if other is None or other[0] < 1:
        return low, high
    return low * other[low > 0], high * other[0] + other[0] - 1 if high >= 0 else high * other[1]


SUM, _DIFFERENCE, PRODUCT, QUOTIENT = map(arithmetic, (_sum, _difference, _product, _quotient))


def subtracted(op: Op, need: Need) -> Asked:
    """The needs of the operands of a difference. One that must be 0 makes an operand equal to the other, a constant."""
    x, y = op.operands
    known = literal_of(y)
    t = operand_type(y)
    is_zero = need.bounds == (1,) and need.low == 0 and isinstance(t, TensorType) and t.rank <= 1 and t.dtype.is_integer
    if is_zero and known is not None and known.data is not None:
        return [(x, Need(exact=tuple(int(n) for n in np.ravel(arrays.from_literal(known)))))]
    return [] if _DIFFERENCE.passed is None else _DIFFERENCE.passed(op, need)


DIFFERENCE = Asks(passed=subtracted)


def _same_bounds(op: Op, need: Need) -> Asked:
    return [(x, need) for x in op.operands if known_range(x) is None]


EITHER = Asks(passed=_same_bounds)  # the result is one of the operands


def summed(op: Op, need: Need) -> Asked:
    """The needs of the elements of a sum: each its share of the bounds. In a running sum the first alone is in bounds, too."""
    t, running = operand_type(op.operands[0]), "axis" in op.defn.attr_index
    if not need.bounds or not isinstance(t, TensorType) or not t.dtype.is_integer:
        return []
    extents = [t.shape[a] for a in ((op.attr("axis"),) if running else op.attr("axes"))]
    n = prod(d for d in extents if isinstance(d, int))
    if n < 1 or not all(isinstance(d, int) for d in extents):
        return []
    low, high = need.low, min(need.bounds) - 1
    least, most = -(-low // n), high // n
    if running:
        least, most = max(least, low) if low > 0 else least, min(most, high) if high < 0 else most
    return [(op.operands[0], _within(need, least, most))]


def of_elements(op: Op, need: Need) -> Asked:
    """The needs of the elements of which each result is one."""
    return [(op.operands[0], need.loosely())]


_TABLE = 1 << 12  # the most elements of a constant that is looked into


def looked_up(op: Op, need: Need) -> Asked:
    """The needs of the operands of a `take`: the elements are in bounds, or, of a constant vector, those at the indices are."""
    table, index = op.operands
    t, known = operand_type(table), literal_of(table)
    vector = isinstance(t, TensorType) and t.rank == 1 and t.dtype.is_integer and t.is_static and t.count <= _TABLE
    if need.bounds and vector and isinstance(t, TensorType):
        counts = isinstance(table, Value) and table.op is not None and table.op.defn.short == "iota"
        elements = np.arange(t.count) if counts else None if known is None or known.data is None else arrays.from_literal(known)
        if elements is not None:
            fitting = [i for i, x in enumerate(elements.tolist()) if need.low <= x < min(need.bounds)]
            run = [i for k, i in enumerate(fitting) if i == fitting[0] + k]
            return [(index, Need((run[-1] + 1,), low=run[0]))] if run else []
    return moved(op, need)


def ordered(op: Op, need: Need) -> Asked:
    """The needs of what is sorted: numbers in order are their own order."""
    return [(x, need if sorted(need.exact) == [*need.exact] else need.loosely()) for x in op.operands[:1]]


def negated(op: Op, need: Need) -> Asked:
    """The needs of the operand of a negation."""
    inner = _within(need, 1 - min(need.bounds), -need.low) if need.bounds else Need(nonzero=need.nonzero)
    return [(op.operands[0], inner)]


def selected(op: Op, need: Need) -> Asked:
    """The needs of the branches of a select. Where the predicate compares one of them, it decides about its numbers; the other is
    made of it, as in indices that count from the end."""
    pred, *branches = op.operands
    source = pred.op if isinstance(pred, Value) else None
    if need.bounds and source is not None and source.defn.is_elementwise:
        compared = [x for x in branches if isinstance(x, Value) and x is source.operands[0] and known_range(x) is None]
        if len(compared) == 1:
            return [(compared[0], need)]
    return [(x, need) for x in branches]
