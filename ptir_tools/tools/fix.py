"""Applying the edits that diagnostics propose."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify

ROUNDS = 10  # a fix may uncover the next error


def fixed_text(
    source: Source,
    parse: Callable[[Source, Diagnostics], Program | None],
    diagnostics: Diagnostics,
    options: Options | None = None,
    unsafe: bool = False,
) -> str:
    """The text after safe fixes, or with `unsafe` all, are applied until nothing changes. `parse` reads a text. `diagnostics`
    gets the remaining errors."""
    text = source.text
    for _ in range(ROUNDS):
        diagnostics.items.clear()
        diagnostics.errors = 0
        program = parse(Source(source.name, text), diagnostics)
        if program is not None:
            verify(program, diagnostics, options or Options())
        fixes = [d.fix for d in diagnostics.sorted() if d.fix is not None and (unsafe or d.fix.safe)]
        if not fixes:
            break
        text = _applied(text, fixes)
    return text


def separate(fixes: Iterable[Fix]) -> list[Fix]:
    """The fixes of which no edit touches an edit of an earlier one."""
    made: list[Fix] = []
    edits: list[Fix] = []
    for fix in fixes:
        wanted = [fix, *fix.also]
        if not any(a.span.start <= b.span.end and b.span.start <= a.span.end for a in wanted for b in edits):
            made.append(fix)
            edits += wanted
    return made


def _applied(text: str, fixes: list[Fix]) -> str:
    """`text` with the edits made, last first. A fix of which an edit touches one of an earlier fix waits for the next round."""
    edits = [edit for fix in separate(fixes) for edit in (fix, *fix.also)]
    for edit in sorted(edits, key=lambda f: f.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text
