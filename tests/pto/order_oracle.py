"""An independent judge of order, from the specification alone: sections 5.1 and 5.2, and what a pipe is (facts 4.1, 4.2).

A program is a tree of plain records, drawn at random and printed as PTO text. The judge unrolls it completely for every
assignment of its conditions and trip counts, builds the graph of what happens before what, and looks at every pair of accesses
that share bytes. It shares nothing with the checker: no IR, no clocks.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

PIPE = {"load": "MTE2", "exp": "V", "add": "V", "store": "MTE3", "m2l": "MTE1", "aload": "MTE2", "mul": "M", "out": "FIX"}
OPCODE = {"load": "TLOAD", "exp": "TEXP", "add": "TADD", "store": "TSTORE_VEC", "m2l": "TMOV_M2L", "aload": "TLOAD"}
ROWS = 8
M, T = "pto.memref<256x8xf32>", "tile<8x8xf32>"
MAT, LEFT = "tile<8x8xf32, #pto.tile_info<loc=Mat>>", "tile<8x8xf32, #pto.tile_info<loc=Left>>"


@dataclass
class Place:
    """A row of memory (in tiles) or an address: base + (i * scale + shift) mod ring, of the loop `loop`'s counter."""

    base: int
    loop: str = ""
    scale: int = 0
    shift: int = 0
    ring: int = 0

    def at(self, counters: dict[str, int]) -> int:
        if not self.loop:
            return self.base
        slot = counters[self.loop] + self.shift
        return self.base + (slot % self.ring if self.ring else slot) * self.scale


@dataclass
class Do:
    """A tile op. `uses` are names of tiles, `waits` of events; `event` is its own, if it is asynchronous. `rows` are those of the
    memory that it reads or writes; its tile has `size` bytes of `space`."""

    kind: str
    name: str
    uses: list[str] = field(default_factory=list)
    waits: list[str] = field(default_factory=list)
    event: str = ""
    memory: str = ""
    place: Place | None = None
    address: Place | None = None  # of the tile it makes
    writes: bool | None = None  # memory; None: a store does
    rows: int = 8
    size: int = 256
    space: str = ""


@dataclass
class Sync:
    waits: list[str]


@dataclass
class Barrier:
    kind: str  # an op's kind, or ALL


@dataclass
class If:
    condition: str  # an argument, or `i < 2`, `i + 1 < n` of a loop's counter
    then: list
    otherwise: list
    results: list[tuple[str, str, str, str]] = field(default_factory=list)  # kind of value, name, then's, else's


@dataclass
class For:
    counter: str
    trips: int | str
    body: list
    carried: list[tuple[str, str, str, str, str]] = field(default_factory=list)  # kind, name inside, init, yielded, result


# The judge


@dataclass(eq=False)
class Ran:
    op: Do
    index: int
    behind: set[int]  # indices of what certainly happened before it started
    touched: list[tuple[str, int, int, bool]]


