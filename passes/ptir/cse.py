"""Common subexpression elimination of PTIR, which does not raise the peak for cheap values.

A merged value lives until its last use. An `iota`, and elementwise and movement ops on cheap values, constants and single
elements (masks, positions), are cheap to compute again. If the first is no longer live, a second is merged with it under two
conditions: the peak does not rise (a symbol counts as 16), and no loop or branch is between them. Everything is merged in
blocks of more than 2000 ops, if extents do not follow from the parameters', and with `keep-peak=false`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import ELEMENTWISE, MOVEMENT, Function, Literal, Op, OpDef, Operand, Region, Value, clone_blocks
from ptir_tools.core.lazy import lazy
from ptir_tools.core.symbols import mentioned, specialize
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation
from ptir_tools.passes import PassContext
from ptir_tools.passes.cse import Merger
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    from ptir_tools.plan import liveness, record
else:
    liveness = lazy("ptir_tools.plan.liveness")
    record = lazy("ptir_tools.plan.record")

_EXTENT = 16  # the number for a symbol in estimates of memory
_LARGEST = 2000  # ops of a block whose live ranges are computed, at most

OPTIONS = {"keep-peak": True}


def run(program: Program, context: PassContext) -> None:
    """Merge ops that compute the same value; masks and similar cheap values only if the peak of memory does not rise."""
    every, sparing = Merger(context), _DeferringMerger(context)
    keep = context.options.get("keep-peak", True)
    for rw in context.rewriters(program):
        spares = keep and any(map(_is_counter, {op.defn for op in rw.block.body})) and len(rw.block.body) <= _LARGEST
        (sparing if spares else every).merge(rw)
    context.count("merged", every.merged + sparing.merged)


class _DeferringMerger(Merger):
    """Defers merges of cheap values that are no longer live: `spared` has each deferred op with the equal op before it."""

    def __init__(self, context: PassContext) -> None:
        super().__init__(context)
        self.counted: set[Operand] = set()
        self.first_equal: dict[Operand, Operand] = {}  # for each deferred value, the first equal value
        self.spared: list[tuple[Op, Op]] = []

    def merge(self, rw: Rewriter) -> None:
        if rw.is_done(who := (_DeferringMerger, self.commute_floats)):
            return
        self.first_equal.clear()
        self.spared.clear()
        self.block(rw, rw.block, {})
        while self.spared and self._merge_spared(rw):
            pass
        rw.mark_done(who)

    def key(self, op: Op, operands: Sequence[Operand]) -> object:
        if _is_counter(op.defn) or (self.counted.intersection(op.values()) and self._is_cheap(op)):
            self.counted.update(op.results)
        return super().key(op, tuple(self.first_equal.get(x, x) if isinstance(x, Value) else x for x in operands))

    def may_merge(self, rw: Rewriter, op: Op, first: Op) -> bool:
        v = first.results[0]
        if v not in self.counted or rw.is_result(v):
            return True
        place = rw.order.place
        if any(place(u) > place(op) for u in rw.users_of(v)):
            return True
        self.first_equal[op.results[0]] = self.first_equal.get(v, v)
        self.spared.append((op, first))
        return False

    def _is_cheap(self, op: Op) -> bool:
        return bool(op.defn.traits & (ELEMENTWISE | MOVEMENT)) and all(x in self.counted or _small(x) for x in op.operands)

    def _merge_spared(self, rw: Rewriter) -> bool:
        """Merge deferred ops, last to first, if memory allows it. Whether any was merged."""
        try:
            ranges = _Ranges(rw)
        except Violation:  # an extent does not follow
            ranges = None
        gone, left = dict[Op, Op](), list[tuple[Op, Op]]()
        for op, first in reversed(self.spared):
            fits = ranges is None or rw.unused(op) or ranges.extend(first, op)
            if fits and self.context.step("merge", op, first):
                rw.replace(op, first.results[0])
                gone[op] = first
            else:
                left.append((op, first))
        self.merged += len(gone)
        self.spared = [(op, _end(gone, first)) for op, first in left[::-1]]
        return bool(gone)


class _Ranges:
    """Live ranges in the current block of `rw`. Raises Violation if an extent does not follow from the parameters'."""

    def __init__(self, rw: Rewriter) -> None:
        rw.finish()
        self.rw = rw
        self.body = list(rw.block.body)
        self.place = {op: at for at, op in enumerate(self.body, 1)}
        self.copies: dict[Value, Value] = {}
        self.live = liveness.analyze(self._static(rw.block))
        self.inner = not isinstance(rw.block, Function)
        ranges = record.intervals(record.BlockPlan("", self.live, inner=self.inner).placed(), record.ALIGN)
        change = [0] * (len(self.body) + 3)
        for x in ranges:
            change[x.lower] += x.size
            change[x.upper] -= x.size
        self.alive = list(accumulate(change))  # bytes live at each position
        self.peak = max(self.alive)

    def _static(self, block: Region) -> Region:
        """`block`, or a copy with numbers for symbols."""
        if numbers := {s.name: _EXTENT for p in block.params for s in mentioned(p.type)}:
            (block,) = clone_blocks([block], self.copies)
            alone = Function(block.name, block.params, block.body, block.results, block.result_types)
            specialize(Program(self.rw.dialect, [alone], entry=block.name), numbers)
        record.require_static(block)
        return block

    def extend(self, first: Op, op: Op) -> bool:
        """Extend the live range of `first`'s result to the uses of `op`. False, without a change, if the peak would rise."""
        v = first.results[0]
        storage = self.live.places[self.copies.get(v, v), ()].root
        last = max((self.place[u] for u in self.rw.users_of(v)), default=self.place[first])
        start, end = last + (storage.end == last), self.place[op]  # if others share the storage, v gets its own
        outside = storage.usage == "constant" or (storage.usage == "parameter" and not self.inner)
        size = 0 if outside else -(-storage.nbytes // record.ALIGN) * record.ALIGN
        if max(self.alive[start:end], default=0) + size > self.peak or any(o.regions for o in self.body[start - 1 : end - 1]):
            return False
        self.alive[start:end] = [n + size for n in self.alive[start:end]]
        return True


def _end(links: dict[Op, Op], op: Op) -> Op:
    while op in links:
        op = links[op]
    return op


def _is_counter(d: OpDef) -> bool:
    """Whether ops `d` compute elements from their positions only."""
    return d.is_pure and not (d.groups or d.regions or d.is_constant or d.is_random)


def _small(x: Operand) -> bool:
    """Whether `x` is a constant or a single element, also broadcast."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.traits & MOVEMENT and len(x.op.operands) == 1:
        x = x.op.operands[0]
    if isinstance(x, Literal) or (isinstance(x, Value) and x.op is not None and x.op.defn.is_constant):
        return True
    return isinstance(x, Value) and isinstance(x.type, TensorType) and x.type.is_static and x.type.count == 1
