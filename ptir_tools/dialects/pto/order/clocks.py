"""Clocks: the number of tasks of each pipe that are certainly complete.

One op is complete before another starts exactly when the other's clock has reached its number in its pipe. The hazard check
counts with numbers that depend on conditions, the executor with plain ones.
"""

from __future__ import annotations

from ptir_tools.core.records import dataclass
from ptir_tools.dialects.pto.order.decisions import Number
from ptir_tools.dialects.pto.pipes import PIPES

Clock = tuple[Number, ...]
ZERO: Clock = (0,) * len(PIPES)


@dataclass(slots=True, eq=False)
class State:
    """The clocks at a fork or join: of issued ops, and of the last task of each pipe."""

    issued: Clock
    last: list[Clock]


def join(a: Clock, b: Clock) -> Clock:
    """The clock after both clocks. Written out for the seven pipes, because it runs most often. Raises Undecided for a
    `Choice`."""
    if a is b:
        return a
    a0, a1, a2, a3, a4, a5, a6 = a
    b0, b1, b2, b3, b4, b5, b6 = b
    return (
        a0 if a0 > b0 else b0,
        a1 if a1 > b1 else b1,
        a2 if a2 > b2 else b2,
        a3 if a3 > b3 else b3,
        a4 if a4 > b4 else b4,
        a5 if a5 > b5 else b5,
        a6 if a6 > b6 else b6,
    )


def advanced(clock: Clock, pipe: int, place: int) -> Clock:
    """`clock`, with the task at `place` of a pipe complete."""
    return (*clock[:pipe], place, *clock[pipe + 1 :])
