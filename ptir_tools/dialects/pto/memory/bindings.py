"""Addresses of tiles (`tile.assign`): those of carried tiles, and a check that no tile is bound to two, as far as it is decided
statically."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.ir import Function, Op, Operand, Region, Value
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.violations import Violation, operand
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.carried import Carried, carried, classes
from ptir_tools.dialects.pto.structure import is_assign, is_while, value_of
from ptir_tools.dialects.pto.types import TileType


class Binding(NamedTuple):
    """A `tile.assign` to a constant address, with its block."""

    address: int
    op: Op
    block: Region


def carried_addresses(function: Function) -> dict[Operand, int]:
    """The addresses of tiles that loops and branches give, where all tiles that they are given have one constant address."""
    bound = {value_of(op.operands[0]): constant(op.operands[1]) for op in function.ops() if is_assign(op)}
    homes = {home for op in function.ops() for one in carried(op) for home in one.homes}
    made: dict[Operand, int] = {}
    for v, names in classes(function, TileType).items():
        ends = {bound.get(n) for n in names if n in bound or n not in homes}
        if len(names) > 1 and len(ends) == 1 and (at := ends.pop()) is not None:
            made[v] = at
    return made


def check(function: Function, diagnostics: Diagnostics) -> None:
    """An assignment does not move a tile: it must have that address already, or none.

    Constant addresses are compared. "TileMoved" is an error where every execution that reaches the op fails. It is a warning
    where that depends on a trip count or a branch.
    """
    around: dict[Region, Region | None] = {}
    bound: dict[Value, list[Binding]] = {}
    for block, op in _ops(function, around):
        if is_assign(op) and (address := constant(op.operands[1])) is not None:
            tile, new = op.operands[0], Binding(address, op, block)
            assert isinstance(tile, Value)
            before = _binding(bound, tile, block, around)
            bound.setdefault(tile, []).append(new)
            if before is not None and before.address != address:
                _report(diagnostics, Severity.ERROR, tile, before, new)
    for block, op in list(_ops(function, around)) if bound else ():
        for one in carried(op):
            for home in one.homes:
                _handed_on(one, home, block, bound, around, diagnostics)


def _ops(function: Function, around: dict[Region, Region | None]) -> Iterator[tuple[Region, Op]]:
    """Every op with its block, in order; `around` is filled with the parent block of each block."""
    around[function] = None
    stack: list[tuple[Region, Iterator[Op]]] = [(function, iter(function.body))]
    while stack:
        block, rest = stack[-1]
        if (op := next(rest, None)) is None:
            stack.pop()
            continue
        yield block, op
        for inner in reversed(op.regions):
            around[inner] = block
            stack.append((inner, iter(inner.body)))


def _binding(
    bound: dict[Value, list[Binding]], tile: Value, block: Region, around: dict[Region, Region | None]
) -> Binding | None:
    """The first binding of `tile` that has certainly run when `block` does: in that block or one around it."""
    outer: Region | None = block
    blocks = []
    while outer is not None:
        blocks.append(outer)
        outer = around[outer]
    return next((b for b in bound.get(tile, ()) if b.block in blocks), None)


def _handed_on(
    one: Carried,
    home: Value,
    block: Region,
    bound: dict[Value, list[Binding]],
    around: dict[Region, Region | None],
    diagnostics: Diagnostics,
) -> None:
    """Compare the addresses of the values that `home` gets with the one assigned in its own block."""
    own = block if home.op is one.op else next(r for r in one.op.regions if home in r.params)
    new = next((b for b in bound.get(home, ()) if b.block is own), None)
    if new is None:
        return
    found: list[tuple[Binding, bool]] = []  # another address, and whether it comes in every run
    several = False
    for source, k in one.sources:
        x, comes = one.given(source, k), _comes(one.op, source, home)
        if comes is False:
            continue
        before = _binding(bound, x, source or block, around) if isinstance(x, Value) else None
        if before is not None and before.address != new.address:
            found.append((before, comes is True))
        else:
            several = True
    if found:
        before = next((b for b, sure in found if sure), found[0][0])
        sure = not several or any(sure for _, sure in found)
        _report(diagnostics, Severity.ERROR if sure else Severity.WARNING, home, before, new)


def _comes(op: Op, source: Region | None, home: Value) -> bool | None:
    """Whether `home` gets the value of `source` (None: the initial one) in every execution that reaches the use of `home`;
    None where it depends."""
    if op.defn.short == "scf.if":
        return None
    if is_while(op):
        return True if source is None or home not in op.regions[0].params else None
    bounds = [constant(x) for x in op.operands[:3]]
    first, last, step = bounds
    trips = None if first is None or last is None or not step else max(0, -((first - last) // step))
    if home.op is op:  # after the loop
        return None if trips is None else (trips > 0) is (source is not None)
    if source is None:
        return trips != 0
    return None if trips is None else trips > 1


def _report(diagnostics: Diagnostics, severity: Severity, tile: Value, before: Binding, new: Binding) -> None:
    verb = "lies" if severity is Severity.ERROR else "may lie"
    message = f"%{tile.name} is bound to {new.address}, and {verb} at {before.address}; binding moves nothing"
    moved = Violation("TileMoved", message, at=operand(1), labels=[(before.op.loc, f"{before.address} here")])
    diagnostics.violation(moved, new.op.loc, new.op, severity)
