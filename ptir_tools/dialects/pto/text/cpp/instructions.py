"""Tile ops in C++, by the family of their `Form`: the lines before the calls, and the calls, which are for one core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ptir_tools.core.dtypes import F16, F32, SI32, UI32
from ptir_tools.core.ir import Op, Value, operand_type
from ptir_tools.core.typed import Any
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.affine import Linear, constant, number
from ptir_tools.dialects.pto.facts import Extents, facts
from ptir_tools.dialects.pto.legality import check_form
from ptir_tools.dialects.pto.memory.info import extents, sides, tile_bytes
from ptir_tools.dialects.pto.memory.spare import PAIR, SIGNED, aligned, flat_indices, like_first, like_second, spares
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops.irregular import BLOCK
from ptir_tools.dialects.pto.order.signals import BARRIER
from ptir_tools.dialects.pto.pipes import is_tile_op, opcodes_of
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import is_pop, memref_type, tiles_of
from ptir_tools.dialects.pto.targets import A3
from ptir_tools.dialects.pto.text.cpp import fifos
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel
from ptir_tools.dialects.pto.text.cpp.memory import global_tensor
from ptir_tools.dialects.pto.text.cpp.spelling import element, tile_type, value_type
from ptir_tools.dialects.pto.text.fifos import fenced, passable
from ptir_tools.dialects.pto.text.kernel import NOTHING, own_operands
from ptir_tools.dialects.pto.types import TileType, tile, type_text
from ptir_tools.dialects.pto.valid import both, of_shape

Lines = tuple[list[str], list[str]]  # those before the calls, and the calls
_RUN = 32  # elements that are sorted at once
_VALUES = {F16: "P0001", F32: "P0101"}  # the columns of the values in pairs

# Attributes as the last arguments, and as template arguments: of a result {to}, the first operand {x} and its type {kind}.
_MODES: dict[str, Callable[[Any], str]] = {
    "cmpMode": "CmpMode::{}".format,
    "rmode": "RoundMode::{}".format,
    "isBinary": lambda on: str(bool(on)).lower(),
}
_TEMPLATES = {
    "descending": "<decltype({to}), {kind}, {value:d}>",
    "upper": "<decltype({to}), {value:d}>",
    "maskPattern": "<decltype({to}), decltype({x}), MaskPattern::{value}>",
    "relu": "<decltype({to}), decltype({x}), ReluPreMode::NormalRelu>",
}
_OPTIONAL = ("maskPattern", "relu")  # without an argument where they are not set


def instruction(kernel: Kernel, op: Op) -> Lines:
    """The tiles that an op makes, and its calls."""
    _check_masks(kernel, op)
    try:
        check_form(op, kernel.tiles, kernel.target)
    except Violation as violation:
        kernel.refuse(violation.message, op.loc, violation.help)
    declared = [line for v in op.results if isinstance(v.type, TileType) for line in kernel.declared(v, op)]
    lines, calls = _FAMILIES[facts(op).form.family](kernel, op)
    if facts(op).renames or facts(op).over is not None:
        _check_over(kernel, op)
    return [*declared, *lines], calls


def _check_masks(kernel: Kernel, op: Op) -> None:
    """A mask is packed bits on the chip, which only a selection reads."""
    for i, x in enumerate(op.operands):
        wants = facts(op).masked and i == 0
        if isinstance(x, Value) and isinstance(x.type, TileType) and wants != (x in kernel.masks):
            what = "the mask of sel is not made by cmp or cmps" if wants else f"%{x.name} is a mask, which sel alone takes"
            kernel.refuse(f"{what}; on the chip a mask is packed bits", op.loc)


def _check_over(kernel: Kernel, op: Op) -> None:
    """The tile that an op renames or is written over has the address of the result."""
    over = tiles_of(op)[facts(op).over or 0]
    if kernel.address(over) != kernel.address(op.result):
        name = op.defn.short.removeprefix("tile.")
        why = "reshape moves nothing" if facts(op).renames else f"{name} is written over %{over.name}"
        kernel.refuse(f"{why}: bind %{over.name} and the result to the same address", op.loc)


# Most ops


def _call(kernel: Kernel, op: Op) -> Lines:
    """A call with results, operands in order, scratch and modes."""
    scratch, lines = _scratch(kernel, op)
    return lines, [_called(kernel, op, scratch)]


def _called(kernel: Kernel, op: Op, scratch: Sequence[str] = ()) -> str:
    own, attrs = facts(op), op.defn.named(op.attrs)
    operands = own_operands(op)
    results = [kernel.name(v) for v in op.results if isinstance(v.type, TileType)]
    given = [*results, *map(kernel.scalar, operands), *scratch]
    template = ""
    for name, form in _TEMPLATES.items():
        if name in attrs and (attrs[name] or name not in _OPTIONAL):
            t = operand_type(operands[0])
            kind = "" if isinstance(t, TileType) else value_type(t).strip()
            template = form.format(to=given[0], x=given[1], kind=kind, value=attrs[name])
    modes = [spelled(attrs[name]) for name, spelled in _MODES.items() if name in attrs]
    if own.converts and kernel.tiles[tiles_of(op)[0]].dtype.is_float and kernel.tiles[op.result].dtype.is_integer:
        modes.append("SaturationMode::ON")
    return f"{own.form.name or opcodes_of(op.defn)[0]}{template}({', '.join([*given, *modes])});"


def _select(kernel: Kernel, op: Op) -> Lines:
    """A selection in all columns, as those of a mask are in bytes: the elements after the valid ones are undefined."""
    scratch, lines = _scratch(kernel, op)
    whole = kernel.valid[op.result][0], number(sides(kernel.tiles[op.result])[1])
    mask, names = kernel.name(tiles_of(op)[0]), list[str]()
    for x in (op.result, *tiles_of(op)[1:]):
        name, more = kernel.seen(x, whole) if kernel.address(x) is not None else (kernel.name(x), [])
        names.append(name)
        lines += more
    return lines, [f"TSEL({', '.join([names[0], mask, *names[1:], *scratch])});"]


def _choice(kernel: Kernel, op: Op) -> Lines:
    """A copy of one of two tiles: the library selects by masks only."""
    seen = [kernel.seen(x, kernel.valid[op.result]) for x in tiles_of(op)]
    (a, first), (b, second) = seen
    test, to = f"{kernel.scalar(op.operands[2])} == 1", kernel.name(op.result)
    return [*first, *second], [f"if ({test}) {{", f"  TMOV({to}, {a});", "} else {", f"  TMOV({to}, {b});", "}"]


def _sum(kernel: Kernel, op: Op) -> Lines:
    """A sum of three in two calls: the chip has no instruction for it."""
    a, b, c = own_operands(op)
    to, last = kernel.name(op.result), kernel.scalar(c)
    if kernel.address(op.result) in (None, kernel.address(tiles_of(op)[-1])):
        kernel.refuse(f"the result is written before %{last} is read: bind them to different addresses", op.loc)
    first = f"{facts(op).form.name}({to}, {kernel.scalar(a)}, {kernel.scalar(b)});"
    return [], [first, *_fence(kernel), f"TADD({to}, {to}, {last});"]


def _load(kernel: Kernel, op: Op) -> Lines:
    name, line = global_tensor(kernel, op)
    return [line], [f"TLOAD({kernel.name(op.results[0])}, {name});"]


def _store(kernel: Kernel, op: Op) -> Lines:
    """A store of the part of a tile that is valid for the op; its modes are template arguments."""
    name, line = global_tensor(kernel, op)
    (x, *others), attrs = tiles_of(op), op.defn.named(op.attrs)
    part, lines = kernel.stored(x, op)
    tiles = [part, *map(kernel.name, others)]
    atomic, relu, template = attrs.get("atomic", "AtomicNone"), attrs.get("relu"), ""
    if atomic != "AtomicNone" or relu:
        modes = [f"AtomicType::{atomic}", *(["ReluPreMode::NormalRelu"] if relu else [])]
        template = f"<{', '.join([f'decltype({tiles[0]})', f'decltype({name})', *modes])}>"
    return [*lines, line], [f"{facts(op).form.name}{template}({', '.join([name, *tiles])});"]


def _prefetch(kernel: Kernel, op: Op) -> Lines:
    """Into a tile that nothing reads."""
    (name,), lines = _scratch(kernel, op)
    window, line = global_tensor(kernel, op)
    return [*lines, line], [f"TPREFETCH({name}, {window});"]


def _print(kernel: Kernel, op: Op) -> Lines:
    """The tile, or the part of it that the op states."""
    (x,) = tiles_of(op)
    name, lines = kernel.stored(x, op)
    return lines, [f"TPRINT({name});"]


def _blocks(kernel: Kernel, op: Op) -> Lines:
    """Blocks by byte offsets, which are numbers of 32 bits."""
    offsets = kernel.tiles[tiles_of(op)[1]]
    if offsets.dtype.size != 4:
        kernel.refuse(f"the offsets are {type_text(offsets)}; the library takes numbers of 32 bits", op.loc)
    return [], [_called(kernel, op)]


def _scattered(kernel: Kernel, op: Op) -> Extents:
    """What an op scatters: elements and indices that are valid. The library moves as many elements as it is given indices."""
    given, at = kernel.regions(op)
    return both(given, at, of_shape(sides(kernel.tiles[tiles_of(op)[1]])))


def _scatter(kernel: Kernel, op: Op) -> Lines:
    """The library scatters by flat indices: rows times the length of a row, plus columns."""
    x, at = tiles_of(op)
    names, lines = _scratch(kernel, op)
    columns, wide, flat = names
    if kernel.tiles[at].dtype.size not in SIGNED:
        kernel.refuse(f"the indices are {type_text(kernel.tiles[at])}; the library takes numbers of 16 or 32 bits", op.loc)
    kind = element(SIGNED.get(kernel.tiles[at].dtype.size, SI32))
    rows = kernel.fresh(f"{kernel.name(at)}_rows")
    found = kernel.address(at)
    if found is None:
        kernel.refuse(f"%{at.name} has no known address", op.loc)
    lines += kernel.placed(rows, tile_type(kernel.tiles[at], kind), _scattered(kernel, op), found or "0")
    everything, fence = "pipe_barrier(PIPE_ALL);", _fence(kernel)
    calls = [everything, f"TCI<decltype({columns}), {kind}, 0>({columns}, 0);", everything, f"TCOLEXPAND({wide}, {columns});"]
    calls += [f"TMULS({flat}, {rows}, {sides(kernel.tiles[op.result])[1]});", *fence, f"TADD({flat}, {flat}, {wide});", *fence]
    return lines, [*calls, f"TSCATTER({kernel.name(op.result)}, {kernel.name(x)}, {flat});"]


def _extreme(kernel: Kernel, op: Op) -> Lines:
    """The library takes the second of equal elements, so the operands are exchanged. Values are before their indices."""
    values, order = op.results[:2]
    a, ai, b, bi = op.operands[:4]
    regions = kernel.regions(op)
    if regions[0] != regions[1] or regions[2] != regions[3]:
        kernel.refuse("the library wants the same valid region in a tile and in its index", op.loc)
    if kernel.valid[values] not in regions:
        kernel.refuse("the library wants the valid region of one operand in the result", op.loc)
    names = ", ".join(kernel.scalar(x) for x in (values, b, a, order, bi, ai))
    return [], [f"{opcodes_of(op.defn)[0]}({names});"]


# Scratch


def _spare_tiles(kernel: Kernel, op: Op) -> list[tuple[TileType, Extents]]:
    """The tiles that the library needs for an op besides those of the op, with their valid regions."""
    if facts(op).form.family == "prefetch":
        return [_prefetched(kernel, op)]
    made = spares(op, kernel.tiles)
    if facts(op).spare is flat_indices:
        at = _scattered(kernel, op)
        return [(made[0], (number(1), at[1])), *((t, at) for t in made[1:])]
    if facts(op).spare is like_second:
        return [(t, kernel.valid.get(tiles_of(op)[1], NOTHING)) for t in made]
    if facts(op).spare is like_first:
        return [(t, kernel.valid.get(tiles_of(op)[0], NOTHING)) for t in made]
    return [(t, of_shape(extents(t))) for t in made]


def _prefetched(kernel: Kernel, op: Op) -> tuple[TileType, Extents]:
    """The tile that a prefetch fills."""
    memref = memref_type(op.operands[0])
    sizes = [constant(x) for x in group(op, "valid")] or [1] * memref.rank
    if None in sizes:
        kernel.refuse("the library prefetches into a tile: state its extents as numbers", op.loc)
    *outer, columns = [n or 1 for n in sizes]
    per = max(1, BLOCK // memref.dtype.size)
    rows = prod(outer)
    return tile(memref.dtype, (rows, -(-columns // per) * per), "Vec", "ND"), of_shape((rows, columns))


def _scratch(kernel: Kernel, op: Op) -> tuple[list[str], list[str]]:
    """The names of an op's scratch tiles, and the lines that declare them, after the last tile of Vec."""
    wanted = _spare_tiles(kernel, op)
    waiting = _fence(kernel) if kernel.must_wait(op, bool(wanted)) else []
    if not wanted:
        return [], waiting
    start, room = _scratch_room(kernel, op)
    needs = sum(aligned(tile_bytes(t)) for t, _ in wanted[:-1]) + tile_bytes(wanted[-1][0])
    if start + needs > room:
        kernel.refuse(f"the op needs {needs} bytes of scratch in Vec, {max(room - start, 0)} are left", op.loc)
    names, lines = [], []
    base = kernel.name(op.results[0]) if op.results else "prefetch"
    for t, valid in wanted:
        names.append(kernel.fresh(f"{base}_tmp"))
        lines += kernel.placed(names[-1], tile_type(t, element(t.dtype)), valid, str(start))
        start += aligned(tile_bytes(t))
    return names, lines + waiting


