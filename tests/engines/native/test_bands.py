"""A product and the depthwise convolution that reads it, band by band, against direct sums in float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import clone
from ptir_tools.engines import RunOptions, native
from ptir_tools.engines.choose import optimized
from ptir_tools.engines.native import _partition
from ptir_tools.engines.thresholds import at
from tests.engines.native.test_windows import convolved

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")


def built(shape, wide, window, strides, dilation, padding, after="clamp", rng=None):
    """An image widened by a product, then seen channel by channel; the program and the weights."""
    rng = rng or np.random.default_rng(0)
    w1, b1 = rng.standard_normal((shape[3], wide), np.float32), rng.standard_normal(wide, np.float32)
    w2, b2 = rng.standard_normal((*window, 1, wide), np.float32), rng.standard_normal(wide, np.float32)
    g = ptir.Graph()
    x = g.input("x", "f32", shape)
    y = x.dot_general(g.constant(w1), contract_lhs=[3], contract_rhs=[0])
    y = ended(y + g.constant(b1).broadcast_like(y), after)
    p = y.extract_patches(list(window), strides=list(strides), dilation=list(dilation), padding=[list(q) for q in padding])
    t = p.reshape([*p.shape[:3], window[0] * window[1], wide])
    z = (t * g.constant(w2.reshape(-1, wide)).broadcast_like(t)).reduce_sum([3])
    z = ended(z + g.constant(b2).broadcast_like(z), after)
    return g, x, y, z, (w1, b1, w2, b2)


def ended(x, after):
    return x.clamp(0, 6) if after == "clamp" else x.tanh() if after == "tanh" else x


def expected(x, weights, strides, dilation, padding, after="clamp"):
    """The result in float64, and a bound."""
    w1, b1, w2, b2 = weights
    end = {"clamp": lambda v: np.clip(v, 0, 6), "tanh": np.tanh, "": lambda v: v}[after]
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        y = end(wide @ w1 + b1)
        off = 2 * (len(w1) + 4) * 2.0**-24 * (abs(wide) @ abs(w1) + abs(b1) + 1)
        exact, magnitude = convolved(y, w2, strides, dilation, padding, len(b2))
        moved, _ = convolved(off, abs(w2), strides, dilation, padding, len(b2))
        return end(exact + b2), moved + 2 * (w2[..., 0].size // len(b2) + 6) * 2.0**-24 * (magnitude + abs(b2) + 1)


def steps_of(made):
    """The names of the ops of each step."""
    ready = optimized(clone(made), RunOptions(), Diagnostics(made.source))
    return [[op.name for op in step] for step in _partition(ready.main)]


@pytest.fixture
def small(monkeypatch):
    """Every pair is large, and few lines are a band."""
    monkeypatch.setattr(at, "pair", 0)
    monkeypatch.setattr(at, "band", 6000)


@st.composite
def cases(draw):
    window = [draw(st.integers(1, 5)) for _ in range(2)]
    dilation = [draw(st.integers(1, 2)) for _ in range(2)]
    extent = [draw(st.integers(max(2, (k - 1) * d + 1), 19)) for k, d in zip(window, dilation, strict=True)]
    strides = [draw(st.integers(1, 3)) for _ in range(2)]
    padding = [(draw(st.integers(0, 4)), draw(st.integers(0, 4))) for _ in range(2)]
    shape = (draw(st.integers(1, 3)), *extent, draw(st.sampled_from([3, 16, 50])))
    return shape, draw(st.sampled_from([16, 17, 40, 64])), window, strides, dilation, padding


@settings(max_examples=100, deadline=None)
@given(cases(), st.sampled_from(["clamp", "clamp", "tanh", ""]), st.integers(0, 99))
def test_pairs(case, after, seed):
    shape, wide, window, strides, dilation, padding = case
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape, np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at, "pair", 0)
        patch.setattr(at, "band", 6000)
        g, _, _, z, weights = built(shape, wide, window, strides, dilation, padding, after, rng)
        made = g.returns(z.named("y"))
        exact, bound = expected(x, weights, strides, dilation, padding, after)
        found = [ptir.run(made, {"x": x}, engine="native", threads=n)["y"] for n in (1, 2, 3)]
    assert (abs(found[0] - exact) <= bound).all()
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].view(np.uint8), other.view(np.uint8))


def test_a_pair_is_one_step(small):
    g, _, _, z, _ = built((1, 9, 9, 8), 32, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    (step,) = [s for s in steps_of(g.returns(z.named("y"))) if "ptir.extract_patches" in s]
    assert step[0] == "ptir.dot_general"
    assert step.count("ptir.dot_general") == 2


def test_what_others_use_is_made(small):
    g, _, y, z, _ = built((1, 9, 9, 8), 32, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    assert all(s.count("ptir.dot_general") < 2 for s in steps_of(g.returns(z.named("y"), y.named("between"))))


def test_small_pairs_stay_apart():
    g, _, _, z, _ = built((1, 9, 9, 8), 32, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)))
    assert all(s.count("ptir.dot_general") < 2 for s in steps_of(g.returns(z.named("y"))))


@pytest.mark.parametrize("planted", [np.nan, np.inf, 1e-42, 1e37])
def test_numbers_that_are_none(small, planted):
    """NaN and infinities go where they go without bands; subnormal numbers are kept."""
    rng = np.random.default_rng(1)
    shape, padding = (1, 17, 11, 64), ((1, 1), (1, 1))
    g, _, _, z, weights = built(shape, 64, (3, 3), (1, 1), (1, 1), padding, "", rng)
    x = rng.standard_normal(shape, np.float32)
    x[0, 8, 5, 3] = planted
    exact, bound = expected(x, weights, (1, 1), (1, 1), padding, "")
    found = ptir.run(g.returns(z.named("y")), {"x": x}, engine="native")["y"]
    sure = np.isfinite(exact) & (abs(exact) + bound < 3e38)
    assert (abs(found[sure] - exact[sure]) <= bound[sure]).all()
    assert (np.isnan(found) == np.isnan(exact))[~np.isfinite(exact)].all()


def test_a_residual_that_is_the_image(small):
    """The result may take the memory of what is added to it; what the product reads is not written before."""
    rng = np.random.default_rng(2)
    g, x, _, z, weights = built((2, 13, 9, 48), 48, (3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), "clamp", rng)
    made = g.returns((z + x).named("y"))
    given = rng.standard_normal((2, 13, 9, 48), np.float32)
    exact, bound = expected(given, weights, (1, 1), (1, 1), ((1, 1), (1, 1)))
    for threads in (1, 2):
        found = ptir.compile(made, engine="native", threads=threads)({"x": given})["y"]
        assert (abs(found - (exact + given)) <= bound + 2.0**-20).all()


@pytest.mark.parametrize("rows", [24, 49, 96, 200])
def test_a_product_with_a_large_right_operand_ends_in_its_kernel(rows):
    """Where what is done with the result is an epilogue, and only then."""
    rng = np.random.default_rng(rows)
    w, b = rng.standard_normal((700, 300), np.float32), rng.standard_normal(300, np.float32)
    x = rng.standard_normal((rows, 700), np.float32)
    for end, joins in (("clamp", True), ("tanh", False)):
        g = ptir.Graph()
        y = g.input("x", "f32", x.shape) @ g.constant(w)
        made = g.returns(ended(y + g.constant(b).broadcast_like(y), end).named("y"))
        (step,) = [s for s in steps_of(made) if "ptir.dot_general" in s]
        assert (len(step) > 1) == joins
        exact = x.astype(np.float64) @ w + b
        exact = np.clip(exact, 0, 6) if end == "clamp" else np.tanh(exact)
        bound = 704 * 2.0**-24 * (abs(x).astype(np.float64) @ abs(w) + abs(b))
        found = [ptir.run(made, {"x": x}, engine="native", threads=n)["y"] for n in (1, 2)]
        assert (abs(found[0] - exact) <= bound).all()
        np.testing.assert_array_equal(*found)
