"""Kernels along one axis, and elementwise ones: softmax and its logarithm, layer norm, RMS norm, gelu, silu."""

from __future__ import annotations

from math import isfinite

from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.dialects.ptir.kernels.products import close
from ptir_tools.dialects.ptir.kernels.recognition.replacement import Found, feature_axis, vector
from ptir_tools.dialects.ptir.rewrites import helpers


def averages(found: Found, axis: int) -> bool:
    """Whether multiplying sums by `n` makes means, and `epsilon` is not negative."""
    extent = helpers.shape(found.root)[axis]
    n, epsilon = found.match.number("n"), found.match.number("epsilon")
    right = isinstance(extent, int) and extent and close(n, helpers.dtype(found.root), 1 / extent, F64)
    return bool(right and isfinite(epsilon) and epsilon >= 0)


def softmax(found: Found) -> Value | None:
    """gpt.rs's target over the last axis of f32, else this toolkit's."""
    if (axis := feature_axis(found)) is None:
        return None
    x = found.input("x")
    last = axis == helpers.rank(found.root) - 1
    if last and helpers.dtype(x) is F32:
        return found.call("gpt_rs.triton.fused_softmax_last_axis.f32.v1", x, axis=("I64", axis))
    return found.call("ptir.softmax.v1", x, axis=("I64", found.last(axis)))


def log_softmax(found: Found) -> Value | None:
    """A call of this toolkit's target."""
    if (axis := feature_axis(found)) is None:
        return None
    return found.call("ptir.log_softmax.v1", found.input("x"), axis=("I64", found.last(axis)))


def layer_norm(found: Found) -> Value | None:
    """The op of the contract; a missing scale is 1, a missing shift 0."""
    if (axis := feature_axis(found)) is None or not averages(found, axis):
        return None
    gamma, beta = (_weights(found, name, axis, missing) for name, missing in (("gamma", 1.0), ("beta", 0.0)))
    if gamma is None or beta is None:
        return None
    epsilon = float(found.match.number("epsilon"))
    return found.build("layer_norm", found.input("x"), gamma, beta, epsilon=epsilon, feature_axis=found.last(axis))


def _weights(found: Found, name: str, axis: int, missing: float) -> Operand | None:
    """The vector along `axis` that binds the parameter `name`; when the kernel has none, one of `missing`."""
    if name in found.match.inputs:
        return vector(found, name, axis)
    t = tensor(helpers.dtype(found.root), (helpers.shape(found.root)[axis],))
    number = arrays.to_literal(np.asarray(missing, arrays.numpy_dtype(t.dtype)), tensor(t.dtype))
    return found.build("constant", value=Literal(t, number.data, splat=t.count > 1))


def rms_norm(found: Found) -> Value | None:
    """A call of this toolkit's target; a missing scale is 1."""
    if (axis := feature_axis(found)) is None or not averages(found, axis):
        return None
    if (gamma := _weights(found, "gamma", axis, 1.0)) is None:
        return None
    epsilon = float(found.match.number("epsilon"))
    return found.call("ptir.rms_norm.v1", found.input("x"), gamma, axis=("I64", found.last(axis)), eps=("F64", epsilon))


def gelu(found: Found) -> Value | None:
    """A call of this toolkit's target, exact or the approximation that the name of the kernel gives."""
    if not helpers.floating(found.root):
        return None
    name = found.match.example.kernel.name
    approximate = next((how for how in ("tanh", "sigmoid") if how in name), "none")
    return found.call("ptir.gelu.v1", found.input("x"), approximate=("String", approximate))


def silu(found: Found) -> Value | None:
    """A call of this toolkit's target."""
    return found.call("ptir.silu.v1", found.input("x")) if helpers.floating(found.root) else None
