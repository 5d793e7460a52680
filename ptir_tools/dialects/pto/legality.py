"""Checks of a function against a target: element type, layout, alignment and size of each op, in this order."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import cache

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Function, Op, Value, operand_type
from ptir_tools.core.source import Loc
from ptir_tools.core.types import POISON
from ptir_tools.core.violations import OP_NAME, Violation, operand, require, result
from ptir_tools.dialects.pto.facts import OTHER, Facts, Tiles, facts
from ptir_tools.dialects.pto.memory.info import box_of, extents, tile_bytes
from ptir_tools.dialects.pto.memory.neighbors import distance
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops.memory import is_load, touches_memory
from ptir_tools.dialects.pto.structure import tile_type, value_of
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.dialects.pto.types import MemRefType, ScalarType, TileType, type_text


def check(
    function: Function,
    target: Target,
    tiles: Tiles,
    diagnostics: Diagnostics,
    *,
    forms: bool = False,
    apart: Collection[Op] = (),
) -> None:
    """Report every op of `function` that `target` does not allow; `tiles` are its inferred tile types (`infer`). With `forms`
    also ops that the pass `pto-legalize` rewrites. The ops `apart` have been reported."""
    legal: set[tuple[object, ...]] = set()  # signatures: what only looks at types is asked once
    for op in function.ops():
        if op in apart:
            continue
        parts = (*op.operands, *op.results)
        signature = (op.defn, *[tiles.get(x, x.type) if isinstance(x, Value) else operand_type(x) for x in parts])
        try:
            if (f := facts(op)) is not OTHER:
                if signature not in legal:
                    _element_types(op, f, target)
                    if f.vector:
                        _vector(op, tiles)
                    _out_of_acc(op, f, tiles, target)
                if f.legal is not None:
                    f.legal(op, tiles, target)
                if forms:
                    check_form(op, tiles, target)
            if signature not in legal:
                for i, v in enumerate(op.results):
                    if v in tiles:
                        _check_result(i, tiles[v], target)
                legal.add(signature)
        except Violation as violation:
            violation.labels += tuple(_reasons(function, op, tiles)) if violation.code == "InvalidLocation" else ()
            diagnostics.violation(violation, op.loc, op)


def _check_result(number: int, t: TileType, target: Target) -> None:
    try:
        check_tile(t, target)
    except Violation as violation:
        violation.at = result(number)
        raise


def _reasons(function: Function, op: Op, tiles: Tiles) -> Iterator[tuple[Loc, str]]:
    """Why the tiles of `op` are where they are: the op that computes an operand, and the first that reads a result whose place
    the text leaves out."""
    for x in op.operands:
        if isinstance(x, Value) and x in tiles and x.op is not None:
            yield x.op.loc, f"`{x.op.defn.short}` puts %{x.name} in {tiles[x].loc}"
    for v in op.results:
        if v in tiles and isinstance(v.type, TileType) and v.type.loc is None:
            reader = next((o for o in function.ops() if v in o.operands), None)
            if reader is not None:
                yield reader.loc, f"`{reader.defn.short}` reads %{v.name} in {tiles[v].loc}"


# Element types


def check_elements(function: Function, target: Target, diagnostics: Diagnostics) -> None:
    """Report every op of `function` whose element types `target` does not have, except ops with errors."""
    for op in function.ops():
        if not op.results or any(operand_type(x) is POISON for x in (*op.operands, *op.results)) or (f := facts(op)) is OTHER:
            continue
        try:
            _element_types(op, f, target)
        except Violation as violation:
            diagnostics.violation(violation, op.loc, op)


def _element_types(op: Op, f: Facts, target: Target) -> None:
    if f.elements is None:
        return
    name, allowed = op.defn.short.removeprefix("tile."), f.elements[target.name]
    for t in _judged(op, f):
        if (spelled := DTYPE_TEXT[t.dtype]) in allowed:
            continue
        message = f"{name} has no {spelled} on {target.name} (it has {', '.join(sorted(allowed))})"
        wider = "f32" if spelled in ("bf16", "f16") else "i32"
        hint = f"convert to {wider} with pto.tile.cvt before" if wider in allowed else "no conversion helps here"
        raise Violation("IllegalOnTarget", message, help=hint, at=OP_NAME)


def _judged(op: Op, f: Facts) -> list[TileType]:
    """The tiles whose element types are declared: the first operand that is not a mask, and of a conversion also the result."""
    types = [t for x in op.operands if isinstance(t := operand_type(x), TileType)][f.masked :][:1]
    results = [v.type for v in op.results if isinstance(v.type, TileType)]
    return types + results if f.converts else types or results


# Locations and layouts


def _vector(op: Op, tiles: Tiles) -> None:
    """Check a vector op: every tile is in Vec and row-major; columns may be DN, if all tiles are."""
    name = op.defn.short.removeprefix("tile.")
    parts = (*op.operands, *op.results)
    types = [tiles[v] for v in parts if isinstance(v, Value) and v in tiles]
    places = [operand(i) if i < len(op.operands) else result(i - len(op.operands)) for i, v in enumerate(parts) if v in tiles]
    for t, at in zip(types, places, strict=True):
        require(t.loc == "Vec", "InvalidLocation", f"{name} works in Vec, {type_text(t)} is in {t.loc}", at=at)
    for t, at in zip(types, places, strict=True):
        good = t.layout == "ND" or extents(t)[1] == 1
        require(good, "InvalidLayout", f"{name} needs row-major tiles, {type_text(t)} is {t.layout}", at=at)


def _out_of_acc(op: Op, f: Facts, tiles: Tiles, target: Target) -> None:
    """Check the elements that those of a tile of Acc become."""
    parts = [tiles[x] for x in op.operands if isinstance(x, Value) and x in tiles]
    to = operand_type(op.operands[f.memory]) if f.memory is not None else tiles.get(op.results[0]) if op.results else None
    moved = isinstance(to, TileType) and to.loc in target.from_acc and not f.renames
    if not parts or parts[0].loc != "Acc" or not (moved or isinstance(to, MemRefType)):
        return
    assert isinstance(to, (TileType, MemRefType))
    scaled = any(t.loc == "Scale" for t in parts)
    kind = f"{'move' if f.memory is None else 'store'}{' by factors' * scaled}"
    source, spelled = DTYPE_TEXT[parts[0].dtype], DTYPE_TEXT[to.dtype]
    known = target.acc[kind][source].split()
    message = f"a {kind} from Acc on {target.name} makes {' or '.join(known) or 'nothing'} of {source}, not {spelled}"
    hint = "" if scaled else "`mov.fp`, `insert.fp` and `store.fp` take factors"
    require(spelled in known, "IllegalOnTarget", message, help=hint)


# Forms: what `pto-legalize` rewrites, and moves from Acc


def on_columns(op: Op, tiles: Tiles) -> bool:
    """Whether an elementwise op is on columns: tiles of one column and several rows."""
    if not (op.defn.is_elementwise or facts(op).turns) or not facts(op).vector:
        return False
    types = [tiles[v] for v in (*op.operands, *op.results) if isinstance(v, Value) and v in tiles]
    return bool(types) and all(t.layout == "DN" and extents(t)[1] == 1 and t.rank == 2 for t in types)


def scalar_first(op: Op) -> bool:
    """Whether an op of a tile and a scalar has the scalar first, and the library has no such form."""
    if not op.defn.is_elementwise or facts(op).scalar_first or len(op.operands) < 2:
        return False
    return isinstance(operand_type(op.operands[0]), ScalarType) and isinstance(operand_type(op.operands[1]), TileType)


def compares(op: Op, target: Target) -> bool:
    """Whether the target has the mode of a comparison for its elements; True for other ops."""
    if "cmpMode" not in op.defn.attr_index:
        return True
    t = tile_type(op.operands[0])
    return op.attr("cmpMode") in target.compares.get(DTYPE_TEXT[t.dtype], (op.attr("cmpMode"),))


def converts(op: Op, target: Target) -> bool:
    """Whether the target has a conversion of these elements; True for other ops."""
    if not facts(op).converts:
        return True
    return DTYPE_TEXT[op.attr("to").dtype] in target.conversions.get(DTYPE_TEXT[tile_type(op.operands[0]).dtype], "").split()


def moved(op: Op, tiles: Tiles) -> TileType | None:
    """The tile that a load or store moves; None for other ops."""
    if not touches_memory(op):
        return None
    return tiles.get(value_of(op.results[0] if is_load(op) else op.operands[0]))


def check_neighbors(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that elements that are next to each other in a tile are so in memory: the chip has no stride for them."""
    if (t := moved(op, tiles)) is None or (apart := distance(op, t)) == 1:
        return
    shown = apart if isinstance(apart, int) else "some number of elements"
    message = f"neighbors in the tile are {shown} apart in memory, and {target.name} has no stride for them"
    copy = "copy them before, so that they are neighbors; a load to Vec and a store from Vec need no copy"
    raise Violation("IllegalOnTarget", message, help=_LEGALIZE if t.loc == "Vec" and t.dtype.bits < 64 else copy)


