"""Starting: `ptir --version` and `ptir verify` of a small file against `xdsl-opt --version`: medians of interleaved rounds."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

ROUNDS = 10
SMALL = Path(__file__).parent.parent.parent / "testdata" / "plan" / "softmax.ptir"
HERE = Path(sys.executable).parent


def _tool(name: str) -> str | None:
    return str(HERE / name) if (HERE / name).exists() else shutil.which(name)


def milliseconds(command: list[str]) -> tuple[float, float]:
    """(wall, CPU) of one run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    # Byte code is cached, as it is once a user has run the tool.
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""})
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1e3, cpu * 1e3


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """The table: the peer's number is that of `xdsl-opt --version`."""
    ptir, peer = _tool("ptir"), _tool("xdsl-opt")
    if ptir is None:
        raise SystemExit("ptir is not installed")
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "ptir --version": [ptir, "--version"],
        "ptir verify small.ptir": [ptir, "verify", str(SMALL)],
        "ptir opt small.ptir": [ptir, "opt", str(SMALL)],
        "ptir run small.ptir --random 0": [ptir, "run", str(SMALL), "--random", "0"],
    }
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in (*commands, "peer")}
    for _ in range(ROUNDS):
        for name, command in commands.items():
            measured[name].append(milliseconds(command))
        if peer:
            measured["peer"].append(milliseconds([peer, "--version"]))
    theirs = [median(column) for column in zip(*measured["peer"], strict=True)] or [None, None]
    for name in commands:
        for unit, ours, other in zip(("ms wall", "ms CPU"), map(median, zip(*measured[name], strict=True)), theirs, strict=True):
            yield name, ours, other, unit
