"""Removes ops that only training needs: `stop_gradient` becomes its operand."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import ELEMENTWISE, MOVEMENT
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Drop stop_gradient ops, which have no effect if a program is only run.

    They are recognized by their traits: element i of the result is element i of the operand, unchanged.
    """
    for rw in context.rewriters(program):
        for op in rw.body():
            if ELEMENTWISE | MOVEMENT in op.defn.traits:
                rw.replace_all_uses(op.result, op.operands[0])
                rw.erase(op)
                context.count("dropped")
