"""Patterns of reductions: fewer axes, fewer passes, no movement or broadcast before a reduction.

A rewrite that moves axes may change the order of a sum, which the contract leaves free (`order`), and which of several NaNs
results.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.ir import Operand, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape
from ptir_tools.dialects.ptir.ops import numerics, scalars
from ptir_tools.dialects.ptir.ops.reduce import reduced_shape
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.ops.window import is_pointwise
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.motion import reshaped_uniform, uniform
from ptir_tools.rewrite.patterns import Effect, OpView, Pattern, rewrites

_SUM, _EXTREMES = "ptir.reduce_sum", ("ptir.reduce_max", "ptir.reduce_min")


def _plain(op: OpView) -> bool:
    """Whether the accumulator and result dtypes are the defaults."""
    source = helpers.dtype(op.x)
    return helpers.dtype(op.root) is source and op.accum_dtype in (None, default_accum(source))


def _reduced_axes(op: OpView) -> tuple[int, ...]:
    """The reduced axes, counted from the front."""
    return helpers.axes(op.axes, helpers.rank(op.x))


def _rebuilt(op: OpView, x: Operand, axes: Sequence[int], keepdims: bool) -> Value:
    """The root's reduction of `x` over other axes."""
    attrs = op.root.defn.named(op.root.attrs) | {"axes": tuple(sorted(axes)), "keepdims": keepdims}
    return op.rw.build(op.root, op.root.defn, x, **attrs)


def _reshaped(op: OpView, x: Value) -> Value:
    """`x` in the shape of the root, whose elements it has in order."""
    want = helpers.shape(op.root)
    return x if helpers.shape(x) == want else op.rw.build(op.root, "reshape", x, new_shape=want)


def _of_one(op: OpView) -> bool:
    extents = helpers.shape(op.x)
    if not _plain(op) or any(extents[a] != 1 for a in op.axes):
        return False
    if operand_type(op.x) is op.result.type:
        return op.replace(op.x)
    return helpers.static(op.x) and op.replace(op.rw.build(op.root, "reshape", op.x, new_shape=helpers.shape(op.root)))


@rewrites(*_EXTREMES, depth=1)
def reduce_of_one(op: OpView) -> bool:
    """A max or min over extents 1 is a reshape."""
    return _of_one(op)


@rewrites(_SUM, depth=1, effect=Effect.ZERO_SIGN)
def sum_of_one(op: OpView) -> bool:
    """A sum over extents 1 is a reshape. (The sum starts with 0 and may turn -0.0 into 0.0.)"""
    return _of_one(op)


def _of_reduce(op: OpView) -> bool:
    inner = op.defined_by(op.x, op.root.defn.short)
    if inner is None or not (_plain(op) and _plain(inner)) or not op.has_one_use(op.x):
        return False
    if inner.keepdims != op.keepdims and not helpers.static(inner.x):
        return False
    first = _reduced_axes(inner)
    kept = [a for a in range(helpers.rank(inner.x)) if inner.keepdims or a not in first]
    axes = {*first, *(kept[a] for a in _reduced_axes(op))}
    return op.replace(_reshaped(op, _rebuilt(op, inner.x, tuple(axes), inner.keepdims and op.keepdims)))


@rewrites(*_EXTREMES, operands=_EXTREMES, effect=Effect.NAN_PAYLOAD)
def reduce_of_reduce(op: OpView) -> bool:
    """The max of a max is one max over the axes of both; min likewise."""
    return _of_reduce(op)


@rewrites(_SUM, operands=[_SUM], effect=Effect.ROUNDING)
def sum_of_sum(op: OpView) -> bool:
    """The sum of a sum is one sum over the axes of both, rounded once."""
    return _of_reduce(op)


def _of_transpose(op: OpView) -> bool:
    inner = op.defined_by(op.x, "transpose")
    if inner is None:
        return False
    perm, gone = helpers.axes(inner.perm, helpers.rank(op.x)), _reduced_axes(op)
    order = [perm[a] for a in range(len(perm)) if op.keepdims or a not in gone]
    rank = sorted(order)
    moves = order != rank
    if moves and not op.has_one_use(op.x):
        return False
    x = _rebuilt(op, inner.x, [perm[a] for a in gone], op.keepdims)
    return op.replace(op.rw.build(op.root, "transpose", x, perm=tuple(rank.index(a) for a in order)) if moves else x)


@rewrites(*_EXTREMES, operands=["ptir.transpose"], effect=Effect.NAN_PAYLOAD)
def reduce_of_transpose(op: OpView) -> bool:
    """A reduction of a transpose is a transpose of the reduction, if more than one axis is left."""
    return _of_transpose(op)


