"""Elementwise ops on the vector pipe: tile-tile, tile-scalar, compare, select, convert, partial."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import Many
from ptir_tools.core.dtypes import F16, F32, I1, SI8, SI32, UI8
from ptir_tools.core.evaluate import Context
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import ELEMENTWISE, Op
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Type
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto import elements, rules
from ptir_tools.dialects.pto.facts import Extents, Facts, Form, Numbers, Tiles
from ptir_tools.dialects.pto.memory.spare import like_first, mask_and_block, one_block, two_rows
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.ops.scalar import dtype_of
from ptir_tools.dialects.pto.run.machine import Machine, Results, Tile, issue, made_region
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import EventType, TileType, scalar, tile, type_text
from ptir_tools.dialects.pto.valid import both, either

_WIDENED, _COMMON, _FLOATS = (
    Facts(elements=elements.WIDENED),
    Facts(elements=elements.COMMON),
    Facts(elements=elements.FLOATS),
)
_BITS, _PRODUCTS = Facts(elements=elements.BITS), Facts(elements=elements.PRODUCTS)
_SHIFTS, _SHIFTS_ALIKE = Facts(elements=elements.SHIFTED), Facts(elements=elements.SHIFTED_ALIKE)
_ROOT = Facts(elements=elements.FLOATS, work="root")
_INVERSE = Facts(elements=elements.FLOATS, work="inverse", reuses=())
_INVERSE_ROOT = Facts(elements=elements.FLOATS, work="inverse root", reuses=())
_RATIONAL = Facts(elements=elements.on("f32", "f16 i16 i32 u16 u32"), work="quotient", reuses=())
_POWER = Facts(elements=elements.POWERS, work="power", spare=like_first)
_BITS_APART = Facts(elements=elements.BITS, reuses=())
_FLOATS_OVER = Facts(elements=elements.FLOATS, over=0)
_QUOTIENT = Facts(elements=elements.on("f16 f32", "i16 i32 u16 u32"), work="quotient")
_REMAINDER = Facts(elements=elements.on("i32 f32", "i16 u16 u32 f16"), work="quotient", spare=two_rows)
_BINARY: dict[str, tuple[n.Function, kit.Rule, str, Facts]] = {
    "add": (lambda a, b: a + b, kit.same, "Sum of two tiles, element by element.", _WIDENED),
    "sub": (lambda a, b: a - b, kit.same, "Difference of two tiles.", _WIDENED),
    "mul": (lambda a, b: a * b, kit.same, "Product of two tiles.", _PRODUCTS),
    "div": (n.divide, kit.same, "Quotient of two tiles; integers truncate, and by zero is a run-time error.", _QUOTIENT),
    "max": (MAXIMUM, kit.same, "The larger of two elements, where 0.0 is above -0.0; a NaN wins.", _WIDENED),
    "min": (MINIMUM, kit.same, "The smaller of two elements, where -0.0 is below 0.0; a NaN wins.", _WIDENED),
    "rem": (n.floor_remainder, kit.same, "Remainder with the sign of the divisor.", _REMAINDER),
    "fmod": (n.remainder, kit.same, "Remainder with the sign of the dividend.", _RATIONAL),
    "pow": (lambda a, b: np.power(a, b), kit.floats, "Power of two floats.", _POWER),
    "and": (lambda a, b: a & b, kit.integers, "Bitwise and.", _BITS),
    "or": (lambda a, b: a | b, kit.integers, "Bitwise or.", _BITS),
    "xor": (lambda a, b: a ^ b, kit.integers, "Bitwise exclusive or.", Facts(elements=elements.BITS, spare=like_first)),
    "shl": (n.shift_left, kit.integers, "Shift left.", _SHIFTS),
    "shr": (n.shift_right, kit.integers, "Shift right, arithmetic for signed elements.", _SHIFTS),
    "subrelu": (lambda a, b: n.relu(a - b), kit.same, "`a - b` where that is positive, else 0; NaN stays.", _FLOATS),
    "prelu": (
        lambda x, slope: np.where(x > 0, x, slope * x),
        kit.floats,
        "`x` where positive, else `slope * x`.",
        Facts(elements=elements.FLOATS, spare=mask_and_block),
    ),
}
_UNARY: dict[str, tuple[n.Function, kit.Rule, str, Facts]] = {
    "exp": (lambda x: np.exp(x), kit.floats, "Exponential.", _ROOT),
    "sqrt": (lambda x: np.sqrt(x), kit.floats, "Square root; of a negative number NaN.", _ROOT),
    "rsqrt": (lambda x: 1 / np.sqrt(x), kit.floats, "Reciprocal of the square root.", _INVERSE_ROOT),
    "log": (lambda x: np.log(x), kit.floats, "Natural logarithm.", _ROOT),
    "recip": (lambda x: 1 / x, kit.floats, "Reciprocal.", _INVERSE),
    "abs": (lambda x: np.abs(x), kit.same, "Absolute value; the smallest integer wraps.", _FLOATS),
    "neg": (lambda x: -x, kit.same, "Negation; the smallest integer wraps.", _COMMON),
    "relu": (n.relu, kit.same, "`x` where positive, else 0; NaN stays.", Facts(elements=elements.on("i32 f16 f32"))),
    "not": (lambda x: ~x, kit.integers, "Bitwise complement.", Facts(elements=elements.on("i16", "i8 i32 u8 u16 u32"))),
}


def _sum(first: str, *reuses: int) -> Facts:
    """The facts of a sum of three: in C++ `first`, then an addition, which reads the last operand when the result is written."""
    return Facts(elements=elements.WIDENED, work="two sums", reuses=reuses, form=Form(family="sum", name=first))


def axpy_types(a: Type, b: Type, c: Type, *, to: TileType) -> None:
    """Two tiles of the result's shape and a scalar; the second tile and the scalar may be f16 where the others are f32."""
    source = rules.need_tile("operand 1", b)
    rules.same_tiles(to, a)
    if (source.dtype, to.dtype) == (F16, F32):
        rules.same_shape("operand 1", source, to)
    else:
        rules.same_tiles(to, b, first=1)
    rules.need_scalar("operand 2", c, source.dtype)


