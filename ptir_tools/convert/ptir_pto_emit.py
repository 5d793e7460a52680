"""A PTO function in the making: the blocks of one kernel looped over, what it reads loaded, what it makes stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_pto_axes import Axis
from ptir_tools.convert.ptir_pto_frame import COLUMN, FULL, ROW, SCALAR, Blocks, Frame
from ptir_tools.convert.ptir_pto_kernel import PRODUCT, Shapes
from ptir_tools.convert.ptir_pto_memory import load, store
from ptir_tools.convert.ptir_pto_pieces import Piece, memory_type, number, one, widened
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import Literal, Op, Operand, Program, Region, Value
from ptir_tools.core.types import INDEX_TYPE, MemRefType, TileType, tile
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.pto.targets import Target

Rule = Callable[..., Piece]  # of an Emit, the op, and its pieces


class Emit:
    """One kernel with blocks of one size. `pieces` holds what its values are in the block (None: in error)."""

    def __init__(
        self,
        name: str,
        shapes: Shapes,
        frame: Frame,
        blocks: Blocks,
        target: Target,
        rules: Mapping[str, Rule],
        report: Diagnostics,
    ) -> None:
        self.shapes = shapes
        self.frame = frame
        self.blocks = blocks
        self.target = target
        self.rules = rules
        self.report = report
        self.program, self.builder = single_function(load_dialect("pto"), name)
        self.top = self.program.main
        self.name = ""  # of the value at hand
        self.pieces: dict[Value, Piece | None] = {}
        self.memory: dict[Value, Value] = {}
        self.loaded: dict[Any, Piece] = {}
        self.at: dict[Axis, Operand] = {}  # where the block is
        self.valid: dict[str, Operand | None] = {}  # the rows and columns of the block that exist; None: all

    # The function

    def run(self, inputs: Sequence[tuple[Value, str]], outputs: Sequence[tuple[Value, str]]) -> Program:
        """The whole function, whose parameters are `inputs` and `outputs`; what cannot be said goes to `report`."""
        for v, name in (*inputs, *outputs):
            made = self.builder.param(memory_type(v), name)
            if isinstance(made.type, MemRefType):
                self.memory[v] = made
            else:
                self.pieces[v] = Piece(SCALAR, made)
        frame, blocks = self.frame, self.blocks
        loops = [(a, a.size, 1) for a in frame.loops]
        loops += [(frame.row, frame.rows, blocks.rows)] if frame.row is not None else []
        self.loop([*loops, (frame.column, frame.columns, blocks.columns)], [v for v, _ in outputs])
        return self.program

    def loop(self, loops: Sequence[tuple[Axis, int, int]], outputs: Sequence[Value]) -> None:
        """Go through the blocks: a loop for every axis that has more than one."""
        if not loops:
            self.body(outputs)
            return
        (axis, extent, step), *rest = loops
        if extent <= step:
            self.at[axis] = number(0)
            self.loop(rest, outputs)
            return
        with self.looped(number(0), number(extent), step) as i:
            self.at[axis] = i
            self.loop(rest, outputs)

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

    def body(self, outputs: Sequence[Value]) -> None:
        """One block: every op in order, then the stores."""
        row = self.at[self.frame.row] if self.frame.row is not None else number(0)
        self.valid = {
            "rows": self.left(row, self.frame.rows, self.blocks.rows),
            "columns": self.left(self.at[self.frame.column], self.frame.columns, self.blocks.columns),
        }
        for op in self.shapes.body:
            self.builder.loc, self.name = op.loc, spelled(op.result.name)
            try:
                self.pieces[op.result] = piece = self.op(op)
                if piece is not None and op.result in outputs:
                    store(self, piece, self.memory[op.result], self.shapes.made[op.result])
            except Violation as violation:
                self.report.violation(violation, op.loc)
                self.pieces[op.result] = None

    def left(self, at: Operand, extent: int, step: int) -> Operand | None:
        """How much of a block at `at` (a literal: at the beginning) exists: None for all of it."""
        if extent % step == 0 or (isinstance(at, Literal) and extent > step):
            return None
        if isinstance(at, Literal):
            return number(extent)
        rest = self.builder.op("subi", self.constant(number(extent)), at)
        return self.builder.op("minsi", self.constant(number(step)), rest)

    def op(self, op: Op) -> Piece | None:
        """One op of the source by its rule; None where what it reads is in error."""
        rule = self.rules[op.defn.short]
        if op.defn.short == PRODUCT:
            return rule(self, op)
        pieces = [self.piece(op, i) for i in range(len(op.operands))]
        return None if None in pieces else rule(self, op, *pieces)

    # Pieces

    def piece(self, op: Op, i: int) -> Piece | None:
        """What an operand is in this block; what is in memory is loaded when it is first used."""
        base, dims = self.shapes.reads[op, i].base, self.shapes.reads[op, i].memory
        if isinstance(base, Literal):
            return Piece(SCALAR, self.constant(base))
        assert isinstance(base, Value)
        if base in self.pieces:
            return self.pieces[base]
        if (base, dims) not in self.loaded:
            self.loaded[base, dims] = load(self, self.memory[base], dims, base.name)
        return self.loaded[base, dims]

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
        found = tile(dtype, shape[-1:] if self.frame.is_flat else shape)
        assert isinstance(found, TileType)
        return found

    def make(self, short: str, kind: str, dtype: DType, *operands: Operand, valid: Sequence[Operand] = (), **attrs: Any) -> Piece:
        """Append a tile op that makes one piece, in wider elements where the target does not have it in these."""
        given, wide = widened(self, short, dtype, operands)
        to = self.type_of(kind, wide)
        made = self.builder.op(f"tile.{short}", *given, list(valid), [], to=to, name=self.name, **attrs)
        if wide is not dtype:
            made = self.builder.op("tile.cvt", made, [], [], to=self.type_of(kind, dtype), name=self.name)
        return Piece(kind, made)

    def spread(self, piece: Piece, kind: str = FULL) -> Piece:
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
