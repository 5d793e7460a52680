"""The plan of a PTO program: one arena per function and memory space, beside what the target has of it."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Function, Program
from ptir_tools.core.types import TileType, tensor
from ptir_tools.dialects.pto import capacity
from ptir_tools.dialects.pto.targets import Target, target_of
from ptir_tools.plan.liveness import Buffer, Liveness


def arenas(program: Program) -> Iterator[tuple[str, Liveness, int | None]]:
    """(`function space`, its tiles, the space's capacity on the program's target) for every space that is used."""
    target = target_of(program, Options())
    for function in program.functions:
        yield from _of(function, target)


def _of(function: Function, target: Target | None) -> Iterator[tuple[str, Liveness, int | None]]:
    for space in capacity.spaces(function, target):
        live = Liveness()
        made: dict[capacity.Buffer, Buffer] = {}
        for b in space.buffers:
            t = b.value.type
            shape = tensor(t.dtype, t.shape) if isinstance(t, TileType) else None
            made[b] = Buffer(b.value.name, shape, b.size, b.start, b.end - 1)
        for b in space.buffers:
            if b.parent is not None:
                made[b].share(made[b.parent], b.alias)
        live.buffers += made.values()
        yield f"{function.name} {space.name}", live, target.capacity[space.name] if target is not None else None
