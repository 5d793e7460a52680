"""The ops that give a function its structure: loops, calls, barriers, views of memory, addresses of tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import SEGMENTS, Function, Op, Operand, Region, Value, operand_type
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType

if TYPE_CHECKING:
    from ptir_tools.rewrite.rewriter import Rewriter


def _named(*shorts: str) -> Callable[[Op], bool]:
    """Whether an op has one of these names."""
    return lambda op: op.defn.short in shorts


is_for = _named("scf.for")  # a loop that counts: its operands are the bounds, the step and what it carries
is_while = _named("scf.while")  # a loop of two blocks, which ends between them
is_loop = _named("scf.for", "scf.while")  # its blocks may run again
is_call = _named("func.call")  # runs another function
is_sync = _named("sync")  # only waits for events
is_barrier = _named("sync.op")  # waits for all ops of a pipe, or of every pipe
is_view = _named("memref.subview")  # its result is a window of its memory operand
is_assign = _named("tile.assign")  # gives a tile, operand 0, its address, operand 1
is_open = _named("fifo.open")  # declares a FIFO between cores
is_push = _named("tile.push")  # puts a tile into a FIFO
is_pop = _named("tile.pop")  # takes a tile from a FIFO
is_free = _named("fifo.free")  # gives the slot of a tile back
moves = _named("tile.push", "tile.pop")  # passes a tile through a FIFO
is_subblock = _named("subblock")  # gives the number of the vector core that runs
is_block_idx = _named("block_idx")  # gives the number of the core of the launch that runs
SYNCALL = "SYNCALL"  # the opcode of a barrier for every core of the launch
BLOCK_DIM = "pto.block_dim"  # the attribute of an entry that says on how many cores it is launched


def block_dim(function: Function) -> int:
    """On how many cores a function is launched: its attribute `pto.block_dim`, else 1."""
    stated = str(function.attrs.get(BLOCK_DIM, 1)).partition(":")[0].strip()
    return int(stated) if stated.isdecimal() else 1


def meets(op: Op) -> bool:
    """Whether an op waits for every core of the launch."""
    return is_barrier(op) and op.attr("opcode") == SYNCALL


def callees(ops: Iterable[Op], program: Program) -> list[Function]:
    """The functions of `program` that `ops` call, each once."""
    called = [program.function(op.attr("callee")) for op in ops if is_call(op)]
    return list(dict.fromkeys(f for f in called if f is not None))


def is_fifo(op: Op) -> bool:
    """Whether an op uses a FIFO between cores."""
    return "fifo" in op.defn.attr_index


def value_of(x: Operand) -> Value:
    """An operand that cannot be a literal: a tile, an event or a memref."""
    assert isinstance(x, Value)
    return x


def tile_type(x: Operand) -> TileType:
    """The type of a tile."""
    t = operand_type(x)
    assert isinstance(t, TileType)
    return t


def memref_type(x: Operand) -> MemRefType:
    """The type of a memref."""
    t = operand_type(x)
    assert isinstance(t, MemRefType)
    return t


def tiles_of(op: Op) -> list[Value]:
    """The tile operands of an op."""
    return [x for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]


def has_events(block: Region) -> bool:
    """Whether ops in a block give events."""
    return any(isinstance(v.type, EventType) for op in block.ops() for v in op.results)


def has_addresses(block: Region) -> bool:
    """Whether tiles in a block have addresses."""
    return any(map(is_assign, block.ops()))


def own_assignments(function: Region) -> Iterator[tuple[Value, Op]]:
    """The tiles that get an address in the block that makes them, and the assignments."""
    for block in function.blocks():
        own = set(block.values())
        for op in filter(is_assign, block.body):
            if (tile := value_of(op.operands[0])) in own:
                yield tile, op


def set_waits(rw: Rewriter, op: Op, waits: Sequence[Operand]) -> None:
    """Make a tile op wait for these events alone: they are its last group of operands."""
    *lengths, old = op.attr(SEGMENTS)
    rw.set_attrs(op, segments=(*lengths, len(waits)))
    rw.set_operands(op, [*op.operands[: len(op.operands) - old], *waits])


def unused_names(function: Region, letter: str) -> Iterator[str]:
    """`e0`, `e1`, … for the letter e, without the names that values of the function have."""
    used = {v.name for block in function.blocks() for v in block.values()}
    return (name for n in count() if (name := f"{letter}{n}") not in used)
