"""Programs as functions of JAX, and the engine `xla` on whole programs. Skipped where jax is not installed (extra `xla`)."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core.choices import Seeded
from ptir_tools.dialects.ptir.generate import generate
from ptir_tools.engines import RunOptions, compare
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.tools.compare import across_engines

SQUARES = """func @f(%x: tensor<f32, ?N x 4>, %w: tensor<f32, 4 x 3>) -> tensor<f32, ?N x 3> {
  %y = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, ?N x 3>
  %s = sin(%y) -> tensor<f32, ?N x 3>
  %z = mul(%s, %y) -> tensor<f32, ?N x 3>
  return %z
}
"""


def test_jit_grad_and_vmap_take_the_function() -> None:
    f = ptir.to_jax(ptir.read(SQUARES))
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 4)).astype(np.float32), rng.standard_normal((4, 3)).astype(np.float32)
    y = x.astype(np.float64) @ w
    np.testing.assert_allclose(jax.jit(f)(x, w), np.sin(y) * y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(f(x[:2], w), (np.sin(y) * y)[:2], rtol=1e-5, atol=1e-5)  # another size of the symbol
    slope = jax.grad(lambda v: f(x, v).sum())(w)
    np.testing.assert_allclose(slope, x.T @ (np.cos(y) * y + np.sin(y)), rtol=1e-4, atol=1e-4)
    many = jax.vmap(f, in_axes=(None, 0))(x, np.stack([w, 2 * w]))
    np.testing.assert_allclose(many[1], np.sin(2 * y) * 2 * y, rtol=1e-4, atol=1e-4)


def test_arrays_of_numpy_are_taken_without_jit() -> None:
    text = """func @f(%x: tensor<f32, 5>, %i: tensor<si32, 2>, %u: tensor<f32, 2>) -> tensor<f32, 5> {
  %y = scatter_reduce(%x, %i, %u) axis[0] reduce[replace] -> tensor<f32, 5>
  return %y
}
"""
    x, i, u = np.zeros(5, np.float32), np.array([3, 1], np.int32), np.array([7, 8], np.float32)
    np.testing.assert_array_equal(ptir.to_jax(ptir.read(text))(x, i, u), np.array([0, 8, 0, 7, 0], np.float32))


def test_inputs_that_do_not_fit_are_usage_errors() -> None:
    f = ptir.to_jax(ptir.read(SQUARES))
    x = np.zeros((5, 4), np.float32)
    with pytest.raises(ptir.UsageError, match="takes 2 arrays, got 1"):
        f(x)
    with pytest.raises(ptir.UsageError, match="input 1"):
        f(x, np.zeros((5, 3), np.float32))


def test_what_fails_is_reported_as_by_the_reference() -> None:
    text = """func @f(%x: tensor<f32, 4>, %i: tensor<si32, 2>) -> tensor<f32, 2> {
  %y = take(%x, %i) -> tensor<f32, 2>
  return %y
}
"""
    program, x = ptir.read(text), np.arange(4, dtype=np.float32)
    found = ptir.run(program, {"x": x, "i": np.array([3, 0], np.int32)}, engine="xla")
    np.testing.assert_array_equal(next(iter(found.values())), [3, 0])
    with pytest.raises(ptir.Rejected, match="index 7 at"):
        ptir.run(program, {"x": x, "i": np.array([3, 7], np.int32)}, engine="xla")


def test_random_ops_draw_what_every_engine_draws() -> None:
    text = "func @f() -> tensor<f32, 5> {\n  %y = rng_normal() stream[3] -> tensor<f32, 5>\n  return %y\n}\n"
    program = ptir.read(text)
    (xla,), (own,) = (list(ptir.run(program, {}, engine=e, seed=7).values()) for e in ("xla", "reference"))
    np.testing.assert_array_equal(xla, own)


def test_stablehlo_is_read_back() -> None:
    """Every op of random programs that StableHLO can say, by our own reader; the rest is refused, each op where it is."""
    told = 0
    for seed in range(SEEDS):
        program = generate(Seeded(seed), symbols=False)
        try:
            text = ptir.write(program, "stablehlo")
        except ptir.Rejected as refused:
            assert {d.code for d in refused.diagnostics} == {"NotTranslatable"}
            continue
        again = ptir.read(text)
        inputs = random_inputs(program, seed)
        try:
            outputs, tolerances = compare.reference_outputs(program, inputs, RunOptions())
        except ptir.Rejected:
            continue
        assert not compare.compare(outputs, ptir.run(again, list(inputs.values())), tolerances)
        told += 1
    assert told >= SEEDS // 3


def test_open_symbols_are_refused_by_stablehlo() -> None:
    with pytest.raises(ptir.Rejected, match="N is open"):
        ptir.write(ptir.read(SQUARES), "stablehlo")


SEEDS = 12


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_programs_are_within_their_bounds(seed: int) -> None:
    program = generate(Seeded(seed), symbols=False)
    inputs = random_inputs(program, seed)
    try:
        outputs, _ = compare.reference_outputs(program, inputs, RunOptions())
    except ptir.Rejected:
        return
    try:
        found, _ = across_engines(program, inputs, outputs, "xla", RunOptions())
    except ptir.UsageError as error:
        assert "cannot run" in str(error)
        return
    assert not found, [str(d) for d in found]
