"""The targets of custom calls that this toolkit knows: gpt.rs's fused kernels, as float64 computations rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import operand_type
from ptir_tools.core.types import UNTYPED, TensorType, Type
from ptir_tools.dialects.ptir.erf import erf
from ptir_tools.dialects.ptir.ops import linalg, normalize, numerics, shape, window
from ptir_tools.dialects.ptir.ops.kinds import Attrs, AttrValue
from ptir_tools.dialects.ptir.ops.typerules import agree, attribute, axis_of
from ptir_tools.dialects.ptir.scalars import FLOAT, Scalar

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

Values = dict[str, Any]
# How gpt.rs numbers the nodes of a fused elementwise kernel, by (ops_kind, ops_code).
UNARY_CODES = ("neg", "abs", "exp", "log", "tanh", "erf", "rsqrt", "reciprocal")
BINARY_CODES = ("add", "sub", "mul", "div", "maximum", "minimum")
NODES = {0: UNARY_CODES, 1: BINARY_CODES}


class Target(NamedTuple):
    """A kernel: how many operands, the kinds of its attributes, its type rule and its meaning on float64 arrays."""

    operands: tuple[int, int]
    infer: Callable[[tuple[TensorType, ...], Values], Type]
    body: Callable[[tuple[Array, ...], Values, TensorType], Array]
    attrs: dict[str, str]
    optional: dict[str, str]


def values_of(target: str, attrs: Attrs) -> Values:
    """The attributes by name. Raises Violation("InvalidAttributeValue") for one that is missing, unknown or of another kind."""
    known = TARGETS[target].attrs | TARGETS[target].optional
    values: dict[str, AttrValue] = {}
    for key, (kind, value) in attrs:
        attribute(key in known, f"{target} has no attribute {key} (it has: {', '.join(sorted(known))})", key)
        attribute(kind == known[key], f"{target}: {key} is {kind}, {known[key]} is wanted", key)
        values[key] = value
    missing = [k for k in TARGETS[target].attrs if k not in values]
    attribute(not missing, f"{target} needs the attribute {', '.join(missing)}", "attrs")
    return values


def result_type(target: str, types: tuple[Any, ...], attrs: Attrs) -> Type:
    """The result type of a known target; UNTYPED (what the declaration says) for any other.

    Raises Violation for operands and attributes that a known target does not take.
    """
    kernel = TARGETS.get(target)
    if kernel is None:
        return UNTYPED
    least, most = kernel.operands
    require(least <= len(types) <= most, "OperandCountMismatch", f"{target} takes {least} to {most} operands, got {len(types)}")
    for t in types:
        require(t.dtype is F32, "DTypeNotSupported", f"{target} takes f32, got {t}")
    return kernel.infer(types, values_of(target, attrs))


def call(target: str, xs: tuple[Array, ...], attrs: Attrs, result: TensorType) -> Array:
    """Run a known target. Raises Violation("Unimplemented") for any other."""
    kernel = TARGETS.get(target)
    if kernel is None:
        raise Violation("Unimplemented", f"no implementation of the custom call {target}", at="target")
    return numerics.compute(result, lambda *wide: kernel.body(wide, values_of(target, attrs), result), *xs)


# ---- convolutions: x [N, H, W, C], packed weights, an optional bias of the output channels


def _geometry(values: Values) -> dict[str, Any]:
    for key, count in (("window", 2), ("strides", 2), ("dilation", 2), ("padding", 4)):
        attribute(len(values[key]) == count, f"{key} has {len(values[key])} entries, {count} are wanted", key)
    top, bottom, left, right = values["padding"]
    return {k: values[k] for k in ("window", "strides", "dilation")} | {"padding": ((top, bottom), (left, right))}


def _conv_type(types: tuple[TensorType, ...], values: Values, depthwise: bool) -> Type:
    x, weight, *bias = types
    require(x.rank == 4, "OperandRankMismatch", f"x is [N, H, W, C], got {x}")
    require(weight.rank == 2, "OperandRankMismatch", f"the weight is packed to two axes, got {weight}")
    patches = window.patched(x, **_geometry(values), pad_value=Scalar(FLOAT, 0.0))
    taps = values["window"][0] * values["window"][1]
    rows, columns = (x.shape[3], taps) if depthwise else (patches.shape[3], weight.shape[1])
    for have, wanted in zip(weight.shape, (rows, columns), strict=True):
        agree(have, wanted, "OperandShapeMismatch", f"the weight {weight} is not packed as {rows}x{columns}")
    channels = rows if depthwise else columns
    for b in bias:
        require(b.rank == 1, "OperandRankMismatch", f"the bias is a vector, got {b}")
        agree(b.shape[0], channels, "OperandShapeMismatch", f"the bias {b} has not one entry per output channel")
    return x.with_shape((*patches.shape[:3], channels))


def conv_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Weights [window * C, outputs]."""
    return _conv_type(types, values, depthwise=False)


