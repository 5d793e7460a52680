"""Tiny's explicit form: what profile `strict` accepts.

The EXPANDs, RESHAPEs and CASTs that a graph leaves out, and the numbers of named axes, are put in when it is verified
(`dialects.tiny.legalize`). What is left is POOL, which the vocabulary does not have.
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.tiny.rewrites import NORMALIZATION
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """The explicit graph: implicit EXPAND, CAST and reduced axes written out, POOL as VIEW; valid in profile strict."""
    context.apply(program, NORMALIZATION, enable_constant_fold=False, enable_dce=False)
