"""Attention whose mask leaves the first columns of a row: fewer columns are computed, and nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import ptir_tools
from ptir_tools.core.builder import single_function
from ptir_tools.core.dtypes import F32
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import RunOptions, native, run
from ptir_tools.engines.native import blocks as engine

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

HEADS, ROWS, COLUMNS, DEPTH = 3, 250, 301, 16
MASKS = {
    "causal": np.tri(ROWS, COLUMNS, dtype=bool),
    "causal, aligned at the end": np.tri(ROWS, COLUMNS, COLUMNS - ROWS, dtype=bool),
    "band": np.tri(ROWS, COLUMNS, dtype=bool) & ~np.tri(ROWS, COLUMNS, -9, dtype=bool),
    "blocks": np.kron(np.eye(10, dtype=bool), np.ones((25, 31), bool))[:, :COLUMNS],
    "rows without any": np.tri(ROWS, COLUMNS, -3, dtype=bool),
    "nothing left": np.zeros((ROWS, COLUMNS), bool),
    "all left": np.ones((ROWS, COLUMNS), bool),
}


def masked(mask, low, after=lambda s: s):
    """softmax(q k^T, masked) v; `after` comes between mask and softmax."""
    g = ptir_tools.Graph()
    q, k, v = (g.input(name, "f32", (HEADS, n, DEPTH)) for name, n in (("q", ROWS), ("k", COLUMNS), ("v", COLUMNS)))
    s = q @ k.transpose([0, 2, 1])
    s = after(g.constant(mask).broadcast_to(s.shape).select(s, low))
    e = (s - s.reduce_max([2], keepdims=True).broadcast_like(s)).exp()
    return g.returns((e / e.reduce_sum([2], keepdims=True).broadcast_like(e)) @ v)


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((HEADS, n, DEPTH)).astype(np.float32) for n in (ROWS, COLUMNS, COLUMNS)]


def found(program, inputs, threads=1):
    (out,) = run(program, inputs, RunOptions(engine="native", threads=threads)).values()
    return out


def both(program, inputs, monkeypatch):
    """The outputs with and without leaving columns out; how many blocks were narrow."""
    blocks = []
    narrowed = engine._narrowed
    monkeypatch.setattr(engine, "_narrowed", lambda *a: blocks.append(1) or narrowed(*a))
    short = found(program, inputs)
    monkeypatch.setattr(engine, "causal", lambda result: None)
    return short, found(program, inputs), len(blocks)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("low", [-1e9, float("-inf"), -1000.0, -5.0, 0.0])
def test_every_bit_is_as_without(mask, low, monkeypatch):
    short, whole, blocks = both(masked(MASKS[mask], low), drawn(), monkeypatch)
    np.testing.assert_array_equal(short, whole)
    assert bool(blocks) == (mask not in ("nothing left", "all left"))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("which", range(3))
def test_what_is_masked_may_still_be_seen(value, which, monkeypatch):
    """0 times infinity is NaN, and a NaN among the scores of a row that keeps it, too."""
    inputs = drawn()
    inputs[which][1, 200] = value
    short, whole, _ = both(masked(MASKS["causal"], -1e9), inputs, monkeypatch)
    np.testing.assert_array_equal(short, whole)
    assert np.isnan(short).any() and not np.isnan(short[0]).any()


@pytest.mark.parametrize("scale", [1e6, -1e6, 1e30])
def test_scores_below_what_masks_them(scale, monkeypatch):
    """Then the masked columns weigh most."""
    inputs = drawn()
    inputs[0][:, 100:] *= scale
    short, whole, _ = both(masked(MASKS["causal"], -1e3), inputs, monkeypatch)
    np.testing.assert_array_equal(short, whole)


def test_threads_change_no_bit():
    program, inputs = masked(MASKS["causal"], -1e9), drawn()
    np.testing.assert_array_equal(found(program, inputs), found(program, inputs, threads=3))


def test_what_is_done_to_masked_scores_counts(monkeypatch):
    short, whole, blocks = both(masked(MASKS["causal"], -1e9, lambda s: s * 1e-9), drawn(), monkeypatch)
    np.testing.assert_array_equal(short, whole)
    assert not blocks


def test_a_mask_that_is_an_input_is_not_known(monkeypatch):
    program, b = single_function(load_dialect("ptir"))
    q, v = (b.param(tensor(F32, (200, 200)), name) for name in "qv")
    s = b.op("dot_general", q, q, contract_lhs=(1,), contract_rhs=(1,))
    low = b.op("mul", b.op("neg", v), b.op("abs", v))
    s = b.op("select", b.op("compare_ge", v, q), s, low)
    row = {"axes": (1,), "keepdims": True}
    e = b.op("exp", b.op("sub", s, b.op("broadcast_to", b.op("reduce_max", s, **row), result_shape=(200, 200))))
    total = b.op("broadcast_to", b.op("reduce_sum", e, **row), result_shape=(200, 200))
    b.results(b.op("dot_general", b.op("div", e, total), v, contract_lhs=(1,), contract_rhs=(0,)))
    rng = np.random.default_rng(0)
    short, whole, blocks = both(program, [rng.standard_normal((200, 200)).astype(np.float32) for _ in "qv"], monkeypatch)
    np.testing.assert_array_equal(short, whole)
    assert not blocks