@rewrites(_SUM, operands=["ptir.transpose"], effect=Effect.ORDER)
def sum_of_transpose(op: OpView) -> bool:
    """A sum of a transpose is a transpose of the sum, if more than one axis is left."""
    return _of_transpose(op)


@rewrites(_SUM, operands=["ptir.mul"], effect=Effect.RANGE)
def sum_of_scaled(op: OpView) -> bool:
    """A sum of elements scaled by one number is the scaled sum."""
    inner = op.defined_by(op.x, "mul")
    if inner is None or not _plain(op) or not helpers.static(op.x) or not op.has_one_use(op.x):
        return False
    x, c = inner.root.operands
    if not uniform(c) or uniform(x) or (isinstance(c, Value) and not helpers.has_one_use(op.rw, c, inner.root)):
        return False
    return op.replace(
        op.rw.build(
            op.root, "mul", _rebuilt(op, x, _reduced_axes(op), op.keepdims), reshaped_uniform(op, c, helpers.shape(op.root))
        )
    )


def _of_pad(op: OpView) -> bool:
    inner = op.defined_by(op.x, "pad")
    if inner is None or not helpers.static(op.x, inner.x):
        return False
    gone, dtype = _reduced_axes(op), helpers.dtype(op.x)
    padded = [a for a, counts in enumerate(zip(inner.low, inner.high, inner.interior, strict=True)) if any(counts)]
    start = numerics.identity(op.root.defn.short.removeprefix("reduce_"), dtype)
    fills = arrays.pack(scalars.element(inner.pad_value, dtype), dtype)
    same = fills == arrays.pack(arrays.narrow(np.asarray([start]), dtype), dtype)
    return same and set(padded) <= {*gone} and op.replace(_rebuilt(op, inner.x, gone, op.keepdims))


@rewrites(*_EXTREMES, operands=["ptir.pad"], effect=Effect.NAN_PAYLOAD)
def reduce_of_pad(op: OpView) -> bool:
    """A max of a pad by -inf (a min of one by inf) is that of the operand."""
    return _of_pad(op)


@rewrites(_SUM, operands=["ptir.pad"], effect=Effect.ORDER)
def sum_of_pad(op: OpView) -> bool:
    """A sum of a pad by zeros is the sum of the operand."""
    return _of_pad(op)


def _groups(before: Shape, after: Shape) -> list[tuple[list[int], list[int]]] | None:
    """The finest pairs of runs of axes that a reshape maps to each other; None when there is no element."""
    if 0 in before or not all(isinstance(d, int) for d in (*before, *after)):
        return None
    found, i, j = list[tuple[list[int], list[int]]](), 0, 0
    while i < len(before) or j < len(after):
        left, right, have, want = list[int](), list[int](), 1, 1
        while (not left and not right) or have != want:
            if have <= want and i < len(before):
                left, have, i = [*left, i], have * int(str(before[i])), i + 1
            else:
                right, want, j = [*right, j], want * int(str(after[j])), j + 1
        found.append((left, right))
    return found


def _of_reshape(op: OpView) -> bool:
    inner = op.defined_by(op.x, "reshape")
    groups = None if inner is None else _groups(helpers.shape(inner.x), helpers.shape(op.x))
    if inner is None or groups is None or not op.has_one_use(op.x):  # what others read as well is no detour
        return False
    gone, axes = set(_reduced_axes(op)), list[int]()
    for left, right in groups:
        wide = [a for a in right if helpers.shape(op.x)[a] != 1]
        if wide and gone.issuperset(wide):
            axes += left
        elif gone.intersection(wide):
            return False
    extents = helpers.shape(inner.x)
    if axes and tuple(1 if a in axes else d for a, d in enumerate(extents)) == helpers.shape(op.root):
        return op.replace(_rebuilt(op, inner.x, axes, True))
    return bool(axes) and op.replace(_reshaped(op, _rebuilt(op, inner.x, axes, False)))


@rewrites(*_EXTREMES, operands=["ptir.reshape"], effect=Effect.NAN_PAYLOAD)
def reduce_of_reshape(op: OpView) -> bool:
    """A max or min over axes that a reshape maps from whole axes is one over these axes before the reshape."""
    return _of_reshape(op)


@rewrites(_SUM, operands=["ptir.reshape"], effect=Effect.ORDER)
def sum_of_reshape(op: OpView) -> bool:
    """A sum over axes that a reshape maps from whole axes is one over these axes before the reshape."""
    return _of_reshape(op)


@rewrites(*_EXTREMES, operands=["ptir.broadcast_to"], effect=Effect.NAN_PAYLOAD)
def reduce_of_broadcast(op: OpView) -> bool:
    """A max or min of a broadcast is one of the operand, without the repeated axes."""
    inner = op.defined_by(op.x, "broadcast_to")
    if inner is None or not _plain(op) or not helpers.static(op.x) or 0 in helpers.shape(op.x):
        return False
    if not _copied(op, inner).intersection(_reduced_axes(op)) or not op.has_one_use(op.x):
        return False
    return op.replace(_without_copies(op, inner))


