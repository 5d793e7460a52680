"""Numbers of a text as the bytes of a dtype: the one way for all dialects. Common dtypes need the standard library alone."""

from __future__ import annotations

import struct

from ptir_tools.core import arrays, decimals
from ptir_tools.core.dtypes import BF16, DType, struct_code
from ptir_tools.core.lazy import np


def float_bytes(value: float, dtype: DType) -> bytes:
    """The bytes of what `decimals.read` gave, rounded once. Raises OverflowError when a finite one is beyond the dtype."""
    made = decimals.nearest(value, dtype)
    if (code := struct_code(dtype)) is not None:
        return struct.pack(f"<{code}", made)
    if dtype is BF16:  # the upper half of an f32
        return struct.pack("<f", made)[2:]
    return arrays.pack(np.asarray(made).astype(arrays.numpy_dtype(dtype)), dtype)
