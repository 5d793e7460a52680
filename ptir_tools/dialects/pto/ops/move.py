"""Moves between locations, windows of tiles, transpose (PTO IR 6.1, 6.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.choices import Choices
from ptir_tools.core.declare import Many, always
from ptir_tools.core.dtypes import F16, F32, SI8, SI32, DType
from ptir_tools.core.ir import MOVEMENT, Op, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim, Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.pto import elements, needs, rules
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.facts import Extents, Facts, Form, Numbers, Tiles, ValidRule, tile_at
from ptir_tools.dialects.pto.memory.info import box_of, extents
from ptir_tools.dialects.pto.memory.spare import like_first
from ptir_tools.dialects.pto.ops import kit, memory
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.run.machine import Machine, Tile, static_shape
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import TileType, tile, type_text
from ptir_tools.dialects.pto.valid import either, first, least, less, whole


def check_one_row(granule: int) -> Callable[[Op, Tiles, Target], None]:
    """Check that the result is one row of a multiple of `granule` bytes."""

    def rule(op: Op, tiles: Tiles, target: Target) -> None:
        to = tiles[op.results[0]]
        rows, columns = extents(to)
        require(rows == 1, "IllegalOnTarget", f"{to.loc} holds one row, {type_text(to)} has {rows} ({target.name})")
        size = columns * to.dtype.size
        message = f"a row of {size} bytes in {to.loc} is not a multiple of {granule} ({target.name})"
        require(size % granule == 0, "Misaligned", message)

    return rule


ROW = 512  # bytes: of rows that go from Mat to Left, a multiple


def check_row(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that one row that goes to Left, and the row that it is taken from, fill whole boxes of 512 bytes."""
    for t in (tile_at(op, tiles, 0), tiles[op.results[0]]):
        rows, columns = extents(t)
        size = columns * t.dtype.size
        message = f"a single row of {size} bytes that goes to Left is not a multiple of {ROW} ({target.name})"
        good = rows != 1 or tiles[op.results[0]].loc != "Left" or size % ROW == 0
        require(good, "Misaligned", message, help="widen the row and give valid, or use a tile of 16 rows")


def check_scales(op: Op, tiles: Tiles, target: Target) -> None:
    """Check the scales of a move: a row for a quantization, a matrix of fractal boxes for exponents of blocks."""
    if tiles[op.results[0]].loc == "Scale":
        check_one_row(128)(op, tiles, target)


def _facts(
    pipe: str,
    source: str,
    *gives: str,
    elements: Mapping[str, frozenset[str]],
    legal: Callable[[Op, Tiles, Target], None] | None = None,
) -> Facts:
    return Facts(pipe=pipe, takes=(source,), gives=gives, vector=False, elements=elements, legal=legal, form=Form(name="TMOV"))


_FACTORS = elements.on("u64", "f32 u8")
_MOVES: dict[str, tuple[str, Facts]] = {
    "m2l": (
        "Mat to Left: the left operand of a matmul.",
        _facts("MTE1", "Mat", "Left", elements=elements.MATRIX, legal=check_row),
    ),
    "m2r": ("Mat to Right: the right operand of a matmul.", _facts("MTE1", "Mat", "Right", elements=elements.MATRIX)),
    "m2b": (
        "Mat to Bias; 16-bit floats may widen to f32.",
        _facts("MTE1", "Mat", "Bias", elements=elements.on("i32 f16 f32", "bf16"), legal=check_one_row(64)),
    ),
    "m2s": (
        "Mat to Scale: factors of a quantization or of a block.",
        _facts("FIX", "Mat", "Scale", "ScaleLeft", "ScaleRight", elements=_FACTORS, legal=check_scales),
    ),
    "a2v": (
        "Acc to Vec or Mat, converted to the result's elements; `relu` clips at 0.",
        _facts("FIX", "Acc", "Vec", "Mat", elements=elements.ACCUMULATED),
    ),
    "a2m": (
        "Acc to Mat, converted to the result's elements; `relu` clips at 0.",
        _facts("FIX", "Acc", "Mat", elements=elements.on("f32", "i32")),
    ),
    "v2v": ("A copy within Vec.", _facts("V", "Vec", "Vec", elements=elements.SMALL_OR_FP8)),
    "v2m": ("Vec to Mat.", _facts("FIX", "Vec", "Mat", elements=elements.SMALL_ON_A5)),
}


