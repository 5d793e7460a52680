"""What the extension ops give, by hand: Python's integers and fractions, and NumPy's widest floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from tests.oracles.by_hand import converted, each, fold, larger, means, name_of, numbers, plus, quotient, smaller, start_of
from tests.oracles.check import DIGITS, Want, default_accum, wide
from tests.ptir.oracle import BITS, COMPLEX, INTEGERS, NAME, NUMPY, rounded, wrap

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
    """Integers wrap in the accumulator, floats as they come; both are converted to `out_dtype`."""
    dtype = NAME[x.dtype]
    accum, out = name_of(accum_dtype, default_accum(dtype)), name_of(out_dtype, dtype)

    def step(a: Any, b: Any) -> Any:
        return a * b

    value = fold(numbers(x), axes, keepdims, step, 1)
    if dtype in INTEGERS:
        accum = name_of(accum_dtype, dtype)
        return converted(wide(wrap(value, accum)) if value.size else value, accum, out)
    value = value.astype(np.complex128 if dtype in COMPLEX else np.float64)
    if out in (*INTEGERS, "i1"):
        return converted(wide(rounded(value, accum)), accum, out)
    count = int(max(fold(each(lambda v: 1, numbers(x)), axes, keepdims, plus, 0).reshape(-1).tolist(), default=0))
    with np.errstate(all="ignore"):
        return Want(value, out, count + 1, np.abs(value), accum)


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


# ---- special functions


def _bisected(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a rising function becomes positive, by halving."""
    while (mid := (low + high) / 2) not in (low, high):
        low, high = (low, mid) if function(mid) > 0 else (mid, high)
    return low


def _erf_inv(x: float) -> float:
    if not abs(x) < 1:
        return math.copysign(math.inf, x) if abs(x) == 1 else math.nan
    if abs(x) < 1e-8:
        return x * math.sqrt(math.pi) / 2
    size = abs(x)
    return math.copysign(_bisected(lambda y: math.erf(y) - size if size < 0.5 else (1 - size) - math.erfc(y), 0.0, 6.0), x)


def _stirling(x: Any) -> tuple[Any, Any]:
    """lgamma and digamma of a positive number, shifted up by 40, in the widest float."""
    y, logs, sums = np.longdouble(x) + 40, np.longdouble(0), np.longdouble(0)
    for k in range(40):
        logs, sums = logs + np.log(np.longdouble(x) + k), sums + 1 / (np.longdouble(x) + k)
    inverse = 1 / (y * y)
    half_log = np.log(2 * np.pi * np.longdouble(1)) / 2
    gamma = (y - 0.5) * np.log(y) - y + half_log + (1 / np.longdouble(12) - inverse / 360 + inverse * inverse / 1260) / y
    psi = np.log(y) - 0.5 / y - inverse / 12 + inverse * inverse / 120 - inverse * inverse * inverse / 252
    return gamma - logs, psi - sums


def _gamma(which: int) -> Callable[[float], float]:
    def value(x: float) -> float:
        if x != x or x == math.inf:
            return x
        if x == -math.inf:
            return (math.inf, math.nan)[which]
        if x <= 0 and x == math.floor(x):
            return (math.inf, math.nan)[which]
        if x > 0:
            return float(_stirling(x)[which])
        turn = np.longdouble(x - round(x)) * np.arccos(np.longdouble(-1))
        reflected = _stirling(1 - np.longdouble(x))[which]
        pi = np.arccos(np.longdouble(-1))
        return float(np.log(pi / abs(np.sin(turn))) - reflected if which == 0 else reflected - pi / np.tan(turn))

    return value


def _special(function: Callable[[float], float], least: float) -> Callable[..., Any]:
    def meaning(x: np.ndarray) -> Want:
        value = each(function, wide(x)).astype(np.float64)
        return Want(value, NAME[x.dtype], 64, np.abs(value) + least)

    return meaning


means("erf_inv")(_special(_erf_inv, 0.0))
means("lgamma")(_special(_gamma(0), 1.0))
means("digamma")(_special(_gamma(1), 1.0))


def _table(dtype: str) -> list[int]:
    """The bits of all finite numbers and infinities of a narrow dtype, from small to large; -0.0 is left out."""
    bits = list(range(1 << BITS[dtype]))
    with np.errstate(invalid="ignore"):  # signaling NaNs
        values = from_bits(bits, dtype, len(bits)).astype(np.float64)
    keep = [b for b in bits if values[b] == values[b] and not (values[b] == 0 and b)]
    return sorted(keep, key=lambda b: values[b])


