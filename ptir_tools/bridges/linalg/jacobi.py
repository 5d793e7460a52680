"""Eigenvalues of symmetric matrices and singular values of any, by loops of Jacobi rotations.

A round rotates half as many pairs of rows as there are rows, all at once: row k with row k + n/2. Then the rows change places,
as the players of a tournament do. After n - 1 rounds each pair has met once, and every row is in its place again.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.bridges.linalg.factors import orthogonal, reflections, squared
from ptir_tools.bridges.linalg.matrices import adjoint, diagonal, identity
from ptir_tools.bridges.linalg.schur import schur
from ptir_tools.bridges.numbers import conjugate, converted, magnitude, square_root
from ptir_tools.core.dtypes import SI32
from ptir_tools.dialects.ptir.builder.build import Tensor

_SWEEPS = {32: 9, 64: 14}  # by bits of the float; and one for each doubling of the rows


def symmetric_vectors(a: Tensor, lower: bool) -> list[Tensor]:
    """Eigenvectors as columns and ascending eigenvalues of one matrix."""
    return (_hermitian if a.dtype.is_complex else _eigen)(a, lower)


def _hermitian(a: Tensor, lower: bool) -> list[Tensor]:
    """The same of a complex matrix, whose Schur form is diagonal."""
    (n, _) = a.tensor_type.static_shape
    row, column = (a.block.iota([n, n], SI32, k) for k in (0, 1))
    whole = (row > column if lower else row < column).select(a, adjoint(a, conj=True))
    whole = row.compare_eq(column).select(converted(a.real(), a.dtype), whole)
    form, vectors, _ = schur(whole)
    values, order = _ordered(diagonal(form.real()), descending=False)
    return [vectors.transpose([1, 0]).take(order).transpose([1, 0]), values]


def _eigen(a: Tensor, lower: bool) -> list[Tensor]:
    (n, _) = a.tensor_type.static_shape
    row, column = (a.block.iota([n, n], SI32, k) for k in (0, 1))
    whole = (row >= column if lower else row <= column).select(a, a.transpose([1, 0]))
    if n == 1:
        return [whole * 0.0 + 1.0, whole.reshape([1])]
    even = n + n % 2
    whole = whole.pad([0, 0], [even - n] * 2)
    half = even // 2

    def angles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = [half, half]
        return diagonal(x.slice([0, 0], size)), diagonal(x.slice([half, half], size)), diagonal(x.slice([0, half], size))

    def turned(x: Tensor, turn: Callable[[Tensor], Tensor]) -> Tensor:
        return turn(turn(x).transpose([1, 0]))

    found, rows = _rotated(whole, identity(even, a), angles, turned)
    values, order = _ordered(diagonal(found.slice([0, 0], [n, n])), descending=False)
    return [rows.slice([0, 0], [n, n]).take(order).transpose([1, 0]), values]


def singular_vectors(a: Tensor, whole: bool) -> list[Tensor]:
    """Singular values, left vectors and right ones of a matrix with at least as many rows as columns."""
    m, n = a.tensor_type.static_shape
    even = max(n + n % 2, 2)
    half = even // 2
    columns = a.transpose([1, 0]).pad([0, 0], [even - n, 0])

    def angles(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p, q = x.slice([0, 0], [half, m]), x.slice([half, 0], [half, m])
        return squared(p).reduce_sum([1]), squared(q).reduce_sum([1]), (conjugate(p) * q).reduce_sum([1])

    found, rows = _rotated(columns, identity(even, a), angles, lambda x, turn: turn(x))
    found = found.slice([0, 0], [n, m])
    largest = magnitude(found).reduce_max([0, 1])
    safe = largest.compare_eq(0.0).select(1.0, largest)
    scaled = found / converted(safe, a.dtype).broadcast_to([n, m])
    values, order = _ordered(square_root(squared(scaled).reduce_sum([1])) * safe.broadcast_to([n]), descending=True)
    # The columns are orthogonal, so their triangle is diagonal; zero columns get vectors that complete the others.
    parts, taus = reflections(found.take(order).transpose([1, 0]))
    corner = parts.slice([0, 0], [n, n])
    corner = diagonal(corner.real() if a.dtype.is_complex else corner)
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
    n = start.tensor_type.static_shape[0]
    half = n // 2
    places = [0, half, *range(1, half - 1), *range(half + 1, n), half - 1] if half > 1 else [0, 1]
    rounds = (_SWEEPS[start.dtype.bits // (2 if start.dtype.is_complex else 1)] + n.bit_length()) * (n - 1)

    def step(x: Tensor, rows: Tensor, _: Tensor) -> list[Tensor]:
        first, second, product = angles(x)
        both = magnitude(product) if x.dtype.is_complex else product  # of reals it has the sign
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
            width = y.tensor_type.static_shape[1]
            p, q = y.slice([0, 0], [half, width]), y.slice([half, 0], [half, width])
            if phase is not None:  # the product of the pair becomes real
                q = q * conjugate(phase).reshape([half, 1]).broadcast_to([half, width])
            c, s = (converted(v, y.dtype).reshape([half, 1]).broadcast_to([half, width]) for v in (cosine, sine))
            return x.block.concat([c * p - s * q, s * p + c * q], axis=0).take(order)

        return [turned(x, turn), turn(rows)]

    found = start.block.scan([start, basis], [start.block.iota([rounds], SI32, 0)], step)
    return found[0], found[1]


def _ordered(values: Tensor, *, descending: bool) -> tuple[Tensor, Tensor]:
    """Values in order, and the places where they were."""
    result = values.block.sort([values, values.block.iota(values.shape, SI32, 0)], axis=0, keys=1, descending=descending)
    return result[0], result[1]
