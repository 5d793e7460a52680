"""Formulas of erf_inv, lgamma and digamma in ops of the contract, in f32. They are right to a few units in the last place, except
next to a zero on the negative axis.

The coefficients interpolate at Chebyshev nodes of the named interval, computed by mpmath with 60 digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ptir_tools.core.dtypes import F64
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.dialects.ptir.rewrites.contract_formulas import Attempt, Formula, in_floats, nearest

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


def _erf_inv(f: Formula, x: Value) -> Value:
    """An odd polynomial of -log(1 - x²), or near the ends of its square root."""
    w = f.op("neg", f.op("log", f.op("mul", f.op("sub", 1, x), f.op("add", x, 1))))
    near = f.series(f.op("sub", w, _FAR / 2), _ERF_INV)
    far = f.series(f.op("sub", f.root_of(w), 3), _ERF_INV_FAR)
    slope = f.choose(f.op("compare_lt", w, _FAR), near, far)
    slope = f.choose(f.op("compare_eq", f.op("abs", x), 1), math.inf, slope)
    return f.op("mul", x, slope)


def _sine(f: Formula, x: Value) -> Value:
    """sin(pi x) / pi, for x from 0 to 1/2."""
    return f.op("mul", x, f.series(f.op("mul", x, x), _SINE))


def _from_whole(f: Formula, x: Value) -> tuple[Value, Value]:
    """The distance of `x` from the nearest integer, and whether it is one."""
    whole = nearest(f, x)
    return f.op("sub", x, whole), f.op("compare_eq", x, whole)


def _lgamma(f: Formula, x: Value) -> Value:
    """A polynomial with the zeros at 1 and 2, Stirling's series, and the reflection -log |sin(pi x) / pi| - log |x| - lgamma |x|.

    Below 1, log |x| is part of lgamma |x| and cancels in a reflection.
    """
    size = f.op("abs", x)
    small, negative = f.op("compare_lt", size, 1), f.op("compare_lt", x, 0)
    log = f.op("log", size)
    t = f.choose(small, f.op("sub", size, 1), f.op("sub", size, 2))
    other = f.choose(small, size, f.op("sub", size, 1))
    near = f.op("mul", f.op("mul", t, other), f.series(t, _LGAMMA))
    inverse = f.op("reciprocal", size)
    rest = f.op("mul", inverse, f.series(f.op("mul", inverse, inverse), _LGAMMA_FAR))
    main = f.op("mul", f.op("sub", size, 0.5), f.op("sub", log, 1))
    far = f.op("add", main, f.op("add", rest, (math.log(2 * math.pi) - 1) / 2))
    found = f.choose(f.op("compare_lt", size, _STIRLING), near, far)
    off, pole = _from_whole(f, x)
    sine = f.op("log", _sine(f, f.op("abs", off)))
    mirrored = f.op("neg", f.op("add", sine, f.choose(small, found, f.op("add", found, log))))
    return f.choose(negative, f.choose(pole, math.inf, mirrored), f.choose(small, f.op("sub", found, log), found))


def _digamma(f: Formula, x: Value) -> Value:
    """A polynomial with the zero of the positive axis, a series for large numbers, and the reflection to 1 - x."""
    mirrored = f.op("compare_lt", x, 0)
    y = f.choose(mirrored, f.op("sub", 1, x), x)
    small = f.op("compare_lt", y, 1)
    inverse = f.op("reciprocal", y)
    t = f.choose(small, f.op("sub", y, 1), f.op("sub", y, 2))
    near = f.op("mul", f.op("sub", f.op("sub", t, _ROOT[0]), _ROOT[1]), f.series(t, _DIGAMMA))
    near = f.choose(small, f.op("sub", near, inverse), near)
    square = f.op("mul", inverse, inverse)
    less = f.op("add", f.op("mul", inverse, 0.5), f.op("mul", square, f.series(square, _DIGAMMA_FAR)))
    found = f.choose(f.op("compare_lt", y, _STIRLING), near, f.op("sub", f.op("log", y), less))
    off, whole = _from_whole(f, x)
    side = f.op("abs", off)
    tangent = f.op("div", f.op("mul", _sine(f, f.op("sub", 0.5, side)), math.pi), _sine(f, side))
    found = f.choose(mirrored, f.op("sub", found, f.signed(off, tangent)), found)
    pole = f.choose(f.op("compare_le", x, 0), whole, f.op("compare_lt", x, 0))
    return f.choose(pole, math.nan, found)


def _in_f32(rule: Callable[[Formula, Value], Value]) -> Attempt:
    """A rule of floats up to 32 bits."""
    computed = in_floats(rule)

    def attempt(f: Formula, op: Op, x: Operand) -> Operand | None:
        return None if f.dtype is F64 else computed(f, op, x)

    return attempt


SPECIAL: dict[str, Attempt] = {"erf_inv": _in_f32(_erf_inv), "lgamma": _in_f32(_lgamma), "digamma": _in_f32(_digamma)}
