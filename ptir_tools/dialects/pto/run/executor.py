"""Runs PTO programs on the modelled machine of `pto.run.machine`.

Memory arguments are copies of the given arrays, row-major whatever layout or strides a memref declares. Different arguments
never overlap. The declared body of each op computes; this module only sets the machine up.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Function, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any, Protocol
from ptir_tools.core.types import UNKNOWN
from ptir_tools.dialects.pto.memory.info import tile_bytes
from ptir_tools.dialects.pto.run.machine import Machine, Task, Tile, static_shape
from ptir_tools.dialects.pto.run.timeline import Timeline
from ptir_tools.dialects.pto.structure import block_dim
from ptir_tools.dialects.pto.targets import target_of
from ptir_tools.dialects.pto.types import MemRefType, ScalarType, TileType, type_text


class RunOptions(Protocol):
    """The options of the caller (`engines.options`) that the machine reads."""

    @property
    def order(self) -> str: ...
    @property
    def undef(self) -> str: ...
    @property
    def chosen(self) -> Options: ...
    @property
    def seed(self) -> int: ...
    @property
    def timeline(self) -> Timeline | None: ...


class Executable:
    """A PTO function, ready to run. Its results are the memref arguments, in order, then the returned values."""

    def __init__(self, program: Program, function: Function, options: RunOptions) -> None:
        self.program = program
        self.function = function
        self.options = options

    @property
    def memory(self) -> int:
        """The memref parameters, in order; their contents are outputs."""
        tiles = [v.type for f in self.program.functions for op in f.ops() for v in op.results]
        return sum(tile_bytes(t) * 2 for t in tiles if isinstance(t, TileType))

    def __call__(self, arguments: Sequence[Array], context: Context) -> tuple[Array, ...]:
        """The outputs, one per port. Races go to `context.diagnostics`; where there are none, the first is raised in the end.

        Raises Violation for a run-time error (`context.failed` is the op), LimitExceeded.
        """
        run = self.options
        target = target_of(self.program, run.chosen)
        if run.timeline is not None:
            run.timeline.begin(target)
        machine = Machine(context, self.program, target, run.order, run.undef, Random(run.seed), run.timeline)
        context.state = machine
        context.observe = _seen(context.observe)
        try:
            return self._run(machine, arguments, context)
        finally:
            machine.close()

    def _run(self, machine: Machine, arguments: Sequence[Array], context: Context) -> tuple[Array, ...]:
        made = [argument(p, a, machine) for p, a in zip(self.function.params, arguments, strict=True)]
        if (cores := block_dim(self.function)) > 1:
            machine.launch(self.function, made, cores)
            results: tuple[Any, ...] = ()
        elif machine.runs_apart(self.function):
            machine.start_core(self.function, made)
            results = ()
        else:
            results = run_block(self.function, made, context)
            machine.drain()
        machine.cores.run()
        for x, value in zip(self.function.results, results, strict=True):
            if isinstance(value, Tile) and isinstance(x, Value):
                machine.read(value, x.name)
        if machine.first is not None and context.diagnostics is None:
            raise machine.first
        held = [a for p, a in zip(self.function.params, made, strict=True) if isinstance(p.type, MemRefType)]
        return (*held, *map(_array, results))


def memory(function: Function) -> list[Value]:
    """The parameters whose contents are outputs: memrefs, in order."""
    return [p for p in function.params if isinstance(p.type, MemRefType)]


def argument(p: Value, given: Array, machine: Machine) -> Any:
    """The run-time value of a parameter: a fresh array for a memref, a whole tile, a scalar. Raises UsageError."""
    t = p.type
    if not isinstance(t, (MemRefType, TileType, ScalarType)):
        raise UsageError(f"parameter `{p.name}` is {type_text(t)}, which cannot be given")
    shape = t.shape if isinstance(t, (MemRefType, TileType)) else ()
    fits = given.ndim == len(shape) and all(d in (n, UNKNOWN) for n, d in zip(given.shape, shape, strict=True))
    if given.dtype != numpy_dtype(t.dtype) or not fits:
        raise UsageError(f"input `{p.name}` is {type_text(t)}, got {given.dtype} of shape {list(given.shape)}")
    if isinstance(t, TileType):
        made = Tile(t, static_shape(t), p.name)
        made.fill(given, True)
        return made
    return machine.memory(p.name, given) if isinstance(t, MemRefType) else np.array(given)


def _array(x: object) -> Array:
    """A value as an array for observers and the caller: the elements of a tile, 0 where undefined; True for an event."""
    return x.values if isinstance(x, Tile) else np.asarray(True) if isinstance(x, Task) else np.asarray(x)


def _seen(observe: Any) -> Any:
    return observe and (lambda op, results: observe(op, tuple(map(_array, results))))
