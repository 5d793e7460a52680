"""What takes the order away: programs without one of their waits or barriers."""

from __future__ import annotations

from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import SEGMENTS, Op, Region, Value
from ptir_tools.dialects.pto.structure import is_barrier, is_call
from ptir_tools.dialects.pto.types import EventType

Spot = tuple[Region, Op, int]  # a block, an op in it, and the operand that is an event (-1: the op is a barrier)


def harm(program: Program, choices: Choices) -> Op | None:
    """Remove one random wait or barrier, in place. The op, or None if there is none."""
    found = spots(program)
    return without(*choices.one(found)) if found else None


def spots(program: Program) -> list[Spot]:
    """All waits and barriers of a program."""
    found: list[Spot] = []
    for block in program.blocks():
        for op in block.body:
            at = [k for k, x in enumerate(op.operands) if isinstance(x, Value) and isinstance(x.type, EventType)]
            found += [(block, op, k) for k in at if not op.regions and not is_call(op)]
            found += [(block, op, -1)] if is_barrier(op) else []
    return found


def without(block: Region, op: Op, k: int) -> Op:
    """Remove a wait or barrier. The op."""
    if k < 0 or len(op.operands) == 1:
        block.body.remove(op)
        return op
    op.operands = (*op.operands[:k], *op.operands[k + 1 :])
    if SEGMENTS in op.defn.attr_index:
        lengths = list(op.attr(SEGMENTS))
        lengths[-1] -= 1
        place = op.defn.attr_index[SEGMENTS]
        op.attrs = (*op.attrs[:place], tuple(lengths), *op.attrs[place + 1 :])
    return op
