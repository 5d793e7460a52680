"""Random networks: convolutions, attention, norms, gates and loops, joined as the models of other people join them.

`generate` in the package above draws ops one by one, so that every op, attribute and dtype occurs. Here the layers are whole, so
that an engine that fuses ops recognizes them; values inside them are outputs at times, or are read again later.
"""

from __future__ import annotations

from math import prod

from ptir_tools.core.choices import Choices
from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import BF16, F16, F32
from ptir_tools.core.ir import Op
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.networks import control, images, sequences
from ptir_tools.dialects.ptir.networks.parts import Layer, Network, softmax

LARGEST_OUTPUT = 1 << 15  # elements of a value that is an output only because it was chosen
PLACES = 128  # of an image that becomes a sequence, at most
DTYPES = (*(F32,) * 6, F16, BF16)


def generate(choices: Choices, *, size: int = 12) -> Program:
    """A valid static program that runs: a network of about `size` / 3 layers over an image or a sequence, and its heads.

    Its weights are constants, parameters, or both. Up to three values inside it are outputs, too.
    """
    net = Network(choices, choices.one(DTYPES))
    makes = net.one((image, image, image, sequence, sequence, sequence, both))
    heads = makes(net, net.number(1, max(1, size // 3)))
    return net.graph.returns(*net.distinct([*heads, *inside(net)]))


def image(net: Network, count: int) -> list[Tensor]:
    """A network over an image [N, H, W, C]; gives its heads."""
    return [head(net, x) for x in branched(net, layers(net, images.start(net), count, images.LAYERS))]


def sequence(net: Network, count: int) -> list[Tensor]:
    """A network over a sequence [B, T, D]; gives its heads."""
    return [head(net, x) for x in branched(net, layers(net, sequences.start(net), count, sequences.LAYERS))]


def both(net: Network, count: int) -> list[Tensor]:
    """Layers over an image, whose places are then a sequence; gives heads of both."""
    x = layers(net, images.start(net), (count + 1) // 2, images.LAYERS)
    if net.extent(x, 1) * net.extent(x, 2) > PLACES:
        x = net.mean(x, [1], True)
    places = x.reshape([x.shape[0], net.extent(x, 1) * net.extent(x, 2), x.shape[3]])
    y = layers(net, places, (count + 1) // 2, sequences.LAYERS)
    return [head(net, y), *([head(net, x)] if net.flag() else [])]


def layers(net: Network, x: Tensor, count: int, known: tuple[Layer, ...]) -> Tensor:
    """`x` through `count` layers; some of them are inside a loop or a branch."""
    for _ in range(count):
        layer = net.one(known)
        x = control.wrapped(net, x, layer) if net.chance(1, 6) else layer(net, x)
        if net.chance(1, 5) and (other := net.like(x)) is not None:
            x = x + other * 0.5  # a value from any place before, at times from inside a fusion group
    return x


def branched(net: Network, x: Tensor) -> list[Tensor]:
    """One to three values that heads read: often the same."""
    known = images.LAYERS if x.rank == 4 else sequences.LAYERS
    return [net.one(known)(net, x) if net.chance(1, 3) else x for _ in range(net.one((1, 1, 2, 3)))]


def head(net: Network, x: Tensor) -> Tensor:
    """An output of the network: scores, their softmax, the best of them, or `x` itself."""
    kind = net.one(("scores", "softmax", "best", "itself", "mean", "pooled"))
    if kind == "itself":
        return x
    if kind == "mean":
        return net.mean(x, [x.rank - 1])
    if kind == "pooled" and x.rank > 2:
        x = net.mean(x, range(1, x.rank - 1))
    scores = net.linear(x, net.number(2, 24))
    if kind == "softmax":
        return softmax(scores)
    return scores.argmax(-1, output_dtype="si32") if kind == "best" else net.ended(scores)


def inside(net: Network) -> list[Tensor]:
    """Some values of the function that are outputs in the middle."""
    region = net.graph.region
    made = [op.result for op in region.body if _may_leave(op)]
    return [Tensor(net.graph, net.one(made)) for _ in range(net.one((0, 0, 1, 1, 2, 3))) if made]


def _may_leave(op: Op) -> bool:
    t = op.result.type
    return not op.defn.is_constant and isinstance(t, TensorType) and prod(t.static_shape) <= LARGEST_OUTPUT
