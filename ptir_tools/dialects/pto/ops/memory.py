"""Memory ops: views, loads, stores, assignment of addresses (PTO IR 4.2, 4.3)."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import ASKS_NOTHING, Many, always, op
from ptir_tools.core.dtypes import F32, SI32, UI64
from ptir_tools.core.evaluate import Context
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import ASYNC, PURE, READS, WRITES, Op, Operand, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import UNKNOWN, Dim, Shape, Type, same_extents
from ptir_tools.core.violations import Place, Violation, group, operand, require, result
from ptir_tools.dialects.pto import elements, needs, rules
from ptir_tools.dialects.pto.affine import constant, linear
from ptir_tools.dialects.pto.facts import Facts, Form, Numbers, Tiles, facts, tile_at
from ptir_tools.dialects.pto.memory.info import extents, tile_bytes
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.run.machine import Results, Tile, box, issue, machine, made_region, static_shape, taken_region
from ptir_tools.dialects.pto.structure import tile_type, value_of
from ptir_tools.dialects.pto.targets import ALIGNMENT, Target
from ptir_tools.dialects.pto.types import EventType, MemRefType, TileType, memref, type_text
from ptir_tools.dialects.pto.valid import of_shape, static_of, valid_of, whole

T = TypeVar("T")

# Views


def strides_of(t: MemRefType) -> Shape:
    """The strides of a memref; row-major where it gives none."""
    if t.strides is not None:
        return t.strides
    made: list[Dim] = []
    step: Dim = 1
    for d in reversed(t.shape):
        made.append(step)
        step = step * d if isinstance(step, int) and isinstance(d, int) else UNKNOWN
    return tuple(reversed(made))


def subview_type(
    source: Type, offsets: tuple[Type, ...], sizes: tuple[Type, ...], steps: tuple[Type, ...], *, to: MemRefType
) -> Type:
    """Three lists of the source's rank; a result of that rank and the source's elements."""
    parent = rules.need_memref("operand 0", source)
    for what, types in (("offsets", offsets), ("sizes", sizes), ("strides", steps)):
        rules.need_indices(what, types, parent.rank)
    require(
        to.rank == parent.rank, "RankMismatch", f"the view is {type_text(to)}, the memref has rank {parent.rank}", at=result()
    )
    require(to.dtype is parent.dtype, "TypeMismatch", f"the view is {type_text(to)} of {type_text(parent)}", at=result())
    return to


def check_view(op: Op) -> None:
    """Check the bounds and the declared strides and offset, where they are known."""
    source, *parts = op.defn.split(op.attrs, op.operands)
    parent, to = source.type, op.attr("to")
    offsets, sizes, steps = ([constant(x) for x in part] for part in parts)
    for d, (offset, size, step, extent) in enumerate(zip(offsets, sizes, steps, parent.shape, strict=True)):
        numbers = [1 + d + k * len(offsets) for k in range(3)]
        check_window(d, offset, size, step, extent, "subview", [operand(n) for n in numbers])
        agrees = size is None or to.shape[d] in (size, UNKNOWN)
        require(
            agrees,
            "ShapeMismatch",
            f"size {size} in dimension {d}, the view is {type_text(to)}",
            at=operand(1 + len(offsets) + d),
        )
    inferred = view_type(parent, to.shape, offsets, steps)
    if to.strides is not None and not memref(to.dtype, to.shape, None, None, to.strides, to.offset).accepts(inferred):
        message = f"the view has {type_text(inferred)}, declared {type_text(to)}"
        raise Violation(
            "ShapeMismatch", message, help="strides are the memref's times the steps; an offset that varies is `?`", at=result()
        )


def check_window(
    d: int,
    offset: int | None,
    size: int | None,
    step: int | None,
    extent: Dim,
    what: str,
    places: Sequence[Place | None] = (None, None, None),
    of: str = "memref",
) -> None:
    """Check 0 <= offset and offset + (size - 1) * step < extent, where they are known. `places` are those of offset, size,
    step."""
    at_offset, at_size, at_step = places
    for given, least, says, at in (
        (size, 1, "has size", at_size),
        (step, 1, "has stride", at_step),
        (offset, 0, "starts at", at_offset),
    ):
        if given is not None and given < least:
            raise Violation("OutOfBounds", f"{what} {says} {given} in dimension {d}", at=at)
    if size is None or not isinstance(extent, int):
        return
    start, step = offset or 0, step or 1
    last = start + (size - 1) * step
    if last < extent:
        return
    steps = f" * {step}" if step != 1 else ""
    shown = f"{start} + {size}{steps} > {extent}" if step == 1 else f"{start} + {size - 1}{steps} >= {extent}"
    blamed = at_offset if at_size is None or (offset is not None and offset >= extent) else at_size
    raise Violation("OutOfBounds", f"{what} leaves the {of}: {shown} in dimension {d}", at=blamed)


def view_type(parent: MemRefType, shape: Shape, offsets: Sequence[int | None], steps: Sequence[int | None]) -> MemRefType:
    """The type of a view with every known part stated."""
    base = strides_of(parent)
    strides = tuple(_times(s, k) for s, k in zip(base, steps, strict=True))
    offset: Dim = parent.offset if parent.offset is not None else 0
    for o, s in zip(offsets, base, strict=True):
        part = 0 if o == 0 else _times(s, o)
        offset = offset + part if isinstance(offset, int) and isinstance(part, int) else UNKNOWN
    return memref(parent.dtype, shape, None, None, strides, offset)


def _times(a: Dim, b: int | None) -> Dim:
    return a * b if isinstance(a, int) and b is not None else UNKNOWN


@op("pto.memref.subview", infer=subview_type, traits=PURE, check=check_view, asks=needs.VIEW)
def subview(source: Array, offsets: Many, sizes: Many, steps: Many, *, to: MemRefType) -> Array:
    """A strided window of a memref: `%v = pto.memref.subview %m[%i, %j] [32, 32] [1, 1] : M to V`. PTO IR 4.2."""
    windows = []
    for d, (offset, size, step) in enumerate(zip(offsets, sizes, steps, strict=True)):
        start, count, stride = int(offset), int(size), int(step)
        check_window(d, start, count, stride, source.shape[d], "subview", [group(g, d) for g in ("offsets", "sizes", "steps")])
        windows.append(slice(start, start + (count - 1) * stride + 1, stride))
    made: Array = source[tuple(windows)]
    require(
        same_extents(to.shape, made.shape), "ShapeMismatch", f"the view has shape {list(made.shape)}, declared {type_text(to)}"
    )
    return made


# Loads and stores


def load_types(source: Type, indices: tuple[Type, ...], *, to: TileType) -> None:
    """An index per dimension, and a tile of the memref's elements. A tile of a lower rank has the last dimensions, one of a
    higher rank a last dimension of one valid element."""
    parent = rules.need_memref("operand 0", source)
    rules.need_indices("indices", indices, parent.rank)
    tile = rules.need_tile("the result", to)
    message = f"the tile is {type_text(to)}, the memref has rank {parent.rank}"
    require(tile.rank <= parent.rank + 1, "RankMismatch", message, at=result())
    require(
        tile.dtype is parent.dtype, "TypeMismatch", f"the tile is {type_text(to)}, the memref {type_text(parent)}", at=result()
    )


def store_types(tile: Type, target: Type, indices: tuple[Type, ...], *, atomic: str, relu: bool) -> None:
    """An index per dimension, and a tile of at most the memref's rank. `check_store` checks the elements."""
    source, parent = rules.need_tile("operand 0", tile), rules.need_memref("operand 1", target)
    rules.need_indices("indices", indices, parent.rank)
    message = f"the tile is {type_text(source)}, the memref has rank {parent.rank}"
    require(source.rank <= parent.rank + 1, "RankMismatch", message, at=operand(0))
    rules.one_of("atomic", atomic, _ATOMICS)


