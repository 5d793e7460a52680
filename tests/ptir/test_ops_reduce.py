"""Reductions, argmax, contraction, layer norm and windows of PTIR against NumPy float64 and Python integers."""

from itertools import product

import numpy as np
import pytest

from tests.ptir.oracle import (
    ALL,
    BITS,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    NUMERIC,
    NUMPY,
    SIGNED,
    code,
    rounded,
    run,
    same,
    sample,
    ty,
    wrap,
)  # fmt: skip

CASES = [((), ()), ((5,), (0,)), ((3, 4), (1,)), ((3, 4), (0, -1)), ((2, 0, 3), (1,)), ((0,), ()), ((2, 3, 1, 4, 2), (0, 2, 4))]
RANK2 = [((3, 4), (4, 5), (), (), (1,), (0,)), ((4, 3), (5, 4), (), (), (-2,), (-1,))]
DOTS = [
    *RANK2,
    ((), (), (), (), (), ()),
    ((7,), (7,), (), (), (0,), (0,)),
    ((2, 3), (4,), (), (), (), ()),
    ((2, 0), (0, 3), (), (), (1,), (0,)),
    ((2, 3, 4), (2, 4, 5), (0,), (0,), (2,), (1,)),
    ((2, 3, 4, 5), (3, 2, 5, 4), (0, 1), (1, 0), (3,), (2,)),
    ((2, 3, 4, 5), (5, 2, 6, 3), (0,), (1,), (3, 1), (0, 3)),
    ((1, 2, 1, 3, 2), (3, 2, 2, 1), (1,), (2,), (3, 4), (0, 1)),
]


def moderate(dtype, shape, seed=0):
    """Elements without NaN and infinity, so that sums are exact enough to compare."""
    x = sample(dtype, shape, seed)
    if dtype in FLOATS:
        x = np.nan_to_num(x.astype(np.float32), nan=1.5, posinf=2.0, neginf=-2.0).astype(NUMPY[dtype])
    return x


def integer_reduce(x, axes, keepdims, step, start):
    """Python integers combined over `axes`."""
    axes = tuple(a % x.ndim for a in axes) if x.ndim else ()
    kept = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    out = np.full(kept, start, object)
    for i in np.ndindex(x.shape):
        at = tuple(0 if a in axes else k for a, k in enumerate(i))
        out[at] = step(out[at], int(x[i]))
    return out if keepdims else out.reshape([n for i, n in enumerate(x.shape) if i not in axes])


def low_high(dtype):
    low = -(1 << (BITS[dtype] - 1)) if dtype in SIGNED else 0
    return low, low + (1 << BITS[dtype]) - 1


