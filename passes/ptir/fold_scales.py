"""Multiplies the weights of convolutions by the scales of their results, and adds shifts to their biases: batch normalization."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.kernels.scales import folded
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.patterns import Effect

OPTIONS = {"range": False}


def run(program: Program, context: PassContext) -> None:
    """Fold numbers per channel after convolutions into constant weights and biases; rounds less.

    A scale keeps a sum from overflowing, so scales are folded only with `range`, or under fast floats; so is a second bias.
    """
    if context.floats is Floats.STRICT:
        return
    most = Effect.RANGE if context.options["range"] or context.floats is Floats.FAST else Effect.ROUNDING
    for rw in context.rewriters(program):
        for op in rw.body():
            if rw.alive(op) and (made := folded(rw, op, most)) is not None:
                if not context.step("fold-scale", op, made):
                    rw.erase(made)
                    continue
                rw.replace_all_uses(op.result, made.result)
                context.count("fold-scale")
        context.count("erased", rw.erase_dead())
