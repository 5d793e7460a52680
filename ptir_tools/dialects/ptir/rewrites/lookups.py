"""Raise selections by masks to gathers and updates, for dialects without indexing, so that the masks need not be materialized."""

from __future__ import annotations

from ptir_tools.core.arrays import from_literal, numpy_dtype, to_literal
from ptir_tools.core.dtypes import I1, SI32
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.contractions import Factor, in_order, squeezed, trace
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.patterns import Effect, OpView, rewrites


@rewrites("ptir.reduce_sum", operands=["ptir.select"], depth=8, effect=Effect.ORDER)
def raise_choice(op: OpView) -> bool:
    """`reduce_sum` of elements selected where an iota equals an index is `take`; an index out of bounds gives 0."""
    select, summed = op.defined_by(op.x, "select"), helpers.axes(op.axes, helpers.rank(op.x))
    if select is None or len(summed) != 1 or op.keepdims or not helpers.static(op.x) or not _accumulates(op):
        return False
    axis, rank = summed[0], helpers.rank(op.x)
    n = helpers.extents(op.x)[axis]
    chosen = next((found for x, zero, equal in _select_parts(select) if (found := _choice(op, select, x, zero, equal))), None)
    if chosen is None or n < 2:
        return False
    x, index = chosen
    places = [i for i in range(rank) if index.reads(i)]
    rest = [i for i in range(rank) if x.reads(i) and i != axis]
    if not x.reads(axis) or index.reads(axis) or any(index.reads(i) for i in rest):
        return False
    rows, axes = squeezed(op, x)
    order = [_known(axes[axis]), *sorted(_known(axes[i]) for i in rest)]
    rest.sort(key=lambda i: _known(axes[i]))
    rows = rows if order == sorted(order) else op.rw.build(op.root, "transpose", rows, perm=tuple(order))
    at, axes = squeezed(op, index)
    places.sort(key=lambda i: _known(axes[i]))
    literal, argmax = literal_of(at), op.defined_by(at, "argmax")
    inside = literal is not None and literal.data is not None and literal.type.is_static and _all_within(literal, n)
    inside |= argmax is not None and helpers.extents(argmax.x)[argmax.axis] <= n
    made = op.rw.build(op.root, "take", rows, at) if inside else _take_in_bounds(op, rows, at, n)
    if helpers.dtype(made) is not helpers.dtype(op.root):
        made = op.rw.build(op.root, "cast", made, dtype=helpers.dtype(op.root))
    return op.replace(in_order(op, made, [*places, *rest]))


def _known(axis: int | None) -> int:
    """An axis along which a factor is not broadcast."""
    assert axis is not None
    return axis


def _accumulates(op: OpView) -> bool:
    """Whether the sum of one number and zeros is that number unchanged."""
    x, out = helpers.dtype(op.x), helpers.dtype(op.root)
    accum = op.accum_dtype or default_accum(x)
    return helpers.lossless(x, accum) and helpers.lossless(x, out)


def _select_parts(select: OpView) -> list[tuple[Operand, Operand, bool]]:
    """The selected operand, the other one, and whether the selection is made where the condition is true."""
    return [(select.on_true, select.on_false, True), (select.on_false, select.on_true, False)]


def _choice(op: OpView, select: OpView, x: Operand, zero: Operand, equal: bool) -> tuple[Factor, Factor] | None:
    """The operand to take from and the indices, where `x` is selected at positions along the summed axis only."""
    if scalar_of(zero) != 0:
        return None
    test = trace(select.pred)
    made = test.source.op if isinstance(test.source, Value) else None
    difference = op.defined_by(made.operands[0], "sub") if made is not None and made.defn.short == "cast" else None
    if made is None or (difference is None and made.defn.short not in ("compare_eq", "compare_ne")):
        return None
    if equal is not (made.defn.short == "compare_eq"):
        return None
    sides = (difference.root if difference is not None else made).operands
    if not helpers.integer(sides[0]):
        return None
    (axis,) = helpers.axes(op.axes, helpers.rank(op.x))
    for index, count in (sides, sides[::-1]):
        if _is_iota_factor(place(trace(count), test), axis, helpers.extents(op.x)[axis]):
            return trace(x), place(trace(index), test)
    return None


