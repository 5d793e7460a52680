"""Numbers in a program: immediates, the value of PAD, the fill of VIEW, the init of REDUCE."""

from __future__ import annotations

import math
import struct
from collections.abc import Container

from ptir_tools.core import arrays, decimals
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F64, I1, SI64, DType
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import np
from ptir_tools.core.types import tensor
from ptir_tools.core.violations import Place, Violation, operand, require
from ptir_tools.dialects.tiny.ops.rules import SPELLED, Scalar

# Spellings of floats for which JSON has no token. A writer takes the first spelling that is not the id of a node.
WORDS: dict[str, float] = {
    word: value
    for value, words in (
        (math.inf, ("inf", "INF", "+inf", "+INF", "Infinity")),
        (-math.inf, ("-inf", "-INF", "-Infinity")),
        (math.nan, ("nan", "NaN", "NAN")),
    )
    for word in words
}


def word_for(value: float, taken: Container[str] = ()) -> str | None:
    """The spelling of a number that is not finite; None if `taken`, the ids of a program, has all spellings."""
    same = [w for w, v in WORDS.items() if v == value or (v != v and value != value)]
    return next((w for w in same if w not in taken), None)


def dtype_of(array: Array) -> DType:
    """The dtype of an array: one of Tiny's, or f64, in which errors are computed."""
    return next(d for d in (*SPELLED, F64) if arrays.numpy_dtype(d) == array.dtype)


def as_array(value: Scalar, dtype: DType) -> Array:
    """The rank-0 array of a number that fits `dtype`, rounded once."""
    if dtype.is_float:
        value = decimals.nearest(value if isinstance(value, float) else decimals.read(str(int(value))), dtype)
    return np.asarray(value).astype(arrays.numpy_dtype(dtype))


def immediate(value: Scalar, dtype: DType) -> Literal:
    """A number that fits `dtype` as an operand of rank 0, rounded once."""
    return Literal(tensor(dtype), arrays.pack(as_array(value, dtype), dtype))


def require_fits(
    value: Scalar, dtype: DType, what: str, overflow: str = "DtypeMismatch", *, at: str | Place | None = None
) -> None:
    """Check that `value` is representable in `dtype`: bool only as bool (also 0 and 1), integers as i32, no overflow.

    Raises Violation: "DtypeMismatch" for a number of another kind, `overflow` for one out of range.
    """
    named = f"{what}, {_shown(value)}, does not fit {SPELLED.get(dtype, dtype)}"
    if dtype is I1:
        require(isinstance(value, bool) or value in (0, 1), "DtypeMismatch", named, at=at)
        return
    require(not isinstance(value, bool), "DtypeMismatch", named, at=at)
    if dtype.is_float:
        require(_holds(value, dtype), overflow, f"{what}, {_shown(value)}, overflows {SPELLED[dtype]}", at=at)
        return
    require(not isinstance(value, float) or math.isfinite(value), overflow, named, at=at)
    require(value == int(value), "DtypeMismatch", named, at=at)
    message = f"{what}, {_shown(value)}, is out of range of {SPELLED[dtype]}"
    require(dtype.min <= value <= dtype.max, overflow, message, at=at)


def _shown(value: Scalar) -> str:
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= 24 else text[:24] + "…"


def _holds(value: Scalar, dtype: DType) -> bool:
    try:
        as_array(value, dtype)
    except OverflowError:
        return False
    return True


def untyped(value: Scalar) -> Literal:
    """An immediate as it is read, before it gets the dtype of its sibling: i1, si64 or f64.

    Raises Violation("InvalidSource") for an integer that none of them can hold.
    """
    if isinstance(value, bool):
        return Literal(tensor(I1), bytes([value]))
    if isinstance(value, int):
        require(-(2**63) <= value < 2**63, "InvalidSource", f"the immediate {_shown(value)} has more than 64 bits")
        return Literal(tensor(SI64), struct.pack("<q", value))
    return Literal(tensor(F64), struct.pack("<d", decimals.narrowing(value)))


def value_of(x: Literal) -> Scalar:
    """The number of an immediate, typed or not. A float is the shortest decimal that reads back to the same bits in its dtype."""
    array = arrays.from_literal(x)
    if x.type.dtype.is_float:
        return float(str(array.item()) if x.type.dtype is F64 else str(array[()]))
    found: Scalar = array.item()
    return found


def typed(x: Literal, dtype: DType, number: int) -> Literal:
    """The immediate, operand `number`, in the dtype of its sibling. Raises Violation("DtypeMismatch") when it is not
    representable."""
    if x.type.dtype is dtype:
        return x
    if x.type.dtype not in (I1, SI64, F64):
        raise Violation(
            "DtypeMismatch", f"an immediate of {x.type.dtype} next to {SPELLED.get(dtype, dtype)}", at=operand(number)
        )
    value = value_of(x)
    if dtype is I1:
        require(isinstance(value, bool), "DtypeMismatch", f"the immediate {_shown(value)} is not a bool", at=operand(number))
    require_fits(value, dtype, "the immediate", at=operand(number))
    return immediate(value, dtype)
