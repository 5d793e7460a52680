"""Two inverted residual blocks of MobileNetV2: one that halves the image, one with a shortcut. Images are NHWC, norms are folded
into the convolutions as they are for inference."""

from __future__ import annotations

import numpy as np
from common import Constants, Weights, linear

from ptir_tools import Graph, Program, Tensor

# A block's name, input and output channels, stride. Each widens its input by EXPANSION.
BLOCKS = (("features.2", 8, 12, 2), ("features.3", 12, 12, 1))
EXPANSION, SIZE = 6, 16


def weights() -> dict[str, np.ndarray]:
    """Parameters: `[input, output]` of the 1x1 convolutions, `[rows * columns, channels]` of the depthwise ones."""
    w = Weights(17)
    for name, channels, out, _ in BLOCKS:
        wide = channels * EXPANSION
        shapes = {"expand": (channels, wide), "depthwise": (9, wide), "project": (wide, out)}
        for part, shape in shapes.items():
            w.add(f"{name}.{part}.weight", *shape)
            w.add(f"{name}.{part}.bias", shape[1], within=0.5)
    return w.arrays


def inputs() -> dict[str, dict[str, np.ndarray]]:
    """What the stored results were computed on, by program."""
    x = Weights(19)
    x.add("image", 2, SIZE, SIZE, BLOCKS[0][1], within=3.0)
    return {"mobilenet": x.arrays}


def relu6(x: Tensor) -> Tensor:
    """`x` kept in [0, 6]."""
    return x.clamp(0, 6)


def depthwise(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
    """A 3x3 convolution of each channel with its own window."""
    patches = x.extract_patches([3, 3], strides=[stride] * 2, padding=[[1, 1]] * 2)
    taps = patches.reshape([*patches.shape[:3], 9, x.shape[3]])
    y = (taps * weight.broadcast_like(taps)).reduce_sum([3])
    return y + bias.broadcast_like(y)


def block(x: Tensor, w: Constants, name: str, out: int, stride: int) -> Tensor:
    """Expand, convolve each channel, project; a shortcut where the shape stays."""
    h = relu6(linear(x, w(x, f"{name}.expand.weight"), w(x, f"{name}.expand.bias")))
    h = relu6(depthwise(h, w(x, f"{name}.depthwise.weight"), w(x, f"{name}.depthwise.bias"), stride))
    h = linear(h, w(x, f"{name}.project.weight"), w(x, f"{name}.project.bias"))
    return x + h if h.shape == x.shape else h


def network(dtype: str = "f32") -> Program:
    """The features of images `[2, 16, 16, 8]`."""
    g, w = Graph(), Constants(weights(), dtype)
    x = g.input("image", dtype, (2, SIZE, SIZE, BLOCKS[0][1]))
    for name, _, out, stride in BLOCKS:
        x = block(x, w, name, out, stride)
    return g.returns(x.named("features"))


PROGRAMS = {"mobilenet": network}
