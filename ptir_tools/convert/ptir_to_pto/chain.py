"""Kernels that hand rows from one to the next as one: a product, what the vector unit makes of it, and a product of that.

Each goes over the same slices (heads), and in them over the same blocks of rows. In the one kernel the matrix unit does not wait
for the vector unit: while this works on a block, the first product of the next block and the second one of an earlier block run.

    block r      vector ops of r, first product of r + 1, second product of r - LAG

The rows of a slice are written out; the slices are a loop, which carries what is under way from one to the next. A kernel that
prepares an operand of the first product (turns it) may be part of it: it does the next slice, some of it in each block.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import count

from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import PURE, Function, Op, Region, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Any
from ptir_tools.dialects.pto.affine import constant, linear
from ptir_tools.dialects.pto.ops.memory import memory_of, touches_memory
from ptir_tools.dialects.pto.pipes import unit
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType
from ptir_tools.passes.pto.pto_software_pipeline import Copies

LAG = 2  # blocks from the rows that are stored to the product that reads them
MOST = 16  # blocks of rows that are written out
LEAST = LAG + 2


@dataclass(slots=True, frozen=True)
class Nest:
    """A kernel of two loops: `before` is in the outer one alone, `body` in the inner one. Neither carries anything. A third loop,
    over `batches`, may be around the two, with `top` in it."""

    params: list[Value]
    batches: Op | None
    top: list[Op]
    slices: Op
    before: list[Op]
    blocks: Op
    body: list[Op]

    @classmethod
    def of(cls, f: Function) -> Nest | None:
        """The loops of a kernel; None where there are others."""
        if (outer := _looped(f)) is None or (inner := _looped(outer[1].regions[0])) is None:
            return None
        batches = None
        if (more := _looped(inner[1].regions[0])) is not None:
            if any(isinstance(v.type, TileType) for op in inner[0] for v in op.results):
                return None
            batches, outer, inner = outer[1], ([*outer[0], *inner[0]], inner[1]), more
        body = inner[1].regions[0].body
        if any(isinstance(v.type, MemRefType) for op in (*outer[0], *inner[0], *body) for v in op.results) or any(
            op.regions for op in body
        ):
            return None
        return cls(f.params, batches, outer[0], outer[1], inner[0], inner[1], body)

    @property
    def slice(self) -> Value:
        """The counter of the outer loop."""
        return self.slices.regions[0].params[0]

    @property
    def block(self) -> Value:
        """The counter of the inner loop."""
        return self.blocks.regions[0].params[0]

    @property
    def lead(self) -> list[Value]:
        """The counters that say which slice of memory a block is in."""
        return [*([self.batches.regions[0].params[0]] if self.batches is not None else []), self.slice]

    def kept(self) -> list[Value]:
        """The tiles that are the same for all blocks of a slice."""
        return [v for op in self.before for v in op.results if isinstance(v.type, TileType)]

    def cube(self) -> list[Op]:
        """The ops that the matrix unit needs, and its own."""
        inside = set(self.body)
        results: set[Op] = set()
        todo = [op for op in self.body if unit(op) in ("MTE1", "M")]
        while todo:
            op = todo.pop()
            if op not in results:
                results.add(op)
                todo += [x.op for x in op.values() if x.op is not None and x.op in inside]
        return [op for op in self.body if op in results]

    def share(self, memory: Mapping[Value, Value], private: Container[Value]) -> None:
        """Let all slices have the place of the first one in memory that is `private`: the next slice is stored there when this
        one has been read. So the check of order need not follow all slices."""
        for op in (*self.top, *self.before, *self.body):
            if touches_memory(op) and isinstance(base := memory_of(op), Value) and memory[base] in private:
                at = op.operands.index(base) + 1
                end = at + len(self.lead)
                if list(op.operands[at:end]) == self.lead:
                    op.operands = (*op.operands[:at], *(integer(0, INDEX) for _ in self.lead), *op.operands[end:])

    def accesses(self, memory: Mapping[Value, Value]) -> Iterator[_Access]:
        """What loads and stores access; `memory` says which memory a parameter is."""
        for op in (*self.top, *self.before, *self.body):
            if touches_memory(op):
                writes = "store" in op.defn.short
                base, made = memory_of(op), op.operands[0] if writes else op.result
                assert isinstance(base, Value) and isinstance(base.type, MemRefType) and isinstance(made, Value)
                assert isinstance(made.type, TileType)
                at = [linear(x) for x in op.operands[op.operands.index(base) + 1 :][: base.type.rank]]
                counters = (*self.lead, self.block)
                place = tuple((x.const, *(x.terms.get(i, 0) for i in counters), len(x.terms)) for x in at)
                whole = tuple((0, *(int(i is own) for i in counters), 1) for own in self.lead)
                one = made.type.rank + len(whole) <= base.type.rank
                within = one and place[: len(whole)] == whole
                yield _Access(memory[base], writes, op in self.body, place, made.type.shape, within)


@dataclass(slots=True, frozen=True)
class _Access:
    """A load or store: where it is in a memory, the shape of its tile, and whether it is within what has the number of the slice.

    A place is, per dimension, a number, how often each counter is added, and how many terms there are."""

    memory: Value
    writes: bool
    inside: bool  # in the inner loop
    place: tuple[tuple[int, ...], ...]
    shape: tuple[Any, ...]
    of_slice: bool


def _looped(block: Region) -> tuple[list[Op], Op] | None:
    """The ops before the loop with which a block ends, and that loop, whose trips are known."""
    if not block.body or any(op.regions for op in block.body[:-1]):
        return None
    *before, loop = block.body
    known = loop.defn.short == "scf.for" and len(loop.operands) == len(loop.regions[0].params) + 2 and not loop.results
    return (before, loop) if known and None not in map(constant, loop.operands) else None


def _range(loop: Op) -> range:
    lower, upper, step = map(constant, loop.operands)
    assert lower is not None and upper is not None and step is not None
    return range(lower, upper, step)


@dataclass(slots=True)
class _Work:
    """What one kernel does in a block, in parts."""

    nest: Nest
    cube: list[Op]
    made: Value | None  # the accumulator
    first: list[Op]  # what reads it
    then: list[Op]
    stores: list[Op]

    @classmethod
    def of(cls, nest: Nest) -> _Work | None:
        """The parts; None where the matrix unit makes more than one accumulator."""
        cube = nest.cube()
        inside = {v for op in cube if not op.defn.traits & PURE or unit(op) in ("MTE1", "M") for v in op.results}
        others = [op for op in nest.body if op not in cube]
        made = list(dict.fromkeys(x for op in others for x in op.values() if x in inside))
        if len(made) > 1 or any(unit(v.op) != "M" for v in made if v.op is not None):
            return None
        shared = [op for op in nest.body if not any(isinstance(v.type, TileType) for v in op.results) and op.results]
        first = [op for op in others if op not in shared and made and made[0] in op.operands]
        stores = [op for op in others if op.defn.short == "tile.store"]
        then = [op for op in others if op not in (*first, *stores, *shared)]
        tiles = [op for op in cube if op not in shared]
        return cls(nest, [*shared, *tiles], made[0] if made else None, [*shared, *first], then, stores)


@dataclass(slots=True)
class _State:
    """What is under way: the accumulator of the next rows, that of a second product (if any), and tiles that are the same in a
    slice."""

    acc: Value
    second: Value | None
    tiles: dict[Value, Value]

    @property
    def values(self) -> list[Value]:
        """All of it."""
        return [self.acc, *([self.second] if self.second is not None else []), *self.tiles.values()]


@dataclass(slots=True)
class Chain:
    """One kernel in the making. `memory` says, for each parameter of a kernel, which one it is of the chain."""

    a: _Work
    b: _Work
    ahead: Nest | None
    values: dict[Value, Value]
    names: Iterator[str]
    out: Copies = field(init=False)

    def __post_init__(self) -> None:
        self.out = Copies(self.names)

    @property
    def rows(self) -> range:
        """Where blocks of rows begin."""
        return _range(self.a.nest.blocks)

    def build(self) -> list[Op]:
        """All ops of the kernel."""
        nests = [n for n in (self.ahead, self.a.nest, self.b.nest) if n is not None]
        if (batches := self.a.nest.batches) is None:
            return self.batch(nests)
        outer, self.out = self.out, Copies(self.names)
        numbers = _range(batches)
        bounds = [outer.number(n) for n in (numbers.start, numbers.stop, numbers.step)]
        body = Region("body", isolated=False, params=[Value(INDEX_TYPE, next(self.names))])
        self.values |= {n.lead[0]: body.params[0] for n in nests}
        body.body = self.batch(nests)
        outer.op("scf.for", *bounds, [], regions=[body])
        return outer.body

    def batch(self, nests: Sequence[Nest]) -> list[Op]:
        """All ops of a batch."""
        for nest in nests:
            self.out.copies(nest.top, self.values)
        slices = _range(self.a.nest.slices)
        zero, last = self.out.number(slices[0]), self.out.number(slices[-1])
        if self.ahead is not None:
            self.prepare(zero)
        tiles = self.begin(self.a.nest, zero)
        state = _State(self.product(zero, self.rows[0], tiles), None, tiles)
        state = self.slice(zero, self.next(zero), None, state)
        if len(slices) > 2:
            state = self.loop(slices, state)
        state = self.slice(last, None, self.out.number(slices[-2]), state)
        for row in self.rows[-LAG:]:
            made = self.second(last, row, state.tiles)
            self.out.copies(*self.end(last, self.rows[self.rows.index(row) - 1], state.second, state.tiles))
            state = _State(state.acc, made, state.tiles)
        self.out.copies(*self.end(last, self.rows[-1], state.second, state.tiles))
        return self.out.body

    def loop(self, slices: range, state: _State) -> _State:
        """The slices between the first and the last."""
        outer, kept = self.out, list(state.tiles)
        bounds = [outer.number(n) for n in (slices[1], slices[-1], slices.step)]
        inits = state.values
        params = [Value(INDEX_TYPE, next(self.names)), *(Value(v.type, next(self.names)) for v in inits)]
        body = Region("body", isolated=False, params=params, result_types=[v.type for v in inits])
        self.out = Copies(self.names)
        i, before = params[0], self.out.op("subi", params[0], self.out.number(slices.step)).result
        now = self.slice(i, self.next(i), before, _State(params[1], params[2], dict(zip(kept, params[3:], strict=True))))
        now.tiles = {v: now.tiles[v] for v in kept}
        body.body, body.results = self.out.body, list(now.values)
        self.out = outer
        made = outer.op("scf.for", *bounds, inits, regions=[body])
        acc, under_way, *tiles = made.results
        return _State(acc, under_way, dict(zip(kept, tiles, strict=True)))

    def next(self, i: Value) -> Value:
        """The slice after `i`."""
        return self.out.op("addi", i, self.out.number(_range(self.a.nest.slices).step)).result

    def slice(self, i: Value, after: Value | None, before: Value | None, state: _State) -> _State:
        """All blocks of slice `i`; `after` is the next one (None: there is none), `before` the one before."""
        rows, ahead = self.rows, _range(self.ahead.blocks) if self.ahead is not None and after is not None else range(0)
        acc, tiles, made = state.acc, dict(state.tiles), state.second
        for k, row in enumerate(rows):
            values = self.at(self.a.nest, i, row, tiles)
            assert self.a.made is not None
            values[self.a.made] = acc
            self.out.copies([*self.a.first, *self.a.then], values)
            stores = [self.turned(after, ahead[k])] if after is not None and k < len(ahead) else []
            if made is not None:
                stores.append(self.end(*self.lagging(i, before, k - 1), made, tiles))
            if k == len(rows) - 1 and after is not None:
                tiles |= self.begin(self.a.nest, after)
                acc = self.product(after, rows[0], tiles)
            elif k < len(rows) - 1:
                acc = self.product(i, rows[k + 1], tiles)
            if k == LAG:
                tiles |= self.begin(self.b.nest, i)
            if k >= LAG or before is not None:
                made = self.second(*self.lagging(i, before, k), tiles)
            for work in stores:
                self.out.copies(*work)
            self.out.copies(self.a.stores, values)
        return _State(acc, made, tiles)

    def lagging(self, i: Value, before: Value | None, k: int) -> tuple[Value, int]:
        """The slice and row of the second product that is computed with block `k`."""
        if k >= LAG:
            return i, self.rows[k - LAG]
        assert before is not None
        return before, self.rows[k - LAG]

    def at(self, nest: Nest, i: Value, row: int, tiles: Mapping[Value, Value]) -> dict[Value, Value]:
        """The values of a block, numbers that are the same in a slice included."""
        values = self.values | dict(tiles) | {nest.slice: i, nest.block: self.out.number(row)}
        self.out.copies([op for op in nest.before if not any(isinstance(v.type, TileType) for v in op.results)], values)
        return values

    def begin(self, nest: Nest, i: Value) -> dict[Value, Value]:
        """Load what is the same in a slice."""
        values = self.values | {nest.slice: i}
        self.out.copies(nest.before, values)
        return {v: values[v] for v in nest.kept()}

    def product(self, i: Value, row: int, tiles: Mapping[Value, Value]) -> Value:
        """The first product of a block."""
        values = self.at(self.a.nest, i, row, tiles)
        self.out.copies(self.a.cube, values)
        assert self.a.made is not None
        return values[self.a.made]

    def second(self, i: Value, row: int, tiles: Mapping[Value, Value]) -> Value:
        """The second product of a block."""
        values = self.at(self.b.nest, i, row, tiles)
        self.out.copies(self.b.cube, values)
        assert self.b.made is not None
        return values[self.b.made]

    def end(self, i: Value, row: int, made: Value | None, tiles: Mapping[Value, Value]) -> tuple[list[Op], dict[Value, Value]]:
        """What follows a second product, stores excepted, which are returned."""
        values = self.at(self.b.nest, i, row, tiles)
        assert self.b.made is not None and made is not None
        values[self.b.made] = made
        self.out.copies([*self.b.first, *self.b.then], values)
        return self.b.stores, values

    def turned(self, i: Value, row: int) -> tuple[list[Op], dict[Value, Value]]:
        """A block of what is prepared for slice `i`, stores excepted, which are returned."""
        assert self.ahead is not None
        values = self.at(self.ahead, i, row, {})
        self.out.copies([op for op in self.ahead.body if op.defn.short != "tile.store"], values)
        return [op for op in self.ahead.body if op.defn.short == "tile.store"], values

    def prepare(self, i: Value) -> None:
        """All of what is prepared for slice `i`."""
        assert self.ahead is not None
        for row in _range(self.ahead.blocks):
            self.out.copies(*self.turned(i, row))


def chained(kernels: Sequence[Function], memory: Mapping[Value, Value], private: Container[Value], name: str) -> Function | None:
    """The kernels, the last two of which multiply, as one. `memory` says of their parameters which memory each is, and
    `private` which memory no one else reads. None where they do not fit together."""
    nests = [n for f in kernels if (n := Nest.of(f)) is not None]
    if len(nests) < len(kernels):
        return None
    *ahead, first, second = nests
    a, b = _Work.of(first), _Work.of(second)
    rows = _range(first.blocks)
    same = all(_range(n.slices) == _range(first.slices) for n in nests) and rows == _range(second.blocks)
    many = [None if n.batches is None else _range(n.batches) for n in nests]
    same = same and all(m == many[0] for m in many)
    if a is None or b is None or a.made is None or b.made is None or not same or not LEAST <= len(rows) <= MOST:
        return None
    if len(_range(first.slices)) < 2 or any(len(_range(n.blocks)) >= len(rows) or n.before for n in ahead):
        return None
    if not _handed(first, second, memory) or not all(_prepared(n, first, second, memory) for n in ahead):
        return None
    for nest in nests:
        nest.share(memory, private)
    params: dict[Value, Value] = {}
    values: dict[Value, Value] = {}
    for p in (p for nest in nests for p in nest.params):
        values[p] = params.setdefault(memory[p], Value(p.type, p.name))
    made = Function(name, params=list(params.values()), loc=kernels[-1].loc)
    taken = {p.name for p in made.params}
    names = (x for k in count() if (x := f"x{k}") not in taken)
    made.body = Chain(a, b, ahead[0] if ahead else None, values, names).build()
    return made


def _handed(a: Nest, b: Nest, memory: Mapping[Value, Value]) -> bool:
    """Whether a block of the second kernel reads what the same block of the first one stores, and nothing else of it."""
    stores = [x for x in a.accesses(memory) if x.writes]
    if len(stores) != 1:
        return False
    (store,) = stores
    loads = [x for x in b.accesses(memory) if x.memory is store.memory]
    return bool(loads) and all(x.inside and (x.place, x.shape) == (store.place, store.shape) for x in loads)


def _prepared(ahead: Nest, first: Nest, second: Nest, memory: Mapping[Value, Value]) -> bool:
    """Whether the first product of a slice, and nothing else, reads what is prepared for that slice, and no other of it."""
    stores = [x for x in ahead.accesses(memory) if x.writes]
    places = {x.memory for x in stores}
    loads = [x for x in first.accesses(memory) if x.memory in places]
    alone = not any(x.memory in places for x in second.accesses(memory))
    return bool(loads) and alone and all(x.of_slice for x in (*stores, *loads))
