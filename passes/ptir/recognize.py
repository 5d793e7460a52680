"""Recognizes kernels in their decompositions, for engines that run them as one: softmax, layer norm, RMS norm, gelu, silu,
attention, convolution. `decompose` reverses this.

A kernel is computed without intermediate rounding. So results may differ by rounding, and intermediate values no longer
overflow their dtype. Decompositions that fail for ordinary numbers are recognized only under fast floats: a softmax without
subtraction of its maximum, and a variance as the difference of two moments, where digits cancel. Under strict floats floats
stay as they are.
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.kernels.recognition import forms, recognize
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.patterns import Effect

OPTIONS = {"convolutions": False}


def run(program: Program, context: PassContext) -> None:
    """Find softmax, layer norm, RMS norm, gelu, silu, attention and convolution in their decompositions; rounds less.

    With `convolutions`, only convolutions.
    """
    most = {Floats.STRICT: Effect.EXACT, Floats.DEFAULT: Effect.ROUNDING, Floats.FAST: Effect.RANGE}[context.floats]
    chosen = [form for form in forms(bool(context.options.get("convolutions"))) if form.effect <= most]
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
