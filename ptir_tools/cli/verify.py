"""`ptir verify`."""

from __future__ import annotations

import sys

from ptir_tools.cli.options import files_argument, jobs_option, option, split_option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source
from ptir_tools.tools import splitting

expectations = lazy("ptir_tools.tools.expectations")


@subcommand(
    files_argument,
    split_option,
    jobs_option,
    option("-o", "--output", metavar="FILE", help="As --diagnostics-to FILE: what this command prints are diagnostics."),
    option("--verify-diagnostics", is_flag=True, help="Compare the diagnostics with `expected-error@±N {{regex}}` comments."),
)
def command(
    session: Session, files: tuple[str, ...], split_input: bool, jobs: int, output: str | None, verify_diagnostics: bool
) -> None:
    """Read and verify programs.

    A correct program prints nothing. A folder means every program below it; a folder without programs is wrong usage. All
    independent errors of a file are reported in one run, each with a code that `ptir explain CODE` explains. With
    --verify-diagnostics, comments `expected-error@+1 {{regex}}` (also expected-warning, expected-note) say which diagnostics
    are expected; the pattern is searched in `CODE: message`.

    \b
    Examples:
      ptir verify model.ptir
      ptir verify --target a3 kernel.pto
      ptir verify --diagnostics json a.json b.json
      ptir verify --diagnostics sarif -o report.sarif programs/
      ptir verify --split-input --verify-diagnostics cases.ptir
    """
    session.reporter.notes, session.reporter.prints = True, False
    if output is not None and session.reporter.path not in (None, output):
        raise UsageError("-o and --diagnostics-to name two files for the diagnostics")
    session.reporter.path = session.reporter.path or output
    session.set(forms=True)

    def check(path: str) -> int:
        source = session.opened(path)
        forms: dict[str, None] = {}

        def one(part: Source) -> int:
            diagnostics = Diagnostics(part)
            program = session.parse(part, diagnostics)
            if program is not None:
                session.verify(program, diagnostics)
                forms[program.format] = None
            if verify_diagnostics:
                expectations.compare(part, diagnostics)
            return session.reporter.status(diagnostics)

        status = session.highest(splitting.programs(source) if split_input else (source,), one)
        if not status and not session.reporter.quiet and sys.stderr.isatty():
            session.reporter.say(f"{source.name}: ok ({', '.join(forms)})")
        return status

    session.each(files, check, jobs)
