"""Convolutions as custom calls: x is [N, H, W, C], weights are packed, a bias has one entry per output channel."""

from __future__ import annotations

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, Type
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.kernels.targets.fused import Values
from ptir_tools.dialects.ptir.ops import window
from ptir_tools.dialects.ptir.ops.scalars import FLOAT, Scalar
from ptir_tools.dialects.ptir.ops.typerules import agree, attribute


def _geometry(values: Values) -> dict[str, object]:
    for key, count in (("window", 2), ("strides", 2), ("dilation", 2), ("padding", 4)):
        attribute(len(values[key]) == count, f"{key} has {len(values[key])} entries, expected {count}", key)
    top, bottom, left, right = values["padding"]
    return {k: values[k] for k in ("window", "strides", "dilation")} | {"padding": ((top, bottom), (left, right))}


def _conv_type(types: tuple[TensorType, ...], values: Values, depthwise: bool) -> Type:
    x, weight, *bias = types
    require(x.rank == 4, "OperandRankMismatch", f"x is [N, H, W, C], got {x}")
    require(weight.rank == 2, "OperandRankMismatch", f"the weight is packed to two axes, got {weight}")
    patches = window.extract_patches_type(x, **_geometry(values), pad_value=Scalar(FLOAT, 0.0))
    taps = values["window"][0] * values["window"][1]
    rows, columns = (x.shape[3], taps) if depthwise else (patches.shape[3], weight.shape[1])
    for have, wanted in zip(weight.shape, (rows, columns), strict=True):
        agree(have, wanted, "OperandShapeMismatch", f"the weight {weight} is not packed as {rows}x{columns}")
    channels = rows if depthwise else columns
    for b in bias:
        require(b.rank == 1, "OperandRankMismatch", f"the bias is a vector, got {b}")
        agree(b.shape[0], channels, "OperandShapeMismatch", f"the bias {b} does not have one entry per output channel")
    return x.with_shape((*patches.shape[:3], channels))


def conv_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Weights [window * C, outputs]."""
    return _conv_type(types, values, depthwise=False)


def depthwise_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Weights [C, window]."""
    return _conv_type(types, values, depthwise=True)


def grouped_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Weights [window * C / groups, outputs], the outputs of a group next to each other."""
    x, groups = types[0], values["groups"]
    attribute(groups >= 1, f"groups {groups} is not positive", "groups")
    channels = x.shape[-1] if x.rank == 4 else 0
    even = isinstance(channels, int) and channels % groups == 0
    attribute(even or groups == 1, f"the {channels} channels of {x} do not make {groups} groups", "groups")
    part = x.with_shape((*x.shape[:3], channels // groups)) if isinstance(channels, int) else x
    found = _conv_type((part, *types[1:]), values, depthwise=False)
    outputs = types[1].shape[1]
    whole = not isinstance(outputs, int) or outputs % groups == 0
    attribute(whole, f"the {outputs} outputs do not make {groups} groups", "groups")
    return found


def _patches(x: Array, values: Values, result: TensorType) -> Array:
    """[N, places, taps, C]."""
    n, h, w, _ = result.static_shape
    taps = values["window"][0] * values["window"][1]
    t = result.with_shape((n, h, w, taps * x.shape[3]))
    found = window.patches(x, np.zeros(()), values["window"], **_steps(values), shape=t.static_shape)
    return found.reshape(n, h, w, taps, x.shape[3])


def _steps(values: Values) -> Values:
    geometry = _geometry(values)
    return {k: geometry[k] for k in ("strides", "dilation", "padding")}


def conv(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """A convolution over both spatial axes."""
    x, weight, *bias = xs
    found = _patches(x, values, result)
    out = found.reshape(*found.shape[:3], -1) @ weight
    return out + bias[0] if bias else out


def depthwise(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """A convolution of every channel separately."""
    x, weight, *bias = xs
    out = (_patches(x, values, result) * weight.T).sum(axis=3)
    return np.asarray(out + bias[0] if bias else out)


def grouped(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """A convolution of each group of channels separately."""
    x, weight, *bias = xs
    n = values["groups"]
    outputs = weight.shape[1] // n
    part = result.with_shape((*result.shape[:3], outputs))
    sides = np.split(x, n, axis=3), np.split(weight, n, axis=1)
    out = np.concatenate([conv(pair, values, part) for pair in zip(*sides, strict=True)], axis=3)
    return out + bias[0] if bias else out
