"""Contractions and convolutions with StableHLO's dimension numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import reduce
from math import prod

from ptir_tools.bridges.extent_ops import reversed_along
from ptir_tools.bridges.numbers import converted
from ptir_tools.bridges.stablehlo.ops.movement import padded
from ptir_tools.bridges.stablehlo.ops.reductions import placements
from ptir_tools.bridges.stablehlo.table import Site, Tensor, checked_axes, handles, refused, sizes_of
from ptir_tools.core.dtypes import F32, I1, SI8, DType, lossless
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import require

Axes = Sequence[int]


@handles("stablehlo.dot_general")
def dot_general(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """`dot_general`; `precision` and `algorithm` are ignored, since every engine is at least as precise."""
    generic = site.has("dot_dimension_numbers")
    if generic:
        f = site.fields("dot_dimension_numbers")
        batch = f.axes("lhs_batching_dimensions"), f.axes("rhs_batching_dimensions")
        contract = f.axes("lhs_contracting_dimensions"), f.axes("rhs_contracting_dimensions")
    else:
        batch, contract = (_pair(site, name) for name in ("batching_dims", "contracting_dims"))
    for side, t in ((0, x), (1, y)):
        for kind, pair in (("batching", batch), ("contracting", contract)):
            name = f"{'rhs' if side else 'lhs'}_{kind}_dimensions" if generic else f"{kind}_dims"
            checked_axes(pair[side], t.rank, name, first=len(pair[0]) if side and not generic else 0)
        both = next((a for a in contract[side] if a in batch[side]), None)
        require(both is None, "InvalidAttributeValue", f"axis {both} of {t.type} is a batch axis and contracted")
    return contracted(site, x, y, batch, contract, site.dtype)


def _pair(site: Site, name: str) -> tuple[list[int], list[int]]:
    result = site.value(name, [[], []])
    fine = isinstance(result, list) and len(result) == 2 and all(isinstance(side, list) for side in result)
    fine = fine and all(type(a) is int for side in result for a in side)
    require(fine, "InvalidAttributeValue", f"`{name}` is `[…] x […]`")
    return result[0], result[1]


@handles("stablehlo.dot")
def dot(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """`dot` of vectors or matrices: the last axis of the left side with the first of the right."""
    return contracted(site, x, y, ([], []), ([x.rank - 1], [0]), site.dtype)


def contracted(site: Site, x: Tensor, y: Tensor, batch: tuple[Axes, Axes], contract: tuple[Axes, Axes], result: DType) -> Tensor:
    """A `dot_general` whose operands and result may differ in dtype. Products are in the result's dtype."""
    wanted = result
    if result is I1:
        result = SI8 if prod(d for d in x.shape if isinstance(d, int)) < 128 else F32
    if not result.is_float or not all(t.dtype.is_float for t in (x, y)) or x.dtype is not y.dtype:
        wide = result if not x.dtype.is_float or lossless(x.dtype, result) else x.dtype
        wide = y.dtype if y.dtype.is_float and not lossless(y.dtype, wide) else wide
        x, y = converted(x, wide), converted(y, wide)
    accum = None if not x.dtype.is_float or x.dtype.bits > 32 else F32 if result.bits <= 32 else result
    axes = {"batch_lhs": batch[0], "batch_rhs": batch[1], "contract_lhs": contract[0], "contract_rhs": contract[1]}
    output = x.dot_general(y, **axes, accum_dtype=accum, out_dtype=result)
    return output if wanted is result else converted(output, wanted)


class Layout(NamedTuple):
    """The axes of an operand: batch (or the kernel's outputs), features (or its inputs), and the spatial axes in order."""

    outer: int
    feature: int
    spatial: tuple[int, ...]


def _layout(labels: Sequence[str], outer: str, feature: str) -> Layout:
    spatial = sorted(int(s) for s in labels if str(s).isdigit())
    fine = spatial == list(range(len(labels) - 2)) and outer in labels and feature in labels
    require(fine, "InvalidAttributeValue", f"[{', '.join(labels)}] names no layout of a convolution")
    return Layout(labels.index(outer), labels.index(feature), tuple(labels.index(str(s)) for s in spatial))


class Geometry(NamedTuple):
    """The geometry of a convolution: strides, dilations and padding, per spatial axis."""

    strides: Sequence[int]
    padding: Sequence[tuple[int, int]]
    base: Sequence[int]
    dilation: Sequence[int]
    reversed: Sequence[bool]


@handles("stablehlo.convolution", dim_numbers="dimension_numbers")
def convolution(site: Site, x: Tensor, kernel: Tensor) -> Tensor:
    """A convolution with strides, dilations, padding that may be negative, groups of features or batches, and any layout."""
    return convolved(site, x, kernel, None)


@handles("stablehlo.dynamic_conv", dim_numbers="dimension_numbers")
def dynamic_conv(site: Site, x: Tensor, kernel: Tensor, padding: Tensor) -> Tensor:
    """A convolution whose padding is an operand."""
    flat = [int(n) for n in site.read(padding, "padding").reshape(-1)]
    return convolved(site, x, kernel, list(zip(flat[0::2], flat[1::2], strict=True)))


