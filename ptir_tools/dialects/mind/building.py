"""Compositions of several Core v1 instructions: padding, zeros between elements, ones, one-hot rows.

Padding is a Conv2d with one tap of 1 and Custom padding. It sums no two numbers, so an infinity or a NaN stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt, prod

from ptir_tools.core.arrays import Array, numpy_dtype, to_literal
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.rewrite.expression import Term, function

Ints = tuple[int, ...]
Pairs = Sequence[tuple[int, int]]

NAMES = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "div": "Div",
    "neg": "Neg",
    "exp": "Exp",
    "log": "Log",
}
relu, gather, matmul, mean, total = map(function, ("Relu", "Gather", "MatMul", "Mean", "Sum"))

_ONE_HOT = 64  # rows of up to so many elements are looked up in an identity matrix; longer rows are products of two such rows


def constant(x: Term, array: object, dtype: DType | None = None) -> Term:
    """A ConstTensor with these elements, made where formulas on `x` are made; its dtype is that of `x` unless one is given."""
    made = np.asarray(array, numpy_dtype(dtype or x.dtype))
    return x.op("ConstTensor", value=to_literal(made, tensor(dtype or x.dtype, made.shape)))


def reshaped(x: Term, extents: Sequence[int]) -> Term:
    """`x` reshaped to `extents`; `x` itself when it has them."""
    return x if x.extents == tuple(extents) else x.op("Reshape", x, new_shape=tuple(extents))


def transposed(x: Term, order: Sequence[int]) -> Term:
    """`x` with its axes in another order; `x` itself when that is the order."""
    return x if list(order) == sorted(order) else x.op("Transpose", x, permutation=tuple(order))


def arranged(x: Term, order: Sequence[int], extents: Sequence[int]) -> Term:
    """`x` transposed by `order`, then reshaped; without the ops that change nothing."""
    return reshaped(transposed(x, order), extents)


def window(x: Term, starts: Ints, sizes: Ints) -> Term:
    """The elements of a box, or `x` itself when that is all of it."""
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return x if sizes == x.extents else x.op("Slice", x, starts=starts, ends=ends, steps=(1,) * len(ends))


def widened(x: Term, pairs: Pairs) -> Term:
    """`x` padded with zeros. Two neighboring axes at a time are the height and the width of images of one channel."""
    shape = x.extents
    if len(shape) == 4 and shape[3] == 1 and not any(pairs[0]) and not any(pairs[3]):  # `x` already has the form of such images
        return _around(x, shape, (pairs[1], pairs[2])) if any(map(any, pairs)) else x
    axis = 0
    while axis < len(pairs):
        if not any(pairs[axis]):
            axis += 1
            continue
        behind = prod(shape[axis + 2 :])
        image = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), 1)
        low, high = pairs[axis + 1] if axis + 1 < len(pairs) else (0, 0)
        x = _around(x, image, (pairs[axis], (low * behind, high * behind)))
        shape = tuple(d + sum(pairs[i]) if i in (axis, axis + 1) else d for i, d in enumerate(shape))
        axis += 2
    return x


def _around(x: Term, image: Ints, padding: Pairs) -> Term:
    """`x` reshaped to images of this shape, with zeros around each."""
    tap = constant(x, np.ones((1, 1, 1, 1)))
    return x.op("Conv2d", reshaped(x, image), tap, strides=(1, 1), padding=tuple(padding))


def spread(x: Term, interior: Sequence[int]) -> Term:
    """`x` with `interior` zeros between neighbors: each element is padded to a row, and the end of the last row is cut off."""
    shape = x.extents
    gaps = [g if d > 1 else 0 for g, d in zip(interior, shape, strict=True)]
    if not any(gaps):
        return x
    rows = reshaped(x, [d for n in shape for d in (n, 1)])
    rows = widened(rows, [p for g in gaps for p in ((0, 0), (0, g))])
    wide = tuple(d * (g + 1) for d, g in zip(shape, gaps, strict=True))
    return window(reshaped(rows, wide), (0,) * len(wide), tuple(d - g for d, g in zip(wide, gaps, strict=True)))


def stretched(x: Term, extents: Ints) -> Term:
    """`x` broadcast to `extents`: a product with ones, along one axis at a time where there are many."""
    have = (1,) * (len(extents) - len(x.extents)) + x.extents
    axes = [i for i, (a, b) in enumerate(zip(have, extents, strict=True)) if a != b]
    groups = [axes] if prod(extents[i] for i in axes) <= _ONE_HOT else [[i] for i in axes]
    for group in groups:
        x = x * constant(x, np.ones([extents[i] if i in group else 1 for i in range(len(extents))]))
    return reshaped(x, extents)


def one_hot(indices: Term, rows: int, dtype: DType) -> Term:
    """For each index below `rows`, a row of `dtype` with 1 at the index and 0 elsewhere. Many rows are made from two digits."""
    low = rows if rows <= _ONE_HOT else isqrt(rows - 1) + 1
    high = -(-rows // low)
    if high == 1:
        return gather(constant(indices, np.eye(rows), dtype), indices)
    shape = indices.extents

    def digit(values: Array, count: int) -> Term:
        return gather(constant(indices, np.eye(count), dtype), gather(constant(indices, values, SI64), indices))

    numbers = np.arange(rows)
    first = reshaped(digit(numbers // low, high), (*shape, high, 1))
    second = reshaped(digit(numbers % low, low), (*shape, 1, low))
    whole = reshaped(first * second, (*shape, high * low))
    return window(whole, (0,) * (len(shape) + 1), (*shape, rows))
