"""Ops on bits, as sums, quotients and comparisons of integers. All are exact.

The bits of an integer are a new last axis, the lowest bit first, in si32 or si64.
"""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.dtypes import I1, SI32, SI64, DType
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast
from ptir_tools.rewrite.expression import compare_eq, compare_ne, maximum, minimum, select

Pair = Callable[[Tensor, Tensor], Tensor]


def complement(x: Tensor) -> Tensor:
    """The complement of each bit of integers."""
    return (x.dtype.max if x.dtype.min == 0 else -1) - x


def bitwise_not(site: Site, x: Tensor) -> Tensor:
    """Not, of flags or of each bit."""
    return select(x, False, site.full(True, x)) if x.dtype is I1 else complement(x)


def bitwise(truth: Pair, bit: Pair) -> Callable[[Site, Tensor, Tensor], Tensor]:
    """The rule of a bitwise op: `truth` of i1; of integers, `bit` of each pair of bits, each 0 or 1."""

    def rule(site: Site, x: Tensor, y: Tensor) -> Tensor:
        return truth(x, y) if x.dtype is I1 else _joined(bit(bits(site, x), bits(site, y)), x.dtype)

    return rule


bitwise_and = bitwise(lambda x, y: select(x, y, x), lambda x, y: x * y)
bitwise_or = bitwise(lambda x, y: select(x, x, y), maximum)
bitwise_xor = bitwise(lambda x, y: select(x, select(y, False, x.block.full(True, x)), y), lambda x, y: abs(x - y))


def bits(site: Site, x: Tensor) -> Tensor:
    """The bits of integers. They are the quotients by powers of two. Negative integers are complemented first, and their bits
    afterwards."""
    wide, count = _width(x.dtype), x.dtype.bits
    spread = cast(x, wide).reshape((*x.shape, 1))
    low = count if count < wide.bits else count - 1
    every = spread.broadcast_to((*x.shape, low))
    below = every < 0
    size = select(below, complement(every), every)
    quotient = _halves(size, low) if site.halving else _quotients(size)
    half = quotient / 2
    bit = quotient - half * 2
    found = select(below, 1 - bit, bit)
    return found if low == count else site.concat([found, cast(spread < 0, wide)], axis=x.rank)


def _width(dtype: DType) -> DType:
    """The dtype in which bits are computed."""
    return SI64 if dtype.bits > 32 or (dtype.min == 0 and dtype.bits == 32) else SI32


def _along(x: Tensor, numbers: object) -> Tensor:
    """`numbers` along the last axis, in the type of `x`."""
    return x.block.constant(np.asarray(numbers), x.dtype).broadcast_to(x.shape)


def _quotients(x: Tensor) -> Tensor:
    """`x` divided by the powers of two along the last axis."""
    return x / _along(x, [2**k for k in range(x.tensor_type.static_shape[-1])])


def _halves(x: Tensor, count: int) -> Tensor:
    """The same by divisions by 2 only: `x` is halved repeatedly, and the results are concatenated."""
    shape = x.tensor_type.static_shape
    zeros = (0,) * len(shape)
    found, n = x.slice(zeros, (*shape[:-1], 1)), 1
    while n < count:
        more = found
        for _ in range(n):
            more = more / 2
        found, n = x.block.concat([found, more], axis=len(shape) - 1), 2 * n
    return found if n == count else found.slice(zeros, shape)


def _joined(x: Tensor, dtype: DType) -> Tensor:
    """The integers of `dtype` with these bits."""
    places = [2**k for k in range(dtype.bits)]
    if dtype.min:
        places[-1] = -places[-1]
    return cast((x * _along(x, places)).reduce_sum((x.rank - 1,)), dtype)


def popcount(site: Site, x: Tensor) -> Tensor:
    """The number of set bits."""
    return cast(bits(site, x).reduce_sum((x.rank,)), x.dtype)


def count_leading_zeros(site: Site, x: Tensor) -> Tensor:
    """The width minus the position, counted from 1, of the highest set bit."""
    found, n = bits(site, x), x.dtype.bits
    highest = (found * _along(found, range(1, n + 1))).reduce_max((x.rank,))
    return cast(n - highest, x.dtype)


def shift(site: Site, x: Tensor, by: Tensor) -> Tensor:
    """The bits moved by a mask over pairs of positions: only the pairs with the right distance are kept."""
    found, n, kind = bits(site, x), x.dtype.bits, site.root.defn
    by = cast(by, found.dtype)
    far = by >= n
    if x.dtype.min:
        far = select(by < 0, True, far)
    by = select(far, n, by)
    shape = (*x.shape, n, n)  # [.., to, from]
    over = by.reshape((*x.shape, 1, 1))
    to, source = (
        site.constant(np.broadcast_to(np.arange(n)[i], (n, n)), found.dtype).broadcast_to(shape)
        for i in ((slice(None), None), (None, slice(None)))
    )
    over = over.broadcast_to(shape)
    place = to - over if kind.short == "shift_left" else to + over
    if kind.short == "shift_right_arithmetic":
        place = minimum(place, n - 1)
    taken = compare_eq(place, source)
    every = found.reshape((*x.shape, 1, n)).broadcast_to(shape)
    return _joined(select(taken, every, 0).reduce_sum((x.rank + 1,)), x.dtype)


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
    return cast(total if x.dtype is found.dtype else _wrapped(total, x.dtype), x.dtype)


def _wrapped(x: Tensor, dtype: DType) -> Tensor:
    """The lowest bits of a result in a wider dtype."""
    span = 1 << dtype.bits
    low = x.mod(span)
    return select(low > dtype.max, low - span, low)
