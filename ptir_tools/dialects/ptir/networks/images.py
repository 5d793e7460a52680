"""Layers of random networks over images [N, H, W, C]."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.networks import sequences
from ptir_tools.dialects.ptir.networks.parts import Layer, Network, sigmoid
from ptir_tools.dialects.ptir.networks.quantized import quantized

CHANNELS = (1, 2, 3, 4, 4, 6, 8, 8, 8, 12, 16, 16, 24)
PATCHES = 1 << 17  # elements, at most; eight times as many in large networks


def start(net: Network) -> Tensor:
    """The image that the network reads."""
    low, most = (32, 56) if net.is_large else (3, 13)
    channels = net.one((16, 32, 48)) if net.is_large else net.one(CHANNELS)
    high, wide = (net.number(low, most) for _ in range(2))
    shape = [1 if net.is_large else net.one((1, 1, 2)), high, wide, channels]
    if net.chance(1, 4):
        return net.graph.input("x", net.dtype, [shape[0], channels, high, wide]).transpose([0, 2, 3, 1])
    x = net.graph.input("x", net.dtype, shape)
    return net.ended(x, 1) if net.flag() else x


class Geometry:
    """The windows of a convolution over an image: at most as many elements as PATCHES says, at least one place."""

    def __init__(self, net: Network, x: Tensor, window: Sequence[int], stride: int, dilation: int, same: bool) -> None:
        self.window = tuple(window)
        self.strides = (stride,) * len(self.window)
        self.dilation = (dilation,) * len(self.window)
        self.padding = tuple(self._padding(net, net.extent(x, 1 + i), k, stride, dilation, same) for i, k in enumerate(window))

    def _padding(self, net: Network, extent: int, k: int, stride: int, dilation: int, same: bool) -> tuple[int, int]:
        reach = (k - 1) * dilation + 1
        total = max(0, (-(-extent // stride) - 1) * stride + reach - extent)
        if not same and reach <= extent:
            return (0, 0) if net.flag() else (net.number(0, 1), net.number(0, 1))
        return total // 2, total - total // 2

    def patches(self, net: Network, x: Tensor) -> Tensor:
        """The patches of `x`: those that exist already, or others."""
        key = (x.operand, self.window, self.strides, self.dilation, self.padding)
        if (found := net.patches.get(key)) is not None and net.chance(3, 4):
            return found
        made = x.extract_patches(self.window, strides=self.strides, dilation=self.dilation, padding=self.padding)
        net.patches[key] = made
        return made


def windows(net: Network, x: Tensor, stride: int = 0, same: bool = False) -> Geometry:
    """Random windows; with a `stride`, or `same` for as many places as there are."""
    most = max(1, (PATCHES << 3 * net.is_large) // max(1, prod(x.tensor_type.static_shape)))
    known = [w for w in ((1, 1), (3, 3), (3, 3), (3, 3), (2, 2), (1, 3), (3, 1), (5, 5), (4, 3)) if prod(w) <= most]
    stride = stride or (1 if same else net.one((1, 1, 1, 2, 2, 3)))
    return Geometry(net, x, net.one(known), stride, net.one((1, 1, 1, 2)), same or net.flag())


def convolved(net: Network, x: Tensor, columns: int, groups: int = 1, at: Geometry | None = None) -> Tensor:
    """A convolution, as one of the contractions of patches that engines recognize."""
    at = at or windows(net, x)
    p, channels, taps = at.patches(net, x), net.extent(x, 3), prod(at.window)
    if groups == channels == columns and net.flag():
        return _depthwise(net, p, channels, taps)
    if groups > 1:
        return _grouped(net, p, (groups, channels // groups, taps, columns // groups))
    depth, (n, high, wide, _) = taps * channels, p.tensor_type.static_shape
    kind = net.usual("plain", "plain", "rows", "laid", "turned", "first", "first in the middle")
    if kind == "laid":
        laid = p.reshape([n, high, wide, *at.window, channels])
        w = net.weight(x, columns, channels, *at.window)
        return net.scaled(laid.dot_general(w, contract_lhs=[3, 4, 5], contract_rhs=[2, 3, 1]), depth)
    if kind.startswith("first"):
        y = net.weight(x, columns, depth).dot_general(p, contract_lhs=[1], contract_rhs=[3])
        y = net.ended(y, 1) if kind != "first" else y
        return net.scaled(y.transpose([1, 2, 3, 0]), depth)
    if kind == "turned":
        w = net.weight(x, columns, channels, *at.window).transpose([2, 3, 1, 0]).reshape([depth, columns])
    else:
        w = net.weight(x, depth, columns)
    if kind == "rows":
        y = p.reshape([n * high * wide, depth]) @ w
        return net.scaled(net.ended(y, 1).reshape([n, high, wide, columns]), depth)
    return net.scaled(p.dot_general(w, contract_lhs=[3], contract_rhs=[0]), depth)


def _depthwise(net: Network, p: Tensor, channels: int, taps: int) -> Tensor:
    laid = p.reshape([*p.shape[:-1], taps, channels])
    if net.flag():
        y = laid.dot_general(net.weight(p, taps, channels), batch_lhs=[4], batch_rhs=[1], contract_lhs=[3], contract_rhs=[0])
    else:
        y = laid.dot_general(net.weight(p, channels, taps), batch_lhs=[4], batch_rhs=[0], contract_lhs=[3], contract_rhs=[1])
    y = net.ended(y, 1) if not net.is_usual and net.chance(1, 6) else y
    return net.scaled(y.transpose([1, 2, 3, 0]), taps)


def _grouped(net: Network, p: Tensor, sizes: tuple[int, int, int, int]) -> Tensor:
    groups, channels, taps, columns = sizes
    laid = p.reshape([*p.shape[:-1], taps, groups, channels])
    if net.flag():
        w, contract = net.weight(p, groups, columns, channels, taps), [3, 2]
    else:
        w, contract = net.weight(p, groups, taps, channels, columns), [1, 2]
    if net.chance(1, 3):
        y = w.dot_general(laid, batch_lhs=[0], batch_rhs=[4], contract_lhs=contract, contract_rhs=[3, 5])
        y = y.transpose([2, 3, 4, 0, 1])
    else:
        y = laid.dot_general(w, batch_lhs=[4], batch_rhs=[0], contract_lhs=[3, 5], contract_rhs=contract)
        y = y.transpose([1, 2, 3, 0, 4])
    return net.scaled(y.reshape([*p.shape[:-1], groups * columns]), taps * channels)


# ---- layers


def plain(net: Network, x: Tensor) -> Tensor:
    """A convolution, sometimes in groups, and ops after it."""
    channels = net.extent(x, 3)
    groups = net.one([g for g in (1, 1, 1, 2, 4, channels, channels) if channels % g == 0])
    columns = groups * net.one([n for n in (1, 1, 2, 3, 4, 8) if groups * n <= 48])
    return net.ended(convolved(net, x, columns, groups))


def residual(net: Network, x: Tensor) -> Tensor:
    """Two convolutions and a shortcut; both may be strided."""
    stride, columns = net.one((1, 1, 2)), net.one((net.extent(x, 3), net.one(CHANNELS)))
    y = convolved(net, x, columns, at=Geometry(net, x, net.one(((1, 1), (3, 3))), stride, 1, True))
    y = net.ended(y)
    if net.flag():
        y = net.ended(convolved(net, y, columns, at=windows(net, y, 1, True)))
    if y.shape != x.shape:
        x = convolved(net, x, columns, at=Geometry(net, x, net.one(((1, 1), (1, 1), (3, 3))), stride, 1, True))
    return net.ended(y + x if net.flag() else x + y, 1)


def inception(net: Network, x: Tensor) -> Tensor:
    """Branches over one image, joined along the channels."""
    branches = []
    for _ in range(net.number(2, 3)):
        kind = net.one(("conv", "conv", "pool", "product", "itself"))
        y = pooled(net, x, Geometry(net, x, (3, 3), 1, 1, True)) if kind == "pool" else x
        if kind == "product":
            y = net.linear(y, net.one((2, 4, 8)))
        elif kind != "itself":
            y = convolved(net, y, net.one((2, 4, 8)), at=windows(net, y, 1, True))
        branches.append(net.ended(y, 2))
    return x.block.concat(branches, axis=3)


def squeezed(net: Network, x: Tensor) -> Tensor:
    """Squeeze and excite: each channel times a gate that is computed of all places."""
    x = convolved(net, x, net.extent(x, 3), at=windows(net, x, 1, True)) if net.flag() else x
    kept, channels = net.flag(), net.extent(x, 3)
    s = net.mean(x, [1, 2], kept)
    s = net.ended(net.linear(s, max(1, channels // 2)), 1)
    gate = sigmoid(net.linear(s, channels))
    gate = gate if kept else gate.reshape([x.shape[0], 1, 1, channels])
    return x * gate.broadcast_like(x)


def unet(net: Network, x: Tensor) -> Tensor:
    """Down, a layer, up, joined with the image."""
    n, high, wide, channels = x.tensor_type.static_shape
    if min(high, wide) < 2:
        return plain(net, x)
    if net.flag():
        y = convolved(net, x, channels, at=Geometry(net, x, (2, 2), 2, 1, False))
    else:
        y = pooled(net, x, Geometry(net, x, (2, 2), 2, 1, False))
    y = convolved(net, net.ended(y), channels, at=windows(net, y, 1, True))
    _, h, w, _ = y.tensor_type.static_shape
    if net.flag():  # nearest
        y = y.reshape([n, h, 1, w, 1, channels]).broadcast_to([n, h, 2, w, 2, channels]).reshape([n, 2 * h, 2 * w, channels])
    else:  # a transposed convolution
        y = y.pad([0] * 4, [0, 1, 1, 0], interior=[0, 1, 1, 0])
        y = convolved(net, y, channels, at=Geometry(net, y, (3, 3), 1, 1, True))
    high, wide = min(high, 2 * h), min(wide, 2 * w)
    y, x = (z.slice([0] * 4, [n, high, wide, channels]) if z.shape[1:3] != (high, wide) else z for z in (y, x))
    joined = x.block.concat([y, x] if net.flag() else [x, y], axis=3)
    return net.ended(convolved(net, joined, channels, at=windows(net, joined, 1, True)))


def gated(net: Network, x: Tensor) -> Tensor:
    """A convolution times the gate of another one over the same patches, or half of one times the other half."""
    at, columns = windows(net, x), net.one((2, 4, 8))
    if net.flag():
        return convolved(net, x, columns, at=at) * sigmoid(convolved(net, x, columns, at=at))
    y = net.ended(convolved(net, x, 2 * columns, at=at), 1)
    sizes = [*y.tensor_type.static_shape[:-1], columns]
    return y.slice([0] * 4, sizes) * sigmoid(y.slice([0, 0, 0, columns], sizes))


def separable(net: Network, x: Tensor) -> Tensor:
    """A wider image, each channel filtered by itself, a narrower image: MobileNet's block."""
    channels = net.extent(x, 3)
    wide = channels * net.one((1, 2, 4)) if channels <= 16 else channels
    y = net.ended(net.linear(x, wide) if net.is_usual or net.chance(3, 4) else x, 2)
    wide = net.extent(y, 3)
    for _ in range(net.one((1, 1, 2))):
        y = net.ended(convolved(net, y, wide, wide, windows(net, y, net.one((1, 1, 2)))), 2)
    y = net.linear(y, channels)
    return net.ended(y + x if y.shape == x.shape else y, 1)


