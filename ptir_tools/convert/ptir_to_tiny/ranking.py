"""PTIR to Tiny: argmax and top_k. A NaN is above all numbers, and the first of equal elements comes first."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_tiny.elementwise import above, negated, numbers
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit
from ptir_tools.convert.ptir_to_tiny.indexing import chosen, counted, differs, spread_out
from ptir_tools.core.dtypes import I1, SI32
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.violations import require
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.rewrite.vocabulary import tensor_type

PAIRS = 1 << 24  # the most comparisons of a top_k


def _argmax(emit: TinyEmit, op: Op, x: Data) -> Value:
    """The smallest index of those with the maximum; where there is a NaN, of the NaNs."""
    v = emit.node(x)
    t = tensor_type(v)
    axis = op.attr("axis") % t.rank
    kept = tuple(i for i in range(t.rank) if i != axis)

    def over_all(y: Value) -> Value:
        most = emit("REDUCE", y, op="MAX", axes=(axis,), dtype=tensor_type(y).dtype)
        return spread_out(emit, most, t.shape, kept)

    if t.dtype.is_float:
        real = numbers(emit, v, v)
        v = emit("WHERE", real, v, immediate(float("-inf"), t.dtype))
        some = emit.cast(over_all(emit.cast(negated(emit, real), SI32)), I1)
        worse = emit("WHERE", some, real, above(emit, over_all(v), v))
    else:
        worse = above(emit, over_all(v), v)
    places = spread_out(emit, counted(emit, t.shape[axis]), t.shape, (axis,))
    least = emit("WHERE", worse, immediate(SI32.max, SI32), places)
    return emit.settled(emit("REDUCE", least, op="MIN", axes=(axis,), dtype=SI32))


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

    def one(y: Value) -> Value:
        return spread_out(emit, y, shape, range(t.rank))

    def other(y: Value) -> Value:
        return spread_out(emit, y, shape, (*range(last), t.rank))

    def before(p: Value, q: Value) -> Value:
        """Whether p comes before q, whatever their indices."""
        p, q = (p, q) if op.attr("largest") else (q, p)
        if not t.dtype.is_float:
            return above(emit, p, q)
        mine, theirs = numbers(emit, p, p), numbers(emit, q, q)
        return emit("WHERE", theirs, emit("WHERE", mine, above(emit, p, q), negated(emit, mine)), theirs)

    place = counted(emit, n)
    first = above(emit, one_of(emit, place, shape, last), one_of(emit, place, shape, t.rank))  # the other has the smaller index
    ahead = emit("WHERE", first, negated(emit, before(one(v), other(v))), before(other(v), one(v)))
    rank = emit("REDUCE", emit.cast(ahead, SI32), op="SUM", axes=(t.rank,), dtype=SI32)
    others = differs(emit, rank, k)  # [.., element, k]
    wide = tensor_type(others).shape
    results = []
    for y, dtype in ((v, t.dtype), (one_of(emit, place, tensor_type(v).shape, last), SI32)):
        best = chosen(emit, spread_out(emit, y, wide, range(t.rank)), others, range(t.rank + 1), last)
        best = best if axis == last else emit("PERMUTE", best, perm=tuple(order.index(i) for i in range(t.rank)))
        results.append(emit.cast(best, dtype))
    return tuple(results)


def one_of(emit: TinyEmit, place: Value, shape: tuple[object, ...], axis: int) -> Value:
    """The indices along `axis`."""
    return spread_out(emit, place, shape, (axis,))  # type: ignore[arg-type]


RANKING: dict[str, Rule] = {"argmax": _argmax, "top_k": _top_k}
