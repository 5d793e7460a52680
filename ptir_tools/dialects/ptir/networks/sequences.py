"""Layers of random networks over sequences [B, T, D]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt

from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.networks.parts import Layer, Network, sigmoid, softmax
from ptir_tools.dialects.ptir.networks.quantized import quantized

WIDTHS = (4, 8, 8, 12, 16, 16, 24)
USUAL = 6  # of the ops on scores
MOST = 1 << 15  # of an attention; engines fuse one with half as many


def start(net: Network) -> Tensor:
    """The sequence that the network reads: rows of floats, or of a table by their numbers."""
    batch, time, width = net.one((1, 1, 2, 3)), net.number(1, 20), net.one(WIDTHS)
    if net.chance(2, 3):  # as many scores as attention is fused for
        batch, time = net.one(((1, 128), (1, 130), (2, 64), (2, 65), (1, 96)))
    if net.chance(1, 3):
        tokens = net.graph.input("tokens", "si32", [batch, time])
        table = net.graph.constant(net.drawn((net.number(5, 30), width), 1.0), net.dtype)
        net.weights.setdefault(net.graph, []).append(table)
        x = table.take(tokens)
        return x + net.weight(x, time, width).broadcast_like(x)
    return net.graph.input("x", net.dtype, [batch, time, width])


def centered(net: Network, x: Tensor, axes: Sequence[int]) -> Tensor:
    """`x` minus its mean over some axes, divided by its deviation."""
    far = x - net.mean(x, axes, True).broadcast_like(x)
    if net.flag():
        deviation = net.mean(far * far, axes, True)
    else:
        mean = net.mean(x, axes, True)
        deviation = (net.mean(x * x, axes, True) - mean * mean).maximum(0.0)
    return far * (deviation + 1e-2).rsqrt().broadcast_like(x)


def normed(net: Network, x: Tensor) -> Tensor:
    """A norm of each row: layer norm as an op or spelled out, or RMS norm."""
    last = x.rank - 1
    kind = net.one(("op", "layer", "rms"))
    if kind == "op":
        width = net.extent(x, last)
        return x.layer_norm(net.weight(x, width, about=1.0), net.weight(x, width), 1e-3)
    if kind == "layer":
        return centered(net, x, [last]) * net.along(x, last, 1.0) + net.along(x, last)
    return x * (net.mean(x * x, [last], True) + 1e-2).rsqrt().broadcast_like(x) * net.along(x, last, 1.0)


def perceptron(net: Network, x: Tensor) -> Tensor:
    """Two linear layers, at times with a gate."""
    width = net.extent(x, -1)
    h = net.ended(net.linear(x, 2 * width), 2)
    if net.chance(1, 3):
        h = h * net.linear(x, 2 * width)
    return net.ended(net.linear(h, width), 1) + x


def filtered(net: Network, x: Tensor) -> Tensor:
    """A convolution along the sequence; each channel by itself at times."""
    taps, (batch, time, width) = net.one((1, 2, 3, 5)), x.tensor_type.static_shape
    p = x.extract_patches([taps], strides=[1], dilation=[1], padding=[[taps - 1, 0]])
    if net.flag():
        return net.ended(p.dot_general(net.weight(x, taps * width, width), contract_lhs=[2], contract_rhs=[0]))
    laid = p.reshape([batch, time, taps, width])
    y = laid.dot_general(net.weight(x, taps, width), batch_lhs=[3], batch_rhs=[1], contract_lhs=[2], contract_rhs=[0])
    return net.ended(y.transpose([1, 2, 0]))


# ---- attention


def attention(net: Network, x: Tensor) -> Tensor:
    """Attention of `x` to itself or to another sequence, by some heads; keys may belong to several of them."""
    batch, time, width = x.tensor_type.static_shape
    most = MOST // (batch * time * time)
    if not most:
        return perceptron(net, x)
    heads = net.one([n for n in (1, 2, 2, 4, 4) if width % n == 0 and n <= most])
    kept = net.one([n for n in (heads, heads, heads, 1) if heads % n == 0])
    size = width // heads
    memory = _memory(net, x)
    q = _heads(net, net.linear(x, width), heads)
    k = _heads(net, net.linear(memory, kept * size), kept)
    v = k if net.chance(1, 8) else _heads(net, net.linear(memory, kept * size), kept)
    if kept < heads:
        seen = net.extent(memory, 1)
        wide = [batch, kept, heads // kept, seen, size]
        if net.flag():  # keys repeated for each head
            k, v = (z.reshape([batch, kept, 1, seen, size]).broadcast_to(wide) for z in (k, v))
            k, v = (z.reshape([batch, heads, seen, size]) for z in (k, v))
        else:  # heads as rows of one head
            mixed = _mixed(net, q.reshape([batch, 1, heads * time, size]), k, v, size)
            return net.linear(_joined(mixed.reshape(q.shape)), width)
    return net.ended(net.linear(_joined(_mixed(net, q, k, v, size)), width), 1)


def _memory(net: Network, x: Tensor) -> Tensor:
    """The source of keys and values: `x`, or another sequence in cross attention."""
    if not net.chance(1, 4):
        return x
    time = net.one((net.extent(x, 1), net.number(1, net.extent(x, 1) + 1)))
    return net.weight(x, net.extent(x, 0), time, net.extent(x, 2))


def _heads(net: Network, x: Tensor, heads: int) -> Tensor:
    batch, time, width = x.tensor_type.static_shape
    return x.reshape([batch, time, heads, width // heads]).transpose([0, 2, 1, 3])


def _joined(x: Tensor) -> Tensor:
    batch, heads, time, size = x.tensor_type.static_shape
    return x.transpose([0, 2, 1, 3]).reshape([batch, time, heads * size])


def _mixed(net: Network, q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    """The values of `v`, weighted by the softmax of the scores."""
    if net.flag():
        scores = q.dot_general(k, batch_lhs=[0, 1], batch_rhs=[0, 1], contract_lhs=[3], contract_rhs=[3])
    else:
        scores = q @ k.transpose([0, 1, 3, 2])
    for _ in range(net.one((0, 1, 1, 2, 2, 3))):
        scores = net.one(SCORES[:USUAL] if net.is_usual else SCORES)(net, scores, size)
    weights = softmax(scores)
    if not net.is_usual and net.chance(1, 6):
        weights = weights * 0.5 + weights * weights
    return weights @ v


def _biased(net: Network, x: Tensor, size: int) -> Tensor:
    rows, columns = x.shape[-2:]
    shape = net.one(([rows, columns], [1, columns], [x.shape[1], rows, columns], [x.shape[0], 1, 1, columns]))
    return x + net.weight(x, *shape).broadcast_like(x)  # type: ignore[arg-type]


def _causal(net: Network, x: Tensor, size: int) -> Tensor:
    """A column after the row is masked."""
    row, column = (x.block.iota(x.shape[-2:], "si32", axis) for axis in (0, 1))
    low = net.one((-1e4, float("-inf"))) if net.extent(x, -2) and x.dtype.bits > 8 else -1e4
    if net.flag():
        return (column <= row).broadcast_like(x).select(x, low)
    return (column > row).broadcast_like(x).select(low, x)


def _given_mask(net: Network, x: Tensor, size: int) -> Tensor:
    """Columns masked by a weight's sign."""
    mask = net.weight(x, net.extent(x, -1), about=0.25) > 0.0
    return mask.broadcast_like(x).select(x, -1e4)


