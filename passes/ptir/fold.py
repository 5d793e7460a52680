"""Folding of PTIR, also through broadcasts, because captured programs write scalars as broadcasts."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.uniform import constant_operands
from ptir_tools.passes import PassContext, fold
from ptir_tools.rewrite.pattern_set import PatternSet

_THROUGH_BROADCASTS = PatternSet([constant_operands]).freeze()


def run(program: Program, context: PassContext) -> None:
    """Compute ops on constants, and drop ops without effect by their declared fold."""
    fold.fold(program, context, _THROUGH_BROADCASTS)
