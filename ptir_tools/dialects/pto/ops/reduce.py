"""Reductions of rows and columns, expansions, scalar broadcast, sequences. Rank 2 throughout.

f16 and bf16 accumulate in f32 and are rounded once; sums go left to right, top to bottom.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays, costs
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import always
from ptir_tools.core.dtypes import SI32
from ptir_tools.core.extremes import MAXIMUM, MINIMUM
from ptir_tools.core.ir import Op, Trait
from ptir_tools.core.lazy import np
from ptir_tools.core.types import UNKNOWN, Type
from ptir_tools.core.violations import require, result
from ptir_tools.dialects.pto import elements, needs, rules
from ptir_tools.dialects.pto.affine import number
from ptir_tools.dialects.pto.facts import Extents, Facts, Numbers, Tiles, ValidRule
from ptir_tools.dialects.pto.memory.info import extents
from ptir_tools.dialects.pto.memory.spare import like_first, row_starts
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.run.machine import Machine, Tile
from ptir_tools.dialects.pto.targets import Target
from ptir_tools.dialects.pto.types import TileType, type_text
from ptir_tools.dialects.pto.valid import less


def accumulated(x: Array, axis: int, product: bool = False) -> Array:
    """Sum (or product) along `axis` in order, in f32 for floats; integers wrap."""
    step = np.multiply if product else np.add
    wide = x if n.is_integer(x) else x.astype(np.float32)
    return np.take(step.accumulate(wide, axis=axis, dtype=wide.dtype), [-1], axis=axis)


def position(x: Array, axis: int, largest: bool) -> Array:
    """The first position of a largest (or smallest) element along `axis`; a NaN counts as largest (or smallest)."""
    exact = x if n.is_integer(x) else x.astype(np.float64)
    return np.asarray((np.argmax if largest else np.argmin)(exact, axis=axis, keepdims=True))


_REDUCTIONS: dict[str, tuple[n.Function, str]] = {
    "sum": (accumulated, "Sum of each {}"),
    "prod": (lambda x, axis: accumulated(x, axis, product=True), "Product of each {}"),
    "max": (lambda x, axis: MAXIMUM.reduce(x, axis, keepdims=True), "Largest element (a NaN wins) of each {}"),
    "min": (lambda x, axis: MINIMUM.reduce(x, axis, keepdims=True), "Smallest element (a NaN wins) of each {}"),
    "argmax": (lambda x, axis: position(x, axis, True), "The {other} of the first largest element of each {} (a NaN wins)"),
    "argmin": (lambda x, axis: position(x, axis, False), "The {other} of the first smallest element of each {} (a NaN wins)"),
}


def reduction_types(axis: int, to_places: bool) -> kit.Rule:
    """The rule of a reduction along `axis` to elements, or with `to_places` to positions. The other extent stays, this one
    becomes 1."""

    def infer(x: Type, *, to: TileType, **_: object) -> None:
        tile = rules.need_tile("operand 0", x)
        rules.rank_two("operand 0", tile)
        rules.rank_two("the result", to)
        if to_places:
            require(to.dtype.is_integer, "TypeMismatch", f"the result is {type_text(to)}, expected integers")
        else:
            rules.same_dtype("operand 0", tile, to)
        message = f"the result is {type_text(to)}: its reduced extent is 1, not {to.shape[axis]}"
        require(to.shape[axis] in (1, UNKNOWN), "ShapeMismatch", message, at=result())
        rules.same_extent("the extent that stays", tile.shape[1 - axis], to.shape[1 - axis])

    return infer


def _one_left(axis: int) -> ValidRule:
    return lambda op, tiles, shape, value: tuple([number(1) if d == axis else e for d, e in enumerate(tiles[0])])


PER_COLUMN = {"prod": elements.PRODUCTS}


def _reduction(kind: str, axis: int, fn: n.Function, text: str) -> None:
    name = f"{('col', 'row')[axis]}{kind}"

    def plain(x: Tile, *, to: TileType) -> kit.Filling:
        def made(box: kit.Window, m: Machine) -> kit.Made:
            region = tuple(slice(0, x.valid[d]) if d == axis else box[d] for d in (0, 1))
            return arrays.narrow(fn(m.settle(x, region, name), axis=axis), to.dtype), True

        return made

    def in_pairs(x: Tile, *, to: TileType, isBinary: bool = False) -> kit.Filling:
        return plain(x, to=to)

    body, to_places = in_pairs if name == "colsum" else plain, kind.startswith("arg")
    facts = Facts(
        elements=elements.FLOATS if to_places else elements.COMMON if axis else PER_COLUMN.get(kind, elements.WIDENED),
        work="column fold" if not axis else "row sum" if kind == "sum" else "row fold",
        spare=row_starts if axis and not to_places else like_first if to_places or kind == "sum" else None,
        valid=_one_left(axis),
    )
    kit.declare(
        name, body, reduction_types(axis, to_places), text, facts=facts, traits=Trait.NONE, cost=costs.reads, fails=always
    )


for _kind, (_fn, _text) in _REDUCTIONS.items():
    _reduction(_kind, 1, _fn, f"{_text.format('row', other='column')}: an R x 1 tile.")
    _reduction(_kind, 0, _fn, f"{_text.format('column', other='row')}: a 1 x C tile.")


# Expansions


def expansion_types(axis: int) -> kit.Rule:
    """The rule of an expansion along `axis`: a column (axis 1) or a row (axis 0) to the result's shape."""

    def infer(*operands: Type, to: TileType) -> None:
        rules.rank_two("the result", to)
        *full, vector = (rules.need_tile(f"operand {i}", t) for i, t in enumerate(operands))
        rules.same_tiles(to, *full)
        rules.rank_two("the vector", vector)
        rules.same_dtype("the vector", vector, to)
        rules.same_extent("the vector's extent", vector.shape[axis], 1)
        rules.same_extent("vector and result", vector.shape[1 - axis], to.shape[1 - axis])

    return infer


