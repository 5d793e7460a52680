"""Raw intervals from CSV: `id,lower,upper,size`, ranges half-open. Further columns are ignored."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Source, Span
from ptir_tools.plan.liveness import Buffer, Liveness

COLUMNS = ("id", "lower", "upper", "size")
_INTEGER = regex(r"-?[0-9]{1,18}")


def read_csv(source: Source, diagnostics: Diagnostics) -> Liveness:
    """The intervals as buffers, in the order of the file. Any other line is reported as InvalidInterval."""
    live = Liveness()
    lines = re.compile(r"[^\r\n]+").finditer(source.text)
    first = next((m for m in lines if m[0].strip()), None)
    head = [cell.strip() for cell in first[0].split(",")] if first else []
    span = Span(*first.span()) if first else Span(0, 0)
    if missing := [name for name in COLUMNS if name not in head]:
        message = f"the first line names no column `{missing[0]}`"
        diagnostics.error("InvalidInterval", message, span, help=f"it is to be: {','.join(COLUMNS)}")
        return live
    columns = [head.index(name) for name in COLUMNS]
    groups = [sorted(columns).index(c) + 1 for c in columns]
    seen: set[str] = set()
    for m in _rows(columns).finditer(source.text, span.end):
        name, *numbers = m.group(*groups)
        lower, upper, size = map(int, numbers) if name is not None else (0, 0, 0)
        if lower < upper and size >= 0 and (name := name.strip()) not in seen:
            seen.add(name)
            live.buffers.append(Buffer(name, None, size, lower, upper - 1))
        elif fault := _fault(m[0], columns, seen):
            diagnostics.error("InvalidInterval", fault, Span(*m.span()))
    return live


def _rows(columns: Sequence[int]) -> re.Pattern[str]:
    """Lines, those with all that is needed in groups, in order of the columns."""
    cells = [r"[^,\r\n]*+"] * (max(columns) + 1)
    for column in columns:
        cells[column] = r"[^\S\r\n]*+(-?[0-9]{1,18})[^\S\r\n]*+"
    cells[columns[0]] = r"([^,\r\n]*+)"
    return re.compile(rf"{','.join(cells)}(?:,[^\r\n]*+)?(?=[\r\n]|\Z)|[^\r\n]++")


def _fault(line: str, columns: Sequence[int], seen: set[str]) -> str | None:
    """The error of a line, if any; a blank line has none."""
    cells = [cell.strip() for cell in line.split(",")]
    if not any(cells) and len(cells) == 1:
        return None
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
    return f"id `{name}` occurs twice" if name in seen else None
