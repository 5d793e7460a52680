"""A drawing as one HTML page, which needs no network and no other file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files

from ptir_tools.core.dialect import Program
from ptir_tools.core.records import NamedTuple
from ptir_tools.passes import Hook
from ptir_tools.plan import Plan
from ptir_tools.plan.write import blocks, shown
from ptir_tools.rewrite.pipeline import Step
from ptir_tools.tools.graph.draw import draw
from ptir_tools.tools.graph.drawing import Drawing

_MARK = "/*DATA*/"


class Stage(NamedTuple):
    """The program at one point: `name` is the pass before it."""

    name: str
    drawing: Drawing


class Stages(Hook):
    """Draws the program before a pipeline, and after each pass that changed it."""

    def __init__(self, program: Program) -> None:
        self.stages = [Stage("as read", draw(program))]

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """Draw the program after a pass."""
        if changed:
            self.stages.append(Stage(step.name, draw(program)))


def page(title: str, stages: Sequence[Stage], plan: Plan | None = None) -> Iterator[str]:
    """The page. It shows the first of `stages`; a slider moves to the others. `plan` is another picture."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    before, _, after = template.partition(_MARK)
    yield before
    strings = _Strings()
    data: dict[str, object] = {"title": title, "stages": list(_stages(stages, strings)), "plan": _plan(plan)}
    data["strings"] = list(strings.numbers)
    yield json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/").replace("<!--", "<\\u0021--")
    yield after


class _Strings:
    """Texts by number, so that a text of many nodes or stages is in the page once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def _stages(stages: Sequence[Stage], strings: _Strings) -> Iterator[dict[str, object]]:
    """Every stage: its nodes, outer before inner, with the numbers of parents; its edges; the removed statements."""
    before: Counter[str] | None = None
    for name, drawing in stages:
        numbers = {node: k for k, node in enumerate(drawing.nodes())}
        texts = Counter(node.text for node in numbers if node.text)
        new = texts - before if before is not None else Counter[str]()
        gone = before - texts if before is not None else Counter[str]()
        nodes = [
            [
                *(node.kind, strings(node.title), strings("\n".join(node.types)), strings(node.text)),
                *(-1 if node.parent is None else numbers[node.parent], node.row, node.column, node.operations, node.bytes),
                *(int(bool(node.text) and node.text in new), strings(node.pipe)),
            ]
            for node in numbers
        ]
        edges = [[numbers[e.source], numbers[e.target], strings(e.label), e.style] for e in drawing.edges]
        yield {"name": name, "nodes": nodes, "edges": edges, "gone": [strings(text) for text in gone.elements()]}
        before = texts


def _plan(plan: Plan | None) -> list[dict[str, object]]:
    """The arenas that are not empty."""
    arenas = []
    for title, block in blocks(plan) if plan is not None else ():
        buffers = [[shown(b), b.nbytes, b.start, b.end + 1, b.offset, b.usage] for b in block.placed() if b.nbytes]
        if buffers:
            head = {"title": title, "peak": block.peak, "bound": block.lower_bound, "capacity": block.capacity}
            arenas.append(head | {"buffers": buffers})
    return arenas
