"""The ops that give a function its structure: loops, calls, barriers, views of memory, addresses of tiles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import SEGMENTS, Function, Op, Operand, Region, Value
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.pto.types import TileType

if TYPE_CHECKING:
    from ptir_tools.rewrite.rewriter import Rewriter


def is_for(op: Op) -> bool:
    """A loop that counts: its operands are the bounds, the step and what it carries."""
    return op.defn.short == "scf.for"


def is_while(op: Op) -> bool:
    """A loop of two blocks, which ends between them."""
    return op.defn.short == "scf.while"


def is_loop(op: Op) -> bool:
    """Its blocks may run again."""
    return is_for(op) or is_while(op)


def is_call(op: Op) -> bool:
    """It runs another function."""
    return op.defn.short == "func.call"


def callees(ops: Iterable[Op], program: Program) -> list[Function]:
    """The functions of `program` that `ops` call, each once."""
    called = [program.function(op.attr("callee")) for op in ops if is_call(op)]
    return list(dict.fromkeys(f for f in called if f is not None))


def is_sync(op: Op) -> bool:
    """It only waits for events."""
    return op.defn.short == "sync"


def is_barrier(op: Op) -> bool:
    """It waits for all ops of a pipe, or of every pipe."""
    return op.defn.short == "sync.op"


def is_view(op: Op) -> bool:
    """Its result is a window of its memory operand."""
    return op.defn.short == "memref.subview"


def is_assign(op: Op) -> bool:
    """It gives a tile, operand 0, its address, operand 1."""
    return op.defn.short == "tile.assign"


def value_of(x: Operand) -> Value:
    """An operand that cannot be a literal: a tile, an event or a memref."""
    assert isinstance(x, Value)
    return x


def tiles_of(op: Op) -> list[Value]:
    """The tile operands of an op."""
    return [x for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]


def has_addresses(block: Region) -> bool:
    """Whether tiles in a block have addresses."""
    return any(map(is_assign, block.ops()))


def set_waits(rw: Rewriter, op: Op, waits: Sequence[Operand]) -> None:
    """Make a tile op wait for these events alone: they are its last group of operands."""
    *lengths, old = op.attr(SEGMENTS)
    rw.set_attrs(op, segments=(*lengths, len(waits)))
    rw.set_operands(op, [*op.operands[: len(op.operands) - old], *waits])


def unused_names(function: Region, letter: str) -> Iterator[str]:
    """`e0`, `e1`, … for the letter e, without the names that values of the function have."""
    blocks = [function, *(r for op in function.ops() for r in op.regions)]
    used = {v.name for b in blocks for v in (*b.params, *(v for op in b.body for v in op.results))}
    return (name for n in count() if (name := f"{letter}{n}") not in used)
