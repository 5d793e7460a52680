"""Plans of dialects with memory spaces: one arena per space, with the target's capacity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ptir_tools.core.dialect import Arena
from ptir_tools.core.types import TensorType
from ptir_tools.plan.liveness import Buffer, Liveness


def arenas(given: Iterable[Arena]) -> Iterator[tuple[str, Liveness, int | None]]:
    """(name, live ranges, capacity) of each space."""
    for arena in given:
        buffers = [
            Buffer(b.name, b.type if isinstance(b.type, TensorType) else None, b.nbytes, b.start, b.end - 1)
            for b in arena.buffers
        ]
        for b, source in zip(buffers, arena.buffers, strict=True):
            if source.parent is not None:
                b.share(buffers[source.parent], source.alias)
        yield arena.name, Liveness(buffers), arena.capacity
