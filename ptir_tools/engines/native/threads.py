"""Several threads on one step: parts that write different memory, taken from one queue by whoever is free.

The kernels let other threads run while they work. The caller takes parts, too, so that it can finish alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ptir_tools.core.lazy import lazy
from ptir_tools.engines.numpy.steps import Step

if TYPE_CHECKING:
    from concurrent import futures
else:
    futures = lazy("concurrent.futures")

WORTH = 1 << 21  # element operations below which a second thread costs more than it gives
PRODUCT_WORTH = 1 << 25  # multiplications of a product, likewise: every thread packs the whole right operand


def count(wanted: int) -> int:
    """How many threads to use; 0 asks for one per core that this process may use."""
    if wanted:
        return wanted
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def cuts(length: int, parts: int) -> list[slice]:
    """[0, length) in at most `parts` slices of about the same length, none of them empty."""
    parts = max(1, min(parts, length))
    edges = [length * i // parts for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def together(parts: Sequence[Step], threads: int) -> list[Step]:
    """The steps that do all of `parts`, which write different memory, on up to `threads` threads."""
    if threads < 2 or len(parts) < 2:
        return list(parts)
    return [(_run, (_pool(), min(threads, len(parts)) - 1, parts))]


@cache
def _pool() -> futures.ThreadPoolExecutor:
    return futures.ThreadPoolExecutor(max_workers=max(64, os.cpu_count() or 1), thread_name_prefix="ptir")


def _run(pool: futures.ThreadPoolExecutor, helpers: int, parts: Sequence[Step]) -> None:
    queue = iter(parts)
    waiting = [pool.submit(_drain, queue) for _ in range(helpers)]
    try:
        _drain(queue)
    except BaseException:
        _drop(queue)
        raise
    for helper in waiting:
        if not helper.cancel():
            helper.result()


def _drop(queue: Iterator[Step]) -> None:
    """Leave nothing for the helpers: an interrupted run is over."""
    for _ in queue:
        pass


def _drain(queue: Iterator[Step]) -> None:
    for function, arguments in queue:
        function(*arguments)
