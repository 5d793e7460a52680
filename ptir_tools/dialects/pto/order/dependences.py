"""Dependences between the ops of a function, and redundant waits, from the walk of the hazard check.

The check tests whether conflicting ops are complete. This walk records the conflicts of every op, whether they are waited for or
not: the ops that made its tiles, and the ops of other pipes with conflicting accesses. An earlier op need not be recorded if it
must be complete before a recorded one: because that one conflicts with it, too, or follows it in its pipe.

The clocks can then be recomputed as if a wait were not there. If every op still finds its dependences complete, the wait is
redundant. At a call, and at the end of a function, all ops must be complete.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from heapq import merge
from operator import attrgetter

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Op, Operand, Value, operand_type
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.dialects.pto.affine import Linear
from ptir_tools.dialects.pto.carried import carried
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory.windows import Access, access_of, on_chip_bytes, overlap, placed
from ptir_tools.dialects.pto.ops.memory import is_load, touches_memory
from ptir_tools.dialects.pto.order.clocks import ZERO, Clock, State, advanced
from ptir_tools.dialects.pto.order.decisions import ALWAYS, NEVER, Number, TooManyConditions
from ptir_tools.dialects.pto.order.hazards import HazardAnalysis, HazardWalk, Task, TaskAccess, merged_clock, walks
from ptir_tools.dialects.pto.order.traces import Role
from ptir_tools.dialects.pto.order.values import Alternatives
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, pipe_of, pipes_of_barrier
from ptir_tools.dialects.pto.structure import is_barrier, is_loop, is_sync, tiles_of, value_of
from ptir_tools.dialects.pto.targets import Target, target_of
from ptir_tools.dialects.pto.types import EventType

_place = attrgetter("place")
BARRIER = -1  # in the place of an operand: the op is a barrier itself
Wait = tuple[Op, int]  # an op, and which of its operands is the event
Clocks = tuple[Clock, tuple[Clock, ...]]  # what is complete before the next op is issued, and of the last op of each pipe


@dataclass(slots=True)
class Dependences:
    """The ops that each op must follow: in the same iteration of all common loops, and, by loop, in an earlier iteration of
    it."""

    same: dict[Op, set[Op]] = field(default_factory=lambda: defaultdict(set))
    again: dict[Op, dict[Op, set[Op]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))

    def add(self, later: Op, earlier: Op, loop: Op | None) -> None:
        (self.same if loop is None else self.again[loop])[later].add(earlier)


def dependences(program: Program, function: Function) -> Dependences:
    """The dependences of a function without events. Where the walk does not cover all iterations, they are conservative: all
    pairs that may conflict."""
    with collector_paused():
        found = Dependences()
        for walk in recorded_walks(program, function):
            if walk.unproved or walk.truncated:
                return _conservative(function, walk.target)
            for task, needs in walk.needs():
                for earlier, _ in needs:
                    if earlier.pipe != task.pipe:
                        found.add(task.op, earlier.op, _between(earlier, task))
        return found


def redundant_waits(program: Program, function: Function, waits: Iterable[Wait]) -> Iterator[Wait]:
    """The waits that can all be removed together; earlier ones are preferred."""
    with collector_paused():
        walks = list(recorded_walks(program, function))
        for walk in walks:
            if walk.unproved or walk.truncated or walk.decisions.narrowed:
                return
        for wait in waits:
            try:
                changes = [walk.without(wait) for walk in walks]
            except TooManyConditions:
                return
            found = [c for c in changes if c is not None]
            if len(found) == len(walks):
                for walk, change in zip(walks, found, strict=True):
                    walk.remove_wait(change)
                yield wait


def recorded_walks(program: Program, function: Function) -> Iterator[RecordingWalk]:
    """The walks through a function, one for each case of its parameters."""
    yield from walks(function, partial(RecordingWalk, HazardAnalysis(program, target_of(program, Options()))))


def _between(earlier: Task, later: Task) -> Op | None:
    """The outermost loop of which two tasks are in different iterations; None in the same iteration."""
    for (loop, k), (other, n) in zip(earlier.iterations, later.iterations, strict=False):
        if loop is not other:
            return None
        if k != n:
            return loop
    return None


def _latest_first(lists: list[list[TaskAccess]]) -> Iterator[TaskAccess]:
    return reversed(lists[0]) if len(lists) == 1 else merge(*map(reversed, lists), key=_place, reverse=True)


class _Step(NamedTuple):
    """A step of the walk that changes clocks. It is a task with its events and dependences, a sync or call with its events, a
    barrier of pipes, or a state that was saved, restored or merged."""

    task: Task | None = None
    asynchronous: bool = False
    op: Op | None = None  # that waits
    when: Number = ALWAYS  # the condition under which it runs
    events: tuple[tuple[int, Alternatives], ...] = ()
    needs: tuple[tuple[Task, Number], ...] = ()
    pipes: tuple[int, ...] = ()
    closed: bool = False  # all has to be complete
    saved: State | None = None
    restored: State | None = None
    merged: tuple[State, Number, State, State] | None = None


@dataclass(slots=True, eq=False)
class Span:
    """One execution of an event: the step that signals it, and its waits, each with its pipe, step, condition and operand."""

    task: Task
    start: int
    waits: list[tuple[int, int, Number, Value]] = field(default_factory=list)


@dataclass(slots=True)
class _Change:
    """The clocks without a wait, where they differ."""

    wait: Wait
    clocks: dict[int, Clocks] = field(default_factory=dict)  # before each step
    tasks: dict[Task, Clock] = field(default_factory=dict)
    states: dict[State, Clocks] = field(default_factory=dict)


class RecordingWalk(HazardWalk):
    """The walk through a function that records the conflicts of every op and the steps of the clocks."""

    def __init__(self, whole: HazardAnalysis) -> None:
        super().__init__(whole)
        self.steps: list[_Step] = []
        self.clocks: list[Clocks] = []  # before each step
        self.conflicts: list[tuple[Task, Number]] = []  # by the op at hand
        self.events: tuple[tuple[int, Alternatives], ...] = ()  # that it waits for
        self.steps_of: dict[Wait, list[int]] = defaultdict(list)  # the steps of each wait
        self.last_reference: dict[object, int] = {}  # the last step that needs the clock of a task, or a state
        self.removed: set[Wait] = set()

    def needs(self) -> Iterator[tuple[Task, tuple[tuple[Task, Number], ...]]]:
        """Every task with those that must be complete before it."""
        return ((s.task, s.needs) for s in self.steps if s.task is not None)

    def spans(self) -> list[Span]:
        """Every execution of an event, in the order in which they are signaled. A sync and a call wait in pipe S."""
        found: dict[Task, Span] = {}
        for at, step in enumerate(self.steps):
            pipe = step.task.pipe if step.task is not None else PIPES.index("S")
            for i, ways in step.events:
                assert step.op is not None
                for when, task in ways:
                    found[task].waits.append((pipe, at, self.both(when, step.when), value_of(step.op.operands[i])))
            if step.task is not None and step.asynchronous:
                found[step.task] = Span(step.task, at)
        return list(found.values())

    # The walk

    def record(self, step: _Step, before: Clocks) -> None:
        at = len(self.steps)
        self.steps.append(step)
        self.clocks.append(before)
        for i, ways in step.events:
            assert step.op is not None
            self.steps_of[step.op, i].append(at)
            self.last_reference.update((t, at) for _, t in ways)
        if step.pipes and step.op is not None:
            self.steps_of[step.op, BARRIER].append(at)
        if step.restored is not None:
            self.last_reference[step.restored] = at
        if step.merged is not None:
            self.last_reference.update(dict.fromkeys((step.merged[2], step.merged[3]), at))

    def now(self) -> Clocks:
        return self.pipes.issued, tuple(self.pipes.last)

    def function(self, function: Function, case: Mapping[Value, Linear]) -> None:
        super().function(function, case)
        if not self.stopped:
            self.record(_Step(closed=True), self.now())

    def task(self, op: Op, role: Role) -> Task:
        before, self.conflicts, self.events = self.now(), [], ()
        task = super().task(op, role)
        self.record(_Step(task, role.asynchronous, op, task.when, self.events, tuple(self.conflicts)), before)
        return task

    def step(self, op: Op, role: Role) -> None:
        before, self.conflicts, self.events = self.now(), [], ()
        super().step(op, role)
        if is_sync(op):
            self.record(_Step(op=op, when=self.path_condition, events=self.events), before)
        elif is_barrier(op):
            self.record(_Step(op=op, pipes=tuple(pipes_of_barrier(op.attr("opcode")))), before)

    def wait_events(self, op: Op, events: tuple[int, ...], clock: Clock, pipe: int | None) -> Clock:
        self.events = tuple([(i, self.options(op.operands[i])) for i in events])
        for _, ways in self.events:
            clock = self.join(clock, self.event_clock(ways, {}))
        return clock

    def check_tiles(self, op: Op, tiles: tuple[int, ...], clock: Clock) -> None:
        for i in tiles:
            for when, tile in self.options(op.operands[i]):
                if tile.task is not None:
                    self.add_conflict(tile.task, self.both(self.both(self.path_condition, when), tile.task.when))

    def add_conflict(self, task: Task, when: Number) -> None:
        if when != NEVER:
            self.conflicts.append((task, when))

    def check_access(self, touch: TaskAccess, access: Access, clock: Clock) -> None:
        """Record the last conflicting accesses of the other pipes, under every condition. Accesses that this one covers are
        dropped, because later conflicts with them are conflicts with this one, too."""
        windows = self.accessed(access.root)
        window = windows.of(access)
        mine = touch.task.pipe
        found: dict[int, list[list[TaskAccess]]] = {}
        for other in window.meets:
            for (pipe, writes), touches in other.touches.items():
                if pipe != mine and (touch.writes or writes):
                    found.setdefault(pipe, []).append(touches)
        for lists in found.values():
            left = touch.when  # where this op runs; `earlier.when` is where the earlier one does
            for earlier in _latest_first(lists):
                self.add_conflict(earlier.task, self.both(left, earlier.when))
                left = self.both(left, self.decisions.negated(earlier.when))
                if left == NEVER:
                    break
        if touch.when == ALWAYS:
            for other in window.covers:
                if touch.writes:
                    other.touches.clear()
                else:
                    other.touches.pop((mine, False), None)
        windows.add(window, mine, touch.writes, touch)

    def state(self) -> State:
        made = super().state()
        self.record(_Step(saved=made), self.now())
        return made

    def restore(self, state: State) -> None:
        self.record(_Step(restored=state), self.now())
        super().restore(state)

    def merged_state(self, condition: Number, then: State, otherwise: State) -> State:
        made = super().merged_state(condition, then, otherwise)
        self.record(_Step(merged=(made, condition, then, otherwise)), self.now())
        return made

    def call(self, op: Op) -> None:
        """All ops must be complete at the call; nothing is known of its results."""
        events = tuple([(i, self.options(x)) for i, x in enumerate(op.operands) if isinstance(operand_type(x), EventType)])
        self.record(_Step(op=op, when=self.path_condition, events=events, closed=True), self.now())
        if self.path_condition == ALWAYS:
            self.windows = {}
        for v in op.results:
            self.bind(v, self.unknown_value(v))

    def unsynchronized_call(self, ops: Iterable[Op]) -> str | None:
        return None

    # Without a wait

    def without(self, wait: Wait) -> _Change | None:
        """The clocks without a wait; None if a conflicting op may then be running."""
        found = _Change(wait)
        places = self.steps_of.get(wait, [])
        self.path_condition = ALWAYS
        at, until = (places[0], -1) if places else (len(self.steps), -1)
        clocks = self.clocks[at] if places else (ZERO, ())
        while at < len(self.steps):
            if clocks != self.clocks[at]:
                found.clocks[at] = clocks
            elif at > until:  # from here on all is as it was, until it is waited for again
                n = bisect_left(places, at)
                if n == len(places):
                    break
                at = places[n]
                clocks = self.clocks[at]
            after = self.clocks_after(self.steps[at], clocks, found)
            if after is None:
                return None
            step, clocks = self.steps[at], after
            for changed in (step.task, step.saved, step.merged[0] if step.merged is not None else None):
                if changed is not None and (changed in found.tasks or changed in found.states):
                    until = max(until, self.last_reference.get(changed, -1))
            at += 1
        return found

    def clocks_after(self, step: _Step, clocks: Clocks, change: _Change) -> Clocks | None:
        """The clocks after a step; None if a dependence is not complete."""
        issued, last = clocks
        if step.task is not None:
            return self.clocks_after_task(step, clocks, change)
        if step.op is not None and not step.closed:
            for i, ways in step.events:
                if self.waits((step.op, i), change):
                    issued = self.join(issued, self.event_clock(ways, change.tasks))
            for p in step.pipes if self.waits((step.op, BARRIER), change) else ():
                issued = self.join(issued, last[p])
            return issued, last
        if step.closed:
            complete = all(
                self.decisions.greater(a, clock[p]) == a for p, (a, clock) in enumerate(zip(issued, last, strict=True))
            )
            return clocks if complete else None
        if step.saved is not None:
            if clocks != (step.saved.issued, tuple(step.saved.last)):
                change.states[step.saved] = clocks
            return clocks
        if step.restored is not None:
            return self.clocks_of(step.restored, change)
        assert step.merged is not None
        made, condition, then, otherwise = step.merged
        (a, before), (b, other) = self.clocks_of(then, change), self.clocks_of(otherwise, change)
        ends = tuple([merged_clock(self.decisions, condition, x, y) for x, y in zip(before, other, strict=True)])
        whole = merged_clock(self.decisions, condition, a, b), ends
        if whole != (made.issued, tuple(made.last)):
            change.states[made] = whole
        return clocks

    def clocks_after_task(self, step: _Step, clocks: Clocks, change: _Change) -> Clocks | None:
        issued, last = clocks
        task, op = step.task, step.op
        assert task is not None and op is not None
        clock = self.join(issued, last[task.pipe])
        for i, ways in step.events:
            if self.waits((op, i), change):
                clock = self.join(clock, self.event_clock(ways, change.tasks))
        if any(earlier.pipe != task.pipe and self.may_be_running(clock, earlier, when) for earlier, when in step.needs):
            return None
        clock = advanced(clock, task.pipe, task.place)
        if clock != task.clock:
            change.tasks[task] = clock
        if not step.asynchronous:
            issued = self.join(issued, clock)
        return issued, (*last[: task.pipe], clock, *last[task.pipe + 1 :])

    def waits(self, wait: Wait, change: _Change) -> bool:
        return wait != change.wait and wait not in self.removed

    def clocks_of(self, state: State, change: _Change) -> Clocks:
        return change.states.get(state) or (state.issued, tuple(state.last))

    def remove_wait(self, change: _Change) -> None:
        """Apply the removal of a wait."""
        self.removed.add(change.wait)
        for at, clocks in change.clocks.items():
            self.clocks[at] = clocks
        for task, clock in change.tasks.items():
            task.clock = clock
        for state, (issued, last) in change.states.items():
            state.issued, state.last = issued, list(last)


# Where a walk does not show all


class _User(NamedTuple):
    """A tile op, the loops around it, the ops that may make its tiles, and its accesses."""

    op: Op
    loops: tuple[Op, ...]
    made_by: set[Op]
    touches: list[tuple[Access | None, bool]]

    def follows(self, earlier: _User, same: bool) -> bool:
        """Whether it may conflict with an earlier op, in the `same` iteration of all common loops or in another one."""
        pairs = ((x, y) for x, writes in self.touches for y, also in earlier.touches if writes or also)
        return earlier.op in self.made_by or any(
            x is None or y is None or (x.root is y.root and (not same or overlap(x, y) is not None)) for x, y in pairs
        )


def _conservative(function: Function, target: Target | None) -> Dependences:
    """Dependences between any two ops that may conflict: in one iteration where their windows may overlap, in different
    iterations always."""
    sources = {v: [c.given(*place) for place in c.sources] for op in function.ops() for c in carried(op) for v in c.homes}
    homes = placed([function])
    scratch = on_chip_bytes("Vec", *target.scratch) if homes and target is not None and target.scratch is not None else None
    users = [_user(op, loops, sources, homes, scratch) for op, loops in _loops(function.body, ()) if is_tile_op(op.defn)]
    found = Dependences()
    for n, b in enumerate(users):
        for k, a in enumerate(users):
            if pipe_of(a.op) == pipe_of(b.op):
                continue
            if k < n and b.follows(a, same=True):
                found.add(b.op, a.op, None)
            common = [x for x, y in zip(a.loops, b.loops, strict=False) if x is y]
            for loop in common if common and b.follows(a, same=False) else ():
                found.add(b.op, a.op, loop)
    return found


def _loops(body: Iterable[Op], around: tuple[Op, ...]) -> Iterator[tuple[Op, tuple[Op, ...]]]:
    """Every op with the loops around it."""
    for op in body:
        yield op, around
        for r in op.regions:
            yield from _loops(r.body, (*around, op) if is_loop(op) else around)


def _user(
    op: Op,
    loops: tuple[Op, ...],
    sources: Mapping[Value, list[Operand]],
    homes: Mapping[Value, Access],
    scratch: Access | None,
) -> _User:
    seen = dict.fromkeys(tiles_of(op))
    for v in (todo := list(seen)):
        more = [x for x in sources.get(v, ()) if isinstance(x, Value) and x not in seen]
        seen |= dict.fromkeys(more)
        todo += more
    touches: list[tuple[Access | None, bool]] = [(access_of(op), not is_load(op))] if touches_memory(op) else []
    for values, writes in ((op.operands, False), (op.results, True)):
        touches += [(homes[v], writes) for v in values if isinstance(v, Value) and v in homes]
    if scratch is not None and facts(op).scratch:
        touches.append((scratch, True))
    return _User(op, loops, {v.op for v in seen if v.op is not None and v not in sources}, touches)
