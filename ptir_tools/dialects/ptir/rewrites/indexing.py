"""Patterns of gathers, dynamic slices and updates with known indices: they are slices, pads, or no op."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.ir import Operand, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape, TensorType
from ptir_tools.dialects.ptir.ops.constants import counted
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.uniform import element_of, pad_value_of
from ptir_tools.rewrite.constants import literal_of, same_operand
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites

_COUNTED = ("ptir.constant", "ptir.broadcast_to", "ptir.iota")
_MOST = 4096  # indices that are looked at


def _integers(x: Operand) -> Array | None:
    """The array of a constant operand of integers, or of an iota; None for any other, or a large one."""
    if not helpers.static(x) or not 0 < helpers.count(x) <= _MOST:
        return None
    if isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.iota":
        axis = x.op.attr("axis") % helpers.rank(x)
        row = np.arange(helpers.extents(x)[axis]).reshape([-1 if a == axis else 1 for a in range(helpers.rank(x))])
        return np.broadcast_to(row, helpers.extents(x))
    element = element_of(x)
    literal = element or literal_of(x)
    if literal is None or literal.data is None:
        return None
    found = arrays.from_literal(literal).astype(np.int64)
    return np.broadcast_to(found, helpers.extents(x)) if element is not None else found


def _run(indices: Array, axis: int, extent: object) -> int | None:
    """The first of indices that increase by one along `axis` and are equal along the others, all in [0, extent); else None."""
    first, n = int(indices.flat[0]), indices.shape[axis]
    row = np.arange(first, first + n).reshape([-1 if a == axis else 1 for a in range(indices.ndim)])
    inside = isinstance(extent, int) and first >= 0 and first + n <= extent
    return first if inside and bool((indices == row).all()) else None


@rewrites("ptir.take", operands=(*_COUNTED, "ptir.add", "ptir.sub"), depth=7)
def take_of_run(op: OpView) -> bool:
    """A `take` of consecutive constant indices is a slice."""
    rank = helpers.rank(op.indices)
    if rank > 1 or not helpers.static(op.x, op.indices):
        return False
    whole, count, found = helpers.extents(op.x)[0], helpers.count(op.indices), counted(op.indices, 4)
    start = found[0] if found is not None and found[1] == count else None
    if start is None and (indices := _integers(op.indices)) is not None:
        start = _run(indices.reshape(-1), 0, whole)
    if start is None or not 0 <= start <= whole - count or not count or (not rank and not op.has_one_use(op.indices)):
        return False
    rest = helpers.shape(op.x)[1:]
    rows = op.rw.build(op.root, "slice", op.x, starts=(start, *[0] * len(rest)), sizes=(count, *rest))
    return op.replace(rows if rank else op.rw.build(op.root, "reshape", rows, new_shape=rest))


@rewrites("ptir.gather", operands=_COUNTED)
def gather_of_run(op: OpView) -> bool:
    """A `gather` of consecutive constant indices, equal along the other axes, is a slice."""
    indices, axis = _integers(op.indices), op.axis % helpers.rank(op.x)
    if indices is None or not helpers.static(op.x):
        return False
    start = _run(indices, axis, helpers.shape(op.x)[axis])
    if start is None:
        return False
    starts = tuple(start if a == axis else 0 for a in range(indices.ndim))
    return op.replace(op.rw.build(op.root, "slice", op.x, starts=starts, sizes=indices.shape))


def _clamped(start: Operand, sizes: Sequence[int], x: Operand) -> tuple[int, ...] | None:
    """A constant start operand, clamped as the contract says; None when it is not constant or an extent is symbolic."""
    found, t = _integers(start), operand_type(x)
    if found is None or not isinstance(t, TensorType) or not t.is_static:
        return None
    room = [d - n for d, n in zip(t.static_shape, sizes, strict=True)]
    return None if min(room) < 0 else tuple(min(max(int(s), 0), r) for s, r in zip(found, room, strict=True))


@rewrites("ptir.dynamic_slice", operands=_COUNTED)
def dynamic_slice_of_constant_start(op: OpView) -> bool:
    """A dynamic slice from a constant start is a slice."""
    starts = _clamped(op.start, op.sizes, op.x)
    return starts is not None and op.replace(op.rw.build(op.root, "slice", op.x, starts=starts, sizes=op.sizes))


@rewrites("ptir.dynamic_update_slice", operands=["ptir.dynamic_update_slice"], at=0)
def update_of_same_window(op: OpView) -> bool:
    """Of two updates of one window, only the last is needed."""
    inner = op.defined_by(op.x, "dynamic_update_slice")
    if inner is None or inner.sizes != op.sizes or not same_operand(inner.start, op.start, 0):
        return False
    return op.replace(op.rw.build(op.root, "dynamic_update_slice", inner.x, op.update, op.start, sizes=op.sizes))


@rewrites("ptir.dynamic_update_slice", operands=_COUNTED)
def update_of_equal_elements(op: OpView) -> bool:
    """An update at a constant start of equal elements is a pad."""
    element, starts = element_of(op.x), _clamped(op.start, op.sizes, op.x)
    if element is None or starts is None:
        return False
    if (fill := pad_value_of(element)) is None:
        return False
    high = tuple(d - s - n for d, s, n in zip(helpers.extents(op.x), starts, op.sizes, strict=True))
    return op.replace(op.rw.build(op.root, "pad", op.update, low=starts, high=high, pad_value=fill))


@rewrites("ptir.slice", operands=["ptir.dynamic_update_slice"])
def slice_of_update(op: OpView) -> bool:
    """A slice of an update at a constant start: within the window it is a slice of `update`, outside a slice of the original."""
    inner = op.defined_by(op.x, "dynamic_update_slice")
    starts = _clamped(inner.start, inner.sizes, inner.x) if inner is not None else None
    if inner is None or starts is None:
        return False
    spans = list(zip(op.starts, op.sizes, starts, inner.sizes, strict=True))
    if any(at + n <= start or at >= start + size for at, n, start, size in spans):
        return op.replace(op.rw.build(op.root, "slice", inner.x, starts=op.starts, sizes=op.sizes))
    if not all(start <= at and at + n <= start + size for at, n, start, size in spans):
        return False
    within = tuple(at - start for at, _, start, _ in spans)
    return op.replace(op.rw.build(op.root, "slice", inner.update, starts=within, sizes=op.sizes))


# Iota


@rewrites("ptir.transpose", "ptir.broadcast_to", "ptir.slice", "ptir.reshape", "ptir.cast", operands=["ptir.iota"])
def rearranged_iota(op: OpView) -> bool:
    """An iota that is rearranged, or cast to a dtype that holds its numbers, is another iota."""
    inner = op.defined_by(op.x, "iota")
    if inner is None or not helpers.static(op.x) or not helpers.static(op.root):
        return False
    axis = _axis_after(op, inner.axis % helpers.rank(op.x))
    if axis is None:
        return False
    return op.replace(op.rw.build(op.root, "iota", shape=helpers.shape(op.root), dtype=helpers.dtype(op.root), axis=axis))


def _axis_after(op: OpView, axis: int) -> int | None:
    """The axis along which the root counts when its operand counts along `axis`; None when it does not count from 0."""
    extents: Shape = helpers.shape(op.x)
    kind = op.root.defn.short
    if kind == "transpose":
        return helpers.axes(op.perm, len(extents)).index(axis)
    if kind == "slice":
        return axis if op.starts[axis] == 0 else None
    if kind == "cast":
        most = extents[axis]
        counts = isinstance(most, int) and all(helpers.holds(helpers.dtype(x), most - 1) for x in (op.x, op.root))
        return axis if counts else None
    if kind == "broadcast_to":
        return axis + helpers.rank(op.root) - len(extents) if extents[axis] != 1 else None
    origin = helpers.unit_origins(extents, helpers.shape(op.root))
    return origin.index(axis) if origin is not None and axis in origin else None


@rewrites("ptir.iota", depth=1)
def iota_of_one(op: OpView) -> bool:
    """An iota along an axis of extent 1 is zero."""
    t = helpers.tensor_type(op.root)
    if not t.is_static or t.shape[op.axis % t.rank] != 1 or not t.count:
        return False
    return helpers.filled(op, 0)


INDEXING: list[Pattern] = [
    take_of_run,
    gather_of_run,
    dynamic_slice_of_constant_start,
    update_of_same_window,
    update_of_equal_elements,
    slice_of_update,
    rearranged_iota,
    iota_of_one,
]
