"""Slices by steps as evenly spaced `take`s, which engines see as views."""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.dialects.ptir.rules.strides import STRIDES
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Turn one column of an axis split into rows (a slice by steps) into a take with evenly spaced indices."""
    for rw in context.rewriters(program):
        raised = 0
        for op in rw.body():
            raised += sum(pattern.match_and_rewrite(op, rw) for pattern in STRIDES.by_root.get(op.defn, ()))
        context.count("raised", raised)
        context.count("erased", rw.erase_dead() if raised else 0)
