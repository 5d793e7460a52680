"""Events for programs that have none: tile ops become asynchronous and wait for what they need, and for no more.

An op waits for the ops of other pipes that make a tile it reads, or that touch the same memory, that of tiles bound to addresses
included. It does not where what was waited for says that they are complete.

Every block is planned once, the innermost first. What is under way at the end of a block goes on. In a loop it meets the next
iteration; behind a loop or branch it meets what follows. There its event is not in sight, so who meets it waits for its pipe
(`pto.sync.op`), where that holds up least. What is under way and meets something in the blocks of a loop or branch is awaited
before it. So is all before a call or a barrier, and at the end of a function. Loads and products that a loop carries keep
their events: these are carried, too.

An op stays synchronous where no other runs at the same time. Functions with events of their own are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import NO_USERS, SEGMENTS, WAITS, Op, Operand, Region, Value, create
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.affine import Linear, constant
from ptir_tools.dialects.pto.carried import LOOPS, carried
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory.places import Places
from ptir_tools.dialects.pto.memory.windows import (
    Access,
    access_of,
    everything,
    may_have_met,
    on_chip_bytes,
    overlap,
    placed,
    view_of,
)
from ptir_tools.dialects.pto.ops.memory import memory_of, touches_memory
from ptir_tools.dialects.pto.order.clocks import ZERO, Clock, advanced, join
from ptir_tools.dialects.pto.order.decisions import least
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, opcodes, pipe_of, pipe_of_opcode
from ptir_tools.dialects.pto.targets import Target, target_of
from ptir_tools.dialects.pto.types import INDEX_TYPE, EventType, TileType, event
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Make tile ops asynchronous, with the waits that they need."""
    tiles, target = placed(program.functions), target_of(program, Options())
    for rw in context.rewriters(program):
        if any(isinstance(v.type, EventType) for op in rw.block.ops() for v in op.results):
            continue
        function = _Function(rw.block, tiles, target)
        function.summary(None, [rw.block])
        context.count("events", _rewrite(rw, function.plan))


CARRIED = ("MTE2", "M")  # pipes whose ops keep their events when a loop carries what they make
_ROUNDS = 4  # of choosing where a loop waits for pipes: a wait that moves away leaves others to be waited for


@dataclass(slots=True, eq=False)
class _Carry:
    """A load or product that the loop `op` carries as tile `k`, with its event: `first` is before the loop, `again` in it."""

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
    """Which events each op waits for, and for which events or pipes everything waits before an op, or at the end of a block."""

    waits: dict[Op, list[_Signal]] = field(default_factory=dict)
    syncs: list[tuple[Region, Op | None, list[_Signal]]] = field(default_factory=list)
    barriers: list[tuple[Region, Op | None, str]] = field(default_factory=list)  # by opcode
    carries: list[_Carry] = field(default_factory=list)
    overlapped: set[Op] = field(default_factory=set)  # ops during which others run

    def take_carried(self, other: _Plan, carries: Sequence[_Carry]) -> None:
        """Add the waits of another plan for what a loop carries."""
        own = {(c, False) for c in carries}
        pipes = {pipe_of(c.again) for c in carries}

        def more(signals: list[_Signal], known: list[_Signal]) -> list[_Signal]:
            return [x for x in signals if x in own and x not in known]

        for user, signals in other.waits.items():
            self.waits[user] += more(signals, self.waits[user])
        for region, at, signals in other.syncs:
            if missing := more(signals, [x for r, a, known in self.syncs if r is region and a is at for x in known]):
                self.syncs.append((region, at, missing))
        self.barriers += [b for b in other.barriers if pipe_of_opcode(b[2]) in pipes and b not in self.barriers]

    def take(self, other: _Plan) -> None:
        """Add what another plan says of other ops."""
        self.waits |= other.waits
        self.syncs += other.syncs
        self.barriers += other.barriers
        self.carries += other.carries
        self.overlapped |= other.overlapped

    def asynchronous(self) -> set[Op]:
        """The ops that get an event."""
        lists = [*self.waits.values(), *(signals for _, _, signals in self.syncs)]
        carried = [x for c in self.carries for x in (c.first, c.again)]
        return self.overlapped | {x for x in (*carried, *(y for signals in lists for y in signals)) if isinstance(x, Op)}


