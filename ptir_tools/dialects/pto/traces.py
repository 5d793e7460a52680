"""Straight lines through a function: what may run, op by op, for the hazard check (facts 4.2, 4.3).

A loop of unknown trip count is followed for 0, 1 and 3 trips, a condition both ways; a loop that always runs the same number of
times for at most 3; loops within loops for fewer. Where there are more combinations than LIMIT, each choice is varied alone: a
hazard that needs two unusual choices together may then go unseen. In a trace every value stands for one value that an op made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, product
from typing import Any

from ptir_tools.core.ir import Function, Op, Operand, Program, Region, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import MemRefType, Type
from ptir_tools.dialects.pto.affine import Linear, linear
from ptir_tools.dialects.pto.windows import ACCESSES, Access, View, accessed, composed, whole

LIMIT = 64  # traces of one function
# Trips of a loop whose trip count is not known, by how deep it is nested; the first is what happens unless it is varied.
TRIPS = ((3, 0, 1), (2, 0, 1), (1, 0))
DEPTH = 16  # calls within calls

Key = tuple[Value, int]  # a value and which time it is made


@dataclass(slots=True)
class Step:
    """One op of a trace. `operands` are the values as the trace knows them."""

    op: Op
    operands: tuple[Any, ...]
    results: tuple[Key, ...]
    access: Access | None = None


@dataclass(slots=True)
class _Choices:
    """The choices of one trace: `taken` is asked in order of appearance; past its end the first option is taken."""

    taken: dict[tuple[Op, ...], int]
    seen: dict[tuple[Op, ...], int] = field(default_factory=dict)

    def pick(self, where: tuple[Op, ...], options: int) -> int:
        self.seen[where] = options
        return min(self.taken.get(where, 0), options - 1)


def traces(function: Function, program: Program) -> Iterator[list[Step]]:
    """The traces of a function, at most LIMIT, the usual one first."""
    first = _Choices({})
    yield _Tracer(program, first).function(function)
    places = list(first.seen)
    combinations: Iterator[tuple[int, ...]] = product(*(range(first.seen[p]) for p in places))
    count = 1
    for p in places:
        count *= first.seen[p]
    if count > LIMIT:
        combinations = iter([tuple(k * (p == q) for p in places) for q in places for k in range(first.seen[q])])
    done = {(0,) * len(places)}
    for picks in islice(combinations, 4 * LIMIT):
        if picks in done:
            continue
        done.add(picks)
        yield _Tracer(program, _Choices(dict(zip(places, picks, strict=True)))).function(function)
        if len(done) >= LIMIT:
            return


class _Tracer:
    def __init__(self, program: Program, choices: _Choices) -> None:
        self.program = program
        self.choices = choices
        self.steps: list[Step] = []
        self.known: dict[Value, Any] = {}  # what a value is in this trace: a Key, a View
        self.index: dict[Value, Linear] = {}
        self.times: dict[Value, int] = {}
        self.path: tuple[Op, ...] = ()
        self.depth = 0

    def function(self, function: Function) -> list[Step]:
        for p in function.params:
            self.known[p] = whole(p) if isinstance(p.type, MemRefType) else (p, 0)
        self.block(function)
        return self.steps

    def look(self, x: Operand) -> Any:
        return self.known.get(x, (x, 0)) if isinstance(x, Value) else None

    def block(self, block: Region) -> tuple[Any, ...]:
        for op in block.body:
            handler = _HANDLERS.get(op.defn.short, _Tracer.plain)
            handler(self, op)
        return tuple(self.bound(x) for x in block.results)

    def bound(self, x: Operand) -> Any:
        """What a block passes on: what the trace knows of a value, and its number if it is an index."""
        return self.look(x), linear(x, self.index) if _is_index(operand_type(x)) else None

    def bind(self, v: Value, passed: tuple[Any, Linear | None]) -> None:
        self.known[v] = passed[0]
        if passed[1] is not None:
            self.index[v] = passed[1]

    def plain(self, op: Op) -> None:
        made = []
        for v in op.results:
            self.times[v] = n = self.times.get(v, -1) + 1
            self.known[v] = key = (v, n)
            made.append(key)
            if _is_index(v.type):
                self.number(v, again=n > 0)
        self.steps.append(Step(op, tuple(map(self.look, op.operands)), tuple(made), self.access(op)))

    def number(self, v: Value, again: bool) -> None:
        """What an index value is; one that is opaque is another unknown each time."""
        self.index.pop(v, None)
        expression = linear(v, self.index)
        if expression.terms != {v: 1} or expression.const:
            self.index[v] = expression
        elif again:
            self.index[v] = Linear(0, {Value(v.type, v.name): 1})

    def access(self, op: Op) -> Access | None:
        if op.defn.short not in ACCESSES:
            return None
        view = self.look(next(x for x in op.operands if isinstance(operand_type(x), MemRefType)))
        return accessed(op, view, self.index) if isinstance(view, View) else None

    def view(self, op: Op) -> None:
        parent = self.look(op.operands[0])
        if isinstance(parent, View):
            self.known[op.results[0]] = composed(op, parent, self.index)

    def loop(self, op: Op) -> None:
        lower, upper, step = (linear(x, self.index) for x in op.operands[:3])
        body = op.regions[0]
        carried = [self.bound(x) for x in op.operands[3:]]
        for k in range(self.trips(op, lower, upper, step)):
            self.path = (*self.path, op)
            first = body.params[0]
            self.index[first] = lower + step * k if not step.terms else Linear(0, {first: 1})
            for p, value in zip(body.params[1:], carried, strict=True):
                self.bind(p, value)
            carried = list(self.block(body))
            self.path = self.path[:-1]
        for v, value in zip(op.results, carried, strict=True):
            self.bind(v, value)

    def trips(self, op: Op, lower: Linear, upper: Linear, step: Linear) -> int:
        around = sum(o.defn.short == "scf.for" for o in self.path)
        trips = TRIPS[min(around, len(TRIPS) - 1)]
        if not (lower.terms or upper.terms or step.terms) and step.const > 0:
            return min(trips[0], max(0, -(-(upper.const - lower.const) // step.const)))
        return trips[self.choices.pick((*self.path, op), len(trips))]

    def branch(self, op: Op) -> None:
        self.path = (*self.path, op)
        taken = op.regions[self.choices.pick(self.path, 2)]
        passed = self.block(taken)
        self.path = self.path[:-1]
        for v, value in zip(op.results, passed, strict=True):
            self.bind(v, value)

    def call(self, op: Op) -> None:
        callee = self.program.function(op.attr("callee"))
        if callee is None or self.depth >= DEPTH:
            return self.plain(op)
        passed = [self.bound(x) for x in op.operands]
        for p, value in zip(callee.params, passed, strict=True):
            self.bind(p, value)
        self.path, self.depth = (*self.path, op), self.depth + 1
        results = self.block(callee)
        self.path, self.depth = self.path[:-1], self.depth - 1
        for v, value in zip(op.results, results, strict=True):
            self.bind(v, value)
        return None


_HANDLERS = {
    "memref.subview": _Tracer.view,
    "scf.for": _Tracer.loop,
    "scf.if": _Tracer.branch,
    "func.call": _Tracer.call,
}


@cache
def _is_index(t: Type) -> bool:
    dtype = getattr(t, "dtype", None)
    return dtype is not None and dtype.is_integer and not getattr(t, "shape", ())
