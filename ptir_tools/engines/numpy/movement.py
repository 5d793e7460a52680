"""Ops that move elements by copies. Views need no step."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.evaluate import Context, Data, evaluate
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.dialects.ptir.ops.scalars import element
from ptir_tools.engines.numpy.steps import Builder, Step, Workshop, declared, tensor_of


def strided_view(op: Op, x: Array, shape: tuple[int, ...]) -> Array:
    """The operand `x` as the view of `op` (`core.ir.View`), in `shape`; a copy if necessary."""
    view = op.defn.view
    assert view is not None
    if view.in_order:
        return x.reshape(shape)
    size = x.itemsize
    result = view.seen(op, x.shape, tuple(s // size for s in x.strides), shape)
    if result is None or 0 in shape:
        return np.asarray(evaluate(op, (x,), Context())[0])
    start, strides = result
    steps = [s * size for s in strides]
    if x.flags.c_contiguous and x.dtype.isbuiltin == 1:
        return np.ndarray(shape, x.dtype, x, start * size, steps)  # like `strided`, which takes ten times as long
    return arrays.strided(x, shape, steps, start)


def view_of(x: Any, window: tuple[slice, ...]) -> Array:
    """The window as an array, also of a scalar."""
    result: Array = x[(*window, ...)]
    return result


def _window(starts: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))


def copied(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """A view that needs a copy: a reshape of a strided array."""
    x, (out,) = ins[0], outs
    assert op.defn.view is not None
    return shop.copied(out.reshape(x.shape), x) if op.defn.view.in_order else shop.copied(out, strided_view(op, x, out.shape))


def _concat(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(np.concatenate, (list(ins), op.attr("axis"), outs[0]))]


def _pad(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Fill, then write the elements between."""
    x, (out,) = ins[0], outs
    if x.size == 0 or out.size == 0:
        return declared(op, ins, outs, shop)
    inside = tuple(
        slice(low, low + (n - 1) * (gap + 1) + 1, gap + 1)
        for low, gap, n in zip(op.attr("low"), op.attr("interior"), x.shape, strict=True)
    )
    return [(np.copyto, (out, element(op.attr("pad_value"), tensor_of(op).dtype))), (np.copyto, (view_of(out, inside), x))]


def _tile(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Every axis is split into repeats, over which the operand is broadcast, and its own extent."""
    x, (out,) = ins[0], outs
    repeated = out.reshape([n for pair in zip(op.attr("repeats"), x.shape, strict=True) for n in pair])
    return [(np.copyto, (repeated, x.reshape([n for extent in x.shape for n in (1, extent)])))]


def _iota(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    (counted,) = evaluate(op, (), shop.running.context)
    return [(np.copyto, (outs[0], counted))]


def _dynamic_slice(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(copy_window, (ins[0], ins[1], op.attr("sizes"), outs[0]))]


def copy_window(x: Array, start: Array, sizes: tuple[int, ...], out: Array) -> None:
    """Copy the window of `sizes` at `start`, clamped to the bounds of `x`, to `out`."""
    np.copyto(out, x[_clamped(x, start, sizes)])


def _clamped(x: Array, start: Array, sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """The window of `sizes` at `start`, clamped to the bounds of `x`."""
    first = [max(0, min(s, n - size)) for s, n, size in zip(start.tolist(), x.shape, sizes, strict=True)]
    return _window(first, sizes)


def _update(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Copy the operand, unless it is overwritten, then write the window."""
    x, update, start = ins
    (out,) = outs
    first: list[Step] = [] if np.may_share_memory(x, out) else [(np.copyto, (out, x))]
    return [*first, (write_window, (out, update, start, op.attr("sizes")))]


def write_window(out: Array, update: Array, start: Array, sizes: tuple[int, ...]) -> None:
    """Copy `update` to the window of `sizes` at `start`, clamped to the bounds of `x`."""
    out[_clamped(out, start, sizes)] = update


BUILDERS: dict[str, Builder] = {
    "concat": _concat,
    "pad": _pad,
    "tile": _tile,
    "count": _iota,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update": _update,
}
