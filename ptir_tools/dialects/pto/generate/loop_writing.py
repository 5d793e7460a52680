"""Turns the trees of `loop_kernels` into ops."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import F16, F32, I1, INDEX
from ptir_tools.core.ir import Function, Op, Operand, Region, Value, create
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.generate.loop_kernels import (
    DTYPES,
    SIDE,
    Barrier,
    Bound,
    Branch,
    Carried,
    Condition,
    Event,
    Loop,
    Node,
    Place,
    Step,
    Sync,
    Tile,
)
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import INDEX_TYPE, EventType, TileType, event, memref, scalar, tile

_ROWS = 2048  # of every memref: more than 16 iterations with two tiles each need


class Emitting:
    """Appends ops to a block, with names for their results."""

    block: Region
    names: int

    def name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def emit(self, op: Op, letter: str = "x") -> Op:
        for v in op.results:
            v.name = self.name("e" if isinstance(v.type, EventType) else letter)
        self.block.body.append(op)
        return op


@dataclass(slots=True, eq=False)
class Writer(Emitting):
    """Writes a tree into a function."""

    function: Function
    located: bool  # the types of tiles in Vec state it
    block: Region
    names: int = 0
    numbers: dict[int, Value] = field(default_factory=dict)

    def index(self, n: int) -> Value:
        """A constant at the beginning of the kernel."""
        if (found := self.numbers.get(n)) is None:
            op = create(OPS["pto.constant"], (), {"value": integer(n, INDEX)})
            self.numbers[n] = found = op.result
            found.name = self.name("c")
            self.function.body.insert(len(self.numbers) - 1, op)
        return found

    def scalar(self, short: str, a: Value, b: Value, **attrs: object) -> Value:
        return self.emit(create(OPS[f"pto.{short}"], (a, b), dict(attrs)), "i").result

    def argument(self, name: str) -> Value:
        """The argument of this name (memory, a condition or an index), new or not."""
        types = dict.fromkeys("nm", INDEX_TYPE) | dict.fromkeys("pq", scalar(I1)) | {"h": memref(F16, (_ROWS, SIDE))}
        for p in self.function.params:
            if p.name == name:
                return p
        self.function.params.append(p := Value(types.get(name) or memref(F32, (_ROWS, SIDE)), name))
        return p

    def tile_type(self, loc: str) -> TileType:
        return tile(DTYPES[loc], (SIDE, SIDE), loc if loc != "Vec" or self.located else None)

    def place(self, p: Place) -> Value:
        """The ops that compute a place, as an index."""
        parts: list[Value] = []
        if p.loop is not None and p.loop.counter is not None:
            v = self.scalar("divsi", p.loop.counter, self.index(p.per)) if p.per > 1 else p.loop.counter
            v = self.scalar("addi", v, self.index(p.shift)) if p.shift else v
            v = self.scalar("remsi", v, self.index(p.ring)) if p.ring else v
            parts.append(self.scalar("muli", v, self.index(p.scale)))
        if p.outer is not None and p.outer.counter is not None:
            parts.append(self.scalar("muli", p.outer.counter, self.index(p.stride)))
        if p.base or not parts:
            parts.append(self.index(p.base))
        total = parts[0]
        for v in parts[1:]:
            total = self.scalar("addi", total, v)
        return total

    def bound(self, b: Bound) -> Value:
        if isinstance(b, Loop):
            assert b.counter is not None
            return b.counter
        if isinstance(b, tuple):
            name, more, ring = b
            return self.scalar("remsi", self.scalar("addi", self.argument(name), self.index(more)), self.index(ring))
        return self.index(b) if isinstance(b, int) else self.argument(b)

    def condition(self, c: Condition) -> Value:
        if isinstance(c, str):
            return self.argument(c)
        if len(c) == 1:
            one = self.emit(create(OPS["pto.constant"], (), {"value": integer(1, I1)}), "k").result
            return self.scalar("xori", self.argument(c[0]), one)
        loop, more, ring, how, bound = c
        assert loop.counter is not None
        v = self.scalar("addi", loop.counter, self.index(more)) if more else loop.counter
        v = self.scalar("remsi", v, self.index(ring)) if ring else v
        return self.scalar("cmpi", v, self.bound(bound), predicate=how)

    def write(self, nodes: Sequence[Node]) -> None:
        for x in nodes:
            if isinstance(x, Step):
                self.step(x)
            elif isinstance(x, Sync):
                self.emit(create(OPS["pto.sync"], [[_value(e) for e in x.waits]]), "x")
            elif isinstance(x, Barrier):
                self.emit(create(OPS["pto.sync.op"], (), {"opcode": x.opcode}), "x")
            elif isinstance(x, Branch):
                self.branch(x)
            else:
                self.loop(x)

    def step(self, x: Step) -> None:
        defn = OPS[f"pto.{x.short}"]
        indices = [self.place(x.place), self.index(0)] if x.place is not None else []
        parts: dict[str, list[Operand]] = {"wait": [_value(e) for e in x.waits]}
        if x.rows != SIDE:
            rows = self.place(x.rows) if isinstance(x.rows, Place) else self.index(x.rows)
            parts["valid"] = [rows, self.index(SIDE)]
        operands: list[list[Operand]] = [[_value(t)] for t in x.uses]
        operands += [[self.argument(x.memory)], [*indices]] if x.memory else []
        names = [g.name for g in defn.groups]
        groups = [operands[k] if k < len(operands) else parts.get(g, []) for k, g in enumerate(names)]
        attrs: dict[str, object] = {"event": event(x.opcode) if x.event is not None else None}
        if x.makes is not None:
            attrs |= {a.name: self.tile_type(x.makes.loc) for a in defn.attrs if a.kind == TileType.__name__}
        op = self.emit(create(defn, groups, attrs), "t")
        if x.event is not None:
            x.event.value = op.results[-1]
        if x.makes is not None:
            x.makes.value = op.results[0]
            if x.makes.place is not None:
                self.emit(create(OPS["pto.tile.assign"], (op.results[0], self.place(x.makes.place))), "x")

    def inside(self, block: Region, nodes: Sequence[Node]) -> None:
        outer, self.block = self.block, block
        self.write(nodes)
        self.block = outer

    def branch(self, x: Branch) -> None:
        condition, blocks = self.condition(x.condition), [Region(isolated=False), Region(isolated=False)]
        given: list[tuple[Tile | Event, ...]] = [*x.tiles, *x.events]
        for k, block in enumerate(blocks):
            self.inside(block, x.blocks[k])
            block.results = [_value(r[1 + k]) for r in given]
            block.result_types = [self.type(r[0]) for r in given]
        op = self.emit(create(OPS["pto.scf.if"], (condition,), regions=blocks), "t")
        for (result, *_), v in zip(given, op.results, strict=True):
            result.value = v

    def type(self, x: Tile | Event) -> TileType | EventType:
        return self.tile_type(x.loc) if isinstance(x, Tile) else event()

    def params(self, carried: Sequence[Carried]) -> list[Value]:
        """New parameters of a block for the carried tiles and events."""
        for c in carried:
            c.inside.value = Value(self.type(c.inside), self.name("e" if isinstance(c.inside, Event) else "t"))
        return [_value(c.inside) for c in carried]

    def loop(self, x: Loop) -> None:
        carried = [*x.tiles, *x.events]
        lower, upper, inits = self.bound(x.lower), self.bound(x.upper), [_value(c.init) for c in carried]
        if x.head is None:
            x.counter = Value(INDEX_TYPE, self.name("i"))
            body = Region(params=[x.counter, *self.params(carried)], isolated=False)
            self.inside(body, x.body)
            self.set_results(body, carried)
            op = create(OPS["pto.scf.for"], (lower, upper, self.index(x.step), inits), regions=[body])
        else:
            op = self.while_loop(x, lower, upper, carried, inits)
        self.emit(op, "t")
        for c, v in zip(carried, op.results, strict=False):
            c.after.value = v
        x.counter = None

    def set_results(self, block: Region, carried: Sequence[Carried], *more: Value) -> None:
        block.results = [*[_value(c.again) for c in carried], *more]
        block.result_types = [*[self.type(c.inside) for c in carried], *[v.type for v in more]]

    def while_loop(self, x: Loop, lower: Value, upper: Value, carried: Sequence[Carried], inits: list[Value]) -> Op:
        """An scf.while with a counter, its last carried value."""
        x.counter = Value(INDEX_TYPE, self.name("i"))
        first = Region(params=[*self.params(carried), x.counter], isolated=False)
        self.inside(first, x.head or [])
        outer, self.block = self.block, first
        holds = self.scalar("cmpi", x.counter, upper, predicate="slt")
        self.block = outer
        first.results = [holds, *first.params]
        first.result_types = [holds.type, *[v.type for v in first.params]]
        x.counter = Value(INDEX_TYPE, self.name("i"))
        body = Region(params=[*self.params(carried), x.counter], isolated=False)
        self.inside(body, x.body)
        outer, self.block = self.block, body
        again = self.scalar("addi", x.counter, self.index(1))
        self.block = outer
        self.set_results(body, carried, again)
        return create(OPS["pto.scf.while"], ([*inits, lower],), regions=[first, body])


def _value(x: Tile | Event) -> Value:
    assert x.value is not None
    return x.value
