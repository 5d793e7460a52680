"""PTIR to Tiny: quantization to up to 8 bits, by counting thresholds.

A number rounds to the quantized integer given by the thresholds below it. The thresholds are computed exactly here, by the op's
own evaluation; the graph then counts those that the number reaches. No rounding is involved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit
from ptir_tools.convert.ptir_to_tiny.formulas import above, cast, negated, numbers
from ptir_tools.convert.ptir_to_tiny.indexing import spread_out
from ptir_tools.core.arrays import Array, to_literal
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Shape, tensor
from ptir_tools.core.violations import require
from ptir_tools.dialects.ptir.ops.quantize import from_quantized, to_quantized
from ptir_tools.rewrite.expression import Term, minimum, select
from ptir_tools.rewrite.vocabulary import tensor_type

_MOST = 1 << 8  # steps


def _in_order(keys: Array) -> Array:
    """The fp32 numbers of ordered 32-bit keys, from -inf to inf."""
    bits = np.where(keys < 0, np.int64(-(2**31)) - keys - 1, keys)
    return (bits & 0xFFFFFFFF).astype(np.uint32).view(np.float32)


def _thresholds(step: Callable[[Array], Array], dtype: DType, channels: int, floats: bool) -> Array:
    """For each channel and each step except the least, the key of the least number that reaches it: [channels, steps - 1]; beyond
    the last key where none does. `step` is monotone; it takes keys of shape [channels, n]."""
    wanted = np.arange(dtype.min + 1, dtype.max + 1)[None, :]
    infinity = 0x7F800000
    low = np.full((channels, wanted.shape[1]), -infinity - 1 if floats else SI32.min, np.int64)
    high = np.full_like(low, infinity if floats else SI32.max) + 1
    while (low < high).any():
        middle = (low + high) // 2
        reached = step(np.minimum(middle, infinity if floats else SI32.max)) >= wanted
        reached |= middle >= high
        low, high = np.where(reached, low, middle + 1), np.where(reached, middle, high)
        high = np.maximum(low, high)
    return low


def _counted(emit: TinyEmit, op: Op, x: Value, bounds: Array, axis: int | None, dtype: DType) -> Term:
    """The least step, and one for each of the bounds that `x` reaches."""
    t, n = tensor_type(x), bounds.shape[1]
    shape: Shape = (*t.shape, n)
    shown = bounds if axis is not None else bounds[0]
    table = emit.pooled(to_literal(shown, tensor(t.dtype, shown.shape)))
    places = (t.rank,) if axis is None else (axis, t.rank)
    wide = emit.term(spread_out(emit, x, shape, range(t.rank)))
    below = above(emit.term(spread_out(emit, table, shape, places)), wide)
    reached = cast(negated(below), SI32)
    return reached.op("REDUCE", reached, op="SUM", axes=(t.rank,), dtype=SI32) + dtype.min


def _axis(op: Op) -> int | None:
    result: int | None = op.attr("axis")
    return None if result is None else result % tensor_type(op.operands[0]).rank


def _require_few(dtype: DType) -> None:
    few = dtype.is_integer and dtype.max - dtype.min < _MOST
    require(few, NOT_TRANSLATABLE, f"only steps of up to 8 bits are counted, not {dtype}")


def _quantize(emit: TinyEmit, op: Op, x: Data) -> Value:
    """By thresholds in fp32; a NaN gives 0."""
    dtype, scales, zeros, axis = op.attr("output_dtype"), op.attr("scales"), op.attr("zero_points"), _axis(op)
    _require_few(dtype)
    v = emit.cast(emit.node(x), F32)
    given = scales or (1.0,)

    def step(keys: Array) -> Array:
        real = _in_order(keys).astype(np.float64)
        real = np.trunc(real) if not scales else real
        return to_quantized(real, 0, given, zeros or (0,) * len(given), dtype).astype(np.int64)

    keys = _thresholds(step, dtype, len(given), True)
    count = _counted(emit, op, v, _in_order(keys), axis if len(given) > 1 else None, dtype)  # infinity reaches every step
    return emit.named(select(numbers(emit.term(v), emit.term(v)), count, 0))


def _requantize(emit: TinyEmit, op: Op, x: Data) -> Value:
    """By thresholds in i32."""
    dtype, axis = op.attr("output_dtype"), _axis(op)
    _require_few(dtype)
    sides = [(op.attr(f"{p}scales"), op.attr(f"{p}zero_points")) for p in ("", "output_")]
    count = max(1, *(len(s) for s, _ in sides))
    full = [(s * (count // len(s)) if s else (1.0,) * count, z * (count // len(z)) if z else (0,) * count) for s, z in sides]

    def step(keys: Array) -> Array:
        return to_quantized(from_quantized(keys, 0, *full[0]), 0, *full[1], dtype).astype(np.int64)

    keys = _thresholds(step, dtype, count, False)
    along, v = axis if count > 1 else None, emit.node(x)
    result = _counted(emit, op, v, np.minimum(keys, SI32.max), along, dtype)
    last = dtype.min + (keys <= SI32.max).sum(1)  # the greatest step that any si32 reaches
    if (last < dtype.max).any():
        most = emit.pooled(
            to_literal(last if along is not None else last[0], tensor(SI32, last.shape if along is not None else ()))
        )
        result = minimum(result, emit.term(spread_out(emit, most, tensor_type(v).shape, () if along is None else (along,))))
    return emit.named(result)


def _dequantize(emit: TinyEmit, op: Op, x: Data) -> Value:
    """(x - zero point) * scale in fp32."""
    v, axis = emit.node(x), _axis(op)
    emit.note("dequantize is computed in fp32, within 2 units of the last place")
    out = cast(emit.term(v), F32)

    def along(values: Sequence[float]) -> Term:
        """One number for all, or one for each element of the axis."""
        if len(values) == 1:
            return out.number(values[0])
        vector = emit.node(to_literal(np.asarray(values, np.float32), tensor(F32, (len(values),))))
        return emit.term(spread_out(emit, vector, tensor_type(v).shape, (axis or 0,)))

    zeros, scales = op.attr("zero_points"), op.attr("scales")
    shifted = out - along(zeros) if any(zeros) else out
    return emit.settled(shifted * along(scales) if any(value != 1 for value in scales) else shifted)


STEPS: dict[str, Rule] = {"quantize": _quantize, "requantize": _requantize, "dequantize": _dequantize}
