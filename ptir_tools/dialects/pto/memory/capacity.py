"""The peak of live bytes in each memory space: a lower bound for any placement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from math import prod

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Arena, Options, Program, SpaceBuffer
from ptir_tools.core.ir import Function, Op, Operand, Region, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.types import Type, tensor
from ptir_tools.dialects.pto.carried import carried
from ptir_tools.dialects.pto.facts import facts
from ptir_tools.dialects.pto.memory.info import infer, tile_bytes
from ptir_tools.dialects.pto.names import SPACE_LOCS
from ptir_tools.dialects.pto.structure import has_addresses, is_loop, tiles_of
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target, target_of
from ptir_tools.dialects.pto.types import MemRefType, TileType, type_text


@dataclass(slots=True, eq=False)
class Buffer:
    """A tile's memory: live from op `start` to before op `end`, by the order of ops in the text.

    A tile that is written over another, or has the same bytes under another type, has no memory of its own. Its memory is that
    of `parent`, whose live range covers all tiles in it.
    """

    value: Value
    space: str
    size: int
    start: int
    end: int
    op: Op | None = None
    parent: Buffer | None = None
    alias: str = ""


@dataclass(slots=True)
class Space:
    """One memory space: its buffers, the peak of live bytes, and where the peak is."""

    name: str
    buffers: list[Buffer] = field(default_factory=list)
    peak: int = 0
    scratch: int = 0  # bytes at the peak that an op uses as scratch
    at: list[Buffer] = field(default_factory=list)


def buffers(
    function: Function, target: Target | None = None, tiles: Mapping[Value, TileType] | None = None, line: Line | None = None
) -> list[Buffer]:
    """The buffers of a function with their live ranges, in order of definition.

    A value that a loop carries or a branch gives shares the memory of its source, if their live ranges do not overlap. A value
    from outside that a loop uses is live for the whole loop. In a space that is too small, tiles are also put into gaps of
    carried values. `tiles` are the inferred tile types (`infer`), `line` the line of ops, if it exists already.
    """
    line = line or Line.of(function)
    sharing = _Sharing(infer(function, target) if tiles is None else tiles, line)
    sharing.block(function)
    for op in function.ops():
        sharing.overwrite(op)
    if target is not None:
        sharing.squeeze(target.capacity)
    return list(sharing.made.values())


class _Sharing:
    """Buffers in order of definition, each with its own memory or that of another with a disjoint live range."""

    def __init__(self, tiles: Mapping[Value, TileType], line: Line) -> None:
        self.tiles = tiles
        self.line = line
        self.made: dict[Value, Buffer] = {}
        self.members: dict[Buffer, list[tuple[Value, int, int]]] = {}  # by buffer with memory: its values, and their live ranges

    def block(self, block: Region) -> None:
        """Add the parameters and ops of a block, and join what must share memory: what is carried, and the same bytes."""
        for p in block.params:
            self.add(p)
        for op in block.body:
            for r in op.regions:
                self.block(r)
            for v in op.results:
                self.add(v)
            if op.regions:
                self.share_carried(op)
            elif facts(op).renames:
                self.share(op.result, op.operands[0], "view")
            elif facts(op).over is not None:
                self.overwrite(op)

    def overwrite(self, op: Op) -> None:
        """Write the results of an op over its operands, where that is possible."""
        if not op.regions and not facts(op).renames:
            for v in op.results:
                for x in _overwritten(op):
                    self.share(v, x, "in-place")

    def add(self, v: Value) -> None:
        if (t := self.tiles.get(v)) is not None:
            size = _aligned_bytes(t)
            start = self.line.start.get(v, 0)
            end = max(self.line.end.get(v, 0), start + 1)
            self.made[v] = made = Buffer(v, t.loc or "Vec", size, start, end, v.op)
            self.members[made] = [(v, *live) for live in self.line.live(v, start, end)]

    def share_carried(self, op: Op) -> None:
        """Join the names of carried values, then their sources, where the live ranges allow it."""
        for c in carried(op):
            for v in c.homes[1:]:
                self.share(v, c.homes[0], "carried")
        for c in carried(op):
            for place in c.sources:
                self.share(c.homes[0], c.given(*place), "carried")

    def squeeze(self, capacity: dict[str, int]) -> None:
        """Put tiles into gaps of carried values, the smallest first, in spaces that are too small."""
        for name in dict.fromkeys(b.space for b in self.made.values() if b.alias == "carried"):
            again = True
            while again:
                space = Space(name, [b for b in self.made.values() if b.space == name])
                _peak(space, ())
                tiles = sorted(space.at, key=lambda b: b.size) if space.peak > capacity[name] else []
                again = any(self.fill(b, host) for b in tiles for host in tiles)

    def fill(self, b: Buffer, host: Buffer) -> bool:
        """Put a tile into a gap of a carried value, if it fits."""
        if any(self.made[v].alias == "carried" for v, _, _ in self.members[host]):
            self.share(b.value, host.value, "gap")
        return b.parent is host

    def root(self, x: Operand) -> Buffer | None:
        """The buffer that owns the memory of a tile."""
        b = self.made.get(x) if isinstance(x, Value) else None
        return b and (b.parent or b)

    def share(self, v: Value, x: Operand, alias: str) -> None:
        """Put `v`, and all that shares its memory, into the memory of `x`, if both are of one space and their live ranges are
        disjoint.

        They must have one size, except in a gap.
        """
        mine, root = self.root(v), self.root(x)
        if mine is None or root is None or mine is root or root.space != mine.space:
            return
        if root.size != mine.size and (alias != "gap" or root.size < mine.size):
            return
        if alias != "view" and not all(_apart(a, b) for a in self.members[mine] for b in self.members[root]):
            return
        for name, _, _ in self.members[mine]:
            b = self.made[name]
            b.parent, b.alias = root, b.alias or alias
        root.start, root.end = min(root.start, mine.start), max(root.end, mine.end)
        self.members[root] += self.members.pop(mine)


def _apart(a: tuple[Value, int, int], b: tuple[Value, int, int]) -> bool:
    """Whether the live ranges of two tiles are disjoint, or one is written over the other at its last use."""
    (first, _, end), (second, start, _) = sorted((a, b), key=lambda m: m[1:])
    over = end == start + 1 and second.op is not None and not second.op.regions and first in _overwritten(second.op)
    return end <= start or over


def _overwritten(op: Op) -> list[Value]:
    """The operands over which the result of `op` may be written. For an accumulator it is required."""
    f = facts(op)
    tiles = tiles_of(op)
    if f.over is not None:
        return tiles[f.over :][:1]
    if f.reuses is None:
        return tiles if op.defn.is_elementwise else []
    return [tiles[k] for k in f.reuses]


class Line:
    """The ops of a function in sequence, and the live range of each value. A block gets positions between the three of its op;
    the last of them is for its results."""

    def __init__(self) -> None:
        self.at = 0
        self.loops: list[tuple[int, int]] = []  # the start and end of each, inner ones before outer ones
        self.start: dict[Value, int] = {}
        self.end: dict[Value, int] = {}
        self.place: dict[Op, int] = {}  # the position of each op's results
        self.gaps: dict[Value, list[tuple[int, int, int]]] = {}  # in a branch: start and end of a gap, and end of the branch

    @classmethod
    def of(cls, function: Function) -> Line:
        """The line of a function."""
        made = cls()
        made.block(function)
        return made

    def block(self, block: Region) -> None:
        for p in block.params:
            self.start[p] = self.at
        for op in block.body:
            self.op(op)
        self.at += 1
        for x in block.results:
            if isinstance(x, Value):
                self.use(x, self.at + 1)

    def op(self, op: Op) -> None:
        self.at += 1
        opened = self.at
        for v in op.values():
            self.use(v, opened + 1)
        gaps = dict[Value, tuple[int, int]]()
        for r in op.regions:
            self.at += 1  # a parameter begins where its source ends, one after earlier results
            if op.defn.short == "scf.if" and r is op.regions[-1]:
                gaps = {v: (max(self.end.get(v, 0), opened + 1), self.at) for v in r.uses() if self.start.get(v, 0) < opened}
            self.block(r)
        self.at += bool(op.regions)
        for v, gap in gaps.items():
            self.gaps.setdefault(v, []).append((*gap, self.at + 1))
        if is_loop(op):
            for v in {v for r in op.regions for v in r.uses()}:
                if self.start.get(v, 0) < opened:
                    self.use(v, self.at)
            self.loops.append((opened, self.at))
        self.place[op] = self.at
        for v in op.results:
            self.start[v] = self.at

    def live(self, v: Value, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The live range of a value, in parts. If it dies in the second block of a branch, it is not live at the end of the first
        one, after its last use there."""
        for first, last, close in sorted(self.gaps.get(v, ())):
            if end <= close and start < first < last:
                yield start, first
                start = last
        yield start, end

    def use(self, v: Value, at: int) -> None:
        self.end[v] = max(self.end.get(v, 0), at)


