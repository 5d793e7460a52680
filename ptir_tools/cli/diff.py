"""`ptir diff`."""

from __future__ import annotations

import difflib
import sys

import click

from ptir_tools.cli import checking
from ptir_tools.cli.options import subcommand
from ptir_tools.cli.output import program_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.ir import Program, clone
from ptir_tools.dialects import FORMATS


@subcommand(
    click.argument("before", metavar="A"),
    click.argument("after", metavar="B"),
    click.option("--run", is_flag=True, help="Compare what the programs compute instead of how they are written."),
    click.option("--check-runs", type=click.IntRange(1), default=3, metavar="N", help="How many random inputs --run takes (3)."),
)
def command(session: Session, before: str, after: str, run: bool, check_runs: int) -> None:
    """Tell how two programs differ in structure; names, comments and layout do not count. Exit code 1 when they do.

    \b
    Examples:
      ptir diff old.ptir new.ptir
      ptir diff --run net.mind.ir net.ptir
    """
    first, _ = session.load(before)
    second, _ = session.load(after)
    if run:
        checking.check(session, first, second, check_runs)
        return
    if first.dialect is not second.dialect:
        raise UsageError(f"one is a {first.dialect.name} program, the other {second.dialect.name}; --run compares those")
    old, new = (plain_text(session, p).splitlines(keepends=True) for p in (first, second))
    found = list(difflib.unified_diff(old, new, before, after))
    sys.stdout.writelines(found)
    if found:
        raise click.exceptions.Exit(1)


def plain_text(session: Session, program: Program) -> str:
    """The text of a copy in which every value, function and region is called by its number."""
    copy = clone(program)
    form = next(e.name for e in FORMATS.values() if e.dialect == program.dialect.name)
    for block in copy.blocks():
        for number, v in enumerate([*block.params, *(v for op in block.body for v in op.results)]):
            v.name = str(number)
    for number, function in enumerate(copy.functions):
        copy.entry = f"f{number}" if function.name == copy.entry else copy.entry
        function.name = f"f{number}"
        function.attrs = {k: v for k, v in function.attrs.items() if k not in ("input_names", "output_names")}
    return "".join(program_text(copy, form, Diagnostics(), session.options))
