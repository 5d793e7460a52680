"""A PTO function in the making: the blocks of one kernel looped over, what it reads loaded, what it makes stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ptir_tools.convert.emitter import Emit, Rule
from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_to_pto.axes import Axis
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, Shapes, reads_itself
from ptir_tools.convert.ptir_to_pto.layout import COLUMN, FULL, ROW, SCALAR, Blocks, Layout
from ptir_tools.convert.ptir_to_pto.memory import counted, load, store
from ptir_tools.convert.ptir_to_pto.values import BlockValue, memory_type, number, one, wider
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import I1, SI8, DType
from ptir_tools.core.ir import Function, Literal, Op, Operand, Program, Region, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import tensor
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType, scalar, tile


class KernelEmit(Emit[BlockValue]):
    """One kernel with blocks of one size. `at` is where the block at hand is in each axis, `memory` the memrefs of values,
    `valid` the rows and columns of the block that exist (None: all)."""

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
        self.valid: dict[str, Operand | None] = {}
        self.loaded: dict[object, BlockValue] = {}
        self.positions: dict[Value, Value] = {}

    def spelled(self, name: str) -> str:
        """`name` in PTO's letters."""
        return spelled(name)

    # The function

    def run(self, inputs: Sequence[tuple[Value, str]], outputs: Sequence[tuple[Value, str]]) -> Program:
        """The whole function, whose parameters are `inputs` and `outputs`; what cannot be said is reported."""
        for v, name in (*inputs, *outputs):
            outline = self.shapes.outline
            made = self.builder.param(memory_type(outline.memory(v), v in outline.scalars), name)
            if isinstance(made.type, MemRefType):
                self.memory[v] = made
            else:
                self.values[v] = BlockValue(SCALAR, made)
        layout, blocks = self.layout, self.blocks
        loops = [(a, a.size, 1) for a in layout.loops]
        loops += [(layout.row, layout.rows, blocks.rows)] if layout.row is not None else []
        self.loop([*loops, (layout.column, layout.columns, blocks.columns)], [v for v, _ in outputs])
        return self.program

    def loop(self, loops: Sequence[tuple[Axis, int, int]], outputs: Sequence[Value]) -> None:
        """Go through the blocks: a loop for every axis that has more than one."""
        if not loops:
            self.block(outputs)
            return
        (axis, extent, step), *rest = loops
        if extent <= step:
            self.at[axis] = number(0)
            self.loop(rest, outputs)
            return
        with self.looped(number(0), number(extent), step) as i:
            self.at[axis] = i
            self.loop(rest, outputs)

    def block(self, outputs: Sequence[Value]) -> None:
        """One block: every op in order, then the stores."""
        row = self.at[self.layout.row] if self.layout.row is not None else number(0)
        self.valid = {
            "rows": self.left(row, self.layout.rows, self.blocks.rows),
            "columns": self.left(self.at[self.layout.column], self.layout.columns, self.blocks.columns),
        }
        self.stored = frozenset(outputs)
        for op in self.shapes.body:
            self.values[op.result] = self.convert(op)

    def translated(self, op: Op) -> BlockValue:
        """One op of the source by its rule, and the store of what is kept. Raises Violation or InError."""
        made = super().translated(op)
        if op.result in self.stored:
            store(self, made, self.memory[op.result], self.shapes.place(op.result))
        return made

    def operands(self, op: Op) -> list[BlockValue]:
        """What the operands are in this block, except those that the rule reads from memory."""
        outline = self.shapes.outline
        return [self.operand(op, i) for i in range(len(op.operands)) if not reads_itself(op, i, outline)]

    def operand(self, op: Op, i: int) -> BlockValue:
        """What an operand is in this block; what is in memory is loaded when it is first used. Raises InError."""
        read = self.shapes.reads[op, i]
        base, key = read.base, (read.base, read.spots)
        if isinstance(base, Literal):
            return BlockValue(SCALAR, self.constant(Literal(tensor(SI8), base.data, True) if base.type.dtype is I1 else base))
        assert isinstance(base, Value)
        if base in self.values:
            found: BlockValue = self.read(base)
            return self.mask(found) if found.dtype is I1 else found
        if key not in self.loaded:
            counts = base.op is not None and base.op.defn.short == COUNT
            self.loaded[key] = counted(self, read) if counts else load(self, read)
        return self.loaded[key]

    def mask(self, x: BlockValue) -> BlockValue:
        """A scalar of i1 as an element of a mask."""
        yes, no = (self.constant(Literal(tensor(SI8), bytes([n]))) for n in (1, 0))
        return BlockValue(SCALAR, self.builder.op("select", x.value, yes, no))

    @contextmanager
    def looped(self, lower: Operand, upper: Operand, step: int, *carried: tuple[Value, str]) -> Iterator[Any]:
        """The block of a loop, which is appended at its end. Gives the index, or with `carried` a list of it and of what is
        carried; what is put at the list's end is yielded, and after the loop the list holds its results."""
        body = Region("body", isolated=False, result_types=[v.type for v, _ in carried])
        body.params = [Value(INDEX_TYPE, self.builder.name("i")), *(Value(v.type, self.builder.name(n)) for v, n in carried)]
        outer, self.builder.block = self.builder.block, body
        state: list[Value] = list(body.params)
        yield state if carried else body.params[0]
        self.builder.block = outer
        body.results = list(state[len(body.params) :])
        inits = [v for v, _ in carried]
        made = self.builder.op("scf.for", lower, upper, number(step), inits, regions=[body], name="acc" if carried else "")
        state[:] = [made]

    def left(self, at: Operand, extent: int, step: int) -> Operand | None:
        """How much of a block at `at` (a literal: at the beginning) exists: None for all of it."""
        if extent % step == 0 or (isinstance(at, Literal) and extent > step):
            return None
        if isinstance(at, Literal):
            return number(extent)
        rest = self.builder.op("subi", self.constant(number(extent)), at)
        return self.builder.op("minsi", self.constant(number(step)), rest)

    def position(self, v: Value) -> Value:
        """A scalar as an index."""
        found = self.positions.get(v)
        if found is None:
            outer, self.builder.block = self.builder.block, self.top
            given: BlockValue = self.read(v)
            found = self.positions[v] = self.builder.op("index_cast", given.value, to=INDEX_TYPE)
            self.builder.block = outer
        return found

    # Tiles

    def constant(self, x: Literal) -> Value:
        """The number that all elements of a literal are, as a constant of the function."""
        outer, self.builder.block = self.builder.block, self.top
        same = (op.result for op in self.top.body if op.defn.is_constant and op.attr("value").key == one(x).key)
        made = next(same, None) or self.builder.op("constant", value=one(x))
        self.builder.block = outer
        return made

    def type_of(self, kind: str, dtype: DType) -> TileType:
        """The type of the tile that a piece of this kind is."""
        rows, columns = self.blocks.rows, self.blocks.columns
        shape = {FULL: (rows, columns), COLUMN: (rows, 1), ROW: (1, columns)}[kind]
        found = tile(dtype, shape[-1:] if self.layout.is_flat else shape)
        assert isinstance(found, TileType)
        return found

    def make(
        self, short: str, kind: str, dtype: DType, *operands: Operand, valid: Sequence[Operand] = (), **attrs: Any
    ) -> BlockValue:
        """Append a tile op that makes one piece, in wider elements where the target does not have it in these."""
        types = [operand_type(x) for x in operands]
        tiles = [t.dtype for t in types if isinstance(t, TileType)]
        computed = tiles[short == "sel"] if tiles else dtype
        wide = wider(self.target, short, computed)
        if wide is not computed:  # a mask is no element of the others
            mine = [t.dtype is computed and not (i == 0 and short == "sel") for i, t in enumerate(types)]  # type: ignore[attr-defined]
            operands = tuple(self.converted(x, wide) if own else x for x, own in zip(operands, mine, strict=True))
        result = wide if dtype is computed else dtype
        to = self.type_of(kind, result)
        made = self.builder.op(f"tile.{short}", *operands, list(valid), [], to=to, name=self.name, **attrs)
        return BlockValue(kind, self.converted(made, dtype))

    def converted(self, x: Operand, dtype: DType) -> Value:
        """A tile or scalar in other elements."""
        t = operand_type(x)
        if t.dtype is dtype:  # type: ignore[attr-defined]
            return x  # type: ignore[return-value]
        if isinstance(t, TileType):
            return self.builder.op("tile.cvt", x, [], [], to=tile(dtype, t.shape), name=self.name)
        return self.builder.op("extf" if dtype.is_float else "extsi", x, to=scalar(dtype), name=self.name)

    def spread(self, piece: BlockValue, kind: str = FULL) -> BlockValue:
        """A piece as one of another kind that has more elements."""
        if piece.kind == kind:
            return piece
        short = {SCALAR: "expands", COLUMN: "rowexpand", ROW: "colexpand"}[piece.kind]
        return self.make(short, kind, piece.dtype, piece.value, valid=self.existing(kind))

    def existing(self, kind: str) -> list[Operand]:
        """What of a tile of this kind exists; nothing when all does."""
        rows, columns = self.valid["rows"], self.valid["columns"]
        given = {FULL: (rows, columns), COLUMN: (rows, None), ROW: (None, columns)}[kind]
        if not any(given):
            return []
        shape = self.type_of(kind, I1).shape
        return [v or number(n) for v, n in zip(given[-len(shape) :], shape, strict=True)]  # type: ignore[arg-type]