def spaces(function: Function, target: Target | None = None, tiles: Mapping[Value, TileType] | None = None) -> list[Space]:
    """Every memory space that the function's tiles use, with its peak."""
    made: dict[str, Space] = {}
    line = Line.of(function)
    for b in buffers(function, target, tiles, line):
        made.setdefault(b.space, Space(b.space)).buffers.append(b)
    scratches_at = _scratches(line, target)
    for space in made.values():
        _peak(space, scratches_at if space.name == "Vec" else ())
    return list(made.values())


def _scratches(line: Line, target: Target | None) -> list[tuple[int, int]]:
    """The positions of ops that use the target's scratch, and its size in bytes."""
    if target is None or target.scratch is None:
        return []
    return [(at, target.scratch[1]) for op, at in line.place.items() if facts(op).scratch]


def _peak(space: Space, scratch: Sequence[tuple[int, int]]) -> None:
    owners = [(i, b) for i, b in enumerate(space.buffers) if b.parent is None]
    changes = [(b.start, 1, i, b.size) for i, b in owners] + [(b.end, 0, i, -b.size) for i, b in owners]
    changes += [(at, 2, -1, size) for at, size in scratch] + [(at, 3, -1, -size) for at, size in scratch]
    changes.sort()
    now = top = 0
    for k, (_, kind, _, size) in enumerate(changes, 1):
        now += size
        if now > space.peak:
            space.peak, top, space.scratch = now, k, size if kind == 2 else 0
    live: dict[int, None] = {}
    for _, kind, i, _ in changes[:top]:
        if kind == 1:
            live[i] = None
        elif not kind:
            live.pop(i, None)
    space.at = [space.buffers[i] for i in live]


