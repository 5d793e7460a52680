"""Builds the PTO function of one kernel: a loop over blocks with loads, tile ops and stores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Emit, Rule
from ptir_tools.convert.naming import extent_name, spelled
from ptir_tools.convert.ptir_to_pto.axes import AffineExpr, AffineMap, Axis, Extent, Scaled, Stride, flat
from ptir_tools.convert.ptir_to_pto.kernel import COMBINED, COUNT, Read, Shapes, reads_itself
from ptir_tools.convert.ptir_to_pto.layout import COLUMN, FULL, KINDS, POINT, ROW, SCALAR, Blocks, Layout
from ptir_tools.convert.ptir_to_pto.operands import filled, identity_of
from ptir_tools.convert.ptir_to_pto.values import (
    ORDERED,
    BlockValue,
    dtype_of,
    elements_of,
    memory_type,
    number,
    one,
    opened,
    signed,
    tile_of,
    wider,
)
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.dtypes import I1, SI8, SI16, SI32, DType
from ptir_tools.core.ir import Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Shape, Sym, TensorType, tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.ops.memory import view_type
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import memref_type
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType, scalar, tile
from ptir_tools.rewrite.vocabulary import tensor_type


class KernelEmit(Emit[BlockValue]):
    """Builds a kernel with blocks of one size. `at` is the start of the current block along each axis, `memory` has the memrefs
    of values, `valid` the valid rows and columns of the block (None: all)."""

    dialect, title = "pto", "PTO"

    def __init__(
        self,
        rules: Mapping[str, Rule],
        name: str,
        shapes: Shapes,
        layout: Layout,
        blocks: Blocks,
        target: Target,
        report: Diagnostics,
    ) -> None:
        body = list(shapes.body)
        super().__init__(rules, Function(name, body=body, loc=body[0].loc), report, Options(), name=name)
        self.shapes = shapes
        self.layout = layout
        self.blocks = blocks
        self.target = target
        self.top = self.program.main
        self.memory: dict[Value, Value] = {}
        self.at: dict[Axis, Operand] = {}
        self.inside: list[tuple[Axis, Region]] = []  # the enclosing loops, from the outermost
        self.valid: dict[str, Operand | None] = {}
        self.stored: frozenset[Value] = frozenset()
        self.folding: frozenset[Value] = frozenset()  # values that the current loop reduces, not complete yet
        self.loaded: dict[object, BlockValue] = {}
        self.positions: dict[Value, Value] = {}
        self.shape_of: dict[Value, Shape] = {}  # of memory, symbols included
        self.extents: dict[Sym, Value] = {}  # parameters
        self.neighbor: dict[int, Value] = {}

    def spelled(self, name: str) -> str:
        """`name` spelled for PTO."""
        return spelled(name)

    # The function

    def run(self, inputs: Sequence[tuple[Value, str]], outputs: Sequence[tuple[Value, str]]) -> Program:
        """The function, whose parameters are `inputs` and `outputs`; errors are reported."""
        for v, name in (*inputs, *outputs):
            outline = self.shapes.outline
            result = self.builder.param(memory_type(outline.memory(v), v in outline.scalars), name)
            if isinstance(result.type, MemRefType):
                self.memory[v] = result
                self.shape_of[result] = tensor_type(outline.memory(v)).shape or (1,)
            else:
                self.values[v] = BlockValue(SCALAR, result)
        for s in self.shapes.symbols(v for v, _ in outputs):
            self.extents[s] = self.builder.param(INDEX_TYPE, extent_name(s.name))
        layout, blocks = self.layout, self.blocks
        loops = [(a, a.size, 1) for a in layout.loops]
        loops += [(layout.row, layout.rows, blocks.high)] if layout.row is not None else []
        loops += [(layout.column, layout.columns, blocks.wide)]
        self.stored = frozenset(v for v, _ in outputs)
        self.bound(None)
        self.loop([x for x in loops if x[0] is not layout.folded], [x for x in loops if x[0] is layout.folded])
        return self.program

    def loop(self, loops: Sequence[tuple[Axis, Extent, int]], folded: Sequence[tuple[Axis, Extent, int]]) -> None:
        """Loop over the blocks: a loop for every axis with more than one block, and the folded axis inside."""
        if not loops:
            self.block(folded)
            return
        (axis, extent, step), *rest = loops
        if isinstance(extent, int) and extent <= step:
            self.at[axis] = number(0)
            self.bound(axis)
            self.loop(rest, folded)
            return
        with self.looped(number(0), self.extent(extent), step) as i:
            self.at[axis] = i
            self.bound(axis)
            self.inside.append((axis, self.builder.block))
            self.loop(rest, folded)
            self.inside.pop()

    def bound(self, axis: Axis | None) -> None:
        """Set the valid rows or columns of the block, if `axis` is one of the two axes."""
        for name, own, extent, step in self.sides:
            if own is axis:
                self.valid[name] = self.left(number(0) if axis is None else self.at[axis], extent, step)

    @property
    def sides(self) -> tuple[tuple[str, Axis | None, Extent, int], ...]:
        """Rows and columns: axis, extent, and the number per block."""
        layout, blocks = self.layout, self.blocks
        return ("rows", layout.row, layout.rows, blocks.high), ("columns", layout.column, layout.columns, blocks.wide)

    def outside(self, axes: Sequence[Axis] | None) -> AbstractContextManager[None]:
        """Append before the loops in which a value of these axes is invariant (None: in place)."""
        blocks = (block for axis, block in reversed(self.inside) if axis in (axes or ()))
        return self.builder.inside(self.builder.block if axes is None else next(blocks, self.top))

    def block(self, folded: Sequence[tuple[Axis, Extent, int]]) -> None:
        """Emit one block: every op in order, then the stores."""
        before, inside, after = self.layout.phases
        for name, axis, _, _ in self.sides:
            if axis is not None and axis is self.layout.folded:
                self.valid[name] = None  # outside of its loop a tile has one value, spread over all elements
        self.all(before)
        for (axis, extent, step), (name, own, _, _) in ((f, side) for f in folded for side in self.sides if side[1] is f[0]):
            assert own is axis
            self.fold(inside, axis, extent, step, name)
        self.all(after)

    def all(self, ops: Sequence[Op]) -> None:
        """Emit ops in order."""
        for op in ops:
            self.values[op.result] = self.convert(op)

    def fold(self, ops: Sequence[Op], axis: Axis, extent: Extent, step: int, side: str) -> None:
        """The loop over blocks along the folded axis, which carries the reduced values."""
        kind = COLUMN if axis is self.layout.column else ROW
        self.valid[side] = None
        reduced = [op for op in ops if axis not in flat(self.shapes.made[op.result])]
        first = []
        for op in reduced:
            dtype = tensor_type(op.result).dtype
            data = identity_of(op.defn.short.removeprefix("reduce_"), dtype)
            result = self.tile_op("expands", kind, dtype, self.constant(Literal(tensor(dtype), data)), valid=self.existing(kind))
            first.append((result.value, "acc"))
        for op in ops:  # loop invariants
            for i in (i for i in range(len(op.operands)) if not reads_itself(op, i, self.shapes.outline)):
                read = self.shapes.reads[op, i]
                if axis not in flat(read.memory) and read.base not in self.shapes.made:
                    self.operand(op, i)
        outer, self.folding = dict(self.loaded), frozenset(op.result for op in reduced)
        with self.looped(number(0), self.extent(extent), step, *first) as state:
            self.at[axis] = state[0]
            self.valid[side] = self.left(state[0], extent, step)
            self.all(ops)
            for op, acc in zip(reduced, state[1 : 1 + len(first)], strict=True):
                piece = self.values.get(op.result)  # None: it was refused
                output = piece and self.tile_op(COMBINED[op.defn.short], kind, piece.dtype, acc, piece.value)
                state.append(output.value if output else acc)
        self.loaded, self.folding, self.valid[side] = outer, frozenset(), None
        for op, output in zip(reduced, state, strict=True):
            self.values[op.result] = self.kept(op, BlockValue(kind, output))

    def translated(self, op: Op) -> BlockValue:
        """Emit one op of the source by its rule, and the stores of its results. Raises Violation or InError."""
        result: BlockValue = super().translated(op)
        return result if op.result in self.folding else self.kept(op, result)

    def kept(self, op: Op, result: BlockValue) -> BlockValue:
        """The results of an op, stored where they are outputs."""
        if op.result in self.stored:
            if _is_mask(result.value):
                result = BlockValue(result.kind, self.numbers(result.value))  # type: ignore[arg-type]
            place = self.shapes.place(op.result)
            store(self, result, self.memory[op.result], place)
            read = any(r.base is op.result for r in self.shapes.reads.values())
            t = operand_type(result.value)
            if read and isinstance(t, TileType) and t.loc == "Acc":
                return load(self, Read(op.result, place, self.shapes.made[op.result]))
        return result

    def operands(self, op: Op) -> list[BlockValue]:
        """The operands in this block, except those that the rule reads from memory."""
        outline = self.shapes.outline
        return [self.operand(op, i) for i in range(len(op.operands)) if not reads_itself(op, i, outline)]

    def operand(self, op: Op, i: int) -> BlockValue:
        """An operand in this block; one in memory is loaded at its first use. Raises InError."""
        read = self.shapes.reads[op, i]
        base, key = read.base, (read.base, read.index_map)
        if isinstance(base, Literal):
            return BlockValue(SCALAR, self.constant(Literal(tensor(SI8), base.data, True) if base.type.dtype is I1 else base))
        assert isinstance(base, Value)
        if base in self.values:
            result: BlockValue = self.read(base)
            return self.mask(result) if result.dtype is I1 else result
        if key not in self.loaded:
            counts = base.op is not None and base.op.defn.short == COUNT
            self.loaded[key] = counted(self, read) if counts else load(self, read)
        return self.loaded[key]

    def mask(self, x: BlockValue) -> BlockValue:
        """A scalar of i1 as an element of a mask."""
        yes, no = (self.scalar(n, SI8) for n in (1, 0))
        return BlockValue(SCALAR, self.builder.op("select", x.value, yes, no))

    @contextmanager
    def looped(self, lower: Operand, upper: Operand, step: int, *carried: tuple[Value, str]) -> Iterator[Any]:
        """Context manager for the body of a loop. Yields the index, or with `carried` a list of the index and the carried values.
        What the body appends to the list is yielded by the loop; after the loop the list has its results."""
        body = Region("body", isolated=False, result_types=[v.type for v, _ in carried])
        body.params = [Value(INDEX_TYPE, self.builder.name("i")), *(Value(v.type, self.builder.name(n)) for v, n in carried)]
        state: list[Value] = list(body.params)
        with self.builder.inside(body):
            yield state if carried else body.params[0]
        body.results = list(state[len(body.params) :])
        inits = [v for v, _ in carried]
        result = self.builder.op("scf.for", lower, upper, number(step), inits, regions=[body], name="acc" if carried else "")
        assert result.op is not None
        state[:] = result.op.results

    def extent(self, n: Extent) -> Operand:
        """An extent as an index."""
        return number(n) if isinstance(n, int) else self.extents[n]

    def left(self, at: Operand, extent: Extent, step: int) -> Operand | None:
        """The valid size of a block at `at`: None for the full block."""
        if step == 1 or (isinstance(extent, int) and extent % step == 0):
            return None
        first = constant(at)
        if first is not None and isinstance(extent, int):
            return None if first + step <= extent else number(extent - first)
        whole = self.extent(extent)
        rest = whole if first == 0 else self.builder.op("subi", _value(self, whole), at)
        return self.builder.op("minsi", self.constant(number(step)), rest)

    def position(self, v: Value) -> Value:
        """A scalar as an index."""
        result = self.positions.get(v)
        if result is None:
            with self.builder.inside(self.top):
                given: BlockValue = self.read(v)
                result = self.positions[v] = self.builder.op("index_cast", given.value, to=INDEX_TYPE)
        return result

    # Tiles

    def constant(self, x: Literal) -> Value:
        """The splat value of a literal, as a constant of the function."""
        same = (op.result for op in self.top.body if op.defn.is_constant and op.attr("value").key == one(x).key)
        if (found := next(same, None)) is None:
            with self.builder.inside(self.top):
                found = self.builder.op("constant", value=one(x))
        return found

    def scalar(self, n: float, dtype: DType) -> Value:
        """A number as a constant of the function."""
        return self.constant(filled(n, tensor(dtype)))

    def type_of(self, kind: str, dtype: DType) -> TileType:
        """The tile type of a piece of this kind."""
        rows, columns = self.blocks.rows, self.blocks.columns
        shape = {FULL: (rows, columns), COLUMN: (rows, 1), ROW: (1, columns)}[kind]
        result = tile(dtype, shape[-1:] if self.layout.is_flat else shape)
        assert isinstance(result, TileType)
        return result

    def tile_op(
        self, short: str, kind: str, dtype: DType, *operands: Operand, valid: Sequence[Operand] = (), **attrs: Any
    ) -> BlockValue:
        """Append a tile op with one result, in wider elements where the target lacks it for these."""
        operands = tuple((self.flags if i == 0 and short == "sel" else self.numbers)(x) for i, x in enumerate(operands))
        types = [operand_type(x) for x in operands]
        tiles = [t.dtype for t in types if isinstance(t, TileType)]
        computed = tiles[short == "sel"] if tiles else dtype
        wide = wider(self.target, short, computed)
        if (other := signed(self.target, short, wide)) is not None:
            return self._signed(short, kind, dtype if dtype is not computed else other, operands, other, dtype, valid, attrs)
        if wide is not computed:  # a mask has another element type
            mine = [dtype_of(x) is computed and not (i == 0 and short == "sel") for i, x in enumerate(operands)]
            operands = tuple(self.converted(x, wide) if own else x for x, own in zip(operands, mine, strict=True))
        result = wide if dtype is computed and not short.startswith("cmp") else dtype
        to = self.type_of(kind, result)
        output = self.builder.op(f"tile.{short}", *operands, list(valid), [], to=to, name=self.name, **attrs)
        return BlockValue(kind, self.converted(output, dtype))

    def _signed(
        self,
        short: str,
        kind: str,
        made_of: DType,
        operands: Sequence[Operand],
        other: DType,
        dtype: DType,
        valid: Sequence[Operand],
        attrs: Mapping[str, Any],
    ) -> BlockValue:
        """A tile op on unsigned elements, computed in signed elements of the same bits."""
        turned = short in ORDERED
        given = [self.flipped(self.seen_as(x, other), other) if turned else self.seen_as(x, other) for x in operands]
        result = self.tile_op(short, kind, made_of, *given, valid=valid, **attrs)
        if made_of is dtype:
            return result
        return BlockValue(kind, self.seen_as(self.flipped(result.value, other) if turned else result.value, dtype))

    def flipped(self, x: Value, dtype: DType) -> Value:
        """`x` with its highest bit flipped."""
        highest = self.scalar(dtype.min, dtype)
        if not isinstance(x.type, TileType):
            return self.builder.op("addi", x, highest)
        return self.tile_op("adds", self.kind_of(x.type), dtype, x, highest).value

    def numbers(self, x: Operand) -> Operand:
        """A mask as zeros and ones: on the chip comparisons make packed bits, which only `sel` reads."""
        if not _is_mask(x):
            return x
        kind = self.kind_of(tile_of(x))
        values = []
        for n in (1, 0):
            number = self.scalar(n, SI16)
            values.append(self.tile_op("expands", kind, SI16, number, valid=self.existing(kind)).value)
        return self.converted(self.tile_op("sel", kind, SI16, x, *values).value, SI8)

    def flags(self, x: Operand) -> Operand:
        """Zeros and ones as a mask."""
        if _is_mask(x):
            return x
        kind = self.kind_of(tile_of(x))
        zero = self.scalar(0, dtype_of(x))
        return self.tile_op("cmps", kind, SI8, x, zero, cmpMode="NE").value

    def kind_of(self, t: TileType) -> str:
        """The kind of a tile: the whole block, a column or a row of it. Raises Violation for other extents."""
        result = next((k for k in (FULL, COLUMN, ROW) if self.type_of(k, t.dtype).shape == t.shape), None)
        message = f"a tile of {t.dtype} with extents {t.shape} is neither a block of this kernel nor a row or column of one"
        require(result is not None, NOT_TRANSLATABLE, message)
        assert result is not None
        return result

    def seen_as(self, x: Operand, dtype: DType) -> Value:
        """A tile or scalar of the same bits in other elements of the same width."""
        t = operand_type(x)
        assert isinstance(x, Value)
        if dtype_of(x) is dtype:
            return x
        if isinstance(t, TileType):
            valid = group(x.op, "valid") if x.op is not None and is_tile_op(x.op.defn) else ()  # of less than a block, too
            return self.retyped(x, tile(dtype, t.shape), list(valid) or self.existing(self.kind_of(t)))
        if x.op is not None and x.op.defn.is_constant:
            return self.constant(Literal(tensor(dtype, ()), x.op.attr("value").data))
        return self.builder.op("index_cast", x, to=scalar(dtype))

    def retyped(self, x: Value, to: TileType, valid: Sequence[Operand]) -> Value:
        """A tile bitcast to other elements; casts back and forth cancel."""
        before = x.op.operands[0] if x.op is not None and x.op.defn.short == "tile.reshape" else None
        if isinstance(before, Value) and before.type is to:
            return before
        return self.builder.op("tile.reshape", x, list(valid), [], to=to, name=x.name)

    def converted(self, x: Operand, dtype: DType) -> Value:
        """A tile or scalar converted to other elements."""
        t = operand_type(x)
        if dtype_of(x) is dtype:
            return x  # type: ignore[return-value]
        if isinstance(t, TileType):
            return self.builder.op("tile.cvt", x, [], [], to=tile(dtype, t.shape), name=self.name)
        return self.builder.op("extf" if dtype.is_float else "extsi", x, to=scalar(dtype), name=self.name)

    def spread(self, piece: BlockValue, kind: str = FULL) -> BlockValue:
        """A piece broadcast to a kind with more elements."""
        if piece.kind == kind:
            return piece
        short = {SCALAR: "expands", COLUMN: "rowexpand", ROW: "colexpand"}[piece.kind]
        return self.tile_op(short, kind, piece.dtype, piece.value, valid=self.existing(kind))

    def combine_parts(self, short: str, column: BlockValue) -> BlockValue:
        """Combine the partial reductions of a row's parts, pairwise."""
        for bit in range(self.blocks.parts.bit_length() - 1):
            other = self.tile_op("gather", COLUMN, column.dtype, column.value, self.neighbors(1 << bit))
            column = self.tile_op(short, COLUMN, column.dtype, column.value, other.value)
        return column

    def neighbors(self, apart: int) -> Value:
        """The tile with each row replaced by its partner, the row `apart` after or before it."""
        if apart not in self.neighbor:

            def step(short: str, x: Value, n: int) -> Value:
                return self.tile_op(short, COLUMN, SI32, x, self.scalar(n, SI32)).value

            with self.builder.inside(self.top):
                zero = self.scalar(0, SI32)
                row = self.builder.op("tile.ci", zero, [], [], to=tile(SI32, (1, self.blocks.rows)), name="row")
                row = reshaped(self, row, self.type_of(COLUMN, SI32), [])
                second = step("mins", step("maxs", step("subs", step("rems", row, 2 * apart), apart - 1), 0), 1)
                back = step("subs", step("muls", second, 2 * apart), apart)
                self.neighbor[apart] = self.tile_op("sub", COLUMN, SI32, row, back).value
        return self.neighbor[apart]

    def existing(self, kind: str) -> list[Operand]:
        """The valid region of a tile of this kind; empty when all is valid."""
        rows, columns = self.valid["rows"], self.valid["columns"]
        given = {FULL: (rows, columns), COLUMN: (rows, None), ROW: (None, columns)}[kind]
        if not any(given):
            return []
        shape = self.type_of(kind, I1).shape
        return [v or number(n) for v, n in zip(given[-len(shape) :], shape, strict=True)]  # type: ignore[arg-type]


