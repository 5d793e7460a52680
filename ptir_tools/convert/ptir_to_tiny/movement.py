"""PTIR to Tiny: data movement."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit, number_of
from ptir_tools.convert.ptir_to_tiny.indexing import counted, spread_out
from ptir_tools.core import expressions as ex
from ptir_tools.core.arrays import to_literal
from ptir_tools.core.dtypes import I1
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.limits import current
from ptir_tools.core.types import Dim
from ptir_tools.core.violations import require
from ptir_tools.rewrite.vocabulary import tensor_type

Ints = tuple[int, ...]


def _reshape(emit: TinyEmit, op: Op, x: Data) -> Value:
    return emit.last("RESHAPE", emit.node(x), result_shape=emit.shape)


def _transpose(emit: TinyEmit, op: Op, x: Data) -> Value:
    rank = emit.type.rank
    return emit.last("PERMUTE", emit.node(x), perm=tuple(p % rank for p in op.attr("perm")))


def _broadcast_to(emit: TinyEmit, op: Op, x: Data) -> Value:
    rank = tensor_type(op.operands[0]).rank
    axes = tuple(range(emit.type.rank - rank, emit.type.rank))
    return emit.last("EXPAND", emit.node(x), result_shape=emit.shape, broadcast_dimensions=axes)


def _slice(emit: TinyEmit, op: Op, x: Data) -> Value:
    starts, sizes = op.attr("starts"), op.attr("sizes")
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return emit.last("SHRINK", emit.node(x), lo=starts, hi=ends)


def _tile(emit: TinyEmit, op: Op, x: Data) -> Value:
    """An axis of repeats before each axis."""
    source, repeats = tensor_type(op.operands[0]).shape, op.attr("repeats")
    wide: tuple[Dim, ...] = tuple(d for pair in zip(repeats, source, strict=True) for d in pair)
    axes = tuple(range(1, 2 * len(source), 2))
    tiled = emit("EXPAND", emit.node(x), result_shape=wide, broadcast_dimensions=axes)
    whole = tuple(ex.to_dim(ex.of_dim(n) * ex.of_dim(r)) for r, n in zip(repeats, source, strict=True))
    return emit.settled(emit("RESHAPE", tiled, result_shape=whole))  # declares each new extent, several of which are unknown


def _pad(emit: TinyEmit, op: Op, x: Data) -> Value:
    low, high, interior = (op.attr(n) for n in ("low", "high", "interior"))
    value, v = number_of(op.attr("pad_value"), emit.type.dtype), emit.node(x)
    if any(interior):
        v = spread(emit, v, interior, value)
    return emit.last("PAD", v, pad=tuple(zip(low, high, strict=True)), value=value)


def spread(emit: TinyEmit, x: Value, interior: Ints, value: object) -> Value:
    """`x` with `interior` elements `value` between neighbors: each element becomes a row, and the end of the last is cut."""
    shape = tensor_type(x).shape
    gaps = tuple(0 if d in (0, 1) else g for d, g in zip(shape, interior, strict=True))
    if not any(gaps):
        return x
    rows = emit("RESHAPE", x, result_shape=tuple(d for n in shape for d in (n, 1)))
    padded = emit("PAD", rows, pad=tuple(p for g in gaps for p in ((0, 0), (0, g))), value=value)
    wide = tuple(ex.to_dim(ex.of_dim(n) * ex.of_dim(g + 1)) for n, g in zip(shape, gaps, strict=True))
    flat = emit("RESHAPE", padded, result_shape=wide)
    ends = tuple(ex.to_dim(ex.of_dim(n) - ex.of_dim(g)) for n, g in zip(wide, gaps, strict=True))
    return emit("SHRINK", flat, lo=(0,) * len(shape), hi=ends)


def _concat(emit: TinyEmit, op: Op, *operands: Data) -> Data:
    parts = [emit.node(x) for x in operands]
    if len(parts) == 1:
        return emit.last("RESHAPE", parts[0], result_shape=emit.shape) if emit.returned else parts[0]
    return emit.named(emit.declared(concatenated(emit, parts, op.attr("axis") % emit.type.rank)))


def concatenated(emit: TinyEmit, parts: list[Value], axis: int) -> Value:
    """`parts` one after the other along `axis`: both halves padded to the whole, and their sum, in which the padding, -0.0
    for floats, changes nothing. For bools it is `x or y`."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    x, y = concatenated(emit, parts[:middle], axis), concatenated(emit, parts[middle:], axis)
    t = tensor_type(x)
    neutral = False if t.dtype is I1 else -0.0 if t.dtype.is_float else 0
    none = ((0, 0),) * t.rank

    def padded(v: Value, low: Dim, high: Dim) -> Value:
        return emit("PAD", v, pad=(*none[:axis], (low, high), *none[axis + 1 :]), value=neutral)

    a, b = padded(x, 0, _extent(y, axis)), padded(y, _extent(x, axis), 0)
    return emit("WHERE", a, a, b) if t.dtype is I1 else emit("ADD", a, b)


def _extent(x: Value, axis: int) -> Dim:
    return tensor_type(x).shape[axis]


def _iota(emit: TinyEmit, op: Op) -> Data:
    """The elements written out; along an axis of symbolic extent counted."""
    if not emit.type.is_static:
        axis = op.attr("axis") % emit.type.rank
        numbers = emit.cast(counted(emit, emit.shape[axis]), emit.type.dtype)
        return emit.settled(spread_out(emit, numbers, emit.shape, (axis,)))
    small = emit.type.nbytes <= current().literal_bytes
    require(small, NOT_TRANSLATABLE, "the constant would be too big")
    return emit.named_constant(to_literal(evaluate(op, (), Context())[0], emit.type), op)


MOVEMENT: dict[str, Rule] = {
    "reshape": _reshape, "transpose": _transpose, "broadcast_to": _broadcast_to, "slice": _slice, "tile": _tile,
    "pad": _pad, "concat": _concat, "iota": _iota,
}  # fmt: skip