def live_at(function: Function, space: Space, wanted: Callable[[Op], bool]) -> Iterator[tuple[Op, list[Buffer]]]:
    """The ops in `wanted`, each with the tiles of a space that are live when it runs."""
    found = [op for op in function.ops() if wanted(op)]
    line = Line.of(function) if found else Line()
    for op in found:
        at = line.place[op]
        yield op, [b for b in space.buffers if b.parent is None and b.start <= at < b.end]


def check(
    function: Function, target: Target, tiles: Mapping[Value, TileType], diagnostics: Diagnostics, *, warn: bool = True
) -> None:
    """Report spaces whose live tiles do not fit, with what is live at the peak. Where tiles have addresses, these are checked
    instead.

    Memrefs outside gm occupy their space as long as the function runs. If they do not fit by themselves, it is an error.
    """
    used: dict[str, int] = {}
    for p in function.params:
        space = SPACE_LOCS.get(p.type.space or "gm") if isinstance(p.type, MemRefType) else None
        if space is None:
            continue
        assert isinstance(p.type, MemRefType)
        size = p.type.dtype.size * prod([d for d in p.type.shape if isinstance(d, int)])
        used[space] = total = used.get(space, 0) + size
        if total > (capacity := target.capacity.get(space, total)):
            message = f"%{p.name} has {size} bytes, {target.name} has {capacity} of {space}"
            message += f", and {total - size} are taken by other arguments" if total > size else ""
            diagnostics.error("CapacityExceeded", message, function.loc, help="pass it in gm, or in parts")
            return
    if has_addresses(function) or _fit_apart(tiles, used, target):
        return
    for made in spaces(function, target, tiles):
        capacity = target.capacity[made.name]
        needed = made.peak + used.get(made.name, 0)
        if needed <= capacity:
            continue
        message = f"{needed} bytes of {made.name} are live at once, {target.name} has {capacity}"
        if made.scratch:
            message += f" ({made.scratch} of them for an op itself)"
        report(made, message, diagnostics, warn=warn)


def _fit_apart(tiles: Mapping[Value, TileType], used: Mapping[str, int], target: Target) -> bool:
    """Whether there is room for all tiles at once, regardless of live ranges."""
    needed = {space: used.get(space, 0) for space in target.capacity}
    needed["Vec"] += target.scratch[1] if target.scratch is not None else 0
    for t in tiles.values():
        needed[t.loc or "Vec"] += _aligned_bytes(t)
    return all(needed[space] <= room for space, room in target.capacity.items())


@cache
def _aligned_bytes(t: TileType) -> int:
    return -(-tile_bytes(t) // ALIGNMENT) * ALIGNMENT


def report(space: Space, message: str, diagnostics: Diagnostics, *, warn: bool = False) -> None:
    """Report a space that is too small, with what is live at its peak."""
    labels = [(b.op.loc, f"{b.size} bytes, {type_text(b.value.type)}") for b in space.at if b.op is not None]
    at = next((b.op.loc for b in reversed(space.at) if b.op is not None), None)
    names = ", ".join(f"%{b.value.name}" for b in space.at)
    hint = "store or finish some of them earlier, or use smaller tiles" + ("; pto-bufferize refuses it" if warn else "")
    add = diagnostics.warning if warn else diagnostics.error
    add("CapacityExceeded", f"{message}: {names}", at, labels=labels, help=hint)


def arenas(program: Program) -> Iterator[Arena]:
    """The spaces that each function of `program` uses, with their capacity on its target."""
    target = target_of(program, Options())
    for function in program.functions:
        for space in spaces(function, target):
            places: dict[Buffer | None, int] = {b: i for i, b in enumerate(space.buffers)}
            made = [
                SpaceBuffer(b.value.name, _elements(b.value.type), b.size, b.start, b.end, places.get(b.parent), b.alias)
                for b in space.buffers
            ]
            yield Arena(f"{function.name} {space.name}", made, target.capacity[space.name] if target is not None else None)


def _elements(t: Type) -> Type | None:
    return tensor(t.dtype, t.shape) if isinstance(t, TileType) else None
