"""Outputs of a run held to those of another engine, or to the arrays of a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptir_tools.core import arrayfiles
from ptir_tools.core.diagnostics import unknown_name
from ptir_tools.core.dialect import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.records import replace
from ptir_tools.engines import RunOptions, run
from ptir_tools.engines.memory import require_memory
from ptir_tools.engines.options import PEERS

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.bridges.onnx import runtime
    from ptir_tools.core.arrays import Array
    from ptir_tools.engines import compare
else:
    runtime = lazy("ptir_tools.bridges.onnx.runtime")
    compare = lazy("ptir_tools.engines.compare")


def across_engines(
    program: Program, inputs: Mapping[str, Array], outputs: Mapping[str, Array], other: str, options: RunOptions
) -> tuple[list[compare.Divergence], dict[str, int]]:
    """Where another engine or peer differs by more than the computed bound allows, and how many elements nothing bounds.

    The reference is what both are held to.
    """
    expected, tolerances = compare.reference_outputs(program, inputs, options)
    found = compare.compare(expected, outputs, tolerances)
    if other != "reference" and not found:
        others = runtime.outputs(program, inputs) if other in PEERS else run(program, inputs, replace(options, engine=other))
        found = compare.compare(expected, others, tolerances)
    return found, compare.untold(expected, tolerances)


def against_file(
    path: str, outputs: Mapping[str, Array], tolerance: compare.Tolerance, *, by_position: bool = False
) -> list[compare.Divergence]:
    """Where the outputs differ from the arrays of a file, matched by name, or else by position, when there are as many. A lone
    .npy is matched with a lone output."""

    def fits(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        if name and name not in outputs and not by_position:
            raise unknown_name("output", name, outputs)
        require_memory(math.prod(shape) * dtype.itemsize, LIMITS)

    if path.endswith(".npy") and len(outputs) == 1:
        expected = {next(iter(outputs)): arrayfiles.load(path, fits=fits)}
    else:
        expected = arrayfiles.load_all(path, fits)
    if by_position and len(expected) == len(outputs):
        expected = dict(zip(outputs, expected.values(), strict=True))
    for name in expected:
        if name not in outputs:
            raise unknown_name("output", name, outputs)
    found = (compare.diverging(n, _like(expected[n], outputs[n]), arrayfiles.widened(outputs[n]), tolerance) for n in expected)
    return [d for d in found if d is not None]


def _like(expected: Array, actual: Array) -> Array:
    """Floats of another precision are compared as they are; what .npz widened when it was written is widened here, too."""
    wide = arrayfiles.widened(actual).dtype
    both_float = expected.dtype.kind in "f" and wide.kind == "f"
    return expected.astype(wide) if both_float and expected.dtype != wide else arrayfiles.widened(expected)
