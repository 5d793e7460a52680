"""Attention heads: keys and values that a group of query heads shares, traced to before the repetition."""

from __future__ import annotations

from ptir_tools.core.ir import Operand
from ptir_tools.dialects.ptir.kernels.recognition.replacement import Found
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.vocabulary import made_by


def grouped(found: Found, operands: list[Operand], batch: int) -> list[Operand]:
    """Keys and values as they are before each head is repeated for a group of query heads. The head axis of queries and mask is
    then split in two. The operands themselves when there is no common repetition."""
    q, k, v, *mask = operands
    repeats = _before_repeat(k)
    if repeats is None or repeats[0] >= batch or not helpers.static(q, *mask) or (of_v := _before_repeat(v)) is None:
        return operands
    axis, count, k = repeats
    if of_v[:2] != (axis, count):
        return operands
    rest = helpers.rank(q) - axis - 1
    return [_split(found, q, rest, count), k, of_v[2], *(_split(found, m, rest, count) for m in mask)]


def _before_repeat(x: Operand) -> tuple[int, int, Operand] | None:
    """(axis, times, source with an extent 1 after the axis) where `x` repeats every slice of an axis; else None."""
    joined = made_by(x, "reshape")
    spread = made_by(joined.operands[0], "broadcast_to") if joined is not None else None
    if spread is None or not helpers.static(x, spread.operands[0]):
        return None
    source = spread.operands[0]
    narrow, wide, shape = (helpers.tensor_type(v).static_shape for v in (source, spread, x))
    grown = [i for i in range(len(wide)) if len(narrow) == len(wide) and narrow[i] != wide[i]]
    if len(grown) != 1 or not (at := grown[0]) or shape != (*wide[: at - 1], wide[at - 1] * wide[at], *wide[at + 1 :]):
        return None
    return at - 1, wide[at], source


def _split(found: Found, x: Operand, rest: int, count: int) -> Operand:
    """`x` with its axis that `rest` others follow as groups of `count`; an extent 1 as two."""
    shape = helpers.tensor_type(x).static_shape
    if (axis := len(shape) - rest - 1) < 0:
        return x
    pair = (1, 1) if shape[axis] == 1 else (shape[axis] // count, count)
    return found.build("reshape", x, new_shape=(*shape[:axis], *pair, *shape[axis + 1 :]))