@means("nextafter")
def nextafter(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The neighbour in the table of all numbers; f32 and f64 by math."""
    dtype = NAME[x.dtype]
    if BITS[dtype] > 16:
        near = np.array([np.nextafter(a, b) for a, b in zip(x.reshape(-1), y.reshape(-1), strict=True)], x.dtype).reshape(x.shape)
        return np.where(np.isnan(near), np.asarray(np.nan, x.dtype), near)  # the sign of a NaN is the library's
    table = _table(dtype)
    zero = 0
    found = []
    for a, b, bits, target in zip(wide(x).reshape(-1), wide(y).reshape(-1), bits_of(x), bits_of(y), strict=True):
        if a != a or b != b:
            found.append(bits_of(np.array([np.nan], NUMPY[dtype]))[0])
        elif a == b:
            found.append(target)
        else:
            at = table.index(zero if a == 0 else bits) + (1 if b > a else -1)
            least = table[at]
            found.append(least | 1 << BITS[dtype] - 1 if least == 0 and a < 0 else least)
    return from_bits(found, dtype, x.shape)


@means("reduce_precision")
def reduce_precision(x: np.ndarray, *, exponent_bits: int, mantissa_bits: int) -> Want:
    """By fractions: the nearest of so many digits, ties to even, then the range."""
    dtype = NAME[x.dtype]
    digits = DIGITS[dtype]
    own = BITS[dtype] - digits
    smallest = 2 - (1 << own - 1)  # the exponent of the smallest normal number of the dtype

    def number(v: float) -> float:
        if not math.isfinite(v) or v == 0:
            return v
        exponent = max(math.frexp(v)[1] - 1, smallest)
        unit = Fraction(2) ** (exponent - min(mantissa_bits, digits - 1))
        whole = round(Fraction(v) / unit)
        if mantissa_bits == 0 and Fraction(abs(v)) == unit * Fraction(3, 2):  # the even one of two powers of two, by its bits
            whole = 2 if (exponent - smallest + 1) % 2 else 1
        near = float(whole * unit) if abs(v) < 1e308 else v
        if exponent_bits < own and near:
            most = (1 << exponent_bits - 1) - 1
            at = math.frexp(near)[1] - 1
            near = math.inf if at > most else 0.0 if at < 1 - most else abs(near)
        return math.copysign(near, v)

    return Want(each(number, wide(x)).astype(np.float64), dtype)


# ---- complex numbers


def _part(which: int) -> Callable[..., Any]:
    def meaning(x: np.ndarray) -> np.ndarray:
        element = np.float32 if NAME[x.dtype] == "cf32" else np.float64
        return np.ascontiguousarray(x).reshape(-1).view(element)[which::2].reshape(x.shape)

    return meaning


means("real")(_part(0))
means("imag")(_part(1))


@means("complex")
def complex_(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    """A pair in memory."""
    pairs = np.stack([re.reshape(-1), im.reshape(-1)], -1)
    return np.ascontiguousarray(pairs).view(np.complex64 if re.dtype == np.float32 else np.complex128).reshape(re.shape)


# ---- along an axis


def _running(kind: str) -> Callable[..., Any]:
    steps: dict[str, Callable[[Any, Any], Any]] = {"sum": plus, "prod": lambda a, b: a * b, "max": larger, "min": smaller}
    step = steps[kind]

    def meaning(x: np.ndarray, *, axis: int, exclusive: bool = False, reverse: bool = False) -> Want:
        dtype = NAME[x.dtype]
        start = 1 if kind == "prod" else start_of(kind, dtype)
        rows, sizes = np.moveaxis(numbers(x), axis, -1), np.moveaxis(each(abs, numbers(x)), axis, -1)
        out, scale = np.empty(rows.shape, object), np.empty(rows.shape, object)
        for at in np.ndindex(rows.shape):
            k, n = at[-1], rows.shape[-1]
            chosen = range(k + exclusive, n) if reverse else range(k + 1 - exclusive)
            total, size = start, 0.0
            for i in reversed(chosen) if reverse else chosen:
                total = rows[(*at[:-1], i)] if total is start and kind in ("max", "min") else step(total, rows[(*at[:-1], i)])
                size = size + float(sizes[(*at[:-1], i)]) if kind == "sum" else 0.0
            out[at], scale[at] = total, size
        value = np.moveaxis(out, -1, axis)
        if dtype in INTEGERS:
            return Want(value, dtype)
        value = value.astype(np.complex128 if dtype in COMPLEX else np.float64)
        spread = np.abs(value) if kind == "prod" else np.moveaxis(scale, -1, axis).astype(np.float64)
        return Want(value, dtype, 0 if kind in ("max", "min") else x.shape[axis] + 1, spread)

    return meaning


for _kind in ("sum", "prod", "max", "min"):
    means(f"cum{_kind}")(_running(_kind))


@means("sort")
def sort(xs: list[np.ndarray], *, axis: int = -1, keys: int = 1, descending: bool = False) -> Any:
    """Row by row, by Python's stable sort; a NaN is above all."""
    moved = [np.moveaxis(x, axis, -1) for x in xs]
    known = [np.moveaxis(x.astype(object) if x.dtype == np.bool_ else wide(x), axis, -1) for x in xs[:keys]]
    out = [np.empty_like(m) for m in moved]
    for at in np.ndindex(moved[0].shape[:-1]):
        rows = [[(v != v, 0 if v != v else v) for v in key[at].tolist()] for key in known]
        order = sorted(range(moved[0].shape[-1]), key=lambda i: [row[i] for row in rows], reverse=descending)
        for o, m in zip(out, moved, strict=True):
            o[at] = m[at][order]
    found = tuple(np.moveaxis(o, -1, axis) for o in out)
    return found if len(found) > 1 else found[0]
