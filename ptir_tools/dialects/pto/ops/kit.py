"""How tile ops that compute are declared and run: on the valid region, undefined elements staying undefined."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import Many, op
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import ASYNC, ELEMENTWISE, WAITS, Op, Trait
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation, require, result
from ptir_tools.dialects.pto import needs, rules
from ptir_tools.dialects.pto.machine import Box, Tile, intersection, issue, resolve
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.types import EventType, TileType, type_text

TILE = ASYNC | WAITS
DIVISIONS = ("div", "rem", "fmod", "divs", "rems", "fmods")
Made = tuple[Array, Any]  # the valid region of a result: its values, and which of them are defined
Compute = Callable[..., Made]


def compute(
    context: Context,
    to: TileType,
    event: EventType | None,
    valid: Sequence[Any],
    wait: Sequence[Any],
    tiles: Sequence[Tile],
    fn: Compute,
    default: Box | None = None,
) -> Any:
    """Issue an op that makes one tile: `fn(result's valid region)` gives its elements and which of them are defined.

    Without `valid` the region is `default`, else what is valid in all of `tiles`.
    """
    made = Tile(to, resolve(to, valid, intersection(tiles) if default is None else default))
    return issue(context, wait, event, lambda: made.fill(*fn(made.box)), made)


def elements(fn: n.Function, to: TileType, region: tuple[slice, ...], *parts: Tile | Array) -> Made:
    """`fn` of corresponding elements, rounded once to the result's dtype. A scalar meets every element.

    An integer division by zero counts only where the operands are defined.
    """
    tiles = [p for p in parts if isinstance(p, Tile)]
    defined: Any = np.all([t.defined[region] for t in tiles], axis=0) if tiles else np.True_
    return where_defined(fn, to, defined, *(p.values[region] if isinstance(p, Tile) else np.asarray(p) for p in parts))


def where_defined(fn: n.Function, to: TileType, defined: Any, *values: Array) -> Made:
    """As `elements`, of arrays that are broadcast, and where they are defined."""
    try:
        return n.apply(fn, to.dtype, *values), defined
    except Violation:
        if np.all(defined):
            raise
    made = np.zeros(defined.shape, values[0].dtype)
    made[defined] = n.apply(fn, to.dtype, *(np.broadcast_to(v, defined.shape)[defined] for v in values))
    return made, defined


# Declaring families


def unary(name: str, fn: n.Function, infer: Callable[..., Any], text: str) -> None:
    """Declare an elementwise op of one tile."""

    def body(x: Tile, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context) -> Any:
        return compute(context, to, event, valid, wait, [x], lambda box: elements(fn, to, box, x))

    declare(name, body, infer, text)


def binary(name: str, fn: n.Function, infer: Callable[..., Any], text: str) -> None:
    """Declare an elementwise op of two tiles."""

    def body(a: Tile, b: Tile, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context) -> Any:
        return compute(context, to, event, valid, wait, [a, b], lambda box: elements(fn, to, box, a, b))

    declare(name, body, infer, text, fails=needs.quotient_fails if name in DIVISIONS else needs.valid_fails)


def ternary(
    name: str, fn: n.Function, infer: Callable[..., Any], text: str, generate: Callable[..., object] | None = None
) -> None:
    """Declare an elementwise op of three tiles, of which one may be a scalar."""

    def body(
        a: Tile, b: Any, c: Any, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context
    ) -> Any:
        tiles = [x for x in (a, b, c) if isinstance(x, Tile)]
        return compute(context, to, event, valid, wait, tiles, lambda box: elements(fn, to, box, a, b, c))

    declare(name, body, infer, text, generate=generate)


def with_scalar(name: str, fn: n.Function, infer: Callable[..., Any], text: str) -> None:
    """Declare an elementwise op of a tile and a scalar, in either order."""

    def body(a: Any, b: Any, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context) -> Any:
        tiles = [x for x in (a, b) if isinstance(x, Tile)]
        return compute(context, to, event, valid, wait, tiles, lambda box: elements(fn, to, box, a, b))

    declare(name, body, infer, text, fails=needs.quotient_fails if name in DIVISIONS else needs.valid_fails)


def declare(
    name: str,
    body: Callable[..., Any],
    infer: Callable[..., Any],
    text: str | None = None,
    traits: Trait = ELEMENTWISE,
    generate: Callable[..., object] | None = None,
    cost: Callable[[Op], Any] | None = None,
    fails: Callable[[Op], bool] = needs.valid_fails,
    check: Callable[[Op], None] = rules.check_tile_op,
) -> None:
    """Declare a tile op whose only result is `to`; `infer` is its rule for the operands, `text` the manual of a body that has
    no docstring of its own. `generate(choices, *operand types)` draws attributes, as a dict; or, where types must fit each other
    in ways that few do, those of the operands and of the result, as a tuple."""
    body.__doc__ = f"{text or inspect.getdoc(body)} PTO IR 4.4."
    op(
        f"pto.tile.{name}",
        infer=rules.rule(f"tile.{name}", infer, "to"),
        traits=TILE | traits,
        check=check,
        asks=needs.VALID,
        generate=generate,
        cost=cost,
        fails=fails,
    )(body)


# Rules of families


def same(*tiles: Type, to: TileType, **_: object) -> None:
    """All operands have the rank, shape and element type of the result."""
    rules.same_tiles(to, *tiles)


def floats(*tiles: Type, to: TileType, **_: object) -> None:
    """As `same`, of floats."""
    rules.same_tiles(to, *tiles)
    require(to.dtype.is_float, "TypeMismatch", f"the op's type is {type_text(to)}, expected floats", at=result())


def integers(*tiles: Type, to: TileType, **_: object) -> None:
    """As `same`, of integers."""
    rules.same_tiles(to, *tiles)
    require(to.dtype.is_integer, "TypeMismatch", f"the op's type is {type_text(to)}, expected integers", at=result())


def tile_scalar(a: Type, b: Type, *, to: TileType) -> None:
    """A tile and a scalar of its element type, in either order; nothing is promoted."""
    tile, scalar = (a, b) if isinstance(a, TileType) else (b, a)
    rules.same_tiles(to, tile)
    rules.need_scalar("the scalar", scalar, to.dtype)


def tile_scalar_tile(a: Type, b: Type, c: Type, *, to: TileType) -> None:
    """Two tiles of the result's type, and between them a scalar of its elements."""
    rules.same_tiles(to, a, c)
    rules.need_scalar("operand 1", b, to.dtype)


def tile_tile_scalar(a: Type, b: Type, c: Type, *, to: TileType) -> None:
    """Two tiles of the result's type, then a scalar of its elements."""
    rules.same_tiles(to, a, b)
    rules.need_scalar("operand 2", c, to.dtype)


def tile_scalar_integers(a: Type, b: Type, *, to: TileType) -> None:
    """As `tile_scalar`, of integers."""
    tile_scalar(a, b, to=to)
    require(to.dtype.is_integer, "TypeMismatch", f"the op's type is {type_text(to)}, expected integers", at=result())


def tile_scalar_floats(a: Type, b: Type, *, to: TileType) -> None:
    """As `tile_scalar`, of floats."""
    tile_scalar(a, b, to=to)
    require(to.dtype.is_float, "TypeMismatch", f"the op's type is {type_text(to)}, expected floats", at=result())
