"""Extension ops: cumulative sums, products and extremes along an axis."""

from __future__ import annotations

from functools import partial

from ptir_tools.core import costs, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE, Asks, Op, Operand
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops import needs, numerics
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.typerules import NUMERIC, ORDERED, axis_of, rule, want
from ptir_tools.rewrite.vocabulary import tensor_type


@rule
def cumulative_type(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """An axis of `x`, which is not i1; the result has its type.

    InvalidAttributeValue: `axis` is out of range. DTypeNotSupported: i1.
    """
    want(x.dtype, NUMERIC)
    axis_of(axis, x.rank)
    return x


@rule
def cumulative_extreme_type(x: TensorType, *, axis: int, exclusive: bool, reverse: bool) -> TensorType:
    """An axis of `x`, of integers or floats; the result has its type.

    InvalidAttributeValue: `axis` is out of range. DTypeNotSupported: i1, complex.
    """
    want(x.dtype, ORDERED)
    axis_of(axis, x.rank)
    return x


def fold_cumulative(op: Op) -> Operand | None:
    """`x`, when the axis has extent 1 and its element is included."""
    x = op.operands[0]
    return x if tensor_type(x).shape[op.attr("axis")] == 1 and not op.attr("exclusive") else None


cumulative = partial(op, fold=fold_cumulative, traits=PURE, cost=costs.reads, factors=factors.off_axis)


def accumulate(kind: str, x: Array, axis: int, exclusive: bool, reverse: bool, result: TensorType) -> Array:
    """The reduction `kind` of all elements up to each along `axis`, in float64 (integers wrap), rounded once."""
    dtype = numerics.dtype_of(x)

    def along(wide: Array) -> Array:
        ordered = np.flip(wide, axis) if reverse else wide
        if exclusive:
            first = np.full_like(np.take(ordered, [0] if ordered.shape[axis] else [], axis), numerics.identity(kind, dtype))
            ordered = np.concatenate([first, np.take(ordered, range(max(ordered.shape[axis] - 1, 0)), axis)], axis)
        found = numerics.ufunc(kind).accumulate(ordered, axis, wide.dtype)
        return np.asarray(np.flip(found, axis) if reverse else found)

    return numerics.compute(result, along, x)


@cumulative("ptir.cumsum", infer=cumulative_type, error=errors.linear(), asks=Asks(passed=needs.summed))
def cumsum(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The sum of all elements up to each, along `axis`. Extension.

    `reverse` begins at the end. `exclusive` leaves each element itself out. Floats are summed in float64 and rounded once,
    integers wrap.
    """
    return accumulate("sum", x, axis, exclusive, reverse, result)


@cumulative("ptir.cumprod", infer=cumulative_type, error=errors.multiplied())
def cumprod(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The product of all elements up to each, as in `cumsum`. Extension."""
    return accumulate("prod", x, axis, exclusive, reverse, result)


@cumulative("ptir.cummax", infer=cumulative_extreme_type, error=errors.monotone, asks=Asks(passed=needs.of_elements))
def cummax(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The largest of all elements up to each, as in `cumsum`; NaN from the first NaN on. Extension.

    With `exclusive` the first is -inf, or the lowest integer.
    """
    return accumulate("max", x, axis, exclusive, reverse, result)


@cumulative("ptir.cummin", infer=cumulative_extreme_type, error=errors.monotone, asks=Asks(passed=needs.of_elements))
def cummin(x: Array, *, axis: int, exclusive: bool = False, reverse: bool = False, result: Result) -> Array:
    """The smallest of all elements up to each, as in `cumsum`; NaN from the first NaN on. Extension.

    With `exclusive` the first is inf, or the highest integer.
    """
    return accumulate("min", x, axis, exclusive, reverse, result)