class Judge:
    """One complete run: conditions and trips are fixed."""

    def __init__(self, program: list, choice: dict[str, int]) -> None:
        self.choice = choice
        self.ran: list[Ran] = []
        self.tiles: dict[str, tuple[Ran | None, tuple[str, int, int] | None, int]] = {}
        self.events: dict[str, Ran] = {}
        self.finished: set[int] = set()  # before whatever is issued next
        self.latest: dict[str, Ran] = {}
        self.counters: dict[str, int] = {}
        self.owners: dict[tuple[str, int], int] = {}
        self.serial = 0
        self.faults: set[tuple[str, str, str]] = set()
        self.walk(program)

    def done(self, r: Ran) -> set[int]:
        return r.behind | {r.index}

    def returns(self) -> None:
        """Whoever reads the memory next finds all ops complete."""
        self.faults |= {("left", r.op.name, "") for r in self.ran if r.index not in self.finished}

    def walk(self, block: list) -> None:
        for x in block:
            if isinstance(x, Do):
                self.do(x)
            elif isinstance(x, Sync):
                for e in x.waits:
                    self.finished |= self.done(self.events[e])
            elif isinstance(x, Barrier):
                for pipe, r in self.latest.items():
                    if x.kind == "ALL" or PIPE[x.kind] == pipe:
                        self.finished |= self.done(r)
            elif isinstance(x, If):
                taken = self.holds(x.condition)
                self.walk(x.then if taken else x.otherwise)
                for kind, name, a, b in x.results:
                    self.name(kind, name, a if taken else b)
            else:
                self.loop(x)

    def holds(self, condition: str) -> bool:
        left, less, bound = condition.partition(" < ")
        if not less:
            return bool(self.choice[condition])
        counter, _, shift = left.partition(" + ")
        return self.counters[counter] + int(shift or 0) < (int(bound) if bound.isdigit() else self.choice[bound])

    def name(self, kind: str, name: str, source: str) -> None:
        table = self.tiles if kind == "tile" else self.events
        table[name] = table[source]  # type: ignore[index]

    def loop(self, x: For) -> None:
        now = [init for _, _, init, _, _ in x.carried]
        tables = [self.tiles if kind == "tile" else self.events for kind, *_ in x.carried]
        values = [t[n] for t, n in zip(tables, now, strict=True)]  # type: ignore[index]
        for i in range(x.trips if isinstance(x.trips, int) else self.choice[x.trips]):
            self.counters[x.counter] = i
            for (_, inside, *_), t, v in zip(x.carried, tables, values, strict=True):
                t[inside] = v  # type: ignore[index]
            self.walk(x.body)
            values = [t[y] for (_, _, _, y, _), t in zip(x.carried, tables, strict=True)]  # type: ignore[index]
        for (*_, result), t, v in zip(x.carried, tables, values, strict=True):
            t[result] = v  # type: ignore[index]

    def do(self, op: Do) -> None:
        before = set(self.finished)
        pipe = PIPE[op.kind]
        if pipe in self.latest:
            before |= self.done(self.latest[pipe])
        for e in op.waits:
            before |= self.done(self.events[e])
        touched: list[tuple[str, int, int, bool]] = []
        for name in op.uses:
            maker, home, serial = self.tiles[name]
            if maker is not None and maker.index not in before:
                self.faults.add(("use", maker.op.name, op.name))
            if home is not None:
                touched.append((*home, False))
                if any(self.owners.get((home[0], b)) != serial for b in range(home[1], home[2], 32)):
                    self.faults.add(("over", "", op.name))
        if op.place is not None:
            row = op.place.at(self.counters) * ROWS
            touched.append((op.memory, row, row + op.rows, op.kind == "store" if op.writes is None else op.writes))
        self.serial += 1
        home = None
        if op.address is not None:
            start = op.address.at(self.counters) * 32
            home = (op.space or ("Mat" if op.kind == "aload" else "Vec"), start, start + op.size)
            touched.append((*home, True))
            self.owners.update({(home[0], b): self.serial for b in range(start, start + op.size, 32)})
        r = Ran(op, len(self.ran), before, touched)
        for other in self.ran:
            if other.index not in before and any(
                a[0] == b[0] and (a[3] or b[3]) and a[1] < b[2] and b[1] < a[2] for a in touched for b in other.touched
            ):
                self.faults.add(("memory", other.op.name, op.name))
        self.ran.append(r)
        self.latest[pipe] = r
        self.tiles[op.name] = (r, home, self.serial)
        if op.event:
            self.events[op.event] = r
        else:
            self.finished |= self.done(r)


FEW, MANY = (0, 1, 2, 3, 4, 5, 6), (0, 1, 2, 5, 18, 40)


