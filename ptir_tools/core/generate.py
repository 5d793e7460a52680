"""Random programs, made from the declarations of their ops.

An op is drawn in two steps. First a draft: operands and the attributes that must be given. The op's own `generate` makes it or,
where it declares none, `plain`, which reads the signature and tries the type rule. Then every attribute that has a default may
leave it, for a candidate of its kind that the type rule accepts. A dialect adds its own parts in a subclass of `Growing`: fresh
values, and how attributes are drawn by name and by kind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod

from ptir_tools.core.builder import Builder
from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import (
    ELEMENTWISE,
    MANY,
    MAYBE,
    ONE,
    REQUIRED,
    SEGMENTS,
    Argument,
    Attr,
    Attribute,
    Element,
    Op,
    OpDef,
    Operand,
    Region,
    Value,
    create,
    operand_type,
)
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import Dim, TensorType, TupleType, Type, tensor
from ptir_tools.core.violations import Violation

T = TypeVar("T")

TRIES = 6  # drafts of one op before another op is chosen
ELEMENTS = 1024  # elements of a value, at most
REACH = 256  # an op reads one of the last values, so many


@dataclass(slots=True)
class Draft:
    """A draft of an op: one argument per operand group, attributes by name, regions."""

    groups: Sequence[Argument]
    attrs: dict[str, Attribute] = field(default_factory=dict)
    regions: Sequence[Region] = ()


def least(d: Dim) -> int:
    """An extent, or the smallest value of a symbol."""
    return d if isinstance(d, int) else 1


class Growing:
    """A block that is being generated. `values` are the operands that further ops may read: the last REACH, including elements
    of tuples."""

    def __init__(self, choices: Choices, program: Program, b: Builder, dtypes: Sequence[DType], ops: Sequence[OpDef]) -> None:
        self.choices = choices
        self.program = program
        self.b = b
        self.dtypes = dtypes
        self.ops = ops
        self.values: list[Operand] = []
        self.depth = 0  # of the enclosing regions
        self.faults = False  # whether a run may fail

    # ---- choices

    def chance(self, n: int, of: int) -> bool:
        """True `n` times in `of`."""
        return self.choices.number(1, of) <= n

    def one(self, known: Sequence[T]) -> T:
        """One of `known`."""
        return self.choices.one(known)

    def number(self, low: int, high: int) -> int:
        """An integer from `low` to `high`, both included."""
        return self.choices.number(low, high)

    def some(self, known: Sequence[T]) -> tuple[T, ...]:
        """Some of `known`, each once, in some order."""
        return tuple(self.choices.shuffled(known))[: self.number(0, len(known))]

    def extent(self) -> int:
        """A small extent, at times 1 or 0."""
        return 0 if self.chance(1, 20) else self.one((1, 2, 2, 3, 3, 4, 5))

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """The extents of a fresh value."""
        return tuple(self.extent() for _ in range(self.one((0, 1, 1, 2, 2, 3, 4)) if rank is None else rank))

    def axes(self, rank: int) -> tuple[int, ...]:
        """Some axes of a value of rank `rank`, a few of them negative."""
        return tuple(a - rank if self.chance(1, 6) else a for a in self.some(range(rank)))

    # ---- values

    def input(self, t: TensorType) -> Value:
        """A new input."""
        made = self.b.param(t, f"in{len(self.program.main.params)}")
        self.values.append(made)
        return made

    def type(self, x: Operand) -> TensorType:
        """The type of a tensor operand."""
        t = operand_type(x)
        assert isinstance(t, TensorType)
        return t

    def tensors(self, wanted: Callable[[TensorType], bool] = lambda t: True) -> list[Operand]:
        """The tensors whose type is `wanted`."""
        return [x for x in self.values if isinstance(t := operand_type(x), TensorType) and wanted(t)]

    def any(self, wanted: Callable[[TensorType], bool] = lambda t: True) -> Operand | None:
        """A tensor whose type is `wanted`, mostly a recent one; None if there is none."""
        tensors = self.tensors(wanted)
        if not tensors:
            return None
        return self.one(tensors[-6:]) if self.choices.flag() else self.one(tensors)

    def of_type(self, t: Type) -> Operand:
        """A value of type `t`: fresh if there is none yet, and at times otherwise."""
        known = [x for x in self.values if operand_type(x) is t]
        if isinstance(t, TensorType) and (not known or self.chance(1, 5)):
            return self.fresh(t)
        return self.one(known)

    def sibling(self, t: TensorType) -> Operand:
        """The second operand of an elementwise op for a first one of type `t`."""
        return self.of_type(t)

    def fresh(self, t: TensorType) -> Operand:
        """A new value of type `t`."""
        raise NotImplementedError

    def attribute(self, defn: OpDef, a: Attr, types: Sequence[TensorType], named: dict[str, Attribute]) -> Attribute:
        """A value of an attribute that must be given. Raises KeyError for one of an unknown name and kind."""
        raise NotImplementedError

    def candidates(self, a: Attr, default: object, types: Sequence[TensorType], named: dict[str, object]) -> Sequence[Attribute]:
        """Candidates instead of an attribute's default; the type rule decides which are valid."""
        raise NotImplementedError

    def settle(self, inferred: tuple[Type, ...]) -> tuple[Type, ...] | None:
        """The declared result types for the inferred ones; None if the program cannot have them."""
        return inferred

    # ---- ops

    def grow(self, steps: int) -> None:
        """Append about `steps` random ops."""
        for _ in range(steps):
            del self.values[:-REACH]
            self.step(self.one(self.ops))

    def step(self, defn: OpDef) -> Op | None:
        """Append an op of this declaration; None if no draft of it fits."""
        for _ in range(TRIES):
            draft = (defn.generate or plain)(self, defn)
            if isinstance(draft, Draft) and (result := self.append(defn, draft)) is not None:
                return result
        return None

    def append(self, defn: OpDef, draft: Draft) -> Op | None:
        """Append the op of `draft`, with some attributes other than their defaults; None if the type rule refuses it."""
        try:
            new = self.create(defn, draft)
        except Violation:
            return None
        for a in self.choices.shuffled([a for a in defn.attrs if a.name not in draft.attrs and a.name != SEGMENTS]):
            if self.choices.flag():
                new = self.varied(defn, draft, a, new)
        types = self.settle(tuple(v.type for v in new.results))
        if types is None or any(count(t) > ELEMENTS for t in types):
            return None
        for v, t in zip(new.results, types, strict=True):
            v.type, v.name = t, self.b.name()
            self.values.append(v)
            if isinstance(t, TupleType):
                self.values.extend(Element(v, i) for i in range(len(t.elements)))
        self.b.block.body.append(new)
        return new

    def varied(self, defn: OpDef, draft: Draft, a: Attr, result: Op) -> Op:
        """`result` with another value of the attribute `a` that the type rule accepts."""
        types = [t for x in result.operands if isinstance(t := operand_type(x), TensorType)]
        fits: list[tuple[Attribute, Op]] = []
        for value in self.candidates(a, result.attr(a.name), types, result.defn.named(result.attrs)):
            try:
                fits.append((value, self.create(defn, Draft(draft.groups, {**draft.attrs, a.name: value}, draft.regions))))
            except Violation:
                continue
        if not fits:
            return result
        value, new = self.one(fits)
        draft.attrs[a.name] = value
        return new

    def create(self, defn: OpDef, draft: Draft) -> Op:
        """The op of a draft. Raises Violation."""
        new = create(defn, draft.groups, draft.attrs, regions=draft.regions, types=())
        types = tuple(map(operand_type, new.operands))
        new.results = tuple(Value(t, "", new) for t in defn.result_types(types, new.attrs, new.regions))
        if defn.check is not None:
            defn.check(new)
        return new


