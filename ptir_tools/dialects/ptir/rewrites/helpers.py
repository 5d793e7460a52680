"""What conditions and right sides of the rules say about operands, attributes and uses."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import frexp, inf, isfinite
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import FP8_E4M3, I1, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.opdef import OPS, create, operand_type
from ptir_tools.core.types import Dim, Shape, TensorType, tensor
from ptir_tools.dialects.ptir.ops import folds
from ptir_tools.dialects.ptir.ops.numerics import lossless as lossless
from ptir_tools.dialects.ptir.ops.shape import axes as axes
from ptir_tools.dialects.ptir.ops.shape import compose as compose
from ptir_tools.dialects.ptir.ops.shape import moves_units as moves_units
from ptir_tools.rewrite.constants import literal_of, same_op, scalar_of
from ptir_tools.rewrite.patterns import OpView
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

Thing = Operand | Op


def tensor_type(x: Thing) -> TensorType:
    """The tensor type of an operand or of an op's result. Raises TypeError for a tuple."""
    return folds.tensor_type(x.results[0] if isinstance(x, Op) else x)


def shape(x: Thing) -> Shape:
    """The shape of an operand or result; empty for a tuple."""
    t = x.results[0].type if isinstance(x, Op) else operand_type(x)
    return t.shape if isinstance(t, TensorType) else ()


def extents(x: Thing) -> tuple[int, ...]:
    """The shape as integers. Raises ValueError when an extent is symbolic."""
    return tensor_type(x).static_shape


def dtype(x: Thing) -> DType:
    """The dtype of an operand or result."""
    return tensor_type(x).dtype


def rank(x: Thing) -> int:
    """The number of axes."""
    return len(shape(x))


def static(*things: Thing) -> bool:
    """Whether all extents are numbers."""
    return all(isinstance(d, int) for x in things for d in shape(x))


def known(y: Thing, x: Thing) -> bool:
    """Whether every extent of `y` is a number or a symbol that `x` has: dropping `y` drops no symbol's definition."""
    return all(isinstance(d, int) or d in shape(x) for d in shape(y))


def count(x: Thing) -> int:
    """The number of elements; -1 when an extent is symbolic."""
    t = tensor_type(x)
    return t.count if t.is_static else -1


def floating(x: Thing) -> bool:
    """Whether the elements are real floats."""
    return dtype(x).is_float


def integer(x: Thing) -> bool:
    """Whether the elements are integers, not i1."""
    return dtype(x).is_integer


def boolean(x: Thing) -> bool:
    """Whether the elements are i1."""
    return dtype(x) is I1


def real(x: Thing) -> bool:
    """Whether the elements are not complex."""
    return not dtype(x).is_complex


def inexact(x: Thing) -> bool:
    """Whether the elements are floats or complex: there are NaNs among their values."""
    return dtype(x).is_float or dtype(x).is_complex


def number(*xs: Operand) -> bool:
    """Whether no element can be NaN: integers, i1, and floats made of them, counted, or constant."""
    return all(map(_number, xs))


def _number(x: Operand) -> bool:
    x = source(x)
    if not inexact(x):
        return True
    if isinstance(x, Value) and x.op is not None and x.op.defn.name in ("ptir.cast", "ptir.iota"):
        overflows = dtype(x) is FP8_E4M3 and (not x.op.operands or dtype(x.op.operands[0]).bits > 8)  # to NaN
        return not overflows and (not x.op.operands or not inexact(x.op.operands[0]))
    literal = literal_of(x)
    if literal is None or literal.data is None or len(literal.data) > LIMITS.fold_bytes:
        return False
    return not np.isnan(arrays.widen(arrays.from_literal(literal))).any()


def lowest(c: Operand) -> bool:
    """Whether all elements of a constant are the lowest value of its dtype, -inf where it has one."""
    return _is_end(c, -1)


def highest(c: Operand) -> bool:
    """Whether all elements of a constant are the highest value of its dtype, inf where it has one."""
    return _is_end(c, 1)


def _is_end(c: Operand, sign: int) -> bool:
    d, found = dtype(c), scalar_of(c)
    if d.is_integer:
        return found is not None and bool(found == (d.min if sign < 0 else d.max))
    return d.is_float and found is not None and bool(found == sign * (448.0 if d is FP8_E4M3 else inf))


def ordered(a: Operand, b: Operand) -> bool:
    """Whether the constants `a` and `b` are one number each, the first not greater."""
    x, y = scalar_of(a), scalar_of(b)
    return x is not None and y is not None and bool(x <= y)


def fits(c: Operand, d: DType) -> bool:
    """Whether the one number that the constant `c` is, no NaN, is one of the dtype `d`, too."""
    found = scalar_of(c)
    if found is None or isinstance(found, complex) or d.is_complex or found != found:
        return False
    if d.is_float:
        return bool(float(arrays.narrow(np.asarray(float(found)), d)) == found)
    return bool(found in (0, 1) if d is I1 else d.min <= found <= d.max and found == int(found))


def compares(kind: str, a: Any, b: Any) -> bool:
    """What a comparison of that kind (`compare_lt`) says of two numbers."""
    return bool(getattr(operator, kind.removeprefix("compare_"))(a, b))


def odd(y: Operand) -> bool:
    """Whether `y` is made by an op f of which f(-x) is -f(x)."""
    return isinstance(y, Value) and y.op is not None and y.op.defn.algebra.parity == "odd"


