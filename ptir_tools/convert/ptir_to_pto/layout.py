"""How a kernel is cut into tiles: axes that are looped over, one for rows, one for columns, and blocks of those two.

The axes are those of the kernel's largest value. In a block a value is a tile with rows and columns, one column, one row, or a
scalar, by which of the two axes it has.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import Axis, Dim, Dims, Extent, flat, usual
from ptir_tools.convert.ptir_to_pto.kernel import MASKED, PRODUCT, REDUCTIONS, WHOLE, Product, Shapes, element
from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.dtypes import SI8, SI32
from ptir_tools.core.ir import Op, Operand, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target

FULL, COLUMN, ROW, SCALAR = "full", "column", "row", "scalar"
POINT = "point"  # one element of memory, the same for rows and columns
KINDS = {(True, True): FULL, (True, False): COLUMN, (False, True): ROW, (False, False): POINT}
BOX = 16  # rows of a box of a matrix, and columns where elements are large
_ROWS = 128  # of the largest block
_COLUMNS = 2048  # of the largest block that is not the whole row
_DEPTHS = (256, 128, 64, 32)  # of a step of a product
_ACCUMULATED = 4  # bytes of an element of the accumulator
_LAST = Axis(1)  # stands for columns where there is no axis


@dataclass(slots=True, frozen=True)
class Blocks:
    """The rows and columns of a block, and what a product takes of its inner extent at once."""

    rows: int
    columns: int
    depth: int


@dataclass(slots=True, frozen=True)
class Layout:
    """The axes of a kernel: `loops` one by one, rows (None: one row) and columns in blocks, multiples of the two units.

    `folded` is the axis, of rows or columns, that is reduced and of which no block has all. `phases` are the ops before its
    loop, inside, and after it."""

    loops: Dim
    row: Axis | None
    column: Axis
    row_unit: int
    column_unit: int
    reduced: frozenset[Axis]  # of these a block has all
    products: bool
    width: int  # bytes of an element that a product reads
    folded: Axis | None
    phases: tuple[list[Op], list[Op], list[Op]]

    @property
    def rows(self) -> Extent:
        """The extent that blocks divide into rows."""
        return self.row.size if self.row is not None else 1

    @property
    def columns(self) -> Extent:
        """The extent that blocks divide into columns."""
        return self.column.size

    @property
    def is_flat(self) -> bool:
        """Whether tiles are rows."""
        return self.row is None and self.row_unit == 1

    def kind(self, dims: Dims) -> str:
        """What a value is in a block."""
        axes = flat(dims)
        return KINDS[self.row in axes, self.column in axes or self.column is _LAST]

    @property
    def least(self) -> Blocks:
        """The smallest blocks."""
        rows = _up(usual(self.rows), self.row_unit) if self.row in self.reduced else self.row_unit
        columns = _up(usual(self.columns), self.column_unit) if self.column in self.reduced else self.column_unit
        return Blocks(rows, columns, _DEPTHS[-1] if self.products else 0)

    def blocks(self, target: Target) -> Iterator[Blocks]:
        """Blocks to try, the best first: those of products by the elements that are loaded, others wide before high."""
        if self.products:
            yield from self._product_blocks(target)
            return
        widest, whole = _up(usual(self.columns), self.column_unit), self.column in self.reduced
        narrow = [] if whole else _halves(min(_COLUMNS, widest // 2), self.column_unit)
        all_rows = self.row in self.reduced
        rows = usual(self.rows)
        highest = _up(rows if all_rows else min(rows, _ROWS), self.row_unit)
        for columns in (widest, *narrow):
            for rows in [highest] if all_rows else _halves(highest, self.row_unit):
                yield Blocks(rows, columns, 0)

    def _product_blocks(self, target: Target) -> Iterator[Blocks]:
        """Blocks whose accumulator fits, with two steps of both operands where the matrix unit reads them. The rows of one
        operand are loaded once for every block of columns, and the other way round."""
        high, wide = usual(self.rows), usual(self.columns)
        heights = _sizes(high, self.row_unit, self.row in self.reduced)
        widths = _sizes(wide, self.column_unit, self.column in self.reduced)
        found = [
            (high * -(-wide // columns) + wide * -(-high // rows), -depth, rows, columns)
            for rows in heights
            for columns in widths
            for depth in _DEPTHS
            if rows * columns * _ACCUMULATED <= target.capacity["Acc"]
            and rows * depth * self.width * 2 <= target.capacity["Left"]
            and columns * depth * self.width * 2 <= target.capacity["Right"]
        ]
        for _, depth, rows, columns in sorted(found):
            yield Blocks(rows, columns, -depth)
        if not found:
            yield self.least


def layouts(shapes: Shapes) -> list[Layout]:
    """Every way to take rows and columns of a kernel's axes, the last two axes of its largest value first.

    Raises Violation when there is none.
    """
    axes, reduced = flat(shapes.largest), frozenset(shapes.reduced)
    require(len(reduced) <= 2, NOT_TRANSLATABLE, "more than rows and columns of a block are reduced")
    reductions = [op for op in shapes.body if op.defn.short in REDUCTIONS]
    floats = all(element(operand_type(op.operands[0])).is_float for op in reductions)
    long = [a for a in shapes.reduced if not isinstance(a.size, int) or a.size > (WHOLE if floats else WHOLE // 3)]
    require(len(long) <= 1, NOT_TRANSLATABLE, "rows and columns are reduced of which no block has all")
    folded = long[0] if long else None
    phases = _phases(shapes, folded)
    columns = axes[::-1] or (_LAST,)
    pairs = [(row, column) for column in columns for row in reversed(axes) if row is not column]
    found = []
    for row, column in (*pairs, *((None, column) for column in columns)):
        fits = reduced <= {row, column} and all(_multiplies(p, row, column) for p in shapes.products)
        loops = tuple(a for a in axes if a not in (row, column))
        if fits and all(set(loops) <= used for used in shapes.used):
            found.append(_layout(shapes, loops, row, column, folded, phases))
    if not found:
        raise Violation(NOT_TRANSLATABLE, "no two axes hold what the ops here need of rows and columns")
    return found


def _multiplies(p: Product, row: Axis | None, column: Axis) -> bool:
    return (row in p.rows if row is not None else not p.rows) and (column in p.columns)


def _phases(shapes: Shapes, folded: Axis | None) -> tuple[list[Op], list[Op], list[Op]]:
    """The ops before, in and after the loop over an axis that no block has all of."""
    before, inside, after = list[Op](), list[Op](), list[Op]()
    complete: set[Operand] = set()  # what the loop leaves, and what follows from it
    for op, axes in zip(shapes.body, shapes.used, strict=True):
        late = any(shapes.reads[op, i].base in complete for i in range(len(op.operands)))
        if folded is None or (folded not in axes and not late):
            before.append(op)
            continue
        if late:
            message = "what is made of whole rows is needed where these are made, which no block has all of"
            require(folded not in axes, NOT_TRANSLATABLE, message)
            after.append(op)
            complete.add(op.result)
            continue
        inside.append(op)
        if folded not in flat(shapes.made[op.result]):
            message = f"{op.defn.short} goes over an extent that no block has all of"
            require(op.defn.short in REDUCTIONS, NOT_TRANSLATABLE, message)
            complete.add(op.result)
    return before, inside, after


def _layout(
    shapes: Shapes, loops: Dim, row: Axis | None, column: Axis, folded: Axis | None, phases: tuple[list[Op], list[Op], list[Op]]
) -> Layout:
    types = [v.type for v in shapes.seen]
    least = min(SI32.size, *(element(t).size for t in types if isinstance(t, TensorType)))
    least = SI8.size if any(op.defn.short in MASKED for op in shapes.body) else least
    products = bool(shapes.products)
    unit = max(ALIGNMENT // least, BOX if products else 1)
    upright = products or bool(shapes.reduced) or any(_upright(dims, row, column) for dims in shapes.tiles)
    read = [element(operand_type(x)).size for op in shapes.body if op.defn.short == PRODUCT for x in op.operands]
    rows = unit if upright else 1
    reduced = frozenset(a for a in shapes.reduced if a is not folded)
    return Layout(loops, row, column, rows, unit, reduced, products, max(read, default=0), folded, phases)


def _upright(dims: Dims, row: Axis | None, column: Axis) -> bool:
    """Whether a value in memory stands: as a column or a point, or with columns before rows."""
    axes = flat(dims)
    if column not in axes:
        return column is not _LAST
    return row in axes and axes.index(column) < axes.index(row)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _sizes(n: int, unit: int, whole: bool) -> list[int]:
    """Sizes of blocks of an extent: its parts, and the powers of two."""
    if whole:
        return [_up(n, unit)]
    found = {size for size in (1 << k for k in range(4, 13)) if unit <= size < n and size % unit == 0}
    return sorted({*found, *_halves(n, unit)}, reverse=True)


def _halves(n: int, unit: int) -> list[int]:
    """`n`, half of it and so on, each a multiple of `unit`."""
    found = [_up(n, unit)]
    while found[-1] > unit:
        found.append(_up(found[-1] // 2, unit))
    return found
