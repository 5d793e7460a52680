"""Schur forms, eigenvalues and eigenvectors of any square matrices: the QR algorithm with Wilkinson's shifts.

All is computed in complex numbers. First reflections make the matrix upper Hessenberg. Then a loop sets small elements
below the diagonal to 0. In each step it goes through the last block that is left, and rotates neighboring rows and columns.
"""

from __future__ import annotations

from ptir_tools.bridges.linalg.factors import hessenberg, orthogonal
from ptir_tools.bridges.linalg.matrices import adjoint, diagonal, identity, put
from ptir_tools.bridges.numbers import conjugate, converted, magnitude, square_root
from ptir_tools.core.dtypes import CF32, CF64, F64, SI32
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Tensor

_MOST = 40  # steps of the loop for each row


def schur(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`t`, `z` and 0 with `a = z t z^H`: `t` is upper triangular, `z` unitary. The number is not 0 where it is not found."""
    (n, _) = a.tensor_type.static_shape
    block = a.block
    x = converted(a, CF64 if a.dtype in (F64, CF64) else CF32)
    zero = block.constant(0, SI32)
    if n == 1:
        return x, identity(1, x), zero
    most = magnitude(x).reduce_max([0, 1])
    scale = converted(most.compare_eq(0).select(1, most), x.dtype).broadcast_to([n, n])  # so that no product overflows
    h, taus = hessenberg(x / scale)
    turned = orthogonal(h.slice([1, 0], [n - 1, n - 1]), taus).pad([1, 1], [0, 0])
    row, column = (block.iota([n, n], SI32, k) for k in (0, 1))
    z = row.maximum(column).compare_eq(0).select(1, turned)
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
    t = (row > column).select(0, found[0] * scale)
    return t, found[1], found[2]


def _element(x: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """An element of a matrix."""
    return x.dynamic_slice(x.block.concat([i.reshape([1]), j.reshape([1])], axis=0), [1, 1]).reshape([])


def _deflated(h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The matrix with 0 for small elements below the diagonal, and the first and last row of its last block; 0 and 0 for none."""
    (n, _) = h.tensor_type.static_shape
    row, column = (h.block.iota([n, n], SI32, k) for k in (0, 1))
    below = row.compare_eq(column + 1)
    under = magnitude(below.select(h, 0).reduce_sum([0])).slice([0], [n - 1])
    each = magnitude(diagonal(h))
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
    (n, _) = h.tensor_type.static_shape
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


def triangular_vectors(t: Tensor) -> Tensor:
    """The eigenvectors of an upper triangle as columns, from the last row up. Equal eigenvalues are taken as a bit apart."""
    (n, _) = t.tensor_type.static_shape
    values = diagonal(t)
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


def normalized(v: Tensor) -> Tensor:
    """Columns of norm 1 whose largest element is real."""
    (n, _) = v.tensor_type.static_shape
    size = magnitude(v)
    most = size.reduce_max([0])
    v, size = v / converted(most, v.dtype).reshape([1, n]).broadcast_to([n, n]), size / most.reshape([1, n]).broadcast_to([n, n])
    norm = square_root((size * size).reduce_sum([0]))
    at = v.block.iota([n, n], SI32, 0).compare_eq(size.argmax(0).reshape([1, n]).broadcast_to([n, n]))
    phase = conjugate(at.select(v, 0).reduce_sum([0]))  # its absolute value is 1
    factor = phase / converted(norm, v.dtype)
    return v * factor.reshape([1, n]).broadcast_to([n, n])
