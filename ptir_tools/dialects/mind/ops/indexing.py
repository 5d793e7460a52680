"""Indexing and slicing. An index out of bounds is E6001 at run time. A negative index does not count from the end."""

from __future__ import annotations

from ptir_tools.core import errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import always, indices, op
from ptir_tools.core.dtypes import SI32, SI64
from ptir_tools.core.ir import MOVEMENT, PURE
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.mind.types import type_text
from ptir_tools.rewrite.vocabulary import of_same_type

drawing = Later("ptir_tools.dialects.mind.drawing")


def index_type(input: TensorType, *, indices: tuple[int, ...]) -> TensorType:
    """E4006: one index per axis. Bounds are checked at run time."""
    message = f"Index takes {input.rank} indices for {type_text(input)}, got {len(indices)}"
    require(len(indices) == input.rank, "E4006", message, at="indices")
    return input.with_shape(())


def check_bounds(shape: tuple[int, ...], indices: tuple[int, ...]) -> Violation | None:
    """E6001 when an index is not in [0, extent)."""
    if all(0 <= i < d for i, d in zip(indices, shape, strict=True)):
        return None
    return Violation("E6001", f"index {list(indices)} is out of bounds for shape {list(shape)}", at="indices")


def clamped(shape: tuple[int, ...], starts: tuple[int, ...], ends: tuple[int, ...]) -> list[tuple[int, int]]:
    """(start, end) per axis, both clamped into [0, extent]."""
    return [(min(max(s, 0), d), min(max(e, 0), d)) for d, s, e in zip(shape, starts, ends, strict=True)]


def slice_type(input: TensorType, *, starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]) -> TensorType:
    """E4007: one start, end and step per axis. E4008: steps are positive. Bounds are clamped into [0, extent]."""
    for name, given in (("starts", starts), ("ends", ends), ("steps", steps)):
        message = f"Slice takes {input.rank} {name} for {type_text(input)}, got {len(given)}"
        require(len(given) == input.rank, "E4007", message, at=name)
    bad = next((s for s in steps if s < 1), None)
    require(bad is None, "E4008", f"step {bad} of Slice is not positive", at="steps")
    bounds = clamped(input.static_shape, starts, ends)
    return input.with_shape(max(0, -((lo - hi) // s)) for (lo, hi), s in zip(bounds, steps, strict=True))


def gather_type(input: TensorType, indices: TensorType) -> TensorType:
    """E4011: the indices are i32 or i64. E3002: the input has an axis to index."""
    require(
        indices.dtype in (SI32, SI64), "E4011", f"the indices of Gather are {type_text(indices)}, not i32 or i64", at=operand(1)
    )
    require(input.rank, "E3002", f"Gather indexes the first axis of its input, {type_text(input)} has none", at=operand(0))
    return input.with_shape(indices.shape + input.shape[1:])


@op("mind.Index", infer=index_type, traits=PURE, error=errors.moved(), generate=drawing.draw_index)
def index(input: Array, *, indices: tuple[int, ...]) -> Array:
    """The element at `indices`, as a scalar; E6001 when it is out of bounds. Indexing and slicing, Index."""
    if (violation := check_bounds(input.shape, indices)) is not None:
        raise violation
    return np.asarray(input[indices])


@op("mind.Slice", infer=slice_type, fold=of_same_type, traits=PURE | MOVEMENT, generate=drawing.draw_slice)
def slice_(input: Array, *, starts: tuple[int, ...], ends: tuple[int, ...], steps: tuple[int, ...]) -> Array:
    """`starts` (inclusive) to `ends` (exclusive) by `steps` along each axis. Indexing and slicing, Slice."""
    bounds = clamped(input.shape, starts, ends)
    return input[tuple(slice(lo, hi, s) for (lo, hi), s in zip(bounds, steps, strict=True))]


@op(
    "mind.Gather",
    infer=gather_type,
    traits=PURE,
    error=errors.moved(data=(0,)),
    generate=drawing.draw_gather,
    asks=indices(1, lambda op, shape: shape[:1]),
    fails=always,
)
def gather(input: Array, indices: Array) -> Array:
    """Rows of the input along its first axis; E6001 for an index outside [0, extent). Indexing and slicing, Gather."""
    bad = indices[(indices < 0) | (indices >= input.shape[0])]
    require(not bad.size, "E6001", f"Gather index {bad[:1].tolist()} is out of bounds for shape {list(input.shape)}")
    return np.take(input, indices, axis=0)
