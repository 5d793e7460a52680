"""Fourier transforms of complex numbers along an axis."""

from __future__ import annotations

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.numbers import conjugate
from ptir_tools.core.lazy import np
from ptir_tools.core.transforms import roots
from ptir_tools.dialects.ptir.builder.build import Tensor

_DIRECT = 64  # the longest transform that is one product with its matrix
_MOST_PRIME = 4096  # the largest prime factor of a length


def refusal(n: int) -> str | None:
    """Why there is no transform of length `n`; None where there is one."""
    while n > _MOST_PRIME and (factor := _factor(n)) > 1:
        n //= factor
    return f"a transform of {n} elements, which has no small factor" if n > _MOST_PRIME else None


def _factor(n: int) -> int:
    """The largest factor of a length up to `_DIRECT`."""
    return next((d for d in range(min(_DIRECT, n - 1), 1, -1) if n % d == 0), 1)


def transformed(x: Tensor, axis: int, *, inverse: bool) -> Tensor:
    """The transform along an axis, of a length for which there is no `refusal`."""
    order = [*(a for a in range(x.rank) if a != axis), axis]
    y = _along_last(x if axis == x.rank - 1 else x.transpose(order), 1 if inverse else -1)
    n = x.tensor_type.static_shape[axis]
    if inverse and n > 1:
        y = y * (1 / n)
    return y if axis == x.rank - 1 else y.transpose([order.index(a) for a in range(x.rank)])


def _along_last(x: Tensor, sign: int) -> Tensor:
    """The unscaled transform along the last axis: a matrix product for short ones, otherwise by factors of the length."""
    *outer, n = x.tensor_type.static_shape
    if n == 1:
        return x
    rank, block = x.rank, x.block
    first = _factor(n)
    if n <= _DIRECT or first == 1:
        matrix = block.constant(roots(np.outer(np.arange(n), np.arange(n)), n, sign), x.dtype)
        return x.dot_general(matrix, contract_lhs=[rank - 1], contract_rhs=[0])
    second = n // first
    swapped = [*range(rank - 1), rank, rank - 1]
    inner = _along_last(x.reshape([*outer, first, second]).transpose(swapped), sign)  # [..., second, first]
    twist = block.constant(roots(np.outer(np.arange(second), np.arange(first)), n, sign), x.dtype)
    result = _along_last((inner * twist.broadcast_to(inner.shape)).transpose(swapped), sign)  # [..., first, second]
    return result.transpose(swapped).reshape([*outer, n])


def mirrored(x: Tensor, axis: int, n: int) -> Tensor:
    """The spectrum of `n` real numbers along an axis, of which `x` has the first half."""
    count = n - n // 2 - 1
    if not count:
        return x
    shape = x.tensor_type.static_shape
    part = x.slice([int(a == axis) for a in range(x.rank)], [count if a == axis else d for a, d in enumerate(shape)])
    return x.block.concat([x, conjugate(reversed_along(part, axis))], axis=axis)
