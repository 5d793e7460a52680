"""PTIR's take as tile gathers: the table is in memory and loaded in blocks of rows; each index is in one of them."""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE
from ptir_tools.convert.ptir_to_pto.axes import Axis, Extent, flat, usual
from ptir_tools.convert.ptir_to_pto.emit import KernelEmit, Part, reshaped, window
from ptir_tools.convert.ptir_to_pto.layout import FULL, POINT, ROW
from ptir_tools.convert.ptir_to_pto.values import BlockValue, dtype_of, number
from ptir_tools.core.dtypes import SI8, SI32, DType
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import Sym
from ptir_tools.core.violations import require
from ptir_tools.dialects.pto.ops.memory import is_load
from ptir_tools.dialects.pto.pipes import is_tile_op
from ptir_tools.dialects.pto.rules import group
from ptir_tools.dialects.pto.structure import memref_type
from ptir_tools.dialects.pto.targets import ALIGNMENT
from ptir_tools.dialects.pto.types import TileType, scalar, tile

_BYTES = 16 << 10  # of a block of the table


def take(emit: KernelEmit, op: Op, piece: BlockValue) -> BlockValue:
    """Rows of a table by index."""
    if op in emit.shapes.outline.subviews:
        return piece
    read = emit.shapes.reads[op, 0]
    require(read.base in emit.memory, NOT_TRANSLATABLE, "a table of computed values needs memory")
    assert isinstance(read.base, Value)
    t = memref_type(emit.memory[read.base])
    across, along = flat(read.dims[1:]), flat(read.dims[:1])
    require(emit.layout.row not in across, NOT_TRANSLATABLE, "rows of a table are not rows of a tile")
    require(len(along) <= 1, NOT_TRANSLATABLE, "the rows of a table are in several extents of memory")
    held = {a for expr in read.index_map for a in expr.axes}
    wide = emit.layout.column in across and emit.layout.column in held
    kind = emit.layout.kind(emit.shapes.made[op.result])
    kind = ROW if kind == POINT else kind
    require(not wide or kind in (FULL, ROW), NOT_TRANSLATABLE, "a column of a table is not a tile")
    columns = emit.blocks.columns if wide else 1
    unit = max(ALIGNMENT // t.dtype.size, 1)
    extent = along[0].size if along else 1
    step = min(-(-usual(extent) // unit) * unit, max(_BYTES // t.dtype.size // columns // unit, 1) * unit)
    indices = _checked(emit, kind, emit.spread(piece, kind).value, extent)
    dtype: DType = t.dtype
    if along and along[0] not in held:  # all rows are one row of memory
        indices, along, extent = emit.tile_op("muls", kind, SI32, indices, emit.scalar(0, SI32)).value, (), 1
    if isinstance(extent, int) and extent <= step:
        return _found(emit, op, kind, indices, along, number(0), step, wide)
    zero = emit.scalar(0, dtype)
    start = emit.tile_op("expands", kind, dtype, zero, valid=emit.existing(kind)).value
    with emit.looped(number(0), emit.extent(extent), step, (start, "found")) as state:
        at = emit.builder.op("index_cast", state[0], to=scalar(SI32))
        last = emit.builder.op("subi", at, emit.scalar(1, SI32))
        end = emit.builder.op("addi", at, emit.scalar(step, SI32))
        above = emit.tile_op("cmps", kind, SI8, indices, last, cmpMode="GT").value
        below = emit.tile_op("cmps", kind, SI8, indices, end, cmpMode="LT").value
        back = emit.builder.op("subi", emit.scalar(0, SI32), at)
        most = emit.scalar(extent - 1, SI32) if isinstance(extent, int) else _most(emit, extent)
        left = emit.builder.op("subi", most, at)
        inside = emit.tile_op("maxs", kind, SI32, emit.tile_op("adds", kind, SI32, indices, back).value, emit.scalar(0, SI32))
        inside = emit.tile_op("mins", kind, SI32, inside.value, emit.scalar(step - 1, SI32))
        inside = emit.tile_op("mins", kind, SI32, inside.value, left)
        result = _found(emit, op, kind, inside.value, along, state[0], step, wide)
        result = emit.tile_op("sel", kind, dtype, below, result.value, state[1])
        state.append(emit.tile_op("sel", kind, dtype, above, result.value, state[1]).value)
    return BlockValue(kind, state[0])


def _checked(emit: KernelEmit, kind: str, indices: Value, extent: Extent) -> Value:
    """The indices, after a bounds check: an index out of bounds makes a gather fail, which ends the run."""
    if (valid := emit.existing(kind)) and _of_counts_alone(indices):
        t = indices.type
        indices = emit.builder.op("tile.reshape", indices, valid, [], to=t, name=emit.name)
    most = emit.scalar(extent - 1, SI32) if isinstance(extent, int) else _most(emit, extent)
    one, none = emit.scalar(1, SI32), emit.scalar(0, SI32)
    past = emit.builder.op("addi", most, one)
    clamped = emit.tile_op("mins", kind, SI32, emit.tile_op("maxs", kind, SI32, indices, emit.scalar(-1, SI32)).value, past).value
    back = emit.builder.op("subi", none, most)
    above = emit.tile_op("maxs", kind, SI32, emit.tile_op("adds", kind, SI32, clamped, back).value, none).value
    outside = emit.tile_op("add", kind, SI32, emit.tile_op("mins", kind, SI32, clamped, none).value, above).value
    invalid = emit.tile_op("muls", kind, SI32, outside, emit.scalar(ALIGNMENT, SI32)).value
    zeros = emit.builder.op("tile.expands", none, [], [], to=tile(SI32, (1, ALIGNMENT // SI32.size)), name=emit.name)
    return emit.tile_op("add", kind, SI32, indices, emit.tile_op("gather", kind, SI32, zeros, invalid).value).value


def _of_counts_alone(x: Operand) -> bool:
    """Whether a tile is computed from iotas and numbers alone: then it is valid beyond the end of the block, too."""
    if not isinstance(x, Value) or not isinstance(x.type, TileType):
        return True
    result = x.op
    if result is None or not is_tile_op(result.defn) or group(result, "valid") or is_load(result):
        return False
    return all(map(_of_counts_alone, result.operands))


def _most(emit: KernelEmit, extent: Sym) -> Value:
    whole = emit.builder.op("index_cast", emit.extents[extent], to=scalar(SI32))
    return emit.builder.op("subi", whole, emit.scalar(1, SI32))


def _found(
    emit: KernelEmit, op: Op, kind: str, indices: Value, along: tuple[Axis, ...], at: Operand, step: int, wide: bool
) -> BlockValue:
    """The elements at the indices that are in one block of the table."""
    read = emit.shapes.reads[op, 0]
    assert isinstance(read.base, Value)
    name, dtype = read.base.name, dtype_of(emit.memory[read.base])
    places = {a: d for d, expr in enumerate(read.index_map) for a in expr.axes}
    outer = dict(emit.at)
    parts, last = {}, len(read.index_map) - 1
    columns, column = 1, last
    if wide:
        columns, column = emit.blocks.columns, places[emit.layout.column]
        parts[column] = Part(emit.layout.column, emit.at[emit.layout.column], columns, emit.valid["columns"])
    is_gather = not wide or len(read.index_map) > 1
    row = places[along[0]] if along else next((d for d in range(last + 1) if d != column or not wide), 0)
    require(
        is_gather and (not wide or row != column), NOT_TRANSLATABLE, "rows and columns of a table are in one dimension of memory"
    )
    if along:
        emit.at[along[0]] = at
        parts[row] = Part(along[0], at, step, emit.left(at, along[0].size, step))
    else:
        parts[row] = Part(None, at, step, number(1))
    w = window(emit, emit.memory[read.base], read.index_map, parts)
    emit.at = outer
    result = emit.builder.op("tile.load", w.memory, w.indices, w.valid, [], to=tile(dtype, w.shape), name=name)
    given = [parts[d].valid or number(parts[d].size) for d in ((row, column) if wide else (row,))]
    existing = (given if wide else [number(1), *given]) if w.valid else []
    if wide and column < row:
        result = reshaped(emit, result, tile(dtype, (columns, step)), existing[::-1])
        result = emit.builder.op("tile.trans", result, [], [], to=tile(dtype, (step, columns)), name=name)
    else:
        result = reshaped(emit, result, tile(dtype, (step, columns) if wide else (1, step)), existing)
    if wide:
        stretched = emit.tile_op("muls", kind, SI32, indices, emit.scalar(columns, SI32))
        count = emit.builder.op("tile.ci", emit.scalar(0, SI32), [], [], to=tile(SI32, (1, columns)), name=name)
        row_of = BlockValue(ROW, reshaped(emit, count, emit.type_of(ROW, SI32), []))
        indices = emit.tile_op("add", kind, SI32, stretched.value, emit.spread(row_of, kind).value).value
    return emit.tile_op("gather", kind, dtype, result, indices)
