"""MIND's canonical form (specification, Canonicalisation): attributes, dead instructions, operand order, constants, ids."""

from __future__ import annotations

from typing import Any

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.evaluate import Context, computed, evaluate
from ptir_tools.core.ir import Function, Literal, Op, Program, Value
from ptir_tools.core.opdef import OPS, Trait
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

OPTIONS = {"fold-floats": False}

_FOLDED = ("Add", "Sub", "Mul")


def run(program: Program, context: PassContext) -> None:
    """Canonical form of Core v1: sorted commutative operands, integer constants folded, dead code pruned, dense ids.

    Inputs stay, used or not. Nothing is folded that does not fit its dtype; floats only with `fold-floats`.
    """
    for rewriter in context.rewriters(program):
        normalize_attributes(rewriter)
        prune(rewriter, context)
        sort_operands(rewriter)
        fold(rewriter, context)
        prune(rewriter, context)
    renumber(program.main, context)


def normalize_attributes(rewriter: Rewriter) -> None:
    """One spelling for attributes that mean the same."""
    for op in rewriter.body():
        named = op.defn.named(op.attrs)
        new = _NORMAL[op.defn.short](op, named) if op.defn.short in _NORMAL else named
        if new != named:
            rewriter.replace_all_uses(op.result, rewriter.build(op, op.defn, *op.operands, **new))
            rewriter.erase(op)


def _reduction(op: Op, named: dict[str, Any]) -> dict[str, Any]:
    """Axes ascending and not negative; `keepdims` means nothing where there are none."""
    rank = _type(op.operands[0]).rank
    axes = tuple(sorted(a % rank for a in named["axes"]))
    return {"axes": axes, "keepdims": named["keepdims"] and bool(axes)}


def _reshape(op: Op, named: dict[str, Any]) -> dict[str, Any]:
    """-1 resolved, but to 0, which cannot be written."""
    shape = _type(op.result).static_shape
    return named if 0 in shape else {"new_shape": shape}


def _expand_dims(op: Op, named: dict[str, Any]) -> dict[str, Any]:
    return {"axes": tuple(sorted(named["axes"]))}


_NORMAL = {"Sum": _reduction, "Mean": _reduction, "Reshape": _reshape, "ExpandDims": _expand_dims}


def prune(rewriter: Rewriter, context: PassContext) -> None:
    """Erase what no output needs."""
    for op in reversed(rewriter.body()):
        if rewriter.unused(op):
            rewriter.erase(op)
            context.count("erased")


def sort_operands(rewriter: Rewriter) -> None:
    """Operands of Add and Mul in the order of their definition, which is that of their ids once they are dense."""
    values = [*rewriter.block.params, *(op.result for op in rewriter.body())]
    rank = {v: i for i, v in enumerate(values)}
    for op in rewriter.body():
        if Trait.COMMUTES in op.defn.traits:
            ordered = sorted(op.values(), key=rank.__getitem__)
            if ordered != list(op.operands):
                rewriter.set_operands(op, ordered)


def fold(rewriter: Rewriter, context: PassContext) -> None:
    """Add, Sub and Mul of constants, where the result is exact."""
    for op in rewriter.body():
        literals = [_constant(x) for x in op.operands]
        if op.defn.short not in _FOLDED or None in literals:
            continue
        folded = _folded(op, [x for x in literals if x is not None], context)
        if folded is not None:
            scalar = folded.type is tensor(SI64)
            defn = OPS["mind.ConstI64" if scalar else rewriter.dialect.constant]
            rewriter.replace_all_uses(op.result, rewriter.build(op, defn, value=folded))
            rewriter.erase(op)
            context.count("folds")


def _folded(op: Op, literals: list[Literal], context: PassContext) -> Literal | None:
    """The literal that `op` gives, or None when it is too big, or its declaration does not let it be computed."""
    t = _type(op.result)
    if t.nbytes > max(context.limits.fold_bytes, *(x.type.nbytes for x in literals)):
        return None
    operands = [arrays.from_literal(x) for x in literals]
    floats = t.dtype.is_float and context.options.get("fold-floats")
    result = evaluate(op, operands, Context())[0] if floats else computed(op, operands, Context())
    return None if result is None else arrays.to_literal(result, t)


def _constant(x: Any) -> Literal | None:
    literal = x.op.attr("value") if isinstance(x, Value) and x.op and Trait.CONSTANT in x.op.defn.traits else None
    return literal if isinstance(literal, Literal) else None


def _type(x: Any) -> TensorType:
    t: TensorType = x.type
    return t


def renumber(function: Function, context: PassContext) -> None:
    """Dense ids from 0, inputs first. What is kept beside an instruction follows its value."""
    extra = function.attrs.get("extra", {})
    moved: dict[str, Any] = {}
    function.attrs.setdefault("input_names", [p.name for p in function.params])
    for i, v in enumerate([*function.params, *(op.result for op in function.body)]):
        if v.name in extra:
            moved[str(i)] = extra[v.name]
        context.edits += v.name != str(i)
        v.name = str(i)
    if extra:
        function.attrs["extra"] = moved
