"""Reductions. Empty `axes` reduce all axes to a scalar, and `keepdims` has then no effect."""

from __future__ import annotations

from ptir_tools.core import costs, errors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind.ops.common import Result, distinct, exact, in_range, rounded

drawing = Later("ptir_tools.dialects.mind.drawing")


def normalized_axes(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Non-negative axes in ascending order; all of them when `axes` is empty."""
    return tuple(sorted(a + rank if a < 0 else a for a in axes)) or tuple(range(rank))


def sum_type(input: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    """E3004: axes in [-rank, rank). E3005: no axis twice, negative ones normalized."""
    return _reduced("Sum", input, axes, keepdims)


def mean_type(input: TensorType, *, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    """E3004: axes in [-rank, rank). E3005: no axis twice, negative ones normalized."""
    return _reduced("Mean", input, axes, keepdims)


def _reduced(op: str, input: TensorType, axes: tuple[int, ...], keepdims: bool) -> TensorType:
    in_range(op, axes, -input.rank, input.rank, input)
    distinct(op, (a % input.rank for a in axes), input)
    if not axes:
        return input.with_shape(())
    gone = normalized_axes(axes, input.rank)
    if keepdims:
        return input.with_shape(1 if i in gone else d for i, d in enumerate(input.shape))
    return input.with_shape(d for i, d in enumerate(input.shape) if i not in gone)


def truncated(total: Array, n: int) -> Array:
    """Integer division toward zero by the positive `n`."""
    quotient = total // n
    return np.asarray(quotient + ((quotient < 0) & (quotient * n != total)).astype(total.dtype))


@op("mind.Sum", infer=sum_type, traits=PURE, error=errors.linear(), safe=exact, cost=costs.reads)
def sum_(input: Array, *, axes: tuple[int, ...], keepdims: bool, result: Result) -> Array:
    """Sum along `axes`; integers wrap in their own dtype. Reductions, Sum."""
    along = normalized_axes(axes, input.ndim)
    total = rounded(lambda x: np.sum(x, axis=along, dtype=x.dtype), result.dtype, input)
    return total.reshape(result.static_shape)


@op(
    "mind.Mean",
    infer=mean_type,
    traits=PURE,
    error=errors.linear(terms=lambda step: step.operands[0].size / max(step.results[0].size, 1)),
    safe=exact,
    generate=drawing.draw_mean,
    cost=costs.reads,
)
def mean(input: Array, *, axes: tuple[int, ...], keepdims: bool, result: Result) -> Array:
    """Sum along `axes` divided by the number of elements. Over no element, a float is NaN and an integer E6006. The integer
    quotient of the wrapped sum is truncated toward zero. Reductions, Mean."""
    along = normalized_axes(axes, input.ndim)
    n = int(np.prod([input.shape[a] for a in along], dtype=np.int64))
    if result.dtype.is_float:
        means = rounded(lambda x: np.sum(x, axis=along) / n if n else np.sum(x, axis=along) * np.nan, result.dtype, input)
        return means.reshape(result.static_shape)
    require(n, "E6006", f"Mean of integers over no elements: the shape is {list(input.shape)}, the axes are {list(along)}")
    with np.errstate(all="ignore"):
        return truncated(np.asarray(np.sum(input, axis=along, dtype=input.dtype)), n).reshape(result.static_shape)