def _moved(kind: str) -> kit.Rule:
    facts, converts = _MOVES[kind][1], kind in ("m2b", "a2v", "a2m")

    def infer(x: Type, *, to: TileType, **_: object) -> None:
        tile = rules.need_tile("operand 0", x)
        rules.at_loc("operand 0", tile, *facts.takes)
        rules.at_loc("the result", to, *(facts.gives or ()))
        rules.same_shape("operand 0", tile, to)
        if not converts:
            rules.same_dtype("operand 0", tile, to)
        if kind == "m2b":
            widens = tile.dtype is to.dtype or (tile.dtype.is_float and to.dtype.is_float and tile.dtype.bits < to.dtype.bits)
            require(widens, "TypeMismatch", f"m2b does not take {type_text(tile)} to {type_text(to)}")

    return infer


def _move(kind: str) -> None:
    def clipped(x: Tile, *, to: TileType, relu: bool = False) -> kit.Filling:
        def made(box: kit.Window, m: Machine) -> kit.Made:
            values = n.convert(x.values[box], x.type.dtype, to.dtype)
            return n.relu(values) if relu else values, x.defined[box]

        return made

    def plain(x: Tile, *, to: TileType) -> kit.Filling:
        return clipped(x, to=to)

    text, facts = _MOVES[kind]
    kit.declare(f"mov.{kind}", clipped if kind in ("a2v", "a2m") else plain, _moved(kind), text, facts=facts, traits=MOVEMENT)


for _kind in _MOVES:
    _move(_kind)


def quantized_move_types(x: Type, scale: Type, *, to: TileType) -> None:
    """An Acc tile, a row of scales, and a result of the tile's shape in Vec or Mat."""
    tile = rules.need_tile("operand 0", x)
    memory.scales(tile, rules.need_tile("operand 1", scale))
    rules.same_shape("operand 0", tile, to)
    rules.at_loc("the result", to, "Vec", "Mat")


def mov_fp(x: Tile, scale: Tile, *, to: TileType) -> kit.Filling:
    """Acc out, each column times its scale, rounded and saturated."""

    def made(box: kit.Window, m: Machine) -> kit.Made:
        factors = m.settle(scale, (slice(0, 1), box[1]), "mov.fp")
        return n.from_f64(memory.rescaled(x.values[box], factors), to.dtype), x.defined[box]

    return made


kit.declare(
    "mov.fp",
    mov_fp,
    quantized_move_types,
    facts=Facts(
        pipe="FIX",
        opcodes=("TMOV_A2V", "TMOV_FP"),
        form=Form(name="TMOV_FP"),
        takes=("Acc", "Scale"),
        gives=("Vec", "Mat"),
        vector=False,
        elements=elements.ACCUMULATED,
        valid=first,
    ),
    traits=MOVEMENT,
    fails=always,
)


# Windows


def _extracted(source: str, *results: str) -> Callable[..., None]:
    """The rule of a window of a tile in `source` as a tile in one of `results`."""

    def rule(x: Type, indices: tuple[Type, ...], *, to: TileType) -> None:
        tile = rules.need_tile("operand 0", x)
        rules.need_indices("offsets", indices, tile.rank)
        rules.rank_two("operand 0", tile)
        rules.rank_two("the result", to)
        rules.at_loc("operand 0", tile, source)
        rules.at_loc("the result", to, *results)
        rules.same_dtype("operand 0", tile, to)

    return rule


def check_extract(op: Op) -> None:
    """Check offset + extent <= the source's, in both dimensions (PTO IR 7)."""
    _check_window(op, op.attr("to"), operand_type(op.operands[0]), "extract")


