"""PTIR's dot_general as products of tiles: both operands are in memory, loaded step by step along the inner extent."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import BIND, Axis, Dim, Dims, flat, size, usual
from ptir_tools.convert.ptir_to_pto.emit import KernelEmit, Part, out, reshaped, window
from ptir_tools.convert.ptir_to_pto.kernel import Product
from ptir_tools.convert.ptir_to_pto.layout import AHEAD, FULL
from ptir_tools.convert.ptir_to_pto.values import BlockValue, number
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import Type
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.structure import tile_type, value_of
from ptir_tools.dialects.pto.types import tile
from ptir_tools.rewrite.vocabulary import tensor_type

BEFORE = "a product of computed values needs them in memory"


def dot_general(emit: KernelEmit, op: Op) -> BlockValue:
    """`lhs @ rhs` of two matrices: through Mat, Left and Right to Acc, and out to Vec as a block."""
    a, b = (emit.shapes.reads[op, i].base for i in (0, 1))
    require(a in emit.memory and b in emit.memory, NOT_TRANSLATABLE, BEFORE)
    dtype = tensor_type(op.operands[0]).dtype
    accumulator = F32 if dtype.is_float else SI32
    accum = op.attr("accum_dtype")
    good = accum is accumulator or (accum is None and dtype.is_float)
    require(good, NOT_TRANSLATABLE, f"products of {dtype} accumulate in {accumulator}, not in {accum or dtype}")
    product = emit.shapes.products[[o for o in emit.shapes.body if o.defn is op.defn].index(op)]
    require(bool(product.inner), NOT_TRANSLATABLE, "a product over an extent of 1 is not a matmul", help="multiply the two")
    acc = _accumulated(emit, op, product, tile(accumulator, (emit.blocks.rows, emit.blocks.columns), "Acc"))
    through = op.result in emit.stored and "Vec" not in emit.target.from_acc
    if through or not any(r.base is op.result for r in emit.shapes.reads.values()):  # it is stored
        return BlockValue(FULL, acc)
    return BlockValue(FULL, out(emit, acc, tensor_type(op.result).dtype))


def _accumulated(emit: KernelEmit, op: Op, product: Product, to: Type) -> Value:
    """The accumulation along the inner extents: `span` elements per load, `depth` per step."""
    *outer, inner = product.inner
    steps = _Steps(emit, op, tuple(outer), inner, to)
    span, end, rest = _cut(emit, tuple(outer), inner, steps.depth)
    acc, whole = None, constant(end)
    if whole != 0:
        first = span if whole is None or whole // span % AHEAD else min(AHEAD * span, whole)  # the loop has a multiple of AHEAD
        for k in range(0, first, span):
            acc = steps.at(number(k), span, acc)
        if whole != first:
            assert acc is not None
            with emit.looped(number(first), end, span, (acc, "acc")) as state:
                state.append(steps.at(state[0], span, state[1]))
            acc = state[0]
    if rest:
        acc = steps.at(end, rest, acc)
    assert acc is not None
    return acc


def _cut(emit: KernelEmit, outer: Dim, inner: Axis, depth: int) -> tuple[int, Operand, int]:
    """The span of a load along the inner extents, the end of full loads, and the size of the tail. Symbolic extents, and one of
    several extents without full loads, go step by step with valid regions."""
    span = max(emit.blocks.span // depth, 1) * depth
    if not isinstance(inner.size, int):
        message = f"{inner.size} is contracted with another extent, and is not a number"
        require(not outer, NOT_TRANSLATABLE, message, help=BIND)
        return depth, emit.extent(inner.size), 0
    if not outer:
        whole = inner.size // span * span
        return span, number(whole), inner.size - whole
    if inner.size % span:
        span = depth
    return span, number(size(outer) * -(-inner.size // span) * span), 0


class _Steps:
    """The steps of one product, in tiles of the matrix unit."""

    def __init__(self, emit: KernelEmit, op: Op, outer: Dim, inner: Axis, to: Type) -> None:
        self.emit = emit
        self.op = op
        self.outer = outer
        self.inner = inner
        self.to = to
        unit = emit.layout.column_unit
        self.depth = min(emit.blocks.depth, -(-usual(inner.size) // unit) * unit)
        self.unit = unit

    def at(self, k: Operand, count: int, acc: Value | None) -> Value:
        """Accumulate `count` elements from `k` on into `acc` (None: the first ones)."""
        emit, depth = self.emit, self.depth
        if self.outer or not isinstance(self.inner.size, int):
            whole = -(-usual(self.inner.size) // count) * count
            rest = k
            for axis, extent in ((self.inner, whole), *((a, size([a])) for a in reversed(self.outer))):
                last = size(self.outer) == 1 or axis is self.outer[0]
                emit.at[axis] = rest if last else _divided(emit, "remsi", rest, extent)
                rest = rest if last else _divided(emit, "divsi", rest, extent)
            valid = emit.left(emit.at[self.inner], self.inner.size, count)
        else:
            emit.at[self.inner] = k
            valid = None if count % self.unit == 0 else number(count)
        inside = Part(self.inner, emit.at[self.inner], -(-count // self.unit) * self.unit, valid)
        layout = emit.layout
        rows = Part(layout.row, _start(emit, layout.row), emit.blocks.rows, emit.valid["rows"])
        columns = Part(layout.column, _start(emit, layout.column), emit.blocks.columns, emit.valid["columns"])
        steps = isinstance(k, Value) or isinstance(valid, Value)
        left = _loaded(emit, self.op, 0, rows, inside, steps)
        right = _loaded(emit, self.op, 1, inside, columns, steps)
        for first in range(0, inside.size, depth):
            n = min(depth, inside.size - first)
            a = _moved(emit, left, "Left", (0, first), (rows.size, n))
            b = _moved(emit, right, "Right", (first, 0), (n, columns.size))
            acc = (
                emit.builder.op("tile.matmul", a, b, [], [], to=self.to)
                if acc is None
                else emit.builder.op("tile.matmul.acc", acc, a, b, [], [], to=self.to)
            )
        assert acc is not None
        return acc


def _start(emit: KernelEmit, axis: Axis | None) -> Operand:
    return number(0) if axis is None else emit.at[axis]


def _divided(emit: KernelEmit, short: str, x: Operand, by: int) -> Operand:
    """The remainder (`remsi`) or quotient (`divsi`) of a nonnegative index."""
    known = constant(x)
    if known is not None:
        return number(known % by if short == "remsi" else known // by)
    return emit.builder.op(short, x, emit.constant(number(by)))


def _loaded(emit: KernelEmit, op: Op, i: int, first: Part, second: Part, steps: bool) -> Value:
    """One operand in Mat, `first` by `second`: loaded before the loops in which it is invariant, unless there are `steps`."""
    read = emit.shapes.reads[op, i]
    base = value_of(read.base)
    parts = _placed(read.memory, first, second)
    require(parts is not None, NOT_TRANSLATABLE, f"operand {i} of a product is in memory in another order")
    with emit.outside(None if steps else flat(read.memory)):
        w = window(emit, emit.memory[base], read.index_map, parts or {})
        to = tile(tensor_type(base).dtype, w.shape, "Mat")
        loaded = emit.builder.op("tile.load", w.memory, w.indices, w.valid, [], to=to, name=base.name)
        given = [p.valid or number(p.size) for p in (first, second)] if w.valid else []
        return reshaped(emit, loaded, tile(tensor_type(base).dtype, (first.size, second.size), "Mat"), given)


def _moved(emit: KernelEmit, x: Value, place: str, at: tuple[int, int], shape: tuple[int, int]) -> Value:
    """A part of a Mat tile, moved to where the matrix unit reads it."""
    t = tile_type(x)
    to = tile(t.dtype, shape, place)
    if t.shape == shape:
        return emit.builder.op(f"tile.mov.m2{place[0].lower()}", x, [], [], to=to)
    return emit.builder.op("tile.extract", x, [number(n) for n in at], [], [], to=to)


def _placed(dims: Dims, first: Part, second: Part) -> dict[int, Part] | None:
    """The dimension of memory of each part, the first before the second; a part of one element takes a free dimension. None where
    there is none."""
    after = next((d for d, axes in enumerate(dims) if second.axis in axes), None)
    if after is None:
        return None
    free = [d for d in range(after) if first.axis in dims[d] or (first.axis is None and not dims[d])]
    return {free[-1]: first, after: second} if free else None
