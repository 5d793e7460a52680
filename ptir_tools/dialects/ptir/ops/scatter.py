"""Scatter ops (contract: ScatterAdd, ScatterReduce)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core import arrays, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import indices, op
from ptir_tools.core.ir import PURE, InPlace, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.core.violations import operand, require
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.ops.constants import axis_extent, check_indices, constant_indices, indices_inside, indices_unknown
from ptir_tools.dialects.ptir.ops.indexing import along_axis, checked_indices
from ptir_tools.dialects.ptir.ops.kinds import ScatterKind, UpdateKind
from ptir_tools.dialects.ptir.ops.typerules import (
    ANY,
    BITS,
    INDICES,
    NUMERIC,
    ORDERED,
    agree,
    attribute,
    axes_of,
    axis_of,
    default_accum,
    rule,
    same_dtype,
    same_shape,
    want,
)  # fmt: skip
from ptir_tools.rewrite.vocabulary import tensor_type

drawing = Later("ptir_tools.dialects.ptir.drawing")

D = TypeVar("D", int, Dim)

OUTSIDE = "ScatterIndexOutOfBounds"
_KINDS = {"add": NUMERIC, "max": ORDERED, "min": ORDERED, "replace": ANY}
_UPDATES = {**_KINDS, "mul": NUMERIC, "and": BITS, "or": BITS, "xor": BITS}


def accumulate(kind: str, out: Array, at: tuple[Array, ...], values: Array) -> None:
    """Combine `values` in place into the elements `at` of `out`, in row-major order."""
    with np.errstate(all="ignore"):
        numerics.ufunc(kind).at(out, at, values)


@rule
def scatter_reduce_type(x: TensorType, indices: TensorType, updates: TensorType, *, axis: int, reduce: ScatterKind) -> TensorType:
    """Indices and updates of one shape, which is that of `x` except along `axis`. The result has the type of `x`."""
    attribute(reduce in _KINDS, f"reduce is one of {', '.join(_KINDS)}; got {reduce}", "reduce")
    want(x.dtype, _KINDS[reduce])
    same_dtype(x, updates, of=(0, 2))
    same_shape(indices, updates, of=(1, 2))
    along_axis(x, indices, axis)
    return x


def fold_scatter(op: Op) -> Operand | None:
    """`x`, when there are no updates."""
    return op.operands[0] if 0 in tensor_type(op.operands[2]).shape else None


@op(
    "ptir.scatter_reduce",
    infer=scatter_reduce_type,
    check=indices_inside(axis_extent, OUTSIDE),
    fails=indices_unknown(axis_extent),
    fold=fold_scatter,
    traits=PURE,
    error=errors.by("reduce", add=errors.linear(data=(0, 2)), replace=errors.moved(data=(0, 2))),
    generate=drawing.draw_scatter_reduce,
    inplace=InPlace("scatter-reduce", over=(0,)),
    asks=indices(1, lambda op, shape: (shape[op.attr("axis")],)),
)
def scatter_reduce(x: Array, indices: Array, updates: Array, *, axis: int, reduce: ScatterKind = "add") -> Array:
    """`x` with each update combined into the element at its position, its index along `axis` replaced. Contract: ScatterReduce.

    `reduce` is add, max, min (both propagate NaN) or replace (the last in row-major order wins). Integers wrap; float sums
    are accumulated in float64 and rounded once.
    DTypeNotSupported: the dtype is not one of the kind's, or indices other than si32 and si64. OperandDTypeMismatch,
    OperandShapeMismatch, OperandRankMismatch, DynamicDimensionMismatch: the operands do not fit each other.
    InvalidAttributeValue: `axis` is out of range, or an unknown `reduce`. ScatterIndexOutOfBounds: an index is outside the axis.
    """
    at: list[Array] = list(np.indices(indices.shape, sparse=True))
    at[axis % x.ndim] = checked_indices(indices, x.shape[axis], OUTSIDE)
    return _scatter(x, tuple(np.broadcast_arrays(*at)), updates, reduce)


def _scatter(x: Array, at: tuple[Array, ...], updates: Array, kind: str) -> Array:
    dtype = numerics.dtype_of(x)
    if kind == "replace":
        out = x.copy()
        out[at] = updates
        return out
    total = arrays.widen(x).copy()
    accumulate(kind, total, at, arrays.widen(updates))
    return numerics.cast_accumulated(total, default_accum(dtype), dtype)


def _check_dimension_numbers(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    window: tuple[int, ...],
    inserted: tuple[int, ...],
    scattered: tuple[int, ...],
    at: int,
) -> None:
    """Check XLA's constraints on scatter dimension numbers; `at` is the axis of the index vectors."""
    depth: Dim = 1 if at == indices.rank else indices.shape[at]
    name = "scatter_dims_to_operand_dims"
    agree(depth, len(scattered), "InvalidAttributeValue", f"{name} does not have one entry per index component", name)
    batch = [d for i, d in enumerate(indices.shape) if i != at]
    fits = updates.rank == len(batch) + len(window) and x.rank == len(window) + len(inserted)
    require(
        fits,
        "OperandRankMismatch",
        f"updates {updates} have {len(batch)} scatter axes and {len(window)} window axes; {x} has {len(window)} window axes "
        f"and {len(inserted)} inserted ones",
        at=operand(2),
    )
    outer = [updates.shape[i] for i in range(updates.rank) if i not in window]
    for a, b in zip(outer, batch, strict=True):
        agree(a, b, "OperandShapeMismatch", f"scatter axes of updates {updates} and indices {indices} differ", operand(2))
    kept = [d for i, d in enumerate(x.shape) if i not in inserted]
    for size, extent in zip((updates.shape[i] for i in sorted(window)), kept, strict=True):
        fits = not (isinstance(size, int) and isinstance(extent, int)) or size <= extent
        require(fits, "OperandShapeMismatch", f"a window extent of updates {updates} is more than {x} has", at=operand(2))


