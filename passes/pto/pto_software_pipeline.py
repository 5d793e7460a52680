"""Loads of later iterations while earlier ones compute: prologue, steady state and epilogue of each innermost loop.

Products of the loaded tiles move ahead, too, if the vector unit works on them. It then computes one iteration while the matrix
unit computes the next. Without room for their accumulators only loads move.

With `depth` N, every tile that moves ahead gets N slots. The prologue loads the first N iterations. One step of the steady
state computes N iterations, and after each loads its slot for the iteration N later. The epilogue computes the last N loaded
iterations. The original loop computes the remaining iterations: all, if there are fewer than N. Nothing else is loaded than in
the original loop.

A load moves ahead if its address depends on no value of the loop but the counter, and if the loop does not write that memory.

In a function with events or barriers, a load keeps its event, one per slot. It then moves ahead of barriers, and of events of
earlier iterations that it waits for. Such a loop changes only if the hazard check finds nothing new in the whole program.

A loop with a call does not change, nor does one whose slots do not fit into the target's memory. Functions with addresses do
not change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics, Severity, UsageError
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import PURE, WAITS, Function, Op, Operand, Region, Value, clone_blocks, create, operand_type
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Any
from ptir_tools.dialects.pto.affine import constant, linear
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory import capacity
from ptir_tools.dialects.pto.memory.info import infer, tile_bytes
from ptir_tools.dialects.pto.memory.windows import view_of
from ptir_tools.dialects.pto.ops.memory import is_load, memory_of, touches_memory
from ptir_tools.dialects.pto.order import hazards
from ptir_tools.dialects.pto.pipes import is_tile_op, unit
from ptir_tools.dialects.pto.structure import has_addresses, is_call, is_for, is_loop, unused_names
from ptir_tools.dialects.pto.targets import Target, target_of
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import INDEX_TYPE, EventType, event
from ptir_tools.passes import PassContext
from ptir_tools.rewrite.rewriter import Rewriter

OPTIONS = {"depth": 2}
DEEPEST = 8  # one event id per slot


def run(program: Program, context: PassContext) -> None:
    """Load ahead of the computation: `depth` iterations of each innermost loop are loaded at a time."""
    depth = context.options["depth"]
    if not 2 <= depth <= DEEPEST:
        raise UsageError(f"depth is {depth}, must be in 2..{DEEPEST}")
    target = target_of(program, Options())
    for rw in context.rewriters(program):
        function = rw.block
        assert isinstance(function, Function)
        loops = [*filter(is_for, function.ops())]
        if not loops or has_addresses(function):
            continue
        ordered = any(_signals(op) or _orders(op) for op in function.ops())
        room = _Room(function, target)
        names = unused_names(function, "p")
        for loop in loops:
            ahead = next((x for x in _Ahead.of(loop, ordered) if room.take(x, depth)), None)
            if ahead is None or (ordered and not _proved(program, function, loop, depth, target)):
                continue
            _Pipeline(rw, loop, ahead, depth, names).build()
            if ordered:
                rw.finish()
            context.count("loops")


def _signals(op: Op) -> bool:
    return any(isinstance(v.type, EventType) for v in op.results)


def _proved(program: Program, function: Function, loop: Op, depth: int, target: Target | None) -> bool:
    """Whether the hazard check finds nothing new after the loads of a loop move ahead; it checks a copy of the program."""
    at = next(k for k, op in enumerate(function.ops()) if op is loop)
    copy = clone(program)
    block = copy.functions[program.functions.index(function)]
    again = next(op for k, op in enumerate(block.ops()) if k == at)
    with Rewriter(block, copy.dialect, program=copy) as rw:
        _Pipeline(rw, again, _Ahead.of(again, True)[0], depth, unused_names(block, "p")).build()
    counts = [Counter[str](), Counter[str]()]
    for codes, tried in zip(counts, (program, copy), strict=True):
        hazards.check(tried, diagnostics := Diagnostics(), target)
        codes.update(d.code for d in diagnostics if d.severity is not Severity.NOTE)
    return counts[1] <= counts[0]


# What may be loaded ahead


@dataclass(slots=True)
class _Ahead:
    """The ops of a loop that move ahead, the ops that compute their indices, and the slots: those of their tiles that other ops
    read."""

    ops: set[Op]
    needs: set[Op]
    slots: list[Value]

    @classmethod
    def of(cls, loop: Op, ordered: bool) -> list[_Ahead]:
        """The choices of ops in `loop` that may move ahead, the largest first: loads with products for the vector unit, or
        loads alone. In a function that is `ordered` by events or barriers, only loads move, ahead of what they wait for."""
        body = loop.regions[0]
        ops = list(body.ops())
        step = linear(loop.operands[2])
        counts = body.params[0].type is INDEX_TYPE and not step.terms and step.const > 0
        if not counts or any(is_loop(op) or is_call(op) for op in ops):
            return []
        views = [view_of(memory_of(op)) for op in ops if touches_memory(op) and not is_load(op)]
        written = {v.root if v is not None else None for v in views}
        free: set[Value] = {body.params[0]}
        outputs = {v for op in ops for v in op.results} | set(body.params[1:])
        needs, loads, cube = set[Op](), list[Op](), list[Op]()
        for op in body.body:
            known = all(x in free or x not in outputs for x in op.operands if isinstance(x, Value) and not _is_event(x))
            if known and not op.regions and (op.defn.traits & PURE or op.defn.is_constant):
                free.update(op.results)
                needs.add(op)
            elif known and is_load(op) and not set(op.results).intersection(body.results):
                view = view_of(memory_of(op))
                if view is not None and view.root not in written and None not in written:
                    loads.append(op)
            elif unit(op) in ("MTE1", "M") and not ordered:
                ready = free.union(*(x.results for x in (*loads, *cube)))
                if all(x in ready or x not in outputs for x in op.operands if isinstance(x, Value)):
                    cube.append(op)
        whole = [cls._slotted(loop, needs, kept)] if (kept := _products(loop, loads, cube)) else []
        return [x for x in (*whole, cls._slotted(loop, needs, loads)) if x.slots and any(map(x.leaves, ops))]

    @classmethod
    def _slotted(cls, loop: Op, needs: set[Op], moved: Sequence[Op]) -> _Ahead:
        others = [op for op in loop.regions[0].body if op not in moved]
        read = {x for op in others for x in _read(op)} | set(loop.regions[0].results)
        return cls(set(moved), needs, [v for op in moved for v in op.results if v in read])

    def leaves(self, op: Op) -> bool:
        """Whether `op` is a tile op that does not move ahead."""
        return is_tile_op(op.defn) and op not in self.ops


def _orders(op: Op) -> bool:
    """A barrier, a wait for events or a call. Later ops may depend on ops of a caller that it waits for, so they do not move."""
    return bool(op.defn.traits & WAITS) and not is_tile_op(op.defn) and not op.regions


def _is_event(x: Operand) -> bool:
    return isinstance(operand_type(x), EventType)


def _products(loop: Op, loads: Sequence[Op], cube: Sequence[Op]) -> list[Op]:
    """The loads, and those of `cube` that make accumulators for other ops. There are none if the loop has no other vector op,
    or if other ops read more of their results than accumulators."""
    others = [op for op in loop.regions[0].body if op not in cube]
    read = {x for op in others for x in _read(op)} | set(loop.regions[0].results)
    if all(unit(op) != "V" for op in others):
        return []
    wanted: set[Value] = set()
    kept: list[Op] = []
    for op in reversed(cube):
        if (unit(op) == "M" and op.result in read) or op.result in wanted:
            wanted.update(op.values())
            kept.append(op)
    alone = all(op.result not in read or (unit(op) == "M" and op.result not in wanted) for op in kept)
    return [op for op in loop.regions[0].body if op in loads or op in kept] if kept and alone else []


def _read(op: Op) -> Iterator[Value]:
    """The values that an op and its blocks read."""
    yield from op.values()
    for block in op.regions:
        yield from (x for x in block.results if isinstance(x, Value))
        for inner in block.ops():
            yield from inner.values()
            yield from (x for r in inner.regions for x in r.results if isinstance(x, Value))


class _Room:
    """The free bytes of each space, for more slots."""

    def __init__(self, function: Function, target: Target | None) -> None:
        self.tiles = infer(function, target)
        self.left: dict[str, int] | None = None
        if target is not None:
            used = {space.name: space.peak for space in capacity.spaces(function, target)}
            self.left = {name: size - used.get(name, 0) for name, size in target.capacity.items()}
            if target.scratch is not None and any(facts(op).scratch for op in function.ops()):
                self.left["Vec"] -= sum(target.scratch) - target.scratch[0]

    def take(self, ahead: _Ahead, depth: int) -> bool:
        """Use the room for the slots besides the first; whether there is enough."""
        if self.left is None:
            return True
        left = dict(self.left)
        for t in (self.tiles[v] for v in ahead.slots if not _is_event(v)):
            left[t.loc or "Vec"] -= tile_bytes(t) * (depth - 1)
        if min(left.values()) < 0:
            return False
        self.left = left
        return True


# The loop in three parts


@dataclass(slots=True)
class Copies:
    """New ops, to be inserted before the loop or into a block."""

    names: Iterator[str]
    body: list[Op] = field(default_factory=list)

    def add(self, op: Op) -> Op:
        self.body.append(op)
        return op

    def op(self, short: str, *operands: Any, regions: Sequence[Region] = (), **attrs: Any) -> Op:
        result = create(OPS[f"pto.{short}"], operands, attrs, regions=regions)
        for v in result.results:
            v.name = next(self.names)
        return self.add(result)

    def number(self, n: int) -> Value:
        return self.op("constant", value=integer(n, INDEX)).result

    def copies(self, ops: Sequence[Op], values: dict[Value, Value]) -> None:
        """Append copies of ops, in their order."""
        for op in ops:
            self.copy(op, values)

    def copy(self, op: Op, values: dict[Value, Value]) -> None:
        """Append a copy of `op` with operands replaced by `values`, which then also has its results."""
        operands = tuple(values.get(x, x) if isinstance(x, Value) else x for x in op.operands)
        regions = tuple(clone_blocks(list(op.regions), values))
        result = Op(op.defn, operands, op.attrs, (), regions, op.loc)
        result.results = tuple(Value(v.type, next(self.names), result) for v in op.results)
        values.update(zip(op.results, result.results, strict=True))
        for r in regions:
            for inner in r.ops():
                for v in (*inner.results, *(p for block in inner.regions for p in block.params)):
                    v.name = next(self.names)
        self.add(result)


class _Pipeline:
    """One loop with slots."""

    def __init__(self, rw: Rewriter, loop: Op, ahead: _Ahead, depth: int, names: Iterator[str]) -> None:
        self.rw = rw
        self.loop = loop
        self.ahead = ahead
        self.depth = depth
        self.body = loop.regions[0]
        self.made = set(self.body.values())
        self.step = linear(loop.operands[2]).const
        self.names = names

    def build(self) -> None:
        """Insert the parts before the loop, which then computes the remaining iterations."""
        out = Copies(self.names)
        lower, upper, _, *inits = self.loop.operands
        low, high = constant(lower), constant(upper)
        trips = None if low is None or high is None else max(0, -(-(high - low) // self.step))
        if trips is not None:
            if trips < self.depth:
                return
            rounds = (trips - self.depth) // self.depth
            end = out.number((low or 0) + rounds * self.span)
            results = self.parts(out, lower, end, inits, steady=rounds > 0)
        else:
            results = self.guarded(out, lower, upper, inits)
        for op in out.body:
            op.loc = op.loc or self.loop.loc
            self.rw.insert_before(self.loop, op)
        self.rw.set_operands(self.loop, [results[0], *self.loop.operands[1:3], *results[1:]])

    @property
    def span(self) -> int:
        """The increment of the counter in one step of the steady state."""
        return self.depth * self.step

    def guarded(self, out: Copies, lower: Operand, upper: Operand, inits: Sequence[Operand]) -> list[Value]:
        """The parts for an unknown number of iterations: they run if there are at least `depth`."""
        low, high = (self.value(out, x) for x in (lower, upper))
        depth, step, span = (out.number(n) for n in (self.depth, self.step, self.span))
        trips = out.op("ceildivsi", out.op("subi", high, low).result, step).result
        enough = out.op("cmpi", trips, depth, predicate="sge").result
        then, otherwise = (Region(name, isolated=False) for name in ("then", "otherwise"))
        inner = Copies(self.names)
        rounds = inner.op("floordivsi", inner.op("subi", trips, depth).result, depth).result
        end = inner.op("addi", low, inner.op("muli", rounds, span).result).result
        then.results = list(self.parts(inner, low, end, inits, steady=True))
        then.body = inner.body
        otherwise.results = [low, *inits]
        types = [INDEX_TYPE, *(v.type for v in self.loop.results)]
        then.result_types, otherwise.result_types = list(types), list(types)
        return list(out.op("scf.if", enough, regions=[then, otherwise]).results)

    def value(self, out: Copies, x: Operand) -> Value:
        known = constant(x)
        return x if isinstance(x, Value) else out.number(known or 0)

    def parts(self, out: Copies, lower: Operand, end: Value, inits: Sequence[Operand], steady: bool) -> list[Value]:
        """Prologue, steady state up to `end`, and epilogue; the next value of the counter, and the carried values."""
        low = self.value(out, lower)
        tiles = [v for k in range(self.depth) for v in self.load(out, self.at(out, low, k))]
        state: list[Any] = list(inits)
        if steady:
            types = [INDEX_TYPE, *(v.type for v in (*self.body.params[1:], *tiles))]
            params = [Value(t, next(self.names)) for t in types]
            block = Region("body", isolated=False, params=params)
            inner = Copies(self.names)
            now: list[Any] = list(params[1 : 1 + len(state)])
            slots = params[1 + len(state) :]
            results: list[Value] = []
            for k in range(self.depth):
                now = self.compute(inner, self.at(inner, params[0], k), now, self.slot(slots, k))
                results += self.load(inner, self.at(inner, params[0], k + self.depth))
            block.body, block.results = inner.body, [*now, *results]
            block.result_types = [p.type for p in params[1:]]
            loop = out.op("scf.for", low, end, out.number(self.span), [*state, *tiles], regions=[block])
            state, tiles = list(loop.results[: len(state)]), list(loop.results[len(state) :])
        for k in range(self.depth):
            state = self.compute(out, self.at(out, end, k), state, self.slot(tiles, k))
        return [self.at(out, end, self.depth), *state]

    def at(self, out: Copies, base: Value, k: int) -> Value:
        """The counter `k` iterations after `base`."""
        return out.op("addi", base, out.number(k * self.step)).result if k else base

    def slot(self, tiles: Sequence[Value], k: int) -> Sequence[Value]:
        n = len(self.ahead.slots)
        return tiles[k * n : (k + 1) * n]

    def load(self, out: Copies, i: Value) -> list[Value]:
        """Copy the ops that move ahead for the iteration `i`; the tiles of its slots."""
        values: dict[Value, Value] = {self.body.params[0]: i}
        for op in self.body.body:
            if op in self.ahead.needs or op in self.ahead.ops:
                bare = self.free(op)
                out.copy(bare, values)
                values.update((v, values[w]) for v, w in zip(op.results, bare.results, strict=True))
        return [values[v] for v in self.ahead.slots]

    def free(self, op: Op) -> Op:
        """A copy of an op that moves ahead: without the events of the loop that it waits for, and without an id, because each
        slot has its own."""
        if not _signals(op) and not any(map(_is_event, op.operands)):
            return op
        groups, attrs = op.defn.split(op.attrs, op.operands), op.defn.named(op.attrs)
        groups[-1] = [x for x in groups[-1] if x not in self.made]
        if isinstance(t := attrs.get("event"), EventType):
            attrs["event"] = event(t.producer, t.scope)
        return create(op.defn, groups, attrs, loc=op.loc)

    def compute(self, out: Copies, i: Value, state: Sequence[Any], tiles: Sequence[Value]) -> list[object]:
        """Copy the iteration `i` without the ops that have moved ahead, whose slots are `tiles`; the carried values."""
        values: dict[Value, Value] = dict(zip(self.body.params, (i, *state), strict=True))
        values.update(zip(self.ahead.slots, tiles, strict=True))
        for op in self.body.body:
            if op not in self.ahead.ops:
                out.copy(op, values)
        return [values.get(x, x) if isinstance(x, Value) else x for x in self.body.results]
