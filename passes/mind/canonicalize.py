"""MIND's canonical form (specification, Canonicalisation): attributes, dead instructions, constants, operand order, ids."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Attribute, Function
from ptir_tools.dialects.mind.rewrites import canonicalization
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

OPTIONS = {"fold-floats": False}


def run(program: Program, context: PassContext) -> None:
    """Canonical form of Core v1: sorted commutative operands, integer constants folded, dead code pruned, dense ids.

    Inputs stay, used or not. Nothing is folded that does not fit its dtype; floats only with `fold-floats`.
    """
    patterns = canonicalization(context.options.get("fold-floats", False))
    context.apply(program, patterns, enable_constant_fold=False)
    for rewriter in context.rewriters(program):
        sort_operands(rewriter, context)
    renumber(program.main, context)


def sort_operands(rewriter: Rewriter, context: PassContext) -> None:
    """Sort the operands of commutative ops by definition, which is the order of dense ids."""
    values = [*rewriter.block.params, *(op.result for op in rewriter.body())]
    order = {v: i for i, v in enumerate(values)}
    for op in rewriter.body():
        if op.defn.commutes:
            ordered = sorted(op.values(), key=order.__getitem__)
            if ordered != list(op.operands) and context.step("operand-order", op):
                rewriter.set_operands(op, ordered)


def renumber(function: Function, context: PassContext) -> None:
    """Number ids densely from 0, inputs first. Data kept next to an instruction follow its value."""
    extra = function.attrs.get("extra", {})
    moved: dict[str, Attribute] = {}
    function.attrs.setdefault("input_names", [p.name for p in function.params])
    for i, v in enumerate([*function.params, *(op.result for op in function.body)]):
        if v.name in extra:
            moved[str(i)] = extra[v.name]
        context.edits += v.name != str(i)
        v.name = str(i)
    if extra:
        function.attrs["extra"] = moved
