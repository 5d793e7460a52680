"""Operands of products that are computed from constants, such as the kernel of a filter from its formula, as constants.

They may be larger than folding allows: an engine computes and packs them once. Casts alone stay, and so do casts of narrow
floats, since engines read narrow weights as they are.
"""

from __future__ import annotations

from math import inf

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import MOVEMENT, Op, Operand, Value
from ptir_tools.core.limits import current
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.fold import foldable
from ptir_tools.rewrite.inspector import Inspector
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import OpView, rewrites

_TIMES = 64  # how many times the largest result of folding such an operand may be
_MOST = 64  # values of a formula
_CAST = "ptir.cast"


class Computed:
    """A value that is computed from constants alone, by at most `_MOST` ops, and in at most `most` bytes per value. `widens`:
    casts of floats may be among the ops. No element is read before `elements`."""

    def __init__(self, rw: Inspector, x: Operand, most: float = inf, widens: bool = True) -> None:
        self.rw, self.x, self.most, self.widens = rw, x, most, widens
        self.made: dict[Operand, Op | None] = {}  # by value, what makes it; None for constants
        self.is_known = self._follow(x)

    @property
    def moves(self) -> bool:
        """Whether the elements are those of a constant, perhaps cast or in another order."""
        return all(op is None or op.defn.name == _CAST or MOVEMENT in op.defn.traits for op in self.made.values())

    def elements(self) -> Array | None:
        """The elements; None where they are not known, or computing them fails."""
        return self._elements(self.x, {}) if self.is_known else None

    def _follow(self, x: Operand) -> bool:
        if x in self.made:
            return True
        t = helpers.tensor_type(x)
        if not t.is_static or t.nbytes > self.most or len(self.made) >= _MOST:
            return False
        if (literal := literal_of(x)) is not None:
            self.made[x] = None
            return not literal.is_missing
        made = self.rw.inst_of(x) if isinstance(x, Value) else None
        if made is None or not foldable(made.defn) or len(made.results) != 1:
            return False
        if not self.widens and made.defn.name == _CAST and helpers.dtype(made.operands[0]).is_float:
            return False
        self.made[x] = made
        return all(map(self._follow, made.operands))

    def _elements(self, x: Operand, known: dict[Operand, Array | None]) -> Array | None:
        if x not in known:
            made, literal = self.made[x], literal_of(x)
            if made is None:
                known[x] = None if literal is None else arrays.from_literal(literal)
            else:
                operands = [self._elements(y, known) for y in made.operands]
                known[x] = None if any(y is None for y in operands) else computed(made, operands, Context())
        return known[x]


@rewrites("ptir.dot_general", depth=6)
def computed_weights(op: OpView) -> bool:
    """An operand of a product that is computed from constants is one."""
    operands = [_constant(op, x) or x for x in op.root.operands]
    if all(x is y for x, y in zip(operands, op.root.operands, strict=True)):
        return False
    op.rw.set_operands(op.root, operands)
    return True


def _constant(op: OpView, x: Operand) -> Operand | None:
    """A constant in place of `x`; None where it is one, is only moved, or is not computed from constants."""
    if literal_of(x) is not None or not helpers.dtype(x).is_float:
        return None
    formula = Computed(op.rw, x, _TIMES * current().fold_bytes, widens=False)
    if not formula.is_known or formula.moves or (elements := formula.elements()) is None:
        return None
    return op.rw.materialize_constant(op.root, arrays.to_literal(elements, helpers.tensor_type(x)))


@rewrites("ptir.dequantize")
def computed_floats(op: OpView) -> bool:
    """Bytes of a constant that no product of bytes reads are floats once, not in every run."""
    formula = Computed(op.rw, op.root.result)
    if not formula.is_known or (elements := formula.elements()) is None:
        return False
    return op.replace(op.rw.materialize_constant(op.root, arrays.to_literal(elements, helpers.tensor_type(op.root))))


WEIGHTS = PatternSet([computed_floats, computed_weights]).freeze()
