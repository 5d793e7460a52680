"""Rewrite patterns: the untyped base, and typed patterns over a view of an op. Specification: PTIR rewrite system, "Pattern
system". Rules written as text are in `rewrite.rules`, sets of patterns in `rewrite.pattern_set`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import pairwise

from ptir_tools.core.declare import OPS
from ptir_tools.core.ir import MANY, Literal, Op, OpDef, Operand, Value, operand_type
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import Any, ClassVar, Generic, TypeVar, cast
from ptir_tools.core.types import TensorType, Type, leaves
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import has_one_use


class Effect(IntEnum):
    """What a rewrite may change in floating-point results, least first. Integers never change."""

    EXACT = 0  # not a bit (a quiet NaN keeps its payload)
    ZERO_SIGN = 1  # the sign of a zero
    NAN_PAYLOAD = 2  # which NaN comes out
    ORDER = 3  # the order of a sum, which the contract leaves free
    ROUNDING = 4  # the last bits
    RANGE = 5  # a NaN or infinity may become a number, or the other way round


# The origin of an operand: its op's declaration, the class Literal, or None for a parameter.
Origin = OpDef | type[Literal] | None

# (op, user of it, level of the user: 0 is the root): a pattern looks from the user down to the op; None is any op.
Look = tuple[OpDef | None, OpDef | None, int]


def _hyphened(name: str) -> str:
    """`RemoveNoOpCast` as `remove-no-op-cast`."""
    inner = ("-" + b if b.isupper() and not a.isupper() else b for a, b in pairwise(name))
    return (name[:1] + "".join(inner)).lower()


class Pattern(ABC):
    """A rewrite anchored at a root op. `roots` are full op names or families of a dialect (`ptir.add`, `ptir.compare`); `name`
    is that of the class, with hyphens, unless it has another.

    `depth`: the number of levels of definitions, including the root, that the match depends on. `numbers`: operands, by position,
    that must be constants of that number where they are constants at all.
    """

    name = ""
    roots: tuple[str, ...] = ()
    benefit = 1
    depth = 2
    effect = Effect.EXACT
    numbers: tuple[tuple[int, float], ...] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if not cls.__dict__.get("name"):
            cls.name = _hyphened(cls.__name__)

    def admits(self, origins: Sequence[Origin]) -> bool:
        """Whether it can match a root whose operands have these origins: a quick filter."""
        return True

    def looks_through(self) -> Iterable[Look]:
        """The edges along which it looks down; by default all, to `depth`."""
        if self.depth > 1:
            yield from ((None, d, 0) for root in self.roots for d in named(root))
        yield from ((None, None, level) for level in range(1, self.depth - 1))

    def looks_for_uses(self) -> Iterable[Look]:
        """The edges where a lost use may let it match; by default all."""
        return self.looks_through()

    @abstractmethod
    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        """Rewrite at `root` through `rw`, or change nothing and return False."""


class OpView:
    """A typed view of an op: operands by group name, attributes by name.

    `view.x` is the operand `x` (a tuple for a variadic group), `view.perm` the attribute `perm`. A subclass names its ops in
    `of`, and annotates the operands and attributes.
    """

    __slots__ = ("root", "rw")
    of: ClassVar[tuple[str, ...]] = ()  # ops or families, as the roots of a pattern

    def __init__(self, root: Op, rw: Rewriter) -> None:
        self.root = root
        self.rw = rw

    def __getattr__(self, name: str) -> Any:
        root = self.root
        d = root.defn
        if (at := d.attr_index.get(name)) is not None:
            return root.attrs[at]
        if (at := d.places.get(name)) is not None and at < len(root.operands):
            return root.operands[at]
        for group, part in zip(d.groups, d.split(self.root.attrs, self.root.operands), strict=True):
            if group.name == name:
                return part
        raise AttributeError(f"{d.name} has no operand or attribute `{name}`")

    @classmethod
    def covers(cls, op: Op) -> bool:
        """Whether this is a view of ops like `op`."""
        return not cls.of or any(op.defn in named(name) for name in cls.of)

    @property
    def kind(self) -> str:
        """The short name of the op: `add`."""
        return self.root.defn.short

    @property
    def result(self) -> Value:
        """The first result."""
        return self.root.results[0]

    @property
    def result_tensor(self) -> TensorType | None:
        """The type of the first result when it is a tensor."""
        t = self.root.results[0].type
        return t if isinstance(t, TensorType) else None

    def operand_value(self, index: int) -> Value | None:
        """Operand `index` when it is a value."""
        x = self.root.operands[index]
        return x if isinstance(x, Value) else None

    def defined_by(self, x: Operand, short: str) -> OpView | None:
        """The view of the defining op of `x`, when it is a `short` of the same dialect."""
        op = x.op if isinstance(x, Value) else None
        if op is None or op.defn.name != f"{self.rw.dialect.name}.{short}":
            return None
        return OpView(op, self.rw)

    def has_one_use(self, x: Operand) -> bool:
        """Whether nothing but the root, and an op that equals it, uses `x`: it dies with the root."""
        return has_one_use(self.rw, x, self.root)

    def replace(self, by: Operand) -> bool:
        """Replace the uses of the result by `by`, and erase the root. False, with new ops erased, where a user does not accept it
        (such as a constant index out of range) or an error at run time would vanish."""
        if not self.rw.accepts(self.result, by):
            self.rw.take_back(by)
            return False
        self.rw.replace(self.root, by)
        return True


V = TypeVar("V", bound=OpView)


class OpRewritePattern(Pattern, Generic[V]):
    """A pattern over the view of its root, `OpRewritePattern[CastView]`: a cheap `may_match`, then `rewrite`. The roots are the
    ops of the view, unless it names others."""

    view: type[OpView] = OpView

    def __init_subclass__(cls) -> None:
        for base in getattr(cls, "__orig_bases__", ()):
            (view,) = getattr(base, "__args__", (None,))
            if isinstance(view, type) and issubclass(view, OpView):
                cls.view = view
                cls.roots = cls.__dict__.get("roots", view.of)
        super().__init_subclass__()

    def may_match(self, op: V) -> bool:
        """Whether the pattern may match; a cheap test."""
        return True

    @abstractmethod
    def rewrite(self, op: V) -> bool:
        """Rewrite, or change nothing and return False."""

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        view = cast("V", self.view(root, rw))
        return self.may_match(view) and self.rewrite(view)


@dataclass(slots=True, kw_only=True, eq=False)
class FunctionPattern(Pattern):
    """A typed pattern made of one function; see `rewrites`."""

    function: Callable[[OpView], bool]
    name: str
    roots: tuple[str, ...]
    operands: frozenset[str]
    every: bool
    at: int | None
    benefit: int
    depth: int
    effect: Effect

    def admits(self, origins: Sequence[Origin]) -> bool:
        if not self.operands:
            return True
        wanted = origins if self.at is None else [origins[self.at]]
        fits = [o.name in self.operands if isinstance(o, OpDef) else o is Literal for o in wanted]
        return all(fits) if self.every else any(fits)

    def looks_through(self) -> Iterable[Look]:
        if not self.operands or self.depth > 2:
            return Pattern.looks_through(self)  # a dataclass with slots has no super()
        return [(inner, d, 0) for o in self.operands for inner in named(o) for root in self.roots for d in named(root)]

    def match_and_rewrite(self, root: Op, rw: Rewriter) -> bool:
        return self.function(OpView(root, rw))


def rewrites(
    *roots: str,
    operands: Iterable[str] = (),
    every: bool = False,
    at: int | None = None,
    benefit: int = 1,
    depth: int = 2,
    effect: Effect = Effect.EXACT,
) -> Callable[[Callable[[OpView], bool]], FunctionPattern]:
    """Make a pattern of a function of the root's view; its name is the function's with hyphens.

    `operands`: names of ops one of which must define an operand (or an operand is a literal), else it is not called;
    `every`: they must define all operands; `at`: that one.
    """

    def declare(function: Callable[[OpView], bool]) -> FunctionPattern:
        name = function.__name__.replace("_", "-")
        return FunctionPattern(
            function=function,
            name=name,
            roots=roots,
            operands=frozenset(operands),
            every=every,
            at=at,
            benefit=benefit,
            depth=depth,
            effect=effect,
        )

    return declare


def origin(x: Operand) -> Origin:
    """The origin of `x`; for an element of a tuple, the op of the tuple."""
    if isinstance(x, Literal):
        return Literal
    v = x if isinstance(x, Value) else x.value
    return None if v.op is None else v.op.defn


def is_constant(o: Origin) -> bool:
    """Whether an operand of that origin is a constant."""
    return o is Literal or (isinstance(o, OpDef) and o.is_constant)


def named(name: str) -> list[OpDef]:
    """The op of that full name, or the ops of the family; `ptir.compare` means all six. Raises KeyError for neither."""
    if (d := OPS.get(name)) is not None:
        return [d]
    dialect, _, family = name.partition(".")
    defns = [d for d in OPS.values() if d.family == family and d.name.startswith(dialect + ".")]
    if not defns:
        raise KeyError(name)
    return defns


class Floats(dict[Type, bool]):
    """Whether a type has floating-point numbers, computed on demand."""

    def __missing__(self, t: Type) -> bool:
        tensors = [leaf for leaf in leaves(t) if isinstance(leaf, TensorType)]
        result = self[t] = any(leaf.dtype.is_float or leaf.dtype.is_complex for leaf in tensors)
        return result


FLOATS = Floats()


def has_floats(op: Op) -> bool:
    """Whether `op` reads or makes floating-point numbers."""
    t: Type | None = None
    for v in op.results:
        if FLOATS[t := v.type]:
            return True
    for x in op.operands:
        other = x.type if x.__class__ is Value else operand_type(x)
        if other is not t and FLOATS[other]:
            return True
    return False


def variadic(d: OpDef) -> bool:
    """Whether all operands of `d` are one group."""
    return len(d.groups) == 1 and d.groups[0].kind == MANY
