"""Events for programs that have none: tile ops become asynchronous and wait for what they need, and for no more.

An op waits for the ops of other pipes that it has to follow, by the walk of the hazard check (`dependences`). It does not where
what was waited for says that they are complete. In the end every wait is tried: those that the check can do without are gone.

Every block is planned once, the innermost first. What is under way at the end of a block goes on. In a loop it meets the next
iteration; behind a loop or branch it meets what follows. There its event is not in sight, so who meets it waits for its pipe
(`pto.sync.op`), where that holds up least. What is under way and meets something in the blocks of a loop or branch is awaited
before it. So is all before a call, and at the end of a function. Loads and products that a loop carries keep their events:
these are carried, too.

An op stays synchronous where no other runs at the same time. Functions with events of their own are left alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import NO_USERS, SEGMENTS, WAITS, Function, Op, Region, Value, create, operand_type
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.order.clocks import ZERO, Clock, advanced, join
from ptir_tools.dialects.pto.order.decisions import least
from ptir_tools.dialects.pto.order.dependences import BARRIER, Dependences, Wait, dependences, redundant_waits
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, opcodes, pipe_of, pipe_of_opcode
from ptir_tools.dialects.pto.structure import is_barrier, is_call, is_for, is_loop, is_while
from ptir_tools.dialects.pto.types import EventType, TileType, event
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Make tile ops asynchronous, with the waits that they need."""
    for rw in context.rewriters(program):
        block = rw.block
        assert isinstance(block, Function)
        if any(isinstance(v.type, EventType) for op in block.ops() for v in op.results):
            continue
        function = _Function(block, dependences(program, block))
        function.summary(None, [block])
        own = {*filter(is_barrier, block.ops())}
        context.count("events", _rewrite(rw, function.plan))
        if any(op.regions for op in block.body):  # else each op waits for what it meets, and for no more
            rw.finish()
            _drop(rw, list(redundant_waits(program, block, _waits(block, own))))
            _leave(rw, block, function.plan.carries)


CARRIED = ("MTE2", "M")  # pipes whose ops keep their events when a loop carries what they make
_ROUNDS = 4  # of choosing where a loop waits for pipes: a wait that moves away leaves others to be waited for


@dataclass(slots=True, eq=False)
class _Carry:
    """A load or product that the loop `op` carries as tile `k`, with its event: `first` is before the loop, `again` in it."""

    op: Op
    k: int
    first: _Signal
    again: Op
    ops: frozenset[Op]  # before the loop and in it

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
    """An op, or what a loop or branch leaves under way in a pipe; `ops` are the ops that it is.

    `signal` is None where its event is not in sight."""

    op: Op
    ops: frozenset[Op]
    signal: _Signal | None
    opcode: str
    pipe: int
    place: int
    clock: Clock
    number: int  # in the order of the block


@dataclass(slots=True)
class _Summary:
    """What blocks do, as those around them see it."""

    pipes: set[int] = field(default_factory=set)
    sure: set[int] = field(default_factory=set)  # pipes that certainly have work
    open: dict[int, str] = field(default_factory=dict)  # pipes that may be at work behind them, with an opcode of each
    after: dict[int, set[int]] = field(default_factory=dict)  # whose work is done when that of an open pipe is
    carried: dict[_Carry, set[int]] = field(default_factory=dict)  # the same of loads that are carried
    runs: bool = False  # whether they certainly run
    stops: bool = False  # whether a call is in them


class _Function:
    """Plans the blocks of a function."""

    def __init__(self, block: Region, needed: Dependences) -> None:
        self.needed = needed
        self.plan = _Plan()
        self.carries: dict[Op, list[_Carry]] = {}
        self.summaries: dict[Op, _Summary] = {}
        self.inner: dict[Op, list[tuple[Op, int]]] = {}  # the tile ops in the blocks of an op, and their pipes

    def summary(self, op: Op | None, blocks: Sequence[Region]) -> _Summary:
        """Plan the blocks of an op, or the function (None), and tell what they do."""
        if op is None:
            _Block(self, self.plan, None, blocks).walk()
            return _Summary()
        if (cached := self.summaries.get(op)) is None:
            self.summaries[op] = cached = self.planned(op)
        return cached

    def planned(self, op: Op) -> _Summary:
        """Plan the blocks of `op`: those of a branch one by one, of a loop in turn, iteration after iteration."""
        if not is_loop(op):
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
        result = _Summary(runs=_runs(op), sure=set.intersection(*(end.sure for end in ends)))
        if not result.runs and is_loop(op):
            result.sure = set()
        for end in ends:
            result.stops |= end.stops
            result.pipes |= end.pipes
            closed = not is_while(op)  # which ends between its blocks
            result.open |= {p: code for p, code in end.used.items() if not closed or end.issued[p] < end.places[p]}
            result.carried |= {c: end.told_by(end.latest[c.again].clock) for c in carries}
        for p in {PIPES.index(pipe_of(x)) for x in again}:
            if all(x in again for x, pipe in self.inside(op) if pipe == p):
                result.open.pop(p, None)  # they go on under names of their own
        for p in result.open:
            parts = [end.told_by(end.last[p] if p in end.used else ZERO) for end in ends]
            result.after[p] = set.intersection(*parts) if not is_while(op) else set()
        return result

    def inside(self, op: Op) -> list[tuple[Op, int]]:
        """The tile ops in the blocks of an op, and their pipes."""
        if (result := self.inner.get(op)) is None:
            ops = (x for r in op.regions for x in r.ops() if is_tile_op(x.defn))
            self.inner[op] = result = [(x, PIPES.index(pipe_of(x))) for x in ops]
        return result