def place(inner: Factor, outer: Factor) -> Factor:
    """`inner`, whose axes are those of the source of `outer`, with the axes of `outer`."""
    return Factor(inner.source, [None if a is None else inner.axes[a] for a in outer.axes])


def _is_iota_factor(factor: Factor, axis: int, n: int) -> bool:
    """Whether a factor is 0, 1, … along `axis` and equal along all others."""
    x, at = factor.source, factor.axes[axis]
    if at is None or any(a is not None for i, a in enumerate(factor.axes) if i != axis):
        return False
    if isinstance(x, Value) and x.op is not None and x.op.defn.name == "ptir.iota":
        return bool(x.op.attr("axis") == at) and all(d == 1 for i, d in enumerate(helpers.shape(x)) if i != at)
    literal = literal_of(x)
    if literal is None or literal.data is None or not literal.type.is_static or literal.type.count != n:
        return False
    return from_literal(literal).reshape(-1).tolist() == list(range(n))


def _all_within(literal: Literal, n: int) -> bool:
    found = from_literal(literal)
    return bool(((found >= 0) & (found < n)).all())


def _take_in_bounds(op: OpView, rows: Operand, at: Operand, n: int) -> Value:
    """The rows at the indices that are in bounds, zeros for the others."""

    def full(number: int, like: Operand) -> Value:
        scalar = to_literal(np.asarray(number, numpy_dtype(helpers.dtype(like))), tensor(helpers.dtype(like)))
        return op.rw.build(op.root, "broadcast_to", scalar, result_shape=helpers.shape(like))

    moved = op.rw.build(op.root, "clamp", at, full(0, at), full(n - 1, at))
    taken = op.rw.build(op.root, "take", rows, moved)
    inside = op.rw.build(op.root, "compare_eq", moved, at)
    ones = (1,) * (helpers.rank(taken) - helpers.rank(at))
    if ones:
        inside = op.rw.build(op.root, "reshape", inside, new_shape=(*helpers.shape(at), *ones))
    if ones and helpers.shape(inside) != helpers.shape(taken):
        inside = op.rw.build(op.root, "broadcast_to", inside, result_shape=helpers.shape(taken))
    return op.rw.build(op.root, "select", inside, taken, full(0, taken))


@rewrites("ptir.reduce_sum", operands=["ptir.select"], depth=6)
def raise_iota(op: OpView) -> bool:
    """The row sums of a lower triangular matrix of ones are an `iota`."""
    select, t = op.defined_by(op.x, "select"), helpers.tensor_type(op.x)
    if select is None or t.rank != 2 or t.shape[0] != t.shape[1] or helpers.axes(op.axes, 2) != (1,) or op.keepdims:
        return False
    if not helpers.integer(op.root) or scalar_of(select.on_true) != 1 or scalar_of(select.on_false) != 0:
        return False
    test = op.defined_by(select.pred, "compare_ge")
    total = op.defined_by(test.root.operands[0], "add") if test is not None and scalar_of(test.root.operands[1]) == 0 else None
    apart = op.defined_by(total.x, "sub") if total is not None and scalar_of(total.y) == -1 else None
    if apart is None or not all(_is_iota(x, axis) for axis, x in enumerate(apart.root.operands)):
        return False
    return op.replace(op.rw.build(op.root, "iota", shape=t.shape[:1], dtype=helpers.dtype(op.root), axis=0))


@rewrites("ptir.select", operands=["ptir.broadcast_to", "ptir.constant"], at=0)
def raise_update(op: OpView) -> bool:
    """A select by a constant mask that takes a few neighboring rows from one operand, and all others from the other, is an update
    of these rows."""
    if not helpers.static(op.result) or not helpers.rank(op.result):
        return False
    mask, shape = trace(op.pred), helpers.extents(op.result)
    literal = literal_of(mask.source)
    if scalar_of(op.on_true) is not None or scalar_of(op.on_false) is not None:  # one number is chosen quicker than it is written
        return False
    along = [i for i in range(len(shape)) if mask.reads(i)]
    if literal is None or literal.data is None or literal.type.count != shape[along[0] if along else 0] or len(along) != 1:
        return False
    (axis,) = along
    line = np.broadcast_to(from_literal(literal).reshape(-1), shape[axis])
    for x, new, written in ((op.on_true, op.on_false, ~line), (op.on_false, op.on_true, line)):
        places = np.flatnonzero(written)
        if not 0 < 2 * len(places) <= len(line) or places[-1] - places[0] != len(places) - 1:
            continue
        starts = tuple(int(places[0]) if i == axis else 0 for i in range(len(shape)))
        sizes = tuple(len(places) if i == axis else d for i, d in enumerate(shape))
        rows = op.rw.build(op.root, "slice", new, starts=starts, sizes=sizes)
        start = to_literal(np.array(starts, np.int32), tensor(SI32, (len(shape),)))
        return op.replace(op.rw.build(op.root, "dynamic_update_slice", x, rows, start, sizes=sizes))
    return False


