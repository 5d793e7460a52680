"""A search for offsets within a capacity: branch and bound over the buffer at the lowest free height.

Time is cut into sections, the largest sets of buffers alive at once; a buffer covers consecutive sections. A solution can be
packed so that every buffer is on the ground or on another. So the search takes the lowest height that any unplaced buffer may
have, and picks one section there. It decides which buffer that covers the section is at that height. It tries each buffer, and at
last none. With none, all buffers that cover the section are raised to the lowest top on which one of them could stand. A section
that is nearly full and has few choices is decided first.

A branch is cut off if a section has no room left: its lowest height plus the bytes that it must still hold exceed the capacity.
Parts of the unplaced buffers that share no section are searched separately. So a dead end in one part does not repeat the choices
of another. A buffer that overlaps no unplaced buffer is tried only once: no other height could be better.

`native/placement.c` is the same search, step for step.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from enum import IntEnum
from functools import cache
from importlib import import_module
from types import ModuleType

from ptir_tools.core.records import dataclass, field

DEEPEST = 4096  # nested decisions
_NEVER = (1 << 63) - 1


class Outcome(IntEnum):
    """The outcome of a search."""

    GAVE_UP = -1
    IMPOSSIBLE = 0
    PLACED = 1


@dataclass(slots=True, frozen=True)
class Buffers:
    """The buffers to place, sorted by first section; each covers the sections [lower, upper). The kernel takes arrays."""

    lower: array[int]
    upper: array[int]
    size: Sequence[int]


@cache
def kernel() -> ModuleType | None:
    """The extension, or None if it was not built and Python is used."""
    try:
        return import_module("ptir_tools._native")
    except ModuleNotFoundError:
        return None


def search(buffers: Buffers, rank: Sequence[int], capacity: int, steps: int) -> tuple[Outcome, list[int], int]:
    """(outcome, offsets if placed, number of steps). `rank` is the order in which buffers are tried. Deterministic."""
    extension = kernel()
    if extension is None:
        return _Search(buffers, rank, capacity, steps).run()
    offsets = array("q", bytes(8 * len(buffers.size)))
    outcome, used = extension.place(buffers.lower, buffers.upper, buffers.size, array("q", rank), capacity, steps, offsets)
    return Outcome(outcome), list(offsets), used


def fit(
    buffers: Buffers, order: Sequence[int], offsets: array[int], done: int = 0, until: int | None = None, tightest: bool = False
) -> None:
    """Offsets for the buffers order[done:until], each in the lowest gap between those before it, or the tightest; those before
    `done` have theirs. Without an order all are placed by start, in the lowest gap. Needs the kernel."""
    extension = kernel()
    assert extension is not None
    end = len(order) if until is None else until
    extension.fit(buffers.lower, buffers.upper, buffers.size, array("q", order), done, end, tightest, offsets)


class _GaveUp(Exception):
    pass


@dataclass(slots=True)
class _Decision:
    """The decision about height `h` in `section`. The options from `at` on are not tried yet, nor is leaving it empty. `part` are
    the buffers concerned. `pending` are the parts that remain to be solved after the current option. `mark` is the earlier length
    of the trail."""

    part: list[int]
    pending: list[list[int]]
    mark: int = 0
    h: int = 0
    section: int = -1
    options: list[int] = field(default_factory=list)
    at: int = 0
    last: bool = False


class _Search:
    def __init__(self, buffers: Buffers, rank: Sequence[int], capacity: int, steps: int) -> None:
        self.lower, self.upper, self.size = buffers.lower, buffers.upper, buffers.size
        self.rank, self.capacity, self.limit, self.steps = rank, capacity, steps, 0
        n, sections = len(self.size), max(self.upper, default=0)
        self.offsets, self.floor, self.lowest = [0] * n, [0] * n, [0] * n
        self.base, self.total = [0] * sections, [0] * sections
        self.placed = [False] * n
        self.trail: list[tuple[list[int], int, int]] = []
        self.overlapping = [[j for j in range(n) if j != i and self.meet(i, j)] for i in range(n)]

    def meet(self, i: int, j: int) -> bool:
        return self.lower[i] < self.upper[j] and self.lower[j] < self.upper[i]

    def run(self) -> tuple[Outcome, list[int], int]:
        """The search. Recursion is explicit, because it is as deep as there are buffers."""
        parts = self.split(list(range(len(self.size))))
        if parts is None:
            return Outcome.IMPOSSIBLE, [], 0
        stack, solved = [_Decision([], parts, last=True)], True
        try:
            while stack:
                top = stack[-1]
                if solved and not top.pending:
                    stack.pop()
                    continue
                if solved:
                    if len(stack) > DEEPEST:
                        raise _GaveUp
                    top = self.decision(top.pending.pop(0))
                    stack.append(top)
                else:
                    self.retract(top)
                solved = self.advance(top)
                if not solved:
                    stack.pop()
        except _GaveUp:
            return Outcome.GAVE_UP, [], self.steps
        return (Outcome.PLACED if solved else Outcome.IMPOSSIBLE), self.offsets, self.steps

    def decision(self, part: list[int]) -> _Decision:
        """The first decision about `part`."""
        h = min(self.lowest[x] for x in part)
        ready = [x for x in part if self.lowest[x] == h == self.floor[x]]
        section = self.choose(ready, h)
        options = sorted((x for x in ready if self.covers(x, section)), key=self.rank.__getitem__)
        return _Decision(part, [], len(self.trail), h, section, options)

    def choose(self, ready: Iterable[int], h: int) -> int:
        """The section to decide; -1 if none is ready."""
        choices: dict[int, int] = {}
        for x in ready:
            for t in range(self.lower[x], self.upper[x]):
                choices[t] = choices.get(t, 0) + 1

        def key(t: int) -> tuple[bool, int, int, int]:
            slack = self.capacity - h - self.total[t]
            tight = slack <= self.capacity // 16
            return not tight, choices[t] + (slack > 0) if tight else 0, slack, t

        return min(choices, key=key, default=-1)

    def advance(self, d: _Decision) -> bool:
        """Take the next option whose parts have room; False if there is none."""
        while d.at < len(d.options) and not d.last:
            self.step()
            x = d.options[d.at]
            d.at += 1
            d.last = not self.place(x, d.h)
            parts = self.split([y for y in d.part if y != x])
            if parts is not None:
                d.pending = parts
                return True
            self.retract(d)
        if d.last or d.at > len(d.options) or d.section < 0:
            return False
        d.at += 1
        return self.leave_empty(d)

    def retract(self, d: _Decision) -> None:
        """Undo a decision, and all later ones."""
        while len(self.trail) > d.mark:
            where, i, before = self.trail.pop()
            where[i] = before
        for x in d.part:
            self.placed[x] = False

    def place(self, x: int, h: int) -> bool:
        """Place `x`. Whether an unplaced buffer overlaps it."""
        self.placed[x], self.offsets[x], top, others = True, h, h + self.size[x], False
        for y in self.overlapping[x]:
            if not self.placed[y]:
                others = True
                self.raise_to(self.floor, y, top)
                self.raise_to(self.lowest, y, self.floor[y])
        return others

    def leave_empty(self, d: _Decision) -> bool:
        """Decide that nothing is at the height in the section."""
        covering = [x for x in d.part if self.covers(x, d.section)]
        raised = min(self.lowest[x] if self.lowest[x] > d.h else self.support(x, d.section) for x in covering)
        if raised > self.capacity - self.total[d.section]:
            return False
        self.step()
        for x in covering:
            self.raise_to(self.lowest, x, raised)
        d.pending = [d.part]
        if self.fits(d.part):
            return True
        self.retract(d)
        return False

    def split(self, rest: list[int]) -> list[list[int]] | None:
        """The parts of `rest` that share no section and are not solved; None if one has no room."""
        parts: list[list[int]] = []
        end = -1
        for x in rest:
            if self.lower[x] >= end:
                parts.append([])
            parts[-1].append(x)
            end = max(end, self.upper[x])
        for part in parts:
            if len(part) > 1 and not self.fits(part):
                return None
            if len(part) == 1:
                self.offsets[part[0]] = self.floor[part[0]]
                if self.floor[part[0]] + self.size[part[0]] > self.capacity:
                    return None
        return [part for part in parts if len(part) > 1]

    def fits(self, part: list[int]) -> bool:
        """Whether every section has room; records the bytes and the lowest height of each."""
        if not self.raise_unsupported(part):
            return False
        for t in range(self.lower[part[0]], max(self.upper[x] for x in part)):
            self.base[t], self.total[t] = _NEVER, 0
        for x in part:
            for t in range(self.lower[x], self.upper[x]):
                self.base[t] = min(self.base[t], self.lowest[x])
                self.total[t] += self.size[x]
        sections = range(self.lower[part[0]], max(self.upper[x] for x in part))
        return all(not self.total[t] or self.base[t] + self.total[t] <= self.capacity for t in sections)

    def raise_unsupported(self, part: list[int]) -> bool:
        """Raise each interval that rests on no placed one to the lowest top of an unplaced one. False if there is none."""
        for x in part:
            if self.lowest[x] != self.floor[x]:
                support = self.support(x, -1)
                if support == _NEVER:
                    return False
                self.raise_to(self.lowest, x, support)
        return True

    def support(self, x: int, but: int) -> int:
        """The lowest top of the unplaced buffers that overlap `x` and do not cover the section `but`."""
        tops = (self.lowest[y] + self.size[y] for y in self.overlapping[x] if not self.placed[y] and not self.covers(y, but))
        return min(tops, default=_NEVER)

    def covers(self, x: int, section: int) -> bool:
        return self.lower[x] <= section < self.upper[x]

    def raise_to(self, heights: list[int], x: int, height: int) -> None:
        if heights[x] < height:
            self.trail.append((heights, x, heights[x]))
            heights[x] = height

    def step(self) -> None:
        if self.steps >= self.limit:
            raise _GaveUp
        self.steps += 1
