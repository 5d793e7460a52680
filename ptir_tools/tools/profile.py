"""How long each op of a run took: a table, and a Chrome trace."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ptir_tools.core.ir import Op, Program

COLUMNS = ("us", "share", "runs", "op", "values", "line")


class Profile:
    """Gets how long every op took (`clock`, as in `RunOptions.clock`) and how long whole runs took (`run`)."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.spans: list[tuple[Op, float, float]] = []  # op, end, seconds
        self.runs: list[float] = []

    @contextmanager
    def run(self) -> Iterator[None]:
        """Around one execution of the program."""
        start = time.perf_counter()
        yield
        self.runs.append(time.perf_counter() - start)

    def clock(self, op: Op, seconds: float) -> None:
        """Keep how long an op took."""
        self.spans.append((op, time.perf_counter(), seconds))

    def rows(self) -> list[tuple[str, ...]]:
        """The cells under `COLUMNS`, the slowest op first."""
        totals: dict[Op, list[float]] = {}
        for op, _, seconds in self.spans:
            totals.setdefault(op, []).append(seconds)
        whole = sum(map(sum, totals.values())) or 1.0
        ordered = sorted(((sum(parts), len(parts), op) for op, parts in totals.items()), key=lambda row: -row[0])
        return [(f"{spent * 1e6:.1f}", f"{spent / whole:.1%}", str(n), *self._shown(op)) for spent, n, op in ordered]

    def per_run(self) -> tuple[str, ...]:
        """The last row: the median of the runs and their spread."""
        runs = sorted(self.runs)
        spread = f" (least {runs[0] * 1e6:.1f}, most {runs[-1] * 1e6:.1f})" if len(runs) > 1 else ""
        return f"{runs[len(runs) // 2] * 1e6:.1f}", "", "", f"per run{spread}", "", ""

    def _shown(self, op: Op) -> tuple[str, str, str]:
        names = ", ".join(f"%{v.name}" for v in op.results)
        source = self.program.source
        span = source.span(op.loc) if source else None
        return op.defn.short, names, f"line {source.position(span.start)[0]}" if source and span else ""

    def chrome_trace(self) -> str:
        """The runs as JSON for about://tracing and Perfetto."""
        return json.dumps({"traceEvents": list(self._events())})

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
