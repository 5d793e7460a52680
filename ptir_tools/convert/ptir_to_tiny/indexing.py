"""PTIR to Tiny: `take` by constant indices that follow from their position, as FLIP, SHRINK or VIEW; no other is an index map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule, tensor_type
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit
from ptir_tools.core.arrays import Array, from_literal
from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.ir import Literal, Op, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.types import Shape
from ptir_tools.dialects.tiny import expressions as ex
from ptir_tools.dialects.tiny.expressions import Poly
from ptir_tools.dialects.tiny.ops.view import axis_name

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


def _take(emit: TinyEmit, op: Op, x: Data, positions: Data) -> Value:
    """Even steps along an axis are a SHRINK, the whole axis backwards a FLIP, all else a VIEW."""
    if not isinstance(positions, Literal) or positions.data is None or not positions.type.is_static:
        raise Violation(NOT_TRANSLATABLE, "Tiny has no `take`")
    v = emit.node(x)
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
    """The map that gives `indices` from the axes of the result: a sum of one term per axis. Raises Violation."""
    if not indices.size:
        return ex.constant(0)
    first = indices[(0,) * indices.ndim]
    total, entry = first, ex.constant(int(first))
    for axis in range(indices.ndim):
        line = indices[tuple(slice(None) if a == axis else 0 for a in range(indices.ndim))] - first
        total = total + line.reshape([-1 if a == axis else 1 for a in range(indices.ndim)])
        entry = entry + _along(line, ex.name(axis_name(axis)))
    separate = np.array_equal(total, indices)
    require(separate, NOT_TRANSLATABLE, "the constant indices are no sum over their axes, as an index map is")
    return entry


def _along(line: Array, axis: Poly) -> Poly:
    """`line`, which begins with 0, over `axis`: its first step over and over, begun anew at even distances. Raises Violation."""
    step, places = int(line[1]) if len(line) > 1 else 0, np.arange(len(line))
    off = np.flatnonzero(line != step * places)
    if not len(off):
        return ex.constant(step) * axis
    period = int(off[0])
    starts = line[::period]
    regular = np.array_equal(line, starts[places // period] + step * (places % period))
    require(regular, NOT_TRANSLATABLE, "the constant indices follow no affine map")
    outer = axis // ex.constant(period)
    return _along(starts, outer) + ex.constant(step) * (axis - ex.constant(period) * outer)


INDEXING: dict[str, Rule] = {"take": _take}
