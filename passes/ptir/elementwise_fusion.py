"""Fuses chains and DAGs of f32 elementwise ops into one custom call of gpt.rs.

The result is exact: the kernel rounds every node as its op does. The payload is gpt.rs's `elementwise_dag_v1`; the kernel
broadcasts its inputs. `decompose` reverses this.
"""

from __future__ import annotations

from enum import StrEnum

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Value, create
from ptir_tools.dialects.ptir.kernels.fusion import Group, elementwise_groups, fusion_kind
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


class Backend(StrEnum):
    """The library of the custom calls."""

    C = "c"
    TRITON = "triton"


OPTIONS = {"backend": Backend.C}


def run(program: Program, context: PassContext) -> None:
    """Fuse each maximal group of f32 elementwise ops with one result into a custom call."""
    for rw in context.rewriters(program):
        for group in list(elementwise_groups(rw, lambda op: True, lambda op: True)):
            context.count("fused", _fuse(rw, group, context))


def _fuse(rw: Rewriter, group: Group, context: PassContext) -> bool:
    backend = context.options["backend"]
    attrs = group.payload if backend is Backend.C else tuple(sorted((*group.payload, *fusion_kind("elementwise_dag_v1"))))
    given = {"target": f"gpt_rs.{backend}.fused_elementwise.f32.v1", "attrs": attrs}
    result: Value = group.root.result
    call = create(OPS["ptir.custom_call"], [group.inputs], given, types=[result.type])
    if not context.step("fuse", group.root, call):
        return False
    rw.replace_all_uses(result, rw.insert_before(group.root, call))
    for op in reversed(group.ops):
        rw.erase(op)
    return True
