"""`raise-bytes` on quantized networks: products of dequantized bytes, and quantizations as casts and arithmetic."""

from __future__ import annotations

import numpy as np
import pytest

from ptir_tools import optimize, run
from ptir_tools.core.dialect import Program
from ptir_tools.dialects.ptir.builder.build import Graph

PIPELINE = "raise-bytes,canonicalize,dce"
KINDS = {"si8": np.int8, "ui8": np.uint8}


def _ops(program: Program) -> list[str]:
    return [op.defn.short for op in program.main.body]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("zero", [0, 3, 100])
def test_quantizations_have_the_same_bits_in_parts(kind: str, zero: int) -> None:
    rng, ends = np.random.default_rng(0), np.iinfo(KINDS[kind])
    x = np.concatenate([rng.standard_normal(500) * 100, np.arange(-300, 300) / 2, [np.nan, np.inf, -np.inf, 1e30, -1e30, -0.0]])
    g = Graph()
    made = g.input("x", "f32", x.shape).quantize(output_dtype=kind, scales=[1.0], zero_points=[zero])
    back = made.dequantize(output_dtype="f32", scales=[0.30000001192092896], zero_points=[zero])
    program = g.returns(made.named("q"), back.named("y"))
    parts = optimize(program, "raise-bytes")
    assert not {"quantize", "dequantize"} & {*_ops(parts)}
    want = run(program, {"x": x.astype(np.float32)}, engine="reference")
    assert want["q"].min() == ends.min and want["q"].max() == ends.max
    for engine in ("reference", "numpy", "auto"):
        found = run(parts, {"x": x.astype(np.float32)}, engine=engine)
        np.testing.assert_array_equal(found["q"], want["q"])
        np.testing.assert_array_equal(found["y"].view(np.int32), want["y"].view(np.int32))


@pytest.mark.parametrize("kinds", [("ui8", "si8"), ("si8", "si8"), ("ui8", "ui8")])
@pytest.mark.parametrize("points", [(0, 0), (77, 0), (5, 9)])
@pytest.mark.parametrize("form", ["plain", "columns", "turned", "patches"])
def test_products_of_dequantized_bytes(kinds: tuple[str, str], points: tuple[int, int], form: str) -> None:
    """They are as exact as f32, and more exact than its sums; with a scale for each column, and where patches are padded."""
    rng, g = np.random.default_rng(2), Graph()
    shape, matrix = ((2, 8, 7, 5), (45, 33)) if form == "patches" else ((40, 64), (33, 64) if form == "turned" else (64, 33))
    x, w = (
        rng.integers(np.iinfo(KINDS[k]).min, np.iinfo(KINDS[k]).max + 1, s).astype(KINDS[k])
        for k, s in zip(kinds, (shape, matrix), strict=True)
    )
    axis = None if form in ("plain", "patches") else 0 if form == "turned" else 1
    scales = rng.uniform(0.01, 0.02, 1 if axis is None else 33).astype(np.float32)
    left = g.input("x", kinds[0], shape).dequantize(output_dtype="f32", scales=[0.03125], zero_points=[points[0]])
    right = g.constant(w).dequantize(
        axis=axis, output_dtype="f32", scales=[float(s) for s in scales], zero_points=[points[1]] * len(scales)
    )
    real = (x.astype(np.float64) - points[0]) * 0.03125
    weights = (w.astype(np.float64) - points[1]) * (scales[:, None] if form == "turned" else scales)
    if form == "turned":
        right, weights = right.transpose([1, 0]), weights.T
    if form == "patches":
        left = left.extract_patches([3, 3], padding=[[1, 1], [1, 1]])
        padded = np.pad(real, ((0, 0), (1, 1), (1, 1), (0, 0)))
        windows = [[padded[:, i : i + 3, j : j + 3].reshape(2, 45) for j in range(7)] for i in range(8)]
        real = np.array(windows).transpose(2, 0, 1, 3)
    y = left.dot_general(right, contract_lhs=[len(shape) - 1], contract_rhs=[0]).named("y")
    program = g.returns(y)
    raised = optimize(program, PIPELINE)
    dot = next(op for op in raised.main.body if op.defn.short == "dot_general")
    if form != "patches" or (kinds[1] == "si8" and not points[1]):
        assert all(str(v.type.dtype) in KINDS for v in dot.operands)
    exact, size = real @ weights, abs(real) @ abs(weights)
    for engine in ("reference", "numpy", "auto"):
        assert (abs(run(raised, {"x": x}, engine=engine)["y"] - exact) <= 4 * 2.0**-24 * size).all()
    strict = optimize(program, PIPELINE, floats="strict")
    dot = next(op for op in strict.main.body if op.defn.short == "dot_general")
    assert {str(v.type.dtype) for v in dot.operands} == {"f32"}
