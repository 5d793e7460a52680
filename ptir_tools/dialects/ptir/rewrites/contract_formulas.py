"""Formulas of extension ops in ops of the contract, for targets without these ops.

Rounding, signs, cumulative ops, reductions by halves, sorts and bits are exact. Functions are series and formulas in f32 or f64,
within a few units in the last place unless their docstring says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import F64, I1, SI32, SI64, DType
from ptir_tools.core.ir import Attribute, Element, Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.decompose import Emitter
from ptir_tools.rewrite.rewriter import Rewriter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike
else:
    np = lazy("numpy")


class Formula(Emitter):
    """Builds the ops that replace one op. Numbers next to a value become constants of its type."""

    def __init__(self, root: Op, rw: Rewriter, halving: bool = False) -> None:
        super().__init__(root, rw, helpers.tensor_type(root.operands[0]))
        self.halving = halving
        self.result = helpers.tensor_type(root.result) if isinstance(root.result.type, TensorType) else self.full

    def op(self, name: str, *operands: Operand | float, **given: Attribute) -> Value:
        """An op. A number operand gets the type of the other operands (in a `select`, of the last ones)."""
        like = next(helpers.tensor_type(x) for x in reversed(operands) if not isinstance(x, (int, float)))
        values = [self.number(x, like) if isinstance(x, (int, float)) else x for x in operands]
        return self.rw.build(self.root, name, *values, **given)

    def number(self, x: float, t: TensorType) -> Value:
        """A constant of type `t`, all of whose elements are `x`."""
        return self.spread(self.constant(np.asarray(x), t.dtype), t.shape)

    def constant(self, array: ArrayLike, dtype: DType) -> Value:
        """The elements of `array` in `dtype`."""
        with np.errstate(all="ignore"):  # a format may have no infinity
            made = np.asarray(array).astype(arrays.numpy_dtype(dtype))
        return self.rw.materialize_constant(self.root, arrays.to_literal(made, tensor(dtype, made.shape)))

    def choose(self, test: Value, x: Operand | float, y: Operand | float) -> Value:
        """`x` where `test` holds, else `y`."""
        like = next(helpers.tensor_type(v) for v in (x, y) if not isinstance(v, (int, float)))
        a, b = (self.number(v, like) if isinstance(v, (int, float)) else v for v in (x, y))
        return self.rw.build(self.root, "select", test, a, b)

    def series(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The polynomial of `x` with these coefficients, the constant first."""
        total = self.number(coefficients[-1], helpers.tensor_type(x))
        for c in reversed(coefficients[:-1]):
            total = self.op("add", self.op("mul", x, total), c)
        return total

    def terms(self, few: int, many: int) -> range:
        """The coefficients of a series: `few` in f32, `many` in f64."""
        return range(many if self.dtype is F64 else few)

    def root_of(self, x: Value) -> Value:
        """The square root, of 0 and infinity itself."""
        return self.op("reciprocal", self.op("rsqrt", x))

    def signed(self, x: Value, size: Value) -> Value:
        """`size` with the sign of `x`; zeros are unchanged."""
        found = self.choose(self.op("compare_lt", x, 0), self.op("neg", size), size)
        return self.choose(self.op("compare_eq", x, 0), x, found)


Rule = Callable[[Formula, Op, Operand], Operand]
Attempt = Callable[[Formula, Op, Operand], Operand | None]  # None: the op stays


def in_floats(rule: Callable[[Formula, Value], Value]) -> Rule:
    """A rule of floats: those narrower than f32 are computed in f32."""

    def computed(f: Formula, op: Op, x: Operand) -> Operand:
        return f.cast(rule(f, f.cast(x, f.full.with_dtype(f.dtype))), f.result)  # type: ignore[arg-type]

    return computed


# Whole numbers


def nearest(f: Formula, x: Value) -> Value:
    """The nearest integer, ties to even: adding a power of two rounds. Numbers beyond that power are integers."""
    high = 2.0 ** (52 if helpers.dtype(x) is F64 else 23)
    size = f.op("abs", x)
    whole = f.op("sub", f.op("add", size, high), high)
    return f.choose(f.op("compare_lt", size, high), f.signed(x, whole), x)


def _floor(f: Formula, x: Value) -> Value:
    near = nearest(f, x)
    return f.choose(f.op("compare_gt", near, x), f.op("sub", near, 1), near)


