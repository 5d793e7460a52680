"""Fusion of kernels that pass rows to each other: a product, vector ops on its rows, and a product of those.

Each kernel loops over the same slices (heads) and blocks of rows. The fused kernel is software-pipelined: while the vector unit
works on a block, the first product of the next block and the second product of an earlier block run.

    block r      first product of r + 1, vector ops of r, second product of r - LAG

The first product comes before the vector ops, so that its loads need not wait until these have read their block back.

The rows of a slice are unrolled; the slices are a loop, which carries the pipeline's state. A kernel that transposes an operand
of the first product may be fused, too: it works on the next slice, a part in each block.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import PURE, Function, Op, Region, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.types import Shape
from ptir_tools.dialects.pto.affine import constant, linear
from ptir_tools.dialects.pto.ops.memory import memory_of, touches_memory
from ptir_tools.dialects.pto.pipes import unit
from ptir_tools.dialects.pto.structure import is_for, unused_names
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType
from ptir_tools.passes.pto.pto_software_pipeline import Copies

LAG = 2  # blocks between the store of rows and the product that reads them
MOST = 16  # the most blocks of rows that are unrolled
LEAST = LAG + 2


@dataclass(slots=True, frozen=True)
class Nest:
    """A kernel of two loops without carried values: `before` is only in the outer loop, `body` in the inner one. A third loop,
    over `batches`, may be around them, with `top` in it."""

    params: list[Value]
    batches: Op | None
    top: list[Op]
    slices: Op
    before: list[Op]
    blocks: Op
    body: list[Op]

    @classmethod
    def of(cls, f: Function) -> Nest | None:
        """The loop nest of a kernel; None where it has other loops."""
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
        """The loop counters that select the slice of memory of a block."""
        return [*([self.batches.regions[0].params[0]] if self.batches is not None else []), self.slice]

    def kept(self) -> list[Value]:
        """The tiles that are the same for all blocks of a slice."""
        return [v for op in self.before for v in op.results if isinstance(v.type, TileType)]

    def cube(self) -> list[Op]:
        """The ops of the matrix unit, and those that they depend on."""
        inside = set(self.body)
        feeding: set[Op] = set()
        todo = [op for op in self.body if unit(op) in ("MTE1", "M")]
        while todo:
            op = todo.pop()
            if op not in feeding:
                feeding.add(op)
                todo += [x.op for x in op.values() if x.op is not None and x.op in inside]
        return [op for op in self.body if op in feeding]

    def share(self, memory: Mapping[Value, Value], private: Container[Value]) -> None:
        """Let all slices share the storage of the first one in memory that is `private`: a slice is stored after the one before
        has been read. So the dependence check need not follow all slices."""
        for op in (*self.top, *self.before, *self.body):
            if touches_memory(op) and isinstance(base := memory_of(op), Value) and memory[base] in private:
                at = op.operands.index(base) + 1
                end = at + len(self.lead)
                if list(op.operands[at:end]) == self.lead:
                    op.operands = (*op.operands[:at], *(integer(0, INDEX) for _ in self.lead), *op.operands[end:])

    def accesses(self, memory: Mapping[Value, Value]) -> Iterator[_Access]:
        """The accesses of loads and stores; `memory` maps parameters to memories."""
        for op in (*self.top, *self.before, *self.body):
            if touches_memory(op):
                writes = "store" in op.defn.short
                base, result = memory_of(op), op.operands[0] if writes else op.result
                assert isinstance(base, Value) and isinstance(base.type, MemRefType) and isinstance(result, Value)
                assert isinstance(result.type, TileType)
                at = [linear(x) for x in op.operands[op.operands.index(base) + 1 :][: base.type.rank]]
                counters = (*self.lead, self.block)
                place = tuple((x.const, *(x.terms.get(i, 0) for i in counters), len(x.terms)) for x in at)
                whole = tuple((0, *(int(i is own) for i in counters), 1) for own in self.lead)
                one = result.type.rank + len(whole) <= base.type.rank
                within = one and place[: len(whole)] == whole
                yield _Access(memory[base], writes, op in self.body, place, result.type.shape, within)


@dataclass(slots=True, frozen=True)
class _Access:
    """A load or store: its index in a memory, the shape of its tile, and whether it is inside its own slice. An index is, per
    dimension, a number, the coefficient of each counter, and the number of terms."""

    memory: Value
    writes: bool
    inside: bool  # in the inner loop
    place: tuple[tuple[int, ...], ...]
    shape: Shape
    of_slice: bool


def _looped(block: Region) -> tuple[list[Op], Op] | None:
    """The ops before the last loop of a block, and that loop, which has a known trip count."""
    if not block.body or any(op.regions for op in block.body[:-1]):
        return None
    *before, loop = block.body
    known = is_for(loop) and len(loop.operands) == len(loop.regions[0].params) + 2 and not loop.results
    return (before, loop) if known and None not in map(constant, loop.operands) else None


def _range(loop: Op) -> range:
    lower, upper, step = map(constant, loop.operands)
    assert lower is not None and upper is not None and step is not None
    return range(lower, upper, step)


@dataclass(slots=True)
class _Work:
    """The work of one kernel on a block, in stages."""

    nest: Nest
    cube: list[Op]
    made: Value | None  # the accumulator
    first: list[Op]  # the ops that read it
    then: list[Op]
    stores: list[Op]

    @classmethod
    def of(cls, nest: Nest) -> _Work | None:
        """The stages; None where there is more than one accumulator."""
        cube = nest.cube()
        inside = {v for op in cube if not op.defn.traits & PURE or unit(op) in ("MTE1", "M") for v in op.results}
        others = [op for op in nest.body if op not in cube]
        read = list(dict.fromkeys(x for op in others for x in op.values() if x in inside))
        if len(read) > 1 or any(unit(v.op) != "M" for v in read if v.op is not None):
            return None
        shared = [op for op in nest.body if not any(isinstance(v.type, TileType) for v in op.results) and op.results]
        first = [op for op in others if op not in shared and read and read[0] in op.operands]
        stores = [op for op in others if op.defn.short == "tile.store"]
        through = {memory_of(op) for op in first if op in stores}  # on a3 a product gets to Vec through memory
        if back := [op for op in others if op.defn.short == "tile.load" and memory_of(op) in through]:
            first += back
            stores = [op for op in stores if op not in first]
        then = [op for op in others if op not in (*first, *stores, *shared)]
        tiles = [op for op in cube if op not in shared]
        return cls(nest, [*shared, *tiles], read[0] if read else None, [*shared, *first], then, stores)


@dataclass(slots=True)
class _State:
    """The state of the pipeline: the accumulator of the next rows, that of a second product (if any), and the tiles that a slice
    shares."""

    acc: Value
    second: Value | None
    tiles: dict[Value, Value]

    @property
    def values(self) -> list[Value]:
        """All values of the state."""
        return [self.acc, *([self.second] if self.second is not None else []), *self.tiles.values()]


@dataclass(slots=True)
class Chain:
    """Builds the fused kernel. `memory` maps each parameter of a kernel to one of the chain."""

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
            result = self.second(last, row, state.tiles)
            self.out.copies(*self.end(last, self.rows[self.rows.index(row) - 1], state.second, state.tiles))
            state = _State(state.acc, result, state.tiles)
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
        result = outer.op("scf.for", *bounds, inits, regions=[body])
        acc, under_way, *tiles = result.results
        return _State(acc, under_way, dict(zip(kept, tiles, strict=True)))

    def next(self, i: Value) -> Value:
        """The slice after `i`."""
        return self.out.op("addi", i, self.out.number(_range(self.a.nest.slices).step)).result

    def slice(self, i: Value, after: Value | None, before: Value | None, state: _State) -> _State:
        """All blocks of slice `i`; `after` is the next one (None: there is none), `before` the one before."""
        rows, ahead = self.rows, _range(self.ahead.blocks) if self.ahead is not None and after is not None else range(0)
        acc, tiles, result = state.acc, dict(state.tiles), state.second
        for k, row in enumerate(rows):
            values = self.at(self.a.nest, i, row, tiles)
            assert self.a.made is not None
            values[self.a.made] = acc
            if k == len(rows) - 1 and after is not None:
                tiles |= self.begin(self.a.nest, after)
                acc = self.product(after, rows[0], tiles)
            elif k < len(rows) - 1:
                acc = self.product(i, rows[k + 1], tiles)
            self.out.copies([*self.a.first, *self.a.then], values)
            stores = [self.turned(after, ahead[k])] if after is not None and k < len(ahead) else []
            if result is not None:
                stores.append(self.end(*self.lagging(i, before, k - 1), result, tiles))
            if k == LAG:
                tiles |= self.begin(self.b.nest, i)
            if k >= LAG or before is not None:
                result = self.second(*self.lagging(i, before, k), tiles)
            for work in stores:
                self.out.copies(*work)
            self.out.copies(self.a.stores, values)
        return _State(acc, result, tiles)

    def lagging(self, i: Value, before: Value | None, k: int) -> tuple[Value, int]:
        """The slice and row of the second product that runs with block `k`."""
        if k >= LAG:
            return i, self.rows[k - LAG]
        assert before is not None
        return before, self.rows[k - LAG]

    def at(self, nest: Nest, i: Value, row: int, tiles: Mapping[Value, Value]) -> dict[Value, Value]:
        """The values of a block, including scalars that a slice shares."""
        values = self.values | dict(tiles) | {nest.slice: i, nest.block: self.out.number(row)}
        self.out.copies([op for op in nest.before if not any(isinstance(v.type, TileType) for v in op.results)], values)
        return values

    def begin(self, nest: Nest, i: Value) -> dict[Value, Value]:
        """Load the tiles that a slice shares."""
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

    def end(self, i: Value, row: int, result: Value | None, tiles: Mapping[Value, Value]) -> tuple[list[Op], dict[Value, Value]]:
        """The ops after a second product, except stores, which are returned."""
        values = self.at(self.b.nest, i, row, tiles)
        assert self.b.made is not None and result is not None
        values[self.b.made] = result
        self.out.copies([*self.b.first, *self.b.then], values)
        return self.b.stores, values

    def turned(self, i: Value, row: int) -> tuple[list[Op], dict[Value, Value]]:
        """A block of the transpose for slice `i`, except stores, which are returned."""
        assert self.ahead is not None
        values = self.at(self.ahead, i, row, {})
        self.out.copies([op for op in self.ahead.body if op.defn.short != "tile.store"], values)
        return [op for op in self.ahead.body if op.defn.short == "tile.store"], values

    def prepare(self, i: Value) -> None:
        """The whole transpose for slice `i`."""
        assert self.ahead is not None
        for row in _range(self.ahead.blocks):
            self.out.copies(*self.turned(i, row))


def chained(kernels: Sequence[Function], memory: Mapping[Value, Value], private: Container[Value], name: str) -> Function | None:
    """The kernels, the last two of which are products, fused into one. `memory` maps their parameters to memories; no other
    kernel reads `private` memory. None where they cannot be fused."""
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
    result = Function(name, params=list(params.values()), loc=kernels[-1].loc)
    result.body = Chain(a, b, ahead[0] if ahead else None, values, unused_names(result, "x")).build()
    return result


def _handed(a: Nest, b: Nest, memory: Mapping[Value, Value]) -> bool:
    """Whether a block of the second kernel reads exactly what the same block of the first one stores in it."""
    own = {x.memory for x in a.accesses(memory) if not x.writes}  # and what it reads back
    stores = [x for x in a.accesses(memory) if x.writes and x.memory not in own]
    if len(stores) != 1:
        return False
    (store,) = stores
    loads = [x for x in b.accesses(memory) if x.memory is store.memory]
    return bool(loads) and all(x.inside and (x.place, x.shape) == (store.place, store.shape) for x in loads)


def _prepared(ahead: Nest, first: Nest, second: Nest, memory: Mapping[Value, Value]) -> bool:
    """Whether only the first product of a slice reads what is prepared for the slice, and nothing of other slices."""
    stores = [x for x in ahead.accesses(memory) if x.writes]
    places = {x.memory for x in stores}
    loads = [x for x in first.accesses(memory) if x.memory in places]
    alone = not any(x.memory in places for x in second.accesses(memory))
    return bool(loads) and alone and all(x.of_slice for x in (*stores, *loads))
