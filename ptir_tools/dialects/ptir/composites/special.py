"""erf_inv, lgamma and digamma, in f32. They are right to a few units in the last place, except
next to a zero on the negative axis.

The coefficients interpolate at Chebyshev nodes of the named interval, computed by mpmath with 60 digits.
"""

from __future__ import annotations

import math

from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites.rounding import nearest, signed, sqrt
from ptir_tools.rewrite.expression import compare_eq, log, reciprocal, select, series

# erf_inv(x) / x: of w - 5/2 where w = -log(1 - x²) is below 5, else of sqrt(w) - 3 up to w = 17.4.
_FAR = 5.0
_ERF_INV = (1.50140936, 0.246640279, -0.00417739288, -0.00125272639, 0.000218349386, -4.97241969e-06, -3.46398527e-06,
            4.68131348e-07, 2.33359672e-08, -8.93192597e-09)  # fmt: skip
_ERF_INV_FAR = (2.83297683, 1.00167482, 0.0094440363, -0.00763507887, 0.00569676611, -0.00360811513, 0.00146082078,
                -3.46817729e-05, -0.000290712281, 9.91599222e-05)  # fmt: skip
# lgamma(2 + t) / (t (1 + t)), and digamma(2 + t) / (t - root), for t from -1 to 1/2.
_STIRLING = 2.5  # from here on series for large numbers are good
_LGAMMA = (0.422784336, -0.100317315, 0.0329649221, -0.0123835749, 0.00500069097, -0.0021152929, 0.000894136277,
           -0.000379925784, 0.00027813883, -7.99872798e-05, -0.00011383436, -0.000131177741)  # fmt: skip
_DIGAMMA = (0.785307545, -0.260739117, 0.108998967, -0.0495435006, 0.0234720274, -0.0114261212, 0.00529652954,
            -0.00242022947, 0.00250956587, -0.000663688317, -0.00150105168, -0.00150387448)  # fmt: skip
_ROOT = (-0.5383678674697876, 1.24381499e-08)  # in two parts, the first one of f32
# Of z = 1 / x² up to 4/25: (lgamma(x) - (x - 1/2) (log x - 1) - log(2 pi / e) / 2) x, and (log x - 1 / 2x - digamma(x)) / z.
_LGAMMA_FAR = (0.0833333309, -0.00277728273, 0.000777412015, -0.000411505146)
_DIGAMMA_FAR = (0.0833333135, -0.00832932168, 0.00383535233, -0.00262496532)
_SINE = tuple((-1) ** n * math.pi ** (2 * n) / math.factorial(2 * n + 1) for n in range(8))


def erf_inv(x: Tensor) -> Tensor:
    """An odd polynomial of -log(1 - x²), or near the ends of its square root."""
    w = -log((1 - x) * (x + 1))
    near = series(w - _FAR / 2, _ERF_INV)
    far = series(sqrt(w) - 3, _ERF_INV_FAR)
    slope = select(w < _FAR, near, far)
    return x * select(compare_eq(abs(x), 1), math.inf, slope)


def _sine(x: Tensor) -> Tensor:
    """sin(pi x) / pi, for x from 0 to 1/2."""
    return x * series(x * x, _SINE)


def _from_whole(x: Tensor) -> tuple[Tensor, Tensor]:
    """The distance of `x` from the nearest integer, and whether it is one."""
    whole = nearest(x)
    return x - whole, compare_eq(x, whole)


def lgamma(x: Tensor) -> Tensor:
    """A polynomial with the zeros at 1 and 2, Stirling's series, and the reflection -log |sin(pi x) / pi| - log |x| - lgamma |x|.

    Below 1, log |x| is part of lgamma |x| and cancels in a reflection.
    """
    size = abs(x)
    small, negative = size < 1, x < 0
    log_size = log(size)
    t = select(small, size - 1, size - 2)
    other = select(small, size, size - 1)
    near = t * other * series(t, _LGAMMA)
    inverse = reciprocal(size)
    rest = inverse * series(inverse * inverse, _LGAMMA_FAR)
    far = (size - 0.5) * (log_size - 1) + (rest + (math.log(2 * math.pi) - 1) / 2)
    found = select(size < _STIRLING, near, far)
    off, pole = _from_whole(x)
    sine = log(_sine(abs(off)))
    mirrored = -(sine + select(small, found, found + log_size))
    return select(negative, select(pole, math.inf, mirrored), select(small, found - log_size, found))


def digamma(x: Tensor) -> Tensor:
    """A polynomial with the zero of the positive axis, a series for large numbers, and the reflection to 1 - x."""
    mirrored = x < 0
    y = select(mirrored, 1 - x, x)
    small = y < 1
    inverse = reciprocal(y)
    t = select(small, y - 1, y - 2)
    near = (t - _ROOT[0] - _ROOT[1]) * series(t, _DIGAMMA)
    near = select(small, near - inverse, near)
    square = inverse * inverse
    less = inverse * 0.5 + square * series(square, _DIGAMMA_FAR)
    found = select(y < _STIRLING, near, log(y) - less)
    off, whole = _from_whole(x)
    side = abs(off)
    tangent = _sine(0.5 - side) * math.pi / _sine(side)
    found = select(mirrored, found - signed(off, tangent), found)
    return select(select(x <= 0, whole, x < 0), math.nan, found)