def _scratch_room(kernel: Kernel, op: Op) -> tuple[int, int]:
    """The first address of an op's scratch, and the end of the memory for it. The scratch of a prefetch is after that of other
    ops, which may run at the same time."""
    if kernel.end is None:
        kernel.refuse("the op needs scratch, and where the tiles of Vec end is not known", op.loc)
    start, room = kernel.end or 0, kernel.target.capacity["Vec"]
    if facts(op).form.family == "prefetch":
        others = [o for o in kernel.function.ops() if is_tile_op(o.defn) and facts(o).form.family != "prefetch"]
        start += max((sum(aligned(tile_bytes(t)) for t, _ in _spare_tiles(kernel, o)) for o in others), default=0)
        if kernel.target.scratch is not None and any(facts(o).scratch for o in others):
            room = kernel.target.scratch[0]
    return start, room


def _fence(kernel: Kernel) -> list[str]:
    """A barrier of the vector pipe, on a target that does not order dependent ops of it."""
    return ["pipe_barrier(PIPE_V);"] if "V" in kernel.target.barriers else []


# Sorting: the library sorts pairs of a value and its column


def _sort(kernel: Kernel, op: Op) -> Lines:
    """Sorted pairs, of which values and columns are then taken apart."""
    values, order = op.results[:2]
    _check_runs(kernel, kernel.valid[values][1], op)
    if kernel.tiles[order].dtype.size != 4:
        kernel.refuse(f"the order is {type_text(kernel.tiles[order])}; the library gives numbers of 32 bits", op.loc)
    source, lines = kernel.seen(tiles_of(op)[0], kernel.valid[values])
    (places, made), more = _scratch(kernel, op)
    t, rows = kernel.tiles[values], kernel.valid[values][0]
    height, width = extents(t)
    numbers, at = kernel.fresh(f"{made}_u32"), more[-1].removesuffix(");").split(", ")[1]
    kind = tile_type(tile(UI32, (height, 2 * width), "Vec", "ND"), element(UI32))
    lines += [*more, *kernel.placed(numbers, kind, (rows, number(2 * width)), at)]
    calls = _sorted_runs(kernel, [source], [made], places)
    return lines, [*calls, _picked(kernel, values, made, _value_columns(kernel, t, op)), _picked(kernel, order, numbers, "P1010")]


