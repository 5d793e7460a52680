"""Reductions, products, masks and functions of floats, expanded to ops that tiles have."""

from __future__ import annotations

from collections.abc import Container
from math import prod

from ptir_tools.convert.ptir_to_pto.axes import usual
from ptir_tools.convert.ptir_to_pto.kernel import WHOLE
from ptir_tools.convert.ptir_to_pto.operands import Place, accumulator, cast, transposed
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import rounding
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.rewrite.expression import compare_eq, compare_ne, select


def reduction(site: Place, x: Tensor) -> Tensor | None:
    """A reduction, one axis after the other from the last; in the accumulator's elements where rounding would differ."""
    op, to = site.root, site.result.dtype
    axes = sorted({a % x.rank for a in op.attr("axes")}, reverse=True)
    accum = x.dtype
    if op.defn.short in ("reduce_sum", "reduce_prod"):
        accum = op.attr("accum_dtype") or accumulator(x.dtype)
    several = len(axes) > 1 or any(not isinstance(n := x.shape[a], int) or n > WHOLE for a in axes)
    wide = accum is not x.dtype and (several or to is not x.dtype or accum is not F32)
    if len(axes) == 1 and to is x.dtype and not wide:
        return None
    if wide:
        x = cast(x, accum)
    for a in axes:
        x = x.op(op.defn.short, x, axes=(a,), keepdims=op.attr("keepdims"))
    return cast(x, to)


def extreme(site: Place, x: Tensor) -> Tensor | None:
    """The first index of the largest or smallest element: the tile op where there is one, else the least of all indices with that
    element."""
    axis, short = site.root.attr("axis") % x.rank, site.root.defn.short.removeprefix("arg")
    n = x.shape[axis]
    if x.dtype.is_float and isinstance(n, int) and n <= WHOLE // 3:  # the op needs a second tile of the same size
        return None
    best = x.op(f"reduce_{short}", x, axes=(axis,), keepdims=False)
    best = best.reshape(1 if d == axis else k for d, k in enumerate(x.shape)).broadcast_to(x.shape)
    count = site.iota(x.shape, SI32, axis)
    where = select(compare_eq(x, best), count, SI32.max)
    if x.dtype.is_float:  # a NaN wins
        where = select(compare_ne(x, x), count, where)
    return cast(where.reduce_min((axis,), keepdims=False).reshape(site.result.shape), site.result.dtype)


def logical(site: Place, *xs: Tensor) -> Tensor | None:
    """Logical ops: on masks by select, on numbers by tile ops."""
    if xs[0].dtype is not I1:
        return None
    short, a, b = site.root.defn.short, xs[0], xs[-1]
    if short == "bitwise_xor":
        return compare_ne(cast(a, F32), cast(b, F32))
    if short == "bitwise_not":
        return compare_eq(cast(a, F32), 0.0)
    return select(a, b, a) if short == "bitwise_and" else select(a, a, b)


def sign(site: Place, x: Tensor) -> Tensor:
    """-1 and 1; of integers, too, by select: a mask as numbers would be one more."""
    below = select(x < 0, -1, x)
    return select(x > 0, 1, below)


def finite(site: Place, x: Tensor) -> Tensor:
    """Whether the absolute is less than infinity, which not all short floats have."""
    return rounding.is_finite(cast(x, F32) if x.dtype.bits < 16 else x)


def product(site: Place, a: Tensor, b: Tensor) -> Tensor | None:
    """A product with both operands in the matrix unit's order: [batch, M, K] by [batch, K, N]."""
    op = site.root
    batch_a, batch_b, inner_a, inner_b = (
        [d % v.rank for d in op.attr(name)]
        for name, v in (("batch_lhs", a), ("batch_rhs", b), ("contract_lhs", a), ("contract_rhs", b))
    )
    rows = [d for d in range(a.rank) if d not in (*batch_a, *inner_a)]
    columns = [d for d in range(b.rank) if d not in (*batch_b, *inner_b)]
    left, right = transposed(a, [*batch_a, *rows, *inner_a]), transposed(b, [*batch_b, *inner_b, *columns])
    lead, n, rank = tuple(range(len(batch_a))), len(inner_a), a.rank
    extents = [prod(usual(v.shape[d]) for d in axes) for v, axes in ((a, rows), (b, columns), (a, inner_a))]
    if not rows or min(extents[1:]) == 1 or not _multiplied(site, a, b):
        right = transposed(b, [*batch_b, *columns, *inner_b])
        return _summed(site, left, right, (len(lead), len(rows), len(columns)))
    left, right = _without(left, range(rank - n, rank)), _without(right, range(len(lead), right.rank))
    rank, n = left.rank, sum(a.shape[d] != 1 for d in inner_a)
    out, to = SI32 if a.dtype.is_integer else op.attr("out_dtype"), site.result  # a store from Acc does not saturate
    if to.dtype.is_float and to.dtype.bits < 16:
        out = F32  # nor can it make these
    if left is a and right is b and out in (None, to.dtype):
        return None
    inner = {"contract_lhs": range(rank - n, rank), "contract_rhs": range(len(lead), len(lead) + n)}
    accum = op.attr("accum_dtype")
    made = cast(left.dot_general(right, batch_lhs=lead, batch_rhs=lead, accum_dtype=accum, out_dtype=out, **inner), to.dtype)
    return made if made.shape == to.shape else made.reshape(to.shape)


def _multiplied(site: Place, a: Tensor, b: Tensor) -> bool:
    """Whether the matrix unit takes the operands; floats that it lacks are refused elsewhere."""
    pair = (DTYPE_TEXT.get(a.dtype, ""), DTYPE_TEXT.get(b.dtype, ""))
    sums = site.root.attr("accum_dtype") or site.result.dtype
    return not a.dtype.is_integer or (pair in site.target.products and sums is SI32)


def _without(x: Tensor, axes: Container[int]) -> Tensor:
    """`x` without those of `axes` that have extent 1: the matrix unit's operands end in the multiplied axes."""
    kept = tuple(n for d, n in enumerate(x.shape) if n != 1 or d not in axes)
    return x if kept == x.shape else x.reshape(kept)


def _summed(site: Place, a: Tensor, b: Tensor, counts: tuple[int, int, int]) -> Tensor:
    """[batch, M, K] times [batch, N, K], element by element, summed over K: what has one row or column is not a matrix."""
    batch, rows, columns = counts
    lead, m, n = a.shape[:batch], a.shape[batch : batch + rows], b.shape[batch : batch + columns]
    k = a.shape[batch + rows :]
    accum = site.root.attr("accum_dtype") or accumulator(a.dtype)
    left, right = (
        cast(x, accum).reshape(own).broadcast_to((*lead, *m, *n, *k))
        for x, own in ((a, (*lead, *m, *(1 for _ in n), *k)), (b, (*lead, *(1 for _ in m), *n, *k)))
    )
    total = left * right
    for axis in range(total.rank - 1, len((*lead, *m, *n)) - 1, -1):
        total = total.reduce_sum((axis,), keepdims=False)
    return cast(total, site.result.dtype)
