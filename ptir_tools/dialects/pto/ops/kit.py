"""Declaration and execution of tile ops that compute. They compute on the valid region, and undefined elements stay undefined."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import B, Many, op
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import ASYNC, ELEMENTWISE, WAITS, Asks, Body, Op, Trait
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation, require, result
from ptir_tools.dialects.pto import needs, rules
from ptir_tools.dialects.pto.facts import VECTOR, Facts
from ptir_tools.dialects.pto.ops import numerics as n
from ptir_tools.dialects.pto.run.machine import Machine, Results, Tile, issue, machine, made_region
from ptir_tools.dialects.pto.types import EventType, TileType, type_text

TILE = ASYNC | WAITS
DIVISIONS = (n.divide, n.remainder, n.floor_remainder)
Window = tuple[slice, ...]
Made = tuple[Array, Array | bool]  # the valid region of a result: its values, and which of them are defined
Filling = Callable[[Window, Machine], Made]  # how a result is made
Part = Tile | Array  # a scalar is an array without axes
Rule = Callable[..., None]  # of operand types, and attributes by name; raises Violation


def elements(fn: n.Function, to: TileType, *parts: Part) -> Filling:
    """`fn` of corresponding elements, rounded once to the result's dtype; a scalar is broadcast.

    An integer division by zero counts only where the operands are defined.
    """
    tiles = [p for p in parts if isinstance(p, Tile)]

    def made(window: Window, _: Machine) -> Made:
        defined = np.all([t.defined[window] for t in tiles], axis=0) if tiles else np.asarray(True)
        return where_defined(fn, to, defined, *(p.values[window] if isinstance(p, Tile) else np.asarray(p) for p in parts))

    return made


def where_defined(fn: n.Function, to: TileType, defined: Array, *values: Array) -> Made:
    """As `elements`, of broadcast arrays, with the mask of defined elements."""
    try:
        return n.apply(fn, to.dtype, *values), defined
    except Violation:
        if np.all(defined):
            raise
    made = np.zeros(defined.shape, values[0].dtype)
    made[defined] = n.apply(fn, to.dtype, *(np.broadcast_to(v, defined.shape)[defined] for v in values))
    return made, defined


# Declaring families


def unary(name: str, fn: n.Function, infer: Rule, text: str, facts: Facts = VECTOR) -> None:
    """Declare an elementwise op of one tile."""

    def body(x: Tile, *, to: TileType) -> Filling:
        return elements(fn, to, x)

    declare(name, body, infer, text, facts=facts)


def binary(name: str, fn: n.Function, infer: Rule, text: str, facts: Facts = VECTOR) -> None:
    """Declare an elementwise op of two tiles, or of a tile and a scalar in either order."""

    def body(a: Part, b: Part, *, to: TileType) -> Filling:
        return elements(fn, to, a, b)

    declare(name, body, infer, text, facts=facts, fails=needs.quotient_fails if fn in DIVISIONS else needs.valid_fails)


def ternary(
    name: str, fn: n.Function, infer: Rule, text: str, facts: Facts = VECTOR, generate: Callable[..., object] | None = None
) -> None:
    """Declare an elementwise op of three tiles, of which one may be a scalar."""

    def body(a: Part, b: Part, c: Part, *, to: TileType) -> Filling:
        return elements(fn, to, a, b, c)

    declare(name, body, infer, text, facts=facts, generate=generate)


def follows(valid: Many, wait: Many, *, event: EventType | None = None, context: Context) -> None:
    """The parameters of every tile op after its own ones."""


def tile_op(
    name: str,
    infer: Rule,
    *results: str,
    facts: Facts,
    traits: Trait = Trait.NONE,
    check: Callable[[Op], None] | None = rules.check_tile_op,
    asks: Asks = needs.VALID,
    generate: Callable[..., object] | None = None,
    cost: Callable[[Op], object] | None = None,
    fails: Callable[[Op], bool] | None = None,
    signature: tuple[Body, ...] = (),
) -> Callable[[B], B]:
    """Declare a tile op by its whole body, as `core.declare.op` does. `infer` is the type rule of its own operands and
    attributes; `results` name the attributes that are the types of its results."""
    rule = rules.rule(f"tile.{name}", infer, *results)
    return op(
        f"pto.tile.{name}", infer=rule, traits=TILE | traits, check=check, asks=asks, generate=generate, cost=cost, fails=fails,
        own=facts, signature=signature,
    )  # fmt: skip


def declare(
    name: str,
    fn: Callable[..., Filling],
    infer: Rule,
    text: str | None = None,
    *,
    facts: Facts = VECTOR,
    traits: Trait = ELEMENTWISE,
    generate: Callable[..., object] | None = None,
    cost: Callable[[Op], object] | None = None,
    fails: Callable[[Op], bool] = needs.valid_fails,
    check: Callable[[Op], None] = rules.check_tile_op,
    asks: Asks = needs.VALID,
    source: str = " PTO IR 4.4.",
) -> None:
    """Declare a tile op with the single result `to`. `fn` computes it; its parameters are the op's own operands and
    attributes. `infer` is the type rule, and `text` the manual when `fn` has no docstring.

    `generate(choices, *operand types)` draws attributes, as a dict. Where few types fit each other, it draws the types of the
    operands and the result, as a tuple.
    """

    def body(*operands: Many, to: TileType, event: EventType | None = None, context: Context, **attrs: object) -> Results:
        *own, _, wait = operands
        made_by = fn(*own, to=to, **attrs)
        made = Tile(to, made_region(context, to))
        return issue(context, wait, event, lambda: made.fill(*made_by(made.box, machine(context))), made)

    body.__doc__ = f"{text or inspect.getdoc(fn)}{source}"
    declaring = tile_op(
        name, infer, "to", facts=facts, traits=traits, check=check, asks=asks, generate=generate, cost=cost, fails=fails,
        signature=(fn, follows),
    )  # fmt: skip
    declaring(body)


# Rules of families


def of(kind: str, rule: Rule) -> Rule:
    """As `rule`, for results of floats or of integers."""

    def checked(*operands: Type, to: TileType, **attrs: object) -> None:
        rule(*operands, to=to, **attrs)
        good = to.dtype.is_float if kind == "floats" else to.dtype.is_integer
        require(good, "TypeMismatch", f"the op's type is {type_text(to)}, expected {kind}", at=result())

    return checked


def same(*tiles: Type, to: TileType, **_: object) -> None:
    """All operands have the rank, shape and element type of the result."""
    rules.same_tiles(to, *tiles)


def tile_scalar(a: Type, b: Type, *, to: TileType) -> None:
    """A tile and a scalar of its element type, in either order; there is no promotion."""
    tile, scalar = (a, b) if isinstance(a, TileType) else (b, a)
    rules.same_tiles(to, tile)
    rules.need_scalar(f"operand {int(tile is a)}", scalar, to.dtype)


def scalar_at(place: int) -> Rule:
    """Tiles of the result's type, except operand `place`: a scalar of its elements."""

    def rule(*operands: Type, to: TileType) -> None:
        rules.same_tiles(to, *operands[:place], *operands[place + 1 :])
        rules.need_scalar(f"operand {place}", operands[place], to.dtype)

    return rule


floats, integers = of("floats", same), of("integers", same)
