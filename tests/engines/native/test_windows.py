"""Convolutions and pooling of the native engine against direct sums in float64: odd sizes, groups, NaN, infinities, threads."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools as ptir
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.engines import RunOptions, native
from ptir_tools.engines.choose import optimized
from ptir_tools.engines.native import _partition
from ptir_tools.engines.native import rows as row_steps

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

DTYPES = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
UNIT = {"f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}


def places(n, window, stride, dilation, low, high):
    """How many windows there are along an axis."""
    return (n + low + high - (window - 1) * dilation - 1) // stride + 1


def convolved(x, w, strides, dilation, padding, groups):
    """The convolution of [N, H, W, C] with [kh, kw, C / groups, O], tap by tap in float64; and the sum of the magnitudes."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    padded = np.pad(x, ((0, 0), *padding, (0, 0)))
    count = [places(n, k, s, d, *p) for n, k, s, d, p in zip(x.shape[1:3], w.shape[:2], strides, dilation, padding, strict=True)]
    made = np.zeros((2, len(x), *count, w.shape[3]))
    each, columns = x.shape[3] // groups, w.shape[3] // groups
    with np.errstate(all="ignore"):
        for i, j in itertools.product(range(w.shape[0]), range(w.shape[1])):
            rows, across = (
                slice(k * d, k * d + (c - 1) * s + 1, s) for k, d, c, s in zip((i, j), dilation, count, strides, strict=True)
            )
            seen = padded[:, rows, across]
            for g in range(groups):
                own, to = seen[..., g * each : (g + 1) * each], slice(g * columns, (g + 1) * columns)
                factor = w[i, j, :, to]
                made[0][..., to] += (own[..., None] * factor).sum(-2)
                made[1][..., to] += (abs(own)[..., None] * abs(factor)).sum(-2)
    return made


