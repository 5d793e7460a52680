"""Placements at the lower bound, or as near as a budget allows: the search of `search.py`, begun again in many orders.

A search goes wrong early or is done soon, so it gets few steps and then another chance with its choices in another order: by
size, area, time alive or sections covered, more or less shaken. Capacities are tried in turn: the bound itself, and between the
bound and the best placement so far. A search that ends without a placement proves a higher bound.

Where there are too many buffers to search, they are placed by first fit in those orders, looking at every pair, in C.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Sequence
from itertools import count
from math import gcd, inf
from time import process_time

from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.plan.placement import Interval, lower_bound, peak
from ptir_tools.plan.search import Buffers, Outcome, fit, kernel, search

LARGEST = 2000  # intervals: beyond, a search of this kind finds nothing that greedy orders do not
_PAIRS = 5000  # looked at in the time of a step
_CHUNK = 2000  # intervals placed between two looks at the clock
_STEPS = 2  # of a search, per buffer: one that is not done by then went wrong early
_LONGER = 9  # every so many searches one gets more, for what only a long one finds or proves
_SHAKEN = (0.1, 0.5, 2.0, 8.0)
_SENSES = 4
_BETWEEN = (0.5, 0.75, 0.875)


@dataclass(slots=True, frozen=True)
class Budget:
    """When to stop: after so many steps in all, or seconds of CPU (None: no such end), or at a peak that is good enough."""

    steps: int
    seconds: float | None = None
    target: int = 0


class Placement(NamedTuple):
    """Offsets, and what is known to be impossible to go below."""

    offsets: list[int]
    bound: int


def improve(intervals: Sequence[Interval], offsets: list[int], budget: Budget) -> Placement:
    """A placement with a peak no higher than that of `offsets`. Deterministic unless it runs out of seconds."""
    bound = lower_bound(intervals)
    used = [i for i, x in enumerate(intervals) if x.size and x.upper > x.lower]
    if peak(intervals, offsets) <= max(bound, budget.target):
        return Placement(offsets, bound)
    task = _Task([intervals[i] for i in used], bound, peak(intervals, offsets))
    found = task.search(budget) if len(used) <= LARGEST else task.fit(budget)
    if found is not None:
        offsets = list(offsets)
        for i, at in zip(used, found, strict=True):
            offsets[i] = at
    return Placement(offsets, task.bound * task.unit)


class _Task:
    """Sizes and capacities in units: the greatest common divisor of the sizes, of which every packed offset is a multiple."""

    def __init__(self, intervals: Sequence[Interval], bound: int, best: int) -> None:
        self.unit = gcd(*(x.size for x in intervals))
        self.order = sorted(range(len(intervals)), key=lambda i: (intervals[i].lower, intervals[i].upper, intervals[i].size, i))
        self.intervals = [intervals[i] for i in self.order]
        self.buffers = _sections(self.intervals, self.unit)
        self.bound, self.best = bound // self.unit, -(-best // self.unit)
        self.random = random.Random(0)

    def search(self, budget: Budget) -> list[int] | None:
        """The best offsets found, in the order of the intervals given; None when none are better."""
        found: list[int] | None = None
        end = inf if budget.seconds is None else process_time() + budget.seconds
        left, target = budget.steps, max(self.bound, budget.target // self.unit)
        usual = _STEPS * len(self.order)
        for attempt in count():
            if self.best <= max(target, self.bound) or left <= 0 or process_time() > end:
                break
            capacity = self.capacity(attempt, target)
            allowed = min(left, usual if attempt % _LONGER else usual * (4 + attempt // 128))
            outcome, offsets, steps = search(self.buffers, self.rank(attempt), capacity, allowed)
            left -= steps + 1
            if outcome is Outcome.PLACED:
                found = offsets
                self.best = self.top(offsets)
            elif outcome is Outcome.IMPOSSIBLE:
                self.bound = max(self.bound, capacity + 1)
                target = max(target, self.bound)
        return None if found is None else self.given(found)

    def fit(self, budget: Budget) -> list[int] | None:
        """As `search`, by first fit alone."""
        found: Sequence[int] | None = None
        n, target = len(self.order), max(self.bound, budget.target // self.unit)
        end = inf if budget.seconds is None else process_time() + budget.seconds
        for attempt in range(budget.steps // max(1, 2 * n * n // _PAIRS) if kernel() is not None else 0):
            rank = self.rank(attempt)
            order, offsets = sorted(range(n), key=rank.__getitem__), array("q", bytes(8 * n))
            for start in range(0, n, _CHUNK):
                if process_time() > end:
                    return None if found is None else self.given(found)
                fit(self.buffers, order, offsets, start, min(start + _CHUNK, n))
            if self.top(offsets) < self.best:
                found, self.best = offsets, self.top(offsets)
            if self.best <= target:
                break
        return None if found is None else self.given(found)

    def top(self, offsets: Sequence[int]) -> int:
        """Where a placement ends."""
        return max(at + size for at, size in zip(offsets, self.buffers.size, strict=True))

    def given(self, offsets: Sequence[int]) -> list[int]:
        """Offsets in bytes, in the order of the intervals given."""
        at = {i: offset * self.unit for i, offset in zip(self.order, offsets, strict=True)}
        return [at[i] for i in range(len(offsets))]

    def capacity(self, attempt: int, target: int) -> int:
        """The target; for one round of orders in four something between it and the best so far."""
        rounds, between = divmod(attempt // _SENSES, 4)
        if between != 1:
            return target
        share = _BETWEEN[rounds % len(_BETWEEN)]
        return target + int((self.best - 1 - target) * share)

    def rank(self, attempt: int) -> list[int]:
        """In which order buffers are tried: big ones first, in one of four senses; from the third round on, shaken."""
        b, noise = self.buffers, 0.0 if attempt < 2 * _SENSES else self.random.choice(_SHAKEN)
        sense = attempt % _SENSES
        keys: list[float] = []
        for i, x in enumerate(self.intervals):
            alive = x.upper - x.lower
            weight = (x.size, x.size * alive, alive, b.upper[i] - b.lower[i])[sense]
            keys.append(-weight * (1 + noise * self.random.random()))
        rank = [0] * len(keys)
        for place, i in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
            rank[i] = place
        return rank


def _sections(intervals: Sequence[Interval], unit: int) -> Buffers:
    """The sections that the intervals, sorted by start, cover: a new one begins where one starts after another has ended."""
    lower, upper = array("q", bytes(8 * len(intervals))), array("q", bytes(8 * len(intervals)))
    events = sorted((time, starts, i) for i, x in enumerate(intervals) for time, starts in ((x.lower, 1), (x.upper, 0)))
    section, started = -1, False
    for _, starts, i in events:
        if not starts:
            upper[i] = section + 1
        else:
            section += not started
            lower[i] = section
        started = bool(starts)
    return Buffers(lower, upper, array("q", [x.size // unit for x in intervals]))
