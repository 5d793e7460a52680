"""Composite ops, and custom calls that this toolkit knows, out of the ops of gpt.rs."""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.dialects.ptir.expansion import EXPANSIONS, expand
from ptir_tools.dialects.ptir.rules.decompose import DECOMPOSED
from ptir_tools.passes import PassContext

OPTIONS = {"calls-only": False}


def run(program: Program, context: PassContext) -> None:
    """Express layer_norm, clamp and the custom calls that are known in the ops that gpt.rs has.

    With `calls-only` the custom calls alone, and layer_norm and clamp stay: so engines run it first.
    """
    for rw in context.rewriters(program):
        for op in [op for op in rw.body() if op.defn.name == "ptir.custom_call"]:
            if op.attr("target") in EXPANSIONS and context.step("expand-call", op):
                context.count("expand-call", expand(op, rw))
        for op in [] if context.options["calls-only"] else rw.body():
            for pattern in DECOMPOSED.by_root.get(op.defn, ()):
                if context.step(pattern.name, op):
                    context.count(pattern.name, pattern.match_and_rewrite(op, rw))
