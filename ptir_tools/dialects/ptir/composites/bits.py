"""Ops on bits, as sums, quotients and comparisons of integers. All are exact.

The bits of an integer are a new last axis, the lowest bit first, in si32 or si64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import I1, SI32, DType
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast
from ptir_tools.rewrite.constants import scalar_of
from ptir_tools.rewrite.expression import compare_eq, compare_ne, select

Pair = Callable[[Tensor, Tensor], Tensor]
Rule = Callable[[Site, Tensor], Tensor]


def complement(x: Tensor) -> Tensor:
    """The complement of each bit of integers."""
    return (x.dtype.max if x.dtype.min == 0 else -1) - x


def bitwise_not(site: Site, x: Tensor) -> Tensor:
    """Not, of flags or of each bit."""
    return select(x, False, site.full(True, x)) if x.dtype is I1 else complement(x)


def bitwise(truth: Pair, bit: Pair, lowest: Callable[[Tensor, int], Tensor]) -> Callable[[Site, Tensor, Tensor], Tensor]:
    """The rule of a bitwise op: `truth` of i1; of integers, `bit` of each pair of bits, each 0 or 1; `lowest` of integers and a
    number whose lowest bits alone are set."""

    def rule(site: Site, x: Tensor, y: Tensor) -> Tensor:
        if x.dtype is I1:
            return truth(x, y)
        for v, by in ((x, y), (y, x)):
            if (n := scalar_of(by.operand)) is not None and _is_lowest(int(n), x.dtype):
                return lowest(v, int(n))
        return _joined(bit(bits(site, x), bits(site, y)), x.dtype)

    return rule


def _is_lowest(n: int, dtype: DType) -> bool:
    """Whether only some of the lowest bits of `n` are set, or all bits (-1). The number above `n` is one of `dtype`."""
    return n == -1 or (0 < n <= dtype.max // 2 and n & (n + 1) == 0)


def _rest(x: Tensor, n: int) -> Tensor:
    """The lowest bits of integers, those of `n`."""
    return x.mod(n + 1)


bitwise_and = bitwise(lambda x, y: select(x, y, x), lambda x, y: x * y, lambda x, n: x if n < 0 else _rest(x, n))
bitwise_or = bitwise(
    lambda x, y: select(x, x, y), lambda x, y: x + y - x * y, lambda x, n: x - x - 1 if n < 0 else x - _rest(x, n) + n
)
bitwise_xor = bitwise(
    lambda x, y: select(x, select(y, False, x.block.full(True, x)), y),
    lambda x, y: (x - y) * (x - y),
    lambda x, n: complement(x) if n < 0 else x - _rest(x, n) * 2 + n,
)


def bits(site: Site, x: Tensor) -> Tensor:
    """The bits of integers. A product with a power of two moves each to the place of the sign. What is wider than any integer of
    the target has many bits of the sign."""
    wide, count = _width(site, x.dtype), x.dtype.bits
    spread = cast(x, wide).reshape((*x.shape, 1)).broadcast_to((*x.shape, count))
    moved = spread * _along(spread, [1 << max(wide.bits - 1 - k, 0) for k in range(count)])
    return cast(moved < 0, wide)


def _width(site: Site, dtype: DType) -> DType:
    """The dtype in which bits are computed."""
    return site.widest if dtype.bits > 32 or (dtype.min == 0 and dtype.bits == 32) else SI32


def _wrapped(numbers: Sequence[object], dtype: DType) -> Array:
    """Integers as `dtype` wraps them."""
    span = 1 << dtype.bits
    return np.asarray((np.asarray(numbers, np.object_) - dtype.min) % span + dtype.min, numpy_dtype(dtype))


def _along(x: Tensor, numbers: Sequence[int]) -> Tensor:
    """`numbers` along the last axis, in the type of `x`."""
    return x.block.constant(_wrapped(numbers, x.dtype), x.dtype).broadcast_to(x.shape)


def _joined(x: Tensor, dtype: DType) -> Tensor:
    """The integers of `dtype` with these bits."""
    return cast((x * _along(x, _weights(dtype, 0))).reduce_sum((x.rank - 1,)), dtype)


def _weights(dtype: DType, by: int, keeps_sign: bool = False) -> list[int]:
    """What each bit of `dtype` is worth after it was moved to the right by `by` places. `keeps_sign`: the highest stays, too."""
    n = dtype.bits
    rest = [1 << k - by if k >= by else 0 for k in range(n - 1)]
    if keeps_sign:
        return [*rest, (0 if dtype.min else 1 << n) - (1 << n - 1 - min(by, n - 1))]
    return [*rest, 0 if by >= n else -(1 << n - 1) if dtype.min and not by else 1 << n - 1 - by]


def reduced(bit: Callable[[Tensor, int], Tensor], empty: Callable[[DType], int]) -> Rule:
    """The rule of a reduction of integers: `bit` of the sums of bits and of the number of terms; `empty` where there are none."""

    def rule(site: Site, x: Tensor) -> Tensor:
        axes = [a % x.rank for a in site.root.attr("axes")]
        if not (n := prod(x.tensor_type.static_shape[a] for a in axes)):
            return site.filled(empty(x.dtype), site.result)
        return _joined(bit(bits(site, x).reduce_sum(axes), n), x.dtype).reshape(site.result.shape)

    return rule


def _all(total: Tensor, n: int) -> Tensor:
    """1 where a sum of `n` bits is `n`."""
    size = 1 << (n - 1).bit_length()
    return (total + (size - n) if size > n else total) / size


reduce_and = reduced(_all, lambda dtype: dtype.max if dtype.min == 0 else -1)
reduce_or = reduced(lambda total, n: 1 - _all(n - total, n), lambda dtype: 0)
reduce_xor = reduced(lambda total, n: total - total / 2 * 2, lambda dtype: 0)


def popcount(site: Site, x: Tensor) -> Tensor:
    """The number of set bits."""
    return cast(bits(site, x).reduce_sum((x.rank,)), x.dtype)


def count_leading_zeros(site: Site, x: Tensor) -> Tensor:
    """How many powers of two are above `x`, whose bits are read without a sign."""
    n, wide = x.dtype.bits, _width(site, x.dtype)
    v = cast(x, wide) if wide.bits < n else x
    least, top = v.dtype.min, v.dtype.bits - 1
    every = (v + least if least else v).reshape((*x.shape, 1)).broadcast_to((*x.shape, n))
    above = every < _along(every, [(1 << min(k, top)) + least for k in range(n)])
    return cast(cast(above, wide).reduce_sum((x.rank,)), x.dtype)


def shift(site: Site, x: Tensor, by: Tensor) -> Tensor:
    """To the left a product with a power of two. To the right the sum of what the bits are then worth. By a negative number, and
    by more than the width, as by the width."""
    n, kind = x.dtype.bits, site.root.defn.short
    steps = range(n + 1)
    one = scalar_of(by.operand)
    if one is not None:
        index = int(one) if 0 <= one < n else n
        steps = range(index, index + 1)
    else:
        least = by.dtype.min
        far = (by + least if least else by) >= n + least  # without signs a negative number is far, too
        place = cast(select(far, n, by), by.dtype if by.dtype in (SI32, site.widest) else SI32)
    if kind == "shift_left":
        powers = _wrapped([1 << k if k < n else 0 for k in steps], x.dtype)
        return x * (int(powers[0]) if one is not None else site.constant(powers, x.dtype).take(place))
    found = bits(site, x)
    weights = [_weights(x.dtype, k, kind == "shift_right_arithmetic") for k in steps]
    if one is not None:
        worth = _along(found, weights[0])
    else:
        worth = site.constant(_wrapped(weights, found.dtype), found.dtype).take(place)
    return cast((found * worth).reduce_sum((x.rank,)), x.dtype)


def power(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """Repeated squaring over the bits of the exponent; 1, -1 or 0 for a negative exponent."""
    shape, found = x.tensor_type.static_shape, bits(site, y)
    wide = cast(x, found.dtype)
    total, square = site.full(1, wide), wide
    for k in range(x.dtype.bits):
        bit = found.slice((*[0] * len(shape), k), (*shape, 1)).reshape(shape)
        total = select(compare_ne(bit, 0), total * square, total)
        square = square * square
        if k == 0:
            inverse = select(compare_eq(wide, -1), total, select(compare_eq(wide, 1), 1, wide - wide))
    total = select(cast(y, found.dtype) < 0, inverse, total)
    return cast(total if x.dtype is found.dtype else _lowest(total, x.dtype), x.dtype)


def _lowest(x: Tensor, dtype: DType) -> Tensor:
    """The lowest bits of a result in a wider dtype."""
    span = 1 << dtype.bits
    low = x.mod(span)
    return select(low > dtype.max, low - span, low)
