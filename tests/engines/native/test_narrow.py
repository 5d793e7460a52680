"""f16 and bf16 in tile programs: loaded exactly, rounded once per op as NumPy and ml_dtypes round, stored exactly."""

from __future__ import annotations

from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools
from ptir_tools.engines import native
from ptir_tools.engines.native import fusion, moves
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.tiles import bits

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

KINDS = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def through(name, x, out, kind=None):
    """One instruction of one operand, and rounding if a kind is given."""
    lib = kernels()
    rounding = [f"nearest_{kind}"] if kind else []
    steps = [("on_elements", 0), ("load", 0), (name, 0), *((r, 0) for r in rounding), ("store", 1)]
    code, kinds = bytes(b for step, a in steps for b in (lib.OPS.index(step), a, 0)), bytes([lib.FULL] * 2)
    room = np.empty(lib.tile_floats(kinds, *x.shape, False), np.float32)
    lib.tiles(code, kinds, (bits(x), bits(out)), 1, *x.shape, False, room)
    return out


@pytest.mark.parametrize("kind", KINDS)
def test_every_value_is_loaded_and_stored_as_it_is(kind):
    every = np.arange(1 << 16, dtype=np.uint16).view(KINDS[kind])[None]
    with np.errstate(invalid="ignore"):  # some machines report a NaN that signals
        exact = every.astype(np.float32)
    np.testing.assert_array_equal(through("neg", every, np.empty(every.shape, np.float32)), -exact)
    back = through("neg", every, np.empty_like(every)).view(np.uint16)
    number = ~np.isnan(exact)
    np.testing.assert_array_equal(back[number], every.view(np.uint16)[number] ^ 0x8000)
    assert np.isnan(back.view(KINDS[kind]).astype(np.float32)[~number]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_is_to_the_nearest_even(kind):
    """A little below, at, and above the middle between any neighbors; and floats of all sizes."""
    with np.errstate(all="ignore"):
        every = np.arange(1 << 16, dtype=np.uint16).view(KINDS[kind]).astype(np.float64)
    every = np.unique(every[np.isfinite(every)])
    middle = ((every[1:] + every[:-1]) / 2).astype(np.float32)
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 1 << 32, 200_000, dtype=np.uint32).view(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.996, 65520, 3.4e38, -3.4e38, 1e-45], np.float32)
    x = np.concatenate([middle, np.nextafter(middle, np.float32(1e9)), np.nextafter(middle, np.float32(-1e9)), any_bits, ends])[
        None
    ]
    with np.errstate(all="ignore"):
        wanted = (-x).astype(KINDS[kind]).astype(np.float32)
    stored = through("neg", x, np.empty(x.shape, KINDS[kind]), kind).astype(np.float32)
    kept = through("neg", x, np.empty(x.shape, np.float32), kind)
    number = ~np.isnan(x)
    for found in (stored, kept):
        np.testing.assert_array_equal(found[number].view(np.uint32), wanted[number].view(np.uint32))
        assert np.isnan(found[~number]).all()


def same(program, inputs, engine="native", threads=1):
    """Outputs of an engine, as f32."""
    found = ptir_tools.run(program, inputs, engine=engine, threads=threads).values()
    return [a.astype(np.float32) if a.dtype != np.bool_ else a for a in found]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 5, 31, 64, 70]), min_size=1, max_size=3), st.integers(0, 99), st.booleans())
