"""Whether a function is legal on a target: type, layout, alignment, size, in this order per op."""

from __future__ import annotations

from functools import cache

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Op, Value, operand_type
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.pto import constraints
from ptir_tools.dialects.pto.memory.info import PRODUCTS, box_of, extents, fixed, tile_bytes
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.targets import ALIGNMENT, MATRIX_MAX, Target
from ptir_tools.dialects.pto.types import TileType, type_text

Tiles = dict[Value, TileType]
# Ops that do not work in Vec alone.
_MOVES = (
    "tile.load",
    "tile.store",
    "tile.store.fp",
    "tile.extract",
    "tile.insert",
    "tile.reshape",
    "tile.mov",
    "tile.assign",
    "tile.prefetch",
)


def check(function: Function, target: Target, tiles: Tiles, diagnostics: Diagnostics) -> None:
    """Report every op of `function` that `target` does not allow; `tiles` are its tiles as `infer` has them."""
    legal: set[tuple[object, ...]] = set()  # signatures: what only looks at types is asked once
    for op in function.ops():
        signature = (op.defn, *[tiles.get(x, x.type) for x in op.operands], *[tiles.get(v, v.type) for v in op.results])  # type: ignore[arg-type, union-attr]
        try:
            if op.defn.short.startswith("tile."):
                if signature not in legal:
                    _element_types(op, target)
                    _locations(op, tiles, target)
                constraints.check(op, tiles, target)
            if signature not in legal:
                for v in op.results:
                    if v in tiles:
                        check_tile(tiles[v], target)
                legal.add(signature)
        except Violation as violation:
            diagnostics.violation(violation, op.loc, op)


# Element types


def _element_types(op: Op, target: Target) -> None:
    name = op.defn.short.removeprefix("tile.")
    if op.defn.short in PRODUCTS:
        return _products(op, target)
    allowed = target.dtypes.get(name)
    if allowed is None:
        return None
    for t in _computed(op):
        if (spelled := DTYPE_TEXT[t.dtype]) in allowed:
            continue
        message = f"{name} has no {spelled} on {target.name} (it has {', '.join(sorted(allowed))})"
        raise Violation("IllegalOnTarget", message, help=_elsewhere(name, spelled, target))
    return None


def _computed(op: Op) -> list[TileType]:
    """The tiles whose element type the table speaks of: the first operand's (not a mask), for a conversion the result's too."""
    types = _tiles_of(op)[op.defn.short == "tile.sel" :][:1]
    results = [v.type for v in op.results if isinstance(v.type, TileType)]
    return types + results if op.defn.short == "tile.cvt" else types or results


def _tiles_of(op: Op) -> list[TileType]:
    return [t for x in op.operands if isinstance(t := operand_type(x), TileType)]


def _elsewhere(name: str, spelled: str, target: Target) -> str:
    wider = "f32" if spelled in ("bf16", "f16") else "i32"
    return f"convert to {wider} with pto.tile.cvt before" if wider in target.dtypes.get(name, ()) else "no conversion helps here"


def _products(op: Op, target: Target) -> None:
    tiles = _tiles_of(op)
    places = fixed(op.defn.short)[0]
    a, b = (tiles[places.index(place)] for place in ("Left", "Right"))
    blocks = ".mx" in op.defn.short
    if blocks and not target.capacity.get("ScaleLeft"):
        name = op.defn.short.removeprefix("tile.")
        raise Violation("IllegalOnTarget", f"{name}: {target.name} has no products of blocks that share an exponent")
    pair = (DTYPE_TEXT[a.dtype], DTYPE_TEXT[b.dtype])
    known = ", ".join(sorted(f"{x} x {y}" for x, y in target.products))
    require(pair in target.products, "IllegalOnTarget", f"{target.name} multiplies {known}; not {pair[0]} x {pair[1]}")
    for name, extent in (("m", a.shape[0]), ("k", a.shape[1]), ("n", b.shape[1])):
        small = not isinstance(extent, int) or extent <= MATRIX_MAX
        require(small, "IllegalOnTarget", f"{name} is {extent}, at most {MATRIX_MAX} on {target.name}")


