"""The prepared form of a PTIR function: tile ops, views, writes to memory, loops and branches."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from ptir_tools.convert.ptir_to_pto.axes import MOVES, AffineExpr, Subview
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc
from ptir_tools.core.symbols import mentioned
from ptir_tools.core.typed import Any
from ptir_tools.core.types import Sym


@dataclass(slots=True, eq=False)
class Loop:
    """A loop: `body` for every number from `lower` up to `upper`, which may be an extent, by `step`."""

    counter: Value
    lower: Operand
    upper: Operand | Sym
    step: int
    body: list[Item]
    loc: Loc = 0


@dataclass(slots=True, eq=False)
class Branch:
    """One of two blocks, by a scalar."""

    condition: Operand
    then: list[Item]
    otherwise: list[Item]
    loc: Loc = 0


Item = Op | Loop | Branch


def blocks(item: Item) -> list[list[Item]]:
    """The blocks of a loop or branch."""
    return [] if isinstance(item, Op) else [item.body] if isinstance(item, Loop) else [item.then, item.otherwise]


@dataclass(slots=True, frozen=True)
class Write:
    """The target of a copy: a part of `memory` from `first` with strides `steps`."""

    memory: Value
    first: tuple[AffineExpr, ...]
    steps: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Outline:
    """The function. Values without an op that are not parameters are memory, which copies (`writes`) fill. `scalars` are computed
    outside of kernels: offsets, trip counts, predicates."""

    name: str
    params: list[Value] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    results: list[Operand] = field(default_factory=list)
    names: list[str] = field(default_factory=list)  # of results
    attrs: dict[str, Any] = field(default_factory=dict)
    loc: Loc = 0
    subviews: dict[Op, Subview] = field(default_factory=dict)  # the subviews of ops' first operands
    writes: dict[Value, Write] = field(default_factory=dict)  # by the results of copies
    kept: set[Value] = field(default_factory=set)  # copies that cannot be views: their source changes
    scalars: set[Value] = field(default_factory=set)
    extents: dict[Value, Sym] = field(default_factory=dict)  # scalars that are extents
    lengths: dict[Sym, Value] = field(default_factory=dict)  # extents that are scalars: only subviews have them
    lost: set[Value] = field(default_factory=set)  # refused values

    def is_view(self, op: Op) -> bool:
        """Whether an op is a view."""
        return op in self.subviews or (op.defn.short in MOVES and op.result not in self.writes and op.result not in self.kept)

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
    writers: dict[Value, list[Op]] = {}
    for op in _ops(outline.items):
        if (write := outline.writes.get(op.result)) is not None:
            writers.setdefault(write.memory, []).append(op)
    live: set[Value] = set()
    todo = values_of(outline.results)
    todo += [v for item in _nested(outline.items) for v in values_of(_bounds(item))]
    while todo:
        v = todo.pop()
        if v not in live:
            live.add(v)
            for op in (*writers.get(v, ()), *([v.op] if v.op is not None else [])):
                live.add(op.result)
                subview, write = outline.subviews.get(op), outline.writes.get(op.result)
                index_map = (*(subview.first if subview else ()), *(write.first if write else ()))
                shown = mentioned((op.result.type, *(subview.cuts if subview else ())))
                todo += [*op.values(), *(v for s in index_map for v, _ in s.shifts)]
                todo += [outline.lengths[s] for s in shown if s in outline.lengths]

    def kept(items: list[Item]) -> list[Item]:
        for item in items:
            for block in blocks(item):
                block[:] = kept(block)
        return [i for i in items if not isinstance(i, Op) or live.intersection(i.results)]

    outline.items = kept(outline.items)
    outline.extents = {v: s for v, s in outline.extents.items() if v in live}
    return live


def _nested(items: Sequence[Item]) -> Iterator[Loop | Branch]:
    for item in items:
        if not isinstance(item, Op):
            yield item
            for block in blocks(item):
                yield from _nested(block)


def _ops(items: Sequence[Item]) -> Iterator[Op]:
    yield from (i for i in items if isinstance(i, Op))
    for item in _nested(items):
        for block in blocks(item):
            yield from (i for i in block if isinstance(i, Op))


def _bounds(item: Loop | Branch) -> list[Operand]:
    if isinstance(item, Branch):
        return [item.condition]
    return [item.lower, *([] if isinstance(item.upper, Sym) else [item.upper])]
