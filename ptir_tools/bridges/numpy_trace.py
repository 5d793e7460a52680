"""Functions on NumPy arrays as programs. The function is called once with values that record what NumPy does with them."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ptir_tools.bridges import numpy_linalg as _numpy_linalg  # noqa: F401 declares what is recorded
from ptir_tools.bridges.numpy_array import Traced, of_value, results_of
from ptir_tools.core.cpython import caller
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import np
from ptir_tools.core.verify import verify
from ptir_tools.dialects.ptir.builder.build import Graph
from ptir_tools.dialects.ptir.ops.numerics import dtype_of


def trace(function: Callable[..., object], *examples: object) -> Program:
    """The program of a function of NumPy for arguments like `examples`: arrays or numbers. Inputs have the names of the
    parameters. Arrays that the function makes are constants; a branch of Python is decided once, while it is traced.

    Raises UsageError for what is not recorded, and TypeError for a branch on the value of an argument.
    """
    file: str = getattr(getattr(function, "__code__", None), "co_filename", caller(2).f_code.co_filename)
    graph = Graph(getattr(function, "__name__", "main").strip("<>").replace("lambda", "main"), file)
    given = [np.asarray(x) for x in examples]
    if (strange := next((x.dtype for x in given if x.dtype.kind not in "biufcV"), None)) is not None:
        raise UsageError(f"an example has the dtype {strange}, which PTIR has not")
    names = _names(function, len(given))
    inputs = [Traced(graph.input(n, dtype_of(x), x.shape)) for n, x in zip(names, given, strict=True)]
    program = graph.returns(*(of_value(x, graph).tensor for x in results_of(function(*inputs))))
    program.format = program.dialect.formats[0].name
    diagnostics = Diagnostics(program.source)
    verify(program, diagnostics, Options())
    diagnostics.raise_if_errors()
    return program


def _names(function: Callable[..., object], count: int) -> list[str]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    fixed = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*fixed[:count], *(f"arg{i}" for i in range(len(fixed), count))]
