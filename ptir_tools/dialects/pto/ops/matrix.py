"""Matrix products (PTO IR 6.3): f32 (or wrapping i32) from zero in ascending k, the accumulator or bias added last."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial

from ptir_tools.core import costs
from ptir_tools.core.arrays import Array
from ptir_tools.core.choices import Choices
from ptir_tools.core.declare import always
from ptir_tools.core.dtypes import F16, F32, FP8_E4M3, FP8_E5M2, SI8, SI32, UI8
from ptir_tools.core.ir import Op, Trait, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation, operand, require, result
from ptir_tools.dialects.pto import rules
from ptir_tools.dialects.pto.facts import Facts, Form, Tiles, ValidRule, facts
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.run.machine import Machine, Tile
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import TileType, tile, type_text


def product_types(places: Sequence[str], *operands: Type, to: TileType) -> None:
    """Tiles in `places`, of rank 2: Left MxK, Right KxN, and the result MxN in Acc; i8 by i8 gives i32, floats give f32. An
    accumulator has the result's type, a Bias is a row of its elements. With scales, the factors are 8-bit floats, and each has an
    exponent of u8 for every BLOCK elements along K."""
    names = {place: f"operand {i}" for i, place in enumerate(places)}
    tiles = {place: rules.need_tile(names[place], t) for place, t in zip(places, operands, strict=True)}
    for what, t, place in (*((names[p], t, p) for p, t in tiles.items()), ("the result", to, "Acc")):
        rules.rank_two(what, t)
        rules.at_loc(what, t, place)
    if "Acc" in tiles:
        rules.same_tiles(to, tiles["Acc"])
    left, right = tiles["Left"], tiles["Right"]
    rules.same_extent("K of the operands", left.shape[1], right.shape[0], rules.place(names["Right"]))
    rules.same_extent(f"M of {names['Left']} and result", left.shape[0], to.shape[0], result())
    rules.same_extent(f"N of {names['Right']} and result", right.shape[1], to.shape[1], result())
    wants = F32 if left.dtype.is_float else SI32
    agree = left.dtype.is_float == right.dtype.is_float and to.dtype is wants
    shown = f"{type_text(left)} by {type_text(right)} to {type_text(to)}"
    require(agree, "TypeMismatch", f"{shown}: floats accumulate in f32, integers in i32", at=result())
    if (row := tiles.get("Bias")) is not None:
        rules.same_dtype(names["Bias"], row, to)
        rules.same_extent("rows of the bias", row.shape[0], 1, rules.place(names["Bias"]))
        rules.same_extent("N of bias and result", row.shape[1], to.shape[1], rules.place(names["Bias"]))
    for place, factor, kept in (("Left", left, 0), ("Right", right, 1)) if "ScaleLeft" in tiles else ():
        good, (what, scale) = factor.dtype.is_float and factor.dtype.bits == 8, (names[f"Scale{place}"], tiles[f"Scale{place}"])
        require(good, "TypeMismatch", f"{names[place]} is {type_text(factor)}, expected floats of 8 bits")
        count = factor.shape[1 - kept]
        whole = not isinstance(count, int) or count % GRANULE == 0
        require(whole, "ShapeMismatch", f"K is {count}, must be a multiple of {GRANULE}")
        require(scale.dtype is UI8, "TypeMismatch", f"{what} is {type_text(scale)}, expected exponents of u8")
        rules.same_extent(f"{what} and what it scales", scale.shape[kept], factor.shape[kept])
        blocks = count // BLOCK if isinstance(count, int) else count
        rules.same_extent(f"blocks of K in {what}", scale.shape[1 - kept], blocks)


def vector(places: Sequence[str], *operands: Type, to: TileType) -> None:
    """As `product_types`, for one row: M is 1."""
    product_types(places, *operands, to=to)
    rules.same_extent("M of a gemv", to.shape[0], 1)


_SCALED = ("Left", "ScaleLeft", "Right", "ScaleRight")
MATRIX_MAX = 4095  # m, k and n of a product


def check_product(op: Op, tiles: Tiles, target: Target) -> None:
    """Check the element types, extents and locations of the operands against the target."""
    places = facts(op).takes
    types = [tiles[x] for x in op.operands if isinstance(x, Value) and x in tiles]
    a, b = (types[places.index(place)] for place in ("Left", "Right"))
    if "ScaleLeft" in places and not target.capacity.get("ScaleLeft"):
        name = op.defn.short.removeprefix("tile.")
        raise Violation("IllegalOnTarget", f"{name}: {target.name} has no products of blocks that share an exponent")
    if (pair := (DTYPE_TEXT[a.dtype], DTYPE_TEXT[b.dtype])) not in target.products:
        known = ", ".join(sorted(f"{x} x {y}" for x, y in target.products))
        raise Violation("IllegalOnTarget", f"{target.name} multiplies {known}; not {pair[0]} x {pair[1]}")
    for what, extent in (("m", a.shape[0]), ("k", a.shape[1]), ("n", b.shape[1])):
        small = not isinstance(extent, int) or extent <= MATRIX_MAX
        require(small, "IllegalOnTarget", f"{what} is {extent}, at most {MATRIX_MAX} on {target.name}")
    for i, (t, place) in enumerate(zip(types, places, strict=True)):
        require(t.loc == place, "InvalidLocation", f"operand {i} must be loc={place}, is {t.loc}", at=operand(i))


BLOCK = 32  # elements along K that share an exponent
GRANULE = 64  # what K of a product of scaled blocks is a multiple of


def exponents(m: Machine, t: Tile, axis: int, shape: tuple[int, ...]) -> Array:
    """The powers of two that scale the elements of `shape`: a byte `e` is 2 ** (e - 127), 255 is NaN."""
    need = tuple(-(-n // BLOCK) if d == axis else n for d, n in enumerate(shape))
    raw = m.settle(t, tuple(map(slice, need)), "matmul.mx").astype(np.int64)
    factors = np.where(raw == 255, np.nan, np.ldexp(1.0, raw - 127))
    return np.repeat(factors, BLOCK, axis)[tuple(map(slice, shape))]


def product(m: Machine, a: Tile, b: Tile, scales: tuple[Tile, Tile] | None = None) -> Array:
    """The product of the valid regions. Raises Violation("InvalidValid") when they differ in K."""
    if a.valid[1] != b.valid[0]:
        raise Violation("InvalidValid", f"K is {a.valid[1]} in operand 0 and {b.valid[0]} in operand 1")
    left, right = (m.settle(t, t.box, "matmul") for t in (a, b))
    shape = (a.valid[0], b.valid[1])
    if not a.type.dtype.is_float:
        exact: Array = left.astype(np.int32) @ right.astype(np.int32)
        return exact
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    if scales is not None:
        wide_left = wide_left * exponents(m, scales[0], 1, a.valid)
        wide_right = wide_right * exponents(m, scales[1], 0, b.valid)
    total = np.zeros(shape, np.float32)
    for k in range(a.valid[1]):  # a fused multiply-add per step: the product of two elements is exact in float64
        total = (total + wide_left[:, k : k + 1] * wide_right[k : k + 1]).astype(np.float32)
    return total


def _product(to: TileType, a: Tile, b: Tile, more: Tile | None = None, scales: tuple[Tile, Tile] | None = None) -> kit.Filling:
    """The product plus `more`: an accumulator, or one row added to all."""
    rows, columns = a.valid[0], b.valid[1]

    def made(box: kit.Window, m: Machine) -> kit.Made:
        values = np.zeros((box[0].stop, box[1].stop), np.int32 if to.dtype is SI32 else np.float32)
        region = (slice(0, min(rows, box[0].stop)), slice(0, min(columns, box[1].stop)))
        values[region] = product(m, a, b, scales)[region]
        defined = np.zeros(values.shape, np.bool_)
        defined[region] = True
        if more is None:
            return values, defined
        chosen = slice(0, 1) if more.values.shape[0] == 1 else region[0]
        term = m.settle(more, (chosen, region[1]), "matmul")
        values[region] = values[region] + term
        return values, defined

    return made


def _rows_and_columns(left: int, right: int) -> ValidRule:
    return lambda op, tiles, shape, value: (tiles[left][0], tiles[right][1])


def _summed(left: int) -> Callable[[Op], object]:
    """The cost of a product whose left operand has the number `left`."""
    return costs.products(lambda op: costs.shape_of(op, left)[1:])


def _types(places: Sequence[str], one_row: bool, choices: Choices, *_: Type) -> tuple[TileType, ...]:
    """Types of a product whose operands are in `places`, and of its result."""
    m, n = 1 if one_row else choices.one((1, 8, 16)), choices.one((1, 8, 32))
    k = 2 * BLOCK if "ScaleLeft" in places else choices.one((1, 8, 16))
    a, b = (choices.one((FP8_E4M3, FP8_E5M2)) for _ in range(2)) if "ScaleLeft" in places else [choices.one((F32, F16, SI8))] * 2
    acc = F32 if a.is_float else SI32
    types = {
        "Left": tile(a, (m, k), "Left"),
        "Right": tile(b, (k, n), "Right"),
        "ScaleLeft": tile(UI8, (m, k // BLOCK), "ScaleLeft"),
        "ScaleRight": tile(UI8, (k // BLOCK, n), "ScaleRight"),
        "Acc": tile(acc, (m, n), "Acc"),
        "Bias": tile(acc, (1, n), "Bias"),
    }
    return tuple(types[place] for place in (*places, "Acc"))


def _products(name: str, rule: Callable[..., None], more: str) -> None:
    """Declare the products called `name`, with the type rule `rule` of their places; `more` is appended to their manual."""

    def matmul(a: Tile, b: Tile, *, to: TileType) -> kit.Filling:
        """`a @ b` of Left and Right into Acc."""
        return _product(to, a, b)

    def matmul_acc(c: Tile, a: Tile, b: Tile, *, to: TileType) -> kit.Filling:
        """`c + a @ b`; the accumulator comes first."""
        return _product(to, a, b, c)

    def matmul_bias(a: Tile, b: Tile, bias: Tile, *, to: TileType) -> kit.Filling:
        """`a @ b` plus a row of bias for every row."""
        return _product(to, a, b, bias)

    def matmul_mx(a: Tile, sa: Tile, b: Tile, sb: Tile, *, to: TileType) -> kit.Filling:
        """`a @ b` of 8-bit floats that share an exponent by blocks of 32 along K: `sa` is M x K/32, `sb` is K/32 x N."""
        return _product(to, a, b, scales=(sa, sb))

    def matmul_mx_acc(c: Tile, a: Tile, sa: Tile, b: Tile, sb: Tile, *, to: TileType) -> kit.Filling:
        """`c + a @ b` of blocks that share an exponent; the accumulator comes first."""
        return _product(to, a, b, c, (sa, sb))

    def matmul_mx_bias(a: Tile, sa: Tile, b: Tile, sb: Tile, bias: Tile, *, to: TileType) -> kit.Filling:
        """`a @ b` of blocks that share an exponent, plus a row of bias for every row."""
        return _product(to, a, b, bias, (sa, sb))

    for kind, body, places in (
        ("", matmul, ("Left", "Right")),
        (".acc", matmul_acc, ("Acc", "Left", "Right")),
        (".bias", matmul_bias, ("Left", "Right", "Bias")),
        (".mx", matmul_mx, _SCALED),
        (".mx.acc", matmul_mx_acc, ("Acc", *_SCALED)),
        (".mx.bias", matmul_mx_bias, (*_SCALED, "Bias")),
    ):
        left = places.index("Left")
        text = f"{inspect.getdoc(body)}{more}"
        kit.declare(
            name + kind,
            body,
            partial(rule, places),
            text,
            facts=Facts(
                pipe="M",
                takes=places,
                gives=("Acc",),
                over=0 if places[0] == "Acc" else None,
                vector=False,
                legal=check_product,
                valid=_rows_and_columns(left, places.index("Right")),
                form=Form(name=f"T{name.upper()}_MX" if ".mx" in kind else "", accumulates=kind.endswith(".acc")),
            ),
            traits=Trait.NONE,
            cost=_summed(left),
            generate=partial(_types, places, name == "gemv"),
            fails=always,
        )


_products("matmul", product_types, "")
_products("gemv", vector, " M is 1.")
