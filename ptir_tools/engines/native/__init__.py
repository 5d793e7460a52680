"""The native engine: the steps of the NumPy engine, the heavy ones by C kernels."""

from __future__ import annotations

from ptir_tools.core.ir import Function, Program
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.options import RunOptions


def available() -> bool:
    """Whether the extension was built."""
    return False


class Executable(numpy_engine.Executable):
    """A static PTIR program, planned for the kernels."""

    def __init__(self, program: Program, function: Function, options: RunOptions) -> None:
        super().__init__(program, function, options, numpy_engine.TARGET)
