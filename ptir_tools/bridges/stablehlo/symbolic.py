"""Symbolic values of small integer tensors, in terms of extents: JAX computes unknown shapes as data."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges import extents
from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extents import Extent, Size, poly, size
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import I1
from ptir_tools.core.expressions import Interval, Quotient, constant, of_quotient
from ptir_tools.core.extents import bounds, mod, put
from ptir_tools.core.ir import Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.symbols import mentioned, substitute
from ptir_tools.core.typed import TypeGuard
from ptir_tools.core.types import Dim, Sym, TensorType
from ptir_tools.dialects.ptir.builder.build import Tensor

MOST = 64  # the most elements of a tensor that is tracked


class Compared(NamedTuple):
    """A comparison of extents that is not decided while reading."""

    direction: str
    left: Element
    right: Element


class Truncated(NamedTuple):
    """The remainder of a negative number divided by a positive extent, rounded toward zero; with `lifted` the extent is added."""

    left: int
    right: Size
    lifted: bool = False


Element = int | Extent | bool | Compared | Truncated | None  # None: unknown


class SymbolicElements:
    """The elements of tensors as integers, truth values, extents and comparisons; None for unknown ones."""

    def __init__(self) -> None:
        self.values: dict[Operand, Array] = {}
        self.equal: dict[Sym, Size] = {}  # the equals of symbols
        self.named: dict[Extent, Sym] = {}  # the symbols that are equal to expressions
        self.least: dict[Sym, Size] = {}  # nonzero symbols, each as one more than another symbol

    def of(self, x: Tensor) -> Array | None:
        """The elements of a tensor, as an array of objects; None for an untracked tensor."""
        if (entry := self.values.get(x.operand)) is not None:
            return each(lambda e: e.where(self.equal) if isinstance(e, Extent) else e, entry)
        t = x.type
        if not isinstance(t, TensorType) or not (t.dtype.is_integer or t.dtype is I1) or not t.is_static or t.count > MOST:
            return None
        number = known(x)
        return None if number is None else number.astype(object)

    def dim(self, x: Size) -> Dim:
        """An integer or extent as an extent of a type."""
        if not isinstance(x, Extent):
            return int(x)
        x = x.where(self.equal)
        if not isinstance(x, Extent):
            return int(x)
        return self.named.get(x) or x.dim

    def extent(self, d: Dim) -> Size:
        """An extent of a type as an integer or extent."""
        x = extents.of(d)
        return x.where(self.equal) if isinstance(x, Extent) else x

    def bounds(self, x: Size) -> Interval:
        """The lower and upper bound of an integer or extent."""
        (low, high), (least, most) = (bounds(poly(e)) for e in (x, x.where(self.least) if isinstance(x, Extent) else x))
        return max(low, least), min(high, most)

    def asserted(self, x: Tensor) -> bool:
        """Assume that a comparison holds. True when the types now imply it; else the program has to check it."""
        elements = self.of(x)
        if elements is None or elements.size != 1 or not isinstance(comparison := elements.reshape(-1)[0], Compared):
            return False
        left, right = comparison.left, comparison.right
        some = number(right) and not isinstance(right, Extent) and right >= 1
        if comparison.direction == "GE" and isinstance(left, Extent) and left.symbol and some:
            self.least.setdefault(left.symbol, left + 1)
        if comparison.direction != "EQ":
            return False
        declared = {s for p in x.block.region.params for s in mentioned(p.type)}  # the run checks its inputs against these
        for a, b in ((left, right), (right, left)):
            s = a.symbol if isinstance(a, Extent) else None
            if s in declared and s is not None and number(b) and (not isinstance(b, Extent) or b.symbol in declared):
                self._same(x, s, b)
                return True
            if isinstance(a, Extent) and not isinstance(b, Extent) and b == 0 and self._even(a):
                break
        return False

    def _same(self, x: Tensor, s: Sym, other: Size) -> None:
        """Replace a symbol by an equal symbol or number."""
        new = self.dim(other)
        if new is s:
            return
        self.equal[s] = other
        known = {s.name: new}
        program = x.block.graph.program
        for block in program.blocks():
            for v in (*block.params, *(v for op in block.body for v in op.results)):
                v.type = substitute(v.type, lambda d: put(d, known))
            for op in block.body:
                op.attrs = substitute(op.attrs, lambda d: put(d, known))

    def _even(self, rest: Extent) -> bool:
        """A symbol plus a number is divisible: replace the symbol by a multiple of the quotient."""
        parts = [(m[0], c) for m, c in rest.poly.monomials if len(m) == 1 and isinstance(m[0], Quotient)]
        if len(parts) != 1 or not isinstance(f := parts[0][0], Quotient) or f.op != "//" or f.right.value is None:
            return False
        if rest.poly not in (remainder := mod(f.left, f.right), -remainder):
            return False
        offset = constant(f.left.const)
        if not isinstance(symbol := size(f.left - offset), Extent) or symbol.symbol is None:
            return False
        whole = Extent(of_quotient(f) * f.right - offset)
        self.equal[symbol.symbol] = whole
        self.named[whole] = symbol.symbol
        return True


def each(function: Callable[..., Element], *arrays: Array) -> Array:
    """A function applied elementwise to arrays of one shape, or scalars."""
    whole = np.broadcast_arrays(*arrays)
    out = np.empty(whole[0].shape, object)
    for i, xs in enumerate(zip(*(a.reshape(-1) for a in whole), strict=True)):
        out.reshape(-1)[i] = function(*xs)
    return out


def number(x: Element) -> TypeGuard[Size]:
    """Whether an element is an integer or extent."""
    return not isinstance(x, (Compared, Truncated, bool)) and x is not None


def decided(symbolic: SymbolicElements, direction: str, a: Element, b: Element) -> Element:
    """The truth value of a comparison, or a `Compared` where it is undecided."""
    if isinstance(a, Truncated) and not a.lifted and not isinstance(b, Extent) and b == 0 and direction in ("NE", "LT"):
        return Compared("NE", a, 0)  # it is never positive
    if isinstance(a, Compared) and b is False and direction == "NE":
        return a
    if isinstance(a, bool) or isinstance(b, bool):
        return {"EQ": a == b, "NE": a != b}.get(direction) if isinstance(a, bool) and isinstance(b, bool) else None
    if not number(a) or not number(b):
        return None
    low, high = symbolic.bounds(a - b)
    flags = {
        "EQ": False if low > 0 or high < 0 else True if low == high == 0 else None,
        "LT": True if high < 0 else False if low >= 0 else None,
        "GT": True if low > 0 else False if high <= 0 else None,
    }
    flags |= {"NE": negated(flags["EQ"]), "GE": negated(flags["LT"]), "LE": negated(flags["GT"])}
    return flags[direction] if flags[direction] is not None else Compared(direction, a, b)


def negated(flag: Element) -> bool | None:
    """The opposite of a truth value; None of anything else."""
    return None if not isinstance(flag, bool) else not flag