def _is_iota(x: Operand, axis: int) -> bool:
    """Whether `x` is an iota along `axis`."""
    made = x.op if isinstance(x, Value) else None
    return made is not None and made.defn.short == "iota" and made.attr("axis") % helpers.rank(x) == axis


@rewrites("ptir.reduce_min", operands=["ptir.select"], depth=9)
def raise_argmax(op: OpView) -> bool:
    """The smallest index of a largest element along an axis is `argmax`. NaNs count as largest."""
    places, summed = op.defined_by(op.x, "select"), helpers.axes(op.axes, helpers.rank(op.x))
    if places is None or len(summed) != 1 or helpers.dtype(op.root) is not SI32 or not helpers.static(op.x):
        return False
    (axis,) = summed
    most = scalar_of(places.on_true)
    if most != SI32.max or not _is_iota_factor(trace(places.on_false), axis, helpers.extents(op.x)[axis]):
        return False
    x = _best(op, places.pred, axis)
    if x is None:
        return False
    return op.replace(op.rw.build(op.root, "argmax", x, axis=axis, keepdims=op.keepdims, output_dtype=SI32))


def _best(op: OpView, worse: Operand, axis: int) -> Operand | None:
    """The values for which the mask `worse` says of each element whether a larger one along the axis exists."""
    if (above := op.defined_by(worse, "compare_gt")) is not None:  # of integers
        x = above.root.operands[1]
        return x if helpers.integer(x) and _largest(op, above.root.operands[0], axis) is x else None
    choice = op.defined_by(worse, "select")
    above = choice and op.defined_by(choice.on_false, "compare_gt")
    real = choice and op.defined_by(choice.on_true, "compare_eq")
    if choice is None or above is None or real is None or real.root.operands[0] is not real.root.operands[1]:
        return None
    x, finite = real.root.operands[0], op.defined_by(above.root.operands[1], "select")
    if finite is None or finite.pred is not real.result or finite.on_true is not x:
        return None
    if scalar_of(finite.on_false) != -np.inf or _largest(op, above.root.operands[0], axis) is not finite.result:
        return None
    some = op.defined_by(choice.pred, "cast")
    counted = _largest(op, some.x, axis) if some is not None else None
    cast = op.defined_by(counted, "cast") if counted is not None else None
    if some is None or cast is None or helpers.dtype(some.root) is not I1:
        return None
    return x if _is_not(op, cast.x, real.result) else None


def _largest(op: OpView, x: Operand, axis: int) -> Operand | None:
    """The operand whose maximum along `axis`, broadcast along it, is `x`."""
    traced = trace(x)
    reduce = op.defined_by(traced.source, "reduce_max")
    if reduce is None or helpers.axes(reduce.axes, helpers.rank(reduce.x)) != (axis,):
        return None
    places = [i if reduce.keepdims or i < axis else i - 1 for i in range(helpers.rank(x))]
    repeated = traced.axes[axis] is None and all(a in (None, p) for a, p in zip(traced.axes, places, strict=True))
    same = helpers.shape(reduce.x) == helpers.shape(x) and helpers.dtype(reduce.x) is helpers.dtype(x)
    return reduce.x if repeated and same else None


def _is_not(op: OpView, x: Operand, mask: Operand) -> bool:
    """Whether `x` is the negation of `mask`, and `mask` says which values are not NaN."""
    if (differs := op.defined_by(x, "compare_ne")) is not None:
        same = op.defined_by(mask, "compare_eq")
        return same is not None and differs.root.operands == same.root.operands
    negated = op.defined_by(x, "compare_eq")
    return negated is not None and negated.root.operands[0] is mask and scalar_of(negated.root.operands[1]) is False
