"""The rules of `dialects.mind.rewrites` for ops of a MIND module that cancel, in the greedy driver; ids stay as they are."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.mind.rewrites import SIMPLIFICATION
from ptir_tools.passes import PassContext

OPTIONS = {"max-iterations": None}  # of rewrites and folds


def run(program: Program, context: PassContext) -> None:
    """Drop ops that cancel: chains of Transpose, Reshape and Slice, double negations, `x + 0`, `x * 1`, dead code."""
    context.apply(program, SIMPLIFICATION)
