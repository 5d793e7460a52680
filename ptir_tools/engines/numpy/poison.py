"""Poison: memory that is dead is overwritten, so that a step which reads it gives another result.

The pattern is conspicuous in every dtype: NaN in f32, f16 and bf16, huge in f64 and in integers of 32 and 64 bits, no truth value
for i1. It is written by ordinary steps, so linked and unlinked runs are checked alike.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.engines.numpy.steps import Step

PATTERN = 0x7FA5  # in every 16 bits


class Poison:
    """The source of what is written over dead memory."""

    def __init__(self) -> None:
        self.bytes: Array = np.empty(0, np.uint8)

    def over(self, arrays: Iterable[Array]) -> list[Step]:
        """The steps that overwrite arrays, which are dense."""
        raw = [x.reshape(-1).view(np.uint8) for x in arrays if x.size]
        return [(np.copyto, (x, self.like(x))) for x in raw]

    def like(self, raw: Array) -> Array:
        """As many bytes of the pattern."""
        if len(self.bytes) < len(raw):
            self.bytes = np.full(len(raw), PATTERN, np.uint16).view(np.uint8)
        return self.bytes[: len(raw)]

    def fill(self, raw: Array) -> Array:
        """`raw`, overwritten now."""
        np.copyto(raw, self.like(raw))
        return raw


class Seals:
    """Arrays that no step may write: inputs and constants."""

    def __init__(self, arrays: Iterable[tuple[str, Array]]) -> None:
        self.arrays = [*arrays]
        self.sums = [_sum(x) for _, x in self.arrays]

    def check(self) -> None:
        """Raise AssertionError if one has changed."""
        for (name, x), was in zip(self.arrays, self.sums, strict=True):
            if _sum(x) != was:
                raise AssertionError(f"a step wrote to {name}, which is only read")


def _sum(x: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(x).reshape(-1).view(np.uint8).data)
