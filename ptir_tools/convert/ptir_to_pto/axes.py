"""The iteration axes that the values of a kernel share, and affine maps from axes to memory.

A dimension of a value is a product of axes, the outermost first; an extent of 1 is the product of none. A reshape splits axes, a
transpose reorders them, a broadcast adds some: none of the three moves anything. Axes of one kernel are unified by its ops; an
operand in memory has new axes for every use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Sym
from ptir_tools.core.violations import Violation, require
from ptir_tools.rewrite.vocabulary import tensor_type

Extent = int | Sym


@dataclass(slots=True, frozen=True)
class Scaled:
    """A stride: a number times symbolic extents."""

    number: int
    symbols: tuple[Sym, ...]


Stride = int | Scaled
USUAL = 512  # the value assumed for a symbol where extents are compared


@dataclass(slots=True, eq=False)
class Axis:
    """An axis and its extent: a number, or a symbol that a parameter gives. `parts` are the axes that it was split into, or the
    axis that it was unified with."""

    size: Extent
    parts: tuple[Axis, ...] = ()


Dim = tuple[Axis, ...]
Dims = tuple[Dim, ...]


def fresh(shape: Sequence[Extent]) -> Dims:
    """A new axis for every dimension."""
    return tuple(() if n == 1 else (Axis(n),) for n in shape)


def leaves(axes: Sequence[Axis]) -> Dim:
    """The current axes of a product, with splits and unifications applied."""
    for a in axes:
        if a.parts:
            return tuple([leaf for a in axes for leaf in (leaves(a.parts) if a.parts else (a,))])
    return tuple(axes)


def resolved(dims: Dims) -> Dims:
    """`dims` in the current axes."""
    return tuple(map(leaves, dims))


def flat(dims: Dims) -> Dim:
    """All axes of a value in order."""
    return leaves([a for dim in dims for a in dim])


def equal(xs: Sequence[Axis], ys: Sequence[Axis]) -> None:
    """Unify two products of one size, splitting axes where needed. Raises Violation where an extent is not a multiple of the
    other, or where symbols leave that open.
    """
    a, b = list(leaves(xs)), list(leaves(ys))
    while a and b:
        x, y = a.pop(), b.pop()
        if x.parts or y.parts:
            a += leaves([x])
            b += leaves([y])
        elif x is not y and x.size == y.size:
            y.parts = (x,)
        elif x is not y:
            large, small = (x, y) if usual(x.size) > usual(y.size) else (y, x)
            n, k = large.size, small.size
            if not (isinstance(n, int) and isinstance(k, int)):
                _equal_in_front([*a, x], [*b, y])
                return
            require(n % k == 0, NOT_TRANSLATABLE, f"{n} elements cannot be divided into rows of {k}")
            large.parts = (Axis(n // k), Axis(k))
            a += leaves([x])
            b += leaves([y])
    rest = [x.size for x in (*a, *b) if not isinstance(x.size, int)]
    require(not rest, NOT_TRANSLATABLE, f"{rest and rest[0]} is 1 here, and is not a number", help=BIND)


def _equal_in_front(xs: Sequence[Axis], ys: Sequence[Axis]) -> None:
    """The same for products whose last axes differ, one of them symbolic. After the common prefix, the rest of one product must
    be a symbol: it equals the rest of the other."""
    a, b = list(leaves(xs)), list(leaves(ys))
    while a and b and (a[0] is b[0] or a[0].size == b[0].size or _split(a[0], b[0]) or _split(b[0], a[0])):
        a, b = list(leaves(a)), list(leaves(b))
        x, y = a.pop(0), b.pop(0)
        if x is not y:
            y.parts = (x,)
        a, b = list(leaves(a)), list(leaves(b))
    one, others = (a, b) if len(a) == 1 and not isinstance(a[0].size, int) else (b, a)
    known = len(one) == 1 and bool(others) and not isinstance(one[0].size, int) and one[0] not in others
    texts = [" x ".join(str(x.size) for x in axes) for axes in (a, b)]
    require(known, NOT_TRANSLATABLE, f"it is not known whether {texts[0]} equals {texts[1]}", help=BIND)
    one[0].parts = tuple(others)


def _split(x: Axis, y: Axis) -> bool:
    """Split `x` so that its outer part has the extent of `y`, where both are numbers. Returns whether that is possible."""
    n, k = x.size, y.size
    if not (isinstance(n, int) and isinstance(k, int)) or n % k:
        return False
    x.parts = (Axis(k), Axis(n // k))
    return True


def aligned(xs: Dims, ys: Dims) -> None:
    """Unify the axes of two values of one shape. Raises Violation."""
    for x, y in zip(xs, ys, strict=True):
        equal(x, y)


def viewed(op: Op, dims: Dims) -> Dims:
    """The dimensions of the result of a view of `MOVES`, whose operand has `dims`. Raises Violation for any other."""
    short, shape = op.defn.short, tensor_type(op.result).shape
    if short == "transpose":
        return tuple(dims[a % len(dims)] for a in op.attr("perm"))
    if short == "stop_gradient":
        return dims
    require(short in MOVES, NOT_TRANSLATABLE, "a part of a computed value cannot be read: it must be in memory")
    result = fresh(shape)
    if short == "reshape":
        equal(flat(result), flat(dims))
        return result
    for x, y, old in zip(reversed(result), reversed(dims), reversed(tensor_type(op.operands[0]).shape), strict=False):
        if old != 1:
            equal(x, y)
    return result


BIND = "give it a number with --bind"
MOVES = ("reshape", "transpose", "broadcast_to", "stop_gradient")  # views that show the whole operand


def distinct(dims: Dims) -> None:
    """Refuse a diagonal, a value with one axis twice. Raises Violation."""
    axes = flat(dims)
    if len(set(axes)) < len(axes):
        raise Violation(NOT_TRANSLATABLE, "rows and columns of one value meet each other")


def size(axes: Sequence[Axis]) -> int:
    """How many elements a product of axes has. Raises Violation where that is not a number."""
    result = count(axes)
    if isinstance(result, Scaled):
        raise Violation(NOT_TRANSLATABLE, f"{result.symbols[0]} is collapsed with another extent, and is not a number", help=BIND)
    return result


def count(axes: Sequence[Axis]) -> Stride:
    """How many elements a product of axes has."""
    result = prod(a.size for a in axes if isinstance(a.size, int))
    symbols = tuple(a.size for a in axes if not isinstance(a.size, int))
    return Scaled(result, symbols) if symbols else result


def times(a: Stride, b: Stride) -> Stride:
    """The product of two strides."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    (n, xs), (k, ys) = ((s.number, s.symbols) if isinstance(s, Scaled) else (s, ()) for s in (a, b))
    return Scaled(n * k, (*xs, *ys)) if n and k else 0


