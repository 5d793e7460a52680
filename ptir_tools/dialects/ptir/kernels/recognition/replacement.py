"""A match that is about to be replaced, and the conditions of forms on its axes."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import ELEMENTWISE, Attribute, Op, Operand, Value, create
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.types import UNKNOWN, Dim
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.kernels.examples import Match
from ptir_tools.dialects.ptir.kernels.fusion import attrs
from ptir_tools.dialects.ptir.ops.kinds import AttrValue
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.contractions import Factor, trace
from ptir_tools.rewrite.constants import scalar_of
from ptir_tools.rewrite.rewriter import Rewriter

Number = tuple[str, AttrValue]


@dataclass(slots=True, frozen=True)
class Found:
    """A match about to be replaced, and the ops that were built before its root."""

    match: Match
    rw: Rewriter
    made: list[Op] = field(default_factory=list)

    @property
    def root(self) -> Op:
        return self.match.root

    def input(self, name: str) -> Operand:
        """The operand that binds a parameter of the kernel."""
        return self.match.inputs[name]

    def op(self, name: str) -> Op:
        """The op that matches an op of the kernel."""
        return self.match.ops[name]

    def call(self, target: str, *operands: Operand, **given: Number) -> Value:
        """A custom call of the type of the root. Raises Violation when the target refuses it."""
        wanted = helpers.tensor_type(self.root)
        made = create(OPS["ptir.custom_call"], [operands], {"target": target, "attrs": attrs(**given)})
        require(made.result.type is wanted, "ResultTypeMismatch", f"{target} makes {made.result.type}, expected {wanted}")
        return self._put(made)

    def build(self, name: str, *operands: Operand | Sequence[Operand], **given: Attribute) -> Value:
        """An op before the root. Raises Violation when it is not well typed."""
        return self._put(create(OPS[f"ptir.{name}"], operands, given))

    def cast(self, x: Operand, dtype: DType) -> Operand:
        """`x` in another dtype."""
        return x if helpers.dtype(x) is dtype else self.build("cast", x, dtype=dtype)

    def _put(self, op: Op) -> Value:
        self.made.append(op)
        return self.rw.insert_before(self.root, op)

    def undo(self) -> None:
        """Erase the ops that were built."""
        for op in reversed(self.made):
            self.rw.erase(op)

    def last(self, axis: int) -> int:
        """`axis` of the root, -1 where it is the last."""
        return -1 if axis == helpers.rank(self.root) - 1 else axis


def feature_axis(found: Found) -> int | None:
    """The one axis of the root that all reductions reduce. As in the kernel, a broadcast must repeat only along this axis, or
    only along the others. None if something else is computed."""
    reductions = [op for op in found.match.ops.values() if op.defn.family == "reduce"]
    axes = {helpers.axes(op.attr("axes"), helpers.rank(op.operands[0])) for op in reductions}
    ranks = {helpers.rank(op.operands[0]) for op in reductions}
    if len(axes) != 1 or ranks != {helpers.rank(found.root)} or not helpers.floating(found.root):
        return None
    reduced = axes.pop()
    return reduced[0] if len(reduced) == 1 and _axes_agree(found, reduced[0]) else None


def _axes_agree(found: Found, axis: int) -> bool:
    """Whether every value has the same axes on all paths from the root, and the inputs that are not scalars have those of the
    root."""
    shape = helpers.shape(found.root)
    whole = [None if d == 1 else i for i, d in enumerate(shape)]
    ends = {x for x in found.match.inputs.values() if scalar_of(x) is None}
    known: dict[Operand, list[int | None]] = {found.root.result: whole}
    inside = [found.root, *(op for op in found.match.interior if op.defn.name not in found.match.example.skip)]
    for op in sorted(inside, key=found.rw.order.place, reverse=True):
        if (mine := known.get(op.result)) is None:
            return False
        if op.defn.family == "reduce":
            kept = mine if op.attr("keepdims") else [*mine[:axis], None, *mine[axis:]]
            mine = [(axis if shape[axis] != 1 else None) if i == axis else a for i, a in enumerate(kept)]
        elif ELEMENTWISE not in op.defn.traits:
            return False
        for x in op.operands:
            if scalar_of(x) is None:
                factor = trace(x, ends)
                below: list[int | None] = [None] * helpers.rank(factor.source)
                for label, a in zip(mine, factor.axes, strict=True):
                    if a is not None:
                        below[a] = label
                        if label is not None and not _same(helpers.shape(factor.source)[a], shape[label]):
                            return False
                if known.setdefault(factor.source, below) != below:
                    return False
    return all(known.get(x) == whole for x in ends)


def _same(a: Dim, b: Dim) -> bool:
    """Whether two extents are certainly equal."""
    return a == b and a is not UNKNOWN


def vector(found: Found, name: str, axis: int) -> Operand | None:
    """The vector along `axis` that the input `name` broadcasts along all others."""
    extent = helpers.shape(found.input(name))[axis]
    factor: Factor = trace(found.input(name))
    other = [i for i in range(len(factor.axes)) if i != axis]
    extents = [d for d in helpers.shape(factor.source) if d != 1]
    if (extents or [1]) != [extent] or extent is UNKNOWN or any(factor.reads(i) for i in other):
        return None
    if helpers.shape(factor.source) == (extent,):
        return factor.source
    return found.build("reshape", factor.source, new_shape=(extent,))
