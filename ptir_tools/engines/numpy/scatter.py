"""Scatters: each update is combined at its position in the flat result, in order."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import F32, F64, SI64, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.extremes import Extreme
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.strides import dense_strides
from ptir_tools.dialects.ptir.ops.numerics import identity, ufunc
from ptir_tools.dialects.ptir.ops.scatter import index_vector_axis
from ptir_tools.engines.numpy.indexing import Positions, inside, located, positions
from ptir_tools.engines.numpy.steps import (
    NARROW,
    Builder,
    Running,
    Step,
    Workshop,
    declared,
    dense,
    is_narrow,
    overlaps,
    run_declared,
    tensor_of,
)  # fmt: skip

LONG = 192  # elements of a window from which one call per window is faster than one index per element


def accumulator(dtype: DType, kind: str) -> DType | None:
    """The dtype in which updates are combined: f64 for sums of f32, as the declared bodies do, f32 for narrow floats, else
    their own. None if NumPy does not compute it correctly."""
    if kind == "replace":
        return dtype
    if dtype.bits == 4 or dtype.is_complex:
        return None
    return F32 if dtype in NARROW else F64 if dtype is F32 and kind in ("add", "sum") else dtype


class Target:
    """Where updates are combined: the result itself, or an accumulator that is rounded at the end (`after`)."""

    def __init__(self, op: Op, out: Array, start: object, kind: str, shop: Workshop) -> None:
        dtype = accumulator(tensor_of(op).dtype, kind)
        assert dtype is not None
        self.dtype = dtype
        self.total = out if out.dtype == numpy_dtype(dtype) else shop.scratch(out.shape, dtype)
        kept = isinstance(start, np.ndarray) and overlaps(start, self.total)
        self.before: list[Step] = [] if kept else [(np.copyto, (self.total, start, "unsafe"))]
        self.after: list[Step] = [] if self.total is out else [(np.copyto, (out, self.total, "unsafe"))]

    def values(self, updates: Array, shop: Workshop, steps: list[Step]) -> Array:
        """`updates` in the accumulator's dtype, row-major."""
        if updates.dtype == self.total.dtype:
            return dense(updates, shop, steps)
        copy = shop.scratch(updates.shape, self.dtype)
        steps.append((np.copyto, (copy, updates, "unsafe")))
        return copy


