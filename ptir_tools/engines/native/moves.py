"""Copies. If the contiguous axis is not the last one, blocks are transposed; floats are converted."""

from __future__ import annotations

from ptir_tools.core.arrays import Array
from ptir_tools.core.lazy import np
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.tiles import converted
from ptir_tools.engines.numpy.steps import Step, Workshop
from ptir_tools.engines.thresholds import at


def copied(out: Array, x: Array, shop: Workshop, workers: int = 0) -> list[Step]:
    """The steps that copy `x`, of any strides, to the dense `out`, which may have another dtype, on all threads or `workers`."""
    workers = workers or shop.threads
    if x.dtype != out.dtype and (steps := converted(out, x, shop, workers)) is not None:
        return steps
    pair = stacked(out, x) if x.size >= at.transposed and x.dtype == out.dtype and x.dtype.str[1:] in ("f4", "i4", "u4") else None
    if pair is None:
        return [(np.copyto, (out, x, "unsafe"))]
    target, source = pair
    axis = 0 if len(target) >= 4 * workers else 1
    pieces = threads.cuts(target.shape[axis], 4 * workers if workers > 1 and x.size >= at.work // 4 else 1)
    index = [(slice(None),) * axis + (piece,) for piece in pieces]
    return threads.together([(kernels().transpose, (target[i], source[i], out.nbytes >= at.past_cache)) for i in index], workers)


def stacked(out: Array, x: Array) -> tuple[Array, Array] | None:
    """Both arrays as [batch, m, n], with `x` contiguous along m and `out` along n; None if their strides do not allow that."""
    axes: list[tuple[int, int, int]] = []  # (extent, stride of out, stride of x); contiguous axes are merged
    for n, s, t in zip(x.shape, out.strides, x.strides, strict=True):
        if axes and axes[-1][1:] == (n * s, n * t):
            axes[-1] = (axes[-1][0] * n, s, t)
        elif n != 1:
            axes.append((n, s, t))
    inner = [i for i, (_, _, t) in enumerate(axes[:-1]) if t == x.itemsize]
    if len(axes) not in (2, 3) or not inner or axes[-1][1] != out.itemsize or axes[-1][2] == x.itemsize:
        return None
    rest = [a for i, a in enumerate(axes[:-1]) if i != inner[0]] or [(1, 0, 0)]
    shape, targets, sources = zip(*rest, axes[inner[0]], axes[-1], strict=True)
    view = np.lib.stride_tricks.as_strided
    return view(out, shape, targets), view(x, shape, sources, writeable=False)
