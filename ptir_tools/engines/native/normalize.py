"""Layer norm in one pass over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.engines import numpy as numpy_engine
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.numpy.steps import Step, Workshop, dense

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array

COST = 16  # element operations of one element


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
