"""What all tests share: the repository's root, running `ptir` in this process, `--bless`."""

from __future__ import annotations

import gc
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from ptir_tools import passes, plugins
from ptir_tools.cli import invoke
from ptir_tools.core.dialect import Program
from ptir_tools.rewrite import additions
from ptir_tools.rewrite.context import PassContext
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.tools import runlines

# Where no byte code is kept, a process that a test starts takes four times as long to start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).parent.parent
TESTDATA = ROOT / "testdata"

EVERY_FORMAT = [
    "testdata/verify/ok.ptir",
    "testdata/ptir/dump/d04_gpt2_block_prefill.dump.ptir",
    "testdata/ptir/dump/d04_gpt2_block_prefill.json",
    "testdata/mind/02_mlp_relu.mind.ir",
    "testdata/tiny/04_gemm_no_permute.json",
    "testdata/pto/01_vector_add_subview.pto",
]

_STARTED = pytest.StashKey[float]()
LARGE = 24  # cases of a test from which --share draws
PEERS = ("iree", "jax", "torch")  # the extra `oracle`: each test_jax*.py needs jax, and so on


class WithoutOracle(pytest.Module):
    """A test file whose oracle is not installed: reported as skipped."""

    def collect(self) -> list[pytest.Item]:
        """Nothing but the reason."""
        pytest.skip(f"{oracle_of(self.path)} is not installed (extra `oracle`)", allow_module_level=True)


