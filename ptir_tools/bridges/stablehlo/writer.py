"""PTIR to StableHLO text, lowered by JAX (the extra `xla`)."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.bridges.xla.devices import on_paper
from ptir_tools.bridges.xla.function import require_jax, unknown_ops, without_calls
from ptir_tools.bridges.xla.table import LOWERINGS
from ptir_tools.bridges.xla.tracing import Tracing
from ptir_tools.core import symbols
from ptir_tools.core.arrays import numpy_dtype
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import current
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, flatten, leaves, nest
from ptir_tools.dialects.ptir import SHARDING
from ptir_tools.plan.mesh import Sharding, placed, placing

if TYPE_CHECKING:
    import jax
else:
    jax = lazy("jax")


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The text of a module with one public function `main`; nothing after an op that StableHLO cannot express, or after an
    unbound symbol.

    With a sharding it says how values are cut over a mesh, in the terms of Shardy. What fails when it runs has a result in
    StableHLO: an index out of range is moved into it, an integer divided by zero is what XLA makes of it. Raises UsageError where
    JAX is not installed.
    """
    require_jax("StableHLO")
    ready = without_calls(program)
    main = ready.main
    if names := symbols.symbols(ready):
        help = f"bind it: --bind {names[0]}=8"
        diagnostics.error(
            "NotTranslatable", f"StableHLO is written with extents that are numbers; ?{names[0]} is open", main.loc, help=help
        )
        return
    lost = [*unknown_ops(ready), *(op for op in main.body if op.defn.is_random)]
    for op in lost:
        why = "draws other numbers" if op.defn.is_random else "has no such op"
        diagnostics.error("NotTranslatable", f"{op.defn.short}: StableHLO {why}", op.loc)
    if lost:
        return

    cuts, requested = None, options[SHARDING]
    if isinstance(requested, Sharding):
        places = placing(program, placed(program, requested, diagnostics))
        if diagnostics.errors:
            return
        cuts = on_paper(requested.mesh, places)

    def function(*xs: object) -> tuple[object, ...]:
        given = iter(xs)
        tracing = Tracing(LOWERINGS, current().iterations, keep=None if cuts is None else cuts.keep)
        results = tracing.block(main, [nest(p.type, given) for p in main.params])
        return tuple(leaf for r in results for leaf in flatten(r))

    function.__name__ = main.name
    types = [t for p in main.params for t in leaves(p.type) if isinstance(t, TensorType)]
    with jax.enable_x64(True):
        specs = [None] * len(types) if cuts is None else [cuts.named(spec) for spec in cuts.places.inputs]
        shapes = [
            jax.ShapeDtypeStruct(t.static_shape, numpy_dtype(t.dtype), sharding=spec)
            for t, spec in zip(types, specs, strict=True)
        ]
        out = {} if cuts is None else {"out_shardings": tuple(cuts.out())}
        traced = jax.jit(function, keep_unused=True, **out).trace(*shapes)
        yield traced.lower(lowering_platforms=("cpu",)).as_text()
