"""Custom calls into LAPACK that JAX makes on a CPU, each as the op or loop that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ptir_tools.bridges.stablehlo.ops.solving import adjoint, factored, put, solved
from ptir_tools.bridges.stablehlo.table import Site, Tensor, refused, sizes_of
from ptir_tools.core.dtypes import SI32

_LOWER, _LEFT, _UNIT, _NONE, _CONJUGATE = map(ord, "LLUNC")


def _option(site: Site, name: str) -> int:
    options = site.value("mhlo.backend_config", {})
    found = options.get(name) if isinstance(options, dict) else None
    if not isinstance(found, int):
        raise refused(f"a call into LAPACK without `{name}`")
    return found


def _failed(site: Site, x: Tensor) -> Tensor:
    """1 for each matrix with a NaN, else 0."""
    wrong = site.op("compare_ne", x, x).cast(SI32)
    return site.op("reduce_max", wrong, axes=[x.rank - 2, x.rank - 1])


def potrf(site: Site, a: Tensor) -> list[Tensor]:
    """Cholesky factors, and whether there are none."""
    lower = _option(site, "uplo") == _LOWER
    found = factored(site, a if lower else adjoint(site, a, conj=True))
    found = found if lower else adjoint(site, found, conj=True)
    return [found, _failed(site, found)]


def trsm(site: Site, a: Tensor, b: Tensor) -> list[Tensor]:
    """Triangular systems."""
    left, lower = _option(site, "side") == _LEFT, _option(site, "uplo") == _LOWER
    how, unit = _option(site, "trans_x"), _option(site, "diag") == _UNIT
    if how != _NONE:
        a, lower = adjoint(site, a, conj=how == _CONJUGATE), not lower
    if not left:
        a, lower, b = adjoint(site, a, conj=False), not lower, adjoint(site, b, conj=False)
    x = solved(site, a, b, lower=lower, unit=unit)
    return [x if left else adjoint(site, x, conj=False)]


def getrf(site: Site, a: Tensor) -> list[Tensor]:
    """Triangular factors with rows exchanged, column by column in a loop: the factors, the pivots from 1, and 0."""
    *batch, m, n = (int(d) for d in a.shape if isinstance(d, int))
    if batch or len(a.shape) != 2:
        raise refused("LU factors of a batch of matrices")
    count = min(m, n)
    start = [a]
    steps = [site.integers([count], 0, SI32)]

    def body(inner: Any, params: list[Tensor]) -> Sequence[Tensor]:
        x, at = params
        local = Site(inner, site.statement, site.spelled)
        zero = inner.block.constant(0, SI32)
        rows = local.integers([m], 0, SI32)
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
        columns = local.integers([n], 0, SI32)
        right = columns.compare_gt(at.broadcast_to([n]))
        row = _row(x, at)
        row = local.op("select", right, row, local.full(0, row.tensor_type))
        change = factors.reshape([m, 1]).broadcast_to([m, n]) * row.reshape([1, n]).broadcast_to([m, n])
        here = columns.compare_eq(at.broadcast_to([n])).reshape([1, n]).broadcast_to([m, n])
        here = local.op("bitwise_and", here, after.reshape([m, 1]).broadcast_to([m, n]))
        made = local.op("select", here, factors.reshape([m, 1]).broadcast_to([m, n]), x - change)
        return [made, chosen + 1]

    region = site.scope.region([a.type, steps[0].tensor_type.with_shape(())], body)
    factors, pivots = site.block.op("scan", [*start, *steps], 1, 1, regions=[region])
    return [factors, pivots, site.array(0, SI32)]


def _size(site: Site, x: Tensor) -> Tensor:
    parts = [site.op("abs", site.op(name, x)) for name in ("real", "imag")]
    return parts[0] + parts[1]


def _row(x: Tensor, at: Tensor) -> Tensor:
    zeros = [x.block.constant(0, SI32).reshape([1]) for _ in x.shape[1:]]
    return x.dynamic_slice(x.block.concat([at.reshape([1]), *zeros], axis=0), [1, *sizes_of(x)[1:]]).reshape(x.shape[1:])


_CALLS: dict[str, Callable[..., list[Tensor]]] = {"potrf": potrf, "trsm": trsm, "getrf": getrf}
CALLS = {f"lapack_{kind}{name}_ffi": call for name, call in _CALLS.items() for kind in "sdcz"}