def _is_mask(x: Operand) -> bool:
    """Whether an operand is a mask, the result of a comparison."""
    return isinstance(x, Value) and x.op is not None and x.op.defn.short in ("tile.cmp", "tile.cmps")


# Loads and stores of blocks, by the index maps of memories

_ZERO: Operand = number(0)


@dataclass(slots=True, frozen=True)
class Part:
    """The part of a dimension in a tile: `size` elements of `axis` (None: a single element) from `start`, of which `valid` are
    valid (None: all)."""

    axis: Axis | None
    start: Operand
    size: int
    valid: Operand | None


@dataclass(slots=True)
class Window:
    """The window of a load or store: a memref, an index per dimension, the tile's shape, and its valid region (if not all)."""

    memory: Value
    indices: list[Operand]
    shape: tuple[int, ...]
    valid: list[Operand]


def window(emit: KernelEmit, memory: Value, index_map: AffineMap, parts: Mapping[int, Part]) -> Window:
    """The window of a memory that has `parts` by dimension; along other axes it is at the current block."""
    indices, offsets, steps = list[Operand](), list[Operand](), list[int]()
    for d, expr in enumerate(index_map):
        part = parts.get(d)
        axis = None if part is None else part.axis
        step = 1 if axis is None else expr.stride(axis)
        at = index(emit, expr, without=axis)
        start = _ZERO if part is None or axis is None else part.start
        indices.append(start if step > 1 else _sum(emit, at, start))
        offsets.append(at if step > 1 else _ZERO)
        steps.append(step)
    if any(step > 1 for step in steps):
        memory = _strided(emit, memory, parts, offsets, steps)
    held = range(min(parts, default=0), len(index_map))  # one element of the dimensions before
    some = any(p.valid is not None for p in parts.values())
    valid = [_existing(parts.get(d)) for d in held] if some else []
    return Window(memory, indices, tuple(parts[d].size if d in parts else 1 for d in held), valid)


