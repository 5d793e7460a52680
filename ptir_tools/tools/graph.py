"""The dataflow of a program as a drawing in the language of Graphviz."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Element, Literal, Op, Operand, Region, Value


def dot(program: Program) -> str:
    """The drawing: a node per op, an edge per use, a box per function or region."""
    return "".join(f"{line}\n" for line in _Drawing(program).lines())


class _Drawing:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.nodes: dict[Value | Op | Region, str] = {}

    def lines(self) -> Iterator[str]:
        yield "digraph program {"
        yield "  node [shape=box, fontname=monospace];"
        for block in [*self.program.functions, *self.program.regions]:
            yield from self.box(block, "  ")
        yield "}"

    def box(self, block: Region, pad: str) -> Iterator[str]:
        yield f"{pad}subgraph {self.name(block, 'cluster_')} {{"
        yield f"{pad}  label={json.dumps(block.name or 'region')};"
        for p in block.params:
            yield f"{pad}  {self.name(p)} [shape=ellipse, label={self.label('%' + p.name, p)}];"
        for op in block.body:
            yield from self.op(op, pad + "  ")
        end = self.name_of_end(block)
        yield f'{pad}  {end} [shape=ellipse, label="results"];'
        yield from (f"{pad}  {self.source(x)} -> {end};" for x in block.results if not isinstance(x, Literal))
        yield f"{pad}}}"

    def op(self, op: Op, pad: str) -> Iterator[str]:
        node = self.name(op)
        for v in op.results:
            self.nodes[v] = node
        yield f"{pad}{node} [label={self.label(op.defn.short, *op.results)}];"
        yield from (f"{pad}{self.source(x)} -> {node};" for x in op.operands if not isinstance(x, Literal))
        for r in op.regions:
            if not r.isolated:
                yield from self.box(r, pad)

    def source(self, x: Operand) -> str:
        return self.nodes[x.value if isinstance(x, Element) else x]  # type: ignore[index]

    def name(self, thing: Value | Op | Region, prefix: str = "n") -> str:
        return self.nodes.setdefault(thing, f"{prefix}{len(self.nodes)}")

    def name_of_end(self, block: Region) -> str:
        return f"{self.nodes[block]}_end"

    def label(self, title: str, *values: Value) -> str:
        return json.dumps("\n".join([title, *(self.program.dialect.type_text(v.type) for v in values)]), ensure_ascii=False)
