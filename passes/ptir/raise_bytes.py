"""Replaces products of 8-bit integers minus zero points by products of bytes, which engines have kernels for."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.rewrites.bytes import BYTES
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.patterns import Effect


def run(program: Program, context: PassContext) -> None:
    """Turn a 32-bit product of shifted 8-bit integers into a product of bytes, corrected by sums of bytes."""
    context.apply(program, BYTES, effect=Effect.EXACT, enable_constant_fold=False)