def depthwise_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Weights [C, window]."""
    return _conv_type(types, values, depthwise=True)


def _patches(x: Array, values: Values, result: TensorType) -> Array:
    """[N, places, taps, C]."""
    n, h, w, _ = result.static_shape
    taps = values["window"][0] * values["window"][1]
    t = result.with_shape((n, h, w, taps * x.shape[3]))
    found = window.patches(x, np.zeros(()), values["window"], **_steps(values), shape=t.static_shape)
    return found.reshape(n, h, w, taps, x.shape[3])


def _steps(values: Values) -> dict[str, Any]:
    geometry = _geometry(values)
    return {k: geometry[k] for k in ("strides", "dilation", "padding")}


def conv(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """A convolution over both spatial axes."""
    x, weight, *bias = xs
    found = _patches(x, values, result)
    out = found.reshape(*found.shape[:3], -1) @ weight
    return out + bias[0] if bias else out


def depthwise(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """A convolution of every channel by itself."""
    x, weight, *bias = xs
    out = (_patches(x, values, result) * weight.T).sum(axis=3)
    return np.asarray(out + bias[0] if bias else out)


# ---- fused elementwise


def inputs_broadcast(op: Op) -> None:
    """The inputs of a fused elementwise kernel broadcast to the declared result. Raises Violation as `broadcast_to` does."""
    out = op.result.type
    if op.attr("target").endswith(".fused_elementwise.f32.v1") and isinstance(out, TensorType):
        for t in map(operand_type, op.operands):
            if isinstance(t, TensorType):
                shape.broadcast(t, result_shape=out.shape)


def elementwise_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Nodes in order; the declaration says the shape, to which the inputs broadcast."""
    columns = [values[k] for k in ("ops_kind", "ops_code", "lhs", "rhs")]
    attribute(
        len({len(c) for c in columns}) == 1 and columns[0], "ops_kind, ops_code, lhs and rhs are not of one length", "ops_code"
    )
    for node, (kind, code, lhs, rhs) in enumerate(zip(*columns, strict=True)):
        attribute(kind in NODES and 0 <= code < len(NODES[kind]), f"node {node} is the unknown op ({kind}, {code})", "ops_code")
        limit = len(types) + node
        fits = 0 <= lhs < limit and (0 <= rhs < limit if kind == 1 else rhs == -1)
        attribute(fits, f"node {node} reads ({lhs}, {rhs}); inputs and earlier nodes are below {limit}", "lhs")
    return UNTYPED


