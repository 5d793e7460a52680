"""The IR: values, ops, op declarations, regions, functions.

Equality is identity; uses exist only while a rewriter serves a block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from enum import Flag, auto

from ptir_tools.core.records import NamedTuple, dataclass, field, replace
from ptir_tools.core.source import Loc
from ptir_tools.core.spelling import attribute_meant
from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.core.typed import Literal as Word
from ptir_tools.core.types import POISON, Dim, Shape, TensorType, TupleType, Type, leaves
from ptir_tools.core.violations import OP_NAME, Violation, key, operands

Body = Callable[..., Any]  # the body of an op, with operands, attributes and regions as declared
Infer = Callable[..., "Type | tuple[Type, ...]"]
Attribute: TypeAlias = Any  # an attribute's value, of the type in its declaration
NO_USERS: Any = ()  # the users of an unused value, shared to save memory


@dataclass(slots=True, eq=False)
class Value:
    """An SSA value. `type` UNTYPED is left to inference; `op` is None for parameters.

    `users` belongs to the rewriter (`rewrite.uses`): its users, once per use. Other code must not read it.
    """

    type: Type
    name: str = ""
    op: Op | None = None
    users: list[Op | Region] = field(default=NO_USERS, init=False)

    def __repr__(self) -> str:
        return f"%{self.name}: {self.type}"


@dataclass(slots=True, eq=False)
class Element:
    """Element `index` of a tuple value, as an operand."""

    value: Value
    index: int


class Kept:
    """The freed bytes of a literal, which `back` recomputes. It compares and hashes like the bytes."""

    __slots__ = ("back", "hash")

    def __init__(self, data: bytes, back: Callable[[], bytes]) -> None:
        self.back = back
        self.hash = hash(data)

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, (bytes, Kept)) or hash(other) != self.hash:
            return False
        return self.back() == (other.back() if isinstance(other, Kept) else other)


@dataclass(slots=True, eq=False)
class Literal:
    """An inline constant: row-major little-endian bytes (4-bit values two to a byte, low nibble first).

    `splat`: `data` is one element, repeated. `data` None: the payload is missing; such a literal equals no other. `origin` is the
    `file:key` of the payload, which does not affect equality. `payload` is `data`, or its source if freed (`keep`). `forms`
    belongs to the engines: weak references to converted constants.
    """

    type: TensorType
    payload: bytes | Kept | None
    splat: bool = False
    origin: str = ""
    forms: MutableMapping[object, Any] | None = field(default=None, init=False, repr=False)

    @property
    def data(self) -> bytes | None:
        """The bytes; freed ones are recomputed and stored again."""
        payload = self.payload
        if payload.__class__ is Kept:
            self.payload = payload = payload.back()
        return payload  # type: ignore[return-value]

    @property
    def size(self) -> int | None:
        """The size of `data`, without recomputing it; None when it is missing."""
        payload = self.payload
        if isinstance(payload, Kept):
            return self.type.dtype.packed_bytes(self.type.count)
        return None if payload is None else len(payload)

    @property
    def is_missing(self) -> bool:
        """Whether `data` is None."""
        return self.payload is None

    def keep(self, back: Callable[[], bytes]) -> None:
        """Free the bytes; `back` must recompute all elements."""
        if isinstance(data := self.payload, bytes):  # read once: another thread may free it
            self.payload = Kept(data, back)

    def __reduce__(self) -> tuple[object, ...]:
        return Literal, (self.type, self.data, self.splat, self.origin)

    def same(self, other: object) -> bool:
        """Whether both are certainly the same constant, bit for bit."""
        if self is other:
            return True
        return isinstance(other, Literal) and not self.is_missing and self.key == other.key

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for equal literals; a missing payload equals only itself."""
        return (self.type, self.splat, id(self) if self.is_missing else self.payload)


Operand = Value | Element | Literal
Argument = Operand | Sequence[Operand] | None  # the argument of an operand group


