"""Events for programs that have none: tile ops become asynchronous, with the waits that they need.

An op waits for the ops of other pipes that it depends on (`dependences`), unless an earlier wait implies that they are complete.
At the end the hazard check tries each wait, and those that it does not need are removed.

Blocks are planned from the innermost to the outermost. Ops that are still running at the end of a block are called open:

- In a loop, the next iteration may depend on them. After a loop or branch, later ops may. Their events are not visible there, so
  a barrier of the pipe (`pto.sync.op`) is placed, where it delays the fewest ops.
- What the blocks of a loop or branch depend on is waited for before the loop or branch.
- At a call, and at the end of a function, everything is waited for.
- A load or product whose tile a loop carries keeps its event, which the loop then carries, too.

An op stays synchronous if no other op runs at the same time. Functions with events are not changed.
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
from ptir_tools.dialects.pto.order.clocks import ZERO, Clock, Pipes, join
from ptir_tools.dialects.pto.order.decisions import least
from ptir_tools.dialects.pto.order.dependences import BARRIER, Dependences, Wait, dependences, redundant_waits
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, opcodes, pipe_of, pipes_of_barrier, pipes_of_opcode
from ptir_tools.dialects.pto.structure import has_events, is_barrier, is_call, is_for, is_loop, is_while, set_waits, unused_names
from ptir_tools.dialects.pto.types import EventType, TileType, event
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Make the tile ops of functions without events asynchronous, with the waits that they need."""
    for rw in context.rewriters(program):
        block = rw.block
        assert isinstance(block, Function)
        if has_events(block):
            continue
        function = _Function(block, dependences(program, block))
        function.summary(None, [block])
        own = {*filter(is_barrier, block.ops())}
        context.count("events", _rewrite(rw, function.plan))
        if any(op.regions for op in block.body):  # in straight code no wait is redundant
            rw.finish()
            _drop(rw, list(redundant_waits(program, block, _waits(block, own))))
            _drop_carried(rw, block, function.plan.carries)


CARRIED = ("MTE2", "M")  # pipes whose ops keep their events when a loop carries their tiles
_ROUNDS = 4  # of placing the barriers of a loop: a moved barrier may make others necessary


@dataclass(slots=True, eq=False)
class _Carry:
    """A load or product whose tile and event the loop `op` carries as its value `k`. `first` is the event before the loop, and
    `again` is the op in the loop."""

    op: Op
    k: int
    first: _Signal
    again: Op
    ops: frozenset[Op]  # the op before the loop, and `again`

    @property
    def inside(self) -> Value:
        """The tile in the loop."""
        return self.op.regions[0].params[1 + self.k]

    @property
    def after(self) -> Value:
        """The tile after the loop."""
        return self.op.results[self.k]


# The source of an event: an op, or a loop that carries it. The flag is False for its name in the loop, True for that after it.
_Signal = Op | tuple[_Carry, bool]


@dataclass(slots=True)
class _Plan:
    """The events that each op waits for, and the syncs and barriers before an op, or at the end of a block (None)."""

    waits: dict[Op, list[_Signal]] = field(default_factory=dict)
    syncs: list[tuple[Region, Op | None, list[_Signal]]] = field(default_factory=list)
    barriers: list[tuple[Region, Op | None, str]] = field(default_factory=list)  # by opcode
    carries: list[_Carry] = field(default_factory=list)
    overlapped: set[Op] = field(default_factory=set)  # ops that run at the same time as others

    def take_carried(self, other: _Plan, carries: Sequence[_Carry]) -> None:
        """Add the waits of another plan for carried loads and products."""
        own = {(c, False) for c in carries}
        pipes = {pipe_of(c.again) for c in carries}

        def more(signals: list[_Signal], known: list[_Signal]) -> list[_Signal]:
            return [x for x in signals if x in own and x not in known]

        for user, signals in other.waits.items():
            self.waits[user] += more(signals, self.waits[user])
        for region, at, signals in other.syncs:
            if missing := more(signals, [x for r, a, known in self.syncs if r is region and a is at for x in known]):
                self.syncs.append((region, at, missing))
        self.barriers += [b for b in other.barriers if not pipes.isdisjoint(pipes_of_opcode(b[2])) and b not in self.barriers]

    def take(self, other: _Plan) -> None:
        """Add a plan for other ops."""
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
    """An op, or the open ops of one pipe after a loop or branch. `ops` are the ops that it is made of.

    `signal` is None if no event of it is visible."""

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
    """The effect of the blocks of a loop or branch on the ops after it."""

    pipes: set[int] = field(default_factory=set)
    open: dict[int, str] = field(default_factory=dict)  # pipes that may have open ops, with an opcode of each
    stops: bool = False  # whether they contain a call