def pooled(net: Network, x: Tensor, at: Geometry | None = None) -> Tensor:
    """Sums or extremes of windows, as one op or over patches."""
    at = at or windows(net, x)
    kind = net.one(("sum", "max", "min", "patches"))
    if kind == "patches":
        p = at.patches(net, x)
        p = p.reshape([*p.shape[:-1], prod(at.window), x.shape[3]])
        return p.reduce_max([3]) if net.flag() else net.mean(p, [3])
    fields = ((1, *each, 1) for each in (at.window, at.strides, (1, 1), at.dilation))
    window, strides, base, dilation = fields
    y = x.reduce_window(window, strides, ((0, 0), *at.padding, (0, 0)), base, dilation, reduce=kind)  # type: ignore[arg-type]
    return y * (1 / prod(window)) if kind == "sum" else y.clamp(-100.0, 100.0)  # some windows have only padding


def shared(net: Network, x: Tensor) -> Tensor:
    """Patches with several users: convolutions, a reduction, elementwise ops."""
    at = windows(net, x)
    columns = net.one((2, 4, 8))
    y = convolved(net, x, columns, at=at)
    p = at.patches(net, x)
    kind = net.one(("two", "two", "reduced", "ended", "first"))
    if kind == "two":
        other = convolved(net, x, columns, at=at)
        y = net.ended(y, 1) + other if net.flag() else x.block.concat([y, other], axis=3)
    elif kind == "reduced":
        y = y + p.reduce_max([3], keepdims=True).broadcast_like(y)
    elif kind == "ended":
        y = y + net.mean(p.tanh(), [3], True).broadcast_like(y)
    else:
        y = y * p.slice([0] * 4, [*p.tensor_type.static_shape[:-1], 1]).broadcast_like(y)
    return net.ended(y, 2)


