"""Steps of optimizers, and two operators of classical machine learning."""

from __future__ import annotations

import math
from collections.abc import Callable

from ptir_tools.bridges.onnx.ops.index import normalized
from ptir_tools.bridges.onnx.table import Node, back, handles
from ptir_tools.core.dtypes import F32
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites.rounding import sqrt

_TRAINING = "ai.onnx.preview.training"


def _each(node: Node, kinds: int, step: Callable[..., list[Tensor]]) -> list[Tensor]:
    """The results of `step` for each trained tensor, grouped by kind: all new tensors, then all new states."""
    count = (len(node) - 2) // kinds
    rows = [step(*(node[2 + j * count + i] for j in range(kinds))) for i in range(count)]
    return [row[j] for j in range(kinds - 1) for row in rows]


def _like(s: Tensor, x: Tensor) -> Tensor:
    return back(s, x).reshape([])


@handles("Momentum", domain=_TRAINING)
def momentum(node: Node) -> list[Tensor]:
    """Gradient descent with momentum."""
    rate, now = node[0], node[1]
    alpha, beta, decay = (node.attr(k) for k in ("alpha", "beta", "norm_coefficient"))

    def step(x: Tensor, g: Tensor, v: Tensor) -> list[Tensor]:
        gradient = decay * x + g
        new = alpha * v + (now.reshape([]) > 0).select(beta * gradient, gradient)
        move = new if node.attr("mode") == "standard" else gradient + alpha * new
        return [x - _like(rate, x) * move, new]

    return _each(node, 3, step)


@handles("Adagrad", domain=_TRAINING)
def adagrad(node: Node) -> list[Tensor]:
    """Adagrad: gradient descent with rates from accumulated squares."""
    rate, now = node[0], node[1]
    decay, epsilon, factor = (node.attr(k) for k in ("norm_coefficient", "epsilon", "decay_factor"))

    def step(x: Tensor, g: Tensor, h: Tensor) -> list[Tensor]:
        gradient = decay * x + g
        new = h + gradient * gradient
        slowed = _like(rate, x) / (_like(now, x) * factor + 1.0)
        return [x - slowed * gradient / (sqrt(new) + epsilon), new]

    return _each(node, 3, step)


@handles("Adam", domain=_TRAINING)
def adam(node: Node) -> list[Tensor]:
    """Adam: gradient descent with moments."""
    rate, now = node[0], node[1]
    alpha, beta, epsilon = (node.attr(k) for k in ("alpha", "beta", "epsilon"))
    before, after = node.attr("norm_coefficient"), node.attr("norm_coefficient_post")

    def step(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> list[Tensor]:
        gradient = before * x + g
        first, second = alpha * v + (1 - alpha) * gradient, beta * h + (1 - beta) * (gradient * gradient)
        t = _like(now.cast(F32), x)
        power = [(t * math.log(c)).exp() for c in (alpha, beta)]
        corrected = _like(rate, x) * sqrt(1.0 - power[1]) / (1.0 - power[0])
        started = t > 0.0
        new = x - started.select(corrected, _like(rate, x)) * (first / (sqrt(second) + epsilon))
        return [(1 - after) * new, first, second]

    return _each(node, 4, step)


@handles("Binarizer", domain="ai.onnx.ml")
def binarizer(node: Node) -> Tensor:
    """Binarizer: 1 above a threshold, else 0."""
    x = node[0]
    threshold = node.attr("threshold")
    return (x > (threshold if x.dtype.is_float else int(threshold))).cast(x.dtype)


@handles("ArrayFeatureExtractor", domain="ai.onnx.ml")
def features(node: Node) -> Tensor:
    """ArrayFeatureExtractor: elements of the last axis by index."""
    x = node[0]
    at = normalized(node, 1, x.shape[-1]).reshape([-1])
    rows = x.transpose([x.rank - 1, *range(x.rank - 1)]).take(at)
    out = rows.transpose([*range(1, rows.rank), 0])
    return out.reshape([1, *out.shape]) if x.rank == 1 else out
