"""The extension, when it was built."""

from __future__ import annotations

import importlib.util
from functools import cache
from importlib import import_module

from ptir_tools.core.typed import Any

_NAME = "ptir_tools._native"


def available() -> bool:
    """Whether the extension was built."""
    return importlib.util.find_spec(_NAME) is not None


@cache
def kernels() -> Any:
    """The extension: `gemm`, `tiles`, `tile_floats`. Raises ModuleNotFoundError when it was not built."""
    return import_module(_NAME)