class _Function:
    """Plans the blocks of a function."""

    def __init__(self, block: Region, needed: Dependences) -> None:
        self.needed = needed
        self.plan = _Plan()
        self.carries: dict[Op, list[_Carry]] = {}
        self.summaries: dict[Op, _Summary] = {}
        self.inner: dict[Op, list[tuple[Op, int]]] = {}  # the tile ops in the blocks of an op, and their pipes

    def summary(self, op: Op | None, blocks: Sequence[Region]) -> _Summary:
        """Plan the blocks of an op, or the function (None); their effect."""
        if op is None:
            _Block(self, self.plan, None, blocks).walk()
            return _Summary()
        if (cached := self.summaries.get(op)) is None:
            self.summaries[op] = cached = self.planned(op)
        return cached

    def planned(self, op: Op) -> _Summary:
        """Plan the blocks of a branch one by one, or those of a loop in sequence."""
        if not is_loop(op):
            ends = [_Block(self, self.plan, op, [r]) for r in op.regions]
            for end in ends:
                end.walk()
            return self.seen(op, ends)
        chosen: dict[Op, dict[int, str]] = {}
        needs: list[tuple[Op, _Task, int]] = []
        again = self.iteration(op, chosen)
        for _ in range(_ROUNDS):
            needs += again.needs
            if not again.needs or (better := again.choice(needs)) == chosen:
                break
            again = self.iteration(op, chosen := better)
        self.plan.take(again.plan)
        return self.seen(op, [again])

    def iteration(self, op: Op, chosen: dict[Op, dict[int, str]]) -> _Block:
        """The walk of the second iteration of a loop, with its own plan. The plan also has the waits of the first iteration for
        carried loads and products, which may be complete in the second."""
        first = _Block(self, _Plan(), op, op.regions, None, chosen)
        first.walk()
        again = _Block(self, _Plan(), op, op.regions, first, chosen)
        again.walk()
        again.plan.take_carried(first.plan, self.carries.get(op, ()))
        return again

    def seen(self, op: Op, ends: Sequence[_Block]) -> _Summary:
        """The effect of the blocks of `op` after these walks."""
        again = {c.again for c in self.carries.get(op, ())}
        result = _Summary()
        for end in ends:
            result.stops |= end.stops
            result.pipes |= end.active
            closed = not is_while(op)  # which may end between its blocks
            result.open |= {p: code for p, code in end.used.items() if not closed or end.pipes.issued[p] < end.pipes.places[p]}
        for p in {PIPES.index(pipe_of(x)) for x in again}:
            if all(x in again for x, pipe in self.inside(op) if pipe == p):
                result.open.pop(p, None)  # all of them are carried
        return result

    def inside(self, op: Op) -> list[tuple[Op, int]]:
        """The tile ops in the blocks of an op, and their pipes."""
        if (result := self.inner.get(op)) is None:
            ops = (x for r in op.regions for x in r.ops() if is_tile_op(x.defn))
            self.inner[op] = result = [(x, PIPES.index(pipe_of(x))) for x in ops]
        return result


def _runs(op: Op) -> bool:
    """Whether a counted loop certainly has an iteration."""
    low, high = constant(op.operands[0]), constant(op.operands[1])
    return low is not None and high is not None and low < high


