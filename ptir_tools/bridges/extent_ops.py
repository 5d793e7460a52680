"""Ops that compute symbolic extents at run time: an expression as a scalar, and the elements along an axis that it counts."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.extents import Extent, Size, dim, of, poly
from ptir_tools.core import arrays
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TypeGuard
from ptir_tools.core.types import sym, tensor
from ptir_tools.dialects.ptir.builder.build import Block, Tensor

_LONG = 1 << 16  # an axis that is reversed by computed places, not by a constant


def measured(block: Block, x: Size, dtype: DType = SI64) -> Tensor:
    """An integer or extent as a scalar of `dtype`: a symbol is the sum of that many ones."""

    def symbol(name: str) -> Tensor:
        one = Tensor(block, arrays.to_literal(np.ones((), arrays.numpy_dtype(dtype)), tensor(dtype)))
        return block.op("broadcast_to", one, result_shape=[sym(name)]).reduce_sum([0])

    def combined(op: str, x: Tensor, y: Tensor | int) -> Tensor:
        if op == "*":
            return x * y
        assert isinstance(y, Tensor)
        if op == "+":
            return x + y
        if op == "max":
            return block.op("maximum", x, y)
        rest = block.op("mod", x, y)
        return rest if op == "%" else block.op("div", x - rest, y)

    return poly(x).built(symbol, lambda n: block.constant(np.asarray(n), dtype), combined)


def counted(block: Block, x: Size, dtype: DType) -> Tensor:
    """0, 1, 2, … below an integer or extent."""
    return block.op("iota", [dim(x)], dtype, 0)


def along(x: Tensor, axis: int, start: Size, count: Size, step: int) -> Tensor:
    """`count` elements along an axis from `start` with stride `step`, integers or extents; the run checks that they are there."""
    block = x.block
    places = counted(block, count, SI64)
    if step != 1:
        places = places * step
    if isinstance(start, Extent):
        places = places + measured(block, start).reshape([1]).broadcast_to(places.shape)
    elif start:
        places = places + int(start)
    return x.taken(places, axis)


def picked_at(x: Tensor, axis: int, places: object) -> Tensor:
    """The elements at constant indices along an axis."""
    return x.taken(x.block.constant(np.asarray(places, np.int64)), axis)


def reversed_along(x: Tensor, axis: int) -> Tensor:
    """`x` reversed along an axis. A scalar is its own reverse."""
    n = x.shape[axis] if x.rank else 1
    if isinstance(n, int) and n <= 1:
        return x
    if not isinstance(n, int) or n > _LONG:
        return along(x, axis, of(n) - 1, of(n), -1)
    return picked_at(x, axis, np.arange(n - 1, -1, -1))


def every(d: Sequence[object]) -> TypeGuard[Sequence[Size]]:
    """Whether all values are integers or extents."""
    return all(isinstance(x, (int, np.integer, Extent)) for x in d)
