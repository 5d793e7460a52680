"""Layer norm in one pass over the rows, reductions of columns, sums of bytes, argmax, and lookups of rows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.arrays import Array, holds
from ptir_tools.core.dtypes import F32, SI8, SI32, UI8
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.native import threads, tiles
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.indexing import inside
from ptir_tools.engines.numpy.steps import Running, Step, Workshop, dense, run_declared
from ptir_tools.engines.thresholds import at

COST = 16  # element operations of one element
LINE = 16  # elements of a line of the cache


def layer_norm(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of layer norm along the last axis of f32, cut by rows for the threads; others by NumPy."""
    (out,) = outs
    if op.attr("feature_axis") % out.ndim != out.ndim - 1 or out.size == 0 or out.dtype.char != "f":
        return numpy_engine.builder(op)(op, ins, outs, shop)
    steps: list[Step] = []
    x, gamma, beta = (dense(a, shop, steps) for a in ins)
    rows, target = (a.reshape(-1, out.shape[-1]) for a in (x, out))
    pieces = threads.cuts(len(rows), 2 * shop.threads if shop.threads > 1 and COST * out.size >= at.work else 1)
    parts: list[Step] = [(kernels().layer_norm, (target[s], rows[s], gamma, beta, op.attr("epsilon"))) for s in pieces]
    return [*steps, *threads.together(parts, shop.threads)]


def folded(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of a reduction of dense f32 over any axes. Adjacent axes are merged, and the last ones are reduced first. NumPy
    computes other reductions."""
    x, (out,) = ins[0], outs
    plain = x.dtype == out.dtype == np.float32 and op.attr("accum_dtype") in (None, F32) and op.attr("out_dtype") in (None, F32)
    runs = _runs(sorted(a % x.ndim for a in op.attr("axes")))
    if holds(x, SI8, UI8) and runs and x.flags.c_contiguous and _sums_last(op, runs, x.ndim) and out.size:
        return [(kernels().byte_sums, (out.reshape(-1), x.reshape(out.size, -1)))]
    columns = prod(x.shape[runs[-1].start :]) if runs and runs[-1].stop == x.ndim else at.row
    if not (plain and x.size and runs and x.flags.c_contiguous and columns >= at.reduced_row and _parts(columns)):
        return numpy_engine.builder(op)(op, ins, outs, shop)
    assert op.defn.kernel is not None
    steps: list[Step] = []
    while runs:
        own = runs.pop()
        shape = (*x.shape[: own.start], *x.shape[own.stop :])
        made = shop.scratch(shape, F32) if runs else out
        rows = prod(x.shape[: own.start])
        if own.stop == x.ndim and (count := _parts(prod(x.shape[own]))) > 1:
            parts = shop.scratch((rows, count), F32)
            steps += tiles.reduced(parts.reshape(-1, 1), x.reshape(rows * count, -1), op.defn.kernel.name, shop)
            steps += tiles.reduced(made.reshape(rows, 1), parts, op.defn.kernel.name, shop)
        elif own.stop == x.ndim:
            steps += tiles.reduced(made.reshape(rows, 1), x.reshape(rows, -1), op.defn.kernel.name, shop)
        else:
            steps += _fold(made.reshape(rows, -1), x.reshape(rows, prod(x.shape[own]), -1), op.defn.kernel.name, shop)
        x = made
    return steps


def _sums_last(op: Op, runs: Sequence[slice], rank: int) -> bool:
    """Whether a reduction of bytes is their sum in 32 bits over the last axes."""
    assert op.defn.kernel is not None
    is_sum = op.defn.kernel.name == "reduce_sum" and op.attr("accum_dtype") is op.attr("out_dtype") is SI32
    return is_sum and len(runs) == 1 and runs[0].stop == rank


def _parts(columns: int) -> int:
    """The number of equal parts of a row of `columns`, such that each part and its result fit into a tile; 0 if it cannot be
    divided."""
    least = -(-columns // at.row)
    return next((n for n in range(least, min(8 * least, at.row) + 1) if columns % n == 0), 0)


def _runs(axes: Sequence[int]) -> list[slice]:
    """Runs of adjacent axes, each as its first axis and the one after its last."""
    runs: list[slice] = []
    for a in axes:
        if runs and runs[-1].stop == a:
            runs[-1] = slice(runs[-1].start, a + 1)
        else:
            runs.append(slice(a, a + 1))
    return runs


def _fold(target: Array, source: Array, name: str, shop: Workshop) -> list[Step]:
    """The steps of a reduction of the second of three axes."""
    kernel = kernels()
    kind = getattr(kernel, name.rpartition("_")[2].upper())
    workers = 2 * shop.threads if shop.threads > 1 and source.size >= at.work else 1
    if len(source) > 1:
        return threads.together(
            [(kernel.fold, (target[s], source[s], kind)) for s in threads.cuts(len(source), workers)], shop.threads
        )
    blocks = threads.cuts(-(-target.shape[1] // LINE), workers)
    slices = [slice(s.start * LINE, min(s.stop * LINE, target.shape[1])) for s in blocks]
    return threads.together([(kernel.fold, (target[:, s], source[:, :, s], kind)) for s in slices], shop.threads)


def largest(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of argmax along the last axis of f32, cut by rows for the threads; others by NumPy."""
    x, (out,) = ins[0], outs
    if x.dtype != np.float32 or op.attr("axis") % x.ndim != x.ndim - 1 or not x.size or x.shape[-1] > np.iinfo(np.int32).max:
        return numpy_engine.builder(op)(op, ins, outs, shop)
    steps: list[Step] = []
    source, target = dense(x, shop, steps).reshape(-1, x.shape[-1]), out.reshape(-1)
    pieces = threads.cuts(len(source), 2 * shop.threads if shop.threads > 1 and x.size >= at.work else 1)
    parts: list[Step] = [(kernels().largest, (target[s], source[s])) for s in pieces]
    return [*steps, *threads.together(parts, shop.threads)]


def taken(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps that copy rows by index, divided among the threads; NumPy copies short rows. The body reports an index out of
    range."""
    (x, indices), (out,) = ins, outs
    width = x[0].nbytes if len(x) else 0
    dense_ones = x.flags.c_contiguous and indices.flags.c_contiguous
    if (
        not width
        or (width < at.taken_row and indices.size > at.taken_rows)
        or not indices.size
        or not dense_ones
        or indices.dtype.char not in "bBhHiIlLqQ"
    ):
        return numpy_engine.builder(op)(op, ins, outs, shop)
    numbers = indices.reshape(-1)
    source, target = x.view(np.uint8).reshape(len(x), width), out.reshape(-1).view(np.uint8).reshape(-1, width)
    pieces = threads.cuts(len(numbers), 2 * shop.threads if shop.threads > 1 and out.nbytes >= at.work else 1)
    parts: list[Step] = [(kernels().take, (target[s], source, numbers[s])) for s in pieces]
    return [(take_checked, (op, ins, outs, shop.running, threads.together(parts, shop.threads)))]


def take_checked(op: Op, ins: Sequence[Any], outs: Sequence[Array], running: Running, steps: Sequence[Step]) -> None:
    """Run `steps`, which copy rows by index; the body reports an index out of range."""
    if not inside(ins[1], len(ins[0])):
        return run_declared(op, ins, outs, running)
    for function, arguments in steps:
        function(*arguments)
