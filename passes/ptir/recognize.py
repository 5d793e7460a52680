"""Kernels out of their decompositions, for engines that run them as one: softmax, layer norm, RMS norm, gelu, silu, attention,
convolution. `decompose` is the way back.

What stands for a kernel is computed without rounding in between: results may differ by roundings, and where an intermediate
would overflow its dtype it no longer does. Under strict floats everything stays.
"""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.dialects.ptir.recognition import forms, recognize
from ptir_tools.passes import Floats, PassContext


def run(program: Program, context: PassContext) -> None:
    """Find softmax, layer norm, RMS norm, gelu, silu, attention and convolution in what they decompose to; rounds less."""
    for rw in context.rewriters(program) if context.floats is not Floats.STRICT else ():
        found = 0
        for form in forms():
            roots = {example.root.defn for example in form.examples}
            for op in [op for op in rw.body() if op.defn in roots]:
                if rw.alive(op) and recognize(form, op, rw, context.step):
                    context.count(form.build.__name__.replace("_", "-"))
                    found += 1
        context.count("erased", rw.erase_dead() if found else 0)
