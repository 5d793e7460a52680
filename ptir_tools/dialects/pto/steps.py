"""Constraints on loop steps when values are replaced: a step that becomes known must be positive."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.pto.affine import Linear, constant, linear
from ptir_tools.dialects.pto.structure import is_for
from ptir_tools.dialects.pto.types import ScalarType

if TYPE_CHECKING:
    from ptir_tools.rewrite.rewriter import Rewriter


class Steps:
    """A predicate of replacements (value, new operand), which are applied in sequence. It holds if no loop gets a step that is
    known to be 0 or negative.

    A known step that is not positive is a verification error, an unknown one is a run-time error. A rewrite must not turn the
    second into the first.
    """

    def __init__(self, rw: Rewriter) -> None:
        self.rw = rw
        ops = chain.from_iterable(map(rw.body, rw.blocks()))
        self.loops = [op for op in ops if is_for(op) and constant(op.operands[2]) is None]

    def __call__(self, given: Iterable[tuple[Value, Operand]]) -> bool:
        if not self.loops:
            return True
        known: dict[Value, Linear] = {}
        for v, x in given:
            if isinstance(v.type, ScalarType):
                known[v] = linear(x, known)
        steps = [linear(op.operands[2], known) for op in self.loops if self.rw.alive(op)] if known else []
        return not any(s.const <= 0 and not s.terms for s in steps)