@pytest.mark.parametrize("dtype", NUMERIC)
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
@pytest.mark.parametrize("keepdims", [False, True])
def test_reduce_sum(dtype, shape, axes, keepdims):
    x = moderate(dtype, shape)
    got = run("reduce_sum", x, axes=axes, keepdims=keepdims)
    if dtype in INTEGERS:
        same(got, wrap(integer_reduce(x, axes, keepdims, lambda a, b: a + b, 0), dtype))
        return
    exact = np.sum(x.astype(np.complex128 if dtype in COMPLEX else np.float64), axis=axes, keepdims=keepdims)
    if dtype in ("f64", *COMPLEX):
        np.testing.assert_allclose(got, exact, rtol=1e-6 if dtype == "cf32" else 1e-14, atol=1e-6 if dtype == "cf32" else 1e-14)
    else:
        same(got, rounded(exact.astype(np.float32), dtype))  # accumulated in f32, then rounded


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize(("shape", "axes"), CASES, ids=str)
@pytest.mark.parametrize("name", ["reduce_max", "reduce_min"])
def test_reduce_max_min(name, dtype, shape, axes):
    x = moderate(dtype, shape)
    got = run(name, x, axes=axes)
    if dtype in INTEGERS:
        low, high = low_high(dtype)
        start, step = (low, max) if name == "reduce_max" else (high, min)
        same(got, wrap(integer_reduce(x, axes, False, step, start), dtype))
    else:
        start = -np.inf if name == "reduce_max" else np.inf
        function = np.max if name == "reduce_max" else np.min
        want = function(x.astype(np.float64), axis=axes, initial=start)
        if dtype == "fp8_e4m3":  # which has no infinity
            want = np.where(np.isinf(want), np.nan, want)
        same(got, rounded(want, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_reductions_propagate_nan(dtype):
    x = np.array([[1, np.nan, 3], [4, 5, 6]]).astype(NUMPY[dtype])
    for name in ("reduce_sum", "reduce_max", "reduce_min"):
        got = run(name, x, axes=(1,)).astype(np.float64)
        assert np.isnan(got[0]) and not np.isnan(got[1])


def test_accumulator_and_output_dtypes():
    x = np.full((100,), 100, np.int8)
    d = DTYPES
    assert run("reduce_sum", x, axes=(0,)) == np.array(10000).astype(np.int8)
    assert run("reduce_sum", x, axes=(0,), accum_dtype=d["si32"]) == 127  # cast of 10000 to si8 saturates
    assert run("reduce_sum", x, axes=(0,), accum_dtype=d["si32"], out_dtype=d["si32"]) == 10000
    assert run("reduce_sum", x, axes=(0,), out_dtype=d["si32"]) == np.array(10000).astype(np.int8)  # wraps in si8 first
    h = np.full((4096,), 1.0, np.float16)
    assert run("reduce_sum", h, axes=(0,), accum_dtype=d["f16"]) == 4096
    wide = np.array([2.0**24, 1.0, 1.0], np.float32)
    assert run("reduce_sum", wide, axes=(0,), accum_dtype=d["f64"], out_dtype=d["f64"]) == 2**24 + 2
    assert run("reduce_sum", np.array([60000, 60000], np.float16), axes=(0,), out_dtype=d["f32"]) == 120000
    assert np.isinf(run("reduce_sum", np.array([60000, 60000], np.float16), axes=(0,)))
    assert run("reduce_max", np.array([200, 3], np.uint8), axes=(0,), out_dtype=d["si8"]) == 127
    assert run("reduce_max", np.zeros(0, np.uint8), axes=(0,), accum_dtype=d["si32"]) == 0


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("out", ["si32", "si64"])
def test_argmax(dtype, axis, out):
    x = moderate(dtype, (4, 7))
    x[1] = x[2]
    got = run("argmax", x, axis=axis, output_dtype=DTYPES[out])
    keys = x.astype(object) if dtype in INTEGERS else x.astype(np.float64)
    rows = np.moveaxis(keys, axis, -1)
    want = [max(range(len(r)), key=lambda i: (r[i], -i)) for r in rows]
    same(got, np.array(want, NUMPY[out]))
    assert run("argmax", x, axis=axis, keepdims=True).shape == ((1, 7) if axis == 0 else (4, 1))


def test_argmax_takes_the_first_nan():
    assert run("argmax", np.array([1, np.nan, np.inf, np.nan], np.float32), axis=0) == 1
    assert run("argmax", np.zeros((0, 3), np.float32), axis=1).shape == (0,)


def dot_by_hand(x, y, bl, br, cl, cr, kind):
    """Loops over every index, in Python numbers of `kind`."""
    bl, cl = [[a % x.ndim for a in s] for s in (bl, cl)]
    br, cr = [[a % y.ndim for a in s] for s in (br, cr)]
    fl = [a for a in range(x.ndim) if a not in bl + cl]
    fr = [a for a in range(y.ndim) if a not in br + cr]
    out = np.zeros([x.shape[a] for a in bl + fl] + [y.shape[a] for a in fr], object)
    for at in np.ndindex(out.shape):
        total = kind(0)
        for k in product(*(range(x.shape[a]) for a in cl)):
            i = dict(zip(bl + fl, at, strict=False)) | dict(zip(cl, k, strict=True))
            j = dict(zip(br, at, strict=False)) | dict(zip(fr, at[len(bl + fl) :], strict=True)) | dict(zip(cr, k, strict=True))
            total += kind(x[tuple(i[a] for a in range(x.ndim))]) * kind(y[tuple(j[a] for a in range(y.ndim))])
        out[at] = total
    return out


@pytest.mark.parametrize(
    "dtype", ["si4", "ui4", "si8", "ui16", "si32", "ui64", "fp8_e4m3", "bf16", "f16", "f32", "f64", "cf32", "cf64"]
)
@pytest.mark.parametrize("case", DOTS, ids=str)
def test_dot_general(dtype, case):
    xs, ys, bl, br, cl, cr = case
    x, y = moderate(dtype, xs), moderate(dtype, ys, 1)
    kind = int if dtype in INTEGERS else complex if dtype in COMPLEX else float
    exact = dot_by_hand(x, y, bl, br, cl, cr, kind)
    got = run("dot_general", x, y, batch_lhs=bl, batch_rhs=br, contract_lhs=cl, contract_rhs=cr)
    if dtype in INTEGERS:
        same(got, wrap(exact, dtype))
    elif dtype in ("f64", *COMPLEX):
        tolerance = 1e-5 if dtype == "cf32" else 1e-13
        np.testing.assert_allclose(got, exact.astype(got.dtype), rtol=tolerance, atol=tolerance)
    elif dtype == "f32":
        np.testing.assert_allclose(got.astype(np.float64), exact.astype(np.float64), rtol=1e-7, atol=1e-7)
    else:
        same(got, rounded(exact.astype(np.float64).astype(np.float32), dtype))


def test_dot_general_accumulates_exact_products():
    x = np.array([[1 + 2**-10, -1.0]], np.float16)
    y = np.array([[1 + 2**-10], [1.0]], np.float16)
    got = run("dot_general", x, y, contract_lhs=(1,), contract_rhs=(0,), out_dtype=DTYPES["f32"])
    assert got[0, 0] == np.float32(2**-9 + 2**-20)  # a product rounded to f16 first would lose the last term
    i = np.full((1, 100), 100, np.int8)
    got = run("dot_general", i, i, contract_lhs=(1,), contract_rhs=(1,), accum_dtype=DTYPES["si32"], out_dtype=DTYPES["si32"])
    assert got[0, 0] == 1_000_000
    assert run("dot_general", i, i, contract_lhs=(1,), contract_rhs=(1,), accum_dtype=DTYPES["si32"])[0, 0] == 127
    b = np.full((1, 3), np.nan, np.float32)
    assert np.isnan(run("dot_general", b, np.zeros((3, 2), np.float32), contract_lhs=(1,), contract_rhs=(0,))).all()


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("shape", "axis"), [((4, 6), -1), ((4, 6), 0), ((2, 3, 4), 1), ((3, 0), 1), ((5,), 0)], ids=str)
def test_layer_norm(dtype, shape, axis):
    x, n = moderate(dtype, shape), shape[axis]
    g, b = moderate(dtype, (n,), 1), moderate(dtype, (n,), 2)
    rows = np.moveaxis(x.astype(np.float64), axis, -1)
    want = np.empty_like(rows)
    for i in np.ndindex(rows.shape[:-1]):
        row = rows[i]
        mean = sum(row) / max(n, 1)
        var = sum((v - mean) ** 2 for v in row) / max(n, 1)
        want[i] = [
            (v - mean) / (var + 1e-3) ** 0.5 * gv + bv for v, gv, bv in zip(row, g.astype(float), b.astype(float), strict=True)
        ]
    got = run("layer_norm", x, g, b, epsilon=1e-3, feature_axis=axis)
    tolerance = {"f64": 1e-13, "f32": 1e-6, "f16": 1e-3, "bf16": 8e-3, "fp8_e4m3": 0.07, "fp8_e5m2": 0.13}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), np.moveaxis(want, -1, axis), rtol=tolerance, atol=tolerance)


