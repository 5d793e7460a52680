"""Predicates and functions for the conditions and right sides of the rules: operands, attributes, uses."""

# ruff: noqa: F403, F405  (the common vocabulary is part of this one)

from __future__ import annotations

import operator
from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import FP8_E4M3, DType
from ptir_tools.core.dtypes import lossless as lossless
from ptir_tools.core.ir import Literal, Op, Operand, Value, create
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import current
from ptir_tools.core.types import Shape, TensorType, tensor
from ptir_tools.dialects.ptir.ops.shape import keeps_row_major as keeps_row_major
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.constants import source as source
from ptir_tools.rewrite.patterns import OpView
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import *


def number(*xs: Operand) -> bool:
    """Whether no element can be NaN: integers, i1, and floats that are counted, constant or converted from them."""
    return all(map(_number, xs))


def _number(x: Operand) -> bool:
    x = source(x)
    if not inexact(x):
        return True
    if isinstance(x, Value) and x.op is not None and x.op.defn.name in ("ptir.cast", "ptir.iota"):
        overflows = dtype(x) is FP8_E4M3 and (not x.op.operands or dtype(x.op.operands[0]).bits > 8)  # to NaN
        return not overflows and (not x.op.operands or not inexact(x.op.operands[0]))
    literal = literal_of(x)
    if literal is None or literal.data is None or len(literal.data) > current().fold_bytes:
        return False
    return not np.isnan(arrays.widen(arrays.from_literal(literal))).any()


def gradual(x: Operand) -> bool:
    """Whether elements are floats with subnormals and infinities, so that a difference has the sign of the order."""
    return floating(x) and dtype(x).bits >= 16


def compares(kind: str, a: object, b: object) -> bool:
    """What a comparison of that kind (`compare_lt`) says of two numbers."""
    return bool(getattr(operator, kind.removeprefix("compare_"))(a, b))


def odd(y: Operand) -> bool:
    """Whether `y` is made by an op f of which f(-x) is -f(x)."""
    return isinstance(y, Value) and y.op is not None and y.op.defn.algebra.parity == "odd"


def even(root: Op) -> bool:
    """Whether `root` is an op f of which f(-x) is f(x)."""
    return root.defn.algebra.parity == "even"


def undo(perm: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """`counts`, one per axis after the permutation, as one per axis before it."""
    order = axes(perm, len(perm))
    return tuple(counts[order.index(a)] for a in range(len(order)))


def unit_origins(before: Shape, after: Shape) -> list[int | None] | None:
    """For each axis of `after` its axis of `before`, None for an extent 1. None when a reshape from `before` to `after` does more
    than add and drop extents 1."""
    kept = [i for i, d in enumerate(before) if d != 1]
    if [before[i] for i in kept] != [d for d in after if d != 1]:
        return None
    source = iter(kept)
    return [None if d == 1 else next(source) for d in after]


def as_transpose(op: Op | None) -> tuple[int, ...] | None:
    """The permutation of `op`: a transpose, or a reshape that only moves extents 1; None for any other op."""
    if op is None or op.defn.name not in ("ptir.transpose", "ptir.reshape"):
        return None
    before, after = shape(op.operands[0]), shape(op)
    if op.defn.name == "ptir.transpose":
        return axes(op.attr("perm"), len(after))
    origins = unit_origins(before, after) if len(before) == len(after) else None
    units = iter([i for i, d in enumerate(before) if d == 1])
    return None if origins is None else tuple(next(units) if o is None else o for o in origins)


def lead(x: Thing, of: Thing) -> Shape:
    """The extents that `of` has before those of `x`."""
    return shape(of)[: rank(of) - rank(x)]


def adds_units(x: Thing, to: Thing) -> bool:
    """Whether the shape of `to` is that of `x` with leading extents 1."""
    return ends(to, x) and ones(lead(x, to))


def ends(y: Thing, x: Thing) -> bool:
    """Whether the last extents of `y` are those of `x`."""
    return rank(y) >= rank(x) and shape(y)[rank(y) - rank(x) :] == shape(x)


def aligned(x: Thing, y: Thing) -> bool:
    """Whether the shapes are the same except for leading extents 1."""
    return _core(shape(x)) == _core(shape(y))


def _core(extents: Shape) -> Shape:
    first = next((i for i, d in enumerate(extents) if d != 1), len(extents))
    return extents[first:]


def holds(d: DType, n: int) -> bool:
    """Whether a dtype represents every integer from 0 to n."""
    return n <= d.max if d.is_integer else d.is_float and n <= 1 << d.precision


def saturates_alike(inner: DType, outer: DType) -> bool:
    """Whether a cast to the integers `inner`, then to `outer`, equals a cast to `outer`: `inner` has every value of `outer`."""
    return inner.is_integer and outer.is_integer and lossless(outer, inner)


def splat(t: TensorType, number: object) -> list[Op]:
    """The ops of a constant of type `t`, all elements `number`: one constant when it is small, else a broadcast scalar."""
    scalar = arrays.to_literal(np.asarray(number), tensor(t.dtype))
    if t.is_static and t.dtype.packed_bytes(t.count) <= current().fold_bytes and t.count:
        return [create(OPS["ptir.constant"], (), {"value": Literal(t, scalar.data, splat=t.count > 1)})]
    one = create(OPS["ptir.constant"], (), {"value": scalar})
    return [one, create(OPS["ptir.broadcast_to"], (one.results[0],), {"result_shape": t.shape})]


def insert(rw: Rewriter, at: Op, ops: Sequence[Op]) -> Value:
    """Insert `ops` before `at`; the result of the last one."""
    for op in ops:
        last = rw.insert_before(at, op)
    return last


def placed(op: OpView, ops: Sequence[Op]) -> bool:
    """Insert `ops` before the root and replace it by the result of the last. False, with nothing done, where a user refuses that
    (a constant index out of range)."""
    return op.rw.accepts(op.result, ops[-1].results[0]) and op.replace(insert(op.rw, op.root, ops))


def filled(op: OpView, number: object) -> bool:
    """Replace the root by a constant of its type, all elements `number`."""
    return placed(op, splat(tensor_type(op.root), number))


def total(root: Op) -> bool:
    """Whether `root` cannot fail on operands of other shapes. False only for an integer division without elements, which may fail
    once it has some."""
    return root.defn.name != "ptir.div" or not integer(root) or count(root) > 0


HELPERS: dict[str, object] = COMMON | {
    f.__name__: f
    for f in (keeps_row_major, undo, adds_units, lossless, total, number, saturates_alike, aligned, odd, even, ends, gradual)
}  # fmt: skip
