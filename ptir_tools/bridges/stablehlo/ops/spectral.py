"""Eigenvalues and singular values: JAX's calls into LAPACK as loops of Jacobi rotations.

A round rotates half as many pairs of rows as there are rows, all at once: row k with row k + n/2. Then the rows change places,
as the players of a tournament do. After n - 1 rounds each pair has met once, and every row is in its place again.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges.stablehlo.ops.elementwise import conjugate, converted, magnitude, square_root
from ptir_tools.bridges.stablehlo.ops.lapack import each_matrix, failed, option, orthogonal, reflections, squared
from ptir_tools.bridges.stablehlo.ops.schur import schur
from ptir_tools.bridges.stablehlo.ops.solving import adjoint
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, refused, sizes_of
from ptir_tools.core.dtypes import SI32

_LOWER, _VALUES, _ALL = map(ord, "LNA")
SWEEPS = {32: 9, 64: 14}  # by bits of the float; and one for each doubling of the rows


def syevd(site: Site, a: Tensor) -> list[Tensor]:
    """Eigenvectors as columns, ascending eigenvalues, and whether it failed, of symmetric or Hermitian matrices given by one
    triangle."""
    lower = option(site, "uplo") == _LOWER
    vectors, values = each_matrix([a], lambda x: symmetric_vectors(x, lower), [2])
    return [vectors, values, failed(site, vectors)]


def symmetric_vectors(a: Tensor, lower: bool) -> list[Tensor]:
    """Eigenvectors as columns and ascending eigenvalues of one matrix."""
    return (_hermitian if a.dtype.is_complex else _eigen)(a, lower)


def _hermitian(a: Tensor, lower: bool) -> list[Tensor]:
    """The same of a complex matrix, whose Schur form is diagonal."""
    (n, _) = sizes_of(a)
    row, column = (a.block.iota([n, n], SI32, k) for k in (0, 1))
    whole = (row > column if lower else row < column).select(a, adjoint(a, conj=True))
    whole = row.compare_eq(column).select(converted(a.real(), a.dtype), whole)
    form, vectors, _ = schur(whole)
    values, order = _ordered(_diagonal(form.real()), descending=False)
    return [vectors.transpose([1, 0]).take(order).transpose([1, 0]), values]


def _eigen(a: Tensor, lower: bool) -> list[Tensor]:
    (n, _) = sizes_of(a)
    row, column = (a.block.iota([n, n], SI32, k) for k in (0, 1))
    whole = (row >= column if lower else row <= column).select(a, a.transpose([1, 0]))
    if n == 1:
        return [whole * 0.0 + 1.0, whole.reshape([1])]
    even = n + n % 2
    whole = whole.pad([0, 0], [even - n] * 2)
    half = even // 2

    def angles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = [half, half]
        return _diagonal(x.slice([0, 0], size)), _diagonal(x.slice([half, half], size)), _diagonal(x.slice([0, half], size))

    def turned(x: Tensor, turn: Callable[[Tensor], Tensor]) -> Tensor:
        return turn(turn(x).transpose([1, 0]))

    found, rows = _rotated(whole, _identity(even, a), angles, turned)
    values, order = _ordered(_diagonal(found.slice([0, 0], [n, n])), descending=False)
    return [rows.slice([0, 0], [n, n]).take(order).transpose([1, 0]), values]


def gesdd(site: Site, a: Tensor) -> list[Tensor]:
    """The operand, descending singular values, left vectors as columns, right ones as rows, and whether it failed."""
    mode = option(site, "mode")
    *_, m, n = sizes_of(a)
    if not m * n:
        raise refused("singular values of an empty matrix")
    turned = m < n
    values, left, right = each_matrix([adjoint(a, conj=True) if turned else a], lambda x: singular_vectors(x, mode == _ALL), [2])
    if turned:
        left, right = (adjoint(x, conj=True) for x in (right, left))
    if mode == _VALUES:  # nothing reads the vectors
        left, right = (site.full(0, site.tensor_type(site.types[k])) for k in (2, 3))
    return [a, values, left, right, failed(site, values.reshape([*values.shape, 1]))]


def singular_vectors(a: Tensor, whole: bool) -> list[Tensor]:
    """Singular values, left vectors and right ones of a matrix with at least as many rows as columns."""
    m, n = sizes_of(a)
    even = max(n + n % 2, 2)
    half = even // 2
    columns = a.transpose([1, 0]).pad([0, 0], [even - n, 0])

    def angles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, q = x.slice([0, 0], [half, m]), x.slice([half, 0], [half, m])
        return squared(p).reduce_sum([1]), squared(q).reduce_sum([1]), (conjugate(p) * q).reduce_sum([1])

    found, rows = _rotated(columns, _identity(even, a), angles, lambda x, turn: turn(x))
    found = found.slice([0, 0], [n, m])
    largest = (magnitude(found) if a.dtype.is_complex else found.abs()).reduce_max([0, 1])
    safe = largest.compare_eq(0.0).select(1.0, largest)
    scaled = found / converted(safe, a.dtype).broadcast_to([n, m])
    values, order = _ordered(square_root(squared(scaled).reduce_sum([1])) * safe.broadcast_to([n]), descending=True)
    # The columns are orthogonal, so their triangle is diagonal; zero columns get vectors that complete the others.
    parts, taus = reflections(found.take(order).transpose([1, 0]))
    corner = parts.slice([0, 0], [n, n])
    corner = _diagonal(corner.real() if a.dtype.is_complex else corner)
    signs = converted(corner.compare_lt(0.0).select(-1.0, values * 0.0 + 1.0), a.dtype)
    left = orthogonal(parts.pad([0, 0], [0, m - n if whole else 0]), taus)
    count = m if whole else n
    signs = signs.pad([0], [count - n], pad_value=1.0)
    left = left * signs.reshape([1, count]).broadcast_to([m, count])
    return [values, left, conjugate(rows.slice([0, 0], [n, n]).take(order))]


def _rotated(
    start: Tensor,
    basis: Tensor,
    angles: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]],
    turned: Callable[[Tensor, Callable[[Tensor], Tensor]], Tensor],
) -> tuple[Tensor, Tensor]:
    """`start` after all rounds, and the rows of `basis` after the same rotations. `angles` gives the products of each pair of
    rows: of the first with itself, of the second with itself, and of both, which become 0."""
    n = sizes_of(start)[0]
    half = n // 2
    places = [0, half, *range(1, half - 1), *range(half + 1, n), half - 1] if half > 1 else [0, 1]
    rounds = (SWEEPS[start.dtype.bits // (2 if start.dtype.is_complex else 1)] + n.bit_length()) * (n - 1)

    def step(x: Tensor, rows: Tensor, _: Tensor) -> list[Tensor]:
        first, second, product = angles(x)
        both = magnitude(product) if x.dtype.is_complex else product
        none = both.compare_eq(0.0)
        phase = none.select(1, product / converted(none.select(1.0, both), x.dtype)) if x.dtype.is_complex else None
        ratio = (second - first) / (none.select(1.0, both) * 2.0)
        size = ratio.abs()
        tangent = 1.0 / (size + square_root(size * size + 1.0))
        tangent = none.select(0.0, ratio.compare_lt(0.0).select(-tangent, tangent))
        cosine = (tangent * tangent + 1.0).rsqrt()
        sine = cosine * tangent
        order = x.block.constant(places, SI32)

        def turn(y: Tensor) -> Tensor:
            width = sizes_of(y)[1]
            p, q = y.slice([0, 0], [half, width]), y.slice([half, 0], [half, width])
            if phase is not None:  # the product of the pair becomes real
                q = q * conjugate(phase).reshape([half, 1]).broadcast_to([half, width])
            c, s = (converted(v, y.dtype).reshape([half, 1]).broadcast_to([half, width]) for v in (cosine, sine))
            return x.block.concat([c * p - s * q, s * p + c * q], axis=0).take(order)

        return [turned(x, turn), turn(rows)]

    found = start.block.scan([start, basis], [start.block.iota([rounds], SI32, 0)], step)
    return found[0], found[1]


def _identity(n: int, like: Tensor) -> Tensor:
    row, column = (like.block.iota([n, n], SI32, k) for k in (0, 1))
    return row.compare_eq(column).select(1, like.block.filled(0, like.tensor_type.with_shape((n, n))))


def _diagonal(x: Tensor) -> Tensor:
    n = sizes_of(x)[0]
    row, column = (x.block.iota([n, n], SI32, k) for k in (0, 1))
    return row.compare_eq(column).select(x, 0.0).reduce_sum([1])


def _ordered(values: Tensor, *, descending: bool) -> tuple[Tensor, Tensor]:
    """Values in order, and the places where they were."""
    result = values.block.sort([values, values.block.iota(values.shape, SI32, 0)], axis=0, keys=1, descending=descending)
    return result[0], result[1]


CUSTOM.update({f"lapack_{kind}syevd_ffi": syevd for kind in "sd"} | {f"lapack_{kind}heevd_ffi": syevd for kind in "cz"})
CUSTOM.update({f"lapack_{kind}{name}_ffi": gesdd for kind in "sdcz" for name in ("gesdd", "gesvd")})
