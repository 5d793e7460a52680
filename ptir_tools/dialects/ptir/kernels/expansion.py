"""Expansion of known custom calls to the ops that they replace: the inverse of `recognize` and of fusion.

Kernels that round once are computed in f32 for narrower dtypes, as layer norm is.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf, pi, prod, sqrt

from ptir_tools.core import costs
from ptir_tools.core.dtypes import I1
from ptir_tools.core.expressions import Poly, constant, total
from ptir_tools.core.ir import Attribute, Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import Dim, Shape, TensorType
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir.kernels.targets import COLUMNS, NODES, Values, values_of
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.decompose import Emitter
from ptir_tools.rewrite.rewriter import Rewriter


class Call(Emitter):
    """A custom call to be replaced: its operands, in the dtype of the computation, and its attributes."""

    def __init__(self, op: Op, rw: Rewriter) -> None:
        super().__init__(op, rw, helpers.tensor_type(op.operands[0]))
        self.values: Values = values_of(op.attr("target"), op.attr("attrs"))
        flags = [helpers.dtype(x) is I1 for x in op.operands]
        self.operands = [
            x if flag else self.cast(x, helpers.tensor_type(x).with_dtype(self.dtype))
            for x, flag in zip(op.operands, flags, strict=True)
        ]
        self.result: TensorType = helpers.tensor_type(op)

    def op(self, name: str, *operands: Operand, **given: Attribute) -> Value:
        """An op with attributes, before the call."""
        return self.rw.build(self.root, name, *operands, **given)

    def number(self, name: str, x: Operand, number: float) -> Value:
        """A binary op on `x` and a number."""
        return self(name, x, self.scalar(number, helpers.shape(x)))

    def shaped(self, x: Operand, *shape: Dim) -> Operand:
        """`x` reshaped."""
        return x if helpers.shape(x) == shape else self.op("reshape", x, new_shape=shape)

    def moved(self, x: Operand, *perm: int) -> Operand:
        """`x` transposed."""
        return x if perm == tuple(range(len(perm))) else self.op("transpose", x, perm=perm)


def expandable(op: Op) -> bool:
    """Whether `op` is a known custom call, with static extents where its expansion needs them."""
    expansion = EXPANSIONS.get(op.attr("target")) if op.defn.name == "ptir.custom_call" else None
    known = (d for x in (op, *op.operands[:1]) for d in helpers.shape(x)[1:])  # the batch may be a symbol
    return expansion is not None and (expansion not in _STATIC or all(isinstance(d, int) for d in known))


def expand(op: Op, rw: Rewriter) -> None:
    """Replace the expandable custom call `op` by ops."""
    call = Call(op, rw)
    rw.replace_all_uses(op.result, call.cast(EXPANSIONS[op.attr("target")](call), call.result))
    rw.erase(op)


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


def _shifted(call: Call, x: Operand, axis: int) -> tuple[Value, Value, Value]:
    """`x` minus its maximum, the exponential of that, and its sum."""
    high = call.op("reduce_max", x, axes=(axis,), keepdims=True)
    shifted = call("sub", x, call.spread(high, helpers.shape(x)))
    power = call("exp", shifted)
    return shifted, power, call.op("reduce_sum", power, axes=(axis,), keepdims=True)


def _softmax_of(call: Call, x: Operand, axis: int) -> Value:
    _, power, total = _shifted(call, x, axis)
    return call("div", power, call.spread(total, helpers.shape(x)))


def softmax(call: Call) -> Value:
    """The stable softmax, seven ops."""
    return _softmax_of(call, call.operands[0], call.values["axis"] % call.result.rank)


def log_softmax(call: Call) -> Value:
    """The stable logarithm of the softmax, seven ops."""
    (x,) = call.operands
    shifted, _, total = _shifted(call, x, call.values["axis"] % call.result.rank)
    return call("sub", shifted, call.spread(call("log", total), helpers.shape(x)))


def layer_norm(call: Call) -> Value:
    """The op of the contract."""
    values = call.values
    return call.op("layer_norm", *call.operands, epsilon=values["eps"], feature_axis=values["axis"])


def rms_norm(call: Call) -> Value:
    """Mean of squares, epsilon, rsqrt, scale."""
    x, gamma = call.operands
    shape, axis = helpers.shape(x), call.values["axis"] % call.result.rank
    kept = (*shape[:axis], 1, *shape[axis + 1 :])
    stable = call.number("add", call.mean(call("mul", x, x), axis, kept), call.values["eps"])
    normal = call("mul", x, call.spread(call("rsqrt", stable), shape))
    return call("mul", normal, call.spread(call.shaped(gamma, shape[axis], *[1] * (len(shape) - 1 - axis)), shape))


def gelu(call: Call) -> Value:
    """By erf, by tanh of a cubic, or as a logistic function."""
    (x,) = call.operands
    if call.values["approximate"] == "sigmoid":
        return _logistic(call, x, call.number("mul", x, -1.702))
    if call.values["approximate"] == "none":
        inner = call("erf", call.number("mul", x, sqrt(0.5)))
    else:
        cube = call("mul", call("mul", x, x), x)
        bent = call("add", x, call.number("mul", cube, 0.044715))
        inner = call("tanh", call.number("mul", bent, sqrt(2 / pi)))
    return call("mul", call.number("mul", x, 0.5), call.number("add", inner, 1.0))


def silu(call: Call) -> Value:
    """`x / (1 + exp(-x))`."""
    (x,) = call.operands
    return _logistic(call, x, call("neg", x))


def _logistic(call: Call, x: Operand, slope: Value) -> Value:
    return call("div", x, call.number("add", call("exp", slope), 1.0))


def attention(call: Call) -> Value:
    """Scores, scale, mask, softmax, and the product with the values."""
    q, k, v, *mask = call.operands
    n, lead = helpers.rank(q), helpers.shape(q)[:-2]
    k, v = (x if helpers.shape(x)[:-2] == lead else call.spread(x, (*lead, *helpers.shape(x)[-2:])) for x in (k, v))
    batch = tuple(range(n - 2))
    scores = call.op("dot_general", q, k, batch_lhs=batch, batch_rhs=batch, contract_lhs=(n - 1,), contract_rhs=(n - 1,))
    if call.values["scale"] != 1:
        scores = call.number("mul", scores, call.values["scale"])
    shape = helpers.shape(scores)
    for m in mask:
        wide = m if helpers.shape(m) == shape else call.spread(m, shape)
        if helpers.dtype(m) is I1:
            scores = call("select", wide, scores, call.scalar(call.values.get("masked", -inf), shape))
        else:
            scores = call("add", scores, wide)
    weights = _softmax_of(call, scores, n - 1)
    return call.op("dot_general", weights, v, batch_lhs=batch, batch_rhs=batch, contract_lhs=(n - 1,), contract_rhs=(n - 2,))


def convolution(call: Call) -> Value:
    """Patches, contracted with the packed weights."""
    x, weight, *bias = call.operands
    return _biased(call, call.op("dot_general", _patches(call, x), weight, contract_lhs=(3,), contract_rhs=(0,)), bias)


def grouped(call: Call) -> Value:
    """Patches by group, a contraction for each, and the concatenated outputs."""
    x, weight, *bias = call.operands
    groups = call.values["groups"]
    if groups == 1:
        return convolution(call)
    taps = prod(call.values["window"])
    rows, columns = helpers.tensor_type(weight).static_shape
    packed = call.moved(call.shaped(weight, taps, rows // taps, groups, columns // groups), 2, 3, 1, 0)
    return _biased(call, _by_group(call, x, packed, groups), bias)


def depthwise(call: Call) -> Value:
    """A group for each channel."""
    x, weight, *bias = call.operands
    channels, taps = helpers.tensor_type(weight).static_shape
    return _biased(call, _by_group(call, x, call.shaped(weight, channels, 1, 1, taps), channels), bias)


def _patches(call: Call, x: Operand) -> Value:
    top, bottom, left, right = call.values["padding"]
    given = {name: call.values[name] for name in ("window", "strides", "dilation")}
    return call.op("extract_patches", x, **given, padding=((top, bottom), (left, right)))


def _by_group(call: Call, x: Operand, weight: Operand, groups: int) -> Value:
    """Weights [G, O / G, C / G, taps]."""
    n, h, w, outputs = call.result.shape
    _, _, channels, taps = helpers.tensor_type(weight).static_shape
    laid = call.op("reshape", _patches(call, x), new_shape=(n, h, w, taps, groups, channels))
    product = call.op("dot_general", laid, weight, batch_lhs=(4,), batch_rhs=(0,), contract_lhs=(3, 5), contract_rhs=(3, 2))
    return call.op("reshape", call.op("transpose", product, perm=(1, 2, 3, 0, 4)), new_shape=(n, h, w, outputs))


def _biased(call: Call, x: Value, bias: list[Operand]) -> Value:
    return call("add", x, call.spread(bias[0], helpers.shape(x))) if bias else x


def elementwise(call: Call) -> Value:
    """One op per node; a smaller input is broadcast."""
    shape: Shape = call.result.shape
    found = [x if helpers.shape(x) == shape else call.spread(x, shape) for x in call.operands]
    columns = (call.values[key] for key in COLUMNS)
    for kind, code, lhs, rhs in zip(*columns, strict=True):
        operands = [found[lhs]] if kind == 0 else [found[lhs], found[rhs]]
        found.append(call(NODES[kind][code], *operands))
    made = found[-1]
    assert isinstance(made, Value)
    return made


def dot_bias(call: Call) -> Value:
    """The contraction and the addition."""
    lhs, rhs, bias = call.operands
    axes = {name: call.values[f"dot_{name}"] for name in DIMENSION_NUMBERS}
    product = call.op("dot_general", lhs, rhs, **axes)
    return call(
        "add", product, bias if helpers.shape(bias) == helpers.shape(product) else call.spread(bias, helpers.shape(product))
    )


EXPANSIONS: dict[str, Callable[[Call], Value]] = {
    "gpt_rs.c.conv2d.nhwc.f32.v1": convolution,
    "gpt_rs.faer.conv2d.nhwc.f32.v1": convolution,
    "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1": depthwise,
    "gpt_rs.c.fused_elementwise.f32.v1": elementwise,
    "gpt_rs.triton.fused_elementwise.f32.v1": elementwise,
    "gpt_rs.triton.fused_dot_bias.f32.v1": dot_bias,
    "gpt_rs.triton.fused_softmax_last_axis.f32.v1": softmax,
    "gpt_rs.triton.fused_layer_norm.f32.v1": layer_norm,
    "ptir.softmax.v1": softmax,
    "ptir.log_softmax.v1": log_softmax,
    "ptir.rms_norm.v1": rms_norm,
    "ptir.gelu.v1": gelu,
    "ptir.silu.v1": silu,
    "ptir.attention.v1": attention,
    "ptir.conv2d.nhwc.v1": grouped,
}
_STATIC = (convolution, grouped, depthwise)  # whose shapes are reckoned with
