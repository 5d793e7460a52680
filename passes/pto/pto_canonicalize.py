"""Canonical form of PTO: folded index arithmetic, no decided branches and loops, no repeated computations and loads, no dead
ops.

The order of other ops does not change. So an op that waits for an event stays, and so does a synchronous op on a pipe with
asynchronous ones, because it completes them. Float tile arithmetic is never folded.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import READS, WAITS, Function, Literal, Op, Operand, Region, Value
from ptir_tools.dialects.pto.carried import carried
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.ops.memory import memory_of, touches_memory
from ptir_tools.dialects.pto.pipes import asynchronous, is_tile_op, pipe_of
from ptir_tools.dialects.pto.rewrites import FOLDING
from ptir_tools.dialects.pto.structure import has_addresses, is_barrier, is_sync, is_view
from ptir_tools.dialects.pto.types import EventType
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

_ROUNDS = 16


def run(program: Program, context: PassContext) -> None:
    """Fold index arithmetic, remove code that never runs and unused ops, merge equal computations and loads."""
    for rw in context.rewriters(program):
        busy = busy_pipes(rw.block)
        for _ in range(_ROUNDS):
            before = rw.edits
            context.tally(context.drive(rw, FOLDING, context.greedy(enable_constant_fold=False, enable_dce=False)))
            context.count("merged", merge(rw, rw.block, _Known(rw), busy))
            context.count("erased", sweep(rw, busy))
            if rw.edits == before:
                break


def busy_pipes(block: Region) -> frozenset[str]:
    """The pipes on which `block` has asynchronous ops."""
    return frozenset(pipe_of(op) for op in block.ops() if asynchronous(op))


# Merging


class _Known:
    """The first of equal ops in a block. A load is forgotten when its memory may be written."""

    def __init__(self, rw: Rewriter) -> None:
        self.arguments = frozenset(rw.block.params)
        self.bound = has_addresses(rw.block)  # whether tiles have addresses
        self.placed = _placed(rw)
        self.pure: dict[object, Op] = {}
        self.loads: dict[Value | None, dict[Hashable, Op]] = {}  # by memory argument; None: it may be any
        self.order: list[Hashable] = []  # the keys of `pure`

    def first(self, op: Op) -> Op:
        """The earlier op that `op` is equal to. If there is none, `op`, which is then known."""
        key = _key(op)
        if READS in op.defn.traits:
            return self.loads.setdefault(self.root(op), {}).setdefault(key, op)
        result = self.pure.setdefault(key, op)
        if result is op:
            self.order.append(key)
        return result

    def leave(self, count: int) -> None:
        """Forget all but the first `count` ops."""
        for key in self.order[count:]:
            del self.pure[key]
        del self.order[count:]
        self.loads.clear()

    def write(self, op: Op) -> None:
        """Forget the loads of memory that `op` may write. Different arguments never overlap."""
        root = self.root(op) if touches_memory(op) else None
        if root is None:
            self.loads.clear()
        else:
            self.loads.pop(root, None)
            self.loads.pop(None, None)

    def root(self, op: Op) -> Value | None:
        """The argument whose memory a load or store accesses; None where that is not known."""
        x: Operand = memory_of(op)
        while isinstance(x, Value) and x.op is not None and is_view(x.op):
            x = x.op.operands[0]
        return x if isinstance(x, Value) and x in self.arguments else None


def merge(rw: Rewriter, block: Region, known: _Known, busy: frozenset[str]) -> int:
    """Merge equal ops. Loads of one window are equal until their memory may be written. If tiles have addresses, only scalars
    are merged, because bytes of a tile may be overwritten."""
    count = 0
    for op in list(rw.body(block)):
        for r in op.regions:
            known.loads.clear()
            outside = len(known.order)
            count += merge(rw, r, known, busy)
            known.leave(outside)
        if op.defn.writes or is_sync(op) or is_barrier(op):
            known.write(op)
        if not _repeatable(op, busy) or (known.bound and is_tile_op(op.defn)) or not known.placed.isdisjoint(op.results):
            continue
        first = known.first(op)
        if first is op or not rw.allows(zip(op.results, first.results, strict=True)):
            continue
        for v, by in zip(op.results, first.results, strict=True):
            rw.replace_all_uses(v, by)
        rw.erase(op)
        count += 1
    return count


def _placed(rw: Rewriter) -> frozenset[Value]:
    """The tiles that a loop carries or a branch gives in spaces without copies: each needs its own place."""
    ops = [op for block in _blocks(rw) for op in rw.body(block) if op.regions]
    given = [x for op in ops for c in carried(op) for place in c.sources if isinstance(x := c.given(*place), Value)]
    tiles = infer(rw.block) if given and isinstance(rw.block, Function) else {}
    return frozenset(x for x in given if x in tiles and tiles[x].loc != "Vec")


def _blocks(rw: Rewriter) -> Iterator[Region]:
    """The blocks that are not removed when their turn comes."""
    return (block for block in rw.blocks() if block is rw.block or block in rw.owner)


def _repeatable(op: Op, busy: frozenset[str]) -> bool:
    """Whether two equal ops can be one: no event, no effect, no order. Moves to a matrix unit are repeated, because its small
    buffers would be occupied longer."""
    if op.regions or not op.results or asynchronous(op) or orders(op, busy):
        return False
    if is_tile_op(op.defn) and pipe_of(op) == "MTE1":
        return False
    return op.defn.is_pure or (is_tile_op(op.defn) and not op.defn.writes)


def _key(op: Op) -> Hashable:
    operands = tuple(x.key if isinstance(x, Literal) else x for x in op.operands)
    return (op.defn, op.defn.key(op.attrs), operands, tuple(v.type for v in op.results))


# Dropping


def orders(op: Op, busy: frozenset[str]) -> bool:
    """Whether other ops are ordered by it: by an event, or because it completes earlier ops of its pipe."""
    if any(isinstance(x.type, EventType) for x in op.operands if isinstance(x, Value)):
        return True
    return is_tile_op(op.defn) and not asynchronous(op) and pipe_of(op) in busy


def sweep(rw: Rewriter, busy: frozenset[str]) -> int:
    """Erase unused ops without effect, from last to first."""
    count = 0
    for block in _blocks(rw):
        for op in reversed(rw.body(block)):
            if rw.unused(op) and droppable(op, busy):
                rw.erase(op)
                count += 1
    return count


def droppable(op: Op, busy: frozenset[str]) -> bool:
    """Whether the op has no effect besides its results, and cannot fail."""
    if op.defn.fails is not None and op.defn.fails(op):
        return False
    if op.regions:
        return all(droppable(x, busy) for r in op.regions for x in r.ops())
    if orders(op, busy) or op.defn.writes or (WAITS in op.defn.traits and not is_tile_op(op.defn)):
        return False
    return op.defn.is_pure or READS in op.defn.traits or is_tile_op(op.defn)
