"""How much of each memory space the live tiles need (facts 3.2, 5): the lower bound that any placement must meet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Op, Operand, Region, Value
from ptir_tools.core.opdef import ELEMENTWISE
from ptir_tools.core.types import MemRefType, TileType
from ptir_tools.dialects.pto.info import infer, tile_bytes
from ptir_tools.dialects.pto.names import SPACE_LOCS
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target, scratches
from ptir_tools.dialects.pto.types import type_text

# Ops whose result may not lie over an operand, although they work element by element (facts 5, the fourth gate).
_APART = frozenset(f"tile.{name}" for name in ("ands", "ors", "xors", "fmod", "fmods", "recip", "rsqrt"))


@dataclass(slots=True, eq=False)
class Buffer:
    """A tile's memory: live from op `start` to before op `end` of the function's ops in order of the text.

    A tile that is made in place of another, or is the same bytes under another type, has no memory of its own: it lies where
    `parent` does, which has, and whose range spans both.
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
    """One memory space: its tiles, the largest number of bytes live at once, and what is live then."""

    name: str
    buffers: list[Buffer] = field(default_factory=list)
    peak: int = 0
    scratch: int = 0  # bytes at the peak that no tile has, but an op for itself
    at: list[Buffer] = field(default_factory=list)


def buffers(function: Function, target: Target | None = None) -> list[Buffer]:
    """The tiles of a function with their live ranges, in the order in which they come to be.

    What a loop carries may take the place of what it starts from: such ranges touch and do not overlap. What a loop uses from
    outside lives as long as the loop.
    """
    line = _Line()
    line.block(function)
    sharing = _Sharing(infer(function, target), line)
    sharing.block(function)
    return list(sharing.made.values())


