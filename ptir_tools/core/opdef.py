"""The op declaration: one decorated function says all there is to say about an op.

The positional parameters are the operand groups, the keyword-only ones the attributes, the docstring the manual, the body
the meaning in NumPy, `infer` the type rule with its constraints. Parameter annotations are read as text:

* a positional parameter is one operand; annotated `Many` (or written `*xs`) it is any number of them, `Maybe` one or none;
* a keyword-only parameter annotated `Region` is a region (in the body: a callable), `Context` the evaluation context and
  `Result` the declared result type or types; those two are for bodies alone. All other keyword-only parameters are attributes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from ptir_tools.core.diagnostics import OP_NAME, Violation, key, nearest, operands
from ptir_tools.core.facts import Algebra, Asks, Branch, InPlace, Kernel, Loop, View
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value
from ptir_tools.core.source import Loc
from ptir_tools.core.types import POISON, TupleType, Type, leaves


class Trait(Flag):
    """What passes may assume of an op."""

    NONE = 0
    PURE = auto()  # no effect; may be merged, moved and dropped
    COMMUTES = auto()  # its two operands may be swapped
    ELEMENTWISE = auto()  # element i of the result depends on element i of the operands alone
    MOVEMENT = auto()  # rearranges elements, computes nothing
    CONSTANT = auto()  # its attribute `value` is its result
    RANDOM = auto()  # reads a random stream
    READS = auto()  # reads memory
    WRITES = auto()  # writes memory
    WAITS = auto()  # waits for events
    ASYNC = auto()  # may return an event
    MEASURES = auto()  # computes extents of its result, which a declared symbol may name
    CALLS = auto()  # its attributes name what it does
    REPEATS = auto()  # its result consists of the elements of its first operand, repeated


PURE = Trait.PURE
COMMUTES = Trait.COMMUTES
ELEMENTWISE = Trait.ELEMENTWISE
MOVEMENT = Trait.MOVEMENT
CONSTANT = Trait.CONSTANT
RANDOM = Trait.RANDOM
READS = Trait.READS
WRITES = Trait.WRITES
WAITS = Trait.WAITS
ASYNC = Trait.ASYNC
MEASURES = Trait.MEASURES
CALLS = Trait.CALLS
REPEATS = Trait.REPEATS

# Annotations of operand groups; see the module's docstring.
Many = tuple[Any, ...]
Maybe = Any

CO_VARARGS = 4  # as inspect.CO_VARARGS
ONE, MAYBE, MANY = "one", "maybe", "many"
SEGMENTS = "segments"  # the implicit attribute that holds group lengths when one count cannot tell them
_FLOAT_KINDS = ("float", "Scalar", "Attrs", "Literal")
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


class Group(NamedTuple):
    """An operand group: `kind` is ONE, MAYBE or MANY."""

    name: str
    kind: str


@dataclass(slots=True, frozen=True)
class Derived:
    """A default that follows from the attributes declared before it and the operand types (which may be unknown: `()`)."""

    rule: Callable[[dict[str, Any], tuple[Type, ...]], Any]


class Attr(NamedTuple):
    """An attribute: `kind` is its annotation's text, `default` is REQUIRED when the text must give it, or a `Derived`."""

    name: str
    kind: str
    default: Any


