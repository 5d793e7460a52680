"""Memory at run time: bytes, whether they are defined, their last readers and writers, and the tiles in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.order.clocks import Clock
from ptir_tools.dialects.pto.types import TileType

Box = tuple[int, ...]
Part = Callable[[Array], Array]  # what an access touches, of an array with one entry per cell


class Marks:
    """Per cell of a memory and per pipe: the number of the last task that read it, and of the last that wrote it."""

    def __init__(self, name: str, cells: int, shape: Box = ()) -> None:
        self.name = name
        self.cells = cells
        self.shape = shape  # of a memref; empty for bytes
        self.last: dict[tuple[int, bool], Array] = {}

    def unordered(self, part: Part, clock: Clock, pipe: int, writes: bool) -> Iterator[tuple[str, int, int, str]]:
        """(kind, pipe, place, range) of the earlier accesses of other pipes that conflict and are not complete by `clock`."""
        for (other, wrote), places in self.last.items():
            if other == pipe or not (writes or wrote):
                continue
            touched = part(places)
            late = touched > clock[other]
            if late.any():
                kind = "RAW" if not writes else "WAW" if wrote else "WAR"
                for place in np.unique(touched[late]):
                    yield kind, other, int(place), self.range(part, touched == place)

    def mark(self, part: Part, pipe: int, writes: bool, place: int) -> None:
        """Record an access by the task with number `place` of `pipe`."""
        if (places := self.last.get((pipe, writes))) is None:
            places = self.last[pipe, writes] = np.zeros(self.cells, np.int32)
        part(places)[...] = place

    def range(self, part: Part, chosen: Array) -> str:
        """The `chosen` cells of a part, as text for messages."""
        if self.cells == 1:
            return self.name
        at = part(np.arange(self.cells))[chosen]
        first, last = int(at.min()), int(at.max())
        if not self.shape:
            return f"bytes {first} to {last} of {self.name}"
        corners = [[int(i) for i in np.unravel_index(k, self.shape)] for k in (first, last)]
        return f"{self.name}{corners[0]} to {corners[1]}"


class Storage:
    """Bytes: a space of the chip, or the private memory of a tile without an address (one cell)."""

    def __init__(self, name: str, size: int, *, private: bool = False) -> None:
        self.data = np.zeros(size, np.uint8)
        self.defined = np.zeros(size, np.bool_)
        self.marks = Marks(name, 1 if private else size)
        self.tiles: list[Tile] = []  # those that lie in it and were not overwritten


class Tile:
    """A tile at run time: the bytes of its static shape in a storage, whether they are defined, and the `valid` region.

    `address` is None until one is assigned. `shared`: it has the bytes of its operand, which stays valid. `lost` is the op
    that overwrote the tile, and the range.
    """

    __slots__ = ("address", "lost", "maker", "name", "nbytes", "shape", "shared", "storage", "type", "valid")

    def __init__(self, t: TileType, valid: Box, name: str = "") -> None:
        self.shape = static_shape(t)
        self.type = t
        self.valid = valid
        self.name = name
        self.nbytes = int(np.prod(self.shape)) * numpy_dtype(t.dtype).itemsize
        self.storage = Storage(f"%{name}", self.nbytes, private=True)
        self.address: int | None = None
        self.maker: Op | None = None
        self.shared = False
        self.lost: tuple[Op, str] | None = None

    @property
    def bytes(self) -> slice:
        """The range of its bytes in the storage."""
        start = self.address or 0
        return slice(start, start + self.nbytes)

    @property
    def values(self) -> Array:
        """The elements: a view."""
        made: Array = self.storage.data[self.bytes].view(numpy_dtype(self.type.dtype)).reshape(self.shape)
        return made

    @property
    def defined(self) -> Array:
        """Whether each element is defined: all its bytes are."""
        size = numpy_dtype(self.type.dtype).itemsize
        mask = self.storage.defined[self.bytes].view(f"u{size}") if size in (1, 2, 4, 8) else None
        assert mask is not None
        made: Array = (mask == int.from_bytes(b"\1" * size, "little")).reshape(self.shape)
        return made

    @property
    def box(self) -> tuple[slice, ...]:
        """The valid region as slices."""
        return box(self.valid)

    def cells(self, places: Array) -> Array:
        """Its part of the marks of its storage."""
        return places if self.storage.marks.cells == 1 else places[self.bytes]

    def fill(self, values: Array, defined: Array | bool) -> None:
        """Set the valid region. The rest of the tile becomes undefined, except where it has the bytes of another tile, too."""
        mask = self.storage.defined[self.bytes].reshape(*self.shape, -1)
        if not self.shared:
            mask[...] = False
        self.values[self.box] = values
        mask[self.box] = np.asarray(defined)[..., None]

    def overlaps(self, start: int, end: int) -> bool:
        """Whether a tile with an address overlaps these bytes."""
        own = self.address or 0
        return own < end and start < own + self.nbytes


def box(valid: Box) -> tuple[slice, ...]:
    """The elements below `valid` as slices."""
    return tuple(slice(0, v) for v in valid)


def static_shape(t: TileType) -> Box:
    """The shape as numbers. Raises Violation("UnboundSymbol") for a `?`."""
    if not all(isinstance(d, int) for d in t.shape):
        raise Violation("UnboundSymbol", "a tile with a `?` extent cannot be run", help="give every extent of the tile type")
    return tuple(d for d in t.shape if isinstance(d, int))


def window(root: Array, view: Array) -> Part:
    """The part of a memory that `view` selects, where a cell is an element and `root` the whole array."""
    start = (view.__array_interface__["data"][0] - root.__array_interface__["data"][0]) // root.itemsize
    steps = [s // root.itemsize for s in view.strides]

    def part(places: Array) -> Array:
        strides = [s * places.itemsize for s in steps]
        return np.lib.stride_tricks.as_strided(places[start:], view.shape, strides)

    return part
