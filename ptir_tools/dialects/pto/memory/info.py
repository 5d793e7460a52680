"""Inference of the location and layout of tiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.core.violations import Violation, operand
from ptir_tools.dialects.pto.carried import carried
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.structure import tiles_of
from ptir_tools.dialects.pto.targets import A5, ALIGNMENT, Target
from ptir_tools.dialects.pto.types import EventType, TileType, tile


def wanted(op: Op) -> Iterator[tuple[int, str]]:
    """The operands of `op` that must be in one location, by index. For a store it follows from the producer of its event."""
    f = facts(op)
    yield from enumerate(f.takes)
    signal = op.results[-1].type if f.stores and op.results and not f.renames else None
    if isinstance(signal, EventType):
        places = [loc for loc, (opcode, _) in f.stores.items() if opcode == signal.producer]
        yield from ((0, loc) for loc in places[: len(places) == 1])  # a push has one opcode for both


def infer(function: Function, target: Target | None = None) -> dict[Value, TileType]:
    """The type of every tile value of `function` with location and layout. Stated ones are kept.

    A result is where its op puts it. A load is where its uses need it: Mat for moves to the matrix buffers, else Vec. A value
    that a loop carries or a branch gives has one location under all its names.
    """
    places = _Places(function)
    return {v: _filled(t, places.location(v), target) for v in _values(function) if isinstance(t := v.type, TileType)}


@cache
def _filled(t: TileType, loc: str, target: Target | None) -> TileType:
    return tile(t.dtype, t.shape, loc, t.layout or default_layout(t, loc, target), t.valid)


def _values(function: Function) -> Iterator[Value]:
    """Parameters and results, in order of the text."""
    yield from function.params
    for op in function.ops():
        yield from op.results
        for r in op.regions:
            yield from r.params


class _Places:
    """The locations of tiles: groups of names that share one, and the constraints of each group."""

    def __init__(self, function: Function) -> None:
        self.groups: dict[Value, Value] = {}
        self.asked: dict[Value, set[str]] = {}  # by the uses, per group
        self.known: dict[Value, str] = {}  # by the types and the ops that make them, per group
        ops = list(function.ops())
        for op in ops:
            for c in carried(op):
                for x in (*c.homes, *(c.given(*place) for place in c.sources)):
                    if isinstance(x, Value) and isinstance(x.type, TileType):
                        self.groups[self.group(x)] = self.group(c.homes[0])
        for op in ops:
            for i, place in wanted(op):
                if isinstance(x := op.operands[i], Value):
                    self.asked.setdefault(self.group(x), set()).add(place)
        for v in _values(function):
            if isinstance(v.type, TileType) and (v.type.loc is not None or _made(v.op)):
                self.known.setdefault(self.group(v), v.type.loc or self.made(v))

    def group(self, v: Value) -> Value:
        while (up := self.groups.get(v, v)) is not v:
            v = up
        return v

    def made(self, v: Value) -> str:
        """The location where the op that makes `v` puts it."""
        op = v.op
        assert op is not None
        f = facts(op)
        if f.gives:
            asked = [loc for loc in f.gives if loc in self.asked.get(self.group(v), ())]
            return asked[0] if len(asked) == 1 else f.gives[0]
        if f.over is None and not f.renames:
            return "Vec"
        return self.location(tiles_of(op)[f.over or 0])

    def location(self, v: Value) -> str:
        """The location of a tile: the stated one, or that of its op, or that of its uses, if they agree."""
        assert isinstance(v.type, TileType)
        if v.type.loc is not None:
            return v.type.loc
        group = self.group(v)
        if group in self.known:
            return self.known[group]
        asked = self.asked.get(group, ())
        return min(asked) if len(asked) == 1 else "Vec"


def _made(op: Op | None) -> bool:
    """Whether the op decides the location of its result: not a load, and not an op that only carries values."""
    return op is not None and facts(op).gives is not None


def check(function: Function, made: Mapping[Value, TileType], diagnostics: Diagnostics) -> set[Op]:
    """Report tiles with conflicting locations; the ops that read them. `made` is the result of `infer`."""
    clashing = set[Op]()
    for op in function.ops():
        for i, place in wanted(op):
            x = op.operands[i]
            if isinstance(x, Value) and x in made and made[x].loc != place:
                _clash(op, i, x, f"must be loc={place}", made[x].loc, diagnostics)
                clashing.add(op)
                break
        for c in carried(op):
            for x in (c.given(*place) for place in c.sources):
                if isinstance(x, Value) and x in made and made[x].loc != made[c.homes[0]].loc:
                    _clash(op, None, x, f"is carried in {made[c.homes[0]].loc}", made[x].loc, diagnostics)
                    clashing.add(op)
    return clashing


def _clash(op: Op, i: int | None, x: Value, must: str, loc: str | None, diagnostics: Diagnostics) -> None:
    name = op.defn.short.removeprefix("tile.")
    what = f"%{x.name}" if i is None else f"operand {i}"
    message = f"{what} of {name} {must}, and %{x.name} is in {loc}"
    labels = [(x.op.loc, "made here")] if x.op is not None else []
    at = None if i is None else operand(i)
    clash = Violation("InvalidLocation", message, at=at, labels=labels, help="move it there, or load it twice")
    diagnostics.violation(clash, op.loc, op)


def default_layout(t: TileType, loc: str, target: Target | None) -> str:
    """The default layout in a location: a column vector is DN, a row in Mat is ND."""
    rows, columns = extents(t)
    if loc == "Vec":
        return "DN" if columns == 1 and rows != 1 else "ND"
    if loc == "Mat" and rows == 1:
        return "ND"
    return (target or A5).layouts[loc][0]


def extents(t: TileType) -> tuple[int, int]:
    """Rows and columns of a tile. Leading dimensions count as rows; an unknown extent is 0."""
    known = [d if isinstance(d, int) else 0 for d in t.shape]
    rows = 1
    for d in known[:-1]:
        rows *= d
    return rows, known[-1] if known else 1


def unit_dims(t: TileType) -> int:
    """How many trailing dimensions of extent 1 are first in C++, so that rows and columns may be valid in part. In a tile that is
    a single column they stay."""
    if t.rank < 3 or sum(d != 1 for d in t.shape) < 2:
        return 0
    return next(k for k, d in enumerate(reversed(t.shape)) if d != 1)


def sides(t: TileType) -> tuple[int, int]:
    """Rows and columns of a tile in C++."""
    return extents(t.with_shape(t.shape[: t.rank - unit_dims(t)]))


def tile_bytes(t: TileType) -> int:
    """The bytes of the whole static shape, whatever is valid."""
    rows, columns = extents(t)
    return rows * columns * t.dtype.size


def box_of(t: TileType, layout: str) -> tuple[int, int]:
    """Rows and columns of a layout's fractal box: 512 bytes; in Acc 16 x 16 elements; of exponents 32 bytes."""
    if t.loc == "Acc":
        return 16, 16
    if t.loc in ("ScaleLeft", "ScaleRight"):
        return (16, 2) if t.loc == "ScaleLeft" else (2, 16)
    per = ALIGNMENT // t.dtype.size
    return (16, per) if layout in ("Nz", "Zz") else (per, 16)
