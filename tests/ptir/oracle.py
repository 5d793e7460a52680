"""Test helpers for PTIR ops: run one op, and oracles that share no code with the package."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from ptir_tools.core.builder import Builder, single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import PTIR_DTYPES
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Literal, Region, Value
from ptir_tools.core.types import TensorType, TupleType, tensor
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT

DTYPES = {d.name: d for d in PTIR_DTYPES}
NUMPY = {d.name: np.dtype(getattr(np, d.numpy, None) or getattr(ml_dtypes, d.numpy)) for d in PTIR_DTYPES}
NAME = {v: k for k, v in NUMPY.items()}

SIGNED = ("si4", "si8", "si16", "si32", "si64")
UNSIGNED = ("ui4", "ui8", "ui16", "ui32", "ui64")
INTEGERS = SIGNED + UNSIGNED
SMALL_FLOATS = ("fp8_e4m3", "fp8_e5m2", "bf16", "f16")
FLOATS = (*SMALL_FLOATS, "f32", "f64")
COMPLEX = ("cf32", "cf64")
NUMERIC = INTEGERS + FLOATS + COMPLEX
ALL = ("i1", *NUMERIC)
BITS = {d.name: d.bits for d in PTIR_DTYPES}
SHAPES = ((), (0,), (1,), (7,), (2, 0, 3), (3, 1, 5), (2, 3, 1, 2, 3))


def ty(dtype, *shape):
    return tensor(DTYPES[dtype], shape)


def typed(array):
    return ty(NAME[array.dtype], *array.shape)


def region(name, params, build):
    """An isolated region; `build(builder, *values)` gives its results."""
    block = Region(name)
    b = Builder(DIALECT, block)
    values = [b.param(t) for t in params]
    b.results(*build(b, *values))
    return block


def program(name, types, attrs=None, regions=(), result=None, operands=None):
    """A program of one op on parameters of `types` (a Literal is itself; a list is a variable group)."""
    p, b = single_function(DIALECT)

    def operand(t):
        if isinstance(t, list):
            return [operand(x) for x in t]
        return t if isinstance(t, (Literal, Value)) else b.param(t)

    groups = [operand(t) for t in types]
    v = b.op(name, *groups, regions=regions, types=None if result is None else [result], **(attrs or {}))
    b.results(v)
    p.regions.extend(regions)
    return p


def run(name, *arrays, regions=(), result=None, context=None, **attrs):
    """The result of one op on arrays, which is verified first; a list of arrays is a variable group."""
    types = [[typed(a) for a in g] if isinstance(g, list) else typed(g) for g in arrays]
    p = program(name, types, attrs, regions, result)
    diagnostics = Diagnostics()
    assert verify(p, diagnostics), [d.message for d in diagnostics]
    flat = [a for g in arrays for a in (g if isinstance(g, list) else [g])]
    (out,) = run_block(p.main, flat, context or Context())
    check_type(out, p.main.results[0].type)
    return out


def check_type(out, t):
    if isinstance(t, TupleType):
        assert isinstance(out, tuple) and len(out) == len(t.elements)
        for x, e in zip(out, t.elements, strict=True):
            check_type(x, e)
        return
    assert isinstance(t, TensorType)
    assert isinstance(out, np.ndarray), type(out)
    assert out.dtype == NUMPY[t.dtype.name]
    assert out.shape == t.shape


def code(name, *types, regions=(), result=None, **attrs):
    """The code with which the op is refused, or None."""
    try:
        p = program(name, types, attrs, regions, result)
    except Violation as violation:
        return violation.code
    diagnostics = Diagnostics()
    verify(p, diagnostics)
    return next((d.code for d in diagnostics), None)


def wrap(values, dtype):
    """Python integers (an object array) wrapped into an integer dtype."""
    bits, signed = BITS[dtype], dtype in SIGNED
    low = -(1 << (bits - 1)) if signed else 0
    flat = [(int(v) - low) % (1 << bits) + low for v in np.asarray(values, object).reshape(-1)]
    return np.array(flat, np.int64 if signed else np.uint64).reshape(np.shape(values)).astype(NUMPY[dtype])


def every(dtype):
    """All values of an 8- or 16-bit float dtype, by bits."""
    bits = BITS[dtype]
    return np.arange(1 << bits, dtype=f"u{bits // 8}").view(NUMPY[dtype])


def rounded(exact, dtype):
    """float64 to a float dtype, to nearest even: by search in the table of all values for 8 and 16 bits."""
    exact = np.asarray(exact)
    if dtype in COMPLEX:
        return exact.astype(NUMPY[dtype])
    exact = exact.astype(np.float64)
    with np.errstate(all="ignore"):
        if dtype in ("f32", "f64"):
            return exact.astype(NUMPY[dtype])
        table = every(dtype)
        values = table.astype(np.float64)
        keep = np.isfinite(values) & ~(np.signbit(values) & (values == 0))
        order = np.argsort(values[keep], kind="stable")
        values, bits = values[keep][order], np.flatnonzero(keep)[order]
        at = np.clip(np.searchsorted(values, exact), 1, len(values) - 1)
        low, high = values[at - 1], values[at]
        down = (exact - low < high - exact) | ((exact - low == high - exact) & (bits[at - 1] % 2 == 0))
        out = table[np.where(down, bits[at - 1], bits[at])]
        top, step = values[-1], values[-1] - values[-2]
        over = np.abs(exact) >= top + step / 2
        if dtype == "fp8_e4m3":  # no infinity: the value after 448 would be 480, and a tie goes there
            over = np.abs(exact) > top + step / 2
        out = np.where(np.abs(exact) > top, np.copysign(top, exact).astype(NUMPY[dtype]), out)
        beyond = np.full(exact.shape, np.nan) if dtype == "fp8_e4m3" else np.copysign(np.inf, exact)
        out = np.where(over, beyond.astype(NUMPY[dtype]), out)
        return np.where(np.isnan(exact), np.array(np.nan).astype(NUMPY[dtype]), out).astype(NUMPY[dtype])


def same(got, want):
    """Equal dtype, shape and numbers; NaN equals NaN, zeros of both signs are equal."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64 if NAME[got.dtype] in FLOATS else object
    np.testing.assert_array_equal(got.astype(wide), want.astype(wide))


def sample(dtype, shape, seed=0):
    """Random elements: moderate floats, integers over the whole range, with extremes and specials when there is room."""
    rng = np.random.default_rng([seed, len(dtype), *shape])
    n = int(np.prod(shape))
    if dtype == "i1":
        return np.asarray(rng.random(shape) < 0.5)
    if dtype in INTEGERS:
        low = -(1 << (BITS[dtype] - 1)) if dtype in SIGNED else 0
        high = (1 << (BITS[dtype] - 1)) - 1 if dtype in SIGNED else (1 << BITS[dtype]) - 1
        base = np.int64 if dtype in SIGNED else np.uint64
        flat = rng.integers(low, high, n, base, endpoint=True)
        for i, v in zip(range(n), (low, high, 0, 1), strict=False):
            flat[i * 2 % n] = v
        return flat.astype(NUMPY[dtype]).reshape(shape)
    if dtype in COMPLEX:
        return np.asarray(rng.standard_normal(shape) + 1j * rng.standard_normal(shape), NUMPY[dtype])
    flat = rng.standard_normal(n) * 2
    for i, v in zip(range(n), (np.nan, np.inf, -np.inf, -0.0), strict=False):
        if n > 6:
            flat[i] = v
    return flat.astype(np.float32).astype(NUMPY[dtype]).reshape(shape)
