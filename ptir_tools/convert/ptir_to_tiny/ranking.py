"""PTIR to Tiny: argmax and top_k. A NaN is above all numbers, and the first of equal elements comes first."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit
from ptir_tools.convert.ptir_to_tiny.formulas import above, cast, negated, numbers
from ptir_tools.convert.ptir_to_tiny.indexing import chosen, counted, differs, spread_out
from ptir_tools.core.dtypes import I1, SI32
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import require
from ptir_tools.rewrite.expression import Term, select
from ptir_tools.rewrite.vocabulary import tensor_type

PAIRS = 1 << 24  # the most comparisons of a top_k


def _argmax(emit: TinyEmit, op: Op, data: Data) -> Value:
    """The smallest index of those with the maximum; where there is a NaN, of the NaNs."""
    v = emit.node(data)
    t = tensor_type(v)
    axis = op.attr("axis") % t.rank
    kept = tuple(i for i in range(t.rank) if i != axis)

    def over_all(y: Term) -> Term:
        most = emit("REDUCE", y.operand, op="MAX", axes=(axis,), dtype=y.dtype)
        return emit.term(spread_out(emit, most, t.shape, kept))

    x = emit.term(v)
    if t.dtype.is_float:
        real = numbers(x, x)
        x = select(real, x, float("-inf"))
        some = cast(over_all(cast(negated(real), SI32)), I1)
        worse = select(some, real, above(over_all(x), x))
    else:
        worse = above(over_all(x), x)
    places = emit.term(spread_out(emit, counted(emit, t.shape[axis]), t.shape, (axis,)))
    least = select(worse, SI32.max, places)
    return emit.settled(least.op("REDUCE", least, op="MIN", axes=(axis,), dtype=SI32))


def _top_k(emit: TinyEmit, op: Op, x: Data) -> Data:
    """Each element is compared with every other: its rank is the number of those before it, and k ranks are selected."""
    v = emit.node(x)
    t, k = tensor_type(v), op.attr("k")
    require(t.is_static, NOT_TRANSLATABLE, f"{t} has symbolic extents", help="give them with --bind")
    axis = op.attr("axis") % t.rank
    n = t.static_shape[axis]
    require(t.count * n <= PAIRS, NOT_TRANSLATABLE, f"{t.count * n} comparisons would be needed")
    order = (*(i for i in range(t.rank) if i != axis), axis)
    last = t.rank - 1
    v = v if axis == last else emit("PERMUTE", v, perm=order)
    shape = (*tensor_type(v).shape, n)  # [.., element, other element]

    def one(y: Value) -> Term:
        return emit.term(spread_out(emit, y, shape, range(t.rank)))

    def other(y: Value) -> Term:
        return emit.term(spread_out(emit, y, shape, (*range(last), t.rank)))

    def before(p: Term, q: Term) -> Term:
        """Whether p comes before q, whatever their indices."""
        p, q = (p, q) if op.attr("largest") else (q, p)
        if not t.dtype.is_float:
            return above(p, q)
        mine, theirs = numbers(p, p), numbers(q, q)
        return select(theirs, select(mine, above(p, q), negated(mine)), theirs)

    place = counted(emit, n)
    first = above(*(emit.term(one_of(emit, place, shape, a)) for a in (last, t.rank)))  # the other has the smaller index
    ahead = cast(select(first, negated(before(one(v), other(v))), before(other(v), one(v))), SI32)
    rank = emit("REDUCE", ahead.operand, op="SUM", axes=(t.rank,), dtype=SI32)
    others = differs(emit, rank, k)  # [.., element, k]
    wide = tensor_type(others).shape
    results = []
    for y, dtype in ((v, t.dtype), (one_of(emit, place, tensor_type(v).shape, last), SI32)):
        best = chosen(emit, spread_out(emit, y, wide, range(t.rank)), others, range(t.rank + 1), last)
        best = best if axis == last else emit("PERMUTE", best, perm=tuple(order.index(i) for i in range(t.rank)))
        results.append(emit.cast(best, dtype))
    return tuple(results)


def one_of(emit: TinyEmit, place: Value, shape: Shape, axis: int) -> Value:
    """The indices along `axis`."""
    return spread_out(emit, place, shape, (axis,))


RANKING: dict[str, Rule] = {"argmax": _argmax, "top_k": _top_k}
