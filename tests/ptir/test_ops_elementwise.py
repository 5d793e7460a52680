"""Elementwise ops, comparisons, select and cast of PTIR: every dtype against NumPy float64 or Python integers."""

import math

import numpy as np
import pytest

from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.ops.erf import erf
from tests.ptir.oracle import (
    ALL,
    BITS,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    NUMERIC,
    NUMPY,
    SHAPES,
    SIGNED,
    SMALL_FLOATS,
    code,
    every,
    rounded,
    run,
    same,
    sample,
    ty,
    wrap,
)  # fmt: skip

UNARY = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
}
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "maximum": np.maximum, "minimum": np.minimum}
PYTHON = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1),
    "maximum": max,
    "minimum": min,
}
COMPARE = {
    "compare_lt": lambda a, b: a < b,
    "compare_le": lambda a, b: a <= b,
    "compare_eq": lambda a, b: a == b,
    "compare_ge": lambda a, b: a >= b,
    "compare_gt": lambda a, b: a > b,
    "compare_ne": lambda a, b: a != b,
}


def wide(x):
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def objects(function, *xs):
    """`function` on Python numbers, element by element."""
    out = np.empty(xs[0].shape, object)
    for i in np.ndindex(xs[0].shape):
        out[i] = function(*(x[i].item() if hasattr(x[i], "item") else x[i] for x in (x.astype(object) for x in xs)))
    return out


