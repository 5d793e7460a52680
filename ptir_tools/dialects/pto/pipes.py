"""The pipe that executes an op, and the opcode of its event."""

from __future__ import annotations

from functools import cache

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import ASYNC, Op, OpDef, operand_type
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.facts import facts, facts_of
from ptir_tools.dialects.pto.structure import SYNCALL
from ptir_tools.dialects.pto.types import EventType, TileType

EVERY_PIPE = ("ALL", SYNCALL)  # what a barrier says that waits for every pipe
PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")


@cache
def opcodes_of(d: OpDef) -> tuple[str, ...]:
    """The opcodes of an op, the canonical one first: `tile.mov.m2l` is TMOV_M2L."""
    f = facts_of(d)
    by_name = "T" + d.short.removeprefix("tile.").replace(".", "_").upper()
    return (*[opcode for opcode, _ in f.stores.values()], *(f.opcodes or (by_name,)))


def opcodes(op: Op) -> tuple[str, ...]:
    """The opcodes that an event of `op` may have as producer."""
    return producers(op.defn, operand_type(op.operands[0]) if op.operands else None)


def producers(d: OpDef, first: Type | None) -> tuple[str, ...]:
    """As `opcodes`, of an op with this first operand: the opcode of a store depends on the location of its tile."""
    known = opcodes_of(d)
    stores = facts_of(d).stores
    if stores and isinstance(first, TileType) and first.loc is not None:
        return (stores[first.loc][0] if first.loc in stores else known[0], *known[len(stores) :])
    return known


@cache
def is_tile_op(d: OpDef) -> bool:
    """Whether the op runs on a pipe and may be asynchronous."""
    return ASYNC in d.traits


def pipe_of(op: Op) -> str:
    """The pipe of an op; `S`, the scalar one, for an op that is not a tile op."""
    f = facts(op)
    t = operand_type(op.operands[0]) if f.stores else None
    return f.stores[t.loc][1] if isinstance(t, TileType) and t.loc is not None and t.loc in f.stores else f.pipe


def unit(op: Op) -> str | None:
    """As `pipe_of`; None for an op that no pipe executes."""
    return pipe_of(op) if is_tile_op(op.defn) else None


def asynchronous(op: Op) -> bool:
    """Whether a tile op signals an event."""
    return bool(op.results) and op.results[-1].type.__class__ is EventType and is_tile_op(op.defn)


def pipes_of_barrier(opcode: str) -> list[int]:
    """The numbers of the pipes that a barrier waits for."""
    return [i for i, name in enumerate(PIPES) if opcode in EVERY_PIPE or name in pipes_of_opcode(opcode)]


@cache
def pipes_of_opcode(opcode: str) -> tuple[str, ...]:
    """The pipes of the ops with this opcode. A push is in one or the other, by the location of its tile."""
    for d in OPS.values():
        if d.traits & ASYNC and opcode in opcodes_of(d):
            f = facts_of(d)
            return tuple(pipe for own, pipe in f.stores.values() if own == opcode) or (f.pipe,)
    return ()
