"""Straight lines through a function: what may run, op by op, for the hazard check (facts 4.2, 4.3).

A loop of unknown trip count is followed for 0, 1 and 3 trips, a condition both ways; a loop that always runs the same number of
times for at most 3; loops within loops for fewer. Where there are more combinations than LIMIT, each choice is varied alone: a
hazard that needs two unusual choices together may then go unseen. In a trace every value stands for one value that an op made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice, product
from typing import Any

from ptir_tools.core.ir import Function, Op, Operand, Program, Region, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import EventType, MemRefType, TileType, Type
from ptir_tools.dialects.pto.affine import Linear, linear
from ptir_tools.dialects.pto.ops.memory import ACCESSES, memory_of
from ptir_tools.dialects.pto.pipes import PIPES, is_tile_op, pipe_of
from ptir_tools.dialects.pto.windows import Access, View, accessed, composed, whole

LIMIT = 64  # traces of one function
# Trips of a loop whose trip count is not known, by how deep it is nested; the first is what happens unless it is varied.
TRIPS = ((3, 0, 1), (2, 0, 1), (1, 0))
DEPTH = 16  # calls within calls

Key = Value | tuple[Value, int]  # a value the first time it is made; later with the count


@dataclass(slots=True, frozen=True)
class Role:
    """What the types of an op tell of it: its pipe, which operands are tiles and which events, what it does to memory."""

    pipe: int
    tile_op: bool
    asynchronous: bool
    tiles: tuple[int, ...]
    events: tuple[int, ...]
    access: bool
    writes: bool


@dataclass(slots=True)
class Step:
    """One op of a trace. `operands` and `results` are values as the trace knows them."""

    op: Op
    role: Role
    operands: list[Any]
    results: Sequence[Key]
    access: Access | None = None


def role_of(op: Op) -> Role:
    """The role of an op; equal signatures have the same."""
    key = (op.defn, tuple([x.type for x in op.operands]), op.attrs)  # type: ignore[union-attr]
    if (found := _ROLES.get(key)) is None:
        last = op.results[-1].type if op.results else None
        kinds = [operand_type(x).__class__ for x in op.operands] if op.defn.short != "tile.assign" else []  # which reads nothing
        tiles, events = (tuple([i for i, k in enumerate(kinds) if k is kind]) for kind in (TileType, EventType))
        short = op.defn.short
        signals = last.__class__ is EventType
        pipe = PIPES.index(pipe_of(op))
        found = Role(pipe, is_tile_op(op.defn), signals, tiles, events, short in ACCESSES, "store" in short)
        _ROLES[key] = found
    return found


_ROLES: dict[Any, Role] = {}


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
            if isinstance(p.type, MemRefType):
                self.known[p] = whole(p)
        self.block(function)
        return self.steps

    def look(self, x: Operand) -> Any:
        return self.known.get(x, x) if x.__class__ is Value else None

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
        results: Sequence[Key] = op.results
        known = self.known
        if self.path:
            results = [self.again(v) for v in op.results]
        for v in op.results:
            if _is_index(v.type):
                self.number(v, again=known.get(v, v) is not v)
        role = role_of(op)
        if role.tile_op or role.events or role.tiles or op.defn.short == "sync.op":
            operands = [known.get(x, x) for x in op.operands]  # type: ignore[arg-type]
            self.steps.append(Step(op, role, operands, results, self.access(op) if role.access else None))

    def again(self, v: Value) -> Key:
        """What a value is that a loop or a call may make more than once."""
        self.times[v] = n = self.times.get(v, -1) + 1
        if not n:
            return v
        self.known[v] = key = (v, n)
        return key

    def number(self, v: Value, again: bool) -> None:
        """What an index value is; one that is opaque is another unknown each time."""
        self.index.pop(v, None)
        expression = linear(v, self.index)
        if expression.terms != {v: 1} or expression.const:
            self.index[v] = expression
        elif again:
            self.index[v] = Linear(0, {Value(v.type, v.name): 1})

    def access(self, op: Op) -> Access | None:
        view = self.look(memory_of(op))
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
