"""Types are values: equal types are the same object, so `is` compares them. Build them with the functions below."""

from collections.abc import Iterable, Iterator
from math import prod

from ptir_tools.core.dtypes import DType
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import Any, TypeAlias, TypeVar


@dataclass(slots=True, frozen=True, eq=False)
class Sym:
    """A symbolic extent: a name, or an expression over names (`poly`), of which `name` is the text. Equal names, and equal
    expressions in their normal form, are the same object (`sym`, `core.expressions.to_dim`)."""

    name: str
    poly: Any = None  # of core.expressions

    def __str__(self) -> str:
        return dim_text(self)

    def __repr__(self) -> str:
        return dim_text(self)

    def __reduce__(self) -> tuple[object, ...]:
        return (sym, (self.name,)) if self.poly is None else (composed, (self.poly,))


Dim = int | Sym
Shape = tuple[Dim, ...]

_SYMS: dict[str, Sym] = {}


def sym(name: str) -> Sym:
    """The symbol called `name`."""
    cached = _SYMS.get(name)
    return cached if cached is not None else _SYMS.setdefault(name, Sym(name))


_COMPOSED: dict[object, Sym] = {}


def composed(poly: object) -> Sym:
    """The symbol of an expression that is neither a number nor a name."""
    cached = _COMPOSED.get(poly)
    return cached if cached is not None else _COMPOSED.setdefault(poly, Sym(str(poly), poly))


# An extent of which nothing is known: the result of a type rule if any declared extent is valid, and PTO's `?`.
UNKNOWN = sym("")


@dataclass(slots=True, frozen=True, eq=False)
class Type:
    """The base of all types."""

    def __repr__(self) -> str:
        return str(self)

    def accepts(self, inferred: "Type") -> bool:
        """Whether a value declared with this type may have the inferred type. An UNKNOWN extent on either side fits any."""
        return self is inferred or self is POISON or inferred is POISON or self.agrees(inferred)

    def agrees(self, other: "Type") -> bool:
        """Whether another type does not contradict this one; neither is POISON. Subclasses define the parts that may differ."""
        return False


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class PoisonType(Type):
    """The type of a value whose definition is in error. Its uses are not checked."""

    def __str__(self) -> str:
        return "<error>"


POISON = PoisonType()


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class UntypedType(Type):
    """The type of a value without a type in its text, until the verifier infers it."""

    def __str__(self) -> str:
        return "<untyped>"


UNTYPED = UntypedType()


def dims_text(shape: Shape) -> str:
    """`2x?Nx4`; a symbol that would not lex alone is quoted."""
    return "x".join(dim_text(d) for d in shape)


def dim_text(d: Dim) -> str:
    """`2`, `?N`, `?"max"`, or an expression in parentheses."""
    if isinstance(d, int):
        return str(d)
    if d.poly is not None:
        return f"({d.name})"
    plain = not d.name or (d.name.isidentifier() and d.name.isascii() and "x" not in d.name)
    return f"?{d.name}" if plain else '?"' + d.name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def agree(a: object, b: object) -> bool:
    """Whether two optional parts of types do not contradict each other."""
    return a is None or b is None or a == b


