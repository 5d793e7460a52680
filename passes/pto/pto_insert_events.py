"""Events for programs that have none: tile ops become asynchronous and wait for what they need, and for no more.

Within a block an op waits for the op of another pipe that makes a tile it reads, and for accesses of the same memory (that of
tiles that are bound to addresses, too) that may overlap, unless what was waited for says that they are complete. A block begins
and ends with nothing under way: what is pending is awaited before a loop, a branch, a call or a barrier, and at the block's end.
An op that nothing follows stays synchronous. Functions with events of their own are left alone (seed 8, step 4; facts
4.3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from ptir_tools.core.ir import Op, Program, Region, Value
from ptir_tools.core.opdef import ASYNC, OPS, SEGMENTS, WAITS, create
from ptir_tools.dialects.pto.decisions import least
from ptir_tools.dialects.pto.hazards import ZERO, Clock, advanced, join
from ptir_tools.dialects.pto.info import SAME_BYTES
from ptir_tools.dialects.pto.ops.memory import ACCESSES
from ptir_tools.dialects.pto.pipes import PIPES, opcodes, pipe_of
from ptir_tools.dialects.pto.places import Places
from ptir_tools.dialects.pto.types import EventType, TileType, event
from ptir_tools.dialects.pto.windows import Access, access_of, overlap, placed
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Make tile ops asynchronous, with the waits that they need."""
    tiles = placed(program.functions)
    for rw in context.rewriters(program):
        if any(isinstance(v.type, EventType) for op in rw.block.ops() for v in op.results):
            continue
        plan = _Plan()
        for block in rw.blocks():
            _Block(plan, block, tiles).walk()
        context.count("events", _rewrite(rw, plan))


@dataclass(slots=True)
class _Plan:
    """Which ops each op waits for, and where (before an op, or at the end of a block) a sync waits for which."""

    waits: dict[Op, list[Op]] = field(default_factory=dict)
    syncs: list[tuple[Region, Op | None, list[Op]]] = field(default_factory=list)
    free: set[Op] = field(default_factory=set)  # asynchronous, although what is waited for says that they are complete

    def asynchronous(self) -> set[Op]:
        """The ops that get an event."""
        lists = [*self.waits.values(), *(ops for _, _, ops in self.syncs)]
        return self.free.union(*lists)


@dataclass(slots=True, eq=False)
class _Task:
    op: Op
    pipe: int
    place: int
    clock: Clock
    number: int  # among those under way


@dataclass(slots=True, eq=False)
class _Touch:
    """One access of a task; None where it is not known."""

    task: _Task
    access: Access | None
    writes: bool

    @property
    def place(self) -> int:
        return self.task.place