def check_store(op: Op) -> None:
    """As `check_access`, and the elements are the memref's, unless the tile is, or may be, in Acc."""
    check_access(op)
    t, parent = operand_type(op.operands[0]), operand_type(op.operands[1])
    assert isinstance(t, TileType) and isinstance(parent, MemRefType)
    good = t.dtype is parent.dtype or t.loc == "Acc" or (t.loc is None and _may_accumulate(op.operands[0]))
    hint = "only a store from Acc converts; use pto.tile.cvt"
    require(good, "TypeMismatch", f"the tile is {type_text(t)}, the memref {type_text(parent)}", help=hint, at=operand(0))


def _may_accumulate(tile: Operand) -> bool:
    """Whether a tile without a stated location may be in Acc: it comes from outside, through control flow, or from a product."""
    made = tile.op if isinstance(tile, Value) else None
    known = isinstance(t := operand_type(tile), TileType) and t.dtype in (F32, SI32)
    return known and (made is None or ASYNC not in made.defn.traits or "Acc" in (facts(made).gives or ()))


_ATOMICS: dict[str, Callable[[Array, Array], Array]] = {
    "AtomicNone": lambda old, new: new,
    "AtomicAdd": lambda old, new: n.apply(lambda a, b: a + b, n.dtype_of(old), old, new),
    "AtomicMax": lambda old, new: n.apply(MAXIMUM, n.dtype_of(old), old, new),
    "AtomicMin": lambda old, new: n.apply(MINIMUM, n.dtype_of(old), old, new),
}