@rule
def scatter_add_type(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int | None,
) -> TensorType:
    """XLA's scatter; the result has the type of `x`."""
    want(x.dtype, NUMERIC)
    return _windows(x, indices, updates, update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, index_vector_dim)


def _windows(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int | None,
) -> TensorType:
    want(indices.dtype, INDICES, "the index operand", at=operand(1))
    same_dtype(x, updates, of=(0, 2))
    window = axes_of(update_window_dims, updates.rank, "update_window_dims")
    inserted = axes_of(inserted_window_dims, x.rank, "inserted_window_dims")
    scattered = axes_of(scatter_dims_to_operand_dims, x.rank, "scatter_dims_to_operand_dims")
    _check_dimension_numbers(x, indices, updates, window, inserted, scattered, index_vector_axis(index_vector_dim, indices.rank))
    return x


def index_vector_axis(index_vector_dim: int | None, rank: int) -> int:
    """The axis of the indices that holds the components of an index; the rank when each element is an index by itself."""
    if index_vector_dim is None or index_vector_dim == rank:
        return rank
    return axis_of(index_vector_dim, rank, "index_vector_dim")


def window_extents(x: Sequence[D], updates: Sequence[D], window: tuple[int, ...], inserted: tuple[int, ...]) -> list[D | int]:
    """The extent of a window along every axis of `x`: 1 for an inserted axis, else that of the next window axis."""
    sizes = iter([updates[a] for a in sorted(a % len(updates) for a in window)])
    left_out = {a % len(x) for a in inserted}
    return [1 if axis in left_out else next(sizes) for axis in range(len(x))]


def check_scatter_add_indices(op: Op) -> None:
    """Raise Violation when a window at a constant index is outside the first operand."""
    x, indices, updates = map(operand_type, op.operands)
    if not (isinstance(x, TensorType) and isinstance(indices, TensorType) and isinstance(updates, TensorType)):
        return
    at = index_vector_axis(op.attr("index_vector_dim"), indices.rank)
    sizes = window_extents(x.shape, updates.shape, op.attr("update_window_dims"), op.attr("inserted_window_dims"))
    for k, axis in enumerate(op.attr("scatter_dims_to_operand_dims")):
        extent, size = x.shape[axis], sizes[axis]
        if isinstance(extent, int) and isinstance(size, int):
            check_indices(index_components(op.operands[1], at, k), extent - size + 1, OUTSIDE)


