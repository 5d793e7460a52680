"""Multiplies the weights of convolutions by the scales of their results, and adds shifts to their biases: batch normalization.

A number per channel, or one for all, that multiplies, divides or is added to the result of a convolution becomes part of its
weights. They are multiplied in f64 and rounded once, so results may differ by rounding. A sum that overflows before a scale or a
second bias may become a number, so the effect of these is a range. A scale of 0 stays where it is, and one that makes a weight
infinite or subnormal.
"""

from __future__ import annotations

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import OPS
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op, Operand, Value, create
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.contractions import trace
from ptir_tools.rewrite.constants import literal_of
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.rewriter import Rewriter

CONVOLUTIONS = {  # by target, the axis of the weights that has the outputs
    "gpt_rs.c.conv2d.nhwc.f32.v1": 1,
    "gpt_rs.faer.conv2d.nhwc.f32.v1": 1,
    "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1": 0,
    "ptir.conv2d.nhwc.v1": 1,
}
SCALES = ("mul", "div", "add", "sub")


def folded(rw: Rewriter, op: Op, most: Effect) -> Op | None:
    """The convolution that computes `op`, before it; None where `op` is not a number per channel after a convolution, or the
    effect would be more than `most`."""
    for x, y in (op.operands, op.operands[::-1]) if op.defn.short in SCALES else ():
        call = x.op if isinstance(x, Value) else None
        if call is None or call.defn.name != "ptir.custom_call" or call.attr("target") not in CONVOLUTIONS:
            continue
        if helpers.dtype(op) is not F32 or rw.uses(call.result) != 1 or (x is op.operands[1] and op.defn.short == "div"):
            continue
        if most < Effect.RANGE and (op.defn.short not in ("add", "sub") or len(call.operands) > 2):
            return None
        numbers, operands = _per_channel(y), [_known(v) for v in call.operands[1:]]
        weights = [v for v in operands if v is not None]
        if numbers is None or len(weights) < len(operands):
            return None
        return _with(rw, op, call, numbers, weights, reverse=x is op.operands[1])
    return None


def _with(rw: Rewriter, op: Op, call: Op, numbers: Array, weights: list[Array], reverse: bool) -> Op | None:
    """`call` with other weights; None where these would be out of range."""
    weight, bias = weights[0], weights[1] if len(weights) > 1 else None
    axis, kind = CONVOLUTIONS[call.attr("target")], op.defn.short
    numbers = np.broadcast_to(numbers, weight.shape[axis])
    if kind in ("mul", "div") and not numbers.all():
        return None  # 0 makes NaN of an infinity, and a folded 0 does not
    scale = numbers if kind == "mul" else 1 / numbers if kind == "div" else -np.ones_like(numbers)
    if kind in ("mul", "div") or (kind == "sub" and reverse):
        weight = weight * (scale if axis == 1 else scale[:, None])
        bias = None if bias is None else bias * scale
    if kind in ("add", "sub"):
        shift = -numbers if kind == "sub" and not reverse else numbers
        bias = shift if bias is None else bias + shift
    made = [v for v in (weight, bias) if v is not None]
    if not all(map(_in_range, made)):
        return None
    constants = [rw.materialize_constant(op, arrays.to_literal(v.astype(np.float32), tensor(F32, v.shape))) for v in made]
    new = create(OPS["ptir.custom_call"], [[call.operands[0], *constants]], call.defn.named(call.attrs))
    rw.insert_before(op, new)
    return new


def _in_range(x: Array) -> bool:
    """Whether every number is a normal f32, or 0."""
    size = np.abs(x[x != 0])
    limits = np.finfo(np.float32)
    return bool(np.isfinite(x).all() and (size >= limits.tiny).all() and (size <= limits.max).all())


def _known(x: Operand) -> Array | None:
    """The constant `x` in f64, through reshapes and transposes; None where it is none."""
    literal = literal_of(x)
    if literal is not None and literal.data is not None:
        return np.broadcast_to(arrays.from_literal(literal), helpers.tensor_type(x).static_shape).astype(np.float64)
    op = x.op if isinstance(x, Value) else None
    if op is None or op.defn.short not in ("reshape", "transpose", "cast") or helpers.dtype(x) is not F32:
        return None
    inner = _known(op.operands[0])
    if inner is None:
        return None
    if op.defn.short == "transpose":
        return inner.transpose(helpers.axes(op.attr("perm"), inner.ndim))
    return inner.reshape(helpers.tensor_type(x).static_shape)


def _per_channel(x: Operand) -> Array | None:
    """The numbers that `x`, of four axes, repeats along all axes but the last, in f64: one or a vector; None for others."""
    factor = trace(x)
    if any(factor.reads(a) for a in range(len(factor.axes) - 1)):
        return None
    found = _known(factor.source)
    return None if found is None else found.reshape(-1)
