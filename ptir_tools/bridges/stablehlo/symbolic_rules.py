"""Transfer functions of symbolic integer elements, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.stablehlo.symbolic import (
    MOST,
    Compared,
    Element,
    SymbolicElements,
    Truncated,
    decided,
    each,
    negated,
    number,
)
from ptir_tools.bridges.stablehlo.table import Site, Tensor
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import I1
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType

Rule = Callable[..., "Array | None"]  # from the tracked elements, the site and the operands' elements to the result's


def note(site: Site, operands: Sequence[object], results: Sequence[object]) -> None:
    """Record the symbolic elements of an op's result."""
    symbolic = site.symbolic
    function = _TABLE.get(site.name.removeprefix("stablehlo."))
    if function is None or len(results) != 1 or not isinstance(x := results[0], Tensor) or not isinstance(x.type, TensorType):
        return
    t = x.type
    if not t.is_static or t.count > MOST or not (t.dtype.is_integer or t.dtype is I1) or symbolic.of(x) is not None:
        return
    elements = [_of(symbolic, o) for o in operands]
    if any(g is None for g in elements) or (elements and site.name != "stablehlo.get_dimension_size" and not _some(elements)):
        return
    result = function(symbolic, site, *elements)
    if result is not None and _some([result]):
        symbolic.values[x.operand] = np.asarray(result, object).reshape(t.static_shape)


def _of(symbolic: SymbolicElements, x: object) -> Array | None:
    """The elements of an operand, all None where they are unknown; None for a tensor that is too large."""
    if not isinstance(x, Tensor) or not isinstance(x.type, TensorType):
        return None
    if (result := symbolic.of(x)) is not None:
        return result
    if not x.type.is_static:
        return np.empty((), object)
    return np.empty(x.type.static_shape, object) if x.type.count <= MOST else None


def _some(arrays: Sequence[Array | None]) -> bool:
    return any(x is not None for array in arrays for x in np.asarray(array, object).reshape(-1))


def _elementwise(function: Callable[..., Element], lazy: bool = False) -> Rule:
    """An elementwise rule, None where an operand's element is unknown."""

    def apply(symbolic: SymbolicElements, site: Site, *xs: Array) -> Array:
        return each(lambda *es: None if not lazy and None in [e for e in es if e is None] else function(symbolic, *es), *xs)

    return apply


def _arithmetic(function: Callable[[Size, Size], Size]) -> Rule:
    return _elementwise(lambda symbolic, a, b: function(a, b) if number(a) and number(b) else None)


def _divided(symbolic: SymbolicElements, a: Element, b: Element, rest: bool) -> Element:
    """A quotient or remainder where neither is negative."""
    if not number(a) or not number(b):
        return None
    (low, _), (least, _) = symbolic.bounds(a), symbolic.bounds(b)
    if least < 1:
        return None
    if low < 0:
        return Truncated(a, b) if rest and not isinstance(a, Extent) else None
    return a % b if rest else a // b


def _sum(symbolic: SymbolicElements, a: Element, b: Element) -> Element:
    if number(a) and number(b):
        return a + b
    if isinstance(a, Truncated) and not a.lifted and b == a.right:
        return Truncated(a.left, a.right, lifted=True)
    return None


def _larger(symbolic: SymbolicElements, a: Element, b: Element) -> Element:
    flag = decided(symbolic, "GE", a, b)
    if isinstance(flag, Compared) and (a == 0 or b == 0):
        return b if a == 0 else a  # an axis of an extent under 0 is an error when it is made
    return (a if flag else b) if isinstance(flag, bool) else None


def _smaller(symbolic: SymbolicElements, a: Element, b: Element) -> Element:
    flag = decided(symbolic, "LE", a, b)
    return (a if flag else b) if isinstance(flag, bool) else None


def _clamped(symbolic: SymbolicElements, low: Element, x: Element, high: Element) -> Element:
    if low is not None and low == high:
        return low
    if None in [v for v in (low, x, high) if v is None]:
        return None
    raised = _larger(symbolic, x, low)
    return None if raised is None else _smaller(symbolic, raised, high)


def _sign(symbolic: SymbolicElements, x: Element) -> Element:
    if not number(x):
        return None
    low, high = symbolic.bounds(x)
    return 1 if low > 0 else -1 if high < 0 else 0 if low == high == 0 else None


def _compare(symbolic: SymbolicElements, site: Site, a: Array, b: Array) -> Array:
    direction = site.words[0] if site.words else site.word("comparison_direction")
    return each(lambda x, y: decided(symbolic, direction, x, y), a, b)


def _chosen(flag: Element, x: Element, y: Element) -> Element:
    if isinstance(flag, bool):
        return x if flag else y
    if isinstance(x, Truncated) and isinstance(y, Truncated) and flag == Compared("NE", y, 0) and x.lifted and x[:2] == y[:2]:
        return x.left % x.right  # a nonzero remainder has its divisor added: floor division
    return x if x is not None and x == y else None


def _logic(stop: bool) -> Rule:
    """`or` stops at True, `and` at False."""

    def apply(symbolic: SymbolicElements, a: Element, b: Element) -> Element:
        if a is stop or b is stop:
            return stop
        if isinstance(a, Compared) and a == b:
            return a
        return (not stop) if isinstance(a, bool) and isinstance(b, bool) else None

    return _elementwise(apply, lazy=True)


def _slice(symbolic: SymbolicElements, site: Site, x: Array) -> Array | None:
    if not site.has("subscript"):
        return None
    return x[tuple(slice(*v) for v in site.value("subscript") if isinstance(v, tuple))]


def _broadcast(symbolic: SymbolicElements, site: Site, x: Array) -> Array:
    shape = site.type.static_shape
    placed = [1] * len(shape)
    for d, n in zip(site.ints("broadcast_dimensions", []), x.shape, strict=True):
        placed[d] = n
    return np.broadcast_to(x.reshape(placed), shape)


def _dimension(symbolic: SymbolicElements, site: Site, x: Array) -> Array:
    (value,) = site.each([site.scope.lookup(site.names[0])])
    return np.asarray(symbolic.extent(value.shape[site.axis("dimension", value.rank)]), object)


_TABLE: dict[str, Rule] = {
    "add": _elementwise(_sum),
    "subtract": _arithmetic(lambda a, b: a - b),
    "multiply": _arithmetic(lambda a, b: a * b),
    "divide": _elementwise(lambda m, a, b: _divided(m, a, b, rest=False)),
    "remainder": _elementwise(lambda m, a, b: _divided(m, a, b, rest=True)),
    "maximum": _elementwise(_larger),
    "minimum": _elementwise(_smaller),
    "clamp": _elementwise(_clamped, lazy=True),
    "negate": _elementwise(lambda m, a: -a if number(a) else None),
    "sign": _elementwise(_sign),
    "not": _elementwise(lambda m, a: negated(a)),
    "and": _logic(False),
    "or": _logic(True),
    "compare": _compare,
    "select": lambda m, site, flag, a, b: each(_chosen, flag, a, b),
    "convert": lambda m, site, x: each(lambda e: int(e) if isinstance(e, bool) and site.dtype is not I1 else e, x),
    "slice": _slice,
    "reshape": lambda m, site, x: x.reshape(site.type.static_shape),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda m, site, *xs: np.concatenate(xs, site.integer("dimension")),
    "get_dimension_size": _dimension,
}
