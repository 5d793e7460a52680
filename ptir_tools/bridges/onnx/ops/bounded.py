"""Results with as many rows as data say: NonZero, NonMaxSuppression, Compress.

Such a result has as many rows as there may be at most, and a count. The rows behind the count are 0, or what is computed of them.
Operators that work row by row keep the count; others are refused. An output `y` of the model is followed by its count, `y.count`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

from ptir_tools.bridges.onnx.protocols import Bounded, Datum
from ptir_tools.bridges.onnx.table import Node, axis, fixed, handles, refused, stretched
from ptir_tools.core.dtypes import I1, SI32, SI64
from ptir_tools.core.extents import product
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor

# Operators that compute each element of operands of one shape, which are broadcast, by itself.
_EACH = (
    "Abs", "Add", "And", "Cast", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign",
    "Sqrt", "Sub", "Tanh", "Where", "Xor",
)  # fmt: skip
_REDUCING = ("ArgMax", "ArgMin", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")


def first_of(flags: Tensor) -> tuple[Tensor, Tensor]:
    """The places where `flags`, [n], are set, in order and then 0; and their count, a scalar si64."""
    places = flags.block.iota(flags.shape, SI64, 0)
    order = flags.block.op("sort", [flags.compare_eq(False).cast(SI32), places], axis=0, keys=1)[1]
    count = flags.cast(SI64).reduce_sum([0])
    return (places < count).select(order, 0), count


def _held(node: Node, x: Tensor, a: int, count: Tensor) -> Tensor:
    node.scope.importer.bounded[x.operand] = Bounded(a, count)
    return x


@handles("NonZero")
def nonzero(node: Node) -> Tensor:
    """NonZero: the indices of elements that are not 0, a column for each, in order."""
    x = node.ranked(0, node[0].rank) if node[0].rank else node[0].reshape([1])
    n = product(x.shape)
    flat = x.reshape([n])
    places, count = first_of(flat if flat.dtype is I1 else flat.compare_ne(0))
    rows: list[Tensor] = []
    for d in reversed(x.shape):
        size = node.scope.measured(d)
        rows.insert(0, places.rem(size))
        places = places / size
    return _held(node, node.concat([row.reshape([1, n]) for row in rows], 0), 1, count)


def compressed(node: Node, x: Tensor, a: int) -> Tensor:
    """Compress by computed flags along an axis."""
    flags, n = node.ranked(1, 1), x.shape[a]
    if flags.shape != (n,):  # the flags that are missing are not set
        flags = flags.pad([0], [fixed(n) - fixed(flags.shape[0])], pad_value=False)
    places, count = first_of(flags)
    return _held(node, x.taken(places, a), a, count)


@handles("NonMaxSuppression")
def non_max_suppression(node: Node) -> Tensor:
    """NonMaxSuppression: (batch, class, box) of the best boxes of each class that overlap no better one."""
    boxes, scores = node.ranked(0, 3), node.ranked(1, 3)
    most = int(node.ints(2)[0]) if node.has(2) else 0
    batch, classes, n = scores.shape
    steps = max(0, min(most, fixed(n)))
    if not steps:
        return node.constant(np.zeros((0, 3), np.int64))
    corners = _corners(boxes, bool(node.attr("center_point_box")))
    alive = scores.compare_eq(scores) if not node.has(4) else scores > node[4].reshape([])
    limit = node[3].reshape([1, 1, 1]) if node.has(3) else node.constant(np.zeros((1, 1, 1), np.float32))
    size = stretched(corners[4].reshape([batch, 1, n]), scores.shape)

    def spread(x: Tensor, shape: Shape) -> Tensor:
        """A number for each box or each class, for all boxes of all classes."""
        return stretched(x.reshape([batch, 1, n] if x.shape == (batch, n) else [batch, classes, 1]), shape)

    def step(*params: Tensor) -> list[Tensor]:
        left, score, area, most_shared, *sides, _ = params
        whole, block = score.shape, score.block
        best = left.select(score, -inf).argmax(2)  # [batch, classes]; of equal scores the first
        at = block.iota(whole, best.dtype, 2).compare_eq(spread(best, whole))
        chosen = left.bitwise_and(at).cast(SI32).reduce_max([2])

        def own(x: Tensor) -> Tensor:
            return spread(at.select(x, 0.0).reduce_sum([2]), whole)

        low, left_side, high, right = (spread(x, whole) for x in sides)
        width = (high.minimum(own(high)) - low.maximum(own(low))).maximum(0.0)
        shared = width * (right.minimum(own(right)) - left_side.maximum(own(left_side))).maximum(0.0)
        union = own(area) + area - shared
        positive = (shared > 0.0).bitwise_and(union > 0.0)
        overlaps = shared / positive.select(union, 1.0) > most_shared
        gone = positive.bitwise_and(overlaps).bitwise_and(spread(chosen, whole).compare_ne(0)).bitwise_or(at)
        return [left.bitwise_and(gone.bitwise_not()), score, area, most_shared, *sides, best.cast(SI64), chosen]

    held = [alive, scores, size, limit, *corners[:4]]
    found = node.block.scan(held, [node.iota([steps], SI32, 0)], step)
    best, chosen = (found[len(held) + k].transpose([1, 2, 0]) for k in (0, 1))  # [batch, classes, steps]
    count = product(best.shape)
    places, total = first_of(chosen.reshape([count]).compare_ne(0))
    live = node.iota([count], SI64, 0) < total
    columns = [node.iota(best.shape, SI64, 0), node.iota(best.shape, SI64, 1), best]
    rows = [x.reshape([count]).take(places) for x in columns]
    rows = [live.select(x, 0).reshape([count, 1]) for x in rows]
    return _held(node, node.concat(rows, 1), 0, total)


def _corners(boxes: Tensor, centered: bool) -> list[Tensor]:
    """The lower and the upper sides of boxes, and their areas; each is [batch, boxes]."""
    batch, n, _ = boxes.shape
    a, b, c, d = (boxes.taken(boxes.block.constant([k], SI64), 2).reshape([batch, n]) for k in range(4))
    if centered:  # x, y, width, height
        a, b, c, d = b - d / 2.0, a - c / 2.0, b + d / 2.0, a + c / 2.0
    low, left, high, right = a.minimum(c), b.minimum(d), a.maximum(c), b.maximum(d)
    return [low, left, high, right, (high - low) * (right - left)]


def carried(node: Node, operands: Sequence[Datum], held: Mapping[int, Bounded]) -> Bounded:
    """The count of the results of a node, some of whose operands have one. Raises Violation where it cannot be kept."""
    x = operands[min(held)]
    first = held[min(held)]
    assert isinstance(x, Tensor)
    kept = first.axis
    wrong = refused(f"{node.name} of rows whose count depends on data", "the count is an output: leave this to the caller")
    if any(b.count is not first.count for b in held.values()):
        raise wrong
    if node.name in _EACH:
        rank = max(len(y.shape) for y in operands if isinstance(y, (Tensor, np.ndarray)))
        back = x.rank - kept
        same = all(b.axis - len(_shape(operands[i])) == -back for i, b in held.items())
        others = [_shape(y) for i, y in enumerate(operands) if i not in held and y is not None]
        if same and all(len(s) < back or s[len(s) - back] == 1 for s in others):
            return Bounded(rank - back, first.count)
    elif node.name == "Transpose":
        order = node.attr("perm") or [*range(x.rank)][::-1]
        return Bounded(list(order).index(kept), first.count)
    elif node.name in ("Squeeze", "Unsqueeze"):
        axes = node.given("axes") or node.ints(1)
        if node.name == "Squeeze":
            return Bounded(kept - sum(axis(a, x.rank) < kept for a in axes), first.count)
        new = sorted(axis(a, x.rank + len(axes)) for a in axes)
        return Bounded([i for i in range(x.rank + len(axes)) if i not in new][kept], first.count)
    elif node.name == "Gather" and len(held) == 1:
        data = operands[0]
        a = axis(node.attr("axis"), len(_shape(data)))
        if 1 in held:
            return Bounded(a + kept, first.count)
        if a != kept:
            return Bounded(kept if kept < a else kept - 1 + len(_shape(operands[1])), first.count)
    elif node.name == "GatherND" and 0 not in held and not node.attr("batch_dims", 0) and kept < x.rank - 1:
        return first
    elif node.name == "Slice" and 0 in held and len(held) == 1:
        axes = node.given("axes") or (node.ints(3) if node.has(3) else [*range(x.rank)])
        at = [i for i, a in enumerate(axes) if axis(a, x.rank) == kept]
        if not at:
            return first
        start, end = (node.given(name) or node.ints(i) for name, i in (("starts", 1), ("ends", 2)))
        step = node.ints(4)[at[0]] if node.has(4) else 1
        if start[at[0]] == 0 and step == 1 and end[at[0]] >= 0:
            return Bounded(kept, first.count.minimum(min(end[at[0]], 2**62)))
    elif node.name == "Concat" and axis(node.attr("axis"), x.rank) != kept and len(held) == len(operands):
        return first
    elif node.name == "Reshape" and 0 in held and not kept:
        known = node.ints(1)
        inner = product(x.shape[1:])
        if known and known[0] == -1 and product(tuple(known[1:])) == inner:
            return first
    elif node.name in (*_REDUCING, "Softmax") and 0 in held:
        given = node.given("axis") if node.name in ("ArgMax", "ArgMin", "Softmax") else None
        axes = [given] if given is not None else node.given("axes") or (node.ints(1) if node.has(1) else [])
        reduced = {axis(a, x.rank) for a in axes}
        if reduced and kept not in reduced:
            gone = node.name != "Softmax" and not node.attr("keepdims", 1)
            return Bounded(kept - gone * sum(a < kept for a in reduced), first.count)
    raise wrong


def _shape(x: Datum) -> tuple[object, ...]:
    if not isinstance(x, (Tensor, np.ndarray)):
        raise Violation("InvalidModel", "a tensor is missing")
    return tuple(x.shape)
