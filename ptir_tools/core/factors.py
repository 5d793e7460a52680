"""Sharding rules of ops: which axes of operands and result are sharded together.

Each axis has a label, or None where it must be replicated. Axes with one label are sharded together. A label only on operands
means partial sums, which are then added up. The field `factors` of a declaration gives the labels of ops that are neither
elementwise nor views; most are one of the functions here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptir_tools.core.ir import ELEMENTWISE, Extents, Labels, Op, Operand, operand_type
from ptir_tools.core.strides import dense_strides
from ptir_tools.core.types import ShapedType, Type

Labelled = tuple[list[Labels], Labels]  # of the operands, of the result
Cut = tuple[str, ...]  # the mesh axes over which one axis is sharded


def labels(op: Op) -> Labelled | None:
    """The labels of an op with static types and one result; None where nothing is known, so that all values are replicated."""
    if len(op.results) != 1 or not all(_static(t) for t in (op.results[0].type, *map(operand_type, op.operands))):
        return None
    if op.defn.factors is not None:
        return op.defn.factors(op)
    if op.defn.traits & ELEMENTWISE:
        return each(op)
    if op.defn.view is not None and op.operands:
        return _looked_at(op, op.defn.view.seen)
    return None


def _static(t: Type) -> bool:
    return isinstance(t, ShapedType) and all(isinstance(d, int) for d in t.shape)


def shape_of(x: Operand) -> Extents:
    """The extents of an operand of static type."""
    t = operand_type(x)
    assert isinstance(t, ShapedType)
    return tuple(d for d in t.shape if isinstance(d, int))


def whole(x: Operand) -> Labels:
    """The labels of a replicated operand."""
    return (None,) * len(shape_of(x))


def each(op: Op) -> Labelled:
    """Element i of the result depends on element i of the operands of its shape."""
    out = shape_of(op.results[0])
    return [tuple(range(len(out))) if shape_of(x) == out else whole(x) for x in op.operands], tuple(range(len(out)))


def off_axis(op: Op) -> Labelled:
    """Each line along the attribute `axis` is independent; operands and result have the same rank."""
    rank = len(shape_of(op.results[0]))
    axis = op.attr("axis") % rank if rank else 0
    kept = tuple(None if a == axis else a for a in range(rank))
    return [kept] * len(op.operands), kept


def kept_axes(op: Op) -> Labelled:
    """Axes with the same extent in the first operand and the result are unchanged."""
    x, out = shape_of(op.operands[0]), shape_of(op.results[0])
    kept = tuple(a if n == m else None for a, (n, m) in enumerate(zip(x, out, strict=True)))
    return [kept, *map(whole, op.operands[1:])], kept


def reduced(op: Op) -> Labelled:
    """The attribute `axes`, or the one `axis`, of the operand is reduced; with `keepdims` it stays, of extent 1."""
    x = tuple(range(len(shape_of(op.operands[0]))))
    gone = op.attr("axes") if "axes" in op.defn.attr_index else (op.attr("axis"),)
    gone = {a % len(x) for a in gone}
    keeps = op.attr("keepdims")
    return [x], tuple(None if a in gone else a for a in x if keeps or a not in gone)


def product(op: Op) -> Labelled:
    """The axes of a contraction: batch, free and contracted."""
    sides: list[Labels] = []
    result: list[object] = []
    for side, x in zip(("lhs", "rhs"), op.operands, strict=True):
        named: dict[int, object] = {}
        for what in ("batch", "contract"):
            for i, a in enumerate(op.attr(f"{what}_{side}")):
                named[a % len(shape_of(x))] = (what, i)
        sides.append(tuple(named.get(a, (side, a)) for a in range(len(shape_of(x)))))
        result += [(side, a) for a in range(len(shape_of(x))) if a not in named]
    return sides, (*(("batch", i) for i in range(len(op.attr("batch_lhs")))), *result)


def _looked_at(op: Op, seen: Callable[[Op, Extents, tuple[int, ...], Extents], tuple[int, tuple[int, ...]] | None]) -> Labelled:
    """An axis of the result is sharded like the axis of the operand whose outermost parts it has."""
    x, out = shape_of(op.operands[0]), shape_of(op.results[0])
    rest = [whole(o) for o in op.operands[1:]]
    output = seen(op, x, dense_strides(x), out)
    if output is None or 0 in x:
        return [whole(op.operands[0]), *rest], (None,) * len(out)
    spans = {n * step: a for a, (n, step) in enumerate(zip(x, dense_strides(x), strict=True)) if n > 1}
    result = tuple(spans.get(n * step) if n > 1 else None for n, step in zip(out, output[1], strict=True))
    return [tuple(range(len(x))), *rest], result


def cut(target: Labels, known: Iterable[tuple[Labels, Sequence[Cut]]], own: Sequence[Cut]) -> list[Cut]:
    """The sharding of a value with labels `target`, given other values whose labels and shardings are `known`. Its own sharding,
    `own`, is kept; the first value with a label decides, and a mesh axis is used once."""
    by_label: dict[object, Cut] = {}
    for names, cuts in known:
        for label, axes in zip(names, cuts, strict=True):
            if label is not None and axes:
                by_label.setdefault(label, axes)
    used = {axis for axes in own for axis in axes}
    result = []
    for label, axes in zip(target, own, strict=True):
        entry = axes or (by_label.get(label, ()) if label is not None else ())
        result.append(entry if axes or used.isdisjoint(entry) else ())
        used.update(result[-1])
    return result
