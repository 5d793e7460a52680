"""From a program to its drawing."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core import costs
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Region, Value
from ptir_tools.rewrite.step_log import op_text
from ptir_tools.tools.graph.drawing import Drawing, Edge, Kind, Node, Style
from ptir_tools.tools.graph.layout import arrange
from ptir_tools.tools.graph.repeats import repeats


def draw(program: Program) -> Drawing:
    """The drawing of `program`; every node has its place. A run of ops that repeats is a box per repetition."""
    result = _Draw(program)
    arrange(result.drawing.blocks, [(e.source, e.target) for e in result.drawing.edges])
    return result.drawing


class _Draw:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.signals = program.dialect.signals
        self.drawing = Drawing()
        self.nodes: dict[Value | Op | Region, Node] = {}
        blocks: list[Region] = [*program.functions, *program.regions]
        for block in blocks:
            kind, sigil = (Kind.FUNCTION, "@") if isinstance(block, Function) else (Kind.REGION, "^")
            self.nodes[block] = node = Node(kind, sigil + block.name)
            self.drawing.blocks.append(node)
        for block in blocks:
            self.block(block, self.nodes[block])

    def block(self, block: Region, box: Node) -> None:
        """Draw the contents of `block` into `box`."""
        for p in block.params:
            self.nodes[p] = self.add(box, Node(Kind.PARAMETER, f"%{p.name}", self.types(p)))
        runs = repeats(block)
        place = 0
        for run in runs:
            self.ops(block.body[place : run.start], box)
            for k in range(run.times):
                first = run.start + k * run.length
                inner = self.add(box, Node(Kind.REPEAT, f"{k + 1} of {run.times} equal runs of {run.length} ops"))
                self.ops(block.body[first : first + run.length], inner)
            place = run.start + run.times * run.length
        self.ops(block.body[place:], box)
        if any(not isinstance(x, Literal) for x in block.results):
            end = self.add(box, Node(Kind.RESULTS, "results"))
            self.uses(block.results, end)

    def ops(self, ops: Sequence[Op], box: Node) -> None:
        for op in ops:
            self.op(op, box)

    def op(self, op: Op, box: Node) -> None:
        pipe = self.program.dialect.pipe(op) if self.program.dialect.pipe is not None else None
        title = f"{op.defn.short} [{pipe}]" if pipe else op.defn.short
        node = Node(Kind.OP, title, self.types(*(v for v in op.results if not self.signals(v.type))), op_text(op), pipe or "")
        node.operations, node.bytes = costs.operations(op).value, costs.traffic(op).value
        self.nodes[op] = self.add(box, node)
        for v in op.results:
            self.nodes[v] = node
        self.uses(op.operands, node)
        for name, r in zip(_names(op), op.regions, strict=True):
            if r.isolated:
                self.drawing.edges.append(Edge(node, self.nodes[r], f"{name} ^{r.name}", Style.REGION))
            else:
                self.block(r, self.add(node, Node(Kind.REGION, name)) if len(op.regions) > 1 else node)

    def add(self, box: Node, node: Node) -> Node:
        node.parent = box
        box.inside.append(node)
        return node

    def uses(self, operands: Sequence[Operand], node: Node) -> None:
        for x in operands:
            if isinstance(x, Value):
                style = Style.WAIT if self.signals(x.type) else Style.USE
                self.drawing.edges.append(Edge(self.nodes[x], node, f"%{x.name}: {self.types(x)[0]}", style))
            elif isinstance(x, Element):
                self.drawing.edges.append(Edge(self.nodes[x.value], node, f"%{x.value.name}[{x.index}]"))

    def types(self, *values: Value) -> tuple[str, ...]:
        return tuple(self.program.dialect.type_text(v.type) for v in values)


def _names(op: Op) -> list[str]:
    """The names of the regions of `op` in its declaration."""
    declared = op.defn.regions
    return [declared[k] if k < len(declared) else f"region {k}" for k in range(len(op.regions))]
