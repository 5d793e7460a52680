"""Copies of shared regions, for passes that change the region of one op only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal, Operand, Region, Value, clone_blocks, create
from ptir_tools.core.limits import Expansion
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.rewrite.rewriter import Rewriter


class Sharing:
    """The number of references to each region of `program`, and the names of the regions."""

    def __init__(self, program: Program, expansion: Expansion) -> None:
        self.program, self.expansion = program, expansion
        self.references = Counter(r for block in program.blocks() for op in block.body for r in op.regions)
        self.names = {r.name for r in program.regions}
        self.numbers: Counter[str] = Counter()  # the last number that made a name of a region new

    def own(self, region: Region) -> tuple[Region, dict[Value, Value]]:
        """A copy of `region` for one of the ops that refer to it, and the map from its values to those of the copy. The copy
        replaces the region, and has its name, when there is no other reference. Raises LimitExceeded where copies of copies
        would double the program with every level."""
        self.expansion.charge(len(region.body) if self.references[region] > 1 else 0, region.loc)
        values: dict[Value, Value] = {}
        (copy,) = clone_blocks([region], values)
        for mine, op in zip(copy.body, region.body, strict=True):
            mine.regions = op.regions
            self.references.update(op.regions)
        self.references[region] -= 1
        self.references[copy] = 1
        at = self.program.regions.index(region)
        if self.references[region]:
            copy.name = self._fresh(region.name)
            self.program.regions.insert(at + 1, copy)
        else:
            self.references.subtract(r for op in region.body for r in op.regions)
            self.program.regions[at] = copy
        return copy, values

    def _fresh(self, name: str) -> str:
        """A new region name made from `name`."""
        found = name
        while found in self.names:
            self.numbers[name] += 1
            found = f"{name}_{self.numbers[name]}"
        self.names.add(found)
        return found


def unused(name: str, names: Container[str]) -> str:
    """`name`, or `name` with the first number that is not in `names`."""
    number, found = 0, name
    while found in names or not found:
        number += 1
        found = f"{name}_{number}" if name else f"v{number}"
    return found


def insert_constant(rw: Rewriter, literal: Literal) -> Value:
    """Insert a constant before all other ops in the block of `rw`; its value."""
    constant = create(OPS["ptir.constant"], (), {"value": literal}, types=[literal.type])
    first = next(iter(rw.body()), None)
    return rw.append(rw.block, constant) if first is None else rw.insert_before(first, constant)


def region_accepts(region: Region, param: Value, by: Operand) -> bool:
    """Whether the ops of `region` are legal with `by` in the place of `param`: some refuse constants."""
    if all(op.defn.check is None for op in region.body):
        return True
    return Rewriter(region, DIALECT).users_accept(param, lambda x: by if x is param else x)


def insert_params(region: Region, at: int, params: Sequence[Value]) -> None:
    """Insert `params` into the parameters of `region` at index `at`. A parameter whose name is used gets another name."""
    names = {v.name for v in region.values()}
    for p in params:
        p.name = unused(p.name, names)
        names.add(p.name)
    region.params[at:at] = params
