"""JAX's custom calls into LAPACK on a CPU, each as an equivalent op or loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ptir_tools.bridges.node import results_of
from ptir_tools.bridges.stablehlo.ops.elementwise import conjugate, converted, square_root
from ptir_tools.bridges.stablehlo.ops.solving import factored, put, solved
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, refused, sizes_of
from ptir_tools.core.dtypes import SI32
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")

_LOWER, _LEFT, _UNIT, _NONE, _CONJUGATE = map(ord, "LLUNC")


def option(site: Site, name: str) -> int:
    """An option of a call, by name. Raises Violation."""
    options = site.value("mhlo.backend_config", {})
    option = options.get(name) if isinstance(options, dict) else None
    if not isinstance(option, int):
        raise refused(f"a call into LAPACK without `{name}`")
    return option


def failed(site: Site, x: Tensor) -> Tensor:
    """1 for each matrix with a NaN, else 0."""
    wrong = x.compare_ne(x).cast(SI32)
    return wrong.reduce_max(axes=[x.rank - 2, x.rank - 1])


def potrf(site: Site, a: Tensor) -> list[Tensor]:
    """Cholesky factors, and whether the factorization failed."""
    result = factored(a, option(site, "uplo") == _LOWER)
    return [result, failed(site, result)]


def trsm(site: Site, a: Tensor, b: Tensor) -> list[Tensor]:
    """Triangular systems."""
    left, lower = option(site, "side") == _LEFT, option(site, "uplo") == _LOWER
    how, unit = option(site, "trans_x"), option(site, "diag") == _UNIT
    return [solved(a, b, left=left, lower=lower, unit=unit, turned=how != _NONE, conj=how == _CONJUGATE)]


def each_matrix(operands: Sequence[Tensor], one: Callable[..., list[Tensor]], ranks: Sequence[int]) -> list[Tensor]:
    """Apply `one` to each matrix of a batch; the last `ranks` axes of each operand are one matrix or vector."""
    *batch, _, _ = sizes_of(operands[0])
    if not batch:
        return one(*operands)
    rows = [x.reshape([math.prod(batch), *sizes_of(x)[x.rank - r :]]) for x, r in zip(operands, ranks, strict=True)]
    return [x.reshape([*batch, *sizes_of(x)[1:]]) for x in results_of(operands[0].block.scan([], rows, one))]


def getrf(site: Site, a: Tensor) -> list[Tensor]:
    """LU factors with row exchanges: the factors, the pivots from 1, and 0."""
    return [*each_matrix([a], exchanged_factors, [2]), site.full(0, a.tensor_type.with_shape(a.shape[:-2]).with_dtype(SI32))]


def exchanged_factors(a: Tensor) -> list[Tensor]:
    """The factors and pivots of one matrix, column by column in a loop."""
    m, n = sizes_of(a)

    def step(x: Tensor, at: Tensor) -> list[Tensor]:
        rows, columns, here = _places(at, m, n)
        column = _column(x, at, m)
        size = column.real().abs() + column.imag().abs() if x.dtype.is_complex else column.abs()
        chosen = (rows >= here[0]).select(size, -1).argmax(0)
        one, other = _row(x, at), _row(x, chosen)
        x = put(put(x, at, other), chosen, one)
        pivot = _row(x, at).dynamic_slice(at.reshape([1]), [1]).broadcast_to([m])
        after = rows > here[0]
        factors = after.select(_column(x, at, m) / pivot.compare_eq(0).select(1, pivot), 0)
        row = (columns > here[1]).select(_row(x, at), 0)
        below = _across(columns.compare_eq(here[1]), m).bitwise_and(_down(after, n))
        return [below.select(_down(factors, n), x - _down(factors, n) * _across(row, m)), chosen + 1]

    return [*a.block.scan([a], [a.block.iota([min(m, n)], SI32, 0)], step)]


def _places(at: Tensor, m: int, n: int) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
    """The numbers of m rows and of n columns, and `at` in the shape of each."""
    return at.block.iota([m], SI32, 0), at.block.iota([n], SI32, 0), (at.broadcast_to([m]), at.broadcast_to([n]))


def _down(x: Tensor, n: int) -> Tensor:
    """A column, `n` times."""
    return x.reshape([x.shape[0], 1]).broadcast_to([x.shape[0], n])


def _across(x: Tensor, m: int) -> Tensor:
    """A row, `m` times."""
    return x.reshape([1, x.shape[0]]).broadcast_to([m, x.shape[0]])


def _column(x: Tensor, at: Tensor, m: int) -> Tensor:
    corner = x.block.concat([x.block.constant([0], SI32), at.reshape([1])], axis=0)
    return x.dynamic_slice(corner, [m, 1]).reshape([m])


def geqrf(site: Site, a: Tensor) -> list[Tensor]:
    """Reflections that make a matrix upper triangular: the triangle with their vectors below it, and their factors."""
    return each_matrix([a], reflections, [2])


def reflections(a: Tensor) -> list[Tensor]:
    """The triangle of one matrix with the reflections below it, and their factors."""
    m, n = sizes_of(a)
    count = min(m, n)
    if not count:
        return [a, a.block.filled(0, a.tensor_type.with_shape((0,)))]

    def step(x: Tensor, at: Tensor) -> list[Tensor]:
        vector, column, tau = _reflection(x, at, at)
        after = _across(x.block.iota([n], SI32, 0) > at.broadcast_to([n]), m)
        result = after.select(_reflected(x, vector, conjugate(tau)), x)
        return [_with_column(result, at, column), tau]

    return [*a.block.scan([a], [a.block.iota([count], SI32, 0)], step)]


def _reflection(x: Tensor, at: Tensor, top: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The reflection that makes the elements of column `at` below row `top` zero: its vector, the column with the new element and
    the vector below it, and its factor."""
    m = sizes_of(x)[0]
    rows, here, column = x.block.iota([m], SI32, 0), top.broadcast_to([m]), _column(x, at, m)
    below, first = rows > here, rows.compare_eq(here)
    rest = below.select(column, 0)
    alpha = first.select(column, 0).reduce_sum([0])
    real = alpha.real() if x.dtype.is_complex else alpha
    norm = square_root(squared(rest).reduce_sum([0]) + squared(alpha))
    beta = converted((real < 0).select(norm, -norm), x.dtype)
    still = rest.compare_eq(0).cast(SI32).reduce_min([0]).compare_eq(1)
    if x.dtype.is_complex:
        still = still.bitwise_and(alpha.imag().compare_eq(0))
    tau = still.select(0, (beta - alpha) / still.select(1, beta))
    vector = rest / still.select(1, alpha - beta).broadcast_to([m])
    new = below.select(vector, first.select(still.select(alpha, beta).broadcast_to([m]), column))
    return first.select(1, vector), new, tau


