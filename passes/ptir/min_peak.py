"""Reorders ops for the lowest peak of memory that `plan.order` finds."""

from __future__ import annotations

from itertools import pairwise

from ptir_tools.core.dialect import Program
from ptir_tools.core.symbols import mentioned
from ptir_tools.passes import PassContext
from ptir_tools.plan.order import least_peak


def run(program: Program, context: PassContext) -> None:
    """Put the ops of each block of known extents into an order that needs less memory, if there is one."""
    for rw in context.rewriters(program):
        block = rw.block
        types = {v.type for v in block.values()}
        symbols = {s for t in types for s in mentioned(t)}
        order = None if symbols else least_peak(block)
        if order is not None:
            for earlier, later in reversed(list(pairwise(order))):
                rw.move_before(later, earlier)
            context.count("blocks reordered")