def count(t: Type) -> int:
    """The number of elements of a value; a symbolic extent counts as 2."""
    if isinstance(t, TupleType):
        return sum(map(count, t.elements))
    return prod(d if isinstance(d, int) else 2 for d in t.shape) if isinstance(t, TensorType) else 0


def plain(g: Growing, defn: OpDef) -> Draft | None:
    """The default generator: operands that fit together, and attributes by name and kind."""
    groups = operands(g, defn)
    return None if groups is None else Draft(groups, required(g, defn, groups))


def required(g: Growing, defn: OpDef, groups: Sequence[Argument], **given: object) -> dict[str, object]:
    """The attributes without a default, in the order of the declaration; those in `given` are unchanged."""
    types = [g.type(x) for part in groups for x in ((part,) if isinstance(part, Operand) else part or ())]
    named = dict(given)
    for a in defn.attrs:
        if a.default is REQUIRED and a.name not in named and a.name != SEGMENTS:
            named[a.name] = g.attribute(defn, a, types, named)
    return named


def operands(g: Growing, defn: OpDef) -> list[Argument] | None:
    """One argument per group: of dtypes that an elementwise op accepts together, else values of one type."""
    if not defn.groups:
        return []
    if ELEMENTWISE in defn.traits and all(group.kind == ONE for group in defn.groups):
        alike = elementwise(g, defn)
        return None if alike is None else [*alike]
    first = g.any()
    if first is None:
        return None
    t = g.type(first)
    drawn: list[Argument] = []
    for group in defn.groups:
        if group.kind == MANY:
            drawn.append([g.of_type(t) for _ in range(g.number(1, 3))])
        elif group.kind == MAYBE:
            drawn.append(g.of_type(t) if g.choices.flag() else None)
        else:
            drawn.append(g.of_type(t) if drawn else first)
    return drawn


