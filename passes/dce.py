"""Dead code elimination.

What is dead: an op without effects whose results nobody uses (loops too: PTIR says that ops are pure, so one that would not
end, or would fail, may go when nobody looks), and a shared region that no op refers to. Parameters and results stay.
"""

from __future__ import annotations

from ptir_tools.core.ir import Program, Region
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.passes import PassContext


def run(program: Program, context: PassContext) -> None:
    """Drop ops whose results nobody reads, and regions that no op refers to."""
    for rw in context.rewriters(program):
        context.count("erased", sweep(rw))
    live = reachable(program)
    dead = [r for r in program.regions if r not in live]
    if dead:
        program.regions = [r for r in program.regions if r in live]
        context.edits += len(dead)
        context.count("regions erased", len(dead))


def sweep(rw: Rewriter) -> int:
    """Erase dead ops, last to first, so that what only they used is dead in time; inner blocks after outer ones."""
    erased = 0
    for block in rw.blocks():
        if block is not rw.block and block not in rw.owner:
            continue
        for op in reversed(list(rw.body(block))):
            if op.defn.is_pure and rw.unused(op):
                rw.erase(op)
                erased += 1
    return erased


def reachable(program: Program) -> set[Region]:
    """The shared regions that the functions refer to, directly or through each other."""
    found: set[Region] = set()
    stack: list[Region] = list(program.functions)
    while stack:
        for op in stack.pop().ops():
            for r in op.regions:
                if r.isolated and r not in found:
                    found.add(r)
                    stack.append(r)
    return found
