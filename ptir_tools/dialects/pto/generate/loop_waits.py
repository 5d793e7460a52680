"""Events and waits for a tree of `loop_kernels`, so that it has no races.

The code shares nothing with `pto-insert-events` or the hazard check, and may add more waits than necessary. Every op waits for
each earlier asynchronous op that it may depend on, in this or an earlier iteration. Loops carry events of earlier iterations in
queues of length one to three. Without an event, a barrier waits for the pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from ptir_tools.core.choices import Choices
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.dialects.pto.generate.loop_kernels import (
    SIDE,
    Barrier,
    Branch,
    Carried,
    Event,
    Loop,
    Node,
    Place,
    Step,
    Sync,
    Tile,
    all_steps,
)
from ptir_tools.dialects.pto.pipes import pipes_of_opcode

_ITERATIONS = 48  # that are compared: more than rings and distances of these kernels need
_COMPLETE = 5  # one loop in so many waits for everything at its end


@dataclass(slots=True, eq=False)
class _Pending:
    """An op that may be incomplete. `lag`: it ran in earlier iterations of this loop; `queue`: their events, the last first."""

    step: Step
    loops: tuple[Loop, ...]  # around it
    number: int
    event: Event | None
    lag: Loop | None = None
    queue: tuple[Event, ...] = ()
    known: set[str] = field(default_factory=set)  # pipes that have waited for it
    alone: bool = False  # its event does not imply earlier ops: its loop or branch may not have run


class Waits:
    """Adds events and waits to a kernel."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.numbers = count()
        self.visible: list[Event] = []  # events that an op may wait for
        self.share = choices.one((6, 8, 10))  # of ten ops, the number of asynchronous ones

    def kernel(self, nodes: list[Node]) -> list[Node]:
        """The kernel with events. Its first op has one."""
        for k, s in enumerate(all_steps(nodes)):
            s.event = Event() if k == 0 or self.choices.number(1, 10) <= self.share else None
        return self.block(nodes, [], ())

    def block(self, nodes: Sequence[Node], pending: list[_Pending], loops: tuple[Loop, ...]) -> list[Node]:
        """A block with its waits; `pending` becomes the ops that may be incomplete at its end."""
        block: list[Node] = []
        for x in nodes:
            if isinstance(x, Step):
                block += self.step(x, pending, loops)
            elif isinstance(x, Barrier):
                _drop(pending, x.opcode)
            elif isinstance(x, Branch):
                self.branch(x, pending, loops)
            elif isinstance(x, Loop):
                self.loop(x, pending, loops)
            block.append(x)
        return block

    def step(self, x: Step, pending: list[_Pending], loops: tuple[Loop, ...]) -> Iterator[Node]:
        """The barriers and waits before an op; the op gets its own waits."""
        waits: dict[Event, None] = {}
        for f in reversed(list(pending)):
            if (
                f not in pending
                or f.step.pipe == x.pipe
                or x.pipe in f.known
                or not (distance := _dependence_distance(f, x, loops))
            ):
                continue
            signal = f.event if f.lag is None else f.queue[min(distance, len(f.queue)) - 1] if f.queue else None
            if signal is None:
                opcode = f.step.opcode if self.choices.number(0, 5) else "ALL"
                _drop(pending, opcode)
                yield Barrier(opcode)
                continue
            waits[signal] = None
            if f.lag is None and self.choices.number(0, 3):
                for g in [f] if f.alone else pending:
                    if g.lag is None and g.step.pipe == f.step.pipe and g.number <= f.number:
                        g.known.add(x.pipe)
        if waits and self.choices.number(0, 6) == 0:
            yield Sync(list(waits))
        else:
            x.waits = list(waits)
        if x.event is not None:
            self.visible.append(x.event)
            pending.append(_Pending(x, loops, next(self.numbers), x.event))

    def inside(
        self, nodes: Sequence[Node], pending: Sequence[_Pending], loops: tuple[Loop, ...], more: Sequence[Event] = ()
    ) -> tuple[list[Node], list[_Pending]]:
        """An inner block with its waits, and its ops that may be incomplete at its end."""
        before, seen, start = [replace(f, known=set(f.known)) for f in pending], len(self.visible), next(self.numbers)
        self.visible += more
        block = self.block(nodes, before, loops)
        del self.visible[seen:]
        return block, [f for f in before if f.number > start]

    def branch(self, x: Branch, pending: list[_Pending], loops: tuple[Loop, ...]) -> None:
        """Add waits to a branch; at times the last events of its blocks become a result."""
        ends: list[list[_Pending]] = []
        for k, block in enumerate(x.blocks):
            x.blocks[k], own = self.inside(block, pending, loops)
            ends.append(own)
        last = [next((f for f in reversed(own) if f.event is not None), None) for own in ends]
        joined: Event | None = None
        if last[0] is not None and last[1] is not None and last[0].event and last[1].event and self.choices.number(0, 2):
            x.events.append((joined := Event(), last[0].event, last[1].event))
            self.visible.append(joined)
        pending += [replace(f, event=joined if f in last else None, alone=True) for own in ends for f in own]

    def loop(self, x: Loop, pending: list[_Pending], loops: tuple[Loop, ...]) -> None:
        """Add waits to a loop. Ops of earlier iterations are pending, unless each iteration ends with a barrier for all."""
        complete = not x.head and self.choices.number(1, _COMPLETE) == 1
        steps = [] if complete else [s for block in x.blocks for s in all_steps(block) if s.event is not None]
        around = (*loops, x)
        queues = self.queues(x, steps)
        lagged = [_Pending(s, around, -1, None, x, tuple(queues.get(s, ()))) for s in steps]
        if x.head is not None:
            without_events = [replace(f, queue=()) for f in lagged]
            x.head, head = self.inside(x.head, [*pending, *without_events], around)
            lagged += [replace(f, event=None) for f in head]
        x.body, _ = self.inside(x.body, [*pending, *lagged], around, [e for q in queues.values() for e in q])
        if complete:
            x.body.append(Barrier("ALL"))
        after = {c.again: c.after for c in x.events}
        for s in steps:
            last = after.get(s.event) if s in queues and s.event is not None else None
            assert not isinstance(last, Tile)
            pending.append(_Pending(s, around, next(self.numbers), last, alone=True))
            self.visible += [last] if last is not None else []

    def queues(self, x: Loop, steps: Sequence[Step]) -> dict[Step, list[Event]]:
        """For some ops of its body, the events of earlier iterations that a loop carries, the last first."""
        found: dict[Step, list[Event]] = {}
        for s in (s for s in x.body if isinstance(s, Step) and s in steps and s.event is not None):
            if len(found) == 4 or self.choices.number(0, 2) == 0:
                continue
            queue = [Event() for _ in range(self.choices.one((1, 1, 2, 3)))]
            for inside, again in zip(queue, (s.event, *queue), strict=False):
                assert again is not None
                x.events.append(Carried(inside, self.choices.one(self.visible), again, Event()))
            found[s] = queue
        return found


