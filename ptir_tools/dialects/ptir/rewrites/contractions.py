"""A product of repeated operands that is summed is a contraction: it need not be materialized.

The product is then not rounded to its dtype before it is summed, which is why this is no canonicalization.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import Shape
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, OpView, rewrites


@dataclass(slots=True)
class Factor:
    """An operand of the product: `source` before it was repeated, and for each axis of the product its axis there, or None
    where it is repeated or of extent 1. Axes of the source that are not in `axes` have extent 1."""

    source: Operand
    axes: list[int | None]

    def reads(self, axis: int) -> bool:
        """Whether elements differ along that axis of the product."""
        return self.axes[axis] is not None


def trace(x: Operand, ends: Container[Operand] = ()) -> Factor:
    """`x` through broadcasts, transposes and reshapes that add or drop extents 1, up to one of `ends`."""
    factor = Factor(x, [None if d == 1 else i for i, d in enumerate(helpers.shape(x))])
    while isinstance(factor.source, Value) and factor.source not in ends and (op := factor.source.op) is not None:
        step = _STEPS.get(op.defn.name)
        back = step(op) if step is not None else None
        if back is None:
            break
        factor = Factor(op.operands[0], [None if a is None else back[a] for a in factor.axes])
    return factor


def _broadcast(op: Op) -> list[int | None]:
    source, lead = helpers.shape(op.operands[0]), helpers.rank(op) - helpers.rank(op.operands[0])
    return [*[None] * lead, *(None if d == 1 else i for i, d in enumerate(source))]


def _transpose(op: Op) -> list[int | None]:
    return list(helpers.axes(op.attr("perm"), helpers.rank(op)))


def _reshape(op: Op) -> list[int | None] | None:
    before, after = helpers.shape(op.operands[0]), helpers.shape(op)
    kept = [i for i, d in enumerate(before) if d != 1]
    if [before[i] for i in kept] != [d for d in after if d != 1]:
        return None
    source = iter(kept)
    return [None if d == 1 else next(source) for d in after]


_STEPS = {"ptir.broadcast_to": _broadcast, "ptir.transpose": _transpose, "ptir.reshape": _reshape}


@rewrites("ptir.reduce_sum", operands=["ptir.mul", "ptir.cast"], depth=4, effect=Effect.ROUNDING)
def raise_contraction(op: OpView) -> bool:
    """`reduce_sum(mul(a, b))`, a or b repeated, is a `dot_general` of what they repeat."""
    product = _product(op)
    if product is None:
        return False
    left, right, scale = _factors(op, product)
    summed = set(helpers.axes(op.axes, helpers.rank(op.x)))
    kept = [i for i in range(helpers.rank(op.x)) if i not in summed]
    extents = helpers.shape(op.x)
    if any(extents[i] != 1 and left.reads(i) != right.reads(i) for i in summed):
        return False
    contracted = [i for i in sorted(summed) if left.reads(i)]
    free = [i for i in kept if left.reads(i) != right.reads(i)]
    if not contracted or not free or any(extents[i] != 1 and not left.reads(i) for i in summed):
        return False
    if scale is not None and helpers.count(left.source) <= helpers.count(right.source):
        left = _scaled(op, left, scale)
    elif scale is not None:
        right = _scaled(op, right, scale)
    if right.reads(free[0]):  # the result then has its axes in order more often
        left, right = right, left
    return op.replace(_dot(op, left, right, contracted, kept))


def _product(op: OpView) -> Op | None:
    """The product that is summed, if its dtypes allow a contraction of the same meaning."""
    x, accum = op.x, op.accum_dtype or default_accum(helpers.dtype(op.x))
    cast = op.defined_by(x, "cast")
    if cast is not None and helpers.floating(cast.x) and helpers.lossless(helpers.dtype(cast.x), helpers.dtype(x)):
        x = cast.x
    mul = op.defined_by(x, "mul")
    if mul is None or (helpers.integer(x) and accum is not helpers.dtype(x)):
        return None
    return mul.root


def _factors(op: OpView, product: Op) -> tuple[Factor, Factor, Operand | None]:
    """Both factors, and the one number by which `mul(mul(a, b), c)` scales the product of a and b."""
    for inner, other in (product.operands, reversed(product.operands)):
        mul, scale = op.defined_by(inner, "mul"), trace(other).source
        if mul is not None and all(d == 1 for d in helpers.shape(scale)):
            a, b = map(trace, mul.root.operands)
            return a, b, scale
    x, y = product.operands
    return trace(x), trace(y), None


def _scaled(op: OpView, factor: Factor, scale: Operand) -> Factor:
    number = op.rw.build(op.root, "reshape", scale, new_shape=())
    spread = op.rw.build(op.root, "broadcast_to", number, result_shape=helpers.shape(factor.source))
    return Factor(op.rw.build(op.root, "mul", factor.source, spread), factor.axes)


def _squeezed(op: OpView, factor: Factor) -> tuple[Operand, list[int | None]]:
    """The source without its extents 1, and the axis there for each axis of the product."""
    shape = helpers.shape(factor.source)
    used = sorted(a for a in factor.axes if a is not None)
    axes = [None if a is None else used.index(a) for a in factor.axes]
    if len(used) == len(shape):
        return factor.source, axes
    return op.rw.build(op.root, "reshape", factor.source, new_shape=tuple(shape[a] for a in used)), axes


def _dot(op: OpView, left: Factor, right: Factor, contracted: Sequence[int], kept: Sequence[int]) -> Operand:
    """The contraction, with its axes in the order and with the extents of the root's result."""
    (lhs, at_left), (rhs, at_right) = _squeezed(op, left), _squeezed(op, right)
    batch = [i for i in kept if left.reads(i) and right.reads(i)]
    dot = op.rw.build(
        op.root,
        "dot_general",
        lhs,
        rhs,
        batch_lhs=_at(at_left, batch),
        batch_rhs=_at(at_right, batch),
        contract_lhs=_at(at_left, contracted),
        contract_rhs=_at(at_right, contracted),
        accum_dtype=op.accum_dtype or default_accum(helpers.dtype(op.x)),
        out_dtype=helpers.dtype(op.root),
    )
    order = batch
    for factor, other in ((left, right), (right, left)):
        order = order + sorted((i for i in kept if factor.reads(i) and not other.reads(i)), key=lambda i: factor.axes[i] or 0)
    return _in_order(op, dot, order)


def _at(axes: Sequence[int | None], wanted: Sequence[int]) -> tuple[int, ...]:
    return tuple(a for i in wanted if (a := axes[i]) is not None)


def _in_order(op: OpView, dot: Value, order: Sequence[int]) -> Operand:
    """`dot`, whose axis k is axis `order[k]` of the product, with the shape of the root's result."""
    x: Value = dot
    perm = tuple(sorted(range(len(order)), key=lambda k: order[k]))
    if perm != tuple(range(len(order))):
        x = op.rw.build(op.root, "transpose", x, perm=perm)
    extents: Shape = helpers.shape(op.x)
    summed = set(helpers.axes(op.axes, len(extents)))
    wide = tuple(extents[i] if i in order else 1 for i in range(len(extents)) if i not in summed or op.keepdims)
    if wide != helpers.shape(x):
        x = op.rw.build(op.root, "reshape", x, new_shape=wide)
    want = helpers.shape(op.root)
    return x if wide == want else op.rw.build(op.root, "broadcast_to", x, result_shape=want)


CONTRACTIONS = PatternSet([raise_contraction]).freeze()
