"""Kernels along one axis, and elementwise ones: softmax, layer norm, RMS norm, gelu, silu."""

from __future__ import annotations

from math import isfinite

from ptir_tools.core.dtypes import F32, F64
from ptir_tools.core.ir import Value
from ptir_tools.dialects.ptir.examples import close
from ptir_tools.dialects.ptir.recognition.found import Found, feature_axis, vector
from ptir_tools.dialects.ptir.rules import helpers


def averages(found: Found, axis: int) -> bool:
    """Whether `n`, by which sums are multiplied or divided, makes means of them, and `epsilon` is a positive number."""
    extent = helpers.shape(found.root)[axis]
    n, epsilon = found.match.number("n"), found.match.number("epsilon")
    mean = next(op for name, op in found.match.ops.items() if name in ("mean", "variance"))
    if not isinstance(extent, int) or not extent:
        return False
    right = n == extent if mean.defn.name == "ptir.div" else close(n, helpers.dtype(found.root), 1 / extent, F64)
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


def layer_norm(found: Found) -> Value | None:
    """The op of the contract."""
    if (axis := feature_axis(found)) is None or not averages(found, axis):
        return None
    gamma, beta = (vector(found, name, axis) for name in ("gamma", "beta"))
    if gamma is None or beta is None:
        return None
    epsilon = float(found.match.number("epsilon"))
    return found.build("layer_norm", found.input("x"), gamma, beta, epsilon=epsilon, feature_axis=found.last(axis))


def rms_norm(found: Found) -> Value | None:
    """A call of this toolkit's."""
    if (axis := feature_axis(found)) is None or not averages(found, axis):
        return None
    if (gamma := vector(found, "gamma", axis)) is None:
        return None
    epsilon = float(found.match.number("epsilon"))
    return found.call("ptir.rms_norm.v1", found.input("x"), gamma, axis=("I64", found.last(axis)), eps=("F64", epsilon))


def gelu(found: Found) -> Value | None:
    """A call of this toolkit's, exact or by tanh as the kernel is."""
    approximate = "tanh" if "tanh" in found.match.example.kernel.name else "none"
    return (
        found.call("ptir.gelu.v1", found.input("x"), approximate=("String", approximate))
        if helpers.floating(found.root)
        else None
    )


def silu(found: Found) -> Value | None:
    """A call of this toolkit's."""
    return found.call("ptir.silu.v1", found.input("x")) if helpers.floating(found.root) else None