class _Sharing:
    """Buffers made in order of the text, each with memory of its own or that of another."""

    def __init__(self, tiles: dict[Value, TileType], line: _Line) -> None:
        self.tiles = tiles
        self.line = line
        self.made: dict[Value, Buffer] = {}

    def block(self, block: Region, inits: Sequence[Operand] = ()) -> None:
        """Parameters, which `inits` are the last of start, and ops."""
        for p in block.params:
            self.add(p)
        for p, x in zip(block.params[len(block.params) - len(inits) :], inits, strict=True):
            self.share(p, x, "carried", lambda b, root: root.end == b.start)
        for op in block.body:
            for r in op.regions:
                self.block(r, op.operands[3:] if op.defn.short == "scf.for" else ())
            for k, v in enumerate(op.results):
                self.add(v)
                self.result(op, k, v)

    def add(self, v: Value) -> None:
        if (t := self.tiles.get(v)) is not None:
            size = -(-tile_bytes(t) // ALIGNMENT) * ALIGNMENT
            start = self.line.start.get(v, 0)
            self.made[v] = Buffer(v, t.loc or "Vec", size, start, max(self.line.end.get(v, 0), start + 1), v.op)

    def result(self, op: Op, k: int, v: Value) -> None:
        """Let a result lie where its operands do, if it must or may; that of a loop where what it carries always does."""
        if op.defn.short == "scf.for":
            p, y = op.regions[0].params[k + 1], op.regions[0].results[k]
            self.share(v, p, "carried", lambda _, root: isinstance(y, Value) and self.root(y) is root)
        elif op.defn.short == "tile.reshape":
            self.share(v, op.operands[0], "view", lambda *_: True)
        else:
            for x in _overwritten(op):
                self.share(v, x, "in-place", lambda b, root: root.end == b.start + 1)

    def root(self, x: Operand) -> Buffer | None:
        """The buffer whose memory a tile has."""
        b = self.made.get(x) if isinstance(x, Value) else None
        return b and (b.parent or b)

    def share(self, v: Value, x: Operand, alias: str, may: Callable[[Buffer, Buffer], bool]) -> None:
        """Let `v` lie where `x` does, if it has no place yet, both are of one size and space, and it `may`."""
        b, root = self.made.get(v), self.root(x)
        if b is None or root is None or b.parent is not None or (root.space, root.size) != (b.space, b.size):
            return
        if may(b, root):
            b.parent, b.alias = root, alias
            root.end = max(root.end, b.end)


def _overwritten(op: Op) -> list[Value]:
    """The operands over which the result of `op` may be written (an accumulator must be)."""
    short = op.defn.short
    tiles = [x for x in op.operands if isinstance(x, Value) and isinstance(x.type, TileType)]
    if short == "tile.matmul.acc" or "expand" in short:
        return tiles[:1]
    if short == "tile.sel":
        return tiles[1:]
    return tiles if op.defn.traits & ELEMENTWISE and short not in _APART else []


class _Line:
    """The ops of a function in a row: where each value's life starts and ends. A block takes the places between its op's two."""

    def __init__(self) -> None:
        self.at = 0
        self.start: dict[Value, int] = {}
        self.end: dict[Value, int] = {}

    def block(self, block: Region) -> None:
        for p in block.params:
            self.start[p] = self.at
        for op in block.body:
            self.op(op)
        for x in block.results:
            if isinstance(x, Value):
                self.use(x, self.at + 1)

    def op(self, op: Op) -> None:
        self.at += 1
        opened = self.at
        for v in op.values():
            self.use(v, opened + (not op.regions))
        for r in op.regions:
            self.block(r)
        self.at += bool(op.regions)
        for r in op.regions:
            if op.defn.short == "scf.for":
                for v in set(r.uses()):
                    if self.start.get(v, 0) < opened:
                        self.use(v, self.at)
        for v in op.results:
            self.start[v] = self.at

    def use(self, v: Value, at: int) -> None:
        self.end[v] = max(self.end.get(v, 0), at)


def spaces(function: Function, target: Target | None = None) -> list[Space]:
    """Every memory space that the function's tiles use, with its peak."""
    made: dict[str, Space] = {}
    for b in buffers(function, target):
        made.setdefault(b.space, Space(b.space)).buffers.append(b)
    scratches_at = _scratches(function, target)
    for space in made.values():
        _peak(space, scratches_at if space.name == "Vec" else ())
    return list(made.values())


def _scratches(function: Function, target: Target | None) -> list[tuple[int, int]]:
    """Where in the line of ops one uses the target's scratch, and how many bytes (facts 3.2)."""
    if target is None or target.scratch is None or not any(scratches(op.defn.short) for op in function.ops()):
        return []
    line = _Line()
    line.block(function)
    size = target.scratch[1]
    return [(line.start[op.results[0]], size) for op in function.ops() if scratches(op.defn.short)]


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


def check(function: Function, target: Target, diagnostics: Diagnostics) -> None:
    """Warn of spaces whose live tiles do not fit, naming what is live at the peak; addresses, where there are any, say more.

    Memrefs outside gm have their place in their space as long as the function runs: those alone that do not fit are an error.
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
    if any(op.defn.short == "tile.assign" for op in function.ops()):
        return
    for made in spaces(function, target):
        capacity = target.capacity[made.name]
        needed = made.peak + used.get(made.name, 0)
        if needed <= capacity:
            continue
        labels = [(b.op.loc, f"{b.size} bytes, {type_text(b.value.type)}") for b in made.at if b.op is not None]
        at = made.at[-1].op.loc if made.at[-1].op is not None else function.loc
        names = ", ".join(f"%{b.value.name}" for b in made.at)
        message = f"{needed} bytes of {made.name} are live at once, {target.name} has {capacity}: {names}"
        if made.scratch:
            message += f" (and {made.scratch} that an op uses for itself)"
        hint = "store or finish some of them earlier, or use smaller tiles; pto-bufferize refuses it"
        diagnostics.warning("CapacityExceeded", message, at, labels=labels, help=hint)