def _merge(kernel: Kernel, op: Op) -> Lines:
    """The pairs of each list, merged. Then their values are taken."""
    given = tiles_of(op)
    for x in given:
        _check_runs(kernel, kernel.valid.get(x, NOTHING)[1], op)
    (places, *made), lines = _scratch(kernel, op)
    if any(kernel.valid.get(x) != of_shape((1, extents(kernel.tiles[x])[1])) for x in given):
        kernel.refuse("the library merges lists that are as long as their tiles", op.loc)
    calls = _sorted_runs(kernel, list(map(kernel.name, given)), made[: len(given)], places)
    if length := int(op.attr("blockLen")):
        merged = made[1]
        calls.append(_merged_blocks(kernel, op, merged, made[0], length))
    else:
        *lists, merged, spare = made
        counts = kernel.name(op.results[1])
        lines.append(f"MrgSortExecutedNumList {counts};")
        kinds = ", ".join(f"decltype({x})" for x in (merged, spare, *lists))
        exhausted = str(bool(op.attr("exhausted"))).lower()
        calls.append(f"TMRGSORT<{kinds}, {exhausted}>({', '.join([merged, counts, spare, *lists])});")
    pattern = _value_columns(kernel, kernel.tiles[op.results[0]], op)
    return lines, [*calls, *_fence(kernel), _picked(kernel, op.results[0], merged, pattern)]


