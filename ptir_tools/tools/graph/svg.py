"""A drawing as SVG; the layout needs no other program."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise

from ptir_tools.core.records import NamedTuple
from ptir_tools.core.render import clean_lines
from ptir_tools.tools.graph.dot import label
from ptir_tools.tools.graph.drawing import Category, Drawing, Edge, Kind, Node, Style

_CHAR, _LINE = 7.3, 15.0  # of the font, in pixels
_PAD, _GAP, _BETWEEN = 8.0, 18.0, 34.0  # inside a node, between columns, between rows
_MARGIN = 22.0  # next to the nodes in a box: long edges are there
_FAR = 12  # rows; an edge over more of them goes through the margin
_LEGEND = 30.0
_FILL = {
    Kind.FUNCTION: "#f7f7f8", Kind.REGION: "#eef3fa", Kind.SPACE: "#f1f4f1", Kind.REPEAT: "#f3f0fa", Kind.RUN: "#faf8ff",
    Kind.PART: "#f4f4f4", Kind.OP: "#ffffff", Kind.PARAMETER: "#dcefdc", Kind.RESULTS: "#fbe3cc",
}  # fmt: skip
COLORS = {
    Category.CONSTANT: "#e4e4e4", Category.ELEMENTWISE: "#d5e8fb", Category.PRODUCT: "#fbd0cb", Category.REDUCTION: "#fde6b3",
    Category.MOVEMENT: "#d8f0e3", Category.MEMORY: "#cfe9ee", Category.CONTROL: "#e6d9f7", Category.CALL: "#f9d6ec",
    Category.OTHER: "#ffffff", Category.ERROR: "#f2776e",
}  # fmt: skip
_DASHES = {Style.WAIT: "6 4", Style.REGION: "2 3"}


class Box(NamedTuple):
    """A rectangle, in pixels: its upper left corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        """The x of its middle."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The y of its lower side."""
        return self.y + self.height


Boxes = Mapping[Node, Box]


class Bend(NamedTuple):
    """A piece of an edge: a curve to (`x`, `top`), then straight down to `bottom`."""

    x: float
    top: float
    bottom: float


def escape(text: str) -> str:
    """`text` in XML, without characters that XML forbids."""
    return html.escape(clean_lines(text))


def svg(drawing: Drawing) -> Iterator[str]:
    """The picture, with all boxes open and a legend. A node's statement and an edge's value are tooltips."""
    boxes = place(drawing)
    used = [c for c in Category if any(n.category is c and not n.pipe for n in drawing.nodes())]
    legend = list(_legend(used))
    width = max([*(b.x + b.width for b in boxes.values()), _GAP + 110 * len(used)], default=0.0) + _GAP
    height = max((b.bottom for b in boxes.values()), default=0.0) + _GAP
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    yield f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="12">\n'
    yield '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    yield '<path d="M0 0L8 4L0 8z" fill="#667"/></marker></defs>\n'
    yield f'<rect width="{width:g}" height="{height:g}" fill="white"/>\n'
    yield from legend
    rows = _Rows(drawing, boxes)
    titles: list[str] = []
    for node in drawing.nodes():
        yield from _node(node, boxes[node], titles)
    for edge in drawing.edges:
        yield _edge(edge, rows)
    yield from titles  # above the edges
    yield "</svg>\n"


def place(drawing: Drawing) -> dict[Node, Box]:
    """The rectangle of every node."""
    sizes: dict[Node, tuple[float, float]] = {}
    for node in reversed(list(drawing.nodes())):  # inner before outer
        sizes[node] = _size(node, sizes)
    boxes: dict[Node, Box] = {}
    y = _GAP + _LEGEND
    for block in drawing.blocks:
        boxes[block] = Box(_GAP, y, *sizes[block])
        y += sizes[block][1] + _BETWEEN
        for box in block.within():
            _fill(box, boxes, sizes)
    return boxes


def _rows(box: Node) -> list[list[Node]]:
    inside = sorted(box.inside, key=lambda n: (n.row, n.column))
    return [list(row) for _, row in groupby(inside, key=lambda n: n.row)]


def _size(node: Node, sizes: Mapping[Node, tuple[float, float]]) -> tuple[float, float]:
    lines = label(node).split("\n")
    width, height = max(map(len, lines)) * _CHAR + 2 * _PAD, len(lines) * _LINE + 2 * _PAD
    for row in _rows(node):
        width = max(width, sum(sizes[n][0] + _GAP for n in row) - _GAP + 2 * _MARGIN)
        height += max(sizes[n][1] for n in row) + _BETWEEN
    return width, height


def _fill(box: Node, boxes: dict[Node, Box], sizes: Mapping[Node, tuple[float, float]]) -> None:
    """Place the nodes inside `box`: rows under its label, each centered."""
    at = boxes[box]
    y = at.y + len(label(box).split("\n")) * _LINE + _PAD + _BETWEEN / 2
    for row in _rows(box):
        x = at.x + (at.width - sum(sizes[n][0] + _GAP for n in row) + _GAP) / 2
        for n in row:
            boxes[n] = Box(x, y, *sizes[n])
            x += sizes[n][0] + _GAP
        y += max(sizes[n][1] for n in row) + _BETWEEN


