"""A drawing in the language of Graphviz."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ptir_tools.core.render import clean_lines
from ptir_tools.tools.graph.drawing import Category, Drawing, Edge, Kind, Node, Style

_SHAPES = {Kind.PARAMETER: "ellipse", Kind.RESULTS: "ellipse"}
_STYLES = {Style.WAIT: "dashed", Style.REGION: "dotted"}


def dot(drawing: Drawing) -> Iterator[str]:
    """A node per op, an edge per use, a cluster per function, region and repetition; the statement is the tooltip. With
    concurrent units, a node names the unit that executes it, in its color; a wait is a dashed edge."""
    names = {node: f"n{k}" for k, node in enumerate(drawing.nodes())}
    yield "digraph program {\n"
    yield "  compound=true;\n  node [shape=box, fontname=monospace];\n"
    pipes = {p: k % 9 + 1 for k, p in enumerate(dict.fromkeys(n.pipe for n in drawing.nodes() if n.pipe))}
    for block in drawing.blocks:
        yield from _node(block, names, pipes, "  ")
    for edge in drawing.edges:
        yield _edge(edge, names)
    yield "}\n"


def _node(node: Node, names: dict[Node, str], pipes: dict[str, int], pad: str) -> Iterator[str]:
    if not node.inside:
        shape = f", shape={_SHAPES[node.kind]}" if node.kind in _SHAPES else ""
        if node.category is Category.ERROR:
            shape = ', style=filled, fillcolor="#f2776e"'
        elif node.pipe:
            shape = f', style=filled, fillcolor="/pastel19/{pipes[node.pipe]}"'
        tip = f", tooltip={_quoted(node.text)}" if node.text else ""
        yield f"{pad}{names[node]} [label={_quoted(label(node))}{shape}{tip}];\n"
        return
    yield f"{pad}subgraph cluster_{names[node]} {{\n"
    yield f"{pad}  label={_quoted(label(node))};\n"
    for x in node.inside:
        yield from _node(x, names, pipes, pad + "  ")
    yield f"{pad}}}\n"


def _edge(edge: Edge, names: dict[Node, str]) -> str:
    """An edge. Graphviz has no edges to a cluster, so it goes to a node inside and ends at the border."""
    source, target = edge.source, edge.target
    attrs = []
    if source.inside:
        attrs.append(f"ltail=cluster_{names[source]}")
        source = _leaf(source, last=True)
    if target.inside:
        attrs.append(f"lhead=cluster_{names[target]}")
        target = _leaf(target, last=False)
    if edge.style is not Style.USE:
        attrs.append(f"style={_STYLES[edge.style]}")
    attrs.append(f"{'label' if edge.style is Style.WAIT else 'tooltip'}={_quoted(edge.label.partition(':')[0])}")
    return f"  {names[source]} -> {names[target]} [{', '.join(attrs)}];\n"


def _leaf(node: Node, last: bool) -> Node:
    while node.inside:
        node = node.inside[-1 if last else 0]
    return node


def label(node: Node) -> str:
    """The label of a node: its title, constants, and results with their types."""
    return "\n".join([node.title, *node.facts])


def _quoted(text: str) -> str:
    return json.dumps(clean_lines(text), ensure_ascii=False)
