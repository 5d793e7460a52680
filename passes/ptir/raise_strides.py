"""Replaces slices with steps by evenly spaced `take`s, which engines treat as views."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.strides import STRIDES
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.patterns import Effect


def run(program: Program, context: PassContext) -> None:
    """Replace a slice with steps (one column of an axis split into rows) by a take with evenly spaced indices."""
    context.apply(program, STRIDES, effect=Effect.RANGE, enable_constant_fold=False)
