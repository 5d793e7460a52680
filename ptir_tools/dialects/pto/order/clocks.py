"""Clocks: the number of tasks of each pipe that are certainly complete.

Op A is complete before op B starts exactly when the clock of B has reached A's number in A's pipe. The hazard check counts with
numbers that depend on conditions, the executor with plain ones.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.records import dataclass, field
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


@dataclass(slots=True, eq=False)
class Pipes:
    """The order of issued ops, in which each pipe runs its tasks one after another. The hazard check, insert-events and the
    executor issue their ops here.

    `issued` is what is complete before the next op is issued. `last` has the clock of the last task of each pipe, `places` its
    number.
    """

    join: Callable[[Clock, Clock], Clock] = join
    issued: Clock = ZERO
    last: list[Clock] = field(default_factory=lambda: [ZERO] * len(PIPES))
    places: list[int] = field(default_factory=lambda: [0] * len(PIPES))

    def start(self, pipe: int) -> Clock:
        """The clock at which the next op of a pipe starts, if it waits for no event."""
        return self.join(self.issued, self.last[pipe])

    def add(self, pipe: int, clock: Clock) -> Clock:
        """Add a task that starts at `clock`; its clock when it is complete."""
        self.places[pipe] += 1
        self.last[pipe] = done = advanced(clock, pipe, self.places[pipe])
        return done

    def wait(self, clock: Clock) -> None:
        """Issue later ops only when the tasks of `clock` are complete."""
        self.issued = self.join(self.issued, clock)

    def barrier(self, pipe: int) -> None:
        """Issue later ops only when all tasks of a pipe are complete."""
        self.wait(self.last[pipe])

    def state(self) -> State:
        """The clocks, to be restored."""
        return State(self.issued, list(self.last))

    def restore(self, state: State) -> None:
        """Set the clocks; places stay, because tasks are numbered along the walk."""
        self.issued, self.last = state.issued, list(state.last)