def window_by_hand(x, window, strides, padding, base, dilation, step, start):
    """Every window, tap by tap."""

    def count(n, w, s, p, b, d):
        return ((n - 1) * b + 1 + sum(p) - ((w - 1) * d + 1)) // s + 1

    out = np.full([count(*a) for a in zip(x.shape, window, strides, padding, base, dilation, strict=True)], start, object)
    for at in np.ndindex(out.shape):
        for tap in product(*map(range, window)):
            where = [i * s + t * d - p[0] for i, s, t, d, p in zip(at, strides, tap, dilation, padding, strict=True)]
            if all(w % b == 0 and 0 <= w // b < n for w, b, n in zip(where, base, x.shape, strict=True)):
                out[at] = step(out[at], x[tuple(w // b for w, b in zip(where, base, strict=True))])
    return out


WINDOWS = [
    ((5,), (3,), (1,), ((0, 0),), (1,), (1,)),
    ((4, 5), (2, 2), (2, 1), ((1, 0), (0, 2)), (1, 1), (1, 1)),
    ((4, 5), (2, 3), (1, 2), ((0, 1), (2, 2)), (2, 1), (1, 2)),
    ((1, 3, 3, 2), (1, 2, 2, 1), (1, 1, 1, 1), ((0, 0), (2, 2), (1, 1), (0, 0)), (1, 1, 1, 1), (1, 2, 1, 1)),
    ((), (), (), (), (), ()),
]


@pytest.mark.parametrize("case", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("dtype", ["si8", "ui4", "bf16", "f32"])
def test_reduce_window(case, kind, dtype):
    shape, *rest = case
    x = moderate(dtype, shape)
    values = np.array([int(v) if dtype in INTEGERS else float(v) for v in x.flat] + [None], object)[:-1].reshape(shape)
    low, high = low_high(dtype) if dtype in INTEGERS else (-np.inf, np.inf)
    start, step = {"sum": (0, lambda a, b: a + b), "max": (low, max), "min": (high, min)}[kind]
    exact = window_by_hand(values, *rest, step, start)
    names = ("window_dims", "strides", "padding", "base_dilation", "window_dilation")
    got = run("reduce_window", x, **dict(zip(names, rest, strict=True)), reduce=kind)
    if dtype in INTEGERS:
        same(got, wrap(exact, dtype))
    else:
        same(got, rounded(exact.astype(np.float64).astype(np.float32), dtype))


def test_reduce_window_of_an_empty_batch_and_of_nan():
    names = {"strides": (1, 1), "padding": ((0, 0), (0, 0)), "base_dilation": (1, 1), "window_dilation": (1, 1)}
    assert run("reduce_window", np.zeros((0, 3), np.float32), window_dims=(1, 2), **names).shape == (0, 2)
    got = run("reduce_window", np.array([[np.nan, 1, 2]], np.float32), window_dims=(1, 2), reduce="max", **names)
    assert np.isnan(got[0, 0]) and got[0, 1] == 2


@pytest.mark.parametrize("dtype", ALL)
def test_extract_patches(dtype):
    x = sample(dtype, (2, 4, 5, 3))
    window, strides, dilation, padding = (2, 3), (2, 1), (1, 2), ((1, 0), (0, 2))
    got = run("extract_patches", x, window=window, strides=strides, dilation=dilation, padding=padding)
    want = np.zeros(got.shape, x.dtype)
    for n, i, j, a, b, c in np.ndindex(2, got.shape[1], got.shape[2], 2, 3, 3):
        h, w = i * 2 - 1 + a, j + b * 2
        if 0 <= h < 4 and 0 <= w < 5:
            want[n, i, j, (a * 3 + b) * 3 + c] = x[n, h, w, c]
    same(got, want)


def test_extract_patches_of_one_and_three_spatial_axes():
    x = np.arange(2 * 5 * 2, dtype=np.float32).reshape(2, 5, 2)
    same(run("extract_patches", x, window=(2,)), np.concatenate([x[:, :-1], x[:, 1:]], -1))
    y = np.arange(2 * 2 * 2, dtype=np.int16).reshape(1, 2, 2, 2, 1)
    same(run("extract_patches", y, window=(2, 2, 2)), y.reshape(1, 1, 1, 1, 8))


def test_dtypes_outside_the_table_are_refused():
    for dtype in ALL:
        t = ty(dtype, 3)
        real = dtype in INTEGERS + FLOATS
        assert code("reduce_sum", t, axes=(0,)) == (None if dtype != "i1" else "DTypeNotSupported")
        assert code("reduce_max", t, axes=(0,)) == (None if real else "DTypeNotSupported")
        assert code("argmax", t, axis=0) == (None if real else "DTypeNotSupported")
        assert code("dot_general", t, t, contract_lhs=(0,), contract_rhs=(0,)) == (None if dtype != "i1" else "DTypeNotSupported")
        v = {"window_dims": (1,), "strides": (1,), "padding": ((0, 0),), "base_dilation": (1,), "window_dilation": (1,)}
        assert code("reduce_window", t, **v) == (None if dtype != "i1" else "DTypeNotSupported")
        assert code("reduce_window", t, reduce="max", **v) == (None if real else "DTypeNotSupported")
        assert code("layer_norm", t, t, t, epsilon=0.1) == (None if dtype in FLOATS else "DTypeNotSupported")
