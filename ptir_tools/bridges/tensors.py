"""What other packages hold as arrays of NumPy."""

from __future__ import annotations

import sys

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import BF16, FP8_E4M3, FP8_E5M2
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

# The floats of PyTorch that NumPy has not: PyTorch gives NumPy their bits only.
_TORCH = {"torch.bfloat16": BF16, "torch.float8_e4m3fn": FP8_E4M3, "torch.float8_e5m2": FP8_E5M2}


def array_of(given: object) -> Array:
    """What is given as an array; by `__array__` or DLPack, or as NumPy reads it. Raises whatever its package does."""
    dtype = _TORCH.get(str(getattr(given, "dtype", "")))
    if dtype is None:
        return np.asarray(given)
    own = sys.modules["torch"]
    bits: Array = cast("torch.Tensor", given).detach().contiguous().view(own.int16 if dtype is BF16 else own.uint8).numpy()
    return bits.view(arrays.numpy_dtype(dtype))
