"""Windowed ops (contract: "Windowed ops", "Patch extraction"), of any rank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from ptir_tools.core import arrays, costs, errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.dtypes import DType
from ptir_tools.core.expressions import constant, of_dim, to_dim
from ptir_tools.core.extents import floordiv, maximum
from ptir_tools.core.extents import product as total_product
from ptir_tools.core.ir import MEASURES, PURE, InPlace, Op, Operand
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Dim, TensorType
from ptir_tools.core.violations import Place, require
from ptir_tools.core.violations import attribute as place
from ptir_tools.dialects.ptir.ops import numerics, scalars
from ptir_tools.dialects.ptir.ops.join import NO_PAD, ZERO_PAD, pad_fits
from ptir_tools.dialects.ptir.ops.kinds import ENUMERATIONS, Result, WindowKind
from ptir_tools.dialects.ptir.ops.typerules import (
    NUMERIC,
    ORDERED,
    accumulator,
    attribute,
    counts,
    default_accum,
    extents,
    repeated_default,
    rule,
    want,
)  # fmt: skip
from ptir_tools.rewrite.vocabulary import tensor_type

if TYPE_CHECKING:
    from ptir_tools.dialects.ptir.ops.scalars import Scalar

drawing = Later("ptir_tools.dialects.ptir.drawing")

Ints = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


def window_count(at: Place, extent: Dim, window: int, stride: int, pads: tuple[int, int], base: int, dilation: int) -> Dim:
    """The number of windows of `window` taps, `dilation` apart, that fit along an axis of `extent` elements, `base` apart.

    An empty axis without padding stays empty. Raises Violation("InvalidAttributeValue") at `at` when not even one fits.
    """
    low, high = pads
    if (window, stride, low, high, base) == (1, 1, 0, 0, 1) or (extent == 0 and low == high == 0):
        return extent
    effective = (window - 1) * dilation + 1
    if not isinstance(extent, int):
        p = of_dim(extent)
        if base > 1:
            p = maximum((p - constant(1)) * constant(base) + constant(1), constant(0))
        return to_dim(floordiv(p + constant(low + high - effective), constant(stride)) + constant(1))
    padded = (max(extent - 1, -1)) * base + 1 if extent else 0
    padded += low + high
    attribute(padded >= effective, f"a window that spans {effective} does not fit the padded extent {padded}", at)
    return (padded - effective) // stride + 1


def pads_of(padding: Pairs, rank: int) -> None:
    """Two counts per axis. Raises Violation("InvalidAttributeValue")."""
    attribute(len(padding) == rank, f"padding has {len(padding)} entries, expected {rank}", "padding")
    for i, p in enumerate(padding):
        attribute(len(p) == 2 and min(p) >= 0, "padding has a pair [low, high] of counts per axis", place("padding", i))


@rule
def reduce_window_type(
    x: TensorType,
    *,
    window_dims: Ints,
    strides: Ints,
    padding: Pairs,
    base_dilation: Ints,
    window_dilation: Ints,
    reduce: WindowKind,
    accum_dtype: DType | None,
) -> TensorType:
    """Five lists of one entry per axis. The dtype is one that the kind of reduction takes."""
    kinds = ENUMERATIONS["WindowKind"]
    attribute(reduce in kinds, f"reduce is one of {', '.join(kinds)}; got {reduce}", "reduce")
    want(x.dtype, NUMERIC if reduce == "sum" else ORDERED)
    accumulator(x.dtype, accum_dtype)
    for at, values in (("window_dims", window_dims), ("strides", strides), ("base_dilation", base_dilation)):
        counts(values, x.rank, at, least=1)
    counts(window_dilation, x.rank, "window_dilation", least=1)
    pads_of(padding, x.rank)
    places = (place("window_dims", axis) for axis in range(x.rank))
    shape = tuple(map(window_count, places, x.shape, window_dims, strides, padding, base_dilation, window_dilation))
    return x.with_shape(extents(shape, "padding"))


Tap = tuple["Array", "Array"]  # along one axis: the source index per window, and whether there is an element


def _axis_taps(extent: int, windows: int, offset: int, stride: int, low: int, base: int, dilation: int) -> Tap:
    """For each window along an axis, the index of the element at tap `offset`, and whether there is one (not padding, not a
    hole)."""
    at = np.arange(windows) * stride - low + offset * dilation
    real = (at >= 0) & (at <= (extent - 1) * base) & (at % base == 0)
    return np.where(real, at // base, 0), real


def overlapping_taps(extent: int, windows: int, size: int, stride: int, low: int, base: int, dilation: int) -> Sequence[int]:
    """The taps along an axis, of `size`, that meet an element in some window; all taps when there are few."""
    if extent * windows >= size:
        return range(size)
    far = np.arange(extent) * base + low - np.arange(windows)[:, None] * stride
    found = np.unique(far[(far % dilation == 0) & (far >= 0) & (far < size * dilation)] // dilation)
    return list(map(int, found))


def _taps(
    x: Array, fill: Array, windows: Sequence[int], chosen: Sequence[Sequence[int]], per_axis: Sequence[Ints]
) -> Iterator[Array]:
    """For each of the `chosen` positions in the window, row-major, the elements at it in every window; `fill` where there is
    none."""
    if 0 in x.shape:
        yield from (np.full(tuple(windows), fill, x.dtype) for _ in range(prod(map(len, chosen))))
        return
    table = [
        [_axis_taps(n, count, offset, *rest) for offset in offsets]
        for n, count, offsets, rest in zip(x.shape, windows, chosen, per_axis, strict=True)
    ]
    for taps in product(*table):
        real = np.ones((), np.bool_)
        for axis, (_, mask) in enumerate(taps):
            real = real & mask.reshape([-1 if a == axis else 1 for a in range(x.ndim)])
        yield np.where(real, x[np.ix_(*(index for index, _ in taps))], fill)


def is_pointwise(op: Op) -> bool:
    """Whether every window is one element, without padding, and the windows are all elements in order."""
    lists = (op.attr("window_dims"), op.attr("strides"), op.attr("base_dilation"))
    return all(n == 1 for ns in lists for n in ns) and not any(n for pair in op.attr("padding") for n in pair)


def fold_reduce_window(op: Op) -> Operand | None:
    """`x`, when each window is one element of it, unless floats are summed (0.0 + -0.0 is 0.0)."""
    x = op.operands[0]
    return x if is_pointwise(op) and numerics.keeps_one(op.attr("reduce"), tensor_type(x).dtype) else None


@op(
    "ptir.reduce_window",
    infer=reduce_window_type,
    fold=fold_reduce_window,
    traits=PURE | MEASURES,
    error=errors.by("reduce", sum=errors.linear()),
    generate=drawing.draw_reduce_window,
    inplace=InPlace("window"),
    factors=factors.kept_axes,
    cost=lambda op: costs.results(op) * costs.count(op.attr("window_dims")),
)
def reduce_window(
    x: Array,
    *,
    window_dims: tuple[int, ...],
    strides: tuple[int, ...],
    padding: tuple[tuple[int, int], ...],
    base_dilation: tuple[int, ...],
    window_dilation: tuple[int, ...],
    reduce: WindowKind = "sum",
    accum_dtype: DType | None = None,
    result: Result,
) -> Array:
    """Sum, max or min over each placement of a window. Contract: ReduceWindow.

    Along an axis, the elements are `base_dilation` apart and the taps of the window `window_dilation`. Padding and holes are left
    out. A window without elements gives the identity of `reduce`. There are
    `((extent - 1) * base + 1 + low + high - ((window - 1) * dilation + 1)) // stride + 1` windows. Accumulated in `accum_dtype`
    with the defaults of `reduce_sum`.
    InvalidAttributeValue: a list is not as long as the rank, an entry is under 1 (padding: 0), or no window fits.
    DTypeNotSupported: i1, or complex with max and min. InvalidAccumDTypeOverride: `accum_dtype` of another kind or narrower.
    """
    source = numerics.dtype_of(x)
    accum = accum_dtype or default_accum(source)
    wide = arrays.widen(arrays.cast(x, source, accum) if source.is_integer else x)
    fill = np.asarray(numerics.identity(reduce, source), wide.dtype)
    per_axis = [(s, p[0], b, d) for s, p, b, d in zip(strides, padding, base_dilation, window_dilation, strict=True)]
    sizes = zip(x.shape, result.static_shape, window_dims, strict=True)
    chosen = [overlapping_taps(*size, *rest) for size, rest in zip(sizes, per_axis, strict=True)]
    with np.errstate(all="ignore"):
        total = np.full(result.static_shape, fill, wide.dtype)
        for values in _taps(wide, fill, result.static_shape, chosen, per_axis):
            total = numerics.ufunc(reduce)(total, values)
        return numerics.cast_accumulated(np.asarray(total), accum, result.dtype)


@rule
def extract_patches_type(
    x: TensorType, *, window: Ints, strides: Ints, dilation: Ints, padding: Pairs, pad_value: Scalar
) -> TensorType:
    """`x` is [N, spatial…, C]; the lists have an entry per spatial axis."""
    require(x.rank >= 3, "OperandRankMismatch", f"expected batch, spatial and channel axes, got {x}")
    spatial = x.rank - 2
    for at, values in (("window", window), ("strides", strides), ("dilation", dilation)):
        counts(values, spatial, at, least=1)
    pads_of(padding, spatial)
    pad_fits(x, pad_value)
    places = (place("window", axis) for axis in range(spatial))
    middle = map(window_count, places, x.shape[1:-1], window, strides, padding, (1,) * spatial, dilation)
    channels, taps = x.shape[-1], prod(window)
    return x.with_shape(extents((x.shape[0], *middle, total_product((channels, taps))), "window"))


def fold_extract_patches(op: Op) -> Operand | None:
    """`x`, when each patch is one pixel of it."""
    plain = all(n == 1 for n in (*op.attr("window"), *op.attr("strides")))
    return op.operands[0] if plain and not any(n for pair in op.attr("padding") for n in pair) else None


@op(
    "ptir.extract_patches",
    infer=extract_patches_type,
    fold=fold_extract_patches,
    traits=PURE | MEASURES,
    error=errors.moved(pad_value=NO_PAD),
    generate=drawing.draw_extract_patches,
    inplace=InPlace("patches"),
    factors=factors.kept_axes,
)
def extract_patches(
    x: Array,
    *,
    window: tuple[int, ...],
    strides: tuple[int, ...] = repeated_default("window", 1),
    dilation: tuple[int, ...] = repeated_default("window", 1),
    padding: tuple[tuple[int, int], ...] = repeated_default("window", (0, 0)),
    pad_value: Scalar = ZERO_PAD,
    result: Result,
) -> Array:
    """Every placement of a window over `x: [N, spatial…, C]`, as [N, places…, prod(window) * C]. Contract: ExtractPatches.

    In the last axis the window is row-major and the channel innermost. The tap `k` of place `i` is at
    `i * stride - low + k * dilation`; outside `x` it is `pad_value`.
    OperandRankMismatch: the rank is under 3. InvalidAttributeValue: a list does not have one entry per spatial axis, an entry is
    under 1 (padding: 0), no window fits, or the dtype does not have `pad_value`.
    """
    fill = scalars.element(pad_value, numerics.dtype_of(x))
    return patches(x, fill, window, strides, dilation, padding, result.static_shape)


def patches(x: Array, fill: Array, window: Ints, strides: Ints, dilation: Ints, padding: Pairs, shape: Ints) -> Array:
    """The patches of `x`, an array of any dtype, with `fill` outside; `shape` is that of `extract_patches`."""
    whole = (1, 0, 1, 1)
    per_axis = [whole, *((s, p[0], 1, d) for s, p, d in zip(strides, padding, dilation, strict=True)), whole]
    places = (*shape[:-1], x.shape[-1])
    found = list(_taps(x, fill, places, [range(n) for n in (1, *window, 1)], per_axis))
    return np.stack(found, axis=-2).reshape(shape)
