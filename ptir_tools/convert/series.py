"""Coefficients of approximations, for targets that lack a function."""

from __future__ import annotations

from math import factorial, pi, sqrt

# erf(x) = 2 / sqrt(pi) * (x - x**3/3 + x**5/10 - …), for |x| below 1. Above, 1 - t * exp(-x**2 + P(t)), t = 1 / (1 + |x| / 2),
# with Chebyshev's fit P of Numerical Recipes, within 1.2e-7 of erfc, relatively.
ERF = tuple(2 / sqrt(pi) * (-1) ** n / (factorial(n) * (2 * n + 1)) for n in range(11))
ERFC = (
    -1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277,
)  # fmt: skip
