"""A drawing as one HTML page, which needs no network and no other file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.resources import files

from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.violations import Violation
from ptir_tools.passes import Hook
from ptir_tools.plan import Plan, plan
from ptir_tools.plan.write import blocks, shown
from ptir_tools.rewrite.pipeline import Step
from ptir_tools.tools.graph.draw import draw
from ptir_tools.tools.graph.drawing import Drawing, Node
from ptir_tools.tools.graph.repeats import Numbers

_MARK = "/*DATA*/"


class Stage(NamedTuple):
    """The program at one point: `name` is the pass before it. Without a plan an extent is not known."""

    name: str
    drawing: Drawing
    plan: Plan | None = None


class Stages(Hook):
    """Draws and plans the program before a pipeline, and after each pass that changed it."""

    def __init__(self, program: Program) -> None:
        self.numbers = Numbers()
        self.stages = [self.stage("as read", program)]

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """Draw the program after a pass."""
        if changed:
            self.stages.append(self.stage(step.name, program))

    def stage(self, name: str, program: Program) -> Stage:
        """The program as it is now."""
        return Stage(name, draw(program, parts=True, numbers=self.numbers), planned(program))


def planned(program: Program) -> Plan | None:
    """The plan of a program, or None if an extent is not known."""
    try:
        copy = clone(program)
        symbols.specialize(copy, program.attrs.get("dims", {}))
        return plan(copy, method="greedy")
    except (Violation, Rejected):
        return None


def page(title: str, stages: Sequence[Stage]) -> Iterator[str]:
    """The page. It shows the first of `stages`; a slider moves to the others."""
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    before, _, after = template.partition(_MARK)
    yield before
    strings = _Strings()
    data: dict[str, object] = {"title": title, "stages": list(_stages(stages, strings))}
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
    """Every stage: its nodes, outer before inner, with the numbers of parents; its edges; the removed statements; its plan."""
    before: list[Node] | None = None
    for name, drawing, made in stages:
        numbers = {node: k for k, node in enumerate(drawing.nodes())}
        ops = [node for node in numbers if node.text]
        new = _not_in(ops, before) if before is not None else set[Node]()
        gone = _not_in(before, ops) if before is not None else set[Node]()
        nodes = [
            [
                *(node.kind, strings(node.title), strings("\n".join(node.facts)), strings(node.text)),
                *(-1 if node.parent is None else numbers[node.parent], node.row, node.column, node.operations, node.bytes),
                *(int(node in new), strings(node.pipe), strings(node.category or ""), node.error),
            ]
            for node in numbers
        ]
        edges = [[numbers[e.source], numbers[e.target], strings(e.label), e.style] for e in drawing.edges]
        left = [strings(node.text) for node in before or () if node in gone]
        yield {"name": name, "nodes": nodes, "edges": edges, "gone": left, "plan": _plan(made)}
        before = ops


def _not_in(ops: Sequence[Node], others: Sequence[Node]) -> set[Node]:
    """The ops that are not among `others`: neither the statement, nor another that computes the same under another name."""
    texts, found = Counter(node.text for node in others), set[Node]()
    for node in ops:
        if texts[node.text] > 0:
            texts[node.text] -= 1
        else:
            found.add(node)
    signs = Counter(node.sign for node in others) - Counter(node.sign for node in ops if node not in found)
    for node in ops:
        if node in found and signs[node.sign] > 0:
            signs[node.sign] -= 1
            found.remove(node)
    return found


def _plan(plan: Plan | None) -> list[dict[str, object]]:
    """The arenas that are not empty."""
    arenas = []
    for title, block in blocks(plan) if plan is not None else ():
        buffers = [[shown(b), b.nbytes, b.start, b.end + 1, b.offset, b.usage] for b in block.placed() if b.nbytes]
        if buffers:
            alive = [shown(b) for b in block.alive_at_peak()]
            head = {"title": title, "peak": block.peak, "bound": block.lower_bound, "capacity": block.capacity, "alive": alive}
            arenas.append(head | {"buffers": buffers})
    return arenas