def check_form(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that the library has this form of `op`."""
    name = op.defn.short.removeprefix("tile.")
    check_neighbors(op, tiles, target)
    source, to = op.operands[0] if op.operands else None, tiles.get(op.results[0]) if op.results else None
    if isinstance(source, Value) and source in tiles and tiles[source].loc == "Acc" and to and not facts(op).renames:
        fits = to.loc in ("Acc", *target.from_acc)
        message = f"{name} on {target.name} moves from Acc to {' or '.join(target.from_acc)}, not to {to.loc}"
        require(fits, "InvalidLocation", message, help="store it, wait for the store, and load it")
    if on_columns(op, tiles):
        message = f"{name} needs row-major tiles on {target.name}, and this one is on columns"
        raise Violation("InvalidLayout", message, help=_LEGALIZE)
    if scalar_first(op):
        raise Violation("IllegalOnTarget", f"{name} on {target.name} has the scalar last", help=_LEGALIZE)
    if not compares(op, target):
        t = tile_type(op.operands[0])
        modes = ", ".join(target.compares[DTYPE_TEXT[t.dtype]])
        message = f"{name} of {DTYPE_TEXT[t.dtype]} on {target.name} has only {modes}, not {op.attr('cmpMode')}"
        raise Violation("IllegalOnTarget", message, help=_LEGALIZE)
    if not converts(op, target):
        own, wanted = (DTYPE_TEXT[t.dtype] for t in (tile_type(op.operands[0]), op.attr("to")))
        made = target.conversions.get(own, "").replace(" ", ", ") or "nothing"
        message = f"{name} on {target.name} makes {made} of {own}, not {wanted}"
        raise Violation("IllegalOnTarget", message, help=_LEGALIZE)


_LEGALIZE = "rewrite it with `ptir opt -p pto-legalize`"


# One tile


@cache
def check_tile(t: TileType, target: Target) -> None:
    """Check one tile: static, of a layout of its location, aligned, not larger than its space."""
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
