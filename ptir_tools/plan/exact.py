"""Placements at the lower bound, or as close as a budget allows: the search of `search.py`, restarted in many orders.

A search fails early or ends soon, so it gets few steps and is restarted with its choices in another order: by size, area, live
range or sections covered, perturbed at random. The capacities tried are the bound itself, and values between the bound and the
best placement so far. A search that ends without a placement proves a higher bound.

First, buffers are placed by a skyline (`skyline.py`). If there are too many to search, they are joined to blocks (`joining.py`).
If there are few blocks, these are placed by the search. Then all buffers are placed by skylines with other weights.

With many blocks a search is slow but a skyline is fast. So the best skyline is improved by local search: some of its weights are
changed, and a change is kept if the peak is not higher. Local search and search alternate.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from math import gcd, inf
from time import process_time

from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.plan.joining import join
from ptir_tools.plan.placement import Interval, Timeline, peak, place, timeline
from ptir_tools.plan.search import Buffers, Outcome, search
from ptir_tools.plan.skyline import DRAWN, SETTINGS, Setting, stack

FEWEST = 500  # blocks: a search of fewer is better than local search of skylines
_ROUND = 40_000  # steps before the two alternate
LARGEST = 2000  # intervals: with more, a search finds nothing better than greedy orders
BLOCKS = 8000  # joined intervals: with more, too few skylines could be tried
_LOOKS = 1500  # looks in the time of a step
_MANY = 1 << 40  # the most steps whose looks the kernel can count
_TAKEN = 400  # looks in the time of putting one interval into an order
_JOINING = 12  # steps in the time of joining one interval
_COVERED = 4000  # sum of the sections that buffers cover which doubles the time of a search step
_STEPS = 2  # steps of a search per buffer: a search that takes longer made a wrong early decision
_LONGER = 9  # one search in so many gets more steps
_SHAKEN = (0.1, 0.5, 2.0, 8.0)
_SENSES = 4
_CHANGED, _DEVIATION = 0.03, 1.0  # the share of weights that is changed, and the change
_BETWEEN = (0.5, 0.75, 0.875)

Watch = Callable[[int, int], None]


@dataclass(slots=True, frozen=True)
class Budget:
    """When to stop: after so many steps, or seconds of CPU (None: no limit), or at a peak that is low enough. `watch(peak,
    bound)` is called repeatedly, with the bytes of the best placement so far."""

    steps: int
    seconds: float | None = None
    target: int = 0
    watch: Watch | None = None


class Placement(NamedTuple):
    """Offsets, and a proven lower bound of the peak."""

    offsets: list[int]
    bound: int


def improve(
    intervals: Sequence[Interval], offsets: list[int], budget: Budget, along: Timeline | None = None, joined: bool = False
) -> Placement:
    """A placement with a peak no higher than that of `offsets`. Deterministic unless the seconds run out. `along` is the
    `timeline` of the intervals, if known. Offsets that need more than 64 bits are returned unchanged. With `joined`, intervals
    are not joined again."""
    along = along or timeline(intervals)
    top = peak(intervals, offsets)
    if top <= max(along.bound, budget.target) or not along.countable:
        return Placement(offsets, along.bound)
    task = _Task(intervals, along, top, budget)
    if (result := task.improve(joined)) is not None:
        offsets = list(offsets)
        for i, at in zip(along.order, result, strict=True):
            offsets[i] = at * task.unit
    return Placement(offsets, task.bound * task.unit)


class _Task:
    """Sizes and capacities in units: the greatest common divisor of the sizes, of which every packed offset is a multiple.

    All is in the order of the timeline.
    """

    def __init__(self, intervals: Sequence[Interval], along: Timeline, best: int, budget: Budget) -> None:
        self.given, self.order, self.alive = intervals, along.order, along.alive
        self.unit = gcd(*along.sections.size)
        sizes = array("q", [size // self.unit for size in along.sections.size])
        self.buffers = Buffers(along.sections.lower, along.sections.upper, sizes)
        self.bound, self.best = along.bound // self.unit, -(-best // self.unit)
        self.target = max(self.bound, budget.target // self.unit)
        self.left, self.end = budget.steps, inf if budget.seconds is None else process_time() + budget.seconds
        self.best_offsets: Sequence[int] | None = None
        self.watch = budget.watch
        self.random, self.attempts = random.Random(0), count()
        self.stacked: tuple[float, Setting, list[float]] = inf, SETTINGS[0], []  # the best skyline

    def improve(self, joined: bool) -> Sequence[int] | None:
        """The best offsets found, in units; None if none is better than the given ones."""
        many = len(self.alive) > LARGEST
        self.stack(((setting, []) for setting in SETTINGS), self.left // 4)  # so that steps for joining 62,000 are left
        if many and not joined:
            self.join()
            if not self.done():
                self.stack(self.settings(), self.left // 4)
        elif many:
            self.stack(self.perturbed(), self.left)
        elif not joined or len(self.alive) < FEWEST:
            self.search(self.left)
        else:
            while not self.done():
                self.search(_ROUND)
                if not self.done():
                    self.stack(self.perturbed(), min(_ROUND, self.left))
        return self.best_offsets

    def done(self) -> bool:
        """Whether the placement is low enough, or the budget is used up."""
        if self.watch is not None:
            self.watch(self.best * self.unit, self.bound * self.unit)
        return self.best <= max(self.target, self.bound) or self.left <= 0 or process_time() > self.end

    def take(self, offsets: Sequence[int]) -> None:
        """Keep the offsets if they are the best so far."""
        if (top := self.top(offsets)) < self.best:
            self.best_offsets, self.best = offsets, top

    def stack(self, ways: Iterable[tuple[Setting, list[float]]], steps: int) -> None:
        """Place by a skyline, in at most `steps` steps; each way is a setting and additions to the weights."""
        allowed = min(steps, _MANY) * _LOOKS
        for setting, added in ways:
            if allowed < (begun := _TAKEN * len(self.alive)):
                break
            outcome, offsets, looks = stack(self.buffers, self.alive, setting, allowed, added)
            looks += begun
            allowed -= looks
            self.left -= looks // _LOOKS
            if outcome is Outcome.PLACED:
                self.take(offsets)
                if (top := self.top(offsets)) <= self.stacked[0]:
                    self.stacked = top, setting, added
            if self.done():
                break

    def settings(self) -> Iterator[tuple[Setting, list[float]]]:
        """Random settings, endlessly."""
        while True:
            yield Setting(*map(self.random.choice, DRAWN)), []

    def perturbed(self) -> Iterator[tuple[Setting, list[float]]]:
        """The best way so far, with some of its weights perturbed."""
        while True:
            _, setting, added = self.stacked
            weights, draw = added or [0.0] * len(self.alive), self.random
            yield setting, [x + draw.gauss(0, _DEVIATION) if draw.random() < _CHANGED else x for x in weights]

    def join(self) -> None:
        """Place joined blocks, with three quarters of the remaining budget."""
        if self.done() or self.left < (cost := _JOINING * len(self.alive)):
            return
        self.left -= cost
        blocks = join([self.given[i] for i in self.order])
        if len(blocks.whole) > BLOCKS:
            return
        whole = [blocks.intervals[i] for i in blocks.whole]
        seconds = None if self.end == inf else max(0.0, (self.end - process_time()) * 3 / 4)
        budget = Budget(self.left * 3 // 4, seconds, self.target * self.unit, self.watch)
        offsets = blocks.expanded(improve(whole, place(whole), budget, joined=True).offsets, len(self.alive))
        self.take([at // self.unit for at in offsets])
        self.left -= budget.steps

    def search(self, steps: int) -> None:
        """Search in many orders, in at most `steps` steps."""
        stop = self.left - steps
        usual = _STEPS * len(self.alive)
        price = 1 + (sum(self.buffers.upper) - sum(self.buffers.lower)) // _COVERED
        while self.left > stop and not self.done():
            attempt = next(self.attempts)
            self.target = max(self.target, self.bound)
            capacity = self.capacity(attempt, self.target)
            allowed = min(1 + self.left // price, usual if attempt % _LONGER else usual * (4 + attempt // 128))
            outcome, offsets, steps = search(self.buffers, self.rank(attempt), capacity, allowed)
            self.left -= (steps + 1) * price
            if outcome is Outcome.PLACED:
                self.take(offsets)
            elif outcome is Outcome.IMPOSSIBLE:
                self.bound = max(self.bound, capacity + 1)

    def top(self, offsets: Sequence[int]) -> int:
        """The peak of a placement."""
        return max(map(int.__add__, offsets, self.buffers.size))

    def capacity(self, attempt: int, target: int) -> int:
        """The target, or in one of four rounds of orders a capacity between it and the best so far."""
        rounds, between = divmod(attempt // _SENSES, 4)
        if between != 1:
            return target
        share = _BETWEEN[rounds % len(_BETWEEN)]
        return target + int((self.best - 1 - target) * share)

    def rank(self, attempt: int) -> list[int]:
        """The order of buffers: big ones first, by one of four measures, from the third round on perturbed."""
        b, noise = self.buffers, 0.0 if attempt < 2 * _SENSES else self.random.choice(_SHAKEN)
        sense = attempt % _SENSES
        keys: list[float] = []
        for i, (size, alive) in enumerate(zip(b.size, self.alive, strict=True)):
            weight = (size, size * alive, alive, b.upper[i] - b.lower[i])[sense]
            keys.append(-weight * (1 + noise * self.random.random()))
        rank = [0] * len(keys)
        for at, i in enumerate(sorted(range(len(keys)), key=keys.__getitem__)):
            rank[i] = at
        return rank
