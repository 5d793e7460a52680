"""tanh, erf and powers of 2 composed of PTO's ops, in f32, to a few units of the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import factorial, inf, log, pi, sqrt
from struct import pack

from ptir_tools.convert.patterns import exp2_operand
from ptir_tools.core.builder import Builder
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.rewrites.contract_formulas import PAIRS, PERIODIC, Attempt, Formula, nearest

_LN2, _BEYOND = 2839 / 4096, 300.0  # ln 2 in 12 bits; where powers of 2 are 0 or infinite
_SMALL_TANH, _SMALL_ERF = 0.5, 1.0
# erfc(a) * exp(a * a) as a polynomial of 1 / (1 + a / 2), fitted for 1 <= a <= 4.2; beyond, erf is 1 in f32.
_ERFC = (0.0018224833, 0.2597006011, 0.3968021152, -0.0644606962, 0.6366800819, -0.2308016900)
_ERF = tuple((-1) ** n * 2 / sqrt(pi) / (factorial(n) * (2 * n + 1)) for n in range(11))  # of x * x, times x


def tanh(b: Builder, x: Value) -> Value:
    """A continued fraction where x is small, else (1 - e) / (1 + e) with e = exp(-2 |x|)."""
    square = b.op("mul", x, x)
    above = b.op("mul", x, _polynomial(b, square, (945, 105, 1)))
    small = b.op("div", above, _polynomial(b, square, (945, 420, 15)))
    magnitude = b.op("abs", x)
    e = b.op("exp", b.op("mul", magnitude, _number(x, -2.0)))
    large = b.op("div", b.op("sub", _number(x, 1.0), e), b.op("add", e, _number(x, 1.0)))
    return _by_magnitude(b, x, magnitude, small, large, _SMALL_TANH)


def erf(b: Builder, x: Value) -> Value:
    """The power series where x is small, else 1 - erfc |x|."""
    square = b.op("mul", x, x)
    small = b.op("mul", x, _polynomial(b, square, _ERF))
    magnitude = b.op("abs", x)
    t = b.op("reciprocal", _polynomial(b, magnitude, (1.0, 0.5)))
    tail = b.op("mul", b.op("exp", b.op("neg", square)), _polynomial(b, t, _ERFC))
    return _by_magnitude(b, x, magnitude, small, b.op("sub", _number(x, 1.0), tail), _SMALL_ERF)


def _by_magnitude(b: Builder, x: Value, magnitude: Value, small: Value, large: Value, bound: float) -> Value:
    """An odd function: `small` below the bound, else `large` of the magnitude with the sign of `x`."""
    signed = b.op("select", b.op("compare_lt", x, _number(x, 0.0)), b.op("neg", large), large)
    return b.op("select", b.op("compare_lt", magnitude, _number(x, bound)), small, signed)


def _polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """The sum of coefficients[n] * x ** n, from the highest power down."""
    *rest, last = coefficients
    total = b.op("mul", x, _number(x, last)) if last != 1 else x
    for c in rest[:0:-1]:
        total = b.op("mul", b.op("add", total, _number(x, c)), x)
    return b.op("add", total, _number(x, rest[0]))


def _number(like: Value, value: float) -> Literal:
    """One number for all elements of a value of f32."""
    assert isinstance(like.type, TensorType)
    return Literal(like.type, pack("<f", value), splat=True)


def exp2(f: Formula, op: Op, _: Operand) -> Operand | None:
    """A power of 2 that the cast `op` rounds once to f32, without f64: exp(n ln 2 / 2) twice, with an integer n, times the rest.

    `_LN2` has few bits, so that its products by n are exact; half of the power at a time neither overflows nor underflows early.
    """
    x = exp2_operand(op)
    if x is None or f.result.dtype is not F32:
        return None
    for test, end in (("compare_gt", _BEYOND), ("compare_lt", -_BEYOND)):
        x = f.choose(f.op(test, x, end), end, x)
    n = nearest(f, x)
    half = f.op("exp", f.op("mul", n, _LN2 / 2))
    rest = f.op("add", f.op("mul", f.op("sub", x, n), log(2)), f.op("mul", n, log(2) - _LN2))
    power = f.op("mul", f.op("mul", f.op("exp", rest), half), half)
    return f.choose(f.op("compare_ge", x, 128), inf, power)


APPROXIMATIONS: dict[str, Callable[[Builder, Value], Value]] = {"tanh": tanh, "erf": erf}
# With --lossy: angles have a limited range, and 0 / 0 is decided by signs.
LOSSY_FORMULAS: dict[str, Attempt] = {**PERIODIC, "atan2": PAIRS["atan2"]}
