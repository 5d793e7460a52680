"""Chooses the order of axes of values between transposes, such that fewer elements are transposed."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.kernels.layout import groups
from ptir_tools.passes import PassContext

OPTIONS = {"channels-first": False}


def run(program: Program, context: PassContext) -> None:
    """Give the ops between transposes the order of axes that needs the fewest transposed elements.

    With `channels-first`, convolutions count as if their images were [N, C, H, W], as in ONNX.
    """
    first = bool(context.options["channels-first"])
    for rw in context.rewriters(program):
        for group in groups(rw.body(), first):
            perm = group.best(rw)
            if perm is not None and context.step("layout", group.ops[-1]):
                group.reorder(rw, perm)
                context.count("layout")
        context.count("erased", rw.erase_dead())
