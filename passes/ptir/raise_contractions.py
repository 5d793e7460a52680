"""Sums of products of repeated operands as `dot_general`."""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.core.patterns import Effect, has_floats
from ptir_tools.dialects.ptir.rules.contractions import CONTRACTIONS
from ptir_tools.passes import Floats, PassContext


def run(program: Program, context: PassContext) -> None:
    """Turn broadcast, mul and reduce_sum into dot_general; float products are then not rounded, so strict floats keep them."""
    for rw in context.rewriters(program):
        raised = 0
        for op in rw.body():
            for pattern in CONTRACTIONS.by_root.get(op.defn, ()):
                if context.floats is Floats.STRICT and pattern.effect > Effect.EXACT and has_floats(op):
                    continue
                raised += pattern.match_and_rewrite(op, rw)
        context.count("raised", raised)
        context.count("erased", rw.erase_dead() if raised else 0)
