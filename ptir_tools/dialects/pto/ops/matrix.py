"""Matrix products (PTO IR 6.3): f32 (or wrapping i32) from zero in ascending k, the accumulator or bias added last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ptir_tools.core import costs
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Violation, operand, require, result
from ptir_tools.core.dtypes import F32, SI32
from ptir_tools.core.evaluate import Context
from ptir_tools.core.lazy import lazy
from ptir_tools.core.opdef import Many, Trait
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto import rules
from ptir_tools.dialects.pto.machine import Tile, machine
from ptir_tools.dialects.pto.ops import kit
from ptir_tools.dialects.pto.types import EventType, TileType, type_text

if TYPE_CHECKING:
    import numpy as np
else:
    np = lazy("numpy")


def multiplied(a: Type, b: Type, *, to: TileType) -> None:
    """Left MxK, Right KxN, Acc MxN, all of rank 2; i8 by i8 gives i32, floats give f32."""
    left, right = rules.need_tile("operand 0", a), rules.need_tile("operand 1", b)
    for what, t in (("operand 0", left), ("operand 1", right), ("the result", to)):
        rules.rank_two(what, t)
    rules.at_loc("operand 0", left, "Left")
    rules.at_loc("operand 1", right, "Right")
    rules.at_loc("the result", to, "Acc")
    rules.same_extent("K of the operands", left.shape[1], right.shape[0], operand(1))
    rules.same_extent("M of operand 0 and result", left.shape[0], to.shape[0], result())
    rules.same_extent("N of operand 1 and result", right.shape[1], to.shape[1], result())
    wants = F32 if left.dtype.is_float else SI32
    agree = left.dtype.is_float == right.dtype.is_float and to.dtype is wants
    shown = f"{type_text(left)} by {type_text(right)} to {type_text(to)}"
    require(agree, "TypeMismatch", f"{shown}: floats accumulate in f32, integers in i32", at=result())


def accumulating(c: Type, a: Type, b: Type, *, to: TileType) -> None:
    """As `multiplied`, and an accumulator of the result's type."""
    acc = rules.need_tile("operand 0", c)
    rules.at_loc("operand 0", acc, "Acc")
    rules.same_tiles(to, acc)
    multiplied(a, b, to=to)


def biased(a: Type, b: Type, bias: Type, *, to: TileType) -> None:
    """As `multiplied`, and a row of the result's elements in Bias."""
    row = rules.need_tile("operand 2", bias)
    multiplied(a, b, to=to)
    rules.rank_two("operand 2", row)
    rules.at_loc("operand 2", row, "Bias")
    rules.same_dtype("operand 2", row, to)
    rules.same_extent("rows of the bias", row.shape[0], 1, operand(2))
    rules.same_extent("N of bias and result", row.shape[1], to.shape[1], operand(2))


def product(context: Context, a: Tile, b: Tile) -> Array:
    """The product of the valid regions. Raises Violation("InvalidValid") when they differ in K."""
    if a.valid[1] != b.valid[0]:
        raise Violation("InvalidValid", f"K is {a.valid[1]} in operand 0 and {b.valid[0]} in operand 1")
    left, right = (machine(context).settle(t, t.box, "matmul") for t in (a, b))
    shape = (a.valid[0], b.valid[1])
    if not a.type.dtype.is_float:
        with np.errstate(all="ignore"):
            exact: Array = left.astype(np.int32) @ right.astype(np.int32)
        return exact
    wide_left, wide_right = left.astype(np.float64), right.astype(np.float64)
    total = np.zeros(shape, np.float32)
    with np.errstate(all="ignore"):
        for k in range(a.valid[1]):  # a fused multiply-add per step: the product of two elements is exact in float64
            total = (total + wide_left[:, k : k + 1] * wide_right[k : k + 1]).astype(np.float32)
    return total


def matmul(a: Tile, b: Tile, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context) -> Any:
    """`a @ b` of Left and Right into Acc."""
    return _finish(context, to, event, valid, wait, a, b)


def matmul_acc(
    c: Tile, a: Tile, b: Tile, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context
) -> Any:
    """`c + a @ b`; the accumulator comes first."""
    return _finish(context, to, event, valid, wait, a, b, c)


def matmul_bias(
    a: Tile, b: Tile, bias: Tile, valid: Many, wait: Many, *, to: TileType, event: EventType | None = None, context: Context
) -> Any:
    """`a @ b` plus a row of bias for every row."""
    return _finish(context, to, event, valid, wait, a, b, bias)


def _finish(
    context: Context, to: TileType, event: EventType | None, valid: Any, wait: Any, a: Tile, b: Tile, more: Tile | None = None
) -> Any:
    """The product, `more` added to it: an accumulator, or one row for all."""
    m, n = a.valid[0], b.valid[1]

    def made(box: tuple[slice, ...]) -> kit.Made:
        values = np.zeros((box[0].stop, box[1].stop), np.int32 if to.dtype is SI32 else np.float32)
        region = (slice(0, min(m, box[0].stop)), slice(0, min(n, box[1].stop)))
        values[region] = product(context, a, b)[region]
        defined = np.zeros(values.shape, np.bool_)
        defined[region] = True
        if more is None:
            return values, defined
        rows = slice(0, 1) if more.values.shape[0] == 1 else region[0]
        term = machine(context).settle(more, (rows, region[1]), "matmul")
        with np.errstate(all="ignore"):
            values[region] = values[region] + term
        return values, defined

    return kit.compute(context, to, event, valid, wait, [a, b], made, default=(m, n))


def _summed(left: int) -> Any:
    """The cost of a product whose left operand has the number `left`."""
    return costs.products(lambda op: costs.shape_of(op, left)[1:])


kit.declare("matmul", matmul, multiplied, traits=Trait.NONE, cost=_summed(0))
kit.declare("matmul.acc", matmul_acc, accumulating, traits=Trait.NONE, cost=_summed(1))
kit.declare("matmul.bias", matmul_bias, biased, traits=Trait.NONE, cost=_summed(0))
