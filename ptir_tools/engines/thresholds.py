"""The sizes at which an engine does something in another way. Tests lower them, so that small programs reach every path."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from ptir_tools.core.records import dataclass


@dataclass(slots=True)
class Thresholds:
    """The usual sizes. They change speed only, never a result's bounds."""

    # Threads: for less work, a second thread costs more than it saves.
    work: int = 1 << 16  # element operations
    multiplications: int = 1 << 20  # multiplications of a product
    long_product: int = 1 << 28  # multiplications of a product that other work may interrupt
    python_elements: int = 1 << 20  # elements of a step in Python
    quantized: int = 1 << 15  # elements of a quantization
    matrix: int = 1 << 16  # elements of the matrices that one row is multiplied by
    # Columns of such a matrix per part, if a thread has several parts: shorter pieces of rows are read more slowly.
    columns_of_part: int = 256

    # Products.
    few: int = 4  # rows or columns for which packing the other operand costs too much
    large_matrix: int = 1 << 15  # elements of a right operand whose packing costs too much for `some` rows
    some: int = 32
    fewest: int = 24  # rows of a product; for fewer, reading the right operand takes most of the time
    narrowest: int = 4  # columns for which a right operand is packed
    cached_right: int = 1 << 17  # elements of a right operand that stays in cache
    packed_by_all: int = 1 << 14  # elements of a right operand that several threads pack
    packed_by_each: int = 1 << 19  # bytes of a right operand that each thread packs for itself
    packed_each_run: int = 1 << 22  # elements of a right operand that is packed for one run, at most
    block: int = 1 << 15  # elements of a block of the result
    rows_of_block: int = 96  # rows of a block are a multiple of this, the rows that kernels pack at once
    widened: int = 192  # rows of narrow floats that are converted to f32 at a time; also such a multiple

    # Attention, pairs of convolutions, pooling.
    scores: int = 1 << 14  # scores of attention; for fewer, separate steps are faster
    rows_of_head: int = 8  # rows of a head; for fewer, vectors along them are too short
    rows_of_part: int = 96  # least rows of a part, because each part packs keys and values
    pair: int = 1 << 20  # bytes of a product that does not stay in cache until the convolution reads it
    band: int = 1 << 19  # bytes of a band of such a product
    channels: int = 8  # channels of an image; for fewer, vectors along them are too short

    # Elementwise chains, reductions, copies.
    small: int = 1 << 14  # elements for which any kernel is as fast as NumPy's function, and needs no Python
    past_cache: int = 1 << 23  # bytes of results that do not stay in a usual cache
    share_of_cache: int = 16  # results of up to a 16th of the last-level cache are expected to stay in it
    row: int = 1 << 14  # elements of a row that is reduced: it has to stay in cache
    reduced_row: int = 64  # elements of a row for which NumPy reduces equally fast, at most
    short_row: int = 8  # elements of a row that is reduced column by column, at most
    short_rows: int = 256  # rows of so few elements for which that is faster
    taps: int = 64  # taps of a window from which its patches are copied as a whole
    transposed: int = 1 << 12  # elements from which a copy with another axis order is made by blocks
    taken_row: int = 256  # bytes of a row from which the kernel is faster for more than `taken_rows` of them
    taken_rows: int = 1 << 12
    copied: int = 1 << 12  # elements of a copy element by element, and of operations on integers, at most
    run: int = 64  # contiguous bytes of a longer copy

    # Memory.
    scratch: int = 1 << 14  # initial bytes of scratch: a program whose steps need more may be built twice
    lent: int = 1 << 16  # bytes of an array that is copied instead of bound or lent, at most
    freed_literal: int = 1 << 12  # least bytes of a literal that is freed once it is converted
    trimmed: int = 1 << 22  # freed bytes; for fewer, returning them to the system costs too much


_LOW = {
    **dict.fromkeys(("work", "multiplications", "long_product", "python_elements", "quantized", "matrix", "packed_by_all"), 1),
    **dict.fromkeys(("scores", "pair", "channels", "transposed", "trimmed"), 1),
    **dict.fromkeys(("few", "some", "narrowest", "fewest", "rows_of_head", "short_row", "short_rows"), 2),
    **dict.fromkeys(("reduced_row", "taken_row", "taken_rows", "columns_of_part", "taps"), 4),
    **dict.fromkeys(("rows_of_block", "widened", "rows_of_part", "run"), 8),
    **dict.fromkeys(("small", "copied"), 16),
    **dict.fromkeys(("row", "scratch", "freed_literal"), 64),
    **dict.fromkeys(("packed_by_each", "past_cache", "lent", "cached_right", "block"), 256),
    **{"band": 1 << 10, "large_matrix": 1 << 12, "packed_each_run": 1 << 12, "share_of_cache": 1 << 40},
}


def lower(**others: int) -> None:
    """Lower every size for the rest of the process; `others` are sizes by name."""
    for name, value in {**_LOW, **others}.items():
        setattr(at, name, value)


@contextmanager
def lowered(**others: int) -> Iterator[None]:
    """Lower every size inside. Programs prepared there keep their steps."""
    before = {name: getattr(at, name) for name in {**_LOW, **others}}
    lower(**others)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(at, name, value)


at = Thresholds()
if os.environ.get("PTIR_THRESHOLDS") == "low":
    lower()
