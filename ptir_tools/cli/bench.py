"""`ptir bench`."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys

from ptir_tools import __version__
from ptir_tools.cli.options import (
    choice,
    files_argument,
    finite,
    int_range,
    option,
    output_option,
    strict_fp_option,
    subcommand,
    titled,
)
from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Session, shown
from ptir_tools.cli.tables import Table
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.records import replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation
from ptir_tools.engines import ENGINES, RunOptions
from ptir_tools.engines.options import PEERS
from ptir_tools.tools import bench
from ptir_tools.tools.inputs import Inputs

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array

_COLUMNS = ("program", "runs", "P50 us", "P90 us", "P99 us", "least us", "GFLOP/s")


@subcommand(
    files_argument,
    output_option,
    *titled(
        "Execution",
        option("--engine", type=choice(["auto", *ENGINES]), default="auto", help="The engine (the fastest that supports it)."),
        option("--against", type=choice([*ENGINES, *PEERS]), help="Measure this engine, too, and print the ratio at P50."),
        option("--threads", type=int_range(0), default=0, metavar="N", help="Threads of native and onnxruntime (one per core)."),
        option("--random", type=int, default=0, metavar="SEED", help="Seed of the random inputs (0)."),
        strict_fp_option,
    ),
    *titled(
        "Measuring",
        option("--min-time", type=finite(0), default=0.5, metavar="S", help="Run for at least this time (0.5)."),
        option("--runs", type=int_range(1), metavar="N", help="Run this number of times instead."),
        option("--json", "as_json", is_flag=True, help="Print in google-benchmark's format: its tools compare two files."),
    ),
)
def command(
    session: Session,
    files: tuple[str, ...],
    output: str | None,
    engine: str,
    against: str | None,
    threads: int,
    random: int,
    strict_fp: bool,
    min_time: float,
    runs: int | None,
    as_json: bool,
) -> None:
    """Measure how long programs take, on random inputs, after a warm-up.

    Passes, plan and steps are made once, before the measurement. The times are percentiles of single runs. The output of
    --json can be read by google-benchmark's compare.py.

    \b
    Examples:
      ptir bench model.ptir
      ptir bench --json -o before.json a.ptir b.ptir
      ptir bench --engine numpy --runs 100 model.ptir
      ptir bench --against onnxruntime model.onnx
    """
    if engine == against:
        raise UsageError(f"--against {against} is the engine that is measured")
    options = RunOptions(engine=engine, threads=threads, strict_fp=strict_fp)
    measurements: list[bench.Measured] = []

    def measured(title: str, program: Program, arrays: dict[str, Array], side: str) -> bench.Measured:
        if side in PEERS:
            return bench.measure(title, program, arrays, options, min_time, runs, side)
        return bench.measure(title, program, arrays, replace(options, engine=side), min_time, runs)

    def one(path: str) -> int:
        program, diagnostics = session.load(path)
        try:
            arrays = Inputs((), (), random, False, None, session.bindings).arrays(program)
        except Violation as violation:
            diagnostics.violation(violation, None)
            session.reporter.settle(diagnostics)
            raise
        name = shown(path)
        sides = {name: engine} if against is None else {f"{name} on {engine}": engine, f"{name} on {against}": against}
        with session.reporter.progress() as show:
            show(f"{name}: measuring")
            measurements.extend([measured(title, program, arrays, side) for title, side in sides.items()])
        return 0

    status = session.highest(session.files(files), one)
    if not as_json and against is not None:
        for ours, other in zip(measurements[::2], measurements[1::2], strict=True):
            session.reporter.say(f"{other.name}: {other.percentile(50) / ours.percentile(50):.2f} times as long")
    if as_json:
        write_text(output, [json.dumps(_google(measurements), indent=2), "\n"])
    elif output is not None:
        write_text(output, _plain(measurements))
    else:
        session.reporter.tabulate(sys.stdout, _plain(measurements), lambda: [Table(_COLUMNS, [_row(m) for m in measurements])])
    if status:
        raise Leave(status)


def _row(m: bench.Measured) -> tuple[str, ...]:
    times = (m.percentile(50), m.percentile(90), m.percentile(99), m.seconds[0])
    rate = f"{m.flops / m.percentile(50) / 1e9:.2f}" if m.flops else ""
    return m.name, str(len(m.seconds)), *(f"{t * 1e6:.1f}" for t in times), rate


def _plain(results: list[bench.Measured]) -> list[str]:
    rows = [_COLUMNS, *map(_row, results)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    cells = ([f"{row[0]:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(row[1:], widths[1:], strict=True))] for row in rows)
    return ["  ".join(line).rstrip() + "\n" for line in cells]


def _google(results: list[bench.Measured]) -> dict[str, object]:
    """The results as google-benchmark's `--benchmark_format=json`, with times in microseconds."""
    context = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "host_name": platform.node(),
        "executable": "ptir bench",
        "num_cpus": os.cpu_count() or 1,
        "mhz_per_cpu": 0,
        "cpu_scaling_enabled": False,
        "caches": [],
        "library_version": f"ptir {__version__}",
        "library_build_type": "release",
    }
    rows = []
    for index, m in enumerate(results):
        rows.append(
            {
                "name": m.name,
                "family_index": index,
                "per_family_instance_index": 0,
                "run_name": m.name,
                "run_type": "iteration",
                "repetitions": 1,
                "repetition_index": 0,
                "threads": 1,
                "iterations": len(m.seconds),
                "real_time": m.percentile(50) * 1e6,
                "cpu_time": m.cpu / len(m.seconds) * 1e6,
                "time_unit": "us",
                **{f"p{p}": m.percentile(p) * 1e6 for p in (50, 90, 99)},
                "warm_up": m.warm_up * 1e6,
                **({"FLOP/s": m.flops / m.percentile(50)} if m.flops else {}),
            }
        )
    return {"context": context, "benchmarks": rows}
