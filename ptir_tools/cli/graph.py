"""`ptir graph`."""

from __future__ import annotations

import click

from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.tools.graph import dot


@subcommand(
    file_argument,
    output_option,
    click.option("--to", type=click.Choice(["dot"]), default="dot", help="Its language (dot)."),
)
def command(session: Session, file: str, output: str | None, to: str) -> None:
    """Draw the dataflow of a program: a node per op, an edge per use, a box per function or region.

    \b
    Examples:
      ptir graph model.ptir | dot -Tsvg > model.svg
    """
    program, _ = session.load(file)
    write_text(output, [dot(program)])
