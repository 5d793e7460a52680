"""Common subexpression elimination of PTIR: that of every dialect, without a higher peak for what is cheap to make again.

A merged value lives until its last use. What is counted out (an `iota`, and elementwise and rearranging ops on such, constants
and single elements: masks, positions) costs little to make again. Where nobody reads the first any more, a second is merged with
it only if the block then needs no more memory by its plan, for which a symbol counts as 16. Blocks of more than 2000 ops, and
those whose extents do not follow from the parameters', are not planned: there all is merged. With `keep-peak=false`, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import Violation
from ptir_tools.core.dialect import Dialect
from ptir_tools.core.ir import Function, Literal, Op, Operand, Program, Region, Value, clone_blocks
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import ELEMENTWISE, MOVEMENT, OpDef
from ptir_tools.core.rewriter import Rewriter
from ptir_tools.core.symbols import mentioned, specialize
from ptir_tools.core.types import TensorType
from ptir_tools.passes import PassContext
from ptir_tools.passes.cse import Merger

if TYPE_CHECKING:
    from ptir_tools.plan import order, record
else:
    order = lazy("ptir_tools.plan.order")
    record = lazy("ptir_tools.plan.record")

_EXTENT = 16  # of a symbol, where peaks are compared

OPTIONS = {"keep-peak": True}


def run(program: Program, context: PassContext) -> None:
    """Merge ops that compute the same value; masks and the like only where keeping them takes no more memory."""
    every, sparing = Merger(context), _Sparing(context)
    keep = context.options.get("keep-peak", True)
    for rw in context.rewriters(program):
        spares = keep and any(map(_counts, {op.defn for op in rw.block.body})) and len(rw.block.body) <= order.LARGEST
        (sparing if spares else every).merge(rw)
    context.count("merged", every.merged + sparing.merged)


class _Sparing(Merger):
    """Spares what is counted out and read no more; `stands` has what each spared value, and each merged one, equals."""

    def __init__(self, context: PassContext) -> None:
        super().__init__(context)
        self.counted: set[Operand] = set()
        self.stands: dict[Operand, Operand] = {}

    def merge(self, rw: Rewriter) -> None:
        if rw.settled(who := (_Sparing, self.commute_floats)):
            return
        self.stands.clear()
        self.block(rw, rw.block, {})
        if self.stands and not self._raises_peak(rw):
            every = Merger(self.context)
            every.block(rw, rw.block, {})
            self.merged += every.merged
        rw.settle(who)

    def key(self, op: Op, operands: Any) -> Any:
        if _counts(op.defn) or (self.counted.intersection(op.values()) and self._is_cheap(op)):
            self.counted.update(op.results)
        return super().key(op, tuple(self.stands.get(x, x) if isinstance(x, Value) else x for x in operands))

    def may_merge(self, rw: Rewriter, op: Op, first: Op) -> bool:
        v = first.results[0]
        if v not in self.counted or rw.is_result(v):
            return True
        place = rw.order.place
        if any(place(u) > place(op) for u in rw.users_of(v)):
            return True
        self.stands[op.results[0]] = self.stands.get(v, v)
        return False

    def _is_cheap(self, op: Op) -> bool:
        return bool(op.defn.traits & (ELEMENTWISE | MOVEMENT)) and all(x in self.counted or _small(x) for x in op.operands)

    def _raises_peak(self, rw: Rewriter) -> bool:
        """Whether the block of `rw` needs more memory when all that is spared is merged."""
        rw.finish()
        now, merged = (clone_blocks([rw.block])[0] for _ in range(2))
        with Rewriter(merged, rw.dialect) as copy:
            Merger(PassContext(floats=self.context.floats)).block(copy, merged, {})
        try:
            return _peak(merged, rw.dialect) > _peak(now, rw.dialect)
        except Violation:  # some extent does not follow
            return False


def _counts(d: OpDef) -> bool:
    """Whether ops `d` make their elements of nothing but their places."""
    return d.is_pure and not (d.groups or d.regions or d.is_constant or d.is_random)


def _small(x: Operand) -> bool:
    """Whether `x` is a constant, a single element, or that repeated."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.traits & MOVEMENT and len(x.op.operands) == 1:
        x = x.op.operands[0]
    if isinstance(x, Literal) or (isinstance(x, Value) and x.op is not None and x.op.defn.is_constant):
        return True
    return isinstance(x, Value) and isinstance(x.type, TensorType) and x.type.is_static and x.type.count == 1


def _peak(block: Region, dialect: Dialect) -> int:
    """The most bytes alive at once in `block`, which is made static. Raises Violation when an extent does not follow."""
    numbers = {s.name: _EXTENT for p in block.params for s in mentioned(p.type)}
    if numbers:
        alone = Function(block.name, block.params, block.body, block.results, block.result_types)
        specialize(Program(dialect, [alone], entry=block.name), numbers)
    return record.plan_block(block, record.Plan(method=record.Method("greedy"))).lower_bound
