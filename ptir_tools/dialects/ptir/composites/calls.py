"""Known custom calls in ops of the contract: the inverse of `recognize` and of fusion.

Kernels that round once are computed in f32 for narrower dtypes, as layer norm is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, prod

from ptir_tools.core import costs
from ptir_tools.core.expressions import Poly, constant, total
from ptir_tools.core.ir import Op, Region, Value, operand_type
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast, wide
from ptir_tools.dialects.ptir.composites import layers, trees
from ptir_tools.dialects.ptir.kernels.targets import COLUMNS, NODES, Values, values_of
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.vocabulary import shape


class Call(Site):
    """A custom call to be replaced, and its attributes."""

    def __init__(self, op: Op, rw: Rewriter) -> None:
        super().__init__(op, rw)
        self.values: Values = values_of(op.attr("target"), op.attr("attrs"))

    @property
    def axis(self) -> int:
        """The attribute of that name, counted from the first axis."""
        axis: int = self.values["axis"] % len(self.result.shape)
        return axis


def expandable(op: Op) -> bool:
    """Whether `op` is a known custom call of which its expansion can be made."""
    expansion = EXPANSIONS.get(op.attr("target")) if op.defn.name == "ptir.custom_call" else None
    return expansion is not None and ((needs := _NEEDS.get(expansion)) is None or needs(op))


def expand(op: Op, rw: Rewriter) -> None:
    """Replace the expandable custom call `op` by ops."""
    call = Call(op, rw)
    dtype = wide(call.operands[0].dtype)
    operands = [cast(x, dtype) if x.dtype.is_float else x for x in call.operands]
    call.replace(cast(EXPANSIONS[op.attr("target")](call, *operands), call.result.dtype))


def cost(op: Op) -> Poly:
    """The arithmetic of the ops that the custom call `op` replaces; 0 where it is not known."""
    if not expandable(op):
        return constant(0)
    params = [Value(operand_type(x), f"x{k}") for k, x in enumerate(op.operands)]
    call = Op(op.defn, tuple(params), op.attrs)
    call.results = (Value(op.result.type, "y", call),)
    block = Region(params=params, body=[call], results=[call.result])
    with Rewriter(block, DIALECT) as rw:
        expand(call, rw)
    return total(map(costs.operations, block.body))


def _layer_norm(call: Call, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return call.layer_norm(x, gamma, beta, epsilon=call.values["eps"], feature_axis=call.values["axis"])


def _gelu(call: Call, x: Tensor) -> Tensor:
    forms = {"none": layers.gelu, "sigmoid": layers.gelu_sigmoid}
    return forms.get(call.values["approximate"], layers.gelu_tanh)(x)


def _attention(call: Call, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    return layers.attention(q, k, v, mask, call.values["scale"], call.values.get("masked", -inf))


def _convolution(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Patches, contracted with the packed weights."""
    return _biased(_patches(call, x).dot_general(weight, contract_lhs=(3,), contract_rhs=(0,)), bias)


def _grouped(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Patches by group, a contraction for each, and the concatenated outputs."""
    if (groups := call.values["groups"]) == 1:
        return _convolution(call, x, weight, bias)
    taps = prod(call.values["window"])
    rows, columns = weight.tensor_type.static_shape
    packed = _shaped(weight, taps, rows // taps, groups, columns // groups).transpose((2, 3, 1, 0))
    return _biased(_by_group(call, x, packed, groups), bias)


def _depthwise(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """A group for each channel."""
    channels, taps = weight.tensor_type.static_shape
    return _biased(_by_group(call, x, _shaped(weight, channels, 1, 1, taps), channels), bias)


def _shaped(x: Tensor, *extents: int) -> Tensor:
    return x if x.shape == extents else x.reshape(extents)


def _patches(call: Call, x: Tensor) -> Tensor:
    top, bottom, left, right = call.values["padding"]
    given = {name: call.values[name] for name in ("window", "strides", "dilation")}
    return x.extract_patches(**given, padding=((top, bottom), (left, right)))


def _by_group(call: Call, x: Tensor, weight: Tensor, groups: int) -> Tensor:
    """Weights [G, O / G, C / G, taps]."""
    n, h, w, outputs = call.result.shape
    _, _, channels, taps = weight.shape
    laid = _patches(call, x).reshape((n, h, w, taps, groups, channels))
    product = laid.dot_general(weight, batch_lhs=(4,), batch_rhs=(0,), contract_lhs=(3, 5), contract_rhs=(3, 2))
    return product.transpose((1, 2, 3, 0, 4)).reshape((n, h, w, outputs))


def _biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x if bias is None else x + bias.broadcast_like(x)


def _elementwise(call: Call, *xs: Tensor) -> Tensor:
    """One op per node; a smaller input is broadcast."""
    extents = call.result.shape
    found = [x if x.shape == extents else x.broadcast_to(extents) for x in xs]
    columns = (call.values[key] for key in COLUMNS)
    for kind, code, lhs, rhs in zip(*columns, strict=True):
        operands = [found[lhs]] if kind == 0 else [found[lhs], found[rhs]]
        found.append(call.op(NODES[kind][code], *operands))
    return found[-1]


def _dot_bias(call: Call, lhs: Tensor, rhs: Tensor, bias: Tensor) -> Tensor:
    """The contraction and the addition."""
    product = lhs.dot_general(rhs, **{name: call.values[f"dot_{name}"] for name in DIMENSION_NUMBERS})
    return product + (bias if bias.shape == product.shape else bias.broadcast_like(product))


def _trees(call: Call, x: Tensor, *tables: Tensor) -> Tensor:
    return trees.ensemble(call, x, call.values)


EXPANSIONS: dict[str, Callable[..., Tensor]] = {
    "gpt_rs.c.conv2d.nhwc.f32.v1": _convolution,
    "gpt_rs.faer.conv2d.nhwc.f32.v1": _convolution,
    "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1": _depthwise,
    "gpt_rs.c.fused_elementwise.f32.v1": _elementwise,
    "gpt_rs.triton.fused_elementwise.f32.v1": _elementwise,
    "gpt_rs.triton.fused_dot_bias.f32.v1": _dot_bias,
    "gpt_rs.triton.fused_softmax_last_axis.f32.v1": lambda call, x: layers.softmax(x, call.axis),
    "gpt_rs.triton.fused_layer_norm.f32.v1": _layer_norm,
    "ptir.softmax.v1": lambda call, x: layers.softmax(x, call.axis),
    "ptir.log_softmax.v1": lambda call, x: layers.log_softmax(x, call.axis),
    "ptir.rms_norm.v1": lambda call, x, gamma: layers.rms_norm(x, gamma, call.axis, call.values["eps"]),
    "ptir.gelu.v1": _gelu,
    "ptir.silu.v1": lambda call, x: layers.silu(x),
    "ptir.attention.v1": _attention,
    "ptir.conv2d.nhwc.v1": _grouped,
    "ptir.tree_ensemble.v1": _trees,
}


def _is_static(op: Op) -> bool:
    """Whether all extents but the batch, which may be a symbol, are numbers."""
    return all(isinstance(d, int) for x in (op, *op.operands[:1]) for d in shape(x)[1:])


_NEEDS: dict[Callable[..., Tensor], Callable[[Op], bool]] = {  # what a call needs, so that its expansion can be made
    **dict.fromkeys((_convolution, _grouped, _depthwise), _is_static), _trees: trees.expandable,
}  # fmt: skip
