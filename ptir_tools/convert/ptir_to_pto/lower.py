"""PTIR ops as tile ops: one rule per op, from its operands in the current block."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_pto.axes import MOVES
from ptir_tools.convert.ptir_to_pto.contraction import dot_general
from ptir_tools.convert.ptir_to_pto.emit import KernelEmit, reshaped
from ptir_tools.convert.ptir_to_pto.kernel import COMBINED, reduced_axes
from ptir_tools.convert.ptir_to_pto.layout import COLUMN, FULL, ROW, SCALAR
from ptir_tools.convert.ptir_to_pto.lookup import take
from ptir_tools.convert.ptir_to_pto.values import ORDERED, BlockValue, signed, wider
from ptir_tools.core.dtypes import F32, I1, SI8, SI16, SI32, SI64
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto.facts import element_types
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.types import tile
from ptir_tools.rewrite.vocabulary import tensor_type

TileRule = Callable[..., BlockValue]


def common_kind(emit: KernelEmit, op: Op, *values: BlockValue) -> str:
    """The kind of an elementwise result; of scalars alone the kind of the op's result."""
    kinds = {p.kind for p in values} - {SCALAR}
    if not kinds:
        kind = emit.layout.kind(emit.shapes.made[op.result])
        return kind if kind in (FULL, COLUMN) else ROW
    return kinds.pop() if len(kinds) == 1 else FULL


def binary(short: str, commutes: bool = False) -> TileRule:
    """A tile op of two tiles, of tile and scalar, or of a tile and one row or column."""

    def rule(emit: KernelEmit, op: Op, a: BlockValue, b: BlockValue) -> BlockValue:
        kind = common_kind(emit, op, a, b)
        if a.kind == b.kind == SCALAR:
            a = emit.spread(a, kind)
        if SCALAR in (a.kind, b.kind):
            return emit.tile_op(f"{short}s", kind, a.dtype, a.value, b.value)
        if commutes and b.kind == FULL:
            a, b = b, a
        if a.kind == FULL and b.kind != FULL and a.dtype.is_float:
            prefix = "rowexpand" if b.kind == COLUMN else "colexpand"
            return emit.tile_op(prefix + short, FULL, a.dtype, a.value, b.value)
        return emit.tile_op(short, kind, a.dtype, emit.spread(a, kind).value, emit.spread(b, kind).value)

    return rule


