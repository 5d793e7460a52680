"""Sorts, cumulative ops and gathers for tiles, which have no such ops: comparisons of all pairs."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.ptir_to_pto.kernel import TAKE
from ptir_tools.convert.ptir_to_pto.operands import (
    accumulator,
    dtype_of,
    f32_bytes,
    identity_of,
    shape_of,
    tensor_of,
)
from ptir_tools.convert.ptir_to_pto.preparation import Preparation
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import tensor


def top_k(work: Preparation, op: Op, x: Operand) -> list[Operand]:
    """The first `k` elements in order, and their indices."""
    axis, k, t = op.attr("axis") % tensor_of(x).rank, op.attr("k"), tensor_of(x)
    places = ranks(work, [x], axis, op.attr("largest"))
    count = work.b.op("iota", shape=t.shape, dtype=SI32, axis=axis)
    result, where = ordered(work, x, places, axis, k), ordered(work, count, places, axis, k)
    return [result, work.cast(where, op.attr("indices_dtype"))]


def sort(work: Preparation, op: Op, *xs: Operand) -> list[Operand]:
    """All operands in the order of the keys."""
    axis, n = op.attr("axis") % tensor_of(xs[0]).rank, op.attr("keys")
    places = ranks(work, xs[:n], axis, op.attr("descending"))
    return [ordered(work, x, places, axis, shape_of(x)[axis]) for x in xs]


def ranks(work: Preparation, keys: Sequence[Operand], axis: int, descending: bool) -> Value:
    """The rank of every element along an axis, which becomes the last: the number of elements before it, in f32."""
    b, rank = work.b.op, tensor_of(keys[0]).rank
    perm = [*(d for d in range(rank) if d != axis), axis]
    shape = tuple(shape_of(keys[0])[d] for d in perm)
    pairs = (*shape, shape[-1])
    one, zero = (work.fill(tensor(F32, pairs), f32_bytes(n)) for n in (1.0, 0.0))
    own, other = (b("iota", shape=pairs, dtype=SI32, axis=d) for d in (rank - 1, rank))
    before: Operand = b("select", b("compare_lt", other, own), one, zero)
    for x in reversed(keys):
        x = work.cast(x, SI32) if dtype_of(x) is I1 else x
        key = work.transposed(x, perm)
        mine = b("broadcast_to", b("reshape", key, new_shape=(*shape, 1)), result_shape=pairs)
        yours = b("broadcast_to", b("reshape", key, new_shape=(*shape[:-1], 1, shape[-1])), result_shape=pairs)
        first = b("select", b("compare_gt" if descending else "compare_lt", yours, mine), one, zero)
        same = b("select", b("compare_eq", yours, mine), one, zero)
        if dtype_of(x).is_float:  # a NaN is the largest
            nan = [b("select", b("compare_ne", v, v), one, zero) for v in (mine, yours)]
            more, less = nan if not descending else nan[::-1]
            first = b("maximum", first, b("maximum", b("sub", more, less), zero))
            same = b("maximum", same, b("mul", *nan))
        before = b("add", first, b("mul", same, before))
    return b("reduce_sum", before, axes=(rank,), keepdims=False)


def ordered(work: Preparation, x: Operand, places: Value, axis: int, k: int) -> Operand:
    """The elements of `x` whose places are under `k`, in order."""
    b, t, shape = work.b.op, tensor_of(x), shape_of(places)
    if t.dtype is I1:
        result = ordered(work, work.cast(x, SI32), places, axis, k)
        return work.cast(result, I1)
    pairs, rank = (*shape[:-1], k, shape[-1]), t.rank
    perm = [*(d for d in range(rank) if d != axis), axis]
    between = (*shape[:-1], 1, shape[-1])
    at = b("broadcast_to", b("reshape", places, new_shape=between), result_shape=pairs)
    here = b("compare_eq", at, b("iota", shape=pairs, dtype=F32, axis=rank - 1))
    return one_of(work, work.transposed(x, perm), here, perm)


def one_of(work: Preparation, x: Operand, here: Operand, perm: Sequence[int]) -> Operand:
    """The elements of `x` that the one-hot mask `here` [..., k, n] selects along the axis that `perm` puts last."""
    b, t, pairs = work.b.op, tensor_of(x), shape_of(here)
    own = b("broadcast_to", b("reshape", x, new_shape=(*pairs[:-2], 1, pairs[-1])), result_shape=pairs)
    kept = b("select", here, own, work.fill(tensor(t.dtype, pairs), identity_of("max", t.dtype)))
    result = b("reduce_max", kept, axes=(t.rank,), keepdims=False)
    return work.transposed(result, [perm.index(d) for d in range(t.rank)])


def gather(work: Preparation, op: Op, x: Operand, indices: Operand) -> Operand:
    """Elements along an axis by data."""
    b, t, axis = work.b.op, tensor_of(x), op.attr("axis") % tensor_of(x).rank
    if t.dtype is I1:
        x = work.cast(x, SI32)
    perm = [*(d for d in range(t.rank) if d != axis), axis]
    rows, at = work.transposed(x, perm), work.transposed(work.cast(indices, SI32), perm)
    pairs = (*shape_of(at), shape_of(rows)[-1])
    counted = b("stop_gradient", b("iota", shape=shape_of(rows)[-1:], dtype=SI32, axis=0))
    work.outline.kept.add(counted)
    at = b(TAKE, counted, at)  # which ends a run where an index is outside
    spread = b("broadcast_to", b("reshape", at, new_shape=(*shape_of(at), 1)), result_shape=pairs)
    here = b("compare_eq", spread, b("iota", shape=pairs, dtype=SI32, axis=t.rank))
    return work.cast(one_of(work, rows, here, perm), t.dtype, op.result.name)


def running(work: Preparation, op: Op, x: Operand) -> Operand:
    """A cumulative sum, product or extreme of the elements before each one, with or without itself."""
    b, t, axis, kind = work.b.op, tensor_of(x), op.attr("axis") % tensor_of(x).rank, op.defn.short.removeprefix("cum")
    accum = accumulator(t.dtype) if kind in ("sum", "prod") else t.dtype
    perm = [*(d for d in range(t.rank) if d != axis), axis]
    rows = work.transposed(work.cast(x, accum), perm)
    shape = shape_of(rows)
    pairs = (*shape, shape[-1])
    own, other = (b("iota", shape=pairs, dtype=SI32, axis=d) for d in (t.rank - 1, t.rank))
    compare = ("compare_gt" if op.attr("exclusive") else "compare_ge") if op.attr("reverse") else (
        "compare_lt" if op.attr("exclusive") else "compare_le"
    )  # fmt: skip
    spread = b("broadcast_to", b("reshape", rows, new_shape=(*shape[:-1], 1, shape[-1])), result_shape=pairs)
    kept = b("select", b(compare, other, own), spread, work.fill(tensor(accum, pairs), identity_of(kind, accum)))
    result = b(f"reduce_{kind}", kept, axes=(t.rank,), keepdims=False)
    return work.cast(work.transposed(result, [perm.index(d) for d in range(t.rank)]), t.dtype, op.result.name)
