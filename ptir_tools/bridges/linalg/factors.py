"""Factorizations of matrices, and systems with triangles, by loops over rows or columns."""

from __future__ import annotations

import math

from ptir_tools.bridges.linalg.matrices import across, adjoint, column_of, down, put, row_of, triangle
from ptir_tools.bridges.numbers import conjugate, converted, magnitude, square_root
from ptir_tools.core.dtypes import SI32
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Tensor


def solved(a: Tensor, b: Tensor, *, left: bool, lower: bool, unit: bool, turned: bool, conj: bool) -> Tensor:
    """The solution of `op(a) x = b`, or else of `x op(a) = b`, with triangular matrices."""
    if turned:
        a, lower = adjoint(a, conj=conj), not lower
    if left:
        return _substituted(a, b, lower, unit)
    return adjoint(_substituted(adjoint(a, conj=False), adjoint(b, conj=False), not lower, unit), conj=False)


def _substituted(a: Tensor, b: Tensor, lower: bool, unit: bool) -> Tensor:
    """The solution of `a x = b` with triangular matrices."""
    *batch, n, m = b.tensor_type.static_shape
    count = math.prod(batch)
    if not count * n * m:
        return b
    full, block = triangle(a.reshape([count, n, n]), lower), a.block
    right = b.reshape([count, n, m])
    t = a.tensor_type
    if unit:
        diagonal = block.filled(1, t.with_shape((n, count)))
    else:
        rows, columns = (block.iota([count, n, n], SI32, k) for k in (1, 2))
        diagonal = rows.compare_eq(columns).select(full, 0).reduce_sum([2]).transpose([1, 0])
    steps = [block.iota([n], SI32, 0), full.transpose([1, 0, 2]), diagonal, right.transpose([1, 0, 2])]
    if not lower:
        upward = block.constant(np.arange(n)[::-1].copy(), SI32)
        steps = [x.take(upward) for x in steps]

    def step(x: Tensor, at: Tensor, row: Tensor, divisor: Tensor, given: Tensor) -> list[Tensor]:
        known = row.dot_general(x, batch_lhs=[0], batch_rhs=[1], contract_lhs=[1], contract_rhs=[0])
        result = (given - known) / divisor.reshape([count, 1]).broadcast_to([count, m])
        return [put(x, at, result)]

    output = block.scan([block.filled(0, t.with_shape((n, count, m)))], steps, step)
    return output.transpose([1, 0, 2]).reshape(b.shape)


def factored(a: Tensor, lower: bool) -> Tensor:
    """The Cholesky factor, from one triangle."""
    if not lower:
        return adjoint(factored(adjoint(a, conj=True), True), conj=True)
    *batch, n, _ = a.tensor_type.static_shape
    count = math.prod(batch)
    if not count * n:
        return a
    columns = a.reshape([count, n, n]).transpose([2, 0, 1])

    def step(done: Tensor, at: Tensor, column: Tensor) -> list[Tensor]:
        """`done[k, b, i]` is element i of column k."""
        block = done.block
        zeros = [block.constant([0], SI32)] * 2
        row = done.dynamic_slice(block.concat([*zeros, at.reshape([1])], axis=0), [n, count, 1]).reshape([n, count])
        known = done.dot_general(conjugate(row), batch_lhs=[1], batch_rhs=[1], contract_lhs=[0], contract_rhs=[0])
        rest = column - known
        corner = rest.dynamic_slice(block.concat([zeros[0], at.reshape([1])], axis=0), [count, 1])
        root = square_root(corner.real() if a.dtype.is_complex else corner)
        divided = rest / converted(root, a.dtype).broadcast_to([count, n])
        return [put(done, at, (block.iota([count, n], SI32, 1) >= at.broadcast_to([count, n])).select(divided, 0))]

    start = a.block.filled(0, a.tensor_type.with_shape((n, count, n)))
    result = a.block.scan([start], [a.block.iota([n], SI32, 0), columns], step)
    return result.transpose([1, 2, 0]).reshape(a.shape)


def exchanged_factors(a: Tensor) -> list[Tensor]:
    """The factors and pivots of one matrix, column by column in a loop."""
    m, n = a.tensor_type.static_shape

    def step(x: Tensor, at: Tensor) -> list[Tensor]:
        rows, columns = (x.block.iota([k], SI32, 0) for k in (m, n))
        here = at.broadcast_to([m]), at.broadcast_to([n])
        column = column_of(x, at, m)
        size = column.real().abs() + column.imag().abs() if x.dtype.is_complex else column.abs()
        chosen = (rows >= here[0]).select(size, -1).argmax(0)
        one, other = row_of(x, at), row_of(x, chosen)
        x = put(put(x, at, other), chosen, one)
        pivot = row_of(x, at).dynamic_slice(at.reshape([1]), [1]).broadcast_to([m])
        after = rows > here[0]
        factors = after.select(column_of(x, at, m) / pivot.compare_eq(0).select(1, pivot), 0)
        row = (columns > here[1]).select(row_of(x, at), 0)
        below = across(columns.compare_eq(here[1]), m).bitwise_and(down(after, n))
        return [below.select(down(factors, n), x - down(factors, n) * across(row, m)), chosen + 1]

    return [*a.block.scan([a], [a.block.iota([min(m, n)], SI32, 0)], step)]


