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
_LEFT, _RIGHT, _TOP, _GAP = 84.0, 16.0, 48.0, 46.0
_COLORS = {"temporary": "#2f6ba8", "workspace": "#7a52ab", "result": "#a85c0c", "parameter": "#2f7d40", "constant": "#646c79"}
_CHAR = 7.3  # the width of a character
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def to_svg(plan: Plan) -> Iterator[str]:
    """One chart per function and region, under each other: steps to the right, addresses upward. Every box has its value, bytes
    and live range as a tooltip."""
    rectangles = list(blocks(plan))
    width, height = _LEFT + _WIDTH + _RIGHT, len(rectangles) * (_TOP + _HEIGHT + _GAP)
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    yield ' font-family="monospace" font-size="12">\n'
    yield f'<rect width="{width:g}" height="{height:g}" fill="white"/>\n'
    for number, (title, block) in enumerate(rectangles):
        yield from _chart(title, block, number * (_TOP + _HEIGHT + _GAP))
    yield "</svg>\n"


def _chart(title: str, block: BlockPlan, top: float) -> Iterator[str]:
    caption = f"peak {block.peak} bytes, lower bound {block.lower_bound}, ratio {block.ratio:.4f}"
    yield _text(_LEFT, top + 18, f"{title}: {caption}" if title else caption)
    yield f'<rect x="{_LEFT:g}" y="{top + _TOP:g}" width="{_WIDTH:g}" height="{_HEIGHT:g}" fill="#f7f7f7" stroke="#888"/>\n'
    placed = [b for b in block.placed() if b.nbytes]
    if not placed:
        return
    for k, usage in enumerate(u for u in _COLORS if any(b.usage == u for b in placed)):
        x = _LEFT + 110 * k
        yield f'<rect x="{x:g}" y="{top + 28:g}" width="12" height="12" fill="{_COLORS[usage]}"/>'
        yield _text(x + 18, top + 38, usage)
    begin, last = min(b.start for b in placed), max(b.end for b in placed) + 1
    scale = _WIDTH / (last - begin), _HEIGHT / block.peak
    bottom = top + _TOP + _HEIGHT
    for at in _ticks(0, block.peak, 8, 2):
        y = bottom - at * scale[1]
        yield f'<path d="M{_LEFT:g} {y:.2f}h{_WIDTH:g}" stroke="#ccc"/>' + _text(_LEFT - 6, y + 4, _bytes(at), "end")
    for at in _ticks(begin, last, 12, 10):
        x = _LEFT + (at - begin) * scale[0]
        yield f'<path d="M{x:.2f} {bottom:g}v4" stroke="#888"/>' + _text(x, bottom + 17, str(at), "middle")
    yield _text(_LEFT + _WIDTH / 2, bottom + 32, "step", "middle")
    for b in placed:
        yield from _box(b, _LEFT - begin * scale[0], bottom, scale)


def _ticks(low: int, high: int, about: int, base: int) -> range:
    """Some `about` round numbers: multiples of a power of `base`, or of twice or five times a power of ten."""
    step = 1
    while (high - low) / step > about:
        step = next(n for n in (2 * step, 5 * step // 2 if base == 10 else 0) if n and (base == 2 or str(n).strip("0") in "125"))
    return range(-(-low // step) * step, high + 1, step)


def _bytes(count: int) -> str:
    unit = max(k for k in range(len(_UNITS)) if k == 0 or count >= 1 << (10 * k))
    return f"{count / (1 << (10 * unit)):.4g} {_UNITS[unit]}"


def _text(x: float, y: float, text: str, anchor: str = "start", color: str = "#222") -> str:
    place = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:.2f}" y="{y:.2f}" fill="{color}"{place}>{html.escape(clean(text))}</text>\n'


def _box(b: Buffer, left: float, bottom: float, scale: tuple[float, float]) -> Iterator[str]:
    offset = b.offset or 0
    x, width = left + b.start * scale[0], (b.end + 1 - b.start) * scale[0]
    y, height = bottom - (offset + b.nbytes) * scale[1], b.nbytes * scale[1]
    about = f"{shown(b)}: {b.nbytes} bytes at {offset}, live {b.start}-{b.end}, {b.usage}"
    yield f'<g><title>{html.escape(clean(about))}</title><rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    yield f' fill="{_COLORS.get(b.usage, "#2f6ba8")}" stroke="white"/>'
    if height >= 14 and width >= _CHAR * len(shown(b)) + 6:
        yield _text(x + 3, y + height / 2 + 4, shown(b), color="white")
    yield "</g>\n"
