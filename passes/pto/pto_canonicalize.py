"""Canonical form of PTO: index arithmetic folded, branches and loops that are decided left out, equal computations and loads
made once, dead ones dropped (seed 8, step 1).

What orders other ops stays: an op that waits for an event, and a synchronous op on a pipe that has asynchronous ones, which are
complete after it. Float tile arithmetic is never folded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

from ptir_tools.core import arrays
from ptir_tools.core.evaluate import Context, computed
from ptir_tools.core.ir import Literal, Op, Operand, Program, Region, Value
from ptir_tools.core.opdef import ASYNC, PURE, READS, WAITS, WRITES, operand_type
from ptir_tools.core.types import EventType, ScalarType, tensor
from ptir_tools.dialects.pto.ops.memory import ACCESSES, memory_of
from ptir_tools.dialects.pto.pipes import is_tile_op, pipe_of
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.constants import scalar_of
from ptir_tools.rewrite.rewriter import Rewriter

_ROUNDS = 16


def run(program: Program, context: PassContext) -> None:
    """Fold index arithmetic, leave out what never runs, merge equal computations and loads, drop what nobody uses."""
    for rw in context.rewriters(program):
        busy = busy_pipes(rw.block)
        for _ in range(_ROUNDS):
            before = rw.edits
            context.count("folds", fold(rw))
            context.count("branches", decide(rw))
            context.count("merged", merge(rw, rw.block, _Known(rw.block), busy))
            context.count("erased", sweep(rw, busy))
            if rw.edits == before:
                break


def busy_pipes(block: Region) -> frozenset[str]:
    """The pipes on which `block` has asynchronous ops."""
    return frozenset(pipe_of(op) for op in block.ops() if asynchronous(op))


def asynchronous(op: Op) -> bool:
    """Whether the op signals an event."""
    return bool(op.defn.traits & ASYNC and op.results and isinstance(op.results[-1].type, EventType))


# Folding


def fold(rw: Rewriter) -> int:
    """Replace scalar ops on constants by constants, and those that change nothing by their operand."""
    count = 0
    for block in rw.blocks():
        for op in rw.body(block):
            if op.defn.traits & PURE and len(op.results) == 1 and isinstance(op.result.type, ScalarType):
                by = _neutral(op) or _computed(op, rw)
                if by is not None:
                    rw.replace_all_uses(op.result, by)
                    rw.erase(op)
                    count += 1
    return count


def constant_of(x: Operand) -> Literal | None:
    """The literal that an operand is, or that its constant op gives."""
    if isinstance(x, Literal):
        return x
    op = x.op if isinstance(x, Value) else None
    return op.attr("value") if op is not None and op.defn.is_constant else None


def _computed(op: Op, rw: Rewriter) -> Value | None:
    literals = [constant_of(x) for x in op.operands]
    if op.defn.is_constant or not literals or None in literals:
        return None
    data = computed(op, [arrays.from_literal(x) for x in literals if x is not None], Context())
    if data is None:
        return None  # a division by zero stays, to be reported when it runs
    literal = arrays.to_literal(data, tensor(op.result.type.dtype))  # type: ignore[attr-defined]
    return rw.build(op, "constant", value=literal)


# Per op: the operand that is the result when the other is this integer; None is either side.
_NEUTRAL = {
    "addi": (0, None),
    "subi": (0, 1),
    "muli": (1, None),
    "divsi": (1, 1),
    "ori": (0, None),
    "xori": (0, None),
    "shli": (0, 1),
}
# Integer ops that are their operand when this is an integer, whatever the other is.
_ABSORBING = {"muli": 0, "andi": 0}


def _neutral(op: Op) -> Operand | None:
    """An operand that equals the result: `x + 0`, `x * 1`, `x * 0`, a cast to the same type, a select on a constant."""
    if op.defn.short == "index_cast" and operand_type(op.operands[0]) is op.result.type:
        return _value(op.operands[0])
    if op.defn.short == "select" and (condition := scalar_of(op.operands[0])) is not None:
        return _value(op.operands[1 if condition else 2])
    zero = _ABSORBING.get(op.defn.short)
    if zero is not None and (found := next((x for x in op.operands if scalar_of(x) == zero), None)) is not None:
        return _value(found)
    neutral, side = _NEUTRAL.get(op.defn.short, (None, None))
    if neutral is None:
        return None
    for i in (0, 1):
        if side in (None, i) and scalar_of(op.operands[i]) == neutral:
            return _value(op.operands[1 - i])
    return None


def _value(x: Operand) -> Operand | None:
    return x if isinstance(x, Value) else None


# Control flow


def decide(rw: Rewriter) -> int:
    """Put the block of a branch in line that is always taken; drop loops that never run: they give what they start from."""
    decided, names = 0, Counter[str]()
    for block in rw.blocks():
        for op in rw.body(block) if block is rw.block or block in rw.owner else ():
            if op.defn.short == "scf.if" and (taken := scalar_of(op.operands[0])) is not None:
                chosen = op.regions[0 if taken else 1]
                names = names or _names(rw)
                _unnest(rw, op, chosen, names)
                results: Sequence[Operand] = list(chosen.results)
            elif op.defn.short == "scf.for" and _never(op):
                results = op.operands[3:]
            else:
                continue
            for v, x in zip(op.results, results, strict=True):
                rw.replace_all_uses(v, x)
            rw.erase(op)
            decided += 1
    return decided


def _never(loop: Op) -> bool:
    """Whether a loop is known to run zero times; a step that is wrong is told when it runs."""
    lower, upper, step = map(scalar_of, loop.operands[:3])
    return lower is not None and upper is not None and step is not None and step > 0 and lower >= upper


def _names(rw: Rewriter) -> Counter[str]:
    """How many values of the function have a name."""
    return Counter(v.name for b in rw.blocks() for v in (*b.params, *(v for op in rw.body(b) for v in op.results)))


def _unnest(rw: Rewriter, at: Op, block: Region, names: Counter[str]) -> None:
    """Move the ops of a block before `at`; names that other blocks use, too, are given anew."""
    for op in rw.body(block):
        rw.move_before(at, op)
        for v in op.results:
            if names[stem := v.name] > 1:
                names[stem] -= 1
                v.name = next(n for k in count(names[stem]) if (n := f"{stem}_{k}") not in names)
                names[v.name] += 1


# Merging


class _Known:
    """The first of equal ops, as far as a block sees them; loads only until their memory may be written."""

    def __init__(self, block: Region) -> None:
        self.arguments = frozenset(block.params)
        self.bound = any(op.defn.short == "tile.assign" for op in block.ops())  # whether tiles have addresses
        self.pure: dict[Any, Op] = {}
        self.loads: dict[Value | None, dict[Any, Op]] = {}  # by memory argument; None: it may be any
        self.order: list[Any] = []  # the keys of `pure`

    def first(self, op: Op) -> Op:
        """The op that `op` is equal to, or `op`, which is kept then."""
        key = _key(op)
        if op.defn.traits & READS:
            return self.loads.setdefault(self.root(op), {}).setdefault(key, op)
        found = self.pure.setdefault(key, op)
        if found is op:
            self.order.append(key)
        return found

    def leave(self, count: int) -> None:
        """Forget what a block has added to the first `count`."""
        for key in self.order[count:]:
            del self.pure[key]
        del self.order[count:]
        self.loads.clear()

    def write(self, op: Op) -> None:
        """Forget the loads of what `op` may write: different arguments never overlap."""
        root = self.root(op) if op.defn.short in ACCESSES else None
        if root is None:
            self.loads.clear()
        else:
            self.loads.pop(root, None)
            self.loads.pop(None, None)

    def root(self, op: Op) -> Value | None:
        """The argument whose memory a load or store touches; None where that is not known."""
        x = memory_of(op)
        while isinstance(x, Value) and x.op is not None and x.op.defn.short == "memref.subview":
            x = x.op.operands[0]
        return x if isinstance(x, Value) and x in self.arguments else None


def merge(rw: Rewriter, block: Region, known: _Known, busy: frozenset[str]) -> int:
    """Let equal ops be one. Loads of one window are equal until their memory may be written. Where tiles are bound to addresses,
    their bytes may be another's by then: there only scalars are merged."""
    count = 0
    for op in list(rw.body(block)):
        for r in op.regions:
            known.loads.clear()
            outside = len(known.order)
            count += merge(rw, r, known, busy)
            known.leave(outside)
        if op.defn.traits & WRITES or op.defn.short in ("sync", "sync.op"):
            known.write(op)
        if not _repeatable(op, busy) or (known.bound and is_tile_op(op.defn)):
            continue
        first = known.first(op)
        if first is op:
            continue
        for v, by in zip(op.results, first.results, strict=True):
            rw.replace_all_uses(v, by)
        rw.erase(op)
        count += 1
    return count


