"""Running the tests of a part: once without a fault, to learn what each takes and reaches, and with one, the quickest first.

All runs are children of this process, which has loaded what is not ours (pytest, NumPy, Hypothesis), but nothing that is judged.
A fault in a function is put into a child of a process that has collected the tests: nothing is loaded anew for it. Any other
fault is there before anything is loaded.
"""

from __future__ import annotations

import ast
import builtins
import gc
import json
import os
import re
import resource
import runpy
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, ClassVar
from zlib import crc32

import hypothesis  # noqa: F401  loaded once, for all children
import ml_dtypes  # noqa: F401
import numpy as np  # noqa: F401
import pytest

from .rooms import ROOMS, ROOT, Part

HOOK = Path(__file__).parent / "hook"
SELECTED = 50.0  # seconds of the processor that the tests of one fault take without it
WATCHED = 60.0  # seconds that the tests of one file take in the run without a fault; what the others reach stays unknown
LOADING = 20.0  # seconds of the processor, more than loading a part and its tests takes
SLOWER = 2.0  # how many times as long as without a fault tests may take on a busy machine, before time kills
PATIENCE = 10  # how many times as long tests may wait, which may hang without using the processor
BY_TIME = "killed by time"

Change = tuple[Path, Path]  # a file of the tree, and the one to take instead
Reach = dict[str, tuple[float, frozenset[str] | None]]  # a test's seconds, and the marks that it reaches, if that is known
_MARK = "__mark__"
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


# ---- What tests reach: the sources are marked where a function, or another block of one, begins