def index_components(indices: Operand, at: int, k: int) -> list[int]:
    """The constant components `k` of index vectors along axis `at`; empty when their values or positions are not known."""
    values, t = constant_indices(indices), operand_type(indices)
    assert isinstance(t, TensorType)
    if len(values) < 2 or at == t.rank or t.shape[at] == 1:
        return values
    in_place = isinstance(indices, Literal) or (isinstance(indices, Value) and indices.op and indices.op.name == "ptir.constant")
    depth, stride = t.static_shape[at], prod(t.static_shape[at + 1 :])
    return [v for i, v in enumerate(values) if i // stride % depth == k] if in_place else []


def start_counts(op: Op, shape: Shape) -> tuple[int, ...]:
    """The number of starts at which the window is in bounds, the least over all components of an index."""
    updates = tensor_type(op.operands[2])
    windows = [updates.shape[d] for d in sorted(d % updates.rank for d in op.attr("update_window_dims"))]
    inserted = {d % len(shape) for d in op.attr("inserted_window_dims")}
    sizes = dict(zip((i for i in range(len(shape)) if i not in inserted), windows, strict=False))
    pairs = [(shape[d], sizes.get(d, 1)) for d in (d % len(shape) for d in op.attr("scatter_dims_to_operand_dims"))]
    return (max(0, min((n - size + 1 for n, size in pairs if isinstance(n, int) and isinstance(size, int)), default=1)),)


_windows_unknown = indices_unknown(lambda op, shape: 0)


@op(
    "ptir.scatter_add",
    infer=scatter_add_type,
    check=check_scatter_add_indices,
    fails=_windows_unknown,
    fold=fold_scatter,
    traits=PURE,
    error=errors.linear(data=(0, 2)),
    generate=drawing.draw_scatter,
    inplace=InPlace("scatter-add", over=(0,)),
    asks=indices(1, start_counts),
)
def scatter_add(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    update_window_dims: tuple[int, ...] = (),
    inserted_window_dims: tuple[int, ...] = (),
    scatter_dims_to_operand_dims: tuple[int, ...] = (),
    index_vector_dim: int | None = None,
) -> Array:
    """`x` with windows of `updates` added at the indexed positions, with XLA's dimension numbers. Contract: ScatterAdd.

    The axis `index_vector_dim` of the indices holds the components of an index. When absent, it is the rank of the indices: they
    are scalars. Component k is a start along axis `scatter_dims_to_operand_dims[k]` of `x`. The axes `update_window_dims` of the
    updates are, in order, the axes of `x` that are not in `inserted_window_dims`. The other axes of the updates are those of the
    indices.
    Integers wrap; float sums are accumulated in float64 and rounded once.
    DTypeNotSupported: i1, or indices other than si32 and si64. OperandDTypeMismatch, OperandRankMismatch, OperandShapeMismatch,
    DynamicDimensionMismatch: the operands do not fit each other or the dimension numbers. InvalidAttributeValue: an axis out of
    range or named twice, or not one component per scattered axis. ScatterIndexOutOfBounds: a window leaves `x` (refused before
    the run when the indices are constant).
    """
    at, ordered = _target_positions(
        x, indices, updates, update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, index_vector_dim
    )
    return _scatter(x, at, ordered, "add")


def _target_positions(
    x: Array,
    indices: Array,
    updates: Array,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int | None,
    inside: bool = True,
) -> tuple[tuple[Array, ...], Array]:
    """The position in `x` of each element of `updates`, and the updates. With `inside`, raises Violation for a window that leaves
    `x`."""
    window = sorted(a % updates.ndim for a in update_window_dims)
    inserted = [a % x.ndim for a in inserted_window_dims]
    kept = [a for a in range(x.ndim) if a not in inserted]
    batch = [a for a in range(updates.ndim) if a not in window]
    extent = window_extents(x.shape, updates.shape, update_window_dims, inserted_window_dims)
    start = _starts(x, indices, extent, [a % x.ndim for a in scatter_dims_to_operand_dims], index_vector_dim, inside)
    axes = batch + window
    shape = tuple(updates.shape[a] for a in axes)
    at: list[Array] = []
    for axis in range(x.ndim):
        lead = start[axis].reshape(start[axis].shape + (1,) * len(window))
        if axis in kept:
            lead = lead + np.arange(extent[axis]).reshape([-1 if k == axis else 1 for k in kept])
        at.append(np.broadcast_to(lead, shape))
    if axes != sorted(axes):  # elements are written in the order in memory of the places
        at = [np.ascontiguousarray(np.transpose(a, np.argsort(axes))) for a in at]
    return tuple(at), updates


def _starts(
    x: Array, indices: Array, extent: list[int], scattered: list[int], index_vector_dim: int | None, inside: bool
) -> list[Array]:
    """For every axis of `x`, the start of each window along it; 0 where the index has no component for the axis."""
    at = index_vector_axis(index_vector_dim, indices.ndim)
    parts = np.moveaxis(indices, at, -1) if at < indices.ndim else indices[..., None]
    nowhere = np.zeros(parts.shape[:-1], np.int64)
    start = [nowhere] * x.ndim
    for k, axis in enumerate(scattered):
        found = parts[..., k]
        start[axis] = checked_indices(found, x.shape[axis] - extent[axis] + 1, OUTSIDE) if inside else found.astype(np.int64)
    return start


@rule
def scatter_type(
    x: TensorType,
    indices: TensorType,
    updates: TensorType,
    *,
    update_window_dims: tuple[int, ...],
    inserted_window_dims: tuple[int, ...],
    scatter_dims_to_operand_dims: tuple[int, ...],
    index_vector_dim: int | None,
    reduce: UpdateKind,
    drop: bool,
) -> TensorType:
    """XLA's scatter of a kind; the result has the type of `x`."""
    attribute(reduce in _UPDATES, f"reduce is one of {', '.join(_UPDATES)}; got {reduce}", "reduce")
    want(x.dtype, _UPDATES[reduce])
    return _windows(x, indices, updates, update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, index_vector_dim)


def check_scatter_indices(op: Op) -> None:
    """Raise Violation when a window at a constant index is outside the first operand, unless it is dropped."""
    if not op.attr("drop"):
        check_scatter_add_indices(op)


def may_leave(op: Op) -> bool:
    """Whether a window may be outside without being dropped, so that the op may fail."""
    return not op.attr("drop") and _windows_unknown(op)


@op(
    "ptir.scatter",
    infer=scatter_type,
    check=check_scatter_indices,
    fails=may_leave,
    fold=fold_scatter,
    traits=PURE,
    error=errors.by(
        "reduce",
        replace=errors.moved(data=(0, 2)),
        add=errors.linear(data=(0, 2)),
        mul=errors.multiplied(data=(0, 2)),
        **dict.fromkeys(("and", "or", "xor"), errors.discrete),
    ),
    generate=drawing.draw_scatter,
    asks=indices(1, start_counts),
)
def scatter(
    x: Array,
    indices: Array,
    updates: Array,
    *,
    update_window_dims: tuple[int, ...] = (),
    inserted_window_dims: tuple[int, ...] = (),
    scatter_dims_to_operand_dims: tuple[int, ...] = (),
    index_vector_dim: int | None = None,
    reduce: UpdateKind = "replace",
    drop: bool = False,
) -> Array:
    """`x` with windows of `updates` combined into it at indexed places, numbered as by `scatter_add`. Extension.

    `reduce` is replace (the last update in row-major order wins), add, mul, max, min (both propagate NaN), and, or, xor. With
    `drop` an element of an update that is outside `x` is left out; without it that is an error.
    DTypeNotSupported: the dtype is not one of the kind's, or indices other than si32 and si64. OperandDTypeMismatch,
    OperandRankMismatch, OperandShapeMismatch, DynamicDimensionMismatch: the operands do not fit each other or the numbers.
    InvalidAttributeValue: an unknown `reduce`, an axis out of range or named twice, or not one component per scattered axis.
    ScatterIndexOutOfBounds: a window leaves `x` (refused before the run when the indices are constant), unless with `drop`.
    """
    numbers = update_window_dims, inserted_window_dims, scatter_dims_to_operand_dims, index_vector_dim
    at, ordered = _target_positions(x, indices, updates, *numbers, inside=not drop)
    if drop:
        held = np.logical_and.reduce([(a >= 0) & (a < n) for a, n in zip(at, x.shape, strict=True)] or [np.ones((), bool)])
        at, ordered = tuple(a[held] for a in at), ordered[held] if at else ordered
    return _scatter(x, at, ordered, reduce)
