"""Reductions, places of extremes, sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ptir_tools.bridges.onnx.ops.elementwise import sqrt
from ptir_tools.bridges.onnx.ops.shape import cut, pad, reversed_
from ptir_tools.bridges.onnx.ops.window import counted
from ptir_tools.bridges.onnx.table import HANDLERS, Node, axis, back, handles, refused, stretched, wide
from ptir_tools.core.dtypes import I1, SI64, UI8
from ptir_tools.core.lazy import lazy
from ptir_tools.dialects.ptir.builder.build import Tensor

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

Reduced = Callable[[Tensor, list[int], bool], Tensor]


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return x.reduce_sum(axes, keepdims=keep)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    total = x.reduce_sum(axes, keepdims=keep)
    count = counted(x, axes, total) if keep else counted(x, axes, x.reduce_sum(axes, keepdims=True))
    if isinstance(count, Tensor) and not keep:
        count = count.reshape(total.shape)
    return total / count


def _prod(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return x.block.op("reduce_prod", x, axes, keepdims=keep)


def _log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    top = x.reduce_max(axes, keepdims=True)
    finite = x.block.op("compare_lt", x.block.op("abs", top), math.inf).select(top, x.block.full(0, top))
    total = (x - stretched(finite, x.shape)).exp().reduce_sum(axes, keepdims=True).log() + finite
    return total if keep else total.reshape([d for i, d in enumerate(total.shape) if i not in axes])


REDUCTIONS: dict[str, Reduced] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": lambda x, axes, keep: x.reduce_max(axes, keepdims=keep),
    "ReduceMin": lambda x, axes, keep: x.reduce_min(axes, keepdims=keep),
    "ReduceProd": _prod,
    "ReduceL1": lambda x, axes, keep: _sum(_magnitude(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: sqrt(_sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: _sum(x, axes, keep).log(),
    "ReduceLogSumExp": _log_sum_exp,
}


def _magnitude(x: Tensor) -> Tensor:
    return x.block.op("abs", x) if x.dtype.is_signed or x.dtype.is_float else x


def _reduction(node: Node) -> Tensor:
    x = node[0]
    axes = node.axes(1, x.rank)
    if not axes and node.attr("noop_with_empty_axes"):
        axes = []
    elif not axes:
        axes = list(range(x.rank))
    reduce = REDUCTIONS[node.op]
    keep = bool(node.attr("keepdims"))
    if x.dtype is I1:
        return reduce(x.cast(UI8), axes, keep).cast(I1)
    if node.op == "ReduceProd":
        node.call("reduce_prod", x, axes, keepdims=keep) if False else None
    floats = x.dtype.is_integer and node.op in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    source = x.cast("f64") if floats else x if node.op in ("ReduceMax", "ReduceMin") else wide(x)
    return back(reduce(source, axes, keep), x)


HANDLERS.update({("", name): _reduction for name in REDUCTIONS})


@handles("ArgMax", "ArgMin")
def arg(node: Node) -> Tensor:
    """Where the largest or smallest element is, the first or the last of equals."""
    x = node[0]
    a, keep = axis(node.attr("axis"), x.rank), bool(node.attr("keepdims"))
    last = bool(node.attr("select_last_index"))
    source = reversed_(x, a) if last else x
    op = "argmax" if node.op == "ArgMax" else "argmin"
    found = node.call(op, source, axis=a, keepdims=keep, output_dtype=SI64)
    if not last:
        return found
    n = x.shape[a]
    assert isinstance(n, int)
    return node.block.op("sub", n - 1, found)


@handles("CumSum")
def cumulative_sum(node: Node) -> Tensor:
    """Sums of all elements up to each: windows that reach back to the first."""
    return _scanned(node, axis(node.ints(1)[0], node[0].rank))


@handles("CumProd")
def cumulative_product(node: Node) -> Tensor:
    """Products of all elements up to each."""
    return _scanned(node, axis(node.ints(1)[0], node[0].rank))


def _scanned(node: Node, a: int) -> Tensor:
    x = node[0]
    n = x.shape[a]
    if not isinstance(n, int):
        raise refused(f"{node.op} along the symbolic extent {n}", "give the symbols with --bind")
    if node.attr("reverse"):
        x = reversed_(x, a)
    if node.op == "CumSum":
        ones = [1] * x.rank
        windows = [n if i == a else 1 for i in range(x.rank)]
        pads = [(n - 1, 0) if i == a else (0, 0) for i in range(x.rank)]
        out = x.reduce_window(windows, ones, pads, ones, ones) if n else x
        neutral = 0
    else:
        parts = [cut(x, a, 0, 1)]
        for i in range(1, n):
            parts.append(parts[-1] * cut(x, a, i, 1))
        out, neutral = node.block.op("concat", parts, a), 1
    if node.attr("exclusive"):
        out = cut(pad(out, a, 1, 0, neutral), a, 0, n)
    return reversed_(out, a) if node.attr("reverse") else out


@handles("TopK")
def top_k(node: Node) -> list[Tensor]:
    """The largest or smallest elements and where they are, best first."""
    x = node[0]
    k, a = node.ints(1)[0], axis(node.attr("axis"), x.rank)
    found = x.top_k(k, axis=a, largest=bool(node.attr("largest")), indices_dtype=SI64)
    return [found[0], found[1]]


assert np
