"""Ops that move elements. Those that only look at them differently are views, and no step; these copy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrays
from ptir_tools.core.evaluate import Data, evaluate
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import lazy
from ptir_tools.dialects.ptir.ops.scalars import element
from ptir_tools.engines.numpy.steps import Builder, Step, Workshop, declared, tensor_of
from ptir_tools.plan.views import windows

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

# How each op that the plan may take for a view sees its operand: (op, operand, shape of the result).
VIEWS: dict[str, Callable[[Op, Any, tuple[int, ...]], Any]] = {
    "ptir.reshape": lambda op, x, shape: x.reshape(shape),
    "ptir.take": lambda op, x, shape: _windows(op, x, shape),
    "ptir.stop_gradient": lambda op, x, shape: x,
    "ptir.transpose": lambda op, x, shape: x.transpose(op.attr("perm")),
    "ptir.broadcast_to": lambda op, x, shape: np.broadcast_to(x, shape),
    "ptir.slice": lambda op, x, shape: view_of(x, _window(op.attr("starts"), shape)),
}


def _windows(op: Op, x: Any, shape: tuple[int, ...]) -> Array:
    """The rows that evenly spaced constant indices name."""
    found = windows(op)
    assert found is not None
    start, steps = found
    strides = (*(x.strides[0] * step for step in steps), *x.strides[1:])
    return arrays.strided(x[start:], shape, strides)


def view_of(x: Any, window: tuple[slice, ...]) -> Array:
    """The window as an array; that of a scalar is one, too, not its element."""
    found: Array = x[(*window, ...)]
    return found


def _window(starts: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))


def _copied(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """A view that has to be copied: a reshape of what does not lie in order."""
    x, (out,) = ins[0], outs
    if op.name == "ptir.reshape":
        return shop.copied(out.reshape(x.shape), x)
    return shop.copied(out, VIEWS[op.name](op, x, out.shape))


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
    """Every axis in two: the repeats, over which the operand is broadcast, and its own extent."""
    x, (out,) = ins[0], outs
    repeated = out.reshape([n for pair in zip(op.attr("repeats"), x.shape, strict=True) for n in pair])
    return [(np.copyto, (repeated, x.reshape([n for extent in x.shape for n in (1, extent)])))]


def _iota(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    (counted,) = evaluate(op, (), shop.running.context)
    return [(np.copyto, (outs[0], counted))]


def _dynamic_slice(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(_copy_window, (ins[0], ins[1], op.attr("sizes"), outs[0]))]


def _copy_window(x: Array, start: Array, sizes: tuple[int, ...], out: Array) -> None:
    np.copyto(out, x[_clamped(x, start, sizes)])


def _clamped(x: Array, start: Array, sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """The window of `sizes` at `start`, moved into `x`."""
    first = [max(0, min(s, n - size)) for s, n, size in zip(start.tolist(), x.shape, sizes, strict=True)]
    return _window(first, sizes)


def _update(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """Copy, unless the operand is written over, then write the window."""
    x, update, start = ins
    (out,) = outs
    first: list[Step] = [] if np.may_share_memory(x, out) else [(np.copyto, (out, x))]
    return [*first, (_write_window, (out, update, start, op.attr("sizes")))]


def _write_window(out: Array, update: Array, start: Array, sizes: tuple[int, ...]) -> None:
    out[_clamped(out, start, sizes)] = update


BUILDERS: dict[str, Builder] = {
    **{name: _copied for name in VIEWS if name != "ptir.take"},
    "ptir.concat": _concat,
    "ptir.pad": _pad,
    "ptir.tile": _tile,
    "ptir.iota": _iota,
    "ptir.dynamic_slice": _dynamic_slice,
    "ptir.dynamic_update_slice": _update,
}
