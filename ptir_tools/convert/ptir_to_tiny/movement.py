"""PTIR to Tiny: what rearranges elements. An immediate has no place: it stays one wherever elements only move."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptir_tools.convert.ptir_to_tiny.emit import NOT_TRANSLATABLE, Data, Emit, Rule, constant, number
from ptir_tools.core.arrays import to_literal
from ptir_tools.core.diagnostics import require
from ptir_tools.core.dtypes import I1
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.dialects.tiny import expressions as ex

Ints = tuple[int, ...]


def _moves(build: Callable[[Emit, Value], Value]) -> Rule:
    """A rule whose operand is a node; an immediate stays what it is."""

    def rule(emit: Emit) -> Data:
        x = emit.operand(0)
        return build(emit, x) if isinstance(x, Value) else x

    return rule


def _reshape(emit: Emit, x: Value) -> Value:
    return emit.last("RESHAPE", x, result_shape=emit.type.shape)


def _transpose(emit: Emit, x: Value) -> Value:
    rank = emit.type.rank
    return emit.last("PERMUTE", x, perm=tuple(p % rank for p in emit.op.attr("perm")))


def _broadcast_to(emit: Emit, x: Value) -> Value:
    rank = len(emit.shape_of(0))
    axes = tuple(range(emit.type.rank - rank, emit.type.rank))
    return emit.last("EXPAND", x, result_shape=emit.type.shape, broadcast_dimensions=axes)


def _slice(emit: Emit, x: Value) -> Value:
    starts, sizes = emit.op.attr("starts"), emit.op.attr("sizes")
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return emit.last("SHRINK", x, lo=starts, hi=ends)


def _tile(emit: Emit, x: Value) -> Value:
    """An axis of repeats before each axis."""
    source, repeats = emit.shape_of(0), emit.op.attr("repeats")
    wide: tuple[Dim, ...] = tuple(d for pair in zip(repeats, source, strict=True) for d in pair)
    axes = tuple(range(1, 2 * len(source), 2))
    return emit.settled(emit("EXPAND", x, result_shape=wide, broadcast_dimensions=axes))


def _pad(emit: Emit) -> Value:
    low, high, interior = (emit.op.attr(n) for n in ("low", "high", "interior"))
    value = number(emit.op.attr("pad_value"), emit.type.dtype)
    x = emit.node(0)
    if any(interior):
        x = spread(emit, x, interior, value)
    return emit.last("PAD", x, pad=tuple(zip(low, high, strict=True)), value=value)


def spread(emit: Emit, x: Value, interior: Ints, value: Any) -> Value:
    """`x` with `interior` elements `value` between neighbors: each element becomes a row, of which the last is cut."""
    shape: Shape = x.type.shape  # type: ignore[attr-defined]
    gaps = tuple(0 if d in (0, 1) else g for d, g in zip(shape, interior, strict=True))
    if not any(gaps):
        return x
    rows = emit("RESHAPE", x, result_shape=tuple(d for n in shape for d in (n, 1)))
    padded = emit("PAD", rows, pad=tuple(p for g in gaps for p in ((0, 0), (0, g))), value=value)
    wide = tuple(ex.to_dim(ex.of_dim(n) * ex.of_dim(g + 1)) for n, g in zip(shape, gaps, strict=True))
    flat = emit("RESHAPE", padded, result_shape=wide)
    ends = tuple(ex.to_dim(ex.of_dim(n) - ex.of_dim(g)) for n, g in zip(wide, gaps, strict=True))
    return emit("SHRINK", flat, lo=(0,) * len(shape), hi=ends)


def _concat(emit: Emit) -> Data:
    parts = [emit.node(i) for i in range(len(emit.op.operands))]
    if len(parts) == 1:
        return emit.last("RESHAPE", parts[0], result_shape=emit.type.shape) if emit.returned else parts[0]
    return emit.named(emit.declared(concatenated(emit, parts, emit.op.attr("axis") % emit.type.rank)))


def concatenated(emit: Emit, parts: list[Value], axis: int) -> Value:
    """`parts` one after the other along `axis`: both halves padded to the whole, and their sum, in which the padding, -0.0
    for floats, changes nothing. For bools it is `x or y`."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    x, y = concatenated(emit, parts[:middle], axis), concatenated(emit, parts[middle:], axis)
    t: TensorType = x.type  # type: ignore[assignment]
    neutral: Any = False if t.dtype is I1 else -0.0 if t.dtype.is_float else 0
    none = ((0, 0),) * t.rank

    def padded(v: Value, low: Dim, high: Dim) -> Value:
        return emit("PAD", v, pad=(*none[:axis], (low, high), *none[axis + 1 :]), value=neutral)

    a, b = padded(x, 0, _extent(y, axis)), padded(y, _extent(x, axis), 0)
    return emit("WHERE", a, a, b) if t.dtype is I1 else emit("ADD", a, b)


def _extent(x: Value, axis: int) -> Dim:
    d: Dim = x.type.shape[axis]  # type: ignore[attr-defined]
    return d


def _iota(emit: Emit) -> Operand:
    """The elements written out, as an INPUT."""
    require(emit.type.is_static, NOT_TRANSLATABLE, f"{emit.type} has symbolic extents", help="give them with --bind")
    small = emit.type.nbytes <= emit.to.options.limits.literal_bytes
    require(small, NOT_TRANSLATABLE, "the constant would be too big")
    return constant(emit.to, to_literal(evaluate(emit.op, (), Context())[0], emit.type), emit.own_name)


MOVEMENT: dict[str, Rule] = {
    "reshape": _moves(_reshape), "transpose": _moves(_transpose), "broadcast_to": _moves(_broadcast_to),
    "slice": _moves(_slice), "tile": _moves(_tile), "pad": _pad, "concat": _concat, "iota": _iota,
}  # fmt: skip
