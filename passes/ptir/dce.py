"""Dead code elimination of PTIR, including unused results of loops and branches.

The signature stays. With `parameters=true`, unused parameters of functions are dropped, too, except those that are the only
definition of a symbol. With `constants=true`, constants of any size that a loop carries unchanged are made in its regions.
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
else:  # needed only for programs with regions
    pruning = lazy("ptir_tools.dialects.ptir.rewrites.pruning")
    sharing = lazy("ptir_tools.dialects.ptir.rewrites.sharing")

OPTIONS = {"parameters": False, "constants": False}


def run(program: Program, context: PassContext) -> None:
    """Drop ops, carries and outputs of loops whose results are not read, and regions that no op refers to."""
    dce.run(program, context)
    constants = bool(context.options.get("constants"))
    while prune_regions(program, context, joins=False, constants=constants):
        dce.run(program, context)
    for function in program.functions if context.options.get("parameters") else ():
        with context.rewriter(program, function) as rw:
            gone = _drop_parameters(function, rw)
        context.edits += gone
        context.count("parameters erased", gone)


def prune_regions(program: Program, context: PassContext, *, joins: bool, constants: bool = False) -> bool:
    """Remove unused values from loops and branches and, with `joins`, values that they have twice. Constants that loops carry
    are made in their regions, with `constants` large ones, too. Whether any value was removed."""
    if not program.regions:
        return False
    shared = sharing.Sharing(program, context.expanding(program))
    return sum(pruning.prune(rw, shared, context, joins=joins, constants=constants) for rw in context.rewriters(program)) > 0


def _drop_parameters(function: Function, rw: Rewriter) -> int:
    """Remove unused parameters. The number of them."""
    before = len(function.params)
    drop_parameters(function, {p for p in function.params if not rw.uses(p)})
    return before - len(function.params)


def drop_parameters(function: Function, unread: set[Value]) -> None:
    """Remove the parameters in `unread`, except those that are the only definition of a symbol."""
    kept = [p for p in function.params if p not in unread]
    known = {s for p in kept for s in mentioned(p.type)}
    for p in function.params:
        if p in unread and not known.issuperset(mentioned(p.type)):
            kept.append(p)
            known.update(mentioned(p.type))
    function.params[:] = [p for p in function.params if p in kept]
