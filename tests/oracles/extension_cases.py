"""Operands of the extension ops."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.oracles.cases import SHAPES, Drawn, draws, located, nonzero, others, plain, two
from tests.oracles.movement_cases import added
from tests.ptir.oracle import BITS, DTYPES, FLOATS, INTEGERS, NUMPY, sample


@draws("sin cos tan asin acos atan sinh cosh asinh acosh atanh log1p expm1 cbrt")
def curved(dtype: str) -> Drawn:
    """Numbers of both signs, within [-1, 1] and beyond, large ones too."""
    for shape in SHAPES:
        yield (sample(dtype, shape),), {}
        yield ((plain(dtype, shape, 1) / np.asarray(4, NUMPY[dtype])),), {}
    for scale in (1e-4, 30.0, 3e4 if dtype not in ("fp8_e4m3",) else 100.0):
        with np.errstate(over="ignore"):
            yield ((plain(dtype, (5, 7), 2) * np.asarray(scale, NUMPY[dtype])).astype(NUMPY[dtype]),), {}
    yield (np.array([-1, 1, 0, 0.5, -0.5, 1.5], NUMPY[dtype]),), {}


@draws("floor ceil round_even round_away sign is_finite")
def stepped(dtype: str) -> Drawn:
    """Halves, and what is next to a half."""
    for shape in SHAPES:
        yield (sample(dtype, shape),), {}
    if dtype in FLOATS:
        halves = np.arange(-9, 10) / 2
        yield (np.concatenate([halves, np.nextafter(halves, 0), np.nextafter(halves, 99)]).astype(NUMPY[dtype]),), {}
        yield ((sample(dtype, (40,)).astype(np.float64) * 100).astype(np.float32).astype(NUMPY[dtype]),), {}


draws("atan2 bitwise_and bitwise_or bitwise_xor")(two)


@draws("pow")
def raised(dtype: str) -> Drawn:
    """Small exponents of integers as well as large and negative ones."""
    for shape in SHAPES:
        x, y = sample(dtype, shape), others(dtype, shape)
        yield (x, y), {}
        if dtype in INTEGERS:
            low = -2 if dtype.startswith("s") else 0
            yield (np.random.default_rng(0).integers(low, 4, shape).astype(NUMPY[dtype]), x % np.asarray(5, NUMPY[dtype])), {}
        elif dtype in FLOATS:
            yield (plain(dtype, shape), np.round(others(dtype, shape).astype(np.float32)).astype(NUMPY[dtype])), {}


@draws("rem mod")
def divided(dtype: str) -> Drawn:
    """Divisors of both signs, and integers that divide."""
    for shape in SHAPES:
        x, y = sample(dtype, shape), others(dtype, shape)
        yield (x, nonzero(y) if dtype in INTEGERS else y), {}
        small = np.random.default_rng(1).integers(1, 4, shape).astype(NUMPY[dtype])
        yield (x, small), {}
        if dtype not in INTEGERS or dtype.startswith("s"):
            yield (x, (-small).astype(x.dtype)), {}


@draws("bitwise_not popcount count_leading_zeros")
def turned(dtype: str) -> Drawn:
    """Integers of every size."""
    for shape in SHAPES:
        yield (sample(dtype, shape),), {}
    if dtype in BITS and dtype != "i1":
        yield (np.array([1 << k for k in range(BITS[dtype] - 1)], object).astype(NUMPY[dtype]),), {}


@draws("shift_left shift_right_logical shift_right_arithmetic")
def shifted(dtype: str) -> Drawn:
    """By nothing up to more than the width, and by negative numbers."""
    for shape in SHAPES:
        x, n = sample(dtype, shape), int(np.prod(shape))
        top = (1 << BITS[dtype] - 1) - 1
        yield (x, np.array([min(k % (BITS[dtype] + 2), top) for k in range(n)], object).astype(NUMPY[dtype]).reshape(shape)), {}
        yield (x, others(dtype, shape)), {}


@draws("bitcast")
def reread(dtype: str) -> Drawn:
    """To every width: a last axis of parts comes or goes."""
    for target in ("si4", "ui8", "f16", "bf16", "si32", "f32", "ui64", "f64", "fp8_e4m3", "fp8_e5m2", "ui4"):
        parts = max(BITS[target] // BITS[dtype], 1)
        for shape in ((3,), (2, 0), ()):
            whole = (*shape, parts) if parts > 1 else shape
            yield (sample(dtype, whole),), {"dtype": DTYPES[target]}


@draws("reduce_prod")
def multiplied(dtype: str) -> Drawn:
    """Over axes, all of them, none, and axes of extent 0."""
    for shape, axes in (((3, 5), (1,)), ((2, 0, 3), (1,)), ((3, 5), (0, -1)), ((), ()), ((7,), ()), ((0,), (0,))):
        yield (plain(dtype, shape),), {"axes": axes}
        yield (plain(dtype, shape, 1),), {"axes": axes, "keepdims": True}
    for shape, axes in (((2, 3, 1, 2, 3), (0, -2, 4)), ((9, 3), (0,))):
        yield (plain(dtype, shape),), {"axes": axes}
    if dtype in ("si8", "f16"):
        yield (plain(dtype, (3, 9)),), {"axes": (1,), "accum_dtype": DTYPES["si32" if dtype == "si8" else "f64"]}


@draws("reduce_and reduce_or reduce_xor")
def combined(dtype: str) -> Drawn:
    """As `reduce_prod`."""
    for shape, axes in (
        ((3, 5), (1,)),
        ((2, 0, 3), (1,)),
        ((3, 5), (0, -1)),
        ((), ()),
        ((7,), ()),
        ((2, 3, 1, 2, 3), (0, -2, 4)),
    ):
        yield (sample(dtype, shape),), {"axes": axes}
        yield (sample(dtype, shape, 1),), {"axes": axes, "keepdims": True}


draws("argmin")(located)


@draws("erf_inv")
def inverted(dtype: str) -> Drawn:
    """Numbers within [-1, 1], at its ends and beyond."""
    for shape in SHAPES:
        yield (np.asarray(plain(dtype, shape) / np.asarray(8, NUMPY[dtype]), NUMPY[dtype]),), {}
    yield (np.array([-1, 1, 0, -0.0, 0.5, -0.5, 1.5, np.nan, 0.99, 1e-3], NUMPY[dtype]),), {}
    yield (np.linspace(-1, 1, 201).astype(NUMPY[dtype]),), {}
    yield ((1 - np.exp2(-np.arange(1.0, 53))).astype(NUMPY[dtype]),), {}


@draws("lgamma digamma")
def factorial(dtype: str) -> Drawn:
    """Positive numbers, negative ones, whole ones."""
    for shape in SHAPES:
        yield (sample(dtype, shape),), {}
    yield (np.arange(-6, 7).astype(NUMPY[dtype]),), {}
    yield ((np.arange(-40, 80) / 8 + 1 / 16).astype(NUMPY[dtype]),), {}
    yield (np.array([100, 12.5, 1e-2, 448], NUMPY[dtype]),), {}
    yield (np.array([1, -1], NUMPY[dtype]) * np.asarray(ml_dtypes.finfo(NUMPY[dtype]).max, NUMPY[dtype]),), {}


@draws("nextafter")
def stepped_to(dtype: str) -> Drawn:
    """To larger, smaller and equal numbers, from 0 and over powers of two."""
    for shape in SHAPES:
        yield (sample(dtype, shape), others(dtype, shape)), {}
    x = np.array([0, -0.0, 0, 1, 1, -1, -1, 0.5, 448, -448, 3, np.nan, 3, 0.0, -0.0], NUMPY[dtype])
    y = np.array([1, 1, -1, 0, 2, 0, -2, 0, 0, -448, 3, 1, np.nan, -0.0, 0.0], NUMPY[dtype])
    yield (x, y), {}


@draws("reduce_precision")
def coarser(dtype: str) -> Drawn:
    """Fewer digits, a smaller range, both, and no less than there is."""
    for exponent_bits, mantissa_bits in ((5, 10), (8, 7), (4, 3), (2, 1), (11, 52), (8, 0), (3, 52), (5, 2)):
        attrs = {"exponent_bits": exponent_bits, "mantissa_bits": mantissa_bits}
        yield (sample(dtype, (40,)),), attrs
        with np.errstate(over="ignore"):
            wide = plain("f64", (6, 7)) * np.exp2(np.arange(-21.0, 21)).reshape(6, 7)
            yield (wide.astype(NUMPY[dtype]),), attrs


draws("real imag")(turned)
draws("complex")(two)


@draws("cumsum cumprod cummax cummin")
def running(dtype: str) -> Drawn:
    """From either end, with the element or without."""
    for k, shape in enumerate(s for s in SHAPES if s and s != (3, 1031)):
        axis = k % len(shape)
        yield (plain(dtype, shape),), {"axis": axis}
        yield (plain(dtype, shape, 1),), {"axis": axis - len(shape), "exclusive": True}
        yield (plain(dtype, shape, 2),), {"axis": axis, "reverse": True}
        yield (plain(dtype, shape),), {"axis": axis, "exclusive": True, "reverse": True}
    yield (plain(dtype, (5, 40)),), {"axis": 1}


@draws("sort")
def sorted_along(dtype: str) -> Drawn:
    """One key, a key that carries others, two keys with ties."""
    for k, shape in enumerate(s for s in SHAPES if s):
        axis = k % len(shape)
        x, count = sample(dtype, shape), int(np.prod(shape))
        places = np.arange(count, dtype=np.int32).reshape(shape)
        yield ([x],), {"axis": axis, "descending": k % 2 == 1}
        yield ([x, places],), {"axis": axis - len(shape)}
        yield ([x, places],), {"axis": axis, "descending": True}
        ties = (places % 3).astype(np.int8)
        yield ([ties, x, places],), {"axis": axis, "keys": 2, "descending": k % 2 == 0}


@draws("scatter")
def placed(dtype: str) -> Drawn:
    """As `scatter_add`, and with indices outside that are dropped."""
    for (x, at, updates), attrs in added(dtype):
        yield (x, at, updates), attrs
        outside = np.where(np.arange(at.size).reshape(at.shape) % 2 == 0, at - 2, at + 1).astype(at.dtype)
        yield (x, outside, updates), {**attrs, "drop": True}
