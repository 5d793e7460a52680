"""PTIR to Tiny: comparisons, quotients of integers, and functions of floats, in Tiny's elementwise nodes.

Comparisons are made by RELU, MAX and casts to bool: a float is above another where the RELU of their difference is not 0, which
holds for infinities, both zeros and subnormals. Of a NaN RELU makes 0. A difference of integers may wrap, but is 0 only for equal
ones. The difference from a finite number is 0 only for this number, and NaN only for a NaN, which as a bool is true.
"""

from __future__ import annotations

import math

from ptir_tools.convert.patterns import splat_of
from ptir_tools.convert.series import ERF, ERFC
from ptir_tools.core.dtypes import F32, I1, SI32, DType
from ptir_tools.core.ir import Value
from ptir_tools.rewrite.expression import Term, function, maximum, minimum, rsqrt, select, series

NAMES = {"add": "ADD", "sub": "SUB", "mul": "MUL", "div": "FDIV", "neg": "NEG", "maximum": "MAX", "minimum": "MIN",
         "select": "WHERE", "rsqrt": "RSQRT"}  # fmt: skip
relu, exp2 = function("RELU"), function("EXP2")


def cast(x: Term, dtype: DType) -> Term:
    """`x` as `dtype`; a number as an immediate of it."""
    if x.dtype is dtype:
        return x
    if isinstance(x.operand, Value):
        return x.op("CAST", x, to=dtype)
    value = splat_of(x.operand)
    return Term(x.sink, x.sink.number(float(value) if dtype.is_float else int(value), dtype))


# Comparisons


def above(x: Term, y: Term) -> Term:
    """x > y."""
    return cast(relu(x - y) if x.dtype.is_float else maximum(x, y) - y, I1)


def negated(x: Term) -> Term:
    """Not x."""
    return cast(1 - cast(x, SI32), I1)


def numbers(x: Term, y: Term) -> Term:
    """Whether neither is a NaN."""
    both = x if x.operand is y.operand else maximum(x, y)
    return cast(relu(minimum(maximum(both, -1), 1) + 2), I1)


def _finite(x: Term) -> bool:
    """Whether it is one finite number."""
    return not isinstance(x.operand, Value) and math.isfinite(splat_of(x.operand))


def at_least(x: Term, y: Term) -> Term:
    """x >= y."""
    if not x.dtype.is_float:
        return negated(above(y, x))
    if _finite(y):
        return negated(cast(y - minimum(x, y), I1))
    if _finite(x):
        return negated(cast(maximum(x, y) - x, I1))
    within = negated(above(y, x))
    return select(within, numbers(x, y), within)


def differs(x: Term, y: Term) -> Term:
    """x != y, true for a NaN."""
    if x.dtype.is_float and not (_finite(x) or _finite(y)):
        return negated(equals(x, y))
    return cast(x - y, I1)


def equals(x: Term, y: Term) -> Term:
    """x == y."""
    if not x.dtype.is_float or _finite(x) or _finite(y):
        return negated(differs(x, y))
    first, second = negated(above(x, y)), negated(above(y, x))
    neither = select(first, second, first)
    return select(neither, numbers(x, y), neither)


# Integers


def sign(x: Term) -> Term:
    """-1, 0 or 1, of integers."""
    if isinstance(x.operand, Value):
        return minimum(maximum(x, -1), 1)
    value = splat_of(x.operand)
    return x.number((value > 0) - (value < 0))


_EXACT = 1 << 24  # up to it every integer is one of fp32, and a rounded quotient is no greater integer than the quotient


