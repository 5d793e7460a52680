"""The cost of one run of an op: arithmetic operations, and bytes read and written if nothing is fused.

A cost is a polynomial of the symbols in the extents, a constant if there are none. The field `cost` of a declaration counts the
operations of ops that are neither elementwise nor movement; most are one of the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod

from ptir_tools.core.expressions import Poly, constant, term, total
from ptir_tools.core.ir import ELEMENTWISE, Op, operand_type
from ptir_tools.core.typed import cast
from ptir_tools.core.types import Dim, ShapedType, Sym, Type, leaves


def count(shape: Iterable[Dim]) -> Poly:
    """The number of elements of a shape, as one term. A symbol that is an expression is not expanded; it is written in
    parentheses. An extent without a name is `?`."""
    dims = tuple(shape)
    number = prod(d for d in dims if isinstance(d, int))
    names = (d.name if d.name.isidentifier() else f"({d.name})" if d.name else "?" for d in dims if isinstance(d, Sym))
    return term(tuple(sorted(names)), number) if number else constant(0)


def text(cost: Poly) -> str:
    """A cost as a number or a formula, such as `4*K*M + N`."""
    return " + ".join(str(term(*t)) for t in sorted(cost.monomials, key=lambda t: list(map(str, t[0])))) or "0"


def elements(*types: Type) -> Poly:
    """The number of elements of values of these types."""
    return total(count(leaf.shape) for t in types for leaf in leaves(t) if isinstance(leaf, ShapedType))


def results(op: Op) -> Poly:
    """One operation for each element of the results."""
    return elements(*(v.type for v in op.results))


def reads(op: Op) -> Poly:
    """One operation for each element read."""
    return elements(*map(operand_type, op.operands))


def products(length: Callable[[Op], Iterable[Dim]]) -> Callable[[Op], Poly]:
    """A sum of products for each element of the result; the number of terms is the product of the extents that `length` gives."""
    return lambda op: constant(2) * results(op) * count(length(op))


def shape_of(op: Op, operand: int) -> tuple[Dim, ...]:
    """The shape of an operand."""
    t = operand_type(op.operands[operand])
    return t.shape if isinstance(t, ShapedType) else ()


def operations(op: Op) -> Poly:
    """The arithmetic of one run; a multiply-add is two."""
    if op.defn.cost is not None:
        return cast("Poly", op.defn.cost(op))
    return results(op) if op.defn.traits & ELEMENTWISE else constant(0)


def traffic(op: Op) -> Poly:
    """The bytes that the op reads and writes if it is not fused."""
    return size(*map(operand_type, op.operands), *(v.type for v in op.results))


def size(*types: Type) -> Poly:
    """The bytes of values of these types."""
    return total(count((*leaf.shape, leaf.dtype.size)) for t in types for leaf in leaves(t) if isinstance(leaf, ShapedType))