def extent(axes: Sequence[Axis]) -> Extent:
    """The extent of a product of axes. Raises Violation for several axes with a symbolic one among them."""
    return axes[0].size if len(axes) == 1 else size(axes)


def usual(n: Extent) -> int:
    """An estimate of an extent, to compare it with others."""
    return n if isinstance(n, int) else USUAL


def weight(axes: Sequence[Axis]) -> int:
    """The estimated number of elements of a product of axes."""
    return prod(usual(a.size) for a in axes)


# Where in memory


@dataclass(slots=True, frozen=True)
class AffineExpr:
    """An affine expression for the index along one dimension of memory: `start`, plus every axis (and scalar) times its
    stride."""

    terms: tuple[tuple[Axis, Stride], ...] = ()
    start: int = 0
    shifts: tuple[tuple[Value, int], ...] = ()

    @property
    def axes(self) -> Dim:
        """The axes that the index depends on."""
        return tuple(a for a, _ in self.terms)

    def stride(self, axis: Axis) -> int:
        """The stride of an axis. Raises Violation where that is not a number."""
        result = next(k for a, k in self.terms if a is axis)
        if isinstance(result, Scaled):
            raise Violation(NOT_TRANSLATABLE, f"rows that are {result.symbols[0]} apart are not rows of a tile", help=BIND)
        return result

    def resolved(self) -> AffineExpr:
        """The expression in the current axes."""
        terms = [
            (leaf, times(k, count(parts[i + 1 :])))
            for a, k in self.terms
            for parts in [leaves([a])]
            for i, leaf in enumerate(parts)
        ]
        return AffineExpr(tuple(terms), self.start, self.shifts)

    def replaced(self, axis: Axis, by: AffineExpr) -> AffineExpr:
        """The expression with `axis` replaced by `by`."""
        k = next((k for a, k in self.terms if a is axis), 0)
        if not k:
            return self
        kept = tuple(t for t in self.terms if t[0] is not axis)
        return AffineExpr(
            (*kept, *((a, times(k, n)) for a, n in by.terms)),
            self.start + _number(times(k, by.start)),
            (*self.shifts, *((v, _number(times(k, n))) for v, n in by.shifts)),
        )