def _check_window(op: Op, part: Type, whole: Type, what: str) -> None:
    """Check that `part` is in `whole` from the offsets on, where they are known."""
    rules.check_tile_op(op)
    assert isinstance(part, TileType) and isinstance(whole, TileType)
    for d, (x, size, extent) in enumerate(zip(rules.group(op, "indices"), part.shape, whole.shape, strict=True)):
        if isinstance(size, int):
            _check_offset(d, constant(x), size, extent, what)


def _check_offset(d: int, offset: int | None, size: int, extent: Dim, what: str) -> None:
    memory.check_window(d, offset, size, 1, extent, what, memory.index_place(d), "tile")


def extract(x: Tile, indices: Many, *, to: TileType) -> kit.Filling:
    """A window of a tile: `%l = pto.tile.extract %m[%r, %c] : T -> T2`. PTO IR 6.2."""
    starts, shape = [int(i) for i in indices], static_shape(to)
    for d, (start, size) in enumerate(zip(starts, shape, strict=True)):
        _check_offset(d, start, size, x.values.shape[d], "extract")
    if any(v <= s for v, s in zip(x.valid, starts, strict=True)):
        raise Violation("OutOfBounds", f"extract at {starts} takes nothing of the valid region {list(x.valid)}")

    def made(box: kit.Window, m: Machine) -> kit.Made:
        region = tuple(slice(s, s + b.stop) for s, b in zip(starts, box, strict=True))
        return x.values[region], x.defined[region]

    return made


