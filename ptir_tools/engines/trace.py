"""Tracing: the sinks of an execution get its events, and those of the passes that prepare it.

`RunOptions.trace` is the sink of one call, `tracing` adds one for all calls of the process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import Program
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.engines.options import RunOptions
from ptir_tools.engines.sinks import Execution, PassEvent, TraceSink
from ptir_tools.passes import Hook, PassContext
from ptir_tools.rewrite.pipeline import Step

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array

_installed: list[TraceSink] = []


def tracing(sink: TraceSink) -> ExitStack:
    """Call `sink` for every execution of this process, until the end of `with tracing(sink):` or until `close()` of the
    result."""
    _installed.append(sink)
    until = ExitStack()
    until.callback(_installed.remove, sink)
    return until


class Latest(Hook):
    """Keeps the program after the latest pass."""

    reads_changed = False

    def __init__(self, program: Program) -> None:
        self.program = program

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """Remember the program."""
        self.program = program


def hooked(options: RunOptions, *hooks: Hook) -> RunOptions:
    """`options` with additional hooks on the engine's passes."""
    context = options.passes or PassContext()
    return replace(options, passes=replace(context, hooks=[*context.hooks, *hooks]))


class _Passes(Hook):
    """Reports the passes of one execution to its sinks."""

    def __init__(self, execution: Execution, sinks: Sequence[TraceSink], statistics: Mapping[str, Counter[str]]) -> None:
        self.execution, self.sinks, self.statistics = execution, sinks, statistics
        self.done: Counter[str] = Counter()

    def before(self, step: Step, program: Program) -> None:
        """Remember the statistics before the pass."""
        self.done = Counter(self.statistics.get(step.name))

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """Report the pass."""
        self.execution.program = program
        counts = Counter(self.statistics.get(step.name)) - self.done
        for sink in self.sinks:
            sink.passed(self.execution, PassEvent(step.name, changed, counts, program))


def is_traced(options: RunOptions) -> bool:
    """Whether executions have a sink."""
    return bool(_installed) or options.trace is not None


@contextmanager
def traced(program: Program, inputs: Sequence[Array], options: RunOptions) -> Iterator[tuple[RunOptions, Execution | None]]:
    """Context manager for one execution: `options` with traced passes, and a record for the outputs; None if there are no
    sinks."""
    sinks = [*_installed, *([options.trace] if options.trace is not None else [])]
    if not sinks:
        yield options, None
        return
    execution = Execution(program, options.engine, inputs)
    context = options.passes or PassContext()
    watched = hooked(replace(options, passes=context), _Passes(execution, sinks, context.statistics))
    for sink in sinks:
        sink.before(execution)
    start = time.perf_counter_ns()
    try:
        yield watched, execution
    except (Rejected, LimitExceeded) as error:
        execution.error = error
        raise
    finally:
        execution.nanoseconds = time.perf_counter_ns() - start
        if execution.error is not None or execution.outputs is not None:
            for sink in sinks:
                sink.after(execution)
