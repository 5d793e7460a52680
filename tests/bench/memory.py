"""What a session takes: the growth of resident memory until three calls were made, and at its peak; one engine per process.

Inputs are there before and count on no side. Ours is the native engine, the peer ONNX Runtime. `-` where it has not the workload.
`python -m tests.bench memory`; `PTIR_BENCH_ROWS=decode,gpt2` for some workloads.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
MEBI = 1 << 20


def _resident() -> tuple[int, int]:
    """(bytes now, bytes at the peak since it was reset)."""
    said = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text("ascii").splitlines())
    return tuple(int(said[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))  # type: ignore[return-value]


def serve(name: str, workload: str) -> None:
    """Print the growth of this process, in bytes."""
    from tests.bench._peer_engines import ENGINES, Skipped
    from tests.bench._peer_work import WORKLOADS, inputs

    engine = ENGINES[name](2)
    try:
        engine.compiled(WORKLOADS["add4M"], [x[:64] for x in inputs("add4M")])()  # what is loaded once
        given = inputs(workload)
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)  # what was free before is not what a session takes
        Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from now
        before = _resident()[0]
        call = engine.compiled(WORKLOADS[workload], given)
        for _ in range(3):
            call()
        gc.collect()
        now, peak = _resident()
        print(json.dumps({"grown": now - before, "peak": peak - before}))
    except Skipped:
        print("{}")


def grown(name: str, workload: str) -> dict[str, int]:
    """What `serve` printed in a process of its own; nothing where it failed."""
    command = [sys.executable, "-c", f"from tests.bench.memory import serve; serve({name!r}, {workload!r})"]
    environment = {**os.environ, **dict.fromkeys(THREADS, "2")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if done.returncode == 0 and lines else {}


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """The table: what stays, and the peak."""
    from tests.bench._peer_work import WORKLOADS

    for workload in os.environ.get("PTIR_BENCH_ROWS", ",".join(WORKLOADS)).split(","):
        ours, theirs = grown("ptir", workload), grown("ort", workload)
        for what in ("grown", "peak"):
            if ours:
                yield f"{workload}, {what}", ours[what] / MEBI, theirs[what] / MEBI if theirs else None, "MiB"