def squared(x: Tensor) -> Tensor:
    """The squares of absolute values."""
    return (x * conjugate(x)).real() if x.dtype.is_complex else x * x


def _with_column(x: Tensor, at: Tensor, column: Tensor) -> Tensor:
    m, n = sizes_of(x)
    here = x.block.iota([n], SI32, 0).compare_eq(at.broadcast_to([n]))
    return _across(here, m).select(_down(column, n), x)


def _reflected(x: Tensor, vector: Tensor, tau: Tensor) -> Tensor:
    """`x - tau v (v^H x)`."""
    m, n = sizes_of(x)
    row = conjugate(vector).dot_general(x, contract_lhs=[0], contract_rhs=[0]) * tau.broadcast_to([n])
    return x - _down(vector, n) * _across(row, m)


def gehrd(site: Site, a: Tensor) -> list[Tensor]:
    """Reflections that make a matrix upper Hessenberg: the form with their vectors below it, their factors, and 0."""
    n = sizes_of(a)[-1]
    if (option(site, "low"), option(site, "high")) != (1, n):
        raise refused("the Hessenberg form of a part of a matrix")

    def step(x: Tensor, at: Tensor) -> list[Tensor]:
        vector, column, tau = _reflection(x, at, at + 1)
        weighted = x.dot_general(vector, contract_lhs=[1], contract_rhs=[0]) * tau.broadcast_to([n])
        turned = x - _down(weighted, n) * _across(conjugate(vector), n)
        after = _across(x.block.iota([n], SI32, 0) > at.broadcast_to([n]), n)
        return [_with_column(after.select(_reflected(turned, vector, conjugate(tau)), turned), at, column), tau]

    def one(x: Tensor) -> list[Tensor]:
        if n < 2:
            return [x, x.block.filled(0, x.tensor_type.with_shape((0,)))]
        return [*x.block.scan([x], [x.block.iota([n - 1], SI32, 0)], step)]

    return [*each_matrix([a], one, [2]), site.full(0, a.tensor_type.with_shape(a.shape[:-2]).with_dtype(SI32))]


def orgqr(site: Site, a: Tensor, taus: Tensor) -> list[Tensor]:
    """The orthogonal matrix of reflections."""
    return each_matrix([a, taus], lambda *x: [orthogonal(*x)], [2, 1])


def orthogonal(a: Tensor, taus: Tensor) -> Tensor:
    """The orthogonal matrix of the reflections of one matrix."""
    (m, n), (count,) = sizes_of(a), sizes_of(taus)
    rows, columns = (a.block.iota([m, n], SI32, k) for k in (0, 1))
    unit = rows.compare_eq(columns).select(1, a.block.full(0, a))
    if not count:
        return unit
    numbers = a.block.constant(np.arange(count)[::-1].copy(), SI32)

    def step(result: Tensor, given: Tensor, at: Tensor, tau: Tensor) -> list[Tensor]:
        row, here = at.block.iota([m], SI32, 0), at.broadcast_to([m])
        vector = (row > here).select(_column(given, at, m), 0)
        return [_reflected(result, row.compare_eq(here).select(1, vector), tau), given]

    return a.block.scan([unit, a], [numbers, taus.take(numbers)], step)[0]


def _row(x: Tensor, at: Tensor) -> Tensor:
    zeros = [x.block.constant(0, SI32).reshape([1]) for _ in x.shape[1:]]
    return x.dynamic_slice(x.block.concat([at.reshape([1]), *zeros], axis=0), [1, *sizes_of(x)[1:]]).reshape(x.shape[1:])


_CALLS: dict[str, Callable[..., list[Tensor]]] = {
    "potrf": potrf, "trsm": trsm, "getrf": getrf, "geqrf": geqrf, "orgqr": orgqr, "ungqr": orgqr, "gehrd": gehrd,
}  # fmt: skip
CUSTOM.update({f"lapack_{kind}{name}_ffi": call for name, call in _CALLS.items() for kind in "sdcz"})
