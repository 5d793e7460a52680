"""Tiny's canonical form (docs/tiny.md): explicit, topological, without movement that moves nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptir_tools.core.ir import Op, Operand, Program, Value
from ptir_tools.core.types import Dim, TensorType
from ptir_tools.dialects.tiny.ops.view import axis_name
from ptir_tools.passes import PassContext
from ptir_tools.passes.tiny import normalize
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Canonical form: POOL as VIEW, no-op movement and casts dropped, RESHAPE and PERMUTE chains merged, dead nodes dropped.

    An output keeps its node, so that it keeps its name; a graph without "outputs" has no dead nodes.
    """
    normalize.run(program, context)
    for rw in context.rewriters(program):
        for op in rw.body():
            if op.defn.short in _MERGED:
                op = _merge(rw, op, context)
            if _is_noop(op) and not rw.is_result(op.result):
                rw.replace_all_uses(op.result, op.operands[0])
                rw.erase(op)
                context.count("no-op dropped")
        context.count("erased", rw.erase_dead())


def _merge(rw: Rewriter, op: Op, context: PassContext) -> Op:
    """RESHAPE of RESHAPE, PERMUTE of PERMUTE as one op."""
    inner = op.operands[0].op if isinstance(op.operands[0], Value) else None
    if inner is None or inner.defn is not op.defn:
        return op
    new = rw.build(op, op.defn.short, inner.operands[0], **_MERGED[op.defn.short](inner, op))
    rw.replace_all_uses(op.result, new)
    rw.erase(op)
    context.count(f"{op.defn.short} merged")
    if new.op is None:
        raise TypeError(new)
    return new.op


_MERGED: dict[str, Callable[[Op, Op], dict[str, Any]]] = {
    "RESHAPE": lambda inner, outer: {"result_shape": outer.attr("result_shape")},
    "PERMUTE": lambda inner, outer: {"perm": tuple(inner.attr("perm")[p] for p in outer.attr("perm"))},
}


def _is_noop(op: Op) -> bool:
    """Whether the result is the first operand itself."""
    rule = _NOOPS.get(op.defn.short)
    return rule is not None and _type(op.operands[0]) is op.result.type and rule(op)


def _type(x: Operand) -> object:
    return x.type if isinstance(x, Value) else None


def _always(op: Op) -> bool:
    return True


def _rank(op: Op) -> int:
    return op.result.type.rank if isinstance(op.result.type, TensorType) else 0


def _whole(op: Op) -> bool:
    zeros: tuple[Dim, ...] = (0,) * _rank(op)
    return op.attr("lo") == zeros and all(s == 1 for s in op.attr("step") or ())


def _identity(op: Op) -> bool:
    return not op.attr("guard") and [str(d).removeprefix("?") for d in op.attr("map")] == [axis_name(i) for i in range(_rank(op))]


# With the operand's type as its result, what else makes the op do nothing.
_NOOPS: dict[str, Callable[[Op], bool]] = {
    "RESHAPE": _always,
    "EXPAND": _always,
    "CAST": _always,
    "PERMUTE": lambda op: op.attr("perm") == tuple(range(_rank(op))),
    "PAD": lambda op: all(low == 0 == high for low, high in op.attr("pad")),
    "SHRINK": _whole,
    "FLIP": lambda op: not op.attr("axes"),
    "VIEW": _identity,
}
