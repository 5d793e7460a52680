"""Decimals of a program's text, rounded once, to nearest even, to their dtype."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from ptir_tools.core.dtypes import BF16, F16, F32, F64, FP8_E4M3, FP8_E5M2, DType
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import decimal

    from ptir_tools.core.arrays import Array
else:
    decimal = lazy("decimal")

# Exponent of the smallest positive value, largest finite value.
_ENDS: dict[DType, tuple[int, float]] = {
    FP8_E4M3: (-9, 448.0),
    FP8_E5M2: (-16, 57344.0),
    F16: (-24, 65504.0),
    BF16: (-133, (2 - 2.0**-7) * 2.0**127),
    F32: (-149, (2 - 2.0**-23) * 2.0**127),
}
_MANY = 1 << 16  # numbers for which numpy is worth loading
_DIGITS = 15  # digits: two decimals with at most this many never round to the same float64
_HALFWAY_BITS = 25  # digits of a number halfway between two values of a dtype above, at most


_LOW = (1 << 53 - _HALFWAY_BITS) - 1  # the digits of a float64 that such a number does not have; infinities have none either


class Inexact(float):
    """A float64 that may be halfway between two values of a narrower dtype, although its decimal is not. `apart` is its
    neighbor on the decimal's side."""

    apart: float


def read(text: str) -> float:
    """The float64 nearest to a decimal, `inf` or `nan`. Raises OverflowError for a finite decimal beyond float64."""
    value = float(text)
    if not math.isfinite(value):
        if math.isinf(value) and "inf" not in text.lower():
            raise OverflowError(f"{text[:40]} is beyond f64")
        return value
    if value == 0 or not math.ldexp(math.frexp(value)[0], _HALFWAY_BITS).is_integer():
        return value
    if len(text) <= _DIGITS and abs(value) < 1e10 and (value * 32).is_integer():  # `value` has at most 10 and 5 digits
        return value
    exact, wide = decimal.Decimal(text), decimal.Decimal(value)
    if exact == wide:
        return value
    result = Inexact(value)
    result.apart = math.nextafter(value, math.inf if exact > wide else -math.inf)
    return result


def read_all(texts: Sequence[str], dtype: DType) -> list[float]:
    """`read` of each text, for `dtype` or f64. Most need no more than their float64. Only one with exactly one digit more than
    `dtype` has is halfway between two of its normal numbers."""
    values = [*map(float, texts)]
    if len(values) >= _MANY:
        wide = np.array(values)
        bits, again = wide.view(np.uint64), ~np.isfinite(wide)
        if dtype in _ENDS:
            digit = 1 << 52 - dtype.precision  # the first that numbers of the dtype do not have
            small = (np.abs(wide) < math.ldexp(1.0, _ENDS[dtype][0] + dtype.precision)) & (wide != 0)
            again |= ((bits & (2 * digit - 1)) == digit) | (small & ((bits & _LOW) == 0))
        for i in np.flatnonzero(again).tolist():
            values[i] = read(texts[i])
        return values
    words = struct.unpack(f"<{len(values)}Q", struct.pack(f"<{len(values)}d", *values))
    return [v if w & _LOW else read(x) for v, w, x in zip(values, words, texts, strict=True)]


def all_nearest(values: Sequence[float], dtype: DType) -> Array | None:
    """`nearest` of each number of many, in float64; None where one is `Inexact`, not finite or beyond `dtype`."""
    if len(values) < _MANY or dtype not in _ENDS or {*map(type, values)} != {float}:
        return None
    smallest, largest = _ENDS[dtype]
    wide = np.array(values)
    unit = np.maximum(np.frexp(wide)[1] - dtype.precision, smallest)
    result: Array = np.ldexp(np.rint(np.ldexp(wide, -unit)), unit)
    return result if bool(np.all(np.abs(result) <= largest)) else None


def narrowing(value: float) -> float:
    """A plain float64 that rounds to every dtype narrower than f64 like its decimal `value`."""
    return value.apart if isinstance(value, Inexact) else value


def nearest(value: float, dtype: DType) -> float:
    """The value of a float `dtype` nearest to the decimal of `value` (from `read`), ties to even. Raises OverflowError if a
    finite decimal is beyond the dtype."""
    if dtype is F64 or value == 0 or not math.isfinite(value):
        return float(value)
    smallest, largest = _ENDS[dtype]
    apart = narrowing(value)
    unit = max(math.frexp(apart)[1] - dtype.precision, smallest)
    result = math.ldexp(round(math.ldexp(apart, -unit)), unit)
    if abs(result) > largest:
        raise OverflowError(f"{value!r} is beyond {dtype}")
    return math.copysign(result, value)
