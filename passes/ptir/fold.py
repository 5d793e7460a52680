"""Folding of PTIR: that of every dialect, which also looks through broadcasts, as captured programs write their scalars."""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.core.patternset import PatternSet
from ptir_tools.dialects.ptir.rules.uniform import constant_operands
from ptir_tools.passes import PassContext, fold

_THROUGH_BROADCASTS = PatternSet([constant_operands]).freeze()


def run(program: Program, context: PassContext) -> None:
    """Compute what depends on constants alone, and drop what changes nothing by its declaration."""
    fold.fold(program, context, _THROUGH_BROADCASTS)
