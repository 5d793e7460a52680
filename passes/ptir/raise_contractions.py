"""Replaces sums of products of broadcast operands by `dot_general`."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.contractions import CONTRACTIONS
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.patterns import Effect


def run(program: Program, context: PassContext) -> None:
    """Turn broadcast, mul and reduce_sum into dot_general; float products are then not rounded, so --strict-fp keeps them."""
    context.apply(
        program,
        CONTRACTIONS,
        effect=Effect.EXACT if context.floats is Floats.STRICT else Effect.RANGE,
        enable_constant_fold=False,
    )