def _ceil(f: Formula, x: Value) -> Value:
    return f.op("neg", _floor(f, f.op("neg", x)))


def _away(f: Formula, x: Value) -> Value:
    size = f.op("abs", x)
    below = _floor(f, size)
    up = f.op("compare_ge", f.op("sub", size, below), 0.5)
    whole = f.choose(up, f.op("add", below, 1), below)
    high = 2.0 ** (52 if helpers.dtype(x) is F64 else 23)
    return f.choose(f.op("compare_lt", size, high), f.signed(x, whole), x)


def _sign(f: Formula, op: Op, x: Operand) -> Operand:
    """-1 and 1; zeros and NaN are unchanged."""
    below = f.choose(f.op("compare_lt", x, 0), -1, x)
    return f.choose(f.op("compare_gt", x, 0), 1, below)


def _is_finite(f: Formula, op: Op, x: Operand) -> Operand:
    return f.op("compare_lt", f.op("abs", x), math.inf)


# Along an axis


def _shifted(f: Formula, x: Operand, axis: int, by: int, reverse: bool, fill: float) -> Value:
    """`x` shifted along `axis` by `by` positions, `fill` where there is no element."""
    t = helpers.tensor_type(x)
    n = t.static_shape[axis]
    starts = [by if reverse and a == axis else 0 for a in range(t.rank)]
    part = f.op("slice", x, starts=tuple(starts), sizes=tuple(d - by if a == axis else d for a, d in enumerate(t.static_shape)))
    filled = f.number(fill, t.with_shape(min(by, n) if a == axis else d for a, d in enumerate(t.shape)))
    return f.op("concat", *((part, filled) if reverse else (filled, part)), axis=axis)


def running(kind: str, combine: str) -> Rule:
    """Rule of a cumulative op: each step combines elements twice as far apart as the step before."""

    def rule(f: Formula, op: Op, x: Operand) -> Operand:
        t, axis, reverse = f.full, op.attr("axis") % f.full.rank, op.attr("reverse")
        n = t.shape[axis]
        fill = numerics.identity(kind, t.dtype)
        assert isinstance(n, int)
        y: Operand = _shifted(f, x, axis, 1, reverse, fill) if op.attr("exclusive") and n else x
        by = 1
        while by < n:
            y = f.op(combine, y, _shifted(f, y, axis, by, reverse, fill))
            by *= 2
        return y

    return rule


