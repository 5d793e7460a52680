"""Events for programs that have none: tile ops become asynchronous and wait for what they need, and for no more.

Within a block an op waits for the op of another pipe that makes a tile it reads. It also waits for accesses of the same
memory, that of tiles bound to addresses included, that may overlap. It does not where what was waited for says that they are
complete. What is under
way and meets something in the blocks of a loop or branch is awaited before it; so is all before a call or a barrier, and at the
end of a block. Loads that a loop carries are not: their events are carried with them, and awaited where the tiles are used.
An op that nothing follows stays synchronous. Functions with events of their own are left alone (seed 8, step 4; facts
4.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import count

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import ASYNC, NO_USERS, SEGMENTS, WAITS, Op, Region, Value, create
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.decisions import least
from ptir_tools.dialects.pto.hazards import ZERO, Clock, advanced, join
from ptir_tools.dialects.pto.info import SAME_BYTES
from ptir_tools.dialects.pto.ops.memory import ACCESSES, memory_of
from ptir_tools.dialects.pto.pipes import PIPES, opcodes, pipe_of
from ptir_tools.dialects.pto.places import Places
from ptir_tools.dialects.pto.types import EventType, TileType, event
from ptir_tools.dialects.pto.windows import Access, access_of, everything, overlap, placed, view_of
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


@dataclass(slots=True, eq=False)
class _Carry:
    """A load that the loop `op` carries as tile `k`, with its event: `first` makes it before the loop, `again` in it."""

    op: Op
    k: int
    first: _Signal
    again: Op

    @property
    def inside(self) -> Value:
        """The tile in the loop."""
        return self.op.regions[0].params[1 + self.k]

    @property
    def after(self) -> Value:
        """The tile after the loop."""
        return self.op.results[self.k]


_Signal = Op | tuple[_Carry, bool]  # what makes an event: an op; or a loop carries it, and it is that in the loop, or after it


@dataclass(slots=True)
class _Plan:
    """Which events each op waits for, and where (before an op, or at the end of a block) a sync waits for which."""

    waits: dict[Op, list[_Signal]] = field(default_factory=dict)
    syncs: list[tuple[Region, Op | None, list[_Signal]]] = field(default_factory=list)
    carries: list[_Carry] = field(default_factory=list)
    free: set[Op] = field(default_factory=set)  # asynchronous, although what is waited for says that they are complete

    def asynchronous(self) -> set[Op]:
        """The ops that get an event."""
        lists = [*self.waits.values(), *(signals for _, _, signals in self.syncs)]
        carried = [x for c in self.carries for x in (c.first, c.again)]
        return self.free | {x for x in (*carried, *(y for signals in lists for y in signals)) if isinstance(x, Op)}


@dataclass(slots=True, eq=False)
class _Task:
    signal: _Signal
    short: str
    pipe: int
    place: int
    clock: Clock
    number: int  # in the order of the block


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
        self.numbers = count()
        self.touched: dict[Value, dict[int, Places[_Touch]]] = {}  # per memory and pipe
        self.every: list[_Touch] = []
        self.unknown: list[_Touch] = []

    def walk(self) -> None:
        inside = [c for c in self.plan.carries if c.op.regions[0] is self.region]
        for c in inside:
            self.arrives(c, c.inside, (c, False))
        for op in self.region.body:
            if op.defn.traits & ASYNC:
                self.task(op)
            elif op.regions or op.defn.traits & WAITS:
                carries = list(self.carries(op))
                self.flush(op, {c.first for c in carries}, self.aside(op, {c.first for c in carries}))
                self.plan.carries += carries
                for c in carries:
                    self.arrives(c, c.after, (c, True))
        self.flush(None, {c.again for c in inside})

    def carries(self, op: Op) -> Iterator[_Carry]:
        """The loads under way that a loop takes over and makes again, in the order of its steps. None where they are not in one
        order before the loop and in it: an event then says nothing of those before."""
        if op.defn.short != "scf.for":
            return
        body, under_way = op.regions[0], {t.signal for t in self.pending}
        places = {made: n for n, made in enumerate(body.body)}
        found = []
        for k, (x, y) in enumerate(zip(op.operands[3:], body.results, strict=True)):
            before = self.makers.get(x) if isinstance(x, Value) else None
            again = y.op if isinstance(y, Value) else None
            one = before is not None and before.short == "tile.load" and before.signal in under_way
            if before is not None and one and again in places and again is not None and again.defn.short == "tile.load":
                found.append((places[again], before.number, _Carry(op, k, before.signal, again)))
        found.sort(key=lambda f: f[:2])
        numbers = [n for _, n, _ in found]
        distinct = len({id(c.first) for *_, c in found}) == len({p for p, *_ in found}) == len(found)
        if distinct and numbers == sorted(numbers):
            yield from (c for *_, c in found)

    def arrives(self, c: _Carry, v: Value, signal: _Signal) -> None:
        """A load that is carried is under way from here on."""
        pipe = PIPES.index(pipe_of(c.again))
        self.places[pipe] += 1
        place = self.places[pipe]
        clock = advanced(join(self.issued, self.last[pipe]), pipe, place)
        made = _Task(signal, "tile.load", pipe, place, clock, next(self.numbers))
        self.last[pipe] = clock
        self.makers[v] = made
        self.pending.append(made)
        for op in (c.again, *([c.first] if isinstance(c.first, Op) else [])):
            view = view_of(memory_of(op))  # type: ignore[arg-type]
            self.remember(_Touch(made, everything(view.root) if view is not None else None, False))
        if v in self.placed:
            self.remember(_Touch(made, self.placed[v], True))

    def task(self, op: Op) -> None:
        pipe = PIPES.index(pipe_of(op))
        clock = join(self.issued, self.last[pipe])
        waits = self.plan.waits.setdefault(op, [])
        made = _Task(op, op.defn.short, pipe, self.places[pipe] + 1, clock, next(self.numbers))
        touches = list(self.touches(made))
        needs = {self.makers[x] for x in op.operands if isinstance(x, Value) and x in self.makers}
        needs |= {t for touch in touches for t in self.conflicts(touch)}
        for need in sorted(needs, key=lambda t: t.number, reverse=True):  # a late one may say that others are complete
            if need.pipe != pipe and clock[need.pipe] < need.place:
                waits.append(need.signal)
            elif need.pipe != pipe and made.clock[need.pipe] < need.place and isinstance(need.signal, Op):
                self.plan.free.add(need.signal)
            clock = join(clock, need.clock)
        self.places[pipe] += 1
        made.clock = self.last[pipe] = advanced(clock, pipe, made.place)
        self.makers.update((v, made) for v in op.results if isinstance(v.type, TileType))
        self.pending.append(made)
        for touch in touches:
            self.remember(touch)

    def touches(self, task: _Task) -> Iterator[_Touch]:
        """What an op reads and writes of memory, tiles that are bound to addresses included."""
        op = task.signal
        assert isinstance(op, Op)
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

    def aside(self, op: Op, carried: Collection[_Signal]) -> list[_Task]:
        """The tasks under way with which nothing in the blocks of `op` meets: they may go on meanwhile."""
        inner = [x for r in op.regions for x in r.ops()]
        if not inner or any(x.defn.traits & WAITS and not x.defn.traits & ASYNC for x in inner):
            return []
        passed = [*op.operands, *(y for x in (op, *inner) for r in x.regions for y in r.results)]
        met = {self.makers[x] for x in passed if isinstance(x, Value) and x in self.makers}
        for x in inner:
            if not x.defn.traits & ASYNC:
                continue
            pipe = PIPES.index(pipe_of(x))
            needs = {self.makers[y] for y in x.operands if isinstance(y, Value) and y in self.makers}
            touches = self.touches(_Task(x, x.defn.short, pipe, 0, ZERO, -1))
            needs |= {t for touch in touches for t in self.conflicts(touch)}
            met |= {t for t in needs if t.pipe != pipe}
        return [t for t in self.pending if t not in met and t.signal not in carried]

    def flush(self, at: Op | None, but: Collection[_Signal] = (), aside: Sequence[_Task] = ()) -> None:
        """Wait for all that is under way, except `but`, which goes on under another name, and `aside`. Where one says that others
        are complete, wait for it alone. Loads and stores stay asynchronous even so: synchronous they would hold up what follows.
        """
        clock: Clock = self.issued
        signals: list[_Signal] = []
        for t in reversed([t for t in self.pending if t.signal not in but and t not in aside]):
            if clock[t.pipe] < t.place:
                signals.append(t.signal)
            elif t.short in ACCESSES and isinstance(t.signal, Op):
                self.plan.free.add(t.signal)
            clock = join(clock, t.clock)
        if signals:
            self.plan.syncs.append((self.region, at, signals[::-1]))
        self.issued = clock
        touches = [t for t in self.every if t.task in aside]
        self.pending, self.touched, self.every, self.unknown = list(aside), {}, [], []
        for touch in touches:
            self.remember(touch)


def _may_meet(a: Access | None, b: Access | None) -> bool:
    if a is None or b is None:
        return True
    return a.root is b.root and overlap(a, b) is not None


def _rewrite(rw: Rewriter, plan: _Plan) -> int:
    """Give the ops their events and waits, and put the syncs in; the number of events."""
    asynchronous = plan.asynchronous()
    names = _names(rw)
    events: dict[_Signal, Value] = {}
    for c in plan.carries:
        events[c, False], events[c, True] = _carried(c, names)
    for op, waits in plan.waits.items():
        if op in asynchronous:
            events[op] = _asynchronous(rw, op, [events[w] for w in waits], next(names))
        elif waits:
            _waiting(rw, op, [events[w] for w in waits])
    for c in plan.carries:
        body = c.op.regions[0]
        rw.set_operands(c.op, [*c.op.operands, events[c.first]])
        rw.set_results(body, [*body.results, events[c.again]])
    stands = {op: v.op for op, v in events.items() if isinstance(op, Op)}
    for block, at, signals in plan.syncs:
        made = create(OPS["pto.sync"], [[events[x] for x in signals]])
        if at is None:
            rw.append(block, made)
        else:
            rw.insert_before(stands.get(at) or at, made)
    return len(events)


def _carried(c: _Carry, names: Iterator[str]) -> tuple[Value, Value]:
    """Let a loop carry one event more; its names in the loop and after it."""
    t, body = event(opcodes(c.again)[0]), c.op.regions[0]
    inside, after = Value(t, next(names)), Value(t, next(names), c.op)
    inside.users = after.users = NO_USERS
    body.params.append(inside)
    body.result_types.append(t)
    c.op.results = (*c.op.results, after)
    return inside, after


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