@dataclass(slots=True, eq=False)
class OpDef:
    """A declared op. `infer(*groups of types, **attributes, **regions)` gives the result type, or a tuple of them."""

    name: str
    groups: tuple[Group, ...]
    attrs: tuple[Attr, ...]
    regions: tuple[str, ...]
    infer: Callable[..., Any]
    body: Callable[..., Any]
    traits: Trait
    doc: str
    check: Callable[[Op], None] | None
    fold: Callable[[Op], Operand | None] | None
    safe: Callable[[Op, Sequence[Any]], bool] | None
    fails: Callable[[Op], bool] | None
    solve: Callable[[tuple[Type, ...], dict[str, Any]], dict[str, int]] | None
    generate: Callable[..., Any] | None
    family: str
    star: bool  # the last group is written *xs
    wants: dict[str, str]  # parameters that only the body sees: `Context` or `Result`
    implemented: bool
    error: Callable[..., Any] | None  # its error rule (core.errors); None: the one of its traits
    # What `core.facts` says of the op.
    algebra: Algebra
    cost: Callable[[Op], Any] | None  # its arithmetic (core.costs); None: the one of its traits
    kernel: Kernel | None
    inplace: InPlace | None
    view: View | None
    asks: Asks
    control: Loop | Branch | None
    attr_index: dict[str, int] = field(init=False)
    float_attrs: tuple[int, ...] = field(init=False)  # attributes that may hold a float, which == does not compare by its bits
    cache: dict[Any, Any] = field(default_factory=dict)
    places: dict[str, int] = field(init=False)  # where the groups of one operand stand that no variable one precedes
    short: str = field(init=False)  # the name without the dialect: `add` of `ptir.add`
    is_pure: bool = field(init=False)
    is_constant: bool = field(init=False)
    is_random: bool = field(init=False)
    commutes: bool = field(init=False)
    repeats: bool = field(init=False)

    def __post_init__(self) -> None:
        fixed = next((i for i, g in enumerate(self.groups) if g.kind != ONE), len(self.groups))
        self.attr_index = {a.name: i for i, a in enumerate(self.attrs)}
        self.float_attrs = tuple(i for i, a in enumerate(self.attrs) if any(kind in a.kind for kind in _FLOAT_KINDS))
        self.places = {g.name: i for i, g in enumerate(self.groups[:fixed])}
        self.short = self.name.partition(".")[2]
        self.is_pure = PURE in self.traits
        self.is_constant = CONSTANT in self.traits
        self.is_random = RANDOM in self.traits
        self.commutes = COMMUTES in self.traits
        self.repeats = REPEATS in self.traits

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def key(self, attrs: tuple[Any, ...]) -> Any:
        """Equal exactly for attributes of equal kinds and bits."""
        if not self.float_attrs:
            return attrs
        found = list(attrs)
        for i in self.float_attrs:
            found[i] = exact(found[i])
        return tuple(found)

    def lengths(self, attrs: tuple[Any, ...], count: int) -> tuple[int, ...] | None:
        """How many operands each group takes of `count`, or None when they do not fit."""
        if SEGMENTS in self.attr_index:
            lengths: tuple[int, ...] = attrs[self.attr_index[SEGMENTS]]
            return lengths if len(lengths) == len(self.groups) and sum(lengths) == count else None
        free = [g.kind for g in self.groups if g.kind != ONE]
        rest = count - (len(self.groups) - len(free))
        if rest < 0 or (rest > 0 and not free) or (rest > 1 and free == [MAYBE]):
            return None
        return tuple(1 if g.kind == ONE else rest for g in self.groups)

    def split(self, attrs: tuple[Any, ...], items: Sequence[Any]) -> list[Any]:
        """`items`, one per operand, as arguments: an item per ONE group, a tuple per MANY, an item or None per MAYBE.

        Raises Violation("OperandCountMismatch") when the count is wrong.
        """
        if len(items) == len(self.places) == len(self.groups):
            return list(items)
        if (lengths := self.lengths(attrs, len(items))) is None:
            extra = len(self.groups) if all(g.kind == ONE for g in self.groups) and len(items) > len(self.groups) else 0
            message = f"{self.short} takes {self.arity_text()}, got {len(items)}"
            raise Violation("OperandCountMismatch", message, at=operands(extra))
        arguments: list[Any] = []
        at = 0
        for group, n in zip(self.groups, lengths, strict=True):
            part = items[at : at + n]
            at += n
            if self.star and group is self.groups[-1]:
                arguments.extend(part)
            else:
                arguments.append(tuple(part) if group.kind == MANY else part[0] if n else None)
        return arguments

    def arity_text(self) -> str:
        """`2 operands`, `at least 1 operand`, …"""
        least = sum(g.kind == ONE for g in self.groups)
        noun = "operand" if least == 1 else "operands"
        return f"{least} {noun}" if all(g.kind == ONE for g in self.groups) else f"at least {least} {noun}"

    def named(self, attrs: tuple[Any, ...]) -> dict[str, Any]:
        """The attributes by name, without the implicit one."""
        if not attrs:
            return {}
        return {a.name: v for a, v in zip(self.attrs, attrs, strict=True) if a.name != SEGMENTS}

    def fill(self, given: dict[str, Any], types: tuple[Type, ...] = ()) -> tuple[Any, ...]:
        """Attributes in declaration order with defaults. Raises Violation for one that is missing or not declared."""
        for name in given:
            if name not in self.attr_index:
                known = ", ".join(a.name for a in self.attrs if a.name != SEGMENTS) or "none"
                message, meant = f"{self.short} has no attribute `{name}` (it has: {known})", nearest(name, self.attr_index)
                raise Violation("UnknownAttribute", message, at=key(name), instead=meant)
        values: dict[str, Any] = {}
        for a in self.attrs:
            value = given.get(a.name, a.default)
            if value is REQUIRED:
                raise Violation("MissingAttribute", f"{self.short} needs the attribute `{a.name}`", at=OP_NAME)
            values[a.name] = value.rule(values, types) if isinstance(value, Derived) else value
        return tuple(values.values())

    def result_types(self, types: tuple[Type, ...], attrs: tuple[Any, ...], regions: tuple[Region, ...] = ()) -> tuple[Type, ...]:
        """The result types for these operand types, memoised. Raises Violation when a constraint is broken."""
        if regions:
            return self._infer(types, attrs, regions)
        key = (types, self.key(attrs))
        found = self.cache.get(key)
        if found is None:
            try:
                found = self._infer(types, attrs, ())
            except Violation as violation:
                found = violation
            self.cache[key] = found
        if isinstance(found, Violation):
            raise found
        return found

    def _infer(self, types: tuple[Type, ...], attrs: tuple[Any, ...], regions: tuple[Region, ...]) -> tuple[Type, ...]:
        named = self.named(attrs) | dict(zip(self.regions, regions, strict=True))
        answer = self.infer(*self.split(attrs, types), **named)
        return answer if isinstance(answer, tuple) else (answer,)


