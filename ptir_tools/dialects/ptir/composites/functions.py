"""Functions of floats: series and formulas in f32 or f64, within a few units in the last place unless their docstring says
otherwise."""

from __future__ import annotations

import math

from ptir_tools.core.dtypes import F64
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site, cast, wide
from ptir_tools.dialects.ptir.composites.rounding import floor, is_negative, nearest, signed, sqrt
from ptir_tools.rewrite.expression import compare_eq, compare_ne, exp, log, maximum, minimum, select, series


def terms(x: Tensor, few: int, many: int) -> range:
    """The coefficients of a series: `few` in f32, `many` in f64."""
    return range(many if x.dtype is F64 else few)


def expm1(x: Tensor) -> Tensor:
    """The exponential minus 1: near 0 a series."""
    small = x * series(x, [1 / math.factorial(k + 1) for k in terms(x, 11, 18)])
    large = exp(x) - 1
    return select(abs(x) < 0.5, small, large)


def log1p(x: Tensor) -> Tensor:
    """The logarithm of 1 + x: near 0, the series of 2 atanh(x / (2 + x))."""
    near = abs(x) < 0.5
    s = x / (x + 2)
    small = s * series(s * s, [2 / (2 * k + 1) for k in terms(x, 9, 18)])
    return select(near, select(compare_eq(x, 0), x, small), log(x + 1))


def sinh(x: Tensor) -> Tensor:
    """The hyperbolic sine."""
    size, square = abs(x), x * x
    small = x * series(square, [1 / math.factorial(2 * k + 1) for k in terms(x, 6, 10)])
    root = exp(size * 0.5)
    up = root * 0.5 * root
    large = signed(x, up - 0.25 / up)
    return select(size < 1, small, large)


def cosh(x: Tensor) -> Tensor:
    """The hyperbolic cosine."""
    root = exp(abs(x) * 0.5)
    up = root * 0.5 * root
    return up + 0.25 / up


def _far(x: Tensor) -> float:
    """From here on the square root of x² + 1 is x."""
    return 2.0**500 if x.dtype is F64 else 2.0**60


def asinh(x: Tensor) -> Tensor:
    """The inverse of the hyperbolic sine."""
    size = abs(x)
    held = minimum(size, _far(x))
    square = held * held
    root = sqrt(square + 1)
    near = log1p(held + square / (root + 1))
    far = log(size) + math.log(2)
    return signed(x, select(size < _far(x), near, far))


def acosh(x: Tensor) -> Tensor:
    """The inverse of the hyperbolic cosine; NaN below 1."""
    t = minimum(x, _far(x)) - 1
    near = log1p(t + sqrt(t * (t + 2)))
    far = log(x) + math.log(2)
    return select(x < 1, math.nan, select(x < _far(x), near, far))


def atanh(x: Tensor) -> Tensor:
    """The inverse of the hyperbolic tangent; NaN beyond 1."""
    size = abs(x)
    found = log1p((size + size) / (1 - size)) * 0.5
    return signed(x, select(size > 1, math.nan, found))


def atan(x: Tensor) -> Tensor:
    """The arc tangent: a reduction by the tangents of 1/8 and 3/8 of a half turn to the series near 0."""
    size = abs(x)
    far, middle = size > 1 + math.sqrt(2), size > math.sqrt(2) - 1
    held = maximum(size, 0.25)
    turned = select(far, -1.0 / held, (size - 1) / (size + 1))
    v = select(middle, turned, size)
    arc = v * series(v * v, [(-1) ** k / (2 * k + 1) for k in terms(x, 10, 22)])
    base = select(far, x.block.full(math.pi / 2, x), math.pi / 4)
    return signed(x, select(middle, base + arc, arc))


def asin(x: Tensor) -> Tensor:
    """The arc sine; NaN beyond 1."""
    inside = (1 - x) * (x + 1)
    return select(compare_eq(x, 0), x, atan(x / sqrt(inside)))


def acos(x: Tensor) -> Tensor:
    """The arc cosine; NaN beyond 1."""
    half = atan(sqrt((1 - x) / (x + 1)))
    found = select(compare_eq(x, 1), 0, half + half)
    return select(abs(x) > 1, math.nan, found)


