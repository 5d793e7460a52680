"""ExcessivePiecewise: the number of pieces of the index domain of a value.

Every axis of a value has an ordered list of intervals; the number of pieces is the product of their lengths. The result of an
op that computes is one piece again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from ptir_tools.core import expressions as ex
from ptir_tools.core.ir import Op, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.core.violations import Violation


@dataclass(slots=True, frozen=True)
class Interval:
    """`count` neighboring intervals of one origin: None for data, a text for the value of a PAD. `length` None is unknown."""

    origin: str | None
    length: Dim | None = None
    count: int = 1


Axes = tuple[tuple[Interval, ...], ...]
DATA = Interval(None)


def count(axes: Axes) -> int:
    """The number of pieces of a value with these axes."""
    return prod([sum([i.count for i in intervals]) for intervals in axes])


class Pieces:
    """The intervals of all values with more than one piece. `follow` adds values in order of definition."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.axes: dict[Value, Axes] = {}

    def follow(self, op: Op) -> None:
        """Add the result of `op`. Raises Violation("ExcessivePiecewise") when it has more pieces than the limit."""
        name = op.defn.short
        if name not in _RULES:
            return
        source = op.operands[0]
        if not isinstance(source, Value):
            return
        axes = self.axes.get(source)
        if axes is None:
            if name not in _CUTS or not isinstance(source.type, TensorType):
                return
            axes = tuple((Interval(None, d),) for d in source.type.shape)
        axes = _RULES[name](op, axes)
        n = count(axes)
        if n > self.limit:
            message = f"{op.defn.short} {op.result.name} falls into {n} pieces, the limit is {self.limit}"
            help = "merge the PADs and SHRINKs before it, or compute on the value in between; --max-pieces raises the limit"
            raise Violation("ExcessivePiecewise", message, help=help)
        if n > 1:
            self.axes[op.result] = axes


def _shape(op: Op) -> Shape:
    t = op.result.type
    return t.shape if isinstance(t, TensorType) else ()


def _pad(op: Op, axes: Axes) -> Axes:
    value = str(op.attr("value"))
    found = []
    for intervals, (low, high) in zip(axes, op.attr("pad"), strict=True):
        if low != 0:
            intervals = _coalesce(Interval(value, low), *intervals)
        if high != 0:
            intervals = _coalesce(*intervals, Interval(value, high))
        found.append(intervals)
    return tuple(found)


def _coalesce(*intervals: Interval) -> tuple[Interval, ...]:
    """Merge neighboring pads of one value."""
    found: list[Interval] = []
    for i in intervals:
        if found and i.origin is not None and found[-1].origin == i.origin:
            found[-1] = Interval(i.origin, _add(found[-1].length, i.length))
        else:
            found.append(i)
    return tuple(found)


def _add(a: Dim | None, b: Dim | None) -> Dim | None:
    return None if a is None or b is None else ex.to_dim(ex.of_dim(a) + ex.of_dim(b))


def _shrink(op: Op, axes: Axes) -> Axes:
    lows, highs = op.attr("lo"), op.attr("hi")
    steps = op.attr("step") or (1,) * len(lows)
    return tuple(_cut(*row) for row in zip(axes, lows, highs, steps, strict=True))


def _cut(intervals: tuple[Interval, ...], low: Dim, high: Dim, step: Dim) -> tuple[Interval, ...]:
    """The intervals after a slice. Empty intervals are dropped where numbers decide it; a step other than 1 adds its guard."""
    kept = intervals
    if isinstance(low, int) and isinstance(high, int) and all(isinstance(i.length, int) for i in intervals):
        found, at = [], 0
        for i in intervals:
            length = i.length if isinstance(i.length, int) else 0
            inside = min(high, at + length) - max(low, at)
            at += length
            if inside > 0:
                found.append(Interval(i.origin, inside, i.count))
        kept = tuple(found) or (Interval(None, 0),)
    if step == 1:
        return kept
    return (*(Interval(i.origin, None, i.count) for i in kept), DATA)


def _expand(op: Op, axes: Axes) -> Axes:
    shape = _shape(op)
    found: list[tuple[Interval, ...]] = [(Interval(None, d),) for d in shape]
    source = operand_type(op.operands[0])
    assert isinstance(source, TensorType)
    for intervals, d, axis in zip(axes, source.shape, op.attr("broadcast_dimensions"), strict=True):
        if axis is not None and d == shape[axis]:
            found[axis] = intervals
    return tuple(found)


def _reshape(op: Op, axes: Axes) -> Axes:
    """Where only extents 1 are added or dropped, axes keep their intervals; otherwise axis 0 gets the product."""
    source = operand_type(op.operands[0])
    assert isinstance(source, TensorType)
    shape = _shape(op)
    if [d for d in source.shape if d != 1] == [d for d in shape if d != 1]:
        kept = iter([i for i, d in zip(axes, source.shape, strict=True) if d != 1])
        return tuple((Interval(None, 1),) if d == 1 else next(kept) for d in shape)
    return _on_axis_0(count(axes), shape)


def _on_axis_0(n: int, shape: Shape) -> Axes:
    return tuple((Interval(None, None, n) if i == 0 and n != 1 else Interval(None, d),) for i, d in enumerate(shape))


def _view(op: Op, axes: Axes) -> Axes:
    """Every `//`, `%` and guard doubles the number of pieces."""
    doubling = sum(ex.of_dim(e).quotients() for key in ("map", "guard") for e in op.attr(key)) + len(op.attr("guard"))
    return _on_axis_0(count(axes) << doubling, _shape(op))


def _pool(op: Op, axes: Axes) -> Axes:
    kernel = _shape(op)[len(axes) :]
    return (*axes, *((Interval(None, d),) for d in kernel))


_CUTS = ("PAD", "SHRINK", "VIEW")  # ops that may cut a value of one piece
_RULES: dict[str, Callable[[Op, Axes], Axes]] = {
    "PAD": _pad,
    "SHRINK": _shrink,
    "PERMUTE": lambda op, axes: tuple(axes[p] for p in op.attr("perm")),
    "FLIP": lambda op, axes: tuple(i[::-1] if k in op.attr("axes") else i for k, i in enumerate(axes)),
    "EXPAND": _expand,
    "RESHAPE": _reshape,
    "VIEW": _view,
    "POOL": _pool,
}
