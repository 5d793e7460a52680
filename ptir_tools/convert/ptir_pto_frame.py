"""How a PTIR program is cut into tiles: one frame that all its values fit in, and blocks of rows and columns of it.

The frame is the largest shape of the program; its last two extents are rows and columns, what stands before is looped over. A
value is the whole frame, one column of it (its rows reduced), one row (for all rows the same) or a scalar (for all elements).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from ptir_tools.core.dtypes import I1, INDEX, SI8, DType
from ptir_tools.core.ir import Op, Program
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.targets import ALIGNMENT

FULL, COLUMN, ROW, SCALAR = "full", "column", "row", "scalar"
REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min")
BOX = 16  # rows of a box of a matrix, and columns where elements are large
_ROWS = 128  # of the largest block
_COLUMNS = 2048  # of the largest block that is not the whole row
_DEPTHS = (128, 64, 32)  # of a step of a product


@dataclass(slots=True, frozen=True)
class Blocks:
    """The rows and columns of a block, and what a product takes of its inner extent at once."""

    rows: int
    columns: int
    depth: int


@dataclass(slots=True, frozen=True)
class Frame:
    """The shape that all values of a program fit in; rows and columns of a block are multiples of the two units."""

    shape: tuple[int, ...]
    row_unit: int
    column_unit: int
    whole_rows: bool  # a reduction needs all columns in one block
    products: bool

    @property
    def rows(self) -> int:
        """The extent that blocks divide into rows."""
        return self.shape[-2] if len(self.shape) > 1 else 1

    @property
    def columns(self) -> int:
        """The last extent."""
        return self.shape[-1]

    def kinds(self, t: TensorType) -> tuple[str, ...]:
        """What a value of type `t` may be of the frame: more than one where its rows and columns are as many; none if no part."""
        shape, above = t.static_shape, self.shape[:-1]
        row = len(shape) <= len(self.shape) and prod(shape) == self.columns and shape[-1:] == self.shape[-1:]
        may = {
            FULL: shape == self.shape,
            COLUMN: bool(above) and shape in (above, (*above, 1)),
            ROW: bool(above) and row,
            SCALAR: prod(shape) == 1,
        }
        return tuple(kind for kind, yes in may.items() if yes)

    def blocks(self) -> Iterator[Blocks]:
        """Blocks to try, the largest first: wide before high."""
        widest = _up(self.columns, self.column_unit)
        narrow = [] if self.whole_rows else _halves(min(_COLUMNS, widest // 2), self.column_unit)
        if self.products and not self.whole_rows and widest > _COLUMNS:
            widest, narrow = narrow[0], narrow[1:]
        highest = _up(min(self.rows, _ROWS), self.row_unit)
        for columns in (widest, *narrow):
            for rows in _halves(highest, self.row_unit):
                for depth in _DEPTHS if self.products else (0,):
                    yield Blocks(rows, columns, depth)


def frame_of(program: Program) -> Frame | None:
    """The frame of a program's entry, whose types are static tensors; None when all are scalars."""
    main = program.main
    factors = {x for op in main.body if op.defn.short == "dot_general" for x in op.operands}
    others = {x for op in main.body if op.defn.short != "dot_general" for x in op.operands} | set(main.results)
    values = [p for p in main.params if p in others or p not in factors] + [v for op in main.body for v in op.results]
    types = [v.type for v in values]
    shapes = [t.static_shape for t in types if isinstance(t, TensorType) and t.is_static]
    shape = max(shapes, key=lambda s: (prod(s), len(s)), default=())
    if prod(shape) == 0 or not shape:
        return None
    names = {op.defn.short for op in main.body}
    products, reduces = "dot_general" in names, not names.isdisjoint(REDUCTIONS)
    size = min(element(p.type).size for p in (*main.params, *values) if isinstance(p.type, TensorType))
    unit = max(ALIGNMENT // size, BOX if products else 1)
    upright = products or reduces or any(s in (shape[:-1], (*shape[:-1], 1)) for s in shapes if len(shape) > 1 and prod(s) > 1)
    return Frame(shape, unit if upright else 1, unit, reduces, products)


def element(t: Type) -> DType:
    """The element type of a tensor's tile: masks are of i8."""
    assert isinstance(t, TensorType)
    return SI8 if t.dtype is I1 else t.dtype


def unfit(t: Type) -> str:
    """Why no tile holds a value of type `t`; nothing when one does."""
    if not isinstance(t, TensorType):
        return "a tuple is not a tile"
    if not t.is_static:
        return f"{t} has extents that are not numbers (give them with --bind)"
    if t.dtype is INDEX or t.dtype not in DTYPE_TEXT:
        return f"PTO has no elements of {t.dtype}"
    return f"{t} has no elements" if prod(t.static_shape) == 0 else ""


def op_types(op: Op) -> list[Type]:
    """The types of what an op takes and makes."""
    return [*map(operand_type, op.operands), *(v.type for v in op.results)]


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _halves(n: int, unit: int) -> list[int]:
    """`n`, half of it and so on, each a multiple of `unit`."""
    found = [_up(n, unit)]
    while found[-1] > unit:
        found.append(_up(found[-1] // 2, unit))
    return found
