"""The order of addresses in output: a tile gets its address before the op that fills it, but `pto.tile.assign` follows that op.

An instruction writes to the address that its tile has when it is issued. The IR binds a tile from the op on that makes it, and
may compute the address behind that op.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.ir import Op, Region, Value
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.structure import is_assign, value_of


def late(block: Region) -> Iterator[tuple[Op, str]]:
    """The assignments in a block whose address is not known before their tile is written, each with the reason."""
    places = {op: k for k, op in enumerate(block.body)}
    for op in block.body:
        made = _made_by(op)
        if made is None:
            continue
        name = f"%{value_of(op.operands[0]).name}"
        if made not in places:
            yield op, f"{name} is written in another block, before it is bound here"
        elif needs := [x for x in _needed(op, places[made], places) if x.regions or not x.defn.is_pure]:
            yield op, f"{name} is written before {needs[0].defn.short} gives its address"


def addresses_first(block: Region) -> list[Op]:
    """The ops of a block in another order: the assignment of an address to what an op makes is before that op, and so is what the
    address is computed from."""
    places = {op: k for k, op in enumerate(block.body)}
    ahead: dict[Op, list[Op]] = {}
    for op in block.body:
        made = _made_by(op)
        if made in places:
            ahead.setdefault(made, []).append(op)
    found: dict[Op, None] = {}
    for op in block.body:
        for assign in ahead.get(op, ()):
            found.update(dict.fromkeys([*_needed(assign, places[op], places), assign]))
        found[op] = None  # one that is there already stays where it is
    return list(found)


def _made_by(op: Op) -> Op | None:
    """The tile op that makes what `op` binds; None for other ops, and for what loops and branches give."""
    if not is_assign(op) or not isinstance(v := op.operands[0], Value):
        return None
    return v.op if v.op is not None and is_tile_op(v.op.defn) else None


def _needed(op: Op, place: int, places: dict[Op, int]) -> list[Op]:
    """The ops after a place of the block from which the address of an assignment is computed, in order."""
    found: set[Op] = set()
    todo = [op.operands[1]]
    while todo:
        x = todo.pop()
        made = x.op if isinstance(x, Value) else None
        if made is not None and made not in found and places.get(made, -1) >= place:
            found.add(made)
            todo += made.values()
    return sorted(found, key=places.__getitem__)