@dataclass(slots=True, eq=False)
class Op:
    """One operation. `attrs` are the values of `defn.attrs`, in that order, defaults filled in.

    `slot` belongs to the rewriter (`rewrite.order`): its position, 0 for an op in no block. Other code must not read it.
    """

    defn: OpDef
    operands: tuple[Operand, ...] = ()
    attrs: tuple[Attribute, ...] = ()
    results: tuple[Value, ...] = ()
    regions: tuple[Region, ...] = ()
    loc: Loc = 0
    slot: int = field(default=0, init=False)

    @property
    def name(self) -> str:
        """Full name: `ptir.add`."""
        return self.defn.name

    @property
    def result(self) -> Value:
        """The first result."""
        return self.results[0]

    def attr(self, name: str) -> Attribute:
        """The attribute `name`. Raises KeyError if the op has no such attribute."""
        return self.attrs[self.defn.attr_index[name]]

    def values(self) -> list[Value]:
        """The values of the operands (the tuple, for its elements)."""
        operands = self.operands
        for x in operands:
            if x.__class__ is not Value:
                return [x if isinstance(x, Value) else x.value for x in operands if not isinstance(x, Literal)]
        return [*operands]  # type: ignore[list-item]

    def __repr__(self) -> str:
        return f"<{' '.join([self.name, *(f'%{v.name}' for v in self.results)])}>"


@dataclass(slots=True, eq=False)
class Region:
    """A block: parameters, ops in order, results. `result_types` are the declared types, one per result; `return_loc` is the
    location of the results in the text, or 0. An isolated region does not capture and may be shared (PTIR); any other captures
    (PTO).
    """

    name: str = ""
    params: list[Value] = field(default_factory=list)
    body: list[Op] = field(default_factory=list)
    results: list[Operand] = field(default_factory=list)
    result_types: list[Type] = field(default_factory=list)
    isolated: bool = True
    loc: Loc = 0
    return_loc: Loc = field(default=0, kw_only=True)
    edition: int = field(default=0, kw_only=True)  # increases when a rewriter is created or writes

    def __repr__(self) -> str:
        return f"<{type(self).__name__.lower()} {self.name}: {len(self.body)} ops>"

    def ops(self) -> Iterator[Op]:
        """Its ops and, depth first, those of the non-isolated regions inside."""
        for op in self.body:
            yield op
            for r in op.regions:
                if not r.isolated:
                    yield from r.ops()

    def values(self) -> list[Value]:
        """Its parameters and the results of its ops."""
        return [*self.params, *(v for op in self.body for v in op.results)]

    def blocks(self) -> Iterator[Region]:
        """Itself and the non-isolated regions inside, outer before inner."""
        stack = [self]
        while stack:
            block = stack.pop()
            yield block
            stack.extend(r for op in reversed(block.body) for r in reversed(op.regions) if not r.isolated)

    def uses(self) -> Iterator[Value]:
        """The values that its ops read and its results, including those of nested non-isolated regions."""
        for x in self.results:
            if not isinstance(x, Literal):
                yield x if isinstance(x, Value) else x.value
        for op in self.body:
            yield from op.values()
            for r in op.regions:
                if not r.isolated:
                    yield from r.uses()


@dataclass(slots=True, eq=False)
class Annotation:
    """An annotation of some ops of a function: `body` has copies of them, over the same values; it defines nothing. A rewriter
    drops it when an edit invalidates it. That is reported under `code`, as a warning where it is `required`; without a code it is
    not reported.
    """

    inputs: tuple[Value, ...] = ()
    exports: tuple[Value, ...] = ()
    body: list[Op] = field(default_factory=list)
    loc: Loc = field(default=0, kw_only=True)

    @property
    def code(self) -> str:
        """The code of the diagnostic when it is dropped."""
        return ""

    @property
    def title(self) -> str:
        """Its name in messages."""
        return "an annotation"

    @property
    def required(self) -> bool:
        """Whether its author relies on it."""
        return False


@dataclass(slots=True, eq=False)
class Function(Region):
    """A named region that can be called from outside. `attrs` are what else its text says (PTO)."""

    annotations: list[Annotation] = field(default_factory=list)
    attrs: dict[str, Attribute] = field(default_factory=dict)

    def __repr__(self) -> str:
        return Region.__repr__(self)


def result_names(block: Region, names: Mapping[Value, str] | None = None) -> list[str]:
    """The names of the results of `block`: from `names`, or without it from its text; else those of their values."""
    if names is None and isinstance(block, Function) and "output_names" in block.attrs:
        return list(block.attrs["output_names"])
    labels = []
    for k, x in enumerate(block.results):
        v = x.value if isinstance(x, Element) else x if isinstance(x, Value) else None
        name = "" if v is None else (names or {}).get(v) or v.name
        labels.append(f"result_{k}" if not name else f"{name}.{x.index}" if isinstance(x, Element) else name)
    return labels


