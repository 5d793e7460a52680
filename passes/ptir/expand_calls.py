"""Custom calls that are known as the ops that they stand for: engines run it first."""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.dialects.ptir.expansion import expand
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Express the custom calls that are known in other ops."""
    for rw in context.rewriters(program):
        calls = [op for op in rw.body() if op.defn.name == "ptir.custom_call"]
        context.count("expanded", sum(expand(op, rw) for op in calls))
