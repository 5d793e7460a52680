"""Rows, columns and triangles of matrices whose extents are known, and a function of each matrix of a stack."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.numbers import conjugate
from ptir_tools.core.dtypes import SI32
from ptir_tools.dialects.ptir.builder.build import Tensor


def adjoint(x: Tensor, *, conj: bool) -> Tensor:
    """The last two axes swapped."""
    y = x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2])
    return conjugate(y) if conj else y


def triangle(x: Tensor, lower: bool) -> Tensor:
    """One triangle of matrices [b, n, n], with zeros in the other."""
    row, column = (x.block.iota(x.shape, SI32, x.rank - 2 + k) for k in (0, 1))
    return (row >= column if lower else row <= column).select(x, 0)


def _from(x: Tensor, at: Tensor) -> Tensor:
    """The place of the first element of row `at`."""
    zeros = [x.block.constant(0, SI32).reshape([1]) for _ in x.shape[1:]]
    return x.block.concat([at.reshape([1]), *zeros], axis=0)


def put(x: Tensor, at: Tensor, row: Tensor) -> Tensor:
    """`x` with a row replaced."""
    return x.dynamic_update_slice(row.reshape([1, *row.shape]), _from(x, at), [1, *x.tensor_type.static_shape[1:]])


def row_of(x: Tensor, at: Tensor) -> Tensor:
    """Row `at`."""
    rest = x.tensor_type.static_shape[1:]
    return x.dynamic_slice(_from(x, at), [1, *rest]).reshape(rest)


def down(x: Tensor, n: int) -> Tensor:
    """A column, `n` times."""
    return x.reshape([x.shape[0], 1]).broadcast_to([x.shape[0], n])


def across(x: Tensor, m: int) -> Tensor:
    """A row, `m` times."""
    return x.reshape([1, x.shape[0]]).broadcast_to([m, x.shape[0]])


def each_matrix(operands: Sequence[Tensor], one: Callable[..., list[Tensor]], ranks: Sequence[int]) -> list[Tensor]:
    """Apply `one` to each matrix of a batch; the last `ranks` axes of each operand are one matrix or vector."""
    *batch, _, _ = operands[0].tensor_type.static_shape
    if not batch:
        return one(*operands)
    shapes = [x.tensor_type.static_shape for x in operands]
    rows = [x.reshape([math.prod(batch), *s[len(s) - r :]]) for x, s, r in zip(operands, shapes, ranks, strict=True)]
    return [x.reshape([*batch, *x.tensor_type.static_shape[1:]]) for x in results_of(operands[0].block.scan([], rows, one))]


def column_of(x: Tensor, at: Tensor, m: int) -> Tensor:
    """Column `at`, of `m` elements."""
    corner = x.block.concat([x.block.constant([0], SI32), at.reshape([1])], axis=0)
    return x.dynamic_slice(corner, [m, 1]).reshape([m])


def diagonal(x: Tensor) -> Tensor:
    """The diagonal of a square matrix."""
    n = x.tensor_type.static_shape[0]
    row, column = (x.block.iota([n, n], SI32, k) for k in (0, 1))
    return row.compare_eq(column).select(x, 0).reduce_sum([1])


def identity(n: int, like: Tensor) -> Tensor:
    """The identity matrix of `n` rows in the dtype of `like`."""
    row, column = (like.block.iota([n, n], SI32, k) for k in (0, 1))
    return row.compare_eq(column).select(1, like.block.filled(0, like.tensor_type.with_shape((n, n))))