def clone_blocks(blocks: list[Region], values: dict[Value, Value] | None = None) -> list[Region]:
    """Copies of `blocks` (functions stay functions) that share no op, value or region with them; literals are shared."""
    values = {} if values is None else values
    regions: dict[Region, Region] = {}

    def operand(x: Operand) -> Operand:
        if isinstance(x, Value):
            return values.get(x, x)
        return Element(values.get(x.value, x.value), x.index) if isinstance(x, Element) else x

    def value(v: Value, op: Op | None) -> Value:
        values[v] = copy = Value(v.type, v.name, op)
        return copy

    def copy_op(op: Op, *, define: bool = True) -> Op:
        operands = tuple([values.get(x, x) if x.__class__ is Value else operand(x) for x in op.operands])
        copy = Op(op.defn, operands, op.attrs, (), tuple(map(region, op.regions)) if op.regions else (), op.loc)
        copy.results = tuple([value(v, copy) if define else values.get(v, v) for v in op.results])
        return copy

    def region(r: Region) -> Region:
        if (done := regions.get(r)) is not None:
            return done
        regions[r] = copy = type(r)(r.name, result_types=list(r.result_types), isolated=r.isolated, loc=r.loc)
        copy.return_loc = r.return_loc
        copy.params = [value(p, None) for p in r.params]
        copy.body = [copy_op(op) for op in r.body]
        copy.results = [operand(x) for x in r.results]
        if isinstance(r, Function) and isinstance(copy, Function):
            copy.attrs = dict(r.attrs)
            copy.annotations = [annotation(a) for a in r.annotations]
        return copy

    def annotation(a: Annotation) -> Annotation:
        inputs, exports = (tuple(values.get(v, v) for v in vs) for vs in (a.inputs, a.exports))
        return replace(a, inputs=inputs, exports=exports, body=[copy_op(op, define=False) for op in a.body])

    return [region(b) for b in blocks]


class Trait(Flag):
    """Traits of an op, which passes may rely on."""

    NONE = 0
    PURE = auto()  # no effect; may be merged, moved and erased
    COMMUTES = auto()  # its two operands may be swapped
    ELEMENTWISE = auto()  # element i of the result depends only on element i of the operands
    MOVEMENT = auto()  # rearranges elements, computes nothing
    CONSTANT = auto()  # its attribute `value` is its result
    RANDOM = auto()  # reads a random stream
    READS = auto()  # reads memory
    WRITES = auto()  # writes memory
    WAITS = auto()  # waits for events
    ASYNC = auto()  # may return an event
    MEASURES = auto()  # computes extents of its result, which a declared symbol may name
    CALLS = auto()  # its attributes name its function
    REPEATS = auto()  # its result consists of the elements of its first operand, repeated
    DECODES = auto()  # writes in full what its operand holds in fewer bytes


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
DECODES = Trait.DECODES

ONE, MAYBE, MANY = "one", "maybe", "many"
SEGMENTS = "segments"  # the implicit attribute with the lengths of groups, if the number of operands does not determine them
_FLOAT_KINDS = ("float", "Scalar", "Attrs", "Literal")
REQUIRED: Any = type("Required", (), {"__repr__": lambda self: "REQUIRED"})()


# Facts in a declaration, besides types and body. Engines, plan, passes, generators, `ptir stats` and the pages of ops ask these
# fields. A field that is omitted says nothing. Then the default holds that is right for every op: its body, storage of its own,
# no kernel.


class Algebra(NamedTuple):
    """Laws of an op, true for every element except NaN and the sign of a zero, and of monotony where integers wrap.

    An involution, or an idempotent op, of one operand folds. An increasing op needs no error rule. Parity moves negations.
    """

    parity: str = ""  # "odd": f(-x) is -f(x); "even": f(-x) is f(x)
    monotone: str = ""  # "increasing" or "decreasing" in every operand
    idempotent: bool = False  # f(f(x)) is f(x); of several operands, f(x, x) is x
    involution: bool = False  # f(f(x)) is x
    identity: int | None = None  # e with f(x, e) = x
    absorbing: int | None = None  # a with f(x, a) = a, for finite x

    def laws(self) -> list[str]:
        """The laws in words, for the page of the op."""
        named = [self.parity, self.monotone, "idempotent" * self.idempotent, "involution" * self.involution]
        elements = [("identity", self.identity), ("absorbing", self.absorbing)]
        return [*filter(None, named), *(f"{what} {e}" for what, e in elements if e is not None)]


