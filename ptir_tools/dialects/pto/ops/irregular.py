"""Gather, scatter, sort. Indices are logical positions, independent of the layout."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.choices import Choices
from ptir_tools.core.declare import Many, Maybe, always, op
from ptir_tools.core.dtypes import SI16, UI32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Op, Trait
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, Type, tensor
from ptir_tools.core.violations import Violation, operand, require
from ptir_tools.dialects.pto import elements, needs, rules
from ptir_tools.dialects.pto.affine import number
from ptir_tools.dialects.pto.facts import Extents, Facts, Form, Numbers, Tiles, tile_at
from ptir_tools.dialects.pto.memory.info import extents
from ptir_tools.dialects.pto.memory.spare import flat_indices, like_second, pairs
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.run.machine import Machine, Results, Tile, issue, machine, made_region
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import EventType, TileType, tile, type_text
from ptir_tools.dialects.pto.valid import first, least, unknown, whole

BLOCK = 32  # bytes that gatherb moves at once; elements that sort32 sorts at once
SORT_BLOCK = 64  # elements that a block length of mrgsort is a multiple of
SORT_REPEATS = 255
_PATTERNS = ("P0101", "P1010", "P0001", "P0010", "P0100", "P1000", "P1111")


def need_integers(what: str, t: Type) -> TileType:
    """A tile of integers."""
    tile = rules.need_tile(what, t)
    require(tile.dtype.is_integer, "TypeMismatch", f"{what} is {type_text(tile)}, expected integers")
    return tile


def gather_types(x: Type, indices: Type | None, *, to: TileType, maskPattern: str) -> None:
    """With indices, the result has their shape; with a mask pattern, there are none. The elements are the source's."""
    tile = rules.need_tile("operand 0", x)
    rules.same_dtype("operand 0", tile, to)
    one = (indices is None) == bool(maskPattern)
    require(one, "TypeMismatch", "gather takes either an index tile or a maskPattern")
    if indices is not None:
        rules.same_shape("operand 1", need_integers("operand 1", indices), to)
        return
    rules.one_of("maskPattern", maskPattern, _PATTERNS)
    rules.rank_two("operand 0", tile)
    rules.rank_two("the result", to)
    rules.same_extent("rows of operand and result", tile.shape[0], to.shape[0])


def any_pattern(choices: Choices, *types: Type) -> dict[str, str]:
    """A mask pattern where there is no index tile."""
    return {"maskPattern": "" if len(types) > 1 else choices.one(tuple(_PATTERNS))}


def gather(x: Tile, indices: Maybe, *, to: TileType, maskPattern: str = "") -> kit.Filling:
    """Elements of a tile by flat index (row-major over its shape), or by a repeating mask of columns, packed.

    `gather %x, %i : T -> T2`, `gather %x {maskPattern = #pto.mask_pattern<P0101>} : T -> T2`. The rightmost bit of a pattern
    is the lowest column. An index outside the tile is a run-time error.
    """
    if indices is None:
        return _masked(x, to, maskPattern)

    def made(box: kit.Window, m: Machine) -> kit.Made:
        at, known = indices.values[box].astype(np.int64), indices.defined[box]
        bad = known & ((at < 0) | (at >= x.values.size))
        if bad.any():
            raise Violation("OutOfBounds", f"gather reads index {at[bad][0]} of {x.values.size} elements")
        at = np.where(known, at, 0)
        return x.values.reshape(-1)[at], x.defined.reshape(-1)[at] & known

    return made


