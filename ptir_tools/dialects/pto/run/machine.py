"""The modelled machine: pipes, memory spaces, and the time at which an asynchronous op takes effect.

A pipe executes its tasks in the order of issue; pipes are independent. A synchronous op completes before the next op is
issued. An asynchronous one completes when it is waited for, when a later task of its pipe completes, or at the end. The three
orders are `sequential` (at once), `adversarial` (as late as allowed, the latest issued first) and `random`.

In every order, each task has a clock, which says what tasks are complete when it starts. Every access of memory is compared
with the earlier ones. Unordered conflicting accesses are a race. A race is reported, and the run goes on. A tile with an
assigned address is in the bytes of its space from its definition on. A read after another write to these bytes is an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from random import Random

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dialect import Program
from ptir_tools.core.evaluate import Context, evaluate, run_block
from ptir_tools.core.ir import PURE, Function, Literal, Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.violations import Violation, attribute, require
from ptir_tools.core.walks import post_order
from ptir_tools.dialects.pto.affine import linear, number
from ptir_tools.dialects.pto.facts import Extents, Numbers, facts
from ptir_tools.dialects.pto.memory.info import infer
from ptir_tools.dialects.pto.order.clocks import ZERO, Clock, Pipes, join
from ptir_tools.dialects.pto.pipes import PIPES, pipe_of
from ptir_tools.dialects.pto.run.cores import Core, Cores
from ptir_tools.dialects.pto.run.storage import Box, Marks, Part, Storage, Tile, box, static_shape, window
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.dialects.pto.structure import own_assignments, tiles_of
from ptir_tools.dialects.pto.targets import TARGETS, Target
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType
from ptir_tools.dialects.pto.valid import of_shape, stated, valid_of

__all__ = ["Box", "Machine", "Task", "Tile", "box", "issue", "machine", "made_region", "static_shape", "taken_region"]


@dataclass(slots=True, eq=False)
class Task:
    """An issued op: its waits and its action. It is also its event.

    `clock` has the tasks that are complete when the op is, itself included (number `place` of its pipe). `number` counts all
    tasks.
    """

    op: Op
    pipe: int
    waits: tuple[Task, ...]
    action: Callable[[], None]
    number: int = 0
    place: int = 0
    clock: Clock = ZERO
    done: bool = False


@dataclass(slots=True)
class Machine:
    """Pipes, memory and policies of one run of `program`."""

    context: Context
    program: Program
    target: Target | None = None
    order: str = "sequential"
    undef: str = "error"
    random: Random = field(default_factory=Random)
    timeline: Timeline | None = None
    depth: int = 0
    races: set[tuple[Op, Op]] = field(default_factory=set)  # (second, first)
    first: Violation | None = None  # the first race
    pipes: Pipes = field(default_factory=Pipes)
    pending: list[deque[Task]] = field(default_factory=lambda: [deque() for _ in PIPES])
    ops: list[list[Op]] = field(default_factory=lambda: [[] for _ in PIPES])  # per pipe, the op at each place
    spaces: dict[str, Storage] = field(default_factory=dict)
    memories: dict[int, tuple[Array, Marks]] = field(default_factory=dict)  # by the identity of the array
    bindings: dict[Value, Op] = field(default_factory=dict)  # the assignment of a tile in the block that makes it
    locations: dict[Value, TileType] = field(default_factory=dict)
    core: Core | None = None  # the core whose machine it is, in a kernel on several
    cores: Cores = field(init=False)

    def __post_init__(self) -> None:
        self.cores = Cores(self.program) if self.core is None else self.core.cores
        for f in self.program.functions:
            self.bindings.update(own_assignments(f))
            self.locations |= infer(f, self.target)

    # Time

    def start(self, task: Task, asynchronous: bool) -> Clock:
        """Number `task` in its pipe, and compute the clock at its start."""
        clock = self.pipes.start(task.pipe)
        for w in task.waits:
            clock = join(clock, w.clock)
        task.number = sum(map(len, self.ops))
        self.ops[task.pipe].append(task.op)
        task.clock, task.place = self.pipes.add(task.pipe, clock), self.pipes.places[task.pipe]
        if not asynchronous:
            self.pipes.wait(task.clock)
        return clock

    def submit(self, task: Task, wait: bool) -> None:
        """Issue `task`; with `wait`, or in sequential order, it completes before this returns."""
        self.pending[task.pipe].append(task)
        if wait or self.order == "sequential":
            self.complete(task)
        elif self.order == "random":
            self.progress()

    def wait(self, events: Sequence[Task]) -> None:
        """Complete the tasks of `events` before anything that follows."""
        if self.timeline is not None:
            self.timeline.wait(self.context.op, events)
        for task in sorted(events, key=lambda t: -t.number):
            self.pipes.wait(task.clock)
            self.complete(task)

    def complete(self, task: Task) -> None:
        """Execute `task`, after its waits, the latest issued first, and the earlier tasks of its pipe."""
        stack = [task]
        while stack:
            top = stack[-1]
            need = None if top.done else self._before(top)
            if need is not None:
                stack.append(need)
                continue
            stack.pop()
            if not top.done:
                self._perform(top)

    def _before(self, task: Task) -> Task | None:
        head = self.pending[task.pipe][0]
        waits = [w for w in task.waits if not w.done]
        return max(waits, key=lambda w: w.number) if waits else None if head is task else head

    def _perform(self, task: Task) -> None:
        self.pending[task.pipe].popleft()
        task.done = True
        action, task.action, task.waits = task.action, _nothing, ()  # what is done holds on to nothing
        try:
            with np.errstate(all="ignore"):  # an infinity or a NaN is a result
                action()
        except Violation:
            self.context.failed = self.context.failed or task.op
            raise

    def progress(self) -> None:
        """Complete a random number of tasks, each the next of its pipe and without incomplete waits."""
        while self.random.random() < 0.5:
            ready = [q[0] for q in self.pending if q and all(w.done for w in q[0].waits)]
            if not ready:
                return
            self._perform(self.random.choice(ready))

    def drain(self, pipe: str | None = None) -> None:
        """Complete all issued tasks, or all of one pipe, the latest issued first."""
        chosen = [i for i, name in enumerate(PIPES) if pipe in (None, name)]
        if self.timeline is not None:
            self.timeline.barrier(PIPES[i] for i in chosen)
        for i in chosen:
            self.pipes.barrier(i)
        while tails := [self.pending[i][-1] for i in chosen if self.pending[i]]:
            self.complete(max(tails, key=lambda t: t.number))

    def runs_apart(self, function: Function) -> bool:
        """Whether a function that the entry calls runs on a core of its own."""
        return self.core is None and function.name in self.cores.users

    def start_core(self, function: Function, arguments: Sequence[object]) -> None:
        """Let a core run a function on these arguments when the entry has ended. A core has pipes and spaces of its own."""
        require(
            self.timeline is None, "IllegalOnTarget", f"the timeline shows one core, and @{function.name} runs on one of its own"
        )
        self.cores.start(function, partial(self._on, function, arguments, "sequential", None))

    def launch(self, function: Function, arguments: Sequence[object], cores: int) -> None:
        """Let as many cores run the same function on these arguments when `Cores.run` is called."""
        for k in range(cores):
            timeline = self.timeline.core() if self.timeline is not None else None
            self.cores.launch(function, k, partial(self._on, function, arguments, self.order, timeline))

    def _on(self, function: Function, arguments: Sequence[object], order: str, timeline: Timeline | None, core: Core) -> None:
        """Run a function on a core, with a machine of its own."""
        context = copy(self.context)
        own = Machine(context, self.program, self.target, order, self.undef, self.random, timeline, core=core)
        own.memories = {key: (root, Marks(m.name, root.size, root.shape)) for key, (root, m) in self.memories.items()}
        own.races = self.races
        context.state, context.env = own, {}
        try:
            run_block(function, arguments, context)
            own.drain()
        finally:
            self.first, self.context.failed = self.first or own.first, self.context.failed or context.failed
            own.close()

    @property
    def block(self) -> int:
        """The number of the core of a launch."""
        return self.core.number if self.core is not None and not self.cores.users else 0

    def meet(self) -> None:
        """Wait until all cores of the launch are here, after everything that was issued."""
        if self.core is not None:
            last = self.core.meet(self.timeline.now if self.timeline is not None else 0)
            if self.timeline is not None:
                self.timeline.meet(self.context.op, last)

    def close(self) -> None:
        """Release all memory, which has reference cycles."""
        for space in self.spaces.values():
            space.tiles.clear()
        for queue in self.pending:
            queue.clear()
        self.spaces.clear()
        self.memories.clear()
        self.context.state = None

    # Memory

    def memory(self, name: str, given: Array) -> Array:
        """A fresh memory with these elements."""
        made = np.array(given, order="C")
        self.memories[id(made)] = made, Marks(f"%{name}", made.size, made.shape)
        return made

    def space(self, t: TileType) -> Storage:
        """The memory space of a tile of this type; without a target, it has the largest size of any target."""
        name = t.loc or "Vec"
        if (found := self.spaces.get(name)) is None:
            targets = [self.target] if self.target is not None else TARGETS.values()
            found = self.spaces[name] = Storage(name, max(one.capacity[name] for one in targets))
        return found

    def bind(self, tile: Tile, value: Value, address: int, by: Op) -> None:
        """Put a tile with its contents at an address of its space. Other tiles lose these bytes."""
        name = f"%{value.name}"
        if tile.address is not None:
            if tile.address != address:
                message = f"{name} is bound to {address}, and lies at {tile.address}; binding moves nothing"
                raise Violation("TileMoved", message, loc=by.loc)
            return
        space = self.space(self.locations[value])
        size, end = space.data.size, address + tile.nbytes
        if not 0 <= address <= end <= size:
            of = f"{self.target.name} has" if self.target is not None else "the largest target has"
            message = f"{name} at {address} takes bytes {address} to {end - 1} of {space.marks.name}, {of} {size}"
            raise Violation("OutOfBounds", message, loc=by.loc)
        held, defined = tile.storage.data, tile.storage.defined
        tile.storage, tile.address = space, address
        maker = tile.maker
        source = self._operands(maker)[:1] if maker is not None and facts(maker).renames else []
        tile.shared = any(x.address == address and x.storage is space and x.lost is None for x in source)
        if not tile.shared:
            self.overwrite(space, address, end, maker or by, f"%{value.name}")
        if maker is None or maker is not self.context.op:
            space.data[tile.bytes], space.defined[tile.bytes] = held, defined
        space.tiles.append(tile)

    def overwrite(self, space: Storage, start: int, end: int, by: Op, what: str) -> None:
        """Mark the tiles in these bytes as overwritten."""
        for t in space.tiles:
            if t.overlaps(start, end):
                t.lost = by, f"{what} at bytes {start} to {end - 1} of {space.marks.name}"
        space.tiles = [t for t in space.tiles if t.lost is None]

    def note(self, task: Task, synchronous: bool, made: Sequence[Tile], memory: tuple[Array, bool] | None) -> None:
        """Add an op to the timeline, where there is one."""
        if self.timeline is None:
            return
        op, env = task.op, self.context.env
        read = [(self._place(x), env[x]) for x in tiles_of(op)]
        written = [(self._place(v), tile) for v, tile in zip(op.results, made, strict=False)]
        self.timeline.add(op, PIPES[task.pipe], task, task.waits, synchronous, read, written, memory)

    def _place(self, v: Value) -> str:
        return self.locations[v].loc or "Vec"

    def _operands(self, op: Op) -> list[Tile]:
        env = self.context.env
        return [env[x] for x in tiles_of(op)]

    def read(self, tile: Tile, name: str) -> None:
        """Raise Violation("TileOverwritten") when the bytes of `tile` were overwritten."""
        if tile.lost is not None:
            by, what = tile.lost
            where = f"bytes {tile.bytes.start} to {tile.bytes.stop - 1}"
            message = f"%{name} is read at {where}, where {what} was written since"
            raise Violation("TileOverwritten", message, at=f"%{name}", labels=[(by.loc, "writes over it")], help=_OVERWRITTEN)

    def access(self, task: Task, clock: Clock, made: Sequence[Tile], memory: tuple[Array, bool] | None) -> None:
        """The accesses of an op: its tile operands are read, `made` are written. `memory` is a view and whether it is written."""
        op = task.op
        read = tiles_of(op)
        for x in read:
            tile = self.context.env[x]
            self.read(tile, x.name)
            self.touch(task, clock, tile.storage.marks, tile.cells, False, tile.maker)
        if memory is not None:
            view, writes = memory
            root, marks = self.memories[id(view if view.base is None else view.base)]
            part = window(root, view)
            self.touch(task, clock, marks, part, writes)
            if self.core is not None:
                own = Marks(marks.name, root.size, root.shape)
                for kind, first, where in self.core.races(op, id(root), own, part, writes):
                    self._race(op, first, kind, where, None, apart=True)
        if self.target is not None and self.target.scratch is not None and facts(op).scratch:
            self._scratch(task, clock, self.target.scratch, read)
        for tile, value in zip(made, op.results, strict=False):
            tile.maker, tile.name = op, value.name
            tile.storage.marks.name = f"%{value.name}"
            if (by := self.bindings.get(value)) is not None and (address := self._number(by.operands[1])) is not None:
                self.bind(tile, value, address, by)
            if not tile.shared:  # else it writes nothing: its bytes are there
                self.touch(task, clock, tile.storage.marks, tile.cells, True)

    def touch(self, task: Task, clock: Clock, marks: Marks, part: Part, writes: bool, maker: Op | None = None) -> None:
        """Record one access, and its races with earlier ones."""
        for kind, pipe, place, where in marks.unordered(part, clock, task.pipe, writes):
            self._race(task.op, self.ops[pipe][place - 1], kind, where, maker)
        marks.mark(part, task.pipe, writes, task.place)

    def _race(self, second: Op, first: Op, kind: str, where: str, maker: Op | None, apart: bool = False) -> None:
        if (second, first) in self.races:
            return
        self.races.add((second, first))
        does = {"RAW": ("reads", "writes"), "WAR": ("writes", "reads"), "WAW": ("writes", "writes")}[kind]
        what = [op.defn.short.removeprefix("tile.") for op in (second, first)]
        code = "MissingWait" if kind == "RAW" and first is maker else "MemoryHazard"
        message = f"{kind}: {what[0]} {does[0]} {where}, which {what[1]} {does[1]}, and nothing orders them"
        event = first.results[-1] if first.results else None
        hint = f"add `wait(%{event.name})`" if event is not None and isinstance(event.type, EventType) else None
        if apart:
            message += ": they are on different cores"
            hint = "let one core push a tile after it, which the other pops before"
            if not self.cores.users:
                hint = "let the cores meet in between: `pto.sync.op #pto.op<SYNCALL>`"
        labels = [(first.loc, "the earlier access")]
        self.first = self.first or Violation(code, message, help=hint, loc=second.loc, labels=labels)
        if self.context.diagnostics is not None:
            self.context.diagnostics.error(code, message, second.loc, labels=labels, help=hint)

    def _scratch(self, task: Task, clock: Clock, scratch: tuple[int, int], read: Sequence[Value]) -> None:
        """Write the scratch of the target; neither operands nor results may be there."""
        start, end = scratch[0], sum(scratch)
        name = task.op.defn.short.removeprefix("tile.")
        space = self.space(self.locations[task.op.result])
        for x in read:
            tile = self.context.env[x]
            if tile.storage is space and tile.overlaps(start, end):
                message = f"%{x.name} lies in bytes {start} to {end - 1} of Vec, in which {name} works"
                raise Violation("TileOverwritten", message, at=f"%{x.name}")
        self.overwrite(space, start, end, task.op, f"the scratch of {name}")
        space.defined[start:end] = False
        self.touch(task, clock, space.marks, lambda places: places[start:end], True)

    def _number(self, x: Operand) -> int | None:
        """The value of an index operand if it can be computed without other tasks; else None."""
        env, found = self.context.env, dict[Value, int | None]()

        def ahead(v: Value) -> Op | None:
            op = None if v in env else v.op
            if op is None or not op.defn.traits & PURE or op.regions:
                return None
            tiles = any(isinstance(y, Value) and isinstance(y.type, (TileType, MemRefType)) for y in op.operands)
            return None if tiles else op

        def number(y: Operand) -> int | None:
            if isinstance(y, Literal):
                return int(arrays.from_literal(y))
            if y in env:
                return int(env[y])
            return found[y] if isinstance(y, Value) else None

        def before(v: Value) -> list[Value]:
            op = ahead(v)
            return [] if op is None else [y for y in op.operands if isinstance(y, Value)]

        for v in post_order([x] if isinstance(x, Value) else [], before):
            op = ahead(v)
            given = [None] if op is None else [number(y) for y in op.operands]
            fine = op is not None and None not in given
            found[v] = int(evaluate(op, [np.int64(y) for y in given if y is not None], Context())[0]) if op and fine else None
        return number(x)

    def settle(self, tile: Tile, region: tuple[slice, ...], what: str) -> Array:
        """The elements of `tile` in `region`, to be stored or reduced. Undefined ones are an error or replaced (`--undef`);
        they are replaced in a run that has failed already."""
        values, defined = tile.values[region], tile.defined[region]
        if defined.all():
            return values
        if self.undef == "error" and not self.races:
            at = [int(i) for i in np.argwhere(~defined)[0]]
            raise Violation("UndefinedElement", f"{what} reads element {at}, which is not defined", help=_UNDEFINED)
        return np.where(defined, values, self._filler(values))

    def _filler(self, values: Array) -> Array:
        if self.undef == "random":
            raw = bytes(self.random.getrandbits(8) for _ in range(values.size))
            return (np.frombuffer(raw, np.uint8).astype(np.float32) / 16 - 8).reshape(values.shape).astype(values.dtype)
        return np.full(values.shape, np.nan if self.undef != "zero" and values.dtype.kind not in "iub" else 0, values.dtype)


def _nothing() -> None:
    """The action of a completed task."""


_OVERWRITTEN = "bind one of them to other bytes, or finish with the first before the second is made"
_UNDEFINED = "it lies outside what was loaded or valid, or its asynchronous producer was not waited for"


def machine(context: Context) -> Machine:
    """The machine of a run."""
    found = context.state
    assert isinstance(found, Machine)
    return found


def core(context: Context) -> Core:
    """The core that runs."""
    found = machine(context).core
    assert found is not None
    return found


Results = Tile | Task | tuple[Tile | Task | Array, ...] | None  # of a tile op


def issue(
    context: Context,
    wait: Sequence[Task],
    event: EventType | None,
    action: Callable[[], None],
    *made: Tile,
    memory: tuple[Array, bool] | None = None,
) -> Results:
    """Issue an op that fills the tiles `made` by `action`; its results: the tiles, and the event when it has one.

    `memory` is the window of a memref that the op touches, and whether it writes there.
    """
    assert context.op is not None
    m = machine(context)
    task = Task(context.op, PIPES.index(pipe_of(context.op)), tuple(wait), action)
    m.access(task, m.start(task, event is not None), made, memory)
    m.note(task, event is None, made, memory)
    m.submit(task, event is None)
    results: tuple[Tile | Task, ...] = made if event is None else (*made, task)
    return results[0] if len(results) == 1 else results or None


def made_region(context: Context, to: TileType) -> Box:
    """The valid region of the tile that an op makes. Raises Violation("InvalidValid") unless 0 < valid <= shape."""
    shape, op, env = static_shape(to), _running(context), context.env
    tiles = [of_shape(env[x].valid) for x in tiles_of(op)]
    return _region(valid_of(op, tiles, _numbers(context)), shape)


def taken_region(context: Context, tile: Tile) -> Box:
    """The region of `tile` that an op reads: its own `valid`, else the type's, else that of the tile. Raises as `made_region`."""
    stated_valid = stated(_running(context), tile.type, _numbers(context))
    return _region(stated_valid, tile.shape) if stated_valid is not None else tile.valid


def _running(context: Context) -> Op:
    assert context.op is not None
    return context.op


def _numbers(context: Context) -> Numbers:
    return lambda x: number(int(context.env[x])) if isinstance(x, Value) else linear(x)


def _region(extents: Extents, shape: Box) -> Box:
    for d, (v, extent) in enumerate(zip(extents, shape, strict=True)):
        assert not v.terms
        if not 0 < v.const <= extent:
            raise Violation("InvalidValid", f"valid[{d}] is {v.const}, must be in 1..{extent}", at=attribute("valid", d))
    return tuple(e.const for e in extents)