_TERNARY: dict[str, tuple[n.Function, kit.Rule, str, Facts]] = {
    "addc": (lambda a, b, c: a + b + c, kit.same, "`a + b + c`.", _sum("TADD", 0, 1)),
    "subc": (lambda a, b, c: a - b + c, kit.same, "`a - b + c`.", _sum("TSUB", 0, 1)),
    "addsc": (lambda a, b, c: a + b + c, kit.scalar_at(1), "`a + b + c`, where `b` is a scalar.", _sum("TADDS", 0)),
    "subsc": (lambda a, b, c: a - b + c, kit.scalar_at(1), "`a - b + c`, where `b` is a scalar.", _sum("TSUBS", 0)),
    "axpy": (
        lambda a, b, c: a + b * c,
        axpy_types,
        "`a + b * c`, where `c` is a scalar; written over `a`. `b` and `c` may be f16 where `a` is f32.",
        _FLOATS_OVER,
    ),
    "muladddst": (lambda a, b, c: a + b * c, kit.same, "`a + b * c`, written over `a`.", _FLOATS_OVER),
    "fusedmuladd": (lambda a, b, c: a * b + c, kit.same, "`a * b + c`, written over `a`.", _FLOATS_OVER),
    "fusedmuladdrelu": (
        lambda a, b, c: n.relu(a * b + c),
        kit.same,
        "`a * b + c` where that is positive, else 0; NaN stays; written over `a`.",
        _FLOATS_OVER,
    ),
}
_INTEGERS = kit.of("integers", kit.tile_scalar)
_SCALAR: dict[str, tuple[n.Function, kit.Rule, str, Facts]] = {
    "adds": (lambda a, b: a + b, kit.tile_scalar, "Tile plus scalar.", _WIDENED),
    "subs": (lambda a, b: a - b, kit.tile_scalar, "Tile minus scalar.", _WIDENED),
    "muls": (lambda a, b: a * b, kit.tile_scalar, "Tile times scalar.", _PRODUCTS),
    "divs": (
        n.divide,
        kit.tile_scalar,
        "Tile over scalar, or scalar over tile, in the order of the operands.",
        Facts(elements=elements.on("i16 i32 f16 f32", "u16 u32"), work="inverse", scalar_first=True),
    ),
    "maxs": (MAXIMUM, kit.tile_scalar, "The larger of element and scalar; a NaN wins.", _WIDENED),
    "mins": (MINIMUM, kit.tile_scalar, "The smaller of element and scalar; a NaN wins.", _WIDENED),
    "rems": (n.floor_remainder, kit.tile_scalar, "Remainder with the sign of the divisor.", _REMAINDER),
    "fmods": (n.remainder, kit.tile_scalar, "Remainder with the sign of the dividend.", _RATIONAL),
    "pows": (
        lambda a, b: np.power(a, b),
        kit.of("floats", kit.tile_scalar),
        "Power of tile and scalar, in the order of the operands.",
        _POWER,
    ),
    "ands": (lambda a, b: a & b, _INTEGERS, "Bitwise and with a scalar.", _BITS_APART),
    "ors": (lambda a, b: a | b, _INTEGERS, "Bitwise or with a scalar.", _BITS_APART),
    "xors": (
        lambda a, b: a ^ b,
        _INTEGERS,
        "Bitwise exclusive or with a scalar.",
        Facts(elements=elements.BITS, reuses=(), spare=like_first),
    ),
    "shls": (n.shift_left, _INTEGERS, "Shift left by a scalar.", _SHIFTS_ALIKE),
    "shrs": (n.shift_right, _INTEGERS, "Shift right by a scalar.", _SHIFTS_ALIKE),
    "lrelu": (lambda x, slope: np.where(x > 0, x, slope * x), kit.tile_scalar, "`x` where positive, else `slope * x`.", _FLOATS),
}
for _declare, _table in (
    (kit.binary, _BINARY),
    (kit.unary, _UNARY),
    (kit.ternary, _TERNARY),
    (kit.binary, _SCALAR),
):
    for _name, (_fn, _infer, _text, _facts) in _table.items():
        _declare(_name, _fn, _infer, _text, _facts)


