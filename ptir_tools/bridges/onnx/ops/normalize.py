"""Softmax and normalizations. Narrow floats are computed in f32 and rounded once."""

from __future__ import annotations

from math import prod

from ptir_tools.bridges.extents import of
from ptir_tools.bridges.onnx.ops.shape import reshaped
from ptir_tools.bridges.onnx.table import DTYPES, Node, axis, back, handles, plus, refused, stretched, wide
from ptir_tools.core.dtypes import F32, SI64
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import layers
from ptir_tools.dialects.ptir.composites.rounding import sqrt


def hardmax(x: Tensor, a: int) -> Tensor:
    """Hardmax: 1 at the first maximum, 0 elsewhere."""
    best = x.argmax(axis=a, keepdims=True, output_dtype=SI64)
    return x.block.iota(x.shape, SI64, a).compare_eq(best).cast(x.dtype)


_SOFT = {"Softmax": layers.softmax, "LogSoftmax": layers.log_softmax, "Hardmax": hardmax}


@handles("Softmax", "LogSoftmax", "Hardmax")
def soft(node: Node) -> Tensor:
    """Softmax, LogSoftmax or Hardmax along one axis; before operator set 13, over all axes from it on."""
    x = node[0]
    a = axis(node.attr("axis"), x.rank)
    if node.opset < 13 and a != x.rank - 1:
        flat = x.reshape([*x.shape[:a], -1])
        return back(_SOFT[node.name](wide(flat), a), x).reshape(x.shape)
    return back(_SOFT[node.name](wide(x), a), x)


