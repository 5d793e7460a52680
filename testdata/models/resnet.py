"""The beginning of a ResNet: stem, two bottlenecks (one that halves the image), pooling and a classifier. Images are NHWC."""

from __future__ import annotations

import numpy as np
from common import Constants, Weights, linear

from ptir_tools import Graph, Program, Tensor

SIZE, STEM, INNER, OUTER, CLASSES = 32, 8, 8, 32, 10
EPSILON = 1e-5
# A bottleneck's name, input channels and stride.
BOTTLENECKS = (("layer1.0", STEM, 1), ("layer2.0", OUTER, 2))


def weights() -> dict[str, np.ndarray]:
    """Parameters under torchvision's names; a convolution's weight is `[rows * columns * input, output]`."""
    w = Weights(11)
    _convolution(w, "conv1", "bn1", 7, 3, STEM)
    for name, channels, _ in BOTTLENECKS:
        _convolution(w, f"{name}.conv1", f"{name}.bn1", 1, channels, INNER)
        _convolution(w, f"{name}.conv2", f"{name}.bn2", 3, INNER, INNER)
        _convolution(w, f"{name}.conv3", f"{name}.bn3", 1, INNER, OUTER)
        _convolution(w, f"{name}.downsample.0", f"{name}.downsample.1", 1, channels, OUTER)
    w.add("fc.weight", OUTER, CLASSES)
    w.add("fc.bias", CLASSES, within=0.1)
    return w.arrays


def _convolution(w: Weights, name: str, norm: str, window: int, channels: int, out: int) -> None:
    w.add(f"{name}.weight", window * window * channels, out)
    w.add(f"{norm}.weight", out, within=0.3, about=1.0)
    w.add(f"{norm}.bias", out, within=0.2)
    w.add(f"{norm}.running_mean", out, within=0.3)
    w.add(f"{norm}.running_var", out, within=0.5, about=1.0)


def inputs() -> dict[str, dict[str, np.ndarray]]:
    """What the stored results were computed on, by program."""
    x = Weights(13)
    x.add("image", 2, SIZE, SIZE, 3, within=1.7)
    return {"resnet": x.arrays}


class Model:
    """The layers, over constants of one dtype."""

    def __init__(self, dtype: str) -> None:
        self.w = Constants(weights(), dtype)

    def convolution(self, x: Tensor, name: str, window: int, stride: int) -> Tensor:
        """A convolution without bias, padded so that stride 1 keeps the size."""
        low = window // 2
        patches = x.extract_patches([window] * 2, strides=[stride] * 2, padding=[[low, low]] * 2)
        return linear(patches, self.w(x, f"{name}.weight"))

    def norm(self, x: Tensor, name: str) -> Tensor:
        """Batch norm by the running statistics."""
        mean, var, gamma, beta = (self.w(x, f"{name}.{p}") for p in ("running_mean", "running_var", "weight", "bias"))
        scale = (var + EPSILON).rsqrt() * gamma
        return (x - mean.broadcast_like(x)) * scale.broadcast_like(x) + beta.broadcast_like(x)

    def bottleneck(self, x: Tensor, name: str, stride: int) -> Tensor:
        """1x1, 3x3 and 1x1 convolutions beside a projected shortcut."""
        h = self.norm(self.convolution(x, f"{name}.conv1", 1, 1), f"{name}.bn1").maximum(0)
        h = self.norm(self.convolution(h, f"{name}.conv2", 3, stride), f"{name}.bn2").maximum(0)
        h = self.norm(self.convolution(h, f"{name}.conv3", 1, 1), f"{name}.bn3")
        shortcut = self.norm(self.convolution(x, f"{name}.downsample.0", 1, stride), f"{name}.downsample.1")
        return (h + shortcut).maximum(0)

    def stem(self, image: Tensor) -> Tensor:
        """A 7x7 convolution and a 3x3 maximum, each halving the image."""
        h = self.norm(self.convolution(image, "conv1", 7, 2), "bn1").maximum(0)
        ones = [1, 1, 1, 1]
        return h.reduce_window(
            window_dims=[1, 3, 3, 1],
            strides=[1, 2, 2, 1],
            padding=[[0, 0], [1, 1], [1, 1], [0, 0]],
            base_dilation=ones,
            window_dilation=ones,
            reduce="max",
        )


def network(dtype: str = "f32") -> Program:
    """The scores of images `[2, 32, 32, 3]`."""
    g, model = Graph(), Model(dtype)
    x = model.stem(g.input("image", dtype, (2, SIZE, SIZE, 3)))
    for name, _, stride in BOTTLENECKS:
        x = model.bottleneck(x, name, stride)
    mean = x.reduce_sum([1, 2]) * (1 / (SIZE // 8) ** 2)
    return g.returns(linear(mean, model.w(x, "fc.weight"), model.w(x, "fc.bias")).named("scores"))


PROGRAMS = {"resnet": network}