class InPlace(NamedTuple):
    """How NumPy computes the op into an existing array. `form` is a kind of step of the NumPy engine: `ufunc`, which calls the
    universal function `function`, or another of its `BUILDERS`. `over`: the operands, dead after the op, whose storage the result
    may take; an elementwise op may take any."""

    form: str
    function: str = ""
    over: tuple[int, ...] = ()


# An op in a fused tile program.
Role = Word["map", "reduce", "reshape", "repeat", "product"]


class Kernel(NamedTuple):
    """The op in a tile program of the native engine. `role`: a map of elements, a reduction of rows, a product of matrices, a
    reshape or a repetition of one value per row. `name` is its instruction; a map that has none only rounds."""

    role: Role
    name: str = ""
    swapped: str = ""  # the instruction with its two operands exchanged
    exact: bool = False  # there is nothing to round
    pays: bool = False  # the kernel of this op alone is faster than NumPy's function in f32, too


Extents = tuple[int, ...]
Strides = tuple[int, ...]


Labels = tuple[object, ...]  # by axis: axes with one label are sharded together, None is replicated


class View(NamedTuple):
    """The op is a view of the storage of its first operand.

    `seen(op, shape, strides, out)` gives (offset, strides) in elements of its result, of shape `out`, on an operand of `shape`
    with `strides`; None where it has to copy. `in_order`: it sees all elements in the order that they have.
    """

    seen: Callable[[Op, Extents, Strides, Extents], tuple[int, Strides] | None]
    in_order: bool = False


class Need(NamedTuple):
    """A constraint on a value: in [low, bound) for `bounds` (one for all elements, or one each of a vector), and not 0; or the
    elements that a scalar or vector must have."""

    bounds: Extents = ()
    nonzero: bool = False
    low: int = 0
    exact: tuple[int, ...] = ()

    def __or__(self, other: Need) -> Need:
        both = self.bounds or other.bounds
        if self.bounds and other.bounds:
            same = len(self.bounds) == len(other.bounds)
            both = tuple(map(min, self.bounds, other.bounds)) if same else (min(*self.bounds, *other.bounds),)
        low = max(x.low for x in (self, other) if x.bounds) if both else 0
        return Need(both, self.nonzero or other.nonzero, low, self.exact or other.exact)

    def loosely(self) -> Need:
        """The part of the need that still holds after elements are permuted."""
        return Need((min(self.bounds),) if self.bounds else (), self.nonzero, self.low)


NOTHING = Need()
Asked = Iterable[tuple[Operand, Need]]
ShapeOf = Callable[[Operand], Shape]  # the extents of an operand, as far as they are known


class Asks(NamedTuple):
    """Constraints on the operands of an op: which are indices or divisors, and of what. `own(op, shape_of)` are its own needs.
    `passed(op, need)` are the needs of its operands for a need of its result; without it, an op that moves elements passes it to
    all. `around(op, parameter_need)` are those for a need of a parameter of its region.
    """

    own: Callable[[Op, ShapeOf], Asked] | None = None
    passed: Callable[[Op, Need], Asked] | None = None
    around: Callable[[Op, Need], Asked] | None = None


class Loop(NamedTuple):
    """An op that runs its region `body` again and again. Its first `carries(op)` operands are its first results and the first
    parameters and results of the body; further results of the body are stacked.

    With a region `test`, that one runs first: it returns a flag, then the carries that the body, or the result, gets. `runs`:
    whether the body runs at least once.
    """

    carries: Callable[[Op], int]
    body: int = 0
    test: int | None = None
    runs: Callable[[Op], bool] = lambda op: False

    def parts(self, op: Op) -> list[tuple[Region, int, bool]]:
        """Each region in order, with the number of results before its carries, and whether it runs at least once."""
        body = (op.regions[self.body], 0, self.runs(op))
        return [body] if self.test is None else [(op.regions[self.test], 1, True), body]


class Branch(NamedTuple):
    """An op that runs one of its regions on its operands from number `arguments` on."""

    arguments: int = 1


class Group(NamedTuple):
    """An operand group: `kind` is ONE, MAYBE or MANY."""

    name: str
    kind: str


