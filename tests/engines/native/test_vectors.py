"""Products of one row and a matrix, against float64."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ptir_tools
from ptir_tools.engines import native
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.tiles import bits

pytestmark = pytest.mark.skipif(not native.available(), reason="no C compiler at installation (with one, .ci/run fails)")

KINDS = [np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]


def drawn(batch, k, n, kind, turned, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((batch, k)).astype(np.float32)
    matrix = rng.standard_normal((batch, n, k) if turned else (batch, k, n)).astype(kind)
    return x, matrix.swapaxes(1, 2) if turned else matrix


def product(x, matrix):
    out = np.full((x.shape[0], matrix.shape[2]), np.nan, np.float32)
    kernels().gemv(out, x, bits(matrix))
    return out


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 3), st.integers(0, 70), st.integers(0, 70), st.sampled_from(KINDS), st.booleans(), st.integers(0, 9))
def test_products_of_all_sizes(batch, k, n, kind, turned, seed):
    """Within k + 1 roundings of the sum of magnitudes."""
    x, matrix = drawn(batch, k, n, kind, turned, seed)
    wide = matrix.astype(float)
    exact, scale = (np.einsum("bk,bkn->bn", f(x.astype(float)), f(wide)) for f in (np.asarray, np.abs))
    assert (np.abs(product(x, matrix) - exact) <= (k + 1) * 2.0**-24 * scale).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", [False, True])
def test_an_element_is_the_same_however_columns_are_cut(kind, turned):
    x, matrix = drawn(1, 333, 5003, kind, turned)
    whole = product(x, matrix)
    for cut in (1, 7, 64, 2048, 2050, 5000):
        parts = [product(x, matrix[:, :, s]) for s in (slice(0, cut), slice(cut, None))]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1).view(np.int32), whole.view(np.int32))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rest", [0.0, 1.0, 1e-37, 1e30])
def test_rows_with_subnormal_elements(kind, turned, rest):
    """They are multiplied apart: every column is as exact as others, wherever it is cut; an infinite element stays one."""
    x, matrix = drawn(2, 333, 170, kind, turned)
    x *= np.float32(rest)
    x[:, ::3] = np.random.default_rng(1).standard_normal(x[:, ::3].shape).astype(np.float32) * np.float32(1e-39)
    matrix[:, 3, 5], matrix[:, 4, 6], matrix[:, 3, 7] = np.inf, -np.inf, np.nan
    if kind != np.float16:
        matrix[:, 6, 8], matrix[:, 6, 9] = 3e38, -3e38
    found, wide = product(x, matrix), matrix.astype(float)
    with np.errstate(invalid="ignore", over="ignore"):
        exact, scale = (np.einsum("bk,bkn->bn", f(x.astype(float)), f(wide)) for f in (np.asarray, np.abs))
        same = ~np.isfinite(exact) | (scale > 3e38)
        assert (np.abs(found - exact) <= 335 * 2.0**-24 * scale + 335 * 2.0**-149)[~same].all()
    np.testing.assert_array_equal(found[~np.isfinite(exact)].astype(float), exact[~np.isfinite(exact)])
    for cut in (1, 6, 64, 169):
        parts = [product(x, matrix[:, :, s]) for s in (slice(0, cut), slice(cut, None))]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1).view(np.int32), found.view(np.int32))


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("turned", [False, True])
def test_every_narrow_value_is_read_as_it_is(kind, turned):
    every = np.arange(1 << 16, dtype=np.uint16).view(kind)
    matrix = every[None, :, None].swapaxes(1, 2) if not turned else np.repeat(every, 16).reshape(1, -1, 16).swapaxes(1, 2)
    x = np.zeros((1, matrix.shape[1]), np.float32)
    x[0, 0] = 1
    with np.errstate(invalid="ignore"):
        use = np.isfinite(every.astype(np.float32)) if turned else slice(None)
        np.testing.assert_array_equal(product(x, matrix)[0][use], every.astype(np.float32)[use])


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [True, False])
def test_engines_agree_on_any_number_of_threads(kind, constant, turned, rows):
    """A row by a matrix and a matrix by a column, the matrix an input or a constant."""
    rng = np.random.default_rng(0)
    dtype = dict(zip(("f32", "f16", "bf16"), KINDS, strict=True))[kind]
    shape = (1200, 1000)
    data = rng.standard_normal(shape).astype(dtype)
    vector = rng.standard_normal((1, 1200) if rows else (1000, 1)).astype(dtype)
    if turned:
        data = np.ascontiguousarray(data.T)
    g = ptir_tools.Graph()
    v = g.input("v", kind, vector.shape)
    m = g.constant(data) if constant else g.input("m", kind, data.shape)
    w = m.transpose([1, 0]) if turned else m
    program = g.returns(v @ w if rows else w @ v)
    inputs = {"v": vector} if constant else {"v": vector, "m": data}
    found = [ptir_tools.run(program, inputs, engine="native", threads=n) for n in (1, 2, 3)]
    (one,), *others = (f.values() for f in found)
    wide = (data.T if turned else data).astype(float)
    left, right = (vector.astype(float), wide) if rows else (wide, vector.astype(float))
    scale, length = np.abs(left) @ np.abs(right), left.shape[1]
    unit = float(ml_dtypes.finfo(dtype).eps)
    assert (np.abs(one.astype(float) - left @ right) <= unit * np.abs(left @ right) + (length + 1) * 2.0**-24 * scale).all()
    for (other,) in others:
        np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


def test_stacks_of_rows():
    g = ptir_tools.Graph()
    q, k = g.input("q", "f32", (2, 3, 1, 40)), g.input("k", "f32", (2, 3, 50, 40))
    program = g.returns(q @ k.transpose([0, 1, 3, 2]))
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(p.type.static_shape).astype(np.float32) for p in program.main.params]
    (found,) = ptir_tools.run(program, inputs, engine="native").values()
    np.testing.assert_allclose(found, inputs[0].astype(float) @ inputs[1].astype(float).swapaxes(2, 3), atol=1e-4)


def test_the_kernel_refuses_what_does_not_fit():
    lib, x, m = kernels(), np.zeros((1, 4), np.float32), np.zeros((1, 4, 6), np.float32)
    out = np.zeros((1, 6), np.float32)
    with pytest.raises(ValueError, match="do not multiply"):
        lib.gemv(out, x, np.zeros((1, 5, 6), np.float32))
    with pytest.raises(ValueError, match="do not multiply"):
        lib.gemv(np.zeros((1, 5), np.float32), x, m)
    with pytest.raises(ValueError, match="in order"):
        lib.gemv(out, x, np.zeros((1, 8, 12), np.float32)[:, ::2, ::2])
    with pytest.raises(ValueError, match="in order"):
        lib.gemv(np.zeros((1, 12), np.float32)[:, ::2], x, m)
    with pytest.raises(ValueError, match="wrong dtype"):
        lib.gemv(out, x, m.astype(float))
