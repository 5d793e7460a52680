"""`ptir lit`."""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import click

from ptir_tools.cli.diff import plain_text
from ptir_tools.cli.options import files_argument, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Program
from ptir_tools.core.source import Source, Span
from ptir_tools.core.types import TensorType
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.passes.ptir import param_fold

_DIRECTIVE = re.compile(r"^(?:(META|EXPECTED|INPUT):|(run_test)\b)[^\S\n]*", re.MULTILINE)
_SAID = re.compile(r"^[ \t]*(pipeline|roles):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
# What gpt.rs's own test of a fixture runs, by the fixture's name; any other is for the default pipeline.
_TESTED = {"dedup": "cse"}


@dataclass(slots=True)
class Case:
    """One test: what stands in its sections. Each source keeps the line numbers of the file. `params` are the positions of the
    parameters whose role is Param: weights, which gpt.rs's test fills with zeros."""

    line: int
    given: Source
    expected: Source
    pipeline: str | None
    params: list[int]


@subcommand(
    files_argument,
    click.option("-p", "--pipeline", metavar="PIPELINE", help="The passes that are tested (the default pipeline)."),
)
def command(session: Session, files: tuple[str, ...], pipeline: str | None) -> None:
    """Run gpt.rs's fixtures: passes must make of each INPUT what EXPECTED says, and must change it.

    A fixture is any number of tests, each `META:` (optional), `EXPECTED:` and a program, `INPUT:` and a program, `run_test`.
    Programs are compared by structure: ids and layout do not count. A line `pipeline: …` under META says which passes that
    test runs; without it and -p, `dedup.lit` is for cse and any other for the default pipeline. `roles: Arg, Param` says which
    parameters are weights: what depends on one alone is folded first (the pass param-fold), as in gpt.rs's test with
    zeros. How a program differs is told as a diff.

    \b
    Examples:
      ptir lit crates/gpt-rs/tests/fixtures/*.lit
      ptir lit -p cse,dce tests/fixtures/cse.lit
    """

    def check(path: str) -> int:
        diagnostics = Diagnostics()
        source = session.source(path, diagnostics)
        cases = [] if source is None else list(_cases(source, diagnostics))
        status = session.reporter.status(diagnostics)
        tested = pipeline or _TESTED.get(os.path.basename(path or "").partition(".")[0])
        failed = sum(not _passes(session, case, case.pipeline or tested, diagnostics) for case in cases)
        if not session.reporter.quiet:
            session.reporter.say(f"{path or '<stdin>'}: {len(cases) - failed} of {len(cases)} passed")
        return max(status, int(failed > 0))

    session.each(files, check)


def _cases(source: Source, diagnostics: Diagnostics) -> Iterator[Case]:
    """The tests of a fixture; what is out of place is reported as a SyntaxError."""
    diagnostics.source = source
    found: dict[str, Span] = {}
    directives = list(_DIRECTIVE.finditer(source.text))
    stray = source.text[: directives[0].start()] if directives else source.text
    if stray.strip() or not directives:
        diagnostics.error("SyntaxError", "expected `META:`, `EXPECTED:`, `INPUT:` or `run_test`", Span(0, 0))
    for m, following in zip(directives, [*directives[1:], None], strict=False):
        end = following.start() if following else len(source.text)
        if m[1] in found:
            diagnostics.error("SyntaxError", f"a second `{m[1]}:` before `run_test`", Span(*m.span()))
        elif m[1]:
            found[m[1]] = Span(m.end(), end)
        elif missing := [name for name in ("INPUT", "EXPECTED") if name not in found]:
            diagnostics.error("SyntaxError", f"`run_test` without `{missing[0]}:`", Span(*m.span()))
        else:
            said = dict(_SAID.findall(source.text[slice(*found["META"])])) if "META" in found else {}
            params = [i for i, role in enumerate(re.findall(r"\w+", said.get("roles", ""))) if role == "Param"]
            given, expected = (source.part(*found[name]) for name in ("INPUT", "EXPECTED"))
            yield Case(source.position(m.start())[0], given, expected, said.get("pipeline"), params)
        found = found if m[1] else {}
    if found:
        diagnostics.error("SyntaxError", "a test without `run_test` at its end", next(iter(found.values())))


def _passes(session: Session, case: Case, pipeline: str | None, diagnostics: Diagnostics) -> bool:
    """Whether the test holds; what is wrong is told."""
    given, expected = (_read(session, part, diagnostics) for part in (case.given, case.expected))
    if given is None or expected is None:
        return False
    before = plain_text(session, given)
    context = PassContext(diagnostics, session.options.limits)
    if case.params:
        typed = [(p.name, p.type) for p in given.main.params]
        weights = {name: arrays.zeros(t) for i, (name, t) in enumerate(typed) if i in case.params and isinstance(t, TensorType)}
        param_fold.fold(given, weights, context)
    run_pipeline(given, given.dialect.pipeline if pipeline is None else pipeline, context)
    if session.reporter.status(diagnostics):
        return False
    after, wanted = plain_text(session, given), plain_text(session, expected)
    title = f"{case.given.name}:{case.line}"
    sys.stdout.writelines(
        difflib.unified_diff(wanted.splitlines(True), after.splitlines(True), f"{title} expected", f"{title} found")
    )
    if after == before:
        sys.stdout.write(f"{title}: the passes changed nothing\n")
    return after == wanted != before


def _read(session: Session, source: Source, diagnostics: Diagnostics) -> Program | None:
    """A verified program; None after telling why there is none."""
    program = session.parse(source, diagnostics)
    if program is not None:
        session.verify(program, diagnostics)
    return None if session.reporter.status(diagnostics) else program
