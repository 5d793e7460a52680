"""A PTO function in the making: the blocks of one kernel looped over, what it reads loaded, what it makes stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ptir_tools.convert.naming import spelled
from ptir_tools.convert.ptir_to_pto.axes import Axis
from ptir_tools.convert.ptir_to_pto.block import Block
from ptir_tools.convert.ptir_to_pto.kernel import COUNT, PRODUCT
from ptir_tools.convert.ptir_to_pto.memory import counted, load, store
from ptir_tools.convert.ptir_to_pto.tiling import SCALAR
from ptir_tools.convert.ptir_to_pto.values import Piece, memory_type, number
from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.ir import Literal, Op, Program, Value
from ptir_tools.core.types import MemRefType

Rule = Callable[..., Piece]  # of the block, the op, and its pieces


class Emit(Block):
    """One kernel with blocks of one size. `pieces` holds what its values are in the block (None: in error)."""

    def __init__(self, *block: Any, rules: Mapping[str, Rule], report: Diagnostics) -> None:
        super().__init__(*block)
        self.rules = rules
        self.report = report
        self.pieces: dict[Value, Piece | None] = {}
        self.loaded: dict[object, Piece] = {}

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
        read = self.shapes.reads[op, i]
        base, key = read.base, (read.base, read.memory, read.starts)
        if isinstance(base, Literal):
            return Piece(SCALAR, self.constant(base))
        assert isinstance(base, Value)
        if base in self.pieces:
            return self.pieces[base]
        if key not in self.loaded:
            counts = base.op is not None and base.op.defn.short == COUNT
            self.loaded[key] = counted(self, read) if counts else load(self, read)
        return self.loaded[key]
