"""Folding: replacing an op that equals one of its operands, or whose operands are constants. Specification: PTIR rewrite system,
"Folding and constants".

Values come from the op's declaration: its `fold` names an operand that equals the result, its body computes, integers exactly,
floats in the precision that the reference has. Random ops, loops and branches are never folded. Neither is what fails at run
time, reads a payload that is missing, would take long, or would make the program bigger than `Limits.fold_bytes` allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from ptir_tools.core import arrays
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import DECODES, ELEMENTWISE, MOVEMENT, RANDOM, Literal, Op, OpDef, Operand, Value, operand_type
from ptir_tools.core.limits import current
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.inspector import Inspector
from ptir_tools.rewrite.uniform import elements_of, uniform, uniform_each

_BARRIER = ELEMENTWISE | MOVEMENT  # an op that is both returns its operand and must stay visible (stop_gradient)
_CONTEXT = Context()  # folded ops do not use the context


@dataclass(slots=True, frozen=True)
class FoldResult:
    """The result of an attempt to fold: Nothing, ReplacedBy an operand, or a literal to Materialize."""


@dataclass(slots=True, frozen=True)
class Nothing(FoldResult):
    """The op stays."""


@dataclass(slots=True, frozen=True)
class ReplacedBy(FoldResult):
    """The op's result equals `operand`."""

    operand: Operand


@dataclass(slots=True, frozen=True)
class Materialize(FoldResult):
    """The op's result is the constant `literal`."""

    literal: Literal


NOTHING = Nothing()
FOLD_DEPTH = 2  # folding reads the op and the definitions of its operands


def may_compute(d: OpDef, origins: Sequence[object]) -> bool:
    """Whether an op `d` whose operands have these origins (`rewrite.patterns.Origin`) may be on constants alone."""
    constant = [o is Literal or (isinstance(o, OpDef) and o.is_constant) for o in origins]
    return bool(constant) and all(constant) and foldable(d)


@cache
def foldable(d: OpDef) -> bool:
    """Whether an op on constants may be folded: no effects, no regions, no random stream, and not an op that must stay
    visible."""
    barrier = d.traits & _BARRIER == _BARRIER
    return d.is_pure and d.implemented and not (d.regions or d.is_constant or barrier or RANDOM in d.traits)


def declared_fold(op: Op) -> FoldResult:
    """The result of the declared fold of `op`: an existing value of the identical type."""
    by = None if op.defn.fold is None else op.defn.fold(op)
    return NOTHING if by is None or operand_type(by) is not op.results[0].type else ReplacedBy(by)


def try_fold(op: Op, rw: Inspector) -> FoldResult:
    """Fold `op`. The result has the op's own type."""
    d = op.defn
    if len(op.results) != 1:
        return NOTHING
    if d.fold is not None and (result := declared_fold(op)) is not NOTHING:
        return result
    t, literals = op.results[0].type, []
    for x in op.operands:
        if (literal := literal_of(x)) is None or literal.data is None:
            return NOTHING
        literals.append(literal)
    if not literals or not foldable(d) or not isinstance(t, TensorType) or not t.is_static:
        return NOTHING
    literal = _literal(op, t, literals, rw)
    if literal is None:
        return NOTHING
    inline = not t.shape and all(isinstance(x, Literal) for x in op.operands)  # inline literals stay inline
    return ReplacedBy(literal) if inline else Materialize(literal)


def fold_each(ops: Sequence[Op], rw: Inspector) -> Iterator[tuple[Op, FoldResult]]:
    """The result of `try_fold` for each of `ops`, which are elementwise and on constants; they are computed in batches."""
    known = uniform_each(
        op for op in ops if op.defn.fold is None and foldable(op.defn) and not isinstance(op.operands[0], Literal)
    )
    for op in ops:
        t, data = op.results[0].type, known.get(op)
        if data is None or not isinstance(t, TensorType) or not t.is_static or not t.count:
            yield op, try_fold(op, rw)
        else:
            yield op, Materialize(Literal(t, data, splat=t.count > 1))


def _literal(op: Op, t: TensorType, literals: Sequence[Literal], rw: Inspector) -> Literal | None:
    traits = op.defn.traits
    if MOVEMENT in traits and len(literals) == 1:
        if t.count > literals[0].type.count:
            return None  # a broadcast of a constant is its shortest form
        if literals[0].splat and t.count > 1:
            return Literal(t, literals[0].data, splat=True)
    if DECODES in traits and t.count > 1 and t.nbytes > literals[0].type.nbytes:
        return None  # the bytes stay what they are: products read them
    if ELEMENTWISE in traits and t.count and (elements := elements_of(literals)) is not None:
        data = uniform(op.defn, op.attrs, t.dtype, elements)
        return None if data is None else Literal(t, data, splat=t.count > 1)
    if t.dtype.packed_bytes(t.count) > _allowed(op, literals, rw) or _long(literals):
        return None
    result = computed(op, [arrays.from_literal(x) for x in literals], _CONTEXT)
    return None if result is None else arrays.to_literal(result, t)


def _allowed(op: Op, literals: Sequence[Literal], rw: Inspector) -> int:
    """The most bytes of the result: those of the constants that it replaces, but at least the limit."""
    replaced = 0
    for x, literal in zip(op.operands, literals, strict=True):
        if isinstance(x, Literal) or (isinstance(x, Value) and rw.uses(x) == 1):
            replaced += len(literal.data or b"")
    return max(current().fold_bytes, replaced)


def _long(literals: Sequence[Literal]) -> bool:
    """Whether reading the literals would take long: a splat may have any number of elements."""
    return sum(x.type.nbytes for x in literals) > max(16 * current().fold_bytes, 4 * sum(len(x.data or b"") for x in literals))
