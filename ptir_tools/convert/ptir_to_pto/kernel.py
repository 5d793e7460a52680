"""The ops of one kernel, and the axes of its operands and results."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import (
    MOVES,
    AffineExpr,
    AffineMap,
    Axis,
    Dim,
    Dims,
    aligned,
    distinct,
    flat,
    fresh,
    resolved,
    times,
    viewed,
    weight,
    whole,
)
from ptir_tools.convert.ptir_to_pto.outline import Outline
from ptir_tools.core.dtypes import I1, INDEX, SI8, DType
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.symbols import symbolic
from ptir_tools.core.types import UNKNOWN, Sym, TensorType, Type
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.pto.names import DTYPE_TEXT
from ptir_tools.rewrite.vocabulary import tensor_type

REDUCTIONS = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min")
COMBINED = dict(zip(REDUCTIONS, ("add", "mul", "max", "min"), strict=True))  # the op that combines two partial results
POSITIONS = ("argmax", "argmin")  # reduce one axis to the index of the extreme
PRODUCT = "dot_general"
WHOLE = 6144  # the largest reduced extent of a whole block; a third of it for integers, whose rows are transposed
TAKE = "take"  # a gather from a table by indices that are data
MASKED = ("round_even", "round_away", "floor", "ceil", "cast", TAKE)  # selects with masks
COUNT = "iota"  # rematerialized at its uses, as constants are


@dataclass(slots=True, frozen=True)
class Product:
    """The axes of a product: the free axes of each operand, and the contracted ones."""

    rows: Dim
    columns: Dim
    inner: Dim


@dataclass(slots=True, frozen=True)
class Read:
    """An operand: the value or literal that it is a view of, its index map, and the axes of the view."""

    base: Operand
    index_map: AffineMap
    dims: Dims

    @property
    def memory(self) -> Dims:
        """The axes that the dimensions of the memory have."""
        return tuple(s.axes for s in self.index_map)


class Shapes:
    """The axes of a kernel's values and operands. `stored` are the values of earlier kernels; other views are looked through. A
    memory operand has the same axes at all uses, or new axes per use if not `shared`. Raises Violation, with the op's location,
    when the ops do not fit one loop nest over the axes of the largest value.
    """

    def __init__(self, outline: Outline, body: Sequence[Op], stored: Container[Value], shared: bool = True) -> None:
        self.outline = outline
        self.body = body
        self.shared: dict[Value, tuple[AffineMap, Dims]] | None = {} if shared else None
        self.made: dict[Value, Dims] = {}
        self.reads: dict[tuple[Op, int], Read] = {}
        self.reduced: list[Axis] = []
        self.used: list[set[Axis]] = []  # by op, with its reduced axes
        products: dict[Op, tuple[Dims, Dims, Dims]] = {}
        reduced: dict[Op, Dims] = {}
        for op in body:
            try:
                dims = [self._read(op, i, x, stored) for i, x in enumerate(op.operands)]
                self.made[op.result] = _result(op, dims, reduced, products, op in outline.subviews)
            except Violation as violation:
                violation.loc = violation.loc or op.loc
                raise
        self._resolve(reduced, products)

    def _read(self, op: Op, i: int, x: Operand, stored: Container[Value]) -> Dims:
        base, path = self.outline.base(x, Either(stored, self.made))
        path += [op] * (op in self.outline.subviews and i == 0)
        if isinstance(base, Element):
            raise Violation(NOT_TRANSLATABLE, "an element of a tuple is not a tile")
        if isinstance(base, Literal):
            shown = op.result if path and path[-1] is op else x  # of a subview only its part is read
            dims = fresh(tensor_type(shown).shape)
            self.reads[op, i] = Read(base, (), dims)
            return dims
        if (dims := self.made.get(base, ())) or base in self.made:
            complete = op.defn.short == PRODUCT or not reads_itself(op, i, self.outline)
            require(complete, NOT_TRANSLATABLE, f"a {op.defn.short} reads rows that the loop has not computed yet")
            index_map = whole(dims)
        else:
            parts = max((k + 1 for k, view in enumerate(path) if view in self.outline.subviews), default=0)
            index_map, dims = self._seen(base, path[:parts])
            path = path[parts:]
        for view in path:
            dims = viewed(view, dims)
        self.reads[op, i] = Read(base, index_map, dims)
        return dims

    def _seen(self, base: Value, path: Sequence[Op]) -> tuple[AffineMap, Dims]:
        """The index map and dimensions of a memory, seen through the views of `path`."""
        key = path[-1].result if path else base
        if self.shared is not None and key in self.shared:
            return self.shared[key]
        dims = fresh(tensor_type(base).shape)
        index_map = whole(dims)
        for view in path:
            if (subview := self.outline.subviews.get(view)) is not None:
                index_map = tuple(s.resolved() for s in index_map)
                index_map, dims = subview.through(index_map, dims)
            else:
                dims = viewed(view, dims)
        if self.shared is not None:
            self.shared[key] = index_map, dims
        return index_map, dims

    def _resolve(self, reduced: dict[Op, Dims], products: dict[Op, tuple[Dims, Dims, Dims]]) -> None:
        """Express everything in the current axes, and find the largest value."""
        self.made = {v: resolved(dims) for v, dims in self.made.items()}
        self.reads = {
            key: Read(r.base, tuple(s.resolved() for s in r.index_map), resolved(r.dims)) for key, r in self.reads.items()
        }
        self.products = [Product(*map(flat, parts)) for parts in products.values()]
        reads = {(op, i): r for (op, i), r in self.reads.items() if not reads_itself(op, i, self.outline)}
        self.tiles = [*self.made.values(), *(r.memory for r in reads.values() if not isinstance(r.base, Literal))]
        for dims in self.tiles:
            distinct(dims)
        every = dict.fromkeys([*self.made.values(), *(r.dims for r in reads.values())])
        self.largest = max(every, key=lambda d: (weight(flat(d)), -len(d)))
        largest = set(flat(self.largest))
        read: dict[Op, set[Axis]] = {}
        for (op, _), r in reads.items():
            read.setdefault(op, set()).update(flat(r.dims))
        for op in self.body:
            axes = {*flat(self.made[op.result]), *flat(reduced.get(op, ()))}
            self.used.append(axes)
            if not axes | read.get(op, set()) <= largest:
                raise Violation(NOT_TRANSLATABLE, f"{op.result.type} is not part of the largest value here", loc=op.loc)
        for op, dims in reduced.items():
            require(len(flat(dims)) <= 1, NOT_TRANSLATABLE, f"{op.defn.short} goes over several axes")
            self.reduced += [a for a in flat(dims) if a not in self.reduced]

    def place(self, v: Value) -> AffineMap:
        """The index map of a result, in the memory that holds it."""
        index_map = whole(self.made[v])
        if (write := self.outline.writes.get(v)) is None:
            return index_map
        return tuple(
            AffineExpr(tuple((a, times(k, step)) for a, k in s.terms), first.start, first.shifts)
            for s, first, step in zip(index_map, write.first, write.steps, strict=True)
        )

    def scalars(self) -> list[Value]:
        """The scalars in the kernel's index maps."""
        index_map = [s for r in self.reads.values() for s in r.index_map]
        index_map += [s for v in self.made if v in self.outline.writes for s in self.place(v)]
        return list(dict.fromkeys(v for s in index_map for v, _ in s.shifts))

    def symbols(self, outputs: Iterable[Value]) -> list[Sym]:
        """The symbolic extents of axes, of memory operands and of `outputs`, in order of first appearance."""
        memories = [r.base for r in self.reads.values() if isinstance(r.base, Value) and r.base not in self.made]
        types = [v.type for v in (*memories, *map(self.outline.memory, outputs))]
        axes = [a.size for dims in (*self.made.values(), *(r.dims for r in self.reads.values())) for a in flat(dims)]
        found = [*(s for t in dict.fromkeys(types) for s in symbolic(t)), *(n for n in axes if not isinstance(n, int))]
        return list(dict.fromkeys(found))

    @property
    def seen(self) -> list[Value]:
        """The values that are computed and read."""
        return [*self.made, *(r.base for r in self.reads.values() if isinstance(r.base, Value))]