def power_of_two(c: Operand) -> bool:
    """Whether all elements of a float constant are one power of two whose reciprocal the dtype has, too."""
    found = scalar_of(c) if floating(c) else None
    if not found or not isfinite(found) or abs(frexp(found)[0]) != 0.5:
        return False
    return bool(float(arrays.narrow(np.asarray(1 / found), dtype(c))) == 1 / found)


def source(x: Operand) -> Operand:
    """What `x` is a broadcast of, through all of them."""
    while isinstance(x, Value) and x.op is not None and x.op.defn.repeats:
        x = x.op.operands[0]
    return x


def constant(x: Operand) -> bool:
    """Whether `x` is a constant whose payload is there, or a broadcast of one."""
    literal = literal_of(source(x))
    return literal is not None and literal.data is not None


def alone(rw: Rewriter, x: Operand, root: Op) -> bool:
    """Whether nothing but `root`, and an op that equals it, uses `x`: it dies when they are rewritten. Two uses at most, as the
    driver looks again only when so few are left."""
    if not isinstance(x, Value) or not 0 < rw.uses(x) <= 2 or rw.is_result(x):
        return False
    return all(u is root or same_op(u, root) for u in rw.users_of(x))


def undo(perm: Sequence[int], counts: Sequence[int]) -> tuple[int, ...]:
    """One count per axis after the permutation as one per axis before it."""
    order = axes(perm, len(perm))
    return tuple(counts[order.index(a)] for a in range(len(order)))


def unit_origins(before: Shape, after: Shape) -> list[int | None] | None:
    """For each axis of `after` the axis of `before` that it is, None for an extent 1; None when a reshape from `before` to
    `after` does more than add and drop extents 1."""
    kept = [i for i, d in enumerate(before) if d != 1]
    if [before[i] for i in kept] != [d for d in after if d != 1]:
        return None
    source = iter(kept)
    return [None if d == 1 else next(source) for d in after]


def as_transpose(op: Op | None) -> tuple[int, ...] | None:
    """The permutation that `op` does: a transpose, or a reshape that only moves extents 1."""
    if op is None or op.defn.name not in ("ptir.transpose", "ptir.reshape"):
        return None
    before, after = shape(op.operands[0]), shape(op)
    if op.defn.name == "ptir.transpose":
        return axes(op.attr("perm"), len(after))
    origins = unit_origins(before, after) if len(before) == len(after) else None
    units = iter([i for i, d in enumerate(before) if d == 1])
    return None if origins is None else tuple(next(units) if o is None else o for o in origins)


def sums(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Elementwise sums."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def products(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    """Elementwise products."""
    return tuple(x * y for x, y in zip(a, b, strict=True))


def zeros(xs: Sequence[int]) -> bool:
    """Whether all are 0."""
    return not any(xs)


def ones(xs: Sequence[Dim]) -> bool:
    """Whether all are 1."""
    return all(x == 1 for x in xs)


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
    """Whether the shapes are the same but for leading extents 1."""
    return _core(shape(x)) == _core(shape(y))


def _core(extents: Shape) -> Shape:
    first = next((i for i, d in enumerate(extents) if d != 1), len(extents))
    return extents[first:]


def holds(d: DType, n: int) -> bool:
    """Whether a dtype has the integers 0 to n, every one."""
    return n <= d.max if d.is_integer else d.is_float and n <= 1 << d.precision


def saturates_alike(inner: DType, outer: DType) -> bool:
    """Whether a cast to the integers `inner`, then to `outer`, is a cast to `outer`: every value of `outer` is one of `inner`."""
    return inner.is_integer and outer.is_integer and lossless(outer, inner)


def splat(t: TensorType, number: Any) -> list[Op]:
    """The ops that make a constant of type `t`, all elements `number`: one constant where it is small, else a broadcast one."""
    scalar = arrays.to_literal(np.asarray(number), tensor(t.dtype))
    if t.is_static and t.dtype.packed_bytes(t.count) <= LIMITS.fold_bytes and t.count:
        return [create(OPS["ptir.constant"], (), {"value": Literal(t, scalar.data, splat=t.count > 1)})]
    one = create(OPS["ptir.constant"], (), {"value": scalar})
    return [one, create(OPS["ptir.broadcast_to"], (one.results[0],), {"result_shape": t.shape})]


def insert(rw: Rewriter, at: Op, ops: Sequence[Op]) -> Value:
    """Insert `ops` before `at`; the value of the last one."""
    for op in ops:
        last = rw.insert_before(at, op)
    return last


def placed(op: OpView, ops: Sequence[Op]) -> bool:
    """Put `ops` before the root and the last one's value in its place; False, with nothing done, where a user may not have that
    (a constant index out of range, say)."""
    return op.rw.accepts(op.result, ops[-1].results[0]) and op.replace(insert(op.rw, op.root, ops))


def filled(op: OpView, number: Any) -> bool:
    """Replace the root by a constant of its type, all elements `number`."""
    return placed(op, splat(tensor_type(op.root), number))


def total(root: Op) -> bool:
    """Whether `root` cannot fail on operands of other shapes: an integer division of no element does not."""
    return root.defn.name != "ptir.div" or not integer(root) or count(root) > 0


HELPERS: dict[str, Any] = {
    f.__name__: f
    for f in (
        shape, dtype, rank, static, known, count, floating, integer, constant, alone, axes, compose, moves_units,
        undo, sums, products, zeros, ones, adds_units, lossless, total, boolean, real, inexact, number, lowest,
        highest, power_of_two, saturates_alike, aligned, ordered, fits, odd, ends,
    )
}  # fmt: skip
