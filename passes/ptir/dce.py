"""Dead code elimination of PTIR: that of every dialect, and loops and branches without what nobody reads."""

from __future__ import annotations

from ptir_tools.core.ir import Program
from ptir_tools.dialects.ptir.pruning import prune
from ptir_tools.dialects.ptir.sharing import Sharing
from ptir_tools.passes import PassContext, dce


def run(program: Program, context: PassContext) -> None:
    """Drop ops whose results nobody reads, carries and outputs of loops likewise, and regions that no op refers to."""
    dce.run(program, context)
    while prune_regions(program, context):
        dce.run(program, context)


def prune_regions(program: Program, context: PassContext) -> bool:
    """Take out of loops and branches what nobody reads; whether anything went."""
    if not program.regions:
        return False
    sharing = Sharing(program)
    gone = sum(prune(rw, sharing) for rw in context.rewriters(program))
    context.count("pruned", gone)
    return gone > 0
