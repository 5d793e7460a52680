"""Windows as strided views: for each tap of a window, a slice of the operand and a slice of the result."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd, prod

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.dialects.ptir.ops.numerics import identity, ufunc
from ptir_tools.dialects.ptir.ops.scalars import element
from ptir_tools.dialects.ptir.ops.window import overlapping_taps
from ptir_tools.engines.numpy.steps import NARROW, Builder, Step, Workshop, declared, in_f32, tensor_of
from ptir_tools.engines.thresholds import at

Tap = tuple[slice, slice]  # the places that see an element under the tap, and those elements
NOTHING: Tap = (slice(0, 0), slice(0, 0))


def tap(extent: int, places: int, offset: int, stride: int, low: int, base: int = 1) -> Tap:
    """The element under the tap at `offset` from a window's start, for all places along an axis. Elements are `base` apart,
    after `low` of padding. Places whose tap is on padding or between elements are omitted."""
    shift, common = low - offset, gcd(stride, base)
    if shift % common or extent == 0:
        return NOTHING
    period, step = base // common, stride // common
    first = max(0, -(-shift // stride))
    while (first * stride - shift) % base:
        first += 1
    last = min(places - 1, ((extent - 1) * base + shift) // stride)
    if last < first:
        return NOTHING
    count, start = (last - first) // period + 1, (first * stride - shift) // base
    return slice(first, last + 1, period), slice(start, start + (count - 1) * step + 1, step)


def along(axis: int, chosen: slice) -> tuple[slice, ...]:
    """The index of `chosen` along one axis, and of all of the axes before."""
    return (*[slice(None)] * axis, chosen)


def _reduce_window(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Axis by axis, first the one whose result is smallest: a window of 3 x 3 then has 6 taps, not 9."""
    x, (out,), dtype = ins[0], outs, tensor_of(op).dtype
    natural = F32 if dtype in NARROW else dtype
    kind, accum = op.attr("reduce"), op.attr("accum_dtype")
    if x.size == 0 or dtype.bits == 4 or (kind == "sum" and accum not in (None, natural)):
        return declared(op, ins, outs, shop)
    start = np.asarray(identity(kind, dtype), x.dtype)
    todo = [a for a in range(x.ndim) if not _is_trivial(op, a)]
    todo.sort(key=lambda a: out.shape[a] / x.shape[a])
    if not todo:
        return [(np.copyto, (out, x))]
    steps: list[Step] = []
    for axis in todo:
        shape = (*x.shape[:axis], out.shape[axis], *x.shape[axis + 1 :])
        total = out if axis == todo[-1] else shop.scratch(shape, natural)
        steps += _combine_taps(op, kind, axis, x, total, start)
        x = total
    return steps


def _is_trivial(op: Op, axis: int) -> bool:
    """Whether each window along `axis` is one element."""
    names = ("window_dims", "strides", "base_dilation")
    return all(op.attr(name)[axis] == 1 for name in names) and tuple(op.attr("padding")[axis]) == (0, 0)


def _combine_taps(op: Op, kind: str, axis: int, x: Array, total: Array, start: Array) -> list[Step]:
    """Combine the taps along one axis: first two taps that all places see, or `start` if there are fewer."""
    function = ufunc(kind)
    stride, (low, _) = op.attr("strides")[axis], op.attr("padding")[axis]
    base, dilation = op.attr("base_dilation")[axis], op.attr("window_dilation")[axis]
    extent, places = x.shape[axis], total.shape[axis]
    chosen = overlapping_taps(extent, places, op.attr("window_dims")[axis], stride, low, base, dilation)
    taps = [tap(extent, places, k * dilation, stride, low, base) for k in chosen]
    whole = [t for t in taps if t[0] == slice(0, places, 1)][:2]
    views = [x[along(axis, elements)] for _, elements in whole]
    steps: list[Step] = [(function, (*views, total)) if len(views) == 2 else (np.copyto, (total, start))]
    for seen, elements in taps:
        if (len(whole) < 2 or (seen, elements) not in whole) and (view := total[along(axis, seen)]).size:
            steps.append((function, (view, x[along(axis, elements)], view)))
    return steps


def _extract_patches(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Copy large windows as one view, of others the elements under each tap. Fill the rest."""
    x, (out,), window = ins[0], outs, op.attr("window")
    if x.size == 0 or out.size == 0:
        return declared(op, ins, outs, shop)
    fill = np.asarray(element(op.attr("pad_value"), tensor_of(op).dtype), numpy_dtype(tensor_of(op).dtype))
    spread: Any = out.reshape((*out.shape[:-1], *window, x.shape[-1]))
    steps: list[Step] = []
    if prod(window) >= at.taps:
        x = _padded(op, x, fill, shop, steps)
        across = x.strides[1:-1]
        apart = [s * n for name in ("strides", "dilation") for s, n in zip(across, op.attr(name), strict=True)]
        view = np.lib.stride_tricks.as_strided(x, spread.shape, (x.strides[0], *apart, x.strides[-1]), writeable=False)
        return [*steps, (np.copyto, (spread, view))]
    for offsets in product(*map(range, window)):
        inside = [slice(None)]
        source = [slice(None)]
        target = spread[(*[slice(None)] * (out.ndim - 1), *offsets)]
        for axis, k in enumerate(offsets):
            low = op.attr("padding")[axis][0]
            offset = k * op.attr("dilation")[axis]
            places, elements = tap(x.shape[axis + 1], out.shape[axis + 1], offset, op.attr("strides")[axis], low)
            outside = (slice(0, places.start), slice(places.stop, None))
            steps += [(np.copyto, (edge, fill)) for s in outside if (edge := target[(*inside, s)]).size]
            inside.append(places)
            source.append(elements)
        steps.append((np.copyto, (target[tuple(inside)], x[tuple(source)])))
    return steps


def _padded(op: Op, x: Array, fill: Array, shop: Workshop, steps: list[Step]) -> Array:
    """The image of patches with its padding; where a number is negative, elements are left out."""
    pads = [(0, 0), *op.attr("padding"), (0, 0)]
    if not any(map(any, pads)):
        return x
    out = shop.scratch(tuple(n + sum(p) for n, p in zip(x.shape, pads, strict=True)), tensor_of(op).dtype)
    inside = tuple(slice(max(low, 0), n - max(high, 0)) for n, (low, high) in zip(out.shape, pads, strict=True))
    kept = tuple(slice(max(-low, 0), n - max(-high, 0)) for n, (low, high) in zip(x.shape, pads, strict=True))
    steps += [(np.copyto, (out, fill)), (np.copyto, (out[inside], x[kept]))]
    return out


BUILDERS: dict[str, Builder] = {
    "window": in_f32(_reduce_window),
    "patches": _extract_patches,
}
