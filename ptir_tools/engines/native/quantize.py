"""Quantization in one pass: integers to integers of another scale, floats to integers, and integers to floats."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.steps import Step, Workshop, dense
from ptir_tools.engines.thresholds import at

KINDS = "bBhHiIf"  # integers up to 32 bits; f32 on one side


def rescaled(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of a quantization with scales, cut by rows for the threads; others by NumPy."""
    (x, (out,)) = ins[0], outs
    floats = x.dtype.kind == out.dtype.kind == "f"
    if not is_scaled(op) or floats or x.dtype.char not in KINDS or out.dtype.char not in KINDS or out.size == 0:
        return numpy_engine.builder(op)(op, ins, outs, shop)
    scaling = scalings(op, x.dtype.kind == "f")
    axis = op.attr("axis")
    inner = prod(x.shape[axis % x.ndim + 1 :]) if axis is not None else 0
    rows = prod(x.shape[: axis % x.ndim + (inner > 1)]) if axis is not None else 1
    steps: list[Step] = []
    source, target = (a.reshape(rows, -1) for a in (dense(x, shop, steps), out))
    along = int(inner == 1 and scaling.shape[1] > 1)
    parts: list[Step] = [
        (kernels().rescaled, (a, b, s, along)) for a, b, s in _pieces(target, source, scaling, along, shop.threads)
    ]
    return [*steps, *threads.together(parts, shop.threads)]


def is_scaled(op: Op) -> bool:
    """Whether a quantization has scales."""
    return bool(numbers(op, "scales", 0.0).any() or numbers(op, "output_scales", 0.0).any())


def scalings(op: Op, of_floats: bool = False) -> Array:
    """The scale, zero point, output's scale and output's zero point, each with a column per index of the axis."""
    given, made = ("scales", "zero_points"), ("output_scales", "output_zero_points")
    if of_floats:
        given, made = made, given
    fields = [numbers(op, name, missing) for name, missing in zip((*given, *made), (1.0, 0.0) * 2, strict=True)]
    return np.ascontiguousarray(np.stack(np.broadcast_arrays(*fields)))


def numbers(op: Op, name: str, missing: float) -> Array:
    """The attribute as float64, or `missing` without one."""
    found = op.attr(name) if name in op.defn.attr_index else ()
    return np.asarray(found or (missing,), np.float64)


def _pieces(out: Array, x: Array, scaling: Array, along: int, workers: int) -> list[tuple[Array, Array, Array]]:
    """The arrays divided among the threads: by row if scalings are per column; with one scaling, as one row that is divided by
    elements."""
    count = 2 * workers if workers > 1 and x.size >= at.quantized else 1
    if scaling.shape[1] == 1:
        flat = [a.reshape(1, -1) for a in (out, x)]
        return [(flat[0][:, s], flat[1][:, s], scaling) for s in threads.cuts(x.size, count)]
    if along:
        return [(out[s], x[s], scaling) for s in threads.cuts(len(x), count)]
    return [(out, x, scaling)]
