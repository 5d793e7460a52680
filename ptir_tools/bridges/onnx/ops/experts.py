"""Mixtures of experts of `com.microsoft`: the experts with the highest scores in each row, weighted."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.onnx.ops.blockwise import dequantized, unpacked, width
from ptir_tools.bridges.onnx.ops.elementwise import activated, bounded, sigmoid
from ptir_tools.bridges.onnx.ops.shape import cut
from ptir_tools.bridges.onnx.table import DOMAIN, Node, back, fixed, handles, refused, wide
from ptir_tools.core.dtypes import UI8
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import layers

_KINDS = {"relu": "Relu", "relu2": "SquaredRelu", "gelu": "FastGelu", "silu": "Silu", "identity": "Identity"}
_GATED = ("swiglu", "geglu")  # a gate, times another product
_DEFAULTS: dict[str, object] = {"k": 1, "activation_type": "relu", "activation_alpha": 1.0, "activation_beta": 0.0}
Layer = tuple[Tensor, Tensor | None]  # the weights of all experts [experts, outputs, inputs], and their biases


@handles("MoE", domain=DOMAIN, **_DEFAULTS)
def mixture(node: Node) -> Tensor:
    """MoE: experts of two or three products each."""
    layers_ = [(wide(node[i]), node.get(i + 1)) if node.has(i) else None for i in (2, 4, 6)]
    return _mixed(node, layers_, None, bool(node.attr("normalize_routing_weights", 0)))


@handles("QMoE", domain=DOMAIN, expert_weight_bits=4, weights_prepacked=-1, quant_type="int", **_DEFAULTS)
def quantized_mixture(node: Node) -> Tensor:
    """QMoE: experts whose weights have 2, 4 or 8 bits, with a scale and zero point per row, or per block of one."""
    if node.attr("quant_type") != "int" or node.attr("weights_prepacked") > 0:
        raise refused("QMoE with weights that are not integers, or are laid out for a GPU")
    node.idle("accuracy_level", "expert_weight_bits", "block_size")  # the scales show how many blocks there are
    layers_ = [_layer(node, k) if node.has(2 + 3 * k) else None for k in range(3)]
    return _mixed(node, layers_, node.get(14), node.get(14) is None)


def _layer(node: Node, k: int) -> Layer:
    """Product `k` of all experts, dequantized."""
    bits = width(node, f"fc{k + 1}_expert_weight_bits", node.attr("expert_weight_bits"))
    packed, scale, zero = node.ranked(2 + 3 * k, 3), node.get(3 + 3 * k), node.get(11 + k)
    if scale is None:
        raise refused(f"QMoE without the scales of product {k + 1}")
    experts, outputs, _ = map(fixed, packed.shape)
    whole = unpacked(packed.reshape([experts * outputs, -1]), bits)
    count = fixed(whole.shape[1])
    blocks = fixed(scale.shape[2]) if scale.rank == 3 else 1
    point: Tensor | float = float(1 << (bits - 1))
    if zero is not None:  # those of rows are packed over the rows of an expert
        rows = experts * outputs if blocks > 1 or zero.rank == 3 else experts
        point = unpacked(zero.reshape([rows, -1]), bits) if zero.dtype is UI8 else zero
        point = point if rows > experts else cut(point, 1, 0, outputs).reshape([experts * outputs, 1])
    matrix = dequantized(whole, scale.reshape([experts * outputs, blocks]), point, count // blocks)
    return matrix.reshape([experts, outputs, count]), node.get(4 + 3 * k)


def _mixed(node: Node, given: Sequence[Layer | None], weights: Tensor | None, among_best: bool) -> Tensor:
    """The weighted sum of the experts that are chosen. The weights are those given, or the softmax of all scores or the best."""
    if node.attr("use_sparse_mixer", 0):
        raise refused(f"{node.name} with `use_sparse_mixer`")
    first, second, third = given
    if first is None or second is None:
        raise Violation("InvalidModel", f"{node.name} has no weights")
    x, scores, count = wide(node[0]), wide(node[1]), node.attr("k")
    rows = x.reshape([-1, x.shape[-1]])
    best = scores.top_k(count, axis=1)
    if weights is not None:
        share = wide(weights).gather(best[1], axis=1)
        share = share / share.reduce_sum([1], keepdims=True) if node.attr("normalize_routing_weights", 0) else share
    else:
        node.idle("normalize_routing_weights")
        share = layers.softmax(best[0], 1) if among_best else layers.softmax(scores, 1).gather(best[1], axis=1)
    total: Tensor | None = None
    for e in range(fixed(scores.shape[1])):
        hidden = _hidden(node, _product(rows, first, e), None if third is None else _product(rows, third, e))
        result = _product(hidden, second, e)
        chosen = best[1].compare_eq(e)
        weight = chosen.select(share, 0.0).reduce_sum([1], keepdims=True)
        on = chosen.select(1.0, share * 0.0).reduce_max([1], keepdims=True) > 0.0
        part = on.select(result * weight, 0.0)
        total = part if total is None else total + part
    assert total is not None
    return back(total.reshape(x.shape), node[0])


def _product(x: Tensor, layer: Layer, e: int) -> Tensor:
    """The product of rows and the weights of expert `e`, with its bias."""
    weight, bias = layer
    y = x.dot_general(cut(weight, 0, e, 1).reshape(weight.shape[1:]), contract_lhs=[1], contract_rhs=[1])
    return y if bias is None else y + cut(wide(bias), 0, e, 1)


def _hidden(node: Node, x: Tensor, other: Tensor | None) -> Tensor:
    """The activation of a product, times the other product: that of the third weights, or the other half of the first."""
    kind = node.choice("activation_type", (*_KINDS, *_GATED))
    node.idle("activation_alpha", "activation_beta", "swiglu_limit", "swiglu_limit_after_activation")  # others than swiglu
    if kind not in _GATED:
        y = activated(_KINDS[kind])(x)
        return y if other is None else y * other
    if other is None:
        n, half = x.shape[0], fixed(x.shape[1]) // 2
        layout = node.attr("swiglu_fusion", 0)
        if layout not in (1, 2):
            raise Violation("InvalidModel", f"{node.name} has one product for {kind}, and `swiglu_fusion` is {layout}")
        split = x.reshape([n, half, 2] if layout == 1 else [n, 2, half])
        x, other = (cut(split, layout % 2 + 1, k, 1).reshape([n, half]) for k in (0, 1))
    if kind == "geglu":
        return layers.gelu_tanh(x) * other
    alpha: float = node.attr("activation_alpha")
    beta: float = node.attr("activation_beta")
    limit: float | None = node.attr("swiglu_limit")
    late = bool(node.attr("swiglu_limit_after_activation", 0))
    x = x.minimum(limit) if limit is not None and not late else x
    y = x * sigmoid(alpha * x)
    y = y.minimum(limit) if limit is not None and late else y
    other = bounded(other, -limit, limit) if limit is not None else other
    made: Tensor = y * (other + beta)
    return made