def normed(net: Network, x: Tensor) -> Tensor:
    """A norm over the channels, the places, or groups of channels."""
    n, high, wide, channels = x.tensor_type.static_shape
    kind = net.one(("channels", "places", "groups"))
    if kind == "channels":
        return sequences.normed(net, x)
    if kind == "groups" and channels % 2 == 0:
        y = x.reshape([n, high * wide, 2, channels // 2])
        return (sequences.centered(net, y, [1, 3])).reshape(x.shape) * net.along(x, 3, 1.0)
    return sequences.centered(net, x, [1, 2]) * net.along(x, 3, 1.0) + net.along(x, 3)


def attentive(net: Network, x: Tensor) -> Tensor:
    """Attention between the places of an image."""
    n, high, wide, channels = x.tensor_type.static_shape
    if high * wide > 128:
        return squeezed(net, x)
    return x + sequences.attention(net, x.reshape([n, high * wide, channels])).reshape(x.shape)


def bytewise(net: Network, x: Tensor) -> Tensor:
    """A convolution of 8-bit integers."""
    at, taps = windows(net, x), net.extent(x, 3)
    return quantized(net, x, lambda q: at.patches(net, q), prod(at.window) * taps)


LAYERS: tuple[Layer, ...] = (
    plain,
    plain,
    plain,
    residual,
    residual,
    inception,
    squeezed,
    unet,
    gated,
    separable,
    separable,
    pooled,
    shared,
    shared,
    normed,
    attentive,
    bytewise,
)
