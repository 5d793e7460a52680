"""Windows that are out of bounds in an iteration that certainly runs.

Loops with a known trip count are evaluated in three iterations, the outermost loop first: the first, the last, and that of the
last slot (`i mod n`). There the type rule of every op is applied to the values of its operands. An index that is linear in
counters with constant bounds leaves its bounds at such an end, if at all. Ops under a condition or in a loop of unknown trip
count are checked at run time. Ops that are in bounds for the least and the largest index need no evaluation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import is_

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import Function, Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import UNKNOWN, Shape
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.affine import Linear, atom, constant, linear, number, parts
from ptir_tools.dialects.pto.ops.memory import static_valid
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import is_for, is_view
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType, memref, tile

ENDS = 4  # nested loops whose first and last iterations are checked; of inner ones only the last is

Known = dict[Value, Linear]
Ranges = dict[Value, range]


def check(function: Function, diagnostics: Diagnostics) -> None:
    """Report every op whose window is certainly out of bounds in some iteration, once."""
    bounds = _Bounds(function)
    bounds.block(function, {}, ())
    for op, violation in bounds.found.items():
        diagnostics.violation(violation, op.loc, op)


class _Bounds:
    """A walk through a function, with its findings."""

    def __init__(self, function: Function) -> None:
        self.found: dict[Op, Violation] = {}
        self.looked: dict[Region, list[Op]] = {}  # by block, the loops that certainly run if it does, and the ops to check
        self.valid: dict[Operand, Shape] = {}  # valid regions of tiles
        self.counted: dict[Region, set[int]] = {}
        self.prepare(function, {})

    def prepare(self, block: Region, ranges: Ranges) -> bool:
        """Collect the ops to check in a block; whether there is any. `ranges` are those of counters."""
        kept = []
        for op in block.body:
            if is_for(op):
                lower, upper, step = (constant(x) for x in op.operands[:3])
                known = lower is not None and upper is not None and step is not None and step > 0
                trips = range(lower or 0, upper or 0, step or 1) if known else range(0)
                inside = self.prepare(op.regions[0], {**ranges, op.regions[0].params[0]: trips} if trips else ranges)
                if inside or any(v.type is INDEX_TYPE for v in op.results):
                    kept.append(op)
            elif op.defn.check is not None and any(map(self.varies, op.operands)) and not self.within(op, ranges):
                kept.append(op)
        self.looked[block] = kept
        return bool(kept)

    def varies(self, x: Operand) -> bool:
        """Whether an operand is an index, or has a shape or valid region, that the type rule does not see as constant."""
        t = operand_type(x)
        if isinstance(t, TileType):
            return UNKNOWN in static_valid(x, self.valid)
        return UNKNOWN in t.shape if isinstance(t, MemRefType) else t is INDEX_TYPE and constant(x) is None

    def within(self, op: Op, ranges: Ranges) -> bool:
        """Whether an op is in bounds for the least and the largest of its indices, and so for all between."""
        ends = list[tuple[Operand, Operand]]()
        for x in op.operands:
            if operand_type(x) is not INDEX_TYPE:
                if self.varies(x):
                    return False
                ends.append((x, x))
                continue
            e = linear(x)
            if any(v not in ranges for v in e.terms):
                return False
            sides = [sorted((k * ranges[v][0], k * ranges[v][-1])) for v, k in parts(e)]
            least, most = (e.const + sum(side[i] for side in sides) for i in (0, 1))
            if not INDEX.min <= least <= most <= INDEX.max:
                return False
            ends.append((integer(least, INDEX), integer(most, INDEX)))
        return all(_wrong(op, now) is None for now in zip(*ends, strict=True))

    def slots(self, body: Region) -> set[int]:
        """The numbers of slots that the ops of a block use (`i mod n`): iteration n - 1 uses the last one."""
        if (found := self.counted.get(body)) is None:
            sizes = [constant(op.operands[1]) for op in body.body if op.defn.short == "remsi"]
            self.counted[body] = found = {n for n in sizes if n is not None and n > 0}
        return found

    def block(self, block: Region, known: Known, counters: tuple[Value, ...]) -> None:
        """Check the ops of a block for the values `known`, in loops with these counters."""
        for op in self.looked[block]:
            if is_for(op):
                self.loop(op, known, counters)
            elif op not in self.found and (violation := _broken(op, known)) is not None:
                where = ", ".join(f"%{v.name} is {known[v].const}" for v in counters)
                message = f"{violation.message}, where {where}" if where else violation.message
                self.found[op] = Violation(violation.code, message, at=violation.at)

    def loop(self, op: Op, known: Known, counters: tuple[Value, ...]) -> None:
        """Check iterations of a loop, and compute the values after it."""
        lower, upper, step = (constant(x, known) for x in op.operands[:3])
        if lower is None or upper is None or step is None or step <= 0:
            return
        trips, body = range(lower, upper, step), op.regions[0]
        if trips and self.looked[body]:
            last = len(trips) - 1
            ends = {0, last, *(min(n - 1, last) for n in self.slots(body))} if len(counters) < ENDS else {last}
            for k in sorted(ends):
                now = dict(zip(body.params, [number(trips[k]), *_carried(op, known, k)], strict=True))
                here = {**known, **{v: n for v, n in now.items() if n is not None}}
                self.block(body, here, (*counters, body.params[0]))
        known.update((v, n) for v, n in zip(op.results, _carried(op, known, len(trips)), strict=True) if n is not None)


def _carried(op: Op, known: Known, trips: int) -> Iterator[Linear | None]:
    """The carried numbers after `trips` iterations; None for one that does not grow by a constant."""
    body = op.regions[0]
    for p, given, x in zip(body.params[1:], body.results, op.operands[3:], strict=True):
        there = None
        if p.type is INDEX_TYPE and (first := constant(x, known)) is not None:
            grows = linear(given, known) - atom(p)
            there = None if grows.terms else first + grows.const * trips
        yield None if there is None or not INDEX.min <= there <= INDEX.max else number(there)


def _broken(op: Op, known: Known) -> Violation | None:
    """The violation of the windows of an op for the values `known`, or None."""
    now = tuple([_then(x, known) for x in op.operands])
    found = None if all(map(is_, now, op.operands)) else _wrong(op, now)
    return found if found is not None and found.code in ("OutOfBounds", "InvalidValid") else None


def _wrong(op: Op, operands: tuple[Operand, ...]) -> Violation | None:
    """The violation that the op's rule raises for these operands, or None."""
    assert op.defn.check is not None
    try:
        op.defn.check(Op(op.defn, operands, op.attrs, op.results, op.regions, op.loc))
    except Violation as violation:
        return violation
    return None


def _then(x: Operand, known: Known) -> Operand:
    """An operand with the values `known` in its type, where these are more precise."""
    if not isinstance(x, Value):
        return x
    t = x.type
    if t is INDEX_TYPE:
        return x if (n := constant(x, known)) is None else integer(n, INDEX)
    if isinstance(t, TileType) and t.valid is None:
        valid = static_valid(x, value=partial(linear, known=known))
        pairs = zip(valid, t.shape, strict=True)
        good = all(isinstance(d, int) and (v is UNKNOWN or (isinstance(v, int) and 0 < v <= d)) for v, d in pairs)
        return Value(tile(t.dtype, t.shape, t.loc, t.layout, valid), x.name, x.op) if good else x
    if isinstance(t, MemRefType) and UNKNOWN in t.shape and x.op is not None and is_view(x.op):
        sizes = [constant(n, known) for n in group(x.op, "sizes")]
        shape = [d if n is None else n for d, n in zip(t.shape, sizes, strict=True)]
        return Value(memref(t.dtype, shape, t.space, t.layout, t.strides, t.offset), x.name, x.op)
    return x
