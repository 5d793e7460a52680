"""Operands that decide the type of a result and are known at run time only, where the file declares that type.

The node is translated once for each value of the operand that gives the declared type. At run time the operand chooses among the
results, and an operand that gives another type is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations

from ptir_tools.bridges import extents
from ptir_tools.bridges.extents import Size, of
from ptir_tools.bridges.onnx.table import Node, axis
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Dim, Shape
from ptir_tools.dialects.ptir.builder.build import Tensor

_MOST = 8  # the rank up to which there is a table of all sets of axes
Shapes = Sequence[Shape]


@dataclass(slots=True, frozen=True)
class Choice:
    """The values that an operand may have, and the number of the one that it has, a scalar; an error for any other."""

    operand: int
    values: Sequence[Array]
    place: Callable[[], Tensor]

    def chosen(self, results: Sequence[Tensor]) -> Tensor:
        """The result for the value that the operand has."""
        first = results[0]
        rows = [x.reshape([1, *first.shape]) for x in results]
        return (rows[0] if len(rows) == 1 else first.block.op("concat", rows, axis=0)).take(self.place())


def decides(name: str) -> bool:
    """Whether an operand of an operator may be chosen by the declared types of its results."""
    return name in _ENTRIES


def choice(node: Node, shapes: Shapes) -> Choice | None:
    """What the operand of a node may be, whose results have the declared `shapes`; None where there is no such operand."""
    if (entry := _ENTRIES.get(node.name)) is None:
        return None
    i, values = entry
    t = node.datum(i) if i < len(node) else None
    if not isinstance(t, Tensor) or t.rank > 1:
        return None
    return values(node, t, i, shapes) if node.scope.importer.counted(t) is None else None


def _equal(
    node: Node, t: Tensor, i: int, wanted: Sequence[Size], also: Callable[[Tensor, Tensor], Tensor] | None = None
) -> Choice:
    """The choice of one value. `also` gives the operand in which other spellings of `wanted` are replaced by it."""
    value = extents.settled(extents.vector(wanted).reshape([-1] if t.rank else []))

    def place() -> Tensor:
        known = node.scope.tensor(value)
        assert known is not None
        given = t if t.dtype is SI64 else t.cast(SI64)
        away = (given if also is None else also(given, known)) - known
        found = node.constant(np.zeros(1, np.int64)).take(away)
        return found.reduce_sum([0]) if found.rank else found

    return Choice(i, [value], place)


def _whole(t: Tensor, wanted: Sequence[Size | None]) -> Sequence[Size] | None:
    """The wanted value where it is known and as long as the operand."""
    known = [x for x in wanted if x is not None]
    return known if len(known) == len(wanted) == (t.shape[0] if t.rank else 1) else None


def _by(wanted: Callable[[Node, Shapes], Sequence[Size | None]]) -> Values:
    """The entry of an operand whose value the declared shapes determine."""

    def values(node: Node, t: Tensor, i: int, shapes: Shapes) -> Choice | None:
        whole = _whole(t, wanted(node, shapes))
        return None if whole is None else _equal(node, t, i, whole)

    return values


def _sizes(shape: Shape) -> list[Size]:
    return [of(d) for d in shape]


def _tiled(node: Node, shapes: Shapes) -> Sequence[Size | None]:
    pairs = zip(shapes[0], node[0].shape, strict=False)
    return [n // d if isinstance(n, int) and isinstance(d, int) and d and not n % d else None for n, d in pairs]


def _along(node: Node, shapes: Shapes, default: int) -> list[Size]:
    """The extents along the axis of the node."""
    return [of(s[axis(node.attr("axis", default), len(s))]) for s in shapes]


def _resized(node: Node, shapes: Shapes) -> Sequence[Size | None]:
    if node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        return [None]
    return _chosen_axes(node, shapes)


def _chosen_axes(node: Node, shapes: Shapes) -> list[Size | None]:
    rank = len(shapes[0])
    return [of(shapes[0][axis(a, rank)]) for a in node.attr("axes") or range(rank)]


def _reshaped(node: Node, t: Tensor, i: int, shapes: Shapes) -> Choice | None:
    if (wanted := _whole(t, _sizes(shapes[0]))) is None:
        return None
    given, kept = node[0].shape, not node.attr("allowzero")
    same = np.array([kept and a < len(given) and given[a] == d for a, d in enumerate(shapes[0])], np.bool_)

    def also(x: Tensor, known: Tensor) -> Tensor:
        copied = x.compare_eq(0).bitwise_and(node.constant(same))
        return x.compare_eq(-1).bitwise_or(copied).select(known, x)

    return _equal(node, t, i, wanted, also)


def _expanded(node: Node, t: Tensor, i: int, shapes: Shapes) -> Choice | None:
    n, out, given = t.shape[0] if t.rank else 0, shapes[0], node[0].shape
    if not isinstance(n, int) or n > len(out):
        return None
    aligned = (*[1] * (len(out) - len(given)), *given)
    same = np.array([d == e for d, e in zip(aligned, out, strict=True)][len(out) - n :], np.bool_)

    def also(x: Tensor, known: Tensor) -> Tensor:
        return x.compare_eq(1).bitwise_and(node.constant(same)).select(known, x)

    return _equal(node, t, i, _sizes(out[len(out) - n :]), also)


def _axes(shape_of: Callable[[Node, tuple[int, ...]], Shape | None], added: bool = False) -> Values:
    """The entry of an operand that has axes. `shape_of` gives the result's shape; `added`: the axes are those of the result."""

    def values(node: Node, t: Tensor, i: int, shapes: Shapes) -> Choice | None:
        rank, count = (len(shapes[0]) if added else node[0].rank), t.shape[0] if t.rank else 1
        if rank > _MOST:
            return None
        counts = [count] if isinstance(count, int) else range(rank + 1)
        fitting = [axes for n in counts for axes in combinations(range(rank), n) if shape_of(node, axes) == tuple(shapes[0])]
        if not fitting:
            return None
        if len(fitting) == 1 and isinstance(count, int) and count:
            return _equal(node, t, i, fitting[0], partial(_in_order, rank))

        def place() -> Tensor:
            given = t if t.dtype is SI64 else t.cast(SI64)
            at = node.iota([rank], SI64, 0).take((given < 0).select(given + rank, given))  # an error for what is not an axis
            if count == 1:
                places = [fitting.index((a,)) if (a,) in fitting else len(fitting) for a in range(rank)]
                return node.constant(np.array(places)).take(at).reshape([])
            named = node.iota([rank, 1], SI64, 0).compare_eq(at.reshape([1, count])).cast(SI64).reduce_max([1])
            numbers = np.full(1 << rank, len(fitting))
            for k, axes in enumerate(fitting):
                numbers[sum(1 << a for a in axes)] = k
            bits = (named.maximum(0) * node.constant(1 << np.arange(rank))).reduce_sum([0])
            return node.constant(numbers).take(bits)

        return Choice(i, [np.array(axes, np.int64).reshape([-1] if t.rank else []) for axes in fitting], place)

    return values