def spread(vector: Tile, axis: int, region: tuple[slice, ...]) -> tuple[Array, Array]:
    """The vector and its definedness, to be broadcast over `region`."""
    part = tuple(slice(0, 1) if d == axis else region[d] for d in (0, 1))
    return vector.values[part], vector.defined[part]


def _expansion(name: str, axis: int, text: str) -> None:
    def body(x: Tile, *, to: TileType) -> kit.Filling:
        return lambda box, _: spread(x, axis, box)

    def valid_along_axis(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
        return tuple([shape[d] if d == axis else e for d, e in enumerate(tiles[0])])

    facts = Facts(elements=elements.SMALL, work="" if axis else "copy", reuses=(0,), valid=valid_along_axis)
    kit.declare(name, body, expansion_types(axis), text, facts=facts, traits=Trait.NONE)


def _expanded_binary(name: str, axis: int, fn: n.Function, text: str, work: str) -> None:
    def body(a: Tile, b: Tile, *, to: TileType) -> kit.Filling:
        def made(box: kit.Window, m: Machine) -> kit.Made:
            values, defined = spread(b, axis, box)
            return kit.where_defined(fn, to, a.defined[box] & defined, a.values[box], values)

        return made

    def valid_off_axis(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
        own, vector = tiles
        return tuple([e if d == axis else less(e, v, n) for d, (e, v, n) in enumerate(zip(own, vector, shape, strict=True))])

    fails = needs.quotient_fails if fn is n.divide else needs.valid_fails
    kinds = elements.on("f16 f32", "i8 i16 i32 u8 u16 u32 bf16") if fn is n.divide else elements.WIDENED
    kinds = elements.FLOATS if name.endswith("expdif") else kinds
    facts = Facts(elements=kinds, work=work, reuses=(0,), scratch=axis == 1, valid=valid_off_axis)
    kit.declare(name, body, expansion_types(axis), text, facts=facts, traits=Trait.NONE, cost=costs.results, fails=fails)


_COMBINED: dict[str, tuple[n.Function, str, str]] = {
    "add": (lambda a, b: a + b, "plus", ""),
    "sub": (lambda a, b: a - b, "minus", ""),
    "mul": (lambda a, b: a * b, "times", ""),
    "div": (n.divide, "over", " quotient"),
    "max": (MAXIMUM, "or, where larger,", ""),
    "min": (MINIMUM, "or, where smaller,", ""),
    "expdif": (lambda a, b: np.exp(a - b), "minus, then exponentiated:", " exponential"),
}
_expansion("rowexpand", 1, "Each row filled with the element of an R x 1 tile.")
_expansion("colexpand", 0, "Each column filled with the element of a 1 x C tile.")
for _name, (_fn, _text, _more) in _COMBINED.items():
    _expanded_binary(f"rowexpand{_name}", 1, _fn, f"A tile {_text} an R x 1 tile, repeated along the rows.", f"column{_more}")
    _expanded_binary(f"colexpand{_name}", 0, _fn, f"A tile {_text} a 1 x C tile, repeated along the columns.", f"row{_more}")


# A tile from a scalar


def expands_types(x: Type, *, to: TileType, **_: object) -> None:
    """A scalar of the result's element type."""
    rules.need_tile("the result", to)
    rules.need_scalar("operand 0", x, to.dtype)


def expands(x: object, *, to: TileType) -> kit.Filling:
    """A tile filled with a scalar."""
    return lambda box, _: (np.asarray(x), True)


kit.declare("expands", expands, expands_types, facts=Facts(elements=elements.WIDENED, work="fill", turns=True), traits=Trait.NONE)


def tri_types(x: Type, *, to: TileType, upper: bool) -> None:
    """An i32 scalar and a result of rank 2."""
    rules.rank_two("the result", to)
    rules.need_scalar("operand 0", x, SI32)


def tri(x: Array, *, to: TileType, upper: bool = False) -> kit.Filling:
    """A triangle of ones: 1 where `column <= row + x`, with `upper` where `column >= row + x`, else 0."""

    def made(box: kit.Window, m: Machine) -> kit.Made:
        rows, columns = np.ogrid[box]
        edge = rows + int(x)
        return (columns >= edge if upper else columns <= edge).astype(np.int8), True

    return made


kit.declare("tri", tri, tri_types, facts=Facts(elements=elements.on("i16 i32 u16 u32 f16 f32", "i8 u8 bf16")), traits=Trait.NONE)


def ci_types(x: Type, *, to: TileType, descending: bool) -> None:
    """One row of integers; the scalar has its element type."""
    expands_types(x, to=to)
    require(to.dtype.is_integer, "TypeMismatch", f"the op's type is {type_text(to)}, expected integers", at=result())
    require(
        all(d == 1 for d in to.shape[:-1]), "ShapeMismatch", f"the op's type is {type_text(to)}, expected one row", at=result()
    )


def ci(x: Array, *, to: TileType, descending: bool = False) -> kit.Filling:
    """One row `s, s + 1, …`, or with `descending` `s, s - 1, …`."""

    def made(box: kit.Window, m: Machine) -> kit.Made:
        count = np.arange(box[-1].stop, dtype=np.int64) * (-1 if descending else 1)
        return arrays.narrow(np.int64(int(x)) + count, to.dtype), True

    return made


def check_length(op: Op, tiles: Tiles, target: Target) -> None:
    """Check that a sequence has more than one element: the library has no form for one."""
    _, columns = extents(tiles[op.results[0]])
    require(columns != 1, "IllegalOnTarget", f"ci makes more than one element on {target.name}")


kit.declare("ci", ci, ci_types, facts=Facts(pipe="S", elements=elements.COUNTED, legal=check_length), traits=Trait.NONE)
