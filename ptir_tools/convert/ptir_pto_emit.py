"""A PTO function in the making: blocks of the frame looped over, what the arguments hold loaded, results stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_pto_frame import COLUMN, FULL, ROW, SCALAR, Blocks, Frame, op_types, unfit
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics, Violation, require
from ptir_tools.core.dtypes import I1, INDEX, DType
from ptir_tools.core.ir import Element, Literal, Op, Operand, Program, Region, Value
from ptir_tools.core.types import INDEX_TYPE, TensorType, TileType, memref, scalar, tensor, tile
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.pto.literals import integer

NOT_TRANSLATABLE = "NotTranslatable"


@dataclass(slots=True, frozen=True)
class Piece:
    """A value in the block at hand: a tile of the frame's rows and columns, of one of them, or a scalar."""

    kind: str
    value: Value

    @property
    def dtype(self) -> DType:
        """The element type."""
        found: DType = self.value.type.dtype  # type: ignore[attr-defined]
        return found


Rule = Callable[..., Piece]  # of an Emit, the op, and its operands


def number(n: int) -> Literal:
    """A literal index."""
    return integer(n, INDEX)


class Emit:
    """One translation with blocks of one size. `pieces` holds what PTIR values are in the block (None: in error)."""

    def __init__(self, program: Program, frame: Frame, blocks: Blocks, rules: Mapping[str, Rule], report: Diagnostics) -> None:
        self.source = program.main
        self.frame = frame
        self.blocks = blocks
        self.rules = rules
        self.report = report
        self.program, self.builder = single_function(load_dialect("pto"), spelled(self.source.name))
        self.top = self.program.main
        self.top.loc = self.source.loc
        self.name = ""  # of the value at hand
        self.pieces: dict[Value, Piece | None] = {}
        self.memory: dict[Value, Value] = {}
        self.lead: list[Operand] = []  # where the block is in the extents before rows and columns
        self.row: Operand = number(0)
        self.column: Operand = number(0)
        self.valid: dict[str, Operand | None] = {}  # the rows and columns of the block that exist; None: all

    # The function

    def run(self) -> Program:
        """The whole function; what cannot be said goes to `report`."""
        names = self.source.attrs.get("input_names") or [p.name for p in self.source.params]
        for p, name in zip(self.source.params, names, strict=True):
            self.parameter(p, spelled(name))
        keys = self.source.attrs.get("output_names") or [getattr(x, "name", "result") for x in self.source.results]
        outputs = [self.output(x, spelled(key)) for x, key in zip(self.source.results, keys, strict=True)]
        loops = [(n, 1) for n in self.frame.shape[:-2]]
        loops += [(self.frame.rows, self.blocks.rows), (self.frame.columns, self.blocks.columns)]
        self.loop(loops, [], outputs)
        return self.program

    def parameter(self, p: Value, name: str) -> None:
        """A scalar, or a memref of the parameter's shape."""
        reason = unfit(p.type) or ("a mask has no memory: cast it" if p.type.dtype is I1 else "")  # type: ignore[attr-defined]
        if reason:
            self.refuse(f"parameter %{p.name}: {reason}", self.source.loc)
            self.pieces[p] = None
            return
        assert isinstance(p.type, TensorType)
        if p.type.shape:
            self.memory[p] = self.builder.param(memref(p.type.dtype, p.type.shape), name)
        else:
            self.pieces[p] = Piece(SCALAR, self.builder.param(scalar(p.type.dtype), name))

    def output(self, x: Operand, name: str) -> Value | None:
        """A memref for a result."""
        t = x.type if isinstance(x, Value) else None
        good = isinstance(t, TensorType) and not unfit(t) and t.dtype is not I1 and t.shape and self.frame.kinds(t)
        if not good:
            self.refuse("a result must be a tensor of the program's largest shape, or a row or column of it", self.source.loc)
            return None
        assert isinstance(t, TensorType)
        return self.builder.param(memref(t.dtype, t.shape), name)

    def loop(self, loops: list[tuple[int, int]], at: list[Operand], outputs: Sequence[Value | None]) -> None:
        """Go through the blocks: a loop for every extent that has more than one."""
        if not loops:
            self.body(at, outputs)
            return
        (extent, step), *rest = loops
        if extent <= step:
            self.loop(rest, [*at, number(0)], outputs)
            return
        with self.looped(number(0), number(extent), step) as i:
            self.loop(rest, [*at, i], outputs)

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

    def body(self, at: list[Operand], outputs: Sequence[Value | None]) -> None:
        """One block: every op in order, then the stores."""
        *self.lead, self.row, self.column = at
        self.valid = {
            "rows": self.left(self.row, self.frame.rows, self.blocks.rows),
            "columns": self.left(self.column, self.frame.columns, self.blocks.columns),
        }
        for op in self.source.body:
            self.builder.loc, self.name = op.loc, spelled(op.result.name) if op.results else ""
            try:
                self.op(op)
            except Violation as violation:
                self.report.violation(violation, op.loc)
                self.pieces.update(dict.fromkeys(op.results))
        self.builder.loc, self.name = self.source.loc, ""
        for x, memory in zip(self.source.results, outputs, strict=True):
            if memory is not None and isinstance(x, Value) and (piece := self.look(x)) is not None:
                self.store(piece, memory, x.type)

    def left(self, at: Operand, extent: int, step: int) -> Operand | None:
        """How much of a block at `at` (a literal: at the beginning) exists: None for all of it."""
        if extent % step == 0 or (isinstance(at, Literal) and extent > step):
            return None
        if isinstance(at, Literal):
            return number(extent)
        rest = self.builder.op("subi", self.constant(number(extent)), at)
        return self.builder.op("minsi", self.constant(number(step)), rest)

    def op(self, op: Op) -> None:
        """One op of the source by its rule."""
        rule = self.rules.get(op.defn.short)
        require(rule is not None, NOT_TRANSLATABLE, f"no tile op does what {op.defn.short} does", help=HELP.get(op.defn.short))
        assert rule is not None
        if any(isinstance(x, Element) or (x in self.pieces and self.pieces[x] is None) for x in op.operands):
            self.pieces[op.result] = None  # what makes a tuple has been refused
            return
        reason = next(filter(None, map(unfit, op_types(op))), "")
        require(not reason, NOT_TRANSLATABLE, reason)
        kinds = self.frame.kinds(op.result.type)  # type: ignore[arg-type]
        made = rule(self, op, *op.operands)
        fits = made.kind in kinds or FULL in kinds or (bool(kinds) and made.kind == SCALAR)
        message = f"{op.result.type} is neither {list(self.frame.shape)}, nor a row, a column or an element of it"
        require(fits, NOT_TRANSLATABLE, message, help="split the program where its shapes change")
        self.pieces[op.result] = made

    def refuse(self, message: str, loc: int) -> None:
        """Report what cannot be translated."""
        self.report.error(NOT_TRANSLATABLE, message, loc)

    # Tiles

    def type_of(self, kind: str, dtype: DType) -> TileType:
        """The type of the tile that a piece of this kind is."""
        rows, columns = self.blocks.rows, self.blocks.columns
        shape = {FULL: (rows, columns), COLUMN: (rows, 1), ROW: (1, columns)}[kind]
        found = tile(dtype, shape[-1:] if len(self.frame.shape) == 1 else shape)
        assert isinstance(found, TileType)
        return found

    def make(self, short: str, kind: str, dtype: DType, *operands: Operand, valid: Sequence[Operand] = (), **attrs: Any) -> Piece:
        """Append a tile op that makes one piece."""
        to = self.type_of(kind, dtype)
        made = self.builder.op(f"tile.{short}", *operands, list(valid), [], to=to, name=self.name, **attrs)
        return Piece(kind, made)

    def look(self, x: Value) -> Piece | None:
        """What a value is in this block; a parameter is loaded when it is first used."""
        if x not in self.pieces:
            self.pieces[x] = self.load(x)
        return self.pieces[x]

    def piece(self, x: Operand) -> Piece:
        """What an operand is in this block. Raises Violation for what is no tile."""
        if isinstance(x, Literal):
            return Piece(SCALAR, self.constant(x))
        found = self.look(x) if isinstance(x, Value) else None
        if found is None:
            raise Violation(NOT_TRANSLATABLE, "an element of a tuple is not a tile")
        return found

    def constant(self, x: Literal) -> Value:
        """The number that all elements of a literal are, as a constant of the function."""
        require(x.splat or x.type.shape == (), NOT_TRANSLATABLE, "PTO has no constant tiles; make the constant a parameter")
        outer, self.builder.block = self.builder.block, self.top
        same = (op.result for op in self.top.body if op.defn.is_constant and op.attr("value").key == _one(x).key)
        made = next(same, None) or self.builder.op("constant", value=_one(x))
        self.builder.block = outer
        return made

    def spread(self, piece: Piece, kind: str = FULL) -> Piece:
        """A piece as one of another kind that has more elements."""
        if piece.kind == kind:
            return piece
        short = {SCALAR: "expands", COLUMN: "rowexpand", ROW: "colexpand"}[piece.kind]
        return self.make(short, kind, piece.dtype, piece.value, valid=self.existing(kind))

    def existing(self, kind: str) -> list[Operand]:
        """What of a tile of this kind exists; nothing when all does."""
        axes = {FULL: ("rows", "columns"), COLUMN: ("rows", ""), ROW: ("", "columns")}[kind]
        shape = [n for n in self.type_of(kind, I1).shape if isinstance(n, int)]
        given = [self.valid.get(axis) for axis in axes][-len(shape) :]
        return [v or number(n) for v, n in zip(given, shape, strict=True)] if any(given) else []

    # Memory

    def window(self, kind: str, rank: int) -> tuple[list[Operand], tuple[int, ...], list[Operand]]:
        """Where the block is in a memory of that kind and rank, the extents of its tile there, and what is valid (if not all)."""
        rows = (self.row, self.blocks.rows, self.valid["rows"])
        columns = (self.column, self.blocks.columns, self.valid["columns"])
        parts = [columns]
        if kind == FULL and len(self.frame.shape) > 1:
            parts = [rows, columns]
        if kind == COLUMN:
            parts = [rows] if rank < len(self.frame.shape) else [rows, (number(0), 1, None)]
        before = self.lead if kind != ROW else [number(0)] * (rank - 1)
        indices = [*before, *(at for at, _, _ in parts)]
        shape = (*(1 for _ in before), *(n for _, n, _ in parts))
        partial = any(v is not None for _, _, v in parts)
        valid = [*(number(1) for _ in before), *(v or number(n) for _, n, v in parts)] if partial else []
        return indices, shape, valid

    def kind_of(self, p: Value) -> str:
        """What a parameter is of the frame; where it may be a row or a column, a column if it is reshaped to one."""
        assert isinstance(p.type, TensorType)
        kinds = [k for k in self.frame.kinds(p.type) if k != SCALAR]
        require(bool(kinds), NOT_TRANSLATABLE, f"%{p.name} of {p.type} is no part of {list(self.frame.shape)}")
        if kinds == [COLUMN, ROW]:
            uses = (op for op in self.source.body if op.defn.short == "reshape" and op.operands[0] is p)
            return COLUMN if any(op.result.type.shape[-1:] == (1,) for op in uses) else ROW  # type: ignore[attr-defined]
        return kinds[0]

    def load(self, p: Value) -> Piece:
        """The block of a parameter; one row for all blocks is loaded once."""
        kind = self.kind_of(p)
        assert isinstance(p.type, TensorType)
        outer = self.builder.block
        if kind == ROW and isinstance(self.column, Literal):
            self.builder.block = self.top
        indices, shape, valid = self.window(kind, p.type.rank)
        made = self.builder.op("tile.load", self.memory[p], indices, valid, [], to=tile(p.type.dtype, shape), name=p.name)
        made = self.reshaped(made, self.type_of(kind, p.type.dtype), valid, shape)
        self.builder.block = outer
        return Piece(kind, made)

    def store(self, piece: Piece, memory: Value, t: Any) -> None:
        """The block of a result into its memory."""
        kinds = self.frame.kinds(t)
        piece = self.spread(piece, piece.kind if piece.kind in kinds else kinds[0])
        indices, shape, valid = self.window(piece.kind, t.rank)
        made = self.reshaped(piece.value, tile(piece.dtype, shape), valid, shape)
        self.builder.op("tile.store", made, memory, indices, valid, [])

    def reshaped(self, x: Value, to: TileType, valid: Sequence[Operand], shape: Sequence[int]) -> Value:
        """`x` with or without the extents of 1 that stand before rows and columns; `valid` is of a tile of that shape."""
        if x.type.shape == to.shape:  # type: ignore[attr-defined]
            return x
        kept = iter([v for v, n in zip(valid, shape, strict=True) if n != 1] if valid else [])
        given = [number(1) if n == 1 else next(kept) for n in to.shape] if valid else []
        return self.builder.op("tile.reshape", x, given, [], to=to)


HELP = {
    "layer_norm": "`ptir opt -p decompose` makes it smaller ops",
    "tanh": "write it with exp",
    "transpose": "give the parameter in the order that is needed",
}


def _one(x: Literal) -> Literal:
    """A splat as the literal of rank 0."""
    return Literal(tensor(x.type.dtype, ()), (x.data or b"")[: x.type.dtype.size])
