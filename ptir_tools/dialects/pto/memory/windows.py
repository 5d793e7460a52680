"""Windows of memory: the elements that a load or store accesses, and whether two windows overlap."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import gcd, prod

from ptir_tools.core.ir import Function, Op, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Generic, Protocol, TypeVar
from ptir_tools.dialects.pto.affine import Linear, atom, linear, natural, number
from ptir_tools.dialects.pto.carried import Carried, carried
from ptir_tools.dialects.pto.facts import Extents
from ptir_tools.dialects.pto.memory.info import infer, tile_bytes
from ptir_tools.dialects.pto.names import LOCS
from ptir_tools.dialects.pto.ops.memory import accessed_tile, in_memory, memory_of, window
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import is_assign, is_view
from ptir_tools.dialects.pto.types import INDEX_TYPE, MemRefType, TileType

Known = Mapping[Value, Linear]
_ORIGIN = number(0)


@dataclass(slots=True)
class View:
    """A memref in a trace: a window of the memref `root`, with a start and a step per dimension."""

    root: Value
    starts: tuple[Linear, ...]
    steps: tuple[int | None, ...]


@dataclass(slots=True)
class Access:
    """The window of a load or store: a view, with its least and largest extents."""

    root: Value
    starts: tuple[Linear, ...]
    steps: tuple[int | None, ...]
    least: tuple[int, ...]
    most: tuple[int | None, ...]


def whole(root: Value) -> View:
    """A memref argument as a view of itself."""
    assert isinstance(root.type, MemRefType)
    return View(root, (_ORIGIN,) * root.type.rank, (1,) * root.type.rank)


def everything(root: Value) -> Access:
    """An unknown window of a memref argument or space."""
    n = root.type.rank if isinstance(root.type, MemRefType) else 1
    return Access(root, (_ORIGIN,) * n, (1,) * n, (1,) * n, (None,) * n)


def composed(op: Op, parent: View, known: Known) -> View:
    """The view that a subview makes of `parent`. A start that is not linear is a new unknown."""
    _, offsets, _, steps = op.defn.split(op.attrs, op.operands)
    starts, strides = [], []
    for base, scale, o, s in zip(parent.starts, parent.steps, offsets, steps, strict=True):
        step = linear(s, known)
        starts.append(_start(base, scale, linear(o, known)))
        strides.append(None if step.terms or scale is None else scale * step.const)
    return View(parent.root, tuple(starts), tuple(strides))


def _start(base: Linear, scale: int | None, offset: Linear) -> Linear:
    if scale == 1 and base is _ORIGIN:
        return offset
    return offset * scale + base if scale is not None else atom(Value(INDEX_TYPE))


def accessed(op: Op, view: View, known: Known, valid: Extents | None = None) -> Access:
    """The window of a load or store of `view`, in dimensions of its root memref. `valid` is the valid region of the tile,
    where it is known more precisely than from types."""
    tile = accessed_tile(op)
    indices = [linear(x, known) for x in group(op, "indices")]
    starts = tuple([_start(*parts) for parts in zip(view.starts, view.steps, indices, strict=True)])
    rank = len(starts)
    sizes = window(op) if valid is None else in_memory([None if e.terms else e.const for e in valid], rank, 1)
    whole = tuple([n for n in sizes if n is not None])
    if len(whole) == len(sizes):
        return Access(view.root, starts, view.steps, whole, whole)
    shape = in_memory(tile.shape, rank, 1)
    most = tuple([n if n is not None else d if isinstance(d, int) else None for n, d in zip(sizes, shape, strict=True)])
    return Access(view.root, starts, view.steps, tuple([1 if n is None else n for n in sizes]), most)


def view_of(v: Value) -> View | None:
    """The view of a memref, by the ops that make it; None when it is the result of a loop, a branch or a call."""
    if v.op is None:
        return whole(v)
    if not is_view(v.op) or not isinstance(source := v.op.operands[0], Value):
        return None
    parent = view_of(source)
    return composed(v.op, parent, {}) if parent is not None else None


def access_of(op: Op) -> Access | None:
    """The window of a load or store, or None when it is not known."""
    view = view_of(memory_of(op))
    return accessed(op, view, {}) if view is not None else None


def overlap(a: Access, b: Access) -> bool | None:
    """True when the windows certainly overlap, None when certainly not, False when it is not known."""
    certain = True
    for d in range(len(a.starts)):
        met = _dimension(a, b, d)
        if met is None:
            return None
        certain = certain and met
    return certain


def covers(a: Access, b: Access) -> bool:
    """Whether `a` certainly contains every element of `b`."""
    for d, (start, other) in enumerate(zip(a.starts, b.starts, strict=True)):
        most = b.most[d]
        if a.steps[d] != 1 or b.steps[d] != 1 or most is None or start.terms != other.terms:
            return False
        if not start.const <= other.const <= other.const + most <= start.const + a.least[d]:
            return False
    return True


def _dimension(a: Access, b: Access, d: int) -> bool | None:
    """As `overlap`, in one dimension."""
    step_a, step_b, start_a, start_b = a.steps[d], b.steps[d], a.starts[d], b.starts[d]
    most_a, most_b = a.most[d], b.most[d]
    if step_a is None or step_b is None:
        return False
    if start_a.terms != start_b.terms:
        apart = start_a - start_b
        behind = natural(apart) and most_b is not None and apart.const > (most_b - 1) * step_b
        ahead = natural(apart * -1) and most_a is not None and -apart.const > (most_a - 1) * step_a
        return None if behind or ahead else False
    low = start_a.const - start_b.const  # a starts so much after b
    beyond = most_b is not None and low > (most_b - 1) * step_b
    before = most_a is not None and low + (most_a - 1) * step_a < 0
    if beyond or before or low % gcd(step_a, step_b):
        return None
    if low == 0:
        return True
    if step_a == step_b == 1:
        return low < b.least[d] and low + a.least[d] > 0
    return any(low + i * step_a in range(0, b.least[d] * step_b, step_b) for i in range(a.least[d]))


def placed(functions: Sequence[Function]) -> dict[Value, Access]:
    """The tiles with an assigned address, also a computed one, as windows of their spaces. Carried values have the window of
    their sources."""
    made: dict[Value, Access] = {}
    for function in functions:
        bound = [*filter(is_assign, function.ops())]
        tiles = infer(function) if bound else {}
        for op in bound:
            if isinstance(tile := op.operands[0], Value):
                made[tile] = on_chip(tiles[tile], linear(op.operands[1]))
        passed = [c for op in function.ops() for c in carried(op)] if bound else []
        while sum(_goes_on(c, made) for c in passed):
            pass
    return made


def _goes_on(c: Carried, made: dict[Value, Access]) -> bool:
    """Add the windows of the names of a carried value, if they are more precise."""
    given = [c.given(*place) for place in c.sources]
    known = [made[x] for x in given if isinstance(x, Value) and x in made]
    names = [v for v in c.homes if v not in made]
    if known and names:
        fixed = [access for access in known if not access.starts[0].terms]
        made.update(dict.fromkeys(names, fixed[0] if fixed else everything(known[0].root)))
    return bool(known and names)


def on_chip(t: TileType, address: int | Linear) -> Access:
    """The bytes of a tile at an address of its space, as a window."""
    return on_chip_bytes(t.loc or "Vec", address, tile_bytes(t))


def on_chip_bytes(space: str, address: int | Linear, size: int) -> Access:
    """Bytes of a space, as a window."""
    start = number(address) if isinstance(address, int) else address
    return Access(_SPACES[space], (start,), (1,), (size,), (size,))


_SPACES = {loc: Value(INDEX_TYPE, loc) for loc in LOCS}


# Accesses by window, with a spatial index


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