def elementwise(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """Every node on float64; the last is the result."""
    for x in xs:
        shape.broadcast(result.with_shape(x.shape), result_shape=result.shape)
    found = list(xs)
    for kind, code, lhs, rhs in zip(*(values[k] for k in ("ops_kind", "ops_code", "lhs", "rhs")), strict=True):
        function = functions()[NODES[kind][code]]
        found.append(function(found[lhs]) if kind == 0 else function(found[lhs], found[rhs]))
    return np.broadcast_to(found[-1], result.static_shape)


def functions() -> dict[str, Callable[..., Any]]:
    """The elementwise ops on float64."""
    return {
        "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": erf,
        "rsqrt": lambda x: 1.0 / np.sqrt(x), "reciprocal": lambda x: 1.0 / x, "add": np.add, "sub": np.subtract,
        "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum,
    }  # fmt: skip


# ---- dot with bias, softmax, layer norm


def _axes(values: Values) -> dict[str, Any]:
    return {k: values[f"dot_{k}"] for k in ("batch_lhs", "batch_rhs", "contract_lhs", "contract_rhs")}


def dot_bias_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of the dot_general; the bias broadcasts to it."""
    attribute(values.get("dot_add_input", 2) == 2, "dot_add_input is 2, the third operand", "dot_add_input")
    out = linalg.contracted(types[0], types[1], **_axes(values), accum_dtype=None, out_dtype=None)
    shape.broadcast(types[2], result_shape=out.shape)
    return out


def dot_bias(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """The contraction plus the bias."""
    return linalg.contract(xs[0], xs[1], **_axes(values)) + xs[2]


def softmax_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x; the axis is the last."""
    axis = axis_of(values["axis"], types[0].rank)
    attribute(axis == types[0].rank - 1, f"axis {values['axis']} is not the last of {types[0]}", "axis")
    return types[0]


def softmax(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """The stable softmax over the last axis."""
    power = np.exp(xs[0] - xs[0].max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(power / power.sum(axis=-1, keepdims=True))


def layer_norm_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of x."""
    return normalize.normalized(*types, epsilon=values["eps"], feature_axis=values["axis"])


def layer_norm(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """As the op `layer_norm`."""
    x, gamma, beta = xs
    return normalize.layer_normalize(x, gamma, beta, values["eps"], values["axis"])


_CONV = {"window": "I64Array", "strides": "I64Array", "dilation": "I64Array", "padding": "I64Array"}
_STATIC = {"static_operands": "I64Array"}
_NODE = {"ops_kind": "I64Array", "ops_code": "I64Array", "lhs": "I64Array", "rhs": "I64Array"}
_FUSION = {"fusion_version": "I64", "fusion_kind": "String"}
_MADE = {"fusion_generated": "Bool", "fusion_score": "I64"}
_DOT = {f"dot_{k}": "I64Array" for k in ("batch_lhs", "batch_rhs", "contract_lhs", "contract_rhs")}

TARGETS: dict[str, Target] = {
    "gpt_rs.c.conv2d.nhwc.f32.v1": Target((2, 3), conv_type, conv, _CONV, _STATIC),
    "gpt_rs.faer.conv2d.nhwc.f32.v1": Target((2, 3), conv_type, conv, _CONV, _STATIC),
    "gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1": Target((2, 3), depthwise_type, depthwise, _CONV, _STATIC),
    "gpt_rs.c.fused_elementwise.f32.v1": Target((1, 64), elementwise_type, elementwise, _NODE, _FUSION | _MADE),
    "gpt_rs.triton.fused_elementwise.f32.v1": Target((1, 64), elementwise_type, elementwise, _NODE | _FUSION, _MADE),
    "gpt_rs.triton.fused_dot_bias.f32.v1": Target(
        (3, 3), dot_bias_type, dot_bias, _DOT, _FUSION | _MADE | {"dot_add_input": "I64"}
    ),
    "gpt_rs.triton.fused_softmax_last_axis.f32.v1": Target((1, 1), softmax_type, softmax, {"axis": "I64"}, {}),
    "gpt_rs.triton.fused_layer_norm.f32.v1": Target((3, 3), layer_norm_type, layer_norm, {"axis": "I64", "eps": "F64"}, {}),
}