@dataclass(slots=True, eq=False)
class _Task:
    """An op, or what a loop or branch leaves under way in a pipe. `signal` is None where its event is not in sight."""

    op: Op
    signal: _Signal | None
    opcode: str
    pipe: int
    place: int
    clock: Clock
    number: int  # in the order of the block


@dataclass(slots=True, eq=False)
class _Touch:
    """One access of a task; None where it is not known. That of an iteration before is that of all before it, too: `steps` says
    by how much they are apart, per dimension."""

    task: _Task
    access: Access | None
    writes: bool
    steps: tuple[int, ...] = ()

    @property
    def place(self) -> int:
        return self.task.place


@dataclass(slots=True)
class _Summary:
    """What blocks do, as those around them see it."""

    touches: list[tuple[Op, int, Access | None, bool]] = field(default_factory=list)  # by an op in a pipe
    uses: list[tuple[Value, int]] = field(default_factory=list)  # tiles from outside, and the pipes that read them
    pipes: set[int] = field(default_factory=set)
    sure: set[int] = field(default_factory=set)  # pipes that certainly have work
    open: dict[int, str] = field(default_factory=dict)  # pipes that may be at work behind them, with an opcode of each
    after: dict[int, set[int]] = field(default_factory=dict)  # whose work is done when that of an open pipe is
    carried: dict[_Carry, set[int]] = field(default_factory=dict)  # the same of loads that are carried
    runs: bool = False  # whether they certainly run
    stops: bool = False  # whether a call or barrier is in them


