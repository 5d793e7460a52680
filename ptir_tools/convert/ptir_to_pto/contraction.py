"""PTIR's dot_general as products of tiles: both operands are in memory, loaded step by step along the inner extent."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import BIND, Axis, Dim, Dims, size, usual
from ptir_tools.convert.ptir_to_pto.emit import KernelEmit, Part, out, reshaped, window
from ptir_tools.convert.ptir_to_pto.kernel import Product
from ptir_tools.convert.ptir_to_pto.layout import FULL
from ptir_tools.convert.ptir_to_pto.values import BlockValue, number
from ptir_tools.core.diagnostics import require
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.types import TensorType, Type
from ptir_tools.dialects.pto.affine import constant
from ptir_tools.dialects.pto.types import tile

BEFORE = "a product of computed values needs memory between"


def dot_general(emit: KernelEmit, op: Op) -> BlockValue:
    """`lhs @ rhs` of two matrices: Mat, Left and Right, Acc, and out to Vec as a block of the frame."""
    a, b = (emit.shapes.reads[op, i].base for i in (0, 1))
    require(a in emit.memory and b in emit.memory, NOT_TRANSLATABLE, BEFORE)
    dtype = _dtype(op.operands[0])  # type: ignore[arg-type]
    accumulator = F32 if dtype.is_float else SI32
    accum = op.attr("accum_dtype")
    good = accum is accumulator or (accum is None and dtype.is_float)
    require(good, NOT_TRANSLATABLE, f"products of {dtype} accumulate in {accumulator}, not in {accum or dtype}")
    product = emit.shapes.products[[o for o in emit.shapes.body if o.defn is op.defn].index(op)]
    require(bool(product.inner), NOT_TRANSLATABLE, "a product over an extent of 1 is not a matmul", help="multiply the two")
    acc = _accumulated(emit, op, product, tile(accumulator, (emit.blocks.rows, emit.blocks.columns), "Acc"))
    if not any(r.base is op.result for r in emit.shapes.reads.values()):  # it is only stored
        return BlockValue(FULL, acc)
    return BlockValue(FULL, out(emit, acc, _dtype(op.result)))


def _accumulated(emit: KernelEmit, op: Op, product: Product, to: Type) -> Value:
    """The first step, and a loop over the others: those of the innermost axis, for every one of the outer axes."""
    *outer, inner = product.inner
    unit = emit.layout.column_unit
    depth = min(emit.blocks.depth, -(-usual(inner.size) // unit) * unit)
    end = _end(emit, tuple(outer), inner, depth)
    acc = emit.builder.op("tile.matmul", *_step(emit, op, tuple(outer), inner, number(0), depth), [], [], to=to)
    if constant(end) != depth:
        with emit.looped(number(depth), end, depth, (acc, "acc")) as state:
            more = _step(emit, op, tuple(outer), inner, state[0], depth)
            state.append(emit.builder.op("tile.matmul.acc", state[1], *more, [], [], to=to))
        acc = state[0]
    return acc


def _end(emit: KernelEmit, outer: Dim, inner: Axis, depth: int) -> Operand:
    """Where the steps along the inner extents end, of which the innermost is in whole steps where there are others."""
    if isinstance(inner.size, int):
        return number(size(outer) * -(-inner.size // depth) * depth)
    require(not outer, NOT_TRANSLATABLE, f"{inner.size} is summed over with another extent, and is not a number", help=BIND)
    return emit.extent(inner.size)


def _step(emit: KernelEmit, op: Op, outer: Dim, inner: Axis, k: Operand, depth: int) -> tuple[Value, Value]:
    """The parts of both operands at `k` of the inner extent, where the matrix unit reads them."""
    whole = -(-usual(inner.size) // depth) * depth
    rest = k
    for axis, extent in ((inner, whole), *((a, size([a])) for a in reversed(outer))):
        last = size(outer) == 1 or axis is outer[0]
        emit.at[axis] = rest if last else _divided(emit, "remsi", rest, extent)
        rest = rest if last else _divided(emit, "divsi", rest, extent)
    inside = Part(inner, emit.at[inner], depth, emit.left(emit.at[inner], inner.size, depth))
    rows = Part(emit.layout.row, _start(emit, emit.layout.row), emit.blocks.rows, emit.valid["rows"])
    columns = Part(emit.layout.column, _start(emit, emit.layout.column), emit.blocks.columns, emit.valid["columns"])
    return _moved(emit, op, 0, "m2l", rows, inside), _moved(emit, op, 1, "m2r", inside, columns)


def _start(emit: KernelEmit, axis: Axis | None) -> Operand:
    return number(0) if axis is None else emit.at[axis]


def _divided(emit: KernelEmit, short: str, x: Operand, by: int) -> Operand:
    return number(0) if isinstance(x, Literal) else emit.builder.op(short, x, emit.constant(number(by)))


def _moved(emit: KernelEmit, op: Op, i: int, kind: str, first: Part, second: Part) -> Value:
    """One operand in Mat, `first` by `second`, and from there to Left or Right."""
    read = emit.shapes.reads[op, i]
    base = read.base
    assert isinstance(base, Value)
    parts = _placed(read.memory, first, second)
    require(parts is not None, NOT_TRANSLATABLE, f"operand {i} of a product lies in memory in another order")
    w = window(emit, emit.memory[base], read.spots, parts or {})
    loaded = emit.builder.op("tile.load", w.memory, w.indices, w.valid, [], to=tile(_dtype(base), w.shape, "Mat"), name=base.name)
    to = tile(_dtype(base), (first.size, second.size), "Mat")
    given = [p.valid or number(p.size) for p in (first, second)] if w.valid else []
    place = {"m2l": "Left", "m2r": "Right"}[kind]
    mat = reshaped(emit, loaded, to, given)
    return emit.builder.op(f"tile.mov.{kind}", mat, [], [], to=tile(_dtype(base), to.shape, place))


def _placed(dims: Dims, first: Part, second: Part) -> dict[int, Part] | None:
    """Which dimension of memory holds which part, the first before the second; a part of one element in a dimension that is
    free. None where there is no such place."""
    after = next((d for d, axes in enumerate(dims) if second.axis in axes), None)
    if after is None:
        return None
    free = [d for d in range(after) if first.axis in dims[d] or (first.axis is None and not dims[d])]
    return {free[-1]: first, after: second} if free else None


def _dtype(x: Value) -> DType:
    t = x.type
    assert isinstance(t, TensorType)
    return t.dtype
