"""Offsets for intervals of known size: dynamic storage allocation.

Greedy: intervals in some order, each at the lowest (or the tightest) gap between those that live at the same time; the best
of several orders wins, as many as can be tried with `PAIRS` looks at overlapping pairs. Where there are more pairs, only one
order is tried, in which the live set is all that is scanned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

PAIRS = 4_000_000


@dataclass(slots=True, frozen=True)
class Interval:
    """Storage of `size` bytes alive during the half-open range [lower, upper)."""

    lower: int
    upper: int
    size: int


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The most bytes alive at one time: no placement needs less."""
    events: dict[int, int] = {}
    for x in intervals:
        events[x.lower] = events.get(x.lower, 0) + x.size
        events[x.upper] = events.get(x.upper, 0) - x.size
    best = live = 0
    for time in sorted(events):
        live += events[time]
        best = max(best, live)
    return best


def peak(intervals: Sequence[Interval], offsets: Sequence[int]) -> int:
    """Where the placement ends."""
    return max((at + x.size for x, at in zip(intervals, offsets, strict=True)), default=0)


def place(intervals: Sequence[Interval]) -> list[int]:
    """An offset per interval; those that live at the same time do not overlap. Deterministic."""
    bound = lower_bound(intervals)
    best = _in_order_of_birth(intervals)
    lowest = peak(intervals, best)
    if lowest == bound or (neighbors := overlapping(intervals, PAIRS)) is None:
        return best
    tries = PAIRS // max(1, sum(map(len, neighbors)) // 2)
    attempts = ((order, fit) for order in _orders(intervals, neighbors) for fit in (_first_fit, _best_fit))
    for order, fit in islice(attempts, tries):
        offsets = _greedy(intervals, neighbors, order, fit)
        if (found := peak(intervals, offsets)) < lowest:
            best, lowest = offsets, found
        if lowest == bound:
            break
    return best


def overlapping(intervals: Sequence[Interval], limit: int) -> list[list[int]] | None:
    """For every interval those that live at the same time; None when there are more than `limit` pairs."""
    neighbors: list[list[int]] = [[] for _ in intervals]
    live: set[int] = set()
    pairs = 0
    for _, starts, i in sorted(_events(intervals)):
        if not starts:
            live.discard(i)
            continue
        pairs += len(live)
        if pairs > limit:
            return None
        for j in live:
            neighbors[j].append(i)
        neighbors[i].extend(live)
        live.add(i)
    return neighbors


def _events(intervals: Sequence[Interval]) -> Iterator[tuple[int, int, int]]:
    """(time, 0 for an end or 1 for a start, index) of every interval that is not empty."""
    for i, x in enumerate(intervals):
        if x.size and x.upper > x.lower:
            yield x.lower, 1, i
            yield x.upper, 0, i


def _orders(intervals: Sequence[Interval], neighbors: list[list[int]]) -> Iterator[list[int]]:
    weights: tuple[Callable[[int], int], ...] = (
        lambda i: intervals[i].size,
        lambda i: intervals[i].size * (intervals[i].upper - intervals[i].lower),
        lambda i: intervals[i].upper - intervals[i].lower,
        lambda i: sum(intervals[j].size for j in neighbors[i]),
        lambda i: -intervals[i].lower,
        lambda i: intervals[i].upper,
    )
    for weight in weights:
        keys = [weight(i) for i in range(len(intervals))]
        yield sorted(range(len(intervals)), key=lambda i: (-keys[i], -intervals[i].size, i))


Gap = tuple[int, int]
Fit = Callable[[list[Gap], int], int]


def _greedy(intervals: Sequence[Interval], neighbors: list[list[int]], order: list[int], fit: Fit) -> list[int]:
    offsets = [-1] * len(intervals)
    for i in order:
        taken = sorted((offsets[j], offsets[j] + intervals[j].size) for j in neighbors[i] if offsets[j] >= 0)
        offsets[i] = fit(taken, intervals[i].size)
    return offsets


def _first_fit(taken: list[Gap], size: int) -> int:
    at = 0
    for start, end in taken:
        if start - at >= size:
            return at
        at = max(at, end)
    return at


def _best_fit(taken: list[Gap], size: int) -> int:
    at, best, room = 0, -1, 0
    for start, end in taken:
        if start - at >= size and (best < 0 or start - at < room):
            best, room = at, start - at
        at = max(at, end)
    return at if best < 0 else best


def _in_order_of_birth(intervals: Sequence[Interval]) -> list[int]:
    """First fit by start, scanning only what is alive."""
    offsets = [0] * len(intervals)
    live: list[tuple[int, int, int]] = []  # (offset, end, index), by offset
    for _, starts, i in sorted(_events(intervals)):
        size = intervals[i].size
        if starts:
            offsets[i] = _first_fit([(a, b) for a, b, _ in live], size)
            block = (offsets[i], offsets[i] + size, i)
            live.insert(bisect_left(live, block), block)
        else:
            del live[bisect_left(live, (offsets[i], offsets[i] + size, i))]
    return offsets
