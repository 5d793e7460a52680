"""The hazard check: every use of an asynchronous result, and every two conflicting accesses of one memory, must be ordered.

Order comes from events that are waited for, from the order of one pipe, and from synchronous ops, which complete before the
next op is issued. Each op has a clock: per pipe, the number of tasks that are certainly complete. Tasks are numbered along the
walk. Op A is complete before op B starts exactly when the clock of B has reached A's number. After a branch, an entry of a clock
may depend on the condition (`decisions`). Two ops are a hazard if there are conditions under which both run and are not ordered.

The same walk reports three errors of program order. `TileOverwritten` is the use of a tile whose bytes were overwritten,
`TileMoved` an assignment of an address to a tile that has another one. `EventIdReused` is an event id that is set again before it
was waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from operator import attrgetter

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.ir import Function, Op, Operand, Value, operand_type
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.core.typed import Any, TypeVar
from ptir_tools.core.violations import Place, Violation, attribute, operand
from ptir_tools.dialects.pto.affine import constant, linear
from ptir_tools.dialects.pto.facts import Extents, facts
from ptir_tools.dialects.pto.memory.info import infer, tile_bytes
from ptir_tools.dialects.pto.memory.windows import Access, Windows, on_chip, on_chip_bytes, overlap
from ptir_tools.dialects.pto.ops.memory import accessed_tile, is_load
from ptir_tools.dialects.pto.order.clocks import ZERO, Clock, Pipes, State, join
from ptir_tools.dialects.pto.order.decisions import ALWAYS, NEVER, Decisions, Number, Undecided
from ptir_tools.dialects.pto.order.traces import Case, Iterations, Role, Walk
from ptir_tools.dialects.pto.order.values import Alternatives
from ptir_tools.dialects.pto.pipes import PIPES, asynchronous, pipes_of_barrier
from ptir_tools.dialects.pto.structure import callees, is_assign, is_barrier, is_sync, own_assignments, tile_type, value_of
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target, target_of
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType
from ptir_tools.dialects.pto.valid import declared, stated, unknown, valid_of

_place, _number = attrgetter("place"), attrgetter("number")
_MAX_ALTERNATIVES = 16  # of one valid region
_UNKNOWN: Alternatives = ()
K = TypeVar("K")
T = TypeVar("T")
MAX_BELOW_ZERO = 100  # cases with a parameter below 0


@dataclass(slots=True, eq=False)
class Task:
    """One execution of an op: its number in its pipe, its condition, its clock when it is complete, and the iterations it is
    in."""

    op: Op
    pipe: int
    place: int
    clock: Clock
    when: Number
    iterations: Iterations = ()


@dataclass(slots=True, eq=False)
class TaskAccess:
    """One access of memory by a task; `access` is the window. A write has its number among all writes on the chip."""

    task: Task
    place: int
    access: Access
    writes: bool
    when: Number
    number: int = 0
    scratch: bool = False


@dataclass(slots=True, eq=False)
class _Tile:
    """One execution of a tile's definition: the task (None for an argument), the valid region, the address range, which the op
    `bound` gives, and the number of the last write on the chip by then."""

    value: Value
    task: Task | None
    valid: Alternatives
    home: Access | None = None
    bound: Op | None = None
    number: int = 0


@dataclass(slots=True, eq=False)
class _FlagSet:
    """One execution of an event with an id: the pipes that waited for it, and earlier sets of the id that those pipes waited
    for later."""

    task: Task
    waits: list[tuple[int, Number]] = field(default_factory=list)
    pending_before: list[tuple[int, tuple[Task, Number]]] = field(default_factory=list)


@dataclass(slots=True)
class _Findings:
    """The findings of one walk. Each pair of ops is reported once: as an error if it is certain, else as a warning."""

    missing: dict[tuple[Op, Op], Value] = field(default_factory=dict)
    conflicts: dict[tuple[Op, Op], tuple[str, bool]] = field(default_factory=dict)
    overwrites: dict[tuple[Op, Op], tuple[Value, bool, bool]] = field(default_factory=dict)
    reused: dict[tuple[Op, Op], tuple[int, str, str, Value]] = field(default_factory=dict)
    outside: dict[Op, tuple[str, str]] = field(default_factory=dict)
    moved: dict[Op, tuple[int, Op, bool]] = field(default_factory=dict)  # the address before, where it is from, whether certain
    needed: set[tuple[Op, int]] = field(default_factory=set)  # waits that order something in some iteration
    idle: set[tuple[Op, int]] = field(default_factory=set)  # waits that order nothing in some iteration
    unplaced: set[Op] = field(default_factory=set)  # assignments to addresses that are not known

    @property
    def clean(self) -> bool:
        """Whether there is no error, and nothing that could not be proved."""
        found = (self.missing, self.conflicts, self.overwrites, self.reused, self.outside, self.moved, self.unplaced)
        return not any(found)

    def add(self, other: _Findings) -> None:
        """Add the findings of another walk; of equal ones a certain one is kept."""
        self.missing = other.missing | self.missing
        _add(self.conflicts, other.conflicts, lambda hazard: hazard[1])
        _add(self.overwrites, other.overwrites, lambda over: over[1])
        self.reused = other.reused | self.reused
        self.outside = other.outside | self.outside
        _add(self.moved, other.moved, lambda moved: moved[2])
        self.needed |= other.needed
        self.idle |= other.idle
        self.unplaced |= other.unplaced


def _add(mine: dict[K, T], theirs: Mapping[K, T], certain: Callable[[T], bool]) -> None:
    mine.update((key, found) for key, found in theirs.items() if key not in mine or certain(found))


def check(
    program: Program, diagnostics: Diagnostics, target: Target | None = None, functions: Sequence[Function] | None = None
) -> None:
    """Report the hazards of `functions`, or of all: missing waits, unordered accesses, overwritten tiles, reused event ids,
    unused events and waits."""
    whole = HazardAnalysis(program, target or target_of(program, Options()))
    for function in functions or program.functions:
        if function in whole.ordered:
            _report(whole.run(function), function, diagnostics)


def is_truncated(program: Program, function: Function) -> bool:
    """Whether the walk of a function was cut short because too many conditions meet."""
    return HazardAnalysis(program, target_of(program, Options())).run(function).truncated


class HazardAnalysis:
    """The walks of the functions of a program, each made once, when it is first needed."""

    def __init__(self, program: Program, target: Target | None) -> None:
        self.program = program
        self.target = target
        self.runs: dict[Function, HazardWalk] = {}
        self.reported: set[object] = set()
        self.assigned: dict[Value, Op] = {}  # tiles that get an address in the block that makes them
        self.tiles: dict[Value, TileType] = {}  # of functions with addresses
        called: dict[Function, list[Function]] = {}
        self.later: dict[Op, set[Value]] = {}  # per assignment, values of its address that are defined after the tile
        self.ordered: set[Function] = set()  # those with events or addresses, and those that call them
        for function in program.functions:
            ops = list(function.ops())
            called[function] = callees(ops, program)
            bound = [*filter(is_assign, ops)]
            self.tiles |= infer(function, target) if bound else {}
            for v, op in own_assignments(function):
                self.assigned.setdefault(v, op)
            places = {op: n for n, op in enumerate(ops)} if bound else {}
            for op in bound:
                tile = op.operands[0]
                if (
                    isinstance(tile, Value)
                    and tile.op is not None
                    and (later := _defined_after(op.operands[1], places, places[tile.op]))
                ):
                    self.later[op] = later
            if bound or any(map(asynchronous, ops)):
                self.ordered.add(function)
        while more := {f for f in program.functions if f not in self.ordered and self.ordered.intersection(called[f])}:
            self.ordered |= more

    def run(self, function: Function) -> HazardWalk:
        """The merged walks of a function."""
        if (found := self.runs.get(function)) is None:
            for run in walks(function, partial(HazardWalk, self)):
                found = run if found is None else found.merged_with(run)
            assert found is not None
            self.runs[function] = found
        return found

    def unreported(self, kind: str, found: Mapping[K, T]) -> Iterator[tuple[K, T]]:
        """The findings that were not reported by the walk of another function."""
        for key, value in found.items():
            if (kind, key, value) not in self.reported:
                self.reported.add((kind, key, value))
                yield key, value


def _defined_after(x: Operand, places: Mapping[Op, int], place: int) -> set[Value]:
    """The values that `x` is computed from and that ops after `place` define."""
    found, todo = set[Value](), [x]
    while todo:
        v = todo.pop()
        if isinstance(v, Value) and v.op is not None and v not in found and places[v.op] > place:
            found.add(v)
            todo += v.op.operands
    return found


def _report(run: HazardWalk, function: Function, diagnostics: Diagnostics) -> None:
    found, new = run.found, run.whole.unreported
    for (user, producer), v in new("missing", found.missing):
        event = producer.results[-1].name
        message = f"%{v.name} is made asynchronously and used before %{event} is waited for"
        labels = [(producer.loc, f"completes with %{event}")]
        hint = f"add `wait(%{event})` to the op that uses %{v.name}"
        diagnostics.violation(Violation("MissingWait", message, at=_used(user, v), labels=labels, help=hint), user.loc, user)
    for (second, first), (kind, certain) in new("memory", found.conflicts):
        if (second, first) not in found.missing:
            _report_memory(second, first, kind, certain, diagnostics)
    for (user, writer), (v, certain, scratch) in new("over", found.overwrites):
        if scratch:
            _report_scratch(user, writer, v, run, diagnostics)
            continue
        verb = "was" if certain else "may have been"
        message = f"%{v.name} is used here, and its memory {verb} overwritten"
        hint = "bind the later tile to another address, or use the earlier one first"
        lost = Violation("TileOverwritten", message, at=_used(user, v), labels=[(writer.loc, "overwritten here")], help=hint)
        diagnostics.violation(lost, user.loc, user, Severity.ERROR if certain else Severity.WARNING)
    for op, (code, message) in new("outside", found.outside):
        diagnostics.violation(Violation(code, message, at=operand(1)), op.loc, op)
    for op, (before, by, certain) in new("moved", found.moved):
        name, verb = value_of(op.operands[0]).name, "lies" if certain else "may lie"
        message = f"%{name} is bound to {constant(op.operands[1])}, and {verb} at {before}; binding moves nothing"
        moved = Violation("TileMoved", message, at=operand(1), labels=[(by.loc, f"{before} here")])
        diagnostics.violation(moved, op.loc, op, Severity.ERROR if certain else Severity.WARNING)
    for (second, first), (eid, source, target, v) in new("reused", found.reused):
        message = f"eid {eid} from {source} to {target} is set again before %{v.name}, which has the same id, was waited for"
        hint = "use another id, or leave ids to `ptir opt -p pto-allocate-event-ids`"
        reused = Violation("EventIdReused", message, at=attribute("eid"), labels=[(first.loc, "set here")], help=hint)
        diagnostics.violation(reused, second.loc, second)
    for op, _ in new("unplaced", dict.fromkeys(found.unplaced)):
        message = "the address is not known: whether the tile overwrites another is not checked"
        diagnostics.warning("Unproved", message, op.loc)
    for op, _ in new("unproved", dict.fromkeys(run.unproved)):
        diagnostics.warning("Unproved", f"the order of this loop's ops is not proved: {run.unproved[op]}", op.loc)
    if run.decisions.narrowed:
        message = "too many conditions meet here: a clock is replaced by its least value"
        diagnostics.warning("Unproved", message, function.loc, help="some of the reported hazards may be false")
    if run.truncated:
        message = "the order of ops is proved only in part: too many conditions meet in its loops and branches"
        diagnostics.warning("Unproved", message, function.loc, help="a run reports the races that it reaches")
        return
    _report_unused(run, function, diagnostics)


def _report_scratch(user: Op, writer: Op, v: Value, run: HazardWalk, diagnostics: Diagnostics) -> None:
    assert run.target is not None and run.target.scratch is not None
    start, size = run.target.scratch
    where = f"bytes {start} to {start + size} of Vec, which {writer.defn.short} uses for itself on {run.target.name}"
    message = f"%{v.name} is live in {where}: {start} bytes are left while it runs"
    hint = "bind it to a lower address, or use smaller tiles"
    taken = Violation("CapacityExceeded", message, at=_used(user, v), labels=[(writer.loc, "uses the scratch")], help=hint)
    diagnostics.violation(taken, user.loc, user)


def _used(user: Op, v: Value) -> Place | None:
    """The operand place of a value in an op; None where the value has another name there."""
    return operand(user.operands.index(v)) if v in user.operands else None


def _report_memory(second: Op, first: Op, kind: str, certain: bool, diagnostics: Diagnostics) -> None:
    verb = "overlap" if certain else "may overlap"
    message = f"{kind}: this access and an earlier one, not ordered with it, {verb}"
    hint = f"add `wait(%{first.results[-1].name})`" if asynchronous(first) else None
    report = diagnostics.error if certain else diagnostics.warning
    report("MemoryHazard", message, second.loc, labels=[(first.loc, "the earlier access")], help=hint)


def _report_unused(run: HazardWalk, function: Function, diagnostics: Diagnostics) -> None:
    """Report events that are never waited for, and waits that never order anything."""
    ops = list(function.ops())
    used: set[object] = set().union(*[op.operands for op in ops])
    used.update(*[block.results for block in function.blocks()])
    for op in filter(asynchronous, ops):
        task, v = run.asynchronous.get(op), op.results[-1]
        # a wait for a later op of the pipe is one for this
        if task is not None and v not in used and run.waited[task.pipe] < task.place:
            message = f"nothing waits for %{v.name}; the op completes at the latest when the function returns"
            diagnostics.warning("UnwaitedEvent", message, op.loc, help="wait for it, or leave the event out")
    idle = run.found.idle - run.found.needed
    for op in ops if idle else ():  # only ops of this function
        for i, x in enumerate(op.operands):
            if isinstance(x, Value) and (op, i) in idle:
                message = f"wait(%{x.name}) orders nothing: the op is complete, or earlier in the same pipe"
                diagnostics.violation(Violation("RedundantWait", message, at=operand(i)), op.loc, op, Severity.NOTE)


R = TypeVar("R", bound="HazardWalk")


def walks(function: Function, new: Callable[[], R]) -> Iterator[R]:
    """The walks through a function, one for each case of its parameters (`Walk.cases`)."""
    cases = new().cases(function)
    widest = 0
    for case in cases.natural:
        run = new()
        run.function(function, case)
        widest = max(widest, run.max_window)
        yield run
    for p, loops in cases.begins.items():
        first = list(_walks_below_zero(function, new, cases.below(p, 1, cases.ring)))
        step = max(constant(op.operands[2]) or 0 for op in loops)
        most = cases.ring + (widest + 1) * step
        if all(run.stopped for run in first):  # lower values stop, too
            yield from first
        elif len(cases.natural) > cases.ring or not step or most > MAX_BELOW_ZERO:
            run = new()
            run.stopped, run.unproved = True, {loops[0]: "it may begin below 0, where remainders are negative"}
            yield run
        else:
            yield from first
            yield from _walks_below_zero(function, new, cases.below(p, cases.ring + 1, most))


def _walks_below_zero(function: Function, new: Callable[[], R], cases: Iterable[Case]) -> Iterator[R]:
    for case in cases:
        run = new()
        run.starts_below_zero = True
        run.function(function, case)
        yield run


class HazardWalk(Walk):
    """The walk through a function that computes clocks and collects findings."""

    def __init__(self, whole: HazardAnalysis) -> None:
        super().__init__(whole.program)
        self.whole = whole
        self.found = _Findings()
        self.target = whole.target
        self.pipes = Pipes(self.join)
        self.windows: dict[Value, Windows[TaskAccess]] = {}  # per memref argument, or space: its accesses so far
        self.writes = 0  # on the chip
        self.bound: list[TaskAccess] = []  # tiles that no op makes, which get an address
        self.placed = bool(whole.tiles)
        self.first: dict[Op, Number] = {}  # the condition under which an assignment is first reached
        self.leaves_open = False  # whether another walk through the same function ends with running ops
        self.asynchronous: dict[Op, Task] = {}  # the last task of each op
        self.waited = [0] * len(PIPES)  # per pipe, the last task that something waited for
        self.flags: dict[Task, _FlagSet] = {}  # events that state an id
        self.sets: dict[tuple[int, str, int | None], list[_FlagSet]] = {}  # the same by pipe, scope and id, in order

    # Forks and joins

    def state(self) -> State:
        return self.pipes.state()

    def restore(self, state: State) -> None:
        self.pipes.restore(state)

    def merged_state(self, condition: Number, then: State, otherwise: State) -> State:
        pick = self.decisions
        last = [merged_clock(pick, condition, a, b) for a, b in zip(then.last, otherwise.last, strict=True)]
        return State(merged_clock(pick, condition, then.issued, otherwise.issued), last)

    # Calls

    def all_complete(self) -> bool:
        ends = [(done, clock[p]) for p, (done, clock) in enumerate(zip(self.pipes.issued, self.pipes.last, strict=True))]
        return not self.leaves_open and all(d is last or self.decisions.greater(d, last) == d for d, last in ends)

    def completes(self, callee: Function) -> bool:
        return callee not in self.whole.ordered or self.whole.run(callee).all_complete()

    def isolated(self, op: Op, callee: Function) -> bool:
        """Whether the call needs no walk. The callee has no findings and completes all its ops, all ops before the call are
        complete, no address or event id is in use, and the memrefs are distinct."""
        memory = [self.options(x) for x in op.operands if isinstance(operand_type(x), MemRefType)]
        views = {views[0][1].root for views in memory if len(views) == 1}
        other = any(isinstance(operand_type(x), (TileType, EventType)) for x in op.operands)
        if other or op.results or len(views) < len(memory) or self.writes or self.flags or not self.all_complete():
            return False
        if callee not in self.whole.ordered:
            return True
        run = self.whole.run(callee)
        return run.all_complete() and run.clean()

    def merged_with(self, other: HazardWalk) -> HazardWalk:
        """This walk with the findings of another one, which has other values of parameters."""
        self.found.add(other.found)
        self.unproved |= other.unproved
        self.truncated |= other.truncated
        self.decisions.narrowed |= other.decisions.narrowed
        self.leaves_open |= not (other.stopped or other.all_complete())
        return self

    def clean(self) -> bool:
        """Whether there is no error, and nothing that could not be proved."""
        return self.found.clean and not (self.unproved or self.decisions.narrowed)

    # Ops

    def step(self, op: Op, role: Role) -> None:
        if role.tile_op:
            self.task(op, role)
        elif is_barrier(op):
            self.barrier(op.attr("opcode"))
        elif is_assign(op):
            self.assign_address(op)
        else:
            clock = self.wait_events(op, role.events, self.pipes.issued, None)
            self.check_tiles(op, role.tiles, clock)
            if is_sync(op):
                self.pipes.issued = clock

    def barrier(self, opcode: str) -> None:
        for i in pipes_of_barrier(opcode):
            self.waited[i] = self.pipes.places[i]
            self.pipes.barrier(i)

    def join(self, a: Clock, b: Clock) -> Clock:
        """The clock of an op that runs after both clocks."""
        try:
            return join(a, b)
        except Undecided:
            greater = self.decisions.greater
            return tuple([greater(x, y) for x, y in zip(a, b, strict=True)])

    def wait_events(self, op: Op, events: tuple[int, ...], clock: Clock, pipe: int | None) -> Clock:
        """`clock`, joined with those of the events that the op waits for. Records which waits order something."""
        waits = [(i, self.event_clock(self.options(op.operands[i]), {})) for i in events]
        before = clock
        for n, (i, own) in enumerate(waits):
            others = before
            for m, (j, other) in enumerate(waits):
                if m > n or (m < n and (op, j) in self.found.needed):
                    others = self.join(others, other)
            tasks = self.options(op.operands[i])
            for _, t in tasks:
                self.waited[t.pipe] = max(self.waited[t.pipe], t.place)
            orders = not tasks or any(
                (t.pipe != pipe and self.may_be_running(others, t, self.both(when, t.when))) for when, t in tasks
            )
            (self.found.needed if orders else self.found.idle).add((op, i))
            clock = self.join(clock, own)
            if self.flags:
                self.wait_flag(op.operands[i], 0 if pipe is None else pipe)
        return clock

    def event_clock(self, ways: Alternatives, changed: Mapping[Task, Clock]) -> Clock:
        """The clock after a wait for one of some events. `changed` has the clocks of tasks that differ from their own."""
        made = ZERO
        for when, task in ways:
            clock: Clock = changed.get(task, task.clock)
            if when == ALWAYS and len(ways) == 1:
                return clock
            made = self.join(made, merged_clock(self.decisions, when, clock, ZERO))
        return made

    def both(self, a: Number, b: Number) -> Number:
        return ALWAYS if a == b == ALWAYS else self.decisions.both(a, b)

    def may_be_running(self, clock: Clock, task: Task, when: Number) -> bool:
        """Whether `task` may still be running when an op with this clock runs on this path."""
        entry = clock[task.pipe]
        if entry.__class__ is int and entry >= task.place:
            return False
        return self.is_below(entry, task.place, self.both(self.both(self.path_condition, when), task.when))

    def is_below(self, entry: Number, place: int, when: Number) -> bool:
        """Whether an entry of a clock is less than `place` somewhere where the condition `when` holds."""
        return when != NEVER and self.decisions.least(entry, when) < place

    def task(self, op: Op, role: Role) -> Task:
        """Follow a tile op; its task."""
        pipe = role.pipe
        clock = self.pipes.start(pipe)
        if role.events:
            clock = self.wait_events(op, role.events, clock, pipe)
        self.check_tiles(op, role.tiles, clock)
        done = self.pipes.add(pipe, clock)
        task = Task(op, pipe, place := self.pipes.places[pipe], done, self.path_condition, self.iterations)
        if role.access:
            for when, access in self.accesses(op):
                self.check_access(
                    TaskAccess(task, place, access, role.writes, self.both(when, self.path_condition)), access, clock
                )
        options = None
        if self.placed:
            self.on_chip(op, role, task, clock)
            options = self.known
        for v in op.results:
            if isinstance(v.type, EventType):
                self.known[v] = ((ALWAYS, task),)
                if v.type.eid is not None:
                    self.set_flag(v, task)
            elif options is None:
                self.known[v] = ((ALWAYS, _Tile(v, task, self.result_valid(op, role))),)
        if role.asynchronous:
            self.asynchronous[op] = task
        else:
            self.waited[pipe] = place
            self.pipes.wait(task.clock)
        return task

    def check_tiles(self, op: Op, tiles: tuple[int, ...], clock: Clock) -> None:
        """Check that every tile operand is complete and not overwritten."""
        for i in tiles:
            x = op.operands[i]
            for when, tile in self.options(x):
                task = tile.task
                if task is not None and self.may_be_running(clock, task, when):
                    self.found.missing.setdefault((op, task.op), value_of(x))
                if tile.home is not None:
                    self.check_overwritten(op, x, tile, self.both(self.path_condition, when))

    def check_overwritten(self, user: Op, x: Operand, tile: _Tile, when: Number) -> None:
        """Check that nothing was written to the bytes of a tile since it was made, where the condition `when` holds."""
        assert tile.home is not None
        found = [x for x in self.bound if x.number > tile.number and x.access.root is tile.home.root]
        for other in self.accessed(tile.home.root).of(tile.home).meets:
            for touches in (touches for (_, writes), touches in other.touches.items() if writes):
                found += takewhile(lambda touch: touch.number > tile.number, reversed(touches))
        for touch in sorted(found, key=_number):
            met = overlap(touch.access, tile.home)
            if met is not None and self.both(when, touch.when) != NEVER:
                self.overwritten(user, touch.task.op, x, met, touch.scratch)
                when = self.both(when, self.decisions.negated(touch.when)) if met else when

    def overwritten(self, user: Op, writer: Op, v: Any, certain: bool, scratch: bool) -> None:
        if (user, writer) not in self.found.overwrites or certain:
            self.found.overwrites[user, writer] = (v, certain, scratch)

    # Valid regions

    def result_valid(self, op: Op, role: Role) -> Alternatives:
        """The valid region of an op's result, from those of its operands."""
        ways: list[tuple[Number, tuple[Extents, ...]]] = [(ALWAYS, ())]
        for i in role.tiles:
            parts = self.valid(op.operands[i])
            if len(parts) == 1:
                ways = [(when, (*own, parts[0][1])) for when, own in ways]
            else:
                ways = [(w, (*own, e)) for when, own in ways for also, e in parts if (w := self.both(when, also)) != NEVER]
        if len(ways) > _MAX_ALTERNATIVES:
            return _UNKNOWN
        found: dict[Extents, Number] = {}
        for when, own in ways:
            made = valid_of(op, own, self.value)
            found[made] = self.decisions.either(found.get(made, NEVER), ALWAYS, when)
        return tuple([(when, made) for made, when in found.items()])

    def valid(self, x: Operand) -> Alternatives:
        """The valid region of a tile operand."""
        parts = [(when, tile.valid or _unknown_valid(tile.value)) for when, tile in self.options(x)]
        if len(parts) == 1:
            return parts[0][1]
        found = [(w, e) for when, own in parts for also, e in own if (w := self.both(when, also)) != NEVER]
        return tuple(found) if 0 < len(found) <= _MAX_ALTERNATIVES else _unknown_valid(x)

    def touched_extents(self, op: Op) -> Alternatives:
        if is_load(op):
            return ((ALWAYS, valid_of(op, (), self.value)),)
        x = op.operands[0]
        if (known := stated(op, accessed_tile(op), self.value)) is not None:
            return ((ALWAYS, known),)
        return self.valid(x)

    # Memory

    def check_access(self, touch: TaskAccess, access: Access, clock: Clock) -> None:
        """Check that no conflicting earlier access of the same memory may still be running."""
        windows = self.accessed(access.root)
        window = windows.of(access)
        mine = touch.task.pipe
        for pipe, last in windows.last.items() if touch.when != NEVER else ():
            if pipe == mine or last <= (done := self.decisions.least(clock[pipe], touch.when)):
                continue
            met = [x for other in window.meets for x in other.since(pipe, done, writes_only=not touch.writes)]
            for earlier in sorted(met, key=_place, reverse=True):
                if self.is_below(clock[pipe], earlier.place, self.both(touch.when, earlier.when)):
                    self.conflict(touch, earlier)
        windows.add(window, mine, touch.writes, touch)

    def accessed(self, root: Value) -> Windows[TaskAccess]:
        """The windows of a memory that were accessed so far."""
        if (found := self.windows.get(root)) is None:
            self.windows[root] = found = Windows()
        return found

    def conflict(self, touch: TaskAccess, earlier: TaskAccess) -> None:
        met = overlap(touch.access, earlier.access)
        key = (touch.task.op, earlier.task.op)
        if met is None:
            return
        kind = "RAW" if earlier.writes and not touch.writes else "WAR" if touch.writes and not earlier.writes else "WAW"
        if key not in self.found.conflicts or met:
            self.found.conflicts[key] = (kind, met)

    def on_chip(self, op: Op, role: Role, task: Task, clock: Clock) -> None:
        """Check the accesses of an op to on-chip memory: operands are read, results and scratch are written."""
        touched = [(x, when, tile.home) for x in (op.operands[i] for i in role.tiles) for when, tile in self.options(x)]
        for _, when, home in touched:
            if home is not None:
                self.access(task, home, clock, self.both(when, self.path_condition))
        scratch = self.target.scratch if self.target is not None and facts(op).scratch else None
        space = on_chip_bytes("Vec", *scratch) if scratch is not None else None
        if space is not None:
            self.access(task, space, clock, self.path_condition, writes=True, scratch=True)
        for v in op.results:
            if not isinstance(v.type, TileType):
                continue
            by = self.whole.assigned.get(v)
            tile = _Tile(v, task, self.result_valid(op, role), None if by is None else self.home(by), by)
            self.known[v] = ((ALWAYS, tile),)
            if tile.home is not None and not self.is_alias(op, tile.home):  # else the same bytes under another type
                self.access(task, tile.home, clock, self.path_condition, writes=True)
                touched.append((v, ALWAYS, tile.home))
            tile.number = self.writes
        for x, _, home in touched if space is not None else ():
            if home is not None and space is not None and overlap(home, space):
                self.overwritten(op, op, x, True, True)

    def access(
        self, task: Task, home: Access, clock: Clock, when: Number, *, writes: bool = False, scratch: bool = False
    ) -> None:
        """Check an access of on-chip memory."""
        self.writes += writes
        self.check_access(TaskAccess(task, task.place, home, writes, when, self.writes, scratch), home, clock)

    def is_alias(self, op: Op, home: Access) -> bool:
        """Whether the result at `home` has the bytes of the operand, because the op only changes the type."""
        if not facts(op).renames:
            return False
        sources = [tile.home for _, tile in self.options(op.operands[0])]
        return any(x is not None and x.root is home.root and x.starts == home.starts for x in sources)

    def home(self, op: Op) -> Access:
        """The address range that an assignment gives a tile."""
        t = self.whole.tiles[value_of(op.operands[0])]
        later = self.whole.later.get(op, ())  # their expressions are of the iteration before
        known = {x: n for x, n in self.index.items() if x not in later} if later else self.index
        address = linear(op.operands[1], known)
        if address.terms:
            self.found.unplaced.add(op)
        else:
            self.check_placement(op, t, address.const)
        return on_chip(t, address)

    def check_placement(self, op: Op, t: TileType, address: int) -> None:
        """Report a computed address that is outside the space or misaligned. Constant addresses are checked by the target
        rules."""
        space = t.loc or "Vec"
        size, name = tile_bytes(t), value_of(op.operands[0]).name
        end = self.target.capacity[space] if self.target is not None else None
        if self.starts_below_zero:
            if address < 0:
                self.negative()
            return
        if address < 0 or (end is not None and address + size > end and constant(op.operands[1]) is None):
            room = f"0 to {end}" if end is not None else "0 and more"
            message = f"%{name} has {size} bytes at address {address}, {space} has {room}"
            self.found.outside.setdefault(op, ("OutOfBounds", message))
        elif self.target is not None and address % ALIGNMENT and constant(op.operands[1]) is None:
            message = f"address {address} of %{name} is not a multiple of {ALIGNMENT}"
            self.found.outside.setdefault(op, ("Misaligned", message))

    def assign_address(self, op: Op) -> None:
        """An assignment. It gives an address to a tile that no op of its block makes, and does not move any other."""
        v = value_of(op.operands[0])
        if not self.options(v) and v.op is None:
            self.known[v] = ((ALWAYS, _Tile(v, None, _UNKNOWN)),)
        first, address = self.first.setdefault(op, self.path_condition), constant(op.operands[1])
        moved: Number = NEVER
        ways: list[tuple[Number, _Tile]] = []
        others: list[_Tile] = []
        for when, tile in self.options(v):
            here = self.both(when, self.path_condition)
            if tile.home is None and here != NEVER:
                if here != when:  # where this path is not taken, it has no address
                    ways.append((self.both(when, self.decisions.negated(here)), tile))
                    tile = replace(tile)
                self.writes += 1
                tile.home, tile.bound, tile.number = self.home(op), op, self.writes
                self.bound.append(TaskAccess(Task(op, 0, 0, ZERO, here), 0, tile.home, True, here, self.writes))
                ways.append((here, tile))
                continue
            ways.append((when, tile))
            if address is not None and tile.home is not None and tile.home.starts[0].value not in (None, address):
                moved = self.decisions.either(here, ALWAYS, moved)
                others += [tile] if here != NEVER else []
        self.known[v] = tuple(ways)
        if others and (op not in self.found.moved or not self.found.moved[op][2]):
            at, certain = others[0], self.both(first, self.decisions.negated(moved)) == NEVER
            assert at.home is not None and at.bound is not None
            self.found.moved[op] = (at.home.starts[0].const, at.bound, certain)

    # Event ids

    def set_flag(self, v: Value, task: Task) -> None:
        """Record that an event with an id is set."""
        assert isinstance(v.type, EventType)
        flag = _FlagSet(task)
        self.flags[task] = flag
        self.sets.setdefault((task.pipe, v.type.scope or "intra", v.type.eid), []).append(flag)

    def wait_flag(self, event: Operand, target: int) -> None:
        """Check that no other event with the same id, for which the pipe waits, too, was set in the meantime."""
        for when, task in self.options(event):
            flag = self.flags.get(task)
            if flag is None or task.pipe == target:
                continue
            t = task.op.results[-1].type
            at = self.both(when, self.path_condition)
            for other, waited in flag.pending_before:
                if other != target or self.both(at, waited[1]) == NEVER:
                    continue
                self.reused(waited[0], task, target)
            flag.waits.append((target, at))
            for later in reversed(self.sets[task.pipe, t.scope or "intra", t.eid]):
                if later is flag:
                    break
                now = self.both(at, later.task.when)
                if any(p == target and self.both(now, w) != NEVER for p, w in later.waits):
                    self.reused(task, later.task, target)
                later.pending_before.append((target, (task, now)))

    def reused(self, first: Task, second: Task, target: int) -> None:
        v = first.op.results[-1]
        assert isinstance(v.type, EventType) and v.type.eid is not None
        self.found.reused.setdefault((second.op, first.op), (v.type.eid, PIPES[first.pipe], PIPES[target], v))


def _unknown_valid(x: Operand) -> Alternatives:
    """The valid region of a tile of which nothing is known."""
    t = tile_type(x)
    return ((ALWAYS, declared(t) or tuple([unknown() for _ in t.shape])),)


def merged_clock(decisions: Decisions, condition: Number, then: Clock, otherwise: Clock) -> Clock:
    """The clock that is `then` where the condition holds, else `otherwise`."""
    if then is otherwise:
        return then
    either: Callable[[Number, Number, Number], Number] = decisions.either
    return tuple([x if x is y else either(condition, x, y) for x, y in zip(then, otherwise, strict=True)])
