"""PTIR to MIND: pads, concats and windows.

A pad is a Conv2d by a 1x1 kernel of 1 with Custom padding, which is exact; windows are read by a Gather.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_mind.emit import MindEmit, Read
from ptir_tools.core.arrays import numpy_dtype, to_literal
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.mind.building import Ints, arranged, gather, reshaped, spread, widened
from ptir_tools.dialects.mind.building import total as sum_of
from ptir_tools.rewrite.expression import Term


def pad(emit: MindEmit, op: Op, x: Read) -> Term:
    """Conv2d by one tap of 1 with Custom padding makes room; a constant puts what is not 0 there."""
    low, high, interior = (op.attr(n) for n in ("low", "high", "interior"))
    v, t = emit.value(x), emit.type
    shape = v.extents
    wide = widened(spread(v, interior), tuple(zip(low, high, strict=True)))
    if fill := op.attr("pad_value").value:
        places = tuple(slice(a, a + d * (g + 1) - g, g + 1) for a, d, g in zip(low, shape, interior, strict=True))
        wide = _outside(emit, reshaped(wide, t.static_shape), places, fill)
    return settled(emit, wide, emit.value(x))


def _outside(emit: MindEmit, x: Term, places: tuple[slice, ...], fill: float) -> Term:
    """`x`, whose elements at `places` are those that count and all others 0, with `fill` there."""
    t = x.type
    emit.affords(t)
    values = np.full(t.static_shape, fill, numpy_dtype(t.dtype))
    values[places] = 0
    return x + emit.constant(to_literal(values, t))


def filled_around(emit: MindEmit, x: Term, pairs: Sequence[tuple[int, int]], shape: Ints, fill: float) -> Term:
    """`x` with `fill` around it, in this shape."""
    inner = tuple(slice(low, low + d) for (low, _), d in zip(pairs, x.extents, strict=True))
    wide = reshaped(widened(x, pairs), shape)
    return _outside(emit, wide, inner, fill) if fill and wide is not x else wide


def settled(emit: MindEmit, x: Term, *operands: Term) -> Term:
    """`x` in the shape and under the name of the result; one of the operands is left as it is."""
    if x.shape != emit.shape:
        return emit.last("Reshape", x, new_shape=emit.shape)
    if all(x.operand is not y.operand for y in operands):
        emit.rename(x)
    return x


def concat(emit: MindEmit, op: Op, *operands: Read) -> Term:
    """The sum of the parts, each widened by zeros where the others are."""
    axis, whole = op.attr("axis") % emit.type.rank, emit.type
    parts = [v for v in map(emit.value, operands) if v.shape[axis] != 0]
    total, at = None, 0
    for v in parts:
        n = v.extents[axis]
        pairs = [(0, 0)] * whole.rank
        pairs[axis] = at, whole.static_shape[axis] - at - n
        wide = widened(v, pairs)
        total, at = wide if total is None else total + wide, at + n
    assert total is not None
    return settled(emit, total, *parts)


def _extract_patches(emit: MindEmit, op: Op, x: Read) -> Term:
    """The taps of each window, flattened with the channels."""
    v, fill = emit.value(x), op.attr("pad_value").value
    pairs = ((0, 0), *op.attr("padding"), (0, 0))
    rank = len(pairs)
    shape, middle = padded_shape(v, pairs), tuple(range(1, rank - 1))
    v = filled_around(emit, v, pairs, shape, fill)
    steps = list(zip(*(op.attr(n) for n in ("window", "strides", "dilation")), strict=True))
    read = gathered(emit, v, middle, steps, emit.type.static_shape[1:-1])  # [places, taps, batch, channels]
    k = len(middle)
    return settled(emit, arranged(read, [2 * k, *range(2 * k), 2 * k + 1], emit.type.static_shape))


def reduce_window(emit: MindEmit, op: Op, x: Read) -> Term:
    """The sums over the taps of each window."""
    dtype = emit.type.dtype
    kind, fits = op.attr("reduce"), op.attr("accum_dtype") in (None, dtype)
    require(kind == "sum" and fits, NOT_TRANSLATABLE, f"MIND has no windows of {kind}s in {op.attr('accum_dtype')}")
    v = emit.value(x)
    holes = tuple(d - 1 for d in op.attr("base_dilation"))
    v = widened(spread(v, holes), op.attr("padding"))
    v = reshaped(v, padded_shape(emit.value(x), op.attr("padding"), holes))
    steps = list(zip(*(op.attr(n) for n in ("window_dims", "strides", "window_dilation")), strict=True))
    moved = [i for i, (taps, stride, _) in enumerate(steps) if (taps, stride) != (1, 1)]
    if not moved:
        return settled(emit, v, emit.value(x))
    places = [emit.type.static_shape[i] for i in moved]
    read = gathered(emit, v, moved, [steps[i] for i in moved], places)
    k = len(moved)
    total = sum_of(read, axes=tuple(range(k, 2 * k)), keepdims=False)
    order = [*moved, *(i for i in range(len(steps)) if i not in moved)]
    return settled(emit, arranged(total, [order.index(i) for i in range(len(order))], emit.type.static_shape))


def padded_shape(x: Term, pairs: Sequence[tuple[int, int]], holes: Ints = ()) -> Ints:
    """The shape of `x` with `holes` between neighbors and these widths around it."""
    shape = x.extents
    inner = [d + (d - 1) * g for d, g in zip(shape, holes or (0,) * len(shape), strict=True)]
    return tuple(low + d + high for d, (low, high) in zip(inner, pairs, strict=True))


def gathered(emit: MindEmit, x: Term, axes: Sequence[int], steps: Sequence[Ints], places: Sequence[int]) -> Term:
    """What the taps of windows along `axes` read, as [places of the axes, taps of the axes, other axes of `x`]."""
    shape = x.extents
    k, rest = len(axes), [i for i in range(len(shape)) if i not in axes]
    emit.affords(tensor(SI64, (*places, *(taps for taps, _, _ in steps))))
    index = np.zeros((1,) * (2 * k), np.int64)
    for n, (axis, (taps, stride, dilation)) in enumerate(zip(axes, steps, strict=True)):
        at = np.arange(places[n])[:, None] * stride + np.arange(taps)[None, :] * dilation
        index = index * shape[axis] + at.reshape([len(at) if i == n else taps if i == n + k else 1 for i in range(2 * k)])
    rows = arranged(x, [*axes, *rest], (prod(shape[a] for a in axes), *(shape[i] for i in rest)))
    return gather(rows, emit.constant(to_literal(index, tensor(SI64, index.shape))))


WINDOWS: dict[str, Rule] = {
    "pad": pad,
    "concat": concat,
    "extract_patches": _extract_patches,
    "reduce_window": reduce_window,
}
