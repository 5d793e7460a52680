"""Placement of tiles so that bytes are reused as late as the room allows: tiles that share no bytes need no waits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.core.records import dataclass
from ptir_tools.dialects.pto.memory.capacity import Buffer, Line, Space
from ptir_tools.dialects.pto.pipes import is_tile_op, pipe_of

_GAPS = (64, 16, 4, 2)  # ops that bytes rest, as far as there is room; smaller ones leave less room unused
_MOST = 2000  # tiles of a space, beyond which it takes too long


@dataclass(slots=True)
class _Tile:
    """Memory that is live from `start` to before `end`. `first` and `last` are the pipes of its first and last access, `loops`
    the loops around it, the innermost first."""

    buffer: Buffer
    start: int
    end: int
    first: str
    last: str
    loops: Sequence[tuple[int, int]]


def spaced(function: Function, space: Space, room: int, spare: int = 0) -> dict[Buffer, int] | None:
    """An address for every tile of a space, within `room` bytes; None where no placement is found.

    A tile takes bytes that were unused for long, or that its own pipe used last. In a loop the next iteration counts, too. The
    last `spare` bytes are left free if possible.
    """
    owners = [b for b in space.buffers if b.parent is None]
    if len(owners) > _MOST:
        return None
    tiles = sorted(_tiles(function, space, owners), key=lambda t: t.start)
    total = sum(b.size for b in owners)
    for left in dict.fromkeys((room - spare, room)):
        for gap in (0,) if total <= left else _GAPS:
            if (found := _placed(tiles, left, gap)) is not None:
                return {b: found[b.parent or b] for b in space.buffers}
    return None


def _tiles(function: Function, space: Space, owners: Sequence[Buffer]) -> Iterator[_Tile]:
    line = Line()
    line.block(function)
    used: dict[Value, list[Op]] = {b.value: [] for b in space.buffers}
    for op in function.ops():
        if is_tile_op(op.defn):
            for v in {v for v in (*op.operands, *op.results) if isinstance(v, Value) and v in used}:
                used[v].append(op)
    ops: dict[Buffer, list[Op]] = {b: [] for b in owners}
    for b in space.buffers:
        ops[b.parent or b] += used[b.value]
    for b in owners:
        mine = sorted(ops[b], key=line.place.__getitem__)
        first, last = (pipe_of(mine[0]), pipe_of(mine[-1])) if mine else ("", "")
        yield _Tile(b, b.start, b.end, first, last, [n for n in line.loops if n[0] <= b.start and b.end <= n[1] + 1])


def _placed(tiles: Sequence[_Tile], room: int, gap: int) -> dict[Buffer, int] | None:
    """Each tile at the lowest of the addresses that were unused longest; gaps of at least `gap` ops count as equal."""
    if not gap:  # they fit next to each other
        total, found = 0, dict[Buffer, int]()
        for t in tiles:
            found[t.buffer] = total
            total += t.buffer.size
        return found
    found = {}
    for t in tiles:
        near = [
            (at, at + other.buffer.size, rest)
            for other in tiles
            if (at := found.get(other.buffer, -1)) >= 0 and (rest := _rest(other, t, gap)) < gap
        ]
        best, longest = -1, -1
        for start in sorted({0, *(end for _, end, _ in near)}):
            end = start + t.buffer.size
            rest = min((r for low, high, r in near if low < end and start < high), default=gap)
            if end <= room and rest > longest:
                best, longest = start, rest
        if best < 0:
            return None
        found[t.buffer] = best
    return found


def _rest(before: _Tile, t: _Tile, most: int) -> int:
    """The number of ops between the live range of a tile and that of a later one, at most `most`; -1 if they overlap. If one loop
    has both, the way around the loop counts, too."""
    if t.start < before.end:
        return -1
    found = most if before.last == t.first else t.start - before.end
    common = [n for n in before.loops if n in t.loops]
    if common and t.last != before.first:
        start, end = common[0]
        found = min(found, before.start + end - start - t.end)
    return max(min(found, most), 0)
