"""Multiplies the weights of convolutions by the scales of their results, and adds shifts to their biases: batch normalization."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.kernels.scales import folded
from ptir_tools.passes import Floats, PassContext


def run(program: Program, context: PassContext) -> None:
    """Fold numbers per channel after convolutions into constant weights and biases; rounds less."""
    if context.floats is Floats.STRICT:
        return
    for rw in context.rewriters(program):
        for op in rw.body():
            if rw.alive(op) and (made := folded(rw, op)) is not None:
                if not context.step("fold-scale", op, made):
                    rw.erase(made)
                    continue
                rw.replace_all_uses(op.result, made.result)
                context.count("fold-scale")
        context.count("erased", rw.erase_dead())