def _merged_blocks(kernel: Kernel, op: Op, merged: str, pairs: str, length: int) -> str:
    """The merged blocks of one list."""
    whole = kernel.valid.get(tiles_of(op)[0], NOTHING)[1]
    if length % _RUN or (whole.value is not None and whole.value % (4 * length)):
        what = f"the library merges groups of 4 blocks of a multiple of {_RUN}, not {kernel.text(whole)} in {length}"
        kernel.refuse(what, op.loc)
    return f"TMRGSORT({merged}, {pairs}, {length * PAIR // kernel.tiles[op.results[0]].dtype.size});"


def _sorted_runs(kernel: Kernel, sources: Sequence[str], into: Sequence[str], places: str) -> list[str]:
    """The sorted runs of tiles, as pairs of a value and its column."""
    everything = "pipe_barrier(PIPE_ALL);"
    counted = f"TCI<decltype({places}), uint32_t, 0>({places}, 0);"
    runs = [f"TSORT32({b}, {a}, {places});" for a, b in zip(sources, into, strict=True)]
    return [everything, counted, everything, *runs, *_fence(kernel)]


def _check_runs(kernel: Kernel, columns: Linear, op: Op) -> None:
    """Report a row that is not a multiple of a sorted run."""
    if columns.value is None or columns.value % _RUN:
        what = columns.value if columns.value is not None else "an unknown number of"
        kernel.refuse(f"the library sorts {_RUN} elements at once, here are {what} columns", op.loc)


