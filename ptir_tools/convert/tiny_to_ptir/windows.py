"""Tiny to PTIR: patterns of several nodes that are one PTIR op, mostly windows that are flattened or reduced."""

from __future__ import annotations

from ptir_tools.convert.emitter import Match, Pattern, Rule
from ptir_tools.convert.tiny_to_ptir.views import rounded
from ptir_tools.convert.to_ptir import PtirEmit
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32
from ptir_tools.core.expressions import Poly, constant, name, of_dim, to_dim
from ptir_tools.core.ir import Attribute, Op, Operand, Value
from ptir_tools.core.types import Shape
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.dialects.tiny.ops.reduce import identity
from ptir_tools.dialects.tiny.ops.view import axes_of, axis_name, pool_map
from ptir_tools.rewrite.vocabulary import made_by, tensor_type

Window = tuple[int, int, int]  # taps, stride, dilation
NOTHING: Window = (1, 1, 1)


def windows_of(view: Op, at: int, tapped: tuple[int, ...]) -> list[Window] | None:
    """The window along each axis of the source; None where `view`, a VIEW or POOL, does not make windows. The taps of the axes
    `tapped` are axes `at`, `at` + 1, … of the result; its other axes are placements, in the order of the source."""
    source, result = tensor_type(view.operands[0]), tensor_type(view.result)
    if view.defn.short == "POOL":
        ones = (1,) * len(view.attr("kernel"))
        entries = pool_map(source.rank, view.attr("stride") or ones, view.attr("dilation") or ones)
    elif view.attr("guard"):
        return None
    else:
        entries = view.attr("map")
    if 0 in (*source.shape, *result.shape):
        return None
    if result.rank != source.rank + len(tapped):
        return None
    listed: list[Window] = []
    for i, (d, entry) in enumerate(zip(source.shape, entries, strict=True)):
        here = i if i < at else i + len(tapped)
        taps = at + tapped.index(i) if i in tapped else None
        window = _window(of_dim(entry), here, taps, result.shape)
        if window is None:
            return None
        size, stride, dilation = window
        room, step = of_dim(d) - constant((size - 1) * dilation + 1), constant(stride)
        if result.shape[here] not in (to_dim(room // step + constant(1)), to_dim((room + step) // step)):
            return None
        listed.append(window)
    return listed


def _window(entry: Poly, here: int, taps: int | None, shape: Shape) -> Window | None:
    """The window of an entry `stride * @here + dilation * @taps`."""
    if not set(axes_of(entry)) <= {here, taps} or entry.quotients():
        return None
    at = {axis_name(a): constant(0) for a in (here, taps) if a is not None}
    zero, one = constant(0), constant(1)
    stride = (entry.put({**at, axis_name(here): one}) - entry.put(at)).value
    dilation = 1 if taps is None else (entry.put({**at, axis_name(taps): one}) - entry.put(at)).value
    if stride is None or dilation is None or entry.put(at) != zero:
        return None
    size = shape[taps] if taps is not None else 1
    if not isinstance(size, int):
        return None
    stride = stride if shape[here] != 1 or stride else 1
    dilation = dilation if size != 1 or dilation else 1
    line = constant(stride) * name(axis_name(here))
    if taps is not None:
        line = line + constant(dilation) * name(axis_name(taps))
    exact = line == entry or shape[here] == 1 or size == 1
    return (size, stride, dilation) if exact and min(stride, dilation) > 0 else None


def padded(x: Operand, value: float | None) -> tuple[Operand, tuple[tuple[int, int], ...]]:
    """The operand and widths of `x` where it is a PAD with `value`; else `x` and no padding."""
    none = ((0, 0),) * tensor_type(x).rank
    pad = made_by(x, "PAD")
    if pad is None or not all(isinstance(n, int) for pair in pad.attr("pad") for n in pair) or 0 in tensor_type(x).shape:
        return x, none
    dtype = tensor_type(x).dtype
    same = value is None or immediate(pad.attr("value"), dtype).same(immediate(value, dtype))
    return (pad.operands[0], pad.attr("pad")) if same else (x, none)


def patches(op: Op, options: Options) -> Match | None:
    """A RESHAPE of windows between the first and the last axis that puts taps and channels into one axis."""
    view = made_by(op.operands[0], "VIEW")
    if view is None:
        return None
    rank = tensor_type(view.operands[0]).rank
    if rank < 3:
        return None
    middle = tuple(range(1, rank - 1))
    shape = tensor_type(view.result).shape
    result = windows_of(view, rank - 1, middle)
    if result is None or result[0] != NOTHING or result[-1] != NOTHING or tensor_type(op.result).shape[:-1] != shape[: rank - 1]:
        return None
    x, pads = padded(view.operands[0], None)
    if any(pads[0]) or any(pads[-1]):
        x, pads = view.operands[0], ((0, 0),) * rank
    taps, strides, dilation = zip(*result[1:-1], strict=True)
    attrs: dict[str, Attribute] = {"window": taps, "strides": strides, "dilation": dilation, "padding": pads[1:-1]}
    if x is not view.operands[0]:
        pad = made_by(view.operands[0], "PAD")
        assert pad is not None
        attrs["pad_value"] = rounded(pad.attr("value"), tensor_type(x).dtype)
    return Match((x,), lambda emit, op, x: emit.last("extract_patches", x, **attrs))


def window_reduction(op: Op, options: Options) -> Match | None:
    """A REDUCE over all taps, those of the last axes of the source."""
    view, dtype = made_by(op.operands[0], "VIEW") or made_by(op.operands[0], "POOL"), op.attr("dtype")
    if view is None or op.attr("init") is not None:
        return None
    source = tensor_type(view.operands[0])
    rank, more = source.rank, tensor_type(view.result).rank - source.rank
    if source.dtype is not dtype and not (source.dtype.is_float and dtype is F32):
        return None
    if more < 1 or tuple(sorted(op.attr("axes"))) != tuple(range(rank, rank + more)):
        return None
    if (result := windows_of(view, rank, tuple(range(rank - more, rank)))) is None:
        return None
    kind = op.attr("op")
    x, pads = padded(view.operands[0], identity(kind, source.dtype))
    taps, strides, dilation = zip(*result, strict=True)
    attrs = {"window_dims": taps, "strides": strides, "padding": pads, "window_dilation": dilation, "reduce": kind.lower()}
    return Match((x,), lambda emit, op, x: _reduced(emit, op, x, attrs))


def _reduced(emit: PtirEmit, op: Op, x: Operand, attrs: dict[str, object]) -> Value:
    dtype = op.attr("dtype")
    if tensor_type(x).dtype is not dtype:
        x = emit("cast", x, dtype=dtype)
    rank = tensor_type(x).rank
    result: Value = emit.last("reduce_window", x, **attrs, base_dilation=(1,) * rank, accum_dtype=dtype)
    return result


def holes(op: Op, options: Options) -> Match | None:
    """Interior padding: each element becomes a padded row, the rows are joined, the last one is cut."""
    joined = made_by(op.operands[0], "RESHAPE")
    rows = made_by(joined.operands[0], "PAD") if joined is not None else None
    apart = made_by(rows.operands[0], "RESHAPE") if rows is not None else None
    if (
        joined is None
        or rows is None
        or apart is None
        or any(op.attr("lo"))
        or op.attr("step") not in (None, (1,) * len(op.attr("lo")))
    ):
        return None
    x = apart.operands[0]
    shape, pads, wide = tensor_type(x).shape, rows.attr("pad"), tensor_type(joined.result).shape
    gaps = [pair[1] for pair in pads[1::2]]
    if tensor_type(apart.result).shape != tuple(d for n in shape for d in (n, 1)) or 0 in shape:
        return None
    if not all(isinstance(g, int) for g in gaps):
        return None
    joins = tuple(to_dim(of_dim(n) * constant(g + 1)) for n, g in zip(shape, gaps, strict=True))
    ends = tuple(to_dim(of_dim(n) - constant(g)) for n, g in zip(joins, gaps, strict=True))
    if (wide, tuple(op.attr("hi"))) != (joins, ends):
        return None
    none = (0,) * len(shape)
    attrs = {"low": none, "high": none, "interior": tuple(gaps), "pad_value": rounded(rows.attr("value"), tensor_type(x).dtype)}
    return Match((x,), lambda emit, op, x: emit.last("pad", x, **attrs))


def _concat(axis: int) -> Rule:
    return lambda emit, op, x, y: emit.last("concat", x, y, axis=axis)


def match_concat(op: Op, options: Options) -> Match | None:
    """A concat: the ADD of two PADs by zeros, each as wide as the other's source."""
    first, last = (made_by(x, "PAD") for x in op.operands)
    if first is None or last is None or any(p.attr("value") != 0 for p in (first, last)):
        return None
    for a, b in ((first, last), (last, first)):
        pads = list(zip(a.attr("pad"), b.attr("pad"), strict=True))
        axes = [i for i, pairs in enumerate(pads) if pairs != ((0, 0), (0, 0))]
        if len(axes) != 1:
            return None
        (axis,) = axes
        before, after = (tensor_type(p.operands[0]).shape[axis] for p in (a, b))
        if pads[axis] == ((0, after), (before, 0)):
            operands = (a.operands[0], b.operands[0])
            return Match(operands, _concat(axis))
    return None


WINDOWS: dict[str, tuple[Pattern, ...]] = {
    "ADD": (match_concat,),
    "SHRINK": (holes,),
    "RESHAPE": (patches,),
    "REDUCE": (window_reduction,),
}
