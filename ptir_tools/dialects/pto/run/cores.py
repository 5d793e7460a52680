"""The cores of a kernel, which run at the same time: those of a launch, or those that pass tiles through FIFOs.

Each core is a thread with a machine of its own. One thread runs at a time: until it has to wait for a FIFO or a barrier, or ends.
So a run is always the same. Memory is shared: what a core does before it pushes a tile, or frees a slot, is complete for the core
that pops the tile, or gets the slot. What all do before a barrier is complete behind it. Other accesses of the same elements are
races.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context

from ptir_tools.core.arrays import Array
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Any
from ptir_tools.core.violations import Violation, require, result
from ptir_tools.dialects.pto.fifos import VECTOR, users
from ptir_tools.dialects.pto.run.storage import Box, Marks, Part, Tile, box
from ptir_tools.dialects.pto.structure import is_open, moves
from ptir_tools.dialects.pto.types import type_text

LAUNCHED = "launched"  # the side of a core of a launch
AXES = {"rows": 0, "columns": 1}
Piece = tuple[Array, Array]  # the elements of a tile, and which of them are defined
Clock = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Fifo:
    """Tiles on their way from the cores that push to the cores that pop. Tile `k` has a part of each that pushes."""

    slots: int
    parts: list[list[Piece]]  # of the cores that push
    popped: list[int]  # by the cores that pop
    freed: list[int]
    sent: list[list[Clock]]  # of each part, what was complete in the core that pushed it
    returned: list[list[Clock]]  # the same of each slot that was freed

    def has_room(self, number: int) -> bool:
        """Whether core `number` may push."""
        return len(self.parts[number]) - min(self.freed) < self.slots

    def has_tile(self, number: int) -> bool:
        """Whether core `number` may pop."""
        return min(map(len, self.parts)) > self.popped[number]


@dataclass(slots=True, eq=False)
class Meeting:
    """The barrier of all cores: how often they met, and of the next time the clocks and cycles of those that have come."""

    times: int = 0
    clocks: list[Clock] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    last: tuple[list[Clock], int] = ([], 0)  # of the time before: the clocks, and the cycle of the last core


class _Stopped(BaseException):
    """The run has failed in another core."""


@dataclass(slots=True, eq=False)
class Core:
    """One core: the functions that it runs, one after the other. `number` is that of a vector core, or of a core of a launch."""

    cores: Cores
    function: Function  # the one that runs
    number: int
    work: list[tuple[Function, Callable[[Core], object]]] = field(default_factory=list)
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    waits: str = ""  # what it waits for
    ended: bool = False
    failure: BaseException | None = None
    index: int = 0
    clock: list[int] = field(default_factory=list)  # by core, how many of its accesses are complete here
    ops: list[Op] = field(default_factory=list)  # of its own accesses

    def push(self, name: str, split: str, tile: Tile, extents: Box) -> None:
        """Put the first `extents` of a tile into a FIFO. Raises Violation for a split tile that is not valid in full."""
        fifo = self.cores.fifos[name]
        whole = split == "none" or extents == tile.shape
        require(whole, "InvalidValid", f"a tile that is split by {split} is valid in full, this one in {list(extents)}")
        self._wait(lambda: fifo.has_room(self.number), f"a free slot of {name}")
        if (before := len(fifo.parts[self.number]) - fifo.slots) >= 0:
            self.learn(clocks[before] for clocks in fifo.returned)
        fifo.sent[self.number].append(tuple(self.clock))
        defined = np.zeros(tile.shape, np.bool_)
        defined[box(extents)] = tile.defined[box(extents)]
        fifo.parts[self.number].append((tile.values.copy(), defined))

    def pop(self, name: str, split: str, to: Tile) -> Piece:
        """The next tile of a FIFO, or the part of it that is for this core. Raises Violation for one that does not fit `to`."""
        fifo = self.cores.fifos[name]
        self._wait(lambda: fifo.has_tile(self.number), f"a tile in {name}")
        parts = [given[fifo.popped[self.number]] for given in fifo.parts]
        self.learn(clocks[fifo.popped[self.number]] for clocks in fifo.sent)
        fifo.popped[self.number] += 1
        axis = AXES.get(split)
        if len(parts) > 1:
            made = parts[0] if axis is None else tuple(np.concatenate(xs, axis) for xs in zip(*parts, strict=True))
        else:
            count = 1 if axis is None else len(fifo.popped)
            made = tuple(np.array_split(x, count, axis or 0)[self.number if count > 1 else 0] for x in parts[0])
        values, defined = made
        require(values.dtype == to.values.dtype, "TypeMismatch", f"{values.dtype} is popped as {type_text(to.type)}", at=result())
        shape = list(values.shape)
        require(values.shape == to.shape, "ShapeMismatch", f"a tile of {shape} is popped as {type_text(to.type)}", at=result())
        return values, defined

    def free(self, name: str) -> None:
        """Free the slot of the tile that was popped first. Raises Violation if there is none."""
        fifo = self.cores.fifos[name]
        held = fifo.popped[self.number] > fifo.freed[self.number]
        require(held, "OutOfBounds", f"{name} has no tile that was popped and not freed")
        fifo.freed[self.number] += 1
        fifo.returned[self.number].append(tuple(self.clock))

    def meet(self, cycle: int) -> int:
        """Wait until all cores are at a barrier. The cycle at which the last one comes, if this one comes at `cycle`."""
        meeting, before = self.cores.meeting, self.cores.meeting.times
        meeting.clocks.append(tuple(self.clock))
        meeting.cycles.append(cycle)
        if len(meeting.clocks) == len(self.cores.all):
            meeting.last = meeting.clocks, max(meeting.cycles)
            meeting.times, meeting.clocks, meeting.cycles = before + 1, [], []
        self._wait(lambda: meeting.times > before, "the other cores at a barrier")
        clocks, last = meeting.last
        self.learn(clocks)
        return last

    def learn(self, clocks: Iterable[Clock]) -> None:
        """What is complete by these clocks is complete here."""
        self.clock = [max(known) for known in zip(self.clock, *clocks, strict=True)]

    def races(self, op: Op, memory: int, marks: Marks, part: Part, writes: bool) -> Iterator[tuple[str, Op, str]]:
        """Record an access of `memory`; (kind, op, range) of accesses of other cores that conflict with it. Those that both add,
        or both take the larger or smaller of two, do not."""
        marks = self.cores.marks.setdefault(memory, marks)
        self.ops.append(op)
        self.clock[self.index] = len(self.ops)
        every = list(self.cores.all.values())
        for kind, other, place, where in marks.unordered(part, tuple(self.clock), self.index, writes):
            first = every[other].ops[place - 1]
            if not _atomic(op) or _atomic(first) != _atomic(op):
                yield kind, first, where
        marks.mark(part, self.index, writes, len(self.ops))

    def _wait(self, ready: Callable[[], bool], what: str) -> None:
        while not ready():
            self.waits = what
            self.cores.turn.release()
            self.turn.acquire()
            if self.cores.failed:
                raise _Stopped
        self.waits = ""

    def run(self) -> None:
        """Run the functions when it is this core's turn, in a thread."""
        self.turn.acquire()
        try:
            for function, work in () if self.cores.failed else self.work:
                self.function = function
                work(self)
        except BaseException as failure:  # raised again in the thread that started the cores
            self.failure = failure
        self.ended = True
        self.cores.turn.release()


