"""Bounds that can fail: how much larger they are than what rounding does to a small Llama, and which planted errors they see.

The table of docs/engines.md says the same.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core import arrays
from ptir_tools.engines import compare, run
from ptir_tools.engines.numpy.frame import Frame
from ptir_tools.engines.options import RunOptions
from tests import models
from tests.conftest import ROOT, run_ptir
from tests.convert.translations import parse
from tests.engines.programs import FAST
from tests.models import llama

CONFIG = replace(llama.CONFIG, layers=4)
VOCABULARY = 64


@cache
def embedding() -> np.ndarray:
    return np.random.RandomState(11).uniform(-1.7, 1.7, (VOCABULARY, CONFIG.width)).astype(np.float32)


@cache
def tokens() -> dict[str, np.ndarray]:
    return {"tokens": np.random.RandomState(12).randint(0, VOCABULARY, (llama.BATCH, CONFIG.time)).astype(np.int32)}


def model(dtype: str, rounded: str = "") -> ptir.Program:
    """Embedded tokens, four blocks, scores of the next token. With `rounded`, the weights are those of this dtype."""
    weights = llama.weights(CONFIG) | {"embedding": embedding()}
    if rounded:
        weights = {name: x.astype(models.NUMPY[rounded]).astype(np.float32) for name, x in weights.items()}
    g, w = ptir.Graph(), llama.Constants(weights, dtype)
    t = g.input("tokens", "si32", (llama.BATCH, CONFIG.time))
    x = w(t, "embedding").taken(t, 0)
    for i in range(CONFIG.layers):
        name = f"layers.{i}"
        x = x + llama.attention(llama.rms_norm(x, w(x, f"{name}.input_layernorm"), CONFIG), w, name, CONFIG)
        x = x + llama.swiglu(llama.rms_norm(x, w(x, f"{name}.post_attention_layernorm"), CONFIG), w, name)
    hidden = llama.rms_norm(x, w(x, "norm"), CONFIG)
    return g.returns(llama.linear(hidden, w(x, "embedding").transpose([1, 0])).named("scores"))


@cache
def bounded(dtype: str) -> tuple[dict[str, np.ndarray], dict[str, compare.Tolerance]]:
    return compare.reference_outputs(model(dtype), tokens(), RunOptions())


def wide(x: np.ndarray) -> np.ndarray:
    return arrays.widened(x)


# ---- How loose the bounds are


@pytest.mark.parametrize("engine", FAST)
def test_bounds_of_a_llama_in_f32_are_within_30_times_the_difference_of_an_engine(engine: str) -> None:
    outputs, tolerances = bounded("f32")
    found = run(model("f32"), tokens(), RunOptions(engine=engine))
    assert not compare.compare(outputs, found, tolerances)
    gap, bound = np.abs(wide(found["scores"]) - wide(outputs["scores"])), tolerances["scores"].absolute
    assert bound.max() < 30 * gap.max()
    assert np.median(bound) < 40 * np.median(gap)


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_bounds_of_a_llama_in_16_bits_are_within_10_times_the_error_of_its_rounding(dtype: str) -> None:
    """An engine may leave out any rounding; one that leaves out all gives what the same weights give in f64."""
    outputs, tolerances = bounded(dtype)
    exact = run(model("f64", rounded=dtype), tokens(), RunOptions(engine="reference"))
    gap, bound = np.abs(wide(exact["scores"]) - wide(outputs["scores"])), tolerances["scores"].absolute
    assert np.all(gap < bound)
    assert bound.max() < 10 * gap.max() and np.median(bound) < 10 * np.median(gap)
    for engine in FAST:
        assert not compare.compare(outputs, run(model(dtype), tokens(), RunOptions(engine=engine)), tolerances)


# ---- Which errors they see


def scaled_scores(factor: float) -> Callable[[ExitStack], None]:
    """The scale of attention is off."""
    honest = llama.softmax
    return lambda stack: stack.enter_context(patch.object(llama, "softmax", lambda x: honest(x * factor)))


def mean_over(count: int) -> Callable[[ExitStack], None]:
    """RMS norms divide the sum of squares by another number."""
    honest = llama.rms_norm
    wrong = replace(CONFIG, width=count)
    return lambda stack: stack.enter_context(patch.object(llama, "rms_norm", lambda x, w, c: honest(x, w, wrong)))


def scaled_block(layer: int, factor: float) -> Callable[[ExitStack], None]:
    """What the attention of one block adds is off."""
    honest = llama.attention

    def attention(x: ptir.Tensor, w: llama.Constants, name: str, c: llama.Config) -> ptir.Tensor:
        y = honest(x, w, name, c)
        return y * factor if name == f"layers.{layer}" else y

    return lambda stack: stack.enter_context(patch.object(llama, "attention", attention))


def no_rotation(layer: int) -> Callable[[ExitStack], None]:
    """The keys and queries of one block are not turned."""
    honest, calls = llama.rotate, []

    def rotate(x: ptir.Tensor, heads: int, w: llama.Constants, c: llama.Config) -> ptir.Tensor:
        calls.append(heads)
        return x if (len(calls) - 1) // 2 == layer else honest(x, heads, w, c)

    return lambda stack: stack.enter_context(patch.object(llama, "rotate", rotate))


# The error, where it is planted, and in which dtypes it is seen.
PLANTED = {
    "attention scale off by 5 %": (lambda: scaled_scores(1.05), ["f32", "f16", "bf16"]),
    "attention scale off by -5 %": (lambda: scaled_scores(0.95), ["f32", "f16", "bf16"]),
    "attention scale off by 1 %": (lambda: scaled_scores(1.01), ["f32", "f16"]),
    "mean over 47 for 48": (lambda: mean_over(47), ["f32", "f16", "bf16"]),
    "10 % in block 1 of 4": (lambda: scaled_block(0, 1.1), ["f32", "f16", "bf16"]),
    "10 % in block 2 of 4": (lambda: scaled_block(1, 1.1), ["f32", "f16", "bf16"]),
    "10 % in block 4 of 4": (lambda: scaled_block(3, 1.1), ["f32", "f16", "bf16"]),
    "1 % in block 2 of 4": (lambda: scaled_block(1, 1.01), ["f32", "f16"]),
    "0.01 % in block 2 of 4": (lambda: scaled_block(1, 1.0001), ["f32"]),
    "no rotation in block 2 of 4": (lambda: no_rotation(1), ["f32", "f16", "bf16"]),
}


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_of_a_llama_is_seen_as_documented(error: str, dtype: str) -> None:
    plant, seen = PLANTED[error]
    with ExitStack() as stack:
        plant()(stack)
        wrong = run(model(dtype), tokens(), RunOptions(engine="reference"))
    outputs, tolerances = bounded(dtype)
    assert bool(compare.compare(outputs, wrong, tolerances)) is (dtype in seen)


@pytest.mark.parametrize("seed", range(3))
def test_a_forgotten_term_of_4096_is_seen_in_most_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(-1, 1, (8, 4096)).astype(np.float32), rng.uniform(-1, 1, 4096).astype(np.float32)
    text = """func @f(%x: tensor<f32, 8x4096>, %y: tensor<f32, 4096>) -> tensor<f32, 8> {
  %q = dot_general(%x, %y) contract_lhs[1] contract_rhs[0] -> tensor<f32, 8>
  return %q
}
"""
    program = parse(text, "ptir")
    outputs, tolerances = compare.reference_outputs(program, [x, y], RunOptions())
    for engine in FAST:
        assert not compare.compare(outputs, run(program, [x, y], RunOptions(engine=engine)), tolerances)
    short = run(program, [np.where(np.arange(4096) < 4095, x, 0), y], RunOptions(engine="reference"))
    divergence = compare.compare(outputs, short, tolerances)
    assert divergence and divergence[0].count >= 6


def test_the_documentation_has_the_table() -> None:
    page = (ROOT / "docs/engines.md").read_text()
    for error, (_, seen) in PLANTED.items():
        assert f"| {error} | {' | '.join('seen' if d in seen else 'no' for d in ('f32', 'f16', 'bf16'))} |" in page


# ---- A fault that only fused ops have

FUSED = b"""func @f(%x: tensor<f32, 64>, %y: tensor<f32, 64>) -> tensor<f32, 64> {
  %a = mul(%x, %y) -> tensor<f32, 64>
  %b = exp(%a) -> tensor<f32, 64>
  %c = add(%b, %x) -> tensor<f32, 64>
  return %c
}
"""
ONLY = "only with fused ops it does not: this is a fault of the engine"


def plant_in_fused_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """What several ops are fused to is off by 1."""
    honest = Frame.build_fused

    def off_by_one(self: Frame, unit: Any) -> list[Any]:
        x = (steps := honest(self, unit)) and self.places[unit[-1].result, ()]
        return [*steps, (np.add, (x, np.float32(1), x))] if steps else steps

    monkeypatch.setattr(Frame, "build_fused", off_by_one)


@pytest.mark.parametrize("watching", [["--compare", "reference", "--all-values"], ["--check-nan"], ["--print-values", "%b"]])
def test_every_observer_sees_a_fault_of_the_run_as_it_is(watching: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["run", "--random", "0", "--engine", "native", *watching]
    ran = run_ptir(*command, stdin=FUSED)
    assert ran.status == 0 and "FAIL" not in ran.err
    plant_in_fused_ops(monkeypatch)
    ran = run_ptir(*command, stdin=FUSED)
    assert ran.status == 1 and ONLY in ran.err
    assert "error[OutputMismatch]" in ran.err


def test_a_check_on_another_engine_tests_that_engine_too(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_in_fused_ops(monkeypatch)
    assert run_ptir("opt", "--check", stdin=FUSED).status == 0
    ran = run_ptir("opt", "--check", "--engine", "native", stdin=FUSED)
    assert ran.status == 1 and "error[CheckFailed]: --check run 1: c[" in ran.err and "--engine native" in ran.err