def dequantize_types(a: Type, b: Type, scale: Type, *, to: TileType) -> None:
    """Two tiles of i32 of the result's shape, an f32 scalar, a result of floats."""
    for i, t in enumerate((a, b)):
        tile = rules.need_tile(f"operand {i}", t)
        rules.same_shape(f"operand {i}", tile, to)
        require(tile.dtype is SI32, "TypeMismatch", f"operand {i} is {type_text(tile)}, expected elements of i32")
    rules.need_scalar("operand 2", scale, F32)
    require(to.dtype.is_float, "TypeMismatch", f"the op's type is {type_text(to)}, expected floats")


def check_halves(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that the result has elements of f16."""
    made = tiles[op.results[0]].dtype
    require(made is F16, "IllegalOnTarget", f"adddeqrelu on {target.name} makes f16, not {rules.type_text_of(made)}")


kit.ternary(
    "adddeqrelu",
    lambda a, b, scale: n.relu((a + b) * np.asarray(scale, np.float64)),
    dequantize_types,
    "`(a + b) * scale` of integers, as floats, where that is positive, else 0; the sum wraps.",
    Facts(elements=elements.on("i32", but="i32"), spare=like_first, legal=check_halves),
    lambda choices: (tile(SI32, (8, 8)), tile(SI32, (8, 8)), scalar(F32), tile(choices.one((F16, F32)), (8, 8))),
)


# Compare and select: a mask is 0 or 1 per element


def mask_of(what: str, t: Type, shape_of: TileType) -> None:
    """A tile of i1, i8 or u8 with the shape of `shape_of`."""
    mask = rules.need_tile(what, t)
    rules.same_shape(what, mask, shape_of)
    good = mask.dtype in (I1, SI8, UI8)
    require(good, "TypeMismatch", f"{what} is {type_text(mask)}, expected a mask of i1, i8 or u8")


def compare_types(a: Type, b: Type, *, to: TileType, cmpMode: str) -> None:
    """Two tiles of one shape and element type, or a tile and a scalar; the result is a mask of that shape."""
    tile = rules.need_tile("operand 0", a)
    if isinstance(b, TileType):
        rules.same_tiles(tile, b, first=1)
    else:
        rules.need_scalar("operand 1", b, tile.dtype)
    mask_of("the result", to, tile)
    rules.one_of("cmpMode", cmpMode, n.COMPARISONS)


def _compare(name: str, on_a3: str, text: str) -> None:
    def body(a: Tile, b: kit.Part, *, to: TileType, cmpMode: str = "EQ") -> kit.Filling:
        fn = n.COMPARISONS[cmpMode]
        return kit.elements(lambda x, y: np.asarray(fn(x, y)).astype(np.int8), to, a, b)

    kit.declare(
        name,
        body,
        compare_types,
        text,
        facts=Facts(elements=elements.on(on_a3, "i8 i16 u8 u16 u32 bf16"), work="comparison", form=Form(packs=True)),
        generate=lambda choices, *_: {"cmpMode": choices.one(tuple(n.COMPARISONS))},
    )


_compare("cmp", "i32 f16 f32", "Compare two tiles by `cmpMode` (EQ, NE, LT, LE, GT, GE): a mask of 0 and 1, one element each.")
_compare("cmps", "i32 f16 f32", "Compare a tile with a scalar by `cmpMode`.")


def select_types(mask: Type, a: Type, b: Type, *, to: TileType) -> None:
    """A mask, two tiles of the result's type."""
    rules.same_tiles(to, a, b)
    mask_of("operand 0", mask, to)


def _sel(m: Array, a: Array, b: Array) -> Array:
    return np.where(m != 0, a, b)


_SELECTED = elements.on("i16 i32 u16 u32 f16 bf16 f32", "i8 u8")
_CHOICE = Facts(elements=_SELECTED, masked=True, reuses=(1, 2), work="choice", spare=one_block, form=Form(family="select"))
kit.ternary("sel", _sel, select_types, "`a` where the mask is set, else `b`.", _CHOICE)


def scalar_select_types(a: Type, b: Type, mode: Type, *, to: TileType) -> None:
    """Two tiles of the result's type and an integer scalar."""
    rules.same_tiles(to, a, b)
    good = not dtype_of("operand 2", mode).is_float
    require(good, "TypeMismatch", f"the select mode is {type_text(mode)}, expected an integer")


def sels(a: Tile, b: Tile, mode: Array, *, to: TileType) -> kit.Filling:
    """The whole tile `a` when the scalar is 1, else `b`."""
    return kit.elements(lambda x: x, to, a if int(mode) == 1 else b)


_SELECTED_WHOLE = elements.on("i16 i32 u16 u32 f16 f32 bf16", "i8 u8", but="bf16")
kit.declare("sels", sels, scalar_select_types, facts=Facts(elements=_SELECTED_WHOLE, work="choice", form=Form(family="choice")))


# Convert


def convert_types(x: Type, *, to: TileType, rmode: str) -> None:
    """A tile of the result's shape."""
    rules.same_shape("operand 0", rules.need_tile("operand 0", x), to)
    rules.one_of("rmode", rmode, n.ROUNDING)


def cvt(x: Tile, *, to: TileType, rmode: str = "CAST_RINT") -> kit.Filling:
    """Convert elements. Floats to integers round by `rmode` (CAST_RINT, ROUND, FLOOR, CEIL, TRUNC, ODD) and saturate; NaN
    gives 0. Integers to narrower integers wrap. Any other result that is a float is rounded to nearest even."""

    def made(box: kit.Window, m: Machine) -> kit.Made:
        return n.convert(x.values[box], x.type.dtype, to.dtype, rmode), x.defined[box]

    return made


kit.declare(
    "cvt",
    cvt,
    convert_types,
    facts=Facts(elements=elements.MEMORY, converts=True, work="conversion"),
    generate=lambda choices, *_: {"rmode": choices.one(tuple(n.ROUNDING))},
)


# Partial: where only one operand is valid, it is copied


def _anywhere(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    return either(tiles[0], tiles[1], shape)


def _of_pairs(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    return either(both(tiles[0], tiles[1], shape), both(tiles[2], tiles[3], shape), shape)


def check_order(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that an index has as many bits as its number, or 32."""
    number, order = (tiles[v].dtype for v in op.results[:2])
    message = f"the index of {rules.type_text_of(number)} has {number.bits} or 32 bits on {target.name}, not {order.bits}"
    require(order.bits in (number.bits, 32), "IllegalOnTarget", message)


_PAIRED = Facts(elements=elements.FLOATS, valid=_of_pairs, legal=check_order, form=Form(family="extreme"))


def _partial(name: str, fn: n.Function, text: str) -> None:
    def body(a: Tile, b: Tile, *, to: TileType) -> kit.Filling:
        sums = kit.elements(fn, to, a, b)

        def made(box: kit.Window, m: Machine) -> kit.Made:
            both, _ = sums(box, m)
            in_a, in_b = in_valid(a, box), in_valid(b, box)
            values = np.where(in_a & in_b, both, np.where(in_a, a.values[box], b.values[box]))
            return values, (in_a | in_b) & (a.defined[box] | ~in_a) & (b.defined[box] | ~in_b)

        return made

    kit.declare(name, body, kit.same, text, facts=Facts(elements=elements.WIDENED, valid=_anywhere))


def in_valid(tile: Tile, box: tuple[slice, ...]) -> Array:
    """Whether each element of `box` is in the valid region of `tile`."""
    mask = np.zeros(tile.values.shape, np.bool_)
    mask[tile.box] = True
    return mask[box]


def _arg(name: str, better: n.Function, text: str) -> None:
    def body(
        a: Tile,
        ai: Tile,
        b: Tile,
        bi: Tile,
        valid: Many,
        wait: Many,
        *,
        to: TileType,
        order: TileType,
        event: EventType | None = None,
        context: Context,
    ) -> Results:
        region = made_region(context, to)
        values, places = Tile(to, region), Tile(order, region)

        def action() -> None:
            at = values.box
            in_a, in_b = in_valid(a, at) & in_valid(ai, at), in_valid(b, at) & in_valid(bi, at)
            x, y = (t.values[at].astype(np.float64) for t in (a, b))
            second = in_b & (~in_a | better(y, x) | (np.isnan(y) & ~np.isnan(x)))
            known = np.where(second, b.defined[at] & bi.defined[at], a.defined[at] & ai.defined[at])
            known &= (in_a | in_b) & (~in_a | ~in_b | (a.defined[at] & b.defined[at]))
            values.fill(np.where(second, b.values[at], a.values[at]), known)
            places.fill(np.where(second, bi.values[at], ai.values[at]), known)

        return issue(context, wait, event, action, values, places)

    body.__doc__ = f"{text} of `a` and `b`, and its index of `ai` or `bi`; of equal ones that of `a`. PTO IR 4.4."
    kit.tile_op(name, arg_types, "to", "order", facts=_PAIRED, traits=ELEMENTWISE)(body)


def arg_types(a: Type, ai: Type, b: Type, bi: Type, *, to: TileType, order: TileType) -> None:
    """Two tiles of the result's type, each with a tile of integers of its shape."""
    rules.same_tiles(to, a, b)
    rules.same_tiles(order, ai, bi)
    rules.same_shape("the index", order, to)
    require(order.dtype.is_integer, "TypeMismatch", f"the index is {type_text(order)}, expected integers")


_arg("partargmax", lambda y, x: y > x, "The larger where both operands are valid, the valid one where one is,")
_arg("partargmin", lambda y, x: y < x, "The smaller where both operands are valid, the valid one where one is,")
_partial("partadd", lambda a, b: a + b, "Sum where both operands are valid, the valid one where one is.")
_partial("partmul", lambda a, b: a * b, "Product where both operands are valid, the valid one where one is.")
_partial("partmax", MAXIMUM, "The larger where both operands are valid, the valid one where one is.")
_partial("partmin", MINIMUM, "The smaller where both operands are valid, the valid one where one is.")
