"""Symbolic extents as values: arithmetic on shapes while a program is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import gcd

from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, Shape, Sym, sym

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array


class Divided(NamedTuple):
    """The quotient (rounded down) or remainder of a division that cannot be simplified."""

    left: Size
    op: str
    right: Size

    def __str__(self) -> str:
        return f"({self.left}{self.op}{self.right})"


Factor = Sym | Divided
Product = tuple[Factor, ...]  # factors sorted by spelling; the empty product is 1


class Extent:
    """An integer that is known at run time: a sum of products of numbers, symbols, quotients and remainders. Equal expressions
    compare equal. Arithmetic whose result is a number gives an int. Symbols are not negative.
    """

    __slots__ = ("key", "terms")

    def __init__(self, terms: Mapping[Product, int]) -> None:
        self.terms = dict(sorted(terms.items(), key=lambda term: (not term[0], [_spelled(f) for f in term[0]])))
        self.key = _text(self.terms)

    @property
    def dim(self) -> Sym:
        """The extent of a type that it is: its symbol, or a symbol for the expression."""
        return self.symbol or sym(self.key)

    @property
    def symbol(self) -> Sym | None:
        """The symbol that it consists of, else None."""
        if len(self.terms) != 1 or next(iter(self.terms.values())) != 1:
            return None
        (product,) = self.terms
        return product[0] if len(product) == 1 and isinstance(product[0], Sym) else None

    @property
    def simple(self) -> bool:
        """Whether it is a symbol of the program."""
        return self.symbol is not None

    @property
    def least(self) -> int | None:
        """A lower bound that follows from symbols not being negative, else None."""
        return _bound(self.terms, 1)

    @property
    def most(self) -> int | None:
        """An upper bound that follows from symbols not being negative, else None."""
        return _bound(self.terms, -1)

    def where(self, equalities: Equalities) -> Size:
        """The expression with symbols replaced by their equals."""
        if not any(_mentions(f, equalities) for product in self.terms for f in product):
            return self
        total: Size = 0
        for product, n in self.terms.items():
            term: Size = n
            for f in product:
                term = term * _where(f, equalities)
            total = total + term
        return total

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.key == other.key

    def __repr__(self) -> str:
        return self.key

    def __add__(self, other: Size) -> Size:
        if (terms := _terms(other)) is None:
            return NotImplemented
        return _made({p: self.terms.get(p, 0) + terms.get(p, 0) for p in {**self.terms, **terms}})

    def __radd__(self, other: Size) -> Size:
        return self + other

    def __neg__(self) -> Size:
        return self * -1

    def __sub__(self, other: Size) -> Size:
        return NotImplemented if _terms(other) is None else self + -other

    def __rsub__(self, other: Size) -> Size:
        return -self + other

    def __mul__(self, other: Size) -> Size:
        if (terms := _terms(other)) is None:
            return NotImplemented
        results = Counter[Product]()
        for p, m in self.terms.items():
            for q, n in terms.items():
                results[tuple(sorted((*p, *q), key=_spelled))] += m * n
        return _made(results)

    def __rmul__(self, other: Size) -> Size:
        return self * other

    def __floordiv__(self, other: Size) -> Size:
        return NotImplemented if _terms(other) is None else _divided(self, other)[0]

    def __rfloordiv__(self, other: Size) -> Size:
        return NotImplemented if _terms(other) is None else _divided(other, self)[0]

    def __mod__(self, other: Size) -> Size:
        return NotImplemented if _terms(other) is None else _divided(self, other)[1]

    def __rmod__(self, other: Size) -> Size:
        return NotImplemented if _terms(other) is None else _divided(other, self)[1]

    def __bool__(self) -> bool:
        raise TypeError("an extent is not known yet")


Size = int | Extent
Equalities = Mapping[Sym, Size]  # what symbols are equal to


def of(d: Dim | Size) -> Size:
    """An extent of a type as a value."""
    return Extent({(d,): 1}) if isinstance(d, Sym) else d


def _spelled(f: Factor) -> str:
    return f.name if isinstance(f, Sym) else str(f)


def _text(terms: Mapping[Product, int]) -> str:
    """The spelling of a sum: in parentheses, unless it is a symbol, quotient or remainder."""
    text = ""
    for product, n in terms.items():
        names = [*([str(abs(n))] if abs(n) != 1 or not product else []), *map(_spelled, product)]
        text += ("-" if n < 0 else "+" if text else "") + "*".join(names)
    alone = len(terms) == 1 and all(n == 1 and len(product) == 1 for product, n in terms.items())
    return text if alone else f"({text})"


def _made(terms: Mapping[Product, int]) -> Size:
    kept = {p: n for p, n in terms.items() if n}
    return Extent(kept) if any(kept) else kept.get((), 0)


def _terms(x: object) -> Mapping[Product, int] | None:
    """The terms of an integer or extent, None of anything else."""
    if isinstance(x, Extent):
        return x.terms
    return {(): int(x)} if isinstance(x, (int, np.integer)) else None


def _divided(left: Size, right: Size) -> tuple[Size, Size]:
    """The quotient, rounded down, and the remainder; terms that the divisor divides are simplified."""
    terms, divisor = _terms(left) or {}, _terms(right) or {}
    if len(divisor) == 1:
        ((by, n),) = divisor.items()
        if not n:
            raise ZeroDivisionError
        even = {p: m for p, m in terms.items() if m % n == 0 and not Counter(by) - Counter(p)}
        whole = _made({tuple(sorted((Counter(p) - Counter(by)).elements(), key=_spelled)): m // n for p, m in even.items()})
        rest = _made({p: m for p, m in terms.items() if p not in even})
    else:
        whole, rest = (1, 0) if left == right else (0, left)
    if not isinstance(rest, Extent) and not isinstance(right, Extent):
        return whole + rest // int(right), rest % int(right)
    if not isinstance(rest, Extent) and rest == 0:
        return whole, 0
    if isinstance(rest, Extent) and len(divisor) == 1 and () in divisor:  # a common factor is cancelled
        common = gcd(*rest.terms.values(), divisor[()])
        if common > 1 and divisor[()] > 0:
            small = _made({p: m // common for p, m in rest.terms.items()})
            quotient, over = _divided(small, divisor[()] // common)
            return whole + quotient, over * common
    quotient, over = (_made({(Divided(rest, op, right),): 1}) for op in ("//", "%"))
    return whole + quotient, over


def _mentions(f: Factor, equalities: Equalities) -> bool:
    if isinstance(f, Sym):
        return f in equalities
    return any(_mentions(g, equalities) for x in (f.left, f.right) for p in (_terms(x) or {}) for g in p)


def _where(f: Factor, equalities: Equalities) -> Size:
    if isinstance(f, Sym):
        return equalities.get(f, of(f))
    left, right = (x.where(equalities) if isinstance(x, Extent) else x for x in (f.left, f.right))
    return _divided(left, right)[f.op == "%"]


def _bound(terms: Mapping[Product, int], side: int) -> int | None:
    """A lower (side 1) or upper (side -1) bound of a sum: symbols, and expressions of symbols alone, are not negative."""
    total = 0
    for product, n in terms.items():
        if product and (n * side < 0 or not all(map(_natural, product))):
            return None
        total += 0 if product else n
    return total


@cache
def _natural(f: Factor) -> bool:
    """Whether a factor is never negative."""
    if isinstance(f, Sym):
        return True
    low = f.left.least if isinstance(f.left, Extent) else f.left
    by = f.right.least if isinstance(f.right, Extent) else f.right
    return by is not None and by >= 0 and (f.op == "%" or (low is not None and low >= 0))


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


def quotient(total: Sequence[Dim | Size], parts: Sequence[Dim | Size], equalities: Equalities) -> Size | None:
    """The product of extents `total` divided by that of `parts`: an integer or an extent where there is no remainder, else None.
    `equalities` has the equals of symbols."""
    whole, divisor = _product(total, equalities), _product(parts, equalities)
    if not isinstance(divisor, Extent) and divisor == 0:
        return None
    result, left = _divided(whole, divisor)
    return result if not isinstance(left, Extent) and left == 0 else None


def _product(extents: Sequence[Dim | Size], equalities: Equalities) -> Size:
    product: Size = 1
    for x in extents:
        factor = of(x)
        while isinstance(factor, Extent) and (next_ := factor.where(equalities)) != factor:
            factor = next_
        product = product * factor
    return product