def halved(combine: str, fill: Callable[[DType], float]) -> Rule:
    """Rule of a reduction: each step combines the two halves of what is left."""

    def rule(f: Formula, op: Op, x: Operand) -> Operand:
        t = f.full
        axes = [a % t.rank for a in op.attr("axes")]
        y = x
        for axis in axes:
            while (n := helpers.shape(y)[axis]) != 1:
                assert isinstance(n, int)
                shape = helpers.tensor_type(y).static_shape
                if n == 0:
                    y = f.number(fill(t.dtype), t.with_shape(1 if a == axis else d for a, d in enumerate(shape)))
                    break
                parts = []
                for start, size in ((0, n // 2), (n // 2, n // 2), (n - 1, n % 2)):
                    starts = tuple(start if a == axis else 0 for a in range(t.rank))
                    parts.append((starts, tuple(size if a == axis else d for a, d in enumerate(shape))))
                first, second, rest = (f.op("slice", y, starts=a, sizes=b) if b[axis] else None for a, b in parts)
                assert first is not None and second is not None
                y = f.op(combine, first, second)
                y = f.op("concat", y, rest, axis=axis) if rest is not None else y
        return y if helpers.shape(y) == f.result.shape else f.op("reshape", y, new_shape=f.result.shape)

    return rule


def _argmin(f: Formula, op: Op, x: Operand) -> Operand:
    """The argmax of the negated elements. Integers are complemented, because that does not wrap."""
    other = f.op("neg", x) if f.full.dtype.is_float else _turned(f, x)
    return f.op("argmax", other, axis=op.attr("axis"), keepdims=op.attr("keepdims"), output_dtype=op.attr("output_dtype"))


def _sort(f: Formula, op: Op, x: Operand) -> Operand:
    """`top_k` of all elements, which is stable, too."""
    axis = op.attr("axis") % f.full.rank
    k = f.full.shape[axis]
    found = f.rw.build(f.root, "top_k", x, k=k, axis=axis, largest=op.attr("descending"), indices_dtype=SI32)
    return Element(found, 0)


# Bits


def _turned(f: Formula, x: Operand) -> Value:
    """The complement of each bit of integers."""
    dtype = helpers.dtype(x)
    return f.op("sub", dtype.max if dtype.min == 0 else -1, x)


def _not(f: Formula, op: Op, x: Operand) -> Operand:
    return f.choose(x, False, f.number(True, f.full)) if f.full.dtype is I1 else _turned(f, x)  # type: ignore[arg-type]


def bitwise(truth: Callable[[Formula, Value, Value], Value], bit: Callable[[Formula, Value, Value], Value]) -> Rule:
    """Rule of a bitwise op: `truth` of i1; of integers, `bit` of each pair of bits, each 0 or 1."""

    def rule(f: Formula, op: Op, x: Operand) -> Operand:
        y = op.operands[1]
        if f.full.dtype is I1:
            return truth(f, x, y)  # type: ignore[arg-type]
        return _joined(f, bit(f, _bits(f, x), _bits(f, y)))

    return rule


def _both(f: Formula, x: Value, y: Value) -> Value:
    return f.rw.build(f.root, "select", x, y, x)


def _either(f: Formula, x: Value, y: Value) -> Value:
    return f.rw.build(f.root, "select", x, x, y)


def _unlike(f: Formula, x: Value, y: Value) -> Value:
    return f.choose(x, f.choose(y, False, f.number(True, f.full)), y)


def _bits(f: Formula, x: Operand) -> Value:
    """The bits of integers, the lowest first, along a new last axis, in si32 or si64. They are the quotients by powers of two.
    Negative integers are complemented first, and their bits afterwards."""
    wide, bits = _width(f)
    v = f.cast(x, f.full.with_dtype(wide))
    spread = f.op("reshape", v, new_shape=(*f.full.shape, 1))
    low = bits if bits < wide.bits else bits - 1
    shape = (*f.full.shape, low)
    every = f.spread(spread, shape)
    below = f.op("compare_lt", every, 0)
    size = f.choose(below, _turned(f, every), every)
    quotient = _halves(f, size, low) if f.halving else _quotients(f, size)
    half = f.op("div", quotient, 2)
    bit = f.op("sub", quotient, f.op("mul", half, 2))
    found = f.choose(below, f.op("sub", 1, bit), bit)
    if low == bits:
        return found
    return f.op("concat", found, f.cast(f.op("compare_lt", spread, 0), tensor(wide)), axis=f.full.rank)


def _quotients(f: Formula, x: Value) -> Value:
    """`x` divided by the powers of two along the last axis."""
    t = helpers.tensor_type(x)
    return f.op("div", x, f.spread(f.constant([2**k for k in range(t.static_shape[-1])], t.dtype), t.shape))


def _halves(f: Formula, x: Value, count: int) -> Value:
    """The same by divisions by 2 only: `x` is halved repeatedly, and the results are concatenated."""
    shape = helpers.tensor_type(x).static_shape
    zeros = (0,) * len(shape)
    found, n = f.op("slice", x, starts=zeros, sizes=(*shape[:-1], 1)), 1
    while n < count:
        more = found
        for _ in range(n):
            more = f.op("div", more, 2)
        found, n = f.op("concat", found, more, axis=len(shape) - 1), 2 * n
    return found if n == count else f.op("slice", found, starts=zeros, sizes=shape)


def _joined(f: Formula, bits: Value) -> Operand:
    """The integers with these bits."""
    wide, n = _width(f)
    dtype = f.full.dtype
    places = [2**k for k in range(n)]
    if dtype.min:
        places[-1] = -places[-1]
    powers = f.spread(f.constant(places, wide), helpers.shape(bits))
    total = f.op("reduce_sum", f.op("mul", bits, powers), axes=(f.full.rank,))
    return f.cast(total, f.full)


def _width(f: Formula) -> tuple[DType, int]:
    """The dtype in which bits are computed, and the number of bits."""
    return (SI64 if f.full.dtype.bits > 32 or (f.full.dtype.min == 0 and f.full.dtype.bits == 32) else SI32), f.full.dtype.bits


def _popcount(f: Formula, op: Op, x: Operand) -> Operand:
    return f.cast(f.op("reduce_sum", _bits(f, x), axes=(f.full.rank,)), f.full)


def _leading(f: Formula, op: Op, x: Operand) -> Operand:
    """The width minus the position, counted from 1, of the highest set bit."""
    bits, n = _bits(f, x), f.full.dtype.bits
    places = f.spread(f.constant(range(1, n + 1), helpers.dtype(bits)), helpers.shape(bits))
    highest = f.op("reduce_max", f.op("mul", bits, places), axes=(f.full.rank,))
    return f.cast(f.op("sub", n, highest), f.full)


def _shift(f: Formula, op: Op, x: Operand) -> Operand:
    """The bits moved by a mask over pairs of positions: only the pairs with the right distance are kept."""
    bits, n = _bits(f, x), f.full.dtype.bits
    wide, rank = helpers.dtype(bits), f.full.rank
    by = f.cast(op.operands[1], f.full.with_dtype(wide))
    far = f.op("compare_ge", by, n)
    if f.full.dtype.min:
        far = f.choose(f.op("compare_lt", by, 0), True, far)
    by = f.choose(far, n, by)
    shape = (*f.full.shape, n, n)  # [.., to, from]
    over = f.op("reshape", by, new_shape=(*f.full.shape, 1, 1))
    up = op.defn.short == "shift_left"
    to, source = (f.constant(np.broadcast_to(np.arange(n)[i], (n, n)), wide) for i in ((slice(None), None), (None, slice(None))))
    place = f.op("sub" if up else "add", f.spread(to, shape), f.spread(over, shape))
    if op.defn.short == "shift_right_arithmetic":
        place = f.op("minimum", place, n - 1)
    taken = f.op("compare_eq", place, f.spread(source, shape))
    every = f.spread(f.op("reshape", bits, new_shape=(*f.full.shape, 1, n)), shape)
    return _joined(f, f.op("reduce_sum", f.choose(taken, every, 0), axes=(rank + 1,)))


# Functions


def _expm1(f: Formula, x: Value) -> Value:
    small = f.op("mul", x, f.series(x, [1 / math.factorial(k + 1) for k in f.terms(11, 18)]))
    large = f.op("sub", f.op("exp", x), 1)
    return f.choose(f.op("compare_lt", f.op("abs", x), 0.5), small, large)


def _log1p(f: Formula, x: Value) -> Value:
    """Near 0, the series of 2 atanh(x / (2 + x))."""
    near = f.op("compare_lt", f.op("abs", x), 0.5)
    s = f.op("div", x, f.op("add", x, 2))
    small = f.op("mul", s, f.series(f.op("mul", s, s), [2 / (2 * k + 1) for k in f.terms(9, 18)]))
    return f.choose(near, f.choose(f.op("compare_eq", x, 0), x, small), f.op("log", f.op("add", x, 1)))


def _sinh(f: Formula, x: Value) -> Value:
    size, square = f.op("abs", x), f.op("mul", x, x)
    small = f.op("mul", x, f.series(square, [1 / math.factorial(2 * k + 1) for k in f.terms(6, 10)]))
    root = f.op("exp", f.op("mul", size, 0.5))
    up = f.op("mul", f.op("mul", root, 0.5), root)
    large = f.signed(x, f.op("sub", up, f.op("div", 0.25, up)))
    return f.choose(f.op("compare_lt", size, 1), small, large)


def _cosh(f: Formula, x: Value) -> Value:
    root = f.op("exp", f.op("mul", f.op("abs", x), 0.5))
    up = f.op("mul", f.op("mul", root, 0.5), root)
    return f.op("add", up, f.op("div", 0.25, up))


def _asinh(f: Formula, x: Value) -> Value:
    size = f.op("abs", x)
    high = 2.0**500 if f.dtype is F64 else 2.0**60
    held = f.op("minimum", size, high)
    square = f.op("mul", held, held)
    root = f.root_of(f.op("add", square, 1))
    near = _log1p(f, f.op("add", held, f.op("div", square, f.op("add", root, 1))))
    far = f.op("add", f.op("log", size), math.log(2))
    return f.signed(x, f.choose(f.op("compare_lt", size, high), near, far))


def _acosh(f: Formula, x: Value) -> Value:
    high = 2.0**500 if f.dtype is F64 else 2.0**60
    t = f.op("sub", f.op("minimum", x, high), 1)
    near = _log1p(f, f.op("add", t, f.root_of(f.op("mul", t, f.op("add", t, 2)))))
    far = f.op("add", f.op("log", x), math.log(2))
    found = f.choose(f.op("compare_lt", x, high), near, far)
    return f.choose(f.op("compare_lt", x, 1), math.nan, found)


def _atanh(f: Formula, x: Value) -> Value:
    size = f.op("abs", x)
    found = f.op("mul", _log1p(f, f.op("div", f.op("add", size, size), f.op("sub", 1, size))), 0.5)
    return f.signed(x, f.choose(f.op("compare_gt", size, 1), math.nan, found))


def _atan(f: Formula, x: Value) -> Value:
    """A reduction by the tangents of 1/8 and 3/8 of a half turn to the series near 0."""
    size = f.op("abs", x)
    far, middle = f.op("compare_gt", size, 1 + math.sqrt(2)), f.op("compare_gt", size, math.sqrt(2) - 1)
    held = f.op("maximum", size, 0.25)
    turned = f.choose(far, f.op("div", -1.0, held), f.op("div", f.op("sub", size, 1), f.op("add", size, 1)))
    v = f.choose(middle, turned, size)
    arc = f.op("mul", v, f.series(f.op("mul", v, v), [(-1) ** k / (2 * k + 1) for k in f.terms(10, 22)]))
    base = f.choose(far, f.number(math.pi / 2, helpers.tensor_type(x)), math.pi / 4)
    return f.signed(x, f.choose(middle, f.op("add", base, arc), arc))


def _asin(f: Formula, x: Value) -> Value:
    inside = f.op("mul", f.op("sub", 1, x), f.op("add", x, 1))
    return f.choose(f.op("compare_eq", x, 0), x, _atan(f, f.op("div", x, f.root_of(inside))))


def _acos(f: Formula, x: Value) -> Value:
    ratio = f.op("div", f.op("sub", 1, x), f.op("add", x, 1))
    half = _atan(f, f.root_of(ratio))
    found = f.choose(f.op("compare_eq", x, 1), 0, f.op("add", half, half))
    return f.choose(f.op("compare_gt", f.op("abs", x), 1), math.nan, found)


# π/2 in three parts: the first two times a count of up to 13 bits (of f64 20) are exact.
_QUARTER = {False: (1.5703125, 4.837512969970703125e-4, 7.549789948768648e-8),
            True: (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)}  # fmt: skip


def _quarters(f: Formula, x: Value) -> tuple[Value, Value, Value]:
    """The number of quarter turns modulo 4, and the sine and cosine of the rest; NaN beyond the range."""
    most = 2.0 ** (20 if f.dtype is F64 else 13)
    x = f.choose(f.op("compare_lt", f.op("abs", x), most), x, math.nan)
    k = nearest(f, f.op("mul", x, 2 / math.pi))
    rest = x
    for part in _QUARTER[f.dtype is F64]:
        rest = f.op("sub", rest, f.op("mul", k, part))
    square = f.op("mul", rest, rest)
    sine = f.op("mul", rest, f.series(square, [(-1) ** n / math.factorial(2 * n + 1) for n in f.terms(6, 10)]))
    cosine = f.series(square, [(-1) ** n / math.factorial(2 * n) for n in f.terms(6, 10)])
    whole = f.op("mul", _floor(f, f.op("mul", k, 0.25)), 4)
    return f.op("sub", k, whole), sine, cosine


def _sin(f: Formula, x: Value, turn: int = 0) -> Value:
    quarter, sine, cosine = _quarters(f, x)
    odd = f.op("compare_eq", f.op("abs", f.op("sub", quarter, 2)), 1)  # 1 or 3
    found = f.choose(odd, sine, cosine) if turn else f.choose(odd, cosine, sine)
    second = f.op("compare_eq", f.op("abs", f.op("sub", quarter, 1.5)), 0.5) if turn else f.op("compare_ge", quarter, 2)
    found = f.choose(second, f.op("neg", found), found)
    return found if turn else f.choose(f.op("compare_eq", x, 0), x, found)


def _cos(f: Formula, x: Value) -> Value:
    return _sin(f, x, 1)


def _tan(f: Formula, x: Value) -> Value:
    quarter, sine, cosine = _quarters(f, x)
    odd = f.op("compare_eq", f.op("abs", f.op("sub", quarter, 2)), 1)
    ratio = f.op("div", f.choose(odd, f.op("neg", cosine), sine), f.choose(odd, sine, cosine))
    return f.choose(f.op("compare_eq", x, 0), x, ratio)


def _cbrt(f: Formula, x: Value) -> Value:
    """The exponential of a third of the logarithm, then one step of Newton's method. Zeros, infinities and NaN are unchanged."""
    size = f.op("abs", x)
    first = f.op("exp", f.op("mul", f.op("log", size), 1 / 3))
    off = f.op("sub", first, f.op("div", f.op("div", size, first), first))
    found = f.signed(x, f.op("sub", first, f.op("mul", off, 1 / 3)))
    return f.choose(f.op("compare_lt", size, math.inf), found, x)


def _atan2(f: Formula, op: Op, y: Operand) -> Operand:
    """The arc tangent of the quotient of the magnitudes, moved to the quadrant that the signs of `x` and `y` give, also for
    zeros."""
    wide = f.full.with_dtype(f.dtype)
    v, u = (f.cast(z, wide) for z in (y, op.operands[1]))
    a, b = f.op("abs", v), f.op("abs", u)
    arc = f.op("abs", _atan(f, f.op("div", a, b)))  # a size of zero may be -0.0
    arc = f.choose(f.op("compare_eq", a, b), f.choose(f.op("compare_eq", a, 0), f.number(0, wide), math.pi / 4), arc)
    arc = f.choose(_negative(f, u), f.op("sub", math.pi, arc), arc)
    return f.cast(f.choose(_negative(f, v), f.op("neg", arc), arc), f.result)


def _negative(f: Formula, x: Operand) -> Value:
    """Whether `x` is below 0, or -0.0."""
    return f.op("compare_lt", f.choose(f.op("compare_eq", x, 0), f.op("reciprocal", x), x), 0)


def _pow(f: Formula, op: Op, x: Operand) -> Operand:
    return _float_power(f, op, x) if f.full.dtype.is_float else _integer_power(f, op, x)


def _float_power(f: Formula, op: Op, x: Operand) -> Operand:
    """exp(y · log |x|). The error grows with that product."""
    wide = f.full.with_dtype(f.dtype)
    v, y = (f.cast(z, wide) for z in (x, op.operands[1]))
    size = f.op("abs", v)
    power = f.op("exp", f.op("mul", y, f.op("log", size)))
    power = f.choose(f.op("compare_eq", size, 1), 1, power)
    half = f.op("mul", y, 0.5)
    odd = f.op("compare_ne", _floor(f, half), half)
    negative = f.choose(odd, f.op("neg", power), power)
    negative = f.choose(f.op("compare_eq", _floor(f, y), y), negative, math.nan)  # type: ignore[arg-type]
    found = f.choose(f.op("compare_lt", v, 0), negative, power)
    found = f.choose(f.op("compare_eq", y, y), found, y)
    found = f.choose(f.op("compare_eq", v, v), found, v)
    found = f.choose(f.op("compare_eq", v, 1), 1, found)
    return f.cast(f.choose(f.op("compare_eq", y, 0), 1, found), f.result)


def _integer_power(f: Formula, op: Op, x: Operand) -> Operand:
    """Repeated squaring over the bits of the exponent; 1, -1 or 0 for a negative exponent."""
    y, shape = op.operands[1], f.full.static_shape
    bits = _bits(f, y)
    wide = f.full.with_dtype(helpers.dtype(bits))
    v = f.cast(x, wide)
    total, square = f.number(1, wide), v
    for k in range(f.full.dtype.bits):
        bit = f.op("slice", bits, starts=(*[0] * len(shape), k), sizes=(*shape, 1))
        bit = f.op("compare_ne", f.op("reshape", bit, new_shape=shape), 0)
        total = f.choose(bit, f.op("mul", total, square), total)
        square = f.op("mul", square, square)
        if k == 0:
            inverse = f.choose(f.op("compare_eq", v, -1), total, f.choose(f.op("compare_eq", v, 1), 1, f.op("sub", v, v)))
    found = f.choose(f.op("compare_lt", f.cast(y, wide), 0), inverse, total)
    return f.cast(found if f.full.dtype is wide.dtype else _wrapped(f, found), f.full)


def _wrapped(f: Formula, x: Value) -> Value:
    """The lowest bits of a result in a wider dtype."""
    dtype = f.full.dtype
    span = 1 << dtype.bits
    low = f.op("mod", x, span)
    return f.choose(f.op("compare_gt", low, dtype.max), f.op("sub", low, span), low)


def _widened(rule: Rule) -> Rule:
    """A rule of floats narrower than f32 in f32, with the accumulator and result dtypes that the op names."""

    def computed(f: Formula, op: Op, x: Operand) -> Operand:
        dtype = f.full.dtype
        accum = op.defn.named(op.attrs).get("accum_dtype") or (f.dtype if dtype.is_float else dtype)
        x = f.cast(x, f.full.with_dtype(accum))
        f.full = f.full.with_dtype(accum)
        return f.cast(rule(f, op, x), f.result)

    return computed


EXACT: dict[str, Rule] = {
    "floor": in_floats(_floor), "ceil": in_floats(_ceil), "round_even": in_floats(nearest), "round_away": in_floats(_away),
    "sign": _sign, "is_finite": _is_finite, "argmin": _argmin, "sort": _sort,
    "cumsum": _widened(running("sum", "add")), "cumprod": _widened(running("prod", "mul")),
    "cummax": running("max", "maximum"), "cummin": running("min", "minimum"),
    "reduce_prod": _widened(halved("mul", lambda dtype: 1)),
    "reduce_and": halved("bitwise_and", lambda dtype: True if dtype is I1 else dtype.max if dtype.min == 0 else -1),
    "reduce_or": halved("bitwise_or", lambda dtype: 0), "reduce_xor": halved("bitwise_xor", lambda dtype: 0),
    "bitwise_and": bitwise(_both, lambda f, x, y: f.op("mul", x, y)),
    "bitwise_or": bitwise(_either, lambda f, x, y: f.op("maximum", x, y)),
    "bitwise_xor": bitwise(_unlike, lambda f, x, y: f.op("abs", f.op("sub", x, y))),
    "bitwise_not": _not, "popcount": _popcount, "count_leading_zeros": _leading,
    **dict.fromkeys(("shift_left", "shift_right_logical", "shift_right_arithmetic"), _shift),
}  # fmt: skip

FUNCTIONS: dict[str, Rule] = {
    name: in_floats(rule)
    for name, rule in {
        "expm1": _expm1, "log1p": _log1p, "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
        "atan": _atan, "asin": _asin, "acos": _acos, "cbrt": _cbrt,
    }.items()
}  # fmt: skip

# These take off π/2 in three parts, and so give NaN from |x| = 2**13 (in f64 2**20) on.
PERIODIC: dict[str, Rule] = {"sin": in_floats(_sin), "cos": in_floats(_cos), "tan": in_floats(_tan)}

# These lose more than rounding: powers, and what of a quotient is 0 / 0.
PAIRS: dict[str, Rule] = {"atan2": _atan2, "pow": _pow}


def express(program: Program, rules: Mapping[str, Attempt], halving: bool = False) -> None:
    """Replace each op in `rules` by its formula, in place, where extents are static and numbers real. `halving`: divisions of
    integers are by 2 only."""
    for block in program.blocks():
        if not any(op.defn.short in rules for op in block.body):
            continue
        rw = Rewriter(block, program.dialect)
        found = True
        while found:  # a reduction of bits is made of ops on bits
            found = False
            for op in rw.body():
                rule = rules.get(op.defn.short)
                made = rule(Formula(op, rw, halving), op, op.operands[0]) if rule is not None and _fits(op) else None
                if made is not None:
                    rw.replace_all_uses(op.result, made)
                    rw.erase(op)
                    found = True
        rw.finish()


# What counts the elements along an axis, or has an axis of bits.
_COUNTED = EXACT.keys() - {"floor", "ceil", "round_even", "round_away", "sign", "is_finite", "argmin", "bitwise_not"}


def _fits(op: Op) -> bool:
    types = [helpers.tensor_type(x) for x in op.operands]
    if not isinstance(op.result.type, TensorType) or any(t.dtype.is_complex for t in types):
        return False
    return all(t.is_static or (op.defn.short not in _COUNTED and t.dtype.is_float) for t in types)
