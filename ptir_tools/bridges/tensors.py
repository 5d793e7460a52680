"""Tensors of other packages as NumPy arrays."""

from __future__ import annotations

import sys

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import BF16, FP8_E4M3, FP8_E5M2
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import torch

# PyTorch's floats that NumPy lacks: PyTorch passes only their bits.
_TORCH = {"torch.bfloat16": BF16, "torch.float8_e4m3fn": FP8_E4M3, "torch.float8_e5m2": FP8_E5M2}


def array_of(given: object) -> Array:
    """`given` as an array, by `__array__` or DLPack, or by NumPy's own conversion. Raises whatever its package raises."""
    dtype = _TORCH.get(str(getattr(given, "dtype", "")))
    if dtype is None:
        return np.asarray(given)
    own = sys.modules["torch"]
    bits: Array = cast("torch.Tensor", given).detach().contiguous().view(own.int16 if dtype is BF16 else own.uint8).numpy()
    return bits.view(arrays.numpy_dtype(dtype))