def centered(x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """`x` minus its mean, the mean, and the biased variance."""
    average = x.mean(axes, keepdims=True)
    rest = x - average
    return rest, average, (rest * rest).mean(axes, keepdims=True)


@handles("LayerNormalization")
def layer_norm(node: Node) -> list[Tensor]:
    """LayerNormalization over all axes from `axis` on, with scale and shift."""
    x = node[0]
    a = axis(node.attr("axis"), x.rank)
    epsilon, stash = node.attr("epsilon"), DTYPES.get(node.attr("stash_type", 1), F32)
    if (
        stash is F32
        and not node.wants(1)
        and not node.wants(2)
        and node.has(2)
        and all(t.shape == x.shape[a:] for t in (node[1], node[2]))
    ):
        features = x.shape[a:]
        if len(features) == 1:
            return [rounded_norm(x, node[1], node[2], epsilon)]
        if all(isinstance(d, int) for d in features):
            n = prod(d for d in features if isinstance(d, int))
            flat = x.reshape([*x.shape[:a], n])
            return [rounded_norm(flat, node[1].reshape([n]), node[2].reshape([n]), epsilon).reshape(x.shape)]
    source = x if x.dtype.bits > stash.bits else x.cast(stash) if x.dtype is not stash else x
    rest, average, variance = centered(source, list(range(a, x.rank)))
    scale = (variance + epsilon).rsqrt()
    y = back(rest * scale, x) * stretched(node[1], x.shape)
    return [plus(y, node.get(2)), *(v if v.dtype is stash else v.cast(stash) for v in (average, scale))]


def rounded_norm(x: Tensor, gamma: Tensor, beta: Tensor, epsilon: float) -> Tensor:
    """Layer norm along the last axis, in the dtype of `x`."""
    return back(x.layer_norm(gamma, beta, epsilon), x)


@handles("RMSNormalization", "SimplifiedLayerNormalization")
def rms_norm(node: Node) -> Tensor:
    """RMSNormalization over all axes from `axis` on, with scale."""
    x = node[0]
    if node.attr("stash_type", 1) != 1:
        raise refused(f"{node.name} that is not computed in f32")
    axes = list(range(axis(node.attr("axis", -1), x.rank), x.rank))
    return scaled_rms(x, node[1], node.attr("epsilon", 1e-5), axes)


def scaled_rms(x: Tensor, gamma: Tensor, epsilon: float, axes: list[int]) -> Tensor:
    """`x` divided by its root mean square over `axes`, times `gamma`."""
    source = wide(x)
    scale = ((source * source).mean(axes, keepdims=True) + epsilon).rsqrt()
    return back(source * scale, gamma) * stretched(gamma, x.shape)


def _per_channel(v: Tensor, x: Tensor) -> Tensor:
    if v.rank > 1:  # an element per position of a sample: `spatial=0` of operator sets before 9
        return stretched(v, x.shape)
    return stretched(v.reshape([v.shape[0], *[1] * (x.rank - 2)]) if x.rank > 1 else v, x.shape)


@handles("BatchNormalization")
def batch_norm(node: Node) -> list[Tensor]:
    """BatchNormalization by given statistics; in training by those of the batch, which also update the running ones."""
    x, gamma, beta, average, variance = (wide(node[i]) for i in range(5))
    out = []
    if node.given("is_test") == 0:
        raise refused("BatchNormalization in training mode of operator sets before 7")
    rank = x.rank - 1 if node.attr("spatial", 1) == 0 else 1
    if any(v.rank != rank for v in (gamma, beta, average, variance)):
        raise Violation("InvalidModel", f"the statistics of {x.type} have rank {rank}")
    if not node.attr("training_mode"):
        node.idle("momentum")
    if node.attr("training_mode"):
        axes = [i for i in range(x.rank) if i != 1]
        _, m, v = centered(x, axes)
        m, v = m.reshape([x.shape[1]]), v.reshape([x.shape[1]])
        momentum = node.attr("momentum")
        out = [back(old * momentum + new * (1 - momentum), node[i]) for i, (old, new) in ((3, (average, m)), (4, (variance, v)))]
        average, variance = m, v
    scale = gamma * (variance.cast(gamma.dtype) + node.attr("epsilon")).rsqrt()
    y = (x - _per_channel(average, x)) * _per_channel(scale, x) + _per_channel(beta, x)
    return [back(y, node[0]), *out]


@handles("InstanceNormalization")
def instance_norm(node: Node) -> Tensor:
    """InstanceNormalization, per sample and channel."""
    x = wide(node[0])
    rest, _, variance = centered(x, list(range(2, x.rank)))
    y = rest * (variance + node.attr("epsilon")).rsqrt()
    return back(y * _per_channel(wide(node.ranked(1, 1)), x) + _per_channel(wide(node.ranked(2, 1)), x), node[0])


@handles("GroupNormalization")
def group_norm(node: Node) -> Tensor:
    """GroupNormalization, per sample and group of channels; scaled per channel (before operator set 21, per group)."""
    x = wide(node[0])
    if x.rank < 2:
        raise Violation("InvalidModel", f"GroupNormalization of {x.type}")
    groups, channels = node.attr("num_groups"), x.shape[1]
    if not isinstance(channels, int):
        raise refused(f"GroupNormalization of {channels} channels")
    if groups < 1 or channels % groups:
        raise Violation("InvalidModel", f"GroupNormalization of {channels} channels in {groups} groups")
    node.ranked(1, 1), node.ranked(2, 1)
    split = reshaped(x, [of(x.shape[0]), groups, channels // groups, *map(of, x.shape[2:])])
    rest, _, variance = centered(split, list(range(2, split.rank)))
    y = (rest * (variance + node.attr("epsilon")).rsqrt()).reshape(x.shape)
    scale, bias = wide(node[1]), wide(node[2])
    if node.opset < 21:
        scale, bias = (stretched(v.reshape([groups, 1]), (groups, channels // groups)).reshape([channels]) for v in (scale, bias))
    return back(y * _per_channel(scale, x) + _per_channel(bias, x), node[0])


@handles("LpNormalization")
def lp_norm(node: Node) -> Tensor:
    """LpNormalization along an axis; zeros stay zeros."""
    x = wide(node[0])
    a = axis(node.attr("axis"), x.rank)
    magnitude = x.abs() if node.attr("p") == 1 else x * x
    norm = magnitude.reduce_sum([a], keepdims=True)
    norm = norm if node.attr("p") == 1 else sqrt(norm)
    return back(norm.compare_eq(0.0).select(0.0, x / norm), node[0])


@handles("LRN")
def local_response(node: Node) -> Tensor:
    """LRN: divided by a power of the sum of squares of neighboring channels."""
    x, n = wide(node[0]), node.attr("size")
    ones = [1] * x.rank
    pads = [((n - 1) // 2, n - 1 - (n - 1) // 2) if i == 1 else (0, 0) for i in range(x.rank)]
    total = (x * x).reduce_window([n if i == 1 else 1 for i in range(x.rank)], ones, pads, ones, ones)
    base = total * (node.attr("alpha") / n) + node.attr("bias")
    beta = node.attr("beta")
    scale = (base.log() * -beta).exp() if beta not in (0.5, 0.75) else base.rsqrt() if beta == 0.5 else _three_quarters(base)
    return back(x * scale, node[0])


def _three_quarters(x: Tensor) -> Tensor:
    root = x.rsqrt()
    return root * sqrt(root)