class Marks:
    """The marks of a source, each called by `file:line.column` of the first statement behind it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tree = ast.parse(path.read_bytes())
        self._of: list[tuple[int, int, str]] = []  # first and last line, mark; none outside of functions
        for node in self.tree.body:
            self._statement(node, "")

    def at(self, line: int) -> set[str]:
        """The marks of the innermost statement or lambda on a line; empty for what runs when the module is loaded."""
        around = [(last - first, mark) for first, last, mark in self._of if first <= line <= last]
        least = min((size for size, _ in around), default=0)
        return {mark for size, mark in around if size == least and mark}

    def _name(self, node: ast.stmt | ast.expr) -> str:
        return f"{self.path.relative_to(ROOT)}:{node.lineno}.{node.col_offset}"

    def _statement(self, node: Any, mark: str) -> None:
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        self._of.append((first, node.end_lineno, mark))
        inside = isinstance(node, _FUNCTIONS)
        for name, value in ast.iter_fields(node):
            if name not in _BLOCKS:
                for child in value if isinstance(value, list) else [value]:
                    self._lambdas(child)
                continue
            if name in ("handlers", "cases"):
                for part in value:
                    self._lambdas(getattr(part, "guard", None))
                    self._block(part.body, bool(mark))
            elif value:
                self._block(value, inside or bool(mark))

    def _block(self, body: list[ast.stmt], marked: bool) -> None:
        """Mark the statements of a block: the first one, and each that follows a statement with blocks."""
        made: list[ast.stmt] = []
        mark = ""
        begins = marked
        for i, node in enumerate(body):
            words = i == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            if begins and not words and not isinstance(node, (ast.Global, ast.Nonlocal)):
                mark = self._name(node)
                made.append(ast.copy_location(ast.Expr(self._call(mark, node)), node))
                begins = False
            self._statement(node, mark)
            made.append(node)
            begins = begins or (marked and hasattr(node, "body") and not isinstance(node, (*_FUNCTIONS, ast.ClassDef)))
        body[:] = made

    def _lambdas(self, node: Any) -> None:
        for child in ast.walk(node) if isinstance(node, ast.AST) else ():
            if isinstance(child, ast.Lambda):
                mark = self._name(child)
                self._of.append((child.body.lineno, child.body.end_lineno or child.body.lineno, mark))
                child.body = ast.copy_location(ast.BoolOp(ast.Or(), [self._call(mark, child), child.body]), child.body)

    def _call(self, mark: str, node: ast.stmt | ast.expr) -> ast.expr:
        call = ast.Call(ast.Name(_MARK, ast.Load()), [ast.Constant(mark)], [])
        for part in ast.walk(call):
            ast.copy_location(part, node)
        return call


@cache
def marks(path: Path) -> Marks:
    """The marks of a source."""
    return Marks(path)


@cache
def _stamp() -> int:
    """Another one when a source or what tests share changes."""
    files = {p for parts in ROOMS.values() for part in parts for p in part.files()}
    files.update(p for p in (ROOT / "tests").rglob("*.py") if not p.name.startswith("test_"))
    return crc32(b"".join(p.read_bytes() for p in sorted(files)))


def reach_of(part: Part, kept: Path, change: Change | None) -> tuple[Reach, set[str]]:
    """What the tests of a part take and reach, and what is reached before the first one, from `kept` where that is as new as the
    tests and the sources."""
    paths = {
        name: kept
        / f"reach-{_stamp():08x}-{crc32((ROOT / name).read_bytes()):08x}-{name.removesuffix('.py').replace('/', '-')}.json"
        for name in names(part)
    }
    if change is not None:
        paths = {name: path.with_suffix(f".c{part.isa}.json") for name, path in paths.items()}
    if missing := [name for name, path in paths.items() if not path.exists()]:
        folder = kept / f"of-{paths[missing[0]].stem}"
        folder.mkdir(exist_ok=True)
        child(missing, Watch(), folder, change, None)
        said = json.loads((folder / "said").read_text("utf-8"))
        for name in said["failed"]:
            print(f"fails without a fault, and judges nothing: {name}", flush=True)
        for name in missing:
            tests = {test: found for test, found in said["tests"].items() if test.partition("::")[0] == name}
            paths[name].write_text(json.dumps(said | {"tests": tests}), "utf-8")
    reach: Reach = {}
    before: set[str] = set()
    for path in paths.values():
        said = json.loads(path.read_text("utf-8"))
        sets = [frozenset(said["marks"][i] for i in one) for one in said["sets"]]
        reach |= {test: (took, sets[k] if k >= 0 else None) for test, (took, k) in said["tests"].items()}
        before |= sets[0]
    return reach, before


def names(part: Part) -> list[str]:
    """The test files of a part."""
    return [str(Path("tests", name).with_name(f"test_{Path(name).name}.py")) for name in part.tests]


class Watch:
    """A plug-in of pytest that notes the seconds of each test and the marks that it reaches."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.sets: dict[frozenset[str], int] = {}
        self.tests: dict[str, tuple[float, int]] = {}
        self.failed: list[str] = []

    def begin(self) -> None:
        """Mark the sources of all rooms that are loaded from now on."""
        setattr(builtins, _MARK, self.called.add)
        files = {str(p): p for parts in ROOMS.values() for part in parts for p in part.files() if p.suffix == ".py"}
        kept = SourceFileLoader.get_code

        def get_code(loader: Any, name: str) -> CodeType | None:
            path = files.get(os.path.realpath(loader.path))
            return kept(loader, name) if path is None else compile(marks(path).tree, loader.path, "exec", dont_inherit=True)

        SourceFileLoader.get_code = get_code  # type: ignore[method-assign,assignment]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The tests of a file in an order that mixes long and short ones. What was reached by loading comes first."""
        self.sets[frozenset(self.called)] = 0
        items.sort(key=lambda item: crc32(item.nodeid.encode()))
        items.sort(key=lambda item: str(item.path))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """As many tests of each file as there is time for."""
        left: dict[Path, float] = {}
        for item in session.items:
            if left.setdefault(item.path, WATCHED) > 0:
                left[item.path] -= self.watched(item)
            else:
                self.tests[item.nodeid] = 0.0, -1
        return True

    def watched(self, item: pytest.Item) -> float:
        """Run one test, with fixtures of its own, since no one knows yet which is the next; the seconds that it took."""
        self.called.clear()
        before = _processor()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
        took = round(_processor() - before, 3)
        self.tests[item.nodeid] = took, self.sets.setdefault(frozenset(self.called), len(self.sets))
        return took

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that does not pass judges nothing."""
        if report.failed:
            self.failed.append(report.nodeid)

    def said(self) -> dict[str, Any]:
        """What the parent is given."""
        every = {mark: i for i, mark in enumerate(dict.fromkeys(m for one in self.sets for m in one))}
        tests = {k: v for k, v in self.tests.items() if k not in self.failed}
        return {
            "marks": list(every),
            "sets": [[every[m] for m in one] for one in self.sets],
            "tests": tests,
            "failed": self.failed,
        }


# ---- With a fault


def killed_by(part: Part, kept: Path, path: Path, line: int, changed: Path, sound: Change | None) -> str:
    """The first test that fails with one file changed, `killed by time`, or nothing when all pass.

    Tests that do not reach the fault are not run; where it is in no function, or in C, all may reach it, and those that reach
    anything of its file come first. Of these the quickest come first, and all of them take at most SELECTED seconds. Then come
    those of which nothing is known, while there is time.
    """
    chosen = {"PTIR_ISA": part.isa, "PTIR_SHARE_OF_SEEDS": "3"} if part.isa else {}
    os.environ |= chosen
    try:
        return _killed_by(part, kept, path, line, changed, sound)
    finally:
        for name in chosen:
            del os.environ[name]


def _killed_by(part: Part, kept: Path, path: Path, line: int, changed: Path, sound: Change | None) -> str:
    reach, before = reach_of(part, kept, sound)
    at = marks(path).at(line) if path.suffix == ".py" else set()
    if not any(mark.startswith(f"{path.relative_to(ROOT)}:") for _, marked in reach.values() for mark in marked or ()):
        at = set()  # only processes that the tests start may reach the file, and all tests may start one
    order, rest = selected(reach, path, at), [name for name, (_, marked) in reach.items() if marked is None]
    if not order and not rest:
        return ""
    seconds = round(LOADING + SLOWER * (SELECTED if rest else sum(reach[name][0] for name in order)))
    if at and at.isdisjoint(before):
        said, ended = server(part, kept).judged(order, rest, path, changed, seconds)
    else:
        source = path if path.suffix == ".py" else ROOT / "ptir_tools" / "_native.so"
        files = list(dict.fromkeys(name.partition("::")[0] for name in (*order, *rest)))
        told = changed.parent / "said"
        ended = child(files, Judge(order, rest, told), changed.parent, (source, changed), seconds)
        said = json.loads(told.read_text("utf-8"))["failed"] if told.exists() else None
    if said is not None:
        return said
    if not ended:
        sys.exit(f"the tests of {path} did not run")
    return BY_TIME if ended in (signal.SIGXCPU, signal.SIGKILL) else f"signal {ended}"


def selected(reach: Reach, path: Path, at: set[str]) -> list[str]:
    """The tests that judge a fault with the marks `at`, in order."""
    file, words = f"{path.relative_to(ROOT)}:", set(re.split(r"[^a-z]+", path.stem)) - {"rules", "ops", "isa"}
    known = {name: (took, marked) for name, (took, marked) in reach.items() if marked is not None}
    if at:
        order = sorted((name for name in known if not at.isdisjoint(known[name][1])), key=lambda name: known[name][0])
    else:
        touches = {marked: any(m.startswith(file) for m in marked) for marked in {marked for _, marked in known.values()}}

        def rank(name: str) -> tuple[bool, bool, float]:
            took, marked = known[name]
            return not touches[marked], words.isdisjoint(re.split(r"[/.:_]", name.partition("::")[0])), took

        order = sorted(known, key=rank)
    left, chosen = SELECTED, []
    for name in order:
        if (left := left - known[name][0]) < 0 and chosen:
            break
        chosen.append(name)
    return chosen


class Judge:
    """A plug-in of pytest that runs some tests, in their order, then some of `rest`, and notes the first that fails."""

    def __init__(self, order: Sequence[str], rest: Sequence[str], told: Path | None) -> None:
        self.order, self.rest, self.told = order, rest, told
        self.failed = ""

    def begin(self) -> None:
        """Nothing to prepare."""

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """The tests in their order. One that is gone makes a fault known, too: names come from what is declared."""
        self.judge({item.nodeid: item for item in session.items})
        return True

    def judge(self, items: dict[str, pytest.Item]) -> None:
        """Run tests until one fails. From the first of `rest` on time kills nothing: they may take long without a fault."""
        self.failed = self.failed or next((name for name in (*self.order, *self.rest) if name not in items), "")
        start = _processor()
        for i, name in enumerate(chosen := [*self.order, *self.rest]):
            if self.failed or (i >= len(self.order) and _processor() - start > SELECTED):
                break
            if i == len(self.order) and self.told is not None:
                _tell(self.told, self.said())
            following = items[chosen[i + 1]] if i + 1 < len(chosen) else None
            items[name].config.hook.pytest_runtest_protocol(item=items[name], nextitem=following)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A failure ends the run."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Nor can a file be loaded that imports what the fault breaks."""
        if report.failed and not self.failed:
            self.failed = report.nodeid or "loading"

    def said(self) -> dict[str, Any]:
        """What the parent is given."""
        return {"failed": self.failed}


