"""Sequences. Their lengths and positions are known while a model is read, so the program contains only their elements."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.onnx.ops.control import inline
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.protocols import Datum, Items
from ptir_tools.bridges.onnx.table import Node, axis, fixed, handles, refused
from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import Violation


@handles("Optional")
def optional(node: Node) -> Datum:
    """Optional: its operand. Raises Violation for an empty optional, which has no type."""
    if not node.has(0):
        raise refused("PTIR has no optionals, and this one is empty")
    return node.datum(0)


@handles("OptionalHasElement")
def is_there(node: Node) -> Array:
    """OptionalHasElement: whether there is an operand."""
    return np.array(node.has(0) and node.datum(0) is not None)


@handles("OptionalGetElement")
def get(node: Node) -> Datum:
    """OptionalGetElement. Raises Violation for an empty optional."""
    if not node.has(0) or node.datum(0) is None:
        raise Violation("InvalidModel", "an empty optional has no element")
    return node.datum(0)


def _items(node: Node, i: int = 0) -> tuple[Datum, ...]:
    """The elements of operand `i`. Raises Violation if it is not a sequence."""
    result = node.datum(i)
    if not isinstance(result, Items):
        raise Violation("InvalidModel", f"operand {i} of {node.name} is not a sequence")
    return result.items


def _position(node: Node, i: int, count: int, default: int) -> int:
    """Operand `i` as a position in a sequence of length `count`, counted from the front. Raises Violation."""
    if not node.has(i):
        return default
    (at,) = node.ints(i)
    if not -count <= at < max(count, 1):
        raise Violation("InvalidModel", f"position {at} is not one of a sequence of {count}")
    return at + count if at < 0 else at


@handles("SequenceEmpty", "SequenceConstruct")
def construct(node: Node) -> Items:
    """SequenceConstruct."""
    return Items(tuple(node.datum(i) for i in range(len(node))))


@handles("SequenceInsert")
def insert(node: Node) -> Items:
    """SequenceInsert: one more element, before a position or at the end."""
    items = _items(node)
    at = len(items)
    if node.has(2) and node.ints(2) != [at]:
        at = _position(node, 2, at, at)
    return Items((*items[:at], node.datum(1), *items[at:]))


@handles("SequenceErase")
def erase(node: Node) -> Items:
    """SequenceErase: without the element at a position, or the last one. Raises Violation if there is none."""
    items = _items(node)
    at = _position(node, 1, len(items), len(items) - 1)
    if not items:
        raise Violation("InvalidModel", "an empty sequence has nothing to erase")
    return Items((*items[:at], *items[at + 1 :]))


@handles("SequenceMap")
def mapped(node: Node) -> list[Items]:
    """SequenceMap: a subgraph on each element. Other sequences are mapped in parallel; a tensor is the same for all."""
    body, items = node.attr("body"), _items(node)
    others = [node.datum(i) for i in range(1, len(node))]
    if any(isinstance(x, Items) and len(x.items) != len(items) for x in others):
        raise Violation("InvalidModel", "the sequences of SequenceMap have different lengths")
    rows = [
        inline(node.scope, body, [item, *(x.items[k] if isinstance(x, Items) else x for x in others)])
        for k, item in enumerate(items)
    ]
    return [Items(tuple(row[k] for row in rows)) for k in range(len(body.output))]


@handles("SequenceAt")
def element(node: Node) -> Datum:
    """SequenceAt. Raises Violation if there is no such element."""
    items = _items(node)
    at = _position(node, 1, len(items), 0)
    if not items:
        raise Violation("InvalidModel", "an empty sequence has no elements")
    return items[at]


@handles("SequenceLength")
def length(node: Node) -> Array:
    """SequenceLength."""
    return np.array(len(_items(node)), np.int64)


@handles("ConcatFromSequence")
def concat_from_sequence(node: Node) -> Datum:
    """ConcatFromSequence along an axis, a new one with `new_axis`. Raises Violation for an empty sequence."""
    items = _items(node)
    if not items:
        raise Violation("InvalidModel", "an empty sequence has nothing to join")
    new = bool(node.attr("new_axis", 0))
    known = [x for x in items if isinstance(x, np.ndarray)]
    if len(known) == len(items):
        return (np.stack if new else np.concatenate)(known, axis(node.attr("axis"), known[0].ndim + new))
    xs = [x for x in map(node.scope.tensor, items) if x is not None]
    a = axis(node.attr("axis"), xs[0].rank + new)
    if new:
        xs = [x.reshape([*x.shape[:a], 1, *x.shape[a:]]) for x in xs]
    return node.concat(xs, a)


@handles("SplitToSequence")
def split(node: Node) -> Items:
    """SplitToSequence: parts of one size (the last may be smaller) or of given sizes. By default single indices, which keep
    their axis only with `keepdims`."""
    known = node.array(0)
    shape: Shape = node[0].shape if known is None else known.shape
    a = axis(node.attr("axis", 0), len(shape))
    n = None if node.has(1) and np.ndim(node.known(1)) == 1 else fixed(shape[a])
    sizes: Sequence[int]
    node.scope.importer.expansion.charge(n or 0)
    if not node.has(1):
        sizes = [1] * (n or 0)
    elif n is None:
        sizes = node.ints(1)
    else:
        (each,) = node.ints(1)
        if each < 1:
            raise Violation("InvalidModel", f"SplitToSequence in parts of {each}")
        sizes = [min(each, n - start) for start in range(0, n, each)]
    if isinstance(d := shape[a], int) and (sum(sizes) != d or min(sizes, default=0) < 0):
        raise Violation("InvalidModel", f"the parts {list(sizes)} are not all of {d}")
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    dropped = not node.attr("keepdims", 1) and not node.has(1)
    rest = [d for k, d in enumerate(shape) if k != a]
    parts: list[Datum] = []
    for start, size in zip(starts, sizes, strict=True):
        if known is None:
            part = cut(node[0], a, start, size)
            parts.append(part.reshape(rest) if dropped else part)
        else:
            array = known.take(range(start, start + size), a)
            parts.append(array.reshape(array.shape[:a] + array.shape[a + 1 :]) if dropped else array)
    return Items(tuple(parts))
