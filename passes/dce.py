"""Dead code elimination.

An op is dead if it has no effects and no uses. Ops of PTIR are pure, so this includes loops that would not end, and ops that
would fail. A shared region is dead if no op refers to it. Parameters and results stay.
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Region
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.step_log import erased


def run(program: Program, context: PassContext) -> None:
    """Drop ops whose results are not read, and regions that no op refers to."""
    for rw in context.rewriters(program):
        if not rw.is_done(run):
            ops = [op for block in rw.blocks() for op in block.body] if context.log else []
            context.count("erased", rw.erase_dead())
            for op in ops:
                if not rw.alive(op):
                    context.record(erased(op))
            rw.mark_done(run)
    if program.regions:
        drop_regions(program, context)


def drop_regions(program: Program, context: PassContext) -> None:
    """Drop the shared regions that no op of a function or of a live region refers to."""
    live = reachable(program)
    dead = [r for r in program.regions if r not in live]
    if dead:
        program.regions = [r for r in program.regions if r in live]
        context.edits += len(dead)
        context.count("regions erased", len(dead))


def reachable(program: Program) -> set[Region]:
    """The shared regions that the functions refer to, directly or through each other."""
    reached: set[Region] = set()
    stack: list[Region] = list(program.functions)
    while stack:
        for op in stack.pop().ops():
            for r in op.regions:
                if r.isolated and r not in reached:
                    reached.add(r)
                    stack.append(r)
    return reached