def touches_memory(op: Op) -> bool:
    """Whether an op loads or stores."""
    return facts(op).memory is not None


def is_load(op: Op) -> bool:
    """Whether an op makes a tile from memory."""
    return facts(op).memory is not None and READS in op.defn.traits


def memory_of(op: Op) -> Value:
    """The memref that a load or store accesses."""
    at = facts(op).memory
    assert at is not None
    return value_of(op.operands[at])


def _memref(op: Op) -> MemRefType:
    t = memory_of(op).type
    assert isinstance(t, MemRefType)
    return t


def check_access(op: Op) -> None:
    """Check that the window of a load or store is in the memref, where it is known."""
    rules.check_tile_op(op)
    shape, tile = _memref(op).shape, accessed_tile(op)
    if tile.rank > len(shape):
        valid: list[Dim | None] = [*map(constant, rules.group(op, "valid"))] or [*(tile.valid or tile.shape)]
        message = f"the memref has rank {len(shape)}, so one element is valid in each row of {type_text(tile)}"
        require(valid[-1] == 1, "RankMismatch", message, help="state `valid`")
    if not rules.group(op, "valid") and _holds_all(op, shape):
        return
    for d, (x, size, extent) in enumerate(zip(rules.group(op, "indices"), window(op), shape, strict=True)):
        start = constant(x)
        if start is None or size is None or not isinstance(extent, int) or start < 0 or start + size > extent:
            check_window(d, start, size, 1, extent, op.defn.short.removeprefix("tile."), index_place(d))


def index_place(d: int) -> tuple[Place, None, None]:
    """The place of the start of an access in dimension `d`; its size is that of a type."""
    return group("indices", d), None, None


def _holds_all(op: Op, shape: Shape) -> bool:
    """Whether the memref contains the whole tile of an access at its start, whatever is valid."""
    tile = accessed_tile(op).shape
    for x, size, extent in zip(rules.group(op, "indices"), in_memory(tile, len(shape), 1), shape, strict=True):
        start = constant(x)
        if not isinstance(size, int) or not isinstance(extent, int) or not 0 <= (start or 0) <= extent - size:
            return False
    return True


def window(op: Op) -> list[int | None]:
    """The static extents that a load or store accesses; 1 in dimensions that the tile lacks.

    Without `valid` a store touches what is valid in its tile, of which only the tile's type is known here.
    """
    rank, tile = _memref(op).rank, accessed_tile(op)
    if valid := rules.group(op, "valid"):
        return in_memory(list(map(constant, valid)), rank, 1)
    known = tile.valid if tile.valid is not None else tile.shape if is_load(op) else static_valid(op.operands[0])
    return in_memory([d if d.__class__ is int else None for d in known], rank, 1)


def in_memory(extents: Sequence[T], rank: int, one: T) -> list[T]:
    """The extents of a tile in the dimensions of memory of this rank: it has one element of each dimension that the tile lacks,
    and none that it has not."""
    return [*[one] * (rank - len(extents)), *extents[:rank]]


def accessed_tile(op: Op) -> TileType:
    """The type of the tile that a load makes or a store reads."""
    t = op.results[0].type if is_load(op) else operand_type(op.operands[0])
    assert isinstance(t, TileType)
    return t


def static_valid(x: Operand, seen: dict[Operand, Shape] | None = None, depth: int = 64, value: Numbers = linear) -> Shape:
    """The valid region of a tile operand, from the op that makes it; UNKNOWN where it depends on the run. `seen` are the known
    ones, `value` gives the expression of an index."""
    t = tile_type(x)
    if t.valid is not None:
        return t.valid
    seen = {} if seen is None else seen
    if (found := seen.get(x)) is None:
        seen[x] = found = _made_valid(t, x.op if isinstance(x, Value) else None, seen, depth, value)
    return found


