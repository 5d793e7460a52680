"""Helpers of op bodies: computing in float64 with one rounding, accumulating, moving axes.

NumPy's warnings are off: NaN, infinities, overflow to infinity and integer wrap are values here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import PTIR_DTYPES, DType
from ptir_tools.core.extremes import MAXIMUM, MINIMUM, Extreme
from ptir_tools.core.ir import Attribute
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops.typerules import default_accum

if TYPE_CHECKING:
    from numpy.typing import ArrayLike


def compute(result: TensorType, function: Callable[..., ArrayLike], *operands: Array) -> Array:
    """`function` of the operands in float64 (integers in their own dtype), rounded once to the dtype of `result`."""
    with np.errstate(all="ignore"):
        return arrays.narrow(np.asarray(function(*map(arrays.widened, operands))), result.dtype)


def ufunc(kind: str) -> np.ufunc | Extreme:
    """The NumPy ufunc of a kind of reduction; max and min propagate NaN and order zeros."""
    if kind in _EXTREMES:
        return _EXTREMES[kind]
    found: np.ufunc = getattr(np, _UFUNCS[kind])
    return found


_EXTREMES = {"max": MAXIMUM, "min": MINIMUM}
_UFUNCS = {
    "sum": "add", "add": "add", "prod": "multiply", "mul": "multiply",
    "and": "bitwise_and", "or": "bitwise_or", "xor": "bitwise_xor",
}  # fmt: skip


def identity(kind: str, dtype: DType) -> bool | int | float:
    """The result of a reduction over nothing: 0 for sum, 1 for prod, the lowest value for max, the highest for min."""
    if kind in ("sum", "prod"):
        return int(kind == "prod")
    if dtype.is_float:
        return float("-inf" if kind == "max" else "inf")
    return dtype.min if kind == "max" else dtype.max


def keeps_one(kind: str, dtype: DType) -> bool:
    """Whether a reduction of one element is that element to the bit. A sum of floats is not: it turns -0.0 into 0.0."""
    return kind != "sum" or dtype.is_integer


def reduce(kind: str, x: Array, source: DType, accum: DType | None, out: DType, axes: Sequence[int], keepdims: bool) -> Array:
    """Sum, max or min of `x` over `axes`: accumulated in `accum` (floats in float64, rounded to it once), cast to `out`."""
    accum = accum or default_accum(source)
    wide = arrays.widen(arrays.cast(x, source, accum) if source.is_integer else x)
    wide = np.asarray(wide, order="C")  # which NaN results must not depend on the layout in memory
    start: dict[str, Attribute] = {} if kind in ("sum", "prod") else {"initial": identity(kind, source)}
    with np.errstate(all="ignore"):
        total = ufunc(kind).reduce(wide, axis=tuple(axes), keepdims=keepdims, dtype=wide.dtype, **start)
        return cast_accumulated(np.asarray(total), accum, out)


def reduce_bits(combine: Callable[..., ArrayLike], x: Array, axes: Sequence[int], keepdims: bool, out: DType) -> Array:
    """The bitwise reduction `combine` of `x` over `axes`."""
    return arrays.narrow(np.asarray(combine(arrays.widen(x), axis=tuple(axes), keepdims=keepdims)), out)


def cast_accumulated(total: Array, accum: DType, out: DType) -> Array:
    """`total` rounded or wrapped to the accumulator's dtype, then cast to `out`."""
    return arrays.cast(arrays.narrow(total, accum), accum, out)


def truncated_quotient(x: Array, y: Array) -> Array:
    """Integer division that truncates toward zero; `y` has no zero. The lowest value divided by -1 wraps to itself."""
    if x.dtype.kind == "u":
        return np.asarray(x // y)
    floor = x // y
    inexact = floor * y != x
    return np.asarray(floor + (inexact & ((x < 0) != (y < 0))).astype(x.dtype))


def dtype_of(x: Array) -> DType:
    """The dtype of the elements of `x`."""
    return _dtypes_by_numpy()[x.dtype]


@cache
def _dtypes_by_numpy() -> dict[np.dtype, DType]:
    return {arrays.numpy_dtype(d): d for d in PTIR_DTYPES}
