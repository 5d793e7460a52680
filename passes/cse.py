"""Common subexpression elimination. Specification: PTIR rewrite system, "DCE and CSE".

Two ops are equal if they have the same declaration, attributes (to the bit), operands, regions and result types. Operands of a
commutative op may be in any order. The first op must dominate the second. Random ops and ops on constants without payload are
never merged. Under strict floats a float op is not commuted, because another NaN could result.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Literal, Op, Operand, Region, Value
from ptir_tools.passes import Floats, PassContext
from ptir_tools.rewrite.patterns import has_floats
from ptir_tools.rewrite.rewriter import Rewriter


def run(program: Program, context: PassContext) -> None:
    """Merge ops that compute the same value."""
    merger = Merger(context)
    for rw in context.rewriters(program):
        merger.merge(rw)
    context.count("merged", merger.merged)


class Merger:
    """Merges the ops of blocks; `merged` counts them."""

    def __init__(self, context: PassContext) -> None:
        self.context = context
        self.commute_floats = context.floats is not Floats.STRICT
        self.merged = 0
        self.random: dict[Region, bool] = {}

    def may_merge(self, rw: Rewriter, op: Op, first: Op) -> bool:
        """Whether `op` may be merged with `first`, an equal op. If not, `op` is the first for later ops. If results are named
        by their values, two results stay two values."""
        return not rw.dialect.renames_results or all(map(rw.accepts, op.results, first.results))

    def merge(self, rw: Rewriter) -> None:
        """Merge the ops of the block of `rw`."""
        who = (Merger, self.commute_floats)
        if not rw.is_done(who):
            self.block(rw, rw.block, {})
            rw.mark_done(who)

    def block(self, rw: Rewriter, block: Region, known: dict[object, Op]) -> list[object]:
        """Merge equal ops of `block`, and those equal to `known` ops of enclosing blocks. The keys that were added."""
        added = []
        for op in rw.body(block):
            d = op.defn
            if op.regions:
                for r in op.regions:
                    if not r.isolated:
                        for key in self.block(rw, r, known):
                            del known[key]
                if self.is_random(op):
                    continue
            if not d.is_pure or d.is_random or (key := self.key(op, op.operands)) is None:
                continue
            first = known.setdefault(key, op)
            if first is op:
                added.append(key)
            elif not self.may_merge(rw, op, first):
                known[key] = op
            elif self.context.step("merge", op, first):
                if len(op.results) == 1:
                    rw.replace(op, first.results[0])
                else:
                    for v, by in zip(op.results, first.results, strict=True):
                        rw.replace_all_uses(v, by)
                    rw.erase(op)
                self.merged += 1
        return added

    def key(self, op: Op, operands: Sequence[Operand]) -> object:
        """A key that is equal for equal ops on `operands`; None for an op that equals no other."""
        d, plain = op.defn, True
        keys: Collection[object] = operands
        for x in operands:
            if x.__class__ is not Value:
                keys, plain = tuple(map(_operand_key, operands)), False
                if None in keys:
                    return None
                break
        if op.attrs and _misses_payload(op.attrs):
            return None
        if d.commutes and (self.commute_floats or not has_floats(op)):
            if plain and len(operands) == 2:
                x, y = operands
                keys = operands if id(x) < id(y) else (y, x)
            else:
                keys = frozenset(keys)
        if op.regions or len(op.results) != 1:
            return (d, d.key(op.attrs), keys, op.regions, tuple([v.type for v in op.results]))
        return (d, op.results[0].type, keys, d.key(op.attrs)) if op.attrs else (d, op.results[0].type, keys)

    def is_random(self, op: Op) -> bool:
        """Whether `op` or anything in its regions draws random numbers."""
        return op.defn.is_random or any(map(self.draws, op.regions))

    def draws(self, region: Region) -> bool:
        if (result := self.random.get(region)) is None:
            self.random[region] = False  # also for a region that refers to itself
            result = self.random[region] = any(map(self.is_random, region.body))
        return result


def _misses_payload(attrs: tuple[object, ...]) -> bool:
    for x in attrs:  # noqa: SIM110  (asked for every op)
        if isinstance(x, Literal) and x.is_missing:
            return True
    return False


def _operand_key(x: Operand) -> tuple[object, ...] | Value | tuple[Value, int] | None:
    """A key that is equal for equal operands; None for a literal that equals no other."""
    if isinstance(x, Value):
        return x
    if isinstance(x, Literal):
        return None if x.is_missing else x.key
    return (x.value, x.index)
