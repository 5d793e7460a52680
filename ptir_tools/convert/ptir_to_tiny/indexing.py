"""PTIR to Tiny: indexing. Constant indices that are affine in their position give FLIP, SHRINK or VIEW.

All others give a one-hot selection. Elements where an iota differs from the index become 0. The sum of the rest is the selected
element, exact except for the sign of a zero. An index out of bounds, an error in PTIR, selects none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit
from ptir_tools.core import expressions as ex
from ptir_tools.core.arrays import Array, from_literal, to_literal
from ptir_tools.core.dtypes import F32, I1, SI32, DType
from ptir_tools.core.expressions import Poly
from ptir_tools.core.ir import Literal, Op, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.types import Dim, Shape, tensor
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.dialects.tiny.ops.reduce import identity
from ptir_tools.dialects.tiny.ops.view import axis_name
from ptir_tools.rewrite.vocabulary import tensor_type


def _take(emit: TinyEmit, op: Op, x: Data, positions: Data) -> Value:
    """Evenly spaced indices are a SHRINK, a reversed axis a FLIP, other regular indices a VIEW, all else a selection."""
    if isinstance(positions, Literal) and positions.data is not None and positions.type.is_static:
        with suppress(Violation):
            return _mapped(emit, emit.node(x), positions)
    v, index = emit.node(x), emit.node(positions)
    rank = tensor_type(index).rank
    rows, rest = tensor_type(v).shape[0], tensor_type(v).shape[1:]
    others = differs(emit, index, rows)
    shape = (*tensor_type(others).shape, *rest)
    wide = emit("EXPAND", v, result_shape=shape, broadcast_dimensions=tuple(range(rank, len(shape))))
    return emit.settled(chosen(emit, wide, others, range(rank + 1), rank))


def _mapped(emit: TinyEmit, v: Value, positions: Literal) -> Value:
    """`take` by an index map. Raises Violation where the constant indices have none."""
    indices, shape = from_literal(positions).astype(np.int64), tensor_type(v).shape
    if indices.ndim < 2 and (steps := _steps(emit, v, indices.reshape(-1), shape)) is not None:
        return emit.settled(steps)
    kept = [ex.name(axis_name(indices.ndim + i)) for i in range(len(shape) - 1)]
    entries = tuple(map(ex.to_dim, (_entry(indices), *kept)))
    return emit.settled(emit("VIEW", v, result_shape=emit.shape, map=entries))


def _steps(emit: TinyEmit, x: Value, indices: Array, shape: Shape) -> Value | None:
    """A FLIP or a SHRINK; None where `indices` are neither the whole axis backwards nor upward by even steps."""
    count = len(indices)
    first, step = int(indices[0]) if count else 0, int(indices[1] - indices[0]) if count > 1 else 1
    if not np.array_equal(indices, first + step * np.arange(count)):
        return None
    if (step, first, count) == (-1, count - 1, shape[0]):
        return emit("FLIP", x, axes=(0,))
    if step < 1:
        return None
    low, high = (first, *(0 for _ in shape[1:])), (first + (count - 1) * step + 1 if count else 0, *shape[1:])
    steps = {"step": (step, *(1 for _ in shape[1:]))} if step > 1 else {}
    return emit("SHRINK", x, lo=low, hi=high, **steps)


def _entry(indices: Array) -> Poly:
    """The index map of `indices` from the axes of the result: a sum of one term per axis. Raises Violation."""
    if not indices.size:
        return ex.constant(0)
    first = indices[(0,) * indices.ndim]
    total, entry = first, ex.constant(int(first))
    for axis in range(indices.ndim):
        line = indices[tuple(slice(None) if a == axis else 0 for a in range(indices.ndim))] - first
        total = total + line.reshape([-1 if a == axis else 1 for a in range(indices.ndim)])
        entry = entry + _terms(line, ex.name(axis_name(axis)))
    separate = np.array_equal(total, indices)
    require(separate, NOT_TRANSLATABLE, "the constant indices are not a sum over their axes, as an index map is")
    return entry


def _terms(line: Array, axis: Poly) -> Poly:
    """`line`, which begins with 0, as a term of `axis`: steps of equal size that restart periodically. Raises Violation."""
    step, places = int(line[1]) if len(line) > 1 else 0, np.arange(len(line))
    off = np.flatnonzero(line != step * places)
    if not len(off):
        return ex.constant(step) * axis
    period = int(off[0])
    starts = line[::period]
    regular = np.array_equal(line, starts[places // period] + step * (places % period))
    require(regular, NOT_TRANSLATABLE, "the constant indices follow no affine map")
    outer = axis // ex.constant(period)
    return _terms(starts, outer) + ex.constant(step) * (axis - ex.constant(period) * outer)


# Selections


def counted(emit: TinyEmit, n: Dim, dtype: DType = SI32) -> Value:
    """0, 1, …, n - 1: a constant, or for a symbolic extent the sums of the rows of a triangle of ones."""
    if isinstance(n, int):
        require(n * dtype.size <= current().literal_bytes, NOT_TRANSLATABLE, "the constant would be too big")
        return emit.pooled(to_literal(np.arange(n), tensor(dtype, (n,))))
    one = emit.pooled(to_literal(np.ones(1, np.int64), tensor(dtype, (1,))))
    below = ex.to_dim(ex.name(axis_name(0)) - ex.name(axis_name(1)) - ex.constant(1))
    triangle = emit("VIEW", one, result_shape=(n, n), map=(0,), guard=(below,), fill=0)
    return emit("REDUCE", triangle, op="SUM", axes=(1,), dtype=dtype)


def spread_out(emit: TinyEmit, x: Value, shape: Shape, axes: Iterable[int]) -> Value:
    """`x` broadcast to `shape`, with its axes at `axes`."""
    at = tuple(axes)
    return x if tensor_type(x).shape == shape else emit("EXPAND", x, result_shape=shape, broadcast_dimensions=at)


def differs(emit: TinyEmit, index: Value, n: Dim) -> Value:
    """For each index and each number below `n`, along a new last axis, whether they differ. A difference that wraps is not 0."""
    shape = (*tensor_type(index).shape, n)
    last = len(shape) - 1
    numbers = spread_out(emit, counted(emit, n, tensor_type(index).dtype), shape, (last,))
    return emit.cast(emit("SUB", spread_out(emit, index, shape, range(last)), numbers), I1)


def chosen(
    emit: TinyEmit, x: Value, others: Value, axes: Iterable[int], axis: int, nothing: float = 0, kind: str = "SUM"
) -> Value:
    """The element of `x` along `axis` where `others`, whose axes are `axes` of `x`, is false, else `nothing`."""
    t = tensor_type(x)
    work = SI32 if t.dtype is I1 else F32 if t.dtype.is_float else t.dtype
    left = emit("WHERE", spread_out(emit, others, t.shape, axes), immediate(nothing, work), emit.cast(x, work))
    return emit.cast(emit("REDUCE", left, op=kind, axes=(axis,), dtype=work), t.dtype)


def _gather(emit: TinyEmit, op: Op, x: Data, positions: Data) -> Value:
    """A gather: the axis becomes a new last one, along which the index selects."""
    v, index = emit.node(x), emit.node(positions)
    rank = tensor_type(v).rank
    axis = op.attr("axis") % rank
    return emit.settled(_along(emit, v, axis, differs(emit, index, tensor_type(v).shape[axis]), range(rank + 1)))


def _along(emit: TinyEmit, x: Value, axis: int, others: Value, axes: Iterable[int]) -> Value:
    """`x` with its elements along `axis` selected by the mask `others`, whose last axis numbers them; `axes` are its axes in the
    result, and the last."""
    t = tensor_type(x)
    kept = [i for i in range(t.rank) if i != axis]
    at = tuple(axes)
    extents = dict(zip(at, tensor_type(others).shape, strict=True))
    shape = (*(extents.get(i, d) for i, d in enumerate(t.shape)), t.shape[axis])
    moved = x if axis == t.rank - 1 else emit("PERMUTE", x, perm=(*kept, axis))
    return chosen(emit, spread_out(emit, moved, shape, (*kept, t.rank)), others, at, t.rank)


def _starts(emit: TinyEmit, start: Data, shape: Shape, sizes: Shape) -> Iterator[tuple[int, Value]]:
    """Each axis that the window does not cover, and its clamped start there."""
    v = emit.node(start)
    for axis, (n, size) in enumerate(zip(shape, sizes, strict=True)):
        if n != size:
            first = emit("RESHAPE", emit("SHRINK", v, lo=(axis,), hi=(axis + 1,)), result_shape=())
            require(isinstance(n, int) and isinstance(size, int), NOT_TRANSLATABLE, "an extent is symbolic")
            assert isinstance(n, int) and isinstance(size, int)
            dtype = tensor_type(v).dtype
            yield axis, emit("MIN", emit("MAX", first, immediate(0, dtype)), immediate(n - size, dtype))


def _places(emit: TinyEmit, first: Value, size: Dim) -> Value:
    """`size` indices from `first` on."""
    numbers = counted(emit, size, tensor_type(first).dtype)
    return emit("ADD", spread_out(emit, first, (size,), ()), numbers)


def _fixed(start: Data, shape: Shape, sizes: Shape) -> list[int] | None:
    """The constant starts, clamped; None where they are not constant, or an extent is symbolic."""
    if not isinstance(start, Literal) or start.data is None or not start.type.is_static:
        return None
    fixed: list[int] = []
    for first, n, size in zip(from_literal(start).reshape(-1).tolist(), shape, sizes, strict=True):
        if n != size and not (isinstance(n, int) and isinstance(size, int)):
            return None
        fixed.append(min(max(first, 0), n - size) if isinstance(n, int) and isinstance(size, int) else 0)
    return fixed


def _dynamic_slice(emit: TinyEmit, op: Op, x: Data, start: Data) -> Value:
    """Along each axis a selection of `size` indices; for a constant start a SHRINK."""
    v, sizes = emit.node(x), op.attr("sizes")
    shape = tensor_type(v).shape
    if (fixed := _fixed(start, shape, sizes)) is not None:
        ends = tuple(n if n == d else a + n for a, n, d in zip(fixed, sizes, shape, strict=True))
        return emit.settled(emit("SHRINK", v, lo=tuple(fixed), hi=ends))
    for axis, first in _starts(emit, start, shape, sizes):
        t = tensor_type(v)
        v = _along(emit, v, axis, differs(emit, _places(emit, first, sizes[axis]), t.shape[axis]), (axis, t.rank))
    return emit.settled(v) if v is not x else emit.last("RESHAPE", v, result_shape=emit.shape)


def _dynamic_update_slice(emit: TinyEmit, op: Op, x: Data, update: Data, start: Data) -> Value:
    """Along each axis the update is moved to its start; elements outside of it are unchanged."""
    v, u, sizes = emit.node(x), emit.node(update), op.attr("sizes")
    shape = tensor_type(v).shape
    fixed, outside = _fixed(start, shape, sizes), list[Value]()
    if fixed is not None:
        for axis, (at, n, size) in enumerate(zip(fixed, shape, sizes, strict=True)):
            if n != size:
                assert isinstance(n, int) and isinstance(size, int)
                u, none = _moved(emit, u, axis, at, n, size)
                outside.append(spread_out(emit, none, shape, (axis,)))
    else:
        for axis, first in _starts(emit, start, shape, sizes):
            written = differs(emit, _places(emit, first, sizes[axis]), shape[axis])
            others = emit("PERMUTE", written, perm=(1, 0))  # [places, update]
            ends = (axis, tensor_type(u).rank)
            u = _repeated(emit, u, axis, shape[axis]) if sizes[axis] == 1 else _along(emit, u, axis, others, ends)
            none = emit("REDUCE", emit.cast(others, SI32), op="MIN", axes=(1,), dtype=SI32)
            outside.append(spread_out(emit, emit.cast(none, I1), shape, (axis,)))
    for test in outside:
        u = emit("WHERE", test, v, u)
    return emit.settled(u) if outside else emit.last("RESHAPE", u, result_shape=emit.shape)


def _repeated(emit: TinyEmit, x: Value, axis: int, n: Dim) -> Value:
    """`x`, of extent 1 along `axis`, repeated along it."""
    t = tensor_type(x)
    return spread_out(emit, x, tuple(n if i == axis else d for i, d in enumerate(t.shape)), range(t.rank))


def _moved(emit: TinyEmit, x: Value, axis: int, first: int, n: int, size: int) -> tuple[Value, Value]:
    """`x` moved to its start along an axis of extent `n`, and a mask of the other elements."""
    t = tensor_type(x)
    line = np.ones(n, np.bool_)
    line[first : first + size] = False
    others = emit.pooled(to_literal(line, tensor(I1, (n,))))
    if size == 1:
        return _repeated(emit, x, axis, n), others
    pads = tuple((first, n - size - first) if i == axis else (0, 0) for i in range(t.rank))
    return emit("PAD", x, pad=pads, value=0 if t.dtype is not I1 else False), others


def _combined(emit: TinyEmit, x: Value, kind: str, new: Value) -> Value:
    """Elements of `x` combined with those of `new`."""
    short = {"SUM": "ADD", "MAX": "MAX", "MIN": "MIN"}[kind]
    t = tensor_type(x)
    work = F32 if t.dtype.is_float else t.dtype
    return emit.cast(emit(short, emit.cast(x, work), new), t.dtype)


def _gone(emit: TinyEmit, updates: Value, others: Value, axes: Iterable[int], axis: int, kind: str) -> Value:
    """The updates of each element, along `axis`, combined in fp32 or i32."""
    t = tensor_type(updates)
    work = F32 if t.dtype.is_float else t.dtype
    return chosen(emit, emit.cast(updates, work), others, axes, axis, identity(kind, work), kind)


def _scatter_reduce(emit: TinyEmit, op: Op, x: Data, positions: Data, updates: Data) -> Value:
    """At each index along the axis its updates, combined; the last one where it replaces."""
    v, index, u = emit.node(x), emit.node(positions), emit.node(updates)
    t, kind = tensor_type(v), op.attr("reduce")
    require(t.dtype is not I1, NOT_TRANSLATABLE, "Tiny combines numbers only")
    axis = op.attr("axis") % t.rank
    kept = [i for i in range(t.rank) if i != axis]
    order = (*kept, axis)
    last = tensor_type(index).shape[axis]
    if last == 0:
        return emit.last("RESHAPE", v, result_shape=emit.shape)
    shape = (*t.shape, last)  # at each place of x, every update along the axis

    def turned(y: Value) -> Value:
        y = y if axis == t.rank - 1 else emit("PERMUTE", y, perm=order)
        return spread_out(emit, y, shape, (*kept, t.rank))

    numbers = spread_out(emit, counted(emit, t.shape[axis], tensor_type(index).dtype), shape, (axis,))
    others = emit.cast(emit("SUB", turned(index), numbers), I1)
    whole = range(t.rank + 1)
    if kind != "replace":
        named = {"add": "SUM", "max": "MAX", "min": "MIN"}[kind]
        return emit.settled(_combined(emit, v, named, _gone(emit, turned(u), others, whole, t.rank, named)))
    order_of = spread_out(emit, counted(emit, last), shape, (t.rank,))
    latest = chosen(emit, order_of, others, whole, t.rank, -1, "MAX")
    if not isinstance(last, int):  # the largest of nothing is less than -1
        latest = emit("MAX", latest, immediate(-1, SI32))
    written = chosen(emit, turned(u), differs(emit, latest, last), whole, t.rank)
    some = emit.cast(emit("ADD", emit("MIN", latest, immediate(0, SI32)), immediate(1, SI32)), I1)
    return emit.settled(emit("WHERE", some, written, v))


def _scatter_add(emit: TinyEmit, op: Op, x: Data, positions: Data, updates: Data) -> Value:
    """Windows of updates added at index vectors; whole rows of one axis without a window along it."""
    v, index, u = emit.node(x), emit.node(positions), emit.node(updates)
    t, ut, it = tensor_type(v), tensor_type(u), tensor_type(index)
    scattered = [a % t.rank for a in op.attr("scatter_dims_to_operand_dims")]
    window = sorted(a % ut.rank for a in op.attr("update_window_dims"))
    inserted = sorted(a % t.rank for a in op.attr("inserted_window_dims"))
    batch, kept = ([i for i in range(n) if i not in some] for n, some in ((ut.rank, window), (t.rank, inserted)))
    count = ex.to_dim(ex.product(ut.shape[i] for i in batch))
    vector = it.rank if op.attr("index_vector_dim") is None else op.attr("index_vector_dim")
    if vector < it.rank - 1:
        index = emit("PERMUTE", index, perm=(*(i for i in range(it.rank) if i != vector), vector))
    rows = emit("PERMUTE", u, perm=(*batch, *window)) if [*batch, *window] != sorted([*batch, *window]) else u
    extents = dict(zip(kept, (ut.shape[i] for i in window), strict=True))
    if len(scattered) == 1 and inserted == scattered and all(extents[i] == t.shape[i] for i in kept):
        rows = emit("RESHAPE", rows, result_shape=(count, *(t.shape[i] for i in kept)))
        return _rows_added(emit, v, rows, emit("RESHAPE", index, result_shape=(count,)), scattered[0])
    rows = emit("RESHAPE", rows, result_shape=(count, *(extents.get(i, 1) for i in range(t.rank))))
    starts = emit("RESHAPE", index, result_shape=(count, len(scattered)))
    return _windows_added(emit, v, rows, {axis: _component(emit, starts, k) for k, axis in enumerate(scattered)})


def _component(emit: TinyEmit, starts: Value, k: int) -> Value:
    """Component `k` of index vectors `[count, components]`."""
    count, components = tensor_type(starts).shape
    if components != 1:
        starts = emit("SHRINK", starts, lo=(0, k), hi=(count, k + 1))
    return emit("RESHAPE", starts, result_shape=(count,))


def _windows_added(emit: TinyEmit, x: Value, windows: Value, starts: Mapping[int, Value]) -> Value:
    """Window i of `windows`, added to `x` at its start in `starts`."""
    t = tensor_type(x)
    for axis, n in enumerate(t.shape):
        count, size = tensor_type(windows).shape[0], tensor_type(windows).shape[axis + 1]
        if (first := starts.get(axis)) is not None:
            numbers = spread_out(emit, counted(emit, size, tensor_type(first).dtype), (count, size), (1,))
            places = emit("ADD", spread_out(emit, first, (count, size), (0,)), numbers)
            others = emit("PERMUTE", differs(emit, places, n), perm=(0, 2, 1))  # [window, place, element]
            windows = _along(emit, windows, axis + 1, others, (0, axis + 1, t.rank + 1))
        elif size != n:
            high = ex.to_dim(ex.of_dim(n) - ex.of_dim(size))
            windows = emit("PAD", windows, pad=tuple((0, high if i == axis + 1 else 0) for i in range(t.rank + 1)), value=0)
    work = F32 if t.dtype.is_float else t.dtype
    total = emit("REDUCE", emit.cast(windows, work), op="SUM", axes=(0,), dtype=work)
    return emit.settled(_combined(emit, x, "SUM", total))


def _rows_added(emit: TinyEmit, x: Value, rows: Value, index: Value, axis: int) -> Value:
    """Row i of `rows` added to what `x` has at `index[i]` along `axis`."""
    t = tensor_type(x)
    kept = [i for i in range(t.rank) if i != axis]
    count = tensor_type(rows).shape[0]
    wide = spread_out(emit, rows, (count, *t.shape), (0, *(i + 1 for i in kept)))
    others = differs(emit, index, t.shape[axis])
    return emit.settled(_combined(emit, x, "SUM", _gone(emit, wide, others, (0, axis + 1), 0, "SUM")))


def _segment_reduce(emit: TinyEmit, op: Op, data: Data, ids: Data) -> Value:
    """The rows of each segment, combined."""
    v, index, kind = emit.node(data), emit.node(ids), op.attr("kind").upper()
    t, accum = tensor_type(v), op.attr("accum_dtype")
    require(accum in (None, t.dtype, F32 if t.dtype.is_float else t.dtype), NOT_TRANSLATABLE, f"no sums in {accum}")
    shape = (t.shape[0], op.attr("num_segments"), *t.shape[1:])
    wide = spread_out(emit, v, shape, (0, *range(2, len(shape))))
    others = differs(emit, index, op.attr("num_segments"))
    return emit.settled(_gone(emit, wide, others, (0, 1), 0, kind))


INDEXING: dict[str, Rule] = {
    "take": _take, "gather": _gather, "dynamic_slice": _dynamic_slice, "dynamic_update_slice": _dynamic_update_slice,
    "scatter_reduce": _scatter_reduce, "scatter_add": _scatter_add, "segment_reduce": _segment_reduce,
}  # fmt: skip
