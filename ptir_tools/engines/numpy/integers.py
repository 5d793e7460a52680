"""Floats to integers and quantization: f64 inside, a tile at a time, so that intermediates stay in cache."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32, F64, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines.numpy.steps import Builder, Step, Workshop, declared, dense, tensor_of

TILE = 1 << 14  # elements


def truncate(x: Array, out: Array, target: DType) -> None:
    """Write the floats of `x` to the integers `out` by the cast table; both row-major."""
    source, result = x.reshape(-1), out.reshape(-1)
    low, high = float(target.min), float(target.max + 1)
    for at in range(0, source.size, TILE):
        _truncate_tile(source[at : at + TILE], result[at : at + TILE], low, high, target)


def _truncate_tile(x: Array, out: Array, low: float, high: float, target: DType) -> None:
    """NumPy's conversion if every element is in range; otherwise a saturating one."""
    if float(x.min()) >= low and float(x.max()) < high:
        np.copyto(out, x, "unsafe")
    else:
        np.copyto(out, arrays.saturate_float(arrays.widen(x), target))


def _is_plain(dtype: DType) -> bool:
    return dtype.is_integer and dtype.bits in (8, 16, 32)


def _blocks(op: Op, prefix: str, x: Array) -> tuple[tuple[int, ...], object, object]:
    """The shape in which the operand is divided along its first axis, and scales and zero points for it, in f64."""
    scales, zeros, axis = op.attr(f"{prefix}scales"), op.attr(f"{prefix}zero_points"), op.attr("axis")
    shape: tuple[int, ...] = (x.size,)
    if axis is not None:
        axis %= x.ndim
        shape = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    column = (-1,) if axis is None else (-1, 1)
    return shape, np.asarray(scales or (1.0,), np.float64).reshape(column), np.asarray(zeros or (0,), np.float64).reshape(column)


def _quantize(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, (out,), target = ins[0], outs, op.attr("output_dtype")
    if x.size == 0 or not op.attr("scales") or tensor_of(op).dtype not in (F32, F64) or not _is_plain(target):
        return declared(op, ins, outs, shop)
    steps: list[Step] = []
    shape, scales, zeros = _blocks(op, "", x)
    source, result = dense(x, shop, steps).reshape(shape), out.reshape(shape)
    wide = shop.scratch((_height(shape), *shape[1:]), F64)
    return [*steps, (_to_steps, (source, scales, zeros, target, wide, result))]


def _height(shape: tuple[int, ...]) -> int:
    return max(1, min(shape[0], TILE // prod(shape[1:])))


def _to_steps(x: Array, scales: Array, zeros: Array, target: DType, spare: Array, out: Array) -> None:
    for at in range(0, len(x), len(spare)):
        piece = x[at : at + len(spare)]
        wide = spare[: len(piece)]
        np.divide(piece, scales, wide)
        np.rint(wide, wide)
        np.add(wide, zeros, wide)
        if np.isnan(np.max(wide)):
            np.copyto(wide, 0.0, where=np.isnan(wide))
        np.clip(wide, float(target.min), float(target.max), wide)
        np.copyto(out[at : at + len(spare)], wide, "unsafe")


def _requantize(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, (out,), target = ins[0], outs, op.attr("output_dtype")
    scaled = op.attr("scales") or op.attr("output_scales")
    if x.size == 0 or not scaled or not _is_plain(tensor_of(op).dtype) or not _is_plain(target):
        return declared(op, ins, outs, shop)
    steps: list[Step] = []
    shape, scales, zeros = _blocks(op, "", x)
    _, output_scales, output_zeros = _blocks(op, "output_", x)
    source, result = dense(x, shop, steps).reshape(shape), out.reshape(shape)
    wide = shop.scratch((_height(shape), *shape[1:]), F64)
    return [*steps, (_between_steps, (source, scales, zeros, output_scales, output_zeros, target, wide, result))]


def _between_steps(
    x: Array, scales: Array, zeros: Array, output_scales: Array, output_zeros: Array, target: DType, spare: Array, out: Array
) -> None:
    for at in range(0, len(x), len(spare)):
        piece, result = x[at : at + len(spare)], out[at : at + len(spare)]
        wide = spare[: len(piece)]
        np.subtract(piece, zeros, wide)
        np.multiply(wide, scales, wide)
        _to_steps(wide, output_scales, output_zeros, target, wide, result)


def _dequantize(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, (out,), source = ins[0], outs, tensor_of(op).dtype
    if x.size == 0 or not op.attr("scales") or not _is_plain(source) or out.dtype not in (np.float32, np.float64):
        return declared(op, ins, outs, shop)
    steps: list[Step] = []
    shape, scales, zeros = _blocks(op, "", x)
    steps_of, result = dense(x, shop, steps).reshape(shape), out.reshape(shape)
    wide = shop.scratch((_height(shape), *shape[1:]), F64)
    return [*steps, (_from_steps, (steps_of, scales, zeros, wide, result))]


def _from_steps(x: Array, scales: Array, zeros: Array, spare: Array, out: Array) -> None:
    if not zeros.any():
        np.multiply(x, scales, out, casting="unsafe")  # in f64, as the scales are
        return
    for at in range(0, len(x), len(spare)):
        piece = x[at : at + len(spare)]
        wide = spare[: len(piece)]
        np.subtract(piece, zeros, wide)
        np.multiply(wide, scales, out[at : at + len(spare)], casting="unsafe")


BUILDERS: dict[str, Builder] = {"quantize": _quantize, "requantize": _requantize, "dequantize": _dequantize}
