"""Benchmarks: single runs of a program, timed after a warm-up."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ptir_tools.core import costs
from ptir_tools.core.dialect import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.engines import RunOptions
from ptir_tools.engines.compiled import Compiled
from ptir_tools.tools.profile import percentile

if TYPE_CHECKING:
    from ptir_tools.bridges.onnx import runtime
    from ptir_tools.core.arrays import Array
    from ptir_tools.core.dialect import Runner
else:
    runtime = lazy("ptir_tools.bridges.onnx.runtime")

WARM_UP = 3  # warm-up runs


@dataclass(slots=True)
class Measured:
    """The timed runs of one program: `seconds` of each, sorted; `cpu` is the processor time of all, `warm_up` that of preparation
    and warm-up runs. `flops` is the arithmetic of one run, 0 where it depends on values."""

    name: str
    seconds: list[float]
    cpu: float
    warm_up: float
    flops: int

    def percentile(self, percent: float) -> float:
        """The percentile of the runs' seconds."""
        return percentile(self.seconds, percent)


def measure(
    name: str,
    program: Program,
    inputs: Mapping[str, Array],
    options: RunOptions | None = None,
    min_time: float = 0.5,
    runs: int | None = None,
    peer: str | None = None,
) -> Measured:
    """Run a verified program for `min_time` seconds or, where given, `runs` times, on the engine of `options` or on a `peer`.
    Raises like `engines.run` and the peer."""
    options = options or RunOptions()
    ready: Compiled | Runner
    ready = Compiled(program, options, reuse=True) if peer is None else runtime.ready(program, options.threads)
    start = time.perf_counter()
    for _ in range(WARM_UP):
        ready(inputs)
    begin = time.perf_counter()
    times: list[float] = []
    cpu = time.process_time()
    while len(times) < runs if runs is not None else not times or time.perf_counter() - begin < min_time:
        before = time.perf_counter()
        ready(inputs)
        times.append(time.perf_counter() - before)
    spent = time.process_time() - cpu
    flops = [costs.operations(op).value for op in (ready.ran if isinstance(ready, Compiled) else program).main.body]
    known = [n for n in flops if n is not None]
    return Measured(name, sorted(times), spent, begin - start, sum(known) if len(known) == len(flops) else 0)