def same_extents(a: Shape, b: Shape) -> bool:
    """Whether two shapes are of one rank and differ only where an extent is UNKNOWN."""
    return len(a) == len(b) and all(x is y or x == y or UNKNOWN in (x, y) for x, y in zip(a, b, strict=True))


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class NumericType(Type):
    """Numbers of one dtype: a single one, unless the type has a shape."""

    dtype: DType

    @property
    def extents(self) -> Shape:
        """The shape; that of a single number is ()."""
        return ()


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class ShapedType(NumericType):
    """An array of numbers of one dtype."""

    shape: Shape

    @property
    def extents(self) -> Shape:
        return self.shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_memory(self) -> bool:
        """Whether a value of the type names storage of the caller, whose contents ops may write. Extents that the type leaves
        open come with the given array."""
        return False

    def with_shape(self, shape: Iterable[Dim]) -> "ShapedType":
        """The type with these extents."""
        raise NotImplementedError

    def agrees(self, other: Type) -> bool:
        same = type(self) is type(other) and isinstance(other, ShapedType) and self.dtype is other.dtype
        return same and isinstance(other, ShapedType) and same_extents(self.shape, other.shape)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class TensorType(ShapedType):
    """A dense row-major tensor. Printed in PTIR's form."""

    is_static: bool = field(init=False)  # frequently used: computed once per type
    _count: int = field(init=False)

    def __post_init__(self) -> None:
        extents = [d for d in self.shape if isinstance(d, int)]
        object.__setattr__(self, "is_static", len(extents) == len(self.shape))
        object.__setattr__(self, "_count", prod(extents))

    def __str__(self) -> str:
        return f"tensor<{self.dtype}, {dims_text(self.shape)}>" if self.shape else f"tensor<{self.dtype}>"

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape as integers. Raises ValueError when an extent is symbolic."""
        if not self.is_static:
            raise ValueError(f"{self} has symbolic extents")
        return self.shape  # type: ignore[return-value]

    @property
    def count(self) -> int:
        """Number of elements, exact. Raises ValueError when an extent is symbolic."""
        if not self.is_static:
            raise ValueError(f"{self} has symbolic extents")
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes in memory while computing. Raises ValueError when an extent is symbolic."""
        return self.count * self.dtype.size

    def with_shape(self, shape: Iterable[Dim]) -> "TensorType":
        return tensor(self.dtype, tuple(shape))

    def with_dtype(self, dtype: DType) -> "TensorType":
        return tensor(dtype, self.shape)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class TupleType(Type):
    """Several values as one."""

    elements: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.elements))})"

    def agrees(self, other: Type) -> bool:
        if not isinstance(other, TupleType) or len(self.elements) != len(other.elements):
            return False
        return all(a.accepts(b) for a, b in zip(self.elements, other.elements, strict=True))


_TYPES: dict[tuple[object, ...], Type] = {}


T = TypeVar("T", bound=Type)


def interned(cls: type[T], *fields: object) -> T:
    """The type of class `cls` with these fields."""
    key = (cls, *fields)
    cached = _TYPES.get(key)
    if cached is None:
        cached = _TYPES.setdefault(key, cls(*fields))
    return cached  # type: ignore[return-value]


def tensor(dtype: DType, shape: Iterable[Dim] = ()) -> TensorType:
    """The tensor type of `dtype` and `shape`; extents are plain integers (never bool) or symbols."""
    return interned(TensorType, dtype, tuple(shape))


def tuple_of(elements: Iterable[Type]) -> TupleType:
    """The tuple type of `elements`."""
    return interned(TupleType, tuple(elements))


def leaves(t: Type) -> tuple[Type, ...]:
    """The types of a tuple type, nested ones flattened; of any other type, the type itself."""
    if isinstance(t, TupleType):
        return tuple(leaf for e in t.elements for leaf in leaves(e))
    return (t,)


Leaf = TypeVar("Leaf")
Nested: TypeAlias = "Leaf | tuple[Nested[Leaf], ...]"  # the value of a type; the value of a tuple type is a tuple


def flatten(data: object) -> Iterator[Any]:
    """The leaves of a value: an array itself, or a tuple's elements in order."""
    if isinstance(data, tuple):
        for e in data:
            yield from flatten(e)
    else:
        yield data


def nest(t: Type, given: Iterator[Leaf]) -> "Nested[Leaf]":
    """The value of type `t` from the next of its leaves."""
    return tuple(nest(e, given) for e in t.elements) if isinstance(t, TupleType) else next(given)


def is_memory(t: Type) -> bool:
    """Whether `t` is a `ShapedType` that is memory."""
    return isinstance(t, ShapedType) and t.is_memory
