"""Events and waits for a tree of `loop_kernels`, so that it is free of races: for kernels made at random.

It is simple rather than sparing, and shares nothing with `pto-insert-events` or the check: every op waits for each asynchronous
one before it that it may meet, in this round of a loop or in an earlier one. Events of earlier rounds are carried, in queues of
one to three rounds; where there is none, a barrier waits for the pipe.
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
from ptir_tools.dialects.pto.pipes import pipe_of_opcode

_ROUNDS = 48  # of a loop that are looked at: more than rings and distances of these kernels need
_SETTLED = 5  # one loop in so many waits for everything at its end


@dataclass(slots=True, eq=False)
class _Flight:
    """An op that may be under way. `lag`: it is that of earlier rounds of this loop; `queue` has its events, the last first."""

    step: Step
    loops: tuple[Loop, ...]  # around it
    number: int
    event: Event | None
    lag: Loop | None = None
    queue: tuple[Event, ...] = ()
    known: set[str] = field(default_factory=set)  # pipes that have waited for it
    alone: bool = False  # its event says nothing of ops before: its loop or branch may not have run


class Waits:
    """Adds events and waits to a kernel."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.numbers = count()
        self.sight: list[Event] = []  # events that may be waited for
        self.share = choices.one((6, 8, 10))  # of ten ops, how many are asynchronous

    def kernel(self, nodes: list[Node]) -> list[Node]:
        """The kernel with events. Its first op has one."""
        for k, s in enumerate(all_steps(nodes)):
            s.event = Event() if k == 0 or self.choices.number(1, 10) <= self.share else None
        return self.block(nodes, [], ())

    def block(self, nodes: Sequence[Node], flying: list[_Flight], loops: tuple[Loop, ...]) -> list[Node]:
        """A block with its waits; `flying` becomes what may be under way at its end."""
        made: list[Node] = []
        for x in nodes:
            if isinstance(x, Step):
                made += self.step(x, flying, loops)
            elif isinstance(x, Barrier):
                _drop(flying, x.opcode)
            elif isinstance(x, Branch):
                self.branch(x, flying, loops)
            elif isinstance(x, Loop):
                self.loop(x, flying, loops)
            made.append(x)
        return made

    def step(self, x: Step, flying: list[_Flight], loops: tuple[Loop, ...]) -> Iterator[Node]:
        """What comes before an op; the op gets its waits."""
        waits: dict[Event, None] = {}
        for f in reversed(list(flying)):
            if f not in flying or f.step.pipe == x.pipe or x.pipe in f.known or not (rounds := _met(f, x, loops)):
                continue
            signal = f.event if f.lag is None else f.queue[min(rounds, len(f.queue)) - 1] if f.queue else None
            if signal is None:
                opcode = f.step.opcode if self.choices.number(0, 5) else "ALL"
                _drop(flying, opcode)
                yield Barrier(opcode)
                continue
            waits[signal] = None
            if f.lag is None and self.choices.number(0, 3):
                for g in [f] if f.alone else flying:
                    if g.lag is None and g.step.pipe == f.step.pipe and g.number <= f.number:
                        g.known.add(x.pipe)
        if waits and self.choices.number(0, 6) == 0:
            yield Sync(list(waits))
        else:
            x.waits = list(waits)
        if x.event is not None:
            self.sight.append(x.event)
            flying.append(_Flight(x, loops, next(self.numbers), x.event))

    def inside(
        self, nodes: Sequence[Node], flying: Sequence[_Flight], loops: tuple[Loop, ...], more: Sequence[Event] = ()
    ) -> tuple[list[Node], list[_Flight]]:
        """A block in another one, and the ops of it that may be under way at its end."""
        before, seen, start = [replace(f, known=set(f.known)) for f in flying], len(self.sight), next(self.numbers)
        self.sight += more
        made = self.block(nodes, before, loops)
        del self.sight[seen:]
        return made, [f for f in before if f.number > start]

    def branch(self, x: Branch, flying: list[_Flight], loops: tuple[Loop, ...]) -> None:
        """A branch; at times the last events of its blocks are one after it."""
        ends: list[list[_Flight]] = []
        for k, block in enumerate(x.blocks):
            x.blocks[k], own = self.inside(block, flying, loops)
            ends.append(own)
        last = [next((f for f in reversed(own) if f.event is not None), None) for own in ends]
        joined: Event | None = None
        if last[0] is not None and last[1] is not None and last[0].event and last[1].event and self.choices.number(0, 2):
            x.events.append((joined := Event(), last[0].event, last[1].event))
            self.sight.append(joined)
        flying += [replace(f, event=joined if f in last else None, alone=True) for own in ends for f in own]

    def loop(self, x: Loop, flying: list[_Flight], loops: tuple[Loop, ...]) -> None:
        """A loop: its ops of earlier rounds are under way, unless it waits for all at its end."""
        settled = not x.head and self.choices.number(1, _SETTLED) == 1
        steps = [] if settled else [s for block in x.blocks for s in all_steps(block) if s.event is not None]
        around = (*loops, x)
        queues = self.queues(x, steps)
        lagged = [_Flight(s, around, -1, None, x, tuple(queues.get(s, ()))) for s in steps]
        if x.head is not None:
            blind = [replace(f, queue=()) for f in lagged]
            x.head, head = self.inside(x.head, [*flying, *blind], around)
            lagged += [replace(f, event=None) for f in head]
        x.body, _ = self.inside(x.body, [*flying, *lagged], around, [e for q in queues.values() for e in q])
        if settled:
            x.body.append(Barrier("ALL"))
        after = {c.again: c.after for c in x.events}
        for s in steps:
            last = after.get(s.event) if s in queues and s.event is not None else None
            assert not isinstance(last, Tile)
            flying.append(_Flight(s, around, next(self.numbers), last, alone=True))
            self.sight += [last] if last is not None else []

    def queues(self, x: Loop, steps: Sequence[Step]) -> dict[Step, list[Event]]:
        """The events of earlier rounds that a loop carries, the last first, of some ops of its body."""
        found: dict[Step, list[Event]] = {}
        for s in (s for s in x.body if isinstance(s, Step) and s in steps and s.event is not None):
            if len(found) == 4 or self.choices.number(0, 2) == 0:
                continue
            queue = [Event() for _ in range(self.choices.one((1, 1, 2, 3)))]
            for inside, again in zip(queue, (s.event, *queue), strict=False):
                assert again is not None
                x.events.append(Carried(inside, self.choices.one(self.sight), again, Event()))
            found[s] = queue
        return found


