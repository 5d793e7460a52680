"""Gather and dynamic slice ops (contract: "Indexing ops", "Dynamic slice/update"); scatters are in `scatter`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ptir_tools.core import arrays, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import indices, moved, op
from ptir_tools.core.ir import PURE, Asks, Extents, InPlace, Literal, Op, Operand, Strides, View, operand_type
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import Shape, TensorType, tensor
from ptir_tools.core.violations import Place, Violation, operand, require
from ptir_tools.core.violations import attribute as place
from ptir_tools.dialects.ptir.ops import needs
from ptir_tools.dialects.ptir.ops.constants import axis_extent, indices_inside, indices_unknown
from ptir_tools.dialects.ptir.ops.typerules import (
    INDICES,
    agree,
    attribute,
    axis_of,
    counts,
    extents,
    rule,
    same_dtype,
    same_shape,
    want,
)  # fmt: skip
from ptir_tools.rewrite.constants import literal_of, same_operand
from ptir_tools.rewrite.vocabulary import made_by

drawing = Later("ptir_tools.dialects.ptir.drawing")


def checked_indices(indices: Array, extent: int, code: str) -> Array:
    """`indices` in si64. Raises Violation(`code`) for an index outside [0, extent); the message names the first."""
    wide = indices.astype(np.int64)
    outside = (wide < 0) | (wide >= extent)
    if outside.any():
        at = np.argwhere(outside)[0]
        where = f" at {at.tolist()}" if wide.ndim else ""
        raise Violation(code, f"index {int(wide[tuple(at)])}{where} is outside [0, {extent})")
    return wide


@rule
def take_type(x: TensorType, indices: TensorType) -> TensorType:
    """The shape of the indices, then that of `x` without axis 0."""
    want(indices.dtype, INDICES, "the index operand", at=operand(1))
    require(x.rank >= 1, "OperandRankMismatch", f"take reads along axis 0, {x} has none", at=operand(0))
    return tensor(x.dtype, indices.shape + x.shape[1:])


def affine_indices(indices: Array) -> tuple[int, Strides] | None:
    """(start, steps) when every index is `start` plus the sum of `steps[a]` times its position along axis a; else None."""
    if indices.size == 0:
        return None
    wide = indices.astype(np.int64)
    corner = (0,) * wide.ndim
    start = int(wide[corner])
    steps = tuple(int(wide[(*corner[:a], 1, *corner[a + 1 :])]) - start if n > 1 else 0 for a, n in enumerate(wide.shape))
    counted = np.full((), start, np.int64)
    for n, step in zip(wide.shape, steps, strict=True):
        counted = np.add.outer(counted, np.arange(n) * step)
    return (start, steps) if np.array_equal(counted, wide) else None


def take_view(op: Op) -> tuple[int, Strides] | None:
    """(start, steps) of a `take` that is a view of its operand: its indices are constant, in bounds and affine. None for any
    other."""
    x, indices = (operand_type(o) for o in op.operands)
    literal = literal_of(op.operands[1])
    if literal is None or literal.data is None or not isinstance(x, TensorType) or not isinstance(indices, TensorType):
        return None
    found = _take_view(literal.data, literal.type, literal.splat)
    if found is None:
        return None
    start, steps = found
    ends = [step * (n - 1) for step, n in zip(steps, indices.static_shape, strict=True)]
    low, high = start + sum(e for e in ends if e < 0), start + sum(e for e in ends if e > 0)
    return found if low >= 0 and high < x.static_shape[0] else None


@lru_cache(64)
def _take_view(data: bytes, t: TensorType, splat: bool) -> tuple[int, Strides] | None:
    return affine_indices(arrays.from_literal(Literal(t, data, splat)))


def take_strides(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[int, Strides] | None:
    """The offset and strides of `take` as a view; None when it is no view (`take_view`)."""
    if (found := take_view(op)) is None:
        return None
    start, steps = found
    return start * strides[0], (*(strides[0] * step for step in steps), *strides[1:])


def take_axes(op: Op) -> factors.Labelled:
    """How mesh axes map: the axes of the indices and the trailing axes of `x` can be partitioned."""
    x, indices = (len(factors.shape_of(o)) for o in op.operands)
    places, columns = tuple(("index", a) for a in range(indices)), tuple(range(1, x))
    return [(None, *columns), places], (*places, *columns)


@op(
    "ptir.take",
    infer=take_type,
    check=indices_inside(lambda op, shape: shape[0], "GatherIndexOutOfBounds"),
    traits=PURE,
    error=errors.moved(data=(0,)),
    generate=drawing.draw_take,
    inplace=InPlace("take"),
    factors=take_axes,
    view=View(take_strides),
    asks=Asks(indices(1, lambda op, shape: shape[:1]).own, needs.looked_up),
    fails=indices_unknown(lambda op, shape: shape[0]),
)
def take(x: Array, indices: Array) -> Array:
    """The rows `x[i]` for each element `i` of `indices` (an embedding). Contract: Take.

    DTypeNotSupported: indices other than si32 and si64. OperandRankMismatch: `x` is a scalar. GatherIndexOutOfBounds: an
    index is outside [0, extent of axis 0) (refused before the run when the indices are constant).
    """
    return np.asarray(x[checked_indices(indices, x.shape[0], "GatherIndexOutOfBounds")])


def along_axis(x: TensorType, indices: TensorType, axis: int) -> int:
    """Check that the indices have the rank of `x` and its extents except along `axis`; the axis, normalized."""
    want(indices.dtype, INDICES, "the index operand", at=operand(1))
    require(x.rank == indices.rank, "OperandRankMismatch", f"{x} and the indices {indices} differ in rank", at=operand(1))
    at = axis_of(axis, x.rank)
    for i, (a, b) in enumerate(zip(x.shape, indices.shape, strict=True)):
        if i != at:
            agree(a, b, "OperandShapeMismatch", f"axis {i} of {x} and of the indices {indices} differs", operand(1))
    return at


@rule
def gather_type(x: TensorType, indices: TensorType, *, axis: int) -> TensorType:
    """The shape of the indices."""
    along_axis(x, indices, axis)
    return x.with_shape(indices.shape)


@op(
    "ptir.gather",
    infer=gather_type,
    check=indices_inside(axis_extent, "GatherIndexOutOfBounds"),
    traits=PURE,
    error=errors.moved(data=(0,)),
    generate=drawing.draw_gather,
    inplace=InPlace("gather"),
    factors=factors.off_axis,
    asks=Asks(indices(1, lambda op, shape: (shape[op.attr("axis")],)).own, moved),
    fails=indices_unknown(axis_extent),
)
def gather(x: Array, indices: Array, *, axis: int) -> Array:
    """At each position of `indices`, the element of `x` at that position with its index along `axis` replaced. Contract: Gather.

    DTypeNotSupported: indices other than si32 and si64. OperandRankMismatch: the ranks differ. OperandShapeMismatch,
    DynamicDimensionMismatch: an extent off the axis differs. InvalidAttributeValue: `axis` is out of range.
    GatherIndexOutOfBounds: an index is outside the axis.
    """
    wide = checked_indices(indices, x.shape[axis], "GatherIndexOutOfBounds")
    return np.take_along_axis(x, wide, axis=axis)


def check_window(x: TensorType, start: TensorType, sizes: tuple[int, ...], at: Place) -> None:
    """Check that `start` is a vector of one index per axis of `x` and that the window fits. `at` is the operand of `start`."""
    want(start.dtype, INDICES, "the start operand", at)
    require(start.rank == 1, "OperandRankMismatch", f"the start operand is a vector of {x.rank} indices, got {start}", at=at)
    agree(start.shape[0], x.rank, "OperandShapeMismatch", f"expected one start per axis of {x}, got {start}", at)
    counts(sizes, x.rank, "sizes")
    for axis, (size, extent) in enumerate(zip(sizes, x.shape, strict=True)):
        fits = not isinstance(extent, int) or size <= extent
        attribute(fits, f"size {size} is more than axis {axis} of {x} has", place("sizes", axis))


@rule
def dynamic_slice_type(x: TensorType, start: TensorType, *, sizes: tuple[int, ...]) -> TensorType:
    """The window's shape."""
    check_window(x, start, sizes, operand(1))
    return x.with_shape(extents(sizes, "sizes"))


