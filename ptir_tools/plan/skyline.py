"""Placement by a skyline, without search.

A skyline is the top of the placed buffers at every time. Its lowest valley is filled with the buffer of greatest weight among
those that live within it. The weight includes sides that touch a neighbor, and sections with little room. If none fits, the
valley is raised to its lower neighbor, and the space below is wasted. Several weights are tried. `native/fit.c` is the same
algorithm, step for step.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from math import log
from operator import add

from ptir_tools.core.records import NamedTuple
from ptir_tools.plan.search import Buffers, Outcome, kernel


class Setting(NamedTuple):
    """Exponents of duration and size, and the logarithms of the additions for a touching side and for a section with little
    room."""

    alive: float
    size: float
    touch: float
    urgency: float


SETTINGS = (
    Setting(1, 0.5, 0.5, 30),
    Setting(1, 1, 2, 30),
    Setting(0.5, 1, 0.5, 10),
    Setting(1, 1, 0.5, 100),
    Setting(2, 0.5, 0.5, 100),
    Setting(1, 2, 0.5, 10),
    Setting(0.5, 0.5, 0.5, 30),
    Setting(2, 1, 0.5, 30),
)
DRAWN = ((0.5, 1, 2), (0.25, 0.5, 1), (0.25, 0.5, 1, 2), (20, 30, 60, 120))  # ranges of further settings


def stack(
    buffers: Buffers, alive: Sequence[int], setting: Setting, looks: int, added: Sequence[float] = ()
) -> tuple[Outcome, array[int], int]:
    """(outcome, offsets if placed, number of looks). It gives up after `looks` looks at buffers and sections. `alive` is the
    duration of each buffer; `buffers` cover as few sections as possible. `added` has additions to the weights, per buffer.
    Deterministic."""
    weight = array("d", [setting.alive * log(t) + setting.size * log(size) for t, size in zip(alive, buffers.size, strict=True)])
    if added:
        weight = array("d", map(add, weight, added))
    extension = kernel()
    if extension is None:
        return Skyline(buffers, weight, setting).run(looks)
    offsets = array("q", bytes(8 * len(weight)))
    columns = (buffers.lower, buffers.upper, buffers.size, weight)
    outcome, used = extension.stack(*columns, setting.touch, setting.urgency, looks, offsets)
    return Outcome(outcome), offsets, used


class Skyline:
    """Runs of sections at one height, each identified by its first section."""

    def __init__(self, buffers: Buffers, weight: Sequence[float], setting: Setting) -> None:
        self.b, self.weight, self.setting = buffers, weight, setting
        sections = max(buffers.upper, default=0)
        self.sections, self.looks = sections, 0
        self.end, self.begin = {0: sections}, {sections: 0}
        self.height, self.heap = {0: 0}, [(0, 0)]
        self.waiting: list[list[int]] = [[] for _ in range(sections)]  # unplaced buffers, by first section
        load = [0] * (sections + 1)
        for i, (lower, upper, size) in enumerate(zip(buffers.lower, buffers.upper, buffers.size, strict=True)):
            self.waiting[lower].append(i)
            load[lower] += size
            load[upper] -= size
        for t in range(1, sections):
            load[t] += load[t - 1]
        self.bound = float(max(1, max(load[:sections], default=0)))
        self.load = [float(live) / self.bound for live in load[:sections]]

    def run(self, looks: int) -> tuple[Outcome, array[int], int]:
        """(outcome, offsets, looks taken)."""
        left, offsets = len(self.weight), array("q", bytes(8 * len(self.weight)))
        while left and self.looks <= looks:
            height, start = self.heap[0]
            if self.height.get(start) != height:
                heapq.heappop(self.heap)  # its run was merged or raised
                continue
            x = self.choose(start)
            if x is None:
                self.raise_valley(start)
            else:
                offsets[x] = height
                self.put(start, x)
                left -= 1
        return (Outcome.GAVE_UP if left else Outcome.PLACED), offsets, self.looks

    def neighbors(self, start: int) -> tuple[int | None, int | None]:
        """The heights before and after a run."""
        before = self.height[self.begin[start]] if start else None
        return before, self.height.get(self.end[start])

    def choose(self, start: int) -> int | None:
        """The best buffer for the valley; None if none fits."""
        end, height, (before, after) = self.end[start], self.height[start], self.neighbors(start)
        sums = [0.0]
        for load in self.load[start:end]:
            sums.append(sums[-1] + load)
        self.looks += end - start
        best, most = None, 0.0
        for lower in range(start, end):
            for x in self.waiting[lower]:
                self.looks += 1
                if (upper := self.b.upper[x]) > end:
                    continue
                first, last, top = lower == start, upper == end, height + self.b.size[x]
                touched = first + last + ((first and top == before) or (last and top == after))
                needed = self.setting.urgency * (sums[upper - start] - sums[lower - start]) / (upper - lower)
                value = self.weight[x] + self.setting.touch * touched + needed
                if best is None or value > most:
                    best, most = x, value
        return best

    def raise_valley(self, start: int) -> None:
        """Raise the valley to the lower one of its neighbors."""
        end, to = self.end[start], min(h for h in self.neighbors(start) if h is not None)
        lost = (to - self.height[start]) / self.bound
        for t in range(start, end):
            self.load[t] += lost
        self.looks += end - start
        self.lay(start, end, to)
        self.join_both(start)

    def put(self, start: int, x: int) -> None:
        """Put buffer `x` on the valley."""
        lower, upper, end, height = self.b.lower[x], self.b.upper[x], self.end[start], self.height[start]
        self.waiting[lower].remove(x)
        if upper < end:
            self.lay(upper, end, height)
        if lower > start:
            self.lay(start, lower, height)
        self.lay(lower, upper, height + self.b.size[x])
        self.join_both(lower)

    def lay(self, start: int, end: int, height: int) -> None:
        """Add a run of these sections."""
        self.end[start], self.begin[end] = end, start
        if self.height.get(start) != height:
            self.height[start] = height
            heapq.heappush(self.heap, (height, start))

    def join_both(self, start: int) -> None:
        """Join the run with neighbors at the same height."""
        for x in (start, self.begin[start] if start else start):
            y = self.end[x]
            if y in self.height and self.height[y] == self.height[x]:
                self.end[x] = self.end[y]
                self.begin[self.end[x]] = x
                del self.height[y]
