"""Computes operands of products that depend on constants alone, up to 64 times the size that folding allows, and `dequantize` of
constants: an engine computes and packs them once."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.weights import WEIGHTS
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Turn operands of dot_general that are computed from constants into constants, beyond the limit of folding."""
    context.apply(program, WEIGHTS, enable_constant_fold=False)