# Locations and layouts


def _locations(op: Op, tiles: Tiles, target: Target) -> None:
    short = op.defn.short
    operands = [tiles[x] for x in op.operands if isinstance(x, Value) and x in tiles]
    results = [tiles[v] for v in op.results if v in tiles]
    if short in PRODUCTS:
        for i, (t, place) in enumerate(zip(operands, fixed(short)[0], strict=True)):
            require(t.loc == place, "InvalidLocation", f"operand {i} must be loc={place}, is {t.loc}", at=operand(i))
        return
    if short == "tile.load":
        loc = results[0].loc
        require(loc in ("Vec", "Mat"), "InvalidLocation", f"a load on {target.name} goes to Vec or Mat, not {loc}")
    elif short == "tile.store":
        loc, known = operands[0].loc, " or ".join(target.stores)
        require(loc in target.stores, "InvalidLocation", f"a store on {target.name} takes a tile of {known}, not {loc}")
    elif not short.startswith(_MOVES):
        _vector(short, operands + results)


def _vector(short: str, tiles: list[TileType]) -> None:
    """A vector op: everything in Vec, row-major; columns may be DN, if nothing else is there."""
    for t in tiles:
        if t.loc != "Vec":
            name = short.removeprefix("tile.")
            raise Violation("InvalidLocation", f"{name} works in Vec, {type_text(t)} is in {t.loc}")
    for t in tiles:
        if t.layout != "ND" and extents(t)[1] != 1:
            message = f"{short.removeprefix('tile.')} needs row-major tiles, {type_text(t)} is {t.layout}"
            raise Violation("InvalidLayout", message)


# One tile


@cache
def check_tile(t: TileType, target: Target) -> None:
    """A tile by itself: static, of a layout its location has, aligned, not larger than its space."""
    loc, layout = t.loc or "Vec", t.layout or "ND"
    require(all(isinstance(d, int) for d in t.shape), "IllegalOnTarget", f"{type_text(t)} needs static extents on {target.name}")
    require(bool(target.capacity[loc]), "InvalidLocation", f"{target.name} has no {loc}")
    known = target.layouts[loc]
    require(layout in known, "InvalidLayout", f"{loc} holds {' or '.join(known)} on {target.name}, not {layout}")
    _alignment(t, layout, target)
    size, capacity = tile_bytes(t), target.capacity[loc]
    message = f"{type_text(t)} has {size} bytes, {loc} on {target.name} has {capacity}"
    require(size <= capacity, "CapacityExceeded", message, help="split it into smaller tiles")


def _alignment(t: TileType, layout: str, target: Target) -> None:
    rows, columns = extents(t)
    size = t.dtype.size
    if layout in ("ND", "DN"):
        what, count = ("row", columns) if layout == "ND" else ("column", rows)
        one = f"{'an' if layout == 'ND' else 'a'} {layout} {what}"
        message = f"{one} of {count} * {size} = {count * size} bytes is not a multiple of {ALIGNMENT} ({target.name})"
        near = -(-count * size // ALIGNMENT) * ALIGNMENT // size
        hint = f"widen it to {near} elements and give valid"
        require(count * size % ALIGNMENT == 0, "Misaligned", message, help=hint)
        return
    inner_rows, inner_columns = box_of(t, layout)
    exempt = rows == 1 or t.loc in ("Vec", "ScaleLeft", "ScaleRight")
    good = columns % inner_columns == 0 and (exempt or rows % inner_rows == 0)
    message = f"{layout} boxes are {inner_rows} x {inner_columns}, the tile is {rows} x {columns} ({target.name})"
    require(good, "Misaligned", message, help="extend the tile to whole boxes and give valid")