def _existing(part: Part | None) -> Operand:
    return number(1) if part is None else part.valid or number(part.size)


def _strided(
    emit: KernelEmit, memory: Value, parts: Mapping[int, Part], offsets: Sequence[Operand], steps: Sequence[int]
) -> Value:
    """The strided view of a memory: offsets and steps by dimension."""
    t = memref_type(memory)
    own = emit.shape_of[memory]
    shape = [parts[d].axis.size if step > 1 else n for d, (n, step) in enumerate(zip(own, steps, strict=True))]  # type: ignore[union-attr]
    to = view_type(t, opened(shape), [constant(x) for x in offsets], list(steps))
    sizes = [emit.extent(n) for n in shape]
    return emit.builder.op("memref.subview", memory, offsets, sizes, list(map(number, steps)), to=to, name=memory.name)


def index(emit: KernelEmit, expr: AffineExpr, without: Axis | None = None) -> Operand:
    """The index of the block along a dimension of memory, with the axis `without` at its beginning."""
    at: Operand = number(0)
    for axis, step in expr.terms:
        if axis is not without:
            at = _sum(emit, at, _times(emit, emit.at[axis], step))
    for v, step in expr.shifts:
        at = _sum(emit, at, _times(emit, emit.position(v), step))
    return _sum(emit, at, number(expr.start))