def oracle_of(path: Path) -> str | None:
    """The package that a test file needs to judge numbers, if any."""
    return next((peer for peer in PEERS if path.name.startswith(f"test_{peer}")), None)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """A file without its oracle is not imported."""
    peer = oracle_of(module_path)
    return None if peer is None or importlib.util.find_spec(peer) else WithoutOracle.from_parent(parent, path=module_path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--bless", action="store_true", help="rewrite golden files and generated pages from what the tool prints now"
    )
    parser.addoption(
        "--share", type=int, default=1, metavar="N", help="of the cases of a test that has many, run one in N, drawn by the day"
    )
    parser.addoption("--day", default=date.today().isoformat(), help="the day that --share draws by; today")
    parser.addoption("--costs", action="store_true", help="say at the end what the tests of each room took")
    parser.addoption(
        "--expected-skips", type=Path, metavar="FILE", help="fail when a test is skipped that this file does not list"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --bless, what has no file to rewrite does not run; with --share, a share of the cases of large tests runs."""
    if config.getoption("--bless"):
        items[:] = [item for item in items if "bless" in getattr(item, "fixturenames", ())]
    if (share := config.getoption("--share")) > 1:
        left_out = {*shared_out([item.nodeid for item in items], share, config.getoption("--day"))}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
        items[:] = [item for item in items if item.nodeid not in left_out]


def shared_out(names: Iterable[str], share: int, day: str) -> list[str]:
    """The cases that do not run on a day: of a test with at least `LARGE` cases all but one in `share`, drawn by the day."""
    cases: dict[str, list[str]] = {}
    for name in names:
        cases.setdefault(name.partition("[")[0], []).append(name)
    left_out: list[str] = []
    for drawn in cases.values():
        if len(drawn) >= LARGE:
            drawn.sort(key=lambda name: crc32(f"{day} {name}".encode()))
            left_out += drawn[-(-len(drawn) // share) :]
    return left_out


def _processor() -> float:
    """The seconds of processor time of this process, and of those that it started and that have ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """The report of a test's end says what the test took (a worker's reports are all that the first process sees)."""
    item.stash[_STARTED] = _processor()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """See above."""
    report = yield
    if call.when == "teardown":
        report.user_properties.append(("processor", _processor() - item.stash[_STARTED]))
    return report


def room_of(name: str) -> str:
    """The room of a test, by its name; `tests` for those of the whole."""
    return name.partition("::")[0].rpartition("/")[0].removeprefix("tests/")


def costs(reports: Iterable[pytest.TestReport]) -> dict[str, tuple[int, float]]:
    """How many tests of each room ran, and their seconds of processor time."""
    found: dict[str, tuple[int, float]] = {}
    for report in reports:
        for kind, took in report.user_properties:
            if kind == "processor":
                count, sum_ = found.get(room := room_of(report.nodeid), (0, 0.0))
                found[room] = count + 1, sum_ + float(took)
    return dict(sorted(found.items()))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """What each room took, and what repeats a run of a share."""
    if config.getoption("--costs"):
        reports = [r for kept in terminalreporter.stats.values() for r in kept if getattr(r, "when", "") == "teardown"]
        for room, (count, took) in costs(reports).items():
            terminalreporter.write_line(f"{took:8.1f} CPU-s  {count:6} tests  {room}")
    if (share := config.getoption("--share")) > 1:
        terminalreporter.write_line(
            f"one in {share} of the cases of large tests: --share={share} --day={config.getoption('--day')}"
        )


def pytest_collection_finish() -> None:
    """The collector does not visit thousands of tests again each time that a test has made many objects."""
    gc.collect()
    gc.freeze()


def unexpected(skipped: Iterable[str], listed: str) -> list[str]:
    """The skipped tests that a list does not have. A line of it is the name of a test or file, two blanks, and a reason."""
    expected = {line.partition("  ")[0] for line in listed.splitlines() if not line.startswith("#")}
    return sorted(name for name in skipped if not {name, name.partition("[")[0], name.partition("::")[0]} & expected)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With --expected-skips, any other skip is a failure."""
    listed: Path | None = session.config.getoption("--expected-skips")
    terminal: Any = session.config.pluginmanager.get_plugin("terminalreporter")
    if listed is None or terminal is None or hasattr(session.config, "workerinput"):
        return
    reasons = {report.nodeid: report.longrepr[-1] for report in terminal.stats.get("skipped", [])}
    for name in unexpected(reasons, listed.read_text("utf-8")):
        terminal.write_line(f"\nnot among the skips of {listed}: {name}: {reasons[name]}", red=True)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


@pytest.fixture
def poisoned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dead memory is overwritten after each step of a run, unless a test measures memory or time."""
    if "PTIR_POISON" not in os.environ and "measured" not in request.fixturenames:
        monkeypatch.setenv("PTIR_POISON", "1")


@pytest.fixture
def measured() -> None:
    """For tests that measure what a run takes."""


@dataclass(slots=True, frozen=True)
class Ran:
    """What a command line came to."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode("utf-8")


def run_ptir(*args: str | Path, stdin: bytes = b"") -> Ran:
    """Run `ptir` with these arguments in this process, standard streams replaced."""
    before = sys.stdin, sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    streams = [io.TextIOWrapper(b, encoding="utf-8", newline="\n") for b in (io.BytesIO(stdin), out, err)]
    sys.stdin, sys.stdout, sys.stderr = streams
    try:
        status = invoke([str(a) for a in args])
        for stream in streams[1:]:
            stream.flush()
        return Ran(status, out.getvalue(), err.getvalue().decode("utf-8"))
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def run_line(line: str, path: Path, tmp: Path) -> Ran:
    """A command line of a golden case."""
    ran, said, status = Ran(0, b"", ""), "", 0
    for words in runlines.stages(line, {"%s": os.path.relpath(path, ROOT), "%t": str(tmp)}):
        ran = run_ptir(*words[1:], stdin=ran.out)
        said, status = said + ran.err, max(status, ran.status)
    return Ran(status, ran.out, said.replace(str(tmp), "%t"))


def in_process(words: Sequence[str], given: bytes) -> runlines.Ran:
    """How golden cases run `ptir`."""
    ran = run_ptir(*words, stdin=given)
    return runlines.Ran(ran.status, ran.out, ran.err)


@pytest.fixture
def ptir() -> Callable[..., Ran]:
    """`ptir("verify", path)` runs a command line in this process."""
    return run_ptir


@pytest.fixture(autouse=True)
def at_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests run at the repository's root without color, so that what is printed is the same everywhere."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("NO_COLOR", "1")
    yield


@pytest.fixture(scope="session")
def bless(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten."""
    return bool(request.config.getoption("--bless")) and not os.environ.get("CI")


@pytest.fixture(autouse=True, scope="session")
def _expensive_checks() -> Iterator[None]:
    """Passes hold every pattern to its contract where a program is small, as the specification asks of debug builds."""
    plain = PassContext.rewriters

    def rewriters(self: PassContext, program: Program, **how: Any) -> Iterator[Rewriter]:
        self.expensive_checks |= sum(len(block.body) for block in program.blocks()) <= 100
        return plain(self, program, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PassContext, "rewriters", rewriters)
        yield


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_left_behind() -> Iterator[None]:
    """Passes, rules and plug-ins that a test file adds to this process would change what later files see."""
    added: tuple[Sized, ...] = (passes._REGISTERED, additions._ADDED, plugins._loaded)
    before = [len(known) for known in added]
    yield
    assert [len(known) for known in added] == before, "add them in a process of their own, or take them back"
