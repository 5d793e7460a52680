"""Runs PTO programs on the modelled machine of `dialects.pto.machine` (seed; facts 7).

Memory arguments are copies of the arrays given, row-major whatever layout or strides a memref declares; different arguments
never overlap. Each op's declared body does the work: this module only sets the machine up.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from ptir_tools.core.arrays import Array, numpy_dtype
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.evaluate import Context, run_block
from ptir_tools.core.ir import Function, Program, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS, Limits
from ptir_tools.core.types import UNKNOWN, MemRefType, ScalarType, TileType
from ptir_tools.dialects.pto.machine import ORDERS, UNDEF, Machine, Tile, static_shape
from ptir_tools.dialects.pto.types import type_text

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


def run(
    program: Program,
    inputs: Mapping[str, Array],
    *,
    order: str = "sequential",
    seed: int = 0,
    undef: str = "error",
    function: str | None = None,
    limits: Limits = LIMITS,
    context: Context | None = None,
) -> dict[str, Array]:
    """Every memref argument of the entry function after the run, in order, then what it returns.

    `order` is how unawaited asynchronous ops complete (`sequential`, `adversarial`, `random` by `seed`); `undef` what storing
    or reducing an undefined element does (`error`, `nan`, `zero`, `random`). Raises UsageError for inputs that do not fit,
    Violation for a run-time error (`context.failed` is the op), LimitExceeded.
    """
    if order not in ORDERS or undef not in UNDEF:
        raise UsageError(f"order is one of {', '.join(ORDERS)}; undef one of {', '.join(UNDEF)}")
    main = program.main if function is None else program.function(function)
    if main is None:
        raise UsageError(f"there is no function @{function}")
    context = context or Context(seed=seed, limits=limits)
    context.state = machine = Machine(context, {f.name: f for f in program.functions}, order, undef, Random(seed))
    arguments = [argument(p, inputs) for p in main.params]
    results = run_block(main, arguments, context)
    machine.drain()
    return outputs(main, arguments, results)


def argument(p: Value, inputs: Mapping[str, Array]) -> Any:
    """The run-time value of a parameter: a fresh array for a memref, a whole tile, a scalar. Raises UsageError."""
    if p.name not in inputs:
        raise UsageError(f"input {p.name} ({type_text(p.type)}) is missing")
    given = np.asarray(inputs[p.name])
    if not isinstance(p.type, (MemRefType, TileType, ScalarType)):
        raise UsageError(f"parameter {p.name} is {type_text(p.type)}, which cannot be given")
    shape = p.type.shape if isinstance(p.type, (MemRefType, TileType)) else ()
    fits = given.ndim == len(shape) and all(d in (n, UNKNOWN) for n, d in zip(given.shape, shape, strict=True))
    if given.dtype != numpy_dtype(p.type.dtype) or not fits:
        raise UsageError(f"input {p.name} is {given.dtype}{list(given.shape)}, expected {type_text(p.type)}")
    if isinstance(p.type, TileType):
        made = Tile(p.type, static_shape(p.type))
        made.fill(given, True)
        return made
    return np.array(given)


def outputs(main: Function, arguments: list[Any], results: tuple[Any, ...]) -> dict[str, Array]:
    """The memref arguments by name, then the returned values."""
    made = {p.name: a for p, a in zip(main.params, arguments, strict=True) if isinstance(p.type, MemRefType)}
    for i, (x, value) in enumerate(zip(main.results, results, strict=True)):
        if isinstance(value, (Tile, np.ndarray, np.generic)) and not (isinstance(x, Value) and x.name in made):
            made[x.name if isinstance(x, Value) else f"result_{i}"] = (
                value.values if isinstance(value, Tile) else np.asarray(value)
            )
    return made