class _Block:
    """Plans the blocks of a loop in sequence, a block of a branch, or a function, on the pipes of the hazard check.

    `before` is the walk of the first iteration of a loop, if this one is the second. `chosen` has the barriers to place before
    ops, by pipe."""

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
        self.pipes = Pipes()
        self.makers: dict[Value, _Task] = {}
        self.pending: list[_Task] = []
        self.numbers = count()
        self.current: dict[Op, _Task] = {}  # by op, its task in this iteration
        self.previous: dict[Op, _Task] = {}  # and in the first one
        self.lonely: list[list[_Task]] = [[] for _ in PIPES]  # per pipe, ops that run at the same time as no other so far
        # As in `_Summary`
        self.used: dict[int, str] = {}  # pipes that may have open ops, with an opcode of each
        self.active: set[int] = set()
        self.stops = False
        self.steps: list[Op] = []  # the ops before which barriers may be
        self.needs: list[tuple[Op, _Task, int]] = []  # ops that need a barrier for a task, and their pipe

    # The walk

    def walk(self) -> None:
        """Plan the blocks once."""
        inside = self.function.carries.get(self.owner, []) if self.owner is not None else []
        if self.before is None:
            for c in inside:
                self.arrives(c, c.inside, (c, False))
        else:
            self.resume(self.before, {c.again: c for c in inside})
        for region in self.regions:
            self.region = region
            for t in self.pending:  # events of the first block of a `scf.while` are not visible in the second
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
            self.plan.overlapped |= {t.op for t in tasks if self.pipes.issued[p] < t.place}

    def finish(self) -> None:
        """Wait for everything at the end of a function. A last op that runs alone stays synchronous, which is enough."""
        t = self.pending[-1] if self.pending else None
        if t is not None and t in self.lonely[t.pipe]:
            self.pipes.wait(t.clock)
            self.lonely[t.pipe].remove(t)
        self.flush(None, self.pending)

    def resume(self, before: _Block, again: dict[Op, _Carry]) -> None:
        """Start with the state at the end of the first iteration. Of its events only the carried ones are visible."""
        self.pipes.restore(before.pipes.state())
        self.pipes.places = list(before.pipes.places)
        for t in before.pending:
            carry = again.get(t.op)
            if carry is not None and t.signal is not t.op:
                continue  # the event of the first iteration is enough
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
        """A barrier that the program has."""
        for p in pipes_of_barrier(opcode):
            self.pipes.barrier(p)
        self.forget()

    def task(self, op: Op) -> None:
        """Plan the waits of a tile op."""
        self.put_barriers(op)
        pipe = PIPES.index(pipe_of(op))
        result = _Task(op, frozenset((op,)), op, opcodes(op)[0], pipe, self.pipes.places[pipe] + 1, ZERO, next(self.numbers))
        needs = self.followed(op)
        while True:
            clock, waits, barrier = self.pipes.start(pipe), [], None
            for need in sorted(needs, key=lambda t: t.number, reverse=True):  # a later one may imply that others are complete
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
        result.clock = self.pipes.add(pipe, clock)
        self.steps.append(op)
        self.overlap(pipe, clock)
        self.lonely[pipe].append(result)
        self.makers.update((v, result) for v in op.results if isinstance(v.type, TileType))
        self.current[op] = result
        self.pending.append(result)
        self.used[pipe] = result.opcode
        self.active.add(pipe)

    def nested(self, op: Op) -> None:
        """Plan a loop or branch: wait before it for what its blocks depend on, and add its open ops."""
        carries = self.function.carries.get(op)
        if carries is None:
            self.function.carries[op] = carries = list(self.carries(op))
        inner = self.function.summary(op, op.regions)
        self.put_barriers(op)
        self.stops |= inner.stops
        firsts = {t: c for c in carries for t in self.pending if t.signal == c.first}
        met = set(self.pending) if inner.stops else self.met(op)
        if carries and not _runs(op):  # without an iteration, the carried event implies nothing about these
            first = {pipe: min(t.place for t in firsts if t.pipe == pipe) for pipe in {t.pipe for t in firsts}}
            met |= {t for t in self.pending if t.pipe in first and t.place > first[t.pipe]}
        self.flush(op, met - firsts.keys())
        for pipe in inner.pipes:
            self.overlap(pipe, self.pipes.issued)
        self.steps.append(op)
        self.pending = [t for t in self.pending if t not in firsts]
        for c in carries:
            self.arrives(c, c.after, (c, True))
        again = {c.again for c in carries}
        left: dict[int, _Task] = {}
        for pipe, opcode in inner.open.items():
            ops = frozenset([x for x, p in self.function.inside(op) if p == pipe and x not in again])
            place = self.pipes.places[pipe] + 1
            left[pipe] = _Task(op, ops, None, opcode, pipe, place, ZERO, next(self.numbers))
            self.current.update(dict.fromkeys(ops, left[pipe]))
            self.used[pipe] = opcode
            left[pipe].clock = self.pipes.add(pipe, self.pipes.start(pipe))
        self.pending += left.values()
        self.active |= inner.pipes
        self.plan.carries += carries

    def carries(self, op: Op) -> Iterator[_Carry]:
        """The running loads and products whose tiles a loop gets and replaces, in the order of its ops. There are none of a pipe
        if their order before the loop differs from that in it: an event would then not imply that earlier ones are complete."""
        if not is_for(op):
            return
        body, running = op.regions[0], {t for t in self.pending if t.signal is not None}
        blocks = [r for x in (op, *body.ops()) for r in x.regions]
        read = {x for y in body.ops() for x in y.operands} | {x for r in blocks for x in r.results}
        places = {entry: n for n, entry in enumerate(body.body)}
        by_pipe: dict[str, list[tuple[int, int, _Carry]]] = defaultdict(list)
        for k, (x, y) in enumerate(zip(op.operands[3:], body.results, strict=True)):
            alone = x not in read and op.operands[3:].count(x) == 1
            before = self.makers.get(x) if alone and isinstance(x, Value) else None
            again = y.op if isinstance(y, Value) else None
            if before is None or before not in running or again not in places or again is None:
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
        """Add a carried load or product, which may be running from here on, as the tile `v`."""
        pipe = PIPES.index(pipe_of(c.again))
        clock = self.pipes.add(pipe, self.pipes.start(pipe))
        place = self.pipes.places[pipe]
        result = _Task(c.again, c.ops, signal, opcodes(c.again)[0], pipe, place, clock, next(self.numbers))
        self.makers[v] = result
        self.current.update(dict.fromkeys(c.ops, result))
        self.pending.append(result)

    # Dependences

    def followed(self, op: Op) -> set[_Task]:
        """The tasks of this walk that an op depends on."""
        needed = self.function.needed
        before = {self.current[x] for x in needed.same.get(op, ()) if x in self.current}
        if self.previous and self.owner in needed.again:
            before |= {self.previous[x] for x in needed.again[self.owner].get(op, ()) if x in self.previous}
        return before

    def met(self, op: Op) -> set[_Task]:
        """The tasks that ops in the blocks of `op` depend on and that may be running."""
        needs = [(t, pipe) for x, pipe in self.function.inside(op) for t in self.followed(x)]
        return {t for t, pipe in needs if t.pipe != pipe and least(self.pipes.last[pipe][t.pipe]) < t.place}

    def forget(self) -> None:
        """Remove the complete tasks from the pending ones."""
        self.pending = [t for t in self.pending if self.pipes.issued[t.pipe] < t.place]

    # Waits

    def overlap(self, pipe: int, clock: Clock) -> None:
        """Record that ops of other pipes may run at the same time as one of this pipe that starts at `clock`."""
        for q, tasks in enumerate(self.lonely):
            while q != pipe and tasks and clock[q] < tasks[-1].place:
                self.plan.overlapped.add(tasks.pop().op)

    def flush(self, at: Op | None, met: Iterable[_Task]) -> None:
        """Make all later ops wait for tasks, except those that another of them implies. A task without a visible event is waited
        for by a barrier of its pipe."""
        waited = sorted(met, key=lambda t: t.number, reverse=True)
        for t in waited:
            if t.signal is None and self.pipes.issued[t.pipe] < t.place and not self.implied(t, waited):
                if at is not None:
                    self.needs.append((at, t, -1))
                self.barrier(at, t.pipe, t.opcode)
        clock, signals = self.pipes.issued, list[_Signal]()
        for t in waited:
            if clock[t.pipe] < t.place and t.signal is not None:
                signals.append(t.signal)
            clock = join(clock, t.clock)
        if signals:
            self.plan.syncs.append((self.region, at, signals[::-1]))
        self.pipes.issued = clock
        self.forget()

    def implied(self, task: _Task, waited: Iterable[_Task]) -> bool:
        """Whether a task is complete when another of the waited ones is."""
        return any(t is not task and least(t.clock[task.pipe]) >= task.place for t in waited)

    def barrier(self, at: Op | None, pipe: int, opcode: str) -> None:
        """Make all later ops wait for a pipe."""
        self.plan.barriers.append((self.region, at, opcode))
        self.pipes.barrier(pipe)

    def put_barriers(self, op: Op) -> None:
        """Place the barriers that were chosen for an op, if their pipes have running tasks."""
        for pipe, opcode in self.chosen.get(op, {}).items():
            if self.pipes.issued[pipe] < self.pipes.places[pipe]:
                self.barrier(op, pipe, opcode)

    # Where barriers are best

    def choice(self, needs: Sequence[tuple[Op, _Task, int]]) -> dict[Op, dict[int, str]]:
        """The places of barriers for tasks of the first iteration: by op and pipe, the opcode.

        A place is between the task and the op that needs it. It is before an op of the same pipe, or before the op that needs it.
        The best place is one with another barrier since the last op of the pipe, because the pipe works during that barrier.
        Otherwise it is the one with the most ops of other pipes since that op. Pipes with few ops choose first."""
        waits: dict[Op, dict[int, str]] = defaultdict(dict)
        at = {op: k for k, op in enumerate(self.steps)}
        n = len(self.steps)
        pipes = [self.pipes_in(op) for op in self.steps]
        many = [sum(p in own for own in pipes) for p in range(len(PIPES))]
        for user, need, pipe in sorted(needs, key=lambda x: many[x[1].pipe]):
            if user not in at or need.op not in at:
                continue
            start, end = at[need.op], at[user] + n  # among the steps of two iterations
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
        """The pipes of an op, or of the ops in its blocks."""
        if not op.regions:
            return {PIPES.index(pipe_of(op))}
        return self.function.summary(op, op.regions).pipes


