"""The operations and bytes of a program: per kind of op, or per op."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import costs, expressions
from ptir_tools.core.dialect import Program
from ptir_tools.core.expressions import Poly
from ptir_tools.core.ir import Op
from ptir_tools.core.records import dataclass


@dataclass(slots=True)
class Row:
    """The cost of one op, or of all ops of a kind; a multiply-add is two operations. A cost is a number, or a polynomial of
    symbols."""

    name: str
    ops: int
    operations: Poly
    bytes: Poly

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None if one of them is not a number, or there are no bytes."""
        operations, moved = self.operations.value, self.bytes.value
        return operations / moved if operations is not None and moved else None


def each(program: Program) -> list[Row]:
    """A row per op, in order. Its name is the op with the values that it defines."""
    return [_row(op, f"{op.defn.short} {_results(op)}".rstrip()) for block in program.blocks() for op in block.body]


def count(program: Program) -> list[Row]:
    """A row per kind of op, the most frequent first. A region counts once, however often it runs."""
    kinds: dict[str, list[Row]] = {}
    for block in program.blocks():
        for op in block.body:
            kinds.setdefault(op.defn.short, []).append(_row(op, ""))
    return sorted((total(rows, name) for name, rows in kinds.items()), key=lambda row: (-row.ops, row.name))


def total(rows: Sequence[Row], name: str = "total") -> Row:
    """The sum of all rows."""
    operations, moved = expressions.total(row.operations for row in rows), expressions.total(row.bytes for row in rows)
    return Row(name, sum(row.ops for row in rows), operations, moved)


def _row(op: Op, name: str) -> Row:
    return Row(name, 1, costs.operations(op), costs.traffic(op))


def _results(op: Op) -> str:
    return ", ".join(f"%{v.name}" for v in op.results)
