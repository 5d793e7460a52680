"""Layer norm in one pass over the rows, reductions of columns, argmax, and rows by number."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.typed import Any
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.indexing import inside
from ptir_tools.engines.numpy.steps import Running, Step, Workshop, dense, run_declared

COST = 16  # element operations of one element
LINE = 16  # elements of a line of the cache
LEAST = 256  # bytes of a row from which on the kernel pays for more than FEW of them
FEW = 1 << 12


def layer_norm(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of layer norm along the last axis of f32, cut by rows for the threads; others by NumPy."""
    (out,) = outs
    if op.attr("feature_axis") % out.ndim != out.ndim - 1 or out.size == 0 or out.dtype.char != "f":
        return numpy_engine.builder(op)(op, ins, outs, shop)
    steps: list[Step] = []
    x, gamma, beta = (dense(a, shop, steps) for a in ins)
    rows, target = (a.reshape(-1, out.shape[-1]) for a in (x, out))
    pieces = threads.cuts(len(rows), 2 * shop.threads if shop.threads > 1 and COST * out.size >= threads.WORTH else 1)
    parts: list[Step] = [(kernels().layer_norm, (target[s], rows[s], gamma, beta, op.attr("epsilon"))) for s in pieces]
    return [*steps, *threads.together(parts, shop.threads)]


def folded(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps of a reduction of f32 over axes before the last one that are next to each other; others by NumPy."""
    x, (out,) = ins[0], outs
    axes = sorted(a % x.ndim for a in op.attr("axes"))
    first, last = (axes[0], axes[-1] + 1) if axes else (0, 0)
    plain = x.dtype == out.dtype == np.float32 and op.attr("accum_dtype") in (None, F32) and op.attr("out_dtype") in (None, F32)
    fits = plain and x.size and last - first == len(axes) > 0 and last < x.ndim and x.flags.c_contiguous
    if not fits:
        return numpy_engine.builder(op)(op, ins, outs, shop)
    source = x.reshape(prod(x.shape[:first]), prod(x.shape[first:last]), -1)
    target = out.reshape(len(source), -1)
    kernel = kernels()
    assert op.defn.kernel is not None
    kind = getattr(kernel, op.defn.kernel.name.rpartition("_")[2].upper())
    workers = 2 * shop.threads if shop.threads > 1 and x.size >= threads.WORTH else 1
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
    pieces = threads.cuts(len(source), 2 * shop.threads if shop.threads > 1 and x.size >= threads.WORTH else 1)
    parts: list[Step] = [(kernels().largest, (target[s], source[s])) for s in pieces]
    return [*steps, *threads.together(parts, shop.threads)]


def taken(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    """The steps that copy rows by number, cut by number for the threads; short ones by NumPy. The body reports a row that is not
    there."""
    (x, indices), (out,) = ins, outs
    width = x[0].nbytes if len(x) else 0
    dense_ones = x.flags.c_contiguous and indices.flags.c_contiguous
    if (
        not width
        or (width < LEAST and indices.size > FEW)
        or not indices.size
        or not dense_ones
        or indices.dtype.char not in "bBhHiIlLqQ"
    ):
        return numpy_engine.builder(op)(op, ins, outs, shop)
    numbers = indices.reshape(-1)
    source, target = x.view(np.uint8).reshape(len(x), width), out.reshape(-1).view(np.uint8).reshape(-1, width)
    pieces = threads.cuts(len(numbers), 2 * shop.threads if shop.threads > 1 and out.nbytes >= threads.WORTH else 1)
    parts: list[Step] = [(kernels().take, (target[s], source, numbers[s])) for s in pieces]
    return [(take_checked, (op, ins, outs, shop.running, threads.together(parts, shop.threads)))]


def take_checked(op: Op, ins: Sequence[Any], outs: Sequence[Array], running: Running, steps: Sequence[Step]) -> None:
    """Run `steps`, which copy rows by number; the body reports a row that is not there."""
    if not inside(ins[1], len(ins[0])):
        return run_declared(op, ins, outs, running)
    for function, arguments in steps:
        function(*arguments)
