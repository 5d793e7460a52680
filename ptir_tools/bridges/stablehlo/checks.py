"""What a program asserts and types do not say: it is checked when the program runs.

PTIR has no op for that, and the error of an op that no result needs is no error. So each result is read at an index that is
outside where an assertion does not hold.
"""

from __future__ import annotations

from ptir_tools.core.dtypes import SI64
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.builder.build import Block, Tensor


class Checks:
    """The assertions of each block, as an index: 0, which is an error to compute where one of them does not hold."""

    def __init__(self) -> None:
        self.places: dict[Block, Tensor] = {}

    def add(self, flag: Tensor) -> None:
        """Have what the block gives depend on a truth value."""
        block = flag.block
        zero, one = (block.constant(np.full((), n), SI64) for n in (0, 1))
        place = self.places.get(block, zero)
        self.places[block] = place.reshape([1]).take(block.op("select", flag, zero, one))

    def before(self, block: Block, x: Tensor) -> Tensor:
        """A result of a block, which is an error where an assertion of the block does not hold."""
        place = self.places.get(block)
        return x if place is None else x.reshape([1, *x.shape]).take(place)
