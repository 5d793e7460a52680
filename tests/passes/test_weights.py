"""`fold-weights`: an operand of a product that is computed from constants is one; others stay."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools import optimize, read, run
from ptir_tools.core.arrays import from_literal
from ptir_tools.core.limits import Limits, using

N, K = 200, 300  # more bytes than folding computes


def filtered(kind: str) -> tuple[ptir.Program, np.ndarray]:
    """A product whose right operand comes from a formula, and that operand."""
    g = ptir.Graph()
    x = g.input("x", "f32", (7, K))
    rng = np.random.default_rng(2)
    column, row = (rng.standard_normal(s).astype(np.float32) for s in ((K, 1), (1, N)))
    t = g.constant(column).broadcast_to((K, N)) + g.constant(row).broadcast_to((K, N))
    w, exact = t.sin() * t, np.sin(column + row) * (column + row)
    if kind == "moved":
        w, exact = w.reshape((N, K)).transpose([1, 0]), exact.reshape(N, K).T
    elif kind == "of the input":
        w, exact = w + x.slice([0, 0], [1, 1]).broadcast_to((K, N)), exact
    elif kind == "cast":
        exact = rng.integers(-9, 9, (K, N)).astype(np.float32)
        w = g.constant(exact.astype(np.int8)).cast("f32")
    elif kind == "repeated":
        exact = np.repeat(column, N, 1)
        w = g.constant(column).broadcast_to((K, N))
    return g.returns((x @ w).named("y")), exact


@pytest.mark.parametrize(("kind", "is_folded"), [
    ("plain", True), ("moved", True), ("of the input", False), ("cast", False), ("repeated", False),
])  # fmt: skip
def test_formulas_of_constants(kind: str, is_folded: bool) -> None:
    program, w = filtered(kind)
    folded = optimize(program, "fold-weights,dce")
    assert ([op.defn.short for op in folded.main.body] == ["constant", "dot_general"]) == is_folded
    x = np.random.default_rng(3).standard_normal((7, K)).astype(np.float32)
    wanted = x.astype(np.float64) @ (w.astype(np.float64) + (float(x[0, 0]) if kind == "of the input" else 0))
    for engine in ("reference", "numpy", "auto"):
        np.testing.assert_allclose(run(folded, {"x": x}, engine=engine)["y"], wanted, atol=2e-4, rtol=1e-5)


def test_a_larger_operand_stays() -> None:
    program, _ = filtered("plain")
    with using(Limits(fold_bytes=N * K * 4 // 64)):
        assert len(optimize(program, "fold-weights,dce").main.body) == 2
    with using(Limits(fold_bytes=N * K * 4 // 64 - 1)):
        assert len(optimize(program, "fold-weights,dce").main.body) > 2


def test_weights_that_are_quantized_are_floats_once() -> None:
    """Integers of four bits with a scale for each group are a constant of f32; bytes stay bytes until an engine needs floats."""
    text = """func @f(%x: tensor<f32, 2x4>) -> tensor<f32, 2x3> {
  %q = constant() value[dense<[[[1, 2, 3], [4, 5, -6]], [[-7, 0, 1], [2, 3, 4]]]>] -> tensor<si4, 2x2x3>
  %s = constant() value[dense<[[[0.5, 1.0, 2.0]], [[0.25, 0.5, 1.0]]]>] -> tensor<f32, 2x1x3>
  %c = cast(%q) -> tensor<f32, 2x2x3>
  %t = broadcast_to(%s) result_shape[2, 2, 3] -> tensor<f32, 2x2x3>
  %m = mul(%c, %t) -> tensor<f32, 2x2x3>
  %w = reshape(%m) new_shape[4, 3] -> tensor<f32, 4x3>
  %y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 2x3>
  return %y
}
"""
    folded = optimize(read(text), "fold-weights,dce")
    assert [op.defn.short for op in folded.main.body] == ["constant", "dot_general"]
    whole = [[0.5, 2, 6], [2, 5, -12], [-1.75, 0, 1], [0.5, 1.5, 4]]
    assert (from_literal(folded.main.body[0].attr("value")) == whole).all()
    text = """func @f(%x: tensor<f32, 2x2>) -> tensor<f32, 2x2> {
  %q = constant() value[dense<[[1, 2], [3, -4]]>] -> tensor<si8, 2x2>
  %w = dequantize(%q) axis[1] scales[0.5, 2.0] -> tensor<f32, 2x2>
  %y = add(%x, %w) -> tensor<f32, 2x2>
  return %y
}
"""
    assert [op.defn.short for op in optimize(read(text), "canonicalize").main.body] == ["constant", "dequantize", "add"]
    folded = optimize(read(text), "fold-weights,dce")
    assert [op.defn.short for op in folded.main.body] == ["constant", "add"]
    assert (from_literal(folded.main.body[0].attr("value")) == [[0.5, 4], [1.5, -8]]).all()
