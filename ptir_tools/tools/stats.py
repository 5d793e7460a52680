"""How much a program computes and moves, per kind of op."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ptir_tools.core import costs
from ptir_tools.core.ir import Program

UNKNOWN = None  # where an extent is a symbol


def count(program: Program) -> dict[str, dict[str, int | None]]:
    """Per kind of op, most frequent first: `ops`, `operations` (a multiply-add is two), `bytes`."""
    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"ops": 0, "operations": 0, "bytes": 0})
    for block in program.blocks():
        for op in block.body:
            row = found[op.defn.short]
            row["ops"] += 1
            row["operations"] += costs.operations(op)
            row["bytes"] += costs.traffic(op)
    for row in found.values():
        row.update((what, UNKNOWN) for what in ("operations", "bytes") if not isinstance(row[what], int))
    return dict(sorted(found.items(), key=lambda item: (-item[1]["ops"], item[0])))
