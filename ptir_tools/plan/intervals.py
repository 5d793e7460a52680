"""Raw intervals from CSV: `id,lower,upper,size`, ranges half-open. Further columns are ignored."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Source, Span
from ptir_tools.plan.liveness import Buffer, Liveness

COLUMNS = ("id", "lower", "upper", "size")
_INTEGER = regex(r"-?[0-9]{1,18}")


def read_csv(source: Source, diagnostics: Diagnostics) -> Liveness:
    """The intervals as buffers, in order of the file. Every line that is none is reported as InvalidInterval."""
    live = Liveness()
    lines = _lines(source.text)
    head, span = next(lines, ([], Span(0, 0)))
    if missing := [name for name in COLUMNS if name not in head]:
        message = f"the first line names no column `{missing[0]}`"
        diagnostics.error("InvalidInterval", message, span, help=f"it is to be: {','.join(COLUMNS)}")
        return live
    columns = [head.index(name) for name in COLUMNS]
    seen: set[str] = set()
    for cells, span in lines:
        if fault := _fault(cells, columns, seen):
            diagnostics.error("InvalidInterval", fault, span)
            continue
        name, lower, upper, size = (cells[i] for i in columns)
        seen.add(name)
        live.buffers.append(Buffer(name, None, int(size), int(lower), int(upper) - 1))
    return live


def _lines(text: str) -> Iterator[tuple[list[str], Span]]:
    """(cells, span) of every line that is not blank."""
    for m in re.finditer(r"[^\r\n]+", text):
        if m[0].strip():
            yield [cell.strip() for cell in m[0].split(",")], Span(m.start(), m.end())


def _fault(cells: list[str], columns: list[int], seen: set[str]) -> str | None:
    """What is wrong with a line."""
    if len(cells) <= max(columns):
        return f"{len(cells)} columns, of which {max(columns) + 1} are needed"
    name, *numbers = (cells[i] for i in columns)
    for title, text in zip(COLUMNS[1:], numbers, strict=True):
        if not _INTEGER.fullmatch(text):
            return f"{title} `{text}` is not an integer"
    lower, upper, size = map(int, numbers)
    if lower >= upper:
        return f"the range from {lower} to {upper} is empty"
    if size < 0:
        return f"size {size} is negative"
    return f"id `{name}` stands twice" if name in seen else None