def exact(x: Any) -> Any:
    """A hashable that tells 1, True and 1.0 apart, and -0.0 from 0.0, and in which a NaN equals itself."""
    if x.__class__ is int:
        return x
    if isinstance(x, tuple):
        return tuple([exact(y) for y in x])
    if isinstance(x, Literal):
        return x.key
    if isinstance(x, float):
        return ("float", struct.pack("<d", x))
    return ("bool", x) if isinstance(x, bool) else x


OPS: dict[str, OpDef] = {}
NO_LAWS = Algebra()
ASKS_NOTHING = Asks()
_BODY_ONLY = ("Context", "Result")
F = TypeVar("F", bound=FunctionType)


def op(
    name: str,
    *,
    infer: Callable[..., Any],
    traits: Trait = Trait.NONE,
    check: Callable[[Op], None] | None = None,
    fold: Callable[[Op], Operand | None] | None = None,
    safe: Callable[[Op, Sequence[Any]], bool] | None = None,
    fails: Callable[[Op], bool] | None = None,
    solve: Callable[[tuple[Type, ...], dict[str, Any]], dict[str, int]] | None = None,
    generate: Callable[..., Any] | None = None,
    family: str = "",
    implemented: bool = True,
    error: Callable[..., Any] | None = None,
    algebra: Algebra = NO_LAWS,
    cost: Callable[[Op], Any] | None = None,
    kernel: Kernel | None = None,
    inplace: InPlace | None = None,
    view: View | None = None,
    asks: Asks = ASKS_NOTHING,
    control: Loop | Branch | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare the op `name` (with its dialect: `ptir.add`); see the module's docstring for how the function is read.

    `check` sees the whole op (for rules that need more than types); `fold` may name an operand that equals the result;
    `safe` tells whether the op may be computed on these constants before it runs (without it: on any); `fails` whether it may
    fail when it runs, on some values of its operands (without it: never; regions may, if ops in them do);
    `solve` gives the symbols of the attributes that static operand types determine (a reshape to `?N`); `generate` drafts a
    random one where operands and attributes must fit each other (`core.generate`); `family` groups ops that are one kind in
    a serialization or a pattern root; `implemented=False` says that the body is still empty; `error` is the error rule of
    `core.errors`, which follows from the traits for elementwise ops and movement.

    The rest are facts that `core.facts` describes: the laws of its `algebra`, from which a fold and an error rule may follow;
    what it is in a fused `kernel`; how NumPy computes it `inplace`; whether it is a `view`; what it `asks` of its operands; which
    regions it runs (`control`).
    `cost` counts its arithmetic (`core.costs`).
    """

    def declare(fn: Callable[..., Any]) -> Callable[..., Any]:
        OPS[name] = OpDef(
            name=name,
            infer=infer,
            body=fn,
            traits=traits,
            doc=fn.__doc__ or "",
            check=check,
            fold=fold or (_fold_of(name, algebra) if fn.__code__.co_argcount == 1 else None),
            safe=safe,
            fails=fails,
            solve=solve,
            generate=generate,
            family=family or name.partition(".")[2],
            implemented=implemented,
            error=error,
            algebra=algebra,
            cost=cost,
            kernel=kernel,
            inplace=inplace,
            view=view,
            asks=asks,
            control=control,
            **_schema(fn),
        )
        return fn

    return declare


def _fold_of(name: str, algebra: Algebra) -> Callable[[Op], Operand | None] | None:
    """The fold that follows from the laws of the op `name` of one operand; None when none does."""
    short = name.partition(".")[2]

    def inner(op: Op) -> Op | None:
        x = op.operands[0]
        made = x.op if isinstance(x, Value) else None
        return made if made is not None and made.defn is op.defn and made.attrs == op.attrs else None

    def undone(op: Op) -> Operand | None:
        found = inner(op)
        return None if found is None else found.operands[0]

    def done(op: Op) -> Operand | None:
        return None if inner(op) is None else op.operands[0]

    if algebra.involution:
        undone.__doc__ = f"`y`, when `x` is `{short}(y)`."
        return undone
    if algebra.idempotent:
        done.__doc__ = f"`x`, when it is made by `{short}`."
        return done
    return None


def _schema(fn: Callable[..., Any]) -> dict[str, Any]:
    """The fields of `OpDef` that the signature of `fn` gives, read from its code: importing `inspect` would slow every start."""
    code, notes = fn.__code__, fn.__annotations__
    if not all(isinstance(note, str) for note in notes.values()):
        raise TypeError(f"annotations of {fn.__qualname__} are no text: its file needs `from __future__ import annotations`")
    named = code.co_argcount + code.co_kwonlyargcount
    groups = [Group(p, {"Many": MANY, "Maybe": MAYBE}.get(notes.get(p, ""), ONE)) for p in code.co_varnames[: code.co_argcount]]
    star = bool(code.co_flags & CO_VARARGS)
    if star:
        groups.append(Group(code.co_varnames[named], MANY))
    kinds = {k: notes.get(k, "") for k in code.co_varnames[code.co_argcount : named]}
    defaults = fn.__kwdefaults__ or {}
    attrs = [Attr(k, t, defaults.get(k, REQUIRED)) for k, t in kinds.items() if t not in ("Region", *_BODY_ONLY)]
    if sum(g.kind != ONE for g in groups) > 1:
        attrs.append(Attr(SEGMENTS, "tuple[int, ...]", REQUIRED))
    return {
        "groups": tuple(groups),
        "star": star,
        "attrs": tuple(attrs),
        "regions": tuple(k for k, t in kinds.items() if t == "Region"),
        "wants": {k: t for k, t in kinds.items() if t in _BODY_ONLY},
    }


def may_fail(op: Op) -> bool:
    """Whether `op`, or an op of a region that it runs, may fail when it runs, by their declarations."""
    if op.defn.fails is not None and op.defn.fails(op):
        return True
    return any(may_fail(inner) for r in op.regions for inner in r.body)


def is_legal(op: Op) -> bool:
    """Whether the own check of `op` takes it: some ops refuse constants with which they must fail when they run."""
    try:
        if op.defn.check is not None:
            op.defn.check(op)
    except Violation:
        return False
    return True


def always(op: Op) -> bool:
    """The `fails` of an op that some values of its operands make fail, whatever else is known of it."""
    return True


def operand_type(x: Operand) -> Type:
    """The type of an operand. Raises Violation("TupleIndexOutOfRange") for an element that is not there."""
    if not isinstance(x, Element):
        return x.type
    t = x.value.type
    if t is POISON:
        return POISON
    if not isinstance(t, TupleType):
        raise Violation("TupleIndexOutOfRange", f"%{x.value.name} is {t}, not a tuple", at=f"%{x.value.name}")
    if not 0 <= x.index < len(t.elements):
        at = f"%{x.value.name}[{x.index}]"
        raise Violation("TupleIndexOutOfRange", f"%{x.value.name} has {len(t.elements)} elements, no [{x.index}]", at=at)
    return t.elements[x.index]


def leaves_read(x: Operand) -> list[tuple[Value, int]]:
    """The leaves that an operand reads, each as a value and the number of one of its leaves; none of a literal."""
    if isinstance(x, Literal):
        return []
    if isinstance(x, Value):
        return [(x, i) for i in range(len(leaves(x.type)))]
    whole = x.value.type
    assert isinstance(whole, TupleType)
    counts = [len(leaves(t)) for t in whole.elements[: x.index + 1]]
    return [(x.value, i) for i in range(sum(counts[:-1]), sum(counts))]


def create(
    defn: OpDef,
    groups: Sequence[Operand | Sequence[Operand] | None] = (),
    attrs: dict[str, Any] | None = None,
    *,
    regions: Sequence[Region] = (),
    types: Sequence[Type] | None = None,
    names: Sequence[str] = (),
    loc: Loc = 0,
) -> Op:
    """A new op from one argument per operand group. `types` None infers the result types.

    Raises Violation when the operands, attributes or types do not fit the declaration.
    """
    operands: list[Operand] = []
    lengths: list[int] = []
    for g in groups:
        part: Sequence[Operand] = () if g is None else (g,) if isinstance(g, (Value, Element, Literal)) else g
        operands.extend(part)
        lengths.append(len(part))
    given = dict(attrs or {})
    if SEGMENTS in defn.attr_index:
        given[SEGMENTS] = tuple(lengths)
    wanted = types is None or any(isinstance(a.default, Derived) for a in defn.attrs)
    inputs = tuple(map(operand_type, operands)) if wanted else ()
    filled = defn.fill(given, inputs)
    if types is None:
        types = defn.result_types(inputs, filled, tuple(regions))
    new = Op(defn, tuple(operands), filled, (), tuple(regions), loc)
    new.results = tuple(Value(t, names[i] if i < len(names) else "", new) for i, t in enumerate(types))
    return new
