"""Offsets for intervals of known size: dynamic storage allocation.

Greedy: intervals in some order, each in the lowest (or tightest) gap between those alive at the same time. The best of several
orders is used; `PAIRS` limits the looks at overlapping pairs (five times as many in C). With more pairs only one order is tried,
which scans only the live set.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from operator import add, sub

from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.plan.search import Buffers, fit, kernel

PAIRS = 4_000_000
KERNEL_PAIRS = 20_000_000  # with the kernel
_SORTING = 20  # pairs compared in the time that ordering an interval takes
_COUNTED = 1 << 62  # bytes that the kernel can count


@dataclass(slots=True, frozen=True)
class Interval:
    """Storage of `size` bytes alive during the half-open range [lower, upper)."""

    lower: int
    upper: int
    size: int


class Timeline(NamedTuple):
    """The nonempty intervals sorted by start, end and size, with the lengths of their live ranges. Also the sections of time that
    they cover: a section begins where an interval starts after another has ended. Also the most bytes alive at once, and the
    number of overlapping pairs."""

    order: array[int]
    sections: Buffers
    alive: Sequence[int]
    bound: int
    pairs: int

    @property
    def countable(self) -> bool:
        """Whether the sum of all bytes fits the kernel's integers."""
        return sum(self.sections.size) < _COUNTED


def timeline(intervals: Sequence[Interval]) -> Timeline:
    """The timeline of the intervals."""
    used = [i for i, x in enumerate(intervals) if x.size and x.upper > x.lower]
    some = intervals if len(used) == len(intervals) else [intervals[i] for i in used]
    try:
        lower, upper = array("q", [x.lower for x in some]), array("q", [x.upper for x in some])
        size = array("q", [x.size for x in some])
    except OverflowError:
        return _sweep(intervals, used)
    if (extension := kernel()) is None or sum(size) >= _COUNTED:
        return _sweep(intervals, used)
    order, first, last = (array("q", bytes(8 * len(used))) for _ in range(3))
    bound, pairs = extension.sections(lower, upper, size, order, first, last)
    sizes, alive = array("q", map(size.__getitem__, order)), list(map(sub, upper, lower))
    begun = order if len(used) == len(intervals) else array("q", map(used.__getitem__, order))
    return Timeline(begun, Buffers(first, last, sizes), list(map(alive.__getitem__, order)), bound, pairs)


def _sweep(intervals: Sequence[Interval], used: Iterable[int]) -> Timeline:
    """`timeline` without the kernel."""
    order = sorted(used, key=lambda i: (intervals[i].lower, intervals[i].upper, intervals[i].size, i))
    lower, upper = array("q", bytes(8 * len(order))), array("q", bytes(8 * len(order)))
    events = [(intervals[i].lower, 1, at) for at, i in enumerate(order)]
    events += [(intervals[i].upper, 0, at) for at, i in enumerate(order)]
    section, started, live, alive, bound, pairs = -1, 0, 0, 0, 0, 0
    for _, starts, at in sorted(events):
        size = intervals[order[at]].size
        if starts:
            section += not started
            lower[at] = section
            pairs += alive
            bound = max(bound, live + size)
        else:
            upper[at] = section + 1
        live += size if starts else -size
        alive += 1 if starts else -1
        started = starts
    sizes = [intervals[i].size for i in order]
    counted = array("q", sizes) if sum(sizes) < _COUNTED else sizes
    spans = [intervals[i].upper - intervals[i].lower for i in order]
    return Timeline(array("q", order), Buffers(lower, upper, counted), spans, bound, pairs)


def lower_bound(intervals: Sequence[Interval]) -> int:
    """The most bytes alive at one time, a lower bound of every placement."""
    return timeline(intervals).bound


def peak(intervals: Sequence[Interval], offsets: Sequence[int]) -> int:
    """The highest address of the placement."""
    return max(map(add, [x.size for x in intervals], offsets), default=0)


