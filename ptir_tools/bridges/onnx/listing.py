"""A model as text with a line per node, for the spans of diagnostics."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from ptir_tools.core import places
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Source, pack
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import Place, Violation

if TYPE_CHECKING:
    import onnx
else:
    onnx = lazy("onnx")

_ABOUT = {"axis": ("axis", "axes"), "perm": ("perm",)}  # attributes that a message is about, by its first word
_SHOWN = 40  # characters of an attribute in a listing


class Listing:
    """The text of `source`, and where in it nodes and inputs are. `nodes` are all nodes, those of subgraphs included."""

    def __init__(self, graph: onnx.GraphProto, source: Source) -> None:
        self.nodes: list[onnx.NodeProto] = []  # which keeps them alive: their identity is their key
        self._source = source
        self._nodes: dict[int, Loc] = {}
        self._inputs: dict[str, Loc] = {}
        self._lines: list[str] = []
        self._length = 0
        self._add(graph, "")
        source.text = "\n".join(self._lines) + "\n"

    def _line(self, line: str) -> Loc:
        """Add a line; where it is."""
        at, self._length = self._length, self._length + len(line) + 1
        self._lines.append(line)
        return pack(at + len(line) - len(line.lstrip()), at + len(line))

    def _add(self, graph: onnx.GraphProto, indent: str) -> None:
        for value in graph.input:
            loc = self._line(f"{indent}input {value.name}")
            if not indent:
                self._inputs[value.name] = loc
        for node in graph.node:
            outputs = ", ".join(filter(None, node.output))
            inputs = ", ".join([*node.input, *map(_attribute_text, node.attribute)])
            self.nodes.append(node)
            name = f"  // {node.name}" if node.name else ""
            self._nodes[id(node)] = self._line(f"{indent}{outputs} = {node.op_type}({inputs}){name}")
            for inner in graphs_of(node):
                self._add(inner, indent + "  ")

    def node(self, node: onnx.NodeProto, default: Loc = 0) -> Loc:
        """Where a node is; `default` for one of a function."""
        return self._nodes.get(id(node), default)

    def input(self, name: str) -> Loc:
        """Where an input is."""
        return self._inputs.get(name, 0)

    def piece(self, violation: Violation, loc: Loc, proto: onnx.NodeProto, shapes: Mapping[str, Shape]) -> str | Place | None:
        """The piece of a node's line that a violation is about: an attribute or a value that it names, or the last operand whose
        shape it names; else the operator. `shapes` are those of operands."""
        span, at, message = self._source.span(loc), violation.at, violation.message
        if span is None or (at is not None and places.find(self._source, span, at) is not None):
            return at
        names = [*re.findall(r"`([^`]+)`", message), message.partition(":")[0], *_ABOUT.get(message.partition(" ")[0], ())]
        if isinstance(at, Place) and at.kind == "operand" and int(at.key) < len(proto.input):
            names.append(proto.input[int(at.key)])
        if isinstance(at, Place) and at.kind == "attribute":
            names.insert(0, str(at.key))
        attributes = {a.name: _attribute_text(a) for a in proto.attribute}
        known = {*proto.input, *proto.output}
        wanted = [attributes.get(name, name if name in known else "") for name in names]
        wanted += [text for name, text in attributes.items() if re.search(rf"\b{re.escape(name)}\b", message)]
        ends = {n: max(message.rfind(f", {'x'.join(map(str, s))}>"), message.rfind(str([*s]))) for n, s in shapes.items()}
        wanted += [name for name, end in sorted(ends.items(), key=lambda item: -item[1]) if end >= 0]
        written = self._source.text[span.start : span.end]
        return next((x for x in (*wanted, proto.op_type) if x and x in written), None)


def _attribute_text(a: onnx.AttributeProto) -> str:
    """An attribute in a listing: `axis=1`. Long ones, graphs and tensors are `…`."""
    kinds = onnx.AttributeProto
    plain = a.type in (kinds.INT, kinds.INTS, kinds.FLOAT, kinds.FLOATS, kinds.STRING)
    value = onnx.helper.get_attribute_value(a) if plain and len(a.ints) + len(a.floats) <= _SHOWN else None
    if isinstance(value, bytes):
        text = json.dumps(value.decode("utf-8", "replace"))
    else:
        text = "…" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"{a.name}={text if len(text) <= _SHOWN else '…'}"


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """The subgraphs of a node."""
    return [g for a in node.attribute for g in (*a.graphs, *([a.g] if a.HasField("g") else []))]
