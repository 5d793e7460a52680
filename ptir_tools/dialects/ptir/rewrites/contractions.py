"""Raise reductions of products to `dot_general`, and sums of pads to `concat`, so that the products need not be materialized.

The product in a contraction is not rounded to its dtype before the sum, so this is no canonicalization.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from ptir_tools.core.ir import Attribute, Op, Operand, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import Shape
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.dots import cast_of_accumulator
from ptir_tools.dialects.ptir.rewrites.spreads import product_of_spread
from ptir_tools.rewrite.pattern_set import PatternSet
from ptir_tools.rewrite.patterns import Effect, OpView, rewrites


@dataclass(slots=True)
class Factor:
    """A factor of the product: `source` before it was broadcast, and for each axis of the product its axis in `source`. An axis
    is None where the factor is broadcast or has extent 1. Axes of the source that are not in `axes` have extent 1."""

    source: Operand
    axes: list[int | None]

    def reads(self, axis: int) -> bool:
        """Whether elements differ along `axis` of the product."""
        return self.axes[axis] is not None


def trace(x: Operand, ends: Container[Operand] = (), *, casts: bool = False) -> Factor:
    """`x` traced through broadcasts, transposes and reshapes that add or drop extents 1, up to one of `ends`; with `casts` also
    through lossless casts."""
    factor = Factor(x, [None if d == 1 else i for i, d in enumerate(helpers.shape(x))])
    while isinstance(factor.source, Value) and factor.source not in ends and (op := factor.source.op) is not None:
        if casts and op.defn.name == "ptir.cast" and helpers.lossless(helpers.dtype(op.operands[0]), helpers.dtype(op)):
            factor = Factor(op.operands[0], factor.axes)
            continue
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
    """`reduce_sum(mul(a, b))` with `a` or `b` broadcast is a `dot_general` of what is broadcast."""
    product = _product(op)
    return product is not None and _raised(op, product)


@rewrites("ptir.reduce_sum", operands=["ptir.mul"], depth=4, effect=Effect.ORDER)
def raise_wide_contraction(op: OpView) -> bool:
    """The same where products have the dtype of the accumulator, so that only roundings of products are saved; also the inner
    product of two vectors."""
    product = op.defined_by(op.x, "mul")
    if product is None or (op.accum_dtype or default_accum(helpers.dtype(op.x))) is not helpers.dtype(op.x):
        return False
    left, right = (trace(x, casts=True) for x in product.root.operands)
    if helpers.dtype(left.source) is not helpers.dtype(right.source) or not _same_kind(op, left.source):
        left, right = map(trace, product.root.operands)
    return _contracted(op, left, right, inner=True)


def _same_kind(op: OpView, x: Operand) -> bool:
    return helpers.floating(x) == helpers.floating(op.x) and helpers.integer(x) == helpers.integer(op.x)


def _raised(op: OpView, product: Op) -> bool:
    """Whether the sum of `product` was replaced by a contraction."""
    return _contracted(op, *_factors(op, product))


def _contracted(op: OpView, left: Factor, right: Factor, scale: Operand | None = None, *, inner: bool = False) -> bool:
    """Whether the sum of a product was replaced by a contraction. `inner`: also when it has no free axes and its factors are
    vectors."""
    summed = set(helpers.axes(op.axes, helpers.rank(op.x)))
    kept = [i for i in range(helpers.rank(op.x)) if i not in summed]
    extents = helpers.shape(op.x)
    if any(extents[i] != 1 and left.reads(i) != right.reads(i) for i in summed):
        return False
    contracted = [i for i in sorted(summed) if left.reads(i)]
    free = [i for i in kept if left.reads(i) != right.reads(i)]
    if not contracted or any(extents[i] != 1 and not left.reads(i) for i in summed):
        return False
    if not free and not (inner and len(extents) == 1):
        return False
    if scale is not None and helpers.count(left.source) <= helpers.count(right.source):
        left = _scaled(op, left, scale)
    elif scale is not None:
        right = _scaled(op, right, scale)
    if free and right.reads(free[0]):  # the result then has its axes in order more often
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
    """Both factors, and the scalar by which `mul(mul(a, b), c)` scales their product."""
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


def squeezed(op: OpView, factor: Factor) -> tuple[Operand, list[int | None]]:
    """The source without its extents 1, and the axis there for each axis of the product."""
    shape = helpers.shape(factor.source)
    used = sorted(a for a in factor.axes if a is not None)
    axes = [None if a is None else used.index(a) for a in factor.axes]
    if len(used) == len(shape):
        return factor.source, axes
    return op.rw.build(op.root, "reshape", factor.source, new_shape=tuple(shape[a] for a in used)), axes


def _dot(op: OpView, left: Factor, right: Factor, contracted: Sequence[int], kept: Sequence[int]) -> Operand:
    """The contraction, with its axes in the order and with the extents of the root's result."""
    batch = [i for i in kept if left.reads(i) and right.reads(i)]
    order = batch
    for factor, other in ((left, right), (right, left)):
        order = order + sorted((i for i in kept if factor.reads(i) and not other.reads(i)), key=lambda i: factor.axes[i] or 0)

    def dot(lhs: Operand, at_left: Sequence[int | None], rhs: Operand, at_right: Sequence[int | None]) -> Value:
        numbers: dict[str, Attribute] = {"batch_lhs": _at(at_left, batch), "batch_rhs": _at(at_right, batch)}
        numbers |= {"contract_lhs": _at(at_left, contracted), "contract_rhs": _at(at_right, contracted)}
        accum = op.accum_dtype or default_accum(helpers.dtype(op.x))
        return op.rw.build(op.root, "dot_general", lhs, rhs, **numbers, accum_dtype=accum, out_dtype=helpers.dtype(op.root))

    both = *batch, *contracted
    free = [d for f in (left, right) for a, d in enumerate(helpers.shape(f.source)) if a not in _at(f.axes, both)]
    if order == sorted(order) and (*(helpers.shape(op.x)[i] for i in batch), *free) == helpers.shape(op.root):
        return dot(left.source, left.axes, right.source, right.axes)  # extents 1 are where they are wanted
    return in_order(op, dot(*squeezed(op, left), *squeezed(op, right)), order)


