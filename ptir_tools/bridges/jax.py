"""Functions of JAX as programs: lowered to StableHLO by `jax.jit`, and read."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence

from ptir_tools.bridges.stablehlo import reader
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.verify import verify

if TYPE_CHECKING:
    import jax
else:
    jax = lazy("jax")

INSTALL = "pip install 'ptir-tools[xla]'"


def from_jax(function: Callable[..., object], *examples: object) -> Program:
    """The program of a JAX `function` for arguments like `examples`: arrays, `jax.ShapeDtypeStruct`s, and trees of them. A
    function from `jax.jit` keeps its options. Inputs have the names of the parameters, leaves of trees their paths
    (`params.dense.w`). Raises Rejected for what PTIR cannot express, and UsageError when JAX is not installed.
    """
    try:
        jitted = function if hasattr(function, "lower") else jax.jit(function, keep_unused=True)
    except ModuleNotFoundError:
        raise UsageError("JAX is not installed", INSTALL) from None
    lowered = jitted.lower(*examples)
    leaves = len(jax.tree_util.tree_leaves(examples))
    if function is jitted and leaves == len(
        jax.tree_util.tree_leaves(lowered.args_info)
    ):  # no parameter is static: unused ones are kept
        lowered = jax.jit(lambda *args: jitted(*args), keep_unused=True).lower(*examples)
    text = lowered.as_text()
    diagnostics = Diagnostics()
    source = diagnostics.source = Source("<jax>", text, form="stablehlo")
    program = reader.read(source, diagnostics, Options())
    diagnostics.raise_if_errors()
    assert program is not None
    program.source, program.format = source, program.dialect.formats[0].name
    _name(program, function, examples)
    verify(program, diagnostics, Options())
    diagnostics.raise_if_errors()
    return program


def _name(program: Program, function: Callable[..., object], examples: Sequence[object]) -> None:
    """Name the inputs after the parameters and the leaves of trees, when there is one name for each."""
    try:
        given = [str(name) for name in inspect.signature(function).bind(*examples).arguments]
    except (TypeError, ValueError):
        return
    names = []
    for k, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(tuple(examples))[0]):
        first = path[0].idx if len(given) == len(examples) else k
        parts = [given[first] if first < len(given) else f"arg{first}", *re.findall(r"\w+", jax.tree_util.keystr(path[1:]))]
        names.append(".".join(parts))
    params = program.main.params
    used = {v.name for op in program.main.body for v in op.results}
    if len(names) == len(params) and len(set(names)) == len(names) and not used & set(names):
        for p, name in zip(params, names, strict=True):
            p.name = name
