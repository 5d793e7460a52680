"""Running sums, products and extremes along an axis: extensions of the contract (docs/ptir.md, "Extension ops")."""

from __future__ import annotations

from functools import partial

from ptir_tools.core import costs, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE, Op, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops import numerics
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.typerules import NUMERIC, ORDERED, axis_of, rule, want
from ptir_tools.rewrite.vocabulary import tensor_type


@rule
def running(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """An axis of `x`, which is not i1; the result has its type.

    InvalidAttributeValue: `axis` is out of range. DTypeNotSupported: i1.
    """
    want(x.dtype, NUMERIC)
    axis_of(axis, x.rank)
    return x


@rule
def running_extreme(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """An axis of `x`, of integers or floats; the result has its type.

    InvalidAttributeValue: `axis` is out of range. DTypeNotSupported: i1, complex.
    """
    want(x.dtype, ORDERED)
    axis_of(axis, x.rank)
    return x


def of_one(op: Op) -> Operand | None:
    """`x`, when the axis has one element, which counts."""
    x = op.operands[0]
    return x if tensor_type(x).shape[op.attr("axis")] == 1 and not op.attr("exclusive") else None


cumulative = partial(op, fold=of_one, traits=PURE, cost=costs.reads, factors=factors.off_axis)


def accumulated(kind: str, x: Array, axis: int, exclusive: bool, reverse: bool, result: TensorType) -> Array:
    """What `kind` makes of the elements up to each along `axis`, in float64 (integers wrap), rounded once."""
    dtype = numerics.dtype_of(x)

    def along(wide: Array) -> Array:
        ordered = np.flip(wide, axis) if reverse else wide
        if exclusive:
            first = np.full_like(np.take(ordered, [0] if ordered.shape[axis] else [], axis), numerics.identity(kind, dtype))
            ordered = np.concatenate([first, np.take(ordered, range(max(ordered.shape[axis] - 1, 0)), axis)], axis)
        found = numerics.ufunc(kind).accumulate(ordered, axis, wide.dtype)
        return np.asarray(np.flip(found, axis) if reverse else found)

    return numerics.compute(result, along, x)


@cumulative("ptir.cumsum", infer=running, error=errors.linear())
def cumsum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The sum of the elements up to each, along `axis`. Extension.

    With `reverse` it begins at the end; with `exclusive` each element itself is left out. Floats are summed in float64 and
    rounded once, integers wrap.
    """
    return accumulated("sum", x, axis, exclusive, reverse, result)


@cumulative("ptir.cumprod", infer=running, error=errors.multiplied())
def cumprod(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The product of the elements up to each, as `cumsum` is their sum. Extension."""
    return accumulated("prod", x, axis, exclusive, reverse, result)


@cumulative("ptir.cummax", infer=running_extreme, error=errors.monotone)
def cummax(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The largest of the elements up to each, as `cumsum` is their sum; NaN from the first NaN on. Extension.

    With `exclusive` the first is -inf, or the lowest integer.
    """
    return accumulated("max", x, axis, exclusive, reverse, result)


@cumulative("ptir.cummin", infer=running_extreme, error=errors.monotone)
def cummin(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The smallest of the elements up to each, as `cumsum` is their sum; NaN from the first NaN on. Extension.

    With `exclusive` the first is inf, or the highest integer.
    """
    return accumulated("min", x, axis, exclusive, reverse, result)
