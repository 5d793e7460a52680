"""Layer norm, a block of rows at a time, so that intermediates stay in cache."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.ops.normalize import layer_norm_arrays
from ptir_tools.engines.numpy.steps import Builder, Step, Workshop, declared, dense, in_f32

BLOCK = 1 << 16  # elements
NEGLIGIBLE = 2.0**-24  # relative to deviations of 1
LEAST = 2.0**-100  # variances below this may have lost squares to underflow


def _layer_norm(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    x, gamma, beta = ins
    (out,) = outs
    if out.size == 0 or out.dtype != np.float32:
        return declared(op, ins, outs, shop)
    axis = op.attr("feature_axis") % x.ndim
    shape = (prod(x.shape[:axis]), x.shape[axis], prod(x.shape[axis + 1 :]))
    steps: list[Step] = []
    rows, target = (a.reshape(shape).swapaxes(1, 2) for a in (dense(x, shop, steps), out))
    return [*steps, (_normalize, (rows, gamma, beta, op.attr("epsilon"), target))]


def _normalize(x: Array, gamma: Array, beta: Array, epsilon: float, out: Array) -> None:
    """Layer norm over the last axis. A block with a row whose squares leave the range of f32 is computed in float64."""
    height = max(1, BLOCK // (x.shape[1] * x.shape[2]))
    share = np.full(x.shape[2:], 1 / x.shape[2], np.float32)
    for at in range(0, len(x), height):
        rows, d = x[at : at + height], out[at : at + height]
        np.subtract(rows, np.vecdot(rows, share)[..., None], d)
        rest = np.vecdot(d, share)[..., None]  # the rounding error of the mean
        variance = np.vecdot(d, d)[..., None] * share[0] - rest * rest + np.float32(epsilon)
        if not np.all((variance >= LEAST) & (variance < np.inf)):
            wide, factor, term = (a.astype(np.float64) for a in (rows, gamma, beta))
            d[...] = layer_norm_arrays(wide, factor, term, epsilon, 2)
            continue
        scale = 1 / np.sqrt(variance)
        if np.max(np.abs(rest * scale)) > NEGLIGIBLE:
            np.subtract(d, rest, d)
        np.multiply(d, scale, d)
        np.multiply(d, gamma, d)
        np.add(d, beta, d)


BUILDERS: dict[str, Builder] = {"layer-norm": in_f32(_layer_norm)}
