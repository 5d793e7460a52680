"""PTIR to Tiny: windows, as PAD and a VIEW that reads each tap."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.convert.emitter import Rule
from ptir_tools.convert.ptir_to_tiny.emit import CARRIED, Data, TinyEmit, number_of
from ptir_tools.convert.ptir_to_tiny.movement import spread
from ptir_tools.convert.ptir_to_tiny.reductions import accumulator
from ptir_tools.convert.ranges import WIDE
from ptir_tools.core import expressions as ex
from ptir_tools.core.dtypes import SI32
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.types import Dim
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.dialects.tiny.ops.reduce import identity
from ptir_tools.dialects.tiny.ops.view import axis_name
from ptir_tools.rewrite.vocabulary import tensor_type

Window = tuple[int, int, int]  # taps, stride, dilation


def _reduce_window(emit: TinyEmit, op: Op, x: Data) -> Value:
    """A window reduction: the taps become axes after the windows' axes, which are reduced."""
    v = emit.node(x)
    kind: str = op.attr("reduce").upper()
    own = tensor_type(op.operands[0]).dtype
    empty = identity(kind, SI32 if own in WIDE else own)  # of its own range, where it is carried in a wider dtype
    holes = tuple(d - 1 for d in op.attr("base_dilation"))
    v = _padded(emit, spread(emit, v, holes, empty), op.attr("padding"), empty)
    windows = list(zip(*(op.attr(n) for n in ("window_dims", "strides", "window_dilation")), strict=True))
    rank = len(windows)
    view = _windows(emit, v, windows, rank)
    axes = tuple(range(rank, 2 * rank))
    result = emit("REDUCE", view, op=kind, axes=axes, dtype=accumulator(emit, op))
    if own in CARRIED and kind == "SUM":  # cast to the result's dtype, which saturates
        result = emit("MIN", emit("MAX", result, immediate(own.min, SI32)), immediate(own.max, SI32))
    return emit.settled(result)


def _extract_patches(emit: TinyEmit, op: Op, x: Data) -> Value:
    """Patches: the taps become axes between the windows' axes and the channels, then are flattened with these."""
    pairs = ((0, 0), *op.attr("padding"), (0, 0))
    v = _padded(emit, emit.node(x), pairs, number_of(op.attr("pad_value"), emit.type.dtype))
    middle = list(zip(*(op.attr(n) for n in ("window", "strides", "dilation")), strict=True))
    view = _windows(emit, v, [(1, 1, 1), *middle, (1, 1, 1)], len(middle) + 1, bare=True)
    places = tensor_type(view).shape[: len(middle) + 1]
    taps = ex.product(tensor_type(view).shape[len(middle) + 1 :])
    return emit.settled(emit("RESHAPE", view, result_shape=(*places, ex.to_dim(taps))))


def _padded(emit: TinyEmit, x: Value, pairs: Sequence[tuple[int, int]], value: object) -> Value:
    return emit("PAD", x, pad=tuple(map(tuple, pairs)), value=value) if any(map(any, pairs)) else x


def _windows(emit: TinyEmit, x: Value, windows: Sequence[Window], at: int, *, bare: bool = False) -> Value:
    """`x` with the taps of its axes as axes from `at` on; `bare`: only of those axes that are neither the first nor the last."""
    shape = tensor_type(x).shape
    tapped = [i for i in range(len(shape)) if not (bare and i in (0, len(shape) - 1))]
    places: list[Dim] = [_places(d, *w) for d, w in zip(shape, windows, strict=True)]
    result = [*places[:at], *(windows[i][0] for i in tapped), *places[at:]]
    entries = []
    for i, (_, stride, dilation) in enumerate(windows):
        here = ex.name(axis_name(i if i < at else i + len(tapped)))
        entry = ex.constant(stride) * here
        if i in tapped:
            entry = entry + ex.constant(dilation) * ex.name(axis_name(at + tapped.index(i)))
        entries.append(ex.to_dim(entry))
    return emit("VIEW", x, result_shape=tuple(result), map=tuple(entries))


def _places(extent: Dim, taps: int, stride: int, dilation: int) -> Dim:
    """The number of windows along an axis; 0 along one without elements."""
    if extent == 0:
        return 0
    room = ex.of_dim(extent) - ex.constant((taps - 1) * dilation + 1)
    return ex.to_dim(room // ex.constant(stride) + ex.constant(1))


WINDOWS: dict[str, Rule] = {"reduce_window": _reduce_window, "extract_patches": _extract_patches}