def place(intervals: Sequence[Interval], along: Timeline | None = None) -> list[int]:
    """An offset per interval, so that intervals live at the same time do not overlap. `along` is their `timeline`, if known.
    Deterministic."""
    along = along or timeline(intervals)
    best: list[int] = []
    lowest: int | None = None
    for offsets in (
        _fit_in_kernel(intervals, along) if kernel() is not None and along.countable else _fit_in_python(intervals, along)
    ):
        result = peak(intervals, offsets)
        if lowest is None or result < lowest:
            best, lowest = offsets, result
        if lowest == along.bound:
            break
    return best


def _fit_in_kernel(intervals: Sequence[Interval], along: Timeline) -> Iterator[list[int]]:
    """Placements by the kernel."""
    some, buffers = along.order, along.sections
    attempts = ((order, tightest) for order in _orders(intervals) for tightest in (False, True))
    at: dict[int, int] = {}
    for order, tightest in chain([([], False)], islice(attempts, KERNEL_PAIRS // max(1, along.pairs + _SORTING * len(some)))):
        offsets, result = [0] * len(intervals), array("q", bytes(8 * len(some)))
        at = at or ({i: k for k, i in enumerate(some)} if order else {})
        fit(buffers, [at[i] for i in order if i in at], result, tightest=tightest)
        for i, offset in zip(some, result, strict=True):
            offsets[i] = offset
        yield offsets


def _fit_in_python(intervals: Sequence[Interval], along: Timeline) -> Iterator[list[int]]:
    """Placements without the kernel."""
    yield _by_start(along, len(intervals))
    if (neighbors := overlapping(intervals, PAIRS)) is None:
        return
    attempts = ((order, fits) for order in _orders(intervals) for fits in (_first_fit, _best_fit))
    for order, fits in islice(attempts, PAIRS // max(1, sum(map(len, neighbors)) // 2)):
        yield _greedy(intervals, neighbors, order, fits)


def overlapping(intervals: Sequence[Interval], limit: int) -> list[list[int]] | None:
    """For every interval those that are live at the same time; None if there are more than `limit` pairs."""
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


def _orders(intervals: Sequence[Interval]) -> Iterator[list[int]]:
    weights: tuple[Callable[[], list[int]], ...] = (
        lambda: [x.size for x in intervals],
        lambda: [x.size * (x.upper - x.lower) for x in intervals],
        lambda: [x.upper - x.lower for x in intervals],
        lambda: _overlapping_bytes(intervals),
        lambda: [-x.lower for x in intervals],
        lambda: [x.upper for x in intervals],
    )
    for weight in weights:
        keys = weight()
        yield sorted(range(len(intervals)), key=lambda i: (-keys[i], -intervals[i].size, i))


def _overlapping_bytes(intervals: Sequence[Interval]) -> list[int]:
    """For every interval the bytes of all others that are live at the same time."""
    used = [x for x in intervals if x.size and x.upper > x.lower]
    starts, ends = sorted((x.lower, x.size) for x in used), sorted((x.upper, x.size) for x in used)
    begun, over = ([0, *accumulate(size for _, size in events)] for events in (starts, ends))
    began, ended = [t for t, _ in starts], [t for t, _ in ends]

    def crowd(x: Interval) -> int:
        empty = not x.size or x.upper <= x.lower
        return 0 if empty else begun[bisect_left(began, x.upper)] - over[bisect_right(ended, x.lower)] - x.size

    return [crowd(x) for x in intervals]


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


def _by_start(along: Timeline, count: int) -> list[int]:
    """First fit by start, which scans only live intervals."""
    offsets = [0] * count
    live: list[tuple[int, int, int]] = []  # (offset, end, last section), by offset
    for i, lower, upper, size in zip(along.order, along.sections.lower, along.sections.upper, along.sections.size, strict=True):
        live = [x for x in live if x[2] > lower]
        offsets[i] = at = _first_fit([(a, b) for a, b, _ in live], size)
        insort(live, (at, at + size, upper))
    return offsets
