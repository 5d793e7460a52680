"""What single ops ask of sizes, offsets and layouts on every target, one function per op."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.ir import Op, Value, operand_type
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.memory.info import box_of, extents, tile_bytes
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.dialects.pto.types import MemRefType, TileType, type_text

Tiles = dict[Value, TileType]

LOAD_ROWS = 4095  # of a tile in Vec, on a3
STORE_COLUMNS = 4095  # of a tile in Acc
STORE_ROWS = 8192
SORT_BLOCK = 64  # elements that a block length of mrgsort is a multiple of
SORT_REPEATS = 255
_STORED_FROM_ACC = ("i32", "f32", "f16", "bf16")
# Layouts of a memref, and those that a load makes of them in Vec and in Mat.
_LOADED = {"ND": (("ND",), ("ND", "Nz")), "DN": (("DN",), ("DN", "Zn")), "Nz": (("Nz",), ("Nz",))}


def check(op: Op, tiles: Tiles, target: Target) -> None:
    """Raise Violation where `op`, whose tiles are of the types `tiles`, asks for more than `target` gives."""
    if (rule := _RULES.get(op.defn.short)) is not None:
        rule(op, tiles, target)


def _tile(x: object, tiles: Tiles) -> TileType:
    assert isinstance(x, Value)
    return tiles[x]


def _load(op: Op, tiles: Tiles, target: Target) -> None:
    t, memory = _tile(op.results[0], tiles), operand_type(op.operands[0])
    assert isinstance(memory, MemRefType)
    rows, columns = extents(t)
    few = target.name != "a3" or t.loc != "Vec" or rows <= LOAD_ROWS
    require(few, "IllegalOnTarget", f"a load to Vec has {rows} rows, at most {LOAD_ROWS} on {target.name}")
    flat = t.dtype.bits < 64 or t.layout in ("ND", "DN")
    require(flat, "InvalidLayout", f"elements of 64 bits are loaded as ND or DN, not {t.layout} ({target.name})")
    if memory.layout is None or 1 in (rows, columns):
        return
    known = _LOADED.get(memory.layout, ((), ()))[t.loc == "Mat"]
    message = f"{memory.layout} memory is loaded to {t.loc} as {' or '.join(known) or 'nothing'}, not {t.layout}"
    require(t.layout in known, "InvalidLayout", message)


def _store(op: Op, tiles: Tiles, target: Target) -> None:
    t, memory = _tile(op.operands[0], tiles), operand_type(op.operands[1])
    assert isinstance(memory, MemRefType)
    rows, columns = extents(t)
    known = ("ND", "Nz") if t.loc == "Acc" else (t.layout,)
    good = memory.layout in (None, *known) or (t.loc != "Acc" and 1 in (rows, columns))
    message = f"{t.layout} tiles of {t.loc} are stored to memory of {' or '.join(map(str, known))}, not {memory.layout}"
    require(good, "InvalidLayout", message)
    if t.loc != "Acc":
        same = memory.dtype is t.dtype
        message = f"a store from {t.loc} does not convert elements on {target.name}"
        require(same, "IllegalOnTarget", message, help="use pto.tile.cvt")
        return
    spelled = DTYPE_TEXT[memory.dtype]
    message = f"a store from Acc makes {', '.join(_STORED_FROM_ACC)}, not {spelled}"
    require(spelled in _STORED_FROM_ACC, "IllegalOnTarget", message, help="quantize with pto.tile.store.fp")
    good = columns <= STORE_COLUMNS and rows <= STORE_ROWS
    require(good, "IllegalOnTarget", f"a store from Acc has {rows} x {columns}, at most {STORE_ROWS} x {STORE_COLUMNS}")


def _extract(op: Op, tiles: Tiles, target: Target) -> None:
    """Offsets lie on the boxes of the result."""
    to = _tile(op.results[0], tiles)
    box = box_of(to, to.layout or "Zn")
    for d, (x, inner) in enumerate(zip(group(op, "indices"), box, strict=True)):
        at = constant(x)
        message = f"extract starts at {at} in dimension {d}, {to.loc} boxes are {box[0]} x {box[1]} ({target.name})"
        require(at is None or at % inner == 0, "Misaligned", message, help=f"offsets are multiples of {inner}")


def _row(granule: int) -> Callable[[Op, Tiles, Target], None]:
    """The result is one row, of a multiple of `granule` bytes."""

    def rule(op: Op, tiles: Tiles, target: Target) -> None:
        to = _tile(op.results[0], tiles)
        rows, columns = extents(to)
        require(rows == 1, "IllegalOnTarget", f"{to.loc} holds one row, {type_text(to)} has {rows} ({target.name})")
        size = columns * to.dtype.size
        message = f"a row of {size} bytes in {to.loc} is not a multiple of {granule} ({target.name})"
        require(size % granule == 0, "Misaligned", message)

    return rule


def _factors(op: Op, tiles: Tiles, target: Target) -> None:
    """A row of scales for a quantization; exponents of blocks come as matrices, in boxes."""
    if _tile(op.results[0], tiles).loc == "Scale":
        _row(128)(op, tiles, target)


def _sequence(op: Op, tiles: Tiles, target: Target) -> None:
    _, columns = extents(_tile(op.results[0], tiles))
    require(columns != 1, "IllegalOnTarget", f"ci makes more than one element on {target.name}")


def _merge(op: Op, tiles: Tiles, target: Target) -> None:
    length = op.attr("blockLen")
    if not length:
        return
    require(length % SORT_BLOCK == 0, "IllegalOnTarget", f"blockLen is {length}, a multiple of {SORT_BLOCK} on {target.name}")
    _, columns = extents(_tile(op.operands[0], tiles))
    repeats = columns // (4 * length)
    good = columns % (4 * length) == 0 and 1 <= repeats <= SORT_REPEATS
    message = f"{columns} elements are not 1 to {SORT_REPEATS} groups of four blocks of {length}"
    require(good, "IllegalOnTarget", message)


def _assign(op: Op, tiles: Tiles, target: Target) -> None:
    """The address is aligned and leaves room for the tile."""
    t, at = _tile(op.operands[0], tiles), constant(op.operands[1])
    if at is None:
        return
    loc = t.loc or "Vec"
    require(at % ALIGNMENT == 0, "Misaligned", f"address {at} is not a multiple of {ALIGNMENT} ({target.name})")
    size, capacity = tile_bytes(t), target.capacity[loc]
    if not 0 <= at <= capacity - size:
        raise Violation("CapacityExceeded", f"{size} bytes at {at} leave {loc}, which has {capacity} on {target.name}")


_RULES: dict[str, Callable[[Op, Tiles, Target], None]] = {
    "tile.load": _load,
    "tile.store": _store,
    "tile.extract": _extract,
    "tile.mov.m2b": _row(64),
    "tile.mov.m2s": _factors,
    "tile.ci": _sequence,
    "tile.mrgsort": _merge,
    "tile.assign": _assign,
}
