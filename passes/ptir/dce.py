"""Dead code elimination of PTIR: that of every dialect, and loops and branches without what no one reads.

The signature stays, unless `parameters=true` asks: then parameters of functions that nothing reads go, too, except for those that
alone tell what a symbol is.
"""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.passes import PassContext, dce
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.rewrites import pruning, sharing
else:  # what only programs with regions need
    pruning = lazy("ptir_tools.dialects.ptir.rewrites.pruning")
    sharing = lazy("ptir_tools.dialects.ptir.rewrites.sharing")

OPTIONS = {"parameters": False}


def run(program: Program, context: PassContext) -> None:
    """Drop ops, carries and outputs of loops whose results are not read, and regions that no op refers to."""
    dce.run(program, context)
    while prune_regions(program, context, joins=False):
        dce.run(program, context)
    for function in program.functions if context.options.get("parameters") else ():
        with context.rewriter(program, function) as rw:
            gone = _drop_parameters(function, rw)
        context.edits += gone
        context.count("parameters erased", gone)


def prune_regions(program: Program, context: PassContext, *, joins: bool) -> bool:
    """Take out of loops and branches what no one reads, and what they have already if this `joins`; whether anything went."""
    if not program.regions:
        return False
    shared = sharing.Sharing(program)
    return sum(pruning.prune(rw, shared, context, joins=joins) for rw in context.rewriters(program)) > 0


def _drop_parameters(function: Function, rw: Rewriter) -> int:
    """Take out parameters that nothing reads; how many."""
    before = len(function.params)
    drop_parameters(function, {p for p in function.params if not rw.uses(p)})
    return before - len(function.params)


def drop_parameters(function: Function, unread: set[Value]) -> None:
    """Take those `unread` out of the parameters, except for those that alone say what a symbol is."""
    kept = [p for p in function.params if p not in unread]
    known = {s for p in kept for s in mentioned(p.type)}
    for p in function.params:
        if p in unread and not known.issuperset(mentioned(p.type)):
            kept.append(p)
            known.update(mentioned(p.type))
    function.params[:] = [p for p in function.params if p in kept]
