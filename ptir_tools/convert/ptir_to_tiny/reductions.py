"""PTIR to Tiny: reductions, and contractions written naively: expand, multiply, sum.

Narrow floats are multiplied in fp32, where their products are exact, as PTIR's are; Tiny's `MUL` of fp16 would round.
"""

from __future__ import annotations

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.options import LOSSY
from ptir_tools.convert.ptir_to_tiny.emit import CARRIED, Data, TinyEmit
from ptir_tools.convert.ranges import WIDE
from ptir_tools.core.dtypes import F32, SI32, DType, lossless
from ptir_tools.core.ir import Op, Value
from ptir_tools.core.types import Shape
from ptir_tools.core.violations import Violation, require
from ptir_tools.dialects.ptir.ops.kinds import DIMENSION_NUMBERS
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.dialects.tiny.ops.reduce import identity
from ptir_tools.dialects.tiny.ops.rules import SPELLED
from ptir_tools.rewrite.vocabulary import tensor_type


def accumulator(emit: TinyEmit, op: Op) -> DType:
    """The dtype in which the op accumulates, one of Tiny's. Raises Violation."""
    accum: DType = op.attr("accum_dtype") or default_accum(tensor_type(op.operands[0]).dtype)
    extreme = op.defn.short in ("reduce_max", "reduce_min") or (op.defn.short == "reduce_window" and op.attr("reduce") != "sum")
    if {accum, op.attr("out_dtype") if "out_dtype" in op.defn.attr_index else None} & CARRIED and not extreme:
        raise Violation(NOT_TRANSLATABLE, f"a sum in {accum} would not wrap in i32", help="accumulate in si32")
    if accum in WIDE:
        known = extreme or emit.ranges.sum_fits(op) or emit.options[LOSSY]
        require(known, NOT_TRANSLATABLE, f"a sum in {accum} may be beyond i32", help="accumulate in si32")
    accum = SI32 if accum in CARRIED | WIDE else accum
    require(accum in SPELLED, NOT_TRANSLATABLE, f"Tiny does not accumulate in {accum}")
    return accum


def _reduce(kind: str) -> Rule:
    """REDUCE in the accumulator's dtype, CAST to the result's, RESHAPE to keep the axes."""

    def rule(emit: TinyEmit, op: Op, x: Data) -> Value:
        v = emit.node(x)
        source = tensor_type(v)
        axes = tuple(a % source.rank for a in op.attr("axes"))
        accum = accumulator(emit, op)
        own = tensor_type(op.operands[0]).dtype
        # over no elements, the identity of its own range
        start = {"init": identity(kind, own)} if own in CARRIED and kind != "SUM" else {}
        result, dtype = emit("REDUCE", v, op=kind, axes=axes, dtype=accum, **start), tensor_type(op.result).dtype
        return emit.settled(emit.saturated(result, dtype) if dtype in CARRIED and not lossless(own, dtype) else result)

    return rule


def _dot_general(emit: TinyEmit, op: Op, lhs: Data, rhs: Data) -> Value:
    """Both sides as [batch, free of lhs, free of rhs, contracted], multiplied and summed."""
    batch_l, batch_r, contract_l, contract_r = (op.attr(n) for n in DIMENSION_NUMBERS)
    left, b, m, k = _side(emit, emit.node(lhs), batch_l, contract_l)
    right, _, n, _ = _side(emit, emit.node(rhs), batch_r, contract_r)
    accum = accumulator(emit, op)
    work = F32 if accum.is_float else accum
    shape = (*emit.shape, *k)
    last = range(len(shape) - len(k), len(shape))
    axes_l = (*range(len(b) + len(m)), *last)
    axes_r = (*range(len(b)), *range(len(b) + len(m), len(b) + len(m) + len(n)), *last)
    x = emit("EXPAND", emit.cast(left, work), result_shape=shape, broadcast_dimensions=axes_l)
    y = emit("EXPAND", emit.cast(right, work), result_shape=shape, broadcast_dimensions=axes_r)
    total = emit("REDUCE", emit("MUL", x, y), op="SUM", axes=tuple(last), dtype=work)
    return emit.settled(emit.cast(total, accum))


def _side(emit: TinyEmit, x: Value, batch: tuple[int, ...], contract: tuple[int, ...]) -> tuple[Value, Shape, Shape, Shape]:
    """An operand with its axes in the order batch, free, contracted, and the extents of each."""
    t = tensor_type(x)
    first, end = tuple(a % t.rank for a in batch), tuple(a % t.rank for a in contract)
    free = tuple(a for a in range(t.rank) if a not in (*first, *end))
    perm = (*first, *free, *end)
    moved = x if perm == tuple(range(t.rank)) else emit("PERMUTE", x, perm=perm)
    batches, frees, ends = (tuple(t.shape[a] for a in axes) for axes in (first, free, end))
    return moved, batches, frees, ends


REDUCTIONS: dict[str, Rule] = {
    "reduce_sum": _reduce("SUM"), "reduce_max": _reduce("MAX"), "reduce_min": _reduce("MIN"), "dot_general": _dot_general,
}  # fmt: skip
