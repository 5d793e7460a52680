"""The products of a program that can be quantized: a value times a constant, as a contraction or a convolution."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F32
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.kernels.scales import CONVOLUTIONS
from ptir_tools.dialects.ptir.kernels.targets import values_of
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.rewrite.constants import known, scalar_of
from ptir_tools.rewrite.rewriter import Rewriter

MOVES = ("ptir.reshape", "ptir.transpose", "ptir.slice", "ptir.extract_patches")  # they move numbers and zeros
DEQUANTIZE = "ptir.dequantize"


@dataclass(slots=True, eq=False)
class Product:
    """An op that multiplies `source`, moved by `moves` (first to last), by the constant `weight`.

    `side` is the operand that is the value, `other` the constant one. `axis` is the axis of the weight that has the outputs, None
    if there are several. `channel` is the axis of the source along which it is summed, None if that is not one axis.
    """

    op: Op
    side: int
    other: int
    source: Value
    moves: list[Op]
    weight: Array
    axis: int | None
    channel: int | None

    @property
    def name(self) -> str:
        """The name of its result."""
        return self.op.result.name

    @property
    def convolves(self) -> bool:
        """Whether it is a convolution."""
        return self.op.defn.name == "ptir.custom_call"

    @property
    def depthwise(self) -> bool:
        """Whether each channel is multiplied alone."""
        return self.convolves and CONVOLUTIONS[self.op.attr("target")] == 0

    @property
    def result_axis(self) -> int | None:
        """The axis of the result that `axis` becomes."""
        if self.axis is None or self.convolves:
            return None if self.axis is None else helpers.rank(self.op) - 1
        summed = helpers.axes(self.op.attr(("contract_lhs", "contract_rhs")[self.other]), self.weight.ndim)
        place = sum(a not in summed for a in range(self.axis))
        free = self.weight.ndim - len(summed)
        return helpers.rank(self.op) - free + place if self.other else place

    def grouped(self, count: int) -> tuple[int, int] | None:
        """The axis of the weight along which each `count` elements are a group, and `count`; None where there are no groups."""
        axes = (0,) if self.convolves else self.op.attr(("contract_lhs", "contract_rhs")[self.other])
        if not count or self.depthwise or len(axes) != 1:
            return None
        axis = axes[0] % self.weight.ndim
        return (axis, count) if self.weight.shape[axis] % count == 0 and self.weight.shape[axis] > count else None

    def by_channel(self, numbers: Array) -> Array:
        """A number for each channel of the source, as it meets the elements of the weight."""
        if not self.convolves:
            axis = self.op.attr(("contract_lhs", "contract_rhs")[self.other])[0] % self.weight.ndim
            shape = [-1 if a == axis else 1 for a in range(self.weight.ndim)]
            return np.broadcast_to(numbers.reshape(shape), self.weight.shape)
        if self.depthwise:
            return np.broadcast_to(numbers[:, None], self.weight.shape)
        values = values_of(self.op.attr("target"), self.op.attr("attrs"))
        taps, groups, outputs = prod(values["window"]), values.get("groups", 1), self.weight.shape[1]
        parts = numbers.reshape(groups, 1, -1).repeat(taps, 1).reshape(groups, -1)
        return parts.repeat(outputs // groups, 0).T


def products(rw: Rewriter) -> Iterator[Product]:
    """The products of a block, in order. Those of values that are quantized already are left out."""
    cache: dict[Value, Data | None] = {}
    for op in rw.body():
        if (made := _product(op, cache)) is not None:
            yield made


def _product(op: Op, cache: dict[Value, Data | None]) -> Product | None:
    if len(op.results) != 1 or not isinstance(op.result.type, TensorType) or helpers.dtype(op) is not F32:
        return None
    if op.defn.name == "ptir.custom_call" and op.attr("target") in CONVOLUTIONS:
        side, other = 0, 1
        axis: int | None = CONVOLUTIONS[op.attr("target")]
    elif op.defn.name == "ptir.dot_general" and op.attr("accum_dtype") in (None, F32):
        constants = [known(x, cache) is not None for x in op.operands]
        if sum(constants) != 1 or op.attr("batch_lhs"):
            return None
        side, other = (1, 0) if constants[0] else (0, 1)
        axis = _free(op, other)
    else:
        return None
    weight, x = known(op.operands[other], cache), op.operands[side]
    if weight is None or not isinstance(x, Value) or helpers.dtype(x) is not F32 or _dequantized(op.operands[other]):
        return None
    source, moves = _origin(x)
    if not isinstance(source, Value) or _dequantized(source) or not weight.size:
        return None
    return Product(op, side, other, source, moves, weight.astype(np.float64), axis, _channel(op, side, moves))


def _channel(op: Op, side: int, moves: list[Op]) -> int | None:
    """The axis, before `moves`, along which `op` sums."""
    rank = helpers.rank(op.operands[side])
    axes: tuple[int, ...] = (rank - 1,)
    if op.defn.name == "ptir.dot_general":
        axes = helpers.axes(op.attr(("contract_lhs", "contract_rhs")[side]), rank)
    if len(axes) != 1 or any(move.defn.name != "ptir.transpose" for move in moves):
        return None
    (axis,) = axes
    for move in reversed(moves):
        axis = helpers.axes(move.attr("perm"), helpers.rank(move))[axis]
    return axis


def _free(op: Op, other: int) -> int | None:
    """The one axis of a constant operand that is not summed and has more than one index; None if there are several."""
    rank = helpers.rank(op.operands[other])
    summed = helpers.axes(op.attr(("contract_lhs", "contract_rhs")[other]), rank)
    free = [a for a in range(rank) if a not in summed]
    wide = [a for a in free if helpers.extents(op.operands[other])[a] > 1]
    return (wide or free)[0] if len(wide) <= 1 and free else None


def _dequantized(x: Operand) -> bool:
    while isinstance(x, Value) and x.op is not None:
        if x.op.defn.name == DEQUANTIZE:
            return True
        if x.op.defn.name not in MOVES:
            return False
        x = x.op.operands[0]
    return False


def _origin(x: Value) -> tuple[Operand, list[Op]]:
    """The value that movement made `x` from, and the moves."""
    moves: list[Op] = []
    y: Operand = x
    while isinstance(y, Value) and y.op is not None and y.op.defn.name in MOVES and _keeps_zero(y.op):
        moves.append(y.op)
        y = y.op.operands[0]
    return y, moves[::-1]


def _keeps_zero(op: Op) -> bool:
    return op.defn.short != "extract_patches" or op.attr("pad_value").value == 0


def positive_part(rw: Rewriter, v: Value) -> Value:
    """The positive part of `v`, where nothing else reads it, else `v`."""
    users = list(rw.users_of(v))
    if len(users) != 1 or rw.is_result(v) or users[0].defn.short != "maximum":
        return v
    return users[0].result if any(scalar_of(x) == 0 for x in users[0].operands) else v
