"""Replaces composite ops, and custom calls that the toolkit knows, by ops of gpt.rs."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.composites.calls import expand, expandable
from ptir_tools.dialects.ptir.composites.decompose import DECOMPOSED
from ptir_tools.dialects.ptir.kernels.targets import has_kernel
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.patterns import Effect

OPTIONS = {"calls-only": False, "for-engine": False}


def run(program: Program, context: PassContext) -> None:
    """Replace layer_norm, clamp and known custom calls by ops that gpt.rs has.

    With `calls-only`, only custom calls are replaced. With `for-engine`, those stay for which the engines have kernels.
    """
    for_engine = context.options["for-engine"]
    for rw in context.rewriters(program):
        for op in rw.body():
            if not (for_engine and has_kernel(op)) and expandable(op) and context.step("expand-call", op):
                expand(op, rw)
                context.count("expand-call")
    if not context.options["calls-only"]:
        context.apply(program, DECOMPOSED, effect=Effect.RANGE, enable_constant_fold=False)