def _runs(op: Op) -> bool:
    """Whether a loop certainly runs."""
    if not is_for(op):
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
        self.before = before
        self.chosen = chosen or {}
        self.issued: Clock = ZERO
        self.last: list[Clock] = [ZERO] * len(PIPES)
        self.places = [0] * len(PIPES)
        self.makers: dict[Value, _Task] = {}
        self.latest: dict[Op, _Task] = {}
        self.pending: list[_Task] = []
        self.numbers = count()
        self.current: dict[Op, _Task] = {}  # the task of each op in this iteration
        self.previous: dict[Op, _Task] = {}  # and in the one before
        self.lonely: list[list[_Task]] = [[] for _ in PIPES]  # per pipe, ops during which none was seen so far
        # What those around see
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
            for c in inside:
                self.arrives(c, c.inside, (c, False))
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
                elif is_barrier(op):
                    self.ordered(op.attr("opcode"))
                elif WAITS in op.defn.traits:
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
        self.issued, self.last, self.places = before.issued, list(before.last), list(before.places)
        for t in before.pending:
            carry = again.get(t.op)
            if carry is not None and t.signal is not t.op:
                continue  # that of the iteration before says it as well
            signal: _Signal | None = (carry, False) if carry is not None else None
            result = _Task(t.op, t.ops, signal, t.opcode, t.pipe, t.place, t.clock, next(self.numbers))
            self.pending.append(result)
            self.previous.update(dict.fromkeys(t.ops, result))
            if carry is not None:
                self.makers[carry.inside] = result
                self.current.update(dict.fromkeys(carry.ops, result))
            elif t.signal is t.op:
                self.lonely[t.pipe].append(result)

    def ordered(self, opcode: str) -> None:
        """A barrier of the program itself."""
        for p, name in enumerate(PIPES):
            if opcode == "ALL" or pipe_of_opcode(opcode) == name:
                self.issued = join(self.issued, self.last[p])
        self.forget()

    def task(self, op: Op) -> None:
        """A tile op."""
        self.put_barriers(op)
        pipe = PIPES.index(pipe_of(op))
        result = _Task(op, frozenset((op,)), op, opcodes(op)[0], pipe, self.places[pipe] + 1, ZERO, next(self.numbers))
        needs = self.followed(op)
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
        result.clock = self.last[pipe] = advanced(clock, pipe, result.place)
        self.steps.append(op)
        self.alongside(pipe, clock)
        self.lonely[pipe].append(result)
        self.makers.update((v, result) for v in op.results if isinstance(v.type, TileType))
        self.latest[op] = self.current[op] = result
        self.pending.append(result)
        self.used[pipe] = result.opcode
        self.pipes.add(pipe)
        self.sure.add(pipe)

    def nested(self, op: Op) -> None:
        """A loop or branch: what it meets is awaited before it, and what it leaves under way goes on."""
        carries = self.function.carries.get(op)
        if carries is None:
            self.function.carries[op] = carries = list(self.carries(op))
        inner = self.function.summary(op, op.regions)
        self.put_barriers(op)
        self.stops |= inner.stops
        firsts = {t: c for c in carries for t in self.pending if t.signal == c.first}
        met = set(self.pending) if inner.stops else self.met(op)
        if carries and not inner.runs:  # if it does not run, the event that is carried says nothing of these
            first = {pipe: min(t.place for t in firsts if t.pipe == pipe) for pipe in {t.pipe for t in firsts}}
            met |= {t for t in self.pending if t.pipe in first and t.place > first[t.pipe]}
        self.flush(op, met - firsts.keys())
        done = [least(a) >= b for a, b in zip(self.issued, self.places, strict=True)]
        for pipe in inner.pipes:
            self.alongside(pipe, self.issued)
        self.steps.append(op)
        self.pending = [t for t in self.pending if t not in firsts]
        for c in carries:
            self.arrives(c, c.after, (c, True))
        again = {c.again for c in carries}
        left: dict[int, _Task] = {}
        for pipe, opcode in inner.open.items():
            self.places[pipe] += 1
            ops = frozenset([x for x, p in self.function.inside(op) if p == pipe and x not in again])
            left[pipe] = _Task(op, ops, None, opcode, pipe, self.places[pipe], ZERO, next(self.numbers))
            self.current.update(dict.fromkeys(ops, left[pipe]))
            self.used[pipe] = opcode
        named = {self.makers[c.after]: known for c, known in inner.carried.items()}
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
        self.plan.carries += carries

    def carries(self, op: Op) -> Iterator[_Carry]:
        """The loads and products under way that a loop takes over and makes again, in the order of its steps. There are none of a
        pipe where their order before the loop is not that in it: an event then says nothing of those before."""
        if not is_for(op):
            return
        body, under_way = op.regions[0], {t for t in self.pending if t.signal is not None}
        blocks = [r for x in (op, *body.ops()) for r in x.regions]
        read = {x for y in body.ops() for x in y.operands} | {x for r in blocks for x in r.results}
        places = {entry: n for n, entry in enumerate(body.body)}
        by_pipe: dict[str, list[tuple[int, int, _Carry]]] = defaultdict(list)
        for k, (x, y) in enumerate(zip(op.operands[3:], body.results, strict=True)):
            alone = isinstance(x, Value) and x not in read and op.operands[3:].count(x) == 1
            before = self.makers.get(x) if alone else None  # type: ignore[arg-type]
            again = y.op if isinstance(y, Value) else None
            if before is None or before not in under_way or again not in places or again is None:
                continue
            same = before.op.defn is again.defn and pipe_of(again) in CARRIED
            if same and before.signal is not None:
                by_pipe[pipe_of(again)].append(
                    (places[again], before.number, _Carry(op, k, before.signal, again, before.ops | {again}))
                )
        for steps in by_pipe.values():
            steps.sort(key=lambda f: f[:2])
            numbers = [n for _, n, _ in steps]
            distinct = len({id(c.first) for *_, c in steps}) == len({p for p, *_ in steps}) == len(steps)
            if distinct and numbers == sorted(numbers):
                yield from (c for *_, c in steps)

    def arrives(self, c: _Carry, v: Value, signal: _Signal) -> None:
        """What is carried is under way from here on, as `v`."""
        pipe = PIPES.index(pipe_of(c.again))
        self.places[pipe] += 1
        place = self.places[pipe]
        clock = advanced(join(self.issued, self.last[pipe]), pipe, place)
        result = _Task(c.again, c.ops, signal, opcodes(c.again)[0], pipe, place, clock, next(self.numbers))
        self.last[pipe] = clock
        self.makers[v] = result
        self.current.update(dict.fromkeys(c.ops, result))
        self.pending.append(result)

    # What has to be complete

    def followed(self, op: Op) -> set[_Task]:
        """The tasks that an op has to follow, as far as this block knows them."""
        needed = self.function.needed
        before = {self.current[x] for x in needed.same.get(op, ()) if x in self.current}
        if self.previous and self.owner in needed.again:
            before |= {self.previous[x] for x in needed.again[self.owner].get(op, ()) if x in self.previous}
        return before

    def met(self, op: Op) -> set[_Task]:
        """The tasks under way which something in the blocks of `op` must follow."""
        needs = [(t, pipe) for x, pipe in self.function.inside(op) for t in self.followed(x)]
        return {t for t, pipe in needs if t.pipe != pipe and least(self.last[pipe][t.pipe]) < t.place}

    def forget(self) -> None:
        """What is complete is not under way."""
        self.pending = [t for t in self.pending if self.issued[t.pipe] < t.place]

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
        self.forget()

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
        waits: dict[Op, dict[int, str]] = defaultdict(dict)
        at = {op: k for k, op in enumerate(self.steps)}
        n = len(self.steps)
        pipes = [self.pipes_in(op) for op in self.steps]
        many = [sum(p in own for own in pipes) for p in range(len(PIPES))]
        for user, need, pipe in sorted(needs, key=lambda x: many[x[1].pipe]):
            if user not in at or need.op not in at:
                continue
            start, end = at[need.op], at[user] + n  # in steps of two iterations
            if any(need.pipe in waits.get(self.steps[k % n], ()) for k in range(start + 1, end + 1)):
                continue
            best, most, run = end, -1, 0
            for k in range(start + 1, end + 1):
                own = need.pipe in pipes[k % n]
                run += n if waits.get(self.steps[k % n]) else 0
                if (own or k == end) and run >= most:
                    best, most = k, run
                run = 0 if own else run + (pipe < 0 or pipe in pipes[k % n])
            waits[self.steps[best % n]][need.pipe] = need.opcode
        return waits

    def pipes_in(self, op: Op) -> set[int]:
        """The pipes in which an op, or what is in its blocks, runs."""
        if not op.regions:
            return {PIPES.index(pipe_of(op))}
        return self.function.summary(op, op.regions).pipes


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
        rw.set_results(body, [*body.results, events[c.again]], body.result_types)
    now = {op: v.op for op, v in events.items() if isinstance(op, Op)}
    placed = [(block, at, create(OPS["pto.sync"], [[events[x] for x in signals]])) for block, at, signals in plan.syncs]
    placed += [(block, at, create(OPS["pto.sync.op"], (), {"opcode": opcode})) for block, at, opcode in plan.barriers]
    for block, at, entry in placed:
        if at is None:
            rw.append(block, entry)
        else:
            rw.insert_before(now.get(at) or at, entry)
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
    result = create(op.defn, groups, op.defn.named(op.attrs) | {"event": event(opcodes(op)[0])}, loc=op.loc)
    rw.insert_before(op, result)
    for old, new in zip(op.results, result.results, strict=False):
        rw.replace_all_uses(old, new)
    rw.erase(op)
    result.results[-1].name = name
    return result.results[-1]


