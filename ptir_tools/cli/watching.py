"""Watching a run: --check-nan, --print-values, --timing, --trace."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ptir_tools.cli.nonfinite import NonFinite
from ptir_tools.cli.outcome import Style, values
from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import Reporter
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.ir import Op, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded

if TYPE_CHECKING:
    from ptir_tools.cli import tables
    from ptir_tools.core.arrays import Array
else:
    tables = lazy("ptir_tools.cli.tables")

_COLUMNS = ("us", "share", "runs", "op", "values", "line")


@contextmanager
def deadline(seconds: float | None) -> Iterator[None]:
    """Raise LimitExceeded inside after so many seconds, whichever engine runs; where there are no alarms, engines look at the
    clock between ops."""
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise LimitExceeded(f"stopped after {seconds} s", "--timeout")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Wishes(Style, Protocol):
    """The options of `ptir run` that ask for watching."""

    check_nan: bool
    print_values: str
    timing: bool
    trace: str | None
    repeat: int


class Watch:
    """Is told of every op that ran (`observe`) and how long it took (`clock`)."""

    def __init__(self, reporter: Reporter, program: Program, flags: Wishes, diagnostics: Diagnostics) -> None:
        self.reporter = reporter
        self.program = program
        self.flags = flags
        self.nonfinite = NonFinite(program, flags.function, diagnostics) if flags.check_nan else None
        self.wanted = {name.strip().removeprefix("%") for name in flags.print_values.split(",") if name.strip()}
        self.observes = bool(flags.check_nan or self.wanted)
        self.times = bool(flags.timing or flags.trace)
        self.spans: list[tuple[Op, float, float]] = []  # op, end, seconds
        self.runs: list[float] = []
        known = {v.name for block in program.blocks() for op in block.body for v in op.results}
        if unknown := sorted(self.wanted - known):
            raise UsageError(f"no op defines %{unknown[0]}")

    def given(self, inputs: Mapping[str, Array]) -> None:
        """Look at the inputs of the run; raise Rejected for a NaN with --check-nan."""
        if self.nonfinite is not None:
            self.nonfinite.given(inputs)

    @contextmanager
    def run(self) -> Iterator[None]:
        """Around one execution of the program."""
        start = time.perf_counter()
        yield
        self.runs.append(time.perf_counter() - start)

    def observe(self, op: Op, results: tuple[Any, ...]) -> None:
        """Print what is asked for; raise Rejected for a NaN or an infinity with --check-nan."""
        for v, data in zip(op.results, results, strict=False):
            if v.name in self.wanted:
                shown = values(data, self.flags) if not isinstance(data, tuple) else str(data)
                self.reporter.say(f"%{v.name}: {self.program.dialect.type_text(v.type)}\n{shown}")
        if self.nonfinite is not None:
            self.nonfinite.ran(op, results)

    def clock(self, op: Op, seconds: float) -> None:
        """Keep how long an op took."""
        self.spans.append((op, time.perf_counter(), seconds))

    def finish(self) -> None:
        """Write the table and the trace."""
        if self.flags.timing:
            rows, total = self._rows(), self._per_run()
            self.reporter.tabulate(sys.stderr, _plain(rows, total), lambda: [tables.Table(_COLUMNS, rows, footer=total)])
        if self.flags.trace:
            write_text(self.flags.trace, [json.dumps({"traceEvents": list(self._events())})])

    def _rows(self) -> list[tuple[str, ...]]:
        """The cells under `_COLUMNS`, the slowest op first."""
        totals: dict[Op, list[float]] = {}
        for op, _, seconds in self.spans:
            totals.setdefault(op, []).append(seconds)
        whole = sum(map(sum, totals.values())) or 1.0
        ordered = sorted(((sum(parts), len(parts), op) for op, parts in totals.items()), key=lambda row: -row[0])
        return [(f"{spent * 1e6:.1f}", f"{spent / whole:.1%}", str(n), *self._shown(op)) for spent, n, op in ordered]

    def _per_run(self) -> tuple[str, ...]:
        """The last row: the median of the runs and their spread."""
        runs = sorted(self.runs)
        spread = f" (least {runs[0] * 1e6:.1f}, most {runs[-1] * 1e6:.1f})" if len(runs) > 1 else ""
        return f"{runs[len(runs) // 2] * 1e6:.1f}", "", "", f"per run{spread}", "", ""

    def _shown(self, op: Op) -> tuple[str, str, str]:
        names = ", ".join(f"%{v.name}" for v in op.results)
        source = self.program.source
        span = source.span(op.loc) if source else None
        return op.defn.short, names, f"line {source.position(span.start)[0]}" if source and span else ""

    def _events(self) -> Iterator[dict[str, Any]]:
        if not self.spans:
            return
        zero = self.spans[0][1] - self.spans[0][2]
        for op, end, seconds in self.spans:
            start = (end - seconds - zero) * 1e6
            name = ", ".join(f"%{v.name}" for v in op.results)
            yield {
                "name": op.defn.short,
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": start,
                "dur": seconds * 1e6,
                "args": {"value": name},
            }


def _plain(rows: list[tuple[str, ...]], total: tuple[str, ...]) -> Iterator[str]:
    for spent, share, n, *about in rows:
        yield f"{spent:>12} us {share:>6} {n:>6}x  {' '.join(about).rstrip()}\n"
    yield f"{total[0]:>12} us {total[3]}\n"