def _copied(op: OpView, inner: OpView) -> set[int]:
    """The axes of the root's operand along which it was broadcast."""
    lead = helpers.rank(op.x) - helpers.rank(inner.x)
    return {a for a in range(helpers.rank(op.x)) if a < lead or helpers.shape(inner.x)[a - lead] == 1}


def _without_copies(op: OpView, inner: OpView) -> Operand:
    """The root's reduction without the axes that were only repeated, in the shape of the root."""
    lead, gone = helpers.rank(op.x) - helpers.rank(inner.x), _reduced_axes(op)
    left = [a - lead for a in gone if a not in _copied(op, inner)]
    x: Operand = _rebuilt(op, inner.x, left, True) if left else inner.x
    kept = tuple(d for a, d in enumerate(helpers.shape(x)) if op.keepdims or a + lead not in gone)
    if kept != helpers.shape(x):
        x = op.rw.build(op.root, "reshape", x, new_shape=kept)
    want = helpers.shape(op.root)
    return x if kept == want else op.rw.build(op.root, "broadcast_to", x, result_shape=want)


@rewrites(_SUM, operands=["ptir.broadcast_to"], effect=Effect.ROUNDING)
def sum_of_broadcast(op: OpView) -> bool:
    """The sum of n copies is n times the original."""
    inner = op.defined_by(op.x, "broadcast_to")
    if inner is None or not _plain(op) or not helpers.static(op.x) or 0 in helpers.shape(op.x):
        return False
    copied, gone = _copied(op, inner), _reduced_axes(op)
    n = prod(helpers.extents(op.x)[a] for a in gone)
    t = helpers.tensor_type(op.root)
    if not copied.issuperset(gone) or not op.has_one_use(op.x) or not helpers.holds(t.dtype, n):
        return False
    times = helpers.splat(t, n)
    if operand_type(inner.x) is not t or len(times) > 1:
        return False
    return op.replace(op.rw.build(op.root, "mul", inner.x, helpers.insert(op.rw, op.root, times)))


@rewrites(_SUM, *_EXTREMES, depth=1)
def reduce_of_nothing(op: OpView) -> bool:
    """A reduction over no element is its identity."""
    t = helpers.tensor_type(op.root)
    if 0 not in helpers.shape(op.x) or not t.is_static or not t.count or helpers.dtype(op.x) is not t.dtype:
        return False
    start = numerics.identity(op.root.defn.short.removeprefix("reduce_"), t.dtype)
    return helpers.filled(op, start)


@rewrites("ptir.argmax", depth=1)
def argmax_of_one(op: OpView) -> bool:
    """The argmax along an axis of extent 1 is 0."""
    t = helpers.tensor_type(op.root)
    return helpers.shape(op.x)[op.axis] == 1 and t.is_static and t.count > 0 and helpers.filled(op, 0)


@rewrites("ptir.reduce_window", depth=1, effect=Effect.ZERO_SIGN)
def window_of_one(op: OpView) -> bool:
    """A reduction over windows of one element is the elements. (A sum starts with 0 and may turn -0.0 into 0.0.)"""
    alike = operand_type(op.x) is op.result.type
    return alike and is_pointwise(op.root) and op.replace(op.x)


@rewrites("ptir.reshape", operands=[_SUM, *_EXTREMES, "ptir.argmax"])
def reshape_of_reduce(op: OpView) -> bool:
    """A reshape that adds or drops the extents 1 of a reduction becomes its `keepdims`."""
    inner = op.rw.inst_of(op.x) if isinstance(op.x, Value) else None
    if inner is None or not op.has_one_use(op.x):
        return False
    attrs = inner.defn.named(inner.attrs)
    gone = attrs["axes"] if "axes" in attrs else (attrs["axis"],)
    x, keepdims = inner.operands[0], not attrs["keepdims"]
    if reduced_shape(helpers.shape(x), helpers.axes(gone, helpers.rank(x)), keepdims) != helpers.shape(op.root):
        return False
    return op.replace(op.rw.build(op.root, inner.defn, x, **attrs | {"keepdims": keepdims}))


REDUCTIONS: list[Pattern] = [
    reduce_of_nothing,
    argmax_of_one,
    reshape_of_reduce,
    window_of_one,
    reduce_of_one,
    sum_of_one,
    reduce_of_reduce,
    sum_of_sum,
    sum_of_scaled,
    reduce_of_pad,
    sum_of_pad,
    reduce_of_transpose,
    sum_of_transpose,
    reduce_of_reshape,
    sum_of_reshape,
    reduce_of_broadcast,
    sum_of_broadcast,
]
