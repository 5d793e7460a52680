"""Layer norm (contract: "Fused and convenience ops")."""

from __future__ import annotations

from ptir_tools.core import errors, factors
from ptir_tools.core.arrays import Array
from ptir_tools.core.declare import op
from ptir_tools.core.ir import PURE, InPlace, Op
from ptir_tools.core.lazy import Later, np
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import operand, require
from ptir_tools.dialects.ptir.ops.kinds import Result
from ptir_tools.dialects.ptir.ops.numerics import compute
from ptir_tools.dialects.ptir.ops.typerules import FLOATS, agree, attribute, axis_of, rule, same_dtype, want

drawing = Later("ptir_tools.dialects.ptir.drawing")


@rule
def layer_norm_type(x: TensorType, gamma: TensorType, beta: TensorType, *, epsilon: float, feature_axis: int) -> TensorType:
    """A float tensor; scale and shift are vectors along its feature axis."""
    want(x.dtype, FLOATS)
    axis = axis_of(feature_axis, x.rank, "feature_axis")
    attribute(epsilon >= 0, f"epsilon {epsilon} is negative", "epsilon")
    for i, (name, vector) in enumerate((("gamma", gamma), ("beta", beta)), 1):
        same_dtype(x, vector, of=(0, i))
        require(vector.rank == 1, "OperandRankMismatch", f"{name} is a vector, got {vector}", at=operand(i))
        what = f"{name} {vector} does not fit axis {axis} of {x}"
        agree(vector.shape[0], x.shape[axis], "OperandShapeMismatch", what, operand(i))
    return x


def layer_norm_arrays(x: Array, gamma: Array, beta: Array, epsilon: float, axis: int) -> Array:
    """Layer norm of float64 arrays over `axis`, with the biased variance."""
    count = max(x.shape[axis], 1)
    centered = x - x.sum(axis, keepdims=True) / count
    variance = np.square(centered).sum(axis, keepdims=True) / count
    along = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    return np.asarray(centered / np.sqrt(variance + epsilon) * gamma.reshape(along) + beta.reshape(along))


def layer_norm_axes(op: Op) -> factors.Labelled:
    """How mesh axes map: all axes of `x` except the feature axis can be partitioned."""
    rank = len(factors.shape_of(op.operands[0]))
    kept = tuple(None if a == op.attr("feature_axis") % rank else a for a in range(rank))
    return [kept, (None,), (None,)], kept


@op(
    "ptir.layer_norm",
    infer=layer_norm_type,
    traits=PURE,
    error=errors.through("decompose"),
    generate=drawing.draw_layer_norm,
    inplace=InPlace("layer-norm"),
    factors=layer_norm_axes,
)
def layer_norm(x: Array, gamma: Array, beta: Array, *, epsilon: float, feature_axis: int = -1, result: Result) -> Array:
    """`(x - mean) / sqrt(variance + epsilon) * gamma + beta` along `feature_axis`, with the biased variance. Contract: LayerNorm.

    Computed in float64 and rounded once.
    DTypeNotSupported: `x` is not a float. OperandDTypeMismatch, OperandRankMismatch, OperandShapeMismatch,
    DynamicDimensionMismatch: `gamma` or `beta` is not a vector of the features. InvalidAttributeValue: `feature_axis` is out
    of range, or `epsilon` is negative or NaN.
    """
    return compute(result, lambda v, g, b: layer_norm_arrays(v, g, b, epsilon, feature_axis), x, gamma, beta)
