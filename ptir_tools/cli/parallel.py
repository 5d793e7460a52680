"""`-j N`: several files at once, in child processes. Their output comes in the order of the files."""

from __future__ import annotations

import io
import multiprocessing
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor

from ptir_tools.cli.report import Reporter, report_error
from ptir_tools.core.diagnostics import Diagnostic
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TextIO

_GAP = "\0"  # marks an empty line that is printed only after a diagnostic


class _Outcome(NamedTuple):
    """The result of one file. `stop`: the command ends with it."""

    status: int
    out: bytes
    err: str
    held: list[Diagnostic]
    shown: int
    read: dict[str, bool]
    texts: list[str]
    stop: bool


class _Work(NamedTuple):
    """The state that children inherit when they are forked."""

    reporter: Reporter
    files: Sequence[str]
    action: Callable[[str], int]
    stderr: TextIO


_work: list[_Work] = []


class _Captured(io.StringIO):
    """A stream that keeps its text. It claims to be a terminal if `stream` is one, so that the text is the same."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self.terminal = stream.isatty()

    def isatty(self) -> bool:
        return self.terminal


def run(reporter: Reporter, files: Sequence[str], action: Callable[[str], int], jobs: int) -> int:
    """The highest exit code of `action` for the files, `jobs` at once. An error that does not concern one file ends all."""
    _work.append(_Work(reporter, files, action, sys.stderr))
    sys.stdout.flush()
    sys.stderr.flush()
    pool = ProcessPoolExecutor(min(jobs, len(files)), multiprocessing.get_context("fork"))
    highest, interrupted = 0, True
    try:
        for done in pool.map(_one, range(len(files))):
            sys.stdout.flush()
            sys.stdout.buffer.write(done.out)
            sys.stderr.write(done.err.replace(_GAP, "\n" if reporter.shown else ""))
            reporter.held += done.held
            reporter.texts += [text.replace(_GAP, "\n" if reporter.shown else "") for text in done.texts]
            reporter.shown += done.shown
            reporter.read |= done.read
            highest = max(highest, done.status)
            if done.stop:
                break
        interrupted = False
    finally:
        _work.pop()
        pool.shutdown(wait=not interrupted, cancel_futures=True)  # a pool that still ends while Python exits may print an error
    return highest


def _one(index: int) -> _Outcome:
    """Process one file, in a child."""
    reporter, files, action, stderr = _work[-1]
    reporter.held, reporter.texts, reporter.shown, reporter.gap = [], [], 0, _GAP
    out = io.BytesIO()
    sys.stdout = io.TextIOWrapper(out, "utf-8", newline="\n", write_through=True)
    sys.stderr = err = _Captured(stderr)
    stop = False
    try:
        status = action(files[index])
    except BaseException as error:  # as the command line does
        status, stop = report_error(error, sys.argv[1:], reporter), True
    return _Outcome(status, out.getvalue(), err.getvalue(), reporter.held, reporter.shown, reporter.read, reporter.texts, stop)
