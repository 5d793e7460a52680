"""ptir: read, verify, optimize, translate, plan and run tensor programs in PTIR, PTO IR, MIND Core IR and Tiny IR.

    import ptir_tools as ptir

    program = ptir.read("model.ptir")
    print(ptir.write(ptir.optimize(program)))
    print(ptir.run(program, {"x": x}))

`Graph` builds PTIR from Python, `tracing` observes what runs: docs/builder.md. `ptir_tools.tools` reduces, bisects and tests
programs. Everything is loaded when it is first used. A program with errors raises `Rejected`; its `diagnostics` say where.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType

from ptir_tools.core.lazy import late, lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from ptir_tools.api import (
        Compiled,
        Graph,
        Program,
        Rejected,
        Tensor,
        TraceFolder,
        TraceSink,
        UsageError,
        Violation,
        compare,
        compile,
        cond,
        diff,
        from_jax,
        from_onnx,
        from_torch,
        load,
        optimize,
        plan,
        read,
        run,
        scan,
        sharding,
        stats,
        to_jax,
        to_onnx,
        to_torch,
        trace,
        tracing,
        translate,
        verify,
        while_,
        write,
    )

# In a checkout `grammars` and `passes` are next to this folder; an installation holds them inside.
if not os.path.isdir(os.path.join(__path__[0], "passes")):
    __path__.append(os.path.dirname(os.path.abspath(__path__[0])))

__version__ = "0.1.0"
__all__ = [
    "Compiled", "Graph", "Program", "Rejected", "Tensor", "TraceFolder", "TraceSink", "UsageError", "Violation",
    "compare", "compile", "cond", "diff", "from_jax", "from_onnx", "from_torch", "load", "optimize", "plan", "read", "run",
    "scan", "sharding", "stats", "to_jax", "to_onnx", "to_torch", "trace", "tracing", "translate", "verify", "while_", "write",
]  # fmt: skip


class _Package(ModuleType):
    """Its `plan` is the function, although there is a sub-package of that name: importing that leaves the function alone."""

    def __setattr__(self, name: str, value: object) -> None:
        if name not in __all__ or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
_api = lazy("ptir_tools.api")
_collector_paused = late("ptir_tools.core.collector", "collector_paused")


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _collector_paused(0):  # what modules make stays
        value = globals()[name] = getattr(_api, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})  # what is not loaded yet, too, for those who complete names
