"""`ptir stats`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ptir_tools.cli.options import file_argument, json_option, output_option, subcommand
from ptir_tools.cli.output import to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.lazy import lazy
from ptir_tools.tools.stats import UNKNOWN, count

if TYPE_CHECKING:
    from ptir_tools.cli import tables
else:
    tables = lazy("ptir_tools.cli.tables")

_COLUMNS = ("op", "ops", "operations", "bytes")


@subcommand(file_argument, output_option, json_option)
def command(session: Session, file: str, output: str | None, as_json: bool) -> None:
    """Count ops, floating-point and integer operations, and bytes read and written, per kind of op.

    Regions count once, however often they run. With symbolic extents, bind them; what stays open is `?`. As JSON: {OP: {"ops",
    "operations", "bytes"}}, with null for what stays open.

    \b
    Examples:
      ptir stats model.ptir
      ptir stats --bind N=64 --json graph.json
    """
    program, _ = session.load(file)
    found = count(program)
    if as_json:
        write_text(output, [json.dumps(found, indent=2), "\n"])
    elif to_stdout(output):
        session.reporter.tabulate(sys.stdout, _plain(found), lambda: [_drawn(found)])
    else:
        write_text(output, _plain(found))


def _rows(found: dict[str, dict[str, int | None]]) -> list[tuple[str, ...]]:
    """The cells under `_COLUMNS`, the totals last."""
    columns = {k: [row[k] for row in found.values()] for k in _COLUMNS[1:]}
    total = {k: UNKNOWN if UNKNOWN in column else sum(n for n in column if n) for k, column in columns.items()}
    rows = [(name, *(row[k] for k in _COLUMNS[1:])) for name, row in (*found.items(), ("total", total))]
    return [tuple("?" if cell is UNKNOWN else str(cell) for cell in row) for row in rows]


def _plain(found: dict[str, dict[str, int | None]]) -> Iterator[str]:
    for name, ops, operations, nbytes in (_COLUMNS, *_rows(found)):
        yield f"{name:24} {ops:>8} {operations:>16} {nbytes:>16}\n"


def _drawn(found: dict[str, dict[str, int | None]]) -> tables.Table:
    *rows, total = _rows(found)
    return tables.Table(_COLUMNS, rows, footer=total)
