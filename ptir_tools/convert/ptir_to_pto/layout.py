"""Tiling of a kernel: loop axes, one axis of rows, one of columns, and the blocks of these two.

The axes are those of the kernel's largest value. In a block a value is a full tile, one column, one row, or a scalar, depending
on which of the two axes it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from math import prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import Axis, Dim, Dims, Extent, flat, usual, weight
from ptir_tools.convert.ptir_to_pto.kernel import MASKED, PRODUCT, REDUCTIONS, WHOLE, Product, Shapes, element
from ptir_tools.core.dtypes import SI8, SI32
from ptir_tools.core.ir import Literal, Op, Operand, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.passes.pto.pto_software_pipeline import OPTIONS
from ptir_tools.rewrite.vocabulary import tensor_type

FULL, COLUMN, ROW, SCALAR = "full", "column", "row", "scalar"
POINT = "point"  # one element of memory, the same for rows and columns
KINDS = {(True, True): FULL, (True, False): COLUMN, (False, True): ROW, (False, False): POINT}
BOX = 16  # rows of a box of a matrix, and columns where elements are large
_ROWS = 128  # of the largest block
_COLUMNS = 2048  # of the largest block narrower than a row
_DEPTHS = (256, 128, 64, 32, 16)  # of a step of a product
_LOADS = (1, 2, 4, 8)  # steps that are loaded at once
AHEAD = OPTIONS["depth"]  # loads that a loop prefetches; the tail waits for each of its loads
_SLOTS = 2 * AHEAD  # loads that are in Mat at once: those before the loop, and the prefetched ones
_MORE = 1.15  # how many times the loads of a good block a faster one may load
_PARTS = (2, 4, 8)  # of a long row
_ACCUMULATED = 4  # bytes of an element of the accumulator
_START = 1 << 15  # bytes that the pipes could move while the ops of a block start
_LAST = Axis(1)  # the column axis where there is none


@dataclass(slots=True, frozen=True)
class Blocks:
    """The rows and columns of a tile. A product loads `span` elements of its inner extent at once, and a step takes `depth`. A
    long row of memory can be several rows of a tile, its `parts`."""

    rows: int
    columns: int
    depth: int = 0
    span: int = 0
    parts: int = 1

    @property
    def high(self) -> int:
        """The rows of memory in a block."""
        return self.rows // self.parts

    @property
    def wide(self) -> int:
        """The columns of memory in a block."""
        return self.columns * self.parts


@dataclass(slots=True, frozen=True)
class Layout:
    """The axes of a kernel: `loops` one element at a time, rows (None: one row) and columns in blocks, multiples of the two
    units. `folded` is the row or column axis that is reduced over several blocks. `phases` are the ops before, in and after its
    loop."""

    loops: Dim
    row: Axis | None
    column: Axis
    row_unit: int
    column_unit: int
    reduced: frozenset[Axis]  # axes that a block has whole
    inner: tuple[int, ...]  # contracted extents
    width: int  # bytes of an element that a product reads
    passes: int  # ops on whole blocks, except products
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
        """The kind of a value in a block."""
        axes = flat(dims)
        return KINDS[self.row in axes, self.column in axes or self.column is _LAST]

    @property
    def least(self) -> Blocks:
        """The smallest blocks."""
        rows = _up(usual(self.rows), self.row_unit) if self.row in self.reduced else self.row_unit
        columns = _up(usual(self.columns), self.column_unit) if self.column in self.reduced else self.column_unit
        return Blocks(rows, columns, *[max(_DEPTHS[-1], self.column_unit)] * 2 if self.inner else ())

    def fewest(self, target: Target, most: int) -> Blocks | None:
        """The smallest blocks, each with all rows or all columns, that give fewer than `most` iterations of each loop."""
        few = []
        for b in self.blocks(target):
            down, across = -(-usual(self.rows) // b.high), -(-usual(self.columns) // b.wide)
            if 1 < down * across < most and 1 in (down, across):
                few.append(b)
        return min(few, key=lambda b: (b.rows * b.columns, -min(b.rows, b.columns)), default=None)

    def blocks(self, target: Target, rows: int | None = None, cores: int = 1) -> Iterator[Blocks]:
        """Candidate blocks, the best first: for products by the elements that are loaded, for others wide before high. `rows`
        fixes the rows of a product's block. With several cores those come first with which the busiest has the least to do."""
        if cores > 1:
            known = [b for *_, b in self._rated(target, rows)] if self.inner else [*self.blocks(target)]
            yield from sorted(known, key=lambda b: self._share(b, target, cores))
        elif self.inner:
            yield from self._product_blocks(target, rows)
        else:
            yield from self._whole_blocks()

    def _whole_blocks(self) -> Iterator[Blocks]:
        """Blocks of what is no product, wide before high."""
        widest, whole = _up(usual(self.columns), self.column_unit), self.column in self.reduced
        narrow = [] if whole else _halves(min(_COLUMNS, widest // 2), self.column_unit)
        all_rows = self.row in self.reduced
        rows = usual(self.rows)
        highest = _up(rows if all_rows else min(rows, _ROWS), self.row_unit)
        for columns in (widest, *narrow):
            for rows in [highest] if all_rows else _halves(highest, self.row_unit):
                yield Blocks(rows, columns)
        if whole and not all_rows and self.folded is None:
            for parts in _PARTS:
                even = self.row_unit % parts == 0 and usual(self.rows) % (self.row_unit // parts) == 0
                if even and isinstance(self.rows, int) and usual(self.columns) % (parts * self.column_unit) == 0:
                    yield Blocks(self.row_unit, usual(self.columns) // parts, parts=parts)

    def _share(self, b: Blocks, target: Target, cores: int) -> float:
        """How long the busiest core takes, if one loop over blocks is split. A loop that folds is not."""
        sides = (self.row, self.rows, b.high), (self.column, self.columns, b.wide)
        trips = [*(usual(a.size) for a in self.loops), *(-(-usual(n) // size) for a, n, size in sides if a is not self.folded)]
        part = min((-(-n // cores) / n for n in trips if n), default=1.0)
        if self.inner:
            return part * self._cycles(b, target)
        return part * prod(trips) * (b.rows * b.columns * SI32.size + _START)

    def smaller(self, target: Target) -> Iterator[Blocks]:
        """More blocks, for a kernel that fits none of `blocks`: all of a product, the fastest first, and the smallest."""
        if self.inner:
            yield from (block for _, _, block in self._rated(target, None))
        yield self.least

    def _product_blocks(self, target: Target, given: int | None) -> Iterator[Blocks]:
        """The fastest blocks first, of those that load little more than the best, or than squares that fill Acc."""
        rated = self._rated(target, given)
        squares = 2 * usual(self.rows) * usual(self.columns) / (target.capacity["Acc"] / _ACCUMULATED) ** 0.5
        good = max(min((loaded for _, loaded, _ in rated), default=0), squares)
        yield from (block for _, loaded, block in rated if loaded <= good * _MORE)
        if not rated and not given:
            yield self.least

    def _rated(self, target: Target, given: int | None) -> list[tuple[int, int, Blocks]]:
        """The blocks whose accumulator fits, with double-buffered operands in the matrix unit's memories and in Mat: each with
        its cycles and the elements that it loads, the fastest first. What all blocks of a row or column share is in Mat once."""
        heights = [given] if given else _sizes(usual(self.rows), self.row_unit, self.row in self.reduced)
        widths = _sizes(usual(self.columns), self.column_unit, self.column in self.reduced)
        capacity, width = target.capacity, self.width
        inner = _up(max(self.inner), self.column_unit)
        rated = []
        for rows in heights:
            for columns in widths:
                sides = min(capacity["Left"] // rows, capacity["Right"] // columns) // (2 * width)
                depth = next((d for d in _DEPTHS if d <= sides and d % self.column_unit == 0), 0)
                if not depth or rows * columns * _ACCUMULATED > capacity["Acc"]:
                    continue
                for many in _LOADS if depth < inner else (1,):
                    block = Blocks(rows, columns, depth, min(depth * many, _up(inner, depth)))
                    slots, all_columns = _SLOTS if block.span < inner else 2, columns >= usual(self.columns)
                    left, right = (1, 2) if slots == 2 and not all_columns else (slots, 1 if slots == 2 else slots)
                    if width * (left * rows + right * columns) * block.span <= capacity["Mat"]:
                        rated.append((self._cycles(block, target), self._loaded(block), block))
        return sorted(rated, key=lambda f: f[:2])

    def _loads(self, block: Blocks) -> tuple[int, int]:
        """The number of loads of the rows of one operand and the columns of the other; one load serves loops in which it is
        invariant."""
        down, across = -(-usual(self.rows) // block.rows), -(-usual(self.columns) // block.columns)
        all_at_once = max(self.inner) <= block.span
        return (down if all_at_once else down * across), (across if all_at_once and across == 1 else down * across)

    def _loaded(self, block: Blocks) -> int:
        """The elements that are loaded of both operands, per element of the inner extent."""
        left, right = self._loads(block)
        return left * block.rows + right * block.columns

    def _cycles(self, block: Blocks, target: Target) -> int:
        """The estimated cycles of products in such blocks: the busiest pipe, plus the waits of a block where nothing overlaps."""
        costs, width, (rows, columns) = target.costs, self.width, (block.rows, block.columns)
        count = -(-usual(self.rows) // rows) * -(-usual(self.columns) // columns)
        elements, busy = rows * columns, dict.fromkeys(("MTE2", "MTE1", "M"), 0)
        for inner in self.inner:
            steps, loads = -(-inner // block.depth), -(-inner // block.span)
            for side, to, times in zip((rows, columns), ("Left", "Right"), self._loads(block), strict=True):
                busy["MTE2"] += times * loads * costs.moved("MTE2", "gm", "Mat", side * inner / loads, width)
                busy["MTE1"] += count * steps * costs.moved("MTE1", "Mat", to, side * inner / steps, width)
            busy["M"] += count * steps * costs.multiplied(rows, inner / steps, columns, width)
        to = "Vec" if self.passes and "Vec" in target.from_acc else "gm"
        busy["FIX"] = count * len(self.inner) * costs.moved("FIX", "Acc", to, elements, _ACCUMULATED)
        busy["V"] = count * self.passes * costs.work("", 2).cycles(rows, columns * _ACCUMULATED)
        most = max(busy.values())
        if 2 * elements * _ACCUMULATED > target.capacity["Acc"]:  # the next product waits for this one to be read
            most = max(most, busy["M"] + busy["FIX"])
        if self.passes and 2 * elements * _ACCUMULATED > target.capacity["Vec"]:
            most = max(most, busy["V"] + busy["FIX"])
        first = sum(costs.moved("MTE2", "gm", "Mat", side * block.span, width) for side in (rows, columns))
        return most + (first + (busy["FIX"] + busy["V"]) // count) // weight(self.loops)


def layouts(shapes: Shapes) -> list[Layout]:
    """All choices of row and column axes of a kernel, the last two axes of its largest value first. Raises Violation when there
    is none.
    """
    axes, reduced = flat(shapes.largest), frozenset(shapes.reduced)
    require(len(reduced) <= 2, NOT_TRANSLATABLE, "more than rows and columns of a block are reduced")
    reductions = [op for op in shapes.body if op.defn.short in REDUCTIONS]
    floats = all(element(operand_type(op.operands[0])).is_float for op in reductions)
    long = [a for a in shapes.reduced if not isinstance(a.size, int) or a.size > (WHOLE if floats else WHOLE // 3)]
    require(len(long) <= 1, NOT_TRANSLATABLE, "rows and columns are reduced, and no block has all of them")
    folded = long[0] if long else None
    phases = _phases(shapes, folded)
    columns = axes[::-1] or (_LAST,)
    pairs = [(row, column) for column in columns for row in reversed(axes) if row is not column]
    fitting = []
    for row, column in (*pairs, *((None, column) for column in columns)):
        fits = reduced <= {row, column} and all(_multiplies(p, row, column) for p in shapes.products)
        loops = tuple(a for a in axes if a not in (row, column))
        if fits and all(set(loops) <= used for used in shapes.used):
            fitting.append(_layout(shapes, loops, row, column, folded, phases))
    if not fitting:
        raise Violation(NOT_TRANSLATABLE, "no two axes fit as rows and columns for all ops here")
    return sorted(fitting, key=partial(_apart, shapes))


def _apart(shapes: Shapes, layout: Layout) -> int:
    """How many windows of memory have elements apart that are neighbors in a tile. Each of them is moved alone."""
    maps = [(r.index_map, tensor_type(r.base).shape) for r in shapes.reads.values() if isinstance(r.base, Value)]
    maps += [(shapes.place(v), tensor_type(shapes.outline.memory(v)).shape) for v in shapes.made]
    count = 0
    for index_map, shape in maps:
        inside = [d for d, s in enumerate(index_map) if {layout.row, layout.column} & set(s.axes)]
        if inside:
            last = max(inside)
            steps = [step for a, step in index_map[last].terms if a in (layout.row, layout.column)]
            count += steps != [1] or any(n != 1 for n in shape[last + 1 :])
    return count


def _multiplies(p: Product, row: Axis | None, column: Axis) -> bool:
    return (row in p.rows if row is not None else not p.rows) and (column in p.columns)


def _phases(shapes: Shapes, folded: Axis | None) -> tuple[list[Op], list[Op], list[Op]]:
    """The ops before, in and after the loop over the folded axis."""
    before, inside, after = list[Op](), list[Op](), list[Op]()
    complete: set[Operand] = set()  # the results of the loop, and the ops that depend on them
    for op, axes in zip(shapes.body, shapes.used, strict=True):
        late = any(shapes.reads[op, i].base in complete for i in range(len(op.operands)))
        if folded is None or (folded not in axes and not late):
            before.append(op)
            continue
        if late:
            message = "a value of whole rows is needed where these are computed, and no block has all of them"
            require(folded not in axes, NOT_TRANSLATABLE, message)
            after.append(op)
            complete.add(op.result)
            continue
        inside.append(op)
        if folded not in flat(shapes.made[op.result]):
            message = f"{op.defn.short} reduces an extent that no block has all of"
            require(op.defn.short in REDUCTIONS, NOT_TRANSLATABLE, message)
            complete.add(op.result)
    return before, inside, after


def _layout(
    shapes: Shapes, loops: Dim, row: Axis | None, column: Axis, folded: Axis | None, phases: tuple[list[Op], list[Op], list[Op]]
) -> Layout:
    types = [v.type for v in shapes.seen] + [r.base.type for r in shapes.reads.values() if isinstance(r.base, Literal)]
    least = min(SI32.size, *(element(t).size for t in types if isinstance(t, TensorType)))
    least = SI8.size if any(op.defn.short in MASKED for op in shapes.body) else least
    inner = tuple(max(weight(p.inner), 1) for p in shapes.products)
    unit = max(ALIGNMENT // least, BOX if inner else 1)
    upright = bool(inner) or bool(shapes.reduced) or any(_upright(dims, row, column) for dims in shapes.tiles)
    read = [element(operand_type(x)).size for op in shapes.body if op.defn.short == PRODUCT for x in op.operands]
    rows = unit if upright else 1
    reduced = frozenset(a for a in shapes.reduced if a is not folded)
    passes = sum({row, column} <= used and op.defn.short != PRODUCT for op, used in zip(shapes.body, shapes.used, strict=True))
    return Layout(loops, row, column, rows, unit, reduced, inner, max(read, default=0), passes, folded, phases)


def _upright(dims: Dims, row: Axis | None, column: Axis) -> bool:
    """Whether a value is transposed in memory: a column, a point, or columns before rows."""
    axes = flat(dims)
    if column not in axes:
        return column is not _LAST
    return row in axes and axes.index(column) < axes.index(row)


def _up(n: int, unit: int) -> int:
    return -(-n // unit) * unit


def _sizes(n: int, unit: int, whole: bool) -> list[int]:
    """Candidate block sizes of an extent: its parts, and powers of two."""
    if whole:
        return [_up(n, unit)]
    chosen = {size for size in (1 << k for k in range(4, 13)) if unit <= size < n and size % unit == 0}
    return sorted({*chosen, *_halves(n, unit)}, reverse=True)


def _halves(n: int, unit: int) -> list[int]:
    """`n`, half of it and so on, each a multiple of `unit`."""
    halves = [_up(n, unit)]
    while halves[-1] > unit:
        halves.append(_up(halves[-1] // 2, unit))
    return halves
