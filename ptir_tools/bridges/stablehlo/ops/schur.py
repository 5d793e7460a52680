"""Schur forms and eigenvalues of any square matrices: JAX's calls into LAPACK as the QR algorithm with Wilkinson's shifts.

All is computed in complex numbers. First reflections make the matrix upper Hessenberg. Then a loop sets small elements
below the diagonal to 0. In each step it goes through the last block that is left, and rotates neighboring rows and columns.
"""

from __future__ import annotations

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.stablehlo.ops.elementwise import conjugate, converted, magnitude, square_root
from ptir_tools.bridges.stablehlo.ops.lapack import each_matrix, option
from ptir_tools.bridges.stablehlo.ops.solving import adjoint, put
from ptir_tools.bridges.stablehlo.table import CUSTOM, Site, Tensor, refused, sizes_of
from ptir_tools.core.dtypes import CF32, CF64, F64, SI32
from ptir_tools.core.lazy import np

_NONE = ord("N")
_MOST = 40  # steps of the loop for each row


def geev(site: Site, a: Tensor) -> list[Tensor]:
    """Eigenvalues, left and right eigenvectors as columns, and the number of eigenvalues that were not found. The eigenvalues are
    in no order. Vectors have the norm 1, and their largest element is real."""
    asked = [option(site, name) != _NONE for name in ("compute_left", "compute_right")]

    def one(x: Tensor) -> list[Tensor]:
        t, z, left = schur(x)
        values = _diagonal(t)
        vectors = []
        for wanted, of_left in zip(asked, (True, False), strict=True):
            if wanted:
                triangle = reversed_along(reversed_along(adjoint(t, conj=True), 0), 1) if of_left else t
                found = _triangular_vectors(triangle)
                found = reversed_along(reversed_along(found, 0), 1) if of_left else found
                vectors.append(_normalized(z.dot_general(found, contract_lhs=[1], contract_rhs=[0])))
            else:
                vectors.append(t)  # nothing reads them
        return [*([values] if x.dtype.is_complex else [values.real(), values.imag()]), *vectors, left]

    return each_matrix([a], one, [2])


def gees(site: Site, a: Tensor) -> list[Tensor]:
    """The triangle of the Schur form, its unitary vectors, the eigenvalues, 0, and the number of those that were not found."""
    if not a.dtype.is_complex:
        raise refused("the Schur form of a real matrix in real blocks", 'convert it to complex numbers: output="complex"')
    if option(site, "sort") != _NONE:
        raise refused("a Schur form in an order that is chosen")

    def one(x: Tensor) -> list[Tensor]:
        t, z, left = schur(x)
        return [t, z, _diagonal(t), left * 0, left]

    return each_matrix([a], one, [2])


