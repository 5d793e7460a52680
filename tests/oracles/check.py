"""What an oracle says, and how far from it a result may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.ptir.oracle import BITS, COMPLEX, FLOATS, NAME, NUMPY, SIGNED, rounded, wrap

# Significant bits. The unit roundoff of a dtype is 2 to minus this.
DIGITS = {"fp8_e4m3": 4, "fp8_e5m2": 3, "bf16": 8, "f16": 11, "f32": 24, "f64": 53, "cf32": 24, "cf64": 53}


@dataclass(slots=True, frozen=True)
class Want:
    """The numbers that an op must give, before they are rounded to its dtype.

    `value` holds float64, complex128 or Python integers. What is summed or comes from a library is off by at most `steps` units
    of `scale` (the magnitude of what was added up) in the dtype in which it is computed; `accum` is the accumulator.
    """

    value: Any
    dtype: str
    steps: float = 0
    scale: Any = 0.0
    accum: str | None = None


def wide(x: np.ndarray) -> np.ndarray:
    """Elements as oracles compute with them: float64, complex128, Python integers."""
    if NAME[x.dtype] in FLOATS + COMPLEX:
        with np.errstate(invalid="ignore"):  # a signaling NaN
            return x.astype(np.complex128 if NAME[x.dtype] in COMPLEX else np.float64)
    out = np.empty(x.shape, object)
    out.reshape(-1)[:] = [int(v) for v in x.reshape(-1)]
    return out


def default_accum(dtype: str) -> str:
    """The accumulator of a dtype when none is given: f32 for fp8, f16, bf16, f32; else the dtype itself."""
    return "f32" if dtype in FLOATS and dtype != "f64" else dtype


def saturated(value: np.ndarray, dtype: str) -> np.ndarray:
    """Python integers clamped into an integer dtype."""
    low = -(1 << (BITS[dtype] - 1)) if dtype in SIGNED else 0
    return wrap([min(max(v, low), low + (1 << BITS[dtype]) - 1) for v in value.reshape(-1)], dtype).reshape(value.shape)


def unit(dtype: str) -> float:
    """The unit roundoff."""
    return 2.0 ** -DIGITS[dtype]


def check(got: Any, want: Any, reference: bool) -> None:
    """`got` is what the oracle wants: the same bits when that is an array, a number within the bound when it is a `Want`."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            check(g, w, reference)
        return
    got = np.asarray(got)
    if isinstance(want, np.ndarray):
        assert got.dtype == want.dtype and got.shape == want.shape, (got.dtype, got.shape, want.dtype, want.shape)
        assert _bits(got) == _bits(want), (got, want)
        return
    value = np.asarray(want.value)
    assert got.dtype == NUMPY[want.dtype] and got.shape == value.shape, (got.dtype, got.shape, want.dtype, value.shape)
    if want.dtype in COMPLEX:
        _near(got, want, value, reference)
    elif want.dtype in FLOATS:
        _between(got, want, value.astype(np.float64), reference)
    else:
        exact = value if value.dtype == NUMPY[want.dtype] else wrap(value, want.dtype)
        assert _bits(got) == _bits(np.asarray(exact)), (got, exact)


def _bits(x: np.ndarray) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def tolerance(want: Want, value: np.ndarray, reference: bool) -> Any:
    """How far the sum may be from `value` before anything is rounded. The reference computes in float64, engines in f32."""
    own = "f64" if reference or "64" in (want.accum or want.dtype) else "f32"
    slack = want.steps * unit(own) * np.abs(np.asarray(want.scale, np.float64))
    return np.broadcast_to(np.where(np.isfinite(slack), slack, 0.0), value.shape)


def _between(got: np.ndarray, want: Want, value: np.ndarray, reference: bool) -> None:
    """Rounding keeps order: the result lies between the rounded ends of the interval; NaN where, and only where, it must be."""
    with np.errstate(all="ignore"):
        slack = tolerance(want, value, reference)
        ends = [value - slack, value + slack]
        if want.accum is not None:
            ends = [rounded(end, want.accum) for end in ends]
        low, high = (rounded(end, want.dtype).astype(np.float64) for end in ends)
        found = got.astype(np.float64)
    fine = (low <= found) & (found <= high) | np.isnan(found) & (np.isnan(low) | np.isnan(high))
    fine |= np.isnan(low) != np.isnan(high)  # at the edge of fp8_e4m3, which has no infinity
    assert fine.all(), (found[~fine][:5], low[~fine][:5], high[~fine][:5])


def _near(got: np.ndarray, want: Want, value: np.ndarray, reference: bool) -> None:
    """Complex results. Where a term of a sum is infinite, which parts are NaN and which are infinite is not defined."""
    accum = want.accum or want.dtype
    with np.errstate(all="ignore"):
        value = rounded(value if accum in COMPLEX else value.real, accum)  # real operands are accumulated as reals
        value, found = value.astype(NUMPY[want.dtype]).astype(np.complex128), got.astype(np.complex128)
        magnitude = np.abs(value)
        slack = tolerance(want, magnitude, reference) + 16 * max(unit(want.dtype), unit(accum)) * magnitude
        near = np.abs(found - value) <= slack
        near |= ~np.isfinite(want.scale) & ~np.isfinite(value) & ~np.isfinite(found)
    for part in (np.real, np.imag):
        same = np.equal(part(found), part(value)) | np.isnan(part(found)) & np.isnan(part(value))
        assert (same | near).all(), (found, value)
