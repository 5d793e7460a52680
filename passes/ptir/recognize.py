"""Kernels out of their decompositions, for engines that run them as one: softmax, layer norm, RMS norm, gelu, silu, attention,
convolution. `decompose` is the way back.

What replaces a kernel is computed without rounding in between: results may differ by roundings, and where an intermediate
would overflow its dtype it no longer does. Kernels that fail for ordinary numbers (a softmax without its maximum taken off, a
variance as the difference of two moments, where digits cancel) are sought under fast floats alone: what replaces them does not.
Under strict floats everything stays.
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.kernels.recognition import forms, recognize
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.patterns import Effect


def run(program: Program, context: PassContext) -> None:
    """Find softmax, layer norm, RMS norm, gelu, silu, attention and convolution in their decompositions; rounds less."""
    most = {Floats.STRICT: Effect.EXACT, Floats.DEFAULT: Effect.ROUNDING, Floats.FAST: Effect.RANGE}[context.floats]
    chosen = [form for form in forms() if form.effect <= most]
    for rw in context.rewriters(program) if chosen else ():
        result = 0
        for form in chosen:
            present = {op.defn.name for op in rw.body()}
            roots = {name for example in form.examples if example.kinds <= present for name in example.roots}
            for op in [op for op in rw.backward() if op.defn.name in roots]:
                if rw.alive(op) and recognize(form, op, rw, context.step):
                    context.count(form.build.__name__.replace("_", "-"))
                    result += 1
        context.count("erased", rw.erase_dead() if result else 0)
