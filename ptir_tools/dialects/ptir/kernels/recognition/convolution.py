"""Convolutions: patches contracted with weights, by group or for each channel, and a bias."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.dialects.ptir.kernels.recognition.replacement import Found, Number, vector
from ptir_tools.dialects.ptir.rewrites import helpers


def convolution(found: Found) -> Value | None:
    """gpt.rs's target for f32, else this toolkit's with one group."""
    geometry, dot = _geometry(found, found.root, 3), found.root
    taps = _taps(dot, 3)
    if geometry is None or taps is None or dot.attr("batch_lhs") or helpers.rank(dot.operands[1]) != len(taps) + 1:
        return None
    return _ungrouped(found, dot, taps, geometry)


def _ungrouped(found: Found, dot: Op, taps: Sequence[int], geometry: dict[str, Number], *bias: Operand) -> Value:
    outputs = next(i for i in range(len(taps) + 1) if i not in taps)
    weight = _packed(found, dot.operands[1], (*taps, outputs), _number(found.root, 3))
    if helpers.dtype(dot) is F32:
        return found.call("gpt_rs.c.conv2d.nhwc.f32.v1", found.input("x"), weight, *bias, **geometry)
    return found.call("ptir.conv2d.nhwc.v1", found.input("x"), weight, *bias, **geometry, groups=("I64", 1))


def matrix_convolution(found: Found) -> Value | None:
    """A convolution whose positions are the rows of a matrix, to which a bias may be added."""
    patches, dot = found.op("patches"), found.op("product")
    whole, taps = helpers.shape(patches), _taps(dot, 1)
    rows = helpers.shape(dot.operands[0])
    right = helpers.rank(dot.operands[1])
    if taps is None or dot.attr("batch_lhs") or len(rows) != 2 or rows[1] != whole[-1] or right != len(taps) + 1:
        return None
    geometry = _window(found) if helpers.rank(found.root) == 4 and helpers.shape(found.root)[:3] == whole[:3] else None
    bias = [vector(found, "bias", 1)] if "bias" in found.match.inputs else []
    return (
        None if geometry is None or None in bias else _ungrouped(found, dot, taps, geometry, *(b for b in bias if b is not None))
    )


def grouped_convolution(found: Found) -> Value | None:
    """gpt.rs's target for f32 where every channel is a group, else this toolkit's."""
    dot, moved = found.op("product"), found.op("moved")
    group = helpers.rank(dot.operands[0]) - 2
    geometry, taps = _geometry(found, dot, group), _taps(dot, 3, group)
    right = helpers.rank(dot.operands[1])
    batch = helpers.axes(dot.attr("batch_rhs"), right)
    if geometry is None or taps is None or len(batch) != 1 or right != len(taps) + 2 or helpers.rank(found.root) != 4:
        return None
    straight = len(moved.attr("perm")) == 5 and helpers.axes(moved.attr("perm"), 5) == (1, 2, 3, 0, 4)
    if not straight or helpers.axes(dot.attr("batch_lhs"), group + 2) != (group,):
        return None
    outputs = next(i for i in range(right) if i not in (*taps, *batch))
    groups, channels = (_number(dot.operands[0], group + k) for k in (0, 1))
    if channels == 1 == helpers.shape(dot)[4] and helpers.dtype(dot) is F32:
        weight = _packed(found, dot.operands[1], (*batch, *taps, outputs), None)
        return found.call("gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1", found.input("x"), weight, **geometry)
    weight = _packed(found, dot.operands[1], (*taps, *batch, outputs), _number(found.root, 3))
    return found.call("ptir.conv2d.nhwc.v1", found.input("x"), weight, **geometry, groups=("I64", groups))


def depthwise_convolution(found: Found) -> Value | None:
    """gpt.rs's target for f32, else this toolkit's with a group for each channel."""
    dot, moved = found.op("product"), found.root
    last = helpers.rank(dot.operands[0]) - 1
    geometry, taps = _geometry(found, dot, last), _taps(dot, 3, last)
    right = helpers.rank(dot.operands[1])
    batch = helpers.axes(dot.attr("batch_rhs"), right)
    straight = len(moved.attr("perm")) == 4 and helpers.axes(moved.attr("perm"), 4) == (1, 2, 3, 0)
    if geometry is None or taps is None or len(batch) != 1 or right != len(taps) + 1 or not straight:
        return None
    if helpers.axes(dot.attr("batch_lhs"), last + 1) != (last,):
        return None
    channels = _number(moved, 3)
    if helpers.dtype(dot) is F32:
        weight = _packed(found, dot.operands[1], (*batch, *taps), None)
        return found.call("gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1", found.input("x"), weight, **geometry)
    weight = _packed(found, dot.operands[1], (*taps, *batch), channels)
    return found.call("ptir.conv2d.nhwc.v1", found.input("x"), weight, **geometry, groups=("I64", channels))


def _geometry(found: Found, dot: Op, channels: int) -> dict[str, Number] | None:
    """The attributes of a convolution, when `dot` contracts patches whose elements are ordered by tap up to its axis
    `channels`, or all as one; None for anything else."""
    patches = found.op("patches")
    laid, whole = helpers.shape(dot.operands[0]), helpers.shape(patches)
    inner = [d for d in laid[3:] if isinstance(d, int)]
    if not helpers.static(dot.operands[1]) or len(inner) < len(laid) - 3 or laid[:3] != whole[:3]:
        return None
    if channels > 3 and prod(inner[: channels - 3]) != prod(patches.attr("window")):
        return None
    return _window(found)


def _window(found: Found) -> dict[str, Number] | None:
    """The attributes of a convolution over patches of two axes with zero padding; None for others. All extents but those of
    channels may be symbols."""
    patches = found.op("patches")
    pads = patches.attr("padding")
    zero = not any(map(any, pads)) or patches.attr("pad_value").value == 0
    same = helpers.dtype(found.root) is helpers.dtype(patches) and helpers.floating(patches)
    fixed = helpers.rank(patches) == 4 and all(isinstance(helpers.shape(x)[-1], int) for x in (found.root, patches))
    if not (zero and same and fixed):
        return None
    lists = {name: ("I64Array", tuple(patches.attr(name))) for name in ("window", "strides", "dilation")}
    return {**lists, "padding": ("I64Array", tuple(n for pair in pads for n in pair))}


def _taps(dot: Op, start: int, but: int | None = None) -> tuple[int, ...] | None:
    """The contracted axes of the weights, in the order of those of the patches, which must be all from `start` on except
    `but`; None otherwise."""
    lhs = helpers.axes(dot.attr("contract_lhs"), helpers.rank(dot.operands[0]))
    rhs = helpers.axes(dot.attr("contract_rhs"), helpers.rank(dot.operands[1]))
    if sorted(lhs) != [i for i in range(start, helpers.rank(dot.operands[0])) if i != but]:
        return None
    return tuple(r for _, r in sorted(zip(lhs, rhs, strict=True)))


def _number(x: Op | Operand, axis: int) -> int:
    """An extent that is known to be a number."""
    d = helpers.shape(x)[axis]
    assert isinstance(d, int)
    return d


def _packed(found: Found, weight: Operand, perm: Sequence[int], columns: int | None) -> Operand:
    """Weights as a matrix: transposed, then all axes before `columns` outputs joined, or with None all but the first."""
    shape = tuple(d for i in perm if isinstance(d := helpers.shape(weight)[i], int))
    if tuple(perm) != tuple(range(len(shape))):
        weight = found.build("transpose", weight, perm=tuple(perm))
    matrix = (shape[0], prod(shape[1:])) if columns is None else (prod(shape) // max(columns, 1), columns)
    return weight if matrix == shape else found.build("reshape", weight, new_shape=matrix)


def biased(found: Found) -> Value | None:
    """The convolution with a bias."""
    call = found.op("product")
    bias = vector(found, "bias", 3) if len(call.operands) == 2 and helpers.rank(found.root) == 4 else None
    if bias is None:
        return None
    return found.call(call.attr("target"), *call.operands, bias, **dict(call.attr("attrs")))
