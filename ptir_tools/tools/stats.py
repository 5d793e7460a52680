"""How much a program computes and moves, per kind of op."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

from ptir_tools.core.ir import Op, Program
from ptir_tools.core.opdef import ELEMENTWISE, operand_type
from ptir_tools.core.types import MemRefType, TensorType, TileType, Type, leaves

UNKNOWN = None  # where an extent is a symbol
_SHAPED = (TensorType, MemRefType, TileType)
_CONTRACTIONS = ("dot_general", "MatMul", "Dot", "tile.matmul")
_REDUCTIONS = ("reduce", "sum", "mean", "argmax", "tile.row", "tile.col")


def count(program: Program) -> dict[str, dict[str, int | None]]:
    """Per kind of op, most frequent first: `ops`, `operations` (a multiply-add is two), `bytes`."""
    found: dict[str, dict[str, Any]] = defaultdict(lambda: {"ops": 0, "operations": 0, "bytes": 0})
    for block in program.blocks():
        for op in block.body:
            row = found[op.defn.short]
            row["ops"] += 1
            for what, n in (("operations", _operations(op)), ("bytes", _bytes(op))):
                row[what] = UNKNOWN if n is UNKNOWN or row[what] is UNKNOWN else row[what] + n
    return dict(sorted(found.items(), key=lambda item: (-item[1]["ops"], item[0])))


def _operations(op: Op) -> int | None:
    """One per result element; two per product of a contraction, one per element that a reduction reads; none for a movement."""
    results, operands = _elements([v.type for v in op.results]), _elements([operand_type(x) for x in op.operands])
    if results is UNKNOWN or operands is UNKNOWN:
        return UNKNOWN
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
        if (n := _elements([t])) is UNKNOWN:
            return UNKNOWN
        total += n * max((leaf.dtype.size for leaf in leaves(t) if isinstance(leaf, _SHAPED)), default=0)
    return total


def _elements(types: list[Type]) -> int | None:
    """How many elements values of these types have; None when an extent is a symbol."""
    shapes = [leaf.shape for t in types for leaf in leaves(t) if isinstance(leaf, _SHAPED)]
    if not all(isinstance(d, int) for shape in shapes for d in shape):
        return UNKNOWN
    return sum(math.prod(d for d in shape if isinstance(d, int)) for shape in shapes)
