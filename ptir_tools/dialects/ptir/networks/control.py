"""Layers of random networks inside loops and branches."""

from __future__ import annotations

from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.networks.parts import Layer, Network


def wrapped(net: Network, x: Tensor, layer: Layer) -> Tensor:
    """`x` after a layer in a scan, a while or a branch. Sometimes the layer gets weights from outside. Its result has the type of
    `x`."""
    return net.one((_branch, _loop, _scan))(net, x, layer)


def _within(net: Network, x: Tensor, layer: Layer, weights: tuple[Tensor, ...]) -> Tensor:
    """The layer on `x` in its block, bounded so that a loop stays so, and of the type of `x`."""
    net.weights.setdefault(x.block, []).extend(weights)
    y = layer(net, x)
    if y.type is not x.type:
        y = net.mean(y, range(1, y.rank), True)
        y = y.reshape([x.shape[0], *[1] * (x.rank - 1)]).broadcast_like(x) + x
    return y.tanh()


def _weights(net: Network, x: Tensor) -> list[Tensor]:
    """Weights of outside that a region gets as parameters."""
    width = net.extent(x, -1)
    return [net.weight(x, *net.one(((width, width), (width,)))) for _ in range(net.number(0, 2))]


def _branch(net: Network, x: Tensor, layer: Layer) -> Tensor:
    positive = x.reduce_sum(range(x.rank)) > 0.0

    def on(x: Tensor, *weights: Tensor) -> Tensor:
        return _within(net, x, layer, weights)

    return x.block.cond(positive, [x, *_weights(net, x)], on, on if net.flag() else lambda x, *weights: x * 0.5)


def _loop(net: Network, x: Tensor, layer: Layer) -> Tensor:
    count = net.number(1, 3)
    carry = [x.block.constant(0, "si32"), x, *_weights(net, x)]

    def test(*carry: Tensor) -> tuple[Tensor, ...]:
        return carry[0] < count, *carry

    def body(i: Tensor, x: Tensor, *weights: Tensor) -> tuple[Tensor, ...]:
        return i + 1, _within(net, x, layer, weights), *weights

    return x.block.while_(carry, test, body)[1]


def _scan(net: Network, x: Tensor, layer: Layer) -> Tensor:
    steps = x.block.constant(net.drawn((net.number(1, 3), net.extent(x, -1)), 0.5), x.dtype)
    weights = _weights(net, x)

    def body(x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        *weights, step = rest
        y = _within(net, x + step.broadcast_like(x), layer, tuple(weights))
        return y, *weights, net.mean(y, [y.rank - 1])

    made = x.block.scan([x, *weights], [steps], body)
    last, *_, every = made
    return last + every.reduce_sum([0]).reshape([*x.shape[:-1], 1]).broadcast_like(x) if net.flag() else last
