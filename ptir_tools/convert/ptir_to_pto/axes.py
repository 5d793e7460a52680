"""Axes that the values of a kernel share: what loops go over and tiles hold.

A dimension of a value is a product of axes, the outermost first; an extent of 1 is the product of none. A reshape splits axes, a
transposition reorders them, a broadcast adds some: none of the three moves anything. Values of one kernel meet by what the ops
say is equal; what is read from memory has axes of its own for every use.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.ir import Op
from ptir_tools.core.records import dataclass


@dataclass(slots=True, eq=False)
class Axis:
    """An extent. `parts` are the axes that it was split into, or the one that it was found to be equal to."""

    size: int
    parts: tuple[Axis, ...] = ()


Dim = tuple[Axis, ...]
Dims = tuple[Dim, ...]


def fresh(shape: Sequence[int]) -> Dims:
    """Axes of its own for every dimension."""
    return tuple(() if n == 1 else (Axis(n),) for n in shape)


def leaves(axes: Sequence[Axis]) -> Dim:
    """The axes that a product is made of now."""
    if not any(a.parts for a in axes):
        return tuple(axes)
    return tuple(leaf for a in axes for leaf in (leaves(a.parts) if a.parts else (a,)))


def resolved(dims: Dims) -> Dims:
    """`dims` in the axes of now."""
    return tuple(map(leaves, dims))


def flat(dims: Dims) -> Dim:
    """All axes of a value in order."""
    return leaves([a for dim in dims for a in dim])


def equal(xs: Sequence[Axis], ys: Sequence[Axis]) -> None:
    """Let two products of one size be the same elements in the same order, splitting axes where one goes on.

    Raises Violation where an extent is not a multiple of the other.
    """
    a, b = list(leaves(xs)), list(leaves(ys))
    while a and b:
        x, y = a.pop(), b.pop()
        if x.parts or y.parts:
            a += leaves([x])
            b += leaves([y])
        elif x is not y and x.size == y.size:
            y.parts = (x,)
        elif x is not y:
            large, small = (x, y) if x.size > y.size else (y, x)
            message = f"{large.size} elements cannot be counted out in rows of {small.size}"
            require(large.size % small.size == 0, NOT_TRANSLATABLE, message)
            large.parts = (Axis(large.size // small.size), Axis(small.size))
            a += leaves([x])
            b += leaves([y])


def aligned(xs: Dims, ys: Dims) -> None:
    """Let two values of one shape be indexed alike. Raises Violation."""
    for x, y in zip(xs, ys, strict=True):
        equal(x, y)


def viewed(op: Op, dims: Dims) -> Dims:
    """The dimensions of the result of a view of `VIEWS`, whose operand has `dims`. Raises Violation, also for a slice."""
    short, shape = op.defn.short, op.result.type.static_shape  # type: ignore[attr-defined]
    if short == "transpose":
        return tuple(dims[a % len(dims)] for a in op.attr("perm"))
    if short == "stop_gradient":
        return dims
    require(short != SLICE, NOT_TRANSLATABLE, "a part is taken of what is in memory, not of a view of it")
    made = fresh(shape)
    if short == "reshape":
        equal(flat(made), flat(dims))
        return made
    for x, y, old in zip(reversed(made), reversed(dims), reversed(op.operands[0].type.static_shape), strict=False):  # type: ignore[union-attr]
        if old != 1:
            equal(x, y)
    return made


SLICE = "slice"  # a view of memory alone: what it leaves out no kernel sees
VIEWS = ("reshape", "transpose", "broadcast_to", "stop_gradient", SLICE)


def distinct(dims: Dims) -> None:
    """Refuse a diagonal: one axis twice in a value."""
    axes = flat(dims)
    if len(set(axes)) < len(axes):
        raise Violation(NOT_TRANSLATABLE, "rows and columns of one value meet each other")


def size(axes: Sequence[Axis]) -> int:
    """How many elements a product of axes has."""
    return prod(a.size for a in axes)