def valid_gathered(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The valid region of the indices; or the valid rows, and the columns that the mask selects of the valid ones."""
    if len(tiles) > 1:
        return tiles[1]
    rows, columns = tiles[0]
    if columns.terms or shape[1].terms:
        return rows, unknown()
    return rows, least(shape[1], number(len(_mask_columns(op.attr("maskPattern"), columns.const))))


kit.declare(
    "gather",
    gather,
    gather_types,
    traits=Trait.NONE,
    generate=any_pattern,
    fails=needs.index_fails,
    facts=Facts(elements=elements.INDEXED, work="indexed", valid=valid_gathered, spare=like_second, turns=True),
    source="",
)


def _mask_columns(pattern: str, columns: int) -> list[int]:
    """Whether the mask selects each of the columns; its rightmost bit is that of the first."""
    bits = pattern[:0:-1]
    return [j for j in range(columns) if bits[j % len(bits)] == "1"]


def _masked(x: Tile, to: TileType, pattern: str) -> kit.Filling:
    columns = _mask_columns(pattern, x.valid[1])
    if not columns:
        raise Violation("InvalidValid", f"{pattern} selects none of the {x.valid[1]} valid columns")

    def made(box: kit.Window, m: Machine) -> kit.Made:
        chosen = columns[: box[1].stop]
        values = np.zeros((box[0].stop, box[1].stop), x.values.dtype)
        defined = np.zeros(values.shape, np.bool_)
        values[:, : len(chosen)] = x.values[box[0], chosen]
        defined[:, : len(chosen)] = x.defined[box[0], chosen]
        return values, defined

    return made


def gather_blocks_types(x: Type, offsets: Type, *, to: TileType) -> None:
    """One byte offset for every 32 bytes of the result."""
    tile, at = rules.need_tile("operand 0", x), need_integers("operand 1", offsets)
    rules.same_dtype("operand 0", tile, to)
    rules.rank_two("operand 1", at)
    rules.rank_two("the result", to)
    rules.same_extent("rows of offsets and result", at.shape[0], to.shape[0])
    per = BLOCK // to.dtype.size
    if isinstance(to.shape[1], int):
        rules.same_extent("offsets and 32-byte blocks of a row", at.shape[1], -(-to.shape[1] // per))


def gatherb(x: Tile, offsets: Tile, *, to: TileType) -> kit.Filling:
    """32-byte blocks of a tile by byte offset."""
    size = to.dtype.size
    per = BLOCK // size

    def made(box: kit.Window, m: Machine) -> kit.Made:
        count = -(-box[1].stop // per)
        at = m.settle(offsets, (box[0], slice(0, count)), "gatherb").astype(np.int64)
        bad = (at < 0) | (at % size != 0) | (at // size + per > x.values.size)
        if bad.any():
            raise Violation("OutOfBounds", f"gatherb reads 32 bytes at {at[bad][0]} of {x.values.nbytes}")
        flat = (at[:, :, None] // size + np.arange(per)).reshape(at.shape[0], -1)[:, : box[1].stop]
        return x.values.reshape(-1)[flat], x.defined.reshape(-1)[flat]

    return made


def valid_blocks(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """One row of blocks for every valid row of offsets."""
    rows, blocks = tiles[1]
    return rows, least(shape[1], blocks * (BLOCK // op.attr("to").dtype.size))


_BLOCKS = Facts(elements=elements.SMALL, work="indexed", valid=valid_blocks, form=Form(family="blocks"))
kit.declare("gatherb", gatherb, gather_blocks_types, facts=_BLOCKS, traits=Trait.NONE, fails=needs.index_fails)


def scatter_types(x: Type, indices: Type, *, to: TileType) -> None:
    """Indices of the source's shape; a result of its elements and columns."""
    tile, at = rules.need_tile("operand 0", x), need_integers("operand 1", indices)
    rules.same_shape("operand 1", at, tile)
    rules.rank_two("operand 0", tile)
    rules.rank_two("the result", to)
    rules.same_dtype("operand 0", tile, to)
    rules.same_extent("columns of operand and result", tile.shape[1], to.shape[1])


def check_indices(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that indices are as wide as elements, as the library has them."""
    t, at = (tile_at(op, tiles, k).dtype for k in (0, 1))
    message = f"scatter on {target.name} takes indices as wide as its elements: {t.size} bytes, not {at.size}"
    require(t.size == at.size, "IllegalOnTarget", message)


def scatter(x: Tile, indices: Tile, *, to: TileType) -> kit.Filling:
    """`result[i[r, c], c] = x[r, c]`; the last write wins."""

    def made(box: kit.Window, m: Machine) -> kit.Made:
        region = tuple(map(slice, map(min, x.valid, indices.valid)))
        rows = m.settle(indices, region, "scatter").astype(np.int64)
        values = np.zeros(tuple(b.stop for b in box), x.values.dtype)
        defined = np.zeros(values.shape, np.bool_)
        for (i, j), row in np.ndenumerate(rows):
            if not 0 <= row < values.shape[0] or j >= values.shape[1]:
                raise Violation("OutOfBounds", f"scatter writes [{row}, {j}] of {list(values.shape)}")
            values[row, j], defined[row, j] = x.values[i, j], x.defined[i, j]
        return values, defined

    return made


_SCATTERED = Facts(
    elements=elements.INDEXED,
    work="indexed",
    valid=whole,
    reuses=(),
    spare=flat_indices,
    legal=check_indices,
    form=Form(family="scatter"),
)
kit.declare("scatter", scatter, scatter_types, facts=_SCATTERED, traits=Trait.NONE, fails=needs.index_fails)


# Sorting


def sorting_tiles(given: Sequence[TileType]) -> list[TileType]:
    """Extra tiles: positions of the columns of the longest list, and the pairs of each list."""
    return [tile(UI32, (1, max(extents(t)[1] for t in given)), "Vec", "ND"), *map(pairs, given)]


def merging_tiles(given: Sequence[TileType]) -> list[TileType]:
    """As `sorting_tiles`, and the pairs of all lists together, twice for several lists."""
    together = tile(given[0].dtype, (1, sum(extents(t)[1] for t in given)), "Vec", "ND")
    return [*sorting_tiles(given), *[pairs(together)] * min(len(given), 2)]


def sort_types(x: Type, *, to: TileType, order: TileType) -> None:
    """The sorted tile has the operand's type; the order is a tile of integers of its shape."""
    rules.same_tiles(to, x)
    require(to.dtype.is_float, "TypeMismatch", f"operand 0 is {type_text(x)}, expected floats", at=operand(0))
    rules.same_shape("the order", need_integers("the order", order), to)


_SORTED = Facts(elements=elements.FLOATS, work="order", spare=sorting_tiles, valid=first, form=Form(family="sort"))


@kit.tile_op("sort32", sort_types, "to", "order", facts=_SORTED, fails=always)
def sort32(
    x: Tile,
    valid: Many,
    wait: Many,
    *,
    to: TileType,
    order: TileType,
    event: EventType | None = None,
    context: Context,
) -> Results:
    """Every 32 elements of a row, largest first, and the columns they come from; equal elements keep their order.

    `%s, %i = pto.tile.sort32 %x : T -> (T, Ti)`.
    """
    box = made_region(context, to)
    values, columns = Tile(to, box), Tile(order, box)

    def action() -> None:
        data = machine(context).settle(x, values.box, "sort32")
        at = np.concatenate([j + _descending(data[..., j : j + BLOCK]) for j in range(0, data.shape[-1], BLOCK)], -1)
        values.fill(np.take_along_axis(data, at, -1), True)
        columns.fill(at, True)

    return issue(context, wait, event, action, values, columns)


def _descending(x: Array) -> Array:
    return np.argsort(-x.astype(np.float64), axis=-1, kind="stable")


def merge_types(xs: tuple[Type, ...], *, to: TileType, counts: TensorType | None, exhausted: bool, blockLen: int) -> None:
    """One row each, of one element type. Two to four lists give counts; one list has a block length."""
    tiles = [rules.need_tile(f"operand {i}", t) for i, t in enumerate(xs)]
    require(1 <= len(tiles) <= 4, "TypeMismatch", f"mrgsort takes 1 to 4 lists, got {len(tiles)}")
    for i, t in enumerate((*tiles, to)):
        what = f"operand {i}" if i < len(tiles) else "the result"
        require(all(d == 1 for d in t.shape[:-1]), "ShapeMismatch", f"{what} is {type_text(t)}, expected one row")
        rules.same_dtype(what, t, to)
    if len(tiles) == 1:
        require(blockLen > 0 and counts is None, "TypeMismatch", "mrgsort of one list needs blockLen and gives no counts")
        rules.same_shape("operand 0", tiles[0], to)
        return
    right = counts is tensor(SI16, (4,)) and not blockLen
    require(right, "TypeMismatch", "mrgsort of several lists gives vector<4xi16> counts and has no blockLen")


def _merge_result_types(*groups: object, counts: TensorType | None, **attrs: object) -> tuple[Type, ...]:
    results = ("to",) if counts is None else ("to", rules.COUNTS)
    return rules.rule("tile.mrgsort", merge_types, *results)(*groups, counts=counts, **attrs)


def any_merge(choices: Choices, *types: Type) -> dict[str, object]:
    """A block length for one list, counts for several."""
    return {"counts": tensor(SI16, (4,))} if len(types) > 1 else {"blockLen": choices.one((64, 128))}


def valid_merged(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """One row, as long as all lists together, at most the room in the result."""
    length = number(0)
    for t in tiles:
        length = length + t[-1]
    return (*[number(1)] * (len(shape) - 1), least(shape[-1], length))


def check_groups(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that one list is a multiple of four blocks, each a multiple of a sorted run."""
    if not (length := op.attr("blockLen")):
        return
    require(length % SORT_BLOCK == 0, "IllegalOnTarget", f"blockLen is {length}, a multiple of {SORT_BLOCK} on {target.name}")
    _, columns = extents(tile_at(op, tiles, 0))
    repeats = columns // (4 * length)
    good = columns % (4 * length) == 0 and 1 <= repeats <= SORT_REPEATS
    message = f"{columns} elements are not 1 to {SORT_REPEATS} groups of four blocks of {length}"
    require(good, "IllegalOnTarget", message)


@op(
    "pto.tile.mrgsort",
    infer=_merge_result_types,
    traits=kit.TILE,
    check=rules.check_tile_op,
    fails=always,
    generate=any_merge,
    asks=needs.VALID,
    own=Facts(
        elements=elements.FLOATS,
        work="order",
        spare=merging_tiles,
        legal=check_groups,
        valid=valid_merged,
        form=Form(family="merge"),
    ),
)
def mrgsort(
    xs: Many,
    valid: Many,
    wait: Many,
    *,
    to: TileType,
    counts: TensorType | None = None,
    exhausted: bool = False,
    blockLen: int = 0,
    event: EventType | None = None,
    context: Context,
) -> Results:
    """Merge lists that are sorted largest first: `%m, %n = mrgsort %a, %b : T, T -> (T2, vector<4xi16>)`. The counts are the
    numbers of elements taken from each list. `exhausted` stops when one list is used up. One list with `blockLen` is merged in
    groups of four blocks."""
    made = Tile(to, made_region(context, to))
    taken, room = np.zeros(4, np.int16), made.valid[-1]

    def action() -> None:
        lists = [machine(context).settle(x, x.box, "mrgsort").reshape(-1) for x in xs]
        found, origin = _merge_blocks(lists[0], blockLen) if blockLen else _merge(lists, exhausted)
        flat = np.zeros(room, found.dtype)
        flat[: found.size] = found[:room]
        made.fill(flat, np.arange(room) < found.size)
        taken[: len(lists)] = np.bincount(origin[:room], minlength=len(lists))

    answer: Results = issue(context, wait, event, action, made)
    if counts is None:
        return answer
    return (answer[0], taken, answer[1]) if isinstance(answer, tuple) else (made, taken)


def _merge(lists: list[Array], exhausted: bool) -> tuple[Array, Array]:
    """The elements of all lists, largest first, and the list of each. Of equal elements, that of the earlier list comes first.
    `exhausted` stops when the first list is used up."""
    origin = np.repeat(np.arange(len(lists)), [x.size for x in lists])
    values = np.concatenate(lists)
    at = _descending(values)
    if exhausted:
        at = at[: min(np.nonzero(origin[at] == i)[0][-1] for i in range(len(lists))) + 1]
    return values[at], origin[at]


def _merge_blocks(x: Array, length: int) -> tuple[Array, Array]:
    """The elements of one list in groups of four blocks, each sorted."""
    groups = [x[i : i + 4 * length] for i in range(0, x.size, 4 * length)]
    return np.concatenate([g[_descending(g)] for g in groups]), np.zeros(x.size, np.int64)
