"""Types are values: equal types are the same object, so `is` compares them. Build them with the functions below."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import prod
from typing import TypeVar

from ptir_tools.core.dtypes import INDEX, DType


@dataclass(slots=True, frozen=True, eq=False)
class Sym:
    """A symbolic extent. In PTIR a name; in Tiny the canonical text of an expression. Equal names are the same object."""

    name: str

    def __str__(self) -> str:
        return f"?{self.name}"

    def __repr__(self) -> str:
        return f"?{self.name}"


Dim = int | Sym
Shape = tuple[Dim, ...]

_SYMS: dict[str, Sym] = {}


def sym(name: str) -> Sym:
    """The symbol called `name`."""
    found = _SYMS.get(name)
    return found if found is not None else _SYMS.setdefault(name, Sym(name))


# An extent of which nothing is known: what a type rule answers when any declared extent is fine, and PTO's `?`.
UNKNOWN = sym("")


@dataclass(slots=True, frozen=True, eq=False)
class Type:
    """What all types share."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class PoisonType(Type):
    """The type of a value whose definition is in error; what uses it is not checked."""

    def __str__(self) -> str:
        return "<error>"


POISON = PoisonType()


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class UntypedType(Type):
    """The type of a value whose text gives none, until the verifier infers it."""

    def __str__(self) -> str:
        return "<untyped>"


UNTYPED = UntypedType()


def dims_text(shape: Shape) -> str:
    """`2x?Nx4`; a symbol that would not lex alone is quoted."""
    return "x".join(dim_text(d) for d in shape)


def dim_text(d: Dim) -> str:
    """`2`, `?N` or `?"max"`."""
    if isinstance(d, int):
        return str(d)
    plain = not d.name or (d.name.isidentifier() and d.name.isascii() and "x" not in d.name)
    return f"?{d.name}" if plain else '?"' + d.name.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class TensorType(Type):
    """A dense row-major tensor. Printed as PTIR spells it."""

    dtype: DType
    shape: Shape
    is_static: bool = field(init=False)  # asked for all the time: worked out once per type
    _count: int = field(init=False)

    def __post_init__(self) -> None:
        extents = [d for d in self.shape if isinstance(d, int)]
        object.__setattr__(self, "is_static", len(extents) == len(self.shape))
        object.__setattr__(self, "_count", prod(extents))

    def __str__(self) -> str:
        return f"tensor<{self.dtype}, {dims_text(self.shape)}>" if self.shape else f"tensor<{self.dtype}>"

    @property
    def rank(self) -> int:
        return len(self.shape)

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


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class ScalarType(Type):
    """A scalar of PTO: `index` or an element type."""

    dtype: DType

    def __str__(self) -> str:
        return str(self.dtype)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class TileType(Type):
    """An on-chip tile of PTO. `loc`, `layout` and `valid` are None where the program leaves them to inference."""

    dtype: DType
    shape: Shape
    loc: str | None = None
    layout: str | None = None
    valid: Shape | None = None

    def __str__(self) -> str:
        info = [f"loc={self.loc}"] * bool(self.loc) + [f"layout={self.layout}"] * bool(self.layout)
        if self.valid is not None:
            info.append(f"valid=[{', '.join(map(str, self.valid))}]")
        return f"tile<{dims_text(self.shape)}x{self.dtype}{', ' * bool(info)}{', '.join(info)}>"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class MemRefType(Type):
    """A view of memory of PTO. `strides` None is row-major; an UNKNOWN stride or offset is `?`."""

    dtype: DType
    shape: Shape
    space: str | None = None
    layout: str | None = None
    strides: Shape | None = None
    offset: Dim | None = None

    def __str__(self) -> str:
        strided = "" if self.strides is None else f", strided<{list(self.strides)}, offset: {self.offset}>"
        return f"memref<{dims_text(self.shape)}x{self.dtype}{strided}>"

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(slots=True, frozen=True, eq=False, repr=False)
class EventType(Type):
    """A token that says that the producing op is done (PTO)."""

    producer: str | None = None
    scope: str | None = None
    eid: int | None = None

    def __str__(self) -> str:
        return f"event<{self.producer}>"


_TYPES: dict[tuple[object, ...], Type] = {}


T = TypeVar("T", bound=Type)


def interned(cls: type[T], *fields: object) -> T:
    """The type of class `cls` with these fields."""
    key = (cls, *fields)
    found = _TYPES.get(key)
    if found is None:
        found = _TYPES.setdefault(key, cls(*fields))
    return found  # type: ignore[return-value]


def tensor(dtype: DType, shape: Iterable[Dim] = ()) -> TensorType:
    """The tensor type of `dtype` and `shape`; extents are plain integers (never bool) or symbols."""
    return interned(TensorType, dtype, tuple(shape))


def tuple_of(elements: Iterable[Type]) -> TupleType:
    """The tuple type of `elements`."""
    return interned(TupleType, tuple(elements))


def scalar(dtype: DType) -> ScalarType:
    """The scalar type of `dtype`."""
    return interned(ScalarType, dtype)


def tile(
    dtype: DType,
    shape: Iterable[Dim],
    loc: str | None = None,
    layout: str | None = None,
    valid: Iterable[Dim] | None = None,
) -> TileType:
    """The tile type with these parts."""
    return interned(TileType, dtype, tuple(shape), loc, layout, None if valid is None else tuple(valid))


def memref(
    dtype: DType,
    shape: Iterable[Dim],
    space: str | None = None,
    layout: str | None = None,
    strides: Iterable[Dim] | None = None,
    offset: Dim | None = None,
) -> MemRefType:
    """The memref type with these parts."""
    return interned(MemRefType, dtype, tuple(shape), space, layout, None if strides is None else tuple(strides), offset)


def event(producer: str | None = None, scope: str | None = None, eid: int | None = None) -> EventType:
    """The event type with these parts."""
    return interned(EventType, producer, scope, eid)


INDEX_TYPE = scalar(INDEX)


def leaves(t: Type) -> tuple[Type, ...]:
    """The types of a tuple type, nested ones flattened; any other type alone."""
    if isinstance(t, TupleType):
        return tuple(leaf for e in t.elements for leaf in leaves(e))
    return (t,)
