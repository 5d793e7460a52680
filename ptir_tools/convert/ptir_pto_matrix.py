"""PTIR's dot_general as products of tiles: both operands are parameters, loaded step by step along the inner extent."""

from __future__ import annotations

from ptir_tools.convert.ptir_pto_emit import NOT_TRANSLATABLE, Emit, Piece, number
from ptir_tools.convert.ptir_pto_frame import FULL
from ptir_tools.core.diagnostics import require
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.types import TensorType, Type, tile


def dot_general(emit: Emit, op: Op, lhs: Operand, rhs: Operand) -> Piece:
    """`lhs @ rhs` of two matrices: Mat, Left and Right, Acc, and out to Vec as a block of the frame."""
    a, b = _parameter(emit, lhs), _parameter(emit, rhs)
    _plain(emit, op, a, b)
    accumulator = F32 if _dtype(a).is_float else SI32
    inner, depth = a.type.shape[1], emit.blocks.depth  # type: ignore[attr-defined]
    shape = (emit.blocks.rows, emit.blocks.columns)
    acc_type = tile(accumulator, shape, "Acc")
    left, right = _step(emit, a, b, number(0), inner)
    acc = emit.builder.op("tile.matmul", left, right, [], [], to=acc_type)
    if inner > depth:
        with emit.looped(number(depth), number(inner), depth, (acc, "acc")) as state:
            left, right = _step(emit, a, b, state[0], inner)
            state.append(emit.builder.op("tile.matmul.acc", state[1], left, right, [], [], to=acc_type))
        acc = state[0]
    to = tile(_dtype(op.result), shape, "Vec")
    return Piece(FULL, emit.builder.op("tile.mov.a2v", acc, [], [], to=to))


def _parameter(emit: Emit, x: Operand) -> Value:
    message = "a product of computed values needs memory between; make them parameters"
    require(isinstance(x, Value) and x in emit.memory, NOT_TRANSLATABLE, message)
    assert isinstance(x, Value)
    return x


def _plain(emit: Emit, op: Op, a: Value, b: Value) -> None:
    """Two matrices, contracted inside, in the accumulator that the matrix unit has."""
    axes = [tuple(op.attr(name)) for name in ("batch_lhs", "batch_rhs", "contract_lhs", "contract_rhs")]
    ranks = [_tensor(v.type).rank for v in (a, b)]
    flat = [tuple(x % rank for x in given) for given, rank in zip(axes[2:], ranks, strict=True)]
    plain = axes[:2] == [(), ()] and ranks == [2, 2] and flat == [(1,), (0,)]
    require(plain, NOT_TRANSLATABLE, "a product is of two matrices, [M, K] by [K, N]", help="give them in this order")
    accum = op.attr("accum_dtype")
    wants = F32 if _dtype(a).is_float else SI32
    good = accum is wants or (accum is None and _dtype(a).is_float)
    require(good, NOT_TRANSLATABLE, f"products of {_dtype(a)} accumulate in {wants}, not in {accum or _dtype(a)}")
    shape = _tensor(op.result.type).shape
    message = f"the product is {list(shape)}, the largest shape of the program {list(emit.frame.shape)}"
    require(shape == emit.frame.shape, NOT_TRANSLATABLE, message)


def _step(emit: Emit, a: Value, b: Value, k: Operand, inner: int) -> tuple[Value, Value]:
    """The parts of both operands at `k` of the inner extent, where the matrix unit reads them."""
    depth, (rows, columns) = emit.blocks.depth, (emit.blocks.rows, emit.blocks.columns)
    some = emit.left(k, inner, depth)
    left = _moved(emit, "m2l", a, (emit.row, k), (rows, depth), (emit.valid["rows"], some))
    right = _moved(emit, "m2r", b, (k, emit.column), (depth, columns), (some, emit.valid["columns"]))
    return left, right


def _moved(
    emit: Emit, kind: str, x: Value, at: tuple[Operand, Operand], shape: tuple[int, int], valid: tuple[Operand | None, ...]
) -> Value:
    mat = tile(_dtype(x), shape, "Mat")
    given = [v or number(n) for v, n in zip(valid, shape, strict=True)] if any(v is not None for v in valid) else []
    loaded = emit.builder.op("tile.load", emit.memory[x], list(at), given, [], to=mat, name=x.name)
    place = {"m2l": "Left", "m2r": "Right"}[kind]
    return emit.builder.op(f"tile.mov.{kind}", loaded, [], [], to=tile(_dtype(x), shape, place))


def _tensor(t: Type) -> TensorType:
    assert isinstance(t, TensorType)
    return t


def _dtype(x: Value) -> DType:
    return _tensor(x.type).dtype
