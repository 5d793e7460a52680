"""Sorts, cumulative ops and gathers for tiles, which have no such ops: comparisons of all pairs."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.ptir_to_pto.kernel import TAKE
from ptir_tools.convert.ptir_to_pto.operands import (
    Place,
    accumulator,
    dtype_of,
    filled,
    identity_of,
    shape_of,
    tensor_of,
)
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import tensor


def top_k(site: Place, op: Op, x: Operand) -> list[Operand]:
    """The first `k` elements in order, and their indices."""
    axis, k, t = op.attr("axis") % tensor_of(x).rank, op.attr("k"), tensor_of(x)
    places = ranks(site, [x], axis, op.attr("largest"))
    count = site.op("iota", shape=t.shape, dtype=SI32, axis=axis)
    result, where = ordered(site, x, places, axis, k), ordered(site, count, places, axis, k)
    return [result, site.cast(where, op.attr("indices_dtype"))]


def sort(site: Place, op: Op, *xs: Operand) -> list[Operand]:
    """All operands in the order of the keys."""
    axis, n = op.attr("axis") % tensor_of(xs[0]).rank, op.attr("keys")
    places = ranks(site, xs[:n], axis, op.attr("descending"))
    return [ordered(site, x, places, axis, shape_of(x)[axis]) for x in xs]


def ranks(site: Place, keys: Sequence[Operand], axis: int, descending: bool) -> Value:
    """The rank of every element along an axis, which becomes the last: the number of elements before it, in f32."""
    b, rank = site.op, tensor_of(keys[0]).rank
    perm = [*(d for d in range(rank) if d != axis), axis]
    shape = tuple(shape_of(keys[0])[d] for d in perm)
    pairs = (*shape, shape[-1])
    one, zero = (filled(n, tensor(F32, pairs)) for n in (1.0, 0.0))
    own, other = (b("iota", shape=pairs, dtype=SI32, axis=d) for d in (rank - 1, rank))
    before: Operand = b("select", b("compare_lt", other, own), one, zero)
    for x in reversed(keys):
        x = site.cast(x, SI32) if dtype_of(x) is I1 else x
        key = site.transposed(x, perm)
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


def ordered(site: Place, x: Operand, places: Value, axis: int, k: int) -> Operand:
    """The elements of `x` whose places are under `k`, in order."""
    b, t, shape = site.op, tensor_of(x), shape_of(places)
    if t.dtype is I1:
        result = ordered(site, site.cast(x, SI32), places, axis, k)
        return site.cast(result, I1)
    pairs, rank = (*shape[:-1], k, shape[-1]), t.rank
    perm = [*(d for d in range(rank) if d != axis), axis]
    between = (*shape[:-1], 1, shape[-1])
    at = b("broadcast_to", b("reshape", places, new_shape=between), result_shape=pairs)
    here = b("compare_eq", at, b("iota", shape=pairs, dtype=F32, axis=rank - 1))
    return one_of(site, site.transposed(x, perm), here, perm)


def one_of(site: Place, x: Operand, here: Operand, perm: Sequence[int]) -> Operand:
    """The elements of `x` that the one-hot mask `here` [..., k, n] selects along the axis that `perm` puts last."""
    b, t, pairs = site.op, tensor_of(x), shape_of(here)
    own = b("broadcast_to", b("reshape", x, new_shape=(*pairs[:-2], 1, pairs[-1])), result_shape=pairs)
    kept = b("select", here, own, site.fill(tensor(t.dtype, pairs), identity_of("max", t.dtype)))
    result = b("reduce_max", kept, axes=(t.rank,), keepdims=False)
    return site.transposed(result, [perm.index(d) for d in range(t.rank)])


def gather(site: Place, op: Op, x: Operand, indices: Operand) -> Operand:
    """Elements along an axis by data: a take from the numbers of the axis, which checks the indices, and a one-hot mask."""
    b, t, axis = site.op, tensor_of(x), op.attr("axis") % tensor_of(x).rank
    if t.dtype is I1:
        x = site.cast(x, SI32)
    perm = [*(d for d in range(t.rank) if d != axis), axis]
    rows, at = site.transposed(x, perm), site.transposed(indices, perm)
    pairs = (*shape_of(at), shape_of(rows)[-1])
    at = b(TAKE, b("iota", shape=shape_of(rows)[-1:], dtype=SI32, axis=0), at)
    spread = b("broadcast_to", b("reshape", at, new_shape=(*shape_of(at), 1)), result_shape=pairs)
    here = b("compare_eq", spread, b("iota", shape=pairs, dtype=SI32, axis=t.rank))
    return site.cast(one_of(site, rows, here, perm), t.dtype)


def running(site: Place, op: Op, x: Operand) -> Operand:
    """A cumulative sum, product or extreme of the elements before each one, with or without itself."""
    b, t, axis, kind = site.op, tensor_of(x), op.attr("axis") % tensor_of(x).rank, op.defn.short.removeprefix("cum")
    accum = accumulator(t.dtype) if kind in ("sum", "prod") else t.dtype
    perm = [*(d for d in range(t.rank) if d != axis), axis]
    rows = site.transposed(site.cast(x, accum), perm)
    shape = shape_of(rows)
    pairs = (*shape, shape[-1])
    own, other = (b("iota", shape=pairs, dtype=SI32, axis=d) for d in (t.rank - 1, t.rank))
    compare = ("compare_gt" if op.attr("exclusive") else "compare_ge") if op.attr("reverse") else (
        "compare_lt" if op.attr("exclusive") else "compare_le"
    )  # fmt: skip
    spread = b("broadcast_to", b("reshape", rows, new_shape=(*shape[:-1], 1, shape[-1])), result_shape=pairs)
    kept = b("select", b(compare, other, own), spread, site.fill(tensor(accum, pairs), identity_of(kind, accum)))
    result = b(f"reduce_{kind}", kept, axes=(t.rank,), keepdims=False)
    return site.cast(site.transposed(result, [perm.index(d) for d in range(t.rank)]), t.dtype)
