"""The limit on memory, checked before allocation."""

from __future__ import annotations

import os
from collections.abc import Iterable
from math import prod

from ptir_tools.core.dialect import Program
from ptir_tools.core.dtypes import DType
from ptir_tools.core.limits import LimitExceeded, current
from ptir_tools.core.types import TensorType, leaves


def require_memory(need: int) -> None:
    """Raise LimitExceeded if `need` bytes are above the limit (by default half of the machine's memory)."""
    limit = current().memory
    if limit is None:
        limit = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    if need > limit:
        raise LimitExceeded(f"needs {size_text(need)} of memory, the limit is {size_text(limit)}", "--max-memory")


def size_text(count: int) -> str:
    """Bytes for people: `4.0 EiB`."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min(max(count.bit_length() - 1, 0) // 10, len(units) - 1)
    return f"{count} bytes" if not power else f"{count / 1024**power:.1f} {units[power]}"


def addressed(dtype: DType, shape: Iterable[int]) -> int:
    """The bytes of an array as NumPy counts them: an extent of 0 counts as 1."""
    return prod(max(d, 1) for d in shape) * dtype.size


def widest_empty(program: Program) -> int:
    """The most bytes, by `addressed`, of an empty tensor; types with symbols are ignored."""
    types = {v.type for block in program.blocks() for op in block.body for v in op.results}
    empty = (t for x in types for t in leaves(x) if isinstance(t, TensorType) and t.is_static and 0 in t.shape)
    return max((addressed(t.dtype, t.static_shape) for t in empty), default=0)
