"""FIFOs in C++: pipes of the library, and the cores that functions are for."""

from __future__ import annotations

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Op
from ptir_tools.dialects.pto.fifos import CUBE, VECTOR, users
from ptir_tools.dialects.pto.structure import is_pop, is_push
from ptir_tools.dialects.pto.targets import A3, Target
from ptir_tools.dialects.pto.text.fifos import Pipe

_SPLITS = {"none": "TILE_NO_SPLIT", "rows": "TILE_UP_DOWN", "columns": "TILE_LEFT_RIGHT"}
_GUARDS = {CUBE: "__DAV_CUBE__", VECTOR: "__DAV_VEC__"}


def guard(program: Program, function: Function) -> tuple[str, str]:
    """The lines before and after a function that is for one core."""
    core = users(program).get(function.name)
    return ("", "") if core is None else (f"#if defined({_GUARDS[core]})\n", "#endif\n")


def opening(name: str, slots: str, pipe: Pipe, target: Target) -> str:
    """The declaration of a pipe."""
    words = ["Direction::DIR_C2V" if pipe.direction == "c2v" else "Direction::DIR_V2C"]
    words += [str(pipe.op.attr("slotSize")), str(pipe.op.attr("slots")), "1", str(not pipe.split).lower()]
    buffers = (pipe.start, 0) if pipe.direction == "c2v" else (0, pipe.start)
    given = f"{slots}, 0, 0" if target is A3 else f"nullptr, {buffers[0]}, {buffers[1]}"
    return f"TPipe<{2 * pipe.number}, {', '.join(words)}> {name}({given});"


def place(name: str, pipe: Pipe, address: str) -> str:
    """Where the next pop of a3 puts its tile."""
    return f"{name}.fifo.{pipe.direction.upper()}_CONSUMER_BUF = {address};"


def passing(name: str, op: Op, tile: str) -> str:
    """A push or pop."""
    return f"{'TPUSH' if is_push(op) else 'TPOP'}<decltype({name}), decltype({tile}), {_axis(op)}>({name}, {tile});"


def freeing(name: str, op: Op, function: Function) -> str:
    """The slot of a tile that was popped is given back."""
    pop = next(x for x in function.ops() if is_pop(x) and x.attr("fifo") == op.attr("fifo"))
    return f"TFREE<decltype({name}), {_axis(pop)}>({name});"


def _axis(op: Op) -> str:
    return f"TileSplitAxis::{_SPLITS[op.attr('split')]}"
