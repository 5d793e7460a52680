"""Helpers of type rules and bodies: broadcasting, checks of dtypes and axes, arithmetic with one rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ptir_tools.core.arrays import Array, narrow, widen
from ptir_tools.core.dtypes import DType
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Violation, attribute, free_axis, operand, require
from ptir_tools.dialects.mind.types import type_text

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


Extents = tuple[int, ...]
Result = TensorType  # annotation of a body's parameter that gets the declared result type


def broadcast(a: Extents, b: Extents, what: str = "") -> Extents:
    """The broadcast of two shapes (Shapes, broadcasting): right-aligned, missing axes are 1, extents equal or 1.

    Raises Violation("E3001") that names the first failing dimension of the aligned rank and both extents.
    """
    rank = max(len(a), len(b))
    left, right = ((1,) * (rank - len(s)) + s for s in (a, b))
    for i, (m, n) in enumerate(zip(left, right, strict=True)):
        if m != n and 1 not in (m, n):
            message = f"Broadcasting failed at dimension {i}: {what}{list(a)} and {list(b)} have extents {m} and {n} there"
            help = "extents must be equal, or one of them 1; add axes with ExpandDims or Reshape"
            raise Violation("E3001", message, help=help, at=operand(1))
    return tuple(n if m == 1 else m for m, n in zip(left, right, strict=True))


def same_dtype(a: TensorType, b: TensorType) -> None:
    """E2004: both operands have the same dtype. MIND has no implicit or explicit conversion."""
    message = f"Dtype mismatch: the operands are {type_text(a)} and {type_text(b)}"
    help = "MIND converts nothing implicitly: declare both with one dtype"
    require(a.dtype is b.dtype, "E2004", message, help=help, at=operand(1))


def float_only(op: str, x: TensorType) -> None:
    """E2005: the operand is f32 or f64."""
    require(x.dtype.is_float, "E2005", f"{op} needs f32 or f64, got {type_text(x)}")


def in_range(op: str, axes: Sequence[int], low: int, high: int, x: TensorType) -> None:
    """E3004: every axis is in [low, high)."""
    for i, a in enumerate(axes):
        if not low <= a < high:
            message = f"axis {a} of {op} is out of range [{low}, {high}) for {type_text(x)}"
            raise Violation("E3004", message, at=attribute("axes", i), instead=free_axis(axes, high))


def positive(shape: Sequence[int], name: str, free: int = 1) -> None:
    """E3006: the extents are positive, or `free`."""
    for i, d in enumerate(shape):
        if d < 1 and d != free:
            raise Violation("E3006", f"extent {d} of {name} {list(shape)}, at index {i}, is not positive", at=name)


def distinct(op: str, axes: Iterable[int], x: TensorType) -> None:
    """E3005: no axis is repeated."""
    seen: set[int] = set()
    axes = [*axes]
    for i, a in enumerate(axes):
        message = f"axis {a} of {type_text(x)} is given twice in the axes {axes} of {op}"
        require(a not in seen, "E3005", message, at=attribute("axes", i))
        seen.add(a)


CURRENT = "current"  # the profile of ops that Core v1 had not in its first text (`OpDef.own`)


def quotient(x: Array, y: Array) -> Array:
    """Integers divided, toward zero."""
    with np.errstate(all="ignore"):
        return np.asarray(x // y + ((x % y != 0) & ((x < 0) != (y < 0))))


def divides(op: Op, operands: Sequence[Array]) -> bool:
    """Whether a quotient may be folded: of integers, when no divisor is 0 and nothing wraps."""
    return bool(np.all(operands[1] != 0)) and exact(op, operands)


def rounded(compute: Callable[..., ArrayLike], dtype: DType, *operands: Array) -> Array:
    """`compute` of the operands in the precision of `widen`, rounded once to `dtype`. Integers wrap, except Python's."""
    if operands[0].dtype == object:
        return np.asarray(compute(*operands), object)
    with np.errstate(all="ignore"):
        return np.asarray(narrow(np.asarray(compute(*map(widen, operands))), dtype))


def exact(op: Op, operands: Sequence[Array]) -> bool:
    """Whether an arithmetic op may be folded: on integers, when nothing wraps (Canonicalization, constant folding: nothing
    unsafe). The body is run on Python integers to find out."""
    if any(x.dtype.kind == "f" for x in operands):
        return False
    (wrapped,) = evaluate(op, operands, Context())
    (whole,) = evaluate(op, [x.astype(object) for x in operands], Context())
    return bool(np.array_equal(wrapped.astype(object), whole))
