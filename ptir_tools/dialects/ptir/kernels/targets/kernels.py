"""Common network kernels as custom calls, on float64 arrays."""

from __future__ import annotations

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType, Type
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.kernels.targets.fused import Values
from ptir_tools.dialects.ptir.ops import normalize, shape
from ptir_tools.dialects.ptir.ops.erf import erf
from ptir_tools.dialects.ptir.ops.typerules import agree, attribute, axis_of


def same_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x."""
    return types[0]


def any_softmax_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x, in which the axis must exist."""
    axis_of(values["axis"], types[0].rank)
    return types[0]


def softmax_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x; the axis is the last."""
    axis = axis_of(values["axis"], types[0].rank)
    attribute(axis == types[0].rank - 1, f"axis {values['axis']} is not the last of {types[0]}", "axis")
    return types[0]


def softmax(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """The stable softmax over the axis."""
    return normalized_exp(xs[0], values["axis"])


def log_softmax(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """The logarithm of the softmax, stable as well."""
    shifted = xs[0] - xs[0].max(axis=values["axis"], keepdims=True, initial=-np.inf)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=values["axis"], keepdims=True)))


def normalized_exp(x: Array, axis: int) -> Array:
    """`exp(x)` divided by its sum along `axis`, with the maximum subtracted first."""
    power = np.exp(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    return np.asarray(power / power.sum(axis=axis, keepdims=True))


def layer_norm_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x."""
    return normalize.layer_norm_type(*types, epsilon=values["eps"], feature_axis=values["axis"])


def layer_norm(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """As the op `layer_norm`."""
    x, gamma, beta = xs
    return normalize.layer_norm_arrays(x, gamma, beta, values["eps"], values["axis"])


def rms_norm_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x; gamma is a vector along the axis."""
    x, gamma = types
    return normalize.layer_norm_type(x, gamma, gamma, epsilon=values["eps"], feature_axis=values["axis"])


def rms_norm(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """`x / sqrt(mean(x * x) + eps) * gamma` along the axis."""
    x, gamma = xs
    axis = values["axis"] % x.ndim
    mean = np.square(x).sum(axis, keepdims=True) / max(x.shape[axis], 1)
    return np.asarray(x / np.sqrt(mean + values["eps"]) * gamma.reshape([-1 if i == axis else 1 for i in range(x.ndim)]))


def gelu_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x; `approximate` is `none`, `tanh` or `sigmoid`."""
    how = values["approximate"]
    attribute(how in ("none", "tanh", "sigmoid"), f"approximate is none, tanh or sigmoid, not {how}", "approximate")
    return types[0]


def gelu(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """`x / 2 * (1 + erf(x / sqrt(2)))`, or its approximation by tanh or by `x / (1 + exp(-1.702 x))`."""
    x = xs[0]
    if values["approximate"] == "sigmoid":
        return np.asarray(x / (1.0 + np.exp(-1.702 * x)))
    if values["approximate"] == "none":
        return np.asarray(0.5 * x * (1.0 + erf(x * np.sqrt(0.5))))
    return np.asarray(0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x**3))))


def silu(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """`x / (1 + exp(-x))`."""
    return np.asarray(xs[0] / (1.0 + np.exp(-xs[0])))


def attention_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """q [.., S, D], k [.., T, D], v [.., T, E]. The leading extents of k and v are those of q, or 1 where several heads share
    them. A mask broadcasts to [.., S, T]; it is added, or, for i1, selects the scores."""
    q, k, v, *mask = types
    require(q.rank >= 2 and k.rank == v.rank == q.rank, "OperandRankMismatch", f"q, k, v are of one rank, got {q}, {k}, {v}")
    pairs = [(a, b) for t in (k, v) for a, b in zip(q.shape[:-2], t.shape[:-2], strict=True) if b != 1]
    pairs += [(q.shape[-1], k.shape[-1]), (k.shape[-2], v.shape[-2])]
    for a, b in pairs:
        agree(a, b, "OperandShapeMismatch", f"q {q}, k {k} and v {v} do not fit")
    for m in mask:
        shape.broadcast_type(m, result_shape=(*q.shape[:-1], k.shape[-2]))
    return q.with_shape((*q.shape[:-1], v.shape[-1]))


def attention(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """`softmax(q k^T * scale + mask) v`; where an i1 mask is false, the score is `masked`."""
    q, k, v, *mask = xs
    scores = q @ k.swapaxes(-1, -2) * values["scale"]
    for m in mask:
        scores = np.where(m, scores, values.get("masked", -np.inf)) if m.dtype == np.bool_ else scores + m
    return np.asarray(normalized_exp(scores, -1) @ v)
