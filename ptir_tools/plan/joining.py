"""Joins intervals to blocks without gaps: stacked where they have the same live range, in sequence where one ends as the next
begins and the sizes are equal. A block is placed as one interval.

Intervals with only one way to be joined are joined first, then those with several. Small ones go first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from itertools import islice

from ptir_tools.core.records import dataclass
from ptir_tools.plan.placement import Interval

_SURE, _FREE, _ANY = range(3)  # levels: the only way to join; a stack that no interval can follow; any intervals that fit

_Table = dict[tuple[int, int], dict[int, None]]  # per key, its intervals in order


@dataclass(slots=True)
class Blocks:
    """Intervals, and the blocks joined from them; the given ones come first. `parts` of a block are two earlier ones, stacked
    if their live ranges are equal. `whole` are those that are in no block."""

    intervals: list[Interval]
    parts: dict[int, tuple[int, int]]
    whole: list[int]

    def expanded(self, offsets: Sequence[int], count: int) -> list[int]:
        """Offsets of the `count` given intervals, from those of `whole`."""
        at = dict(zip(self.whole, offsets, strict=True))
        for i in range(len(self.intervals) - 1, count - 1, -1):
            low, high = self.parts[i]
            at[low] = at[i]
            stack = self.intervals[low].lower == self.intervals[high].lower
            at[high] = at[i] + (self.intervals[low].size if stack else 0)
        return [at[i] for i in range(count)]


def join(intervals: Sequence[Interval]) -> Blocks:
    """The intervals, at least one, joined to few blocks."""
    return _Join(intervals).run()


class _Join:
    def __init__(self, intervals: Sequence[Interval]) -> None:
        self.intervals = list(intervals)
        self.parts: dict[int, tuple[int, int]] = {}
        self.ranges: _Table = defaultdict(dict)
        self.starts: _Table = defaultdict(dict)  # by (time, size)
        self.ends: _Table = defaultdict(dict)
        self.free: set[int] = set()  # in no block
        self.work: list[deque[int]] = [deque(), deque(), deque()]
        for i in sorted(range(len(intervals)), key=lambda i: intervals[i].size):
            self.add(i)

    def run(self) -> Blocks:
        while (level := next((k for k in range(3) if self.work[k]), None)) is not None:
            i = self.work[level].popleft()
            if i not in self.free:
                continue
            pair = next(self.pairs(i, level), None)
            if pair is not None:
                self.merge(*pair)
            elif level < _ANY:
                self.work[level + 1].append(i)
        return Blocks(self.intervals, self.parts, sorted(self.free))

    def add(self, i: int) -> None:
        x = self.intervals[i]
        self.free.add(i)
        for key, table in self.keys(x):
            table[key][i] = None
        self.work[_SURE].append(i)

    def keys(self, x: Interval) -> Iterator[tuple[tuple[int, int], _Table]]:
        yield (x.lower, x.upper), self.ranges
        yield (x.lower, x.size), self.starts
        yield (x.upper, x.size), self.ends

    def pairs(self, i: int, level: int) -> Iterator[tuple[int, int]]:
        """The pairs to which `i` may be joined, the best first: (below, above) or (before, after)."""
        x = self.intervals[i]
        after, before = self.starts.get((x.upper, x.size)), self.ends.get((x.lower, x.size))
        if after and (level == _ANY or len(after) * len(self.ends[x.upper, x.size]) == 1):
            yield i, next(iter(after))
        if before and (level == _ANY or len(before) * len(self.starts[x.lower, x.size]) == 1):
            yield next(iter(before)), i
        same = self.ranges[x.lower, x.upper]
        if level == _ANY:
            yield from islice(((i, j) for j in same if j != i), 1)
        elif not after and not before and (level == _FREE or len(same) == 2):
            yield from islice(((i, j) for j in same if j != i and not self.followed(j)), 1)

    def followed(self, i: int) -> bool:
        """Whether any interval could be joined before or after it."""
        x = self.intervals[i]
        return bool(self.starts.get((x.upper, x.size)) or self.ends.get((x.lower, x.size)))

    def merge(self, i: int, j: int) -> None:
        x, y = self.intervals[i], self.intervals[j]
        for k, part in ((i, x), (j, y)):
            self.free.discard(k)
            for key, table in self.keys(part):
                table[key].pop(k)
        stack = x.lower == y.lower
        result = Interval(x.lower, x.upper, x.size + y.size) if stack else Interval(x.lower, y.upper, x.size)
        self.parts[len(self.intervals)] = i, j
        self.intervals.append(result)
        self.add(len(self.intervals) - 1)
        self.retry(x, y, result)

    def retry(self, *changed: Interval) -> None:
        """Try the intervals with fewer choices again."""
        for x in changed:
            for table, key in (
                (self.ranges, (x.lower, x.upper)),
                (self.starts, (x.upper, x.size)),
                (self.ends, (x.lower, x.size)),
                (self.starts, (x.lower, x.size)),
                (self.ends, (x.upper, x.size)),
            ):
                if (left := table.get(key)) and len(left) <= 2:
                    self.work[_SURE].extend(left)
