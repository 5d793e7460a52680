"""Which ops only look at their first operand's storage differently, and how: strides, counted in elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from math import prod
from typing import TYPE_CHECKING

from ptir_tools.core import arrays
from ptir_tools.core.ir import Literal, Op
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import TensorType
from ptir_tools.rewrite.constants import literal_of

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

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
    """Axes that lie as one are one run; each axis of the result has to be a part of a run."""
    if is_dense(shape, strides):
        return dense_strides(out)
    runs: list[tuple[int, int]] = []  # (elements, stride), last axis first
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and runs and s == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0] * n, runs[-1][1])
        elif n != 1:
            runs.append((n, s))
    found: list[int] = []
    left, step = 1, 0
    for n in reversed(out):
        if left == 1 and n != 1:
            left, step = runs.pop(0)
        if left % n:
            return None
        found.append(step)
        left, step = left // n, step * n
    return tuple(reversed(found))


def affine(indices: Array) -> tuple[int, Strides] | None:
    """(start, steps) when each index is `start` plus `steps` times its position; None when it is not."""
    if indices.size == 0:
        return None
    wide = indices.astype(np.int64)
    corner = (0,) * wide.ndim
    start = int(wide[corner])
    steps = tuple(int(wide[(*corner[:a], 1, *corner[a + 1 :])]) - start if n > 1 else 0 for a, n in enumerate(wide.shape))
    counted = np.full((), start, np.int64)
    for n, step in zip(wide.shape, steps, strict=True):
        counted = np.add.outer(counted, np.arange(n) * step)
    return (start, steps) if np.array_equal(counted, wide) else None


def windows(op: Op) -> tuple[int, Strides] | None:
    """(start, steps) of a `take` whose indices are constant, inside, and so spaced that it only looks: windows, strides,
    reversal. None for any other."""
    x, indices = (operand_type(o) for o in op.operands)
    literal = literal_of(op.operands[1])
    if literal is None or literal.data is None or not isinstance(x, TensorType) or not isinstance(indices, TensorType):
        return None
    found = _spaced(literal.data, literal.type, literal.splat)
    if found is None:
        return None
    start, steps = found
    ends = [step * (n - 1) for step, n in zip(steps, indices.static_shape, strict=True)]
    low, high = start + sum(e for e in ends if e < 0), start + sum(e for e in ends if e > 0)
    return found if low >= 0 and high < x.static_shape[0] else None


@lru_cache(64)
def _spaced(data: bytes, t: TensorType, splat: bool) -> tuple[int, Strides] | None:
    return affine(arrays.from_literal(Literal(t, data, splat)))


def _take(op: Op, shape: Extents, strides: Strides, out: Extents) -> Strides | None:
    found = windows(op)
    return found and (*(strides[0] * step for step in found[1]), *strides[1:])


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
    "ptir.take": ("view", _take),
}


def view(op: Op, shape: Extents, strides: Strides, out: Extents) -> tuple[str, Strides] | None:
    """(kind of alias, strides) when the result of `op`, of shape `out`, is a view of its first operand, seen with `shape`
    and `strides`; None when it is not."""
    found = VIEWS.get(op.name)
    seen = found[1](op, shape, strides, out) if found else None
    if found is None or seen is None:
        return None
    reordered = op.name == "ptir.reshape" and not is_dense(out, seen)
    return "view" if reordered else found[0], seen
