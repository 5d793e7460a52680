"""Elements that are next to each other in a tile, and how far apart they are in memory: the chip moves neighbors only."""

from __future__ import annotations

from itertools import pairwise

from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import UNKNOWN, Dim, Shape
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.memory.info import sides, unit_dims
from ptir_tools.dialects.pto.ops.memory import memory_of, strides_of, window
from ptir_tools.dialects.pto.structure import is_view, memref_type
from ptir_tools.dialects.pto.types import TileType


def distance(op: Op, t: TileType) -> Dim:
    """How many elements of memory are between the starts of two that are next to each other in the tile `t`, which a load or
    store moves: in a row, or in a column of a column or of DN memory. 1 where it moves no two such elements, UNKNOWN where the
    distance is not a number."""
    memory = memory_of(op)
    layout = memref_type(memory).layout or "ND"
    if layout not in ("ND", "DN"):
        return 1
    pairs = list(zip(window(op), _strides(memory), strict=True))
    if t.rank > len(pairs):
        return 1
    if last := unit_dims(t):
        lead = len(pairs) - t.rank
        pairs = [*pairs[:lead], *pairs[-last:], *pairs[lead:-last]]
    if t.loc == "Vec" and t.layout == "DN" and layout == "ND" and sides(t)[1] == 1:
        return _together([(n, s) for n, s in pairs if n != 1])
    n, s = pairs[-2] if layout == "DN" and len(pairs) > 1 else pairs[-1]
    return 1 if n == 1 else s


def _together(rows: list[tuple[int | None, Dim]]) -> Dim:
    """The distance of elements along several dimensions of memory; UNKNOWN where it is not one."""
    for (_, outer), (n, inner) in pairwise(rows):
        if not isinstance(inner, int) or n is None or outer != n * inner:
            return UNKNOWN
    return rows[-1][1] if rows else 1


def _strides(memory: Operand) -> Shape:
    """The strides of a memref, through the views that make it; UNKNOWN where they are not numbers."""
    t, made = memref_type(memory), memory.op if isinstance(memory, Value) else None
    if made is not None and is_view(made):
        source, _, _, steps = made.defn.split(made.attrs, made.operands)
        known = [(s, constant(k)) for s, k in zip(_strides(source), steps, strict=True)]
        return tuple([s * k if isinstance(s, int) and k is not None else UNKNOWN for s, k in known])
    if t.strides is None and t.layout == "DN":
        return strides_of(t.with_shape(t.shape[::-1]))[::-1]
    return strides_of(t)
