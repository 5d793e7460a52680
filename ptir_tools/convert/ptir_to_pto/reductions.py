"""Reductions, products, masks and functions of floats, expanded to ops that tiles have."""

from __future__ import annotations

from collections.abc import Container
from math import prod

from ptir_tools.convert.ptir_to_pto.axes import usual
from ptir_tools.convert.ptir_to_pto.kernel import WHOLE
from ptir_tools.convert.ptir_to_pto.operands import (
    Place,
    dtype_of,
    identity_of,
    integer,
    tensor_of,
)
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.typed import Any
from ptir_tools.dialects.pto.names import DTYPE_TEXT


def reduction(site: Place, op: Op, x: Operand) -> Operand | None:
    """A reduction, one axis after the other from the last; in the accumulator's elements where rounding would differ."""
    t = tensor_of(x)
    axes = sorted({a % t.rank for a in op.attr("axes")}, reverse=True)
    sums, to = op.defn.short in ("reduce_sum", "reduce_prod"), dtype_of(op.result)
    accum = (op.attr("accum_dtype") or (F32 if t.dtype.is_float and t.dtype.bits < 64 else t.dtype)) if sums else t.dtype
    several = len(axes) > 1 or any(not isinstance(n := t.shape[a], int) or n > WHOLE for a in axes)
    wide = accum is not t.dtype and (several or to is not t.dtype or accum is not F32)
    if len(axes) == 1 and to is t.dtype and not wide:
        return None
    if wide:
        x = site.cast(x, accum)
    for a in axes:
        x = site.op(op.defn.short, x, axes=(a,), keepdims=op.attr("keepdims"))
    return site.cast(x, to)


def extreme(site: Place, op: Op, x: Operand) -> Operand | None:
    """The first index of the largest or smallest element: the tile op where there is one, else the least of all indices with that
    element."""
    t = tensor_of(x)
    axis, short = op.attr("axis") % t.rank, op.defn.short.removeprefix("arg")
    n = t.shape[axis]
    if t.dtype.is_float and isinstance(n, int) and n <= WHOLE // 3:  # the op needs a second tile of the same size
        return None
    b = site.op
    best = b(f"reduce_{short}", x, axes=(axis,), keepdims=False)
    kept = tuple(1 if d == axis else k for d, k in enumerate(t.shape))
    best = b("broadcast_to", b("reshape", best, new_shape=kept), result_shape=t.shape)
    count, none = b("iota", shape=t.shape, dtype=SI32, axis=axis), integer(SI32.max, SI32, t.shape)
    where = b("select", b("compare_eq", x, best), count, none)
    if t.dtype.is_float:  # a NaN wins
        where = b("select", b("compare_ne", x, x), count, where)
    first = b("reduce_min", where, axes=(axis,), keepdims=False)
    result = b("reshape", first, new_shape=tensor_of(op.result).shape)
    return site.cast(result, dtype_of(op.result))


def logical(site: Place, op: Op, *xs: Operand) -> Operand | None:
    """Logical ops: on masks by select, on numbers by tile ops."""
    if dtype_of(xs[0]) is not I1:
        return None
    short, a, b = op.defn.short, xs[0], xs[-1]
    if short == "bitwise_xor":
        return site.op("compare_ne", site.cast(a, F32), site.cast(b, F32))
    if short == "bitwise_not":
        return site.op("compare_eq", site.cast(a, F32), 0.0)
    chosen = (a, b, a) if short == "bitwise_and" else (a, a, b)
    return site.op("select", *chosen)


def sign(site: Place, op: Op, x: Operand) -> Operand:
    """-1, 0 or 1; a NaN stays."""
    below = site.op("select", site.op("compare_lt", x, 0), -1, x)
    return site.op("select", site.op("compare_gt", x, 0), 1, below)


def finite(site: Place, op: Op, x: Operand) -> Operand:
    """Whether the absolute is less than infinity."""
    size = site.op("abs", site.cast(x, F32) if dtype_of(x).bits < 16 else x)  # not all short floats have an infinity
    whole = site.fill(tensor_of(size), identity_of("min", dtype_of(size)))
    return site.op("compare_lt", size, whole)


