"""ONNX Runtime as the other side of a comparison: it runs the file that the program was read from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import result_names
from ptir_tools.core.lazy import lazy

if TYPE_CHECKING:
    import onnxruntime

    from ptir_tools.bridges.onnx import importer
    from ptir_tools.core.arrays import Array
else:
    importer = lazy("ptir_tools.bridges.onnx.importer")
    onnxruntime = lazy("onnxruntime")

NAME = "onnxruntime"
INSTALL = "this is ONNX Runtime: pip install '.[onnx]'"
_NUMPY = ("bool", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)), "float16", "float32", "float64")


def outputs(program: Program, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs by name, from ONNX Runtime on the CPU; `inputs` are those of `program` by name.

    Raises UsageError for a program that was not read from ONNX, for what ONNX Runtime cannot run, and without it.
    """
    source = program.source
    if source is None or source.data is None:
        raise UsageError("--compare onnxruntime runs the file itself: the program was not read from ONNX")
    if wrong := next((name for name, x in inputs.items() if x.dtype.name not in _NUMPY), None):
        raise UsageError(f"ONNX Runtime takes no array of {inputs[wrong].dtype}, which `{wrong}` is")
    session = _session(source.name if os.path.exists(source.name) else source.data)
    feeds = {value.name: inputs.get(importer.spelled(value.name)) for value in session.get_inputs()}
    if missing := next((name for name, x in feeds.items() if x is None), None):
        raise UsageError(f"ONNX Runtime wants the input `{missing}`, which the program has not")
    try:
        found = session.run(None, feeds)
    except Exception as error:  # its own exceptions have no common base
        raise UsageError(f"ONNX Runtime failed: {_first_line(error)}") from None
    return dict(zip(result_names(program.main), found, strict=True))


def _session(model: str | bytes) -> Any:
    try:
        chosen = onnxruntime.SessionOptions()
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None
    chosen.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(model, chosen, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise UsageError(f"ONNX Runtime does not take the model: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
