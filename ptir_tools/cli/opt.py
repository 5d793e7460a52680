"""`ptir opt`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from ptir_tools.cli.optimizing import Flags, optimize_command, pass_options
from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.lazy import lazy
from ptir_tools.dialects import DIALECTS

if TYPE_CHECKING:
    from ptir_tools import passes
    from ptir_tools.cli import tables
else:
    passes = lazy("ptir_tools.passes")
    tables = lazy("ptir_tools.cli.tables")


@subcommand(
    file_argument,
    output_option,
    click.option("-p", "--pipeline", metavar="PIPELINE", help="The passes: `name,name{option=value}`."),
    click.option("--list-passes", is_flag=True, help="List the passes of every IR and leave."),
    *pass_options,
)
def command(session: Session, file: str, output: str | None, pipeline: str | None, list_passes: bool, **flags: Any) -> None:
    """Run passes on a program and print it in its own format.

    Without -p, the default pipeline of the program's IR runs. A pass of another IR is wrong usage.

    \b
    Examples:
      ptir opt model.ptir
      ptir opt -p canonicalize,cse,dce --check model.ptir
      ptir opt -p 'canonicalize{max-iterations=4}' --print-ir-diff --stats model.ptir
      ptir translate graph.json --to ptir | ptir opt --timing
    """
    if list_passes:
        rows = [(dialect, name, passes.help_of(name, dialect)) for dialect in DIALECTS for name in passes.names(dialect)]
        plain = (f"{dialect:5} {name:28} {help}\n" for dialect, name, help in rows)
        session.reporter.tabulate(sys.stdout, plain, lambda: [tables.Table(("IR", "pass", "does"), rows)])
        return
    optimize_command(session, file, output, pipeline, Flags(**flags))