# π/2 in three parts: the first two times a count of up to 13 bits (of f64 20) are exact.
_QUARTER = {False: (1.5703125, 4.837512969970703125e-4, 7.549789948768648e-8),
            True: (1.57079632673412561417, 6.07710050630396597660e-11, 2.02226624879595063154e-21)}  # fmt: skip


def _quarters(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The number of quarter turns modulo 4, and the sine and cosine of the rest; NaN beyond the range."""
    most = 2.0 ** (20 if x.dtype is F64 else 13)
    x = select(abs(x) < most, x, math.nan)
    k = nearest(x * (2 / math.pi))
    rest = x
    for part in _QUARTER[x.dtype is F64]:
        rest = rest - k * part
    square = rest * rest
    sine = rest * series(square, [(-1) ** n / math.factorial(2 * n + 1) for n in terms(x, 6, 10)])
    cosine = series(square, [(-1) ** n / math.factorial(2 * n) for n in terms(x, 6, 10)])
    return k - floor(k * 0.25) * 4, sine, cosine


def _is_odd(quarter: Tensor) -> Tensor:
    """Whether it is 1 or 3."""
    return compare_eq(abs(quarter - 2), 1)


def sin(x: Tensor) -> Tensor:
    """The sine; NaN from 2**13 (in f64 2**20) on."""
    quarter, sine, cosine = _quarters(x)
    found = select(_is_odd(quarter), cosine, sine)
    found = select(quarter >= 2, -found, found)
    return select(compare_eq(x, 0), x, found)


def cos(x: Tensor) -> Tensor:
    """The cosine; NaN from 2**13 (in f64 2**20) on."""
    quarter, sine, cosine = _quarters(x)
    found = select(_is_odd(quarter), sine, cosine)
    return select(compare_eq(abs(quarter - 1.5), 0.5), -found, found)


def tan(x: Tensor) -> Tensor:
    """The tangent; NaN from 2**13 (in f64 2**20) on."""
    quarter, sine, cosine = _quarters(x)
    odd = _is_odd(quarter)
    ratio = select(odd, -cosine, sine) / select(odd, sine, cosine)
    return select(compare_eq(x, 0), x, ratio)


def cbrt(x: Tensor) -> Tensor:
    """The exponential of a third of the logarithm, then one step of Newton's method. Zeros, infinities and NaN are unchanged."""
    size = abs(x)
    first = exp(log(size) * (1 / 3))
    off = first - size / first / first
    found = signed(x, first - off * (1 / 3))
    return select(size < math.inf, found, x)


def atan2(site: Site, y: Tensor, x: Tensor) -> Tensor:
    """The arc tangent of the quotient of the magnitudes, moved to the quadrant that the signs of `x` and `y` give, also for
    zeros."""
    v, u = cast(y, wide(y.dtype)), cast(x, wide(x.dtype))
    a, b = abs(v), abs(u)
    arc = abs(atan(a / b))  # a size of zero may be -0.0
    arc = select(compare_eq(a, b), select(compare_eq(a, 0), site.full(0, v), math.pi / 4), arc)
    arc = select(is_negative(u), math.pi - arc, arc)
    return cast(select(is_negative(v), -arc, arc), y.dtype)


def power(site: Site, x: Tensor, y: Tensor) -> Tensor:
    """exp(y · log |x|). The error grows with that product."""
    v, y = cast(x, wide(x.dtype)), cast(y, wide(y.dtype))
    size = abs(v)
    power = exp(y * log(size))
    power = select(compare_eq(size, 1), 1, power)
    half = y * 0.5
    negative = select(compare_ne(floor(half), half), -power, power)
    negative = select(compare_eq(floor(y), y), negative, math.nan)
    found = select(v < 0, negative, power)
    found = select(compare_eq(y, y), found, y)
    found = select(compare_eq(v, v), found, v)
    found = select(compare_eq(v, 1), 1, found)
    return cast(select(compare_eq(y, 0), 1, found), x.dtype)