@dataclass(slots=True, frozen=True)
class Derived:
    """A default that follows from the attributes declared before it and from the operand types (`()` if they are not known)."""

    rule: Callable[[dict[str, Attribute], tuple[Type, ...]], Attribute]


class Attr(NamedTuple):
    """An attribute: `kind` is its annotation's text, `default` is REQUIRED when the text must give it, or a `Derived`."""

    name: str
    kind: str
    default: Attribute


@dataclass(slots=True, eq=False)
class OpDef:
    """A declared op. `infer(*groups of types, **attributes, **regions)` gives the result type, or a tuple of them."""

    name: str
    groups: tuple[Group, ...]
    attrs: tuple[Attr, ...]
    regions: tuple[str, ...]
    infer: Infer
    body: Body
    traits: Trait
    doc: str
    check: Callable[[Op], None] | None
    fold: Callable[[Op], Operand | None] | None
    safe: Callable[[Op, Sequence[Any]], bool] | None
    fails: Callable[[Op], bool] | None
    solve: Callable[..., Mapping[str, Dim]] | None
    generate: Callable[..., object] | None
    family: str
    star: bool  # the last group is written *xs
    wants: dict[str, str]  # parameters only of the body: `Context` or `Result`
    implemented: bool
    error: Callable[..., object] | None  # its error rule (core.errors); None: the one of its traits
    algebra: Algebra
    cost: Callable[[Op], object] | None  # its arithmetic (core.costs); None: the one of its traits
    kernel: Kernel | None
    inplace: InPlace | None
    view: View | None
    asks: Asks
    control: Loop | Branch | None
    factors: Callable[[Op], tuple[list[Labels], Labels]] | None  # of its operands and its result (core.factors)
    own: object  # facts for its dialect: a record of the dialect
    attr_index: dict[str, int] = field(init=False)
    float_attrs: tuple[int, ...] = field(init=False)  # attributes that may have a float, which == does not compare by bits
    cache: dict[object, tuple[Type, ...] | Violation] = field(default_factory=dict)
    places: dict[str, int] = field(init=False)  # positions of the single operands before the first variadic group
    short: str = field(init=False)  # the name without the dialect: `add` of `ptir.add`
    is_pure: bool = field(init=False)
    is_constant: bool = field(init=False)
    is_elementwise: bool = field(init=False)
    is_movement: bool = field(init=False)
    writes: bool = field(init=False)
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
        self.is_elementwise = ELEMENTWISE in self.traits
        self.is_movement = MOVEMENT in self.traits
        self.writes = WRITES in self.traits
        self.is_random = RANDOM in self.traits
        self.commutes = COMMUTES in self.traits
        self.repeats = REPEATS in self.traits

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def key(self, attrs: tuple[Attribute, ...]) -> tuple[object, ...]:
        """A key that is equal exactly for attributes of equal kinds and bits."""
        if not self.float_attrs:
            return attrs
        values = list(attrs)
        for i in self.float_attrs:
            values[i] = exact(values[i])
        return tuple(values)

    def signature(self, attrs: tuple[Attribute, ...]) -> tuple[object, ...]:
        """The part of the attributes on which result types may depend. For a constant its type and size, so that no cache
        keeps its elements."""
        if not self.is_constant:
            return self.key(attrs)
        return tuple([(x.type, x.splat, x.size) if x.__class__ is Literal else exact(x) for x in attrs])

    def lengths(self, attrs: tuple[Attribute, ...], count: int) -> tuple[int, ...] | None:
        """The length of each group for `count` operands, or None when they do not fit."""
        if count == len(self.places) == len(self.groups):
            return (1,) * count
        if SEGMENTS in self.attr_index:
            lengths: tuple[int, ...] = attrs[self.attr_index[SEGMENTS]]
            return lengths if len(lengths) == len(self.groups) and sum(lengths) == count else None
        free = [g.kind for g in self.groups if g.kind != ONE]
        rest = count - (len(self.groups) - len(free))
        if rest < 0 or (rest > 0 and not free) or (rest > 1 and free == [MAYBE]):
            return None
        return tuple(1 if g.kind == ONE else rest for g in self.groups)

    def split(self, attrs: tuple[Attribute, ...], items: Sequence[object]) -> list[Any]:
        """`items`, one per operand, as arguments: an item per ONE group, a tuple per MANY, an item or None per MAYBE.

        Raises Violation("OperandCountMismatch") when the count is wrong.
        """
        if len(items) == len(self.places) == len(self.groups):
            return list(items)
        if (lengths := self.lengths(attrs, len(items))) is None:
            extra = len(self.groups) if all(g.kind == ONE for g in self.groups) and len(items) > len(self.groups) else 0
            message = f"{self.short} takes {self.arity_text()}, got {len(items)}"
            raise Violation("OperandCountMismatch", message, at=operands(extra))
        arguments: list[object] = []
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

    def named(self, attrs: tuple[object, ...]) -> dict[str, Attribute]:
        """The attributes by name, without the implicit one."""
        if not attrs:
            return {}
        return {a.name: v for a, v in zip(self.attrs, attrs, strict=True) if a.name != SEGMENTS}

    def fill(self, given: dict[str, object], types: tuple[Type, ...] = ()) -> tuple[Attribute, ...]:
        """Attributes in declaration order with defaults. Raises Violation for one that is missing or not declared."""
        for name in given:
            if name not in self.attr_index:
                known = ", ".join(a.name for a in self.attrs if a.name != SEGMENTS) or "none"
                message = f"{self.short} has no attribute `{name}` (it has: {known})"
                raise Violation("UnknownAttribute", message, at=key(name), instead=attribute_meant(name, self.attr_index))
        values: dict[str, Attribute] = {}
        for a in self.attrs:
            value = given.get(a.name, a.default)
            if value is REQUIRED:
                raise Violation("MissingAttribute", f"{self.short} needs the attribute `{a.name}`", at=OP_NAME)
            values[a.name] = value.rule(values, types) if isinstance(value, Derived) else value
        return tuple(values.values())

    def result_types(
        self, types: tuple[Type, ...], attrs: tuple[object, ...], regions: tuple[Region, ...] = ()
    ) -> tuple[Type, ...]:
        """The result types for these operand types, memoised. Raises Violation when a constraint is broken."""
        if regions:
            return self._infer(types, attrs, regions)
        key = (types, self.signature(attrs))
        cached = self.cache.get(key)
        if cached is None:
            try:
                cached = self._infer(types, attrs, ())
            except Violation as violation:
                cached = violation
            self.cache[key] = cached
        if isinstance(cached, Violation):
            raise cached.with_traceback(None)  # not the one of an earlier caller
        return cached

    def _infer(self, types: tuple[Type, ...], attrs: tuple[object, ...], regions: tuple[Region, ...]) -> tuple[Type, ...]:
        named = self.named(attrs) | dict(zip(self.regions, regions, strict=True))
        answer = self.infer(*self.split(attrs, types), **named)
        return answer if isinstance(answer, tuple) else (answer,)


