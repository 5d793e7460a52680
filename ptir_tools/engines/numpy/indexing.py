"""Reading by index: positions in the flat operand are computed in place; one `take` reads all of them."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.strides import dense_strides
from ptir_tools.engines.numpy.steps import Builder, Running, Step, Workshop, dense, run_declared


def inside(indices: Array, extent: int) -> bool:
    """Whether all indices are in [0, extent)."""
    return not indices.size or bool(indices.min() >= 0 and indices.max() < extent)


def _take(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    return [(_take_checked, (op, ins, outs, shop.running))]


def _take_checked(op: Op, ins: Sequence[Array], outs: Sequence[Array], running: Running) -> None:
    """Rows by index; the body reports an index out of bounds."""
    x, indices = ins
    if not inside(indices, x.shape[0]):
        run_declared(op, ins, outs, running)
    elif indices.size:
        np.take(x, indices, 0, outs[0], "clip")


def _gather(op: Op, ins: Sequence[Data], outs: Sequence[Array], shop: Workshop) -> list[Step]:
    steps: list[Step] = []
    x, indices = dense(ins[0], shop, steps), ins[1]
    at = shop.scratch(indices.shape, SI64)
    where = positions(indices, x.shape, op.attr("axis") % x.ndim)
    return [*steps, (_gather_checked, (op, ins, outs, shop.running, x.reshape(-1), where, at))]


Positions = tuple["Array", int, int, list["Array"]]


def positions(indices: Array, shape: Sequence[int], axis: int) -> Positions:
    """Indices along the axis, its extent and stride in the flat operand, and the offsets of the other axes."""
    strides = dense_strides(tuple(shape))
    rest = [a for a in range(len(shape)) if a != axis and shape[a] > 1]
    grids = [(np.arange(shape[a]) * strides[a]).reshape([-1 if i == a else 1 for i in range(len(shape))]) for a in rest]
    return indices, shape[axis], strides[axis], grids


def located(where: Positions, at: Array) -> bool:
    """Write the positions to `at`, if the indices are inside."""
    indices, extent, stride, grids = where
    if not inside(indices, extent):
        return False
    np.multiply(indices, stride, at)
    for grid in grids:
        np.add(at, grid, at)
    return True


def _gather_checked(
    op: Op, ins: Sequence[Array], outs: Sequence[Array], running: Running, flat: Array, where: Positions, at: Array
) -> None:
    if not located(where, at):
        run_declared(op, ins, outs, running)
    elif at.size:
        np.take(flat, at, out=outs[0], mode="clip")


BUILDERS: dict[str, Builder] = {"take": _take, "gather": _gather}
