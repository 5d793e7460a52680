"""gpt.rs's fixtures: the expected results of passes. `run` checks one fixture."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator

from ptir_tools.core import arrays
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.core.source import Source, Span
from ptir_tools.core.types import TensorType
from ptir_tools.core.verify import verify
from ptir_tools.dialects import reading
from ptir_tools.passes import PassContext, default_pipeline, run_pipeline, written
from ptir_tools.passes.ptir import param_fold
from ptir_tools.tools.diff import plain_text

Parse = Callable[[Source, Diagnostics], Program | None]
_DIRECTIVE = regex(r"^(?:(META|EXPECTED|INPUT):|(run_test)\b)[^\S\n]*", re.MULTILINE)
_SAID = regex(r"^[ \t]*(pipeline|roles):[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)
# The pass of gpt.rs's own test, by the name of the fixture; any other runs the default pipeline.
_TESTED = {"dedup": "cse"}


@dataclass(slots=True)
class Case:
    """One test: its sections. Each source keeps the line numbers of the file. `params` are the positions of the parameters
    with role Param: weights, which gpt.rs's test fills with zeros."""

    line: int
    given: Source
    expected: Source
    pipeline: str | None
    params: list[int]


class Outcome(NamedTuple):
    """The result of a test; `lines` are the differences from the expected program, as a unified diff."""

    case: Case
    passed: bool
    lines: list[str]


def run(
    source: Source,
    diagnostics: Diagnostics,
    pipeline: str | None = None,
    *,
    options: Options | None = None,
    parse: Parse | None = None,
    writes: bool = False,
) -> Iterator[Outcome]:
    """The outcome of each test of the fixture `source`.

    `pipeline` is for tests that name none; by default it is that of gpt.rs's own test of a fixture of this name, else the
    dialect's. Errors of the fixture, a program or a pass go to `diagnostics`, and the test fails. Raises UsageError for an
    invalid pipeline, and without `writes` for one of a fixture that writes files.
    """
    chosen = options or Options()
    tested = pipeline or _TESTED.get(os.path.basename(source.name).partition(".")[0])
    for case in list(_cases(source, diagnostics)):
        yield _outcome(case, case.pipeline or tested, diagnostics, chosen, parse or _reader(chosen), writes)


def _reader(options: Options) -> Parse:
    return lambda source, diagnostics: reading.read(source, diagnostics, options)


def _cases(source: Source, diagnostics: Diagnostics) -> Iterator[Case]:
    """The tests of a fixture; anything else in it is reported as a SyntaxError."""
    diagnostics.source = source
    sections: dict[str, Span] = {}
    directives = list(_DIRECTIVE.finditer(source.text))
    stray = source.text[: directives[0].start()] if directives else source.text
    if stray.strip() or not directives:
        diagnostics.error("SyntaxError", "expected `META:`, `EXPECTED:`, `INPUT:` or `run_test`", Span(0, 0))
    for m, following in zip(directives, [*directives[1:], None], strict=False):
        end = following.start() if following else len(source.text)
        if m[1] in sections:
            diagnostics.error("SyntaxError", f"a second `{m[1]}:` before `run_test`", Span(*m.span()))
        elif m[1]:
            sections[m[1]] = Span(m.end(), end)
        elif missing := [name for name in ("INPUT", "EXPECTED") if name not in sections]:
            diagnostics.error("SyntaxError", f"`run_test` without `{missing[0]}:`", Span(*m.span()))
        else:
            metadata = dict(_SAID.findall(source.text[slice(*sections["META"])])) if "META" in sections else {}
            params = [i for i, role in enumerate(re.findall(r"\w+", metadata.get("roles", ""))) if role == "Param"]
            given, expected = (source.part(*sections[name]) for name in ("INPUT", "EXPECTED"))
            yield Case(source.position(m.start())[0], given, expected, metadata.get("pipeline"), params)
        sections = sections if m[1] else {}
    if sections:
        diagnostics.error("SyntaxError", "a test without `run_test` at its end", next(iter(sections.values())))


def _outcome(case: Case, pipeline: str | None, diagnostics: Diagnostics, options: Options, parse: Parse, writes: bool) -> Outcome:
    errors = diagnostics.errors
    given, expected = (_read(part, diagnostics, options, parse) for part in (case.given, case.expected))
    if given is None or expected is None or diagnostics.errors > errors:
        return Outcome(case, False, [])
    title = f"{case.given.name}:{case.line}"
    if case.pipeline and not writes and (writing := written(case.pipeline, given.dialect.name)) is not None:
        message = f"{title}: the pipeline of a fixture writes no files, and this one has {writing}"
        raise UsageError(message, "--allow-writes allows it, if you trust the file")
    before = plain_text(given, options)
    context = PassContext(diagnostics, options.limits)
    if case.params:
        typed = [(p.name, p.type) for p in given.main.params]
        weights = {name: arrays.zeros(t) for i, (name, t) in enumerate(typed) if i in case.params and isinstance(t, TensorType)}
        param_fold.fold(given, weights, context)
    run_pipeline(given, default_pipeline(given) if pipeline is None else pipeline, context)
    if diagnostics.errors > errors:
        return Outcome(case, False, [])
    after, wanted = plain_text(given, options), plain_text(expected, options)
    titles = f"{title} expected", f"{title} found"
    lines = list(difflib.unified_diff(wanted.splitlines(True), after.splitlines(True), *titles))
    if after == before:
        lines.append(f"{title}: the passes changed nothing\n")
    return Outcome(case, after == wanted != before, lines)


def _read(source: Source, diagnostics: Diagnostics, options: Options, parse: Parse) -> Program | None:
    """A verified program, or the part that could be read; errors go to `diagnostics`."""
    program = parse(source, diagnostics)
    if program is not None:
        verify(program, diagnostics, options)
    return program
