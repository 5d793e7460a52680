"""Products of 8-bit integers in random networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core.dtypes import F32, SI8, UI8
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.networks.parts import Network

STEPS = (0.0078125, 0.02, 0.05)


def quantized(net: Network, x: Tensor, rows: Callable[[Tensor], Tensor], depth: int) -> Tensor:
    """`x` as 8-bit integers, `rows` of them (over the last axis, of `depth`) times constant weights, with a bias, and back to
    floats at once or by integers. In the dtype of `x`."""
    kind, columns = net.one((SI8, UI8)), net.number(2, 20)
    q = x.cast(F32).quantize(kind, scales=[net.one(STEPS)], zero_points=[net.one((0, 0, 3))])
    left = rows(q)
    w = x.block.constant(net.random.randint(*((-127, 128) if kind is SI8 else (0, 200)), (depth, columns)).astype(np.int64), kind)
    if net.flag():
        w = w.transpose([1, 0])
    sums = left.dot_general(
        w, contract_lhs=[left.rank - 1], contract_rhs=[int(w.shape[0] == columns != depth)], accum_dtype="si32", out_dtype="si32"
    )
    if net.chance(2, 3):
        bias = x.block.constant(net.random.randint(-500, 500, (columns,)).astype(np.int64), "si32")
        sums = sums + bias.broadcast_like(sums)
    each = net.flag()
    scales = _numbers(net, columns if each else 1, 0.0002)
    axis = sums.rank - 1 if each else None
    zeros = [0] * len(scales)
    if net.flag():
        return sums.dequantize(axis=axis, output_dtype="f32", scales=scales, zero_points=zeros).cast(x.dtype)
    to, step = net.one((SI8, UI8)), net.one(STEPS)
    y = sums.requantize(
        to,
        axis=axis,
        scales=scales,
        zero_points=zeros,
        output_scales=[step] * len(scales),
        output_zero_points=[net.one((0, 5))] * len(scales),
    )
    y = y.maximum(net.number(0, 5)) if net.flag() else y
    return y.dequantize(output_dtype="f32", scales=[step], zero_points=[0]).cast(x.dtype)


def _numbers(net: Network, count: int, about: float) -> Sequence[float]:
    return [float(x) for x in net.drawn((count,), about / 2, about)]
