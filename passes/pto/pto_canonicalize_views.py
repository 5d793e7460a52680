"""Canonical form of views: every chain of subviews is one subview of the memory argument. Its type states all known offsets and
strides."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.ops.memory import view_type
from ptir_tools.dialects.pto.structure import is_view
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import MemRefType
from ptir_tools.passes import PassContext
from ptir_tools.passes.pto.pto_canonicalize import busy_pipes, sweep
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Replace every chain of subviews by one with base, offset and strides in its type."""
    for rw in context.rewriters(program):
        for block in rw.blocks():
            for op in rw.body(block):
                if is_view(op):
                    context.count("views", _canonical(rw, op))
        sweep(rw, busy_pipes(rw.block))


def _canonical(rw: Rewriter, op: Op) -> int:
    """Skip the view of which `op` is a view (it is canonical already), and state the type; 1 if anything changed."""
    edits = rw.edits
    source = op.operands[0]
    parent = source.op if isinstance(source, Value) else None
    if parent is not None and is_view(parent):
        op = _composed(rw, op, parent)
    base, offsets, _, steps = op.defn.split(op.attrs, op.operands)
    shape = op.attr("to").shape
    known = view_type(base.type, shape, [constant(x) for x in offsets], [constant(x) for x in steps])
    if known is not op.attr("to"):
        rw.set_attrs(op, to=known)
        rw.retype(op.result, known)
    return int(rw.edits > edits)


def _composed(rw: Rewriter, op: Op, parent: Op) -> Op:
    """`op` as a view of the memory that `parent` is a view of: offsets add up, in steps of the parent, and steps multiply."""
    base, outer, _, scales = parent.defn.split(parent.attrs, parent.operands)
    _, inner, sizes, steps = op.defn.split(op.attrs, op.operands)
    offsets = [_sum(rw, op, o, _times(rw, op, i, s)) for o, i, s in zip(outer, inner, scales, strict=True)]
    strides = [_times(rw, op, a, b) for a, b in zip(steps, scales, strict=True)]
    to = op.attr("to")
    assert isinstance(to, MemRefType)
    loose = view_type(base.type, to.shape, [constant(x) for x in offsets], [constant(x) for x in strides])
    result = rw.build(op, "memref.subview", base, offsets, list(sizes), strides, to=loose)
    rw.retype(op.result, loose)
    rw.replace_all_uses(op.result, result)
    rw.erase(op)
    assert result.op is not None
    return result.op


def _sum(rw: Rewriter, at: Op, a: Operand, b: Operand) -> Operand:
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return integer(x + y, INDEX)
    return b if x == 0 else a if y == 0 else rw.build(at, "addi", _value(rw, at, a), _value(rw, at, b))


def _times(rw: Rewriter, at: Op, a: Operand, b: Operand) -> Operand:
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return a if y == 1 else b if x == 1 else integer(x * y, INDEX)
    return b if x == 1 else a if y == 1 else rw.build(at, "muli", _value(rw, at, a), _value(rw, at, b))


def _value(rw: Rewriter, at: Op, x: Operand) -> Operand:
    """`x` as a value, because arithmetic takes no literals."""
    return rw.build(at, "constant", value=x) if isinstance(x, Literal) else x