def conditions(block: list, trips: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """What a program leaves open, and what it may be."""
    for x in block:
        if isinstance(x, If):
            if " " not in x.condition:
                yield x.condition, (0, 1)
            yield from conditions(x.then, trips)
            yield from conditions(x.otherwise, trips)
        elif isinstance(x, For):
            if isinstance(x.trips, str):
                yield x.trips, trips
            yield from conditions(x.body, trips)


def faults(program: list, trips: tuple[int, ...] = FEW) -> set[tuple[str, str, str]]:
    """What is wrong with a program, over all its ways: a code, the earlier op (but of `TileOverwritten`) and the later one."""
    choices = dict(conditions(program, trips))
    found: set[tuple[str, str, str]] = set()
    for picks in product(*choices.values()):
        found |= Judge(program, dict(zip(choices, picks, strict=True))).faults
    kinds = {"use": "MissingWait", "memory": "MemoryHazard", "over": "TileOverwritten"}
    missing = {(a, b) for kind, a, b in found if kind == "use"}
    return {(kinds[kind], a, b) for kind, a, b in found if kind != "memory" or (a, b) not in missing}


# The text


def event_type(name: str, makers: dict[str, str]) -> str:
    return f"!pto.event<producer = #pto.op<{makers[name]}>>" if makers.get(name) else "!pto.event"


class Printer:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.n = 0
        self.makers: dict[str, str] = {}
        self.where: dict[int, str] = {}  # which op is in a line

    def fresh(self) -> str:
        self.n += 1
        return f"%x{self.n}"

    def index(self, p: Place, unit: int) -> str:
        if not p.loop:
            return self.constant(p.base * unit)
        value = f"%{p.loop}"
        if p.shift:
            value = self.op("addi", value, self.constant(p.shift))
        if p.ring:
            value = self.op("remsi", value, self.constant(p.ring))
        value = self.op("muli", value, self.constant(p.scale * unit))
        return self.op("addi", value, self.constant(p.base * unit)) if p.base else value

    def constant(self, k: int) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = pto.constant {k} : index")
        return name

    def op(self, op: str, a: str, b: str) -> str:
        name = self.fresh()
        self.lines.append(f"{name} = pto.{op} {a}, {b} : index")
        return name

    def block(self, block: list) -> None:
        for x in block:
            getattr(self, type(x).__name__.lower())(x)

    def do(self, x: Do) -> None:
        wait = f" wait({', '.join('%' + e for e in x.waits)})" if x.waits else ""
        signal = f", {event_type('', {'': OPCODE[x.kind]})}" if x.event else ""
        if x.event:
            self.makers[x.event] = OPCODE[x.kind]
        event = f"%{x.event}" if x.event else ""
        tile = MAT if x.kind == "aload" else LEFT if x.kind == "m2l" else T
        address = self.index(x.address, 32) if x.address else ""
        uses = ", ".join(f"%{u}" for u in x.uses)
        if x.place is not None:
            row = self.index(x.place, ROWS)
        results = ", ".join(r for r in (f"%{x.name}" if x.kind != "store" else "", event) if r)
        head = f"{results} = " if results else ""
        self.where[len(self.lines) + FIRST] = x.name
        if x.kind in ("load", "aload"):
            self.lines.append(f"{head}pto.tile.load %{x.memory}[{row}, 0]{wait} : {M}, {tile}{signal}")
        elif x.kind == "store":
            self.lines.append(f"{head}pto.tile.store {uses}, %{x.memory}[{row}, 0]{wait} : {M}, {tile}{signal}")
        elif x.kind == "m2l":
            self.lines.append(f"{head}pto.tile.mov.m2l {uses}{wait} : {MAT} -> {LEFT}{signal}")
        else:
            self.lines.append(f"{head}pto.tile.{x.kind} {uses}{wait} : {T}{signal}")
        if address:
            self.lines.append(f"pto.tile.assign %{x.name}, {address} : {tile}, index")

    def sync(self, x: Sync) -> None:
        types = ", ".join(event_type(e, self.makers) for e in x.waits)
        self.lines.append(f"pto.sync wait({', '.join('%' + e for e in x.waits)}) : {types}")

    def barrier(self, x: Barrier) -> None:
        self.lines.append(f"pto.sync.op #pto.op<{'ALL' if x.kind == 'ALL' else OPCODE[x.kind]}>")

    def yielded(self, names: list[str], kinds: list[str]) -> None:
        if names:
            types = ", ".join(T if k == "tile" else "!pto.event" for k in kinds)
            self.lines.append(f"scf.yield {', '.join('%' + n for n in names)} : {types}")

    def results(self, names: list[str], kinds: list[str]) -> tuple[str, str]:
        types = ", ".join(T if k == "tile" else "!pto.event" for k in kinds)
        return (", ".join(f"%{n}" for n in names) + " = " if names else ""), (f" -> ({types})" if names else "")

    def __getattr__(self, name: str) -> object:
        return {"if": self.branch, "for": self.loop}[name]

    def branch(self, x: If) -> None:
        kinds = [k for k, *_ in x.results]
        head, types = self.results([r[1] for r in x.results], kinds)
        self.lines.append(f"{head}scf.if {self.condition(x.condition)}{types} {{")
        self.block(x.then)
        self.yielded([r[2] for r in x.results], kinds)
        self.lines.append("} else {")
        self.block(x.otherwise)
        self.yielded([r[3] for r in x.results], kinds)
        self.lines.append("}")

    def condition(self, text: str) -> str:
        left, less, bound = text.partition(" < ")
        if not less:
            return f"%{text}"
        counter, _, shift = left.partition(" + ")
        a = self.op("addi", f"%{counter}", self.constant(int(shift))) if shift else f"%{counter}"
        b = self.constant(int(bound)) if bound.isdigit() else f"%{bound}"
        name = self.fresh()
        self.lines.append(f"{name} = arith.cmpi slt, {a}, {b} : index")
        return name

    def loop(self, x: For) -> None:
        kinds = [c[0] for c in x.carried]
        upper = self.constant(x.trips) if isinstance(x.trips, int) else f"%{x.trips}"
        head, types = self.results([c[4] for c in x.carried], kinds)
        carried = ", ".join(f"%{c[1]} = %{c[2]}" for c in x.carried)
        iter_args = f" iter_args({carried}){types}" if carried else ""
        self.lines.append(f"{head}scf.for %{x.counter} = %c0 to {upper} step %c1{iter_args} {{")
        self.block(x.body)
        self.yielded([c[3] for c in x.carried], kinds)
        self.lines.append("}")


FIRST = 4  # the line of a program's first statement


def text(program: list) -> tuple[str, dict[int, str]]:
    """A program as text, and which op is in a line."""
    p = Printer()
    p.block(program)
    body = "\n  ".join(["%c0 = pto.constant 0 : index", "%c1 = pto.constant 1 : index", *p.lines])
    parameters = f"%a: {M}, %b: {M}, %p: i1, %q: i1, %r: i1, %n: index, %m: index"
    return f"func.func @f({parameters}) {{\n  {body}\n  return\n}}\n", p.where


# Random programs


class Drawer:
    """Draws a program that is mostly right: an op waits for what it uses, and at random for more or less."""

    def __init__(self, seed: int, unknown: bool = False) -> None:
        self.rng = random.Random(seed)
        self.unknown = unknown  # whether trip counts may be arguments
        self.n = 0
        self.size = 0
        self.loops: list[str] = []
        self.bounds: list[str] = []
        self.care = self.rng.choice((1.0, 1.0, 0.97, 0.9, 0.7))
        self.placing = self.rng.random() < 0.5

    def fresh(self, letter: str) -> str:
        self.n += 1
        return f"{letter}{self.n}"

    def program(self) -> list:
        self.pairs: list[tuple[str, str]] = []
        tiles, events = ["t0"], {"t0": ""}
        first = Do("load", "t0", memory="a", place=Place(0), address=Place(0) if self.placing else None)
        return [first, *self.block(self.rng.randint(3, 9), tiles, events, 0)]

    def place(self, wide: int) -> Place:
        if self.loops and self.rng.random() < 0.6:
            ring = self.rng.choice((0, 0, 2, 2, 3, 4))
            scale = self.rng.choice((1, 1, 1, 2))
            return Place(
                self.rng.choice((0, 0, 1)) * wide, self.rng.choice(self.loops), scale * wide, self.rng.randint(0, 2), ring
            )
        return Place(self.rng.randint(0, 3) * wide)

    def block(self, length: int, tiles: list[str], events: dict[str, str], depth: int) -> list:
        """`events` maps tiles and stores to their events ('' where they are complete)."""
        tiles, events, made = list(tiles), events, []
        events = dict(events)
        for _ in range(length):
            if self.size > 14:
                break
            way = self.rng.random()
            if way < 0.12 and depth < 2:
                made.append(self.branch(tiles, events, depth))
            elif way < 0.26 and depth < 2:
                made.append(self.loop(tiles, events, depth))
            elif way < 0.33:
                open_events = [e for e in events.values() if e]
                if open_events:
                    made.append(Sync(self.rng.sample(open_events, min(len(open_events), self.rng.randint(1, 2)))))
            elif way < 0.36:
                made.append(Barrier(self.rng.choice(("load", "exp", "store", "ALL"))))
            else:
                made.append(self.do(tiles, events))
        return made

    def do(self, tiles: list[str], events: dict[str, str]) -> Do:
        self.size += 1
        kind = self.rng.choice(("load", "load", "exp", "add", "store", "store"))
        op = Do(kind, self.fresh("t"))
        if kind != "load":
            op.uses = [self.rng.choice(tiles[-4:]) for _ in range(2 if kind == "add" else 1)]
        if kind in ("load", "store"):
            op.memory, op.place = self.rng.choice("ab"), self.place(1)
        wanted = {events[u] for u in op.uses if events.get(u)}
        if kind in ("load", "store") or self.placing:
            wanted |= {e for e in events.values() if e and self.rng.random() < 0.6 + 0.4 * (self.care == 1)}
        op.waits = [e for e in sorted(wanted) if self.rng.random() < self.care]
        if self.rng.random() < 0.7:
            op.event = self.fresh("e")
        if kind != "store":
            tiles.append(op.name)
            if self.placing:
                op.address = self.place(8) if self.rng.random() < 0.3 else Place(8 * (8 + self.n))
        events[op.name] = op.event
        return op

    def branch(self, tiles: list[str], events: dict[str, str], depth: int) -> If:
        sides, ends = [], []
        for _ in range(2):
            own_tiles, own_events = list(tiles), dict(events)
            block = self.block(self.rng.randint(0, 3), own_tiles, own_events, depth + 1)
            last = [x for x in block if isinstance(x, Do) and x.kind != "store"]
            sides.append(block)
            ends.append(last[-1] if last else None)
        x = If(self.condition(), *sides)
        if ends[0] and ends[1] and ends[0].event and ends[1].event and self.rng.random() < 0.7:
            tile, event = self.fresh("t"), self.fresh("e")
            x.results = [("tile", tile, ends[0].name, ends[1].name), ("event", event, ends[0].event, ends[1].event)]
            tiles.append(tile)
            events[tile] = event
        return x

    def condition(self) -> str:
        if not self.loops or self.rng.random() < 0.5:
            return self.rng.choice("pqr")
        bound = self.rng.choice(("1", "2", self.bounds[-1]))
        return self.loops[-1] + self.rng.choice(("", " + 1")) + " < " + bound

    def loop(self, tiles: list[str], events: dict[str, str], depth: int) -> For:
        trips: int | str = self.rng.choice((0, 1, 2, 3, 5)) if depth else self.rng.choice((0, 1, 2, 3, 5, 6))
        if self.unknown and not self.loops and self.rng.random() < 0.7:
            trips = self.rng.choice("nm")
        x = For(self.fresh("i"), trips, [])
        self.loops.append(x.counter)
        self.bounds.append(str(trips))
        own_tiles, own_events = list(tiles), dict(events)
        carried = None
        live = [t for t in tiles if events.get(t)]
        if live and self.rng.random() < 0.6:
            init = self.rng.choice(live)
            carried = (self.fresh("t"), self.fresh("e"), init, events[init])
            own_tiles.append(carried[0])
            own_events[carried[0]] = carried[1]
        x.body = self.block(self.rng.randint(1, 4), own_tiles, own_events, depth + 1)
        if carried:
            last = [d for d in x.body if isinstance(d, Do) and d.kind != "store" and d.event]
            end = (last[-1].name, last[-1].event) if last else (carried[0], carried[1])
            tile, event = self.fresh("t"), self.fresh("e")
            x.carried = [("tile", carried[0], carried[2], end[0], tile), ("event", carried[1], carried[3], end[1], event)]
            tiles.append(tile)
            events[tile] = event
        self.loops.pop()
        self.bounds.pop()
        return x


def draw(seed: int, unknown: bool = False) -> list:
    """A random program, the same for equal seeds."""
    return Drawer(seed, unknown).program()


def broken(program: list, rng: random.Random) -> list | None:
    """The program without one wait, one sync or one barrier; None where it has none."""
    spots = list(_spots(program, ()))
    if not spots:
        return None
    return _without(program, *rng.choice(spots))


def _spots(block: list, path: tuple[object, ...]) -> Iterator[tuple[tuple[object, ...], int]]:
    for k, x in enumerate(block):
        here = (*path, k)
        if isinstance(x, (Do, Sync)):
            yield from ((here, n) for n in range(len(x.waits)))
        elif isinstance(x, Barrier):
            yield here, -1
        elif isinstance(x, If):
            yield from _spots(x.then, (*here, "then"))
            yield from _spots(x.otherwise, (*here, "otherwise"))
        else:
            yield from _spots(x.body, (*here, "body"))


def _without(block: list, path: tuple[object, ...], n: int) -> list:
    k, *rest = path
    assert isinstance(k, int)
    x = block[k]
    if rest:
        field_name = str(rest[0])
        new = [replace(x, **{field_name: _without(getattr(x, field_name), tuple(rest[1:]), n)})]
    elif n < 0 or (isinstance(x, Sync) and len(x.waits) == 1):
        new = []
    else:
        new = [replace(x, waits=x.waits[:n] + x.waits[n + 1 :])]
    return [*block[:k], *new, *block[k + 1 :]]
