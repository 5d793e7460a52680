"""Quantized operators: a scale and zero point per tensor, per index of an axis, or per block of it."""

from __future__ import annotations

from math import inf

from ptir_tools.bridges.extents import of
from ptir_tools.bridges.onnx.ops.elementwise import bounded, centered, converted, scalar
from ptir_tools.bridges.onnx.ops.matrix import matmul
from ptir_tools.bridges.onnx.ops.shape import cut, expanded
from ptir_tools.bridges.onnx.ops.window import Window, channels_first, convolved
from ptir_tools.bridges.onnx.table import NARROW, Node, axis, fixed, handles, plus, stretched, wide
from ptir_tools.core.dtypes import F32, F64, SI32, UI8, DType
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor

_RANGE = float(1 << 24)  # larger rounded quotients saturate in every quantized dtype


def spread(v: Tensor, x: Tensor, a: int, block: int) -> Tensor:
    """A scale or zero point in the shape of `x`. It has one element, one per index of axis `a`, or one per `block` of indices."""
    if v.rank == 0 or v.shape == (1,):
        return stretched(v.reshape([]), x.shape)
    if v.rank == 1 and not block:
        return stretched(v.reshape([v.shape[0] if i == a else 1 for i in range(x.rank)]), x.shape)
    if v.rank != x.rank:
        raise Violation("InvalidModel", f"scales {v.type} do not fit {x.type}")
    count = fixed(v.shape[a])
    each: list[Dim] = [d for i, d in enumerate(v.shape) for d in ([count, block] if i == a else [d])]
    whole = stretched(expanded(v, [a + 1]), tuple(each)).reshape([count * block if i == a else d for i, d in enumerate(v.shape)])
    return cut(whole, a, 0, of(x.shape[a]))


def _known(node: Node, i: int, a: int, block: int) -> list[float] | None:
    """The scales or zero points, one or one per index of axis `a`; empty if left out, None if not known."""
    if not node.has(i):
        return []
    array = node.array(i)
    if array is None or block or array.ndim > 1 or (array.size > 1 and array.size != node[0].shape[a]):
        return None
    return list(array.reshape(-1).astype(np.float64 if node[i].dtype.is_float else np.int64).tolist())


def rounded(x: Tensor, zero: Tensor | None, target: DType) -> Tensor:
    """Floats rounded to nearest even, plus the zero point, saturated; NaN is 0."""
    integer = bounded(x.round_even(), -_RANGE, _RANGE).cast(SI32)
    return bounded(plus(integer, zero), max(target.min, SI32.min), min(target.max, SI32.max)).cast(target)


@handles("QuantizeLinear")
def quantize(node: Node) -> Tensor:
    """`saturate(round(x / scale) + zero)`."""
    x, scale = node[0], node[1]
    a = axis(node.attr("axis", 1), max(x.rank, 2)) if x.rank else 0
    block = node.attr("block_size", 0)
    target = node[2].dtype if node.has(2) else node.dtype("output_dtype", UI8)
    if node.dtype("output_dtype", target) is not target:
        raise Violation("InvalidModel", f"`output_dtype` is not the dtype of the zero point, {target}")
    precision = node.dtype("precision", scale.dtype)
    x = x.cast(precision) if x.dtype is not precision else x
    scale = scale.cast(precision) if scale.dtype is not precision else scale
    quotient = x / spread(scale, x, a, block)
    if target.is_float:
        return converted(quotient, target, bool(node.attr("saturate", 1)))
    node.idle("saturate")  # integers always do
    if (zeros := _known(node, 2, a, block)) is not None:
        zeros = zeros or [0]
        at = a if len(zeros) > 1 else None
        return x.block.op("quantize", wide(quotient), output_dtype=target, axis=at, scales=[1.0] * len(zeros), zero_points=zeros)
    zero = spread(node[2].cast(SI32), x, a, block) if node.has(2) else None
    return rounded(wide(quotient), zero, target)