SCORES: tuple[Callable[[Network, Tensor, int], Tensor], ...] = (
    lambda net, x, size: x * (1 / sqrt(size)),
    lambda net, x, size: x * (1 / sqrt(size)),
    lambda net, x, size: x / sqrt(size),
    _biased,
    _causal,
    _causal,
    _given_mask,
    lambda net, x, size: x.clamp(-4.0, 4.0),
    lambda net, x, size: (x * 0.25).tanh() * 4.0,
    lambda net, x, size: x - net.mean(x, [3], True).broadcast_like(x),
    lambda net, x, size: x / (x.abs().reduce_max([3], keepdims=True) + 1.0).broadcast_like(x),
)


def attended(net: Network, x: Tensor) -> Tensor:
    """Attention between a norm and a sum."""
    y = normed(net, x) if net.flag() else x
    return x + attention(net, y)


def recurrent(net: Network, x: Tensor) -> Tensor:
    """A gated cell over the steps of the sequence."""
    batch, time, width = x.tensor_type.static_shape
    if time > 32:
        return perceptron(net, x)

    def cell(h: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        gate = sigmoid(net.linear(step, width) + net.linear(h, width))
        new = (net.linear(step, width) + net.linear(h * gate, width)).tanh()
        h = h * gate + new * (1.0 - gate)
        return h, net.ended(h, 1)

    first = x.block.constant(net.drawn((batch, width), 0.5), x.dtype)
    last, every = x.block.scan([first], [x.transpose([1, 0, 2])], cell)
    every = every.transpose([1, 0, 2])
    return every + last.reshape([batch, 1, width]).broadcast_like(every) if net.chance(1, 3) else every


def bytewise(net: Network, x: Tensor) -> Tensor:
    """A linear layer of 8-bit integers."""
    y = quantized(net, x, lambda q: q, net.extent(x, -1))
    return net.linear(y, net.extent(x, -1)) + x


def rows(net: Network, x: Tensor) -> Tensor:
    """Reductions of rows and columns that elements then read."""
    kind = net.one(("softmax", "logarithm", "columns", "all", "running"))
    if kind == "softmax":
        return x * softmax(x)
    if kind == "logarithm":
        high = x.reduce_max([-1], keepdims=True)
        return x - ((x - high.broadcast_like(x)).exp().reduce_sum([-1], keepdims=True).log() + high).broadcast_like(x)
    if kind == "running":
        return x.cumsum(1) * (1 / net.extent(x, 1))
    axes = [1] if kind == "columns" else [0, 1, 2]
    return x - net.mean(x, axes, True).broadcast_like(x)


LAYERS: tuple[Layer, ...] = (
    attended,
    attended,
    attended,
    attended,
    attention,
    perceptron,
    perceptron,
    normed,
    filtered,
    recurrent,
    bytewise,
    rows,
)
