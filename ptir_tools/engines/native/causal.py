"""Softmaxes whose mask leaves only the first columns of a row, as in causal attention: the other columns are left out.

What the mask replaces by a large negative number has the weight e^(number - largest of the row), which is exactly 0 where some
element of the row is far above that number. That is looked at in every run, block of rows by block of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptir_tools.core import arrays
from ptir_tools.core.evaluate import Context, evaluate
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import NamedTuple
from ptir_tools.engines.native import fusion as clusters

if TYPE_CHECKING:
    import numpy as np

    from ptir_tools.core.arrays import Array
else:
    np = lazy("numpy")

FAR = 128.0  # above the number that masks: e^-128 is 0 in f32
LANES = 32  # a row of a multiple of so many columns is summed as a longer one that ends in zeros
DEEPEST = 64  # ops between a mask and the constants that it is made of


class Causal(NamedTuple):
    """`widths[i]` columns hold all that row i of any matrix keeps; `top` is the largest of a row, to be at least `least`."""

    widths: Array
    top: Value
    least: float

    def width(self, rows: slice, columns: int) -> int:
        """How many columns a block of rows needs."""
        widest = int(self.widths[rows].max(initial=0))
        return min(-(-widest // LANES) * LANES, columns)


def causal(result: Op) -> Causal | None:
    """What is known of the softmax that ends at `result`, if its operand is selected by a constant mask of one matrix."""
    found = _masked(result)
    if found is None:
        return None
    top, select = found
    mask, number = _known(select.operands[0]), _known(select.operands[2])
    if mask is None or number is None or any(number.strides) or any(mask.strides[:-2]) or mask.ndim < 2 or not mask.size:
        return None
    matrix = mask[(0,) * (mask.ndim - 2)]
    columns = np.arange(1, matrix.shape[1] + 1)
    return Causal(np.where(matrix, columns, 0).max(1), top, float(number.flat[0]) + FAR)


def _masked(result: Op) -> tuple[Value, Op] | None:
    """The largest of a row and the `select` under a softmax: e / sum e, e = exp(s - max s)."""
    if not _is(result, "div"):
        return None
    e, total = _made(result.operands[0], "exp"), _made(result.operands[1], "reduce_sum")
    shifted = _made(e.operands[0], "sub") if e else None
    if e is None or total is None or shifted is None or total.operands[0] is not e.result:
        return None
    select, top = _made(shifted.operands[0], "select"), _made(shifted.operands[1], "reduce_max")
    if select is None or top is None or top.operands[0] is not select.result:
        return None
    return top.result, select


def _is(op: Op, name: str) -> bool:
    """Whether `name` is the instruction of `op`."""
    return op.defn.kernel is not None and op.defn.kernel.name == name


def _made(x: Operand, name: str) -> Op | None:
    """The op with the instruction `name` that makes `x`, seen through reshapes and broadcasts of what it has per row."""
    while isinstance(x, Value) and x.op is not None and clusters.role(x.op) in ("reshape", "repeat"):
        x = x.op.operands[0]
    return x.op if isinstance(x, Value) and x.op is not None and _is(x.op, name) else None


def _known(x: Operand, depth: int = DEEPEST) -> Array | None:
    """What `x` is on every run, when it is made of constants and counters."""
    if isinstance(x, Literal):
        return arrays.from_literal(x)
    if not isinstance(x, Value) or x.op is None or not depth:
        return None
    if x.op.regions or x.op.defn.is_random or not x.op.defn.is_pure:
        return None
    operands: Sequence[Array | None] = [_known(y, depth - 1) for y in x.op.operands]
    if any(a is None for a in operands):
        return None
    found: Array = evaluate(x.op, operands, Context())[0]
    return found
