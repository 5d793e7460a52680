"""The block of a kernel at hand: where it is, what of it exists, and the tile ops that are appended for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ptir_tools.convert.ptir_to_pto.axes import Axis
from ptir_tools.convert.ptir_to_pto.kernel import Shapes
from ptir_tools.convert.ptir_to_pto.tiling import COLUMN, FULL, ROW, SCALAR, Blocks, Frame
from ptir_tools.convert.ptir_to_pto.values import Piece, number, one, wider
from ptir_tools.core.builder import single_function
from ptir_tools.core.dtypes import I1, DType
from ptir_tools.core.ir import Literal, Operand, Region, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import INDEX_TYPE, TileType, scalar, tile
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.pto.targets import Target


class Block:
    """A PTO function in the making. `at` is where the block is in each axis, `memory` the memrefs of values."""

    def __init__(self, name: str, shapes: Shapes, frame: Frame, blocks: Blocks, target: Target) -> None:
        self.shapes = shapes
        self.frame = frame
        self.blocks = blocks
        self.target = target
        self.program, self.builder = single_function(load_dialect("pto"), name)
        self.top = self.program.main
        self.name = ""  # of the value at hand
        self.memory: dict[Value, Value] = {}
        self.at: dict[Axis, Operand] = {}
        self.valid: dict[str, Operand | None] = {}  # the rows and columns of the block that exist; None: all

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
        found = tile(dtype, shape[-1:] if self.frame.is_flat else shape)
        assert isinstance(found, TileType)
        return found

    def make(self, short: str, kind: str, dtype: DType, *operands: Operand, valid: Sequence[Operand] = (), **attrs: Any) -> Piece:
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
        return Piece(kind, self.converted(made, dtype))

    def converted(self, x: Operand, dtype: DType) -> Value:
        """A tile or scalar in other elements."""
        t = operand_type(x)
        if t.dtype is dtype:  # type: ignore[attr-defined]
            return x  # type: ignore[return-value]
        if isinstance(t, TileType):
            return self.builder.op("tile.cvt", x, [], [], to=tile(dtype, t.shape), name=self.name)
        return self.builder.op("extf" if dtype.is_float else "extsi", x, to=scalar(dtype), name=self.name)

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
