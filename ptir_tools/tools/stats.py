"""The operations and bytes of a program: per kind of op, or per op."""

from __future__ import annotations

from collections.abc import Iterable

from ptir_tools.core import costs
from ptir_tools.core.costs import Cost
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op
from ptir_tools.core.records import dataclass


@dataclass(slots=True)
class Row:
    """The cost of one op, or of all ops of a kind; a multiply-add is two operations. A cost is a number, or a polynomial of
    symbols."""

    name: str
    ops: int = 0
    operations: Cost = 0
    bytes: Cost = 0

    def add(self, other: Row) -> None:
        """Add the cost of `other`."""
        self.ops += other.ops
        self.operations += other.operations
        self.bytes += other.bytes

    @property
    def intensity(self) -> float | None:
        """Operations per byte; None if one of them is not a number, or there are no bytes."""
        operations, moved = costs.as_number(self.operations), costs.as_number(self.bytes)
        return operations / moved if isinstance(operations, int) and isinstance(moved, int) and moved else None


def each(program: Program) -> list[Row]:
    """A row per op, in order. Its name is the op with the values that it defines."""
    return [_row(op, f"{op.defn.short} {_results(op)}".rstrip()) for block in program.blocks() for op in block.body]


def count(program: Program) -> list[Row]:
    """A row per kind of op, the most frequent first. A region counts once, however often it runs."""
    rows: dict[str, Row] = {}
    for block in program.blocks():
        for op in block.body:
            rows.setdefault(op.defn.short, Row(op.defn.short)).add(_row(op, ""))
    return sorted(rows.values(), key=lambda row: (-row.ops, row.name))


def total(rows: Iterable[Row]) -> Row:
    """The sum of all rows."""
    result = Row("total")
    for row in rows:
        result.add(row)
    return result


def _row(op: Op, name: str) -> Row:
    return Row(name, 1, costs.operations(op), costs.traffic(op))


def _results(op: Op) -> str:
    return ", ".join(f"%{v.name}" for v in op.results)
