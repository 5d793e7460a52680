"""Which pipe executes an op, and which opcode its event carries."""

from __future__ import annotations

from functools import cache

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import ASYNC, Op, OpDef, operand_type
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.types import TileType

PIPES = ("S", "V", "M", "MTE1", "MTE2", "MTE3", "FIX")

_PIPES = {
    "tile.load": "MTE2",
    "tile.store.fp": "FIX",
    "tile.mov.m2l": "MTE1",
    "tile.mov.m2r": "MTE1",
    "tile.mov.m2b": "MTE1",
    "tile.mov.m2s": "FIX",
    "tile.mov.a2v": "FIX",
    "tile.mov.fp": "FIX",
    "tile.extract": "MTE1",
    "tile.mov.a2m": "FIX",
    "tile.mov.v2m": "FIX",
    "tile.insert": "FIX",
    "tile.insert.fp": "FIX",
    "tile.prefetch": "MTE2",
    "tile.ci": "S",
    "tile.reshape": "S",
}


# The opcode of a store, by the location of its tile.
STORES = {"Vec": "TSTORE_VEC", "Acc": "TSTORE_ACC", "Mat": "TSTORE_MAT"}
# Opcodes that do not follow from the name, the preferred one first.
_OPCODES = {
    "tile.store": (*STORES.values(), "TSTORE"),
    "tile.mov.fp": ("TMOV_A2V", "TMOV_FP"),
    "tile.store.fp": ("TSTORE_ACC", "TSTORE_FP"),
    "tile.extract": ("TEXTRACT", "TEXTRACT_M2LR"),
}


def opcodes_of(short: str) -> tuple[str, ...]:
    """The opcodes of the op called `short`, the canonical one first: `tile.mov.m2l` is TMOV_M2L."""
    return _OPCODES.get(short) or ("T" + short.removeprefix("tile.").replace(".", "_").upper(),)


def opcodes(op: Op) -> tuple[str, ...]:
    """The producers that an event of `op` may name."""
    return producers(op.defn.short, operand_type(op.operands[0]) if op.operands else None)


def producers(short: str, first: Type | None) -> tuple[str, ...]:
    """As `opcodes`, of the op called `short` with this first operand: that of a store tells the location of its tile."""
    if short == "tile.store" and isinstance(first, TileType) and first.loc is not None:
        return (STORES.get(first.loc, "TSTORE_VEC"), "TSTORE")
    return opcodes_of(short)


@cache
def is_tile_op(d: OpDef) -> bool:
    """Whether the op runs in a pipe of its own, and may be asynchronous."""
    return ASYNC in d.traits


def pipe_of_name(short: str, opcode: str = "") -> str:
    """The pipe of the tile op called `short`; a store's goes by its opcode."""
    if short == "tile.store":
        return "FIX" if opcode == "TSTORE_ACC" else "MTE3"
    return _PIPES.get(short, "M" if short.startswith(("tile.matmul", "tile.gemv")) else "V" if short.startswith("tile.") else "S")


def pipe_of(op: Op) -> str:
    """The pipe of an op; `S`, the scalar one, for what is not a tile op."""
    return pipe_of_name(op.defn.short, opcodes(op)[0] if op.defn.short == "tile.store" else "")


def unit(op: Op) -> str | None:
    """As `pipe_of`; None for what no pipe executes."""
    return pipe_of(op) if is_tile_op(op.defn) else None


@cache
def pipe_of_opcode(opcode: str) -> str | None:
    """The pipe of the ops with this opcode, or None when there are none."""
    for d in OPS.values():
        if d.traits & ASYNC and opcode in opcodes_of(d.short):
            return pipe_of_name(d.short, opcode)
    return None
