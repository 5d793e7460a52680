"""Replaces each fusion hint by the custom call that its payload describes, as gpt.rs's Triton backend does.

An elementwise kernel is exact. A contraction with its bias rounds once instead of twice; under strict floats such a hint
stays. So does a hint without a payload, or with a payload that the kernel refuses. `decompose` reverses this.
"""

from __future__ import annotations

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op, Operand, create
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.hints import Hint, hints
from ptir_tools.dialects.ptir.kernels.targets import TARGETS
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.rewriter import Rewriter

_DOT = "dot_epilogue_v1"
_TARGETS = {"elementwise_dag_v1": "gpt_rs.triton.fused_elementwise.f32.v1", _DOT: "gpt_rs.triton.fused_dot_bias.f32.v1"}


def run(program: Program, context: PassContext) -> None:
    """Replace each fusion hint with a payload by the custom call that it describes."""
    for function in program.functions:
        calls = {h: call for h in hints(function) if (call := _call(h, context)) is not None}
        function.annotations[:] = [h for h in hints(function) if h not in calls]
        with context.rewriter(program, function) as rw:
            replaced: dict[Operand, Operand] = {}
            for hint, call in calls.items():
                call.operands = tuple(replaced.get(x, x) for x in call.operands)
                _replace(rw, hint, call)
                replaced[hint.exports[0]] = call.result
        context.edits += rw.edits
        context.count("lowered", len(calls))


def _call(hint: Hint, context: PassContext) -> Op | None:
    """The custom call that replaces `hint`, or None if it stays."""
    kind = dict(hint.attrs).get("fusion_kind", ("", ""))[1]
    target = _TARGETS.get(kind if isinstance(kind, str) else "")
    if target is None or len(hint.exports) != 1 or (kind == _DOT and context.floats is Floats.STRICT):
        return None
    known = TARGETS[target].attrs | TARGETS[target].optional
    given = {"target": target, "attrs": tuple(a for a in hint.attrs if a[0] in known)}
    try:
        call = create(OPS["ptir.custom_call"], [hint.inputs], given, types=[hint.exports[0].type])
    except Violation:
        return None
    root = hint.exports[0].op
    return call if root is not None and context.step("lower", root, call) else None


def _replace(rw: Rewriter, hint: Hint, call: Op) -> None:
    (result,) = hint.exports
    ops = [copy.result.op for copy in hint.body]
    assert result.op is not None
    rw.replace_all_uses(result, rw.insert_before(result.op, call))
    for op in reversed(ops):
        if op is not None and rw.alive(op) and rw.unused(op):
            rw.erase(op)
