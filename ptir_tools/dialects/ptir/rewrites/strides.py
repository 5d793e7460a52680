"""Raise a strided slice, written as a column of a reshape, to a `take` of affine indices, which is a view.

The constants of indices make the text longer, so this is no canonicalization: engines run it.
"""

from __future__ import annotations

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.ir import Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import OpView, rewrites

Steps = tuple[int, int, int]  # first element, distance, count


@rewrites("ptir.slice", operands=["ptir.reshape"], depth=3)
def slice_of_columns(op: OpView) -> bool:
    """`slice(reshape(x))` that keeps one column of an axis split into rows reads `x` with a stride."""
    rows = op.defined_by(op.x, "reshape")
    if rows is None or not helpers.static(op.x, rows.x) or 0 in (*helpers.shape(rows.x), *op.sizes):
        return False
    before, after = (helpers.tensor_type(x).static_shape for x in (rows.x, op.x))
    steps = split(before, after, op.starts, op.sizes)
    if steps is None or all(distance == 1 for _, distance, _ in steps):
        return False
    x: Operand = rows.x
    padded = op.defined_by(x, "pad")
    if padded is not None and _only_after(padded) and _fits(steps, helpers.tensor_type(padded.x).static_shape):
        x = padded.x
    for axis, (first, distance, count) in enumerate(steps):
        if (first, distance, count) != (0, 1, helpers.shape(x)[axis]):
            x = _take_elements(op, x, axis, range(first, first + distance * count, distance))
    return op.replace(op.rw.build(op.root, "reshape", x, new_shape=helpers.shape(op.root)))


def split(before: tuple[int, ...], after: tuple[int, ...], starts: tuple[int, ...], sizes: tuple[int, ...]) -> list[Steps] | None:
    """The part of each axis of `before` that the window reads, where an axis is one or more axes of `after`; None when it is not
    a strided range."""
    found: list[Steps] = []
    at = 0
    for extent in before:
        parts = []
        count = 1
        while at < len(after) and (count < extent or after[at] == 1):
            count *= after[at]
            parts.append((starts[at], sizes[at], after[at]))
            at += 1
        if count != extent or (steps := _strided_range(parts)) is None:
            return None
        found.append(steps)
    return found if at == len(after) else None


def _strided_range(parts: list[tuple[int, int, int]]) -> Steps | None:
    """A window over the parts of one axis, outermost first, as a strided range: one part may be a range, the parts after it one
    element."""
    first, distance, count, ranged = 0, 1, 1, False
    for start, size, extent in reversed(parts):
        first += start * distance
        if size > 1 and ranged:
            return None
        if size > 1:
            step, count, ranged = distance, size, True
        distance *= extent
    return first, step if ranged else 1, count


def _only_after(pad: OpView) -> bool:
    return helpers.zeros(pad.low) and helpers.zeros(pad.interior)


def _fits(steps: list[Steps], shape: tuple[int, ...]) -> bool:
    return all(first + (count - 1) * distance < n for (first, distance, count), n in zip(steps, shape, strict=True))


def _take_elements(op: OpView, x: Operand, axis: int, indices: range) -> Operand:
    """`x` with only those elements of an axis."""
    rank = helpers.rank(x)
    there = (axis, *(a for a in range(rank) if a != axis))
    literal = arrays.to_literal(np.array(indices), tensor(SI64, (len(indices),)))
    x = op.rw.build(op.root, "transpose", x, perm=there)
    x = op.rw.build(op.root, "take", x, op.rw.build(op.root, "constant", value=literal))
    return op.rw.build(op.root, "transpose", x, perm=tuple(there.index(a) for a in range(rank)))


STRIDES = PatternSet([slice_of_columns]).freeze()
