"""The rules of `dialects.tiny.rewrites` for ops that cancel, and folding, in the greedy driver."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.tiny.rewrites import SIMPLIFICATION
from ptir_tools.passes import PassContext

OPTIONS = {"max-iterations": None}  # of rewrites and folds


def run(program: Program, context: PassContext) -> None:
    """Drop ops that cancel: chains of movement and casts, double negations, `x + 0`, `x * 1`; and dead nodes."""
    context.apply(program, SIMPLIFICATION)