def _in_order(rank: int, x: Tensor, known: Tensor) -> Tensor:
    """Axes, counted from the front and sorted."""
    found = (x < 0).select(x + rank, x)
    return x.block.op("sort", [found], axis=0) if x.rank and x.shape[0] != 1 else found


def _reduced(node: Node, axes: tuple[int, ...]) -> Shape:
    keep = node.attr("keepdims", 1)
    if not axes and not node.attr("noop_with_empty_axes", 0):
        axes = tuple(range(node[0].rank))
    return tuple(1 if a in axes else d for a, d in enumerate(node[0].shape) if keep or a not in axes)


def _squeezed(node: Node, axes: tuple[int, ...]) -> Shape | None:
    shape = node[0].shape
    return tuple(d for a, d in enumerate(shape) if a not in axes) if all(shape[a] == 1 for a in axes) else None


def _unsqueezed(node: Node, axes: tuple[int, ...]) -> Shape:
    rest: list[Dim] = list(node[0].shape)
    for a in axes:
        rest.insert(a, 1)
    return tuple(rest)


Values = Callable[[Node, Tensor, int, Shapes], Choice | None]
_REDUCTIONS = "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare"
_ENTRIES: dict[str, tuple[int, Values]] = {
    "Reshape": (1, _reshaped),
    "Expand": (1, _expanded),
    "ConstantOfShape": (0, _by(lambda node, shapes: _sizes(shapes[0]))),
    "Tile": (1, _by(_tiled)),
    "TopK": (1, _by(lambda node, shapes: _along(node, shapes, -1)[:1])),
    "OneHot": (1, _by(lambda node, shapes: _along(node, shapes, -1))),
    "Split": (1, _by(lambda node, shapes: _along(node, shapes, 0))),
    "Resize": (3, _by(_resized)),
    "CenterCropPad": (1, _by(_chosen_axes)),
    "Col2Im": (1, _by(lambda node, shapes: _sizes(shapes[0][2:]))),
    "MaxUnpool": (2, _by(lambda node, shapes: _sizes(shapes[0]))),
    "Squeeze": (1, _axes(_squeezed)),
    "Unsqueeze": (1, _axes(_unsqueezed, added=True)),
    **{f"{name}Window": (0, _by(lambda node, shapes: _sizes(shapes[0]))) for name in ("Hann", "Hamming", "Blackman")},
    **{f"Reduce{name}": (1, _axes(_reduced)) for name in _REDUCTIONS.split()},
    **{f"Cum{name}": (1, _axes(lambda node, _: node[0].shape)) for name in ("Sum", "Prod")},
}