@pytest.mark.parametrize("dtype", FLOATS + COMPLEX)
@pytest.mark.parametrize("name", [*UNARY, "neg"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_inexact_unary(name, dtype, shape):
    x = sample(dtype, shape)
    with np.errstate(all="ignore"):
        exact = {**UNARY, "neg": np.negative}[name](wide(x))
    same(run(name, x), rounded(exact, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_erf_and_abs_of_floats(dtype):
    x = sample(dtype, (3, 1, 5))
    same(run("abs", x), rounded(np.abs(wide(x)), dtype))
    want = np.vectorize(math.erf)(wide(x))
    got = run("erf", x)
    if dtype == "f64":
        np.testing.assert_allclose(got, want, rtol=1e-15, atol=0)
    else:
        same(got, rounded(want, dtype))


def test_erf_is_accurate_to_float64():
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(20000) * 2, rng.standard_normal(1000) * 1e-3, np.linspace(-7, 7, 9001)])
    x = np.concatenate([x, [0.0, np.inf, -np.inf, 1e-300, -5e-324, 6.0, np.nextafter(6, 7), 0.0625, 1e300]])
    want = np.array([math.erf(v) for v in x])
    got = erf(x)
    assert np.max(np.abs(got - want)) < 2.5e-16
    np.testing.assert_allclose(got, want, rtol=1e-15, atol=0)
    assert np.isnan(erf(np.array([np.nan]))[0]) and np.signbit(erf(np.array(-0.0)))


@pytest.mark.parametrize("dtype", SMALL_FLOATS[:2])
def test_every_fp8_value_through_every_unary(dtype):
    x = every(dtype)
    for name, function in UNARY.items():
        with np.errstate(all="ignore"):
            same(run(name, x), rounded(function(wide(x)), dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float_binary(name, dtype, shape):
    x, y = sample(dtype, shape), sample(dtype, shape, 1)
    with np.errstate(all="ignore"):
        same(run(name, x, y), rounded(BINARY[name](wide(x), wide(y)), dtype))


@pytest.mark.parametrize("dtype", COMPLEX)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_complex_binary(name, dtype):
    x, y = sample(dtype, (3, 5)), sample(dtype, (3, 5), 1)
    same(run(name, x, y), rounded(BINARY[name](wide(x), wide(y)), dtype))


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("name", PYTHON)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_integer_binary_wraps(name, dtype, shape):
    x, y = sample(dtype, shape), sample(dtype, shape, 1)
    if name == "div":
        y = np.where(y.astype(object) == 0, np.array(1), y.astype(object)).astype(NUMPY[dtype]) if y.size else y
    same(run(name, x, y), wrap(objects(PYTHON[name], x, y), dtype))


@pytest.mark.parametrize("dtype", SIGNED)
def test_integer_neg_abs_and_the_lowest_value(dtype):
    x = sample(dtype, (9,))
    same(run("neg", x), wrap(objects(lambda a: -a, x), dtype))
    same(run("abs", x), wrap(objects(abs, x), dtype))
    low = np.array([-(1 << (BITS[dtype] - 1))], np.int64).astype(NUMPY[dtype])
    same(run("neg", low), low)
    same(run("div", low, np.array([-1], np.int64).astype(NUMPY[dtype])), low)


@pytest.mark.parametrize("a", range(-8, 8))
def test_every_si4_quotient(a):
    y = np.array([b for b in range(-8, 8) if b], np.int8).astype(NUMPY["si4"])
    x = np.full(y.shape, a, np.int8).astype(NUMPY["si4"])
    same(run("div", x, y), wrap([int(a / int(b)) for b in y.astype(np.int8)], "si4"))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_by_zero_is_an_error(dtype):
    x = sample(dtype, (3,))
    with pytest.raises(Violation) as info:
        run("div", x, np.array([1, 0, 1]).astype(NUMPY[dtype]))
    assert info.value.code == "IntegerDivideByZero"


def test_float_division_by_zero_is_ieee():
    got = run("div", np.array([1, -1, 0], np.float32), np.zeros(3, np.float32))
    assert got[0] == np.inf and got[1] == -np.inf and np.isnan(got[2])


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_clamp(dtype):
    x, lo, hi = (sample(dtype, (11,), i) for i in range(3))
    if dtype in INTEGERS:
        same(run("clamp", x, lo, hi), wrap(objects(lambda a, b, c: min(max(a, b), c), x, lo, hi), dtype))
    else:
        same(run("clamp", x, lo, hi), rounded(np.minimum(np.maximum(wide(x), wide(lo)), wide(hi)), dtype))


@pytest.mark.parametrize("name", COMPARE)
@pytest.mark.parametrize("dtype", ALL)
def test_compare(name, dtype):
    if name not in ("compare_eq", "compare_ne") and dtype in ("i1", *COMPLEX):
        assert code(name, ty(dtype, 2), ty(dtype, 2)) == "DTypeNotSupported"
        return
    x, y = sample(dtype, (4, 5)), sample(dtype, (4, 5), 1)
    y[0] = x[0]
    same(run(name, x, y), objects(COMPARE[name], x, y).astype(np.bool_))


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_select_and_stop_gradient(dtype, shape):
    p, x, y = sample("i1", shape), sample(dtype, shape), sample(dtype, shape, 1)
    want = np.array([a if c else b for c, a, b in zip(p.flat, x.flat, y.flat, strict=True)], x.dtype).reshape(shape)
    same(run("select", p, x, y), want)
    same(run("stop_gradient", x), x)


def cast_one(v, source, target):
    """The contract's cast table for one Python number; integers and booleans."""
    if target == "i1":
        return v != 0
    if source == "i1" or source in INTEGERS or source in FLOATS:
        if isinstance(v, float):
            if math.isnan(v):
                return 0
            v = math.inf * v if math.isinf(v) else math.trunc(v)
        low = -(1 << (BITS[target] - 1)) if target in SIGNED else 0
        high = low + (1 << BITS[target]) - 1
        return int(min(max(v, low), high))
    raise AssertionError


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_cast(source, target):
    x = sample(source, (4, 5))
    if source in FLOATS:
        x[0, 1:3] = [np.array(300.7), np.array(-2.5)]
    if source in COMPLEX and target not in ("i1", *COMPLEX):
        assert code("cast", ty(source, 2), dtype=DTYPES[target]) == "DTypeNotSupported"
        return
    got = run("cast", x, dtype=DTYPES[target])
    if target in FLOATS and source in ("si64", "ui64"):
        exact = x.astype(object)
        near = np.array([float(v) for v in exact.flat]).reshape(x.shape)  # correctly rounded by Python
        if target in ("f32", "f64"):
            same(got, x.astype(NUMPY[target]))
        else:
            same(got, rounded(near, target))
    elif target in FLOATS:
        same(got, rounded(x.astype(np.float64), target))
    elif target in COMPLEX:
        same(got, x.astype(np.complex128).astype(NUMPY[target]))
    else:
        values = objects(lambda v: cast_one(v, source, target), x if source not in FLOATS else x.astype(np.float64))
        same(got, values.astype(np.bool_) if target == "i1" else wrap(values, target))


@pytest.mark.parametrize("source", ALL)
def test_cast_of_a_scalar_is_an_array(source):
    for target in ALL:
        if source not in COMPLEX or target in ("i1", *COMPLEX):
            run("cast", sample(source, ()), dtype=DTYPES[target])


@pytest.mark.parametrize("name", ["neg", "abs", "exp", "erf", "add", "maximum", "clamp"])
def test_dtypes_outside_the_table_are_refused(name):
    allowed = {
        "neg": SIGNED + FLOATS + COMPLEX,
        "abs": SIGNED + FLOATS,
        "exp": FLOATS + COMPLEX,
        "erf": FLOATS,
        "add": NUMERIC,
        "maximum": INTEGERS + FLOATS,
        "clamp": INTEGERS + FLOATS,
    }[name]
    count = {"add": 2, "maximum": 2, "clamp": 3}.get(name, 1)
    for dtype in ALL:
        assert code(name, *[ty(dtype, 3)] * count) == (None if dtype in allowed else "DTypeNotSupported"), dtype
