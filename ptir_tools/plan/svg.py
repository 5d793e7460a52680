"""A plan as a picture: time to the right, addresses upward, one box per buffer."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.lazy import lazy
from ptir_tools.core.render import clean
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.plan.liveness import Buffer
from ptir_tools.plan.record import BlockPlan, Plan
from ptir_tools.plan.write import blocks, shown

if TYPE_CHECKING:
    import html
else:
    html = lazy("html")

_WIDTH, _HEIGHT = 900.0, 360.0  # of one arena
_LEFT, _TOP, _GAP = 16.0, 28.0, 20.0
_COLORS = ("#4e79a7", "#f28e2b", "#59a14f", "#e15759", "#76b7b2", "#edc948", "#b07aa1", "#9c755f")
_LABEL = 7.0  # the width of a character


def to_svg(plan: Plan) -> Iterator[str]:
    """One chart per function and region, under each other. Every box has its value, bytes and live range as a tooltip."""
    rectangles = list(blocks(plan))
    height = len(rectangles) * (_TOP + _HEIGHT + _GAP)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH + 2 * _LEFT:g}" height="{height:g}"'
    yield ' font-family="monospace" font-size="12">\n'
    for number, (title, block) in enumerate(rectangles):
        yield from _chart(title, block, number * (_TOP + _HEIGHT + _GAP))
    yield "</svg>\n"


def _chart(title: str, block: BlockPlan, top: float) -> Iterator[str]:
    caption = f"peak {block.peak} bytes, lower bound {block.lower_bound}, ratio {block.ratio:.4f}"
    yield f'<text x="{_LEFT:g}" y="{top + 18:g}">{html.escape(clean(f"{title}: {caption}" if title else caption))}</text>\n'
    yield f'<rect x="{_LEFT:g}" y="{top + _TOP:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="#f4f4f4" stroke="#888"/>\n'
    placed = [b for b in block.placed() if b.nbytes]
    if not placed:
        return
    begin, last = min(b.start for b in placed), max(b.end for b in placed) + 1
    scale = _WIDTH / (last - begin), _HEIGHT / block.peak
    for number, b in enumerate(placed):
        yield from _box(b, _COLORS[number % len(_COLORS)], _LEFT - begin * scale[0], top + _TOP + _HEIGHT, scale)


def _box(b: Buffer, color: str, left: float, bottom: float, scale: tuple[float, float]) -> Iterator[str]:
    offset = b.offset or 0
    x, width = left + b.start * scale[0], (b.end + 1 - b.start) * scale[0]
    y, height = bottom - (offset + b.nbytes) * scale[1], b.nbytes * scale[1]
    about = f"{shown(b)}: {b.nbytes} bytes at {offset}, live {b.start}-{b.end}, {b.usage}"
    yield f'<g><title>{html.escape(clean(about))}</title><rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    yield f' fill="{color}" fill-opacity="0.8" stroke="white"/>'
    if height >= 14 and width >= _LABEL * len(shown(b)):
        yield f'<text x="{x + 3:.2f}" y="{y + height / 2 + 4:.2f}" fill="white">{html.escape(clean(shown(b)))}</text>'
    yield "</g>\n"
