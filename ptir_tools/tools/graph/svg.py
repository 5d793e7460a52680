"""A drawing as SVG; the layout needs no other program."""

from __future__ import annotations

import html
from collections.abc import Iterator
from itertools import groupby

from ptir_tools.core.records import NamedTuple
from ptir_tools.core.render import clean_lines
from ptir_tools.tools.graph.dot import label
from ptir_tools.tools.graph.drawing import Drawing, Edge, Kind, Node, Style

_CHAR, _LINE = 7.3, 15.0  # of the font, in pixels
_PAD, _GAP, _BETWEEN = 8.0, 16.0, 34.0  # inside a node, between columns, between rows
_FILL = {
    Kind.FUNCTION: "#f7f7f8", Kind.REGION: "#eef3fa", Kind.REPEAT: "#f3f0fa", Kind.OP: "#ffffff", Kind.PARAMETER: "#e8f4e8",
    Kind.RESULTS: "#fbeee2",
}  # fmt: skip

_DASHES = {Style.WAIT: "6 4", Style.REGION: "2 3"}


class Box(NamedTuple):
    """A rectangle, in pixels: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float


def escape(text: str) -> str:
    """`text` in XML, without characters that XML forbids."""
    return html.escape(clean_lines(text))


def svg(drawing: Drawing) -> Iterator[str]:
    """The picture, with all boxes open. A node's statement and an edge's value are tooltips."""
    boxes = place(drawing)
    width = max((b.x + b.width for b in boxes.values()), default=0.0) + _GAP
    height = max((b.y + b.height for b in boxes.values()), default=0.0) + _GAP
    size = f'width="{width:g}" height="{height:g}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">\n'
    yield '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    yield '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>\n'
    for node in drawing.nodes():
        yield from _node(node, boxes[node])
    for edge in drawing.edges:
        yield _edge(edge, boxes)
    yield "</svg>\n"


def place(drawing: Drawing) -> dict[Node, Box]:
    """The rectangle of every node."""
    sizes: dict[Node, tuple[float, float]] = {}
    for node in reversed(list(drawing.nodes())):  # inner before outer
        sizes[node] = _size(node, sizes)
    boxes: dict[Node, Box] = {}
    y = _GAP
    for block in drawing.blocks:
        boxes[block] = Box(_GAP, y, *sizes[block])
        y += sizes[block][1] + _BETWEEN
        for box in block.within():
            _fill(box, boxes, sizes)
    return boxes


def _rows(box: Node) -> list[list[Node]]:
    inside = sorted(box.inside, key=lambda n: (n.row, n.column))
    return [list(row) for _, row in groupby(inside, key=lambda n: n.row)]


def _size(node: Node, sizes: dict[Node, tuple[float, float]]) -> tuple[float, float]:
    lines = label(node).split("\n")
    width, height = max(map(len, lines)) * _CHAR + 2 * _PAD, len(lines) * _LINE + 2 * _PAD
    for row in _rows(node):
        width = max(width, sum(sizes[n][0] + _GAP for n in row) - _GAP + 2 * _PAD)
        height += max(sizes[n][1] for n in row) + _BETWEEN
    return width, height


def _fill(box: Node, boxes: dict[Node, Box], sizes: dict[Node, tuple[float, float]]) -> None:
    """Place the nodes inside `box`: rows under its label, each centered."""
    at = boxes[box]
    y = at.y + len(label(box).split("\n")) * _LINE + _PAD + _BETWEEN / 2
    for row in _rows(box):
        x = at.x + (at.width - sum(sizes[n][0] + _GAP for n in row) + _GAP) / 2
        for n in row:
            boxes[n] = Box(x, y, *sizes[n])
            x += sizes[n][0] + _GAP
        y += max(sizes[n][1] for n in row) + _BETWEEN


def _node(node: Node, at: Box) -> Iterator[str]:
    radius = 12 if node.kind in (Kind.PARAMETER, Kind.RESULTS) else 3
    yield f"<g><title>{escape(node.text or node.title)}</title>"
    yield f'<rect x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" rx="{radius}"'
    yield f' fill="{_FILL[node.kind]}" stroke="#889"/>'
    for k, line in enumerate(label(node).split("\n")):
        color = "#222" if k == 0 else "#667"
        yield f'<text x="{at.x + _PAD:.1f}" y="{at.y + _PAD + 11 + k * _LINE:.1f}" fill="{color}">{escape(line)}</text>'
    yield "</g>\n"


def _edge(edge: Edge, boxes: dict[Node, Box]) -> str:
    a, b = boxes[edge.source], boxes[edge.target]
    x, y, u, v = a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y
    bend = max(18.0, (v - y) / 2)
    dots = f' stroke-dasharray="{_DASHES[edge.style]}"' if edge.style in _DASHES else ""
    path = f"M{x:.1f} {y:.1f}C{x:.1f} {y + bend:.1f} {u:.1f} {v - bend:.1f} {u:.1f} {v:.1f}"
    style = f'fill="none" stroke="#667" marker-end="url(#arrow)"{dots}'
    return f'<path d="{path}" {style}><title>{escape(edge.label)}</title></path>\n'
