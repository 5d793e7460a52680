"""`ptir graph`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ptir_tools.cli.opt import Pipeline, allow_writes_option, pipeline_option
from ptir_tools.cli.options import choice, file_argument, option, output_option, subcommand
from ptir_tools.cli.output import form_of, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.violations import Violation
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.plan import Plan, plan
from ptir_tools.tools import graph

_FORMS = ("dot", "svg", "html")


@subcommand(
    file_argument,
    output_option,
    pipeline_option,
    allow_writes_option,
    option("--to", type=choice(_FORMS), help="The output format (from the suffix of the -o FILE; else dot)."),
)
def command(session: Session, file: str, output: str | None, pipeline: str | None, allow_writes: bool, to: str | None) -> None:
    """Draw the dataflow of a program: a node per op, an edge per use, a box per function, region or repeated run of ops.

    html is one page that needs no network: search, zoom, boxes that collapse, statements and costs on hover. It has the memory
    plan if every extent is a number (--bind gives symbols numbers), and with -p a slider through the passes.

    \b
    Examples:
      ptir graph model.ptir | dot -Tsvg > model.svg
      ptir graph model.ptir -o model.svg
      ptir graph model.ptir --bind N=8 -p canonicalize,cse,dce -o model.html
    """
    program, _ = session.load(file)
    form = form_of(to, output, _FORMS, "dot")
    if pipeline is not None and form != "html":
        raise UsageError("-p goes with --to html, which shows every pass: `ptir opt -p … | ptir graph` draws the last")
    if session.bindings:
        symbols.specialize(program, session.bindings)
    chosen = None if pipeline is None else Pipeline.from_option(session, pipeline, allow_writes)
    write_text(output, _drawn(session, program, chosen, form))


def _drawn(session: Session, program: Program, pipeline: Pipeline | None, to: str) -> Iterator[str]:
    if to == "dot":
        yield from graph.dot(graph.draw(program))
        return
    if to == "svg":
        yield from graph.svg(graph.draw(program))
        return
    stages = graph.Stages(program)
    result = _planned(program)
    if pipeline is not None:
        context = PassContext(hooks=[stages])
        run_pipeline(program, pipeline.of(program), context)
        session.reporter.settle(context.diagnostics)
    name = program.source.name if program.source is not None else program.entry
    yield from graph.page(os.path.basename(name), stages.stages, result)


def _planned(program: Program) -> Plan | None:
    """The plan of the program as it was read, or None if an extent is not known."""
    try:
        copy = clone(program)
        symbols.specialize(copy, program.attrs.get("dims", {}))
        return plan(copy, method="greedy")
    except Violation:
        return None
