"""Fusion hints, as gpt.rs generates them: groups of ops that a backend may run as one. The ops stay.

Candidates are f32 elementwise groups and contractions with a bias. They are chosen by gpt.rs's score, greatest first, then by
size and position; no two share an op. The remaining ops of other candidates are candidates again. The payload is computed from
the ops of its own group. Hints written by hand stay; generated ones (`fusion_generated`) are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import count

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op, Value
from ptir_tools.dialects.ptir.hints import Hint, hints
from ptir_tools.dialects.ptir.kernels.fusion import Group, attrs, dot_groups, elementwise_groups, fusion_kind
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


class Policy(StrEnum):
    """The policy of the hints."""

    OPTIONAL = "optional"
    PREFERRED = "preferred"
    REQUIRED = "required"


OPTIONS = {"policy": Policy.PREFERRED, "min-score": 0}
_KINDS = {"ElementwiseDag": ("elementwise_dag_v1", 20), "DotEpilogue": ("dot_epilogue_v1", 60)}


def run(program: Program, context: PassContext) -> None:
    """Mark groups of f32 elementwise ops, and of contractions with a bias, that a backend may run as one."""
    policy = context.options["policy"].capitalize()
    for function in program.functions:
        kept = [h for h in hints(function) if not _generated(h)]
        groups = _choose(Rewriter(function, program.dialect), kept, context.options["min-score"])
        new = [_hint(group, policy, i) for i, group in zip(_free(kept), groups, strict=False)]
        if list(map(_key, hints(function))) != list(map(_key, [*kept, *new])):
            function.annotations[:] = [*kept, *new]
            context.edits += 1
        context.count("hints", len(new))


def score(group: Group) -> int:
    """gpt.rs's score of a group: the launches and stores that it saves, minus a penalty for long groups."""
    n = len(group.ops)
    return 100 * (n - 1) + 25 * (n - 1) + _KINDS[group.kind][1] - 10 * max(0, n - 8)


def _generated(hint: Hint) -> bool:
    return dict(hint.attrs).get("fusion_generated") == ("Bool", True)


def _choose(rw: Rewriter, kept: list[Hint], least: int) -> list[Group]:
    """The chosen groups, in program order."""
    used: set[Op] = {v.op for h in kept for op in h.body for v in op.results if v.op is not None}
    groups: list[Group] = []

    def may(op: Op) -> bool:
        return op not in used and all(isinstance(x, Value) for x in op.operands)

    while True:
        candidates = [g for g in (*elementwise_groups(rw, may, may), *dot_groups(rw, may)) if score(g) > least]
        if not candidates:
            return sorted(groups, key=lambda g: rw.order.place(g.root))
        for group in sorted(candidates, key=lambda g: (-score(g), -len(g.ops), rw.order.place(g.root))):
            if used.isdisjoint(group.ops):
                used.update(group.ops)
                groups.append(group)


def _free(kept: list[Hint]) -> Iterator[int]:
    used = {h.id for h in kept}
    return (i for i in count() if i not in used)


def _hint(group: Group, policy: str, number: int) -> Hint:
    kind = fusion_kind(_KINDS[group.kind][0])
    result = attrs(fusion_generated=("Bool", True), fusion_score=("I64", score(group)))
    inputs = tuple(x for x in group.inputs if isinstance(x, Value))
    body = [Op(op.defn, op.operands, op.attrs, op.results, op.regions, op.loc) for op in group.ops]
    payload = tuple(sorted((*group.payload, *kind, *result)))
    return Hint(
        id=number, kind=group.kind, policy=policy, attrs=payload,
        inputs=inputs, exports=(group.root.result,), body=body, loc=group.root.loc,
    )  # fmt: skip


def _key(hint: Hint) -> tuple[object, ...]:
    copied = tuple((op.defn, op.operands, op.defn.key(op.attrs), op.results) for op in hint.body)
    return (hint.id, hint.kind, hint.policy, hint.inputs, hint.exports, hint.attrs, copied)
