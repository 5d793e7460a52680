"""Several threads on one step: parts that write different memory, in one queue.

Kernels release the interpreter's lock. The caller takes parts, too, so that it can finish alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.engines.numpy.steps import Step
from ptir_tools.engines.thresholds import at

if TYPE_CHECKING:
    from concurrent import futures


else:
    futures = lazy("concurrent.futures")

ROWS, BLOCKS = 8, 96  # rows of a kernel's block; rows that it packs at once


def count(wanted: int) -> int:
    """The number of threads; 0 means one per core that this process may use."""
    if wanted:
        return wanted
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def cuts(length: int, parts: int, unit: int = 1) -> list[slice]:
    """At most `parts` slices of [0, length) of about equal length, not empty, which begin at multiples of `unit`."""
    blocks = -(-length // unit)
    parts = max(1, min(parts, blocks))
    edges = [min(blocks * i // parts * unit, length) for i in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


def shares(rows: int, workers: int, work: int) -> list[slice]:
    """The rows of a product in parts for the threads, which begin at blocks of the kernels. With much work, each thread has a
    large part and a small one: others take the small parts, in the middle, from a late thread."""
    large = 3 * rows // (4 * workers * BLOCKS) * BLOCKS if workers > 1 and work >= at.long_product else 0
    if not large:
        return cuts(rows, workers, ROWS)
    last = (rows - (workers - 1) * large) // ROWS * ROWS
    edges = [*(last + i * large for i in range(workers - 1)), rows]
    small = [slice(large + s.start, large + s.stop) for s in cuts(last - large, workers, ROWS)]
    return [slice(0, large), *small, *(slice(a, b) for a, b in pairwise(edges))]


def together(parts: Sequence[Step], threads: int) -> list[Step]:
    """The steps that run all `parts`, which write different memory, on up to `threads` threads."""
    if threads < 2 or len(parts) < 2:
        return list(parts)
    return [(run_parts, (min(threads, len(parts)) - 1, parts))]


def shared(steps: Sequence[Step], threads: int) -> list[Step]:
    """`steps`, with long calls of universal functions divided among the threads; their last argument is the result."""
    return [part for step in steps for part in together(_parts(*step, threads), threads)] if threads > 1 else list(steps)


def _parts(function: Callable[..., object], arguments: tuple[Any, ...], count: int) -> list[Step]:
    out = arguments[-1]
    if (
        not isinstance(function, np.ufunc)
        or not all(isinstance(x, np.ndarray) for x in arguments)
        or out.size < at.python_elements
    ):
        return [(function, arguments)]
    axis = next((a for a, n in enumerate(out.shape) if n >= count), None)
    if axis is None:
        return [(function, arguments)]

    def piece(x: Array, chosen: slice) -> Array:
        own = axis - (out.ndim - x.ndim)  # repeated operands have fewer axes, or extent 1
        return x[(slice(None),) * own + (chosen,)] if own >= 0 and x.shape[own] > 1 else x

    return [(function, tuple(piece(x, s) for x in arguments)) for s in cuts(out.shape[axis], 2 * count)]


@cache
def _pool() -> futures.ThreadPoolExecutor:
    return futures.ThreadPoolExecutor(max_workers=max(64, os.cpu_count() or 1), thread_name_prefix="ptir")


def run_parts(helpers: int, parts: Sequence[Step]) -> None:
    """Run `parts` on this thread and up to `helpers` others."""
    queue, pool = iter(parts), _pool()
    waiting = [pool.submit(in_turn, queue) for _ in range(helpers)]
    try:
        in_turn(queue)
    except BaseException:
        _drop(queue)
        raise
    for helper in waiting:
        if not helper.cancel():
            helper.result()


def _drop(queue: Iterator[Step]) -> None:
    """Remove all parts from the queue, because the run was interrupted."""
    for _ in queue:
        pass


def in_turn(steps: Iterable[Step]) -> None:
    """Run steps one after the other."""
    for function, arguments in steps:
        function(*arguments)
