"""`ptir fmt`."""

from __future__ import annotations

import os
import sys

from ptir_tools.cli.options import (
    diff_option,
    files_argument,
    in_place_option,
    jobs_option,
    option,
    output_option,
    split_option,
    subcommand,
)
from ptir_tools.cli.output import print_diff, require_one_end, write_text
from ptir_tools.cli.report import MACHINE, Leave
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, PluginFault, UsageError
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source, Span
from ptir_tools.dialects import load_format
from ptir_tools.tools import splitting

reading = lazy("ptir_tools.dialects.reading")


@subcommand(
    files_argument,
    output_option,
    in_place_option,
    option("--check", is_flag=True, help="List the files that would change; exit code 1 if there are any."),
    diff_option,
    split_option,
    jobs_option,
)
def command(
    session: Session,
    files: tuple[str, ...],
    output: str | None,
    in_place: bool,
    check: bool,
    diff: bool,
    split_input: bool,
    jobs: int,
) -> None:
    """Format the text of programs: only indentation, blanks and spelling change.

    Comments, order, names, ids, aliases, omitted types and dead code stay, and the program stays the same. A program that can be
    parsed is formatted even if `ptir verify` finds errors in it. Lines end with
    LF, and there is no byte-order mark. --check and --diff write no file. With a format for programs (`--diagnostics github`),
    --check reports `NotFormatted` at the first line that would change.

    \b
    Examples:
      ptir fmt model.ptir
      ptir fmt --in-place a.mind b.mind
      ptir fmt --check --diff model.ptir
    """
    if (len(files) > 1 or any(map(os.path.isdir, files))) and not (in_place or check or diff):
        raise UsageError("several files, and a folder, need --in-place, --check or --diff")
    require_one_end(output, in_place, check=check, diff=diff)
    session.reporter.prints = not check or diff

    def one(path: str) -> int:
        before, after = _format_file(session, path, split_input)
        if diff and before != after:
            print_diff(path, before, after, "formatted")
        elif check and before != after:
            _report_unformatted(session, path, before, after)
        if in_place and before != after:
            write_text(path, [after])
        if not (in_place or check or diff):
            write_text(output, [after])
        return int(check and before != after)

    session.each(files, one, jobs)


def _report_unformatted(session: Session, path: str, before: str, after: str) -> None:
    """List the file; a form of diagnostics for programs gets the first line that would change."""
    if session.reporter.form not in MACHINE:
        sys.stdout.write(f"{path}\n")
        return
    source, start = Source(path, before), 0
    for old, new in zip(before.splitlines(True), after.splitlines(True), strict=False):
        if old != new:
            break
        start += len(old)
    diagnostics = Diagnostics(source)
    span = Span(start, max(start, before.find("\n", start)))
    diagnostics.error("NotFormatted", "this file is not formatted", span, help=f"ptir fmt --in-place {path}")
    session.reporter.settle(diagnostics)


def _format_file(session: Session, path: str, split: bool) -> tuple[str, str]:
    """The text of the file at `path`, and its formatted text."""
    source = session.opened(path)
    if not split:
        return source.written, _format(session, source)
    texts = []

    def one(part: Source) -> int:
        texts.append(f"{part.text.strip()}\n".lstrip() if splitting.is_blank(part) else _format(session, part))
        return 0

    if status := session.highest(splitting.parts(source), one):
        raise Leave(status)
    return source.written, "".join(splitting.with_parts_replaced(texts, source)).strip("\n") + "\n"


def _format(session: Session, source: Source) -> str:
    """The formatted text of `source`; errors end the command."""
    session.reporter.reads(source)
    diagnostics = Diagnostics(source)
    after: str | None = None
    if form := session.form or reading.recognize(source, diagnostics):
        layout = load_format(form).layout
        if source.data is not None:
            raise UsageError(f"{form} is a binary format: it has no text to format")
        if layout is None:
            if load_format(form).write is None:
                raise UsageError(f"{form} cannot be formatted")
            raise UsageError(f"{form} has one layout, that of ptir translate --to {form}")
        after = layout(source, diagnostics)
        if not isinstance(after, str | None):
            raise PluginFault(layout, f"the layout of `{form}` gives {type(after).__name__}, not text")
    session.reporter.settle(diagnostics)
    if after is None:
        raise ValueError("nothing formatted and no diagnostics")
    return after
