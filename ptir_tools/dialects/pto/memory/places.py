"""A spatial index of the accesses of one memory, to find overlapping ones without a scan."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterator
from itertools import product
from math import prod
from operator import attrgetter

from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Generic, Protocol, TypeVar
from ptir_tools.dialects.pto.memory.windows import Access, covers, overlap

FEW = 8  # accesses that are searched one by one


class Placed(Protocol):
    """An access with its number in its pipe."""

    @property
    def place(self) -> int: ...
    @property
    def access(self) -> Access | None: ...


T = TypeVar("T", bound=Placed)
Cell = tuple[int, ...]
_place = attrgetter("place")


@dataclass(slots=True)
class _Box:
    """The bounding box of an access: per dimension its first and last element relative to the symbolic part of its start."""

    symbols: tuple[frozenset[object], ...]
    first: Cell
    last: Cell


@dataclass(slots=True)
class Places(Generic[T]):
    """The accesses of one memory by one pipe, in order. Many accesses are sorted into grids.

    Boxes with the same symbolic part and similar size are in one grid, each in the cell of its first element. A cell is at
    least as large as the boxes, so an overlapping box is in the same or an adjacent cell.
    """

    all: list[T] = field(default_factory=list)
    grids: dict[tuple[tuple[frozenset[object], ...], Cell], dict[Cell, list[T]]] = field(default_factory=dict)
    loose: list[T] = field(default_factory=list)  # accesses without a box
    sorted: int = 0  # how many are in the grids, or loose

    def add(self, x: T) -> None:
        """Add `x`, the latest access so far."""
        self.all.append(x)

    def _sort(self, x: T) -> None:
        box = _box(x.access)
        if box is None:
            self.loose.append(x)
            return
        sizes = tuple([1 << (b - a).bit_length() for a, b in zip(box.first, box.last, strict=True)])
        cells = self.grids.setdefault((box.symbols, sizes), {})
        cells.setdefault(tuple([a // n for a, n in zip(box.first, sizes, strict=True)]), []).append(x)

    def near(self, access: Access, after: int) -> list[T]:
        """The accesses after number `after` that may overlap `access`, the latest first. Some of them do not."""
        first = bisect_right(self.all, after, key=_place)
        box = _box(access) if len(self.all) - first > FEW else None
        if box is None:
            return self.all[first:][::-1]
        for x in self.all[self.sorted :]:
            self._sort(x)
        self.sorted = len(self.all)
        found = [x for part in (self.loose, *self._cells(box)) for x in part if x.place > after]
        return sorted(found, key=_place, reverse=True)

    def _cells(self, box: _Box) -> Iterator[list[T]]:
        for (symbols, sizes), cells in self.grids.items():
            ranges = [range(a // n - 1, b // n + 1) for a, b, n in zip(box.first, box.last, sizes, strict=True)]
            if symbols != box.symbols or prod(map(len, ranges)) > len(cells):
                yield from cells.values()
            else:
                yield from (cells[c] for c in product(*ranges) if c in cells)


@dataclass(slots=True, eq=False)
class Window(Generic[T]):
    """A window of one memory: the windows that may overlap it, those that it covers, and its accesses."""

    access: Access
    place: int  # among the windows of its memory
    meets: list[Window[T]] = field(default_factory=list)
    covers: list[Window[T]] = field(default_factory=list)
    touches: dict[tuple[int, bool], list[T]] = field(default_factory=dict)  # by pipe, reads and writes apart, in order

    def since(self, pipe: int, place: int, writes_only: bool) -> Iterator[T]:
        """The accesses of a pipe after a number."""
        for writes in (True,) if writes_only else (True, False):
            for x in reversed(self.touches.get((pipe, writes), ())):
                if x.place <= place:
                    break
                yield x


@dataclass(slots=True)
class Windows(Generic[T]):
    """The windows of one memory. Two windows are compared once, whatever the number of accesses."""

    known: dict[Hashable, Window[T]] = field(default_factory=dict)
    places: Places[Window[T]] = field(default_factory=Places)
    last: dict[int, int] = field(default_factory=dict)  # per pipe, the place of its last access

    def add(self, window: Window[T], pipe: int, writes: bool, x: T) -> None:
        """Add an access of a window, the latest of its pipe so far."""
        window.touches.setdefault((pipe, writes), []).append(x)
        self.last[pipe] = x.place

    def of(self, access: Access) -> Window[T]:
        """The window that an access touches."""
        starts = tuple([(s.const, frozenset(s.terms.items())) if s.terms else s.const for s in access.starts])
        key = starts, access.steps, access.least, access.most
        if (found := self.known.get(key)) is None:
            self.known[key] = found = Window(access, len(self.known))
            self.places.add(found)
            for other in self.places.near(access, -1):
                if overlap(access, other.access) is not None:
                    found.meets.append(other)
                    if other is not found:
                        other.meets.append(found)
                if covers(access, other.access):
                    found.covers.append(other)
                if other is not found and covers(other.access, access):
                    other.covers.append(found)
        return found


def _box(access: Access | None) -> _Box | None:
    """The bounding box of an access; None where it has no known extent."""
    assert access is not None
    last = []
    for start, step, most in zip(access.starts, access.steps, access.most, strict=True):
        if step is None or most is None:
            return None
        last.append(start.const + (most - 1) * step)
    return _Box(tuple([frozenset(s.terms.items()) for s in access.starts]), tuple([s.const for s in access.starts]), tuple(last))
