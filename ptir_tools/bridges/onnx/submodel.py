"""A submodel: the nodes between some values of a model and others."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.bridges.onnx.graph import read_by
from ptir_tools.core.diagnostics import UsageError, unknown_name
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")


def submodel(model: onnx.ModelProto, starts: Sequence[str], ends: Sequence[str]) -> onnx.ModelProto:
    """A copy of a ModelProto with the nodes that compute the values `ends` (default: its outputs) from the values `starts` and
    its inputs. Raises UsageError for an unknown name, and for a start of unknown type."""
    graph = model.graph
    inputs = {value.name: value for value in graph.input}
    outputs = {name for node in graph.node for name in node.output if name}
    for name in (*starts, *ends):
        if name not in outputs and name not in inputs:
            raise unknown_name("value", name, sorted({*outputs, *inputs}))
    wanted = list(ends) or [value.name for value in graph.output]
    needed, nodes = set(wanted), []
    for node in reversed(graph.node):
        if any(name in needed and name not in starts for name in node.output):
            nodes.append(_without(node, starts))
            needed.update(read_by(node))
    types = _types(model) if any(name not in inputs for name in starts) else {}
    types.update(inputs)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for field, content in (
        ("node", nodes[::-1]),
        ("input", [value for name, value in inputs.items() if name in needed and name not in starts]),
        ("output", [types.get(name, onnx.ValueInfoProto(name=name)) for name in wanted]),
    ):
        del getattr(copy.graph, field)[:]
        getattr(copy.graph, field).extend(content)
    for name in dict.fromkeys(starts):
        if name not in types:
            raise UsageError(f"the type of `{name}`, where the part begins, is not known")
        copy.graph.input.append(types[name])
    return copy


def _without(node: onnx.NodeProto, starts: Sequence[str]) -> onnx.NodeProto:
    """A node without the outputs in `starts`."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.output[:] = ["" if name in starts else name for name in node.output]
    return copy


def _types(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """The ValueInfoProtos of values by name, as far as they are declared or can be inferred."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except (ValueError, RuntimeError):  # more than 2 GB, or a node that breaks a rule
        graph = model.graph
    known = (*graph.value_info, *graph.output)
    return {value.name: value for value in known if value.type.tensor_type.elem_type}