class _Function:
    """Plans the blocks of a function."""

    def __init__(self, block: Region, tiles: dict[Value, Access], target: Target | None) -> None:
        self.placed = tiles
        self.scratch = on_chip_bytes("Vec", *target.scratch) if target is not None and target.scratch is not None else None
        self.plan = _Plan()
        self.carries: dict[Op, list[_Carry]] = {}
        self.summaries: dict[Op, _Summary] = {}
        self.sources: dict[Value, list[Operand]] = {}  # what a value that is carried, or comes out of a branch, may be
        self.inner: dict[Op, set[Value]] = {}  # what is defined in the blocks of an op
        self.unknown: set[Value] = set()  # values of another iteration, of which nothing is known
        for op in block.ops():
            for c in carried(op):
                for home in c.homes:
                    self.sources[home] = [c.given(*place) for place in c.sources]

    def summary(self, op: Op | None, blocks: Sequence[Region]) -> _Summary:
        """Plan the blocks of an op, or the function (None), and tell what they do."""
        if op is None:
            _Block(self, self.plan, None, blocks).walk()
            return _Summary()
        if (found := self.summaries.get(op)) is None:
            self.summaries[op] = found = self.planned(op)
        return found

    def planned(self, op: Op) -> _Summary:
        """Plan the blocks of `op`: those of a branch one by one, of a loop in turn, iteration after iteration."""
        if op.defn.short not in LOOPS:
            ends = [_Block(self, self.plan, op, [r]) for r in op.regions]
            for end in ends:
                end.walk()
            return self.seen(op, ends)
        chosen: dict[Op, dict[int, str]] = {}
        needs: list[tuple[Op, _Task, int]] = []
        again = self.turned(op, chosen)
        for _ in range(_ROUNDS):
            needs += again.needs
            if not again.needs or (better := again.choice(needs)) == chosen:
                break
            again = self.turned(op, chosen := better)
        self.plan.take(again.plan)
        return self.seen(op, [again])

    def turned(self, op: Op, chosen: dict[Op, dict[int, str]]) -> _Block:
        """The walk of an iteration of a loop that follows another, with a plan of its own. What is carried may be complete there,
        and under way in the first iteration: that waits, too."""
        first = _Block(self, _Plan(), op, op.regions, None, chosen)
        first.walk()
        again = _Block(self, _Plan(), op, op.regions, first, chosen)
        again.walk()
        again.plan.take_carried(first.plan, self.carries.get(op, ()))
        return again

    def seen(self, op: Op, ends: Sequence[_Block]) -> _Summary:
        """What the blocks of `op` do."""
        carries = self.carries.get(op, ())
        again = {c.again for c in carries}
        defined = self.defined(op)
        unknown: dict[Value, Linear] = {}
        found = _Summary(runs=_runs(op), sure=set.intersection(*(end.sure for end in ends)))
        if not found.runs and op.defn.short in LOOPS:
            found.sure = set()
        for end in ends:
            found.stops |= end.stops
            found.pipes |= end.pipes
            found.touches += [(x, pipe, self.moved(access, defined, unknown), writes) for x, pipe, access, writes in end.own]
            found.uses += [(v, pipe) for x, pipe in end.uses for v in self.outside(x, defined)]
            closed = op.defn.short != "scf.while"  # which ends between its blocks
            found.open |= {p: code for p, code in end.used.items() if not closed or end.issued[p] < end.places[p]}
            found.carried |= {c: end.told_by(end.makers[c.again.result][0].clock) for c in carries}
        found.uses = list(dict.fromkeys(found.uses))
        for p in {PIPES.index(pipe_of(x)) for x in again}:
            if all(x in again for x, pipe, *_ in found.touches if pipe == p):
                found.open.pop(p, None)  # they go on under names of their own
        for p in found.open:
            parts = [end.told_by(end.last[p] if p in end.used else ZERO) for end in ends]
            found.after[p] = set.intersection(*parts) if op.defn.short != "scf.while" else set()
        return found

    def outside(self, v: Value, defined: set[Value]) -> list[Value]:
        """The values from outside that a value is, or that are carried to it."""
        return _origins(v, lambda x: self.sources.get(x, ()) if x in defined else None)

    def moved(self, access: Access | None, defined: Iterable[Value], by: dict[Value, Linear]) -> Access | None:
        """An access as another iteration sees it: what a block defined is `by` or, if that says nothing, another unknown. So is
        what was unknown before: a loop within has counters of its own in each iteration."""
        if access is None:
            return None
        starts = []
        for start in access.starts:
            for v, k in start.terms.items():
                if v in defined or v in self.unknown:
                    if v not in by:
                        self.unknown.add(other := Value(INDEX_TYPE))
                        by[v] = Linear(0, {other: 1})
                    start = start + Linear(0, {v: -k}) + by[v] * k
            starts.append(start)
        return Access(access.root, tuple(starts), access.steps, access.least, access.most)

    def defined(self, op: Op) -> set[Value]:
        """The values that the blocks of an op define."""
        if (found := self.inner.get(op)) is None:
            self.inner[op] = found = {p for r in op.regions for p in r.params}
            for x in (x for r in op.regions for x in r.body):
                found.update(x.results)
                found |= self.defined(x) if x.regions else set()
        return found


def _origins(v: Value, sources: Callable[[Value], Iterable[Operand] | None]) -> list[Value]:
    """The values that `v` may be: `sources` names those that a value is one of, None where it is itself."""
    found, todo, seen = [], [v], set[Value]()
    while todo:
        x = todo.pop()
        if x in seen:
            continue
        seen.add(x)
        if (given := sources(x)) is None:
            found.append(x)
        else:
            todo += [y for y in given if isinstance(y, Value)]
    return found


def _runs(op: Op) -> bool:
    """Whether a loop certainly runs."""
    if op.defn.short != "scf.for":
        return False
    low, high = constant(op.operands[0]), constant(op.operands[1])
    return low is not None and high is not None and low < high


