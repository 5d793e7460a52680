"""Helpers that the type rules of several ops share. Every function raises Violation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate

from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import INDEX, SI64, DType
from ptir_tools.core.ir import SEGMENTS, Op, OpDef, Operand, operand_type
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import Any
from ptir_tools.core.types import UNKNOWN, Shape, TensorType, Type, same_extents
from ptir_tools.core.violations import Place, Violation, attribute, operand, require, result
from ptir_tools.core.violations import group as members
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.pipes import producers
from ptir_tools.dialects.pto.types import EventType, MemRefType, ScalarType, TileType, tile, type_text

Types = tuple[Type, ...]
EVENT_IDS = 8  # per ordered pair of pipes


def is_index(t: Type) -> bool:
    """Whether `t` is `index`, of a value or of a literal operand."""
    return isinstance(t, (ScalarType, TensorType)) and t.dtype is INDEX and not getattr(t, "shape", ())


def place(what: str, *entry: int) -> Place:
    """The part of an op's text for a name in messages: `operand 1`, `the result`, or the name of a group, or an entry of it."""
    kind, _, number = what.partition(" ")
    if kind == "operand" and number.isdecimal():
        return operand(int(number))
    return result() if kind == "the" else members("steps" if what == "strides" else what, *entry)


def need_indices(what: str, types: Types, count: int) -> None:
    """Check that there are `count` operands of type index."""
    entries = "1 entry" if len(types) == 1 else f"{len(types)} entries"
    require(len(types) == count, "RankMismatch", f"{what} has {entries} for rank {count}", at=place(what))
    for i, t in enumerate(types):
        require(is_index(t), "TypeMismatch", f"{what}[{i}] is {type_text(t)}, expected index", at=place(what, i))


def need_tile(what: str, t: Type) -> TileType:
    """`t` as a tile type."""
    if not isinstance(t, TileType):
        raise Violation("TypeMismatch", f"{what} is {type_text(t)}, expected a tile", at=place(what))
    return t


def need_memref(what: str, t: Type) -> MemRefType:
    """`t` as a memref type."""
    if not isinstance(t, MemRefType):
        raise Violation("TypeMismatch", f"{what} is {type_text(t)}, expected a memref", at=place(what))
    return t


def need_scalar(what: str, t: Type, dtype: DType) -> None:
    """Check that `t` is the scalar type `dtype`; there is no promotion."""
    wrong = f"{what} is {type_text(t)}, expected {type_text_of(dtype)}"
    require(
        isinstance(t, ScalarType) and t.dtype is dtype,
        "TypeMismatch",
        wrong,
        help="there is no implicit conversion",
        at=place(what),
    )


def core_number(*, to: Type) -> Type:
    """The number of a core, an i64."""
    need_scalar("the result", to, SI64)
    return to


def type_text_of(dtype: DType) -> str:
    """How PTO spells an element type."""
    return type_text(TensorType(dtype, ()))


def same_shape(what: str, a: TileType, b: TileType) -> None:
    """Check that rank and shape of `a` equal those of `b`, the op's type."""
    message = f"{what} is {type_text(a)}, of rank {a.rank}; expected rank {b.rank} as {type_text(b)}"
    require(a.rank == b.rank, "RankMismatch", message, at=place(what))
    equal = same_extents(a.shape, b.shape)
    require(equal, "ShapeMismatch", f"{what} is {type_text(a)}; expected the shape of {type_text(b)}", at=place(what))


def same_dtype(what: str, a: TileType, b: TileType) -> None:
    """Check that the element types are equal."""
    message = f"{what} is {type_text(a)}; expected elements of {type_text_of(b.dtype)}"
    require(a.dtype is b.dtype, "TypeMismatch", message, at=place(what))


def one_of(name: str, value: str, known: Iterable[str]) -> None:
    """Check that the attribute `name` has one of the known values."""
    if value not in known:
        meant, listed = nearest(value, known), ", ".join(known)
        at = value if meant else attribute(name)
        raise Violation("TypeMismatch", f"{name} is {value}, expected one of {listed}", at=at, instead=meant)


def same_tiles(to: TileType, *tiles: Type, first: int = 0) -> None:
    """Check that every operand from index `first` on is a tile of the rank, shape and element type of `to`. Where the operands
    agree with each other, `to` is reported."""
    found = [need_tile(f"operand {i}", t) for i, t in enumerate(tiles, first)]
    kinds = {(t.dtype, t.shape) for t in found}
    if len(found) > 1 and len(kinds) == 1 and not (found[0].dtype is to.dtype and same_extents(found[0].shape, to.shape)):
        have = found[0]
        meant = type_text(tile(have.dtype, have.shape, to.loc, to.layout, to.valid))
        code = "RankMismatch" if have.rank != to.rank else "TypeMismatch" if have.dtype is not to.dtype else "ShapeMismatch"
        message = f"the operands are {type_text(have)}, the op's type is {type_text(to)}"
        raise Violation(code, message, at=result(), instead=meant, was=type_text(to))
    for i, t in enumerate(found, first):
        same_shape(f"operand {i}", t, to)
        same_dtype(f"operand {i}", t, to)


