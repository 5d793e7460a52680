"""Assertions that types do not imply: the program checks them when it runs.

PTIR has no assert op, and an error of a dead op is not reported. So each result is read at an index that is out of bounds where
an assertion fails.
"""

from __future__ import annotations

from ptir_tools.core.dtypes import SI64
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Block, Tensor


class Checks:
    """The assertions of each block, as an index: 0, or an error where one of them fails."""

    def __init__(self) -> None:
        self.places: dict[Block, Tensor] = {}

    def add(self, flag: Tensor) -> None:
        """Make the results of the block depend on a truth value."""
        block = flag.block
        zero, one = (block.constant(np.full((), n), SI64) for n in (0, 1))
        place = self.places.get(block, zero)
        self.places[block] = place.reshape([1]).take(flag.select(zero, one))

    def before(self, block: Block, x: Tensor) -> Tensor:
        """A result of a block, which is an error where an assertion of the block fails."""
        place = self.places.get(block)
        return x if place is None else x.reshape([1, *x.shape]).take(place)
