"""Layers of networks in ops of the contract: norms, softmax, activations, attention."""

from __future__ import annotations

from math import inf, pi, sqrt

from ptir_tools.core.dtypes import I1
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.rewrite.expression import erf, exp, log, rsqrt, select, tanh


def _mean(x: Tensor, axis: int) -> Tensor:
    """The mean of `x` over `axis`, which stays with extent 1."""
    total, extent = x.reduce_sum((axis,), keepdims=True), x.shape[axis]
    if isinstance(extent, int):
        return total * (1 / max(extent, 1))
    count = x.block.filled(1.0, x.tensor_type.with_shape((extent,))).reduce_sum((0,))
    return total / count.broadcast_like(total)


def _along(vector: Tensor, x: Tensor, axis: int) -> Tensor:
    """`vector` along `axis` of `x`."""
    behind = x.rank - 1 - axis
    return (vector.reshape((x.shape[axis], *[1] * behind)) if behind else vector).broadcast_like(x)


def layer_norm(x: Tensor, gamma: Tensor, beta: Tensor, axis: int, epsilon: float) -> Tensor:
    """The form that gpt.rs captures: mean, centered, mean of squares, rsqrt, scale, shift."""
    centered = x - _mean(x, axis).broadcast_like(x)
    scale = rsqrt(_mean(centered * centered, axis) + epsilon)
    normal = centered * scale.broadcast_like(x)
    return normal * _along(gamma, x, axis) + _along(beta, x, axis)


def rms_norm(x: Tensor, gamma: Tensor, axis: int, epsilon: float) -> Tensor:
    """Mean of squares, epsilon, rsqrt, scale."""
    stable = _mean(x * x, axis) + epsilon
    return x * rsqrt(stable).broadcast_like(x) * _along(gamma, x, axis)


def _shifted(x: Tensor, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """`x` minus its maximum, the exponential of that, and its sum."""
    shifted = x - x.reduce_max((axis,), keepdims=True).broadcast_like(x)
    power = exp(shifted)
    return shifted, power, power.reduce_sum((axis,), keepdims=True)


def softmax(x: Tensor, axis: int) -> Tensor:
    """The stable softmax, seven ops."""
    _, power, total = _shifted(x, axis)
    return power / total.broadcast_like(x)


def log_softmax(x: Tensor, axis: int) -> Tensor:
    """The stable logarithm of the softmax, seven ops."""
    shifted, _, total = _shifted(x, axis)
    return shifted - log(total).broadcast_like(x)


def gelu(x: Tensor) -> Tensor:
    """By erf."""
    inner = erf(x * sqrt(0.5))
    return x * 0.5 * (inner + 1.0)


def gelu_tanh(x: Tensor) -> Tensor:
    """By tanh of a cubic."""
    inner = tanh((x + x * x * x * 0.044715) * sqrt(2 / pi))
    return x * 0.5 * (inner + 1.0)


def gelu_sigmoid(x: Tensor) -> Tensor:
    """As a logistic function."""
    return x / (exp(x * -1.702) + 1.0)


def silu(x: Tensor) -> Tensor:
    """`x / (1 + exp(-x))`."""
    return x / (exp(-x) + 1.0)


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, scale: float, masked: float = -inf) -> Tensor:
    """Scores, scale, mask, softmax, and the product with the values. Where an i1 mask is false, the score is `masked`."""
    n, lead = q.rank, q.shape[:-2]
    k, v = (x if x.shape[:-2] == lead else x.broadcast_to((*lead, *x.shape[-2:])) for x in (k, v))
    batch = tuple(range(n - 2))
    scores = q.dot_general(k, batch_lhs=batch, batch_rhs=batch, contract_lhs=(n - 1,), contract_rhs=(n - 1,))
    if scale != 1:
        scores = scores * scale
    if mask is not None:
        mask = mask if mask.shape == scores.shape else mask.broadcast_like(scores)
        scores = select(mask, scores, masked) if mask.dtype is I1 else scores + mask
    weights = softmax(scores, n - 1)
    return weights.dot_general(v, batch_lhs=batch, batch_rhs=batch, contract_lhs=(n - 1,), contract_rhs=(n - 2,))
