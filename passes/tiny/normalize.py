"""Tiny's explicit form, which profile `strict` accepts.

Verification inserts the EXPANDs, RESHAPEs and CASTs that a graph omits, and the numbers of named axes
(`dialects.tiny.legalize`). This pass only replaces POOL, which is not in the vocabulary.
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.tiny.rewrites import NORMALIZATION
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """The explicit graph: implicit EXPAND, CAST and reduced axes written out, POOL as VIEW; valid in profile strict."""
    context.apply(program, NORMALIZATION, enable_constant_fold=False, enable_dce=False)