def program(shape, weights, strides, dilation, padding, groups, form="groups", after=(), dtype="f32", constant=True):
    """A convolution as PTIR: patches times weights, group by group, then ops by name."""
    g = ptir.Graph()
    x = g.input("x", dtype, shape)
    kh, kw, each, out = weights.shape
    p = x.extract_patches([kh, kw], strides=list(strides), dilation=list(dilation), padding=[list(q) for q in padding])
    w = g.constant(weights) if constant else g.input("w", dtype, weights.shape)
    count = [*p.shape[:-1]]
    if form == "depthwise":  # as it is written with mul and reduce_sum, which becomes a contraction
        t = p.reshape([*count, kh * kw, groups])
        y = (t * w.reshape([kh * kw, groups]).broadcast_like(t)).reduce_sum([3])
    elif groups == 1 and form == "right":
        y = w.reshape([kh * kw * each, out]).dot_general(p, contract_lhs=[0], contract_rhs=[3]).transpose([1, 2, 3, 0])
    elif groups == 1:
        y = p.dot_general(w.reshape([kh * kw * each, out]), contract_lhs=[3], contract_rhs=[0])
    else:
        t = p.reshape([*count, kh * kw, groups, each])
        v = w.reshape([kh * kw, each, groups, out // groups])
        axes = {"batch_lhs": [4], "batch_rhs": [2], "contract_lhs": [3, 5], "contract_rhs": [0, 1]}
        if form == "right":
            names = {a: axes[b] for a, b in (("batch_lhs", "batch_rhs"), ("batch_rhs", "batch_lhs"))}
            y = v.dot_general(t, **names, contract_lhs=[0, 1], contract_rhs=[3, 5]).transpose([2, 3, 4, 0, 1])
        else:
            y = t.dot_general(v, **axes)
            y = y if form == "as made" else y.transpose([1, 2, 3, 0, 4])
        if form != "as made":
            y = y.reshape([*count, out])
    if "bias" in after:
        y = y + g.constant(np.linspace(-1, 1, y.shape[-1]).astype(np.float32)).broadcast_like(y)
    if "relu" in after:
        y = y.maximum(0)
    if "residual" in after:
        y = y + y
    return g.returns(y.named("y"))


def groups_of_steps(made):
    """The names of the ops of each step of the native engine."""
    ready = optimized(made, RunOptions(), Diagnostics(made.source))
    return [[op.name for op in step] for step in _partition(ready.main)]


@st.composite
def cases(draw):
    groups = draw(st.sampled_from([1, 1, 2, 3, 17]))
    each = draw(st.sampled_from([1, 2, 3, 8, 9, 17] if groups < 17 else [1]))
    columns = draw(st.sampled_from([1, 2, 5, 16, 33] if groups < 17 else [1, 1, 2]))
    window = [draw(st.integers(1, 3)) for _ in range(2)]
    dilation = [draw(st.integers(1, 2)) for _ in range(2)]
    extent = [draw(st.integers((k - 1) * d + 1, 9)) for k, d in zip(window, dilation, strict=True)]
    strides = [draw(st.integers(1, 3)) for _ in range(2)]
    padding = [(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(2)]
    forms = ["groups", "right"] + ["as made"] * (groups > 1)
    form = draw(st.sampled_from(forms + ["depthwise"] * 3 if each == columns == 1 < groups else forms))
    after = draw(st.sets(st.sampled_from(["bias", "relu", "residual"])))
    shape = (draw(st.integers(1, 2)), *extent, groups * each)
    return shape, (*window, each, groups * columns), strides, dilation, padding, groups, form, after


@settings(max_examples=120, deadline=None)
@given(cases(), st.sampled_from(sorted(DTYPES)), st.booleans(), st.integers(0, 99))
def test_convolutions(case, dtype, constant, seed):
    shape, of_weights, strides, dilation, padding, groups, form, after = case
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in (shape, of_weights))
    after = after if dtype == "f32" else ()
    made = program(shape, w, strides, dilation, padding, groups, form, after, dtype, constant)
    exact, magnitude = convolved(x, w, strides, dilation, padding, groups)
    if form == "as made":
        n, rows, across, _ = exact.shape
        exact, magnitude = (a.reshape(n, rows, across, groups, -1).transpose(3, 0, 1, 2, 4) for a in (exact, magnitude))
    if "bias" in after:
        exact = exact + np.linspace(-1, 1, exact.shape[-1]).astype(np.float32)
    exact = np.maximum(exact, 0) if "relu" in after else exact
    exact = exact * 2 if "residual" in after else exact
    taps = of_weights[0] * of_weights[1] * of_weights[2]
    bound = 2 * (taps + 4) * 2.0**-24 * (magnitude + 1) + 2 * UNIT[dtype] * abs(exact) + 2.0**-20 * UNIT[dtype]
    if form == "depthwise":  # each product is rounded where `raise-contractions` leaves them
        bound += 2 * UNIT[dtype] * magnitude
    found = []
    for workers in (1, 2):
        given = {"x": x} if constant else {"x": x, "w": w}
        found.append(ptir.run(made, given, engine="native", threads=workers)["y"])
        assert (abs(found[-1].astype(np.float64).reshape(exact.shape) - exact) <= bound).all()
    np.testing.assert_array_equal(*(f.view(np.uint8) for f in found))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [(1, 3), (3, 3), (5, 5), (2, 5), (3, 4), (7, 7), (9, 3)])
@pytest.mark.parametrize("channels", [16, 33, 100])
@pytest.mark.parametrize("stride", [1, 2])
def test_channels_one_by_one(dtype, window, channels, stride):
    """Blocks of neighbors, whole and cut vectors of channels, and the places at the edges."""
    rng = np.random.default_rng(channels)
    x, w = (rng.standard_normal(s).astype(DTYPES[dtype]) for s in ((1, 8, 20, channels), (*window, 1, channels)))
    padding = [((k - 1) // 2, k // 2) for k in window]
    made = program(x.shape, w, (stride, stride), (1, 1), padding, channels, dtype=dtype)
    exact, magnitude = convolved(x, w, (stride, stride), (1, 1), padding, channels)
    bound = 2 * (window[0] * window[1] + 4) * 2.0**-24 * (magnitude + 1) + 2 * UNIT[dtype] * abs(exact)
    assert (abs(ptir.run(made, {"x": x}, engine="native")["y"].astype(np.float64) - exact) <= bound).all()


FEW = [(1, 1), (1, 3), (3, 1), (5, 2), (4, 8), (2, 7), (1, 16), (3, 24), (2, 33), (1, 100), (9, 48)]
LINES = [(8, (3, 3), 1, 1), (61, (3, 3), 2, 1), (40, (2, 7), 3, 2), (300, (1, 5), 2, 1)]


@pytest.mark.parametrize("channels,columns", FEW)
@pytest.mark.parametrize("width,window,stride,dilation", LINES)
def test_few_channels_or_columns(channels, columns, width, window, stride, dilation):
    """Lines of the image are copied; a place has the same bits wherever the threads cut, with what ends it."""
    rng = np.random.default_rng(width + columns)
    reach = (window[1] - 1) * dilation
    shape = (2, 9, (width - 1) * stride + reach - 2, channels)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in (shape, (*window, channels, columns)))
    padding = [(window[0] - 1, 0), (1, 2)]
    for after in ((), {"bias"}, {"bias", "relu"}, {"residual"}):
        made = program(x.shape, w, (1, stride), (1, dilation), padding, 1, after=after)
        exact, magnitude = convolved(x, w, (1, stride), (1, dilation), padding, 1)
        assert exact.shape[2] == width
        exact = exact + np.linspace(-1, 1, columns).astype(np.float32) if "bias" in after else exact
        exact = np.maximum(exact, 0) if "relu" in after else exact * 2 if "residual" in after else exact
        found = [ptir.run(made, {"x": x}, engine="native", threads=n)["y"] for n in (1, 2, 3)]
        assert (abs(found[0] - exact) <= 4 * (w[..., 0].size + 4) * 2.0**-24 * (magnitude + 1)).all()
        for other in found[1:]:
            np.testing.assert_array_equal(other.view(np.uint32), found[0].view(np.uint32))


def test_a_long_line_of_one_channel():
    """It is copied in parts."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 1, 90001, 1)).astype(np.float32), rng.standard_normal((1, 31, 1, 1)).astype(np.float32)
    made = program(x.shape, w, (1, 2), (1, 1), ((0, 0), (40, 3)), 1, after={"bias"})
    exact, magnitude = convolved(x, w, (1, 2), (1, 1), ((0, 0), (40, 3)), 1)
    found = ptir.run(made, {"x": x}, engine="native")["y"]
    assert (abs(found - (exact - 1)) <= 70 * 2.0**-24 * (magnitude + 1)).all()


@pytest.mark.parametrize("width", [1, 2, 5, 8, 9, 15, 17, 61])
@pytest.mark.parametrize("taps", [3, 5])
@pytest.mark.parametrize("low", [0, 1, 4])
def test_lines_of_any_width(width, taps, low):
    """A place has the same bits wherever the threads cut a line, with what ends it; also where windows see only padding."""
    rng = np.random.default_rng(width)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 4096 // width // 8 + 3, width, 200), (3, taps, 1, 200)))
    padding = [(1, 1), (low, 5 - low)]
    made = program(x.shape, w, (1, 1), (1, 1), padding, 200, after={"bias", "relu"})
    exact, magnitude = convolved(x, w, (1, 1), (1, 1), padding, 200)
    exact = np.maximum(exact + np.linspace(-1, 1, 200).astype(np.float32), 0)
    found = [ptir.run(made, {"x": x}, engine="native", threads=n)["y"] for n in (1, 2, 3)]
    assert (abs(found[0] - exact) <= 40 * 2.0**-24 * (magnitude + 1)).all()
    for other in found[1:]:
        np.testing.assert_array_equal(other.view(np.uint32), found[0].view(np.uint32))


@pytest.mark.parametrize("bounds", [(np.nan, 6), (0, np.nan), (-0.0, 6), (0, -0.0), (-np.inf, np.inf), (6, 0)])
@pytest.mark.parametrize("form", ["depthwise", "groups"])
def test_bounds_in_registers(bounds, form):
    """A result between two numbers has the bits of a maximum and a minimum, one after the other: of NaN and infinities, too."""
    each = 1 if form == "depthwise" else 32
    x = np.full((1, 12, 12, 32), -0.0, np.float32)
    x[0, 3, 4], x[0, 3, 5], x[0, 9, 9], x[0, 0, 0] = np.nan, np.inf, -np.inf, 7

    def ran(between):
        g = ptir.Graph()
        p = g.input("x", "f32", x.shape).extract_patches([3, 3], padding=[[1, 1], [1, 1]])
        t = p.reshape([1, 12, 12, 9, 32 // each, each])
        v = g.constant(np.ones((9, each, 32 // each, 32 if each > 1 else 1), np.float32))
        y = t.dot_general(v, batch_lhs=[4], batch_rhs=[2], contract_lhs=[3, 5], contract_rhs=[0, 1]).transpose([1, 2, 3, 0, 4])
        y = y.reshape([1, 12, 12, 32])
        y = y.maximum(bounds[0]).minimum(bounds[1]) if between else y
        return ptir.run(g.returns(y.named("y")), {"x": x}, engine="native")["y"]

    sums, found = ran(False), ran(True)
    low, high = map(np.float32, bounds)
    exact = np.where((sums > low) | np.isnan(sums) | (sums == low) & np.signbit(low), sums, low)
    exact = np.where((exact < high) | np.isnan(exact) | (exact == high) & ~np.signbit(high), exact, high)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(found.view(np.uint32)[~np.isnan(found)], exact.view(np.uint32)[~np.isnan(exact)])


@pytest.mark.parametrize("form", ["groups", "depthwise"])
def test_patches_are_never_there(form):
    """One step from the image to what is done with the result."""
    w = np.random.default_rng(0).random((3, 3, 1 if form == "depthwise" else 8, 8), np.float32)
    made = program((1, 9, 9, 8), w, (1, 1), (1, 1), ((1, 1), (1, 1)), 8 if form == "depthwise" else 1, form, {"bias", "relu"})
    steps = groups_of_steps(made)
    (patches,) = [s for s in steps if "ptir.extract_patches" in s]
    assert patches[-1] == "ptir.maximum"
    assert "ptir.dot_general" in patches


@pytest.mark.parametrize("transposed", [False, True])
def test_spatial_axes_before_the_last_two(transposed):
    """With a window of 1 they are like more images, also of an image that is a view which cannot be seen that way."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 3, 7, 6, 5)).astype(np.float32), rng.standard_normal((3, 3, 5, 17)).astype(np.float32)
    g = ptir.Graph()
    given = g.input("x", "f32", (3, 2, 7, 6, 5) if transposed else x.shape)
    seen = given.transpose([1, 0, 2, 3, 4]) if transposed else given
    p = seen.extract_patches([1, 3, 3], strides=[1, 2, 1], padding=[[0, 0], [1, 1], [1, 0]])
    y = p.dot_general(g.constant(w.reshape(45, 17)), contract_lhs=[4], contract_rhs=[0])
    made = g.returns(y.named("y"))
    assert ["ptir.extract_patches"] not in groups_of_steps(made)
    exact, magnitude = convolved(x.reshape(6, 7, 6, 5), w, (2, 1), (1, 1), ((1, 1), (1, 0)), 1)
    for workers in (1, 2):
        found = ptir.run(made, {"x": x.swapaxes(0, 1) if transposed else x}, engine="native", threads=workers)["y"]
        assert (abs(found.reshape(exact.shape) - exact) <= 2 * 49 * 2.0**-24 * (magnitude + 1)).all()


@pytest.mark.parametrize("form", ["groups", "depthwise"])
@pytest.mark.parametrize("sums", [1, 2, 3])
def test_sums_before_an_activation(form, sums):
    """They are done in registers, and give the same bits as one by one; also where a sum is an output."""
    rng = np.random.default_rng(sums)
    each = 1 if form == "depthwise" else 5
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((2, 9, 9, 20), (3, 3, each, 20)))
    more = [rng.standard_normal(s).astype(np.float32) for s in ((20,), (2, 9, 9, 20), (9, 20))]

    def ran(fused, shows):
        g = ptir.Graph()
        p = g.input("x", "f32", x.shape).extract_patches([3, 3], padding=[[1, 1], [1, 1]]).reshape([2, 9, 9, 9, 20 // each, each])
        v = g.constant(w.reshape(9, each, 20 // each, each))
        y = p.dot_general(v, batch_lhs=[4], batch_rhs=[2], contract_lhs=[3, 5], contract_rhs=[0, 1]).transpose([1, 2, 3, 0, 4])
        y = y.reshape([2, 9, 9, 20])
        shown = [y.named("s")] if shows else []
        for i, m in enumerate(more[:sums]):
            y = g.constant(m).broadcast_like(y) + y if i else y + g.constant(m).broadcast_like(y)
            shown = [y.named("s")] if shows == 2 and i == 0 else shown
        y = y / (y.neg().exp() + 1.0)
        return ptir.run(g.returns(y.named("y"), *shown), {"x": x}, engine="native" if fused else "numpy")

    if sums == 2:  # of numbers that are apart in memory
        more[1] = np.ascontiguousarray(more[1].transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)
    alone = ran(True, 0)["y"]
    for shows in (1, 2):
        found = ran(True, shows)
        np.testing.assert_array_equal(found["y"].view(np.uint32), alone.view(np.uint32))
    np.testing.assert_allclose(alone, ran(False, 0)["y"], 1e-5, 1e-5)


def test_patches_that_others_use_stay():
    g = ptir.Graph()
    p = g.input("x", "f32", (1, 5, 5, 2)).extract_patches([3, 3])
    made = g.returns(
        p.dot_general(g.constant(np.ones((18, 4), np.float32)), contract_lhs=[3], contract_rhs=[0]).named("y"), p.named("p")
    )
    assert ["ptir.extract_patches"] in groups_of_steps(made)


def test_patches_that_are_the_image_of_other_patches_stay():
    """Every second pixel, which a product of pixels and a convolution read: as where a network halves an image."""
    rng = np.random.default_rng(2)
    x, u, w = (rng.standard_normal(s).astype(np.float32) for s in ((1, 9, 9, 16), (16, 8), (3, 3, 16, 8)))
    g = ptir.Graph()
    half = g.input("x", "f32", x.shape).extract_patches([1, 1], strides=[2, 2])
    first = half.dot_general(g.constant(u), contract_lhs=[3], contract_rhs=[0])
    second = half.extract_patches([3, 3], padding=[[1, 1], [1, 1]])
    second = second.dot_general(g.constant(w.reshape(144, 8)), contract_lhs=[3], contract_rhs=[0])
    made = g.returns(first.named("y"), second.named("z"))
    assert ["ptir.extract_patches"] in groups_of_steps(made)
    exact, magnitude = convolved(x[:, ::2, ::2], w, (1, 1), (1, 1), ((1, 1), (1, 1)), 1)
    found = ptir.run(made, {"x": x}, engine="native")
    np.testing.assert_allclose(found["y"], x[:, ::2, ::2].astype(float) @ u, rtol=1e-4, atol=1e-4)
    assert (abs(found["z"] - exact) <= 2 * 148 * 2.0**-24 * (magnitude + 1)).all()


def test_what_pads_is_multiplied():
    """A weight that is not finite makes NaN of the zeros around; other places keep their numbers."""
    x = np.ones((1, 3, 40, 16), np.float32)
    for groups, shape in ((16, (3, 3, 1, 16)), (1, (3, 3, 16, 16))):
        w = np.ones(shape, np.float32)
        w[0, 0, 0, 3] = np.inf
        made = program(x.shape, w, (1, 1), (1, 1), ((1, 1), (1, 1)), groups, "depthwise" if groups > 1 else "groups")
        with np.errstate(all="ignore"):
            exact, _ = convolved(x, w, (1, 1), (1, 1), ((1, 1), (1, 1)), groups)
            np.testing.assert_array_equal(ptir.run(made, {"x": x}, engine="native")["y"], exact.astype(np.float32))


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_pooling(data):
    draw = data.draw
    kind = draw(st.sampled_from(["sum", "max", "min"]))
    window, strides, dilation = ([draw(st.integers(1, 3)) for _ in range(2)] for _ in range(3))
    extent = [draw(st.integers((k - 1) * d + 1, 12)) for k, d in zip(window, dilation, strict=True)]
    padding = [[draw(st.integers(0, 2)), draw(st.integers(0, 2))] for _ in range(2)]
    lead = draw(st.sampled_from([(), (1,), (2,), (2, 3)]))
    shape = (*lead, *extent, draw(st.sampled_from([8, 9, 31, 64, 67])))
    x = np.random.default_rng(draw(st.integers(0, 9))).standard_normal(shape).astype(np.float32)
    x.flat[:: draw(st.sampled_from([7, 1000]))] = draw(st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 3e38]))
    ones, none = [1] * len(lead), [[0, 0]] * len(lead)
    g = ptir.Graph()
    whole = {"window_dims": [*ones, *window, 1], "strides": [*ones, *strides, 1], "padding": [*none, *padding, [0, 0]]}
    y = g.input("x", "f32", shape).reduce_window(
        **whole, base_dilation=[1] * len(shape), window_dilation=[*ones, *dilation, 1], reduce=kind
    )
    made = g.returns(y.named("y"))
    start = {"sum": 0.0, "max": -np.inf, "min": np.inf}[kind]
    padded = np.pad(x.astype(np.float64), (*none, *padding, (0, 0)), constant_values=start)
    count = [places(n, k, s, d, *p) for n, k, s, d, p in zip(extent, window, strides, dilation, padding, strict=True)]
    join = {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind]
    exact, magnitude = np.full((*lead, *count, shape[-1]), start), 0.0
    with np.errstate(all="ignore"):
        for i, j in itertools.product(*map(range, window)):
            rows, across = (
                slice(k * d, k * d + (c - 1) * s + 1, s) for k, d, c, s in zip((i, j), dilation, count, strides, strict=True)
            )
            exact = join(exact, padded[..., rows, across, :])
            magnitude = magnitude + abs(padded[..., rows, across, :])
        for workers in (1, 2):
            found = ptir.run(made, {"x": x}, engine="native", threads=workers)["y"].astype(np.float64)
            if kind != "sum":
                np.testing.assert_array_equal(found, exact)
                continue
            sure = np.isfinite(exact) & (magnitude < 3e38)
            assert (abs(found - exact)[sure] <= (9 * 2.0**-24 * magnitude)[sure]).all()
            assert (np.isnan(found) == np.isnan(exact))[sure | ~np.isfinite(exact)].all()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_residuals_are_added_in_the_kernel_even_where_they_are_written_over(threads):
    """Blocks whose result takes the memory of what is added to it; any number of threads gives the same bits."""
    rng = np.random.default_rng(0)
    g = ptir.Graph()
    x = g.input("x", "f32", (2, 33, 21, 40))
    given = rng.standard_normal(x.shape, np.float32)
    wanted = given.astype(np.float64)
    y = x
    for _ in range(3):
        w = rng.standard_normal((3, 3, 40, 40)).astype(np.float32) * np.float32(0.05)
        b = rng.standard_normal(40).astype(np.float32)
        patches = y.extract_patches([3, 3], strides=[1, 1], padding=[[1, 1]] * 2)
        z = patches.dot_general(g.constant(w.reshape(360, 40)), contract_lhs=[3], contract_rhs=[0])
        y = (z + g.constant(b).broadcast_like(z) + y).clamp(0, 6)
        exact, _ = convolved(wanted, w, (1, 1), (1, 1), ((1, 1), (1, 1)), 1)
        wanted = np.clip(exact + b + wanted, 0, 6)
    made = g.returns(y.named("y"))
    found = ptir.compile(made, engine="native", threads=threads)({"x": given})["y"]
    np.testing.assert_allclose(found, wanted, atol=1e-4)
    np.testing.assert_array_equal(found, ptir.compile(made, engine="native", threads=1)({"x": given})["y"])


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("axes", [[0, 2], [0, 3], [1, 3], [0, 2, 3], [0, 1, 3], [2, 3], [0, 1, 2, 3], [1, 2], [0, 2, -1]])
def test_reductions_of_any_axes(kind, axes):
    """Runs of axes one after the other, with NaN and infinities; the same bits for any number of threads."""
    rng = np.random.default_rng(3)
    for shape in ((5, 3, 9, 70), (2, 7, 33, 257), (1, 4, 1, 64)):
        x = rng.standard_normal(shape, np.float32)
        x[rng.random(shape) < 2e-4] = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32))
        g = ptir.Graph()
        made = g.returns(getattr(g.input("x", "f32", shape), f"reduce_{kind}")(axes).named("y"))
        found = [ptir.run(made, {"x": x}, engine="native", threads=n)["y"] for n in (1, 2)]
        np.testing.assert_array_equal(*(np.atleast_1d(f).view(np.uint8) for f in found))
        wide, over = x.astype(np.float64), tuple(a % 4 for a in axes)
        with np.errstate(all="ignore"):
            exact = getattr(wide, kind)(over)
            bound = x.size * 2.0**-24 * abs(wide).sum(over) if kind == "sum" else 0 * exact
            sure = np.isfinite(exact)
            assert (abs(found[0] - exact)[sure] <= bound[sure]).all()
            np.testing.assert_array_equal(found[0][~sure], exact.astype(np.float32)[~sure])


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("shape,parts", [((3, 256, 256), 4), ((2, 5, 3 * 20480), 20), ((1, 16411), 0), ((16384 * 3,), 3)])
def test_long_rows_are_reduced_in_equal_parts(kind, shape, parts):
    """Each part fits into a tile; a row of a prime length is left to NumPy."""
    axes = [*range(1 if len(shape) > 1 else 0, len(shape))]
    rng = np.random.default_rng(3)
    x = rng.standard_normal(shape, np.float32)
    for strange in (None, np.nan, np.inf):
        if strange is not None:
            x.reshape(-1)[-7] = strange
        g = ptir.Graph()
        made = g.returns(getattr(g.input("x", "f32", shape), f"reduce_{kind}")(axes).named("y"))
        found = [ptir.run(made, {"x": x}, engine="native", threads=n)["y"] for n in (1, 2)]
        np.testing.assert_array_equal(*(np.atleast_1d(f).view(np.uint8) for f in found))
        exact = getattr(x.astype(np.float64), kind)(tuple(axes))
        if kind == "sum" and strange is None:
            bound = 2.0**-24 * x.size * abs(x.astype(np.float64)).sum(tuple(axes)) / 100
            assert (abs(found[0] - exact) <= bound).all()
        elif kind != "sum":
            np.testing.assert_array_equal(found[0], exact.astype(np.float32))
        else:
            np.testing.assert_array_equal(np.isfinite(found[0]), np.isfinite(exact))
    assert row_steps._parts(int(np.prod([shape[a] for a in axes]))) == parts


@pytest.mark.parametrize("threads", [1, 3])
def test_large_results_of_one_op_go_past_the_cache(threads):
    """What NumPy does as well on fewer elements is a kernel then; any number of threads gives the same bits."""
    x = np.random.default_rng(0).standard_normal((1 << 21) + 37, np.float32)
    x[::1001], x[7::5003], x[9::7001] = np.nan, -0.0, np.inf
    for op, wanted in (
        (lambda v: v.maximum(0.0), np.maximum(x, 0)),
        (lambda v: v.minimum(v * 0.5), np.minimum(x, x * np.float32(0.5))),
        (lambda v: -v, -x),
        (lambda v: v / 3.0, x / np.float32(3)),
    ):
        g = ptir.Graph()
        made = g.returns(op(g.input("x", "f32", x.shape)).named("y"))
        np.testing.assert_array_equal(ptir.run(made, {"x": x}, engine="native", threads=threads)["y"], wanted)