def rank_two(what: str, t: TileType) -> None:
    """Check that the tile has rank 2."""
    require(t.rank == 2, "RankMismatch", f"{what} is {type_text(t)}, of rank {t.rank}; expected rank 2", at=place(what))


def at_loc(what: str, t: TileType, *locs: str) -> None:
    """Check that the tile is in one of `locs`, if its type states a location."""
    expected = " or ".join(locs)
    require(t.loc is None or t.loc in locs, "InvalidLocation", f"{what} must be loc={expected}, is {t.loc}", at=place(what))


def same_extent(what: str, a: object, b: object, at: Place | None = None) -> None:
    """Check that two extents are equal; an unknown one fits any."""
    require(a == b or UNKNOWN in (a, b), "ShapeMismatch", f"{what}: {a} and {b} differ", at=at)


# The clauses that all tile ops share


COUNTS = "counts"  # the one result that is no tile: a vector


def rule(short: str, check: Callable[..., object], *results: str) -> Callable[..., Types]:
    """The type rule of the tile op called `short`: `check(*operand types, **attributes)`, then `valid`, `wait` and the event.

    The operand groups end with `valid` and `wait`; `results` name the attributes that hold the result types.
    """

    def infer(*groups: Any, event: EventType | None, **attrs: Any) -> Types:
        *operands, valid, wait = groups
        made = tuple(attrs[r] for r in results)
        for i, (name, t) in enumerate(zip(results, made, strict=True)):
            is_tile = isinstance(t, TileType) or name == COUNTS
            require(is_tile, "TypeMismatch", f"the op's type is {type_text(t)}, expected a tile", at=result(i))
        check(*operands, **attrs)
        if valid:
            need_indices("valid", valid, made[0].rank if made else operands[0].rank)
        need_events(wait)
        for t in (*made, *operands):
            if isinstance(t, TileType) and t.valid is not None:
                check_declared(t)
        if event is None:
            return made
        check_event(event, producers(OPS[f"pto.{short}"], operands[0] if operands else None))
        return (*made, event)

    return infer


def need_events(wait: Types) -> None:
    """Check that every waited value is an event."""
    for i, t in enumerate(wait):
        message = f"wait(…) names a {type_text(t)}, expected an event"
        require(isinstance(t, EventType), "TypeMismatch", message, at=members("wait", i))


def valid_shape(op: Op) -> Shape:
    """The shape that the `valid` extents of a tile op belong to."""
    to = op.attr("to") if "to" in op.defn.attr_index else operand_type(op.operands[0])
    assert isinstance(to, TileType)
    return to.shape


def group(op: Op, name: str) -> Sequence[Operand]:
    """The operands of the variable group `name`."""
    d = op.defn
    lengths = op.attrs[-1] if SEGMENTS in d.attr_index else d.lengths(op.attrs, len(op.operands)) or ()
    return op.operands[_parts(d, lengths).get(name, _NOTHING)]


_NOTHING = slice(0)


@cache
def _parts(d: OpDef, lengths: tuple[int, ...]) -> dict[str, slice]:
    """Where the operands of each group are."""
    ends = accumulate(lengths)
    return {g.name: slice(end - n, end) for g, n, end in zip(d.groups, lengths, ends, strict=False)}


def check_tile_op(op: Op) -> None:
    """Check that 0 < valid <= shape where both are known."""
    if valid := group(op, "valid"):
        check_valid(valid_shape(op), [constant(x) for x in valid])


def check_event(event: EventType, producers: tuple[str, ...]) -> None:
    """Check that the event has an opcode of its op and an existing id."""
    if event.eid is not None:
        good = event.eid < EVENT_IDS
        require(good, "EventIdsExhausted", f"eid is {event.eid}, a pair of pipes has 0 to {EVENT_IDS - 1}", at=attribute("eid"))
    if event.producer is not None and event.producer not in producers:
        message = f"the event's producer is {event.producer}, the op is {producers[0]}"
        meant = f"#pto.op<{producers[0]}>"
        help = f"write {meant}"
        raise Violation("EventProducerMismatch", message, help=help, at=f"#pto.op<{event.producer}>", instead=meant)


def check_declared(t: TileType) -> None:
    """Check that the `valid` of a tile type has one number per dimension, each within the shape."""
    assert t.valid is not None
    same = len(t.valid) == t.rank
    require(same, "RankMismatch", f"valid of {type_text(t)} has {len(t.valid)} entries for rank {t.rank}")
    check_valid(t.shape, [v if isinstance(v, int) else None for v in t.valid])


def check_valid(shape: Shape, valid: Sequence[int | None]) -> None:
    """Check that 0 < valid[d] <= shape[d] wherever both are known."""
    for d, (v, extent) in enumerate(zip(valid, shape, strict=False)):
        if v is None:
            continue
        limit = extent if isinstance(extent, int) else v
        require(0 < v <= limit, "InvalidValid", f"valid[{d}] is {v}, must be in 1..{limit}", at=attribute("valid", d))
