"""Random PTO kernels that verify, with all tile ops: events, loops, branches, reused addresses, rings, valid regions.

An op is drawn from the table. Types of operands, attributes and results are drawn until its type rule accepts them. Operands are
new or earlier tiles of those types. So a new op needs no line here. Each op waits for all earlier ops that it may depend on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from ptir_tools.core import arrays
from ptir_tools.core.choices import Choices, Seeded
from ptir_tools.core.declare import OPS, always
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32, FP8_E4M3, FP8_E5M2, I1, INDEX, SI8, SI16, SI32, UI8, UI16, UI32, UI64, DType
from ptir_tools.core.ir import SEGMENTS, Function, Group, Op, OpDef, Operand, Region, Value, create
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Any
from ptir_tools.core.types import UNKNOWN, Type, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto import DIALECT, needs
from ptir_tools.dialects.pto.facts import facts_of
from ptir_tools.dialects.pto.generate import loop_kernels, loop_writing
from ptir_tools.dialects.pto.generate.loop_waits import Waits
from ptir_tools.dialects.pto.generate.loop_writing import Emitting
from ptir_tools.dialects.pto.memory.info import tile_bytes
from ptir_tools.dialects.pto.pipes import is_tile_op, producers
from ptir_tools.dialects.pto.targets import TARGETS
from ptir_tools.dialects.pto.text.literals import integer
from ptir_tools.dialects.pto.types import (
    INDEX_TYPE,
    MemRefType,
    ScalarType,
    TileType,
    event,
    memref,
    scalar,
    tile,
)

DTYPES = (F32, F16, BF16, SI8, SI16, SI32, UI8, UI16, UI32, UI64, FP8_E4M3, FP8_E5M2)
SIDES = (1, 8, 16, 32, 64)
_GUESSES = 6000  # at most, per op
_WANTED = 12  # signatures per op, at most
_ALIGN = 512  # of addresses
_NESTED = 4  # steps of a block in a loop or a branch, at most
_CAPACITY = {place: min(t.capacity[place] for t in TARGETS.values()) for place in next(iter(TARGETS.values())).capacity}
_RECENT = 64  # tiles that later steps may use
_FAILS_ON_DATA = (needs.index_fails, needs.quotient_fails)


@dataclass(slots=True, frozen=True)
class Signature:
    """Types that an op's rule accepts, without `valid` and `wait`."""

    operands: tuple[tuple[Type, ...], ...]  # per group
    attrs: tuple[tuple[str, object], ...]
    results: tuple[TileType, ...]


@dataclass(slots=True)
class _Tile:
    """A tile that may be used."""

    value: Value
    events: list[Value] = field(default_factory=list)  # of the op that defines it and of its readers
    address: tuple[str, int] | None = None  # its space, and the offset there
    full: bool = True  # all of it is valid


