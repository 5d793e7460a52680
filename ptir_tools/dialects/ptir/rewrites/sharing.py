"""Shared regions that one op is about to have otherwise: a copy of its own, unless nothing else refers to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal, Operand, Region, Value, clone_blocks, create
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.rewrite.rewriter import Rewriter


class Sharing:
    """How often each shared region of `program` is referred to, and what they are called."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.references = Counter(r for block in program.blocks() for op in block.body for r in op.regions)
        self.names = {r.name for r in program.regions}
        self.numbers: Counter[str] = Counter()  # the last number that made a name of a region new

    def own(self, region: Region) -> tuple[Region, dict[Value, Value]]:
        """A copy of `region` for one of the ops that refer to it, and its values by those of `region`. It takes the place and
        the name of `region` when there is no other."""
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
        """A name of no region, from `name`; the search goes on where it ended the last time."""
        found = name
        while found in self.names:
            self.numbers[name] += 1
            found = f"{name}_{self.numbers[name]}"
        self.names.add(found)
        return found


def unused(name: str, names: Container[str]) -> str:
    """`name`, or that with the first number that makes it none of `names`."""
    number, found = 0, name
    while found in names or not found:
        number += 1
        found = f"{name}_{number}" if name else f"v{number}"
    return found


def make_first(rw: Rewriter, literal: Literal) -> Value:
    """A new constant before all that is in the block of `rw`."""
    constant = create(OPS["ptir.constant"], (), {"value": literal}, types=[literal.type])
    first = next(iter(rw.body()), None)
    return rw.append(rw.block, constant) if first is None else rw.insert_before(first, constant)


def suits(region: Region, param: Value, by: Operand) -> bool:
    """Whether the ops of `region` are legal with `by` in the place of `param`: some refuse constants."""
    if all(op.defn.check is None for op in region.body):
        return True
    return Rewriter(region, DIALECT).users_accept(param, lambda x: by if x is param else x)


def insert_params(region: Region, at: int, params: Sequence[Value]) -> None:
    """Make `params` parameters of `region` from index `at` on; a name that is taken becomes a free one."""
    names = {v.name for v in (*region.params, *(v for op in region.body for v in op.results))}
    for p in params:
        p.name = unused(p.name, names)
        names.add(p.name)
    region.params[at:at] = params
