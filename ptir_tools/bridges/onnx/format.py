"""The door of the bridge: bytes to a program."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Format, Options
from ptir_tools.core.ir import Program, collector_paused
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source

if TYPE_CHECKING:
    import onnx

    from ptir_tools.bridges.onnx import importer
else:
    onnx = lazy("onnx")
    importer = lazy("ptir_tools.bridges.onnx.importer")

INSTALL = "this is an ONNX model; install what reads it: pip install 'ptir-tools[onnx]'"


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program of an ONNX file. Raises UsageError when the package `onnx` is not installed."""
    try:
        decode_error = lazy("google.protobuf.message").DecodeError
        parse = onnx.ModelProto.FromString
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None
    try:
        model = parse(source.data or b"")
    except decode_error:
        diagnostics.error("InvalidModel", "the file is cut short or damaged: it is no ONNX model")
        return None
    return translated(model, source, diagnostics, options.placeholders)


def translated(model: Any, source: Source, diagnostics: Diagnostics, constants: dict[str, Any]) -> Program | None:
    """The program of a ModelProto; `constants` are inputs that are known."""
    with collector_paused():
        return importer.Importer(model, source, diagnostics, constants).program()


FORMAT = Format("onnx", "ptir", read, None)
