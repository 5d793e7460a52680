"""Templates: a computation that was built once, found in other programs.

`matched` compares the definitions of a found value with those of a template, upward from both. The template's holes bind what is
there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ptir_tools.core.ir import Literal, Operand, Value

Bound = Mapping[Value, Operand]  # values of a template, and what they match
_NOTHING: Bound = {}


def matched(template: Operand, found: Operand, holes: Collection[Value], bound: Bound = _NOTHING) -> Bound | None:
    """`bound`, and the values of the template that `found` matches with theirs; None where `found` computes something else. Equal
    constants match, and operands of commutative ops in both orders."""
    if isinstance(template, Literal):
        return bound if isinstance(found, Literal) and template.same(found) else None
    if not isinstance(template, Value) or isinstance(found, Literal):
        return None
    if template in bound:
        return bound if bound[template] is found else None
    if template in holes:
        return {**bound, template: found}
    mine, other = template.op, found.op if isinstance(found, Value) else None
    if mine is None or other is None or mine.defn is not other.defn or len(mine.operands) != len(other.operands):
        return None
    if mine.attrs and mine.defn.key(mine.attrs) != mine.defn.key(other.attrs):
        return None
    if mine.defn.is_constant:
        return bound
    for operands in (other.operands, other.operands[::-1]) if mine.defn.commutes else (other.operands,):
        known: Bound | None = {**bound, template: found}
        for x, y in zip(mine.operands, operands, strict=True):
            known = matched(x, y, holes, known) if known is not None else None
        if known is not None:
            return known
    return None
