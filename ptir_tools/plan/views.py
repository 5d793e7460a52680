"""Which ops only look at their first operand's storage differently, and how: strides, counted in elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod

from ptir_tools.core.ir import Op

Extents = tuple[int, ...]
Strides = tuple[int, ...]


@cache
def dense_strides(shape: Extents) -> Strides:
    """The strides of a row-major array of `shape`."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def is_dense(shape: Extents, strides: Strides) -> bool:
    """Whether elements lie in row-major order without gaps; axes of one element do not count."""
    if prod(shape) == 0:
        return True
    want = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != want:
            return False
        want *= n
    return True


def _reshape(op: Op, shape: Extents, strides: Strides, out: Extents) -> Strides | None:
    return dense_strides(out) if is_dense(shape, strides) else None


def _same(op: Op, shape: Extents, strides: Strides, out: Extents) -> Strides:
    return strides


def _transpose(op: Op, shape: Extents, strides: Strides, out: Extents) -> Strides:
    return tuple(strides[axis] for axis in op.attr("perm"))


def _broadcast(op: Op, shape: Extents, strides: Strides, out: Extents) -> Strides:
    kept = (s if n == m else 0 for n, m, s in zip(shape, out[len(out) - len(shape) :], strides, strict=True))
    return (*(0 for _ in out[len(shape) :]), *kept)


# How each op sees its operand, and the strides of what it sees; None: it has to copy.
VIEWS: dict[str, tuple[str, Callable[[Op, Extents, Strides, Extents], Strides | None]]] = {
    "ptir.reshape": ("identity", _reshape),
    "ptir.stop_gradient": ("identity", _same),
    "ptir.transpose": ("view", _transpose),
    "ptir.broadcast_to": ("view", _broadcast),
    "ptir.slice": ("view", _same),
}


def view(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[str, Strides] | None:
    """(kind of alias, strides) when the result of `op`, of shape `out`, is a view of its first operand, seen with `shape`
    and `strides`; None when it is not."""
    found = VIEWS.get(op.name)
    seen = found[1](op, shape, strides, out) if found else None
    return (found[0], seen) if found and seen is not None else None