def _waiting(rw: Rewriter, op: Op, waits: list[Value]) -> None:
    """Let `op`, which stays synchronous, wait."""
    lengths = list(op.attr(SEGMENTS))
    lengths[_wait_group(op)] = len(waits)
    rw.set_attrs(op, segments=tuple(lengths))
    rw.set_operands(op, [*op.operands, *waits])


def _waits(block: Region, own: set[Op]) -> list[Wait]:
    """What was inserted, the dearest first: barriers, syncs, and what single ops wait for."""
    barriers = [(op, BARRIER) for op in filter(is_barrier, block.ops()) if op not in own]
    syncs, others = list[Wait](), list[Wait]()
    for op in block.ops():
        events = [i for i, x in enumerate(op.operands) if isinstance(operand_type(x), EventType)]
        if events and not op.regions and not is_call(op):
            (others if is_tile_op(op.defn) else syncs).extend((op, i) for i in events)
    return [*barriers, *syncs, *others]


def _leave(rw: Rewriter, block: Region, carries: Iterable[_Carry]) -> None:
    """Let loops not carry events that nothing waits for."""
    loops = dict.fromkeys(c.op for c in carries)
    idle = True
    while idle:
        rw.finish()
        idle = False
        used = {x for op in block.ops() for x in op.operands}
        for op in loops:
            body = op.regions[0]
            for k in reversed(range(len(op.results))):
                names = body.params[1 + k], op.results[k]
                if isinstance(names[0].type, EventType) and used.isdisjoint(names):
                    rw.set_operands(op, [*op.operands[: 3 + k], *op.operands[4 + k :]])
                    results, types = ([*all[:k], *all[k + 1 :]] for all in (body.results, body.result_types))
                    rw.set_results(body, results, types)
                    del body.params[1 + k]
                    op.results = (*op.results[:k], *op.results[k + 1 :])
                    idle = True


def _drop(rw: Rewriter, waits: Sequence[Wait]) -> None:
    """Take waits away."""
    gone: dict[Op, set[int]] = defaultdict(set)
    for op, i in waits:
        gone[op].add(i)
    for op, places in gone.items():
        left = [x for i, x in enumerate(op.operands) if i not in places]
        if BARRIER in places or (not is_tile_op(op.defn) and not left):
            rw.erase(op)
            continue
        if is_tile_op(op.defn):
            lengths = list(op.attr(SEGMENTS))
            lengths[_wait_group(op)] -= len(places)
            rw.set_attrs(op, segments=tuple(lengths))
        rw.set_operands(op, left)


def _wait_group(op: Op) -> int:
    return [g.name for g in op.defn.groups].index("wait")


def _names(rw: Rewriter) -> Iterator[str]:
    """`e0`, `e1`, … without those that are taken."""
    used = {v.name for op in rw.block.ops() for v in op.results}
    used |= {p.name for b in rw.blocks() for p in b.params}
    return (name for n in count() if (name := f"e{n}") not in used)
