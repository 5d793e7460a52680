"""`ptir diff`."""

from __future__ import annotations

import difflib

from ptir_tools.cli import checking
from ptir_tools.cli.options import argument, check_runs_option, option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.tools.diff import plain_text


@subcommand(
    argument("before", metavar="A"),
    argument("after", metavar="B"),
    option("--run", is_flag=True, help="Compare the results of the programs instead of their text."),
    check_runs_option,
)
def command(session: Session, before: str, after: str, run: bool, check_runs: int) -> None:
    """Show how two programs differ in structure. Names, comments and layout are ignored. The exit code is 1 if they differ.

    \b
    Examples:
      ptir diff old.ptir new.ptir
      ptir diff --run net.mind.ir net.ptir
    """
    first, _ = session.load(before)
    second, _ = session.load(after)
    if run:
        done = checking.check(session, first, second, check_runs, option="--run")
        checking.end(session, Diagnostics(first.source), done.verdict)
        return
    if first.dialect is not second.dialect:
        raise UsageError(f"one is a {first.dialect.name} program, the other {second.dialect.name}; --run compares those")
    old, new = (plain_text(p, session.options).splitlines(keepends=True) for p in (first, second))
    lines = list(difflib.unified_diff(old, new, before, after))
    write_text(None, lines)
    if lines:
        raise Leave(1)
