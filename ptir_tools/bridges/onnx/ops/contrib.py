"""Operators of `com.microsoft` that ONNX Runtime's quantizer and optimizer write: functions of ONNX operators where possible,
else compositions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from ptir_tools.bridges.onnx.ops.elementwise import NAMED, activated, centered, named, scalar, sigmoid
from ptir_tools.bridges.onnx.ops.matrix import gemm, matmul
from ptir_tools.bridges.onnx.ops.normalize import rounded_norm, scaled_rms
from ptir_tools.bridges.onnx.ops.quantize import dequantize, quantize, requantized
from ptir_tools.bridges.onnx.ops.window import conv
from ptir_tools.bridges.onnx.table import (
    DEFAULTS,
    DOMAIN,
    HANDLERS,
    Node,
    back,
    handles,
    plus,
    refused,
    wide,
)
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import layers

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

_SET = 23  # the operator set of the bodies; an attribute `opset` of an operator overrides it

_POOL = "auto_pad, ceil_mode, count_include_pad, kernel_shape, pads, strides"
_POOLED = (
    "auto_pad: string = @auto_pad, ceil_mode: int = @ceil_mode, count_include_pad: int = @count_include_pad, "
    "kernel_shape: ints = @kernel_shape, pads: ints = @pads, strides: ints = @strides"
)


def _quantized(name: str, inner: str, attrs: str = "") -> str:
    """A function of one quantized operand that applies an ONNX operator to its real value."""
    head = f"{name} <{attrs}>" if attrs else name
    body = f"f = DequantizeLinear (x, xs, xz) r = {inner} (f) y = QuantizeLinear (r, ys, yz)"
    return f"{head} (x, xs, xz, ys, yz) => (y) {{ {body} }}"


def _pairwise(name: str, inner: str) -> str:
    """A function of two quantized operands that applies an ONNX operator to their real values."""
    body = f"f = DequantizeLinear (a, sa, za) g = DequantizeLinear (b, sb, zb) r = {inner} (f, g) y = QuantizeLinear (r, sy, zy)"
    return f"{name} (a, sa, za, b, sb, zb, sy, zy) => (y) {{ {body} }}"


_TEXTS = (
    _pairwise("QLinearAdd", "Add"),
    _pairwise("QLinearMul", "Mul"),
    _quantized("QLinearSigmoid", "Sigmoid"),
    _quantized("QLinearLeakyRelu", "LeakyRelu <alpha: float = @alpha>", "alpha: float = 0.01"),
    _quantized("QLinearSoftmax", "Softmax <axis: int = @axis>", "opset, axis: int = -1"),
    _quantized("QLinearAveragePool", f"AveragePool <{_POOLED}>", _POOL),
    _quantized("QLinearGlobalAveragePool", "GlobalAveragePool"),
    """QLinearWhere (c, x, sx, zx, y, sy, zy, sz, zz) => (z) {
        f = DequantizeLinear (x, sx, zx) g = DequantizeLinear (y, sy, zy) r = Where (c, f, g) z = QuantizeLinear (r, sz, zz) }""",
    """MatMulIntegerToFloat (a, b, sa, sb, za, zb, c) => (y) {
        p = MatMulInteger (a, b, za, zb) f = Cast <to: int = 1> (p) s = Mul (sa, sb) t = Mul (f, s)
        y = com.microsoft.BiasGiven (t, c) }""",
    """DynamicQuantizeMatMul (a, b, sb, zb, c) => (y) {
        q, s, z = DynamicQuantizeLinear (a) p = MatMulInteger (q, b, z, zb) f = Cast <to: int = 1> (p) u = Mul (s, sb)
        t = Mul (f, u) y = com.microsoft.BiasGiven (t, c) }""",
)


@cache
def functions() -> dict[str, onnx.FunctionProto]:
    """A FunctionProto per operator that is defined by others."""
    by_name = {}
    for text in _TEXTS:
        head = f'<domain: "{DOMAIN}", opset_import: ["" : {_SET}, "{DOMAIN}" : 1]>\n'
        body = onnx.parser.parse_function(head + text)
        by_name[body.name] = body
    return by_name


def function_of(node: Node) -> onnx.FunctionProto | None:
    """The FunctionProto of a node of `com.microsoft`, or None. Raises Violation for an attribute or an operand that the
    function does not have."""
    result = functions().get(node.name)
    if result is None:
        return None
    node.idle(*result.attribute, *(a.name for a in result.attribute_proto), *range(len(result.input)))
    if left := node.ignored():
        raise refused(f"{node.name} with {left}")
    if (version := node.given("opset")) is not None:
        body = onnx.FunctionProto()
        body.CopyFrom(result)
        body.opset_import[0].version = version
        return body
    return result


HANDLERS.update({(DOMAIN, "QuantizeLinear"): quantize, (DOMAIN, "DequantizeLinear"): dequantize})
DEFAULTS.update({(DOMAIN, name): {"axis": 1} for name in ("QuantizeLinear", "DequantizeLinear")})


@handles("BiasGiven", domain=DOMAIN)
def bias_given(node: Node) -> Tensor:
    """The sum with an optional bias; an internal operator of these functions."""
    return plus(node[0], node.get(1))


@handles("QLinearConcat", domain=DOMAIN)
def qlinear_concat(node: Node) -> Tensor:
    """QLinearConcat: quantized tensors joined, in the quantization of the first two operands."""
    parts = []
    for i in range(2, len(node), 3):
        whole = node[i].cast(SI32) - node[i + 2].cast(SI32).reshape([])
        parts.append(whole.cast(F32) * node[i + 1].reshape([]))
    whole = node.concat(parts, node.attr("axis") % parts[0].rank)
    return requantized(whole / node[0].reshape([]), node[1])


@handles("QGemm", domain=DOMAIN, alpha=1.0, transA=0, transB=0)
def qgemm(node: Node) -> Tensor:
    """QGemm: a product of quantized matrices with an integer bias. The result is quantized, or f32 if it has no scale."""
    a, b = centered(node[0], node.get(2)), node[3]
    if node.attr("transB", 0):
        b = b.transpose([1, 0])
    b = centered(b, node.get(5))
    total = plus(matmul(a.transpose([1, 0]) if node.attr("transA", 0) else a, b), node.get(6))
    alpha: float = node.attr("alpha")
    numbers = total.cast(F32) * (scalar(node[1]) * alpha * scalar(node[4]))
    if node.datum(7) is None:
        return numbers
    return requantized(numbers / scalar(node[7]), node[8])


@handles("Gelu", "FastGelu", "BiasGelu", "QuickGelu", domain=DOMAIN)
def gelus(node: Node) -> Tensor:
    """Gelu in its forms, of the sum with an optional bias."""
    x = plus(node[0], node.get(1))
    y = wide(x)
    if node.name == "QuickGelu":
        return back(y * sigmoid(node.attr("alpha", 1.702) * y), x)
    return back(layers.gelu_tanh(y) if node.name == "FastGelu" else layers.gelu(y), x)


@handles("FusedMatMul", "TransposeMatMul", domain=DOMAIN, alpha=1.0, transA=0, transB=0)
def fused_matmul(node: Node) -> Tensor:
    """FusedMatMul: a product of matrices, each optionally transposed, times a number."""
    y, alpha = matmul(_turned(node, 0, "A"), _turned(node, 1, "B")), node.attr("alpha")
    return y if alpha == 1 else back(wide(y) * alpha, y)


def _turned(node: Node, i: int, which: str) -> Tensor:
    """An operand whose rows are transposed behind its batch axes, and whose last two axes are exchanged, as the node asks."""
    x = node[i]
    behind, swapped = node.attr(f"transBatch{which}", 0), node.attr(f"trans{which}", 0)
    if behind and x.rank > 2:
        x = x.transpose([*range(1, x.rank - 1), 0, x.rank - 1])
    return x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2]) if swapped and x.rank > 1 else x


@handles("FusedConv", domain=DOMAIN, group=1, auto_pad="NOTSET")
def fused_conv(node: Node) -> Tensor:
    """FusedConv: a convolution, an optional addition, and an activation."""
    y = conv(node)
    return _apply_activation(node, y if node.datum(3) is None else y + node[3], node.attr("activation_params", []))


@handles("FusedGemm", domain=DOMAIN, alpha=1.0, beta=1.0, transA=0, transB=0)
def fused_gemm(node: Node) -> Tensor:
    """FusedGemm: a product of matrices with a bias, and an activation."""
    y = gemm(node)
    return _apply_activation(node, y, [node.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")])


def _apply_activation(node: Node, y: Tensor, params: Sequence[float | None]) -> Tensor:
    """The activation that the node names, with parameters in the order of ONNX's attributes."""
    kind = node.attr("activation", "")
    if not kind:
        return y
    given = dict(zip(("alpha", "beta", "gamma"), params, strict=False))
    return back(activated(kind, {k: v for k, v in given.items() if k in NAMED[named(kind)]})(wide(y)), y)


@handles("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_norm(node: Node) -> list[Tensor | None]:
    """SkipLayerNormalization: the sum of input, skip and bias, normalized along the last axis. The fourth output is the sum."""
    x, skip = node[0], node[1]
    simple = node.name == "SkipSimplifiedLayerNormalization"
    total = plus(x + skip, node.get(3 if simple else 4))
    if node.wants(1) or node.wants(2):
        raise refused(f"the mean and deviation of {node.name}")
    epsilon, gamma = node.attr("epsilon", 1e-12), node[2]
    if simple:
        return [scaled_rms(total, gamma, epsilon, [total.rank - 1]), None, None, total]
    beta = node[3] if node.datum(3) is not None else node.block.full(0.0, gamma)
    return [rounded_norm(total, gamma, beta, epsilon), None, None, total]