def _number(n: Stride) -> int:
    if isinstance(n, Scaled):
        raise Violation(NOT_TRANSLATABLE, f"a part begins after {n.symbols[0]} elements, which is not a number", help=BIND)
    return n


AffineMap = tuple[AffineExpr, ...]


def whole(dims: Dims) -> AffineMap:
    """The identity map of a memory that has `dims`."""
    return tuple(AffineExpr(tuple((a, count(dim[i + 1 :])) for i, a in enumerate(dim))) for dim in dims)


@dataclass(slots=True, frozen=True)
class Subview:
    """A subview of a memory. Its dimension `d` begins at `first[d]` and has the extents and strides `cuts[d]`. A dimension of the
    subview is a product of some of these extents: pairs of a dimension of memory and a position in its cuts."""

    first: tuple[AffineExpr, ...]
    cuts: tuple[tuple[tuple[Extent, int], ...], ...]
    groups: tuple[tuple[tuple[int, int], ...], ...]

    def through(self, index_map: AffineMap, dims: Dims) -> tuple[AffineMap, Dims]:
        """The index map and dimensions of this subview of a view with `dims` and `index_map`. Raises Violation where it begins or
        ends within an axis that a reshape collapsed.
        """
        pieces: list[list[Dim]] = []
        for dim, start, cut in zip(dims, self.first, self.cuts, strict=True):
            axes = leaves(dim)
            if start == AffineExpr() and [c for c in cut if c[0] != 1] == [(n, 1) for n in [extent(axes)] if n != 1]:
                pieces.append([axes if n != 1 else () for n, _ in cut])
                continue
            inner, (n, k) = size(axes[1:]), cut[0]
            counted = isinstance(n, int) and not (start.shifts or start.start % inner or n % inner)
            if len(axes) > 1 and len(cut) == k == 1 and counted and isinstance(n, int):
                new = fresh([n // inner])[0]
                by = AffineExpr(tuple((a, 1) for a in new), start.start // inner)
                index_map = tuple(s.replaced(axes[0], by) for s in index_map)
                pieces.append([(*new, *axes[1:])])
                continue
            require(len(axes) <= 1, NOT_TRANSLATABLE, "a part of a view that collapses extents cannot be read")
            parts = fresh([n for n, _ in cut])
            terms = tuple((a, k) for own, (_, k) in zip(parts, cut, strict=True) for a in own)
            for a in axes:
                index_map = tuple(s.replaced(a, AffineExpr(terms, start.start, start.shifts)) for s in index_map)
            pieces.append(list(parts))
        return index_map, tuple(tuple(a for d, i in group for a in pieces[d][i]) for group in self.groups)
