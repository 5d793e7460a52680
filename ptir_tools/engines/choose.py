"""Which engine runs a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.evaluate import Context
from ptir_tools.core.ir import Function, Program
from ptir_tools.engines import reference
from ptir_tools.engines.options import RunOptions


class Executable(Protocol):
    """A program made ready by an engine. `memory` is what a run takes, in bytes; `function` is what runs (after passes)."""

    @property
    def memory(self) -> int: ...

    function: Function

    def __call__(self, arguments: Sequence[Any], context: Context) -> tuple[Any, ...]: ...


def prepare(program: Program, options: RunOptions, diagnostics: Diagnostics) -> Executable:
    """`program`, whose types are static, made ready by the engine that `options` ask for."""
    return reference.Executable(program, program.main, options)