def _atomic(op: Op) -> str:
    """How a store combines with what is in memory; empty where it does not."""
    how = op.defn.named(op.attrs).get("atomic", "AtomicNone")
    return "" if how == "AtomicNone" else str(how)


class Cores:
    """The cores of one run of `program`."""

    def __init__(self, program: Program) -> None:
        self.users = users(program)
        self.count = 2 if any(op.attr("split") != "none" for f in program.functions for op in f.ops() if moves(op)) else 1
        self.turn = threading.Semaphore(0)  # of the thread that starts the cores
        self.all: dict[tuple[str, int], Core] = {}  # by side and number
        self.failed = False
        self.fifos: dict[str, Fifo] = {}
        self.meeting = Meeting()
        self.marks: dict[int, Marks] = {}  # of each memory, by its identity: the accesses of each core
        for op in (op for f in program.functions for op in f.ops() if is_open(op)):
            one, many = 1, self.count
            giving, taking = (one, many) if op.attr("direction") == "c2v" else (many, one)
            lists: tuple[list[list[Any]], ...] = tuple([[] for _ in range(n)] for n in (giving, giving, taking))
            self.fifos[op.attr("fifo")] = Fifo(op.attr("slots"), lists[0], [0] * taking, [0] * taking, *lists[1:])

    def start(self, function: Function, work: Callable[[Core], object]) -> None:
        """Let the cube core, or each vector core, do `work` when `run` is called, after what it was given before."""
        side = self.users[function.name]
        for number in range(self.count if side == VECTOR else 1):
            core = self.all.setdefault((side, number), Core(self, function, number))
            core.work.append((function, work))

    def launch(self, function: Function, number: int, work: Callable[[Core], object]) -> None:
        """Let core `number` of a launch do `work`, a run of `function`, when `run` is called."""
        self.all[LAUNCHED, number] = Core(self, function, number, [(function, work)])

    def run(self) -> None:
        """Run the cores until all have ended. Raises what the first one that fails raises, and Violation("Deadlock")."""
        for k, core in enumerate(self.all.values()):
            core.index, core.clock = k, [0] * len(self.all)
        threads = [threading.Thread(target=copy_context().run, args=(core.run,), daemon=True) for core in self.all.values()]
        for thread in threads:
            thread.start()
        while waiting := [c for c in self.all.values() if not c.ended]:
            before = self._state()
            for core in waiting:
                core.turn.release()
                self.turn.acquire()
                self.failed = self.failed or core.failure is not None
            if not self.failed and self._state() == before:
                self.failed = True
                said = ", ".join(f"@{c.function.name} for {c.waits}" for c in waiting)
                blocked = Violation("Deadlock", f"the cores wait for each other: {said}", loc=waiting[0].function.loc)
        for thread in threads:
            thread.join()
        failures = [c.failure for c in self.all.values() if c.failure is not None and not isinstance(c.failure, _Stopped)]
        if failures:
            raise failures[0]
        if self.failed:
            raise blocked

    def _state(self) -> list[object]:
        moved = [(len(p), *f.popped, *f.freed) for f in self.fifos.values() for p in f.parts]
        return [*moved, self.meeting.times, len(self.meeting.clocks), *(c.ended for c in self.all.values())]
