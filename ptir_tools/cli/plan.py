"""`ptir plan`."""

from __future__ import annotations

import click

from ptir_tools.cli.options import file_argument, output_option, size, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.ir import Program
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.plan import BlockPlan, Plan, plan, to_csv, to_json, to_text
from ptir_tools.plan.liveness import Buffer
from ptir_tools.plan.record import ALIGN

_WRITERS = {"text": to_text, "json": to_json, "csv": to_csv}


@subcommand(
    file_argument,
    output_option,
    click.option("--to", type=click.Choice(list(_WRITERS)), default="text", help="The form of the plan."),
    click.option("--align", type=click.IntRange(1), default=ALIGN, metavar="BYTES", help=f"Alignment of every buffer ({ALIGN})."),
    click.option("--limit", type=size, metavar="BYTES", help="Fail with exit code 3 when the peak is above."),
)
def command(session: Session, file: str, output: str | None, to: str, align: int, limit: int | None) -> None:
    """Give every value a place in memory: buffers with live ranges and offsets, the arena's peak, the lower bound.

    The lower bound is the largest sum of buffers alive at once; the ratio of peak and bound tells how good the plan is.

    \b
    Examples:
      ptir plan model.ptir
      ptir plan model.ptir --bind N=8 --to json -o plan.json
      ptir plan model.ptir --limit 64M
    """
    program, diagnostics = session.load(file)
    found = _planned(session, program, diagnostics, align)
    if limit is not None:
        _hold(found, limit)
    write_text(output, _WRITERS[to](found))


def _planned(session: Session, program: Program, diagnostics: Diagnostics, align: int) -> Plan:
    """The plan of the program with every extent a number, as far as bindings and the program's own `dims` give them."""
    try:
        symbols.specialize(program, {**program.attrs.get("dims", {}), **session.bindings})
        return plan(program, align=align)
    except Violation as violation:
        diagnostics.violation(violation, None)
        session.reporter.settle(diagnostics)
        raise


def _hold(found: Plan, limit: int) -> None:
    """Raise LimitExceeded for a function whose arena is bigger than `limit`, naming what is alive at its peak."""
    for name, block in found.functions.items():
        if block.peak > limit:
            alive = ", ".join(f"%{b.name} ({b.nbytes})" for b in _at_peak(block))
            raise LimitExceeded(f"@{name} needs {block.peak} bytes, the limit is {limit}; alive at the peak: {alive}", "--limit")


def _at_peak(block: BlockPlan) -> list[Buffer]:
    """The buffers alive at the step at which most bytes are."""
    placed = list(block.placed())

    def alive(step: int) -> list[Buffer]:
        return [b for b in placed if b.start <= step <= b.end]

    return max((alive(b.start) for b in placed), key=lambda found: sum(b.nbytes for b in found), default=[])
