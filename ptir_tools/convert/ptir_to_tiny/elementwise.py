"""PTIR to Tiny: what computes each element by itself."""

from __future__ import annotations

import math
from collections.abc import Callable

from ptir_tools.convert.ptir_to_tiny.emit import NOT_TRANSLATABLE, Data, Emit, Rule, constant, read, relu_operand
from ptir_tools.core.diagnostics import require
from ptir_tools.core.dtypes import F32, I1
from ptir_tools.core.ir import Literal, Operand, Value
from ptir_tools.dialects.tiny.immediates import immediate


def same(uop: str) -> Callable[[Emit], Value]:
    """One node on the same operands; of constants alone, the first becomes an INPUT."""

    def rule(emit: Emit) -> Value:
        return emit.last(uop, *typed(emit, [emit.operand(i) for i in range(len(emit.op.operands))]))

    return rule


def typed(emit: Emit, operands: list[Operand]) -> list[Operand]:
    """`operands`, of which one at least gives the immediates their dtype; the condition of a WHERE gives none."""
    first = 1 if len(operands) == 3 else 0
    if all(isinstance(x, Literal) for x in operands[first:]):
        operands[first] = emit.whole(operands[first], emit.type.shape)
    return operands


def _constant(emit: Emit) -> Data:
    return constant(emit.to, emit.op.attr("value"), emit.own_name)


def _cast(emit: Emit) -> Value:
    return emit.last("CAST", emit.node(0), to=emit.type.dtype)


def _abs(emit: Emit) -> Value:
    x = emit.node(0)
    return emit.last("MAX", x, emit("NEG", x))


def _reciprocal(emit: Emit) -> Value:
    return emit.last("FDIV", immediate(1, emit.type.dtype), emit.node(0))


def _division(emit: Emit) -> Value:
    require(emit.type.dtype.is_float, NOT_TRANSLATABLE, "Tiny divides floats only")
    return same("FDIV")(emit)


def _clamp(emit: Emit) -> Value:
    low = typed(emit, [emit.operand(0), emit.operand(1)])
    return emit.last("MIN", emit("MAX", *low), emit.operand(2))


def _select(emit: Emit) -> Value:
    if (x := relu_operand(emit.op)) is not None:
        return emit.last("RELU", emit.whole(_operand(emit, x), emit.type.shape))
    return same("WHERE")(emit)


def _operand(emit: Emit, x: Value) -> Operand:
    found = read(emit.to, x, emit.values)
    assert not isinstance(found, tuple)
    return found


def _stop_gradient(emit: Emit) -> Data:
    """The operand, but for a result, which keeps its name as a RESHAPE to the same shape."""
    x = emit.operand(0)
    return emit.last("RESHAPE", x, result_shape=emit.type.shape) if emit.returned and isinstance(x, Value) else x


def _in_f32(compute: Callable[[Emit, Value], Value]) -> Rule:
    """A function of an fp32 value, for narrower floats between CASTs."""

    def rule(emit: Emit) -> Value:
        y = compute(emit, emit.cast(emit.node(0), F32))
        return emit.named(emit.cast(y, emit.type.dtype))

    return rule


def _exp(emit: Emit, x: Value) -> Value:
    """EXP2(x * log2 e)."""
    emit.note("exp becomes EXP2(x * log2 e) in fp32: the rounding of the product grows with x")
    return _power_of_e(emit, x, 1)


def _power_of_e(emit: Emit, x: Value, factor: float) -> Value:
    return emit("EXP2", emit("MUL", x, immediate(factor * math.log2(math.e), F32)))


# tanh(x) = x - x**3/3 + 2x**5/15 - …: the coefficients of x**3, x**5, … after x, which reach fp32 below |x| = 1/4.
_TANH = (-1 / 3, 2 / 15, -17 / 315, 62 / 2835)
_SMALL = 0.25


def _tanh(emit: Emit, x: Value) -> Value:
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
    "div": _division, "maximum": same("MAX"), "minimum": same("MIN"), "clamp": _clamp, "select": _select, "cast": _cast,
    "stop_gradient": _stop_gradient,
}  # fmt: skip
