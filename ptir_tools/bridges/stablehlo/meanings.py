"""What small integers of a program are, in terms of its extents: JAX computes shapes as data where they are not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.bridges import extents
from ptir_tools.bridges.extents import Divided, Extent
from ptir_tools.bridges.stablehlo.table import Site, Tensor, known
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.symbols import substitute
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Dim, Sym, TensorType

MOST = 64  # elements of a tensor whose meaning is kept


class Compared(NamedTuple):
    """A comparison of extents that is not decided while reading."""

    direction: str
    left: Any
    right: Any


class Truncated(NamedTuple):
    """What a negative number leaves when it is divided by a positive extent, rounded toward zero; `lifted` with that added."""

    left: int
    right: Any
    lifted: bool = False


class Meanings:
    """The elements of tensors as integers, truth values, extents and comparisons of those; None for any other."""

    def __init__(self) -> None:
        self.values: dict[Operand, Any] = {}
        self.equal: dict[Sym, Any] = {}  # what symbols are said to be
        self.named: dict[str, Sym] = {}  # the symbols that expressions are said to be
        self.least: dict[Sym, Any] = {}  # symbols that are said not to be 0, as one more than some symbol
        self.composite: dict[Sym, Extent] = {}  # what the symbols of expressions stand for

    def of(self, x: Tensor) -> Any:
        """The elements of a tensor; None where nothing is known."""
        if (found := self.values.get(x.operand)) is not None:
            return _each(lambda e: e.where(self.equal) if isinstance(e, Extent) else e, found)
        t = x.type
        if not isinstance(t, TensorType) or not (t.dtype.is_integer or t.dtype is I1) or not t.is_static or t.count > MOST:
            return None
        number = known(x)
        return None if number is None else number.astype(object)

    def dim(self, x: Any) -> Dim:
        """An integer or extent as an extent of a type."""
        if not isinstance(x, Extent):
            return int(x)
        x = x.where(self.equal)
        if not isinstance(x, Extent):
            return int(x)
        found = self.named.get(x.key) or x.dim
        if not x.simple and found.name == x.key:
            self.composite[found] = x
        return found

    def extent(self, d: Dim) -> Any:
        """An extent of a type as an integer or extent."""
        if not isinstance(d, Sym):
            return d
        return self.composite[d] if d in self.composite else self.equal[d] if d in self.equal else extents.of(d)

    def bounds(self, x: Any) -> tuple[int | None, int | None]:
        """What an integer or extent is not under, and not over."""
        if not isinstance(x, Extent):
            return int(x), int(x)
        x = x.where(self.least)
        return (x.least, x.most) if isinstance(x, Extent) else (int(x), int(x))

    def note(self, site: Site, operands: Sequence[object], results: Sequence[object]) -> None:
        """Find the meaning of the result of an op."""
        function = _TABLE.get(site.name.removeprefix("stablehlo."))
        if function is None or len(results) != 1 or not isinstance(x := results[0], Tensor) or not isinstance(x.type, TensorType):
            return
        t = x.type
        if not t.is_static or t.count > MOST or not (t.dtype.is_integer or t.dtype is I1) or self.of(x) is not None:
            return
        given = [_of(self, o) for o in operands]
        if any(g is None for g in given) or (given and site.name != "stablehlo.get_dimension_size" and not _some(given)):
            return
        found = function(self, site, *given)
        if found is not None and _some([found]):
            self.values[x.operand] = np.asarray(found, object).reshape(t.static_shape)

    def asserted(self, x: Tensor) -> None:
        """Take note that a comparison holds."""
        found = self.of(x)
        if found is None or found.size != 1 or not isinstance(said := found.reshape(-1)[0], Compared):
            return
        left, right = said.left, said.right
        if said.direction == "GE" and isinstance(left, Extent) and left.symbol and not isinstance(right, Extent) and right >= 1:
            self.least.setdefault(left.symbol, left + 1)
        if said.direction != "EQ":
            return
        for a, b in ((left, right), (right, left)):
            if isinstance(a, Extent) and (s := a.symbol) and (not isinstance(b, Extent) or b.simple):
                self._same(x, s, b)
                return
            if isinstance(a, Extent) and not isinstance(b, Extent) and b == 0 and self._even(a):
                return

    def _same(self, x: Tensor, s: Sym, other: Any) -> None:
        """A symbol is another, or a number: it is replaced."""
        new = self.dim(other)
        if new is s:
            return
        self.equal[s] = other
        program = x.block.graph.program
        for block in program.blocks():
            for v in (*block.params, *(v for op in block.body for v in op.results)):
                v.type = substitute(v.type, lambda d: new if d is s else d)
            for op in block.body:
                op.attrs = substitute(op.attrs, lambda d: new if d is s else d)

    def _even(self, rest: Extent) -> bool:
        """A symbol leaves no remainder, with a number added: it is so many times the quotient."""
        if len(rest.terms) != 1 or len(product := next(iter(rest.terms))) != 1 or not isinstance(f := product[0], Divided):
            return False
        if f.op != "%" or isinstance(f.right, Extent) or not isinstance(f.left, Extent):
            return False
        symbols = [p[0] for p, n in f.left.terms.items() if len(p) == 1 and n == 1 and isinstance(p[0], Sym)]
        if not symbols or len(f.left.terms) - (() in f.left.terms) != 1:
            return False
        whole = Extent({(Divided(f.left, "//", f.right),): 1}) * f.right - f.left.terms.get((), 0)
        self.equal[symbols[0]] = whole
        self.named[whole.key] = symbols[0]
        return True


def _of(meanings: Meanings, x: object) -> Any:
    """The elements of an operand, all None where nothing is known; None for what is too large."""
    if not isinstance(x, Tensor) or not isinstance(x.type, TensorType):
        return None
    if (found := meanings.of(x)) is not None:
        return found
    if not x.type.is_static:
        return np.empty((), object)
    return np.empty(x.type.static_shape, object) if x.type.count <= MOST else None


def _some(arrays: Sequence[Any]) -> bool:
    return any(x is not None for array in arrays for x in np.asarray(array, object).reshape(-1))


def _each(function: Callable[..., object], *arrays: Any) -> Any:
    """A function of elements on arrays of one shape, or scalars."""
    whole = np.broadcast_arrays(*arrays)
    out = np.empty(whole[0].shape, object)
    for i, xs in enumerate(zip(*(a.reshape(-1) for a in whole), strict=True)):
        out.reshape(-1)[i] = function(*xs)
    return out


def _elementwise(function: Callable[..., object], lazy: bool = False) -> Callable[..., Any]:
    """A function of elements, None where one is not known."""

    def apply(meanings: Meanings, site: Site, *xs: Any) -> Any:
        return _each(lambda *es: None if not lazy and None in [e for e in es if e is None] else function(meanings, *es), *xs)

    return apply


def _number(x: object) -> bool:
    return not isinstance(x, (Compared, Truncated, bool)) and x is not None


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return _elementwise(lambda meanings, a, b: function(a, b) if _number(a) and _number(b) else None)


def _divided(meanings: Meanings, a: Any, b: Any, rest: bool) -> Any:
    """A quotient or remainder where neither is negative."""
    if not _number(a) or not _number(b):
        return None
    (low, _), (least, _) = meanings.bounds(a), meanings.bounds(b)
    if least is None or least < 1:
        return None
    if low is None or low < 0:
        return Truncated(a, b) if rest and not isinstance(a, Extent) else None
    return a % b if rest else a // b


def _sum(meanings: Meanings, a: Any, b: Any) -> Any:
    if _number(a) and _number(b):
        return a + b
    fits = isinstance(a, Truncated) and not a.lifted and b == a.right
    return Truncated(a.left, a.right, lifted=True) if fits else None


def decided(meanings: Meanings, direction: str, a: Any, b: Any) -> Any:
    """Whether a comparison holds; itself where that is not decided."""
    if isinstance(a, Truncated) and not a.lifted and not isinstance(b, Extent) and b == 0 and direction in ("NE", "LT"):
        return Compared("NE", a, 0)  # it is never positive
    if isinstance(a, Compared) and b is False and direction == "NE":
        return a
    if isinstance(a, bool) or isinstance(b, bool):
        return {"EQ": a == b, "NE": a != b}.get(direction) if isinstance(a, bool) and isinstance(b, bool) else None
    if not _number(a) or not _number(b):
        return None
    low, high = meanings.bounds(a - b)
    found = {
        "EQ": False if _over(low, 1) or _under(high, -1) else True if low == high == 0 else None,
        "LT": True if _under(high, -1) else False if _over(low, 0) else None,
        "GT": True if _over(low, 1) else False if _under(high, 0) else None,
    }
    found |= {"NE": _not(found["EQ"]), "GE": _not(found["LT"]), "LE": _not(found["GT"])}
    return found[direction] if found[direction] is not None else Compared(direction, a, b)


def _over(low: int | None, n: int) -> bool:
    return low is not None and low >= n


def _under(high: int | None, n: int) -> bool:
    return high is not None and high <= n


def _not(flag: object) -> Any:
    return None if not isinstance(flag, bool) else not flag


def _larger(meanings: Meanings, a: Any, b: Any) -> Any:
    flag = decided(meanings, "GE", a, b)
    if isinstance(flag, Compared) and (a == 0 or b == 0):
        return b if a == 0 else a  # an axis of an extent under 0 is an error when it is made
    return (a if flag else b) if isinstance(flag, bool) else None


def _smaller(meanings: Meanings, a: Any, b: Any) -> Any:
    flag = decided(meanings, "LE", a, b)
    return (a if flag else b) if isinstance(flag, bool) else None


def _clamped(meanings: Meanings, low: Any, x: Any, high: Any) -> Any:
    if low is not None and low == high:
        return low
    if None in [v for v in (low, x, high) if v is None]:
        return None
    raised = _larger(meanings, x, low)
    return None if raised is None else _smaller(meanings, raised, high)


def _sign(meanings: Meanings, x: Any) -> Any:
    if not _number(x):
        return None
    low, high = meanings.bounds(x)
    return 1 if _over(low, 1) else -1 if _under(high, -1) else 0 if low == high == 0 else None


def _compare(meanings: Meanings, site: Site, a: Any, b: Any) -> Any:
    direction = site.words[0] if site.words else site.word("comparison_direction")
    return _each(lambda x, y: decided(meanings, direction, x, y), a, b)


def _select(meanings: Meanings, site: Site, flag: Any, a: Any, b: Any) -> Any:
    return _each(_chosen, flag, a, b)


def _chosen(flag: object, x: Any, y: Any) -> Any:
    if isinstance(flag, bool):
        return x if flag else y
    if isinstance(flag, Compared) and flag == ("NE", y, 0) and isinstance(x, Truncated) and x.lifted and x[:2] == y[:2]:
        return x.left % x.right  # what is not 0 has its divisor added: rounded down
    return x if x is not None and x == y else None


def _logic(stop: bool) -> Callable[..., Any]:
    """`or` stops at True, `and` at False."""

    def apply(meanings: Meanings, a: Any, b: Any) -> Any:
        if a is stop or b is stop:
            return stop
        if isinstance(a, Compared) and a == b:
            return a
        return (not stop) if isinstance(a, bool) and isinstance(b, bool) else None

    return _elementwise(apply, lazy=True)


def _convert(meanings: Meanings, site: Site, x: Any) -> Any:
    return _each(lambda e: int(e) if isinstance(e, bool) and site.dtype is not I1 else e, x)


def _slice(meanings: Meanings, site: Site, x: Any) -> Any:
    if not site.has("subscript"):
        return None
    return x[tuple(slice(*v) for v in site.value("subscript") if isinstance(v, tuple))]


def _broadcast(meanings: Meanings, site: Site, x: Any) -> Any:
    shape = site.type.static_shape
    placed = [1] * len(shape)
    for d, n in zip(site.ints("broadcast_dimensions", []), x.shape, strict=True):
        placed[d] = n
    return np.broadcast_to(x.reshape(placed), shape)


def _dimension(meanings: Meanings, site: Site, x: Any) -> Any:
    value = site.scope.lookup(site.names[0])
    return np.asarray(meanings.extent(value.shape[site.axis("dimension", value.rank)]), object)


_TABLE: dict[str, Callable[..., Any]] = {
    "add": _elementwise(_sum),
    "subtract": _arithmetic(lambda a, b: a - b),
    "multiply": _arithmetic(lambda a, b: a * b),
    "divide": _elementwise(lambda m, a, b: _divided(m, a, b, rest=False)),
    "remainder": _elementwise(lambda m, a, b: _divided(m, a, b, rest=True)),
    "maximum": _elementwise(_larger),
    "minimum": _elementwise(_smaller),
    "clamp": _elementwise(_clamped, lazy=True),
    "negate": _elementwise(lambda m, a: -a if _number(a) else None),
    "sign": _elementwise(_sign),
    "not": _elementwise(lambda m, a: _not(a)),
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
