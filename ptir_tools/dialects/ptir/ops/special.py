"""The inverse error function and functions of the gamma family on float64 arrays."""

from __future__ import annotations

from math import erfc, inf, pi, sqrt
from math import lgamma as scalar_lgamma

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.ops.erf import erf

_SLOPE = 2.0 / sqrt(pi)
# digamma(x) = log x - 1/(2x) - sum of B_2k / (2k x^2k): the coefficients of x^-2, x^-4, ...
_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
_LARGE = 10.0  # from here on the series is good


def erf_inv(x: Array) -> Array:
    """The number whose error function is `x`, by Halley's method from an estimate that is good to 3 digits.

    Up to 1/2 it solves erf(y) = x, beyond erfc(y) = 1 - x, which is exact there.
    """
    size = np.abs(x)
    inner, spare = np.minimum(size, 0.5), np.where(size < 1, 1 - size, 1.0)
    a = 0.147
    log = np.log(np.where(size < 1, (1 - size) * (1 + size), 1.0))
    base = 2 / (pi * a) + log / 2
    y = np.sqrt(np.maximum(np.sqrt(base * base - log / a) - base, 0))
    y = np.where(size < 1e-4, size / _SLOPE, y)
    complement = np.frompyfunc(erfc, 1, 1)
    for _ in range(3):
        off = np.where(size <= 0.5, erf(np.minimum(y, 1.0)) - inner, spare - np.asarray(complement(y)).astype(np.float64))
        step = off / (_SLOPE * np.exp(-y * y))
        y = y - step / (1 + y * step)
    y = np.where(size == 0, 0.0, np.where(size < 1, y, np.where(size == 1, inf, np.nan)))
    return np.copysign(y, x)


def _lgamma(x: float) -> float:
    try:
        return inf if x <= 0 and x == x // 1 else scalar_lgamma(x)
    except OverflowError:
        return inf


def lgamma(x: Array) -> Array:
    """The logarithm of the magnitude of the gamma function, as the C library has it; infinite at its poles."""
    return np.asarray(np.frompyfunc(_lgamma, 1, 1)(x)).astype(np.float64)


def digamma(x: Array) -> Array:
    """The derivative of `lgamma`. Large numbers use the series, to which digamma(x) = digamma(x + 1) - 1/x leads. Negative ones
    use the reflection digamma(1 - x) - pi / tan(pi x)."""
    y = np.where(x < 0.5, 1 - x, x)
    total = np.zeros_like(y)
    for _ in range(int(_LARGE)):
        small = y < _LARGE
        total -= np.where(small, 1 / np.where(small, y, 1), 0)
        y = np.where(small, y + 1, y)
    inverse = 1 / (y * y)
    series = np.zeros_like(y)
    for c in reversed(_BERNOULLI):
        series = (series + c) * inverse
    found = total + np.log(y) - 0.5 / y - series
    turn = x - np.rint(x)  # pi x, less a whole number of halves of the turn
    found = found - np.where(x < 0.5, pi / np.tan(pi * np.where(turn == 0, 0.25, turn)), 0)
    return np.where((x <= 0) & (x == np.floor(x)), np.nan, found)