class Either:
    """The union of two containers."""

    def __init__(self, a: Container[Value], b: Container[Value]) -> None:
        self.a, self.b = a, b

    def __contains__(self, v: object) -> bool:
        return v in self.a or v in self.b


def _result(
    op: Op, dims: Sequence[Dims], reduced: dict[Op, Dims], products: dict[Op, tuple[Dims, Dims, Dims]], seen: bool
) -> Dims:
    short, t = op.defn.short, op.result.type
    assert isinstance(t, TensorType)
    if short in REDUCTIONS + POSITIONS:
        axes = {a % len(dims[0]) for a in reduced_axes(op)}
        reduced[op] = tuple(dims[0][a] for a in sorted(axes))
        keeps = op.attr("keepdims")
        return tuple(() if d in axes else dim for d, dim in enumerate(dims[0]) if keeps or d not in axes)
    if short == PRODUCT:
        a, b = dims
        batch, inner = len(op.attr("batch_lhs")), len(op.attr("contract_lhs"))
        aligned(a[:batch], b[:batch])
        aligned(a[len(a) - inner :], b[batch : batch + inner])
        products[op] = (a[batch : len(a) - inner], b[batch + inner :], a[len(a) - inner :])
        return (*a[: len(a) - inner], *b[batch + inner :])
    if seen:
        return dims[0]
    if short == TAKE:
        return (*dims[1], *dims[0][1:])
    if short in MOVES:
        return viewed(op, dims[0])
    first = next((d for d in dims if len(d) == t.rank), None)
    if first is None:
        return fresh(t.shape)
    for other in dims:
        if other is not first and len(other) == t.rank:
            aligned(first, other)
    return first


def reads_itself(op: Op, i: int, outline: Outline) -> bool:
    """Whether the rule of `op` loads operand `i` itself, in steps."""
    return op.defn.short == PRODUCT or (op.defn.short == TAKE and i == 0 and op not in outline.subviews)


def reduced_axes(op: Op) -> tuple[int, ...]:
    """The axes that a reduction (or argmax, argmin) reduces."""
    return (op.attr("axis"),) if op.defn.short in POSITIONS else tuple(op.attr("axes"))


def element(t: Type) -> DType:
    """The element type of a tensor's tile: masks are of i8."""
    assert isinstance(t, TensorType)
    return SI8 if t.dtype is I1 else t.dtype


def unfit(t: Type) -> str:
    """The reason why no tile can hold a value of type `t`; "" when one can."""
    if not isinstance(t, TensorType):
        return "a tuple is not a tile"
    if UNKNOWN in t.shape:
        return f"{t} has an extent without a name (give it with --bind)"
    return f"PTO has no elements of {t.dtype}" if t.dtype is INDEX or t.dtype not in DTYPE_TEXT else ""
