"""Ops that join or enlarge tensors (contract: "Shape and layout ops": Concat, Pad, Tile)."""

from __future__ import annotations

from ptir_tools.core import errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import moved, op
from ptir_tools.core.dtypes import F64
from ptir_tools.core.expressions import constant, of_dim, to_dim
from ptir_tools.core.extents import maximum, product, total
from ptir_tools.core.ir import MEASURES, MOVEMENT, PURE, Asked, Asks, Derived, InPlace, Need, Op, Operand, operand_type
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, TensorType
from ptir_tools.core.violations import operand, require
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import dtype_of
from ptir_tools.dialects.ptir.ops.typerules import (
    agree,
    attribute,
    axis_of,
    counts,
    extents,
    repeated_default,
    rule,
    same_dtype,
)  # fmt: skip

if TYPE_CHECKING:
    from ptir_tools.core.declare import Many
    from ptir_tools.dialects.ptir.ops.scalars import Scalar

drawing = Later("ptir_tools.dialects.ptir.drawing")

# The default of `pad_value`: zero of the operand's own kind.
ZERO_PAD: Scalar = Derived(  # type: ignore[assignment]
    lambda named, types: scalars.natural_zero(types[0].dtype) if types and isinstance(types[0], TensorType) else None
)

NO_PAD = scalars.natural_zero(F64)  # the pad of errors: a constant has no error


def pad_fits(x: TensorType, pad_value: Scalar) -> None:
    """Raise Violation("InvalidAttributeValue") unless an element of `x` can be `pad_value`."""
    fits = scalars.representable(pad_value, x.dtype)
    attribute(fits, f"pad_value {pad_value.value} is not representable in {x.dtype}", "pad_value")


@rule
def concat_type(xs: tuple[TensorType, ...], *, axis: int) -> TensorType:
    """One or more tensors of one dtype and rank, equal in extent except along `axis`."""
    require(xs, "OperandCountMismatch", "concat takes at least 1 operand, got 0")
    first = xs[0]
    at = axis_of(axis, first.rank)
    for n, x in enumerate(xs[1:], 1):
        same_dtype(first, x, of=(0, n))
        require(x.rank == first.rank, "OperandShapeMismatch", f"ranks differ: {first} and {x}", at=operand(n))
        for i, (a, b) in enumerate(zip(first.shape, x.shape, strict=True)):
            if i != at:
                agree(a, b, "OperandShapeMismatch", f"axis {i} of {first} and {x} differs, concatenated is {at}", operand(n))
    joined = total([x.shape[at] for x in xs])
    return first.with_shape(extents((*first.shape[:at], joined, *first.shape[at + 1 :]), "axis"))


def fold_concat(op: Op) -> Operand | None:
    """`x`, when it is the only operand."""
    return op.operands[0] if len(op.operands) == 1 else None


def concat_needs(op: Op, need: Need) -> Asked:
    """The bounds that a user needs of each operand: of a vector, the part for that operand."""
    if len(need.bounds) <= 1:
        return [(x, need.loosely()) for x in op.operands]
    parts, at = list[tuple[Operand, Need]](), 0
    for x in op.operands:
        t = operand_type(x)
        length = t.shape[0] if isinstance(t, TensorType) else 0
        end = at + (length if isinstance(length, int) else 0)
        parts.append((x, Need(need.bounds[at:end], need.nonzero, need.low) if end > at else need.loosely()))
        at = end
    return parts


@op(
    "ptir.concat",
    infer=concat_type,
    generate=drawing.draw_concat,
    fold=fold_concat,
    traits=PURE | MOVEMENT | MEASURES,
    inplace=InPlace("concat"),
    asks=Asks(passed=concat_needs),
    factors=factors.off_axis,
)
def concat(xs: Many, *, axis: int) -> Array:
    """The tensors one after the other along `axis`. Contract: Concat.

    InvalidAttributeValue: `axis` is out of range. OperandDTypeMismatch: the dtypes differ. OperandShapeMismatch,
    DynamicDimensionMismatch: ranks differ, or extents off the axis. OperandCountMismatch: no operand.
    """
    return np.concatenate(xs, axis=axis)


def _padded_extent(extent: Dim, low: int, high: int, interior: int) -> Dim:
    if isinstance(extent, int):
        return low + extent + high + max(extent - 1, 0) * interior
    p = of_dim(extent)
    between = maximum(p - constant(1), constant(0)) * constant(interior) if interior else constant(0)
    return to_dim(p + between + constant(low + high))


@rule
def pad_type(
    x: TensorType, *, low: tuple[int, ...], high: tuple[int, ...], interior: tuple[int, ...], pad_value: Scalar
) -> TensorType:
    """One low, high and interior count per axis, and a `pad_value` of the dtype."""
    for at, values in (("low", low), ("high", high), ("interior", interior)):
        counts(values, x.rank, at)
    pad_fits(x, pad_value)
    return x.with_shape(extents(tuple(map(_padded_extent, x.shape, low, high, interior)), "low"))


def fold_pad(op: Op) -> Operand | None:
    """`x`, when nothing is put before or after it and the result has its type."""
    return None if any(op.attr("low")) or any(op.attr("high")) else op.operands[0]


@op(
    "ptir.pad",
    infer=pad_type,
    fold=fold_pad,
    traits=PURE | MEASURES,
    error=errors.moved(pad_value=NO_PAD),
    inplace=InPlace("pad"),
    asks=Asks(passed=moved),
    factors=factors.kept_axes,
)
def pad(
    x: Array,
    *,
    low: tuple[int, ...],
    high: tuple[int, ...],
    interior: tuple[int, ...] = repeated_default("low", 0),
    pad_value: Scalar = ZERO_PAD,
    result: Result,
) -> Array:
    """`x` with `low` and `high` elements of `pad_value` before and after, `interior` between neighbors. Contract: Pad.

    An axis has `low + extent + high + max(extent - 1, 0) * interior` elements in the result.
    InvalidAttributeValue: a list is not as long as the rank or has a negative entry, or the dtype has no `pad_value`.
    """
    out = np.empty(result.static_shape, x.dtype)
    out[...] = scalars.element(pad_value, dtype_of(x))
    out[tuple(slice(a, a + n * (i + 1), i + 1) for a, n, i in zip(low, x.shape, interior, strict=True))] = x
    return out


def _times(extent: Dim, repeat: int) -> Dim:
    return product((extent, repeat))


@rule
def tile_type(x: TensorType, *, repeats: tuple[int, ...]) -> TensorType:
    """A count per axis."""
    counts(repeats, x.rank, "repeats")
    return x.with_shape(extents(tuple(map(_times, x.shape, repeats)), "repeats"))


def fold_tile(op: Op) -> Operand | None:
    """`x`, when every repeat is 1."""
    return op.operands[0] if all(n == 1 for n in op.attr("repeats")) else None


@op(
    "ptir.tile",
    infer=tile_type,
    fold=fold_tile,
    traits=PURE | MOVEMENT | MEASURES,
    inplace=InPlace("tile"),
    factors=factors.kept_axes,
)
def tile(x: Array, *, repeats: tuple[int, ...]) -> Array:
    """`x` as a whole, repeated `repeats[i]` times along each axis `i`. Contract: Tile.

    InvalidAttributeValue: `repeats` is not as long as the rank or has a negative entry.
    """
    return np.tile(x, repeats)
