"""Patterns of reductions and contractions: fewer axes, fewer passes, transposes taken into dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.ir import Operand, Value
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.patterns import Effect, OpView, Pattern, rewrites
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rules import helpers

_REDUCTIONS = ("ptir.reduce_sum", "ptir.reduce_max", "ptir.reduce_min")
_EXTREMES = _REDUCTIONS[1:]


def _plain(op: OpView) -> bool:
    """Whether the dtypes are those that the operand implies."""
    source = helpers.dtype(op.x)
    return helpers.dtype(op.root) is source and op.accum_dtype in (None, default_accum(source))


@rewrites(*_REDUCTIONS, depth=1, effect=Effect.ZERO_SIGN)
def reduce_of_one(op: OpView) -> bool:
    """A reduction over extents 1 is a reshape. (A sum from 0 may make 0.0 of -0.0.)"""
    extents = helpers.shape(op.x)
    if not _plain(op) or any(extents[a] != 1 for a in op.axes):
        return False
    if operand_type(op.x) is op.result.type:
        return op.replace(op.x)
    return helpers.static(op.x) and op.replace(op.rw.build(op.root, "reshape", op.x, new_shape=helpers.shape(op.root)))


@rewrites(*_EXTREMES, operands=_EXTREMES)
def reduce_of_reduce(op: OpView) -> bool:
    """The max of a max is one max over the axes of both; min likewise."""
    inner = op.defined_by(op.x, op.root.defn.short)
    if inner is None or not (_plain(op) and _plain(inner)) or inner.keepdims != op.keepdims:
        return False
    if not helpers.alone(op.rw, op.x, op.root):
        return False
    kept = list(range(helpers.rank(inner.x)))
    first = helpers.axes(inner.axes, len(kept))
    if not inner.keepdims:
        kept = [a for a in kept if a not in first]
    axes = tuple(sorted({*first, *(kept[a] for a in op.axes)}))
    return op.replace(op.rw.build(op.root, op.root.defn, inner.x, axes=axes, keepdims=op.keepdims))


@rewrites(*_EXTREMES, operands=["ptir.broadcast_to"])
def reduce_of_broadcast(op: OpView) -> bool:
    """The max over copies is the original: repeated axes are not repeated to be reduced."""
    inner = op.defined_by(op.x, "broadcast_to")
    if inner is None or not _plain(op) or not helpers.static(op.x) or 0 in helpers.shape(op.x):
        return False
    lead = helpers.rank(op.x) - helpers.rank(inner.x)
    copied = {a for a in range(helpers.rank(op.x)) if a < lead or helpers.shape(inner.x)[a - lead] == 1}
    if not copied.intersection(op.axes) or not helpers.alone(op.rw, op.x, op.root):
        return False
    left = tuple(a - lead for a in op.axes if a not in copied)
    x: Operand = inner.x
    if left:
        x = op.rw.build(op.root, op.root.defn, x, axes=left, keepdims=True)
    return op.replace(_shaped(op, x, lead))


def _shaped(op: OpView, x: Operand, lead: int) -> Operand:
    """`x`, reduced with its axes kept, with the shape of the root's result."""
    want = helpers.shape(op.root)
    if op.keepdims:
        return x if helpers.shape(x) == want else op.rw.build(op.root, "broadcast_to", x, result_shape=want)
    kept = tuple(d for a, d in enumerate(helpers.shape(x)) if a + lead not in op.axes)
    if kept != helpers.shape(x):
        x = op.rw.build(op.root, "reshape", x, new_shape=kept)
    return x if kept == want else op.rw.build(op.root, "broadcast_to", x, result_shape=want)


def _through(side: OpView, batch: Sequence[int], contract: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Batch and contracted axes before the transpose `side`; None when its free axes change order."""
    perm = helpers.axes(side.perm, len(side.perm))
    free = [perm[a] for a in range(len(perm)) if a not in batch and a not in contract]
    if free != sorted(free):
        return None
    return tuple(perm[a] for a in batch), tuple(perm[a] for a in contract)


@rewrites("ptir.dot_general", operands=["ptir.transpose"])
def dot_of_transpose(op: OpView) -> bool:
    """A transposed operand is read through the dimension numbers."""
    sides = {"lhs": op.lhs, "rhs": op.rhs}
    attrs = op.root.defn.named(op.root.attrs)
    changed = False
    for side, x in sides.items():
        view = op.defined_by(x, "transpose")
        if view is None:
            continue
        found = _through(view, attrs[f"batch_{side}"], attrs[f"contract_{side}"])
        if found is not None:
            attrs[f"batch_{side}"], attrs[f"contract_{side}"] = found
            sides[side] = view.x
            changed = True
    return changed and op.replace(op.rw.build(op.root, "dot_general", sides["lhs"], sides["rhs"], **attrs))


@rewrites("ptir.transpose", operands=["ptir.dot_general"], effect=Effect.NAN_PAYLOAD)
def transpose_of_dot(op: OpView) -> bool:
    """A product with its free axes exchanged is the product of the exchanged operands."""
    dot = op.defined_by(op.x, "dot_general")
    if dot is None or not helpers.alone(op.rw, op.x, op.root):
        return False
    batch = len(dot.batch_lhs)
    left = helpers.rank(dot.lhs) - batch - len(dot.contract_lhs)
    n = helpers.rank(op.x)
    swapped = (*range(batch), *range(batch + left, n), *range(batch, batch + left))
    if not left or batch + left == n or helpers.axes(op.perm, n) != swapped:
        return False
    attrs = dot.root.defn.named(dot.root.attrs)
    for kind in ("batch", "contract"):
        attrs[f"{kind}_lhs"], attrs[f"{kind}_rhs"] = attrs[f"{kind}_rhs"], attrs[f"{kind}_lhs"]
    return op.replace(op.rw.build(op.root, "dot_general", dot.rhs, dot.lhs, **attrs))


@rewrites("ptir.cast", operands=["ptir.dot_general", *_REDUCTIONS])
def cast_of_accumulator(op: OpView) -> bool:
    """An accumulator that is returned as it is and then cast may be cast at once: `out_dtype` does the same."""
    inner = op.rw.inst_of(op.x) if isinstance(op.x, Value) else None
    if inner is None or not helpers.alone(op.rw, op.x, op.root):
        return False
    source, target = helpers.dtype(op.x), op.dtype
    accum = inner.attr("accum_dtype") or default_accum(helpers.dtype(inner.operands[0]))
    if accum is not source or (source.is_float, source.is_integer) != (target.is_float, target.is_integer):
        return False
    attrs = inner.defn.named(inner.attrs) | {"accum_dtype": accum, "out_dtype": target}
    return op.replace(op.rw.build(op.root, inner.defn, *inner.operands, **attrs))


REDUCTIONS: list[Pattern] = [
    cast_of_accumulator,
    reduce_of_one,
    reduce_of_reduce,
    reduce_of_broadcast,
    dot_of_transpose,
    transpose_of_dot,
]