def _drop(flying: list[_Flight], opcode: str) -> None:
    """What a barrier has waited for is not under way."""
    flying[:] = [f for f in flying if opcode != "ALL" and f.step.pipe != pipe_of_opcode(opcode)]


def _touched(x: Step) -> Iterator[tuple[str, Place, int, bool]]:
    """The memory that an op reads and writes."""
    if x.place is not None:
        yield x.memory, x.place, x.rows if isinstance(x.rows, int) else SIDE, x.makes is None
    for t, writes in (*((t, False) for t in x.uses), *([(x.makes, True)] if x.makes is not None else [])):
        if t.place is not None:
            yield t.loc, t.place, t.size, writes


def _met(f: _Flight, x: Step, loops: tuple[Loop, ...]) -> int:
    """How many rounds ago an op was that `x` may meet first: at least 1, or 0 where it meets none."""
    made, todo = set[Tile](), list(x.uses)
    while todo:
        if (t := todo.pop()) not in made:
            made.add(t)
            todo += t.sources
    if f.step.makes in made:
        return 1
    fixed = set(loops[: loops.index(f.lag)]) if f.lag is not None else set(loops).intersection(f.loops)
    found = [
        n
        for a, p, m, one in _touched(f.step)
        for b, q, k, other in _touched(x)
        if a == b and (one or other) and (n := _apart((p, m), (q, k), f.lag, fixed))
    ]
    return min(found, default=0)


def _apart(first: tuple[Place, int], second: tuple[Place, int], lag: Loop | None, fixed: set[Loop]) -> int:
    """The same of two windows. Loops of `fixed` are in the same round for both."""
    (p, m), (q, n) = first, second
    if p.outer in fixed and (p.outer, p.stride) == (q.outer, q.stride):
        p, q = replace(p, outer=None), replace(q, outer=None)
    loops = {x for x in (p.loop, p.outer, q.loop, q.outer) if x is not None}
    if len(loops) > 1 or p.outer is not None or q.outer is not None:
        return 1
    (loop,) = loops or (None,)
    if loop is None or loop in fixed:
        return int(any(_overlap(p.at(k), m, q.at(k), n) for k in range(_ROUNDS)))
    if loop is not lag:
        return 1
    for rounds in range(1, _ROUNDS // loop.step):
        back = rounds * loop.step
        if any(_overlap(p.at(k - back), m, q.at(k), n) for k in range(back, _ROUNDS)):
            return rounds
    return 0


def _overlap(a: int, m: int, b: int, n: int) -> bool:
    return a < b + n and b < a + m