def _made_valid(t: TileType, made: Op | None, seen: dict[Operand, Shape], depth: int, value: Numbers) -> Shape:
    if made is None or not depth or not made.defn.short.startswith("tile."):
        return (UNKNOWN,) * t.rank
    tiles = [static_valid(y, seen, depth - 1, value) for y in made.operands if operand_type(y).__class__ is TileType]
    if (plain := static_of(made, tiles)) is not None:
        return plain
    found = valid_of(made, [of_shape(x) for x in tiles], value)
    return tuple([UNKNOWN if e.terms else e.const for e in found])


def slices(target: Array, indices: Many, extents: Sequence[int], what: str) -> tuple[slice, ...]:
    """The window of a memref that an access touches. Raises Violation("OutOfBounds"); nothing is clipped."""
    starts = [int(i) for i in indices]
    extents = in_memory(extents, len(starts), 1)
    for d, (start, size) in enumerate(zip(starts, extents, strict=True)):
        check_window(d, start, size, 1, target.shape[d], what, index_place(d))
    return tuple(slice(start, start + size) for start, size in zip(starts, extents, strict=True))


LOAD_ROWS = 4095  # of a tile in Vec, on a3
# Layouts of a memref, and those that a load makes of them in Vec and in Mat.
_LOADED = {"ND": (("ND",), ("ND", "Nz")), "DN": (("DN",), ("DN", "Zn")), "Nz": (("Nz",), ("Nz",))}


def check_load_target(op: Op, tiles: Tiles, target: Target) -> None:
    """Check the location, rows and layouts of a load against the target."""
    t, memory = tiles[op.results[0]], operand_type(op.operands[0])
    assert isinstance(memory, MemRefType)
    if t.loc not in ("Vec", "Mat"):
        message = f"a load on {target.name} goes to Vec or Mat, not {t.loc}"
        raise Violation("InvalidLocation", message, at=result(), help=f"load it to Mat, and move it to {t.loc} with pto.tile.mov")
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


@kit.tile_op(
    "load",
    load_types,
    "to",
    traits=READS,
    check=check_access,
    asks=needs.WINDOW,
    fails=needs.window_fails,
    facts=Facts(
        pipe="MTE2",
        gives=None,
        memory=0,
        vector=False,
        elements=elements.MEMORY,
        legal=check_load_target,
        valid=whole,
        form=Form(family="load"),
    ),
)
def load(
    source: Array, indices: Many, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context
) -> Results:
    """A window of memory as a tile; elements outside `valid` stay undefined. A tile of one more dimension than the memory has
    one valid element in each row: elements that are apart in memory.

    `%t = pto.tile.load %m[%i, %j] {valid = [%r, 32]} : M, T`. PTO IR 4.3.
    """
    made = Tile(to, made_region(context, to))
    region = slices(source, indices, made.valid, "load")
    seen = source[region]
    return issue(context, wait, event, lambda: made.fill(seen.reshape(made.valid), True), made, memory=(seen, False))


STORE_COLUMNS = 4095  # of a tile in Acc
STORE_ROWS = 8192


def check_store_target(op: Op, tiles: Tiles, target: Target) -> None:
    """Check the location, layouts and elements of a store against the target, and the columns of one from Acc."""
    t, memory = tile_at(op, tiles, 0), operand_type(op.operands[1])
    assert isinstance(memory, MemRefType)
    sources = " or ".join(target.stores)
    require(t.loc in target.stores, "InvalidLocation", f"a store on {target.name} takes a tile of {sources}, not {t.loc}")
    rows, columns = extents(t)
    known = ("ND", "Nz") if t.loc == "Acc" else (t.layout,)
    good = memory.layout in (None, *known) or (t.loc != "Acc" and 1 in (rows, columns))
    message = f"{t.layout} tiles of {t.loc} are stored to memory of {' or '.join(map(str, known))}, not {memory.layout}"
    require(good, "InvalidLayout", message)
    if (atomic := op.attr("atomic")) != "AtomicNone":
        message = f"a store on {target.name} replaces memory or adds to it (AtomicAdd), it has no {atomic}"
        require(atomic == "AtomicAdd", "IllegalOnTarget", message)
        spelled, added = DTYPE_TEXT[memory.dtype], elements.ADDED[target.name]
        message = f"a store on {target.name} adds to memory of {', '.join(sorted(added))}, not {spelled}"
        require(spelled in added, "IllegalOnTarget", message)
    if t.loc != "Acc":
        message = f"a store on {target.name} takes the positive part of tiles of Acc only, not of {t.loc}"
        require(not op.attr("relu"), "IllegalOnTarget", message, help="use pto.tile.relu")
        same = memory.dtype is t.dtype
        message = f"a store from {t.loc} does not convert elements on {target.name}"
        require(same, "IllegalOnTarget", message, help="use pto.tile.cvt")
        return
    good = columns <= STORE_COLUMNS and rows <= STORE_ROWS
    require(good, "IllegalOnTarget", f"a store from Acc has {rows} x {columns}, at most {STORE_ROWS} x {STORE_COLUMNS}")


