"""The results of fusion as custom calls: elementwise kernels of any shape, a contraction with its bias."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Attribute, Op, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.types import UNTYPED, TensorType, Type
from ptir_tools.dialects.ptir.ops import linalg, shape
from ptir_tools.dialects.ptir.ops.erf import erf
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS
from ptir_tools.dialects.ptir.ops.typerules import attribute

Values = dict[str, Attribute]  # the attributes of a custom call, by name
# What gpt.rs says of each node of a fused elementwise kernel: which op it is, and what it reads.
COLUMNS = ("ops_kind", "ops_code", "lhs", "rhs")
# How gpt.rs numbers the nodes of a fused elementwise kernel, by (ops_kind, ops_code).
UNARY_CODES = ("neg", "abs", "exp", "log", "tanh", "erf", "rsqrt", "reciprocal")
BINARY_CODES = ("add", "sub", "mul", "div", "maximum", "minimum")
NODES = {0: UNARY_CODES, 1: BINARY_CODES}


def inputs_broadcast(op: Op) -> None:
    """The inputs of a fused elementwise kernel broadcast to the declared result. Raises Violation as `broadcast_to` does."""
    out = op.result.type
    if isinstance(out, TensorType):
        for t in map(operand_type, op.operands):
            if isinstance(t, TensorType):
                shape.broadcast_type(t, result_shape=out.shape)


def elementwise_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """Nodes in order. The result has the declared shape, to which the inputs broadcast."""
    columns = [values[k] for k in COLUMNS]
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
    """Every node in float64, rounded as the op that it replaces; the last is the result."""
    for x in xs:
        shape.broadcast_type(result.with_shape(x.shape), result_shape=result.shape)
    found = list(xs)
    for kind, code, lhs, rhs in zip(*(values[k] for k in COLUMNS), strict=True):
        function = functions()[NODES[kind][code]]
        exact = function(found[lhs]) if kind == 0 else function(found[lhs], found[rhs])
        found.append(arrays.widen(arrays.narrow(np.asarray(exact), F32)))
    return np.broadcast_to(found[-1], result.static_shape)


def functions() -> dict[str, Callable[..., Array]]:
    """The elementwise ops on float64."""
    return {
        "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "tanh": np.tanh, "erf": erf,
        "rsqrt": lambda x: 1.0 / np.sqrt(x), "reciprocal": lambda x: 1.0 / x, "add": np.add, "sub": np.subtract,
        "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum,
    }  # fmt: skip


def _axes(values: Values) -> Values:
    return {k: values[f"dot_{k}"] for k in DIMENSION_NUMBERS}


def dot_bias_type(types: tuple[TensorType, ...], values: Values) -> Type:
    """The type of the dot_general; the bias broadcasts to it."""
    attribute(values.get("dot_add_input", 2) == 2, "dot_add_input is 2, the third operand", "dot_add_input")
    out = linalg.dot_general_type(types[0], types[1], **_axes(values), accum_dtype=None, out_dtype=None)
    shape.broadcast_type(types[2], result_shape=out.shape)
    return out


def dot_bias(xs: tuple[Array, ...], values: Values, result: TensorType) -> Array:
    """The contraction plus the bias."""
    return linalg.contract_arrays(xs[0], xs[1], **_axes(values)) + xs[2]
