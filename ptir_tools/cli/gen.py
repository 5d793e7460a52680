"""`ptir gen`."""

from __future__ import annotations

import click

from ptir_tools.cli.options import output_option, subcommand
from ptir_tools.cli.output import program_text, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import lazy
from ptir_tools.dialects import FORMATS

_GENERATORS = {ir: lazy(f"ptir_tools.dialects.{ir}.generate") for ir in ("ptir", "mind", "tiny")}


@subcommand(
    output_option,
    click.option("--seed", type=int, required=True, metavar="N", help="Which program: the same one every time."),
    click.option("--from", "ir", type=click.Choice(list(_GENERATORS)), help="Of which IR (that of --to; ptir)."),
    click.option("--steps", type=click.IntRange(1, 10_000), default=12, metavar="N", help="How many steps it has at most (12)."),
    click.option("--to", type=click.Choice([e.name for e in FORMATS.values() if e.dialect in _GENERATORS]), help="The format."),
    reads=False,
)
def command(session: Session, output: str | None, seed: int, ir: str | None, steps: int, to: str | None) -> None:
    """Print a random valid program: the generators that the toolkit's own property tests draw from.

    \b
    Examples:
      ptir gen --seed 7
      ptir gen --seed 7 --steps 40 | ptir opt --check
      ptir gen --seed 7 --from tiny | ptir translate --to ptir --check
      ptir gen --seed 7 | ptir run --random 0 --compare reference
    """
    ir = ir or (FORMATS[to].dialect if to else "ptir")
    diagnostics = Diagnostics()
    program = _GENERATORS[ir].generate(Seeded(seed), size=steps)
    pieces = program_text(program, to or ir, diagnostics, session.options)
    session.reporter.settle(diagnostics)
    write_text(output, pieces)
