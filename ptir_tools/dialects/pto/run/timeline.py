"""The timeline of a run: when each op starts and ends under the target's costs, the cause of each wait, and the bytes moved.

Ops are issued in order, at no cost. An op starts when its pipe is free, its events are signaled, and the synchronous ops
issued before it are complete. The last of these is the cause of its wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from math import prod

from ptir_tools.core.ir import Op
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.pto.costs import Costs
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.pipes import PIPES
from ptir_tools.dialects.pto.targets import A3, ALIGNMENT, Target

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array
    from ptir_tools.dialects.pto.run.storage import Tile

BOX = 16  # rows and columns of what the matrix unit does at once; along K it is `DEPTH` bytes
DEPTH = 32
EVENT, SYNCHRONOUS, PIPE, MEETS = "event", "synchronous", "pipe", "barrier"  # why an op did not start earlier
SHOWN = 20  # lines of the critical path in a report
OVER = "nothing left to do"


@dataclass(slots=True, eq=False)
class Span:
    """One op in its pipe, from cycle `start` to `end`. `cause` is the op that it waited for (None at the beginning), `why` the
    kind of wait."""

    op: Op
    pipe: str
    start: int
    end: int
    cause: Span | None = None
    why: str = ""
    waits: tuple[Span, ...] = ()

    @property
    def name(self) -> str:
        """The op, without `tile.`."""
        return self.op.defn.short.removeprefix("tile.")


@dataclass(slots=True, frozen=True)
class Stall:
    """Cycles in which a pipe was idle although it had later ops; `cause` is what the next one waited for."""

    pipe: str
    cause: str
    cycles: int


@dataclass(slots=True)
class Moved:
    """Bytes of one space that ops read and wrote."""

    read: int = 0
    written: int = 0


@dataclass(slots=True)
class Timeline:
    """The spans of the tasks of a machine, in order of issue; `moved` is by space, `gm` included."""

    target: Target = A3
    spans: list[Span] = field(default_factory=list)
    moved: dict[str, Moved] = field(default_factory=dict)
    last: dict[str, Span] = field(default_factory=dict)  # per pipe
    of: dict[object, Span] = field(default_factory=dict)  # by event
    issued: Span | None = None  # what must be complete before the next op is issued
    syncs: list[Span] = field(default_factory=list)  # waits of the scalar unit, from the first event missing to the last there
    cores: list[Timeline] = field(default_factory=list)  # of a launch on several

    def begin(self, target: Target | None) -> None:
        """Clear the timeline. Without a target the costs are those of a3."""
        self.target, self.issued = target or A3, None
        for noted in (self.spans, self.moved, self.last, self.of, self.syncs, self.cores):
            noted.clear()

    def core(self) -> Timeline:
        """The timeline of one more core of a launch."""
        self.cores.append(one := Timeline(self.target))
        return one

    def add(
        self,
        op: Op,
        pipe: str,
        event: object,
        waits: Iterable[object],
        synchronous: bool,
        read: Sequence[tuple[str, Tile]],
        made: Sequence[tuple[str, Tile]],
        memory: tuple[Array, bool] | None,
    ) -> None:
        """Add an op with its events and accesses. `memory` is a window of a memref, and whether it is written."""
        self._move(read, made, memory)
        taken = cycles(self.target.costs, op, pipe, read, made, memory)
        events = tuple([self.of[w] for w in waits if w in self.of])
        choices = [(self.last.get(pipe), PIPE), (self.issued, SYNCHRONOUS), *((e, EVENT) for e in events)]
        cause, why = None, ""
        for span, how in choices:
            if span is not None and (cause is None or span.end > cause.end):
                cause, why = span, how
        start = cause.end if cause is not None else 0
        span = Span(op, pipe, start, start + taken, cause, why, events)
        self.spans.append(span)
        self.last[pipe] = self.of[event] = span
        if synchronous:
            self._after(span)

    def wait(self, op: Op | None, events: Iterable[object]) -> None:
        """Issue later ops only after these events."""
        spans = tuple([self.of[e] for e in events if e in self.of])
        before = self.now
        for span in spans:
            self._after(span)
        if op is not None and spans and self.issued is not None:
            self.syncs.append(Span(op, "S", before, max(self.issued.end, before + 1), None, "", spans))

    @property
    def now(self) -> int:
        """The cycle from which the next op can be issued."""
        return self.issued.end if self.issued is not None else 0

    def meet(self, op: Op | None, last: int) -> None:
        """Issue later ops only from cycle `last` on, when the last core is at the barrier `op`."""
        if op is not None and last > self.now:
            self.issued = Span(op, "S", self.now, last, self.issued, MEETS)
            self.syncs.append(self.issued)

    def barrier(self, pipes: Iterable[str]) -> None:
        """Issue later ops only after all issued ops of these pipes."""
        for pipe in pipes:
            if (span := self.last.get(pipe)) is not None:
                self._after(span)

    def _after(self, span: Span) -> None:
        if self.issued is None or span.end > self.issued.end:
            self.issued = span

    def _move(
        self, read: Sequence[tuple[str, Tile]], made: Sequence[tuple[str, Tile]], memory: tuple[Array, bool] | None
    ) -> None:
        stored = memory is not None and memory[1]
        for k, (space, tile) in enumerate(read):
            elements = memory[0].size if stored and memory is not None and not k else prod(tile.valid)
            self.moved.setdefault(space, Moved()).read += elements * tile.type.dtype.size
        for space, tile in made:
            self.moved.setdefault(space, Moved()).written += _bytes(tile)
        if memory is not None:
            window, writes = memory
            gm = self.moved.setdefault("gm", Moved())
            gm.read += 0 if writes else window.nbytes
            gm.written += window.nbytes if writes else 0

    # What it shows

    @property
    def makespan(self) -> int:
        """The cycle at which the last op ends."""
        return max(max((s.end for s in self.spans), default=0), *(c.makespan for c in self.cores), 0)

    def busy(self) -> dict[str, int]:
        """The busy cycles of each pipe that ran an op."""
        made: Counter[str] = Counter()
        for s in self.spans:
            made[s.pipe] += s.end - s.start
        return {pipe: made[pipe] for pipe in PIPES if pipe in made}

    def stalls(self) -> list[Stall]:
        """The idle cycles of each pipe by cause, the longest first. With `busy` they add up to the makespan."""
        found: Counter[tuple[str, str]] = Counter()
        free: dict[str, int] = {}
        for s in self.spans:
            if s.start > free.get(s.pipe, 0) and s.cause is not None:
                what = f"{s.cause.name} ({s.cause.pipe})"
                cause = f"waits for {what}" if s.why == EVENT else f"issued after {what}, which is synchronous or awaited"
                found[s.pipe, cause] += s.start - free.get(s.pipe, 0)
            free[s.pipe] = s.end
        for pipe, end in free.items():
            if end < self.makespan:
                found[pipe, OVER] += self.makespan - end
        made = [Stall(pipe, cause, cycles) for (pipe, cause), cycles in found.items()]
        return sorted(made, key=lambda s: (PIPES.index(s.pipe), -s.cycles, s.cause))

    def critical_path(self) -> list[Span]:
        """A chain of ops up to the one that ends last. Each waited for the one before, so that they fill the makespan."""
        at = max(self.spans, key=lambda s: s.end, default=None)
        path = []
        while at is not None:
            path.append(at)
            at = at.cause
        return path[::-1]

    def report(self, source: Source | None = None) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
        """Tables for people: title, columns, rows. Of several cores: the cycles of each, then the tables of the slowest."""
        whole = self.makespan
        if self.cores:
            slowest = max(self.cores, key=lambda c: c.makespan)
            each = [(str(k), str(c.makespan), *_busiest(c)) for k, c in enumerate(self.cores)]
            yield f"{whole} cycles on {len(self.cores)} cores", ("core", "cycles", "ops", "busiest", "busy"), each
            for title, columns, lines in slowest.report(source):
                yield f"core {self.cores.index(slowest)}: {title}", columns, lines
            return
        moved = sorted(self.moved.items())
        yield "bytes per space", ("space", "read", "written"), [(name, str(m.read), str(m.written)) for name, m in moved]
        count = Counter(s.pipe for s in self.spans)
        busy = [(pipe, str(count[pipe]), str(n), _share(n, whole)) for pipe, n in self.busy().items()]
        yield f"{whole} cycles at the costs of {self.target.name}", ("pipe", "ops", "busy", "occupancy"), busy
        stalls = [(s.pipe, str(s.cycles), _share(s.cycles, whole), s.cause) for s in self.stalls()]
        yield "stalls", ("pipe", "cycles", "share", "cause"), stalls
        path: dict[Op, list[Span]] = {}
        for s in self.critical_path():
            path.setdefault(s.op, []).append(s)
        rows = []
        for op, spans in sorted(path.items(), key=lambda item: -_cycles(item[1])):
            taken, values = _cycles(spans), ", ".join(f"%{v.name}" for v in op.results)
            rows.append(
                (str(taken), _share(taken, whole), str(len(spans)), spans[0].pipe, spans[0].name, values, _line(op, source))
            )
        more = len(rows) - SHOWN
        title = f"critical path, without {more} lines that take less" if more > 0 else "critical path"
        yield title, ("cycles", "share", "times", "pipe", "op", "values", "line"), rows[:SHOWN]

    def chrome_trace(self, source: Source | None = None) -> dict[str, object]:
        """The run for about://tracing and Perfetto: a lane per pipe, an arrow per event that is waited for; a cycle is 1 us."""
        if self.cores:
            cores = [dict(e, pid=k) for k, c in enumerate(self.cores) for e in c.events(source)]
            named = [{"name": "process_name", "ph": "M", "pid": k, "args": {"name": f"core {k}"}} for k in range(len(self.cores))]
            return {"traceEvents": [*named, *cores], "displayTimeUnit": "ms", "otherData": {"costs": self.target.name}}
        return {"traceEvents": self.events(source), "displayTimeUnit": "ms", "otherData": {"costs": self.target.name}}

    def events(self, source: Source | None = None) -> list[dict[str, object]]:
        """The lanes, ops and arrows of a Chrome trace."""
        shown = [*self.spans, *self.syncs]
        used = {s.pipe for s in shown}
        events: list[dict[str, object]] = []
        lanes = {pipe: i for i, pipe in enumerate(PIPES) if pipe in used}
        for pipe, lane in lanes.items():
            events.append({"name": "thread_name", "ph": "M", "pid": 0, "tid": lane, "args": {"name": pipe}})
            events.append({"name": "thread_sort_index", "ph": "M", "pid": 0, "tid": lane, "args": {"sort_index": lane}})
        arrows = 0
        for s in shown:
            about = {"values": ", ".join(f"%{v.name}" for v in s.op.results), "line": _line(s.op, source)}
            at = {"pid": 0, "tid": lanes[s.pipe], "ts": s.start}
            events.append({"name": s.name, "cat": "op", "ph": "X", **at, "dur": s.end - s.start, "args": about})
            for w in s.waits:
                arrow = {"name": "event", "cat": "event", "id": arrows, "pid": 0}
                into = s.end - 1 if s.pipe == "S" else s.start
                events.append({**arrow, "ph": "s", "tid": lanes[w.pipe], "ts": w.end - 1})
                events.append({**arrow, "ph": "f", "bp": "e", "tid": lanes[s.pipe], "ts": into})
                arrows += 1
        return events