class Serve(Judge):
    """A plug-in of pytest that collects tests, and then lets a child judge each fault that it is given."""

    def __init__(self, asked: int, answers: int) -> None:
        super().__init__((), (), None)
        self.asked = os.fdopen(asked, encoding="utf-8")
        self.answers = os.fdopen(answers, "w", encoding="utf-8")

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """One fault after the other, until there are no more."""
        items = {item.nodeid: item for item in session.items}
        for line in self.asked:
            seconds, *fault = json.loads(line)
            ended = forked(lambda: self._judge(items, *fault), seconds)  # noqa: B023
            print(json.dumps(ended), file=self.answers, flush=True)
        return True

    def _judge(
        self, items: dict[str, pytest.Item], order: list[str], rest: list[str], path: str, changed: str, told: str
    ) -> None:
        imported((Path(path), Path(changed)))  # if nothing has loaded it yet
        put(path, changed)
        self.order, self.rest, self.told = order, rest, Path(told)
        self.judge(items)
        _tell(self.told, self.said())


def imported(change: Change) -> None:
    """Let this process and those that it starts import a changed file in place of one of the tree."""
    os.environ |= {"PTIR_MUTANT": f"{change[0].resolve()}{os.pathsep}{change[1]}", "PYTHONPATH": f"{HOOK}{os.pathsep}{ROOT}"}
    runpy.run_path(str(HOOK / "sitecustomize.py"))


