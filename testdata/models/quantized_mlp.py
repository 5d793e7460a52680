"""A network of two layers quantized to int8: scales of activations by tensor, of weights by output channel, products
accumulated in si32. Zero points are those of asymmetric activations."""

from __future__ import annotations

import numpy as np
from common import Weights

from ptir_tools import Graph, Program, Tensor

INPUT, HIDDEN, OUTPUT = 32, 64, 10
# Scale and zero point of the input and of the hidden layer.
STEPS = {"x": (0.02, 5), "h": (0.03, -20)}


def weights() -> dict[str, np.ndarray]:
    """By layer: si8 weights `[input, output]`, si32 biases with the input's zero point taken out, f32 scales of the sums."""
    w = Weights(23)
    found: dict[str, np.ndarray] = {}
    for name, before, shape in (("fc1", "x", (INPUT, HIDDEN)), ("fc2", "h", (HIDDEN, OUTPUT))):
        w.add(f"{name}.weight", *shape)
        w.add(f"{name}.bias", shape[1], within=0.5)
        real, bias = w.arrays[f"{name}.weight"], w.arrays[f"{name}.bias"]
        step, zero = STEPS[before]
        scales = np.abs(real).max(0) / np.float32(127)
        steps = np.rint(real / scales).astype(np.int8)
        sums = (np.float32(step) * scales).astype(np.float32)
        offset = np.rint(bias / sums).astype(np.int32) - zero * steps.astype(np.int32).sum(0, dtype=np.int32)
        found |= {f"{name}.weight": steps, f"{name}.bias": offset, f"{name}.scales": sums}
    return found


def inputs() -> dict[str, dict[str, np.ndarray]]:
    """What the stored results were computed on, by program. Some elements saturate."""
    x = Weights(29)
    x.add("x", 7, INPUT, within=3.0)
    return {"quantized_mlp": x.arrays}


def layer(q: Tensor, w: dict[str, np.ndarray], name: str) -> Tensor:
    """The sums of products of a layer, si32, with its bias."""
    constant = q.block.constant
    weight, bias = (constant(w[f"{name}.{p}"]).named(f"{name}.{p}") for p in ("weight", "bias"))
    sums = q.dot_general(weight, contract_lhs=[1], contract_rhs=[0], accum_dtype="si32", out_dtype="si32")
    return sums + bias.broadcast_like(sums)


def network(dtype: str = "f32") -> Program:
    """The scores of rows `[?N, 32]`, and the integers between the layers."""
    g, w = Graph(), weights()
    x = g.input("x", dtype, ("N", INPUT))
    step, zero = STEPS["x"]
    q = x.quantize("si8", scales=[step], zero_points=[zero])
    step, zero = STEPS["h"]
    first = layer(q, w, "fc1")
    steps = first.requantize(
        "si8",
        axis=1,
        scales=w["fc1.scales"],
        zero_points=[0] * HIDDEN,
        output_scales=[step] * HIDDEN,
        output_zero_points=[zero] * HIDDEN,
    )
    h = steps.maximum(zero)
    second = layer(h, w, "fc2")
    scores = second.dequantize(axis=1, output_dtype=dtype, scales=w["fc2.scales"], zero_points=[0] * OUTPUT)
    return g.returns(q.named("input"), h.named("hidden"), scores.named("scores"))


PROGRAMS = {"quantized_mlp": network}
