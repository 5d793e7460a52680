"""Trace sinks: a sink is called before and after every execution, and after every pass that prepares it.

`tracefolder.TraceFolder` is the sink that writes files, in the layout of gpt.rs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array


@dataclass(slots=True, eq=False)
class Execution:
    """One run. `program` has its symbols bound; after a pass it is the result of the pass. `started` is in ns since the epoch.
    At the end it has the duration, and the outputs by name or the error."""

    program: Program
    engine: str
    inputs: Sequence[Array]
    started: int = field(default_factory=time.time_ns)
    nanoseconds: int = 0
    outputs: Mapping[str, Array] | None = None
    error: Exception | None = None


@dataclass(slots=True, frozen=True)
class PassEvent:
    """A pass before an execution: whether it changed the program, and its statistics."""

    name: str
    changed: bool
    counts: Mapping[str, int]
    program: Program


class TraceSink:
    """Receives the events of executions; the methods do nothing unless overridden. Their exceptions are raised by the run."""

    def before(self, execution: Execution) -> None:
        """An execution begins; the engine's passes follow, if any."""

    def passed(self, execution: Execution, event: PassEvent) -> None:
        """A pass has run."""

    def after(self, execution: Execution) -> None:
        """The execution has ended, with or without an error."""