@handles("DequantizeLinear")
def dequantize(node: Node) -> Tensor:
    """`(x - zero) * scale`."""
    x, scale = node[0], node[1]
    a = axis(node.attr("axis", 1), max(x.rank, 2)) if x.rank else 0
    block = node.attr("block_size", 0)
    target = node.dtype("output_dtype", scale.dtype)
    scales, zeros = (_known(node, i, a, block) for i in (1, 2))
    exact = scale.dtype is target is F32 and x.dtype.is_integer and x.dtype.bits <= 16  # one rounding gives the same as two
    if exact and scales and zeros is not None and all(0 < s < inf for s in scales):
        count = max(len(scales), len(zeros))
        scales, zeros = (v * count if len(v) == 1 else v for v in (scales, zeros))
        return x.block.op("dequantize", x, axis=a if count > 1 else None, output_dtype=F32, scales=scales, zero_points=zeros)
    number = x.cast(F32) if x.dtype is not F32 else x
    if x.dtype.is_float:
        node.idle(2)  # it is zero
    elif node.has(2):
        number = number - spread(node[2].cast(F32), x, a, block)
    wide_scale = scale.cast(F32) if scale.dtype in NARROW else scale
    if wide_scale.dtype is not F32:
        number = number.cast(wide_scale.dtype)
    out = number * spread(wide_scale, x, a, block)
    return out if out.dtype is target else out.cast(target)


def by_range(x: Tensor, ranged: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Floats as bytes, whose range is that of `ranged` (by default `x`) and 0: the bytes, the scale and the zero point."""
    given = x if ranged is None else ranged
    axes = list(range(given.rank))
    low, high = given.reduce_min(axes).minimum(0.0), given.reduce_max(axes).maximum(0.0)
    scale = (high - low) / 255.0
    scale = scale.compare_eq(0.0).select(1.0, scale)
    zero = bounded(-low / scale, 0.0, 255.0).round_even()
    steps = (x / scale.broadcast_to(x.shape)).round_even() + zero.broadcast_to(x.shape)
    return bounded(steps, 0.0, 255.0).cast(UI8), scale, zero.cast(UI8)


@handles("DynamicQuantizeLinear")
def dynamic_quantize(node: Node) -> list[Tensor]:
    """DynamicQuantizeLinear; a range of one number has the scale 1, as in ONNX Runtime."""
    return list(by_range(node[0]))


def _requantized(node: Node, total: Tensor, factor: Tensor, i: int, source: DType) -> Tensor:
    zero = node.get(i)
    moved = plus(total.cast(F64) * factor.cast(F64), None if zero is None else scalar(zero).cast(F64))
    return rounded(moved, None, source if zero is None else zero.dtype)


def requantized(quotient: Tensor, zero: Tensor) -> Tensor:
    """Quotients by the scale, quantized to the dtype of the zero point."""
    return rounded(quotient, scalar(zero).cast(SI32), zero.dtype)


@handles("QLinearMatMul")
def qlinear_matmul(node: Node) -> Tensor:
    """QLinearMatMul: the quantized product of quantized matrices."""
    a, b = centered(node[0], node.get(2), [-1, 1]), centered(node[3], node.get(5))
    left = node[1]
    left = left.reshape([-1, 1]) if left.rank == 1 and left.shape != (1,) else scalar(left)
    return _requantized(node, matmul(a, b), left * scalar(node[4]) / scalar(node[6]), 7, node[0].dtype)


@handles("QLinearConv")
def qlinear_conv(node: Node) -> Tensor:
    """QLinearConv: the quantized convolution of quantized tensors."""
    x, w = node[0], node[3]
    window = Window(node, x.shape[2:], [d for d in w.shape[2:] if isinstance(d, int)])
    rest = [1] * (w.rank - 1)
    total = convolved(centered(x, node.get(2)), centered(w, node.get(5), [-1, *rest]), node.attr("group"), window)
    total = channels_first(plus(total, node.get(8)))
    scale = node[4]
    scale = scale.reshape([-1, *rest[1:]]) if scale.rank == 1 and scale.shape != (1,) else scalar(scale)
    return _requantized(node, total, scalar(node[1]) * scale / scalar(node[6]), 7, x.dtype)
