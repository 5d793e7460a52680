"""Puts integers in the place of the operands of products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value, create
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.quantization.products import Product
from ptir_tools.dialects.ptir.quantization.steps import Method, Spread, Steps, of_weight
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.rewriter import Rewriter


@dataclass(slots=True, frozen=True)
class Choice:
    """How products are quantized. `values` None: values stay floats. `group`: so many summed elements of a weight have a scale
    of their own; 0: all."""

    weights: DType
    values: DType | None
    each: bool
    method: Method
    share: float
    group: int
    corrected: bool


class Editor:
    """Edits the entry; values that are read by several products are quantized once. With `flags`, products have quantized
    operands only where their flag is true."""

    def __init__(
        self, rw: Rewriter, choice: Choice, seen: Mapping[Value, Spread], flags: Mapping[str, Value] | None = None
    ) -> None:
        self.rw, self.choice, self.seen, self.flags = rw, choice, seen, flags
        self.made: dict[tuple[Value, *tuple[Op, ...]], Value] = {}

    def quantize(self, p: Product) -> None:
        """Let `p` read quantized operands."""
        operands = list(p.op.operands)
        spread = self.seen.get(p.source)
        divisors = None if spread is None else spread.divisors
        weight = p.weight if divisors is None else p.weight * p.by_channel(divisors)
        quantized, rounded = self.weight(p, weight)
        if divisors is not None:
            rounded = rounded / p.by_channel(divisors)
        operands[p.other] = self.flagged(p.op, p, quantized, operands[p.other])
        if self.choice.values is not None and spread is not None:
            operands[p.side] = self.flagged(p.op, p, self.value(p, spread, self.choice.values), operands[p.side])
        self.rw.set_operands(p.op, operands)
        if self.choice.corrected and self.flags is None and spread is not None and p.channel is not None and p.axis is not None:
            self.correct(p, (p.weight - rounded) * p.by_channel(spread.mean))

    def flagged(self, at: Op, p: Product, x: Value, plain: Operand) -> Value:
        """`x`, or `plain` where the flag of `p` is false."""
        if self.flags is None:
            return x
        flag = self.rw.build(at, "broadcast_to", self.flags[p.name], result_shape=helpers.shape(x))
        return self.rw.build(at, "select", flag, x, plain)

    def round_result(self, p: Product, v: Value) -> None:
        """Let everything that reads `v`, a result of `p`, read it rounded to steps."""
        body = self.rw.body()
        at = body[body.index(v.op) + 1] if v.op is not None and v.op is not body[-1] else None
        if at is None or self.choice.values is None or (v,) in self.made:
            return
        users = dict.fromkeys(self.rw.users_of(v))
        x = self.made[v,] = self.rounded(at, v, self.seen[v], self.choice.values)
        x = self.flagged(at, p, x, v)
        for user in users:
            if isinstance(user, Op):
                self.rw.set_operands(user, [x if y is v else y for y in user.operands])

    def weight(self, p: Product, x: Array) -> tuple[Value, Array]:
        """The weight `x` of `p` as integers, dequantized; and the rounded numbers."""
        choice, group = self.choice, p.grouped(self.choice.group)
        if group is not None:
            return self.blocks(p, x, *group)
        axis = p.axis if choice.each else None
        steps = of_weight(x, choice.weights, axis, choice.method, choice.share)
        q = self.rw.materialize_constant(p.op, steps.constant(x, axis))
        return self.dequantized(p.op, q, steps, axis if len(steps.scales) > 1 else None), steps.rounded(x, axis)

    def blocks(self, p: Product, x: Array, axis: int, count: int) -> tuple[Value, Array]:
        """The weight `x`, in which each `count` elements along `axis` have a scale of their own."""
        shape = (*x.shape[:axis], x.shape[axis] // count, count, *x.shape[axis + 1 :])
        parts = np.moveaxis(x.reshape(shape), axis + 1, -1)
        flat = parts.reshape(-1, count)
        steps = of_weight(flat, self.choice.weights, 0, self.choice.method, self.choice.share)

        def laid(v: Array) -> Array:
            return np.moveaxis(v.reshape(*parts.shape[:-1], -1), -1, axis + 1)

        def whole(v: Array) -> Value:
            literal = arrays.to_literal(np.asarray(v, np.float32), tensor(F32, v.shape))
            return self.rw.build(p.op, "broadcast_to", self.rw.materialize_constant(p.op, literal), result_shape=shape)

        q = laid(steps.integers(flat, 0)).astype(arrays.numpy_dtype(steps.dtype))
        literal = arrays.to_literal(q, tensor(steps.dtype, shape))
        y = self.rw.build(p.op, "cast", self.rw.materialize_constant(p.op, literal), dtype=F32)
        if steps.zeros.any():
            y = self.rw.build(p.op, "sub", y, whole(laid(steps.zeros)))
        y = self.rw.build(p.op, "mul", y, whole(laid(steps.scales)))
        return self.rw.build(p.op, "reshape", y, new_shape=x.shape), laid(steps.rounded(flat, 0)).reshape(x.shape)

    def dequantized(self, at: Op, q: Value, steps: Steps, axis: int | None) -> Value:
        """Integers as floats."""
        zeros = tuple(map(int, steps.zeros)) if steps.zeros.any() else ()
        return self.rw.build(at, "dequantize", q, axis=axis, scales=tuple(map(float, steps.scales)), zero_points=zeros)

    def value(self, p: Product, spread: Spread, dtype: DType) -> Value:
        """The other operand as integers, dequantized. What moves it moves these."""
        key: tuple[Value, *tuple[Op, ...]] = (p.source,)
        if key not in self.made:
            self.made[key] = self.rounded(p.op, p.source, spread, dtype)
        x = self.made[key]
        for move in p.moves:
            key = (*key, move)
            if key not in self.made:
                attrs = move.defn.named(move.attrs)
                self.made[key] = self.rw.insert_before(p.op, create(move.defn, move.defn.split(move.attrs, [x]), attrs))
            x = self.made[key]
        return x

    def rounded(self, at: Op, x: Value, spread: Spread, dtype: DType) -> Value:
        """`x` rounded to steps, as floats. It is divided in f32, as ONNX does."""
        steps = spread.steps(dtype, self.choice.method, self.choice.share)
        if spread.divisors is not None and spread.axis is not None:
            rank = helpers.rank(x)
            row = _f32(spread.divisors.reshape([-1 if a == spread.axis % rank else 1 for a in range(rank)]))
            x = self.quotient(at, x, self.rw.materialize_constant(at, row))
        quotient = self.quotient(at, x, _f32(steps.scales[0]))
        q = self.rw.build(at, "quantize", quotient, output_dtype=dtype, scales=(1.0,), zero_points=(int(steps.zeros[0]),))
        return self.dequantized(at, q, steps, None)

    def quotient(self, at: Op, x: Value, by: Operand) -> Value:
        """`x` divided by constants that are repeated along its other axes."""
        return self.rw.build(at, "div", x, self.rw.build(at, "broadcast_to", by, result_shape=helpers.shape(x)))

    def correct(self, p: Product, lost: Array) -> None:
        """Add what rounding the weight takes from the mean of each output."""
        assert p.axis is not None
        shift = lost.sum(tuple(a for a in range(lost.ndim) if a != p.axis)).astype(np.float32)
        row = self.rw.materialize_constant(p.op, _f32(shift))
        if p.convolves:
            bias = [self.rw.build(p.op, "add", x, row) for x in p.op.operands[2:]] or [row]
            self.rw.set_operands(p.op, [*p.op.operands[:2], *bias])
            return
        users = [u for u in self.rw.users_of(p.op.result) if isinstance(u, Op)]
        if len(users) != 1 or users[0].defn.short != "add" or self.rw.is_result(p.op.result):
            return  # nothing is added anyway
        k = 1 if users[0].operands[0] is p.op.result else 0
        rank, axis = helpers.rank(p.op), p.result_axis
        shape = tuple(len(shift) if a == axis else 1 for a in range(rank))
        wide = self.rw.build(users[0], "reshape", row, new_shape=shape)
        wide = self.rw.build(users[0], "broadcast_to", wide, result_shape=helpers.shape(p.op))
        operands = list(users[0].operands)
        operands[k] = self.rw.build(users[0], "add", operands[k], wide)
        self.rw.set_operands(users[0], operands)


def balanced(readers: Sequence[Product], spread: Spread, share: float) -> Array | None:
    """Divisors of the channels of a value, by which its weights are multiplied, so that both are easy to round: the largest
    magnitude of the value to the power `share` by that of the weights to the rest. Where each channel is multiplied alone, and
    weights have scales of their own, it is the range. None where the value has no channels, or one that is not read so."""
    if spread.axis is None or not readers or any(p.channel is None for p in readers):
        return None
    sizes, weights = spread.sizes, np.zeros_like(spread.sizes)
    for p in readers:
        np.maximum.at(weights, p.by_channel(np.arange(len(sizes))), np.abs(p.weight))
    if all(p.depthwise for p in readers):
        share = 1.0
    with np.errstate(all="ignore"):
        divisors = sizes**share / weights ** (1 - share)
    fine = np.isfinite(divisors) & (divisors > 0)
    if not fine.any():
        return None
    middle = np.exp(np.log(divisors[fine]).mean())
    return np.asarray(np.where(fine, np.clip(divisors / middle, 2.0**-20, 2.0**20), 1.0))


def _f32(x: Array) -> Literal:
    return arrays.to_literal(np.asarray(x, np.float32), tensor(F32, x.shape))