class _Block:
    """Plans one block; clocks are those of the hazard check."""

    def __init__(self, plan: _Plan, block: Region, placed: dict[Value, Access]) -> None:
        self.plan = plan
        self.region = block
        self.placed = placed
        self.issued: Clock = ZERO
        self.last: list[Clock] = [ZERO] * len(PIPES)
        self.places = [0] * len(PIPES)
        self.makers: dict[Value, _Task] = {}
        self.pending: list[_Task] = []
        self.touched: dict[Value, dict[int, Places[_Touch]]] = {}  # per memory and pipe
        self.every: list[_Touch] = []
        self.unknown: list[_Touch] = []

    def walk(self) -> None:
        for op in self.region.body:
            if op.defn.traits & ASYNC:
                self.task(op)
            elif op.regions or op.defn.traits & WAITS:
                self.flush(op)
        self.flush(None)

    def task(self, op: Op) -> None:
        pipe = PIPES.index(pipe_of(op))
        clock = join(self.issued, self.last[pipe])
        waits = self.plan.waits.setdefault(op, [])
        made = _Task(op, pipe, self.places[pipe] + 1, clock, len(self.pending))
        touches = list(self.touches(made))
        needs = {self.makers[x] for x in op.operands if isinstance(x, Value) and x in self.makers}
        needs |= {t for touch in touches for t in self.conflicts(touch)}
        for need in sorted(needs, key=lambda t: t.number, reverse=True):  # a late one may say that others are complete
            if need.pipe != pipe and clock[need.pipe] < need.place:
                waits.append(need.op)
            elif need.pipe != pipe and made.clock[need.pipe] < need.place:
                self.plan.free.add(need.op)
            clock = join(clock, need.clock)
        self.places[pipe] += 1
        made.clock = self.last[pipe] = advanced(clock, pipe, made.place)
        self.makers.update((v, made) for v in op.results if isinstance(v.type, TileType))
        self.pending.append(made)
        for touch in touches:
            self.remember(touch)

    def touches(self, task: _Task) -> Iterator[_Touch]:
        """What an op reads and writes of memory, tiles that are bound to addresses included."""
        op = task.op
        if op.defn.short in ACCESSES:
            yield _Touch(task, access_of(op), "store" in op.defn.short)
        for values, writes in ((op.operands, False), (op.results, True)):
            for v in values if self.placed else ():
                if isinstance(v, Value) and v in self.placed and not (writes and self.stays(op, v)):
                    yield _Touch(task, self.placed[v], writes)

    def stays(self, op: Op, v: Value) -> bool:
        """Whether `v` is the bytes of the operand, which lies where it does."""
        source = self.placed.get(op.operands[0]) if op.defn.short in SAME_BYTES else None  # type: ignore[arg-type]
        return source is not None and source.root is self.placed[v].root and source.starts == self.placed[v].starts

    def conflicts(self, touch: _Touch) -> Iterator[_Task]:
        """The tasks of earlier accesses that `touch` must follow."""
        others = self.unknown
        if touch.access is None:
            others = self.every
        elif (pipes := self.touched.get(touch.access.root)) is not None:
            others = [*others, *(t for pipe, p in pipes.items() for t in p.near(touch.access, least(self.issued[pipe])))]
        for t in others:
            if (touch.writes or t.writes) and _may_meet(touch.access, t.access):
                yield t.task

    def remember(self, touch: _Touch) -> None:
        self.every.append(touch)
        if touch.access is None:
            self.unknown.append(touch)
        else:
            self.touched.setdefault(touch.access.root, {}).setdefault(touch.task.pipe, Places()).add(touch)

    def flush(self, at: Op | None) -> None:
        """Wait for all that is under way; where one says that others are complete, for it alone. Loads and stores
        stay asynchronous even so: synchronous they would hold up what follows them."""
        clock, ops = self.issued, []
        for t in reversed(self.pending):
            if clock[t.pipe] < t.place:
                ops.append(t.op)
            elif t.op.defn.short in ACCESSES:
                self.plan.free.add(t.op)
            clock = join(clock, t.clock)
        if ops:
            self.plan.syncs.append((self.region, at, ops[::-1]))
        self.issued = clock
        self.pending, self.touched, self.every, self.unknown = [], {}, [], []


def _may_meet(a: Access | None, b: Access | None) -> bool:
    if a is None or b is None:
        return True
    return a.root is b.root and overlap(a, b) is not None


def _rewrite(rw: Rewriter, plan: _Plan) -> int:
    """Give the ops their events and waits, and put the syncs in; the number of events."""
    asynchronous = plan.asynchronous()
    names = _names(rw)
    events: dict[Op, Value] = {}
    for op, waits in plan.waits.items():
        if op in asynchronous:
            events[op] = _asynchronous(rw, op, [events[w] for w in waits], next(names))
        elif waits:
            _waiting(rw, op, [events[w] for w in waits])
    stands = {op: v.op for op, v in events.items()}
    for block, at, ops in plan.syncs:
        made = create(OPS["pto.sync"], [[events[op] for op in ops]])
        if at is None:
            rw.append(block, made)
        else:
            rw.insert_before(stands.get(at) or at, made)
    return len(events)


def _asynchronous(rw: Rewriter, op: Op, waits: list[Value], name: str) -> Value:
    """Replace `op` by itself with an event; gives the event."""
    groups = op.defn.split(op.attrs, op.operands)
    groups[_wait_group(op)] = waits
    made = create(op.defn, groups, op.defn.named(op.attrs) | {"event": event(opcodes(op)[0])}, loc=op.loc)
    rw.insert_before(op, made)
    for old, new in zip(op.results, made.results, strict=False):
        rw.replace_all_uses(old, new)
    rw.erase(op)
    made.results[-1].name = name
    return made.results[-1]


def _waiting(rw: Rewriter, op: Op, waits: list[Value]) -> None:
    """Let `op`, which stays synchronous, wait."""
    lengths = list(op.attr(SEGMENTS))
    lengths[_wait_group(op)] = len(waits)
    rw.set_attrs(op, segments=tuple(lengths))
    rw.set_operands(op, [*op.operands, *waits])


def _wait_group(op: Op) -> int:
    return [g.name for g in op.defn.groups].index("wait")


def _names(rw: Rewriter) -> Iterator[str]:
    """`e0`, `e1`, … without those that are taken."""
    taken = {v.name for op in rw.block.ops() for v in op.results}
    taken |= {p.name for b in rw.blocks() for p in b.params}
    return (name for n in count() if (name := f"e{n}") not in taken)