def schur(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`t`, `z` and 0 with `a = z t z^H`: `t` is upper triangular, `z` unitary. The number is not 0 where it is not found."""
    (n, _) = sizes_of(a)
    block = a.block
    x = converted(a, CF64 if a.dtype in (F64, CF64) else CF32)
    row, column = (block.iota([n, n], SI32, k) for k in (0, 1))
    unit = row.compare_eq(column).select(1, block.full(0, x))
    zero = block.constant(0, SI32)
    if n == 1:
        return x, unit, zero
    h, z = _hessenberg(x, unit)
    last = block.constant(n - 1, SI32)

    def test(h: Tensor, z: Tensor, high: Tensor, same: Tensor, count: Tensor) -> list[Tensor]:
        return [(high > 0).bitwise_and(count < _MOST * n), h, z, high, same, count]

    def body(h: Tensor, z: Tensor, high: Tensor, same: Tensor, count: Tensor) -> list[Tensor]:
        h, low, top = _deflated(h)
        same = top.compare_eq(high).select(same + 1, 0)
        shift = _shift(h, top, same)
        step = h.block.scan([h, z, low, top, shift], [h.block.iota([n - 1], SI32, 0)], _rotated)
        return [step[0], step[1], top, same, count + 1]

    found = block.while_([h, z, last, zero, zero], test, body)
    t = (row > column).select(0, found[0])
    return t, found[1], found[2]


def _element(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """An element of a matrix."""
    return x.dynamic_slice(x.block.concat([i.reshape([1]), j.reshape([1])], axis=0), [1, 1]).reshape([])


def _outer(column: Tensor, row: Tensor) -> Tensor:
    n, m = sizes_of(column)[0], sizes_of(row)[0]
    return column.reshape([n, 1]).broadcast_to([n, m]) * row.reshape([1, m]).broadcast_to([n, m])


def _hessenberg(a: Tensor, unit: Tensor) -> tuple[Tensor, Tensor]:
    """The Hessenberg form and its vectors, by a reflection for each column."""
    (n, _) = sizes_of(a)
    if n == 2:
        return a, unit

    def step(h: Tensor, z: Tensor, at: Tensor) -> list[Tensor]:
        here = at.broadcast_to([n])
        rows = h.block.iota([n], SI32, 0)
        zero = h.block.constant(0, SI32)
        column = h.dynamic_slice(h.block.concat([zero.reshape([1]), at.reshape([1])], axis=0), [n, 1]).reshape([n])
        rest = (rows > here).select(column, 0)
        scale = magnitude(rest).reduce_max([0])
        rest = rest * converted(1.0 / scale.compare_eq(0.0).select(1.0, scale), h.dtype).broadcast_to([n])
        first = rows.compare_eq(here + 1)
        alpha = first.select(rest, 0).reduce_sum([0])
        size = magnitude(alpha)
        norm = square_root((rest * conjugate(rest)).real().reduce_sum([0]))
        phase = size.compare_eq(0.0).select(1, alpha / converted(size.compare_eq(0.0).select(1.0, size), h.dtype))
        v = rest + first.select((phase * converted(norm, h.dtype)).broadcast_to([n]), 0)
        whole = (v * conjugate(v)).real().reduce_sum([0])
        factor = converted(whole.compare_eq(0.0).select(0.0, 2.0 / whole.compare_eq(0.0).select(1.0, whole)), h.dtype)
        w = v * factor.broadcast_to([n])
        h = h - _outer(w, conjugate(v).dot_general(h, contract_lhs=[0], contract_rhs=[0]))
        h, z = (x - _outer(x.dot_general(w, contract_lhs=[1], contract_rhs=[0]), conjugate(v)) for x in (h, z))
        return [h, z]

    found = a.block.scan([a, unit], [a.block.iota([n - 2], SI32, 0)], step)
    return found[0], found[1]


def _deflated(h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The matrix with 0 for small elements below the diagonal, and the first and last row of its last block; 0 and 0 for none."""
    (n, _) = sizes_of(h)
    row, column = (h.block.iota([n, n], SI32, k) for k in (0, 1))
    below = row.compare_eq(column + 1)
    under = magnitude(below.select(h, 0).reduce_sum([0])).slice([0], [n - 1])
    each = magnitude(_diagonal(h))
    near = each.slice([0], [n - 1]) + each.slice([1], [n - 1])
    near = near.compare_eq(0.0).select(each.reduce_max([0]).broadcast_to([n - 1]), near)
    live = under > near * float(np.finfo(np.float64 if h.dtype is CF64 else np.float32).eps)
    kept = below.bitwise_and(live.pad([0], [1]).reshape([1, n]).broadcast_to([n, n])).bitwise_or(row <= column)
    places = h.block.iota([n - 1], SI32, 0)
    top = live.select(places + 1, 0).reduce_max([0])
    gone = live.bitwise_not().bitwise_and(places < top.broadcast_to([n - 1]))
    return kept.select(h, 0), gone.select(places + 1, 0).reduce_max([0]), top


def _shift(h: Tensor, top: Tensor, same: Tensor) -> Tensor:
    """The eigenvalue of the last 2 by 2 elements of a block that is nearer to the last one; now and then another number."""
    before = (top - 1).maximum(0)
    a, b, c, d = (_element(h, i, j) for i in (before, top) for j in (before, top))
    delta, product = (a - d) * 0.5, b * c
    root = square_root(delta * delta + product)
    plus, minus = delta + root, delta - root
    most = (magnitude(plus) >= magnitude(minus)).select(plus, minus)
    none = magnitude(most).compare_eq(0.0)
    near = d - none.select(0, product / none.select(1, most))
    return same.rem(10).compare_eq(9).select(d + converted(magnitude(c), h.dtype), near)


def _rotated(h: Tensor, z: Tensor, low: Tensor, top: Tensor, shift: Tensor, k: Tensor) -> list[Tensor]:
    """A rotation of the rows `k` and `k + 1`, and of the same columns, inside a block."""
    (n, _) = sizes_of(h)
    first = k.compare_eq(low)
    j = first.select(k, (k - 1).maximum(0))
    a, b = _element(h, k, j) - first.select(shift, 0), _element(h, k + 1, j)
    most = magnitude(a).maximum(magnitude(b))
    idle = most.compare_eq(0.0).bitwise_or(k < low).bitwise_or(k >= top)
    scale = converted(most.compare_eq(0.0).select(1.0, most), h.dtype)
    a, b = a / scale, b / scale
    size = square_root((a * conjugate(a)).real() + (b * conjugate(b)).real())
    whole = converted(size.compare_eq(0.0).select(1.0, size), h.dtype)
    c, s = idle.select(1, a / whole), idle.select(0, b / whole)
    turn = h.block.concat([x.reshape([1]) for x in (conjugate(c), conjugate(s), -s, c)], axis=0).reshape([2, 2])
    zero = h.block.constant(0, SI32).reshape([1])
    rows, columns = (h.block.concat(x, axis=0) for x in ([k.reshape([1]), zero], [zero, k.reshape([1])]))
    pair = turn.dot_general(h.dynamic_slice(rows, [2, n]), contract_lhs=[1], contract_rhs=[0])
    h = h.dynamic_update_slice(pair, rows, [2, n])
    back = adjoint(turn, conj=True)
    h, z = (
        x.dynamic_update_slice(
            x.dynamic_slice(columns, [n, 2]).dot_general(back, contract_lhs=[1], contract_rhs=[0]), columns, [n, 2]
        )
        for x in (h, z)
    )
    return [h, z, low, top, shift]


def _diagonal(x: Tensor) -> Tensor:
    n = sizes_of(x)[0]
    row, column = (x.block.iota([n, n], SI32, k) for k in (0, 1))
    return row.compare_eq(column).select(x, 0).reduce_sum([1])


def _triangular_vectors(t: Tensor) -> Tensor:
    """The eigenvectors of an upper triangle as columns, from the last row up. Equal eigenvalues are taken as a bit apart."""
    (n, _) = sizes_of(t)
    values = _diagonal(t)
    least = magnitude(t).reduce_max([0, 1]) * float(np.finfo(np.float64 if t.dtype is CF64 else np.float32).eps)
    least = least.compare_eq(0.0).select(1.0, least).broadcast_to([n])
    down = t.block.constant(np.arange(n)[::-1].copy(), SI32)

    def step(y: Tensor, own: Tensor, floor: Tensor, at: Tensor, row: Tensor, value: Tensor) -> list[Tensor]:
        places, here = y.block.iota([n], SI32, 0), at.broadcast_to([n])
        known = (places > here).select(row, 0).dot_general(y, contract_lhs=[0], contract_rhs=[0])
        apart = value.broadcast_to([n]) - own
        apart = (magnitude(apart) < floor).select(converted(floor, y.dtype), apart)
        new = places.compare_eq(here).select(1, (places > here).select(-known / apart, 0))
        smaller = converted(1.0 / magnitude(new).maximum(1.0), y.dtype)  # they may grow by 1 / eps in each row
        return [put(y * smaller.reshape([1, n]).broadcast_to([n, n]), at, new * smaller), own, floor]

    return t.block.scan([t.block.full(0, t), values, least], [down, t.take(down), values.take(down)], step)[0]


def _normalized(v: Tensor) -> Tensor:
    """Columns of norm 1 whose largest element is real."""
    (n, _) = sizes_of(v)
    size = magnitude(v)
    most = size.reduce_max([0])
    v, size = v / converted(most, v.dtype).reshape([1, n]).broadcast_to([n, n]), size / most.reshape([1, n]).broadcast_to([n, n])
    norm = square_root((size * size).reduce_sum([0]))
    at = v.block.iota([n, n], SI32, 0).compare_eq(size.argmax(0).reshape([1, n]).broadcast_to([n, n]))
    phase = conjugate(at.select(v, 0).reduce_sum([0]))  # its absolute value is 1
    factor = phase / converted(norm, v.dtype)
    return v * factor.reshape([1, n]).broadcast_to([n, n])


_CALLS = {"geev": geev, "gees": gees}
CUSTOM.update({f"lapack_{kind}{name}_ffi": call for name, call in _CALLS.items() for kind in "sdcz"})
