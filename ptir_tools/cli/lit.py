"""`ptir lit`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from ptir_tools.cli.opt import allow_writes_option
from ptir_tools.cli.options import files_argument, finite, jobs_option, option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import MACHINE
from ptir_tools.cli.session import Session, shown
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.files import WRITES
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.tools import lit, runlines


@subcommand(
    files_argument,
    option("--bless", is_flag=True, help="Write the expected outputs, NAME.out and NAME.err, from what the tests print."),
    jobs_option,
    option("--timeout", type=finite(0, min_open=True), default=60.0, metavar="S", help="Stop a command after S seconds (60)."),
    option("--gptrs", is_flag=True, help="The files are gpt.rs's fixtures."),
    option("-p", "--pipeline", metavar="PIPELINE", help="With --gptrs: the passes that are tested (the default pipeline)."),
    allow_writes_option,
)
def command(
    session: Session,
    files: tuple[str, ...],
    bless: bool,
    jobs: int,
    timeout: float,
    gptrs: bool,
    pipeline: str | None,
    allow_writes: bool,
) -> None:
    """Run tests: files that say in comments what to run, and what is expected.

    \b
      // RUN: ptir opt -p cse %s | filecheck %s
      // CHECK: exp
      // CHECK-NOT: exp

    `%s` is the file, `%S` its folder, `%t` a new folder, and `%t.out` a file next to it. `FAIL[1]:` instead of `RUN:` expects
    exit code 1; `2>&1` joins both streams. Only `ptir` and `filecheck` are run, without a shell. `filecheck` has the checks
    CHECK, CHECK-NEXT, -SAME, -NOT, -DAG, -LABEL, -EMPTY, -COUNT-N, with `{{regex}}`, `[[NAME:regex]]`, `[[NAME]]`,
    `[[@LINE+1]]`, and --check-prefix=NAME. If no line has `| filecheck %s`, the checks are for standard output. A line without
    checks must print what is in NAME.out and NAME.err.

    In a folder, files without `RUN:` are ignored. The plug-ins of --load are loaded by every test. Tests write files only in `%t`
    and as `%t.…`, except with --allow-writes.

    With --gptrs, passes must turn each INPUT of gpt.rs's fixtures into EXPECTED, and must change it. Ids and layout are ignored.
    A line `pipeline: …` under META says which passes that test runs; without it and -p, `dedup.lit` runs cse and any
    other file the default pipeline. `roles: Arg, Param` says which parameters are weights: values that depend on only one of them
    are folded first (the pass param-fold), as in gpt.rs's test with zeros.

    \b
    Examples:
      ptir lit tests/
      ptir lit --load mine.py -j 4 tests/
      ptir lit --bless tests/new.ptir
      ptir lit --diagnostics junit --diagnostics-to report.xml tests/
      ptir lit --gptrs crates/gpt-rs/tests/fixtures/*.lit
    """
    if gptrs:
        session.each(files, lambda path: _fixture(session, path, pipeline, allow_writes), jobs)
        return
    session.reporter.prints = session.reporter.form not in MACHINE
    execute = _Execution(session, timeout, allow_writes)

    def check(path: str) -> int:
        if path not in files and not runlines.may_be_test(path):
            return 0
        source = session.opened(path)
        if path not in files and (not runlines.lines(source) or path.endswith(runlines.EXPECTED)):
            session.reporter.read.pop(source.name)
            return 0
        diagnostics = Diagnostics(source)
        if not runlines.lines(source):
            diagnostics.error("InvalidTest", "no comment `RUN: ptir …` says what to run", help="--gptrs is for gpt.rs's fixtures")
        else:
            with tempfile.TemporaryDirectory(prefix="ptir-test-") as folder:
                execute.folder = os.path.realpath(folder)
                named = os.path.join(execute.folder, "t")  # so that `%t.out` is in the folder, too
                os.mkdir(named)
                runlines.run(source, named, execute, diagnostics, bless=bless, trusted=allow_writes)
        return session.reporter.status(diagnostics)

    try:
        session.each(files, check, jobs)
    finally:
        read = session.reporter.read
        if not session.reporter.quiet:
            session.reporter.say(f"{len(read) - sum(read.values())} of {len(read)} tests passed")


class _Execution:
    """Runs `ptir` in a process of its own."""

    def __init__(self, session: Session, timeout: float, trusted: bool) -> None:
        self.timeout = timeout
        self.trusted = trusted
        self.folder = ""
        loaded = [path for given in session.said if given.name == "load" for path in given.value]
        self.plugins = [f"--load={path}" for path in loaded]

    def __call__(self, words: Sequence[str], given: bytes) -> runlines.Ran:
        """Raises LimitExceeded after the timeout."""
        env = {**os.environ, "NO_COLOR": "1", "TMPDIR": self.folder}
        if not self.trusted:
            env[WRITES] = self.folder
        plain = words[:1] and words[0].startswith("-")
        line = [sys.executable, "-P", "-m", "ptir_tools", *words, *([] if plain else self.plugins)]
        try:
            ran = subprocess.run(line, input=given, capture_output=True, env=env, timeout=self.timeout)
        except subprocess.TimeoutExpired:
            raise LimitExceeded(f"a command of the test takes more than {self.timeout:g} s", "--timeout") from None
        return runlines.Ran(ran.returncode, ran.stdout, ran.stderr.decode("utf-8", "replace"))


def _fixture(session: Session, path: str, pipeline: str | None, allow_writes: bool) -> int:
    """Run gpt.rs's fixture at `path`. The exit code."""
    diagnostics = Diagnostics()
    source = session.source(path, diagnostics)
    if source is None:
        return session.reporter.status(diagnostics)
    status = tests = failed = 0
    outcomes = lit.run(source, diagnostics, pipeline, options=session.options, parse=session.parse, writes=allow_writes)
    for outcome in outcomes:
        status = max(status, session.reporter.status(diagnostics))
        write_text(None, outcome.lines)
        tests, failed = tests + 1, failed + (not outcome.passed)
    status = max(status, session.reporter.status(diagnostics))
    if not session.reporter.quiet:
        session.reporter.say(f"{shown(path)}: {tests - failed} of {tests} passed")
    return max(status, int(failed > 0))
