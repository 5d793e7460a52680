"""Products of one row and a matrix. Each element of the matrix is used once, so it is read in place and in its own dtype."""

from __future__ import annotations

from collections.abc import Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import BF16, F16, F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.engines.native import threads
from ptir_tools.engines.native.library import kernels
from ptir_tools.engines.native.tiles import bits
from ptir_tools.engines.numpy.linalg import axes_of, is_constant, operand_stack, stack
from ptir_tools.engines.numpy.steps import Step, Workshop, dense, tensor_of
from ptir_tools.engines.thresholds import at

COLUMNS = 64  # columns of a part are a multiple of this


def product(op: Op, ins: Sequence[Data], out: Array, row: int, shop: Workshop) -> list[Step]:
    """The steps of a `dot_general` in f32. Operand number `row` is one row; the other is the matrix."""
    sides = axes_of(op)
    batch, ones, contract = sides[3 * row : 3 * row + 3]
    other_batch, columns, other_contract = sides[3 - 3 * row : 6 - 3 * row]
    steps: list[Step] = []
    x = dense(stack(ins[row], (batch, [*ones, *contract]), 0, shop, F32, steps), shop, steps)
    kind = tensor_of(op, 1 - row).dtype
    if kind not in (F32, F16, BF16) or (kind is F16 and is_constant(op.operands[1 - row])):
        kind = F32
    matrix = operand_stack(op, 1 - row, ins, (other_batch, other_contract, columns), 0, shop, kind, steps)
    strides = [s for n, s in zip(matrix.shape[1:], matrix.strides[1:], strict=True) if n > 1]
    if strides and matrix.itemsize not in strides:
        matrix = dense(matrix, shop, steps)
    wide = out if out.dtype == np.float32 else shop.scratch(out.shape, F32)
    steps += threads.together(_parts(wide.reshape(x.shape[0], matrix.shape[2]), x, bits(matrix), shop.threads), shop.threads)
    return steps if wide is out else [*steps, *shop.copied(out, wide)]


def _parts(out: Array, x: Array, matrix: Array, workers: int) -> list[Step]:
    """The parts for the threads: by row of the stack, or by column if there is one."""
    count = 2 * workers if workers > 1 and matrix.size >= at.matrix else 1
    if len(out) > 1:
        return [(kernels().gemv, (out[s], x[s], matrix[s])) for s in threads.cuts(len(out), count)]
    if out.shape[1] < count * at.columns_of_part:
        count = min(count, workers)
    blocks = threads.cuts(-(-out.shape[1] // COLUMNS), count)
    slices = [slice(s.start * COLUMNS, min(s.stop * COLUMNS, out.shape[1])) for s in blocks]
    return [(kernels().gemv, (out[:, s], x, matrix[:, :, s])) for s in slices]
