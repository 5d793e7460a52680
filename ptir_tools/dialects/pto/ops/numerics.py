"""Arithmetic of scalar and tile ops, on arrays widened by `arrays.widen` (floats are float64)."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import DType, Kind
from ptir_tools.core.extremes import MAXIMUM
from ptir_tools.core.lazy import np
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.names import DTYPE_TEXT

Function = Callable[..., Array]
_DTYPES = {d.numpy: d for d in DTYPE_TEXT}


def apply(fn: Function, dtype: DType, *xs: Array) -> Array:
    """`fn` of `xs` in the widened precision, rounded once to `dtype`; integers wrap, i1 too."""
    with np.errstate(all="ignore"):
        if all(x.dtype == np.bool_ for x in map(np.asarray, xs)):
            return np.asarray(fn(*(np.asarray(x, np.int64) for x in xs)) & 1, np.bool_)
        wide = np.asarray(fn(*(arrays.widen(np.asarray(x)) for x in xs)))
        return arrays.narrow(wide, dtype)


def is_integer(x: Array) -> bool:
    """Whether `x` holds integers."""
    return bool(x.dtype.kind in "iu")


def relu(x: Array) -> Array:
    """`x` where positive, else 0; NaN stays."""
    return MAXIMUM(x, np.zeros((), x.dtype))


def divide(a: Array, b: Array) -> Array:
    """Quotient: of integers truncated toward zero, of floats by IEEE. Raises Violation("IntegerDivideByZero")."""
    return truncated(a, _nonzero(b)) if is_integer(a) else a / b


def truncated(a: Array, b: Array) -> Array:
    """The integer quotient of `a` and a nonzero `b`, rounded toward zero; the smallest by -1 wraps."""
    quotient: Array = a // b
    up: Array = ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return quotient + up


def remainder(a: Array, b: Array) -> Array:
    """The remainder of `divide`: it has the sign of `a`. Raises Violation("IntegerDivideByZero")."""
    return a - truncated(a, _nonzero(b)) * b if is_integer(a) else np.fmod(a, b)


def floor_remainder(a: Array, b: Array) -> Array:
    """The remainder with the sign of `b`. Raises Violation("IntegerDivideByZero")."""
    return np.mod(a, _nonzero(b)) if is_integer(a) else np.mod(a, b)


def floor_divide(a: Array, b: Array) -> Array:
    """The integer quotient rounded down. Raises Violation("IntegerDivideByZero")."""
    return a // _nonzero(b)


def ceil_divide(a: Array, b: Array) -> Array:
    """The integer quotient rounded up. Raises Violation("IntegerDivideByZero")."""
    quotient: Array = a // _nonzero(b)
    rest: Array = (quotient * b != a).astype(a.dtype)
    return quotient + rest


def _nonzero(b: Array) -> Array:
    if not np.all(b):
        raise Violation("IntegerDivideByZero", "integer division by zero")
    return b


def unsigned(fn: Function) -> Function:
    """`fn` on the bits of signed integers read as unsigned."""

    def compute(a: Array, b: Array) -> Array:
        wide = np.dtype(f"u{a.dtype.itemsize}")
        return np.asarray(fn(a.view(wide), b.view(wide)))

    return compute


def shift_left(a: Array, b: Array) -> Array:
    """`a << b`; shifting by the width or more gives 0."""
    width = a.dtype.itemsize * 8
    inside = (b >= 0) & (b < width)
    return np.where(inside, a << np.where(inside, b, 0).astype(a.dtype), 0).astype(a.dtype)


def shift_right(a: Array, b: Array) -> Array:
    """`a >> b`, arithmetic for signed integers; shifting by the width or more leaves the sign."""
    width = a.dtype.itemsize * 8
    made: Array = a >> np.where((b >= 0) & (b < width), b, width - 1).astype(a.dtype)
    return made


COMPARISONS: dict[str, Function] = {
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
}

# How a float becomes an integer; float to float is always to nearest even.
ROUNDING: dict[str, Function] = {
    "CAST_RINT": lambda x: np.rint(x),
    "CAST_NONE": lambda x: np.rint(x),
    "CAST_ROUND": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
    "CAST_FLOOR": lambda x: np.floor(x),
    "CAST_CEIL": lambda x: np.ceil(x),
    "CAST_TRUNC": lambda x: np.trunc(x),
    "CAST_ODD": lambda x: _to_odd(x),
}


def _to_odd(x: Array) -> Array:
    down = np.floor(x)
    return np.where((down == x) | (np.abs(np.fmod(down, 2)) == 1), down, down + 1)


def convert(x: Array, source: DType, target: DType, rmode: str = "CAST_RINT") -> Array:
    """Elements of `source` as `target`. Floats to integers round by `rmode` and saturate; NaN gives 0. Integers to integers
    wrap. Any result that is a float is rounded to nearest even."""
    if source is target:
        return x
    if source.is_float and target.is_integer:
        with np.errstate(all="ignore"):
            whole = ROUNDING[rmode](x.astype(np.float64))
        return arrays.saturate_float(whole, target)
    if target.is_float or source.is_float or target.kind is Kind.BOOL:
        return arrays.cast(x, source, target)
    with np.errstate(all="ignore"):
        return x.astype(arrays.numpy_dtype(target))


def dtype_of(x: Array) -> DType:
    """The element type of an array (of int64: i64)."""
    return _DTYPES[x.dtype.name]


def from_f64(x: Array, target: DType) -> Array:
    """float64 as `target`: rounded to nearest even; integers saturate, NaN gives 0."""
    return arrays.saturate_float(np.rint(x), target) if target.is_integer else arrays.round_float(x, target)


def to_array(values: Array, source: DType, target: Array) -> Array:
    """`values` as elements of the array `target`, converted as `convert` does."""
    return values if values.dtype == target.dtype else convert(values, source, dtype_of(target))
