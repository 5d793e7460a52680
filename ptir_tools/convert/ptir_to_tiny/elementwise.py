"""PTIR to Tiny: what computes each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule, tensor_type
from ptir_tools.convert.ptir_to_tiny.emit import Data, TinyEmit
from ptir_tools.core.diagnostics import require
from ptir_tools.core.dtypes import F32, I1, SI32
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.dialects.tiny.immediates import immediate


def same(uop: str) -> Rule:
    """One node on the same operands."""
    return lambda emit, op, *operands: emit.last(uop, *mixed(emit, operands))


def mixed(emit: TinyEmit, operands: Sequence[Data]) -> list[Operand]:
    """`operands`, of which one at least gives the immediates their dtype; the condition of a WHERE gives none."""
    found = [emit.operand(x) for x in operands]
    first = 1 if len(found) == 3 else 0
    if all(isinstance(x, Literal) for x in found[first:]):
        found[first] = emit.node(operands[first])
    return found


def _constant(emit: TinyEmit, op: Op) -> Literal:
    return emit.named_constant(op.attr("value"), op)


def _cast(emit: TinyEmit, op: Op, x: Data) -> Value:
    return emit.last("CAST", emit.node(x), to=emit.type.dtype)


def _abs(emit: TinyEmit, op: Op, x: Data) -> Value:
    v = emit.node(x)
    return emit.last("MAX", v, emit("NEG", v))


def _reciprocal(emit: TinyEmit, op: Op, x: Data) -> Value:
    return emit.last("FDIV", immediate(1, emit.type.dtype), emit.node(x))


def _division(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    require(emit.type.dtype.is_float, NOT_TRANSLATABLE, "Tiny divides floats only")
    return emit.last("FDIV", *mixed(emit, (x, y)))


def _clamp(emit: TinyEmit, op: Op, x: Data, low: Data, high: Data) -> Value:
    return emit.last("MIN", emit("MAX", *mixed(emit, (x, low))), emit.operand(high))


def _stop_gradient(emit: TinyEmit, op: Op, x: Data) -> Data:
    """The operand, except for a result, which keeps its name as a RESHAPE to the same shape."""
    return emit.last("RESHAPE", x, result_shape=emit.shape) if emit.returned and isinstance(x, Value) else x


# Comparisons out of RELU, MAX and casts to bool: a float is above another where the RELU of their difference is not 0, which
# holds for infinities, both zeros and subnormals; of a NaN RELU makes 0. A difference of integers may wrap, but is 0 only for
# equal ones.


def _comparison(build: Callable[[TinyEmit, Value, Value], Value]) -> Rule:
    """A comparison of two values."""

    def rule(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
        return emit.settled(build(emit, emit.node(x), emit.node(y)))

    return rule


def _above(emit: TinyEmit, x: Value, y: Value) -> Value:
    """x > y."""
    if tensor_type(x).dtype.is_float:
        return emit.cast(emit("RELU", emit("SUB", x, y)), I1)
    return emit.cast(emit("SUB", emit("MAX", x, y), y), I1)


def _not(emit: TinyEmit, x: Value) -> Value:
    return emit.cast(emit("SUB", immediate(1, SI32), emit.cast(x, SI32)), I1)


def _numbers(emit: TinyEmit, x: Value, y: Value) -> Value:
    """Whether neither is a NaN."""
    dtype = tensor_type(x).dtype
    bounded = emit("MIN", emit("MAX", emit("MAX", x, y), immediate(-1, dtype)), immediate(1, dtype))
    return emit.cast(emit("RELU", emit("ADD", bounded, immediate(2, dtype))), I1)


def _at_least(emit: TinyEmit, x: Value, y: Value) -> Value:
    """x >= y."""
    within = _not(emit, _above(emit, y, x))
    return emit("WHERE", within, _numbers(emit, x, y), within) if tensor_type(x).dtype.is_float else within


def _differs(emit: TinyEmit, x: Value, y: Value) -> Value:
    """x != y, which a NaN does from all."""
    if tensor_type(x).dtype.is_float:
        return _not(emit, _equals(emit, x, y))
    return emit.cast(emit("SUB", x, y), I1)


def _equals(emit: TinyEmit, x: Value, y: Value) -> Value:
    """x == y."""
    if not tensor_type(x).dtype.is_float:
        return _not(emit, _differs(emit, x, y))
    below, above = _not(emit, _above(emit, x, y)), _not(emit, _above(emit, y, x))
    neither = emit("WHERE", below, above, below)
    return emit("WHERE", neither, _numbers(emit, x, y), neither)


def _in_f32(compute: Callable[[TinyEmit, Value], Value]) -> Rule:
    """A function of an fp32 value, for narrower floats between CASTs."""

    def rule(emit: TinyEmit, op: Op, x: Data) -> Value:
        y = compute(emit, emit.cast(emit.node(x), F32))
        return emit.named(emit.cast(y, emit.type.dtype))

    return rule


def _exp(emit: TinyEmit, x: Value) -> Value:
    """EXP2(x * log2 e)."""
    emit.note("exp becomes EXP2(x * log2 e) in fp32: the rounding of the product grows with x")
    return _power_of_e(emit, x, 1)


def _power_of_e(emit: TinyEmit, x: Value, factor: float) -> Value:
    return emit("EXP2", emit("MUL", x, immediate(factor * math.log2(math.e), F32)))


# tanh(x) = x - x**3/3 + 2x**5/15 - …: the coefficients of x**3, x**5, … after x, which reach fp32 below |x| = 1/4.
_TANH = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)
_SMALL = 0.25


def _tanh(emit: TinyEmit, x: Value) -> Value:
    """`1 - 2 / (EXP2(2x * log2 e) + 1)`, and for small x, where that would cancel, the first terms of the series."""
    emit.note("tanh becomes a formula in EXP2, in fp32, within 8 units of the last place")
    plus_one = emit("ADD", _power_of_e(emit, x, 2), immediate(1, F32))
    large = emit("SUB", immediate(1, F32), emit("FDIV", immediate(2, F32), plus_one))
    square = emit("MUL", x, x)
    series: Operand = immediate(_TANH[-1], F32)
    for c in reversed(_TANH[:-1]):
        series = emit("ADD", emit("MUL", square, series), immediate(c, F32))
    small = emit("ADD", x, emit("MUL", emit("MUL", x, square), series))
    beyond = emit("SUB", emit("MAX", x, emit("NEG", x)), immediate(_SMALL, F32))
    return emit("WHERE", emit("CAST", emit("RELU", beyond), to=I1), large, small)


FUNCTIONS: dict[str, Rule] = {
    "constant": _constant, "neg": same("NEG"), "rsqrt": same("RSQRT"), "reciprocal": _reciprocal, "abs": _abs,
    "exp": _in_f32(_exp), "tanh": _in_f32(_tanh), "add": same("ADD"), "sub": same("SUB"), "mul": same("MUL"),
    "div": _division, "maximum": same("MAX"), "minimum": same("MIN"), "clamp": _clamp, "select": same("WHERE"), "cast": _cast,
    "stop_gradient": _stop_gradient, "compare_gt": _comparison(_above), "compare_ge": _comparison(_at_least),
    "compare_lt": _comparison(lambda emit, x, y: _above(emit, y, x)),
    "compare_le": _comparison(lambda emit, x, y: _at_least(emit, y, x)),
    "compare_eq": _comparison(_equals), "compare_ne": _comparison(_differs),
}  # fmt: skip
