"""`ptir stats`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from ptir_tools.cli.options import choice, file_argument, json_option, option, output_option, subcommand
from ptir_tools.cli.output import to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core import costs
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.tools import stats

if TYPE_CHECKING:
    from ptir_tools.cli import tables
else:
    tables = lazy("ptir_tools.cli.tables")

_COLUMNS = ("op", "ops", "operations", "share", "bytes", "intensity")


@subcommand(
    file_argument,
    output_option,
    json_option,
    option("--per-op", is_flag=True, help="Print a row for each op, in order, instead of one for each kind."),
    option("--sort", type=choice(["cost", "bytes"]), help="The largest first: by operations, or by bytes. Formulas come last."),
)
def command(session: Session, file: str, output: str | None, as_json: bool, per_op: bool, sort: str | None) -> None:
    """Count ops, floating-point and integer operations, and bytes read and written, per kind of op.

    Regions are counted once, however often they run. With symbolic extents, operations and bytes are formulas, such as
    `2*K*M*N`; --bind gives numbers. The intensity is operations per byte, the share is that of all operations. Bytes are those
    of ops that are not fused. With --json: {OP: {"ops", "operations", "bytes", "intensity"}}, where a formula is a string.

    \b
    Examples:
      ptir stats model.ptir
      ptir stats --per-op --sort cost model.ptir
      ptir stats --bind N=64 --json graph.json
    """
    program, _ = session.load(file)
    rows = stats.each(program) if per_op else stats.count(program)
    if sort is not None:
        rows.sort(key=lambda row: -_size(row, sort))
    if as_json:
        records = [{"op": row.name, **_record(row)} for row in rows] if per_op else {row.name: _record(row) for row in rows}
        write_text(output, [json.dumps(records, indent=2), "\n"])
    elif to_stdout(output):
        session.reporter.tabulate(sys.stdout, _plain(rows), lambda: [_drawn(rows)])
    else:
        write_text(output, _plain(rows))


def _size(row: stats.Row, sort: str) -> float:
    number = (row.operations if sort == "cost" else row.bytes).value
    return -1 if number is None else number


def _record(row: stats.Row) -> dict[str, object]:
    operations, moved = (costs.text(c) if c.value is None else c.value for c in (row.operations, row.bytes))
    return {"ops": row.ops, "operations": operations, "bytes": moved, "intensity": row.intensity}


def _rows(results: list[stats.Row]) -> list[tuple[str, ...]]:
    """The rows of cells under `_COLUMNS`, the totals last."""
    total = stats.total(results)

    def cells(r: stats.Row) -> tuple[str, ...]:
        part, whole = r.operations.value, total.operations.value
        share = f"{100 * part / whole:.1f}%" if part is not None and whole else ""
        intensity = "" if r.intensity is None else f"{r.intensity:.3g}"
        return r.name, str(r.ops), costs.text(r.operations), share, costs.text(r.bytes), intensity

    return [*map(cells, (*results, total))]


def _plain(results: list[stats.Row]) -> Iterator[str]:
    rows = [_COLUMNS, *_rows(results)]
    first, *widths = (max(len(row[i]) for row in rows) for i in range(len(_COLUMNS)))
    for name, *cells in rows:
        yield "  ".join([f"{name:{first}}", *(f"{c:>{w}}" for c, w in zip(cells, widths, strict=True))]).rstrip() + "\n"


def _drawn(results: list[stats.Row]) -> tables.Table:
    *rows, total = _rows(results)
    return tables.Table(_COLUMNS, rows, footer=total, one_line=True)
