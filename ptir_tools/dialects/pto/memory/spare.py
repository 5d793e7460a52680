"""Tiles that the library's form of an op takes beyond those of the op. They lie behind the last tile of Vec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory.info import extents, tile_bytes
from ptir_tools.dialects.pto.targets import ALIGNMENT
from ptir_tools.dialects.pto.types import TileType, tile

PAIR = 8  # bytes of a value and its place, as the chip sorts them


def spares(op: Op, tiles: Mapping[Value, TileType]) -> list[TileType]:
    """What an op takes, except a prefetch, whose tile is of its own size."""
    if (spare := facts(op).spare) is None:
        return []
    return spare([tiles[x] for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)])


def like_first(given: Sequence[TileType]) -> list[TileType]:
    """A tile of the first operand's type, behind the operands."""
    return [given[0]]


def two_rows(given: Sequence[TileType]) -> list[TileType]:
    """Two rows as long as those of the first operand, behind the operands."""
    _, columns = extents(given[0])
    return [tile(given[0].dtype, (2, columns), "Vec", "ND")]


WORKED_IN = (like_first, two_rows)  # by one instruction, which reads what it wrote there and nothing else


def pairs(t: TileType) -> TileType:
    """The tile of the pairs of a tile's elements and their columns."""
    rows, columns = extents(t)
    return tile(t.dtype, (rows, columns * (PAIR // t.dtype.size)), "Vec", "ND")


def aligned(n: int) -> int:
    """Bytes up to where the next tile may lie."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def spare_bytes(function: Function, tiles: Mapping[Value, TileType]) -> int:
    """The most bytes that an op of a function takes beyond its tiles."""
    return max((sum(aligned(tile_bytes(t)) for t in spares(op, tiles)) for op in function.ops()), default=0)
