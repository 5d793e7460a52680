"""Values that ops with regions carry from one block to the next: one value under several names."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.ir import Function, Op, Operand, Region, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.structure import is_assign, is_for, is_while, value_of
from ptir_tools.dialects.pto.types import TileType


@dataclass(slots=True, frozen=True)
class Carried:
    """One value that an op with regions carries. `homes` are the parameters and results that name it. `sources` are the values
    they get, as positions among the results of a block, or (None) among the operands of the op."""

    op: Op
    homes: tuple[Value, ...]
    sources: tuple[tuple[Region | None, int], ...]

    def given(self, block: Region | None, at: int) -> Operand:
        """The operand at a position of `sources`."""
        return self.op.operands[at] if block is None else block.results[at]


def carried(op: Op) -> Iterator[Carried]:
    """The values that an op carries from operands to blocks, from block to block, and to its results."""
    if is_for(op):
        (body,) = op.regions
        for k, v in enumerate(op.results):
            yield Carried(op, (body.params[k + 1], v), ((None, 3 + k), (body, k)))
    elif is_while(op):
        before, body = op.regions
        for k, p in enumerate(before.params):
            yield Carried(op, (p,), ((None, k), (body, k)))
        for k, v in enumerate(op.results):
            yield Carried(op, (body.params[k], v), ((before, 1 + k),))
    elif op.defn.short == "scf.if":
        for k, v in enumerate(op.results):
            yield Carried(op, (v,), tuple((r, k) for r in op.regions))


def classes(function: Region, kind: type[Type]) -> dict[Value, list[Value]]:
    """The results and carried values of a type, in order, each with all names of the same value."""
    found: dict[Value, list[Value]] = {}
    for op in function.ops():
        for v in op.results:
            if isinstance(v.type, kind):
                found.setdefault(v, [v])
        for c in carried(op):
            if isinstance(c.homes[0].type, kind):
                names = [*c.homes, *(x for place in c.sources if isinstance(x := c.given(*place), Value))]
                _merge(found, names)
    return found


def _merge(found: dict[Value, list[Value]], names: list[Value]) -> None:
    whole = found.setdefault(names[0], [names[0]])
    for v in names[1:]:
        if (other := found.get(v, [v])) is not whole:
            whole += other
            found.update(dict.fromkeys(other, whole))


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