def _at(axes: Sequence[int | None], wanted: Sequence[int]) -> tuple[int, ...]:
    return tuple(a for i in wanted if (a := axes[i]) is not None)


def in_order(op: OpView, dot: Value, order: Sequence[int]) -> Operand:
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


CONTRACTIONS = PatternSet([raise_contraction, product_of_spread]).freeze()


@rewrites("ptir.add", operands=["ptir.pad"], effect=Effect.ZERO_SIGN)
def sum_of_parts(op: OpView) -> bool:
    """The sum of two zero pads to one shape whose elements do not overlap is a concat."""
    first, second = op.defined_by(op.x, "pad"), op.defined_by(op.y, "pad")
    if first is None or second is None or not helpers.static(op.x):
        return False
    if any(p.pad_value.value or not helpers.zeros(p.interior) for p in (first, second)):
        return False
    for a, b in ((first, second), (second, first)):
        axes = [i for i, widths in enumerate(zip(a.low, a.high, b.low, b.high, strict=True)) if any(widths)]
        if len(axes) != 1:
            return False
        (axis,) = axes
        widths = a.low[axis], a.high[axis], b.low[axis], b.high[axis]
        if widths == (0, helpers.shape(b.x)[axis], helpers.shape(a.x)[axis], 0):
            return op.replace(op.rw.build(op.root, "concat", a.x, b.x, axis=axis))
    return False


@rewrites("ptir.cast", operands=["ptir.dot_general"])
def narrowed_product(op: OpView) -> bool:
    """A contraction that is cast to a narrower dtype has that as its `out_dtype`."""
    product = op.defined_by(op.x, "dot_general")
    if product is None or not helpers.lossless(helpers.dtype(op.root), helpers.dtype(op.x)):
        return False
    return cast_of_accumulator.function(op)
