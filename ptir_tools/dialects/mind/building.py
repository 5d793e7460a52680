"""Compositions of several Core v1 instructions: padding, zeros between elements, ones, one-hot rows.

`Build` makes an instruction and returns its value: `build(opcode, *operands, **attrs)`. Padding is a Conv2d with one tap of 1
and Custom padding. It sums no two numbers, so an infinity or a NaN stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isqrt, prod

from ptir_tools.core.arrays import Array, numpy_dtype, to_literal
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.ir import Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.rewrite.vocabulary import tensor_type

Build = Callable[..., Value]
Ints = tuple[int, ...]
Pairs = Sequence[tuple[int, int]]

_ONE_HOT = 64  # rows of so many elements are looked up in an identity matrix; longer ones are products of two such


def constant(build: Build, array: object, dtype: DType) -> Value:
    """A ConstTensor of these elements."""
    made = np.asarray(array, numpy_dtype(dtype))
    return build("ConstTensor", value=to_literal(made, tensor(dtype, made.shape)))


def reshaped(build: Build, x: Value, extents: Sequence[int]) -> Value:
    """`x` reshaped to `extents`; `x` itself when it has them."""
    return x if tensor_type(x).static_shape == tuple(extents) else build("Reshape", x, new_shape=tuple(extents))


def arranged(build: Build, x: Value, order: Sequence[int], extents: Sequence[int]) -> Value:
    """`x` transposed by `order`, then reshaped; without the ops that change nothing."""
    if list(order) != sorted(order):
        x = build("Transpose", x, permutation=tuple(order))
    return reshaped(build, x, extents)


def window(build: Build, x: Value, starts: Ints, sizes: Ints) -> Value:
    """The elements of a box, or `x` itself when that is all of it."""
    ends = tuple(a + n for a, n in zip(starts, sizes, strict=True))
    return x if sizes == tensor_type(x).static_shape else build("Slice", x, starts=starts, ends=ends, steps=(1,) * len(ends))


def widened(build: Build, x: Value, pairs: Pairs) -> Value:
    """`x` padded with zeros. Two neighboring axes at a time are the height and the width of images of one channel."""
    shape = tensor_type(x).static_shape
    if len(shape) == 4 and shape[3] == 1 and not any(pairs[0]) and not any(pairs[3]):  # x is such images
        return _around(build, x, shape, (pairs[1], pairs[2])) if any(map(any, pairs)) else x
    axis = 0
    while axis < len(pairs):
        if not any(pairs[axis]):
            axis += 1
            continue
        behind = prod(shape[axis + 2 :])
        image = (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]), 1)
        low, high = pairs[axis + 1] if axis + 1 < len(pairs) else (0, 0)
        x = _around(build, x, image, (pairs[axis], (low * behind, high * behind)))
        shape = tuple(d + sum(pairs[i]) if i in (axis, axis + 1) else d for i, d in enumerate(shape))
        axis += 2
    return x


def _around(build: Build, x: Value, image: Ints, padding: Pairs) -> Value:
    """`x` as images, with zeros around each."""
    tap = constant(build, np.ones((1, 1, 1, 1)), tensor_type(x).dtype)
    return build("Conv2d", reshaped(build, x, image), tap, strides=(1, 1), padding=tuple(padding))


def spread(build: Build, x: Value, interior: Sequence[int]) -> Value:
    """`x` with `interior` zeros between neighbors: each element is padded to a row, and the end of the last row is cut off."""
    shape = tensor_type(x).static_shape
    gaps = [g if d > 1 else 0 for g, d in zip(interior, shape, strict=True)]
    if not any(gaps):
        return x
    rows = reshaped(build, x, [d for n in shape for d in (n, 1)])
    rows = widened(build, rows, [p for g in gaps for p in ((0, 0), (0, g))])
    wide = tuple(d * (g + 1) for d, g in zip(shape, gaps, strict=True))
    return window(build, reshaped(build, rows, wide), (0,) * len(wide), tuple(d - g for d, g in zip(wide, gaps, strict=True)))


def stretched(build: Build, x: Value, extents: Ints) -> Value:
    """`x` broadcast to `extents`: a product with ones, along one axis at a time where there are many."""
    have = (1,) * (len(extents) - len(tensor_type(x).static_shape)) + tensor_type(x).static_shape
    axes = [i for i, (a, b) in enumerate(zip(have, extents, strict=True)) if a != b]
    groups = [axes] if prod(extents[i] for i in axes) <= _ONE_HOT else [[i] for i in axes]
    for group in groups:
        ones = np.ones([extents[i] if i in group else 1 for i in range(len(extents))])
        x = build("Mul", x, constant(build, ones, tensor_type(x).dtype))
    return reshaped(build, x, extents)


def one_hot(build: Build, indices: Value, rows: int, dtype: DType) -> Value:
    """For each index below `rows`, a row of `dtype` with 1 at the index and 0 elsewhere. Many rows are made from two digits."""
    low = rows if rows <= _ONE_HOT else isqrt(rows - 1) + 1
    high = -(-rows // low)
    if high == 1:
        return build("Gather", constant(build, np.eye(rows), dtype), indices)
    shape = tensor_type(indices).static_shape

    def digit(values: Array, count: int) -> Value:
        return build("Gather", constant(build, np.eye(count), dtype), build("Gather", constant(build, values, SI64), indices))

    numbers = np.arange(rows)
    first = reshaped(build, digit(numbers // low, high), (*shape, high, 1))
    second = reshaped(build, digit(numbers % low, low), (*shape, 1, low))
    whole = reshaped(build, build("Mul", first, second), (*shape, high * low))
    return window(build, whole, (0,) * (len(shape) + 1), (*shape, rows))
