"""Random kernels of loops with dependences between iterations: through memory, bytes of a space, tiles and events.

A kernel is drawn as a tree of steps without events; no tile is used after it is overwritten. `loop_waits` may then add events and
waits, so that the kernel has no races. Last, `loop_writing` turns the tree into ops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from ptir_tools.core.choices import Choices
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import F16, F32
from ptir_tools.core.ir import Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.dialects.pto.facts import facts_of
from ptir_tools.dialects.pto.pipes import opcodes_of, pipes_of_opcode

SIDE = 16  # of every tile, in elements
DTYPES = {"Vec": F32, "Mat": F16, "Left": F16, "Right": F16, "Acc": F32}
_SLOTS = {"Vec": 24, "Mat": 12, "Left": 8, "Right": 8, "Acc": 8}  # for tiles, per space
_VECTOR = ("tile.abs", "tile.relu", "tile.neg", "tile.add", "tile.max", "tile.min")
_DEPTH = 2  # of nested blocks; at times one more


class _Full(Exception):
    """No slot is free for a tile."""


@dataclass(slots=True, frozen=True)
class Place:
    """A row of memory or a byte address: `base + (i // per + shift) % ring * scale + j * stride`.

    i and j are the counters of `loop` and `outer`. A `ring` of 0 means no modulo.
    """

    base: int
    loop: Loop | None = None
    scale: int = 0
    per: int = 1
    shift: int = 0
    ring: int = 0
    outer: Loop | None = None
    stride: int = 0

    def at(self, counter: int) -> int:
        """The row or address for a counter of `loop`, without the term of `outer`."""
        n = counter // self.per + self.shift
        return self.base + (n % self.ring if self.ring else n) * self.scale


@dataclass(slots=True, eq=False)
class Tile:
    """A tile. If it is carried or the result of a branch, `sources` are the tiles that it may be."""

    loc: str
    place: Place | None = None
    sources: list[Tile] = field(default_factory=list)
    value: Value | None = None

    @property
    def size(self) -> int:
        """In bytes."""
        return SIDE * SIDE * (2 if DTYPES[self.loc] is F16 else 4)


@dataclass(slots=True, eq=False)
class Event:
    """An event; `value` is set by `loop_writing`."""

    value: Value | None = None


@dataclass(slots=True, eq=False)
class Step:
    """A tile op; `rows` is the number of rows that it loads or stores, which may depend on a counter."""

    short: str
    uses: list[Tile] = field(default_factory=list)
    makes: Tile | None = None
    memory: str = ""
    place: Place | None = None
    rows: int | Place = SIDE
    waits: list[Event] = field(default_factory=list)
    event: Event | None = None

    @property
    def opcode(self) -> str:
        """The opcode of its event."""
        d = OPS[f"pto.{self.short}"]
        stores = facts_of(d).stores
        return stores[self.uses[0].loc][0] if stores else opcodes_of(d)[0]

    @property
    def pipe(self) -> str:
        """The pipe that runs it."""
        pipe = next(iter(pipes_of_opcode(self.opcode)), None)
        assert pipe is not None
        return pipe


@dataclass(slots=True, eq=False)
class Sync:
    """All later ops wait for events."""

    waits: list[Event]


@dataclass(slots=True, eq=False)
class Barrier:
    """All later ops wait for a pipe, or for all pipes."""

    opcode: str


@dataclass(slots=True, eq=False)
class Branch:
    """Two blocks; each of `tiles` and `events` is a result, with its value in the first and in the second block."""

    condition: Condition
    blocks: list[list[Node]]
    tiles: list[tuple[Tile, Tile, Tile]] = field(default_factory=list)
    events: list[tuple[Event, Event, Event]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Carried:
    """A tile or event that a loop carries: inside, before the loop, at the end of an iteration, and after the loop."""

    inside: Tile | Event
    init: Tile | Event
    again: Tile | Event
    after: Tile | Event


@dataclass(slots=True, eq=False)
class Loop:
    """An scf.for, or (with `head`, the steps of its first block) an scf.while with a counter."""

    lower: Bound
    upper: Bound
    step: int
    head: list[Node] | None = None
    body: list[Node] = field(default_factory=list)
    tiles: list[Carried] = field(default_factory=list)
    events: list[Carried] = field(default_factory=list)
    counter: Value | None = None

    @property
    def blocks(self) -> list[list[Node]]:
        """The blocks in execution order."""
        return [self.body] if self.head is None else [self.head, self.body]


Node = Step | Sync | Barrier | Branch | Loop
# A number, an argument, the counter of an enclosing loop, or (argument + number) % number (0: no modulo).
Bound = int | str | Loop | tuple[str, int, int]
# An argument, a negated argument, or a comparison: (counter + number) % number (0: no modulo), predicate, right side.
Condition = str | tuple[str] | tuple[Loop, int, int, str, Bound]


@dataclass(slots=True, eq=False)
class _Scope:
    """The tiles that a block may use; `own` are those that it defines, whose bytes may be used again."""

    tiles: list[Tile]
    own: list[Tile] = field(default_factory=list)
    rings: list[tuple[Place, set[int]]] = field(default_factory=list)  # addresses that depend on its counter, and shifts in use


@dataclass(slots=True, eq=False)
class Drawing:
    """Draws a kernel of `budget` ops. `addresses`: its tiles have addresses; `products`: it has matrix products; `counted`: every
    trip count is known."""

    choices: Choices
    budget: int
    addresses: bool
    products: bool
    counted: bool
    depth: int = _DEPTH
    loops: list[Loop] = field(default_factory=list)
    scopes: list[_Scope] = field(default_factory=list)
    taken: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))  # slots by space

    # Blocks

    def kernel(self) -> list[Node]:
        """The steps of a kernel; the first is a load."""
        nodes: list[Node] = []
        self.depth += self.choices.number(0, 3) == 0
        self.scopes.append(_Scope([]))
        nodes.append(self.load("Vec"))
        nodes += self.steps(self.choices.number(2, 5), 0)
        if not any(isinstance(x, Loop) for x in nodes):
            nodes += self.loop(0)
        if self.choices.number(0, 2) == 0:  # another loop, often with the same slots
            nodes += self.loop(0)
        nodes += self.steps(self.choices.number(0, 2), self.depth)
        if self.visible("Vec"):
            nodes.append(self.store("Vec"))
        return nodes

    def steps(self, count: int, depth: int) -> list[Node]:
        """At most `count` steps of a block."""
        nodes: list[Node] = []
        for _ in range(count):
            way = self.choices.number(0, 19)
            if way == 0:
                nodes.append(Barrier(self.choices.one(("ALL", "TLOAD", "TABS", "TSTORE_VEC"))))
            elif way in (1, 2) and depth < self.depth:
                nodes += self.branch(depth)
            elif way in (3, 4) and depth < self.depth:
                nodes += self.loop(depth)
            elif self.budget > 0:
                self.budget -= 1
                try:
                    nodes.append(self.step())
                except _Full:
                    continue
        return nodes

    def block(self, tiles: Sequence[Tile], count: int, depth: int) -> tuple[list[Node], _Scope]:
        """The steps of an inner block that may also use `tiles`, and its scope; `leave` ends the scope."""
        self.scopes.append(scope := _Scope([*self.scopes[-1].tiles, *tiles]))
        return self.steps(count, depth + 1), scope

    def leave(self) -> None:
        """End a block and free its slots."""
        scope = self.scopes.pop()
        for t in scope.own:
            self.free(t)
        for place, _ in scope.rings:
            self.taken["Vec"] -= set(range(place.base // place.scale, place.base // place.scale + place.ring))

    def branch(self, depth: int) -> list[Node]:
        """A branch, at times with a tile as a result."""
        condition, blocks, ends = self.condition(), list[list[Node]](), list[Tile]()
        try:
            result = Tile("Vec", self.slot("Vec")) if self.choices.number(0, 2) == 0 else None
        except _Full:
            result = None
        for _ in range(2):
            block, scope = self.block([], self.choices.number(0, 4), depth)
            if result is not None:
                block.append(self.define_at(result.place, scope))
                ends.append(_defined_tile(block[-1]))
            self.leave()
            blocks.append(block)
        branch = Branch(condition, blocks)
        if result is not None:
            result.sources += ends
            branch.tiles.append((result, ends[0], ends[1]))
            self.add(result)
        return [branch]

    def loop(self, depth: int) -> list[Node]:
        """A loop with its carried tiles."""
        loop = Loop(self.choices.one((0, 0, 0, 1)), self.upper(), self.choices.one((1, 1, 1, 2)))
        if self.loops and self.choices.number(0, 3) == 0:
            loop.lower = self.loops[-1]
        if not self.counted and self.choices.number(0, 4) == 0:
            loop.head, loop.step = [], 1
        outside = self.scopes[-1]
        inits = self.choices.shuffled(outside.own if self.addresses else outside.tiles)[: self.choices.number(0, 3)]
        inits = [t for t in inits if t.place is None or t.place.loop is None]
        for t in inits:
            inside, after = Tile(t.loc, t.place, [t]), Tile(t.loc, t.place, [t])
            loop.tiles.append(Carried(inside, t, inside, after))
            if self.addresses:
                outside.own.remove(t)
                outside.tiles.remove(t)
        self.loops.append(loop)
        if loop.head is not None and self.choices.flag():
            loop.head, _ = self.block(_carried_tiles(loop), self.choices.number(1, 2), self.depth)
            self.leave()
        loop.body, scope = self.block(_carried_tiles(loop), self.choices.number(2, 7), depth)
        for c in loop.tiles:
            self.choose_next(loop, c, scope)
        self.leave()
        self.loops.pop()
        for c in loop.tiles:
            assert isinstance(c.inside, Tile) and isinstance(c.again, Tile) and isinstance(c.after, Tile)
            c.inside.sources.append(c.again)
            c.after.sources.append(c.again)
            self.add(c.after)
        return [loop]

    def choose_next(self, loop: Loop, c: Carried, scope: _Scope) -> None:
        """Set the next value of a carried tile: any tile, or with addresses one that is computed in place."""
        assert isinstance(c.inside, Tile)
        if not self.addresses:
            c.again = self.choices.one([t for t in scope.tiles if t.loc == c.inside.loc])
        elif c.inside.loc in ("Vec", "Mat") and self.choices.number(0, 4):
            loop.body.append(self.define_at(c.inside.place, scope, c.inside))
            c.again = _defined_tile(loop.body[-1])

    # Steps

    def step(self) -> Step:
        """A tile op on visible tiles."""
        ways: list[Callable[[], Step]] = [lambda: self.load("Vec")] * 3
        if self.visible("Vec"):
            ways += [lambda: self.store("Vec")] * 3 + [self.vector] * 3
        if self.products:
            left, right, acc = (self.visible(x) for x in ("Left", "Right", "Acc"))
            ways.append(lambda: self.load("Mat"))
            if self.visible("Mat"):
                ways += [lambda: self.move("tile.mov.m2l", "Mat", "Left"), lambda: self.move("tile.mov.m2r", "Mat", "Right")]
            ways += [self.product] * 3 if left and right else []
            ways += [lambda: self.store("Acc"), lambda: self.move("tile.mov.a2v", "Acc", "Vec")] if acc else []
        return self.choices.one(ways)()

    def load(self, loc: str) -> Step:
        memory = self.choices.one("aab") if loc == "Vec" else "h"
        return Step("tile.load", [], self.new(loc), memory, self.row(), self.rows() if loc == "Vec" else SIDE)

    def rows(self) -> int | Place:
        """The number of rows to load: at least half of a tile."""
        if not self.loops or self.choices.number(0, 2):
            return self.choices.one((SIDE, SIDE, SIDE, 8, 12))
        return Place(8, self.choices.one(self.loops), 4, 1, self.choices.number(0, 1), self.choices.number(2, 3))

    def store(self, loc: str) -> Step:
        rows = self.choices.one((SIDE, SIDE, SIDE, 8)) if loc == "Vec" else SIDE
        return Step("tile.store", [self.one(loc)], None, self.choices.one("ab"), self.row(), rows)

    def move(self, short: str, source: str, to: str) -> Step:
        return Step(short, [self.one(source)], self.new(to))

    def vector(self) -> Step:
        """A vector op, at times in place."""
        short = self.choices.one(_VECTOR)
        uses = [self.one("Vec") for _ in OPS[f"pto.{short}"].groups if _.name not in ("valid", "wait")]
        scope = self.scopes[-1]
        if self.addresses and uses[0] in scope.own and self.choices.number(0, 2) == 0:
            scope.own.remove(uses[0])
            scope.tiles.remove(uses[0])
            return Step(short, uses, self.add(Tile("Vec", uses[0].place)))
        return Step(short, uses, self.new("Vec"))

    def product(self) -> Step:
        """A product, at times with an accumulator as operand."""
        sides, own = [self.one("Left"), self.one("Right")], [t for t in self.scopes[-1].own if t.loc == "Acc"]
        sums = own if self.addresses else self.visible("Acc")
        if not sums or self.choices.flag():
            return Step("tile.matmul", sides, self.new("Acc"))
        before = self.choices.one(sums)
        if self.addresses:
            self.scopes[-1].own.remove(before)
            self.scopes[-1].tiles.remove(before)
        return Step("tile.matmul.acc", [before, *sides], self.add(Tile("Acc", before.place)))

    def define_at(self, place: Place | None, scope: _Scope, before: Tile | None = None) -> Step:
        """A step that defines a tile at `place`, at times from `before`, the tile that is there."""
        loc = before.loc if before is not None else "Vec"
        t = Tile(loc, place)
        scope.tiles = [x for x in scope.tiles if x is not before]
        if before is not None and loc == "Vec" and self.choices.flag():
            return Step("tile.relu", [before], t)
        return Step("tile.load", [], t, "a" if loc == "Vec" else "h", self.row(), self.rows() if loc == "Vec" else SIDE)

    def visible(self, loc: str) -> list[Tile]:
        return [t for t in self.scopes[-1].tiles if t.loc == loc]

    def one(self, loc: str) -> Tile:
        """A tile, mostly a recent one."""
        known = self.visible(loc)
        return self.choices.one(known[-4:] if self.choices.flag() else known)

    # Places

    def new(self, loc: str) -> Tile:
        """A new tile. Raises _Full if no slot is free."""
        return self.add(Tile(loc, self.slot(loc)))

    def add(self, t: Tile) -> Tile:
        self.scopes[-1].tiles.append(t)
        self.scopes[-1].own.append(t)
        return t

    def free(self, t: Tile) -> None:
        if t.place is not None and t.place.loop is None:
            self.taken[t.loc].discard(t.place.base // t.size)

    def slot(self, loc: str) -> Place | None:
        """The place of a new tile: a slot that no live tile has, or one that depends on the counter. Raises _Full."""
        if not self.addresses:
            return None
        scope, size = self.scopes[-1], Tile(loc).size
        by_counter = loc == "Vec" and self.loops and len(self.scopes) > 1 and self.choices.number(0, 2) == 0
        if by_counter and (ring := self.ring_slot(scope, size)) is not None:
            return ring
        free = [k for k in range(_SLOTS[loc]) if k not in self.taken[loc]]
        old = [t for t in scope.own if t.loc == loc and t.place is not None and t.place.loop is None]
        if old and (not free or self.choices.number(0, 2) == 0):
            gone = self.choices.one(old)
            scope.own.remove(gone)
            scope.tiles.remove(gone)
            return gone.place
        if not free:
            raise _Full
        self.taken[loc].add(k := self.choices.one(free[:6]))
        return Place(k * size)

    def ring_slot(self, scope: _Scope, size: int) -> Place | None:
        """A slot of a ring, by the counter of the innermost loop; None if no slots are free."""
        for place, shifts in scope.rings:
            if left := [k for k in range(place.ring) if k not in shifts]:
                shifts.add(shift := self.choices.one(left))
                return Place(place.base, place.loop, size, 1, shift, place.ring)
        ring = self.choices.number(2, 4)
        starts = [k for k in range(_SLOTS["Vec"] - ring) if not self.taken["Vec"].intersection(range(k, k + ring))]
        if not starts:
            return None
        start = self.choices.one(starts[:4])
        self.taken["Vec"] |= set(range(start, start + ring))
        shift = self.choices.number(0, 1)
        found = Place(start * size, self.loops[-1], size, 1, shift, ring)
        scope.rings.append((found, {shift}))
        return found

    def row(self) -> Place:
        """The first row of a window of memory; it may depend on counters."""
        base = SIDE * self.choices.number(0, 7) + self.choices.one((0, 0, 0, 0, 8))
        if not self.loops or self.choices.number(0, 4) == 0:
            return Place(base)
        loop = self.choices.one((self.loops[-1], self.loops[-1], *self.loops))
        ring = self.choices.one((0, 0, 0, 2, 3, 4))
        scale = SIDE * self.choices.one((1, 1, 1, 2)) // (1 if self.choices.number(0, 7) else 2)
        outer = self.choices.one(self.loops) if self.choices.number(0, 3) == 0 else loop
        more = (outer, self.choices.one((SIDE, 2 * SIDE))) if outer is not loop else (None, 0)
        return Place(base, loop, scale, self.choices.one((1, 1, 1, 1, 2)), self.choices.number(0, 2), ring, *more)

    def upper(self) -> Bound:
        """The upper bound of a loop."""
        way = self.choices.number(0, 9)
        if len(self.loops) == 1 and way == 0 and not isinstance(self.loops[-1].upper, str):  # otherwise a run takes seconds
            return self.loops[-1]
        if way < 6 or self.loops or self.counted:
            return self.choices.one((0, 1, 2, 2, 3, 4, 5, 6) if not self.loops else (0, 1, 2, 3))
        return self.choices.one("nm") if way == 6 else (self.choices.one("nm"), 8, self.choices.one((3, 5, 7)))

    def condition(self) -> Condition:
        """An argument, or a comparison of a loop counter."""
        way = self.choices.number(0, 5)
        if way < 3 or not self.loops:
            return self.choices.one(("p", "p", "q")) if way else (self.choices.one("pq"),)
        loop = self.choices.one(self.loops)
        if way == 3:
            return loop, 0, 2, "eq", self.choices.number(0, 1)
        bound = loop.upper if self.choices.flag() else self.choices.number(1, 3)
        return loop, self.choices.number(0, 1), 0, "slt", bound


def _defined_tile(x: Node) -> Tile:
    assert isinstance(x, Step) and x.makes is not None
    return x.makes


def _carried_tiles(loop: Loop) -> list[Tile]:
    return [c.inside for c in loop.tiles if isinstance(c.inside, Tile)]


def all_steps(block: Sequence[Node]) -> Iterator[Step]:
    """The steps of a block and of its inner blocks."""
    for x in block:
        if isinstance(x, Step):
            yield x
        elif isinstance(x, (Branch, Loop)):
            for b in x.blocks:
                yield from all_steps(b)
