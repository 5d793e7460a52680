"""tanh, erf and powers of 2 composed of PTO's ops, in f32, to a few units of the last place."""

from __future__ import annotations

from math import inf, log

from ptir_tools.convert.patterns import exp2_operand
from ptir_tools.convert.series import ERF
from ptir_tools.core.dtypes import F32
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.builder.site import Site
from ptir_tools.dialects.ptir.composites.express import PAIRS, PERIODIC, Rule, in_f32
from ptir_tools.dialects.ptir.composites.rounding import nearest
from ptir_tools.rewrite.expression import exp, reciprocal, select, series

_LN2, _BEYOND = 2839 / 4096, 300.0  # ln 2 in 12 bits; where powers of 2 are 0 or infinite
_SMALL_TANH, _SMALL_ERF = 0.5, 1.0
# erfc(a) * exp(a * a) as a polynomial of 1 / (1 + a / 2), fitted for 1 <= a <= 4.2; beyond, erf is 1 in f32.
_ERFC = (0.0018224833, 0.2597006011, 0.3968021152, -0.0644606962, 0.6366800819, -0.2308016900)


def tanh(x: Tensor) -> Tensor:
    """A continued fraction where x is small, else (1 - e) / (1 + e) with e = exp(-2 |x|)."""
    square = x * x
    small = x * series(square, (945, 105, 1)) / series(square, (945, 420, 15))
    size = abs(x)
    e = exp(size * -2.0)
    return _by_size(x, size, small, (1.0 - e) / (e + 1.0), _SMALL_TANH)


def erf(x: Tensor) -> Tensor:
    """The power series where x is small, else 1 - erfc |x|."""
    square = x * x
    small = x * series(square, ERF)
    size = abs(x)
    tail = exp(-square) * series(reciprocal(series(size, (1.0, 0.5))), _ERFC)
    return _by_size(x, size, small, 1.0 - tail, _SMALL_ERF)


def _by_size(x: Tensor, size: Tensor, small: Tensor, large: Tensor, bound: float) -> Tensor:
    """An odd function: `small` below the bound, else `large` of the magnitude with the sign of `x`."""
    signed = select(x < 0.0, -large, large)
    return select(size < bound, small, signed)


def exp2(site: Site, _: Tensor) -> Tensor | None:
    """A power of 2 that the cast at `site` rounds once to f32, without f64: exp(n ln 2 / 2) twice, with an integer n, times the
    rest.

    `_LN2` has few bits, so that its products by n are exact; half of the power at a time neither overflows nor underflows early.
    """
    operand = exp2_operand(site.root)
    if operand is None or site.result.dtype is not F32:
        return None
    x = site(operand)
    x = select(x > _BEYOND, _BEYOND, x)
    x = select(x < -_BEYOND, -_BEYOND, x)
    n = nearest(x)
    half = exp(n * (_LN2 / 2))
    rest = (x - n) * log(2) + n * (log(2) - _LN2)
    return select(x >= 128, inf, exp(rest) * half * half)


APPROXIMATIONS: dict[str, Rule] = {"tanh": in_f32(tanh), "erf": in_f32(erf), "cast": exp2}
# With --lossy: angles have a limited range, and 0 / 0 is decided by signs.
LOSSY_FORMULAS: dict[str, Rule] = {**PERIODIC, "atan2": PAIRS["atan2"]}
