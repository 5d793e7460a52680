"""Folding by declarations: an op becomes the value that its `fold` returns, or the constant that its body computes; see
`rewrite.fold`."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.pattern_set import FrozenPatternSet, PatternSet

_NO_PATTERNS = PatternSet().freeze()


def run(program: Program, context: PassContext) -> None:
    """Compute ops on constants, and drop ops without effect by their declared fold."""
    fold(program, context, _NO_PATTERNS)


def fold(program: Program, context: PassContext, patterns: FrozenPatternSet) -> None:
    """Fold, and apply `patterns`, in every block; drop unused constants."""
    for rw in context.rewriters(program):
        stats = context.drive(rw, patterns, context.greedy(enable_dce=False))
        for op in rw.backward():
            if op.defn.is_constant and rw.unused(op):
                rw.erase(op)
        context.count("folds", stats.folds + stats.rewrites)