def exact(x: object) -> object:
    """A hashable key in which 1, True and 1.0 differ, -0.0 and 0.0 differ, and a NaN equals itself."""
    if x.__class__ is int:
        return x
    if isinstance(x, tuple):
        return tuple([exact(y) for y in x])
    if isinstance(x, Literal):
        return x.key
    if isinstance(x, float):
        return ("float", struct.pack("<d", x))
    return ("bool", x) if isinstance(x, bool) else x


def may_fail(op: Op) -> bool:
    """Whether `op`, or an op of a region that it runs, may fail at run time, by their declarations."""
    if not op.regions:
        return op.defn.fails is not None and op.defn.fails(op)
    return any(x.defn.fails is not None and x.defn.fails(x) for x in (op, *_inside(op)))


def _inside(op: Op) -> Iterator[Op]:
    """The ops of the regions that `op` runs, directly or through others, each once."""
    left, seen = list(op.regions), set(op.regions)
    while left:
        for inner in left.pop().body:
            yield inner
            left += (new := [r for r in inner.regions if r not in seen])
            seen.update(new)


def is_legal(op: Op) -> bool:
    """Whether `op` passes its own check: some ops refuse constants with which they always fail."""
    try:
        if op.defn.check is not None:
            op.defn.check(op)
    except Violation:
        return False
    return True


def operand_type(x: Operand) -> Type:
    """The type of an operand. Raises Violation("TupleIndexOutOfRange") for an unknown element."""
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
    """The leaves that an operand reads, each as a value and the number of its leaf; a literal has none."""
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
    groups: Sequence[Argument] = (),
    attrs: Mapping[str, Attribute] | None = None,
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