def divided(a: Term, b: Term, small: bool = False) -> tuple[list[Term], Term]:
    """The parts whose sum is an integer quotient, and what the last part leaves a remainder of, with `b`. `small`: both are below
    2**24 in magnitude. Else the first part is a quotient in fp32, the second that of what it leaves. By a small number, a first
    part that is too small by little leaves what is small enough. Otherwise both are off by at most 1, which the signs tell. A
    divisor 0, an error in PTIR, gives any number."""
    if small:
        return [cast(cast(a, F32) / cast(b, F32), SI32)], a
    if not isinstance(b.operand, Value) and abs(n := splat_of(b.operand)) <= _EXACT // 2:
        first = cast(cast(a, F32) * ((1 - 2**-21) / n), SI32)
        left = a - first * b
        return [first, cast(cast(left, F32) / cast(b, F32), SI32)], left
    floats = cast(b, F32)

    def step(a: Term) -> tuple[Term, Term]:
        q = cast(cast(a, F32) / floats, SI32)
        return q, a - q * b

    first, left = step(a)
    second, left = step(left)
    side, turn = sign(a), sign(b)
    off = minimum(side * sign(left), 0)  # -1 where the signs differ
    return [first, second, off * (side * turn)], left


def wrapped(x: Term, dtype: DType) -> Term:
    """An i32 wrapped to the range of a narrower dtype: its bits move to the top, where those above are lost, and back in fp32,
    which holds so few exactly."""
    scale, center = 1 << 32 - dtype.bits, (dtype.min + dtype.max + 1) // 2
    offset = x - center if center else x
    low = cast(cast(offset * scale, F32) * (1 / scale), SI32)
    return low + center if center else low


# Functions of fp32

# ln 2 in two parts, of which the first times a whole number of up to 9 digits is exact in fp32.
_LN2 = (0.693145751953125, 1.42860676533018e-06)
_LOG2E = math.log2(math.e)


def exp(x: Term) -> Term:
    """EXP2(n) * EXP2((x - n * ln 2) * log2 e) with a whole number n: an argument below 1 is rounded by little."""
    whole = cast(cast(x * _LOG2E, SI32), F32)
    rest = x - whole * _LN2[0] - whole * _LN2[1]
    return exp2(rest * _LOG2E) * exp2(whole)


def log(x: Term) -> Term:
    """x = m * 2**e with m in [2**-0.5, 2**0.5]: the powers of two are taken off one by one, and log m is the series of
    2 atanh((m - 1) / (m + 1)). 0 gives -inf, infinity itself, and what is negative NaN."""
    m, exponents = x, list[Term]()
    for power in (64, 64, 32, 16, 8, 4, 2, 1):
        for sign in (1, -1):
            bound = 2.0 ** (sign * (power - 0.5))
            test = cast(relu(m - bound if sign > 0 else bound - m), I1)
            m = select(test, m * 2.0 ** (-sign * power), m)
            exponents.append(cast(test, F32) * (sign * power))
    e = exponents[0]
    for more in exponents[1:]:
        e = e + more
    s = (m - 1) / (m + 1)
    square = s * s
    tail = s * square * series(square, [2 / 3, 2 / 5, 2 / 7, 2 / 9])
    result = tail + e * _LN2[1] + (s + s) + e * _LN2[0]
    finite = cast(relu(math.inf - x), I1)
    below = select(cast(x, I1), rsqrt(minimum(x, -1)) - x, -math.inf)
    positive = cast(relu(x), I1)
    return select(positive, select(finite, result, x), below)


# tanh(x) = x - x**3/3 + 2x**5/15 - …: the coefficients after x, which reach fp32 below |x| = 0.55.
_TANH = (
    -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875, 6404582 / 10854718875,
    -443861162 / 1856156927625,
)  # fmt: skip
_SMALL = 0.55


def tanh(x: Term) -> Term:
    """`1 - 2 / (exp(2x) + 1)`, and for small x, where that would cancel, the first terms of the series."""
    large = 1 - 2 / (exp(x + x) + 1)
    square = x * x
    return _small_or(x, _SMALL, x + x * square * series(square, _TANH), large)


def _small_or(x: Term, limit: float, small: Term, large: Term) -> Term:
    """`large` where |x| > limit, else `small`."""
    return select(cast(relu(maximum(x, -x) - limit), I1), large, small)


def erf(x: Term) -> Term:
    """A series for small x, else a formula in EXP2."""
    size, square = maximum(x, -x), x * x
    t = 1 / (size * 0.5 + 1)
    upper = 1 - t * exp(series(t, ERFC) - square)
    large = select(cast(relu(x), I1), upper, -upper)
    small = x * ERF[0] + x * square * series(square, ERF[1:])
    return _small_or(x, 1.0, small, large)