def _value_columns(kernel: Kernel, t: TileType, op: Op) -> str:
    """The mask of the columns that are values, in pairs."""
    if t.dtype not in _VALUES:
        kernel.refuse(f"the library sorts f16 and f32, not {DTYPE_TEXT[t.dtype]}", op.loc)
    return _VALUES.get(t.dtype, "P0101")


def _picked(kernel: Kernel, to: Value, source: str, pattern: str) -> str:
    """The columns of a mask, as a new tile."""
    return f"TGATHER<decltype({kernel.name(to)}), decltype({source}), MaskPattern::{pattern}>({kernel.name(to)}, {source});"


def _pass(kernel: Kernel, op: Op) -> Lines:
    """A push or pop. A pop of a3 loads the tile to its address. On a5 pipes wait that the pop itself does not stop."""
    name, pipe = op.attr("fifo"), kernel.pipes[op.attr("fifo")]
    tile = passable(kernel, op)
    name_of, before = kernel.seen(tile, of_shape(sides(kernel.tiles[tile])))
    behind = list[str]()
    if is_pop(op) and kernel.target is A3:
        before = [fifos.place(kernel.fifos[name], pipe, str(kernel.address(tile)))]
    elif is_pop(op) and fenced(kernel.function, name, pipe):
        behind = [f"{BARRIER}(PIPE_ALL);"]
    return before, [fifos.passing(kernel.fifos[name], op, name_of), *behind]


_FAMILIES: dict[str, Callable[[Kernel, Op], Lines]] = {
    "call": _call,
    "select": _select,
    "choice": _choice,
    "sum": _sum,
    "load": _load,
    "store": _store,
    "prefetch": _prefetch,
    "print": _print,
    "pass": _pass,
    "blocks": _blocks,
    "scatter": _scatter,
    "extreme": _extreme,
    "sort": _sort,
    "merge": _merge,
}
