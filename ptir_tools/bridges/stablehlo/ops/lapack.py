"""JAX's custom calls into LAPACK on a CPU, each as an equivalent op or loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ptir_tools.bridges.stablehlo.ops.elementwise import square_root
from ptir_tools.bridges.stablehlo.ops.movement import reversed_along
from ptir_tools.bridges.stablehlo.ops.solving import adjoint, factored, put, solved
from ptir_tools.bridges.stablehlo.scopes import Scope
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, refused, sizes_of
from ptir_tools.core.dtypes import SI32
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import tensor

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
    lower = option(site, "uplo") == _LOWER
    result = factored(site, a if lower else adjoint(site, a, conj=True))
    result = result if lower else adjoint(site, result, conj=True)
    return [result, failed(site, result)]


def trsm(site: Site, a: Tensor, b: Tensor) -> list[Tensor]:
    """Triangular systems."""
    left, lower = option(site, "side") == _LEFT, option(site, "uplo") == _LOWER
    how, unit = option(site, "trans_x"), option(site, "diag") == _UNIT
    if how != _NONE:
        a, lower = adjoint(site, a, conj=how == _CONJUGATE), not lower
    if not left:
        a, lower, b = adjoint(site, a, conj=False), not lower, adjoint(site, b, conj=False)
    x = solved(site, a, b, lower=lower, unit=unit)
    return [x if left else adjoint(site, x, conj=False)]


def each_matrix(site: Site, operands: Sequence[Tensor], one: Callable[..., list[Tensor]], ranks: Sequence[int]) -> list[Tensor]:
    """Apply `one` to each matrix of a batch; the last `ranks` axes of each operand are one matrix or vector."""
    *batch, _, _ = sizes_of(operands[0])
    if not batch:
        return one(site, *operands)
    rows = [x.reshape([math.prod(batch), *sizes_of(x)[x.rank - r :]]) for x, r in zip(operands, ranks, strict=True)]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[Tensor]:
        return one(Site(inner, site.statement, site.spelled), *params)

    region = site.scope.region([x.tensor_type.with_shape(x.shape[1:]) for x in rows], body)
    result = site.op("scan", rows, 0, len(region.results), regions=[region])
    parts = [result] if len(region.results) == 1 else [*result]
    return [x.reshape([*batch, *sizes_of(x)[1:]]) for x in parts]


def getrf(site: Site, a: Tensor) -> list[Tensor]:
    """LU factors with row exchanges: the factors, the pivots from 1, and 0."""
    return [*each_matrix(site, [a], _factors, [2]), site.full(0, a.tensor_type.with_shape(a.shape[:-2]).with_dtype(SI32))]


def _factors(site: Site, a: Tensor) -> list[Tensor]:
    """The factors and pivots of one matrix, column by column in a loop."""
    m, n = sizes_of(a)
    count = min(m, n)
    start = [a]
    steps = [site.iota([count], SI32, 0)]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[Tensor]:
        x, at = params
        local = Site(inner, site.statement, site.spelled)
        zero = inner.block.constant(0, SI32)
        rows = local.iota([m], SI32, 0)
        corner = inner.block.concat([zero.reshape([1]), at.reshape([1])], axis=0)
        column = x.dynamic_slice(corner, [m, 1]).reshape([m])
        size = local.op("abs", column) if not x.dtype.is_complex else _size(local, column)
        below = rows.compare_ge(at.broadcast_to([m]))
        chosen = local.op("select", below, size, local.full(-1, size.tensor_type)).argmax(0)
        one, other = (_row(x, k) for k in (at, chosen))
        x = put(put(x, at, other), chosen, one)
        column = x.dynamic_slice(corner, [m, 1]).reshape([m])
        pivot = _row(x, at).dynamic_slice(at.reshape([1]), [1]).broadcast_to([m])
        after = rows.compare_gt(at.broadcast_to([m]))
        nothing = local.full(0, column.tensor_type)
        safe = local.op("select", pivot.compare_eq(nothing), local.full(1, column.tensor_type), pivot)
        factors = local.op("select", after, column / safe, nothing)
        columns = local.iota([n], SI32, 0)
        right = columns.compare_gt(at.broadcast_to([n]))
        row = _row(x, at)
        row = local.op("select", right, row, local.full(0, row.tensor_type))
        change = factors.reshape([m, 1]).broadcast_to([m, n]) * row.reshape([1, n]).broadcast_to([m, n])
        here = columns.compare_eq(at.broadcast_to([n])).reshape([1, n]).broadcast_to([m, n])
        here = local.op("bitwise_and", here, after.reshape([m, 1]).broadcast_to([m, n]))
        result = local.op("select", here, factors.reshape([m, 1]).broadcast_to([m, n]), x - change)
        return [result, chosen + 1]

    region = site.scope.region([a.type, steps[0].tensor_type.with_shape(())], body)
    return [*site.op("scan", [*start, *steps], 1, 1, regions=[region])]


def geqrf(site: Site, a: Tensor) -> list[Tensor]:
    """Reflections that make a matrix upper triangular: the triangle with their vectors below it, and their factors."""
    if a.dtype.is_complex:
        raise refused("reflections of complex matrices")
    return each_matrix(site, [a], reflections, [2])


def reflections(site: Site, a: Tensor) -> list[Tensor]:
    """The triangle of one matrix with the reflections below it, and their factors."""
    m, n = sizes_of(a)
    count = min(m, n)
    if not count:
        return [a, site.full(0, a.tensor_type.with_shape((0,)))]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[Tensor]:
        x, at = params
        local = Site(inner, site.statement, site.spelled)
        rows, columns = local.iota([m], SI32, 0), local.iota([n], SI32, 0)
        corner = inner.block.concat([inner.block.constant([0], SI32), at.reshape([1])], axis=0)
        column = x.dynamic_slice(corner, [m, 1]).reshape([m])
        nothing = local.full(0, column.tensor_type)
        below = rows.compare_gt(at.broadcast_to([m]))
        rest = local.op("select", below, column, nothing)
        alpha = column.dynamic_slice(at.reshape([1]), [1]).reshape([])
        zero, one = (local.full(k, alpha.tensor_type) for k in (0, 1))
        norm = square_root(local, (rest * rest).reduce_sum([0]) + alpha * alpha)
        beta = local.op("select", alpha.compare_lt(zero), norm, local.op("neg", norm))
        still = rest.compare_eq(nothing).cast(SI32).reduce_min([0]).compare_eq(inner.block.constant(1, SI32))
        safe_beta, gap = (local.op("select", still, one, y) for y in (beta, alpha - beta))
        tau = local.op("select", still, zero, (beta - alpha) / safe_beta)
        vector = rest / gap.broadcast_to([m])
        whole = local.op("select", rows.compare_eq(at.broadcast_to([m])), local.full(1, column.tensor_type), vector)
        after = columns.compare_gt(at.broadcast_to([n]))
        result = _reflected(x, whole, tau)
        result = local.op("select", after.reshape([1, n]).broadcast_to([m, n]), result, x)
        first = rows.compare_eq(at.broadcast_to([m]))
        diagonal = local.op("select", still, alpha, beta).broadcast_to([m])
        new = local.op("select", below, vector, local.op("select", first, diagonal, column))
        here = columns.compare_eq(at.broadcast_to([n])).reshape([1, n]).broadcast_to([m, n])
        return [local.op("select", here, new.reshape([m, 1]).broadcast_to([m, n]), result), tau]

    region = site.scope.region([a.type, tensor(SI32)], body)
    return [*site.op("scan", [a, site.iota([count], SI32, 0)], 1, 1, regions=[region])]


def _reflected(x: Tensor, vector: Tensor, tau: Tensor) -> Tensor:
    """`x - tau v (v x)`."""
    m, n = sizes_of(x)
    row = vector.dot_general(x, contract_lhs=[0], contract_rhs=[0]) * tau.broadcast_to([n])
    return x - vector.reshape([m, 1]).broadcast_to([m, n]) * row.reshape([1, n]).broadcast_to([m, n])


def orgqr(site: Site, a: Tensor, taus: Tensor) -> list[Tensor]:
    """The orthogonal matrix of reflections."""
    return each_matrix(site, [a, taus], lambda *x: [orthogonal(*x)], [2, 1])


def orthogonal(site: Site, a: Tensor, taus: Tensor) -> Tensor:
    """The orthogonal matrix of the reflections of one matrix."""
    (m, n), (count,) = sizes_of(a), sizes_of(taus)
    rows, columns = (site.iota([m, n], SI32, k) for k in (0, 1))
    unit = rows.compare_eq(columns).select(site.full(1, a.tensor_type), site.full(0, a.tensor_type))
    if not count:
        return unit
    steps = [site.constant(np.arange(count)[::-1].copy(), SI32), reversed_along(site, taus, [0])]

    def body(inner: Scope, params: list[Tensor]) -> Sequence[Tensor]:
        result, given, at, tau = params
        local = Site(inner, site.statement, site.spelled)
        row = local.iota([m], SI32, 0)
        corner = inner.block.concat([inner.block.constant([0], SI32), at.reshape([1])], axis=0)
        column = given.dynamic_slice(corner, [m, 1]).reshape([m])
        t = column.tensor_type
        vector = local.op("select", row.compare_gt(at.broadcast_to([m])), column, local.full(0, t))
        vector = local.op("select", row.compare_eq(at.broadcast_to([m])), local.full(1, t), vector)
        return [_reflected(result, vector, tau), given]

    region = site.scope.region([a.type, a.type, tensor(SI32), taus.tensor_type.with_shape(())], body)
    return site.op("scan", [unit, a, *steps], 2, 0, regions=[region])[0]


def _size(site: Site, x: Tensor) -> Tensor:
    parts = [site.op(name, x).abs() for name in ("real", "imag")]
    return parts[0] + parts[1]


def _row(x: Tensor, at: Tensor) -> Tensor:
    zeros = [x.block.constant(0, SI32).reshape([1]) for _ in x.shape[1:]]
    return x.dynamic_slice(x.block.concat([at.reshape([1]), *zeros], axis=0), [1, *sizes_of(x)[1:]]).reshape(x.shape[1:])


_CALLS: dict[str, Callable[..., list[Tensor]]] = {
    "potrf": potrf, "trsm": trsm, "getrf": getrf, "geqrf": geqrf, "orgqr": orgqr,
}  # fmt: skip
CUSTOM.update({f"lapack_{kind}{name}_ffi": call for name, call in _CALLS.items() for kind in "sdcz"})
