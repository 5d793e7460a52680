"""Patterns of comparisons and selections that a rule cannot express, because they apply to every comparison or to any selected
op."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Literal, Op, Operand, Value, create
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.motion import MAPS
from ptir_tools.dialects.ptir.rewrites.uniform import element_of, equal_elements
from ptir_tools.rewrite.constants import same_operand, scalar_of
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites
from ptir_tools.rewrite.uniform import elements_of, uniform

_CONSTANTS = ("ptir.constant", "ptir.broadcast_to")
_MIRRORED = {"compare_lt": "compare_gt", "compare_gt": "compare_lt", "compare_le": "compare_ge", "compare_ge": "compare_le"}


@rewrites("ptir.compare", operands=["ptir.neg"], at=0)
def compare_negated(op: OpView) -> bool:
    """A comparison of two negated operands, or of one with a constant, is the reversed comparison of the operands. For integers
    only equality, because the lowest is its own negation."""
    left, right = op.defined_by(op.x, "neg"), op.defined_by(op.y, "neg")
    kind = op.root.defn.short
    if left is None or helpers.constant(left.x) or (kind in _MIRRORED and not helpers.floating(op.x)):
        return False
    if right is not None:
        y: Operand = right.x
    elif helpers.constant(op.y) and op.has_one_use(op.x):
        y = op.rw.build(op.root, "neg", op.y)
    else:
        return False
    return op.replace(op.rw.build(op.root, _MIRRORED.get(kind, kind), left.x, y))


@rewrites("ptir.compare", operands=_CONSTANTS, at=1)
def compare_of_bounds(op: OpView) -> bool:
    """A comparison of integers with known bounds (widened integers, counts, indices) is constant when both bounds give the same
    result."""
    n, ends = scalar_of(op.y), _bounds(op.x)
    if n is None or ends is None:
        return False
    known = {helpers.compares(op.root.defn.short, end, n) for end in ends}
    if op.root.defn.short in ("compare_eq", "compare_ne") and ends[0] < n < ends[1]:
        return False
    return len(known) == 1 and helpers.filled(op, known.pop())


def _bounds(x: Operand) -> tuple[int, int] | None:
    """The least and the greatest value of integers, from the op that makes them; None when unknown."""
    x = helpers.source(x)
    made, d = x.op if isinstance(x, Value) else None, helpers.dtype(x)
    if made is None or not d.is_integer:
        return None
    kind = made.defn.short
    if kind == "cast":
        inner = helpers.dtype(made.operands[0])
        low, high = (0, 1) if inner is I1 else (inner.min, inner.max) if inner.is_integer else (d.min, d.max)
        return max(low, d.min), min(high, d.max)
    if kind in ("iota", "argmax"):
        counted = made.results[0] if kind == "iota" else made.operands[0]
        extent = helpers.shape(counted)[made.attr("axis")]
        return (0, extent - 1) if isinstance(extent, int) and 0 < extent <= d.max + 1 else None
    return None


@rewrites("ptir.select", operands=MAPS, at=1)
def select_of_alike(op: OpView) -> bool:
    """A selection between two results of one op that differ in one operand is the op on a selection of that operand."""
    a, b = (x.op if isinstance(x, Value) else None for x in (op.on_true, op.on_false))
    if a is None or b is None or a.defn is not b.defn or a.defn.name not in MAPS or a.defn.key(a.attrs) != b.defn.key(b.attrs):
        return False
    differ = [i for i, (x, y) in enumerate(zip(a.operands, b.operands, strict=True)) if not same_operand(x, y, 0)]
    if len(differ) != 1 or not all(op.has_one_use(x) for x in (op.on_true, op.on_false)):
        return False
    (at,) = differ
    x, y = a.operands[at], b.operands[at]
    if helpers.tensor_type(x) is not helpers.tensor_type(y):
        return False
    operands = list(a.operands)
    operands[at] = op.rw.build(op.root, "select", op.pred, x, y)
    return op.replace(op.rw.insert_before(op.root, create(a.defn, a.defn.split(a.attrs, operands), a.defn.named(a.attrs))))


@rewrites(*MAPS, operands=["ptir.select"])
def map_of_choice(op: OpView) -> bool:
    """An elementwise op on a selection between two constants is a selection between two computed constants."""
    root, t = op.root, op.result.type
    chosen = [x for x in root.operands if op.defined_by(x, "select") is not None]
    choice = op.defined_by(chosen[0], "select") if chosen else None
    if choice is None or not isinstance(t, TensorType) or not all(same_operand(x, chosen[0]) for x in chosen):
        return False
    arms = [_computed_element(root, chosen, arm) for arm in (choice.on_true, choice.on_false)]
    if arms[0] is None or arms[1] is None or not all(helpers.has_one_use(op.rw, x, root) for x in chosen):
        return False
    if t.dtype is I1 and arms == [b"\1", b"\0"]:
        return op.replace(choice.pred)
    inline = all(isinstance(helpers.source(y), Literal) for y in (choice.on_true, choice.on_false))
    if inline and not t.rank:
        return op.replace(op.rw.build(root, "select", choice.pred, *(Literal(t, arm) for arm in arms)))
    numbers = [equal_elements(t, arm, inline) for arm in arms if arm is not None]
    gone = sum(helpers.has_one_use(op.rw, y, choice.root) for y in {choice.on_true, choice.on_false})
    if sum(map(len, numbers)) > 1 + gone:
        return False
    return op.replace(op.rw.build(root, "select", choice.pred, *(helpers.insert(op.rw, root, ops) for ops in numbers)))


def _computed_element(root: Op, chosen: Sequence[Operand], arm: Operand) -> bytes | None:
    """The scalar that `root` gives when the operand `chosen` is replaced by `arm`; None when an operand does not have equal
    elements."""
    elements = [element_of(arm if any(x is y for x in chosen) else y) for y in root.operands]
    known = elements_of(elements)
    t = root.results[0].type
    return None if known is None or not isinstance(t, TensorType) else uniform(root.defn, root.attrs, t.dtype, known)


CHOICES: list[Pattern] = [compare_negated, compare_of_bounds, select_of_alike, map_of_choice]
