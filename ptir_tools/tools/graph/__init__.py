"""Programs as drawings: `dot` for Graphviz, `svg`, and `page`, a self-contained HTML page."""

from ptir_tools.tools.graph.dot import dot
from ptir_tools.tools.graph.draw import draw, side_by_side
from ptir_tools.tools.graph.drawing import Drawing, Edge, Kind, Node, Style
from ptir_tools.tools.graph.page import Stage, Stages, page
from ptir_tools.tools.graph.svg import svg

__all__ = ["Drawing", "Edge", "Kind", "Node", "Stage", "Stages", "Style", "dot", "draw", "page", "side_by_side", "svg"]
