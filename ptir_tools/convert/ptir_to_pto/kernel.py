"""The ops of one kernel, and the axes of all that it reads and makes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import (
    SLICE,
    VIEWS,
    Axis,
    Dim,
    Dims,
    aligned,
    distinct,
    flat,
    fresh,
    resolved,
    size,
    viewed,
)
from ptir_tools.core.diagnostics import Violation, require
from ptir_tools.core.dtypes import I1, INDEX, SI8, DType
from ptir_tools.core.ir import Element, Literal, Op, Operand, Value, operand_type
from ptir_tools.core.records import dataclass, replace
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.pto.names import DTYPE_TEXT

REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min")
POSITIONS = ("argmax", "argmin")  # reduce one axis, to where the extreme is
PRODUCT = "dot_general"
COUNT = "iota"  # made where it is read, as constants are


@dataclass(slots=True, frozen=True)
class Product:
    """The axes of a product: those that one operand alone has, and those that are summed over."""

    rows: Dim
    columns: Dim
    inner: Dim


@dataclass(slots=True, frozen=True)
class Read:
    """An operand: the value or literal that it is a view of, with the axes of its memory (or of a part of that, where it
    starts), and the axes of the view."""

    base: Operand
    memory: Dims
    dims: Dims
    starts: tuple[int, ...] = ()


def source(x: Operand, stored: Collection[Value]) -> tuple[Operand, list[Op]]:
    """What an operand is a view of, and the views in order: a parameter, a literal, what a kernel computes."""
    path: list[Op] = []
    while isinstance(x, Value) and x.op is not None and x not in stored and x.op.defn.short in VIEWS:
        path.append(x.op)
        x = x.op.operands[0]
    if isinstance(x, Value) and x.op is not None and x.op.defn.is_constant:
        return x.op.attr("value"), []
    return x, path[::-1]


class Shapes:
    """The axes of a kernel's values, and of what each of its ops reads.

    `stored` are the values that kernels before make; other views are looked through. What is read from memory has the same axes
    wherever it is read, or if not `shared` axes of its own for every use. Raises Violation, with the place of the op, when the
    ops do not fit into one loop over the axes of the largest value.
    """

    def __init__(self, body: Sequence[Op], stored: Collection[Value], shared: bool = True) -> None:
        self.body = body
        self.shared: dict[Value, Dims] | None = {} if shared else None
        self.made: dict[Value, Dims] = {}
        self.reads: dict[tuple[Op, int], Read] = {}
        self.reduced: list[Axis] = []
        self.used: list[set[Axis]] = []  # by each op, what it reduces included
        products: dict[Op, tuple[Dims, Dims, Dims]] = {}
        reduced: dict[Op, Dims] = {}
        known = set(stored)
        for op in body:
            try:
                dims = [self._read(op, i, x, known) for i, x in enumerate(op.operands)]
                self.made[op.result] = _result(op, dims, reduced, products)
            except Violation as violation:
                violation.loc = violation.loc or op.loc
                raise
            known.add(op.result)
        self._resolve(reduced, products)

    def _read(self, op: Op, i: int, x: Operand, stored: Collection[Value]) -> Dims:
        base, path = source(x, stored)
        path += [op] * (op.defn.short == SLICE)
        starts: tuple[int, ...] = ()
        if isinstance(base, Element):
            raise Violation(NOT_TRANSLATABLE, "an element of a tuple is not a tile")
        if isinstance(base, Literal):
            memory = dims = fresh(operand_type(x).static_shape)  # type: ignore[attr-defined]
        else:
            part = path.pop(0) if path and path[0].defn.short == SLICE and base not in self.made else None
            starts = () if part is None else tuple(part.attr("starts"))
            memory = dims = self._axes_of(base if part is None else part.result)
            for view in path:
                dims = viewed(view, dims)
        self.reads[op, i] = Read(base, memory, dims, starts)
        return dims

    def _axes_of(self, v: Value) -> Dims:
        if (found := self.made.get(v)) is not None:
            return found
        own = fresh(v.type.static_shape)  # type: ignore[attr-defined]
        return own if self.shared is None else self.shared.setdefault(v, own)

    def _resolve(self, reduced: dict[Op, Dims], products: dict[Op, tuple[Dims, Dims, Dims]]) -> None:
        """State everything in the axes that are left, and find the largest value."""
        self.made = {v: resolved(dims) for v, dims in self.made.items()}
        self.reads = {key: replace(r, memory=resolved(r.memory), dims=resolved(r.dims)) for key, r in self.reads.items()}
        self.products = [Product(*map(flat, parts)) for parts in products.values()]
        reads = {key: r for key, r in self.reads.items() if key[0] not in products}
        self.tiles = [*self.made.values(), *(r.memory for r in reads.values() if not isinstance(r.base, Literal))]
        for dims in self.tiles:
            distinct(dims)
        self.largest = max([*self.made.values(), *(r.dims for r in reads.values())], key=lambda d: (size(flat(d)), -len(d)))
        for op in self.body:
            axes = {*flat(self.made[op.result]), *flat(reduced.get(op, ()))}
            self.used.append(axes)
            if not axes.union(*(flat(r.dims) for (o, _), r in reads.items() if o is op)) <= set(flat(self.largest)):
                raise Violation(NOT_TRANSLATABLE, f"{op.result.type} is no part of the largest value here", loc=op.loc)
        for op, dims in reduced.items():
            require(len(flat(dims)) <= 1, NOT_TRANSLATABLE, f"{op.defn.short} goes over several axes")
            self.reduced += [a for a in flat(dims) if a not in self.reduced]

    @property
    def seen(self) -> list[Value]:
        """The values that are made and read."""
        return [*self.made, *(r.base for r in self.reads.values() if isinstance(r.base, Value))]


def _result(op: Op, dims: Sequence[Dims], reduced: dict[Op, Dims], products: dict[Op, tuple[Dims, Dims, Dims]]) -> Dims:
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
    if short in VIEWS:
        return dims[0] if short == SLICE else viewed(op, dims[0])
    first = next((d for d in dims if len(d) == t.rank), None)
    if first is None:
        return fresh(t.static_shape)
    for other in dims:
        if other is not first and len(other) == t.rank:
            aligned(first, other)
    return first


def reduced_axes(op: Op) -> tuple[int, ...]:
    """The axes that a reduction, or an index of an extreme, goes over."""
    return (op.attr("axis"),) if op.defn.short in POSITIONS else tuple(op.attr("axes"))


def element(t: Type) -> DType:
    """The element type of a tensor's tile: masks are of i8."""
    assert isinstance(t, TensorType)
    return SI8 if t.dtype is I1 else t.dtype


def unfit(t: Type) -> str:
    """Why no tile holds a value of type `t`; nothing when one does."""
    if not isinstance(t, TensorType):
        return "a tuple is not a tile"
    if not t.is_static:
        return f"{t} has extents that are not numbers (give them with --bind)"
    if t.dtype is INDEX or t.dtype not in DTYPE_TEXT:
        return f"PTO has no elements of {t.dtype}"
    return f"{t} has no elements" if prod(t.static_shape) == 0 else ""
