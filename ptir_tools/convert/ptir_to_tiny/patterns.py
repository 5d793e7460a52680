"""Patterns of several PTIR ops that are one Tiny node, such as `tiny_to_ptir` makes from RELU, EXP2 and REDUCE with `init`."""

from __future__ import annotations

from ptir_tools.convert.emitter import Match, Pattern
from ptir_tools.convert.patterns import constant_of, exp2_operand, relu_operand, splat_of, type_of
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32, DType
from ptir_tools.core.ir import Op
from ptir_tools.dialects.tiny.ops.rules import SPELLED
from ptir_tools.rewrite.vocabulary import made_by


def relu(op: Op, options: Options) -> Match | None:
    """select(x > 0, x, 0) is RELU, for a NaN too."""
    x = relu_operand(op)
    if x is None or not type_of(x).dtype.is_float:
        return None
    return Match((x,), lambda emit, op, x: emit.last("RELU", emit.node(x)))


def exp2(op: Op, options: Options) -> Match | None:
    """exp(x * ln 2), computed in a wider float and rounded once, is EXP2."""
    x = exp2_operand(op)
    if x is None or type_of(x).dtype not in SPELLED:
        return None
    return Match((x,), lambda emit, op, x: emit.last("EXP2", emit.node(x)))


_COMBINED = {"add": ("reduce_sum", "SUM"), "maximum": ("reduce_max", "MAX"), "minimum": ("reduce_min", "MIN")}


def initial(op: Op, options: Options) -> Match | None:
    """A reduction combined with one number, in its own dtype, is a REDUCE with `init`, except a sum of narrow floats."""
    short, kind = _COMBINED[op.defn.short]
    reduction, start = made_by(op.operands[0], short), splat_of(op.operands[1])
    dtype = type_of(op.result).dtype
    if reduction is None or start is None or (short == "reduce_sum" and dtype.is_float and dtype is not F32):
        return None
    return _reduce(reduction, kind, dtype, dtype, start)


def initial_sum(op: Op, options: Options) -> Match | None:
    """The sum of narrow floats with `init`, which is computed in f32."""
    total = made_by(op.operands[0], "add")
    reduction = made_by(total.operands[0], "reduce_sum") if total else None
    dtype = type_of(op.result).dtype
    if total is None or reduction is None or not dtype.is_float or constant_of(total.operands[1]) is None:
        return None
    start = splat_of(total.operands[1])
    if start is None or type_of(total.result).dtype is not F32:
        return None
    return _reduce(reduction, "SUM", dtype, F32, start)


def _reduce(op: Op, kind: str, dtype: DType, work: DType, start: object) -> Match | None:
    """REDUCE of the reduction `op`, which accumulates in `work`, begun with `start` and rounded to `dtype`."""
    x, axes = op.operands[0], op.attr("axes")
    source = type_of(x).dtype
    narrow = source.is_float and dtype is F32 and bool(axes)
    accumulated = {op.attr(n) for n in ("accum_dtype", "out_dtype") if n in op.defn.attr_index} - {None}
    if dtype not in SPELLED or not (source is dtype or narrow) or (accumulated or {source}) != {work}:
        return None
    rank = type_of(x).rank
    attrs = {"op": kind, "axes": tuple(a % rank for a in axes), "dtype": dtype, "init": start}
    return Match((x,), lambda emit, op, x: emit.settled(emit("REDUCE", emit.node(x), **attrs)))


PATTERNS: dict[str, tuple[Pattern, ...]] = {
    "select": (relu,),
    "cast": (exp2, initial_sum),
    **dict.fromkeys(_COMBINED, (initial,)),
}
