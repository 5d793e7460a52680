"""Strides of arrays that are viewed in other shapes, counted in elements."""

from __future__ import annotations

from functools import cache
from math import prod

from ptir_tools.core.ir import Extents, Strides


@cache
def dense_strides(shape: Extents) -> Strides:
    """The strides of a row-major array of `shape`."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def is_dense(shape: Extents, strides: Strides) -> bool:
    """Whether elements are in row-major order without gaps; axes of one element do not count."""
    if prod(shape) == 0:
        return True
    want = 1
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and s != want:
            return False
        want *= n
    return True


def restrided(shape: Extents, strides: Strides, out: Extents) -> Strides | None:
    """The strides in which an array of `shape` has the shape `out`; None if it has to be copied. Contiguous axes are one run;
    each axis of the result has to be a part of a run."""
    if is_dense(shape, strides):
        return dense_strides(out)
    runs: list[tuple[int, int]] = []  # (elements, stride), last axis first
    for n, s in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1 and runs and s == runs[-1][0] * runs[-1][1]:
            runs[-1] = (runs[-1][0] * n, runs[-1][1])
        elif n != 1:
            runs.append((n, s))
    steps: list[int] = []
    left, step = 1, 0
    for n in reversed(out):
        if left == 1 and n != 1:
            left, step = runs.pop(0)
        if left % n:
            return None
        steps.append(step)
        left, step = left // n, step * n
    return tuple(reversed(steps))


def as_it_is(op: object, shape: Extents, strides: Strides, out: Extents) -> tuple[int, Strides]:
    """The view of an op that returns its operand (`core.ir.View`)."""
    return 0, strides
