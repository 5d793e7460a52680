"""The ONNX format: bytes to a program, and a program to bytes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

from ptir_tools.bridges.onnx import wire
from ptir_tools.convert.options import LOSSY
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.ptir import DATA, FROM_VALUES, OPSET, TO_VALUES

if TYPE_CHECKING:
    import onnx
    from google.protobuf import message as protobuf

    from ptir_tools.bridges.onnx import exporter, importer, listing, submodel, table
else:
    onnx = lazy("onnx")
    protobuf = lazy("google.protobuf.message")
    exporter = lazy("ptir_tools.bridges.onnx.exporter")
    importer = lazy("ptir_tools.bridges.onnx.importer")
    listing = lazy("ptir_tools.bridges.onnx.listing")
    submodel = lazy("ptir_tools.bridges.onnx.submodel")
    table = lazy("ptir_tools.bridges.onnx.table")

INSTALL = "this is ONNX: pip install 'ptir-tools[onnx]'"


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program of an ONNX file. Raises UsageError when the package `onnx` is not installed."""
    data = source.data or b""
    if os.path.exists(source.name):  # weights are big: they are read from the file when needed
        source.data, data = b"", wire.without_weights(data, os.path.basename(source.name))
    model = parsed(data, diagnostics)
    return translated(model, source, diagnostics, options)


def program(
    model: onnx.ModelProto | str | os.PathLike[str] | None,
    diagnostics: Diagnostics,
    options: Options,
) -> Program | None:
    """The program of a ModelProto, or of the file at a path. Raises OSError, UsageError."""
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        with open(path, "rb") as file:
            model = parsed(wire.without_weights(file.read(), os.path.basename(path)), diagnostics)
    else:
        path = "<model>"
    diagnostics.source = source = Source(path, "", data=b"", form="onnx")
    return translated(model, source, diagnostics, options)


def parsed(data: bytes, diagnostics: Diagnostics) -> onnx.ModelProto | None:
    """The ModelProto in `data`, or None after reporting what is wrong. Raises UsageError without the package `onnx`."""
    try:
        failure, parse = protobuf.DecodeError, onnx.ModelProto.FromString
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None
    try:
        return parse(data)
    except failure:
        diagnostics.error("InvalidModel", "the file is cut short or damaged: it is not an ONNX model")
        return None


def translated(model: onnx.ModelProto | None, source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program of a ModelProto, or of the part that the options select."""
    if model is None:
        return None
    between = options[FROM_VALUES], options[TO_VALUES]
    try:
        if any(between):
            model = submodel.submodel(model, *between)
        with collector_paused():
            result = importer.Importer(model, source, diagnostics, options).program()
    except (TypeError, UnicodeDecodeError):
        if _has_texts(model):
            raise
        diagnostics.error("InvalidModel", "a name is not UTF-8: the file is damaged")
        return None
    if result is not None and any(between):
        result.attrs["part"] = between
    return result


def _has_texts(message: protobuf.Message) -> bool:
    """Whether all strings of a message are UTF-8; protobuf gives others as bytes."""
    for field, value in message.ListFields():
        values = value if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) else [value]
        if field.type == field.TYPE_STRING and not all(isinstance(x, str) for x in values):
            return False
        if field.type == field.TYPE_MESSAGE and not all(map(_has_texts, values)):
            return False
    return True


def encode(program: Program, diagnostics: Diagnostics, options: Options) -> bytes:
    """The bytes of `program` as an ONNX model; empty after reporting an op that ONNX cannot express. Raises UsageError without
    `onnx`."""
    result = exported(program, diagnostics, options)
    return b"" if result is None else result.SerializeToString()


def exported(program: Program, diagnostics: Diagnostics, options: Options) -> onnx.ModelProto | None:
    """`program` as a ModelProto, or None after reporting every op that ONNX cannot express. Raises UsageError without the
    package."""
    try:
        onnx.ModelProto  # noqa: B018
    except ModuleNotFoundError:
        raise UsageError(INSTALL) from None
    return exporter.model(program, diagnostics, options[OPSET], options[LOSSY], options[DATA])


def outline(data: bytes) -> dict[str, object]:
    """The inputs and outputs of a model with their types, its operator sets, and the count of each operator, most first. Empty
    for damaged bytes."""
    model = parsed(wire.without_weights(data, ""), Diagnostics())
    if model is None:
        return {}
    held = {t.name for t in model.graph.initializer}
    counts: Counter[str] = Counter()
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        for node in graph.node:
            counts[f"{node.domain}.{node.op_type}".removeprefix("ai.onnx.").removeprefix(".")] += 1
            graphs += listing.graphs_of(node)
    return {
        "inputs": [_port(v) for v in model.graph.input if v.name not in held],
        "outputs": [_port(v) for v in model.graph.output],
        "operator_sets": {o.domain or "ai.onnx": o.version for o in model.opset_import},
        "operators": dict(sorted(counts.items(), key=lambda row: (-row[1], row[0]))),
    }


def _port(value: onnx.ValueInfoProto) -> dict[str, str]:
    kind = value.type.WhichOneof("value")
    if kind != "tensor_type":
        return {"name": value.name, "type": (kind or "unknown").removesuffix("_type")}
    t = value.type.tensor_type
    dtype = table.DTYPES.get(t.elem_type)
    name = dtype.name if dtype is not None else table.NAMES.get(t.elem_type, f"type {t.elem_type}")
    dims = [str(d.dim_value) if d.HasField("dim_value") else f"?{d.dim_param}" for d in t.shape.dim]
    return {"name": value.name, "type": f"tensor<{', '.join([name, *(dims if t.HasField('shape') else ['…'])])}>"}


FORMAT = Format("onnx", "ptir", read, None, encode=encode, outline=outline)
