"""The valid region of a tile before the program runs: an expression per dimension, from the ops that make the tile.

An extent that does not follow from them is an unknown of its own: a new value each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ptir_tools.core.ir import ELEMENTWISE, Op, OpDef, Operand, Value
from ptir_tools.core.types import Shape
from ptir_tools.dialects.pto import rules
from ptir_tools.dialects.pto.affine import Linear, number
from ptir_tools.dialects.pto.info import OVER, PRODUCTS, fixed
from ptir_tools.dialects.pto.types import INDEX_TYPE, TileType

Extents = tuple[Linear, ...]
Numbers = Callable[[Operand], Linear]  # what an index is
_Rule = Callable[[Op, Sequence[Extents], Extents, Numbers], Extents]  # of the tile operands and the result's shape


def unknown() -> Linear:
    """An extent of which nothing is known."""
    return Linear(0, {Value(INDEX_TYPE): 1})


def of_shape(shape: Shape) -> Extents:
    """A shape as expressions."""
    return tuple([number(d) if isinstance(d, int) else unknown() for d in shape])


def stated(op: Op, t: TileType, value: Numbers) -> Extents | None:
    """What an op says is valid in a tile of type `t`, or else the type."""
    if valid := rules.group(op, "valid"):
        return tuple([value(x) for x in valid])
    return declared(t)


def declared(t: TileType) -> Extents | None:
    """What a type says is valid, in numbers."""
    return of_shape(t.valid) if t.valid is not None and all(isinstance(d, int) for d in t.valid) else None


def valid_of(op: Op, tiles: Sequence[Extents], value: Numbers) -> Extents:
    """What is valid in the result of a tile op; `tiles` are the extents of its tile operands."""
    to = op.results[0].type
    assert isinstance(to, TileType)
    if (found := stated(op, to, value)) is not None:
        return found
    whole = of_shape(to.shape)
    found = _RULES.get(op.defn.short, _everywhere if _meets(op.defn) else _open)(op, tiles, whole, value)
    return found if len(found) == len(whole) else _open(op, tiles, whole, value)


@cache
def _meets(d: OpDef) -> bool:
    """Whether a result of the op is by default valid where all its tiles are."""
    return d.short.startswith("tile.mov.") or ELEMENTWISE in d.traits


def less(a: Linear, b: Linear, whole: Linear) -> Linear:
    """The smaller of two extents, which are at most `whole`."""
    if b in (a, whole):
        return a
    if a == whole:
        return b
    return number(min(a.const, b.const)) if not a.terms and not b.terms else unknown()


def _more(a: Linear, b: Linear, whole: Linear) -> Linear:
    if a in (b, whole):
        return a
    if b == whole:
        return b
    return number(max(a.const, b.const)) if not a.terms and not b.terms else unknown()


def _both(a: Extents, b: Extents, whole: Extents) -> Extents:
    return tuple([less(*x) for x in zip(a, b, whole, strict=False)])


def _either(a: Extents, b: Extents, whole: Extents) -> Extents:
    return tuple([_more(*x) for x in zip(a, b, whole, strict=False)])


# What is valid by default: the same as in the bodies of the ops


def _whole(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    return whole


def _open(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    return tuple([unknown() for _ in whole])


def _everywhere(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    found = tiles[0] if tiles else whole
    for t in tiles[1:]:
        found = _both(found, t, whole)
    return found


def _as_operand(k: int) -> _Rule:
    return lambda op, tiles, whole, value: tiles[k]


def _anywhere(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    return _either(tiles[0], tiles[1], whole)


def _of_pairs(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    return _either(_both(tiles[0], tiles[1], whole), _both(tiles[2], tiles[3], whole), whole)


def _product(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    places, _ = fixed(op.defn.short)
    return tiles[places.index("Left")][0], tiles[places.index("Right")][1]


def _reduced(axis: int) -> _Rule:
    return lambda op, tiles, whole, value: tuple([number(1) if d == axis else e for d, e in enumerate(tiles[0])])


def _expanded(axis: int) -> _Rule:
    return lambda op, tiles, whole, value: tuple([whole[d] if d == axis else e for d, e in enumerate(tiles[0])])


def _expanded_pair(axis: int) -> _Rule:
    def rule(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
        a, b = tiles
        return tuple([x if d == axis else less(x, y, w) for d, (x, y, w) in enumerate(zip(a, b, whole, strict=True))])

    return rule


def _turned(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    return tiles[0][::-1]


def _joined(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    (rows, left), (others, right) = tiles
    return less(rows, others, whole[0]), left + right


def _cut(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    starts = map(value, rules.group(op, "indices"))
    return tuple([_least(w, e - s) for w, e, s in zip(whole, tiles[0], starts, strict=True)])


def _put(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    starts, into = map(value, rules.group(op, "indices")), tiles[OVER[op.defn.short]]
    return _either(into, tuple([s + e for s, e in zip(starts, tiles[0], strict=True)]), whole)


def _gathered(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    if len(tiles) > 1:
        return tiles[1]
    rows, columns = tiles[0]
    bits = op.attr("maskPattern")[:0:-1]
    if columns.terms or whole[1].terms:
        return rows, unknown()
    return rows, _least(whole[1], number(sum(bits[j % len(bits)] == "1" for j in range(columns.const))))


def _gathered_blocks(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    rows, blocks = tiles[1]
    return rows, _least(whole[1], blocks * (_BLOCK // op.attr("to").dtype.size))


def _merged(op: Op, tiles: Sequence[Extents], whole: Extents, value: Numbers) -> Extents:
    length = number(0)
    for t in tiles:
        length = length + t[-1]
    return (*[number(1) for _ in whole[1:]], _least(whole[-1], length))


def _least(a: Linear, b: Linear) -> Linear:
    return number(min(a.const, b.const)) if not a.terms and not b.terms else a if a == b else unknown()


_BLOCK = 32  # bytes that gatherb moves at once
_PAIRS = ("add", "sub", "mul", "div", "max", "min", "expdif")
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("tile.load", "tile.expands", "tile.tri", "tile.ci", "tile.reshape", "tile.scatter"), _whole),
    **dict.fromkeys(("tile.fillpad", "tile.fillpad.inplace", "tile.fillpad.expand"), _whole),
    **dict.fromkeys(("tile.mov.fp", "tile.sort32"), _as_operand(0)),
    **{f"tile.part{x}": _anywhere for x in ("add", "mul", "max", "min")},
    **{f"tile.partarg{x}": _of_pairs for x in ("max", "min")},
    **dict.fromkeys(PRODUCTS, _product),
    **{f"tile.row{x}": _reduced(1) for x in ("sum", "max", "min", "prod", "argmax", "argmin")},
    **{f"tile.col{x}": _reduced(0) for x in ("sum", "max", "min", "prod", "argmax", "argmin")},
    **{f"tile.{a}expand": _expanded(k) for k, a in ((1, "row"), (0, "col"))},
    **{f"tile.{a}expand{x}": _expanded_pair(k) for k, a in ((1, "row"), (0, "col")) for x in _PAIRS},
    "tile.trans": _turned,
    "tile.concat": _joined,
    "tile.extract": _cut,
    **dict.fromkeys(("tile.insert", "tile.insert.fp"), _put),
    "tile.gather": _gathered,
    "tile.gatherb": _gathered_blocks,
    "tile.mrgsort": _merged,
}
