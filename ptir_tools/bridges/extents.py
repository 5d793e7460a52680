"""Extents as values: what a program computes of shapes while it is read, symbols included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Dim, Shape, Sym, sym

Number = "int | Extent"


class Extent:
    """An integer that is known when the program runs: a symbol, or `left op right` of integers and other extents.

    Equal expressions are equal. Arithmetic folds what it can; an extent is never negative when it is compared.
    """

    __slots__ = ("left", "op", "right")

    def __init__(self, op: str, left: Any, right: object = None) -> None:
        self.op, self.left, self.right = op, left, right

    @property
    def key(self) -> str:
        """Its spelling, equal for equal expressions."""
        if self.op == "sym":
            return str(self.left.name)
        left, right = (x.key if isinstance(x, Extent) else str(x) for x in (self.left, self.right))
        return f"({left}{self.op}{right})"

    @property
    def dim(self) -> Sym:
        """Itself as an extent of a type: its symbol, or one for the expression."""
        return self.left if self.op == "sym" else sym(self.key)

    @property
    def simple(self) -> bool:
        """Whether it is a symbol of the program."""
        return self.op == "sym"

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extent) and self.key == other.key

    def __repr__(self) -> str:
        return self.key

    def __add__(self, other: Any) -> Any:
        return self if _is(other, 0) else _made("+", self, other)

    def __radd__(self, other: Any) -> Any:
        return self if _is(other, 0) else _made("+", self, other)

    def __sub__(self, other: Any) -> Any:
        return self if _is(other, 0) else 0 if self == other else _made("-", self, other)

    def __rsub__(self, other: Any) -> Any:
        return _made("-", other, self)

    def __mul__(self, other: Any) -> Any:
        return self if _is(other, 1) else 0 if _is(other, 0) else _made("*", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self if _is(other, 1) else 0 if _is(other, 0) else _made("*", self, other)

    def __floordiv__(self, other: Any) -> Any:
        if _is(other, 1):
            return self
        if self.op == "*" and self.right == other:
            return self.left
        if self.op == "*" and isinstance(self.right, int) and isinstance(other, int) and other > 0 and self.right % other == 0:
            return self.left * (self.right // other)
        return _made("//", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _made("//", other, self)

    def __bool__(self) -> bool:
        raise TypeError("an extent is not known yet")


def _made(op: str, left: Any, right: object) -> Any:
    if not isinstance(left, (int, Extent)) or not isinstance(right, (int, Extent)):
        if isinstance(left, np.integer) or isinstance(right, np.integer):
            left, right = (int(x) if isinstance(x, np.integer) else x for x in (left, right))
        else:
            return NotImplemented
    return Extent(op, left, right)


def _is(x: object, n: int) -> bool:
    return isinstance(x, (int, np.integer)) and int(x) == n


def of_shape(shape: Shape) -> Any:
    """A shape as a vector: int64, or objects when some of it is symbolic."""
    if all(isinstance(d, int) for d in shape):
        return np.array(shape, np.int64)
    out = np.empty(len(shape), object)
    for i, d in enumerate(shape):
        out[i] = d if isinstance(d, int) else Extent("sym", d)
    return out


def settled(array: Any) -> Any:
    """An array of objects as int64 where it holds only integers."""
    if array.dtype == object and all(isinstance(x, (int, np.integer)) for x in array.flat):
        return array.astype(np.int64)
    return array


def as_dims(array: Any) -> list[Any]:
    """The elements of a vector: integers and extents."""
    return [x if isinstance(x, Extent) else int(x) for x in array.reshape(-1)]


def dim(x: Any) -> Dim:
    """An integer or extent as an extent of a type."""
    return x.dim if isinstance(x, Extent) else int(x)


def quotient(total: Sequence[object], parts: Sequence[object], meanings: Mapping[Sym, object]) -> Any:
    """The product of extents `total` divided by that of `parts`: an integer or an extent where it comes out even, else None.
    `meanings` are the products that symbols are equal to."""
    number, symbols = _factors(total, meanings)
    divisor, others = _factors(parts, meanings)
    left = symbols - others
    if divisor <= 0 or number % divisor or others - symbols:
        return None
    found: Any = number // divisor
    for factor in left.elements():
        found = factor * found
    return found


def _factors(extents: Sequence[Any], meanings: Mapping[Sym, object]) -> tuple[int, Counter[Extent]]:
    """The product of the integers among factors, and how often each other factor is there."""
    number, symbols, stack = 1, Counter[Extent](), list(extents)
    while stack:
        x = stack.pop()
        x = Extent("sym", x) if isinstance(x, Sym) else x
        if isinstance(x, Extent) and x.simple and x.left in meanings:
            stack.append(meanings[x.left])
        elif isinstance(x, Extent) and x.op == "*":
            stack += [x.left, x.right]
        elif isinstance(x, Extent):
            symbols[x] += 1
        else:
            number *= int(x)
    return number, symbols