def elementwise(g: Growing, defn: OpDef) -> list[Operand] | None:
    """Operands of one shape, with dtypes that the op accepts."""
    known = combinations(defn, tuple(dict.fromkeys(g.dtypes))) if not defn.attrs else [(d,) * len(defn.groups) for d in g.dtypes]
    if not known:
        return None
    dtypes = g.one(known)
    if g.chance(2, 3) and (x := g.any(lambda t: any(row[0] is t.dtype for row in known))) is not None:
        dtypes = g.one([row for row in known if row[0] is g.type(x).dtype])
        shape = g.type(x).shape
    else:
        there = g.any()
        shape = g.type(there).shape if there is not None else g.shape()
        x = g.of_type(tensor(dtypes[0], shape))
    drawn = [x, *(g.sibling(tensor(d, shape)) for d in dtypes[1:])]
    if len(drawn) > 1 and shape and g.chance(1, 3):
        smaller = tuple(1 if g.choices.flag() else d for d in shape[g.number(0, len(shape) - 1) :])
        i = g.number(0, len(drawn) - 1)
        if _accepts(defn, tuple(tensor(d, smaller if k == i else shape) for k, d in enumerate(dtypes))):
            drawn[i] = g.of_type(tensor(dtypes[i], smaller))
    if len(set(dtypes)) == 1 and g.choices.flag():
        drawn = list(g.choices.shuffled(drawn))
    return drawn


@cache
def combinations(defn: OpDef, dtypes: tuple[DType, ...]) -> list[tuple[DType, ...]]:
    """The dtypes of operands of one shape that the type rule accepts together, at most two different ones."""
    n = len(defn.groups)
    rows = [(a,) * k + (b,) * (n - k) for a in dtypes for b in dtypes for k in range(1, n + 1)]
    return [row for row in dict.fromkeys(rows) if _accepts(defn, tuple(tensor(d, (2,)) for d in row))]


def _accepts(defn: OpDef, types: tuple[Type, ...]) -> bool:
    """Whether the type rule of an op accepts operands of these types; False for one with attributes without defaults."""
    try:
        defn.result_types(types, defn.fill({}))
    except Violation:
        return False
    return True


def by_kind(table: dict[str, T], a: Attr) -> T:
    """The entry of a table for an attribute: by its name, else by its kind. Raises KeyError."""
    return table[a.name] if a.name in table else table[a.kind]
