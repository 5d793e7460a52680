"""Running the tests of a part: once without a fault, to learn what each takes and reaches, and with one, the best order first.

Each run is a child of this process, which has loaded what is not ours (pytest, NumPy, Hypothesis) and nothing of what is judged.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from zlib import crc32

import hypothesis  # noqa: F401  loaded once, for all children
import ml_dtypes  # noqa: F401
import numpy as np  # noqa: F401
import pytest

from .rooms import ROOT, Part

HOOK = Path(__file__).parent / "hook"
SELECTED = 35.0  # seconds of the processor that the tests of one fault take without it
SECONDS = 60  # of the processor, for one run with a fault
PATIENCE = 900.0  # seconds, for the same on a machine that is busy
BY_TIME = "killed by time"

Reach = dict[str, tuple[float, list[str]]]  # a test's seconds, and the functions of the part that it calls, as `file:line`


def reach_of(part: Part, kept: Path, change: tuple[Path, Path] | None) -> Reach:
    """What the tests of a part take and reach, from `kept` where that is as new as the tests and the sources."""
    files = [*(ROOT / name for name in names(part)), *part.files()]
    stamp = crc32(b"".join(f.read_bytes() for f in files))
    path = kept / f"reach-{stamp:08x}.json"
    if not path.exists():
        folder = kept / f"of-{stamp:08x}"
        folder.mkdir(exist_ok=True)
        watch = Watch({str(f) for f in part.files()})
        child(names(part), watch, folder, change, None)
        found = json.loads((folder / "said").read_text("utf-8"))
        if not found["reach"]:
            sys.exit(f"no test of {' '.join(part.tests)} passes without a fault: {folder / 'output'}")
        for name in found["failed"]:
            print(f"fails without a fault, and judges nothing: {name}", flush=True)
        path.write_text(json.dumps(found["reach"]), "utf-8")
    return {name: (took, functions) for name, (took, functions) in json.loads(path.read_text("utf-8")).items()}


def names(part: Part) -> list[str]:
    """The test files of a part."""
    return [f"tests/test_{name}.py" for name in part.tests]


def killed_by(part: Part, reach: Reach, line: int, path: Path, changed: Path) -> str:
    """The first test that fails with one file changed, `killed by time`, or nothing when all pass.

    First come the tests that call the function of the fault, the quickest first, then the others, those of files named like the
    source first. All of them take at most SELECTED seconds where there is no fault.
    """
    function, words = function_at(path, line), set(re.split(r"[^a-z]+", path.stem)) - {"rules", "ops", "isa"}

    def rank(name: str) -> tuple[bool, bool, float]:
        called, file = function in reach[name][1], re.split(r"[/.:_]", name.partition("::")[0])
        return not called, not called and words.isdisjoint(file), reach[name][0]

    order, left = [], SELECTED
    for name in sorted(reach, key=rank):
        if (left := left - reach[name][0]) < 0:
            break
        order.append(name)
    source = path if path.suffix == ".py" else ROOT / "ptir_tools" / "_native.so"
    ended = child(names(part), Judge(order), changed.parent, (source, changed), SECONDS)
    said = changed.parent / "said"
    if said.exists():
        return json.loads(said.read_text("utf-8"))["failed"]
    return BY_TIME if ended in (signal.SIGXCPU, signal.SIGKILL) else f"signal {ended}"


def function_at(path: Path, line: int) -> str:
    """The innermost function that has a line, as `file:line` of its first one; of the module itself there is none."""
    if path.suffix != ".py":
        return ""
    found, inside = "", [compile(path.read_bytes(), str(path), "exec", dont_inherit=True)]
    while inside:
        inside = [
            c for code in inside for c in code.co_consts
            if isinstance(c, CodeType) and min(lines := _lines(c)) <= line <= max(lines)
        ]  # fmt: skip
        found = next((f"{path}:{c.co_firstlineno}" for c in inside if c.co_name[0] != "<" or c.co_name == "<lambda>"), found)
    return found


def _lines(code: CodeType) -> list[int]:
    inner = [n for c in code.co_consts if isinstance(c, CodeType) for n in _lines(c)]
    return [code.co_firstlineno, *(n for _, _, n in code.co_lines() if n is not None), *inner]


class Watch:
    """A plug-in of pytest that notes the seconds of each test and the functions of some files that it calls."""

    def __init__(self, files: set[str]) -> None:
        self.files = files
        self.called: set[str] = set()
        self.reach: Reach = {}
        self.failed: list[str] = []

    def trace(self, frame: FrameType, event: str, arg: Any) -> None:
        """Called at each call of a function."""
        code = frame.f_code
        if code.co_filename in self.files:
            self.called.add(f"{code.co_filename}:{code.co_firstlineno}")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
        """One test."""
        self.called, before = set(), _processor()
        threading.settrace(self.trace)
        sys.settrace(self.trace)
        yield
        sys.settrace(None)
        self.reach[item.nodeid] = round(_processor() - before, 3), sorted(self.called)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that does not pass judges nothing."""
        if report.failed:
            self.failed.append(report.nodeid)

    def said(self) -> dict[str, Any]:
        """What is told to the parent."""
        return {"reach": {k: v for k, v in self.reach.items() if k not in self.failed}, "failed": self.failed}


class Judge:
    """A plug-in of pytest that runs some tests, in their order, and notes the first that fails."""

    def __init__(self, order: Sequence[str]) -> None:
        self.order = {name: i for i, name in enumerate(order)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The tests in their order. One that is gone makes a fault known, too: names come from what is declared."""
        items[:] = sorted((i for i in items if i.nodeid in self.order), key=lambda i: self.order[i.nodeid])
        if missing := set(self.order) - {i.nodeid for i in items}:
            self.failed = min(missing, key=lambda name: self.order[name])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A failure ends the run."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Nor can a file be loaded that imports what the fault breaks."""
        if report.failed and not self.failed:
            self.failed = report.nodeid or "loading"

    def said(self) -> dict[str, Any]:
        """What is told to the parent."""
        return {"failed": self.failed}


def _processor() -> float:
    mine, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def child(files: list[str], plugin: Any, folder: Path, change: tuple[Path, Path] | None, seconds: int | None) -> int:
    """Run pytest with a plug-in in a child process, which leaves what that says in `folder`/said. The signal that ended it."""
    process = os.fork()
    if not process:
        try:
            _run(files, plugin, folder, change, seconds)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(70)
    end = time.monotonic() + (PATIENCE if seconds is not None else 1e9)
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(process, signal.SIGKILL)
        time.sleep(0.05)
    _ended(process)
    return os.WTERMSIG(ended[1]) if os.WIFSIGNALED(ended[1]) else 0


def _ended(group: int) -> None:
    """End what a test may have left running."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _run(files: list[str], plugin: Any, folder: Path, change: tuple[Path, Path] | None, seconds: int | None) -> None:
    os.setpgid(0, 0)
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = 6 << 30
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    if change is not None:
        os.environ |= {"PTIR_MUTANT": f"{change[0].resolve()}{os.pathsep}{change[1]}", "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}
        SourceFileLoader("hook", str(HOOK / "sitecustomize.py")).load_module()
    options = ["-q", "-m", "not slow and not campaign", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--tb=line"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is loaded already
    options += ["-x"] if seconds is not None else []
    pytest.main([*options, *files], plugins=[plugin])
    told = folder / "said.part"
    told.write_text(json.dumps(plugin.said()), "utf-8")
    told.rename(folder / "said")
