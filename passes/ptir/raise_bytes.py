"""Replaces products of 8-bit integers minus zero points by products of bytes, which engines have kernels for; also products of
dequantized bytes and constants. Other quantizations of floats become casts and arithmetic, which give the same bits."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.quantized import PARTS, PRODUCTS
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.patterns import Effect


def run(program: Program, context: PassContext) -> None:
    """Turn a 32-bit product of shifted 8-bit integers into a product of bytes, corrected by sums of bytes."""
    effect = Effect.EXACT if context.floats is Floats.STRICT else Effect.ROUNDING
    context.apply(program, PRODUCTS, effect=effect, enable_constant_fold=False)
    context.apply(program, PARTS, effect=effect, enable_constant_fold=False)
