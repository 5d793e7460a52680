"""Starting, against `xdsl-opt --version`, with what the interpreter (for `run`: NumPy) takes anyway subtracted on both sides.

Measure a wheel in a clean environment, as users have it: `python -m venv clean; clean/bin/pip install dist/*.whl xdsl`, then
`PATH=clean/bin:$PATH clean/bin/python -m tests.bench start`. Instructions (of cachegrind, where valgrind is installed) are the
same in every run; milliseconds are medians of interleaved rounds.
"""

from __future__ import annotations

import os
import re
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
NOTHING, NUMPY = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import numpy"]


def _tool(name: str) -> str | None:
    return str(HERE / name) if (HERE / name).exists() else shutil.which(name)


def _environment() -> dict[str, str]:
    # Byte code is cached, as it is once a user has run the tool.
    return os.environ | {"PYTHONDONTWRITEBYTECODE": "", "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}


def milliseconds(command: list[str], **more: str) -> tuple[float, float]:
    """(wall, CPU) of one run."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=_environment() | more)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall * 1e3, cpu * 1e3


def instructions(command: list[str]) -> float:
    """Millions of instructions of one run."""
    program = command if Path(command[0]).name.startswith("python") else [sys.executable, *command]
    counted = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", *program]
    said = subprocess.run(counted, capture_output=True, text=True, env=_environment()).stderr
    found = re.search(r"I\s+refs:\s+([\d,]+)", said)
    if found is None:
        raise SystemExit(f"valgrind failed: {said[-500:]}")
    return int(found[1].replace(",", "")) / 1e6


def rows() -> Iterator[tuple[str, float, float | None, str]]:
    """The table: the peer's number is that of `xdsl-opt --version`."""
    ptir, peer = _tool("ptir"), _tool("xdsl-opt")
    if ptir is None:
        raise SystemExit("ptir is not installed")
    commands = {
        "ptir --version": ([ptir, "--version"], NOTHING),
        "ptir verify small.ptir": ([ptir, "verify", str(SMALL)], NOTHING),
        "ptir opt small.ptir": ([ptir, "opt", str(SMALL)], NOTHING),
        "ptir run small.ptir --random 0": ([ptir, "run", str(SMALL), "--random", "0"], NUMPY),
    }
    asked = [NOTHING, NUMPY, *(command for command, _ in commands.values()), *([[peer, "--version"]] if peer else [])]
    for command in asked:
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, env=_environment())  # compiles what is not
    if shutil.which("valgrind"):
        counted = {tuple(command): instructions(command) for command in asked}
        theirs = counted[peer, "--version"] - counted[tuple(NOTHING)] if peer else None
        for name, (command, base) in commands.items():
            yield name, counted[tuple(command)] - counted[tuple(base)], theirs, "million instructions"
    measured: dict[tuple[str, ...], list[float]] = {tuple(command): [] for command in asked}
    for _ in range(ROUNDS):
        for command in asked:
            measured[tuple(command)].append(milliseconds(command)[1])
    spent = {command: median(found) for command, found in measured.items()}
    theirs = spent[peer, "--version"] - spent[tuple(NOTHING)] if peer else None
    for name, (command, base) in commands.items():
        yield name, spent[tuple(command)] - spent[tuple(base)], theirs, "ms CPU"
    asking = {"_PTIR_COMPLETE": "bash_complete", "COMP_WORDS": "ptir opt --", "COMP_CWORD": "2"}
    yield (
        "a Tab after `ptir opt --`",
        median(milliseconds([ptir], **asking)[1] for _ in range(ROUNDS)),
        100.0,
        "ms CPU, the interpreter's start included (at most)",
    )