def _rewrite(rw: Rewriter, plan: _Plan) -> int:
    """Add the events, waits, syncs and barriers; the number of events."""
    asynchronous = plan.asynchronous()
    names = unused_names(rw.block, "e")
    events: dict[_Signal, Value] = {}
    for c in plan.carries:
        events[c, False], events[c, True] = _carried(c, names)
    for op, waits in plan.waits.items():
        if op in asynchronous:
            events[op] = _asynchronous(rw, op, [events[w] for w in waits], next(names))
        elif waits:
            set_waits(rw, op, [events[w] for w in waits])
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
    """Make a loop carry one more event; its names in the loop and after it."""
    t, body = event(opcodes(c.again)[0]), c.op.regions[0]
    inside, after = Value(t, next(names)), Value(t, next(names), c.op)
    inside.users = after.users = NO_USERS
    body.params.append(inside)
    body.result_types.append(t)
    c.op.results = (*c.op.results, after)
    return inside, after


def _asynchronous(rw: Rewriter, op: Op, waits: list[Value], name: str) -> Value:
    """Replace `op` by the same op with an event; the event."""
    groups = op.defn.split(op.attrs, op.operands)
    groups[-1] = waits
    result = create(op.defn, groups, op.defn.named(op.attrs) | {"event": event(opcodes(op)[0])}, loc=op.loc)
    rw.insert_before(op, result)
    for old, new in zip(op.results, result.results, strict=False):
        rw.replace_all_uses(old, new)
    rw.erase(op)
    result.results[-1].name = name
    return result.results[-1]


