"""The accesses of one memory by window, with a spatial index: overlapping windows are found without a scan."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import chain, product
from math import prod

from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Generic, Protocol, TypeVar
from ptir_tools.dialects.pto.memory.windows import Access, covers, overlap


class Placed(Protocol):
    """An access with its number in its pipe."""

    @property
    def place(self) -> int: ...


T = TypeVar("T", bound=Placed)
Cell = tuple[int, ...]
Grid = tuple[tuple[frozenset[object], ...], Cell]


@dataclass(slots=True, eq=False)
class Window(Generic[T]):
    """A window of one memory: the windows that may overlap it, those that it covers, and its accesses."""

    access: Access
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
    """The windows of one memory. Two windows are compared once, whatever the number of accesses.

    Windows whose starts have the same symbolic part and that are of similar size are in one grid, each in the cell of its first
    element. A cell is at least as large as the windows, so an overlapping one is in the same or an adjacent cell.
    """

    known: dict[Hashable, Window[T]] = field(default_factory=dict)
    grids: dict[Grid, dict[Cell, list[Window[T]]]] = field(default_factory=dict)
    loose: list[Window[T]] = field(default_factory=list)  # those of unknown extent
    last: dict[int, int] = field(default_factory=dict)  # per pipe, the place of its last access

    def add(self, window: Window[T], pipe: int, writes: bool, x: T) -> None:
        """Add an access of a window, the latest of its pipe so far."""
        window.touches.setdefault((pipe, writes), []).append(x)
        self.last[pipe] = x.place

    def of(self, access: Access) -> Window[T]:
        """The window that an access touches."""
        symbols = tuple([frozenset(s.terms.items()) if s.terms else frozenset() for s in access.starts])
        first = tuple([s.const for s in access.starts])
        key = symbols, first, access.steps, access.least, access.most
        if (found := self.known.get(key)) is None:
            self.known[key] = found = Window(access)
            for other in list(self.near(found, symbols, first)):
                if overlap(access, other.access) is not None:
                    found.meets.append(other)
                    if other is not found:
                        other.meets.append(found)
                if covers(access, other.access):
                    found.covers.append(other)
                if other is not found and covers(other.access, access):
                    other.covers.append(found)
        return found

    def near(self, window: Window[T], symbols: tuple[frozenset[object], ...], first: Cell) -> Iterable[Window[T]]:
        """The windows that may overlap a new one, and itself. Some of them do not."""
        spans = [
            None if step is None or most is None else (most - 1) * step
            for step, most in zip(window.access.steps, window.access.most, strict=True)
        ]
        known = [n for n in spans if n is not None]
        if len(known) < len(spans):
            self.loose.append(window)
            return self.known.values()
        sizes = tuple([1 << n.bit_length() for n in known])
        cell = tuple([a // n for a, n in zip(first, sizes, strict=True)])
        self.grids.setdefault((symbols, sizes), {}).setdefault(cell, []).append(window)
        return chain(self.loose, chain.from_iterable(self._cells(symbols, first, known)))

    def _cells(self, symbols: tuple[frozenset[object], ...], first: Cell, spans: list[int]) -> Iterator[list[Window[T]]]:
        for (others, sizes), cells in self.grids.items():
            ranges = [range(a // n - 1, (a + span) // n + 1) for a, span, n in zip(first, spans, sizes, strict=True)]
            if others != symbols or prod(map(len, ranges)) > len(cells):
                yield from cells.values()
            else:
                yield from (cells[c] for c in product(*ranges) if c in cells)