def convolved(site: Site, x: Tensor, kernel: Tensor, padding: list[tuple[int, int]] | None) -> Tensor:
    """Patches contracted with the kernel, in the layout [N, spatial…, C]."""
    labels = _labels(site)
    lhs, rhs, out = (_layout(part, *names) for part, names in zip(labels, ("bf", "oi", "bf"), strict=True))
    spatial = x.rank - 2
    for what, given, names in (("operand", x, labels[0]), ("kernel", kernel, labels[1])):
        message = f"`dimension_numbers` names {len(names)} axes of the {what}, which is {given.type}"
        require(given.rank == len(names), "OperandRankMismatch", message)
    require(x.rank == kernel.rank, "OperandRankMismatch", f"the operand has {x.rank} axes, and the kernel {kernel.rank}")
    geometry = _geometry(site, spatial, padding)
    groups, batches = site.integer("feature_group_count", 1), site.integer("batch_group_count", 1)
    wide = site.dtype if not site.dtype.is_float else x.dtype
    x, kernel = converted(x, wide), converted(kernel, wide)
    x = x.transpose([lhs.outer, *lhs.spatial, lhs.feature])
    kernel = kernel.transpose([*rhs.spatial, rhs.feature, rhs.outer])
    kernel = reduce(reversed_along, [i for i, turned in enumerate(geometry.reversed) if turned], kernel)
    if batches > 1:  # each group of batches becomes a group of features
        n, *middle, c = sizes_of(x)
        fine = n % batches == 0 and groups == 1
        require(fine, "InvalidAttributeValue", f"{batches} groups of {n} batches")
        split = x.reshape([batches, n // batches, *middle, c])
        moved = split.transpose([1, *range(2, spatial + 2), 0, spatial + 2])
        x, groups = moved.reshape([n // batches, *middle, batches * c]), batches
    y = _grouped(site, x, kernel, groups, geometry, site.dtype)
    order = [0] * (spatial + 2)
    for i, axis in enumerate((out.outer, *out.spatial, out.feature)):
        order[axis] = i
    return y.transpose(order)


def _labels(site: Site) -> list[list[str]]:
    result = site.value("dimension_numbers")
    if isinstance(result, str):  # #stablehlo.conv<[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]>
        parts = re.findall(r"\[([^\]]*)\]", result)
        result = [[word.strip() for word in part.split(",")] for part in parts]
    require(isinstance(result, list) and len(result) == 3, "InvalidAttributeValue", "`dim_numbers` is `[…]x[…]->[…]`")
    return [[str(s) for s in part] for part in result]


def _geometry(site: Site, rank: int, padding: list[tuple[int, int]] | None) -> Geometry:
    if site.has("window"):
        window = site.value("window")
        written = site.attrs["window"]
        if isinstance(window, dict) and isinstance(written, dict):
            site.attrs |= {_WINDOW[k]: v for k, v in written.items() if k in _WINDOW}
    strides, base = site.counts("window_strides", rank, 1, 1), site.counts("lhs_dilation", rank, 1, 1)
    turned = site.counts("window_reversal", rank, 0, 0)
    pads = padding if padding is not None else site.pairs("padding", rank)
    return Geometry(strides, pads, base, site.counts("rhs_dilation", rank, 1, 1), [bool(t) for t in turned])


_WINDOW = {
    "stride": "window_strides",
    "pad": "padding",
    "lhs_dilate": "lhs_dilation",
    "rhs_dilate": "rhs_dilation",
    "reverse": "window_reversal",
}


def _grouped(site: Site, x: Tensor, kernel: Tensor, groups: int, g: Geometry, result: DType) -> Tensor:
    """[N, spatial…, C] by [spatial…, C / groups, O]."""
    *window, inputs, outputs = sizes_of(kernel)
    channels = x.shape[-1]
    fine = channels == groups * inputs and outputs % groups == 0
    require(fine, "OperandShapeMismatch", f"{groups} groups of {channels} features by a kernel of {inputs} to {outputs}")
    along = zip(map(site.symbolic.extent, x.shape[1:-1]), window, g.strides, g.base, g.dilation, g.padding, strict=True)
    counts = [placements(*axis) for axis in along]
    if 0 in counts:
        return site.full(0, tensor(result, (x.shape[0], *map(site.symbolic.dim, counts), outputs)))
    x, pads = _spread(site, x, g)
    patches = x
    if window:
        t = x.tensor_type.with_shape([x.shape[0], *map(site.symbolic.dim, counts), math.prod(window) * groups * inputs])
        lists = {"strides": g.strides, "dilation": g.dilation, "padding": pads}
        patches = site.op("extract_patches", x, window, **lists, types=[t])
    places = patches.shape[:-1]
    n = len(window)
    rank = len(places)
    if groups == 1:
        laid = patches.reshape([*places, *window, channels])
        axes = list(range(rank, rank + n + 1))
        return contracted(site, laid, kernel, ([], []), (axes, list(range(n + 1))), result)
    laid = patches.reshape([*places, *window, groups, inputs])
    weight = kernel.reshape([*window, inputs, groups, outputs // groups])
    contract = ([*range(rank, rank + n), rank + n + 1], list(range(n + 1)))
    y = contracted(site, laid, weight, ([rank + n], [n + 1]), contract, result)
    return y.transpose([*range(1, rank + 1), 0, rank + 1]).reshape([*places, outputs])


def _spread(site: Site, x: Tensor, g: Geometry) -> tuple[Tensor, list[tuple[int, int]]]:
    """The input dilated and cropped by negative padding, and the rest of the padding."""
    if all(b == 1 for b in g.base) and min((n for pair in g.padding for n in pair), default=0) >= 0:
        return x, list(g.padding)
    low, high = (
        [0, *(min(pair[i], 0) if b == 1 else pair[i] for pair, b in zip(g.padding, g.base, strict=True)), 0] for i in (0, 1)
    )
    zero = site.full(0, x.tensor_type.with_shape(()))
    interior = [0, *(b - 1 for b in g.base), 0]
    left = [(max(p[0], 0), max(p[1], 0)) if b == 1 else (0, 0) for p, b in zip(g.padding, g.base, strict=True)]
    return padded(site, x, zero, low, high, interior), left


__all__ = ["contracted", "refused"]