def window_at(x: Array, start: Array, sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """The window as slices, each start clamped into [0, extent - size]."""
    first = (max(0, min(int(s), n - size)) for s, n, size in zip(start, x.shape, sizes, strict=True))
    return tuple(slice(s, s + size) for s, size in zip(first, sizes, strict=True))


def fold_dynamic_slice(op: Op) -> Operand | None:
    """`x`, when the window is all of it; `update`, when `x` is a `dynamic_update_slice` of the same window."""
    x, start = op.operands
    written = made_by(x, "dynamic_update_slice")
    if written is None or written.attr("sizes") != op.attr("sizes") or not same_operand(written.operands[2], start, 0):
        return x
    return written.operands[1]


def start_counts(op: Op, shape: Shape) -> Iterator[int]:
    """The number of valid starts along each axis: 1 plus the last start of a window of `sizes`."""
    numbers = ((n, s) for n, s in zip(shape, op.attr("sizes"), strict=True))
    return (max(n - s + 1, 1) if isinstance(n, int) and isinstance(s, int) else 1 for n, s in numbers)


@op(
    "ptir.dynamic_slice",
    infer=dynamic_slice_type,
    fold=fold_dynamic_slice,
    traits=PURE,
    error=errors.moved(data=(0,)),
    generate=drawing.draw_dynamic_slice,
    inplace=InPlace("dynamic-slice"),
    factors=factors.kept_axes,
    asks=Asks(indices(1, start_counts).own, moved),
)
def dynamic_slice(x: Array, start: Array, *, sizes: tuple[int, ...]) -> Array:
    """The window of `sizes` at `start`. A start outside is clamped so that the window fits. Contract: DynamicSlice.

    DTypeNotSupported: starts other than si32 and si64. OperandRankMismatch, OperandShapeMismatch: `start` is not a vector of
    one entry per axis. InvalidAttributeValue: a size is more than the extent (with symbols, before the op runs).
    """
    return np.asarray(x[window_at(x, start, sizes)])


@rule
def dynamic_update_slice_type(x: TensorType, update: TensorType, start: TensorType, *, sizes: tuple[int, ...]) -> TensorType:
    """`update` has the window's shape and the dtype of `x`, which is the result's type."""
    same_dtype(x, update)
    check_window(x, start, sizes, operand(2))
    same_shape(x.with_shape(extents(sizes, "sizes")), update)
    return x


def fold_dynamic_update_slice(op: Op) -> Operand | None:
    """`update`, when the window is all of `x`; `x`, when the window is empty or `update` is the `dynamic_slice` of the same
    window."""
    x, update, start = op.operands
    if 0 in op.attr("sizes"):
        return x
    read = made_by(update, "dynamic_slice")
    same = read is not None and all(map(same_operand, read.operands, (x, start), (0, 0)))
    return x if same else update


def update_axes(op: Op) -> factors.Labelled:
    """How mesh axes map: an axis along which the window is all of `x` can be partitioned."""
    x, update = (factors.shape_of(o) for o in op.operands[:2])
    kept = tuple(a if n == m else None for a, (n, m) in enumerate(zip(x, update, strict=True)))
    return [kept, kept, (None,)], kept


@op(
    "ptir.dynamic_update_slice",
    infer=dynamic_update_slice_type,
    fold=fold_dynamic_update_slice,
    traits=PURE,
    error=errors.moved(data=(0, 1)),
    generate=drawing.draw_dynamic_slice,
    inplace=InPlace("dynamic-update", over=(0,)),
    factors=update_axes,
    asks=indices(2, start_counts),
)
def dynamic_update_slice(x: Array, update: Array, start: Array, *, sizes: tuple[int, ...]) -> Array:
    """`x` with the window of `sizes` at `start` replaced by `update`; starts as in `dynamic_slice`. Contract: DynamicUpdateSlice.

    DTypeNotSupported: starts other than si32 and si64. OperandDTypeMismatch: the update's dtype is another.
    OperandShapeMismatch: the update has not the shape `sizes`, or `start` not one entry per axis. OperandRankMismatch:
    `start` is not a vector. InvalidAttributeValue: a size is more than the extent.
    """
    out = np.array(x)
    out[window_at(x, start, sizes)] = update
    return out