def _times(emit: KernelEmit, x: Operand, factor: Stride) -> Operand:
    if factor == 1 or constant(x) == 0:
        return x
    if isinstance(factor, Scaled):
        x = _times(emit, x, factor.number)
        for s in factor.symbols:
            x = emit.builder.op("muli", _value(emit, x), emit.extents[s])
        return x
    if isinstance(x, Literal) and (known := constant(x)) is not None:
        return number(known * factor)
    return emit.builder.op("muli", _value(emit, x), emit.constant(number(factor)))


def _sum(emit: KernelEmit, x: Operand, y: Operand) -> Operand:
    a, b = constant(x), constant(y)
    if a == 0 or b == 0:
        return y if a == 0 else x
    if isinstance(x, Literal) and isinstance(y, Literal) and a is not None and b is not None:
        return number(a + b)
    return emit.builder.op("addi", _value(emit, x), _value(emit, y))


def _value(emit: KernelEmit, x: Operand) -> Value:
    """An operand as a value, since arithmetic takes no literals."""
    if isinstance(x, Literal):
        return emit.constant(x)
    assert isinstance(x, Value)
    return x


# Pieces


def _parts(emit: KernelEmit, index_map: AffineMap) -> tuple[dict[int, Part], bool]:
    """The parts of a memory's dimensions in a block, and whether its columns come before its rows."""
    layout, by_dim = emit.layout, dict[int, Part]()
    places: dict[str, int] = {}
    for name, axis, n in (("rows", layout.row, emit.blocks.high), ("columns", layout.column, emit.blocks.wide)):
        for d in (d for d, expr in enumerate(index_map) if axis in expr.axes):
            require(d not in by_dim, NOT_TRANSLATABLE, "rows and columns of a block are in one dimension of memory")
            assert axis is not None
            by_dim[d] = Part(axis, emit.at[axis], n, emit.valid[name])
            places[name] = d
    turned = places.get("columns", 0) < places.get("rows", -1)
    whole = emit.blocks.parts == 1 or not places or (len(places) == len(KINDS) // 2 and not turned)
    require(whole, NOT_TRANSLATABLE, "a row in parts is loaded and stored with others, each whole")
    return by_dim, turned


def load(emit: KernelEmit, read: Read) -> BlockValue:
    """Load the block of an operand; a loop invariant is loaded before the loops."""
    assert isinstance(read.base, Value)
    memory, index_map, name = emit.memory[read.base], read.index_map or (AffineExpr(),), read.base.name
    kind = emit.layout.kind(read.memory)
    parts, turned = _parts(emit, index_map)
    if kind == POINT:
        parts = {len(index_map) - 1: Part(None, number(0), _unit(memory), number(1))}
    elif not parts:  # a row where all extents are 1
        parts = {len(index_map) - 1: Part(None, number(0), emit.blocks.columns, emit.valid["columns"])}
    fixed = all(isinstance(emit.at[a], Literal) for a in flat(read.memory))
    with emit.builder.inside(emit.top if fixed else emit.builder.block):
        w = window(emit, memory, index_map, parts)
        to = tile(dtype_of(memory), w.shape)
        result = emit.builder.op("tile.load", w.memory, w.indices, w.valid, [], to=to, name=name)
        if kind != POINT:
            return BlockValue(kind, _upright(emit, result, kind, turned))
    return _point(emit, result)


def _unit(memory: Value) -> int:
    """The least number of elements of a tile."""
    return ALIGNMENT // dtype_of(memory).size


def _upright(emit: KernelEmit, x: Value, kind: str, turned: bool) -> Value:
    """A loaded tile, transposed to the block's rows and columns if needed."""
    to = emit.type_of(kind, dtype_of(x))
    if not turned:
        return reshaped(emit, x, to, emit.existing(kind))
    valid = emit.existing(kind)[::-1]
    x = reshaped(emit, x, tile(to.dtype, to.shape[::-1]), valid)
    return emit.builder.op("tile.trans", x, [], [], to=to, name=x.name)


def counted(emit: KernelEmit, read: Read) -> BlockValue:
    """An iota along one axis of the block, computed instead of loaded."""
    require(emit.blocks.parts == 1, NOT_TRANSLATABLE, "an iota needs whole rows")
    x = read.base
    assert isinstance(x, Value) and isinstance(x.type, TensorType) and x.op is not None
    dtype, expr = x.type.dtype, read.index_map[x.op.attr("axis") % x.type.rank]
    sides = [(a, kind) for a, kind in ((emit.layout.row, COLUMN), (emit.layout.column, ROW)) if a in expr.axes]
    inside = {a for a, _ in sides}
    start = index(emit, AffineExpr(tuple(t for t in expr.terms if t[0] not in inside), expr.start, expr.shifts))
    result: BlockValue | None = None
    for axis, kind in sides:
        assert axis is not None
        step, n = expr.stride(axis), emit.blocks.columns if kind == ROW else emit.blocks.rows
        first = emit.at[axis] if step > 1 else _sum(emit, emit.at[axis], start)
        row = emit.builder.op("tile.ci", _counter(emit, first), [], [], to=tile(SI32, (1, n)), name=x.name)
        piece = BlockValue(kind, reshaped(emit, row, emit.type_of(kind, SI32), []))
        if step > 1:
            factor = emit.scalar(step, SI32)
            piece = emit.tile_op("muls", kind, SI32, piece.value, factor)
            piece = emit.tile_op("adds", kind, SI32, piece.value, _counter(emit, start)) if constant(start) != 0 else piece
        start = number(0)
        result = piece if result is None else emit.tile_op("add", FULL, SI32, emit.spread(result).value, emit.spread(piece).value)
    if result is not None:
        return BlockValue(result.kind, emit.converted(result.value, dtype))
    at = _counter(emit, start)
    return BlockValue(SCALAR, emit.builder.op("sitofp" if dtype.is_float else "index_cast", at, to=scalar(dtype)))


def _counter(emit: KernelEmit, x: Operand) -> Value:
    return emit.builder.op("index_cast", _value(emit, x), to=scalar(SI32))


def _point(emit: KernelEmit, x: Value) -> BlockValue:
    """A single element as a row: it is spread over a row, whose maximum is taken."""
    n = elements_of(x)
    columns, valid = emit.blocks.columns, emit.valid["columns"] or number(emit.blocks.columns)
    dtype = dtype_of(x)
    x = reshaped(emit, x, tile(dtype, (n, 1)), [number(1), number(1)])
    x = emit.builder.op("tile.rowexpand", x, [number(1), valid], [], to=tile(dtype, (n, columns)), name=x.name)
    return emit.tile_op("colmax", ROW, dtype, x)


def store(emit: KernelEmit, piece: BlockValue, memory: Value, index_map: AffineMap) -> None:
    """Store the block of a value into its memory; an accumulator directly where its shape fits."""
    index_map = index_map or (AffineExpr(),)
    kind = emit.layout.kind(tuple(s.axes for s in index_map))
    parts, turned = _parts(emit, index_map)
    t, dtype = piece.value.type, dtype_of(memory)
    direct = isinstance(t, TileType) and t.loc == "Acc"
    if direct and kind == ROW and emit.layout.row is None and min(parts) > 0:  # the product is a single row
        kind, parts[min(parts) - 1] = FULL, Part(None, number(0), emit.blocks.rows, emit.valid["rows"])
    if direct and (kind != FULL or turned):
        piece, direct = BlockValue(piece.kind, out(emit, piece.value, dtype)), False
    piece = piece if direct else _fitting(emit, piece, kind)
    result = piece.value
    assert isinstance(result.type, TileType)
    if kind == POINT or not parts:
        parts = {len(index_map) - 1: Part(None, number(0), elements_of(result), number(1))}
    if turned:
        result = emit.builder.op("tile.trans", result, [], [], to=tile(dtype, result.type.shape[::-1]), name=result.name)
    w = window(emit, memory, index_map, parts)
    to = tile(tile_of(result).dtype, w.shape, "Acc") if direct else tile(dtype, w.shape)
    result = reshaped(emit, result, to, w.valid)
    emit.builder.op("tile.store", result, w.memory, w.indices, w.valid, [])


def out(emit: KernelEmit, acc: Value, dtype: DType) -> Value:
    """An accumulator moved to Vec, in elements of the result."""
    return emit.builder.op("tile.mov.a2v", acc, [], [], to=tile(dtype, tile_of(acc).shape, "Vec"))


def _fitting(emit: KernelEmit, piece: BlockValue, kind: str) -> BlockValue:
    """A piece cropped to the rows and columns of its memory; a single element may be the first of more."""
    if kind == POINT:
        return emit.spread(piece, ROW) if piece.kind == SCALAR else piece
    if piece.kind == FULL and kind != FULL:
        return emit.tile_op("colmax" if kind == ROW else "rowmax", kind, piece.dtype, piece.value)
    if {piece.kind, kind} == {ROW, COLUMN}:
        return _fitting(emit, emit.spread(piece), kind)
    return emit.spread(piece, kind)


def reshaped(emit: KernelEmit, x: Value, to: TileType, valid: Sequence[Operand]) -> Value:
    """`x` as a tile of another shape; `valid` is of that shape."""
    if tile_of(x).shape == to.shape:
        return x
    return emit.builder.op("tile.reshape", x, list(valid), [], to=to, name=x.name)
