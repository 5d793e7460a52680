"""`ptir fix`."""

from __future__ import annotations

import difflib
import sys

import click

from ptir_tools.cli.options import files_argument, output_option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, Fix, UsageError
from ptir_tools.core.source import Source

ROUNDS = 10  # a fix may uncover the next fault


@subcommand(
    files_argument,
    output_option,
    click.option("--in-place", "-i", is_flag=True, help="Rewrite the files."),
    click.option("--diff", is_flag=True, help="Print what would change as a unified diff."),
)
def command(session: Session, files: tuple[str, ...], output: str | None, in_place: bool, diff: bool) -> None:
    """Apply the edits that diagnostics propose, and print the mended text. What has no such edit is left and told.

    \b
    Examples:
      ptir fix broken.json
      ptir fix --in-place a.ptir b.ptir
    """
    if len(files) > 1 and not (in_place or diff):
        raise UsageError("several files need --in-place or --diff")

    def one(path: str) -> int:
        found = Diagnostics()
        source = session.source(path, found)
        if source is None:
            return session.reporter.status(found)
        before, after = source.text, mended(session, source, found)
        if diff:
            lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), path, f"{path} (mended)")
            sys.stdout.writelines(line if line.endswith("\n") else line + "\n" for line in lines)
        elif in_place:
            if before != after:
                write_text(path, [after])
        else:
            write_text(output, [after])
        return session.reporter.status(found)

    session.each(files, one)


def mended(session: Session, source: Source, found: Diagnostics) -> str:
    """The text after as many rounds as bring something; `found` is left with what remains."""
    text = source.text
    for _ in range(ROUNDS):
        found.items.clear()
        found.errors = 0
        program = session.parse(Source(source.name, text), found)
        if program is not None:
            session.verify(program, found)
        fixes = [d.fix for d in found.sorted() if d.fix is not None]
        if not fixes:
            break
        text = _applied(text, fixes)
    return text


def _applied(text: str, fixes: list[Fix]) -> str:
    """`text` with the edits made, last first. A fix of which an edit touches one of an earlier fix waits for the next round."""
    edits: list[Fix] = []
    for fix in fixes:
        wanted = [fix, *fix.also]
        if not any(a.span.start <= b.span.end and b.span.start <= a.span.end for a in wanted for b in edits):
            edits += wanted
    for edit in sorted(edits, key=lambda f: f.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text