def put(path: str, changed: str) -> None:
    """Give the functions of a source that is loaded the code that they have in a changed one."""
    now = _functions(compile(Path(changed).read_bytes(), path, "exec", dont_inherit=True))
    was = _functions(compile(Path(path).read_bytes(), path, "exec", dont_inherit=True))
    gc.unfreeze()  # what readers put out of the collector's sight
    for f in gc.get_objects():
        if type(f) is FunctionType and os.path.realpath(f.__code__.co_filename) == path:
            key = f.__code__.co_qualname, f.__code__.co_firstlineno
            mine, new = was.get(key, []), now.get(key, [])
            if len(mine) == len(new) and f.__code__ in mine:
                code = new[mine.index(f.__code__)]
                if len(code.co_freevars) == len(f.__code__.co_freevars):
                    f.__code__ = code


def _functions(code: CodeType) -> dict[tuple[str, int], list[CodeType]]:
    """All code in a module, by name and line."""
    found: dict[tuple[str, int], list[CodeType]] = {}
    left = [code]
    while left:
        for inner in (c for c in left.pop().co_consts if isinstance(c, CodeType)):
            found.setdefault((inner.co_qualname, inner.co_firstlineno), []).append(inner)
            left.append(inner)
    return found


class Server:
    """A process that has collected the tests of a part."""

    ends: ClassVar[list[int]] = []  # of pipes, in this process

    def __init__(self, part: Part, folder: Path) -> None:
        asked, answers = os.pipe(), os.pipe()
        self.folder = folder
        folder.mkdir(exist_ok=True)
        if not os.fork():
            for fd in (asked[1], answers[0], *Server.ends):  # so that each server sees when this process ends
                os.close(fd)
            _end_after(lambda: _run(names(part), Serve(asked[0], answers[1]), folder, None, None))
        os.close(asked[0])
        os.close(answers[1])
        Server.ends += [asked[1], answers[0]]
        self.asked = os.fdopen(asked[1], "w", encoding="utf-8")
        self.answers = os.fdopen(answers[0], encoding="utf-8")

    def judged(self, order: list[str], rest: list[str], path: Path, changed: Path, seconds: int) -> tuple[str | None, int]:
        """The first test that fails, or None and the signal that ended the tests."""
        said = changed.parent / "said"
        fault = order, rest, str(path.resolve()), str(changed), str(said)
        print(json.dumps([seconds, *fault]), file=self.asked, flush=True)
        answer = self.answers.readline()
        if not answer:
            sys.exit(f"the tests cannot be collected: {self.folder / 'output'}")
        return (json.loads(said.read_text("utf-8"))["failed"] if said.exists() else None), json.loads(answer)


