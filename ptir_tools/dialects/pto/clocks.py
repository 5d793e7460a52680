"""Clocks: what is certainly complete (facts 4.2). Per pipe, how many of its tasks are.

One op is done before another starts exactly when the other's clock has reached its place in its pipe.
"""

from __future__ import annotations

from ptir_tools.dialects.pto.pipes import PIPES

Clock = tuple[int, ...]
ZERO: Clock = (0,) * len(PIPES)


def join(a: Clock, b: Clock) -> Clock:
    """What is complete when both say."""
    return a if a is b else tuple(map(max, a, b))


def advanced(clock: Clock, pipe: int, place: int) -> Clock:
    """`clock`, with the task at `place` of a pipe complete."""
    return (*clock[:pipe], place, *clock[pipe + 1 :])
