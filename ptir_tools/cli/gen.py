"""`ptir gen`."""

from __future__ import annotations

import click

from ptir_tools.cli.options import output_option, subcommand
from ptir_tools.cli.output import program_text, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.dialects import FORMATS
from ptir_tools.dialects.ptir.generate import Seeded, generate

_FORMATS = [e.name for e in FORMATS.values() if e.dialect == "ptir"]


@subcommand(
    output_option,
    click.option("--seed", type=int, required=True, metavar="N", help="Which program: the same one every time."),
    click.option("--steps", type=click.IntRange(1, 10_000), default=12, metavar="N", help="How many steps it has at most (12)."),
    click.option("--to", type=click.Choice(_FORMATS), default="ptir", help="The format."),
    reads=False,
)
def command(session: Session, output: str | None, seed: int, steps: int, to: str) -> None:
    """Print a random valid PTIR program: the generator that the toolkit's own property tests draw from.

    \b
    Examples:
      ptir gen --seed 7
      ptir gen --seed 7 --steps 40 | ptir opt --check
      ptir gen --seed 7 | ptir run --random 0 --compare reference
    """
    diagnostics = Diagnostics()
    pieces = program_text(generate(Seeded(seed), size=steps), to, diagnostics, session.options)
    session.reporter.settle(diagnostics)
    write_text(output, pieces)
