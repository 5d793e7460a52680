"""Patterns of concat, slice and pad that meet.

A concat or a pad may be declared with a symbol for an extent that follows from its operands. Its replacement is declared with the
same type.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache
from itertools import accumulate

from ptir_tools.core import arrays
from ptir_tools.core.ir import Op, Operand
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.uniform import element_of, pad_value_of
from ptir_tools.rewrite.constants import same_operand
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    import weakref
    from weakref import WeakKeyDictionary
else:
    weakref = lazy("weakref")


def _along(x: Operand, axis: int) -> int:
    """The static extent of `x` along `axis`; -1 when it is symbolic."""
    d = helpers.shape(x)[axis]
    return d if isinstance(d, int) else -1


@rewrites("ptir.concat", benefit=2)
def concat_parts(op: OpView) -> bool:
    """Open nested concats with no other use, drop operands without elements."""
    axis, parts = op.axis % helpers.rank(op.root), list[Operand]()
    for x in op.root.operands:
        inner = op.defined_by(x, "concat")
        if inner is not None and inner.axis % helpers.rank(op.root) == axis and op.has_one_use(x):
            parts += inner.root.operands
        elif _along(x, axis) != 0:
            parts.append(x)
    if len(parts) == len(op.root.operands) or not parts:
        return False
    return op.replace(op.rw.build(op.root, "concat", parts, axis=axis, types=[op.result.type]))


@rewrites("ptir.concat", operands=["ptir.constant", "ptir.broadcast_to"])
def concat_of_equal_elements(op: OpView) -> bool:
    """A concat of equal elements before or after one tensor is a pad."""
    if len(op.root.operands) != 2 or not helpers.static(*op.root.operands):
        return False
    axis = op.axis % helpers.rank(op.root)
    for x, at in (op.root.operands, "high"), (op.root.operands[::-1], "low"):
        element = element_of(x[1])
        fill = None if element is None else pad_value_of(element)
        if fill is not None:
            width = tuple(_along(x[1], axis) if a == axis else 0 for a in range(helpers.rank(op.root)))
            none = (0,) * len(width)
            low, high = (none, width) if at == "high" else (width, none)
            types = [op.result.type]
            return op.replace(op.rw.build(op.root, "pad", x[0], low=low, high=high, pad_value=fill, types=types))
    return False


@rewrites("ptir.concat")
def concat_of_same(op: OpView) -> bool:
    """A concat of one row with itself is a broadcast."""
    x, *others = op.root.operands
    if not others or _along(x, op.axis) != 1 or not helpers.static(op.root) or not all(same_operand(x, y) for y in others):
        return False
    return op.replace(op.rw.build(op.root, "broadcast_to", x, result_shape=helpers.shape(op.root)))


@rewrites("ptir.concat", operands=["ptir.slice"])
def concat_of_slices(op: OpView) -> bool:
    """A concat of neighboring slices of one tensor is one slice of it."""
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
    if len(runs) > 1 and not all(op.has_one_use(x) for x in op.root.operands if op.defined_by(x, "slice")):
        return False
    if len(runs) == 1 and not helpers.static(op.root):
        return False
    parts = [_joined(op, run, axis) for run in runs]
    if len(parts) == 1:
        return op.replace(parts[0])
    return op.replace(op.rw.build(op.root, "concat", parts, axis=axis, types=[op.result.type]))


def _neighbors(a: OpView, b: OpView, axis: int) -> bool:
    if not same_operand(a.x, b.x, 0) or not helpers.static(a.x):
        return False
    off_axis = all(i == axis or (a.starts[i], a.sizes[i]) == (b.starts[i], b.sizes[i]) for i in range(len(a.starts)))
    return off_axis and bool(a.starts[axis] + a.sizes[axis] == b.starts[axis])


def _joined(op: OpView, run: Sequence[OpView | Operand], axis: int) -> Operand:
    """The operand that replaces a run of neighboring slices."""
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
    """A slice of a concat is a slice of the one operand that it lies in, or a concat of the operands that it covers."""
    inner = op.defined_by(op.x, "concat")
    if inner is None or 0 in op.sizes:
        return False
    axis = inner.axis % len(op.starts)
    offsets = _offsets(op.rw, inner.root, axis)
    if offsets is None:
        return False
    start, end = op.starts[axis], op.starts[axis] + op.sizes[axis]
    first, last = bisect_right(offsets, start) - 1, bisect_left(offsets, end)
    parts = inner.root.operands[first:last]
    if len(parts) == 1:
        starts = (*op.starts[:axis], start - offsets[first], *op.starts[axis + 1 :])
        return op.replace(op.rw.build(op.root, "slice", parts[0], starts=starts, sizes=op.sizes))
    across = all(n == d for a, (n, d) in enumerate(zip(op.sizes, helpers.shape(op.x), strict=True)) if a != axis)
    if not across or (offsets[first], offsets[last]) != (start, end):
        return False
    if len(parts) > _FEW and not op.has_one_use(op.x):
        return False
    return op.replace(op.rw.build(op.root, "concat", parts, axis=axis))


_FEW = 16  # operands that are joined once more while all of them stay joined, too


@cache
def _known() -> WeakKeyDictionary[Rewriter, dict[Op, tuple[object, list[int] | None]]]:
    return weakref.WeakKeyDictionary()


def _offsets(rw: Rewriter, concat: Op, axis: int) -> list[int] | None:
    """The offset of each operand of `concat`, then the end of the last one; None when an extent is symbolic. It is cached while
    the operands stay the same, for any number of slices."""
    known = _known().setdefault(rw, {})
    operands, offsets = known.get(concat, (None, None))
    if operands is not concat.operands:
        extents = [_along(x, axis) for x in concat.operands]
        offsets = None if -1 in extents else [0, *accumulate(extents)]
        known[concat] = concat.operands, offsets
    return offsets


@rewrites("ptir.slice", operands=["ptir.pad"])
def slice_of_pad(op: OpView) -> bool:
    """A slice of a pad is a pad of a slice of the original, or only padding."""
    inner = op.defined_by(op.x, "pad")
    if inner is None or any(inner.interior) or not helpers.static(inner.x) or 0 in op.sizes:
        return False
    spans = [_span(*window) for window in zip(op.starts, op.sizes, inner.low, helpers.extents(inner.x), strict=True)]
    starts, sizes, low = (tuple(s[i] for s in spans) for i in range(3))
    if 0 in sizes:
        fill = scalars.element(inner.pad_value, helpers.dtype(inner.x))
        return helpers.filled(op, fill)
    high = tuple(n - a - m for n, a, m in zip(op.sizes, low, sizes, strict=True))
    x, part = inner.x, sizes != helpers.shape(inner.x)
    if part and (any(low) or any(high)) and not op.has_one_use(op.x):
        return False
    if part:
        x = op.rw.build(op.root, "slice", x, starts=starts, sizes=sizes)
    if any(low) or any(high):
        x = op.rw.build(op.root, "pad", x, low=low, high=high, pad_value=inner.pad_value)
    return op.replace(x)


def _span(start: int, size: int, low: int, extent: int) -> tuple[int, int, int]:
    """Along one axis: the start of the slice in the original, its length there, and the padding before it."""
    first, last = max(start - low, 0), min(start + size - low, extent)
    return first, max(last - first, 0), min(max(low - start, 0), size)


@rewrites("ptir.slice", operands=["ptir.broadcast_to"])
def slice_of_broadcast(op: OpView) -> bool:
    """A slice of a broadcast is a broadcast of a slice: along repeated axes it only changes the extent."""
    inner = op.defined_by(op.x, "broadcast_to")
    if inner is None or not helpers.static(op.x):
        return False
    x, lead = inner.x, len(op.starts) - helpers.rank(inner.x)
    repeated = [d == 1 for d in helpers.shape(x)]
    starts = tuple(0 if r else s for r, s in zip(repeated, op.starts[lead:], strict=True))
    sizes = tuple(1 if r else n for r, n in zip(repeated, op.sizes[lead:], strict=True))
    if sizes != helpers.shape(x):
        if not op.has_one_use(op.x):
            return False
        x = op.rw.build(op.root, "slice", x, starts=starts, sizes=sizes)
    return op.replace(op.rw.build(op.root, "broadcast_to", x, result_shape=op.sizes))


@rewrites("ptir.pad", operands=["ptir.pad"])
def pad_chain(op: OpView) -> bool:
    """Two pads by one value are one pad."""
    inner = op.defined_by(op.x, "pad")
    if inner is None or inner.pad_value != op.pad_value or any(inner.interior) or any(op.interior):
        return False
    if not helpers.static(inner.x):
        return False
    low, high = helpers.sums(inner.low, op.low), helpers.sums(inner.high, op.high)
    counts = {"low": low, "high": high, "interior": op.interior}
    return op.replace(op.rw.build(op.root, "pad", inner.x, pad_value=op.pad_value, types=[op.result.type], **counts))


@rewrites("ptir.pad", operands=["ptir.constant", "ptir.broadcast_to"])
def pad_of_same(op: OpView) -> bool:
    """A pad of equal elements by the same value is more of them."""
    element = element_of(op.x)
    fill = scalars.element(op.pad_value, helpers.dtype(op.x))
    if element is None or not helpers.static(op.root) or arrays.pack(fill, element.type.dtype) != element.data:
        return False
    return helpers.filled(op, fill)


@rewrites("ptir.pad", depth=1)
def pad_of_nothing(op: OpView) -> bool:
    """A pad of a tensor without elements is only padding."""
    if 0 not in helpers.shape(op.x) or not helpers.static(op.root):
        return False
    fill = scalars.element(op.pad_value, helpers.dtype(op.x))
    return helpers.filled(op, fill)


JOINS: list[Pattern] = [
    concat_parts,
    concat_of_equal_elements,
    concat_of_same,
    concat_of_slices,
    slice_of_concat,
    slice_of_pad,
    slice_of_broadcast,
    pad_chain,
    pad_of_same,
    pad_of_nothing,
]
