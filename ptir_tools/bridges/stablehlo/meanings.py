"""What small integers of a program are, in terms of its extents: JAX computes shapes as data where they are not known."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges import extents
from ptir_tools.bridges.constants import known
from ptir_tools.bridges.extents import Divided, Extent, Size
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import I1
from ptir_tools.core.ir import Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.symbols import mentioned, substitute
from ptir_tools.core.typed import TypeGuard
from ptir_tools.core.types import Dim, Sym, TensorType
from ptir_tools.dialects.ptir.builder.build import Tensor

MOST = 64  # elements of a tensor whose meaning is kept


class Compared(NamedTuple):
    """A comparison of extents that is not decided while reading."""

    direction: str
    left: Meaning
    right: Meaning


class Truncated(NamedTuple):
    """What a negative number leaves when it is divided by a positive extent, rounded toward zero; `lifted` with that added."""

    left: int
    right: Size
    lifted: bool = False


Meaning = int | Extent | bool | Compared | Truncated | None  # of an element; of None nothing is known


class Meanings:
    """The elements of tensors as integers, truth values, extents and comparisons of those; None for any other."""

    def __init__(self) -> None:
        self.values: dict[Operand, Array] = {}
        self.equal: dict[Sym, Size] = {}  # what symbols are said to be
        self.named: dict[str, Sym] = {}  # the symbols that expressions are said to be
        self.least: dict[Sym, Size] = {}  # symbols that are said not to be 0, as one more than some symbol
        self.composite: dict[Sym, Extent] = {}  # the extent that a symbol names

    def of(self, x: Tensor) -> Array | None:
        """The elements of a tensor; None where nothing is known."""
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
        result = self.named.get(x.key) or x.dim
        if not x.simple and result.name == x.key:
            self.composite[result] = x
        return result

    def extent(self, d: Dim) -> Size:
        """An extent of a type as an integer or extent."""
        if not isinstance(d, Sym):
            return d
        return self.composite[d] if d in self.composite else self.equal[d] if d in self.equal else extents.of(d)

    def bounds(self, x: Size) -> tuple[int | None, int | None]:
        """What an integer or extent is not under, and not over."""
        if not isinstance(x, Extent):
            return int(x), int(x)
        x = x.where(self.least)
        return (x.least, x.most) if isinstance(x, Extent) else (int(x), int(x))

    def asserted(self, x: Tensor) -> bool:
        """Take note that a comparison holds. Whether the types say so from now on; else the program has to check it."""
        result = self.of(x)
        if result is None or result.size != 1 or not isinstance(said := result.reshape(-1)[0], Compared):
            return False
        left, right = said.left, said.right
        some = number(right) and not isinstance(right, Extent) and right >= 1
        if said.direction == "GE" and isinstance(left, Extent) and left.symbol and some:
            self.least.setdefault(left.symbol, left + 1)
        if said.direction != "EQ":
            return False
        declared = {s for p in x.block.region.params for s in mentioned(p.type)}  # what the run gets is held to these
        for a, b in ((left, right), (right, left)):
            s = a.symbol if isinstance(a, Extent) else None
            if s in declared and s is not None and number(b) and (not isinstance(b, Extent) or b.symbol in declared):
                self._same(x, s, b)
                return True
            if isinstance(a, Extent) and not isinstance(b, Extent) and b == 0 and self._even(a):
                break
        return False

    def _same(self, x: Tensor, s: Sym, other: Size) -> None:
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
        assert isinstance(whole, Extent)
        self.named[whole.key] = symbols[0]
        return True


def each(function: Callable[..., Meaning], *arrays: Array) -> Array:
    """A function of elements on arrays of one shape, or scalars."""
    whole = np.broadcast_arrays(*arrays)
    out = np.empty(whole[0].shape, object)
    for i, xs in enumerate(zip(*(a.reshape(-1) for a in whole), strict=True)):
        out.reshape(-1)[i] = function(*xs)
    return out


def number(x: Meaning) -> TypeGuard[Size]:
    """Whether an element is an integer or extent."""
    return not isinstance(x, (Compared, Truncated, bool)) and x is not None


def decided(meanings: Meanings, direction: str, a: Meaning, b: Meaning) -> Meaning:
    """Whether a comparison holds; itself where that is not decided."""
    if isinstance(a, Truncated) and not a.lifted and not isinstance(b, Extent) and b == 0 and direction in ("NE", "LT"):
        return Compared("NE", a, 0)  # it is never positive
    if isinstance(a, Compared) and b is False and direction == "NE":
        return a
    if isinstance(a, bool) or isinstance(b, bool):
        return {"EQ": a == b, "NE": a != b}.get(direction) if isinstance(a, bool) and isinstance(b, bool) else None
    if not number(a) or not number(b):
        return None
    low, high = meanings.bounds(a - b)
    results = {
        "EQ": False if over(low, 1) or under(high, -1) else True if low == high == 0 else None,
        "LT": True if under(high, -1) else False if over(low, 0) else None,
        "GT": True if over(low, 1) else False if under(high, 0) else None,
    }
    results |= {"NE": negated(results["EQ"]), "GE": negated(results["LT"]), "LE": negated(results["GT"])}
    return results[direction] if results[direction] is not None else Compared(direction, a, b)


def over(low: int | None, n: int) -> bool:
    """Whether a bound says: at least `n`."""
    return low is not None and low >= n


def under(high: int | None, n: int) -> bool:
    """Whether a bound says: at most `n`."""
    return high is not None and high <= n


def negated(flag: Meaning) -> bool | None:
    """The opposite of a truth value; None of anything else."""
    return None if not isinstance(flag, bool) else not flag
