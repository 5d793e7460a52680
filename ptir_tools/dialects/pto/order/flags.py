"""Live ranges of events as hardware flags: one flag between two pipes, set by the producer, cleared by the waiting pipe.

An event is live from the op that signals it to the last op that waits for it. Events that a loop carries or a branch passes on
are one event. Each ordered pair of pipes has ids 0 to 7, and a flag must be waited for before it is set again.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.ir import ASYNC, Op, Region, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.carried import carried
from ptir_tools.dialects.pto.pipes import pipe_of
from ptir_tools.dialects.pto.structure import is_loop
from ptir_tools.dialects.pto.types import EventType

Pair = tuple[str, str]


@dataclass(slots=True, eq=False)
class Flag:
    """One event, under all its names: the ops that signal it, the pipes that wait, and its live range."""

    values: list[Value] = field(default_factory=list)
    sources: dict[str, Op] = field(default_factory=dict)  # by pipe
    targets: set[str] = field(default_factory=set)
    start: int = 1 << 62
    end: int = 0
    eid: int | None = None

    @property
    def pairs(self) -> set[Pair]:
        """The pairs of pipes (source, target) of the event."""
        return {(a, b) for a in self.sources for b in self.targets if a != b}


@dataclass(slots=True)
class Flags:
    """The events of a function. An op has one position; an op with regions has a second one after them."""

    position: int = 0
    of: dict[Value, Flag] = field(default_factory=dict)
    awaited: list[Value] = field(default_factory=list)  # in the order of the waits
    waits: dict[Value, int] = field(default_factory=dict)  # the last one
    pipes: dict[Value, dict[str, int]] = field(default_factory=dict)  # the last wait of each pipe
    signals: dict[Value, int] = field(default_factory=dict)
    defined_at: dict[Value, int] = field(default_factory=dict)  # the position at which each name gets its event
    given: dict[Value, list[Value]] = field(
        default_factory=dict
    )  # by name, the other names of its event before an op with blocks
    # Of a loop: an event from before it, and the one that replaces it. Every iteration waits for an overtaken event, and one
    # iteration signals its replacement.
    carried: list[tuple[Value, Value]] = field(default_factory=list)
    overtaken: list[tuple[Value, Value]] = field(default_factory=list)
    # An event from before an op with blocks, the one that a block signals instead, and the position at which the op ends.
    replaced: list[tuple[Value, Value, int]] = field(default_factory=list)

    def block(self, block: Region) -> None:
        for op in block.body:
            self.position += 1
            opened, before = self.position, len(self.awaited)
            for x in op.operands:
                if isinstance(x, Value) and isinstance(x.type, EventType) and not op.regions:
                    self.wait(x, op)
            for r in op.regions:
                self.defined_at.update(dict.fromkeys(r.params, opened))
                self.block(r)
            if op.regions:
                self.position += 1
                self.defined_at.update(dict.fromkeys(op.results, self.position))
                self.join(op, opened)
                if is_loop(op):
                    self.extend_in_loop(opened, self.awaited[before:])
                for c in carried(op):
                    for v in c.homes:
                        self.given[v] = [x for place in c.sources if isinstance(x := c.given(*place), Value)]
            elif op.defn.traits & ASYNC and op.results and isinstance(op.results[-1].type, EventType):
                self.signal(op.results[-1], op)

    def wait(self, v: Value, op: Op) -> None:
        flag = self.flag(v)
        pipe = pipe_of(op) if op.defn.traits & ASYNC else "S"
        flag.targets.add(pipe)
        self.pipes.setdefault(v, {})[pipe] = self.position
        flag.end = max(flag.end, self.position)
        self.waits[v] = self.position
        self.awaited.append(v)

    def extend_in_loop(self, opened: int, awaited: list[Value]) -> None:
        """Extend the live range of events to the end of a loop that waits for them but does not signal them. This includes the
        other names that ops in the loop give to them."""
        names = dict.fromkeys(awaited)
        todo = list(names)
        while todo:
            new = [x for x in self.given.get(todo.pop(), ()) if x not in names]
            names.update(dict.fromkeys(new))
            todo += new
        for v in names:
            if v in self.of and self.defined_at.get(v, -1) < opened:
                self.of[v].end = max(self.of[v].end, self.position)
                self.overtaken += [(v, x) for x in self.of[v].values if self.signals.get(x, -1) > opened]

    def signal(self, v: Value, op: Op) -> None:
        flag = self.flag(v)
        flag.sources.setdefault(pipe_of(op), op)
        flag.start = min(flag.start, self.position)
        self.signals[v] = self.defined_at[v] = self.position

    def join(self, op: Op, opened: int) -> None:
        """Merge the events that pass through the blocks of `op` with its results."""
        for c in carried(op):
            if not isinstance(c.homes[0].type, EventType):
                continue
            whole = self.flag(c.homes[0])
            given = [c.given(*place) for place in c.sources]
            for x in (*c.homes, *given):
                assert isinstance(x, Value)
                self.merge(whole, self.flag(x))
                if x in self.waits and c.sources[0][0] is not None:  # it was waited for under an earlier name
                    self.waits.setdefault(c.homes[0], self.waits[x])
            inside = [x for x in whole.values if self.signals.get(x, -1) > opened]
            before = [x for x in given if isinstance(x, Value) and x not in inside]
            self.replaced += [(x, y, self.position) for x in before for y in inside]
            whole.start, whole.end = min(whole.start, opened), max(whole.end, self.position)
        self.carried += [(p, x) for p, x in _replacements(op) if self.flag(p) is self.flag(x)]

    def flag(self, v: Value) -> Flag:
        if (found := self.of.get(v)) is None:
            self.of[v] = found = Flag([v])
        return found

    def merge(self, into: Flag, other: Flag) -> None:
        if into is other:
            return
        into.values += other.values
        into.sources = other.sources | into.sources
        into.targets |= other.targets
        into.start, into.end = min(into.start, other.start), max(into.end, other.end)
        self.of.update(dict.fromkeys(other.values, into))

    def replaced_and_awaited(self) -> Iterator[tuple[Value, Value]]:
        """Pairs of events. The first is replaced in a block, but a pipe still waits for it afterwards. The second is signaled
        to that pipe instead."""
        for x, y, end in self.replaced:
            others = {pipe for v in self.of[x].values if v is not x for pipe in self.pipes.get(v, ())}
            if any(at > end and pipe in others for pipe, at in self.pipes.get(x, {}).items()):
                yield x, y

    def interferences(self) -> Iterator[tuple[Flag, list[Flag]]]:
        """Every event between pipes, in order, with the earlier events of the same pipes whose live ranges overlap it."""
        active: list[Flag] = []
        for flag in sorted((f for f in dict.fromkeys(self.of.values()) if f.pairs), key=lambda f: f.start):
            active = [f for f in active if f.end > flag.start]
            yield flag, [f for f in active if f.pairs & flag.pairs]
            active.append(flag)


def _replacements(op: Op) -> Iterator[tuple[Value, Value]]:
    """Of a loop: the events that its blocks get, each with those that replace it."""
    inside: list[Value] = []
    for r in op.regions if is_loop(op) else ():
        inside += [p for p in r.params if isinstance(p.type, EventType)]
        given = [x for x in r.results if isinstance(x, Value) and isinstance(x.type, EventType)]
        yield from ((p, x) for x in given for p in inside)
        inside = [p for p in inside if p not in given]  # a passed event has another name in the next block


def flags_of(block: Region) -> Flags:
    """The events of a function."""
    found = Flags()
    found.block(block)
    return found
