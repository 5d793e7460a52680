"""The door of the bridge: bytes to a program."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import collector_paused
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source
from ptir_tools.dialects.ptir import PLACEHOLDERS

if TYPE_CHECKING:
    import onnx
    from google.protobuf import message as protobuf

    from ptir_tools.bridges.onnx import importer
else:
    onnx = lazy("onnx")
    protobuf = lazy("google.protobuf.message")
    importer = lazy("ptir_tools.bridges.onnx.importer")

INSTALL = "this is ONNX: pip install '.[onnx]'"


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program of an ONNX file. Raises UsageError when the package `onnx` is not installed."""
    model = parsed(source.data or b"", diagnostics)
    if os.path.exists(source.name):
        source.data = b""  # who wants it again reads the file: weights are big
    return translated(model, source, diagnostics, options[PLACEHOLDERS])


def program(model: Any, diagnostics: Diagnostics, constants: Mapping[str, Any]) -> Program | None:
    """The program of a ModelProto, or of the file at a path. Raises OSError, UsageError."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        with open(path, "rb") as file:
            model = parsed(file.read(), diagnostics)
    else:
        path = "<model>"
    diagnostics.source = source = Source(path, "", data=b"")
    return translated(model, source, diagnostics, constants)


def parsed(data: bytes, diagnostics: Diagnostics) -> Any:
    """The ModelProto in `data`, or None after reporting what is wrong. Raises UsageError without the package `onnx`."""
    try:
        failure, parse = protobuf.DecodeError, onnx.ModelProto.FromString
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None
    try:
        return parse(data)
    except failure:
        diagnostics.error("InvalidModel", "the file is cut short or damaged: it is no ONNX model")
        return None


def translated(model: Any, source: Source, diagnostics: Diagnostics, constants: Mapping[str, Any]) -> Program | None:
    """The program of a ModelProto; `constants` are inputs that are known."""
    if model is None:
        return None
    with collector_paused():
        try:
            return importer.Importer(model, source, diagnostics, constants).program()
        except importer.MALFORMED as error:
            diagnostics.error("InvalidModel", f"the model is malformed: {error}")
            return None


FORMAT = Format("onnx", "ptir", read, None)
