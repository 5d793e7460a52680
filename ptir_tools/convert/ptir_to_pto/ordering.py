"""Sorts, cumulative ops and gathers for tiles, which have no such ops: comparisons of all pairs."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.ptir_to_pto.kernel import TAKE
from ptir_tools.convert.ptir_to_pto.operands import Place, accumulator, cast, identity_of, transposed
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Literal
from ptir_tools.core.types import Dim, tensor
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.expression import compare_eq, compare_ne, maximum, select


def top_k(site: Place, x: Tensor) -> list[Tensor]:
    """The first `k` elements in order, and their indices."""
    op = site.root
    axis, k = op.attr("axis") % x.rank, op.attr("k")
    places = _ranks(site, [x], axis, op.attr("largest"))
    count = site.iota(x.shape, SI32, axis)
    result, where = _ordered(site, x, places, axis, k), _ordered(site, count, places, axis, k)
    return [result, cast(where, op.attr("indices_dtype"))]


def sort(site: Place, *xs: Tensor) -> list[Tensor]:
    """All operands in the order of the keys."""
    axis = site.root.attr("axis") % xs[0].rank
    places = _ranks(site, xs[: site.root.attr("keys")], axis, site.root.attr("descending"))
    return [_ordered(site, x, places, axis, x.shape[axis]) for x in xs]


def _last(x: Tensor, axis: int) -> list[int]:
    """The permutation that puts an axis last."""
    return [*(d for d in range(x.rank) if d != axis), axis]


def _ranks(site: Place, keys: Sequence[Tensor], axis: int, descending: bool) -> Tensor:
    """The rank of every element along an axis, which becomes the last: the number of elements before it, in f32."""
    rank, perm = keys[0].rank, _last(keys[0], axis)
    shape = tuple(keys[0].shape[d] for d in perm)
    pairs = (*shape, shape[-1])
    one, zero = (site.filled(n, tensor(F32, pairs)) for n in (1.0, 0.0))
    own, other = (site.iota(pairs, SI32, d) for d in (rank - 1, rank))
    before = select(other < own, one, zero)
    for x in reversed(keys):
        key = transposed(cast(x, SI32) if x.dtype is I1 else x, perm)
        mine = key.reshape((*shape, 1)).broadcast_to(pairs)
        yours = key.reshape((*shape[:-1], 1, shape[-1])).broadcast_to(pairs)
        first = select(yours > mine if descending else yours < mine, one, zero)
        same = select(compare_eq(yours, mine), one, zero)
        if x.dtype.is_float:  # a NaN is the largest
            nan = [select(compare_ne(v, v), one, zero) for v in (mine, yours)]
            more, less = nan if not descending else nan[::-1]
            first = maximum(first, maximum(more - less, zero))
            same = maximum(same, nan[0] * nan[1])
        before = first + same * before
    return before.reduce_sum((rank,), keepdims=False)


def _ordered(site: Place, x: Tensor, places: Tensor, axis: int, k: Dim) -> Tensor:
    """The elements of `x` whose places are under `k`, in order."""
    if x.dtype is I1:
        return cast(_ordered(site, cast(x, SI32), places, axis, k), I1)
    shape, perm = places.shape, _last(x, axis)
    pairs = (*shape[:-1], k, shape[-1])
    at = places.reshape((*shape[:-1], 1, shape[-1])).broadcast_to(pairs)
    here = compare_eq(at, site.iota(pairs, F32, x.rank - 1))
    return _one_of(site, transposed(x, perm), here, perm)


def _one_of(site: Place, x: Tensor, here: Tensor, perm: Sequence[int]) -> Tensor:
    """The elements of `x` that the one-hot mask `here` [..., k, n] selects along the axis that `perm` puts last."""
    pairs = here.shape
    own = x.reshape((*pairs[:-2], 1, pairs[-1])).broadcast_to(pairs)
    kept = select(here, own, site(Literal(tensor(x.dtype, pairs), identity_of("max", x.dtype), True)))
    result = kept.reduce_max((x.rank,), keepdims=False)
    return transposed(result, [perm.index(d) for d in range(x.rank)])


def gather(site: Place, x: Tensor, indices: Tensor) -> Tensor:
    """Elements along an axis by data: a take from the numbers of the axis, which checks the indices, and a one-hot mask."""
    dtype, perm = x.dtype, _last(x, site.root.attr("axis") % x.rank)
    if dtype is I1:
        x = cast(x, SI32)
    rows, at = transposed(x, perm), transposed(indices, perm)
    pairs = (*at.shape, rows.shape[-1])
    at = site.op(TAKE, site.iota(rows.shape[-1:], SI32, 0), at)
    spread = at.reshape((*at.shape, 1)).broadcast_to(pairs)
    here = compare_eq(spread, site.iota(pairs, SI32, x.rank))
    return cast(_one_of(site, rows, here, perm), dtype)


def running(site: Place, x: Tensor) -> Tensor:
    """A cumulative sum, product or extreme of the elements before each one, with or without itself."""
    op, dtype = site.root, x.dtype
    kind, perm = op.defn.short.removeprefix("cum"), _last(x, op.attr("axis") % x.rank)
    accum = accumulator(dtype) if kind in ("sum", "prod") else dtype
    rows = transposed(cast(x, accum), perm)
    shape = rows.shape
    pairs = (*shape, shape[-1])
    own, other = (site.iota(pairs, SI32, d) for d in (x.rank - 1, x.rank))
    compare = ("gt" if op.attr("exclusive") else "ge") if op.attr("reverse") else ("lt" if op.attr("exclusive") else "le")
    spread = rows.reshape((*shape[:-1], 1, shape[-1])).broadcast_to(pairs)
    none = site(Literal(tensor(accum, pairs), identity_of(kind, accum), True))
    kept = select(site.op(f"compare_{compare}", other, own), spread, none)
    result = kept.op(f"reduce_{kind}", kept, axes=(x.rank,), keepdims=False)
    return cast(transposed(result, [perm.index(d) for d in range(x.rank)]), dtype)
