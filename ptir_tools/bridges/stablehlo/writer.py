"""PTIR as StableHLO text: what JAX lowers the program to. Needs the extra `xla`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ptir_tools.bridges.xla.function import require_jax, unknown_ops, without_calls
from ptir_tools.bridges.xla.table import MEANING, native
from ptir_tools.bridges.xla.tracing import Tracing
from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.types import TensorType, flatten, leaves, nest

if TYPE_CHECKING:
    import jax
else:
    jax = lazy("jax")


def write(program: Program, diagnostics: Diagnostics, options: Options) -> Iterator[str]:
    """The text of a module with one public function `main`; nothing after an op that StableHLO cannot say, or an open symbol.

    Raises UsageError where JAX is not installed. What fails when it runs has a result in StableHLO: an index out of range is
    moved into it, an integer divided by zero is what XLA makes of it.
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

    def function(*xs: object) -> tuple[object, ...]:
        given = iter(xs)
        results = Tracing(MEANING, LIMITS.iterations).block(main, [nest(p.type, given) for p in main.params])
        return tuple(leaf for r in results for leaf in flatten(r))

    function.__name__ = main.name
    types = [t for p in main.params for t in leaves(p.type) if isinstance(t, TensorType)]
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(t.static_shape, native(t.dtype)) for t in types]
        yield jax.jit(function, keep_unused=True).lower(*shapes).as_text()