def reflections(a: Tensor) -> list[Tensor]:
    """The triangle of one matrix with the reflections below it, and their factors."""
    m, n = a.tensor_type.static_shape
    count = min(m, n)
    if not count:
        return [a, a.block.filled(0, a.tensor_type.with_shape((0,)))]

    def step(x: Tensor, at: Tensor) -> list[Tensor]:
        vector, column, tau = _reflection(x, at, at)
        after = across(x.block.iota([n], SI32, 0) > at.broadcast_to([n]), m)
        result = after.select(_reflected(x, vector, conjugate(tau)), x)
        return [_with_column(result, at, column), tau]

    return [*a.block.scan([a], [a.block.iota([count], SI32, 0)], step)]


def _reflection(x: Tensor, at: Tensor, top: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The reflection that makes the elements of column `at` below row `top` zero: its vector, the column with the new element and
    the vector below it, and its factor. The elements are divided by the largest one, so that no square overflows."""
    m = x.tensor_type.static_shape[0]
    rows, here, column = x.block.iota([m], SI32, 0), top.broadcast_to([m]), column_of(x, at, m)
    below, first = rows > here, rows.compare_eq(here)
    most = magnitude((rows >= here).select(column, 0)).reduce_max([0])
    scale = converted(most.compare_eq(0).select(1, most), x.dtype)
    rest = below.select(column, 0) / scale.broadcast_to([m])
    alpha = first.select(column, 0).reduce_sum([0]) / scale
    real = alpha.real() if x.dtype.is_complex else alpha
    norm = square_root(squared(rest).reduce_sum([0]) + squared(alpha))
    beta = converted((real < 0).select(norm, -norm), x.dtype)
    still = rest.compare_eq(0).cast(SI32).reduce_min([0]).compare_eq(1)
    if x.dtype.is_complex:
        still = still.bitwise_and(alpha.imag().compare_eq(0))
    tau = still.select(0, (beta - alpha) / still.select(1, beta))
    vector = rest / still.select(1, alpha - beta).broadcast_to([m])
    new = below.select(vector, first.select((still.select(alpha, beta) * scale).broadcast_to([m]), column))
    return first.select(1, vector), new, tau


def squared(x: Tensor) -> Tensor:
    """The squares of absolute values."""
    return (x * conjugate(x)).real() if x.dtype.is_complex else x * x


def _with_column(x: Tensor, at: Tensor, column: Tensor) -> Tensor:
    m, n = x.tensor_type.static_shape
    here = x.block.iota([n], SI32, 0).compare_eq(at.broadcast_to([n]))
    return across(here, m).select(down(column, n), x)


def hessenberg(a: Tensor) -> list[Tensor]:
    """The upper Hessenberg form of one square matrix with the vectors of its reflections below it, and their factors."""
    (n, _) = a.tensor_type.static_shape
    if n < 2:
        return [a, a.block.filled(0, a.tensor_type.with_shape((0,)))]

    def step(x: Tensor, at: Tensor) -> list[Tensor]:
        vector, column, tau = _reflection(x, at, at + 1)
        weighted = x.dot_general(vector, contract_lhs=[1], contract_rhs=[0]) * tau.broadcast_to([n])
        turned = x - down(weighted, n) * across(conjugate(vector), n)
        after = across(x.block.iota([n], SI32, 0) > at.broadcast_to([n]), n)
        return [_with_column(after.select(_reflected(turned, vector, conjugate(tau)), turned), at, column), tau]

    return [*a.block.scan([a], [a.block.iota([n - 1], SI32, 0)], step)]


def _reflected(x: Tensor, vector: Tensor, tau: Tensor) -> Tensor:
    """`x - tau v (v^H x)`."""
    m, n = x.tensor_type.static_shape
    row = conjugate(vector).dot_general(x, contract_lhs=[0], contract_rhs=[0]) * tau.broadcast_to([n])
    return x - down(vector, n) * across(row, m)


def orthogonal(a: Tensor, taus: Tensor) -> Tensor:
    """The orthogonal matrix of the reflections of one matrix."""
    (m, n), (count,) = a.tensor_type.static_shape, taus.tensor_type.static_shape
    rows, columns = (a.block.iota([m, n], SI32, k) for k in (0, 1))
    unit = rows.compare_eq(columns).select(1, a.block.full(0, a))
    if not count:
        return unit
    numbers = a.block.constant(np.arange(count)[::-1].copy(), SI32)

    def step(result: Tensor, given: Tensor, at: Tensor, tau: Tensor) -> list[Tensor]:
        row, here = at.block.iota([m], SI32, 0), at.broadcast_to([m])
        vector = (row > here).select(column_of(given, at, m), 0)
        return [_reflected(result, row.compare_eq(here).select(1, vector), tau), given]

    return a.block.scan([unit, a], [numbers, taus.take(numbers)], step)[0]
