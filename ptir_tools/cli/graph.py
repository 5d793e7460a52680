"""`ptir graph`."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ptir_tools.cli.opt import Pipeline, allow_writes_option, pipeline_option
from ptir_tools.cli.options import choice, file_argument, option, output_option, subcommand
from ptir_tools.cli.output import form_of, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import Diagnostics, Severity, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.tools import graph

_FORMS = ("dot", "svg", "html")
_LONGEST = 70  # characters of a message in a drawing


@subcommand(
    file_argument,
    output_option,
    pipeline_option,
    allow_writes_option,
    option("--to", type=choice(_FORMS), help="The output format (from the suffix of the -o FILE; else dot)."),
    option("--all", "unfolded", is_flag=True, help="dot and svg: draw every equal run of ops, not only the first."),
)
def command(
    session: Session, file: str, output: str | None, pipeline: str | None, allow_writes: bool, to: str | None, unfolded: bool
) -> None:
    """Draw the dataflow of a program: a node per op, an edge per use, a box per function, region, name space (`h0.attn`) or
    repeated run of ops (`×24`). Ops with errors, such as races, are red, with their messages; the exit code is then 1.

    html is one page that needs no network: search, zoom, boxes that collapse, statements and costs on hover, export as SVG and
    PNG. It has the memory plan if every extent is a number (--bind gives symbols numbers), and with -p a slider through the
    passes. `ptir diff --run --picture` draws two programs with the errors between them.

    \b
    Examples:
      ptir graph model.ptir | dot -Tsvg > model.svg
      ptir graph model.ptir -o model.svg
      ptir graph model.ptir --bind N=8 -p canonicalize,cse,dce -o model.html
    """
    form = form_of(to, output, _FORMS, "dot")
    program, diagnostics = _read(session, file)
    if program is not None and diagnostics.errors and pipeline is None:
        write_text(output, _drawn_with_errors(program, diagnostics, form))
    session.reporter.settle(diagnostics)
    assert program is not None
    if pipeline is not None and form != "html":
        raise UsageError("-p goes with --to html, which shows every pass: `ptir opt -p … | ptir graph` draws the last")
    if session.bindings:
        symbols.specialize(program, session.bindings)
    chosen = None if pipeline is None else Pipeline.from_option(session, pipeline, allow_writes)
    write_text(output, _drawn(session, program, chosen, form, not unfolded))


def _read(session: Session, file: str) -> tuple[Program | None, Diagnostics]:
    """The program, also one with errors if its text can be read; and what was found in it."""
    source = session.opened(file)
    diagnostics = Diagnostics(source)
    program = session.parse(source, diagnostics)
    if program is not None:
        session.verify(program, diagnostics)
    return program, diagnostics


def _drawn_with_errors(program: Program, diagnostics: Diagnostics, to: str) -> Iterator[str]:
    """The drawing of a program with errors: each op with its own, the first function with those of no op."""
    source = diagnostics.source
    assert source is not None
    ops = [op for block in program.blocks() for op in block.body]
    spans = {op: span for op in ops if (span := source.span(op.loc)) is not None}
    faults: dict[Op, list[str]] = {}
    others: list[str] = []
    for d in diagnostics.sorted():
        if d.severity is not Severity.ERROR:
            continue
        at = d.span
        around = [op for op, span in spans.items() if at is not None and span.start <= at.start < span.end]
        said = f"{d.code}: {d.message}" if around else f"line {d.where[1]}: {d.code}: {d.message}"
        short = said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"
        (faults.setdefault(around[-1], []) if around else others).append(short)
    drawing = graph.draw(program, parts=to == "html", faults=faults)
    if drawing.blocks and others:
        drawing.blocks[0].facts = (*others, *drawing.blocks[0].facts)
    if to == "html":
        yield from graph.page(os.path.basename(source.name), [graph.Stage("as read", drawing, None)])
    else:
        yield from (graph.dot if to == "dot" else graph.svg)(drawing)


def _drawn(session: Session, program: Program, pipeline: Pipeline | None, to: str, folded: bool) -> Iterator[str]:
    if to == "dot":
        yield from graph.dot(graph.draw(program, folded=folded))
        return
    if to == "svg":
        yield from graph.svg(graph.draw(program, folded=folded))
        return
    stages = graph.Stages(program)
    if pipeline is not None:
        context = PassContext(hooks=[stages])
        run_pipeline(program, pipeline.of(program), context)
        session.reporter.settle(context.diagnostics)
    name = program.source.name if program.source is not None else program.entry
    yield from graph.page(os.path.basename(name), stages.stages)