def _drop(pending: list[_Pending], opcode: str) -> None:
    """Drop the ops that a barrier waits for."""
    pending[:] = [f for f in pending if opcode != "ALL" and f.step.pipe not in pipes_of_opcode(opcode)]


def _accesses(x: Step) -> Iterator[tuple[str, Place, int, bool]]:
    """The accesses of an op: space, place, size, and whether it writes."""
    if x.place is not None:
        yield x.memory, x.place, x.rows if isinstance(x.rows, int) else SIDE, x.makes is None
    for t, writes in (*((t, False) for t in x.uses), *([(x.makes, True)] if x.makes is not None else [])):
        if t.place is not None:
            yield t.loc, t.place, t.size, writes


def _dependence_distance(f: _Pending, x: Step, loops: tuple[Loop, ...]) -> int:
    """The smallest distance in iterations at which `x` may depend on the pending op: at least 1, or 0 if it never does."""
    operands, todo = set[Tile](), list(x.uses)
    while todo:
        if (t := todo.pop()) not in operands:
            operands.add(t)
            todo += t.sources
    if f.step.makes in operands:
        return 1
    fixed = set(loops[: loops.index(f.lag)]) if f.lag is not None else set(loops).intersection(f.loops)
    found = [
        n
        for a, p, m, one in _accesses(f.step)
        for b, q, k, other in _accesses(x)
        if a == b and (one or other) and (n := _overlap_distance((p, m), (q, k), f.lag, fixed))
    ]
    return min(found, default=0)


def _overlap_distance(first: tuple[Place, int], second: tuple[Place, int], lag: Loop | None, fixed: set[Loop]) -> int:
    """The smallest distance at which two windows may overlap, or 0. Loops of `fixed` are in the same iteration for both."""
    (p, m), (q, n) = first, second
    if p.outer in fixed and (p.outer, p.stride) == (q.outer, q.stride):
        p, q = replace(p, outer=None), replace(q, outer=None)
    loops = {x for x in (p.loop, p.outer, q.loop, q.outer) if x is not None}
    if len(loops) > 1 or p.outer is not None or q.outer is not None:
        return 1
    (loop,) = loops or (None,)
    if loop is None or loop in fixed:
        return int(any(_overlap(p.at(k), m, q.at(k), n) for k in range(_ITERATIONS)))
    if loop is not lag:
        return 1
    for distance in range(1, _ITERATIONS // loop.step):
        back = distance * loop.step
        if any(_overlap(p.at(k - back), m, q.at(k), n) for k in range(back, _ITERATIONS)):
            return distance
    return 0


def _overlap(a: int, m: int, b: int, n: int) -> bool:
    return a < b + n and b < a + m
