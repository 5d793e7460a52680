"""Tiny's explicit form: what profile `strict` accepts.

The EXPANDs, RESHAPEs and CASTs that a graph leaves out, and the numbers of named axes, are put in when it is verified
(`dialects.tiny.legalize`); what is left is POOL, which the vocabulary does not have.
"""

from __future__ import annotations

from ptir_tools.core.ir import Op, Program
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.tiny.ops.view import pool_map
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """The explicit graph: implicit EXPAND, CAST and reduced axes written out, POOL as VIEW; clean in profile strict."""
    for rw in context.rewriters(program):
        for op in rw.body():
            if op.defn.short == "POOL":
                as_view(rw, op)
                context.count("POOL to VIEW")


def as_view(rw: Rewriter, op: Op) -> None:
    """Replace a POOL by the VIEW with its index map."""
    x, result = op.operands[0], op.result.type
    source = rw.type_of(x)
    if not isinstance(source, TensorType) or not isinstance(result, TensorType):
        raise TypeError(op)
    ones = (1,) * len(op.attr("kernel"))
    entries = pool_map(source.rank, op.attr("stride") or ones, op.attr("dilation") or ones)
    view = rw.build(op, "VIEW", x, result_shape=result.shape, map=entries)
    rw.replace_all_uses(op.result, view)
    rw.erase(op)
