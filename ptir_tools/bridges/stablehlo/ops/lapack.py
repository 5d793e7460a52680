"""JAX's custom calls into LAPACK on a CPU, each as an equivalent op or loop."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.linalg.factors import exchanged_factors, factored, hessenberg, orthogonal, reflections, solved
from ptir_tools.bridges.linalg.jacobi import singular_vectors, symmetric_vectors
from ptir_tools.bridges.linalg.matrices import adjoint, diagonal, each_matrix
from ptir_tools.bridges.linalg.schur import normalized, schur, triangular_vectors
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, refused, sizes_of
from ptir_tools.core.dtypes import SI32

_LOWER, _LEFT, _UNIT, _NONE, _CONJUGATE, _VALUES, _ALL = map(ord, "LLUNCNA")


def _option(site: Site, name: str) -> int:
    """An option of a call, by name. Raises Violation."""
    options = site.value("mhlo.backend_config", {})
    option = options.get(name) if isinstance(options, dict) else None
    if not isinstance(option, int):
        raise refused(f"a call into LAPACK without `{name}`")
    return option


def _failed(site: Site, x: Tensor) -> Tensor:
    """1 for each matrix with a NaN, else 0."""
    wrong = x.compare_ne(x).cast(SI32)
    return wrong.reduce_max(axes=[x.rank - 2, x.rank - 1])


def potrf(site: Site, a: Tensor) -> list[Tensor]:
    """Cholesky factors, and whether the factorization failed."""
    result = factored(a, _option(site, "uplo") == _LOWER)
    return [result, _failed(site, result)]


def trsm(site: Site, a: Tensor, b: Tensor) -> list[Tensor]:
    """Triangular systems."""
    left, lower = _option(site, "side") == _LEFT, _option(site, "uplo") == _LOWER
    how, unit = _option(site, "trans_x"), _option(site, "diag") == _UNIT
    return [solved(a, b, left=left, lower=lower, unit=unit, turned=how != _NONE, conj=how == _CONJUGATE)]


def getrf(site: Site, a: Tensor) -> list[Tensor]:
    """LU factors with row exchanges: the factors, the pivots from 1, and 0."""
    return [*each_matrix([a], exchanged_factors, [2]), site.full(0, a.tensor_type.with_shape(a.shape[:-2]).with_dtype(SI32))]


def geqrf(site: Site, a: Tensor) -> list[Tensor]:
    """Reflections that make a matrix upper triangular: the triangle with their vectors below it, and their factors."""
    return each_matrix([a], reflections, [2])


def gehrd(site: Site, a: Tensor) -> list[Tensor]:
    """Reflections that make a matrix upper Hessenberg: the form with their vectors below it, their factors, and 0."""
    n = sizes_of(a)[-1]
    if (_option(site, "low"), _option(site, "high")) != (1, n):
        raise refused("the Hessenberg form of a part of a matrix")
    return [*each_matrix([a], hessenberg, [2]), site.full(0, a.tensor_type.with_shape(a.shape[:-2]).with_dtype(SI32))]


def orgqr(site: Site, a: Tensor, taus: Tensor) -> list[Tensor]:
    """The orthogonal matrix of reflections."""
    return each_matrix([a, taus], lambda *x: [orthogonal(*x)], [2, 1])


def geev(site: Site, a: Tensor) -> list[Tensor]:
    """Eigenvalues, left and right eigenvectors as columns, and the number of eigenvalues that were not found. The eigenvalues are
    in no order. Vectors have the norm 1, and their largest element is real."""
    asked = [_option(site, name) != _NONE for name in ("compute_left", "compute_right")]

    def one(x: Tensor) -> list[Tensor]:
        t, z, left = schur(x)
        values = diagonal(t)
        vectors = []
        for wanted, of_left in zip(asked, (True, False), strict=True):
            if wanted:
                triangle = reversed_along(reversed_along(adjoint(t, conj=True), 0), 1) if of_left else t
                found = triangular_vectors(triangle)
                found = reversed_along(reversed_along(found, 0), 1) if of_left else found
                vectors.append(normalized(z.dot_general(found, contract_lhs=[1], contract_rhs=[0])))
            else:
                vectors.append(t)  # nothing reads them
        return [*([values] if x.dtype.is_complex else [values.real(), values.imag()]), *vectors, left]

    return each_matrix([a], one, [2])


def gees(site: Site, a: Tensor) -> list[Tensor]:
    """The triangle of the Schur form, its unitary vectors, the eigenvalues, 0, and the number of those that were not found."""
    if not a.dtype.is_complex:
        raise refused("the Schur form of a real matrix in real blocks", 'convert it to complex numbers: output="complex"')
    if _option(site, "sort") != _NONE:
        raise refused("a Schur form in an order that is chosen")

    def one(x: Tensor) -> list[Tensor]:
        t, z, left = schur(x)
        return [t, z, diagonal(t), left * 0, left]

    return each_matrix([a], one, [2])


def syevd(site: Site, a: Tensor) -> list[Tensor]:
    """Eigenvectors as columns, ascending eigenvalues, and whether it failed, of symmetric or Hermitian matrices given by one
    triangle."""
    lower = _option(site, "uplo") == _LOWER
    vectors, values = each_matrix([a], lambda x: symmetric_vectors(x, lower), [2])
    return [vectors, values, _failed(site, vectors)]


def gesdd(site: Site, a: Tensor) -> list[Tensor]:
    """The operand, descending singular values, left vectors as columns, right ones as rows, and whether it failed."""
    mode = _option(site, "mode")
    *_, m, n = sizes_of(a)
    if not m * n:
        raise refused("singular values of an empty matrix")
    turned = m < n
    values, left, right = each_matrix([adjoint(a, conj=True) if turned else a], lambda x: singular_vectors(x, mode == _ALL), [2])
    if turned:
        left, right = (adjoint(x, conj=True) for x in (right, left))
    if mode == _VALUES:  # nothing reads the vectors
        left, right = (site.full(0, site.tensor_type(site.types[k])) for k in (2, 3))
    return [a, values, left, right, _failed(site, values.reshape([*values.shape, 1]))]


_CALLS: dict[str, Callable[..., list[Tensor]]] = {
    "potrf": potrf, "trsm": trsm, "getrf": getrf, "geqrf": geqrf, "orgqr": orgqr, "ungqr": orgqr, "gehrd": gehrd, "geev": geev,
    "gees": gees, "syevd": syevd, "heevd": syevd, "gesdd": gesdd, "gesvd": gesdd,
}  # fmt: skip


def _sized(call: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    """The call on operands whose extents must be numbers."""

    def checked(site: Site, *operands: Tensor) -> list[Tensor]:
        for x in operands:
            sizes_of(x)
        return call(site, *operands)

    return checked


CUSTOM.update({f"lapack_{kind}{name}_ffi": _sized(call) for name, call in _CALLS.items() for kind in "sdcz"})
