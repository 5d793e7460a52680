"""PTIR's dot_general as products of tiles: both operands are in memory, loaded step by step along the inner extent."""

from __future__ import annotations

from ptir_tools.convert.ptir_to_pto.axes import NOT_TRANSLATABLE, Axis, Dim, Dims, size
from ptir_tools.convert.ptir_to_pto.block import Block
from ptir_tools.convert.ptir_to_pto.kernel import Product
from ptir_tools.convert.ptir_to_pto.memory import Part, reshaped, window
from ptir_tools.convert.ptir_to_pto.tiling import FULL
from ptir_tools.convert.ptir_to_pto.values import Piece, number
from ptir_tools.core.diagnostics import require
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.types import TensorType, Type, tile

BEFORE = "a product of computed values needs memory between"


def dot_general(block: Block, op: Op) -> Piece:
    """`lhs @ rhs` of two matrices: Mat, Left and Right, Acc, and out to Vec as a block of the frame."""
    a, b = (block.shapes.reads[op, i].base for i in (0, 1))
    require(a in block.memory and b in block.memory, NOT_TRANSLATABLE, BEFORE)
    dtype = _dtype(op.operands[0])  # type: ignore[arg-type]
    accumulator = F32 if dtype.is_float else SI32
    accum = op.attr("accum_dtype")
    good = accum is accumulator or (accum is None and dtype.is_float)
    require(good, NOT_TRANSLATABLE, f"products of {dtype} accumulate in {accumulator}, not in {accum or dtype}")
    product = block.shapes.products[[o for o in block.shapes.body if o.defn is op.defn].index(op)]
    require(bool(product.inner), NOT_TRANSLATABLE, "a product over an extent of 1 is no matmul", help="multiply the two")
    acc = _accumulated(block, op, product, tile(accumulator, (block.blocks.rows, block.blocks.columns), "Acc"))
    to = tile(_dtype(op.result), (block.blocks.rows, block.blocks.columns), "Vec")
    return Piece(FULL, block.builder.op("tile.mov.a2v", acc, [], [], to=to))


def _accumulated(block: Block, op: Op, product: Product, to: Type) -> Value:
    """The first step, and a loop over the others: those of the innermost axis, for every one of the outer axes."""
    *outer, inner = product.inner
    unit = block.frame.column_unit
    depth = min(block.blocks.depth, -(-inner.size // unit) * unit)
    whole = -(-inner.size // depth) * depth
    acc = block.builder.op("tile.matmul", *_step(block, op, tuple(outer), inner, number(0), depth), [], [], to=to)
    if size(outer) * whole > depth:
        with block.looped(number(depth), number(size(outer) * whole), depth, (acc, "acc")) as state:
            more = _step(block, op, tuple(outer), inner, state[0], depth)
            state.append(block.builder.op("tile.matmul.acc", state[1], *more, [], [], to=to))
        acc = state[0]
    return acc


def _step(block: Block, op: Op, outer: Dim, inner: Axis, k: Operand, depth: int) -> tuple[Value, Value]:
    """The parts of both operands at `k` of the inner extent, where the matrix unit reads them."""
    whole = -(-inner.size // depth) * depth
    rest = k
    for axis, extent in ((inner, whole), *((a, a.size) for a in reversed(outer))):
        last = size(outer) == 1 or axis is outer[0]
        block.at[axis] = rest if last else _divided(block, "remsi", rest, extent)
        rest = rest if last else _divided(block, "divsi", rest, extent)
    inside = Part(inner, block.at[inner], depth, block.left(block.at[inner], inner.size, depth))
    rows = Part(block.frame.row, _start(block, block.frame.row), block.blocks.rows, block.valid["rows"])
    columns = Part(block.frame.column, _start(block, block.frame.column), block.blocks.columns, block.valid["columns"])
    return _moved(block, op, 0, "m2l", rows, inside), _moved(block, op, 1, "m2r", inside, columns)


def _start(block: Block, axis: Axis | None) -> Operand:
    return number(0) if axis is None else block.at[axis]


def _divided(block: Block, short: str, x: Operand, by: int) -> Operand:
    return number(0) if isinstance(x, Literal) else block.builder.op(short, x, block.constant(number(by)))


def _moved(block: Block, op: Op, i: int, kind: str, first: Part, second: Part) -> Value:
    """One operand in Mat, `first` by `second`, and from there to Left or Right."""
    read = block.shapes.reads[op, i]
    base, dims = read.base, read.memory
    assert isinstance(base, Value)
    parts = _placed(dims, first, second)
    require(parts is not None, NOT_TRANSLATABLE, f"operand {i} of a product lies in memory in another order")
    w = window(block, block.memory[base], dims, parts or {}, read.starts)
    loaded = block.builder.op(
        "tile.load", w.memory, w.indices, w.valid, [], to=tile(_dtype(base), w.shape, "Mat"), name=base.name
    )
    to = tile(_dtype(base), (first.size, second.size), "Mat")
    given = [p.valid or number(p.size) for p in (first, second)] if w.valid else []
    place = {"m2l": "Left", "m2r": "Right"}[kind]
    mat = reshaped(block, loaded, to, given)
    return block.builder.op(f"tile.mov.{kind}", mat, [], [], to=tile(_dtype(base), to.shape, place))


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