def valid_in_window(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The valid region of the source from the offsets on, clipped to the result."""
    starts = map(value, rules.group(op, "indices"))
    return tuple([least(n, e - s) for n, e, s in zip(shape, tiles[0], starts, strict=True)])


def check_box_offsets(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that offsets are multiples of the fractal boxes of the result; of a single row, of its boxes of 512 bytes."""
    check_row(op, tiles, target)
    to = tiles[op.results[0]]
    box = (1, ROW // to.dtype.size) if extents(to)[0] == 1 else box_of(to, to.layout or "Zn")
    for d, (x, inner) in enumerate(zip(rules.group(op, "indices"), box, strict=True)):
        at = constant(x)
        message = f"extract starts at {at} in dimension {d}, {to.loc} boxes are {box[0]} x {box[1]} ({target.name})"
        require(at is None or at % inner == 0, "Misaligned", message, help=f"offsets are multiples of {inner}")


kit.declare(
    "extract",
    extract,
    _extracted("Mat", "Left", "Right"),
    facts=Facts(
        pipe="MTE1",
        opcodes=("TEXTRACT", "TEXTRACT_M2LR"),
        takes=("Mat",),
        gives=("Left", "Right"),
        vector=False,
        elements=elements.MATRIX,
        legal=check_box_offsets,
        valid=valid_in_window,
    ),
    traits=MOVEMENT,
    check=check_extract,
    asks=needs.WINDOW,
    fails=needs.window_fails,
    source="",
)


kit.declare(
    "extract.vec",
    extract,
    _extracted("Vec", "Vec"),
    "A window of a Vec tile: `%w = pto.tile.extract.vec %v[%r, %c] : T -> T2`. Extension.",
    facts=Facts(takes=("Vec",), elements=elements.WINDOWS, valid=valid_in_window, form=Form(name="TEXTRACT")),
    traits=MOVEMENT,
    check=check_extract,
    asks=needs.WINDOW,
    fails=needs.window_fails,
    source="",
)


def insert_types(x: Type, indices: tuple[Type, ...], into: Type, *, to: TileType) -> None:
    """A tile, an offset per dimension, and a tile of the result's type and of the same elements."""
    tile = rules.need_tile("operand 0", x)
    rules.need_indices("offsets", indices, tile.rank)
    rules.rank_two("operand 0", tile)
    rules.same_tiles(to, into)
    rules.at_loc("operand 0", tile, "Acc", "Vec")
    rules.at_loc("the result", to, "Mat", "Vec")
    if tile.loc != "Acc":
        rules.same_dtype("operand 0", tile, to)


def check_insert(op: Op) -> None:
    """Check offset + extent <= the result's, in both dimensions."""
    _check_window(op, operand_type(op.operands[0]), op.attr("to"), "insert")


def insert(x: Tile, indices: Many, into: Tile, *, to: TileType) -> kit.Filling:
    """A copy of a tile with the valid region of another inserted: `%t = pto.tile.insert %s[%r, %c], %d : T, T2 -> T2`."""
    window = _window(x, indices, into, "insert")

    def made(box: kit.Window, m: Machine) -> kit.Made:
        return _put(into, window, n.convert(x.values[x.box], x.type.dtype, to.dtype), x.defined[x.box], box)

    return made


def _valid_over(k: int) -> ValidRule:
    """The rule of a region that contains the valid region of tile operand `k` and the inserted one."""

    def rule(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
        starts = map(value, rules.group(op, "indices"))
        return either(tiles[k], tuple([s + e for s, e in zip(starts, tiles[0], strict=True)]), shape)

    return rule


kit.declare(
    "insert",
    insert,
    insert_types,
    facts=Facts(pipe="FIX", over=1, vector=False, elements=elements.WORDS, valid=_valid_over(1)),
    traits=MOVEMENT,
    check=check_insert,
    asks=needs.INSERT,
    fails=needs.window_fails,
    source="",
)


def _window(x: Tile, indices: Many, into: Tile, what: str) -> tuple[slice, ...]:
    """The window of `into` for the valid region of `x`. Raises Violation("OutOfBounds") where its shape does not fit."""
    starts = [int(i) for i in indices]
    for d, (start, size) in enumerate(zip(starts, x.shape, strict=True)):
        _check_offset(d, start, size, into.shape[d], what)
    return tuple(slice(s, s + v) for s, v in zip(starts, x.valid, strict=True))


def _put(into: Tile, window: tuple[slice, ...], values: Array, defined: Array, box: tuple[slice, ...]) -> kit.Made:
    """A region of `into` with these elements in the window."""
    all_values, all_defined = into.values.copy(), into.defined.copy()
    all_values[window], all_defined[window] = values, defined
    return all_values[box], all_defined[box]


def scaled_insert_types(x: Type, scale: Type, into: Type, indices: tuple[Type, ...], *, to: TileType) -> None:
    """An Acc tile, a row of scales, a Mat tile of the result's type, and an offset per dimension."""
    tile = rules.need_tile("operand 0", x)
    memory.scales(tile, rules.need_tile("operand 1", scale))
    rules.same_tiles(to, into)
    rules.rank_two("the result", to)
    rules.at_loc("the result", to, "Mat")
    rules.need_indices("offsets", indices, tile.rank)


def insert_fp(x: Tile, scale: Tile, into: Tile, indices: Many, *, to: TileType) -> kit.Filling:
    """As `insert` of an Acc tile into a Mat tile, each column times its scale, rounded and saturated:
    `%t = pto.tile.insert.fp %acc[%r, %c], %s, %d : T, Ts, T2 -> T2`."""
    window = _window(x, indices, into, "insert.fp")

    def made(box: kit.Window, m: Machine) -> kit.Made:
        factors = m.settle(scale, (slice(0, 1), x.box[1]), "insert.fp")
        return _put(into, window, n.from_f64(memory.rescaled(x.values[x.box], factors), to.dtype), x.defined[x.box], box)

    return made


kit.declare(
    "insert.fp",
    insert_fp,
    scaled_insert_types,
    facts=Facts(
        pipe="FIX", takes=("Acc", "Scale", "Mat"), over=2, vector=False, elements=elements.ACCUMULATED, valid=_valid_over(2)
    ),
    traits=MOVEMENT,
    check=check_insert,
    asks=needs.INSERT,
    fails=always,
    source="",
)


def concat_types(a: Type, b: Type, *, to: TileType) -> None:
    """Two tiles of the result's rows and elements; its columns hold both."""
    for i, t in enumerate((a, b)):
        tile = rules.need_tile(f"operand {i}", t)
        rules.rank_two(f"operand {i}", tile)
        rules.rank_two("the result", to)
        rules.same_dtype(f"operand {i}", tile, to)
        rules.same_extent(f"rows of operand {i} and result", tile.shape[0], to.shape[0])


def check_concat(op: Op) -> None:
    """Check that the valid columns of both operands fit into the result, where they are known."""
    rules.check_tile_op(op)
    (_, left), (_, right) = (memory.static_valid(x) for x in op.operands[:2])
    room = op.attr("to").shape[1]
    if isinstance(left, int) and isinstance(right, int) and isinstance(room, int):
        require(left + right <= room, "OutOfBounds", _require_room(left, right, room))


def _require_room(left: int, right: int, room: int) -> str:
    return f"concat: {left} and {right} columns do not fit into {room}"


def any_concat(choices: Choices, *types: Type) -> tuple[TileType, ...] | dict[str, object]:
    """Two tiles and a result that holds both. Types drawn independently rarely fit."""
    if types:
        return {}
    dtype = choices.one((F32, F16, SI32, SI8))
    rows, left, right = (choices.one((1, 8, 16, 32)) for _ in range(3))
    return tuple(tile(dtype, (rows, n)) for n in (left, right, left + right))


def concat(a: Tile, b: Tile, *, to: TileType) -> kit.Filling:
    """The valid columns of `a`, then those of `b`."""
    width, room = a.valid[1] + b.valid[1], static_shape(to)[1]
    if width > room:
        raise Violation("OutOfBounds", _require_room(a.valid[1], b.valid[1], room))

    def made(box: kit.Window, m: Machine) -> kit.Made:
        parts = [(x.values[box[0], : x.valid[1]], x.defined[box[0], : x.valid[1]]) for x in (a, b)]
        values, defined = (np.concatenate(sides, 1) for sides in zip(*parts, strict=True))
        missing = ((0, 0), (0, max(0, box[1].stop - width)))
        return np.pad(values, missing)[:, box[1]], np.pad(defined, missing)[:, box[1]]

    return made


def valid_joined(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The rows that are valid in both operands, and the columns of both."""
    (rows, left), (others, right) = tiles
    return less(rows, others, shape[0]), left + right


kit.declare(
    "concat",
    concat,
    concat_types,
    facts=Facts(elements=elements.SMALL, valid=valid_joined),
    traits=MOVEMENT,
    generate=any_concat,
    check=check_concat,
    fails=always,
)


def transpose_types(x: Type, *, to: TileType) -> None:
    """Rank 2, extents exchanged."""
    tile = rules.need_tile("operand 0", x)
    rules.rank_two("operand 0", tile)
    rules.rank_two("the result", to)
    rules.same_dtype("operand 0", tile, to)
    for d in (0, 1):
        rules.same_extent(f"extent {d} of the operand and {1 - d} of the result", tile.shape[d], to.shape[1 - d])


def trans(x: Tile, *, to: TileType) -> kit.Filling:
    """Transposition: element [i, j] is the operand's [j, i]."""

    def made(box: kit.Window, m: Machine) -> kit.Made:
        region = (box[1], box[0])
        return x.values[region].T, x.defined[region].T

    return made


_TURNED = Facts(elements=elements.SMALL, work="copy", spare=like_first, valid=lambda op, tiles, shape, value: tiles[0][::-1])
kit.declare("trans", trans, transpose_types, facts=_TURNED, traits=MOVEMENT)


# Shapes


def reshape_types(x: Type, *, to: TileType) -> None:
    """The same number of bytes."""
    tile = rules.need_tile("operand 0", x)
    rules.at_loc("the result", to, tile.loc or to.loc or "Vec")
    if all(isinstance(d, int) for d in (*tile.shape, *to.shape)):
        sizes = [prod(static_shape(t)) * t.dtype.size for t in (tile, to)]
        message = f"{type_text(tile)} has {sizes[0]} bytes, {type_text(to)} {sizes[1]}"
        require(sizes[0] == sizes[1], "ShapeMismatch", message)


def reshape(x: Tile, *, to: TileType) -> kit.Filling:
    """The same bytes under another shape or element type."""
    shape = static_shape(to)

    def made(box: kit.Window, m: Machine) -> kit.Made:
        values = x.values.reshape(-1).view(arrays.numpy_dtype(to.dtype)).reshape(shape)
        defined = np.repeat(x.defined.reshape(-1), x.type.dtype.size).reshape(*shape, to.dtype.size)
        return values[box], np.all(defined, axis=-1)[box]

    return made


def valid_reshaped(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The whole tile; of elements of the same size in the same shape, or of a column as a row, what is valid in it."""
    source, to = operand_type(op.operands[0]), op.attr("to")
    assert isinstance(source, TileType)
    if source.shape == to.shape and source.dtype.size == to.dtype.size:
        return tiles[0]
    return tiles[0][::-1] if source.shape == to.shape[::-1] and 1 in to.shape and source.dtype is to.dtype else shape


_RENAMED = Facts(
    pipe="V",
    stores={"Vec": ("TRESHAPE", "V"), "Mat": ("TRESHAPE_MAT", "S")},
    renames=True,
    vector=False,
    elements=elements.MEMORY,
    valid=valid_reshaped,
)
kit.declare("reshape", reshape, reshape_types, facts=_RENAMED, traits=MOVEMENT)


def pad_types(x: Type, *, to: TileType, pad: str) -> None:
    """A result of the operand's type; a pad value."""
    rules.same_tiles(to, x)
    rules.one_of("pad", pad, _PADS)


_PADS = ("Zero", "Max", "Min")


def pad_value(dtype: DType, pad: str) -> float:
    """Zero, or the largest or smallest value of the element type (an infinity for floats)."""
    if pad == "Zero":
        return 0
    if dtype.is_float:
        return np.inf if pad == "Max" else -np.inf
    return dtype.max if pad == "Max" else dtype.min


def expand_types(x: Type, *, to: TileType, pad: str) -> None:
    """A result no smaller than the operand; a pad value."""
    tile = rules.need_tile("operand 0", x)
    rules.same_dtype("operand 0", tile, to)
    require(tile.rank == to.rank, "RankMismatch", f"operand 0 is {type_text(tile)}, the result {type_text(to)}")
    for d, (small, large) in enumerate(zip(tile.shape, to.shape, strict=True)):
        fits = not (isinstance(small, int) and isinstance(large, int)) or small <= large
        require(fits, "ShapeMismatch", f"extent {d} of the result is {large}, less than {small} of the operand")
    require(pad in _PADS, "TypeMismatch", f"pad is {pad}, expected one of {', '.join(_PADS)}", at="pad")


def _fill(name: str, rule: kit.Rule, text: str, facts: Facts) -> None:
    def body(x: Tile, *, to: TileType, pad: str = "Zero") -> kit.Filling:
        def made(box: kit.Window, m: Machine) -> kit.Made:
            values = np.full(static_shape(to), pad_value(to.dtype, pad), arrays.numpy_dtype(to.dtype))
            defined = np.ones(values.shape, np.bool_)
            values[x.box], defined[x.box] = x.values[x.box], x.defined[x.box]
            return values[box], defined[box]

        return made

    kit.declare(name, body, rule, text, facts=facts, traits=MOVEMENT, generate=lambda choices, *_: {"pad": choices.one(_PADS)})


_PADDED = "The operand's valid region; every other element is `pad` (Zero, Max, Min)."
_fill("fillpad", pad_types, _PADDED, Facts(elements=elements.SMALL, valid=whole))
_fill(
    "fillpad.inplace",
    pad_types,
    "As `fillpad`, written over the operand.",
    Facts(elements=elements.SMALL, over=0, valid=whole, form=Form(accumulates=True)),
)
_fill(
    "fillpad.expand", expand_types, "As `fillpad`, into a larger tile.", Facts(elements=elements.SMALL, reuses=(0,), valid=whole)
)