def _waits(block: Region, own: set[Op]) -> list[Wait]:
    """The inserted waits, the most expensive first: barriers, syncs, and waits of single ops."""
    barriers = [(op, BARRIER) for op in filter(is_barrier, block.ops()) if op not in own]
    syncs, others = list[Wait](), list[Wait]()
    for op in block.ops():
        events = [i for i, x in enumerate(op.operands) if isinstance(operand_type(x), EventType)]
        if events and not op.regions and not is_call(op):
            (others if is_tile_op(op.defn) else syncs).extend((op, i) for i in events)
    return [*barriers, *syncs, *others]


def _drop_carried(rw: Rewriter, block: Region, carries: Iterable[_Carry]) -> None:
    """Remove the events that loops carry and nothing waits for."""
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
    """Remove waits."""
    gone: dict[Op, set[int]] = defaultdict(set)
    for op, i in waits:
        gone[op].add(i)
    for op, places in gone.items():
        left = [x for i, x in enumerate(op.operands) if i not in places]
        if BARRIER in places or (not is_tile_op(op.defn) and not left):
            rw.erase(op)
            continue
        if is_tile_op(op.defn):
            set_waits(rw, op, left[len(left) + len(places) - op.attr(SEGMENTS)[-1] :])
        else:
            rw.set_operands(op, left)