def _scatter_reduce(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    (x, indices, updates), kind = ins, op.attr("reduce")
    if accumulator(tensor_of(op).dtype, kind) is None or updates.size == 0:
        return declared(op, ins, outs, shop)
    target = Target(op, outs[0], x, kind, shop)
    steps: list[Step] = []
    values = target.values(updates, shop, steps).reshape(-1)
    where = positions(indices, x.shape, op.attr("axis") % x.ndim)
    at = shop.scratch(indices.shape, SI64)
    call = (op, ins, outs, shop.running, where, at, None if kind == "replace" else ufunc(kind), target.total.reshape(-1), values)
    return [*target.before, *steps, (_combine_checked, call), *target.after]


def _combine_checked(
    op: Op,
    ins: Sequence[Array],
    outs: Sequence[Array],
    running: Running,
    where: Positions,
    at: Array,
    function: np.ufunc | Extreme | None,
    total: Array,
    values: Array,
) -> None:
    """Combine single elements; the body reports an index out of bounds."""
    if not located(where, at):
        run_declared(op, ins, outs, running)
    elif function is None:
        total[at.reshape(-1)] = values
    else:
        function.at(total, at.reshape(-1), values)


def windows(
    function: np.ufunc | Extreme, target: Target, offsets: Array, starts: Array, updates: Array, shop: Workshop
) -> list[Step]:
    """Combine `updates`, [windows, elements], each at its start; `offsets` are those of a window's elements from there."""
    total, steps = target.total.reshape(-1), list[Step]()
    if len(offsets) >= LONG and int(offsets[-1]) == len(offsets) - 1:
        rows = target.values(updates, shop, steps) if is_narrow(updates) else updates
        return [*steps, (_one_by_one, (function, total, starts, rows))]
    values = target.values(updates, shop, steps).reshape(-1)
    at = shop.scratch(updates.shape, SI64)
    flat = at.reshape(-1)
    return [*steps, (np.add, (starts.reshape(-1, 1), offsets, at)), (function.at, (total, flat, values))]


def _one_by_one(function: np.ufunc | Extreme, total: Array, starts: Array, rows: Array) -> None:
    length = rows.shape[1]
    for start, row in zip(starts.tolist(), rows, strict=True):
        window = total[start : start + length]
        function(window, row, out=window)


def _scatter_add(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, indices, updates = ins
    if accumulator(tensor_of(op).dtype, "add") is None or updates.size == 0:
        return declared(op, ins, outs, shop)
    window = sorted(a % updates.ndim for a in op.attr("update_window_dims"))
    kept = [a for a in range(x.ndim) if a not in [i % x.ndim for i in op.attr("inserted_window_dims")]]
    extents = {axis: updates.shape[a] for axis, a in zip(kept, window, strict=True)}
    strides = dense_strides(x.shape)
    offsets = np.zeros((), np.int64)
    for axis in kept:
        offsets = np.add.outer(offsets, np.arange(extents[axis]) * strides[axis])
    ordered = updates.transpose([a for a in range(updates.ndim) if a not in window] + window)
    count = prod(ordered.shape[: ordered.ndim - len(window)])
    starts = shop.scratch((count,), SI64)
    scattered = [a % x.ndim for a in op.attr("scatter_dims_to_operand_dims")]
    parts = [
        (part, x.shape[axis] - extents.get(axis, 1) + 1, strides[axis])
        for part, axis in zip(_components(op, indices), scattered, strict=True)
    ]
    target, steps = Target(op, outs[0], x, "add", shop), list[Step]()
    rows = dense(ordered, shop, steps).reshape(count, -1)
    steps += windows(np.add, target, offsets.reshape(-1), starts, rows, shop)
    return [(_start, (op, ins, outs, shop.running, parts, starts)), *target.before, *steps, *target.after]


def _components(op: Op, indices: Array) -> list[Array]:
    """The components of the indices, each as a view over the windows."""
    at = index_vector_axis(op.attr("index_vector_dim"), indices.ndim)
    if at == indices.ndim:
        return [indices]
    moved = np.moveaxis(indices, at, 0)
    return [moved[i, ...] for i in range(len(moved))]  # `...`: a view of one element is an array, too


def _start(
    op: Op,
    ins: Sequence[Array],
    outs: Sequence[Array],
    running: Running,
    parts: Sequence[tuple[Array, int, int]],
    starts: Array,
) -> None:
    """The start of each window; the body reports a window outside the operand."""
    if not all(inside(part, extent) for part, extent, _ in parts):
        run_declared(op, ins, outs, running)
    starts.fill(0)
    for part, _, stride in parts:
        starts += part.reshape(-1).astype(np.int64) * stride


def _segment_reduce(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    (data, ids), (out,), kind, dtype = ins, outs, op.attr("kind"), tensor_of(op).dtype
    natural = F32 if dtype in NARROW else dtype
    if accumulator(dtype, kind) is None or data.size == 0 or op.attr("accum_dtype") not in (None, natural):
        return declared(op, ins, outs, shop)
    length = prod(data.shape[1:])
    starts = shop.scratch(ids.shape, SI64)
    target, steps = Target(op, out, np.asarray(identity(kind, dtype), numpy_dtype(natural)), kind, shop), list[Step]()
    rows = dense(data, shop, steps).reshape(len(data), length)
    steps += windows(ufunc(kind), target, np.arange(length), starts, rows, shop)
    checked = (_start, (op, ins, outs, shop.running, [(ids, out.shape[0], length)], starts))
    return [checked, *target.before, *steps, *target.after]


BUILDERS: dict[str, Builder] = {
    "scatter-reduce": _scatter_reduce,
    "scatter-add": _scatter_add,
    "segment-reduce": _segment_reduce,
}
