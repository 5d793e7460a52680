"""Numbers of a text as the bytes of a dtype: the one way for all dialects. Common dtypes need the standard library alone."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence

from ptir_tools.core import arrays, decimals
from ptir_tools.core.dtypes import BF16, F32, F64, DType, struct_code
from ptir_tools.core.lazy import np


def float_bytes(value: float, dtype: DType) -> bytes:
    """The bytes of what `decimals.read` gave, rounded once. Raises OverflowError when a finite one is beyond the dtype."""
    made = decimals.nearest(value, dtype)
    if (code := struct_code(dtype)) is not None:
        return struct.pack(f"<{code}", made)
    if dtype is BF16:  # the upper half of an f32
        return struct.pack("<f", made)[2:]
    return arrays.pack(np.asarray(made).astype(arrays.numpy_dtype(dtype)), dtype)


def all_float_bytes(values: Sequence[float], dtype: DType) -> bytes:
    """`float_bytes` of each."""
    if dtype in (F32, F64) and {*map(type, values)} == {float} and all(map(math.isfinite, values)):
        return struct.pack(f"<{len(values)}{struct_code(dtype)}", *values)
    if (made := decimals.all_nearest(values, dtype)) is not None:
        return arrays.pack(made.astype(arrays.numpy_dtype(dtype)), dtype)
    return b"".join([float_bytes(v, dtype) for v in values])
