"""Order: every use of an asynchronous result, and every two accesses of one memory, must be ordered (seed 5; facts 4).

Ordered means: through events that are waited for, the order of one pipe, and synchronous ops, which complete before the next op
is issued. In a trace each op has a clock: per pipe, how many of its tasks are certainly complete. One op is done before another
starts exactly when the other's clock has reached its place in its pipe.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Op, Program, Value
from ptir_tools.core.types import EventType
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, pipe_of_opcode
from ptir_tools.dialects.pto.places import Places
from ptir_tools.dialects.pto.traces import Key, Step, traces
from ptir_tools.dialects.pto.windows import Access, overlap, placed

Clock = tuple[int, ...]
ZERO: Clock = (0,) * len(PIPES)


@dataclass(slots=True)
class _Done:
    """An op of a trace: its place in its pipe, and its clock when it is complete."""

    op: Op
    pipe: int
    place: int
    clock: Clock
    access: Access | None = None
    writes: bool = False


@dataclass(slots=True)
class _Findings:
    """What the traces of a function show; each pair of ops is told once, an error rather than a warning."""

    missing: dict[tuple[Op, Op], Value] = field(default_factory=dict)
    memory: dict[tuple[Op, Op], tuple[str, bool]] = field(default_factory=dict)
    needed: set[tuple[Op, int]] = field(default_factory=set)  # waits that order something in some trace
    idle: set[tuple[Op, int]] = field(default_factory=set)  # and those that order nothing in some


def check(function: Function, program: Program, diagnostics: Diagnostics, tiles: dict[Value, Access] | None = None) -> None:
    """Report the hazards of a function: missing waits, unordered accesses, events and waits without use.

    `tiles` are those whose memory is known: where None, those that the program binds to addresses.
    """
    found = _Findings()
    if any(is_tile_op(op.defn) and isinstance(v.type, EventType) for op in function.ops() for v in op.results) or _calls(
        function
    ):
        tiles = placed(program.functions) if tiles is None else tiles
        for trace in traces(function, program):
            _Run(found, tiles).trace(trace)
    for (user, producer), v in found.missing.items():
        event = producer.results[-1].name
        at = f"%{v.name}"
        message = f"%{v.name} is made asynchronously and used before %{event} is waited for"
        labels = [(producer.loc, f"completes with %{event}")]
        diagnostics.error("MissingWait", message, user.loc, labels=labels, help=f"add `wait(%{event})` to the op that uses {at}")
    for (second, first), (kind, certain) in found.memory.items():
        _report_memory(second, first, kind, certain, diagnostics)
    _report_idle(function, found, diagnostics)


def _calls(function: Function) -> bool:
    return any(op.defn.short == "func.call" for op in function.ops())


def _report_memory(second: Op, first: Op, kind: str, certain: bool, diagnostics: Diagnostics) -> None:
    verb = "overlap" if certain else "may overlap"
    message = f"{kind}: this access and an earlier one, not ordered with it, {verb}"
    asynchronous = first.results and isinstance(first.results[-1].type, EventType)
    hint = f"add `wait(%{first.results[-1].name})`" if asynchronous else None
    report = diagnostics.error if certain else diagnostics.warning
    report("MemoryHazard", message, second.loc, labels=[(first.loc, "the earlier access")], help=hint)


def _report_idle(function: Function, found: _Findings, diagnostics: Diagnostics) -> None:
    """Events that nothing takes, and waits that never order anything."""
    ops = list(function.ops())
    used: set[object] = set().union(*[op.operands for op in ops])
    used.update(*[r.results for r in (function, *(r for op in ops for r in op.regions))])
    for op in ops:
        v = op.results[-1] if op.results else None
        if v is not None and v.type.__class__ is EventType and v not in used and is_tile_op(op.defn):
            message = f"nothing waits for %{v.name}; the op completes at the latest when the function returns"
            diagnostics.warning("UnwaitedEvent", message, op.loc, help="wait for it, or leave the event out")
    idle = found.idle - found.needed
    for op in ops if idle else ():  # and not those of functions that are called
        for i, x in enumerate(op.operands):
            if isinstance(x, Value) and (op, i) in idle:
                message = f"wait(%{x.name}) orders nothing: what it waits for is complete, or first in the same pipe"
                diagnostics.note("RedundantWait", message, op.loc)


class _Run:
    """One trace."""

    def __init__(self, found: _Findings, placed: dict[Value, Access]) -> None:
        self.found = found
        self.placed = placed  # tiles whose memory is known
        self.issued: Clock = ZERO  # what is complete before the next op is issued
        self.last: list[Clock] = [ZERO] * len(PIPES)  # per pipe, the clock of its last task
        self.places = [0] * len(PIPES)
        self.made: dict[Key, _Done] = {}
        self.pending: dict[Value, dict[int, Places[_Done]]] = {}  # per memref argument, or space, and pipe: its accesses so far

    def trace(self, steps: list[Step]) -> None:
        for step in steps:
            if step.role.tile_op:
                self.step(step)
            elif step.op.defn.short == "sync.op":
                self.barrier(step.op.attr("opcode"))
            else:
                clock = self.awaited(step, self.issued, None)
                self.uses(step, clock)
                if step.op.defn.short == "sync":
                    self.issued = clock

    def barrier(self, opcode: str) -> None:
        for i, name in enumerate(PIPES):
            if opcode == "ALL" or pipe_of_opcode(opcode) == name:
                self.issued = join(self.issued, self.last[i])

    def awaited(self, step: Step, clock: Clock, pipe: int | None) -> Clock:
        """`clock`, joined with those of the events that the op waits for; notes which waits order something."""
        before = clock
        for i in step.role.events:
            done = self.made.get(step.operands[i])
            if done is None:
                self.found.needed.add((step.op, i))
                continue
            orders = done.pipe != pipe and before[done.pipe] < done.place
            (self.found.needed if orders else self.found.idle).add((step.op, i))
            clock = join(clock, done.clock)
        return clock

    def step(self, step: Step) -> None:
        role = step.role
        pipe = role.pipe
        clock = join(self.awaited(step, self.issued, pipe), self.last[pipe])
        self.uses(step, clock)
        self.places[pipe] = place = self.places[pipe] + 1
        done = _Done(step.op, pipe, place, advanced(clock, pipe, place), step.access, role.writes)
        if step.access is not None:
            self.memory(done, step.access, clock)
        if self.placed:
            self.tiles(step, done, clock)
        self.last[pipe] = done.clock
        if not role.asynchronous:
            self.issued = join(self.issued, done.clock)
        for key in step.results:
            self.made[key] = done

    def uses(self, step: Step, clock: Clock) -> None:
        """Every tile operand is complete."""
        for i in step.role.tiles:
            done = self.made.get(step.operands[i])
            if done is not None and clock[done.pipe] < done.place:
                x = step.op.operands[i]
                assert isinstance(x, Value)
                self.found.missing.setdefault((step.op, done.op), x)

    def memory(self, done: _Done, access: Access, clock: Clock) -> None:
        """No earlier access of the same memory is under way, unless both read or they touch different places."""
        pipes = self.pending.setdefault(access.root, {})
        for pipe, accesses in pipes.items():
            if pipe == done.pipe or accesses.all[-1].place <= clock[pipe]:
                continue
            for earlier in accesses.near(access, clock[pipe]):
                if earlier.writes or done.writes:
                    self.conflict(done, earlier)
        if (own := pipes.get(done.pipe)) is None:
            pipes[done.pipe] = own = Places()
        own.add(done)

    def tiles(self, step: Step, done: _Done, clock: Clock) -> None:
        """The memory of tiles that are bound to addresses: operands are read, results written."""
        reads, writes = [step.op.operands[i] for i in step.role.tiles], step.op.results
        for values, stores in ((reads, False), (writes, True)):
            for access in [self.placed[v] for v in values if isinstance(v, Value) and v in self.placed]:
                self.memory(replace(done, access=access, writes=stores), access, clock)

    def conflict(self, done: _Done, earlier: _Done) -> None:
        assert done.access is not None and earlier.access is not None
        met = overlap(done.access, earlier.access)
        if met is None or (done.op, earlier.op) in self.found.missing:
            return
        kind = "RAW" if earlier.writes and not done.writes else "WAR" if done.writes and not earlier.writes else "WAW"
        key = (done.op, earlier.op)
        if key not in self.found.memory or met:
            self.found.memory[key] = (kind, met)


def join(a: Clock, b: Clock) -> Clock:
    """What is complete when both say. Spelled out for the seven pipes: nothing is done as often."""
    if a is b:
        return a
    a0, a1, a2, a3, a4, a5, a6 = a
    b0, b1, b2, b3, b4, b5, b6 = b
    return (
        a0 if a0 > b0 else b0,
        a1 if a1 > b1 else b1,
        a2 if a2 > b2 else b2,
        a3 if a3 > b3 else b3,
        a4 if a4 > b4 else b4,
        a5 if a5 > b5 else b5,
        a6 if a6 > b6 else b6,
    )


def advanced(clock: Clock, pipe: int, place: int) -> Clock:
    """`clock`, with the task at `place` of a pipe complete."""
    return (*clock[:pipe], place, *clock[pipe + 1 :])
