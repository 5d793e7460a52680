"""The meaning of small integers, op by op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.bridges.extents import Extent, Size
from ptir_tools.bridges.stablehlo.meanings import (
    MOST,
    Compared,
    Meaning,
    Meanings,
    Truncated,
    decided,
    each,
    negated,
    number,
    over,
    under,
)
from ptir_tools.bridges.stablehlo.table import Site, Tensor
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import I1
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType

Rule = Callable[..., "Array | None"]  # the meaning of a result: of the meanings, the site and those of the operands


def note(site: Site, operands: Sequence[object], results: Sequence[object]) -> None:
    """Find the meaning of the result of an op."""
    meanings = site.meanings
    function = _TABLE.get(site.name.removeprefix("stablehlo."))
    if function is None or len(results) != 1 or not isinstance(x := results[0], Tensor) or not isinstance(x.type, TensorType):
        return
    t = x.type
    if not t.is_static or t.count > MOST or not (t.dtype.is_integer or t.dtype is I1) or meanings.of(x) is not None:
        return
    given = [_of(meanings, o) for o in operands]
    if any(g is None for g in given) or (given and site.name != "stablehlo.get_dimension_size" and not _some(given)):
        return
    result = function(meanings, site, *given)
    if result is not None and _some([result]):
        meanings.values[x.operand] = np.asarray(result, object).reshape(t.static_shape)


def _of(meanings: Meanings, x: object) -> Array | None:
    """The elements of an operand, all None where nothing is known; None for what is too large."""
    if not isinstance(x, Tensor) or not isinstance(x.type, TensorType):
        return None
    if (result := meanings.of(x)) is not None:
        return result
    if not x.type.is_static:
        return np.empty((), object)
    return np.empty(x.type.static_shape, object) if x.type.count <= MOST else None


def _some(arrays: Sequence[Array | None]) -> bool:
    return any(x is not None for array in arrays for x in np.asarray(array, object).reshape(-1))


def _elementwise(function: Callable[..., Meaning], lazy: bool = False) -> Rule:
    """A function of elements, None where one is not known."""

    def apply(meanings: Meanings, site: Site, *xs: Array) -> Array:
        return each(lambda *es: None if not lazy and None in [e for e in es if e is None] else function(meanings, *es), *xs)

    return apply


def _arithmetic(function: Callable[[Size, Size], Size]) -> Rule:
    return _elementwise(lambda meanings, a, b: function(a, b) if number(a) and number(b) else None)


def _divided(meanings: Meanings, a: Meaning, b: Meaning, rest: bool) -> Meaning:
    """A quotient or remainder where neither is negative."""
    if not number(a) or not number(b):
        return None
    (low, _), (least, _) = meanings.bounds(a), meanings.bounds(b)
    if least is None or least < 1:
        return None
    if low is None or low < 0:
        return Truncated(a, b) if rest and not isinstance(a, Extent) else None
    return a % b if rest else a // b


def _sum(meanings: Meanings, a: Meaning, b: Meaning) -> Meaning:
    if number(a) and number(b):
        return a + b
    if isinstance(a, Truncated) and not a.lifted and b == a.right:
        return Truncated(a.left, a.right, lifted=True)
    return None


def _larger(meanings: Meanings, a: Meaning, b: Meaning) -> Meaning:
    flag = decided(meanings, "GE", a, b)
    if isinstance(flag, Compared) and (a == 0 or b == 0):
        return b if a == 0 else a  # an axis of an extent under 0 is an error when it is made
    return (a if flag else b) if isinstance(flag, bool) else None


def _smaller(meanings: Meanings, a: Meaning, b: Meaning) -> Meaning:
    flag = decided(meanings, "LE", a, b)
    return (a if flag else b) if isinstance(flag, bool) else None


def _clamped(meanings: Meanings, low: Meaning, x: Meaning, high: Meaning) -> Meaning:
    if low is not None and low == high:
        return low
    if None in [v for v in (low, x, high) if v is None]:
        return None
    raised = _larger(meanings, x, low)
    return None if raised is None else _smaller(meanings, raised, high)


def _sign(meanings: Meanings, x: Meaning) -> Meaning:
    if not number(x):
        return None
    low, high = meanings.bounds(x)
    return 1 if over(low, 1) else -1 if under(high, -1) else 0 if low == high == 0 else None


def _compare(meanings: Meanings, site: Site, a: Array, b: Array) -> Array:
    direction = site.words[0] if site.words else site.word("comparison_direction")
    return each(lambda x, y: decided(meanings, direction, x, y), a, b)


def _select(meanings: Meanings, site: Site, flag: Array, a: Array, b: Array) -> Array:
    return each(_chosen, flag, a, b)


def _chosen(flag: Meaning, x: Meaning, y: Meaning) -> Meaning:
    if isinstance(flag, bool):
        return x if flag else y
    if isinstance(x, Truncated) and isinstance(y, Truncated) and flag == Compared("NE", y, 0) and x.lifted and x[:2] == y[:2]:
        return x.left % x.right  # what is not 0 has its divisor added: rounded down
    return x if x is not None and x == y else None


def _logic(stop: bool) -> Rule:
    """`or` stops at True, `and` at False."""

    def apply(meanings: Meanings, a: Meaning, b: Meaning) -> Meaning:
        if a is stop or b is stop:
            return stop
        if isinstance(a, Compared) and a == b:
            return a
        return (not stop) if isinstance(a, bool) and isinstance(b, bool) else None

    return _elementwise(apply, lazy=True)


def _convert(meanings: Meanings, site: Site, x: Array) -> Array:
    return each(lambda e: int(e) if isinstance(e, bool) and site.dtype is not I1 else e, x)


def _slice(meanings: Meanings, site: Site, x: Array) -> Array | None:
    if not site.has("subscript"):
        return None
    return x[tuple(slice(*v) for v in site.value("subscript") if isinstance(v, tuple))]


def _broadcast(meanings: Meanings, site: Site, x: Array) -> Array:
    shape = site.type.static_shape
    placed = [1] * len(shape)
    for d, n in zip(site.ints("broadcast_dimensions", []), x.shape, strict=True):
        placed[d] = n
    return np.broadcast_to(x.reshape(placed), shape)


def _dimension(meanings: Meanings, site: Site, x: Array) -> Array:
    (value,) = site.each([site.scope.lookup(site.names[0])])
    return np.asarray(meanings.extent(value.shape[site.axis("dimension", value.rank)]), object)


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
    "select": _select,
    "convert": _convert,
    "slice": _slice,
    "reshape": lambda m, site, x: x.reshape(site.type.static_shape),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda m, site, *xs: np.concatenate(xs, site.integer("dimension")),
    "get_dimension_size": _dimension,
}
