"""`ptir stats`."""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.output import to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.ir import Op, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import ELEMENTWISE, operand_type
from ptir_tools.core.types import MemRefType, TensorType, TileType, Type, leaves

if TYPE_CHECKING:
    from ptir_tools.cli import tables
else:
    tables = lazy("ptir_tools.cli.tables")

_COLUMNS = ("op", "ops", "operations", "bytes")
_UNKNOWN = None  # where an extent is a symbol
_SHAPED = (TensorType, MemRefType, TileType)
_CONTRACTIONS = ("dot_general", "MatMul", "Dot", "tile.matmul")
_REDUCTIONS = ("reduce", "sum", "mean", "argmax", "tile.row", "tile.col")


@subcommand(file_argument, output_option, click.option("--json", "as_json", is_flag=True, help="The same as JSON."))
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


def count(program: Program) -> dict[str, dict[str, int | None]]:
    """Per kind of op, most frequent first: `ops`, `operations` (a multiply-add is two), `bytes`."""
    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"ops": 0, "operations": 0, "bytes": 0})
    for block in program.blocks():
        for op in block.body:
            row = found[op.defn.short]
            row["ops"] += 1
            for what, n in (("operations", _operations(op)), ("bytes", _bytes(op))):
                row[what] = _UNKNOWN if n is _UNKNOWN or row[what] is _UNKNOWN else row[what] + n
    return dict(sorted(found.items(), key=lambda item: (-item[1]["ops"], item[0])))


def _operations(op: Op) -> int | None:
    """One per result element; two per product of a contraction, one per element that a reduction reads; none for a movement."""
    results, operands = _elements([v.type for v in op.results]), _elements([operand_type(x) for x in op.operands])
    if results is _UNKNOWN or operands is _UNKNOWN:
        return _UNKNOWN
    if op.defn.short == "reduce_window":
        return results * int(math.prod(op.attr("window_dims")))
    if op.defn.short == "Conv2d":
        return 2 * results * int(math.prod(operand_type(op.operands[1]).shape[:3]))  # type: ignore[attr-defined]
    if op.defn.short in _CONTRACTIONS:
        left = operand_type(op.operands[0])
        axes = op.attr("contract_lhs") if "contract_lhs" in op.defn.attr_index else (-1,)
        return 2 * results * math.prod(left.shape[a] for a in axes)  # type: ignore[attr-defined]
    if op.defn.traits & ELEMENTWISE:
        return results
    return operands if op.defn.short.lower().startswith(_REDUCTIONS) else 0


def _bytes(op: Op) -> int | None:
    """What the op reads and writes when nothing is fused."""
    total = 0
    for t in [*(operand_type(x) for x in op.operands), *(v.type for v in op.results)]:
        if (n := _elements([t])) is _UNKNOWN:
            return _UNKNOWN
        total += n * max((leaf.dtype.size for leaf in leaves(t) if isinstance(leaf, _SHAPED)), default=0)
    return total


def _elements(types: list[Type]) -> int | None:
    """How many elements values of these types have; None when an extent is a symbol."""
    shapes = [leaf.shape for t in types for leaf in leaves(t) if isinstance(leaf, _SHAPED)]
    if not all(isinstance(d, int) for shape in shapes for d in shape):
        return _UNKNOWN
    return sum(math.prod(d for d in shape if isinstance(d, int)) for shape in shapes)


def _rows(found: dict[str, dict[str, int | None]]) -> list[tuple[str, ...]]:
    """The cells under `_COLUMNS`, the totals last."""
    columns = {k: [row[k] for row in found.values()] for k in _COLUMNS[1:]}
    total = {k: _UNKNOWN if _UNKNOWN in column else sum(n for n in column if n) for k, column in columns.items()}
    rows = [(name, *(row[k] for k in _COLUMNS[1:])) for name, row in (*found.items(), ("total", total))]
    return [tuple("?" if cell is _UNKNOWN else str(cell) for cell in row) for row in rows]


def _plain(found: dict[str, dict[str, int | None]]) -> Iterator[str]:
    for name, ops, operations, nbytes in (_COLUMNS, *_rows(found)):
        yield f"{name:24} {ops:>8} {operations:>16} {nbytes:>16}\n"


def _drawn(found: dict[str, dict[str, int | None]]) -> tables.Table:
    *rows, total = _rows(found)
    return tables.Table(_COLUMNS, rows, footer=total)
