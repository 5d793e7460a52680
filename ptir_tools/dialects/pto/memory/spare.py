"""Extra tiles that the library's implementation of an op needs. They are placed after the last tile of Vec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core.dtypes import SI16, SI32, UI8, UI32
from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.dialects.pto.affine import most
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory.info import extents, tile_bytes
from ptir_tools.dialects.pto.structure import is_assign, is_for, tiles_of
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.dialects.pto.types import TileType, tile

PAIR = 8  # bytes of a value and its place, as the chip sorts them
_MASKED = 2048  # elements of a row for whose mask the library wants two elements more
_ROW, _ROWS = 256, 4096  # bytes in which the library reduces a row, and those that a few rows take together


def spares(op: Op, tiles: Mapping[Value, TileType]) -> list[TileType]:
    """The extra tiles of an op, except of a prefetch, whose tile has its own size."""
    if (spare := facts(op).spare) is None:
        return []
    return spare([tiles[x] for x in tiles_of(op)])


def like_first(given: Sequence[TileType]) -> list[TileType]:
    """A tile of the first operand's type, after the operands."""
    return [given[0]]


def like_second(given: Sequence[TileType]) -> list[TileType]:
    """A tile of the second operand's type, if there is one, after the operands."""
    return list(given[1:2])


def one_block(given: Sequence[TileType]) -> list[TileType]:
    """One aligned piece of memory, after the operands."""
    return [tile(UI32, (1, ALIGNMENT // UI32.size), "Vec", "ND")]


def two_rows(given: Sequence[TileType]) -> list[TileType]:
    """Two rows as long as those of the first operand and a mask of their bits, after the operands."""
    (_, columns), size = extents(given[0]), given[0].dtype.size
    mask = aligned(2 * size * -(-columns // _MASKED))
    return [tile(given[0].dtype, (2, columns + mask // size), "Vec", "ND")]


def mask_and_block(given: Sequence[TileType]) -> list[TileType]:
    """A mask of the first operand's elements, packed, and one more row of bytes, after the operands."""
    rows, columns = extents(given[0])
    return [tile(UI8, (rows + 1, aligned(-(-columns // 8))), "Vec", "ND")]


def row_starts(given: Sequence[TileType]) -> list[TileType]:
    """A tile with the rows of the first operand, of at most the length in which the library reduces a row."""
    rows, columns = extents(given[0])
    width = max(_ROW, _ROWS // rows) // given[0].dtype.size
    return [tile(given[0].dtype, (rows, min(columns, aligned(width))), "Vec", "ND")]


def flat_indices(given: Sequence[TileType]) -> list[TileType]:
    """A row of columns, and two tiles of the indices' type, the second operand."""
    at = tile(SIGNED.get(given[1].dtype.size, SI32), extents(given[1]), "Vec", "ND")
    return [tile(at.dtype, (1, extents(at)[1]), "Vec", "ND"), at, at]


SIGNED = {2: SI16, 4: SI32}  # elements of indices, by their bytes
WORKED_IN = (
    like_first,
    like_second,
    one_block,
    row_starts,
    two_rows,
    mask_and_block,
)  # by one instruction, which reads what it wrote there and nothing else


def pairs(t: TileType) -> TileType:
    """The tile of pairs (element, column) of a tile."""
    rows, columns = extents(t)
    return tile(t.dtype, (rows, columns * (PAIR // t.dtype.size)), "Vec", "ND")


def aligned(n: int) -> int:
    """`n` bytes rounded up to the alignment of tiles."""
    return -(-n // ALIGNMENT) * ALIGNMENT


def spare_bytes(function: Function, tiles: Mapping[Value, TileType], target: Target | None) -> int:
    """The most extra bytes that an op of a function needs. They include the target's scratch."""
    found = max((sum(aligned(tile_bytes(t)) for t in spares(op, tiles)) for op in function.ops()), default=0)
    scratch = None if target is None else target.scratch
    if scratch is None or not any(facts(op).scratch for op in function.ops()):
        return found
    return max(found - scratch[1], 0)


def end_of_tiles(function: Function, tiles: Mapping[Value, TileType], loc: str = "Vec") -> int | None:
    """The end of the last tile of a space; None where it is not known."""
    counters = {op.regions[0].params[0]: op for op in function.ops() if is_for(op)}
    last = 0
    for op in function.ops():
        if is_assign(op) and isinstance(v := op.operands[0], Value) and (tiles[v].loc or "Vec") == loc:
            if (at := most(op.operands[1], counters)) is None:
                return None
            last = max(last, at + tile_bytes(tiles[v]))
    return aligned(last)
