"""PTIR to Tiny: elementwise ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.patterns import splat_of
from ptir_tools.convert.ptir_to_tiny.emit import CARRIED, WRAPPED, Data, TinyEmit
from ptir_tools.convert.series import ERF, ERFC
from ptir_tools.core.arrays import from_literal, to_literal
from ptir_tools.core.dtypes import F32, I1, SI32, DType, lossless
from ptir_tools.core.extremes import MAXIMUM
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.violations import require
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.rewrite.vocabulary import tensor_type


def same(uop: str) -> Rule:
    """One node on the same operands."""
    return lambda emit, op, *operands: emit.last(uop, *with_a_node(emit, operands))


def with_a_node(emit: TinyEmit, operands: Sequence[Data]) -> list[Operand]:
    """`operands`, at least one of them a node, which gives the immediates their dtype."""
    mix = [emit.operand(x) for x in operands]
    if all(isinstance(x, Literal) for x in mix):
        mix[0] = emit.node(operands[0])
    return mix


def converted(emit: TinyEmit, x: Operand, dtype: DType) -> Operand:
    """A node cast to `dtype`, or a number as an immediate of it."""
    if isinstance(x, Value):
        return emit.cast(x, dtype)
    value = splat_of(x)
    return immediate(float(value) if dtype.is_float else int(value), dtype)


def one_of_two(emit: TinyEmit, condition: Operand, x: Data, y: Data) -> list[Operand]:
    """The operands of a WHERE. If `x` and `y` are both numbers, `x` is the result of another WHERE: where the condition holds it
    is `x`, and elsewhere the cast condition, which is not chosen."""
    a, b = emit.operand(x), emit.operand(y)
    if isinstance(a, Literal) and isinstance(b, Literal):
        if isinstance(condition, Value):
            mask = emit.cast(condition, tensor_type(a).dtype)  # 1 where the condition holds
            a = mask if splat_of(a) == 1 else emit("WHERE", condition, a, mask)
        else:
            a = emit.node(x)
    return [condition, a, b]


def _select(emit: TinyEmit, op: Op, condition: Data, x: Data, y: Data) -> Value:
    """WHERE; a mask of 1 and 0 is a CAST."""
    test = emit.operand(condition)
    if isinstance(test, Value) and all(isinstance(v, Literal) for v in (x, y)):
        first, second = (emit.operand(v) for v in (x, y))
        if splat_of(first) == 1 and isinstance(second, Literal) and not any(second.data or b"\1") and emit.type.dtype is not I1:
            return emit.settled(emit.cast(test, emit.type.dtype))
    return emit.last("WHERE", *one_of_two(emit, test, x, y))


def _constant(emit: TinyEmit, op: Op) -> Literal:
    return emit.named_constant(op.attr("value"), op)


def _cast(emit: TinyEmit, op: Op, x: Data) -> Value:
    """A cast by the same table; narrower integers are kept in range in i32."""
    dtype, source = op.attr("dtype"), tensor_type(op.operands[0]).dtype
    v = emit.node(x)
    if dtype not in CARRIED or lossless(source, dtype):
        if tensor_type(v).dtype is emit.type.dtype:
            return emit.last("RESHAPE", v, result_shape=emit.shape)
        return emit.last("CAST", v, to=emit.type.dtype)
    return emit.settled(emit.saturated(v, dtype))


def _abs(emit: TinyEmit, op: Op, x: Data) -> Value:
    v = emit.node(x)
    return emit.last("MAX", v, emit("NEG", v))


def _reciprocal(emit: TinyEmit, op: Op, x: Data) -> Value:
    return emit.last("FDIV", immediate(1, emit.type.dtype), emit.node(x))


def _division(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    if emit.type.dtype.is_float:
        return emit.last("FDIV", *with_a_node(emit, (x, y)))
    quotient, back, _ = divided(emit, op, x, y)
    return emit.settled(emit("SUB", quotient, back))


def divided(emit: TinyEmit, op: Op, x: Data, y: Data) -> tuple[Value, Value, Value]:
    """An integer quotient, its excess over the quotient toward zero, and the remainder. The fp32 quotient, corrected by that of
    its remainder, is off by at most 1, which the signs tell. A divisor 0, an error in PTIR, gives any number."""
    a, b = with_a_node(emit, (x, y))
    if not isinstance(b, Literal):
        emit.note("integers are divided: a divisor 0 gives any number")
    floats = converted(emit, b, F32)

    def step(a: Operand) -> tuple[Value, Value]:
        q = emit("CAST", emit("FDIV", converted(emit, a, F32), floats), to=SI32)
        return q, emit("SUB", a, emit("MUL", q, b))

    first, left = step(a)
    second, left = step(left)
    side, turn = _sign(emit, a), _sign(emit, b)
    off = emit("MAX", emit("NEG", emit("MUL", side, _sign(emit, left))), immediate(0, SI32))  # 1 where the signs differ
    return emit("ADD", first, second), emit("MUL", off, emit("MUL", side, turn)), left


def left_over(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    """The remainder of integer division toward zero. Raises Violation for floats."""
    require(not emit.type.dtype.is_float, NOT_TRANSLATABLE, "Tiny has remainders of integers only")
    _, back, left = divided(emit, op, x, y)
    return emit("ADD", left, emit("MUL", back, emit.operand(y)))


def _sign(emit: TinyEmit, x: Operand) -> Operand:
    """-1, 0 or 1."""
    if not isinstance(x, Value):
        value = splat_of(x)
        return immediate((value > 0) - (value < 0), SI32)
    return emit("MIN", emit("MAX", x, immediate(-1, SI32)), immediate(1, SI32))


def _remainder(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    """Of the quotient toward zero."""
    return emit.settled(left_over(emit, op, x, y))


def _modulo(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    """The remainder, and the divisor once more where that has the other sign."""
    left, b = left_over(emit, op, x, y), emit.operand(y)
    other = emit("MAX", emit("NEG", emit("MUL", _sign(emit, left), _sign(emit, b))), immediate(0, SI32))
    return emit.settled(emit("ADD", left, emit("MUL", other, b)))


def wrapped(emit: TinyEmit, x: Value, dtype: DType) -> Value:
    """An i32 wrapped to the range of a narrower dtype. The number of ranges, computed in fp32, is right to within 1, which a
    negative remainder shows."""
    span = 1 << dtype.bits
    offset = emit("SUB", x, immediate(dtype.min, SI32)) if dtype.min else x
    count = emit("CAST", emit("MUL", emit("CAST", offset, to=F32), immediate(1 / span, F32)), to=SI32)
    left = emit("SUB", offset, emit("MUL", count, immediate(span, SI32)))
    below = emit("MAX", emit("MIN", emit("NEG", left), immediate(1, SI32)), immediate(0, SI32))
    left = emit("ADD", left, emit("MUL", below, immediate(span, SI32)))
    return emit("ADD", left, immediate(dtype.min, SI32)) if dtype.min else left


def in_range(rule: Rule) -> Rule:
    """A rule for i32 whose result is wrapped to the range of a narrower dtype that i32 represents."""

    def bounded(emit: TinyEmit, op: Op, *operands: Data) -> Data:
        result: Data = rule(emit, op, *operands)
        dtype = tensor_type(op.result).dtype
        if dtype not in CARRIED:
            return result
        whole = emit.node(result)
        whole.name = emit.fresh.between(emit.name)
        return emit.named(wrapped(emit, whole, dtype))

    return bounded


def _clamp(emit: TinyEmit, op: Op, x: Data, low: Data, high: Data) -> Value:
    a, b = emit.operand(x), emit.operand(low)
    if isinstance(a, Literal) and isinstance(b, Literal):
        larger = to_literal(MAXIMUM(from_literal(a), from_literal(b)), a.type)
        return emit.last("MIN", *with_a_node(emit, (larger, high)))
    return emit.last("MIN", emit("MAX", a, b), emit.operand(high))


def _stop_gradient(emit: TinyEmit, op: Op, x: Data) -> Data:
    """The operand, except for a result, which keeps its name as a RESHAPE to the same shape."""
    return emit.last("RESHAPE", x, result_shape=emit.shape) if emit.returned and isinstance(x, Value) else x


# Comparisons by RELU, MAX and casts to bool: a float is above another where the RELU of their difference is not 0, which
# holds for infinities, both zeros and subnormals. Of a NaN RELU makes 0. A difference of integers may wrap, but is 0 only for
# equal ones. The difference from a finite number is 0 only for this number, and NaN only for a NaN, which as a bool is true.


def _comparison(build: Callable[[TinyEmit, Operand, Operand], Value]) -> Rule:
    """A comparison of two values, one of which may be a number."""

    def rule(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
        a, b = with_a_node(emit, (x, y))
        if tensor_type(a).dtype is I1:
            a, b = converted(emit, a, SI32), converted(emit, b, SI32)
        return emit.settled(build(emit, a, b))

    return rule


def above(emit: TinyEmit, x: Operand, y: Operand) -> Value:
    """x > y."""
    if tensor_type(x).dtype.is_float:
        return emit.cast(emit("RELU", emit("SUB", x, y)), I1)
    return emit.cast(emit("SUB", emit("MAX", x, y), y), I1)


def negated(emit: TinyEmit, x: Value) -> Value:
    """Not x."""
    return emit.cast(emit("SUB", immediate(1, SI32), emit.cast(x, SI32)), I1)


def numbers(emit: TinyEmit, x: Operand, y: Operand) -> Value:
    """Whether neither is a NaN."""
    dtype = tensor_type(x).dtype
    both = x if x is y else emit("MAX", x, y)
    bounded = emit("MIN", emit("MAX", both, immediate(-1, dtype)), immediate(1, dtype))
    return emit.cast(emit("RELU", emit("ADD", bounded, immediate(2, dtype))), I1)


def _finite(x: Operand) -> bool:
    """Whether it is one finite number."""
    return isinstance(x, Literal) and math.isfinite(splat_of(x))


def _at_least(emit: TinyEmit, x: Operand, y: Operand) -> Value:
    """x >= y."""
    if not tensor_type(x).dtype.is_float:
        return negated(emit, above(emit, y, x))
    if _finite(y):
        return negated(emit, emit.cast(emit("SUB", y, emit("MIN", x, y)), I1))
    if _finite(x):
        return negated(emit, emit.cast(emit("SUB", emit("MAX", x, y), x), I1))
    within = negated(emit, above(emit, y, x))
    return emit("WHERE", within, numbers(emit, x, y), within)


def _differs(emit: TinyEmit, x: Operand, y: Operand) -> Value:
    """x != y, true for a NaN."""
    if tensor_type(x).dtype.is_float and not (_finite(x) or _finite(y)):
        return negated(emit, _equals(emit, x, y))
    return emit.cast(emit("SUB", x, y), I1)


def _equals(emit: TinyEmit, x: Operand, y: Operand) -> Value:
    """x == y."""
    if not tensor_type(x).dtype.is_float or _finite(x) or _finite(y):
        return negated(emit, _differs(emit, x, y))
    first, second = negated(emit, above(emit, x, y)), negated(emit, above(emit, y, x))
    neither = emit("WHERE", first, second, first)
    return emit("WHERE", neither, numbers(emit, x, y), neither)


def _in_f32(compute: Callable[[TinyEmit, Value], Value]) -> Rule:
    """A function of an fp32 value, for narrower floats between CASTs."""

    def rule(emit: TinyEmit, op: Op, x: Data) -> Value:
        y = compute(emit, emit.cast(emit.node(x), F32))
        return emit.named(emit.cast(y, emit.type.dtype))

    return rule


def _number(value: float) -> Literal:
    return immediate(value, F32)


def _series(emit: TinyEmit, x: Value, coefficients: Sequence[float]) -> Operand:
    """The polynomial of `x` with these coefficients, the constant first."""
    total: Operand = _number(coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total = emit("ADD", emit("MUL", x, total), _number(c))
    return total


# ln 2 in two parts, of which the first times a whole number of up to 9 digits is exact in fp32.
_LN2 = (0.693145751953125, 1.42860676533018e-06)


def _exp(emit: TinyEmit, x: Value) -> Value:
    """EXP2(n) * EXP2((x - n * ln 2) * log2 e) with a whole number n: an argument below 1 is rounded by little."""
    emit.note("exp becomes a product of two EXP2 in fp32, within 3 units of the last place")
    return exponential(emit, x)


def exponential(emit: TinyEmit, x: Value) -> Value:
    """See `_exp`."""
    log2e = _number(math.log2(math.e))
    whole = emit("CAST", emit("CAST", emit("MUL", x, log2e), to=SI32), to=F32)
    rest = emit("SUB", emit("SUB", x, emit("MUL", whole, _number(_LN2[0]))), emit("MUL", whole, _number(_LN2[1])))
    return emit("MUL", emit("EXP2", emit("MUL", rest, log2e)), emit("EXP2", whole))


def _log(emit: TinyEmit, x: Value) -> Value:
    """x = m * 2**e with m in [2**-0.5, 2**0.5]: the powers of two are taken off one by one, and log m is the series of
    2 atanh((m - 1) / (m + 1)). 0 gives -inf, infinity itself, and what is negative NaN."""
    emit.note("log becomes a series, in fp32, within 4 units of the last place")
    m, exponents = x, list[Value]()
    for power in (64, 64, 32, 16, 8, 4, 2, 1):
        for sign in (1, -1):
            bound = _number(2.0 ** (sign * (power - 0.5)))
            test = emit("CAST", emit("RELU", emit("SUB", *((m, bound) if sign > 0 else (bound, m)))), to=I1)
            m = emit("WHERE", test, emit("MUL", m, _number(2.0 ** (-sign * power))), m)
            exponents.append(emit("MUL", emit("CAST", test, to=F32), _number(sign * power)))
    e = exponents[0]
    for more in exponents[1:]:
        e = emit("ADD", e, more)
    s = emit("FDIV", emit("SUB", m, _number(1)), emit("ADD", m, _number(1)))
    square = emit("MUL", s, s)
    tail = emit("MUL", emit("MUL", s, square), _series(emit, square, [2 / 3, 2 / 5, 2 / 7, 2 / 9]))
    small = emit("ADD", emit("ADD", tail, emit("MUL", e, _number(_LN2[1]))), emit("ADD", s, s))
    result = emit("ADD", small, emit("MUL", e, _number(_LN2[0])))
    finite = emit("CAST", emit("RELU", emit("SUB", _number(math.inf), x)), to=I1)
    below = emit("WHERE", emit("CAST", x, to=I1), emit("SUB", emit("RSQRT", emit("MIN", x, _number(-1))), x), _number(-math.inf))
    positive = emit("CAST", emit("RELU", x), to=I1)
    return emit("WHERE", positive, emit("WHERE", finite, result, x), below)


# tanh(x) = x - x**3/3 + 2x**5/15 - …: the coefficients after x, which reach fp32 below |x| = 0.55.
_TANH = (
    -1 / 3, 2 / 15, -17 / 315, 62 / 2835, -1382 / 155925, 21844 / 6081075, -929569 / 638512875, 6404582 / 10854718875,
    -443861162 / 1856156927625,
)  # fmt: skip
_SMALL = 0.55


def _tanh(emit: TinyEmit, x: Value) -> Value:
    """`1 - 2 / (exp(2x) + 1)`, and for small x, where that would cancel, the first terms of the series."""
    emit.note("tanh becomes a formula in EXP2, in fp32, within 4 units of the last place")
    twice = exponential(emit, emit("ADD", x, x))
    large = emit("SUB", _number(1), emit("FDIV", _number(2), emit("ADD", twice, _number(1))))
    square = emit("MUL", x, x)
    small = emit("ADD", x, emit("MUL", emit("MUL", x, square), _series(emit, square, _TANH)))
    return _small_or(emit, x, _SMALL, small, large)


def _small_or(emit: TinyEmit, x: Value, limit: float, small: Value, large: Value) -> Value:
    """`large` where |x| > limit, else `small`."""
    beyond = emit("SUB", emit("MAX", x, emit("NEG", x)), _number(limit))
    return emit("WHERE", emit("CAST", emit("RELU", beyond), to=I1), large, small)


def _erf(emit: TinyEmit, x: Value) -> Value:
    """A series for small x, else a formula in EXP2."""
    emit.note("erf becomes a formula in EXP2, in fp32, within 4 units of the last place of 1")
    size, square = emit("MAX", x, emit("NEG", x)), emit("MUL", x, x)
    t = emit("FDIV", _number(1), emit("ADD", emit("MUL", size, _number(0.5)), _number(1)))
    power = emit("SUB", _series(emit, t, ERFC), square)
    upper = emit("SUB", _number(1), emit("MUL", t, exponential(emit, power)))
    large = emit("WHERE", emit("CAST", emit("RELU", x), to=I1), upper, emit("NEG", upper))
    first = emit("MUL", x, _number(ERF[0]))
    small = emit("ADD", first, emit("MUL", emit("MUL", x, square), _series(emit, square, ERF[1:])))
    return _small_or(emit, x, 1.0, small, large)


FUNCTIONS: dict[str, Rule] = {
    "constant": _constant, "neg": same("NEG"), "rsqrt": same("RSQRT"), "reciprocal": _reciprocal, "abs": _abs,
    "exp": _in_f32(_exp), "log": _in_f32(_log), "tanh": _in_f32(_tanh), "erf": _in_f32(_erf),
    "add": same("ADD"), "sub": same("SUB"), "mul": same("MUL"), "rem": _remainder, "mod": _modulo,
    "div": _division, "maximum": same("MAX"), "minimum": same("MIN"), "clamp": _clamp, "select": _select, "cast": _cast,
    "stop_gradient": _stop_gradient, "compare_gt": _comparison(above), "compare_ge": _comparison(_at_least),
    "compare_lt": _comparison(lambda emit, x, y: above(emit, y, x)),
    "compare_le": _comparison(lambda emit, x, y: _at_least(emit, y, x)),
    "compare_eq": _comparison(_equals), "compare_ne": _comparison(_differs),
}  # fmt: skip
FUNCTIONS |= {name: in_range(FUNCTIONS[name]) for name in WRAPPED}
