"""Movement UOps (Tiny IR 2.1): they rearrange elements and compute nothing. VIEW and POOL are in `view`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise

from ptir_tools.core import errors
from ptir_tools.core import expressions as ex
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import moved, op
from ptir_tools.core.dtypes import DType
from ptir_tools.core.ir import MOVEMENT, PURE, Asks, Op, Operand
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.typed import TYPE_CHECKING, cast
from ptir_tools.core.types import Dim, Shape, Sym, TensorType
from ptir_tools.core.violations import Place, Violation, attribute, free_axis, require
from ptir_tools.dialects.tiny import immediates
from ptir_tools.dialects.tiny.ops.rules import Axes, Destination, Ints, Pads, Scalar, dim_text, shape_text, type_text
from ptir_tools.rewrite.vocabulary import of_same_type

if TYPE_CHECKING:
    from ptir_tools.dialects.tiny.ops.rules import Result

drawing = Later("ptir_tools.dialects.tiny.drawing")


def reshape_type(x: TensorType, *, result_shape: Shape) -> TensorType:
    """As many elements as before. A count that depends on symbols is checked when they are bound."""
    before, after = ex.product(x.shape), ex.product(result_shape)
    if before.value is not None and after.value is not None:
        message = f"{type_text(x)} has {before} elements, {shape_text(result_shape)} has {after}"
        require(before == after, "AxisSizeMismatch", message, at="result_shape")
    return x.with_shape(result_shape)


def permute_type(x: TensorType, *, perm: Ints) -> TensorType:
    """`perm` names every axis of `x` exactly once."""
    message = f"perm {list(perm)} does not name each of the {x.rank} axes of {type_text(x)} once"
    require(sorted(perm) == list(range(x.rank)), "InvalidPermutation", message, at="perm")
    return x.with_shape(x.shape[p] for p in perm)


@cache
def result_axes(shape: Shape, result: Shape, axes: Destination | None) -> Destination:
    """The result axis of every operand axis; None for those whose extent is written 1 and that have no result axis.

    `axes` has one entry per operand axis, or one per axis whose extent is not written 1; None aligns from the right.
    Raises Violation("BroadcastMismatch").
    """
    if axes is None:
        return tuple(range(len(result) - len(shape), len(result)))
    ones = [d == 1 for d in shape]
    given = [a for a in axes if a is not None]
    at = f"broadcast_dimensions {list(axes)}"
    for a in given:
        require(0 <= a < len(result), "BroadcastMismatch", f"{at}: the result has no axis {a}", at="broadcast_dimensions")
    rising = all(a < b for a, b in pairwise(given))
    require(rising, "BroadcastMismatch", f"{at} do not rise", at="broadcast_dimensions")
    if len(axes) == len(shape):
        return tuple(axes)
    message = f"{at} fit neither the {len(shape)} axes of {shape_text(shape)} nor the {ones.count(False)} that are not 1"
    require(len(axes) == ones.count(False), "BroadcastMismatch", message, at="broadcast_dimensions")
    rest = iter(axes)
    return tuple(None if one else next(rest) for one in ones)


def expand_type(x: TensorType, *, result_shape: Shape, broadcast_dimensions: Destination | None = None) -> TensorType:
    """Every extent of `x` is 1 or that of its result axis. A symbol there may be determined by this op, which `legalize`
    checks."""
    if broadcast_dimensions is None and x.rank > len(result_shape):
        raise Violation("BroadcastMismatch", f"{type_text(x)} has more axes than {shape_text(result_shape)}", at="result_shape")
    to = result_axes(x.shape, result_shape, broadcast_dimensions)
    for i, (d, a) in enumerate(zip(x.shape, to, strict=True)):
        fits = d == 1 or (a is not None and (d == result_shape[a] or isinstance(result_shape[a], Sym)))
        message = f"axis {i} of {type_text(x)} does not expand to axis {a} of {shape_text(result_shape)}"
        require(fits, "BroadcastMismatch", message, at="result_shape")
    return x.with_shape(result_shape)


def pad_type(x: TensorType, *, pad: Pads, value: Scalar = 0) -> TensorType:
    """A pair per axis, none negative, and a value of the dtype of `x`."""
    require(len(pad) == x.rank, "InvalidArg", f"pad has {len(pad)} pairs for {type_text(x)}", at="pad")
    for axis, low_high in enumerate(pad):
        for k, d in enumerate(low_high):
            good = not isinstance(d, int) or d >= 0
            require(good, "InvalidArg", f"the padding {d} is negative", at=attribute("pad", axis, k))
    immediates.require_fits(value, x.dtype, "the value of PAD", "NeutralInvalid", at="value")
    return x.with_shape(_sum(d, low, high) for d, (low, high) in zip(x.shape, pad, strict=True))


def _sum(*dims: Dim) -> Dim:
    if all(isinstance(d, int) for d in dims):
        return sum(d for d in dims if isinstance(d, int))
    total = ex.constant(0)
    for d in dims:
        total = total + ex.of_dim(d)
    return ex.to_dim(total)


def shrink_type(x: TensorType, *, lo: Shape, hi: Shape, step: Shape | None = None) -> TensorType:
    """`0 <= lo <= hi <= extent` and `step >= 1` on every axis; the result has `ceil((hi - lo) / step)` elements."""
    step = step or (1,) * len(lo)
    message = f"lo, hi and step have {len(lo)}, {len(hi)} and {len(step)} entries for {type_text(x)}"
    for name, given in (("lo", lo), ("hi", hi), ("step", step)):
        require(len(given) == x.rank, "InvalidArg", message, at=name)
    shape: list[Dim] = []
    for axis, (d, a, b, s) in enumerate(zip(x.shape, lo, hi, step, strict=True)):
        where = f"axis {axis} of {type_text(x)}: lo {dim_text(a)}, hi {dim_text(b)}"
        _require_order(0, a, where, attribute("lo", axis))
        _require_order(a, b, where, attribute("hi", axis))
        _require_order(b, d, where, attribute("hi", axis))
        good = not isinstance(s, int) or s >= 1
        require(good, "InvalidArg", f"the step {dim_text(s)} is not positive", at=attribute("step", axis))
        shape.append(_ceil_div(ex.of_dim(b) - ex.of_dim(a), ex.of_dim(s)))
    return x.with_shape(shape)


def _require_order(low: Dim, high: Dim, where: str, at: Place) -> None:
    """Check `low <= high`, where both are known."""
    difference = (ex.of_dim(high) - ex.of_dim(low)).value
    require(difference is None or difference >= 0, "InvalidArg", f"{where} is out of range", at=at)


def _ceil_div(a: ex.Poly, b: ex.Poly) -> Dim:
    return ex.to_dim((a + b - ex.constant(1)) // b)


def flip_type(x: TensorType, *, axes: Axes) -> TensorType:
    """The axes are those of `x`, none twice."""
    resolve_axes("FLIP", x, axes)
    return x


@cache
def resolve_axes(uop: str, x: TensorType, axes: Axes) -> tuple[int, ...]:
    """Axes as numbers, none twice. Negative ones count from the end; a text names the only axis whose extent is written so."""
    found = tuple([_resolve_axis(uop, x, axes, i) for i in range(len(axes))])
    written, twice = ", ".join(map(str, axes)), next((i for i, a in enumerate(found) if a in found[:i]), None)
    require(twice is None, "InvalidArg", f"axes [{written}] of {uop} name an axis twice", at=attribute("axes", twice or 0))
    return found


def _resolve_axis(uop: str, x: TensorType, axes: Axes, entry: int) -> int:
    axis = axes[entry]
    if isinstance(axis, str):
        return _resolve_name(uop, x, axis)
    if not -x.rank <= axis < x.rank:
        message = f"{uop}: {type_text(x)} has no axis {axis}"
        raise Violation("AxisOutOfRange", message, at=attribute("axes", entry), instead=free_axis(axes, x.rank))
    return axis % x.rank


def _resolve_name(uop: str, x: TensorType, text: str) -> int:
    found = [i for i, d in enumerate(x.shape) if dim_text(d) == text]
    require(found, "UnknownAxis", f"{uop}: no axis of {type_text(x)} is written {text}", at=text)
    places = " and ".join(map(str, found))
    help = "name the axis by its number"
    require(len(found) == 1, "AmbiguousAxis", f"{uop}: axes {places} of {type_text(x)} are {text}", at=text, help=help)
    return found[0]


def fold_permute(op: Op) -> Operand | None:
    """`x`, when the axes keep their order."""
    perm = op.attr("perm")
    return op.operands[0] if perm == tuple(range(len(perm))) else None


def fold_shrink(op: Op) -> Operand | None:
    """`x`, when the slice is all of it."""
    lo, step = op.attr("lo"), op.attr("step")
    return op.operands[0] if all(d == 0 for d in lo) and all(s == 1 for s in step or ()) else None


def fold_flip(op: Op) -> Operand | None:
    """`x`, when `axes` is empty."""
    return None if op.attr("axes") else op.operands[0]


@op("tiny.RESHAPE", infer=reshape_type, fold=of_same_type, traits=PURE | MOVEMENT)
def reshape(x: Array, *, result_shape: Shape) -> Array:
    """The elements of `x` in row-major order under another shape. Tiny IR 2.1."""
    return x.reshape(result_shape)


@op("tiny.PERMUTE", infer=permute_type, fold=fold_permute, traits=PURE | MOVEMENT)
def permute(x: Array, *, perm: Ints) -> Array:
    """Axis `i` of the result is axis `perm[i]` of `x`. Tiny IR 2.1."""
    return np.transpose(x, perm)


@op("tiny.EXPAND", infer=expand_type, fold=of_same_type, traits=PURE | MOVEMENT, generate=drawing.draw_expand)
def expand(x: Array, *, result_shape: Shape, broadcast_dimensions: Destination | None = None, result: Result) -> Array:
    """`x` repeated along axes that it lacks or where its extent is 1. `broadcast_dimensions` gives the result axis of every
    operand axis, or of those whose extent is not written 1. Without it the axes align from the right. Tiny IR 2.1."""
    to = result_axes(x.shape, result_shape, broadcast_dimensions)
    inner = [1] * len(result_shape)
    for n, a in zip(x.shape, to, strict=True):
        if a is not None:
            inner[a] = n
    return np.broadcast_to(x.reshape(inner), result.static_shape)


@op(
    "tiny.PAD",
    infer=pad_type,
    fold=of_same_type,
    traits=PURE | MOVEMENT,
    error=errors.moved(value=0),
    generate=drawing.draw_pad,
    asks=Asks(passed=moved),
)
def pad(x: Array, *, pad: Pads, value: Scalar = 0, result: Result) -> Array:
    """`x` with `lo` and `hi` elements `value` before and after it on every axis. Tiny IR 2.1."""
    dtype: DType = result.dtype
    return np.pad(x, cast("Sequence[tuple[int, int]]", pad), constant_values=immediates.as_array(value, dtype)) if x.ndim else x


@op("tiny.SHRINK", infer=shrink_type, fold=fold_shrink, traits=PURE | MOVEMENT, generate=drawing.draw_shrink)
def shrink(x: Array, *, lo: Shape, hi: Shape, step: Shape | None = None) -> Array:
    """Every `step`-th element of `x` from `lo` up to, not including, `hi` on every axis. Tiny IR 2.1."""
    steps = step or (1,) * len(lo)
    return x[tuple(slice(a, b, s) for a, b, s in zip(lo, hi, steps, strict=True))]


@op("tiny.FLIP", infer=flip_type, fold=fold_flip, traits=PURE | MOVEMENT)
def flip(x: Array, *, axes: Axes) -> Array:
    """`x` reversed along `axes`. Tiny IR 2.1."""
    return np.flip(x, cast("tuple[int, ...]", axes))
