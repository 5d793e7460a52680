"""Patterns of concat, slice, pad and dynamic slices, and of what they take apart and put together."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.constants import literal_of, same_operand
from ptir_tools.core.ir import Operand
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.patterns import OpView, Pattern, rewrites
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.rules import helpers


def _along(x: Operand, axis: int) -> int:
    """The static extent of `x` along `axis`; -1 when it is symbolic."""
    d = helpers.shape(x)[axis]
    return d if isinstance(d, int) else -1


@rewrites("ptir.concat", benefit=2)
def concat_parts(op: OpView) -> bool:
    """Open concats used here alone, drop operands without elements; one operand left is the result."""
    axis, parts = op.axis % helpers.rank(op.root), list[Operand]()
    for x in op.root.operands:
        inner = op.defined_by(x, "concat")
        if inner is not None and inner.axis % helpers.rank(op.root) == axis and helpers.alone(op.rw, x, op.root):
            parts += inner.root.operands
        elif _along(x, axis) != 0:
            parts.append(x)
    if len(parts) == len(op.root.operands) or not parts:
        return len(op.root.operands) == 1 and _stand_for(op, op.root.operands[0])
    return _stand_for(op, parts[0] if len(parts) == 1 else op.rw.build(op.root, "concat", parts, axis=axis))


def _stand_for(op: OpView, x: Operand) -> bool:
    """Replace the root by `x` when the types are the same."""
    return operand_type(x) is op.result.type and op.replace(x)


@rewrites("ptir.concat", operands=["ptir.slice"])
def concat_of_slices(op: OpView) -> bool:
    """Neighboring slices of one tensor are one slice of it."""
    axis = op.axis % helpers.rank(op.root)
    runs: list[list[OpView | Operand]] = []
    for x in op.root.operands:
        part = op.defined_by(x, "slice") or x
        last = runs[-1][-1] if runs else None
        if isinstance(part, OpView) and isinstance(last, OpView) and _neighbors(last, part, axis):
            runs[-1].append(part)
        else:
            runs.append([part])
    if len(runs) == len(op.root.operands):
        return False
    if len(runs) > 1 and not all(helpers.alone(op.rw, x, op.root) for x in op.root.operands if op.defined_by(x, "slice")):
        return False
    parts = [_joined(op, run, axis) for run in runs]
    return op.replace(parts[0] if len(parts) == 1 else op.rw.build(op.root, "concat", parts, axis=axis))


def _neighbors(a: OpView, b: OpView, axis: int) -> bool:
    if not same_operand(a.x, b.x) or not helpers.static(a.x):
        return False
    off_axis = all(i == axis or (a.starts[i], a.sizes[i]) == (b.starts[i], b.sizes[i]) for i in range(len(a.starts)))
    return off_axis and bool(a.starts[axis] + a.sizes[axis] == b.starts[axis])


def _joined(op: OpView, run: Sequence[OpView | Operand], axis: int) -> Operand:
    """The operand that stands for a run of neighboring slices."""
    first = run[0]
    if not isinstance(first, OpView):
        return first
    if len(run) == 1:
        return first.result
    sizes = list(first.sizes)
    sizes[axis] = sum(v.sizes[axis] for v in run if isinstance(v, OpView))
    return op.rw.build(op.root, "slice", first.x, starts=first.starts, sizes=tuple(sizes))


@rewrites("ptir.slice", operands=["ptir.concat"])
def slice_of_concat(op: OpView) -> bool:
    """A slice that lies within one operand of a concat is a slice of that operand."""
    inner = op.defined_by(op.x, "concat")
    if inner is None:
        return False
    axis = inner.axis % len(op.starts)
    start, at = op.starts[axis], 0
    for x in inner.root.operands:
        extent = _along(x, axis)
        if extent < 0:
            return False
        if at <= start and start + op.sizes[axis] <= at + extent:
            starts = (*op.starts[:axis], start - at, *op.starts[axis + 1 :])
            return op.replace(op.rw.build(op.root, "slice", x, starts=starts, sizes=op.sizes))
        at += extent
    return False


@rewrites("ptir.slice", operands=["ptir.pad"])
def slice_of_pad(op: OpView) -> bool:
    """A slice of what was padded is a slice of the original."""
    inner = op.defined_by(op.x, "pad")
    if inner is None or any(inner.interior) or not helpers.static(inner.x):
        return False
    starts = tuple(s - low for s, low in zip(op.starts, inner.low, strict=True))
    extents = operand_type(inner.x).shape  # type: ignore[attr-defined]
    if any(s < 0 or s + n > extent for s, n, extent in zip(starts, op.sizes, extents, strict=True)):
        return False
    return op.replace(op.rw.build(op.root, "slice", inner.x, starts=starts, sizes=op.sizes))


@rewrites("ptir.slice", operands=["ptir.broadcast_to"])
def slice_of_broadcast(op: OpView) -> bool:
    """Slice before repeating: along repeated axes the slice only changes how often."""
    inner = op.defined_by(op.x, "broadcast_to")
    if inner is None or not helpers.static(op.x) or not helpers.alone(op.rw, op.x, op.root):
        return False
    x, lead = inner.x, len(op.starts) - helpers.rank(inner.x)
    repeated = [d == 1 for d in helpers.shape(x)]
    starts = tuple(0 if r else s for r, s in zip(repeated, op.starts[lead:], strict=True))
    sizes = tuple(1 if r else n for r, n in zip(repeated, op.sizes[lead:], strict=True))
    if sizes != helpers.shape(x):
        x = op.rw.build(op.root, "slice", x, starts=starts, sizes=sizes)
    return op.replace(op.rw.build(op.root, "broadcast_to", x, result_shape=op.sizes))


@rewrites("ptir.pad", operands=["ptir.pad"])
def pad_chain(op: OpView) -> bool:
    """Padding with one value twice is padding once."""
    inner = op.defined_by(op.x, "pad")
    if inner is None or inner.pad_value != op.pad_value or any(inner.interior) or any(op.interior):
        return False
    if not helpers.static(inner.x):
        return False
    low, high = helpers.sums(inner.low, op.low), helpers.sums(inner.high, op.high)
    return op.replace(op.rw.build(op.root, "pad", inner.x, low=low, high=high, interior=op.interior, pad_value=op.pad_value))


def _start(x: Operand) -> list[int] | None:
    """The numbers of a constant start operand."""
    literal = literal_of(x)
    if literal is None or literal.data is None or literal.type.count > 64:
        return None
    return [int(n) for n in arrays.from_literal(literal)]


def _clamped(starts: Sequence[int], sizes: Sequence[int], x: Operand) -> tuple[int, ...] | None:
    """`starts` clamped as the contract says; None when a size does not fit or an extent is symbolic."""
    t = operand_type(x)
    if not isinstance(t, TensorType) or not t.is_static:
        return None
    room = [d - n for d, n in zip(t.static_shape, sizes, strict=True)]
    return None if min(room, default=0) < 0 else tuple(min(max(s, 0), r) for s, r in zip(starts, room, strict=True))


@rewrites("ptir.dynamic_slice", depth=2)
def dynamic_slice_of_constant_start(op: OpView) -> bool:
    """A dynamic slice from a known start is a slice."""
    if (found := _start(op.start)) is None or (starts := _clamped(found, op.sizes, op.x)) is None:
        return False
    return op.replace(op.rw.build(op.root, "slice", op.x, starts=starts, sizes=op.sizes))


@rewrites("ptir.dynamic_update_slice", depth=1)
def update_of_everything(op: OpView) -> bool:
    """An update as big as the tensor replaces it."""
    return operand_type(op.update) is op.result.type and helpers.static(op.update) and op.replace(op.update)


JOINS: list[Pattern] = [
    concat_parts,
    concat_of_slices,
    slice_of_concat,
    slice_of_pad,
    slice_of_broadcast,
    pad_chain,
    dynamic_slice_of_constant_start,
    update_of_everything,
]
