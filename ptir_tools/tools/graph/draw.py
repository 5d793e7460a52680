"""From a program to its drawing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptir_tools.core import costs
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import CALLS, READS, WRITES, Element, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.types import POISON
from ptir_tools.rewrite.step_log import literal_text, op_text
from ptir_tools.tools.graph.drawing import Category, Drawing, Edge, Kind, Node, Style
from ptir_tools.tools.graph.layout import arrange
from ptir_tools.tools.graph.repeats import Numbers, Space, repeats, spaces

_PART = 40  # nodes that are still easy to read in one box
Items = Sequence[Op | Space]


Faults = Mapping[Op, Sequence[str]]


def draw(
    program: Program,
    *,
    folded: bool = False,
    parts: bool = False,
    numbers: Numbers | None = None,
    faults: Faults | None = None,
) -> Drawing:
    """The drawing of `program`; every node has its place. Ops of a name space are in a box. Equal runs of ops are a box each, and
    these in one box.

    `folded`: only the first of equal runs is drawn. `parts`: a long block is cut into boxes of consecutive ops. `numbers` gives
    nodes their `sign`. `faults`: the errors of ops, which are then drawn as such; the program need not be valid.
    """
    result = _Draw(program, folded, parts, numbers or Numbers(), faults=faults)
    arrange(result.drawing.blocks, [(e.source, e.target) for e in result.drawing.edges])
    return result.drawing


def side_by_side(first: Program, second: Program, errors: Mapping[Value, float]) -> Drawing:
    """One drawing of two programs, next to each other; `errors` of values color their ops."""
    both = Drawing()
    for column, program in enumerate((first, second)):
        made = _Draw(program, False, True, Numbers(), errors)
        arrange(made.drawing.blocks, [(e.source, e.target) for e in made.drawing.edges])
        for block in made.drawing.blocks:
            block.column = column
        both.blocks += made.drawing.blocks
        both.edges += made.drawing.edges
    return both


class _Draw:
    def __init__(
        self,
        program: Program,
        folded: bool,
        parts: bool,
        numbers: Numbers,
        errors: Mapping[Value, float] | None = None,
        faults: Faults | None = None,
    ) -> None:
        self.program, self.faults = program, faults
        self.folded, self.parts, self.numbers, self.errors = folded, parts, numbers, errors or {}
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
            self.nodes[p] = self.add(box, Node(Kind.PARAMETER, f"%{p.name}", (self.type(p),)))
        self.items(spaces(block.body), box)
        if any(not isinstance(x, Literal) for x in block.results):
            end = self.add(box, Node(Kind.RESULTS, "results"))
            self.uses(block.results, end)

    def items(self, items: Items, box: Node) -> None:
        """Draw ops and name spaces into `box`, equal runs of them in one box together."""
        runs = repeats(items)
        wanted: list[tuple[int, int]] = []  # the items of each drawn piece: a run, or one item
        place = 0
        for run in runs:
            wanted += [(k, k + 1) for k in range(place, run.start)]
            place = run.start + run.length * run.times
            wanted.append((run.start, place))
        wanted += [(k, k + 1) for k in range(place, len(items))]
        by_start = {run.start: run for run in runs}
        for piece in self.pieces(wanted):
            into = box
            if len(piece) < len(wanted):
                into = self.add(box, Node(Kind.PART, _titles(items[piece[0][0]], items[piece[-1][1] - 1])))
                if len(piece) > _PART:
                    self.items(items[piece[0][0] : piece[-1][1]], into)
                    continue
            for start, end in piece:
                if start in by_start:
                    self.repeat(items[start:end], by_start[start].length, by_start[start].times, into)
                else:
                    self.item(items[start], into)

    def pieces(self, wanted: Sequence[tuple[int, int]]) -> list[Sequence[tuple[int, int]]]:
        """The parts of a long block, of which there are few; of any other the block itself."""
        count, size = len(wanted), _PART
        if not self.parts or count <= size:
            return [wanted]
        while size * _PART < count:
            size *= _PART
        return [wanted[k : k + size] for k in range(0, count, size)]

    def item(self, item: Op | Space, box: Node) -> None:
        if isinstance(item, Op):
            self.op(item, box)
        else:
            self.items(item.items, self.add(box, Node(Kind.SPACE, item.title)))

    def repeat(self, items: Items, length: int, times: int, box: Node) -> None:
        """Draw equal runs, or the first of them."""
        ops = sum(x.size if isinstance(x, Space) else 1 for x in items[:length])
        outer = self.add(box, Node(Kind.REPEAT, f"×{times}, {ops} ops each"))
        for k in range(times):
            run = items[k * length : (k + 1) * length]
            if k and self.folded:
                self.hide(run, outer)
                continue
            inner = self.add(outer, Node(Kind.RUN, f"{k + 1} of {times}"))
            if length == 1 and isinstance(run[0], Space):
                inner.title += f": {run[0].title}"
                run = run[0].items
            for item in run:
                self.item(item, inner)

    def hide(self, items: Items, box: Node) -> None:
        """Let `box` be the node of `items`."""
        for x in items:
            if isinstance(x, Space):
                self.hide(x.items, box)
                continue
            self.nodes[x] = box
            self.nodes.update(dict.fromkeys(x.results, box))
            self.uses([v for v in x.operands if not isinstance(v, Literal) and self.node_of(v) is not box], box)

    def op(self, op: Op, box: Node) -> None:
        pipe = self.program.dialect.pipe(op) if self.program.dialect.pipe is not None else None
        title = f"{op.defn.short} [{pipe}]" if pipe else op.defn.short
        constants = [literal_text(x) for x in (*op.operands, *op.attrs) if isinstance(x, Literal)]
        facts = [", ".join(constants)] if constants else []
        facts += [f"%{v.name}: {self.type(v)}" for v in op.results if not self.signals(v.type)]
        node = Node(Kind.OP, title, tuple(facts), op_text(op), pipe or "", category(op))
        if self.faults is None:
            node.sign = self.numbers(op)
        if wrong := (self.faults or {}).get(op):
            node.facts, node.pipe, node.category = (*wrong, *facts), "", Category.ERROR
        if wrong or POISON in (*map(operand_type, op.operands), *(v.type for v in op.results)):
            node.operations = node.bytes = 0
        else:
            node.operations, node.bytes = costs.operations(op).value, costs.traffic(op).value
        node.error = max((self.errors[v] for v in op.results if v in self.errors), default=None)
        self.nodes[op] = self.add(box, node)
        for v in op.results:
            self.nodes[v] = node
        self.uses(op.operands, node)
        for name, r in zip(_names(op), op.regions, strict=True):
            if r.isolated and r not in self.nodes:
                continue  # there is no such region
            if r.isolated:
                self.drawing.edges.append(Edge(node, self.nodes[r], f"{name} ^{r.name}", Style.REGION))
            else:
                self.block(r, self.add(node, Node(Kind.REGION, name)) if len(op.regions) > 1 else node)

    def add(self, box: Node, node: Node) -> Node:
        node.parent = box
        box.inside.append(node)
        return node

    def node_of(self, x: Operand) -> Node:
        """The node that defines a value."""
        assert not isinstance(x, Literal)
        return self.nodes[x if isinstance(x, Value) else x.value]

    def undefined(self, x: Operand, node: Node) -> None:
        """Draw a value that an invalid program uses without defining it before."""
        value = x.value if isinstance(x, Element) else x
        if isinstance(value, Value) and value not in self.nodes:
            made = Node(Kind.PARAMETER, f"%{value.name}", ("not defined here",), category=Category.ERROR)
            self.nodes[value] = self.add(node.parent or node, made)

    def uses(self, operands: Sequence[Operand], node: Node) -> None:
        for x in operands:
            if self.faults is not None:
                self.undefined(x, node)
            if isinstance(x, Value):
                style = Style.WAIT if self.signals(x.type) else Style.USE
                self.edge(self.nodes[x], node, f"%{x.name}: {self.type(x)}", style)
            elif isinstance(x, Element):
                self.edge(self.nodes[x.value], node, f"%{x.value.name}[{x.index}]")

    def edge(self, source: Node, target: Node, label: str, style: Style = Style.USE) -> None:
        """An edge, except one between a box and what is inside it: a use in another of equal runs."""
        if source.kind is Kind.REPEAT and (target is source or _is_in(target, source)):
            return
        if target.kind is Kind.REPEAT and _is_in(source, target):
            return
        self.drawing.edges.append(Edge(source, target, label, style))

    def type(self, value: Value) -> str:
        return self.program.dialect.type_text(value.type)


def category(op: Op) -> Category:
    """What an op does, by the facts in its declaration."""
    d = op.defn
    if d.is_constant or (d.is_pure and not d.groups):
        return Category.CONSTANT
    if d.control is not None or op.regions:
        return Category.CONTROL
    if CALLS in d.traits:
        return Category.CALL
    if d.traits & (READS | WRITES):
        return Category.MEMORY
    if d.is_elementwise and not d.is_movement:
        return Category.ELEMENTWISE
    if d.is_movement or d.view is not None:
        return Category.MOVEMENT
    if d.kernel is not None and d.kernel.role in ("product", "reduce"):
        return Category.PRODUCT if d.kernel.role == "product" else Category.REDUCTION
    if d.cost is None:
        return Category.OTHER
    return Category.PRODUCT if sum(not isinstance(x, Literal) for x in op.operands) > 1 else Category.REDUCTION


def _is_in(node: Node, box: Node) -> bool:
    at: Node | None = node
    while at is not None and at is not box:
        at = at.parent
    return at is box


def _titles(first: Op | Space, last: Op | Space) -> str:
    """The title of a part: its first and its last value."""
    ends = []
    for x, k in ((first, 0), (last, -1)):
        while isinstance(x, Space):
            x = x.items[k]
        ends.append(f"%{x.results[k].name}" if x.results else x.defn.short)
    return " … ".join(ends)


def _names(op: Op) -> list[str]:
    """The names of the regions of `op` in its declaration."""
    declared = op.defn.regions
    return [declared[k] if k < len(declared) else f"region {k}" for k in range(len(op.regions))]