@kit.tile_op(
    "store",
    store_types,
    traits=WRITES,
    check=check_store,
    generate=lambda choices, *_: {"atomic": choices.one(tuple(_ATOMICS))},
    asks=needs.WINDOW,
    facts=Facts(
        pipe="MTE3",
        opcodes=("TSTORE",),
        form=Form(family="store", name="TSTORE"),
        stores={"Vec": ("TSTORE_VEC", "MTE3"), "Acc": ("TSTORE_ACC", "FIX"), "Mat": ("TSTORE_MAT", "MTE3")},
        memory=1,
        vector=False,
        elements=elements.MEMORY,
        legal=check_store_target,
    ),
)
def store(
    tile: Tile,
    target: Array,
    indices: Many,
    valid: Many,
    wait: Many,
    *,
    event: EventType | None = None,
    atomic: str = "AtomicNone",
    relu: bool = False,
    context: Context,
) -> Results:
    """The valid region of a tile into memory; the rest of the memory is unchanged. From Acc, elements are converted.

    `pto.tile.store %t, %m[%i, %j] : M, T`. PTO IR 4.3.
    """
    extents = taken_region(context, tile)
    region = slices(target, indices, extents, "store")

    def action() -> None:
        values = machine(context).settle(tile, box(extents), "store")
        values = n.relu(values) if relu else values
        values = n.to_array(values, tile.type.dtype, target).reshape(target[region].shape)
        target[region] = _ATOMICS[atomic](target[region], values)

    return issue(context, wait, event, action, memory=(target[region], True))


def quantized_store_types(tile: Type, scale: Type, target: Type, indices: tuple[Type, ...]) -> None:
    """An Acc tile and a row of scales, one per column."""
    source, parent = rules.need_tile("operand 0", tile), rules.need_memref("operand 2", target)
    rules.need_indices("indices", indices, parent.rank)
    scales(source, rules.need_tile("operand 1", scale))


def scales(source: TileType, scale: TileType) -> None:
    """An i32 or f32 tile of Acc and a row of scales, one per column."""
    rules.rank_two("operand 0", source)
    rules.rank_two("operand 1", scale)
    rules.at_loc("operand 0", source, "Acc")
    rules.at_loc("operand 1", scale, "Scale")
    good = scale.dtype is UI64 or scale.dtype.is_float
    require(good, "TypeMismatch", f"operand 1 is {type_text(scale)}, expected f32 scales (or their bits in u64)", at=operand(1))
    good = source.dtype is SI32 or source.dtype.is_float
    require(good, "TypeMismatch", f"operand 0 is {type_text(source)}, expected i32 or f32", at=operand(0))
    rules.same_extent("rows of the scale", scale.shape[0], 1)
    rules.same_extent("columns of tile and scale", source.shape[1], scale.shape[1])