@dataclass(slots=True)
class _Kernel(Emitting):
    """A kernel that is being generated."""

    choices: Choices
    function: Function
    block: Region
    tiles: list[_Tile] = field(default_factory=list)
    memory: list[Value] = field(default_factory=list)  # events of loads and stores that are not complete
    names: int = 0
    depth: int = 0
    asynchronous: bool = True
    addresses: bool = False
    faults: bool = False  # whether a run may end in an error
    free: dict[str, int] = field(default_factory=dict)  # by location, the first unused address
    counters: list[Value] = field(default_factory=list)

    # Values

    def index(self, n: int) -> Value:
        return self.emit(create(OPS["pto.constant"], (), {"value": integer(n, INDEX)}), "c").result

    def number(self, t: ScalarType) -> Value:
        if t.dtype is INDEX:
            return self.index(self.choices.number(0, 3))
        values = (1, 2, 3) if t.dtype.is_integer else (1.5, 0.25, -2.0)
        n = self.choices.flag() if t.dtype is I1 else self.choices.one(values)
        literal = arrays.to_literal(arrays.numpy_dtype(t.dtype).type(n), tensor(t.dtype))
        return self.emit(create(OPS["pto.constant"], (), {"value": literal}), "k").result

    def argument(self, t: Type, letter: str) -> Value:
        """An argument of this type, new or not."""
        same = [p for p in self.function.params if p.type is t]
        if same and (isinstance(t, ScalarType) or self.choices.flag()):
            return self.choices.one(same)
        p = Value(t, self.name(letter))
        self.function.params.append(p)
        return p

    def tile(self, t: TileType, full: bool = False) -> _Tile:
        """A tile of this type: an earlier one, or one that is loaded and moved to its location. `full`: all of it is valid."""
        same = [m for m in self.tiles if m.value.type is t and (m.full or not full)]
        if same and self.choices.number(0, 3):
            return self.choices.one(same)
        moves = {"Left": "mov.m2l", "Right": "mov.m2r", "Bias": "mov.m2b"}
        moves |= dict.fromkeys(("Scale", "ScaleLeft", "ScaleRight"), "mov.m2s")
        if t.loc in moves:
            source = self.tile(tile(t.dtype, t.shape, "Mat"), full)
            return self.do(OPS[f"pto.tile.{moves[t.loc]}"], [[source.value]], {}, (t,), [source], full=full)[0]
        if t.loc == "Acc":
            m, n = (d if isinstance(d, int) else 1 for d in t.shape)
            part = SI8 if t.dtype is SI32 else F16
            sides = (tile(part, (m, 16), "Left"), tile(part, (16, n), "Right"))
            left, right = (self.tile(side, full or not self.faults) for side in sides)
            return self.do(OPS["pto.tile.matmul"], [[left.value], [right.value]], {}, (t,), [left, right], full=full)[0]
        return self.load(t, full)

    def load(self, t: TileType, full: bool = False) -> _Tile:
        """A tile from memory: at an offset that is constant or depends on a loop counter, or through a view."""
        rows = [d if isinstance(d, int) else 1 for d in t.shape]
        extents = [d * self.choices.one((1, 2, 4)) for d in rows]
        source = self.argument(memref(t.dtype, extents), "m")
        indices: list[Operand] = [self.offset(have - d) for have, d in zip(extents, rows, strict=True)]
        if not self.choices.number(0, 3):
            view = memref(t.dtype, rows, None, None, _strides(extents), UNKNOWN)
            sizes, steps = [self.index(d) for d in rows], [self.index(1) for _ in rows]
            try:
                op = create(OPS["pto.memref.subview"], (source, indices, sizes, steps), {"to": view})
            except Violation:
                pass
            else:
                source, indices = self.emit(op, "v").result, [self.index(0) for _ in rows]
        return self.do(OPS["pto.tile.load"], [[source], indices], {}, (t,), [], memory=True, full=full)[0]

    def offset(self, room: int) -> Value:
        """An index from 0 to `room`; in a loop at times its counter modulo a number."""
        if self.counters and room and self.choices.flag():
            ring = self.index(min(room + 1, self.choices.one((1, 2, 4))))
            return self.emit(create(OPS["pto.remsi"], (self.counters[-1], ring)), "i").result
        return self.index(self.choices.number(0, room))

    def valid(self, t: TileType) -> list[Operand]:
        """The operands of a valid region: mostly none, at times a smaller region."""
        if self.choices.number(0, 7):
            return []
        return [self.index(self.choices.number(1, d if isinstance(d, int) else 1)) for d in t.shape]

    # Ops

    def do(
        self,
        defn: OpDef,
        groups: list[list[Operand]],
        attrs: dict[str, object],
        results: tuple[TileType, ...],
        used: Sequence[_Tile],
        memory: bool = False,
        full: bool = False,
    ) -> list[_Tile]:
        """Emit a tile op with the waits that it needs; `full`: all of its results is valid. Raises Violation if its rules refuse
        it, if no memory is free, or if random elements make it fail and `faults` is false."""
        home = _result_location(defn)
        at = [self.address(t, k, home) for k, t in enumerate(results)] if self.addresses and results else []
        events = [e for m in used for e in m.events[:1]] + (self.memory if memory else [])
        if at:
            events += [e for m in self.tiles if m.address is not None and m.address in at for e in m.events]
            over = {m.address for m in used}
            at = [self.fresh_address(t, home=home) if a in over else a for a, t in zip(at, results, strict=True)]
        waits = list(dict.fromkeys(events))
        names = [g.name for g in defn.groups]
        asynchronous = self.asynchronous and self.choices.number(0, 3) > 0
        first = groups[0][0].type if groups and isinstance(groups[0][0], Value) else None
        signal = event(_opcode(self.choices, defn, first)) if asynchronous else None
        tos = [a.name for a in defn.attrs if a.kind == TileType.__name__]
        given = attrs | dict(zip(tos, results, strict=False)) | {"event": signal}
        parts: list[list[Operand]] = [*groups, *([] for _ in range(len(names) - len(groups)))]
        if "valid" in names and results and not full:
            parts[names.index("valid")] = self.valid(results[0])
        if "wait" in names:
            parts[names.index("wait")] = list(waits)
        try:
            op = _checked(defn, parts, given)
        except Violation:
            if "valid" not in names or not parts[names.index("valid")]:
                raise
            parts[names.index("valid")] = []
            op = _checked(defn, parts, given)
        if not self.faults and defn.fails in _FAILS_ON_DATA and defn.fails(op):
            code = "OutOfBounds" if defn.fails is needs.index_fails else "IntegerDivideByZero"
            raise Violation(code, f"random elements make {defn.short} fail")
        self.emit(op, "t")
        self.tiles = [m for m in self.tiles if m.address is None or m.address not in at]
        own = [op.results[-1]] if asynchronous else []
        for m in used:
            m.events += own
        if memory:
            self.memory += own
        all_valid = all(m.full for m in used) and not ("valid" in names and parts[names.index("valid")])
        tiles = [_Tile(v, list(own), full=all_valid) for v in op.results if isinstance(v.type, TileType)]
        for m, a in zip(tiles, at, strict=False):
            m.address = a
            self.emit(create(OPS["pto.tile.assign"], (m.value, self.index(a[1]))))
        self.tiles += tiles
        return tiles

    def address(self, t: TileType, k: int, home: str | None) -> tuple[str, int]:
        """The address of a new tile: that of a tile of its type, which is not used again, or unused bytes."""
        old = [m.address for m in self.tiles if m.value.type is t and m.address is not None] if not k and not self.depth else []
        return self.choices.one(old) if old and self.choices.flag() else self.fresh_address(t, home=home)

    def fresh_address(self, t: TileType, home: str | None = None) -> tuple[str, int]:
        """The first address of unused bytes. A tile without a location is at `home` (Vec). Raises Violation if the space is
        full."""
        places = [t.loc] if t.loc else list(_CAPACITY)  # a later pass may choose any location
        start = max(self.free.get(place, 0) for place in places)
        size = -(-tile_bytes(t) // _ALIGN) * _ALIGN
        if start + size > _CAPACITY[t.loc or home or "Vec"]:
            raise Violation("OutOfBounds", "there is no room")
        self.free.update(dict.fromkeys(places, start + size))
        return t.loc or "", start

    def any_op(self) -> None:
        """Emit an op of the table, with one of its signatures."""
        name = self.choices.one(tile_ops())
        if not (known := signatures(name)):
            return
        signature = self.choices.one(known)
        defn = OPS[name]
        groups: list[list[Operand]] = []
        used: list[_Tile] = []
        memory = False
        full = defn.fails is always and not self.faults
        for types in signature.operands:
            part: list[Operand] = []
            for t in types:
                if isinstance(t, TileType):
                    used.append(self.tile(t, full))
                    part.append(used[-1].value)
                elif isinstance(t, MemRefType):
                    memory = True
                    tiles = [u.value.type for u in used if isinstance(u.value.type, TileType)]
                    into = memref(tiles[0].dtype, tiles[0].shape) if tiles else t
                    part.append(self.argument(into, "m"))
                else:
                    assert isinstance(t, ScalarType)
                    part.append(self.number(t) if t.dtype is not INDEX else self.index(0))
            groups.append(part)
        if any(u not in self.tiles for u in used):  # one operand has overwritten another
            return
        if memory and defn.short == "tile.load":
            self.load(signature.results[0])
            return
        self.do(defn, groups, dict(signature.attrs), signature.results, used, memory)

    def wait_for_all(self) -> None:
        """Emit a wait for all ops that are not complete."""
        events = list(dict.fromkeys([*self.memory, *(e for m in self.tiles for e in m.events)]))
        if events and self.choices.flag():
            self.emit(create(OPS["pto.sync"], [events]))
        else:
            self.emit(create(OPS["pto.sync.op"], (), {"opcode": "ALL"}))
        self.memory = []
        for m in self.tiles:
            m.events = []
        self.tiles = self.tiles[-_RECENT:]

    def inside(self, region: Region, size: int) -> None:
        """Fill a block; at its end all ops are complete."""
        outer, tiles, self.block = self.block, self.tiles, region
        self.tiles, self.depth = list(tiles), self.depth + 1
        self.steps(size)
        self.wait_for_all()
        self.block, self.tiles, self.depth = outer, tiles, self.depth - 1

    def branch(self, size: int) -> None:
        """Emit a branch."""
        self.wait_for_all()
        ways = [Region(isolated=False), Region(isolated=False)]
        condition = self.argument(scalar(I1), "p")
        for r in ways:
            self.inside(r, size)
        self.emit(create(OPS["pto.scf.if"], (condition,), regions=ways), "t")

    def loop(self, size: int) -> None:
        """Emit a loop. What loops carry, and addresses that depend on counters, are in `loops`."""
        self.wait_for_all()
        trips = self.choices.number(0, 5)
        upper = self.argument(INDEX_TYPE, "n") if self.choices.flag() else self.index(trips)
        bounds = [self.index(0), upper, self.index(self.choices.number(1, 2))]
        self.counters.append(Value(INDEX_TYPE, self.name("i")))
        body = Region(params=self.counters[-1:], isolated=False)
        self.inside(body, size)
        self.counters.pop()
        self.emit(create(OPS["pto.scf.for"], (*bounds, []), regions=[body]), "t")

    def arithmetic(self) -> None:
        """Emit a scalar op of the table on constants."""
        defn = OPS[self.choices.one(_scalars())]
        for _ in range(64):
            types = [scalar(self.choices.one((INDEX, SI32, F32, I1, F16, SI8))) for _ in defn.groups]
            types = [types[0]] * len(types) if self.choices.flag() else types
            to = scalar(self.choices.one((INDEX, SI32, F32, F16, SI8, SI16)))
            attrs: dict[str, object] = {a.name: to if a.name == "to" else "eq" for a in defn.attrs}
            try:
                defn.result_types(tuple(types), defn.fill(attrs))
            except Violation:
                continue
            self.emit(create(defn, [self.number(t) for t in types], attrs), "s")
            return

    def steps(self, size: int) -> None:
        for _ in range(self.choices.number(1, size)):
            way = self.choices.number(0, 19)
            nested = min(max(1, size // 3), _NESTED)
            if way == 0 and self.depth < 2:
                self.branch(nested)
            elif way in (1, 2) and self.depth < 2:
                self.loop(nested)
            elif way == 3:
                self.wait_for_all()
            elif way == 4:
                self.arithmetic()
            else:
                try:
                    self.any_op()
                except Violation:  # an operand that no load or move can make
                    continue


def generate(
    choices: Choices, *, size: int = 12, only: Sequence[str] = (), symbols: bool = False, faults: bool = False
) -> Program:
    """A kernel of at most about `size` steps that verifies without a target: `any_ops` or `loops`.

    `symbols` is ignored: every extent is a number. Without `faults` no op can fail on its elements. Raises UsageError for `only`:
    every kernel needs loads, moves and waits.
    """
    if only:
        raise UsageError("--only is not for pto: every kernel needs loads, moves and waits")
    return loops(choices, size=size) if choices.number(0, 2) == 0 else any_ops(choices, size=size, faults=faults)


def any_ops(choices: Choices, *, size: int = 12, faults: bool = False) -> Program:
    """A kernel of all kinds of ops, with a wait for everything at the end of each block."""
    function = Function("kernel")
    kernel = _Kernel(choices, function, function, faults=faults)
    kernel.asynchronous = choices.number(0, 4) > 0
    kernel.addresses = choices.flag()
    kernel.steps(size)
    kernel.wait_for_all()
    return Program(DIALECT, [function], [], "kernel", format="pto")


def loops(choices: Choices, *, size: int = 12, events: bool | None = None, counted: bool = False) -> Program:
    """A kernel of loops without races, whose iterations use results of earlier ones. `events`: with events (None: at times).
    `counted`: every trip count is known."""
    way = choices.number(0, 5)
    drawing = loop_kernels.Drawing(choices, 4 + size, addresses=way % 2 == 0, products=way >= 4, counted=counted)
    nodes = drawing.kernel()
    if choices.flag() if events is None else events:
        nodes = Waits(choices).kernel(nodes)
    function = Function("kernel")
    loop_writing.Writer(function, choices.flag(), function).write(nodes)
    return Program(DIALECT, [function], [], "kernel", format="pto")


def _checked(defn: OpDef, parts: Sequence[Sequence[Operand]], given: dict[str, object]) -> Op:
    """The op. Raises Violation if its rules refuse it."""
    op = create(defn, parts, given)
    if defn.check is not None:
        defn.check(op)
    return op


def _result_location(defn: OpDef) -> str | None:
    """The location of an op's result, or None if that is Vec or depends on the users."""
    gives = facts_of(defn).gives
    return gives[0] if gives and gives != ("Vec",) else None


def _opcode(choices: Choices, defn: OpDef, first: Type | None) -> str:
    """A producer for the event of an op. A tile without a location is in Vec, or in Acc for a product."""
    known = producers(defn, first)
    if isinstance(first, TileType) and first.loc is None:
        elsewhere = [opcode for loc, (opcode, _) in facts_of(defn).stores.items() if loc != "Vec"]
        known = tuple(o for o in known if o not in elsewhere)
    return choices.one(known)


# Signatures


@cache
def tile_ops() -> tuple[str, ...]:
    """The tile ops of a program on one core."""
    return tuple(d.name for d in OPS.values() if d.name.startswith("pto.") and is_tile_op(d) and "fifo" not in d.attr_index)


@cache
def signatures(name: str) -> tuple[Signature, ...]:
    """Some signatures of a tile op, found by trial."""
    return tuple(_search(OPS[name]))


@cache
def _scalars() -> tuple[str, ...]:
    names = (d for d in OPS.values() if d.name.startswith("pto.") and d.is_pure and not d.is_constant and not d.regions)
    return tuple(d.name for d in names if "." not in d.short and "div" not in d.short and "rem" not in d.short)


def _search(defn: OpDef) -> Iterator[Signature]:
    choices = Seeded(len(defn.name))
    groups = [g for g in defn.groups if g.name not in ("valid", "wait")]
    seen: set[Signature] = set()
    for _ in range(_GUESSES):
        signature = _guess(defn, groups, choices)
        if signature is not None and signature not in seen:
            seen.add(signature)
            yield signature
            if len(seen) == _WANTED:
                return


def _guess(defn: OpDef, groups: Sequence[Group], choices: Choices) -> Signature | None:
    near = _SimilarTypes(choices, choices.one(DTYPES), (choices.one(SIDES), choices.one(SIDES), choices.one(SIDES)))
    places, place = facts_of(defn).takes, _result_location(defn)
    operands: list[tuple[Type, ...]] = []
    types = defn.generate(choices) if defn.generate is not None else None
    if isinstance(types, tuple):  # the op's own generator gives the types
        operands, results = [(t,) for t in types[:-1]], types[-1:]
    for k, g in enumerate(groups if types.__class__ is not tuple else ()):
        count = {"one": 1, "maybe": choices.number(0, 1)}.get(g.kind, choices.one((2, 2, 2, 1, 4)))
        index = g.kind == "many" and choices.flag()
        loc = places[k] if k < len(places) else None
        operands.append((INDEX_TYPE if index else near.operand(loc, g.kind == "one"),) * count)
    flat = [t for part in operands for t in part]
    tiles = [t for t in flat if isinstance(t, TileType)]
    tos = [a.name for a in defn.attrs if a.kind == TileType.__name__]
    if not isinstance(types, tuple):
        results = tuple(choices.one((*tiles, near.tile(place), near.tile(place), near.concatenated(tiles))) for _ in tos)
    drawn: Any = (
        defn.generate(choices, *flat) if defn.generate is not None and not isinstance(types, tuple) and choices.flag() else {}
    )
    attrs: dict[str, object] = dict(drawn) | {a.name: choices.flag() for a in defn.attrs if a.kind == "bool"}
    given = attrs | dict(zip(tos, results, strict=True)) | {"event": None}
    if SEGMENTS in defn.attr_index:
        given[SEGMENTS] = (*map(len, operands), *(0,) * (len(defn.groups) - len(operands)))
    try:
        defn.infer(*defn.split(filled := defn.fill(given, tuple(flat)), flat), **defn.named(filled))
    except Violation:
        return None
    return Signature(tuple(operands), tuple(attrs.items()), results)


@dataclass(slots=True)
class _SimilarTypes:
    """Draws types with few element types and three extents, so that they often fit each other."""

    choices: Choices
    dtype: DType
    sides: tuple[int, int, int]

    def tile(self, loc: str | None) -> TileType:
        """A tile type; `loc` is the location that the op requires, or None."""
        rows, columns, third = self.sides
        shapes = (
            ((rows, columns),) * 4
            + ((1, columns), (1, columns))
            + ((rows, 1), (1, columns), (columns, rows), (rows, third), (third, columns))
        )
        dtype = self.choices.one((self.dtype, self.dtype, self.dtype, F32, SI32, self.choices.one(DTYPES)))
        place = loc or self.choices.one((None, None, None, "Mat", "Acc"))
        return tile(self.choices.one((F32, SI32)) if place == "Acc" else dtype, self.choices.one(shapes), place)

    def concatenated(self, tiles: Sequence[TileType]) -> TileType:
        """The type of these tiles joined along the columns."""
        columns = sum(t.shape[-1] for t in tiles if isinstance(t.shape[-1], int))
        return tile(tiles[0].dtype, (*tiles[0].shape[:-1], columns)) if tiles else self.tile(None)

    def operand(self, loc: str | None, any_kind: bool) -> Type:
        """A tile type, or with `any_kind` at times a memref or scalar type."""
        kind = self.choices.number(0, 5) if any_kind and loc is None else 5
        if kind == 0:
            return memref(self.dtype, self.sides[:2])
        return scalar(self.choices.one((self.dtype, INDEX, SI32))) if kind == 1 else self.tile(loc)


def _strides(extents: Sequence[int]) -> tuple[int, ...]:
    return (extents[1], 1) if len(extents) == 2 else (1,)
