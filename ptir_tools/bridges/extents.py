"""Symbolic extents as values: arithmetic on shapes while a program is read."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping

from ptir_tools.core.expressions import Poly, constant, of_dim, to_dim
from ptir_tools.core.extents import bounds, canonical, ceildiv, floordiv, maximum, minimum, mod
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING, NoReturn
from ptir_tools.core.types import Dim, Shape, Sym, sym

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array


Method = Callable[["Extent", "Size"], "Size"]


def _both(function: Callable[[Poly, Poly], Poly]) -> tuple[Method, Method]:
    """An operator of an extent and another integer or extent, and the same with the extent on the right."""

    def left(x: Extent, other: Size) -> Size:
        return NotImplemented if (y := _poly(other)) is None else size(function(x.poly, y))

    def right(x: Extent, other: Size) -> Size:
        return NotImplemented if (y := _poly(other)) is None else size(function(y, x.poly))

    return left, right


class Unknown(TypeError):
    """A number was wanted of an extent that is not known while a program is read."""


class Extent:
    """An integer that is known at run time: an expression that is not a number. Equal expressions compare equal. Arithmetic whose
    result is a number gives an int. Symbols are not negative.
    """

    __slots__ = ("poly",)

    def __init__(self, poly: Poly) -> None:
        self.poly = poly

    @property
    def dim(self) -> Sym:
        """The extent of a type that it is."""
        found = to_dim(self.poly)
        assert isinstance(found, Sym)
        return found

    @property
    def symbol(self) -> Sym | None:
        """The symbol that it consists of, else None."""
        return sym(str(self.poly)) if self.poly.is_plain else None

    def where(self, equalities: Equalities) -> Size:
        """The expression with symbols replaced by their equals."""
        known = {n: poly(equalities[s]) for n in self.poly.names() if (s := sym(n)) in equalities}
        return size(canonical(self.poly, known)) if known else self

    def __hash__(self) -> int:
        return hash(self.dim)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.dim is other.dim

    def __repr__(self) -> str:
        return self.dim.name

    def _unknown(self, *_: object) -> NoReturn:
        raise Unknown(f"a number is wanted where the extent is the symbol {self}")

    __bool__ = __int__ = __index__ = __float__ = __lt__ = __le__ = __gt__ = __ge__ = _unknown

    def __neg__(self) -> Size:
        return size(-self.poly)

    __add__, __radd__ = _both(operator.add)
    __sub__, __rsub__ = _both(operator.sub)
    __mul__, __rmul__ = _both(operator.mul)
    __floordiv__, __rfloordiv__ = _both(floordiv)
    __mod__, __rmod__ = _both(mod)


Size = int | Extent
Equalities = Mapping[Sym, Size]  # what symbols are equal to


def of(d: Dim | Size) -> Size:
    """An extent of a type as a value."""
    return Extent(of_dim(d)) if isinstance(d, Sym) else d


def poly(x: Size) -> Poly:
    """An integer or extent as an expression."""
    return x.poly if isinstance(x, Extent) else constant(int(x))


def _poly(x: object) -> Poly | None:
    """The same, None of anything else."""
    return x.poly if isinstance(x, Extent) else constant(int(x)) if isinstance(x, (int, np.integer)) else None


def size(p: Poly) -> Size:
    """An expression as an integer or extent."""
    return Extent(p) if (number := p.value) is None else number


def of_shape(shape: Shape) -> Array:
    """A shape as a vector: int64, or objects when an extent is symbolic."""
    if all(isinstance(d, int) for d in shape):
        return np.array(shape, np.int64)
    return vector(map(of, shape))


def vector(values: Iterable[object]) -> Array:
    """A vector of objects."""
    given = list(values)
    out = np.empty(len(given), object)
    for i, x in enumerate(given):
        out[i] = x
    return out


def settled(array: Array) -> Array:
    """An array of objects as int64 where it holds only integers."""
    if array.dtype == object and all(isinstance(x, (int, np.integer)) for x in array.flat):
        return array.astype(np.int64)
    return array


def as_dims(array: Array) -> list[Size]:
    """The elements of a vector: integers and extents."""
    return [x if isinstance(x, Extent) else int(x) for x in array.reshape(-1)]


def dim(x: Size) -> Dim:
    """An integer or extent as an extent of a type."""
    return x.dim if isinstance(x, Extent) else int(x)


def smaller(a: Size, b: Size) -> Size:
    """The smaller of two integers or extents."""
    return size(minimum(poly(a), poly(b)))


def larger(a: Size, b: Size) -> Size:
    """The larger of two integers or extents."""
    return size(maximum(poly(a), poly(b)))


def divided_up(a: Size, b: Size) -> Size:
    """The quotient, rounded up."""
    return size(ceildiv(poly(a), poly(b)))


def least(x: Size) -> int:
    """A lower bound."""
    return bounds(poly(x))[0]


def most(x: Size) -> int:
    """An upper bound."""
    return bounds(poly(x))[1]
