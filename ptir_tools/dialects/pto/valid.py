"""The valid region of a tile: a linear expression per dimension, by the rule that the op declares.

A run evaluates the same rules on numbers. Statically, an extent that cannot be derived is a new unknown value.
"""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.ir import Op, Value
from ptir_tools.core.types import UNKNOWN, Dim, Shape
from ptir_tools.dialects.pto import rules
from ptir_tools.dialects.pto.affine import Linear, atom, number
from ptir_tools.dialects.pto.facts import Extents, Numbers, facts
from ptir_tools.dialects.pto.structure import tile_type
from ptir_tools.dialects.pto.types import INDEX_TYPE, TileType


class Extreme(Value):
    """The smaller of two expressions, or the larger, which is not known. Those of equal expressions are equal."""

    __slots__ = ("largest", "sides")

    def __init__(self, sides: tuple[Linear, Linear], largest: bool) -> None:
        super().__init__(INDEX_TYPE, "extreme")
        self.sides = sides
        self.largest = largest

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extreme) and self.largest == other.largest and self.sides == other.sides

    def __hash__(self) -> int:
        return hash((self.largest, self.sides))


def unknown() -> Linear:
    """An extent of which nothing is known."""
    return atom(Value(INDEX_TYPE))


def of_shape(shape: Shape) -> Extents:
    """A shape as expressions."""
    return tuple([number(d) if isinstance(d, int) else unknown() for d in shape])


def stated(op: Op, t: TileType, value: Numbers) -> Extents | None:
    """The valid region that an op states for a tile of type `t`, or else the one that the type states; None without either."""
    if valid := rules.group(op, "valid"):
        return tuple([value(x) for x in valid])
    return declared(t)


def declared(t: TileType) -> Extents | None:
    """The valid region that a type states, in numbers."""
    return of_shape(t.valid) if t.valid is not None and all(isinstance(d, int) for d in t.valid) else None


def valid_of(op: Op, tiles: Sequence[Extents], value: Numbers) -> Extents:
    """The valid region of the result of a tile op; `tiles` are the valid regions of its tile operands."""
    to = tile_type(op.results[0])
    if (found := stated(op, to, value)) is not None:
        return found
    shape = of_shape(to.shape)
    found = (facts(op).valid or everywhere)(op, tiles, shape, value)
    return found if len(found) == len(shape) else tuple([unknown() for _ in shape])


def static_of(op: Op, tiles: Sequence[Shape]) -> Shape | None:
    """As `valid_of`, in numbers, for the rules of most ops. None for other rules, and where the op or its type states the
    region."""
    to = tile_type(op.results[0])
    rule = facts(op).valid or everywhere
    if rule not in (everywhere, whole) or to.valid is not None or rules.group(op, "valid"):
        return None
    if rule is whole or not tiles:
        return to.shape
    if any(len(t) != to.rank for t in tiles):
        return None
    found = tiles[0]
    for t in tiles[1:]:
        found = tuple([_less(*x) for x in zip(found, t, to.shape, strict=True)])
    return found


def _less(a: Dim, b: Dim, extent: Dim) -> Dim:
    if b in (a, extent):
        return a
    if a == extent:
        return b
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else UNKNOWN


# Rules of many ops, and what rules are made of


def everywhere(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The intersection of the valid regions of all tile operands; the whole tile without any."""
    found = tiles[0] if tiles else shape
    for t in tiles[1:]:
        found = both(found, t, shape)
    return found


def whole(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The whole tile."""
    return shape


def first(op: Op, tiles: Sequence[Extents], shape: Extents, value: Numbers) -> Extents:
    """The valid region of the first tile operand."""
    return tiles[0]


def both(a: Extents, b: Extents, shape: Extents) -> Extents:
    """The intersection of two regions of a tile of `shape`."""
    return tuple([less(*x) for x in zip(a, b, shape, strict=False)])


def either(a: Extents, b: Extents, shape: Extents) -> Extents:
    """The smallest region that contains both."""
    return tuple([_more(*x) for x in zip(a, b, shape, strict=False)])


def less(a: Linear, b: Linear, extent: Linear) -> Linear:
    """The smaller of two extents, which are at most `extent`."""
    if b in (a, extent):
        return a
    return b if a == extent else least(a, b)


def _more(a: Linear, b: Linear, extent: Linear) -> Linear:
    if a in (b, extent):
        return a
    if b == extent:
        return b
    return extreme(a, b, largest=True)


def least(a: Linear, b: Linear) -> Linear:
    """The smaller of two extents of which nothing more is known."""
    return extreme(a, b, largest=False)


def extreme(a: Linear, b: Linear, *, largest: bool) -> Linear:
    """The smaller or the larger of two expressions."""
    apart = a - b
    if apart.terms:
        return atom(Extreme((a, b), largest))
    return a if (apart.const > 0) is largest else b