class _Block:
    """Plans the blocks of a loop in turn, a branch, or a function; clocks are those of the hazard check.

    `before` is the same loop's walk without an iteration before; its tasks are then those of the iteration before. `chosen` are
    barriers that are put before ops, by pipe."""

    def __init__(
        self,
        function: _Function,
        plan: _Plan,
        owner: Op | None,
        regions: Sequence[Region],
        before: _Block | None = None,
        chosen: dict[Op, dict[int, str]] | None = None,
    ) -> None:
        self.function = function
        self.plan = plan
        self.owner = owner
        self.regions = regions
        self.region = regions[0]
        self.placed = function.placed
        self.before = before
        self.chosen = chosen or {}
        self.issued: Clock = ZERO
        self.last: list[Clock] = [ZERO] * len(PIPES)
        self.places = [0] * len(PIPES)
        self.makers: dict[Value, list[_Task]] = {}
        self.pending: list[_Task] = []
        self.numbers = count()
        self.touched: dict[Value, dict[int, Places[_Touch]]] = {}  # per memory and pipe
        self.every: list[_Touch] = []
        self.unknown: list[_Touch] = []
        self.earlier: dict[Value, list[_Touch]] = {}  # those of iterations before that are at other places, per memory
        self.lonely: list[list[_Task]] = [[] for _ in PIPES]  # per pipe, ops during which none was seen so far
        # What those around see
        self.own: list[tuple[Op, int, Access | None, bool]] = []
        self.uses: list[tuple[Value, int]] = []
        self.used: dict[int, str] = {}  # pipes that may be at work, with an opcode of each
        self.pipes: set[int] = set()
        self.sure: set[int] = set()
        self.stops = False
        # Where barriers may go
        self.steps: list[Op] = []  # the ops that have tasks, loops and branches included
        self.needs: list[tuple[Op, _Task, int]] = []  # ops that need a task of the iteration before, and their pipe

    # The walk

    def walk(self) -> None:
        """Follow the blocks once."""
        inside = self.function.carries.get(self.owner, []) if self.owner is not None else []
        if self.before is None:
            self.makers |= {v: [] for v in self.region.params if self.owner is not None and self.owner.defn.short in LOOPS}
            for c in inside:
                self.arrives(c, c.inside, (c, False), [])
        else:
            self.resume(self.before, {c.again: c for c in inside})
        for region in self.regions:
            self.region = region
            for t in self.pending:  # the second block of a `scf.while` does not see the events of the first
                if region is not self.regions[0] and isinstance(t.signal, Op):
                    t.signal = None
            for op in region.body:
                if is_tile_op(op.defn):
                    self.task(op)
                elif op.regions:
                    self.nested(op)
                elif op.defn.traits & WAITS:
                    self.stops = True
                    self.flush(op, self.pending)
        if self.owner is None:
            self.finish()
        for p, tasks in enumerate(self.lonely):
            self.plan.overlapped |= {t.op for t in tasks if self.issued[p] < t.place}

    def finish(self) -> None:
        """The end of a function: all is complete. The last op may say so by itself."""
        t = self.pending[-1] if self.pending else None
        if t is not None and t in self.lonely[t.pipe]:
            self.issued = join(self.issued, t.clock)
            self.lonely[t.pipe].remove(t)
        self.flush(None, self.pending)

    def resume(self, before: _Block, again: dict[Op, _Carry]) -> None:
        """Begin where an iteration before has ended. Its events are not in sight, except those that are carried."""
        assert self.owner is not None
        defined, by = self.function.defined(self.owner), {}
        counter, step = None, None
        if self.owner.defn.short == "scf.for":
            counter, step = self.owner.regions[0].params[0], constant(self.owner.operands[2])
            if step is not None:
                by[counter] = Linear(-step, {counter: 1})
        self.issued, self.last, self.places = before.issued, list(before.last), list(before.places)
        tasks: dict[_Task, _Task] = {}
        for t in before.pending:
            carry = again.get(t.op)
            if carry is not None and t.signal is not t.op:
                continue  # that of the iteration before says it as well
            signal: _Signal | None = (carry, False) if carry is not None else None
            tasks[t] = made = _Task(t.op, signal, t.opcode, t.pipe, t.place, t.clock, next(self.numbers))
            self.pending.append(made)
            if carry is not None:
                self.makers[carry.inside] = [made]
                for touch in self.arrival(carry, carry.inside, made, []):
                    self.remember(touch)
            elif t.signal is t.op:
                self.lonely[t.pipe].append(made)
        for touch in before.every:
            if touch.task in tasks:
                steps: tuple[int, ...] = ()
                if touch.access is not None and counter is not None and step is not None:
                    steps = tuple([start.terms.get(counter, 0) * step for start in touch.access.starts])
                self.remember(_Touch(tasks[touch.task], self.function.moved(touch.access, defined, by), touch.writes, steps))
        params = self.regions[0].params
        given = {c.homes[0]: c.given(*place) for c in carried(self.owner) for place in c.sources if place[0] is not None}
        for home in (v for v in params if v not in self.makers):
            chain = [home]  # what is handed on from name to name was made by the same ops, earlier
            while isinstance(x := given.get(chain[-1]), Value) and x not in chain:
                chain.append(x)
            self.makers[home] = [tasks[t] for x in chain[1:] for t in before.made(x) if t in tasks]

    def task(self, op: Op) -> None:
        """A tile op."""
        self.put_barriers(op)
        pipe = PIPES.index(pipe_of(op))
        made = _Task(op, op, opcodes(op)[0], pipe, self.places[pipe] + 1, ZERO, next(self.numbers))
        touches = list(self.touches(op, made))
        needs = {t for x in op.operands if isinstance(x, Value) for t in self.made(x)}
        needs |= {t for touch in touches for t in self.conflicts(touch)}
        while True:
            clock, waits, barrier = join(self.issued, self.last[pipe]), [], None
            for need in sorted(needs, key=lambda t: t.number, reverse=True):  # a late one may say that others are complete
                if need.pipe != pipe and clock[need.pipe] < need.place:
                    if need.signal is None:
                        barrier = need
                        break
                    waits.append(need.signal)
                clock = join(clock, need.clock)
            if barrier is None:
                break
            self.needs.append((op, barrier, pipe))
            self.barrier(op, barrier.pipe, barrier.opcode)
        self.plan.waits[op] = waits
        self.places[pipe] += 1
        made.clock = self.last[pipe] = advanced(clock, pipe, made.place)
        self.steps.append(op)
        self.alongside(pipe, clock)
        self.lonely[pipe].append(made)
        self.makers.update((v, [made]) for v in op.results if isinstance(v.type, TileType))
        self.pending.append(made)
        self.used[pipe] = made.opcode
        self.pipes.add(pipe)
        self.sure.add(pipe)
        self.uses += [(x, pipe) for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
        for touch in touches:
            self.remember(touch)
            self.own.append((op, pipe, touch.access, touch.writes))

    def nested(self, op: Op) -> None:
        """A loop or branch: what it meets is awaited before it, and what it leaves under way goes on."""
        carries = self.function.carries.get(op)
        if carries is None:
            self.function.carries[op] = carries = list(self.carries(op))
        inner = self.function.summary(op, op.regions)
        self.put_barriers(op)
        self.stops |= inner.stops
        firsts = {t: c for c in carries for t in self.pending if t.signal == c.first}
        met = set(self.pending) if inner.stops else self.met(inner)
        if carries and not inner.runs:  # if it does not run, the event that is carried says nothing of these
            first = {pipe: min(t.place for t in firsts if t.pipe == pipe) for pipe in {t.pipe for t in firsts}}
            met |= {t for t in self.pending if t.pipe in first and t.place > first[t.pipe]}
        self.flush(op, met - firsts.keys())
        done = [least(a) >= b for a, b in zip(self.issued, self.places, strict=True)]
        for pipe in inner.pipes:
            self.alongside(pipe, self.issued)
        self.steps.append(op)
        taken: dict[_Carry, list[_Touch]] = defaultdict(list)
        for touch in self.every:
            if touch.task in firsts:
                taken[firsts[touch.task]].append(touch)
        self.forget([t for t in self.pending if t not in firsts])
        defined = self.function.defined(op)
        unknown: dict[Value, Linear] = {}
        for c in carries:
            self.arrives(c, c.after, (c, True), [(t.access, t.writes) for t in taken[c]])
        again = {c.again for c in carries}
        left: dict[int, _Task] = {}
        for pipe, opcode in inner.open.items():
            self.places[pipe] += 1
            left[pipe] = _Task(op, None, opcode, pipe, self.places[pipe], ZERO, next(self.numbers))
            self.used[pipe] = opcode
        named = {self.makers[c.after][0]: known for c, known in inner.carried.items()}
        for t, known in (*named.items(), *((t, inner.after[p]) for p, t in left.items())):
            clock = join(join(self.issued, self.last[t.pipe]), t.clock)
            for q in known - {t.pipe}:
                if q in inner.sure or done[q]:
                    clock = advanced(clock, q, self.places[q])
            t.clock = advanced(clock, t.pipe, t.place)
        for t in (*named, *left.values()):
            self.last[t.pipe] = join(self.last[t.pipe], t.clock)
        self.pending += left.values()
        self.pipes |= inner.pipes
        self.sure |= inner.sure
        for x, pipe, access, writes in inner.touches:
            moved = self.function.moved(access, defined, unknown)
            self.own.append((x, pipe, moved, writes))
            if pipe in left and x not in again:
                self.remember(_Touch(left[pipe], moved, writes))
        self.uses += inner.uses
        self.plan.carries += carries
        for v in op.results:
            if isinstance(v.type, TileType) and v not in self.makers:
                pipes = {PIPES.index(pipe_of(x.op)) for x in self.roots(v) if x in defined and x.op is not None}
                self.makers[v] = [*self.made(v), *(left[p] for p in pipes if p in left)]

    def carries(self, op: Op) -> Iterator[_Carry]:
        """The loads and products under way that a loop takes over and makes again, in the order of its steps. There are none of a
        pipe where their order before the loop is not that in it: an event then says nothing of those before."""
        if op.defn.short != "scf.for":
            return
        body, under_way = op.regions[0], {t for t in self.pending if t.signal is not None}
        blocks = [r for x in (op, *body.ops()) for r in x.regions]
        read = {x for y in body.ops() for x in y.operands} | {x for r in blocks for x in r.results}
        places = {made: n for n, made in enumerate(body.body)}
        found: dict[str, list[tuple[int, int, _Carry]]] = defaultdict(list)
        for k, (x, y) in enumerate(zip(op.operands[3:], body.results, strict=True)):
            makers = self.makers.get(x, ()) if isinstance(x, Value) and x not in read and op.operands[3:].count(x) == 1 else ()
            before = makers[0] if len(makers) == 1 else None
            again = y.op if isinstance(y, Value) else None
            if before is None or before not in under_way or again not in places or again is None:
                continue
            same = before.op.defn is again.defn and pipe_of(again) in CARRIED
            if same and before.signal is not None:
                found[pipe_of(again)].append((places[again], before.number, _Carry(op, k, before.signal, again)))
        for steps in found.values():
            steps.sort(key=lambda f: f[:2])
            numbers = [n for _, n, _ in steps]
            distinct = len({id(c.first) for *_, c in steps}) == len({p for p, *_ in steps}) == len(steps)
            if distinct and numbers == sorted(numbers):
                yield from (c for *_, c in steps)

    def arrives(self, c: _Carry, v: Value, signal: _Signal, touches: list[tuple[Access | None, bool]]) -> None:
        """What is carried is under way from here on, as `v`; `touches` are those of the op before the loop."""
        pipe = PIPES.index(pipe_of(c.again))
        self.places[pipe] += 1
        place = self.places[pipe]
        clock = advanced(join(self.issued, self.last[pipe]), pipe, place)
        made = _Task(c.again, signal, opcodes(c.again)[0], pipe, place, clock, next(self.numbers))
        self.last[pipe] = clock
        self.makers[v] = [made]
        self.pending.append(made)
        for touch in self.arrival(c, v, made, touches):
            self.remember(touch)

    def arrival(self, c: _Carry, v: Value, made: _Task, touches: list[tuple[Access | None, bool]]) -> Iterator[_Touch]:
        """What the ops that are carried as `v` may touch."""
        for access, writes in touches:
            yield _Touch(made, access, writes)
        for op in (c.again, *([c.first] if isinstance(c.first, Op) else [])):
            if touches_memory(op):
                view = view_of(memory_of(op))  # type: ignore[arg-type]
                yield _Touch(made, everything(view.root) if view is not None else None, False)
            for x in (x for x in op.values() if x in self.placed):
                access = self.placed[x]
                yield _Touch(made, everything(access.root) if any(s.terms for s in access.starts) else access, False)
        for x in (v, c.again.result):
            if x in self.placed:
                yield _Touch(made, self.placed[x], True)

    # Values

    def roots(self, v: Value) -> list[Value]:
        """What a value may be, of what this block knows, or ops make."""
        sources = self.function.sources
        return _origins(v, lambda x: None if x in self.makers else sources.get(x))

    def made(self, v: Value) -> list[_Task]:
        """The tasks under way that make a value, as far as this block knows them."""
        return [t for x in self.roots(v) for t in self.makers.get(x, ())] if isinstance(v.type, TileType) else []

    # Memory

    def touches(self, op: Op, task: _Task) -> Iterator[_Touch]:
        """What an op reads and writes of memory, tiles that are bound to addresses included."""
        if touches_memory(op):
            yield _Touch(task, access_of(op), "store" in op.defn.short)
        for values, writes in ((op.operands, False), (op.results, True)):
            for v in values if self.placed else ():
                if isinstance(v, Value) and v in self.placed and not (writes and self.stays(op, v)):
                    yield _Touch(task, self.placed[v], writes)
        if self.placed and self.function.scratch is not None and facts(op).scratch:
            yield _Touch(task, self.function.scratch, True)

    def stays(self, op: Op, v: Value) -> bool:
        """Whether `v` is the bytes of the operand, which lies where it does."""
        source = self.placed.get(op.operands[0]) if facts(op).renames else None  # type: ignore[arg-type]
        return source is not None and source.root is self.placed[v].root and source.starts == self.placed[v].starts

    def conflicts(self, touch: _Touch) -> Iterator[_Task]:
        """The tasks of other pipes, not known to be complete, whose accesses `touch` must follow."""
        own, others = touch.task.pipe, self.unknown
        known = [least(n) for n in join(self.issued, self.last[own])]
        if touch.access is None:
            others = self.every
        else:
            others = [*others, *self.earlier.get(touch.access.root, ())]
            pipes = self.touched.get(touch.access.root, {})
            others += [t for q, p in pipes.items() if q != own for t in p.near(touch.access, known[q])]
        for t in others:
            done = t.task.pipe == own or t.place <= known[t.task.pipe]
            if not done and (touch.writes or t.writes) and _may_meet(touch.access, t.access, t.steps):
                yield t.task

    def remember(self, touch: _Touch) -> None:
        """Keep an access for those to come."""
        self.every.append(touch)
        if touch.access is None:
            self.unknown.append(touch)
        elif any(touch.steps):
            self.earlier.setdefault(touch.access.root, []).append(touch)
        else:
            self.touched.setdefault(touch.access.root, {}).setdefault(touch.task.pipe, Places()).add(touch)

    def forget(self, pending: list[_Task]) -> None:
        """Keep these tasks alone."""
        kept = set(pending)
        touches = [t for t in self.every if t.task in kept]
        self.pending, self.touched, self.every, self.unknown, self.earlier = list(pending), {}, [], [], {}
        for touch in touches:
            self.remember(touch)

    def met(self, inner: _Summary) -> set[_Task]:
        """The tasks under way which something in blocks must follow."""
        needs = [(t, pipe) for v, pipe in inner.uses for t in self.made(v)]
        for op, pipe, access, writes in inner.touches:
            probe = _Touch(_Task(op, None, "", pipe, 0, ZERO, -1), access, writes)
            needs += [(t, pipe) for t in self.conflicts(probe)]
        return {t for t, pipe in needs if t.pipe != pipe and least(self.last[pipe][t.pipe]) < t.place}

    # Waits

    def alongside(self, pipe: int, clock: Clock) -> None:
        """Something runs in a pipe: ops of others that may be under way then are not to hold up what follows them."""
        for q, tasks in enumerate(self.lonely):
            while q != pipe and tasks and clock[q] < tasks[-1].place:
                self.plan.overlapped.add(tasks.pop().op)

    def flush(self, at: Op | None, met: Iterable[_Task]) -> None:
        """Let all that follows wait for tasks; where one says that others are complete, for it alone. Those without an event in
        sight are waited for by their pipes."""
        waited = sorted(met, key=lambda t: t.number, reverse=True)
        for t in waited:
            if t.signal is None and self.issued[t.pipe] < t.place and not self.implied(t, waited):
                if at is not None:
                    self.needs.append((at, t, -1))
                self.barrier(at, t.pipe, t.opcode)
        clock, signals = self.issued, list[_Signal]()
        for t in waited:
            if clock[t.pipe] < t.place and t.signal is not None:
                signals.append(t.signal)
            clock = join(clock, t.clock)
        if signals:
            self.plan.syncs.append((self.region, at, signals[::-1]))
        self.issued = clock
        self.forget([t for t in self.pending if clock[t.pipe] < t.place])

    def implied(self, task: _Task, waited: Iterable[_Task]) -> bool:
        """Whether another of those that are waited for implies that a task is complete."""
        return any(t is not task and least(t.clock[task.pipe]) >= task.place for t in waited)

    def barrier(self, at: Op | None, pipe: int, opcode: str) -> None:
        """Let all that follows wait for a pipe."""
        self.plan.barriers.append((self.region, at, opcode))
        self.issued = join(self.issued, self.last[pipe])

    def put_barriers(self, op: Op) -> None:
        """The barriers that were chosen to be before an op, where they are of use."""
        for pipe, opcode in self.chosen.get(op, {}).items():
            if self.issued[pipe] < self.places[pipe]:
                self.barrier(op, pipe, opcode)

    # What those around see

    def told_by(self, clock: Clock) -> set[int]:
        """The pipes whose work is done when a clock says so, or anyhow."""
        return {q for q in self.pipes if q not in self.used or max(least(clock[q]), least(self.issued[q])) >= self.places[q]}

    def choice(self, needs: Sequence[tuple[Op, _Task, int]]) -> dict[Op, dict[int, str]]:
        """Where to wait for pipes of the iteration before. The place is between the op that is needed and the one that needs it,
        before an op of the same pipe, or the latter. Best is one behind which another pipe was waited for since the last op of
        the pipe: it was at work meanwhile. Else there the most other ops run between the two. Pipes of few ops choose first."""
        found: dict[Op, dict[int, str]] = defaultdict(dict)
        at = {op: k for k, op in enumerate(self.steps)}
        n = len(self.steps)
        pipes = [self.pipes_in(op) for op in self.steps]
        many = [sum(p in own for own in pipes) for p in range(len(PIPES))]
        for user, need, pipe in sorted(needs, key=lambda x: many[x[1].pipe]):
            if user not in at or need.op not in at:
                continue
            start, end = at[need.op], at[user] + n  # in steps of two iterations
            if any(need.pipe in found.get(self.steps[k % n], ()) for k in range(start + 1, end + 1)):
                continue
            best, most, run = end, -1, 0
            for k in range(start + 1, end + 1):
                own = need.pipe in pipes[k % n]
                run += n if found.get(self.steps[k % n]) else 0
                if (own or k == end) and run >= most:
                    best, most = k, run
                run = 0 if own else run + (pipe < 0 or pipe in pipes[k % n])
            found[self.steps[best % n]][need.pipe] = need.opcode
        return found

    def pipes_in(self, op: Op) -> set[int]:
        """The pipes in which an op, or what is in its blocks, runs."""
        if not op.regions:
            return {PIPES.index(pipe_of(op))}
        return self.function.summary(op, op.regions).pipes


def _may_meet(a: Access | None, b: Access | None, steps: Sequence[int] = ()) -> bool:
    """Whether two accesses may share an element; `b` is also anywhere as many `steps` earlier."""
    if a is None or b is None:
        return True
    if a.root is not b.root:
        return False
    return may_have_met(a, b, steps) if any(steps) else overlap(a, b) is not None


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
    found = [(block, at, create(OPS["pto.sync"], [[events[x] for x in signals]])) for block, at, signals in plan.syncs]
    found += [(block, at, create(OPS["pto.sync.op"], (), {"opcode": opcode})) for block, at, opcode in plan.barriers]
    for block, at, made in found:
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
