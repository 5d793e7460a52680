"""An independent check of placements: one sweep over time with the live blocks in order of offset."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from ptir_tools.plan.placement import Interval


def conflicts(
    intervals: Sequence[Interval],
    offsets: Sequence[int],
    *,
    align: int = 1,
    limit: int | None = None,
    names: Sequence[str] | None = None,
) -> list[str]:
    """The errors of a placement, in words. Without `names`, intervals are named by number."""
    wrong = []
    called = names or [f"interval {i}" for i in range(len(intervals))]
    for i, (x, at) in enumerate(zip(intervals, offsets, strict=True)):
        if at < 0 or at % align:
            wrong.append(f"{called[i]} is at {at}, not at a multiple of {align}")
        if limit is not None and at + x.size > limit:
            wrong.append(f"{called[i]} ends at {at + x.size}, above {limit}")
    live: list[tuple[int, int]] = []
    events = [(x.lower, 1, i) for i, x in enumerate(intervals) if x.size and x.upper > x.lower]
    events += [(intervals[i].upper, 0, i) for _, _, i in events]
    for _, starts, i in sorted(events):
        block = (offsets[i], i)
        if not starts:
            del live[bisect_left(live, block)]
            continue
        at = bisect_left(live, block)
        for a, j in live[max(at - 1, 0) : at + 1]:
            if a < offsets[i] + intervals[i].size and offsets[i] < a + intervals[j].size:
                wrong.append(f"{called[j]} and {called[i]} overlap")
        insort(live, block)
    return wrong