def unary(short: str) -> TileRule:
    """A tile op of one tile."""

    def rule(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
        kind = common_kind(emit, op, x)
        return emit.tile_op(short, kind, x.dtype, emit.spread(x, kind).value)

    return rule


def bitwise(short: str) -> TileRule:
    """A bitwise tile op; on halves of elements where the target lacks the op for them."""

    def rule(emit: KernelEmit, op: Op, *values: BlockValue) -> BlockValue:
        dtype, allowed = values[0].dtype, element_types(emit.target).get(short)
        if allowed is None or dtype.size < SI32.size or DTYPE_TEXT[dtype] in allowed:
            return (unary(short) if len(values) == 1 else binary(short, commutes=True))(emit, op, *values)
        kind, parts = common_kind(emit, op, *values), dtype.size // SI16.size
        to = emit.type_of(kind, dtype)
        long = len(to.shape) - 1 if to.shape[-1] != 1 else 0
        halves = tile(SI16, tuple(n * parts if d == long else n for d, n in enumerate(to.shape)))  # type: ignore[operator]
        given = [emit.retyped(emit.spread(x, kind).value, halves, []) for x in values]
        result = emit.builder.op(f"tile.{short}", *given, [], [], to=halves, name=emit.name)
        return BlockValue(kind, reshaped(emit, result, to, emit.existing(kind)))

    return rule


def exponential(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
    """An exponential, fused with its operand where that is a difference of tile and row or column with one use: f32 rounds
    alike."""
    result, block = x.value.op, emit.builder.block.body
    one = sum(r.base is op.operands[0] for r in emit.shapes.reads.values()) == 1 and op.operands[0] not in emit.stored
    kind = result.defn.short.removeprefix("tile.").removesuffix("sub") if result is not None else ""
    if one and result is not None and block[-1] is result and x.dtype is F32 and kind in ("rowexpand", "colexpand"):
        block.pop()
        return emit.tile_op(f"{kind}expdif", FULL, F32, *result.operands[:2])
    return unary("exp")(emit, op, x)


def absolute(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
    """The absolute value; of integers `max(x, -x)`."""
    if x.dtype.is_float:
        return unary("abs")(emit, op, x)
    return binary("max", commutes=True)(emit, op, x, unary("neg")(emit, op, x))


def comparison(mode: str) -> TileRule:
    """A mask of i8."""

    def rule(emit: KernelEmit, op: Op, a: BlockValue, b: BlockValue) -> BlockValue:
        kind = common_kind(emit, op, a, b)
        left = emit.spread(a, kind).value
        if b.kind == SCALAR:
            return emit.tile_op("cmps", kind, SI8, left, b.value, cmpMode=mode)
        return emit.tile_op("cmp", kind, SI8, left, emit.spread(b, kind).value, cmpMode=mode)

    return rule


def select(emit: KernelEmit, op: Op, *values: BlockValue) -> BlockValue:
    """A mask and two tiles."""
    kind = common_kind(emit, op, *values)
    return emit.tile_op("sel", kind, values[1].dtype, *(emit.spread(p, kind).value for p in values))


def clamp(emit: KernelEmit, op: Op, x: BlockValue, low: BlockValue, high: BlockValue) -> BlockValue:
    """The larger of tile and lower bound, the smaller of that and the upper one."""
    return binary("min", commutes=True)(emit, op, binary("max", commutes=True)(emit, op, x, low), high)


def cast(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
    """A conversion; floats to integers truncate and saturate in both IRs, integers that do not fit saturate in PTIR alone."""
    source, to = tensor_type(op.operands[0]).dtype, tensor_type(op.result).dtype
    if source is to:
        return x
    kind = common_kind(emit, op, x)
    value = emit.spread(x, kind).value
    if source is I1 and to.is_float:  # a mask directly
        one, zero = (emit.scalar(n, F32) for n in (1, 0))
        ones, zeros = (emit.tile_op("expands", kind, F32, n, valid=emit.existing(kind)).value for n in (one, zero))
        return BlockValue(kind, emit.converted(emit.tile_op("sel", kind, F32, value, ones, zeros).value, to))
    if to is I1:
        zero = emit.scalar(0, x.dtype)
        return emit.tile_op("cmps", kind, SI8, value, zero, cmpMode="NE")
    if source is SI64 and to.is_integer and to.bits <= 32:
        value = _narrowed(emit, kind, value)
        source, x = SI32, BlockValue(kind, value)
        if to is SI32:
            return x
    if source.is_integer and to.is_integer and source is not I1:  # pto.tile.cvt wraps
        for short, bound, own in (("maxs", to.min, source.min), ("mins", to.max, source.max)):
            if bound > own if short == "maxs" else bound < own:
                edge = emit.scalar(bound, x.dtype)
                value = emit.tile_op(short, kind, x.dtype, value, edge).value
    rmode = "CAST_TRUNC" if source.is_float and to.is_integer else "CAST_RINT"
    return emit.tile_op("cvt", kind, to, value, rmode=rmode)


def bitcast(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
    """The same bits in other elements of the same width."""
    kind = common_kind(emit, op, x)
    return BlockValue(kind, emit.seen_as(emit.spread(x, kind).value, tensor_type(op.result).dtype))


def _narrowed(emit: KernelEmit, kind: str, x: Value) -> Value:
    """i64 as i32, saturated. Its f32 tells whether it fits, except next to 2^31, where the sign of its low half does."""
    low, as_f32 = emit.tile_op("cvt", kind, SI32, x).value, emit.tile_op("cvt", kind, F32, x).value
    for mode, sign, end in (("GE", "GT", SI32.max), ("LE", "LT", SI32.min)):
        edge = emit.scalar(2.0**31 if end > 0 else -(2.0**31), F32)
        zero, last = (emit.scalar(n, SI32) for n in (0, end))
        ends = emit.tile_op("expands", kind, SI32, last, valid=emit.existing(kind)).value
        same = emit.tile_op("cmps", kind, SI8, low, zero, cmpMode=sign).value
        inside = emit.tile_op("sel", kind, SI32, same, low, ends).value
        at = emit.tile_op("cmps", kind, SI8, as_f32, edge, cmpMode="EQ").value
        out = emit.tile_op("cmps", kind, SI8, as_f32, edge, cmpMode=mode).value
        beyond = emit.tile_op("sel", kind, SI32, at, inside, ends).value
        low = emit.tile_op("sel", kind, SI32, out, beyond, low).value
    return low


def rounding(rmode: str) -> TileRule:
    """Rounding to integers through i32; floats of 2^23 or more are integers already, and NaNs stay."""

    def rule(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
        kind = common_kind(emit, op, x)
        value = emit.converted(emit.spread(x, kind).value, F32)
        rounded = emit.tile_op("cvt", kind, F32, emit.tile_op("cvt", kind, SI32, value, rmode=rmode).value)
        limit = emit.scalar(2.0**23, F32)
        small = emit.tile_op("cmps", kind, SI8, emit.tile_op("abs", kind, F32, value).value, limit, cmpMode="LT")
        result = emit.tile_op("sel", kind, F32, small.value, rounded.value, value)
        return BlockValue(kind, emit.converted(result.value, x.dtype))

    return rule


def reduction(short: str) -> TileRule:
    """A reduction of rows or columns; sums accumulate in f32, PTIR's default."""

    def rule(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
        accum = op.attr("accum_dtype") if "accum_dtype" in op.defn.attr_index else None
        same = tensor_type(op.result).dtype is x.dtype and accum in (None, F32 if x.dtype.is_float else x.dtype)
        require(same, NOT_TRANSLATABLE, f"a row of {x.dtype} is reduced in f32 to {x.dtype}, not in {accum}")
        dims = emit.shapes.reads[op, 0].dims
        lost = {a for d in op.attr("axes") for a in dims[d % len(dims)]}
        if not lost:  # an extent of 1
            return x
        if emit.layout.column not in lost:
            return emit.tile_op(f"col{short}", ROW, x.dtype, emit.spread(x).value)
        rows = element_types(emit.target)[f"row{short}"]
        if DTYPE_TEXT[x.dtype] in rows or x.dtype.is_float:
            return emit.combine_parts(COMBINED[op.defn.short], emit.tile_op(f"row{short}", COLUMN, x.dtype, emit.spread(x).value))
        return _turned(emit, short, emit.spread(x))

    return rule


def position(short: str) -> TileRule:
    """The index of the first largest or smallest element of rows or columns."""

    def rule(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
        to = tensor_type(op.result).dtype
        dims = emit.shapes.reads[op, 0].dims
        lost = {a for d in reduced_axes(op) for a in dims[d % len(dims)]}
        if not lost:  # an extent of 1: the index is 0
            kind = common_kind(emit, op, x)
            zero = emit.scalar(0, to)
            return emit.tile_op("expands", kind, to, zero, valid=emit.existing(kind))
        require(emit.blocks.parts == 1, NOT_TRANSLATABLE, "argmax and argmin need whole rows")
        require(len(lost) == 1, NOT_TRANSLATABLE, f"{op.defn.short} goes over several axes of tiles")
        side, kind = ("row", COLUMN) if emit.layout.column in lost else ("col", ROW)
        result = emit.tile_op(f"{side}{short}", kind, SI32, emit.spread(x).value)
        return result if to is SI32 else BlockValue(kind, emit.converted(result.value, to))

    return rule


def _turned(emit: KernelEmit, short: str, x: BlockValue) -> BlockValue:
    """Rows of integers reduced as columns."""
    require(emit.blocks.parts == 1, NOT_TRANSLATABLE, "integers are reduced in whole rows")
    if (other := signed(emit.target, f"col{short}", x.dtype)) is not None:
        ordered = f"col{short}" in ORDERED
        given = emit.seen_as(x.value, other)
        result = _turned(emit, short, BlockValue(FULL, emit.flipped(given, other) if ordered else given)).value
        return BlockValue(COLUMN, emit.seen_as(emit.flipped(result, other) if ordered else result, x.dtype))
    rows, columns, dtype = emit.blocks.rows, emit.blocks.columns, wider(emit.target, f"col{short}", x.dtype)
    turned = emit.builder.op("tile.trans", x.value, [], [], to=tile(x.dtype, (columns, rows)), name=emit.name)
    wide = emit.converted(turned, dtype)
    result = emit.builder.op(f"tile.col{short}", wide, [], [], to=tile(dtype, (1, rows)), name=emit.name)
    column = reshaped(emit, result, emit.type_of(COLUMN, dtype), emit.existing(COLUMN))
    return BlockValue(COLUMN, emit.converted(column, x.dtype))


def copy(emit: KernelEmit, op: Op, x: BlockValue) -> BlockValue:
    """A copy of a view to memory."""
    return x


RULES: dict[str, Rule] = {
    "add": binary("add", commutes=True),
    "sub": binary("sub"),
    "mul": binary("mul", commutes=True),
    "div": binary("div"),
    "maximum": binary("max", commutes=True),
    "minimum": binary("min", commutes=True),
    "pow": binary("pow"),
    "rem": binary("fmod"),
    "mod": binary("rem"),
    "shift_left": binary("shl"),
    "shift_right_arithmetic": binary("shr"),
    "neg": unary("neg"),
    "abs": absolute,
    "exp": exponential,
    "log": unary("log"),
    "rsqrt": unary("rsqrt"),
    "reciprocal": unary("recip"),
    "bitwise_and": bitwise("and"),
    "bitwise_or": bitwise("or"),
    "bitwise_xor": bitwise("xor"),
    "bitwise_not": bitwise("not"),
    **{f"compare_{mode.lower()}": comparison(mode) for mode in ("EQ", "NE", "LT", "LE", "GT", "GE")},
    "select": select,
    "round_even": rounding("CAST_RINT"),
    "round_away": rounding("CAST_ROUND"),
    "floor": rounding("CAST_FLOOR"),
    "ceil": rounding("CAST_CEIL"),
    "clamp": clamp,
    "cast": cast,
    "bitcast": bitcast,
    "reduce_sum": reduction("sum"),
    "reduce_prod": reduction("prod"),
    "reduce_max": reduction("max"),
    "reduce_min": reduction("min"),
    "argmax": position("argmax"),
    "argmin": position("argmin"),
    "dot_general": dot_general,
    **dict.fromkeys((*MOVES, "slice", "extract_patches"), copy),
    "take": take,
}
