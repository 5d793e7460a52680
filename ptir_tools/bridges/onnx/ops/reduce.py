"""Reductions, ArgMax and ArgMin, cumulative ops, TopK."""

from __future__ import annotations

import math
from collections.abc import Callable

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.extents import of
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import HANDLERS, Node, axis, back, handles, wide
from ptir_tools.core.dtypes import I1, SI64, UI8
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites.rounding import sqrt

Reduced = Callable[[Tensor, list[int], bool], Tensor]


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return x.reduce_sum(axes, keepdims=keep)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.dtype.is_float:
        return x.mean(axes, keepdims=keep)
    return _sum(x, axes, keep) / _sum(x.block.full(1, x), axes, keep)


def _log_sum_exp(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    top = x.reduce_max(axes, keepdims=True)
    finite = (top.abs() < math.inf).select(top, 0)
    total = (x - finite).exp().reduce_sum(axes, keepdims=True).log() + finite
    return total if keep else total.reshape([d for i, d in enumerate(total.shape) if i not in axes])


REDUCTIONS: dict[str, Reduced] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceMax": lambda x, axes, keep: x.reduce_max(axes, keepdims=keep),
    "ReduceMin": lambda x, axes, keep: x.reduce_min(axes, keepdims=keep),
    "ReduceProd": lambda x, axes, keep: x.reduce_prod(axes, keepdims=keep),
    "ReduceL1": lambda x, axes, keep: _sum(_magnitude(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: sqrt(_sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: _sum(x, axes, keep).log(),
    "ReduceLogSumExp": _log_sum_exp,
}


def _magnitude(x: Tensor) -> Tensor:
    return x.abs() if x.dtype.is_signed or x.dtype.is_float else x


def _reduction(node: Node) -> Tensor:
    x = node[0]
    axes = node.axes(1, x.rank)
    nothing = bool(node.attr("noop_with_empty_axes"))
    axes = axes or ([] if nothing else list(range(x.rank)))
    reduce = REDUCTIONS[node.name]
    keep = node.attr("keepdims") == 1
    if x.dtype is I1:
        return reduce(x.cast(UI8), axes, keep).cast(I1)
    floats = x.dtype.is_integer and node.name in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
    source = x.cast("f64") if floats else x if node.name in ("ReduceMax", "ReduceMin") else wide(x)
    return back(reduce(source, axes, keep), x)


HANDLERS.update({("", name): _reduction for name in REDUCTIONS})


@handles("ArgMax", "ArgMin")
def arg(node: Node) -> Tensor:
    """ArgMax or ArgMin: the index of the first or last extreme."""
    x = node[0]
    a, keep = axis(node.attr("axis"), x.rank), node.attr("keepdims") == 1
    last = bool(node.attr("select_last_index"))
    source = reversed_along(x, a) if last else x
    op = "argmax" if node.name == "ArgMax" else "argmin"
    result = node.op(op, source, axis=a, keepdims=keep, output_dtype=SI64)
    if not last:
        return result
    return node.scope.measured(of(x.shape[a]) - 1) - result


@handles("CumSum", "CumProd")
def cumulative(node: Node) -> Tensor:
    """CumSum or CumProd."""
    x, name = node[0], "cumsum" if node.name == "CumSum" else "cumprod"
    exclusive, reverse = bool(node.attr("exclusive")), bool(node.attr("reverse"))
    return node.op(name, x, axis(node.integer(1), x.rank), exclusive=exclusive, reverse=reverse)


@handles("TopK")
def top_k(node: Node) -> list[Tensor]:
    """TopK: the largest or smallest elements and their indices, best first, also where `sorted` leaves the order open."""
    x = node[0]
    largest, a = bool(node.attr("largest", 1)), axis(node.attr("axis"), x.rank)
    count = node.dims(1) if node.opset >= 10 else [node.attr("k")]
    node.idle("sorted")
    if len(count) != 1:
        raise Violation("InvalidModel", f"operand 1 of TopK has {len(count)} elements; one is wanted")
    if isinstance(k := count[0], int):
        result = x.top_k(k, axis=a, largest=largest, indices_dtype=SI64)
        return [result[0], result[1]]
    result = node.op("sort", [x, node.iota(x.shape, SI64, a)], axis=a, keys=1, descending=largest)
    return [y if k == of(x.shape[a]) else cut(y, a, 0, k) for y in (result[0], result[1])]