def test_chains_give_the_bits_of_the_numpy_engine(kind, shape, seed, turned):
    """Ops that IEEE defines round alike everywhere; operands of any strides, broadcast ones, flags, and a number per row."""
    g = ptir_tools.Graph()
    x = g.input("x", kind, shape[::-1] if turned else shape)
    x = x.transpose([*range(len(shape))][::-1]) if turned else x
    y = g.input("y", kind, shape[-1:]).broadcast_to(shape)
    top = x.reduce_max([len(shape) - 1], keepdims=True)
    z = ((x * y + 0.1) / 3 - top.broadcast_to(shape)).abs().reciprocal()
    flag = z > y
    g_out = flag.select(z, -x).clamp(-100, 100)
    wide = (g_out.cast("f32") * x.cast("f32")).cast(kind)
    program = g.returns(g_out, flag, wide, top.reshape([*shape[:-1]]), g_out.cast("f32"))
    rng = np.random.default_rng(seed)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1e-7, 6e-8, 6e4], np.float32)
    draw = [rng.standard_normal(p.type.static_shape).astype(np.float32) for p in program.main.params]
    for a in draw:
        a[rng.random(a.shape) < 0.1] = rng.choice(special)
    inputs = [a.astype(KINDS[kind]) for a in draw]
    for threads in (1, 2):
        for found, wanted in zip(same(program, inputs, threads=threads), same(program, inputs, "numpy"), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("kind", KINDS)
def test_softmax_and_layer_norm_are_one_group_and_as_near_as_the_dtype(kind):
    shape = (50, 300)
    g = ptir_tools.Graph()
    x = g.input("x", kind, shape)
    e = (x - x.reduce_max([1], keepdims=True).broadcast_like(x)).exp()
    softmax = e / e.reduce_sum([1], keepdims=True).broadcast_like(e)
    program = g.returns(softmax)
    assert [len(ops) for ops in fusion.partition(program.main)] == [7]
    rng = np.random.default_rng(0)
    data = rng.standard_normal(shape).astype(KINDS[kind])
    (found,) = same(program, [data])
    wide = np.exp(data.astype(float) - data.astype(float).max(1, keepdims=True))
    wanted = wide / wide.sum(1, keepdims=True)
    unit = float(ml_dtypes.finfo(KINDS[kind]).eps)
    assert (np.abs(found - wanted) <= 4 * unit * wanted + 2.0**-24).all()


def test_a_cast_between_narrow_floats_rounds_once():
    g = ptir_tools.Graph()
    x = g.input("x", "f16", (1 << 16,))
    program = g.returns(x.cast("bf16"), x.cast("bf16").cast("f16"), x.cast("f32"), (x > 0).cast("bf16"))
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for found, wanted in zip(same(program, [every]), same(program, [every], "numpy"), strict=True):
        np.testing.assert_array_equal(found, wanted)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["f16", "bf16", "f32"]),
    st.sampled_from(["f16", "bf16", "f32"]),
    st.permutations(range(3)),
    st.lists(st.sampled_from([0, 1, 2, 7, 33]), min_size=3, max_size=3),
    st.sets(st.integers(0, 2)),
    st.integers(1, 2),
)
def test_copies_convert_floats_of_any_strides(source, target, perm, shape, repeated, workers):
    kinds = {**KINDS, "f32": np.dtype(np.float32)}
    rng = np.random.default_rng(0)
    x = rng.standard_normal([1 if i in repeated else n for i, n in enumerate(shape)]).astype(np.float32).astype(kinds[source])
    x = np.broadcast_to(x, shape).transpose(perm)
    out = np.full(x.shape, 7, kinds[target])
    shop = SimpleNamespace(threads=workers, scratch=lambda s, dtype: np.empty(s, np.float32))
    for function, arguments in moves.copied(out, x, shop):
        function(*arguments)
    np.testing.assert_array_equal(out.astype(np.float32), x.astype(kinds[target]).astype(np.float32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m,k,n", [(1, 3, 2), (2, 3, 2), (5, 40, 7), (40, 33, 50), (3, 0, 4)])
def test_products_of_repeated_and_turned_operands(kind, m, k, n):
    g = ptir_tools.Graph()
    x, y = g.input("x", kind, (k, m)), g.input("y", kind, ())
    program = g.returns((x.transpose([1, 0]) @ y.broadcast_to([k, n])).cast("f32"))
    rng = np.random.default_rng(0)
    data = rng.integers(-2, 3, (k, m)).astype(KINDS[kind])
    (found,) = same(program, [data, np.array(2, KINDS[kind])])
    np.testing.assert_array_equal(found, data.T.astype(np.float32) @ np.full((k, n), 2, np.float32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(33, 40, 24), (192, 7, 65), (193, 520, 4), (401, 64, 130)])
@pytest.mark.parametrize("constant", [False, True])
def test_products_by_blocks_of_rows_are_right(kind, rows, depth, columns, constant):
    """To float64 within half a unit of the result and the sum in f32; the same bits for any number of threads."""
    graph, draw = ptir_tools.Graph(), np.random.default_rng(rows)
    x, w = (draw.standard_normal(shape).astype(KINDS[kind]) for shape in ((rows, depth), (depth, columns)))
    left = graph.input("x", kind, x.shape)
    right = graph.constant(w) if constant else graph.input("w", kind, w.shape)
    program = graph.returns((left @ right).named("y"))
    inputs = {"x": x} if constant else {"x": x, "w": w}
    one, two = (ptir_tools.compile(program, engine="native", threads=n)(inputs)["y"] for n in (1, 2))
    np.testing.assert_array_equal(one.view(np.uint16), two.view(np.uint16))
    wide = x.astype(np.float64), w.astype(np.float64)
    exact, sizes = wide[0] @ wide[1], np.abs(wide[0]) @ np.abs(wide[1])
    bound = np.abs(exact) * float(ml_dtypes.finfo(KINDS[kind]).eps) * 0.51 + sizes * depth * 2.0**-23
    assert (np.abs(one.astype(np.float64) - exact) <= bound).all()