def _repeatable(op: Op, busy: frozenset[str]) -> bool:
    """Whether doing the op once is as good as doing it twice: no event, no effect, no order."""
    if op.regions or not op.results or asynchronous(op) or orders(op, busy):
        return False
    return bool(op.defn.traits & (PURE | ASYNC)) and not op.defn.traits & WRITES


def _key(op: Op) -> Any:
    operands = tuple(x.key if isinstance(x, Literal) else x for x in op.operands)
    return (op.defn, op.defn.key(op.attrs), operands, tuple(v.type for v in op.results))


# Dropping


def orders(op: Op, busy: frozenset[str]) -> bool:
    """Whether the op makes others wait: by an event, or by completing what its pipe was given before."""
    if any(isinstance(x.type, EventType) for x in op.operands if isinstance(x, Value)):
        return True
    return bool(op.defn.traits & ASYNC) and not asynchronous(op) and pipe_of(op) in busy


def sweep(rw: Rewriter, busy: frozenset[str]) -> int:
    """Erase ops without effect whose results nobody uses, last to first."""
    count = 0
    for block in rw.blocks():
        if block is not rw.block and block not in rw.owner:
            continue
        for op in reversed(rw.body(block)):
            if rw.unused(op) and droppable(op, busy):
                rw.erase(op)
                count += 1
    return count


def droppable(op: Op, busy: frozenset[str]) -> bool:
    """Whether nothing but its results shows that the op ran."""
    if op.regions:
        return all(droppable(x, busy) for r in op.regions for x in r.ops())
    traits = op.defn.traits
    if orders(op, busy) or traits & WRITES or (traits & WAITS and not traits & ASYNC):
        return False
    return bool(traits & (PURE | READS | ASYNC))
