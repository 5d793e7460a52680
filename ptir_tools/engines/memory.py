"""The limit on memory, checked before allocation."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.types import TensorType, leaves


def addressed(dtype: DType, shape: Iterable[int]) -> int:
    """The bytes of an array as NumPy counts them: an extent of 0 counts as 1."""
    return prod(max(d, 1) for d in shape) * dtype.size


def widest_empty(program: Program) -> int:
    """The most bytes, by `addressed`, of an empty tensor; types with symbols are ignored."""
    types = {v.type for block in program.blocks() for op in block.body for v in op.results}
    empty = (t for x in types for t in leaves(x) if isinstance(t, TensorType) and t.is_static and 0 in t.shape)
    return max((addressed(t.dtype, t.static_shape) for t in empty), default=0)
