"""Pooling: sums and extremes of windows over images, channel by channel."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.steps import Step, Workshop, dense
from ptir_tools.engines.thresholds import at


def pooled(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of windows over the two axes before the last one, of f32; other windows by NumPy."""
    x, (out,) = ins[0], outs
    if not _is_pooling(op, x) or out.size == 0:
        return numpy_engine.builder(op)(op, ins, outs, shop)
    steps: list[Step] = []
    if x.strides[-1] != x.itemsize:
        x = dense(x, shop, steps)
    image = x.reshape(-1, *x.shape[-3:])  # a view if the leading axes are contiguous
    names = ("window_dims", "strides", "window_dilation")
    fields = (out.shape[-3:-1], *(op.attr(name)[-3:-1] for name in names))
    lows = [low for low, _ in op.attr("padding")[-3:-1]]
    geometry = (*(n for values in fields for n in values), *lows, x.shape[-1])
    kind = {"sum": kernels().SUM, "max": kernels().MAX, "min": kernels().MIN}[op.attr("reduce")]
    places = out.reshape(-1, out.shape[-1])
    weights = image[0, 0]  # none
    work = out.size * prod(op.attr("window_dims"))
    pieces = threads.cuts(len(places), 2 * shop.threads if work >= at.work else 1)
    parts: list[Step] = [(kernels().windows, (places[s], image, weights, geometry, s.start, kind)) for s in pieces]
    return [*steps, *threads.together(parts, shop.threads)]


def _is_pooling(op: Op, x: Array) -> bool:
    """Whether windows are along the two axes before the last one, and combine f32."""
    if x.dtype != np.float32 or x.ndim < 3 or x.size == 0 or x.shape[-1] < at.channels:
        return False
    if op.attr("reduce") == "sum" and op.attr("accum_dtype") not in (None, F32):
        return False
    if any(n != 1 for n in op.attr("base_dilation")) or (x.ndim > 4 and not x.flags.c_contiguous):
        return False
    rest = [*range(x.ndim - 3), x.ndim - 1]
    single = all(op.attr(name)[a] == 1 for a in rest for name in ("window_dims", "strides"))
    return single and not any(n for a in rest for n in op.attr("padding")[a])