def product(site: Place, op: Op, a: Operand, b: Operand) -> Operand | None:
    """A product with both operands in the matrix unit's order: [batch, M, K] by [batch, K, N]."""
    batch_a, batch_b, inner_a, inner_b = (
        [x % tensor_of(v).rank for x in op.attr(name)]
        for name, v in (("batch_lhs", a), ("batch_rhs", b), ("contract_lhs", a), ("contract_rhs", b))
    )
    rows = [d for d in range(tensor_of(a).rank) if d not in (*batch_a, *inner_a)]
    columns = [d for d in range(tensor_of(b).rank) if d not in (*batch_b, *inner_b)]
    left, right = site.transposed(a, [*batch_a, *rows, *inner_a]), site.transposed(b, [*batch_b, *inner_b, *columns])
    lead, n, rank = tuple(range(len(batch_a))), len(inner_a), tensor_of(a).rank
    extents = [prod(usual(tensor_of(v).shape[d]) for d in axes) for v, axes in ((a, rows), (b, columns), (a, inner_a))]
    if not rows or min(extents[1:]) == 1 or not _multiplied(site, op, a, b):
        right = site.transposed(b, [*batch_b, *columns, *inner_b])
        return sum_of_products(site, op, left, right, (len(lead), len(rows), len(columns)))
    left, right = without(site, left, range(rank - n, rank)), without(site, right, range(len(lead), tensor_of(right).rank))
    rank, n = tensor_of(left).rank, sum(tensor_of(a).shape[d] != 1 for d in inner_a)
    out = SI32 if dtype_of(a).is_integer else op.attr("out_dtype")  # a store from Acc does not saturate
    if dtype_of(op.result).is_float and dtype_of(op.result).bits < 16:
        out = F32  # nor can it make these
    if left is a and right is b and out in (None, dtype_of(op.result)):
        return None
    attrs: dict[str, Any] = {"accum_dtype": op.attr("accum_dtype"), "out_dtype": out}
    attrs |= {"contract_lhs": tuple(range(rank - n, rank)), "contract_rhs": tuple(range(len(lead), len(lead) + n))}
    result = site.op("dot_general", left, right, batch_lhs=lead, batch_rhs=lead, **attrs)
    whole, converted = tensor_of(op.result).shape, site.cast(result, dtype_of(op.result))
    return converted if tensor_of(converted).shape == whole else site.op("reshape", converted, new_shape=whole)


def _multiplied(site: Place, op: Op, a: Operand, b: Operand) -> bool:
    """Whether the matrix unit takes the operands; floats that it lacks are refused elsewhere."""
    pair = (DTYPE_TEXT.get(dtype_of(a), ""), DTYPE_TEXT.get(dtype_of(b), ""))
    sums = op.attr("accum_dtype") or dtype_of(op.result)
    return not dtype_of(a).is_integer or (pair in site.target.products and sums is SI32)


def without(site: Place, x: Operand, axes: Container[int]) -> Operand:
    """`x` without those of `axes` that have extent 1: the matrix unit's operands end in the multiplied axes."""
    shape = tensor_of(x).shape
    kept = tuple(n for d, n in enumerate(shape) if n != 1 or d not in axes)
    return x if kept == shape else site.op("reshape", x, new_shape=kept)


def sum_of_products(site: Place, op: Op, a: Operand, b: Operand, counts: tuple[int, int, int]) -> Operand:
    """[batch, M, K] times [batch, N, K], element by element, summed over K: what has one row or column is not a matrix."""
    batch, rows, columns = counts
    shape, other = tensor_of(a).shape, tensor_of(b).shape
    lead, m, n, k = shape[:batch], shape[batch : batch + rows], other[batch : batch + columns], shape[batch + rows :]
    accum = op.attr("accum_dtype") or (F32 if dtype_of(a).is_float and dtype_of(a).bits < 64 else dtype_of(a))
    factors = []
    for x, own in ((a, (*lead, *m, *(1 for _ in n), *k)), (b, (*lead, *(1 for _ in m), *n, *k))):
        upright = site.op("reshape", site.cast(x, accum), new_shape=own)
        factors.append(site.op("broadcast_to", upright, result_shape=(*lead, *m, *n, *k)))
    total: Value = site.op("mul", *factors)
    for axis in range(tensor_of(total).rank - 1, len((*lead, *m, *n)) - 1, -1):
        total = site.op("reduce_sum", total, axes=(axis,), keepdims=False)
    return site.cast(total, dtype_of(op.result))
