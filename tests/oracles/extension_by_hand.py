"""What the extension ops give, by hand: Python's integers and fractions, and NumPy's widest floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
from ptir_oracle import BITS, COMPLEX, INTEGERS, NAME, NUMPY, wrap

from oracles.by_hand import each, fold, means, name_of, numbers, plus, quotient
from oracles.check import Want, default_accum, wide

CURVES: dict[str, Callable[..., Any]] = {
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "log1p": np.log1p, "expm1": np.expm1,
    "cbrt": np.cbrt, "atan2": np.arctan2,
}  # fmt: skip


def _curve(function: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(*xs: np.ndarray) -> Want:
        widest = np.clongdouble if NAME[xs[0].dtype] in COMPLEX else np.longdouble
        with np.errstate(all="ignore"):
            value = np.asarray(function(*(wide(x).astype(widest) for x in xs)))
            value = value.astype(np.complex128 if widest is np.clongdouble else np.float64)
        return Want(value, NAME[xs[0].dtype], 12, np.abs(value))

    return meaning


for _name, _function in CURVES.items():
    means(_name)(_curve(_function))


@means("pow")
def pow_(x: np.ndarray, y: np.ndarray) -> Want:
    """Integers modulo their width; 1 / x**n without its fraction."""
    dtype = NAME[x.dtype]
    if dtype not in INTEGERS:
        return _curve(np.power)(x, y)

    def power(a: int, n: int) -> int:
        if n >= 0:
            return pow(a, n, 1 << BITS[dtype])
        return 0 if abs(a) != 1 else 1 if a == 1 or n % 2 == 0 else -1

    return Want(each(power, wide(x), wide(y)), dtype)


def _whole(v: float, nearest: Callable[[Fraction], int]) -> float:
    return math.copysign(nearest(Fraction(v)), v) if math.isfinite(v) else v


WHOLE: dict[str, Callable[[Fraction], int]] = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_even": round,
    "round_away": lambda v: math.floor(abs(v) + Fraction(1, 2)) * (1 if v > 0 else -1),
}


def _stepped(nearest: Callable[[Fraction], int]) -> Callable[..., Any]:
    return lambda x: Want(each(lambda v: _whole(v, nearest), wide(x)).astype(np.float64), NAME[x.dtype])


for _name, _nearest in WHOLE.items():
    means(_name)(_stepped(_nearest))


@means("sign")
def sign(x: np.ndarray) -> Want:
    """NaN stays."""
    value = each(lambda v: v if v != v else (v > 0) - (v < 0), wide(x))
    return Want(value if NAME[x.dtype] in INTEGERS else value.astype(np.float64), NAME[x.dtype])


@means("is_finite")
def is_finite(x: np.ndarray) -> np.ndarray:
    """As Python says."""
    return each(math.isfinite, wide(x)).astype(np.bool_)


def _left(whole: Callable[[Any, Any], int]) -> Callable[..., Any]:
    def number(a: Any, b: Any) -> Any:
        if isinstance(a, int):
            return a - b * whole(a, b)
        if not math.isfinite(a) or b != b or b == 0:
            return math.nan
        if math.isinf(b):
            return a if whole(-1, 2) == 0 or a == 0 or (a < 0) == (b < 0) else b
        return float(Fraction(a) - Fraction(b) * whole(Fraction(a), Fraction(b)))

    def meaning(x: np.ndarray, y: np.ndarray) -> Want:
        value = each(number, wide(x), wide(y))
        return Want(value if NAME[x.dtype] in INTEGERS else value.astype(np.float64), NAME[x.dtype])

    return meaning


means("rem")(_left(lambda a, b: quotient(a, b) if isinstance(a, int) else math.trunc(a / b)))
means("mod")(_left(lambda a, b: a // b))


# ---- bits


def bits_of(x: np.ndarray) -> list[int]:
    """The bits of each element as an integer that is not negative."""
    dtype = NAME[x.dtype]
    if BITS[dtype] == 4:
        return [int(v) & 15 for v in x.reshape(-1)]
    return [int(v) for v in np.ascontiguousarray(x).reshape(-1).view(f"u{BITS[dtype] // 8}")]


def from_bits(bits: list[int], dtype: str, shape: Any) -> np.ndarray:
    """The array of elements of those bits."""
    if dtype == "i1":
        return np.array(bits, np.bool_).reshape(shape)
    if BITS[dtype] == 4:
        return np.array([v - 16 if dtype == "si4" and v > 7 else v for v in bits], np.int8).astype(NUMPY[dtype]).reshape(shape)
    return np.array(bits, f"u{BITS[dtype] // 8}").view(NUMPY[dtype]).reshape(shape)


def _by_bits(function: Callable[..., int]) -> Callable[..., Any]:
    def meaning(*xs: np.ndarray) -> np.ndarray:
        dtype = NAME[xs[0].dtype]
        width = BITS[dtype]
        found = [function(width, *v) % (1 << width) for v in zip(*map(_words, xs), strict=True)]
        return from_bits(found, dtype, xs[0].shape)

    return meaning


def _words(x: np.ndarray) -> list[int]:
    return [int(v) for v in x.reshape(-1)] if x.dtype == np.bool_ else bits_of(x)


def _arithmetic(width: int, a: int, n: int) -> int:
    return (a - (1 << width) if a >> (width - 1) else a) >> min(n, width)


for _name, _bits in {
    "bitwise_and": lambda width, a, b: a & b,
    "bitwise_or": lambda width, a, b: a | b,
    "bitwise_xor": lambda width, a, b: a ^ b,
    "bitwise_not": lambda width, a: ~a,
    "shift_left": lambda width, a, n: a << n if n < width else 0,
    "shift_right_logical": lambda width, a, n: a >> min(n, width),
    "shift_right_arithmetic": _arithmetic,
    "popcount": lambda width, a: bin(a).count("1"),
    "count_leading_zeros": lambda width, a: width - a.bit_length(),
}.items():
    means(_name)(_by_bits(_bits))


@means("bitcast")
def bitcast(x: np.ndarray, *, dtype: Any) -> np.ndarray:
    """Parts, the low bits first."""
    source, target = NAME[x.dtype], str(dtype)
    narrow, broad, bits = BITS[target], BITS[source], bits_of(x)
    if narrow < broad:
        parts = broad // narrow
        split = [v >> narrow * k & ((1 << narrow) - 1) for v in bits for k in range(parts)]
        return from_bits(split, target, (*x.shape, parts))
    parts = narrow // broad
    joined = [sum(v << broad * k for k, v in enumerate(bits[i : i + parts])) for i in range(0, len(bits), parts)]
    return from_bits(joined, target, x.shape[:-1] if parts > 1 else x.shape)


# ---- reductions


@means("reduce_prod")
def reduce_prod(x: np.ndarray, *, axes: Any, keepdims: bool = False, accum_dtype: Any = None, out_dtype: Any = None) -> Any:
    """Integers wrap in the accumulator, floats as they come."""
    dtype = NAME[x.dtype]

    def step(a: Any, b: Any) -> Any:
        return a * b

    value = fold(numbers(x), axes, keepdims, step, 1)
    if dtype in INTEGERS:
        accum = name_of(accum_dtype, dtype)
        held = wide(wrap(value, accum)) if value.size else value
        low, high = ml_dtypes.iinfo(NUMPY[dtype]).min, ml_dtypes.iinfo(NUMPY[dtype]).max
        return Want(each(lambda v: min(max(v, int(low)), int(high)), held), dtype)
    value = value.astype(np.complex128 if dtype in COMPLEX else np.float64)
    count = int(max(fold(each(lambda v: 1, numbers(x)), axes, keepdims, plus, 0).reshape(-1).tolist(), default=0))
    with np.errstate(all="ignore"):
        return Want(value, dtype, count + 1, np.abs(value), name_of(accum_dtype, default_accum(dtype)))


def _bits_over(function: Callable[[int, int], int], start: int) -> Callable[..., Any]:
    def meaning(x: np.ndarray, *, axes: Any, keepdims: bool = False) -> np.ndarray:
        dtype = NAME[x.dtype]
        words = np.empty(x.shape, object)
        words.reshape(-1)[:] = _words(x)
        found = fold(words, axes, keepdims, function, start % (1 << BITS[dtype]))
        return from_bits(found.reshape(-1).tolist(), dtype, found.shape)

    return meaning


means("reduce_and")(_bits_over(lambda a, b: a & b, -1))
means("reduce_or")(_bits_over(lambda a, b: a | b, 0))
means("reduce_xor")(_bits_over(lambda a, b: a ^ b, 0))


@means("argmin")
def argmin(x: np.ndarray, *, axis: int, keepdims: bool = False, output_dtype: Any = None) -> np.ndarray:
    """The first of the smallest; a NaN is smaller than all."""
    rows = np.moveaxis(wide(x), axis, -1)
    out = np.empty(rows.shape[:-1], NUMPY[name_of(output_dtype, "si32")])
    for at in np.ndindex(out.shape):
        row = rows[at].tolist()
        out[at] = min(range(len(row)), key=lambda i: (row[i] == row[i], row[i] if row[i] == row[i] else 0, i))
    return np.expand_dims(out, axis) if keepdims else out