def _busiest(timeline: Timeline) -> tuple[str, str, str]:
    """The number of ops, and the busiest pipe with its cycles."""
    busy = timeline.busy()
    pipe = max(busy, key=lambda p: busy[p], default="")
    return str(len(timeline.spans)), pipe, str(busy.get(pipe, 0))


def cycles(
    costs: Costs,
    op: Op,
    pipe: str,
    read: Sequence[tuple[str, Tile]],
    made: Sequence[tuple[str, Tile]],
    memory: tuple[Array, bool] | None,
) -> int:
    """The cycles of an op in its pipe: at least 1, and exactly 1 if it only renames a tile."""
    if facts(op).renames:
        return 1
    if pipe == "M":
        (left,), (right,) = ([tile for space, tile in read if space == name] for name in ("Left", "Right"))
        size = left.type.dtype.size
        m, k, n = _whole(left.valid[0], BOX), _whole(left.valid[1], DEPTH // size), _whole(right.valid[1], BOX)
        return costs.multiplied(m, k, n, size)
    if pipe == "V":
        largest = max((tile for _, tile in (*read, *made)), key=_bytes, default=None)
        *rows, columns = largest.valid if largest is not None else (0,)
        size = largest.type.dtype.size if largest is not None else 0
        return costs.work(facts(op).work, len(read)).cycles(prod(rows), columns * size)
    if memory is not None:
        space, tile = (*made, *read)[0]
        source, to = (space, "gm") if memory[1] else ("gm", space)
        size = memory[0].itemsize
        return costs.moved(pipe, source, to, _moved(tile, memory[0]) / size, size)
    if not read or not made:
        return costs.start[pipe] + int(max((_bytes(tile) for _, tile in (*read, *made)), default=0) / costs.rates[pipe])
    (source, whole), (to, tile) = read[0], made[0]
    elements = min(prod(whole.valid), prod(tile.valid))  # a part of a matrix is moved, and nothing else of it
    return costs.moved(pipe, source, to, elements, whole.type.dtype.size)


def _moved(tile: Tile, window: Array) -> int:
    """The bytes that a load or store of a tile takes the time of: of each row at least `ALIGNMENT`."""
    row = tile.valid[-1] if tile.shape[-1] != 1 else window.size
    return window.size // row * _whole(row * window.itemsize, ALIGNMENT)


def _whole(n: int, box: int) -> int:
    return -(-n // box) * box


def _bytes(tile: Tile) -> int:
    return prod(tile.valid) * tile.type.dtype.size


def _cycles(spans: Iterable[Span]) -> int:
    return sum(s.end - s.start for s in spans)


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _line(op: Op, source: Source | None) -> str:
    span = source.span(op.loc) if source is not None else None
    return str(source.position(span.start)[0]) if source is not None and span is not None else ""
