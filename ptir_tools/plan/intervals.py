"""Raw intervals from CSV: `id,lower,upper,size`, ranges half-open. Further columns are ignored. Fields may be quoted."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Source, Span
from ptir_tools.plan.liveness import Buffer, Liveness

COLUMNS = ("id", "lower", "upper", "size")
_INTEGER = regex(r"-?[0-9]{1,18}")


def read_csv(source: Source, diagnostics: Diagnostics) -> Liveness:
    """The intervals as buffers, in the order of the file. Any other line is reported as InvalidInterval."""
    live = Liveness()
    try:
        _read(source, diagnostics, live)
    except csv.Error as error:
        diagnostics.error("InvalidInterval", f"no CSV: {error}", Span(0, len(source.text)))
    return live


def _read(source: Source, diagnostics: Diagnostics, live: Liveness) -> None:
    rows = _rows(source.text)
    head, span = next(rows, ([], Span(0, 0)))
    if missing := [name for name in COLUMNS if name not in head]:
        message = f"the first line names no column `{missing[0]}`"
        diagnostics.error("InvalidInterval", message, span, help=f"it is to be: {','.join(COLUMNS)}")
        return
    columns = [head.index(name) for name in COLUMNS]
    seen: set[str] = set()
    for cells, at in rows:
        if fault := _fault(cells, columns, seen):
            diagnostics.error("InvalidInterval", fault, at)
            continue
        name, *numbers = (cells[i] for i in columns)
        lower, upper, size = map(int, numbers)
        seen.add(name)
        live.buffers.append(Buffer(name, None, size, lower, upper - 1))


def _rows(text: str) -> Iterator[tuple[list[str], Span]]:
    """The cells of each row that is not blank, and where it is; a quoted cell may contain commas and line ends."""
    lines = list(io.StringIO(text, newline=""))
    reader = csv.reader(lines, skipinitialspace=True)
    line, start = 0, 0
    for cells in reader:
        end = start + sum(map(len, lines[line : reader.line_num]))
        row = [cell.strip() for cell in cells]
        if len(row) > 1 or any(row):
            yield row, Span(start, start + len(text[start:end].rstrip("\r\n")))
        line, start = reader.line_num, end


def _fault(cells: Sequence[str], columns: Sequence[int], seen: set[str]) -> str | None:
    """The error of a row, if any."""
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