@cache
def server(part: Part, kept: Path) -> Server:
    """The process of a part."""
    return Server(part, kept / f"server-{crc32(' '.join(part.tests).encode()):08x}")


# ---- Processes


def _processor() -> float:
    mine, theirs = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return mine.ru_utime + mine.ru_stime + theirs.ru_utime + theirs.ru_stime


def child(files: list[str], plugin: Any, folder: Path, change: Change | None, seconds: int | None) -> int:
    """Run pytest with a plug-in in a child process, which leaves what that says in `folder`/said. The signal that ended it."""
    return forked(lambda: _run(files, plugin, folder, change, seconds), seconds)


def forked(function: Callable[[], None], seconds: int | None) -> int:
    """Run a function in a child process, with what it starts in a group of its own. The signal that ended it."""
    process = os.fork()
    if not process:
        _end_after(lambda: _bounded(function, seconds))
    end, pause = time.monotonic() + (PATIENCE * seconds if seconds is not None else 1e9), 0.002
    while not (ended := os.waitpid(process, os.WNOHANG))[0]:
        if time.monotonic() > end:
            os.killpg(process, signal.SIGKILL)
        time.sleep(pause := min(2 * pause, 0.05))
    try:  # what a test may have left running
        os.killpg(process, signal.SIGKILL)
    except ProcessLookupError:
        pass
    return os.WTERMSIG(ended[1]) if os.WIFSIGNALED(ended[1]) else 0


def _end_after(function: Callable[[], None]) -> None:
    try:
        function()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(70)


def _bounded(function: Callable[[], None], seconds: int | None) -> None:
    os.setpgid(0, 0)
    if seconds is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    memory = 6 << 30
    resource.setrlimit(resource.RLIMIT_AS, (memory, resource.getrlimit(resource.RLIMIT_AS)[1]))  # a sanitizer's process raises it
    function()


def _tell(path: Path, what: object) -> None:
    """Write all of a file, or nothing."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(what), "utf-8")
    part.rename(path)


def _run(files: list[str], plugin: Any, folder: Path, change: Change | None, seconds: int | None) -> None:
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(ROOT)
    if change is not None:
        imported(change)
    plugin.begin()
    options = ["-q", "-m", "not slow and not campaign", "-p", "no:cacheprovider", "-p", "no:faulthandler", "--tb=line"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # of what is loaded already
    options += ["--basetemp", str(folder / "tmp")]
    options += ["-x"] if seconds is not None else []
    pytest.main([*options, *files], plugins=[plugin])
    _tell(folder / "said", plugin.said())