def rescaled(values: Array, scale: Array) -> Array:
    """`values` times the scale of their column, in float64. A u64 scale holds the bits of an f32 in its low half."""
    if scale.dtype == np.uint64:
        scale = (scale & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    made: Array = values.astype(np.float64) * scale.astype(np.float64)
    return made


@kit.tile_op(
    "store.fp",
    quantized_store_types,
    traits=WRITES,
    check=check_access,
    asks=needs.WINDOW,
    fails=always,
    facts=Facts(
        pipe="FIX",
        opcodes=("TSTORE_ACC", "TSTORE_FP"),
        form=Form(family="store", name="TSTORE_FP"),
        takes=("Acc", "Scale"),
        memory=2,
        vector=False,
        elements=elements.ACCUMULATED,
    ),
)
def store_fp(
    tile: Tile,
    scale: Tile,
    target: Array,
    indices: Many,
    valid: Many,
    wait: Many,
    *,
    event: EventType | None = None,
    context: Context,
) -> Results:
    """Store an Acc tile, each column times its scale, converted to the memory's elements (rounded, saturated)."""
    extents = taken_region(context, tile)
    region = slices(target, indices, extents, "store")

    def action() -> None:
        m = machine(context)
        factors = m.settle(scale, box((1, extents[1])), "store.fp")
        values = rescaled(m.settle(tile, box(extents), "store.fp"), factors)
        target[region] = n.from_f64(values, n.dtype_of(target))

    return issue(context, wait, event, action, memory=(target[region], True))


def assign_types(tile: Type, address: Type) -> tuple[Type, ...]:
    """A tile and an index."""
    rules.need_tile("operand 0", tile)
    require(rules.is_index(address), "TypeMismatch", f"the address is {type_text(address)}, expected index", at=operand(1))
    return ()


def check_address(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that the address is aligned and that the tile fits into its space."""
    t, at = tile_at(op, tiles, 0), constant(op.operands[1])
    if at is None:
        return
    loc = t.loc or "Vec"
    message = f"address {at} is not a multiple of {ALIGNMENT} ({target.name})"
    require(at % ALIGNMENT == 0, "Misaligned", message, at=operand(1))
    size, capacity = tile_bytes(t), target.capacity[loc]
    if not 0 <= at <= capacity - size:
        message = f"{size} bytes at {at} leave {loc}, which has {capacity} on {target.name}"
        raise Violation("CapacityExceeded", message, at=operand(1))


@op("pto.tile.assign", infer=assign_types, traits=WRITES, own=Facts(gives=None, vector=False, legal=check_address))
def assign(tile: Tile, address: Array, *, context: Context) -> None:
    """Assign a tile an address of its space: it is there from its definition on."""
    by = context.op
    assert by is not None and isinstance(by.operands[0], Value)
    machine(context).bind(tile, by.operands[0], int(address), by)


def undef_types(*, to: TileType) -> Type:
    """Any tile."""
    return rules.need_tile("the result", to)


@op("pto.tile.undef", infer=undef_types, traits=PURE, own=Facts(pipe="S", gives=None, vector=False))
def undef(*, to: TileType, context: Context) -> Tile:
    """A tile of undefined elements: `%t = pto.tile.undef : tile<…>`. What the assembler's `alloc_tile` makes. Extension."""
    return Tile(to, static_shape(to))


def prefetch_types(source: Type, indices: tuple[Type, ...]) -> None:
    """An index per dimension."""
    parent = rules.need_memref("operand 0", source)
    rules.need_indices("indices", indices, parent.rank)


def prefetch(
    source: Array, indices: Many, valid: Many, wait: Many, *, event: EventType | None = None, context: Context
) -> Results:
    """A hint that a window of memory will be loaded soon: `pto.tile.prefetch %m[%i, %j] : M`. It has no other effect. PTO IR
    4.3."""
    slices(source, indices, [int(v) for v in valid] or (1,) * source.ndim, "prefetch")
    return issue(context, wait, event, lambda: None)


def print_types(tile: Type) -> None:
    """A tile in Vec."""
    rules.at_loc("operand 0", rules.need_tile("operand 0", tile), "Vec")


def print_(tile: Tile, valid: Many, wait: Many, *, event: EventType | None = None, context: Context) -> Results:
    """Print the shape and the valid region of a tile on standard error: `pto.tile.print %t : T`. PTO IR 4."""
    extents = taken_region(context, tile)

    def action() -> None:
        values, defined = tile.values[box(extents)], tile.defined[box(extents)]
        lines = [f"TPRINT {'x'.join(map(str, tile.shape))}"]
        for row, known in zip(values.reshape(-1, extents[-1]), defined.reshape(-1, extents[-1]), strict=True):
            lines.append("".join(_printed(v) if d else f"{'?':>8}" for v, d in zip(row, known, strict=True)))
        print("\n".join(lines), file=sys.stderr)

    return issue(context, wait, event, action)


def _printed(x: np.generic) -> str:
    return f"{int(x):>8}" if n.is_integer(np.asarray(x)) or isinstance(x, np.bool_) else f"{float(x):>8.4f}"


_HINT = Facts(pipe="MTE2", vector=False, elements=elements.MEMORY, form=Form(family="prefetch"))
_PRINTED = Facts(takes=("Vec",), elements=elements.SMALL, form=Form(family="print"))
kit.tile_op("prefetch", prefetch_types, facts=_HINT, traits=WRITES, check=None, asks=ASKS_NOTHING)(prefetch)
kit.tile_op("print", print_types, facts=_PRINTED, traits=WRITES, asks=ASKS_NOTHING)(print_)
