"""The cost of one run of an op: arithmetic operations, and bytes read and written if nothing is fused.

A cost is a number, or a `Polynomial` of the symbols in the extents. The field `cost` of a declaration counts the operations of
ops that are neither elementwise nor movement; most are one of the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from ptir_tools.core.ir import ELEMENTWISE, Op, operand_type
from ptir_tools.core.typed import cast
from ptir_tools.core.types import Dim, ShapedType, Sym, Type, leaves


class Polynomial:
    """A sum of products of symbols: the factor of each product of names, which are sorted."""

    __slots__ = ("terms",)

    def __init__(self, terms: tuple[tuple[tuple[str, ...], int], ...]) -> None:
        self.terms = terms

    def __add__(self, other: Cost) -> Polynomial:
        return _polynomial([*self.terms, *_terms(other)])

    def __mul__(self, other: Cost) -> Polynomial:
        return _polynomial((tuple(sorted((*a, *b))), m * n) for a, m in self.terms for b, n in _terms(other))

    __radd__ = __add__
    __rmul__ = __mul__

    def __str__(self) -> str:
        products = ("*".join([*([str(n)] if n != 1 or not names else []), *names]) for names, n in self.terms)
        return " + ".join(products) or "0"


Cost = int | Polynomial


def _terms(x: Cost) -> Sequence[tuple[tuple[str, ...], int]]:
    return x.terms if isinstance(x, Polynomial) else (((), x),)


def _polynomial(terms: Iterable[tuple[tuple[str, ...], int]]) -> Polynomial:
    total: dict[tuple[str, ...], int] = {}
    for names, n in terms:
        total[names] = total.get(names, 0) + n
    return Polynomial(tuple(sorted((names, n) for names, n in total.items() if n)))


def as_number(x: Cost) -> Cost:
    """A cost as a number, if it has no symbols."""
    return x if isinstance(x, int) or any(names for names, _ in x.terms) else sum(n for _, n in x.terms)


def extent(d: Dim) -> Cost:
    """One extent: its number, or its symbol."""
    if isinstance(d, int):
        return d
    name = d.name if isinstance(d, Sym) else str(d)
    return Polynomial((((name if name.isidentifier() else f"({name})",), 1),))


def elements(*types: Type) -> Cost:
    """The number of elements of values of these types."""
    shapes = [leaf.shape for t in types for leaf in leaves(t) if isinstance(leaf, ShapedType)]
    return sum((prod(map(extent, shape)) for shape in shapes), start=0)


def results(op: Op) -> Cost:
    """One operation for each element of the results."""
    return elements(*(v.type for v in op.results))


def reads(op: Op) -> Cost:
    """One operation for each element read."""
    return elements(*map(operand_type, op.operands))


def products(length: Callable[[Op], Iterable[Dim]]) -> Callable[[Op], Cost]:
    """A sum of products for each element of the result; the number of terms is the product of the extents that `length` gives."""
    return lambda op: 2 * results(op) * prod(map(extent, length(op)))


def shape_of(op: Op, operand: int) -> tuple[Dim, ...]:
    """The shape of an operand."""
    t = operand_type(op.operands[operand])
    return t.shape if isinstance(t, ShapedType) else ()


def operations(op: Op) -> Cost:
    """The arithmetic of one run; a multiply-add is two."""
    if op.defn.cost is not None:
        return cast("Cost", op.defn.cost(op))
    return results(op) if op.defn.traits & ELEMENTWISE else 0


def traffic(op: Op) -> Cost:
    """The bytes that the op reads and writes if it is not fused."""
    return size(*map(operand_type, op.operands), *(v.type for v in op.results))


def size(*types: Type) -> Cost:
    """The bytes of values of these types."""
    widths = (max((leaf.dtype.size for leaf in leaves(t) if isinstance(leaf, ShapedType)), default=0) for t in types)
    return sum((elements(t) * n for t, n in zip(types, widths, strict=True)), start=0)