class _Rows:
    """The rows of nodes of each box, and ways between the nodes."""

    def __init__(self, drawing: Drawing, boxes: Boxes) -> None:
        self.boxes = boxes
        self.rows: dict[Node | None, list[list[Node]]] = {None: [[block] for block in drawing.blocks]}
        self.place: dict[Node, int] = {}
        for node in drawing.nodes():
            self.rows[node] = _rows(node)
        for rows in self.rows.values():
            self.place.update((n, k) for k, row in enumerate(rows) for n in row)

    def route(self, source: Node, target: Node) -> list[Bend] | None:
        """The way from the bottom of `source` to the top of `target` around all other nodes; None if it would lead upward."""
        a, b = _ancestors(source), _ancestors(target)
        shared = 0
        while shared < min(len(a), len(b)) and a[shared] is b[shared]:
            shared += 1
        if shared == min(len(a), len(b)) or self.place[a[shared]] >= self.place[b[shared]]:
            return None
        end = self.boxes[target].middle
        bends = [Bend(self.boxes[source].middle, self.boxes[source].bottom, self._row_bottom(source))]
        for node in reversed(a[shared + 1 :]):  # out of the boxes around the source
            rows = self.rows[node.parent]
            self._pass(node.parent, self.place[node] + 1, len(rows), end, bends)
            assert node.parent is not None
            bends[-1] = bends[-1]._replace(bottom=self._row_bottom(node.parent))
        self._pass(a[shared].parent, self.place[a[shared]] + 1, self.place[b[shared]], end, bends)
        for node in b[shared + 1 :]:  # into those around the target
            outer = self.boxes[b[shared] if node.parent is None else node.parent]
            x = min(max(end, outer.x + _MARGIN / 2), outer.x + outer.width - _MARGIN / 2)
            first = self.boxes[self.rows[node.parent][0][0]].y
            bends.append(Bend(x, outer.y, first - _BETWEEN / 2))
            self._pass(node.parent, 0, self.place[node], end, bends)
        bends.append(Bend(end, self.boxes[target].y, self.boxes[target].y))
        return bends

    def _row_bottom(self, node: Node) -> float:
        return max(self.boxes[n].bottom for n in self.rows[node.parent][self.place[node]])

    def _pass(self, box: Node | None, start: int, end: int, goal: float, bends: list[Bend]) -> None:
        """Pass the rows `start` to `end` of a box: through the gap of each that is nearest to the straight way, or, if there are
        many, through the margin."""
        rows = self.rows[box]
        if end - start > _FAR:
            x = (self.boxes[box].x if box is not None else 0.0) + 4 + 3 * (len(bends) + start) % (_MARGIN - 8)
            bends.append(Bend(x, self.boxes[rows[start][0]].y, self._row_bottom(rows[end - 1][0])))
            return
        for k in range(start, end):
            x = bends[-1].x
            aim = x + (goal - x) / (end - k + 1)
            row = [self.boxes[n] for n in rows[k]]
            gaps = [row[0].x - _GAP / 2, *((p.x + p.width + q.x) / 2 for p, q in pairwise(row))]
            gaps.append(row[-1].x + row[-1].width + _GAP / 2)
            bends.append(Bend(min(gaps, key=lambda g: abs(g - aim)), row[0].y, max(p.bottom for p in row)))


def _ancestors(node: Node) -> list[Node]:
    """The boxes around a node, outer before inner, and the node."""
    found = [node]
    while found[-1].parent is not None:
        found.append(found[-1].parent)
    return found[::-1]


def _legend(used: list[Category]) -> Iterator[str]:
    x = _GAP
    for c in used:
        yield f'<rect x="{x:.1f}" y="{_GAP:.1f}" width="14" height="14" rx="3" fill="{COLORS[c]}" stroke="#889"/>'
        yield f'<text x="{x + 20:.1f}" y="{_GAP + 11:.1f}" fill="#222">{c}</text>\n'
        x += 110


def _node(node: Node, at: Box, titles: list[str]) -> Iterator[str]:
    radius = 12 if node.kind in (Kind.PARAMETER, Kind.RESULTS) else 3
    fill = COLORS[node.category] if node.category and not node.pipe and not node.inside else _FILL[node.kind]
    yield f"<g><title>{escape(node.text or node.title)}</title>"
    yield f'<rect x="{at.x:.1f}" y="{at.y:.1f}" width="{at.width:.1f}" height="{at.height:.1f}" rx="{radius}"'
    yield f' fill="{fill}" stroke="#889"/>'
    halo = f' paint-order="stroke" stroke="{fill}" stroke-width="4"' if node.inside else ""
    for k, line in enumerate(label(node).split("\n")):
        color = "#222" if k == 0 or node.category is Category.ERROR else "#556"
        x, y = at.x + _PAD, at.y + _PAD + 11 + k * _LINE
        text = f'<text x="{x:.1f}" y="{y:.1f}" fill="{color}"{halo}>{escape(line)}</text>'
        if node.inside:
            titles.append(text + "\n")
        else:
            yield text
    yield "</g>\n"


def _edge(edge: Edge, rows: _Rows) -> str:
    dots = f' stroke-dasharray="{_DASHES[edge.style]}"' if edge.style in _DASHES else ""
    a, b = rows.boxes[edge.source], rows.boxes[edge.target]
    bends = rows.route(edge.source, edge.target) or [Bend(a.middle, a.bottom, a.bottom), Bend(b.middle, b.y, b.y)]
    path = f"M{bends[0].x:.1f} {bends[0].top:.1f}V{bends[0].bottom:.1f}"
    y = bends[0].bottom
    for before, bend in pairwise(bends):
        half = (y + bend.top) / 2 if bend.top > y else y + 18
        other = half if bend.top > y else bend.top - 18
        path += f"C{before.x:.1f} {half:.1f} {bend.x:.1f} {other:.1f} {bend.x:.1f} {bend.top:.1f}V{bend.bottom:.1f}"
        y = bend.bottom
    style = f'fill="none" stroke="#667" marker-end="url(#arrow)"{dots}'
    return f'<path d="{path}" {style}><title>{escape(edge.label)}</title></path>\n'
