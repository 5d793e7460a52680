"""Compiled programs whose extents change from call to call are prepared once for a range of them."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import ptir_tools as ptir
from ptir_tools.core import arrays, symbols
from ptir_tools.core.choices import Seeded
from ptir_tools.dialects.ptir.generate import generate
from ptir_tools.engines import choose
from ptir_tools.engines.compiled import Compiled
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import RunOptions
from ptir_tools.engines.thresholds import lowered

# One step of a decoder: the cache grows by one row, and one query attends to all of it, with a mask over positions.
STEP = """
func @step(%x: tensor<f32, 2x4>, %cache: tensor<f32, 2x?pastx4>, %w: tensor<f32, 4x4>)
    -> (tensor<f32, 2x?totalx4>, tensor<f32, 2x4>) where ?total = ?past + 1 {
  %row = dot_general(%x, %w) contract_lhs[1] contract_rhs[0] -> tensor<f32, 2x4>
  %new = reshape(%row) new_shape[2, 1, 4] -> tensor<f32, 2x1x4>
  %all = concat(%cache, %new) axis[1] -> tensor<f32, 2x?totalx4>
  %scores = dot_general(%x, %all) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[2] -> tensor<f32, 2x?total>
  %at = iota() axis[0] -> tensor<si32, ?total>
  %three = constant() value[dense<3>] -> tensor<si32>
  %threes = broadcast_to(%three) result_shape[?total] -> tensor<si32, ?total>
  %first = compare_lt(%at, %threes) -> tensor<i1, ?total>
  %kept = broadcast_to(%first) result_shape[2, ?total] -> tensor<i1, 2x?total>
  %low = constant() value[dense<-5.0>] -> tensor<f32>
  %lows = broadcast_to(%low) result_shape[2, ?total] -> tensor<f32, 2x?total>
  %masked = select(%kept, %lows, %scores) -> tensor<f32, 2x?total>
  %top = reduce_max(%masked) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %tops = broadcast_to(%top) result_shape[2, ?total] -> tensor<f32, 2x?total>
  %shifted = sub(%masked, %tops) -> tensor<f32, 2x?total>
  %e = exp(%shifted) -> tensor<f32, 2x?total>
  %sum = reduce_sum(%e) axes[1] keepdims[true] -> tensor<f32, 2x1>
  %sums = broadcast_to(%sum) result_shape[2, ?total] -> tensor<f32, 2x?total>
  %p = div(%e, %sums) -> tensor<f32, 2x?total>
  %y = dot_general(%p, %all) batch_lhs[0] batch_rhs[0] contract_lhs[1] contract_rhs[1] -> tensor<f32, 2x4>
  return %all, %y
}
"""


def by_hand(x: np.ndarray, cache: np.ndarray, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The step in float64."""
    x, cache, w = (a.astype(np.float64) for a in (x, cache, w))
    cache = np.concatenate([cache, (x @ w)[:, None]], 1)
    scores = np.einsum("bc,btc->bt", x, cache)
    scores[:, :3] = -5
    e = np.exp(scores - scores.max(1, keepdims=True))
    return cache, np.einsum("bt,btc->bc", e / e.sum(1, keepdims=True), cache)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers in f32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is appended when a pipeline of passes runs or a memory plan is made."""
    done: list[str] = []
    for name in ("run_pipeline", "_engine"):

        def spied(*arguments: object, name: str = name, call: object = getattr(choose, name)) -> object:
            done.append(name)
            return call(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(choose, name, spied)
    return done


@pytest.mark.parametrize("engine", ["numpy", "native"])
@pytest.mark.parametrize("low", [False, True])
def test_a_growing_cache_is_prepared_twice(engine: str, low: bool, prepared: list[str]) -> None:
    """Every length from 2 to 60: extents meet 4, the extent of a row, and each result stays as it was when it is kept."""
    with lowered() if low else nullcontext():
        session = Compiled(ptir.read(STEP), RunOptions(engine=engine, poison=low))
        cache, w = noise(2, 2, 4), noise(4, 4, seed=1) / 4
        kept = []
        for step in range(58):
            x = noise(2, 4, seed=step + 2)
            wanted = by_hand(x, cache, w)
            made = session({"x": x, "cache": cache, "w": w})
            np.testing.assert_allclose(made["y"], wanted[1], rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(made["all"], wanted[0], rtol=1e-5, atol=1e-5)
            cache = made["all"]
            kept.append((made, wanted))
            if step == 1:
                prepared.clear()
    assert low or not prepared  # low thresholds cut the range
    for made, wanted in kept:
        np.testing.assert_allclose(made["all"], wanted[0], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(made["y"], wanted[1], rtol=1e-5, atol=1e-5)


def test_a_second_text_is_not_prepared(prepared: list[str]) -> None:
    """A range begins at the shortest cache; other inputs of the same extents may be other arrays."""
    session, w = Compiled(ptir.read(STEP)), noise(4, 4, seed=1) / 4
    for lengths in ([9, 10, 11], [3, 4, 5], [30]):
        for n in lengths:
            x, cache = noise(2, 4, seed=n), noise(2, n, 4, seed=n + 1)
            w = w.copy() * np.float32(0.9)
            np.testing.assert_allclose(session([x, cache, w])["y"], by_hand(x, cache, w)[1], rtol=1e-5, atol=1e-5)
        if lengths[0] == 9:
            prepared.clear()
    assert not prepared


def test_memory_of_results_is_used_again() -> None:
    """A caller who keeps the last result alone gets the same memory every few steps."""
    session, w = Compiled(ptir.read(STEP)), noise(4, 4, seed=1) / 4
    cache, places = noise(2, 2, 4), set()
    for step in range(20):
        cache = session([noise(2, 4, seed=step), cache, w])["all"]
        places.add(cache.ctypes.data)
    assert len(places) <= 6


def test_the_same_shapes_twice_are_prepared_for_them(prepared: list[str]) -> None:
    session, w = Compiled(ptir.read(STEP)), noise(4, 4, seed=1) / 4
    for n in (2, 3, 7, 7):
        prepared.clear()
        session([noise(2, 4), noise(2, n, 4), w])
    assert prepared
    prepared.clear()
    x, cache = noise(2, 4, seed=5), noise(2, 7, 4, seed=6)
    np.testing.assert_allclose(session([x, cache, w])["y"], by_hand(x, cache, w)[1], rtol=1e-5, atol=1e-5)
    assert not prepared


# Two inputs whose extents have to agree, an extent that is halved, and one with a limit.
MASKED = """
func @f(%x: tensor<f32, ?n>, %y: tensor<f32, ?k>) -> tensor<f32, ?k> where ?k = ?n + 1 {
  %one = constant() value[dense<1.0>] -> tensor<f32, 1>
  %more = concat(%x, %one) axis[0] -> tensor<f32, ?k>
  %z = add(%more, %y) -> tensor<f32, ?k>
  return %z
}
"""

HALVED = """
func @f(%x: tensor<f32, ?n>) -> tensor<f32, ?h> where ?h = ?n floordiv 2 {
  %i = iota() axis[0] -> tensor<si32, ?h>
  %y = take(%x, %i) -> tensor<f32, ?h>
  %z = add(%y, %y) -> tensor<f32, ?h>
  return %z
}
"""

LIMITED = """
func @f(%x: tensor<f32, ?n>) -> tensor<f32, 4> {
  %y = slice(%x) starts[2] sizes[4] -> tensor<f32, 4>
  %z = exp(%y) -> tensor<f32, 4>
  return %z
}
"""


def test_symbols_that_have_to_agree() -> None:
    session = Compiled(ptir.read(MASKED))
    for n in (3, 4, 5, 9):
        y = np.arange(n + 1, dtype=np.float32)
        np.testing.assert_array_equal(session([np.ones(n, np.float32), y])["z"], 1 + y)
    with pytest.raises(ptir.Rejected, match="is 9, but"):
        session([np.ones(7, np.float32), np.ones(9, np.float32)])
    np.testing.assert_array_equal(session([np.ones(6, np.float32), np.ones(7, np.float32)])["z"], np.full(7, 2))


def test_extents_that_are_not_linear(prepared: list[str]) -> None:
    session = Compiled(ptir.read(HALVED))
    for n in range(2, 9):
        prepared.clear()
        x = noise(n)
        np.testing.assert_array_equal(session([x])["z"], 2 * x[: n // 2])
        assert prepared


def test_a_length_that_the_program_refuses() -> None:
    session = Compiled(ptir.read(LIMITED))
    for n in (9, 8, 7, 6):
        x = noise(n)
        np.testing.assert_allclose(session([x])["z"], np.exp(x[2:6]), rtol=1e-6)
    with pytest.raises(ptir.Rejected, match="outside axis 0"):
        session([noise(5)])


def test_a_symbol_that_changes_after_a_range_was_made_without_it() -> None:
    session = Compiled(
        ptir.read(
            "func @f(%x: tensor<f32, ?ax?b>) -> tensor<f32, ?ax?b> {\n  %y = exp(%x) -> tensor<f32, ?ax?b>\n  return %y\n}\n"
        )
    )
    for shape in ((4, 2), (5, 3), (6, 4), (6, 5), (25, 24), (7, 6)):
        x = noise(*shape)
        np.testing.assert_allclose(session([x])["y"], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("seed", [*range(16), *(pytest.param(i, marks=pytest.mark.campaign) for i in range(16, 2000))])
def test_random_programs_and_extents(seed: int) -> None:
    """A session gives what a new one gives, whatever symbols change and by how much."""
    program, rng = generate(Seeded(seed)), np.random.default_rng(seed)
    names = sorted({s.name for p in program.main.params for s in symbols.mentioned(p.type)})
    session, base = Compiled(program, RunOptions(threads=2)), {name: int(rng.integers(1, 6)) for name in names}
    moving = {name for name in names if rng.integers(2)}
    for call, grown in enumerate((0, 1, 2, 3, int(rng.integers(4, 40)), 5, int(rng.integers(40, 300)), 6, 0)):
        numbers = {name: n + (grown + int(rng.integers(2)) if name in moving else 0) for name, n in base.items()}
        given = random_inputs(program, seed + call, bindings=numbers)
        wanted = Compiled(program, RunOptions(threads=2))(given)
        for name, found in session(given).items():
            np.testing.assert_array_equal(arrays.widen(found), arrays.widen(wanted[name]), err_msg=f"{name} {numbers}")
