"""`ptir opt`."""

from __future__ import annotations

import sys
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from ptir_tools import __version__
from ptir_tools.cli import reproducing
from ptir_tools.cli.optimizing import Flags, optimize_command, pass_options, pipeline_option
from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
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
    pipeline_option,
    click.option("--list-passes", is_flag=True, help="List the passes of every IR with their options and leave."),
    click.option("--run-reproducer", is_flag=True, help="FILE is what a crash left: run its pipeline with its flags."),
    *pass_options,
)
def command(session: Session, file: str, output: str | None, pipeline: str | None, **flags: Any) -> None:
    """Run passes on a program and print it in its own format.

    Without -p, the default pipeline of the program's IR runs. A pass of another IR is wrong usage. `fixpoint{n=4}(name,name)`
    repeats until nothing changes. -p @FILE takes the pipeline from a file, where line ends separate as commas do and `#`
    begins a comment.

    \b
    Examples:
      ptir opt model.ptir
      ptir opt -p canonicalize,cse,dce --check model.ptir
      ptir opt -p 'canonicalize{max-iterations=4}' --print-ir-diff --stats model.ptir
      ptir opt -p @passes.txt --trace passes.json model.ptir
      ptir translate graph.json --to ptir | ptir opt --timing
    """
    if flags.pop("list_passes"):
        _list(session)
        return
    if flags.pop("run_reproducer"):
        pipeline = _replay(session, file, pipeline, flags)
    optimize_command(session, file, output, pipeline, Flags(**flags))


def _replay(session: Session, file: str, pipeline: str | None, flags: dict[str, Any]) -> str:
    """The pipeline of the reproducer `file`; what it says about flags goes to `flags` and the session. Raises UsageError."""
    if file in ("", "-") or pipeline is not None:
        raise UsageError("--run-reproducer takes the FILE that a crash left, and its pipeline")
    asked = reproducing.read(session.opened(file))
    flags.update(asked.flags)
    if asked.max_iterations is not None:
        session.set(limits=replace(session.options.limits, iterations=asked.max_iterations))
    if asked.version != __version__:
        session.reporter.tell(f"{file} is of ptir {asked.version}, this is {__version__}")
    return asked.pipeline


def _list(session: Session) -> None:
    """Every pass with its IR, its help and its options; all that it says of itself with -v."""
    if session.reporter.verbose:
        for dialect in DIALECTS:
            for name in passes.names(dialect):
                options = _options(name, dialect)
                manual = textwrap.indent(passes.manual(name, dialect), "    ")
                sys.stdout.write(f"{dialect} {name}{f' [{options}]' if options else ''}\n{manual}\n\n")
        return
    rows = [(d, name, passes.help_of(name, d), _options(name, d)) for d in DIALECTS for name in passes.names(d)]
    fixpoint = "Run the passes in parentheses again until they change nothing, at most n times each."
    rows += [("all", passes.FIXPOINT, fixpoint, _options(passes.FIXPOINT, "ptir"))]
    plain = (f"{d:5} {name:28} {help}{f' [{options}]' if options else ''}\n" for d, name, help, options in rows)
    session.reporter.tabulate(sys.stdout, plain, lambda: [tables.Table(("IR", "pass", "does", "options"), rows)])


def _options(name: str, dialect: str) -> str:
    """`name=default` for every option; a number without a default is `n`."""
    return ", ".join(f"{option}={_shown(default)}" for option, default in passes.options_of(name, dialect).items())


def _shown(default: object) -> str:
    if default is None:
        return "n"
    return str(default).lower() if isinstance(default, bool) else str(default)
