"""The prepared form of a PTIR function, and facts about its values: views, writes to memory, scalars, extents."""

from __future__ import annotations

from collections.abc import Container

from ptir_tools.convert.ptir_to_pto.axes import MOVES, AffineExpr, Subview
from ptir_tools.core.ir import Element, Function, Literal, Op, Operand, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.symbols import symbolic
from ptir_tools.core.types import Sym


@dataclass(slots=True, frozen=True)
class Write:
    """The target of a copy: a part of `memory` from `first` with strides `steps`."""

    memory: Value
    first: tuple[AffineExpr, ...]
    steps: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Outline:
    """The function: PTIR ops in blocks, which `scf.for` and `scf.if` nest. Values without an op that are not parameters are
    memory, which copies (`writes`) fill. `scalars` are computed outside of kernels: offsets, trip counts, predicates."""

    function: Function
    subviews: dict[Op, Subview] = field(default_factory=dict)  # the subviews of ops' first operands
    writes: dict[Value, Write] = field(default_factory=dict)  # by the results of copies
    scalars: set[Value] = field(default_factory=set)
    extents: dict[Value, Sym] = field(default_factory=dict)  # scalars that are extents
    lengths: dict[Sym, Value] = field(default_factory=dict)  # extents that are scalars: only subviews have them
    lost: set[Value] = field(default_factory=set)  # refused values

    def is_view(self, op: Op) -> bool:
        """Whether an op is a view."""
        return op in self.subviews or (op.defn.short in MOVES and op.result not in self.writes)

    def base(self, x: Operand, stored: Container[Value]) -> tuple[Operand, list[Op]]:
        """The source of an operand (a parameter, memory, a literal or a kernel's value), and the views on it in order."""
        path: list[Op] = []
        while isinstance(x, Value) and x.op is not None and x not in stored and self.is_view(x.op):
            path.append(x.op)
            x = x.op.operands[0]
        if isinstance(x, Value) and x.op is not None and x.op.defn.is_constant:
            return x.op.attr("value"), []
        return x, path[::-1]

    def memory(self, v: Value) -> Value:
        """The memory in which a kernel stores a value."""
        return self.writes[v].memory if v in self.writes else v


def values_of(xs: tuple[Operand, ...] | list[Operand]) -> list[Value]:
    """The values among operands."""
    return [x.value if isinstance(x, Element) else x for x in xs if not isinstance(x, Literal)]


def prune(outline: Outline) -> set[Value]:
    """Drop dead ops and dead stores. Returns the live values."""
    function, writers = outline.function, dict[Value, list[Op]]()
    ops = list(function.ops())
    for op in ops:
        if op.results and (write := outline.writes.get(op.result)) is not None:
            writers.setdefault(write.memory, []).append(op)
    live: set[Value] = set()
    todo = values_of(function.results) + [v for op in ops if op.regions for v in op.values()]
    while todo:
        v = todo.pop()
        if v not in live:
            live.add(v)
            for op in (*writers.get(v, ()), *([v.op] if v.op is not None else [])):
                live.add(op.result)
                subview, write = outline.subviews.get(op), outline.writes.get(op.result)
                index_map = (*(subview.first if subview else ()), *(write.first if write else ()))
                shown = symbolic((op.result.type, *(subview.cuts if subview else ())))
                todo += [*op.values(), *(v for s in index_map for v, _ in s.shifts)]
                todo += [outline.lengths[s] for s in shown if s in outline.lengths]
    for block in function.blocks():
        block.body[:] = [op for op in block.body if op.regions or live.intersection(op.results)]
    outline.extents = {v: s for v, s in outline.extents.items() if v in live}
    return live
