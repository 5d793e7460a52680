"""PTIR to Tiny: elementwise ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.convert.emitter import NOT_TRANSLATABLE, Rule
from ptir_tools.convert.patterns import splat_of
from ptir_tools.convert.ptir_to_tiny import formulas
from ptir_tools.convert.ptir_to_tiny.emit import CARRIED, MODULAR, WRAPPED, Data, TinyEmit
from ptir_tools.convert.ptir_to_tiny.formulas import cast, divided, sign, wrapped
from ptir_tools.core.arrays import from_literal, to_literal
from ptir_tools.core.dtypes import F32, I1, SI32, lossless
from ptir_tools.core.extremes import MAXIMUM
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.violations import require
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.rewrite.expression import Term, maximum, minimum, select
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
    v = emit.term(emit.node(x))
    return emit.last("MAX", v.operand, (-v).operand)


def _reciprocal(emit: TinyEmit, op: Op, x: Data) -> Value:
    return emit.last("FDIV", immediate(1, emit.type.dtype), emit.node(x))


def _division(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    if emit.type.dtype.is_float:
        return emit.last("FDIV", *with_a_node(emit, (x, y)))
    first, *more = _divided(emit, op, x, y)[0]
    return emit.settled(sum(more, first))


def _divided(emit: TinyEmit, op: Op, x: Data, y: Data) -> tuple[list[Term], Term, Term]:
    """The parts of a quotient of integers, what the last of them leaves a remainder of, and the divisor. A divisor 0 is noted."""
    a, b = map(emit.term, with_a_node(emit, (x, y)))
    if isinstance(b.operand, Value):
        emit.note("integers are divided: a divisor 0 gives any number")
    ranges = [emit.ranges.of(v) for v in op.operands]
    parts, left = divided(a, b, all(r is not None and max(map(abs, r)) < 1 << 24 for r in ranges))
    return parts, left, emit.term(emit.operand(y))


def _left_over(emit: TinyEmit, op: Op, x: Data, y: Data) -> tuple[Term, Term]:
    """The remainder of integer division toward zero, and the divisor. Raises Violation for floats."""
    require(not emit.type.dtype.is_float, NOT_TRANSLATABLE, "Tiny has remainders of integers only")
    parts, left, b = _divided(emit, op, x, y)
    return left - parts[-1] * b, b


def _remainder(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    """Of the quotient toward zero."""
    return emit.settled(_left_over(emit, op, x, y)[0])


def _modulo(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
    """The remainder, and the divisor once more where that has the other sign."""
    left, b = _left_over(emit, op, x, y)
    if isinstance(b.operand, Value):
        return emit.settled(left + maximum(-(sign(left) * sign(b)), 0) * b)
    other = (minimum if splat_of(b.operand) > 0 else maximum)(left, 0)
    return emit.settled(select(cast(other, I1), left + b, left))


def in_range(rule: Rule) -> Rule:
    """A rule for i32 whose result is wrapped to the range of a narrower dtype that i32 represents. A result that only sums,
    differences and products read stays as it is, and so does one that is in range."""

    def bounded(emit: TinyEmit, op: Op, *operands: Data) -> Data:
        result: Data = rule(emit, op, *operands)
        dtype = tensor_type(op.result).dtype
        if dtype not in CARRIED or (op.result in emit.ranges.find() and not emit.unwrapped.intersection(operands)):
            return result
        uses = emit.ranges.uses.get(op.result, [])
        if uses and all(
            user is not None and user.defn.short in MODULAR and tensor_type(user.result).dtype is dtype for user, _ in uses
        ):
            emit.unwrapped.add(result)
            return result
        whole = emit.node(result)
        whole.name = emit.fresh.between(emit.name)
        return emit.named(wrapped(emit.term(whole), dtype))

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


def _comparison(formula: Callable[[Term, Term], Term]) -> Rule:
    """A comparison of two values, one of which may be a number."""

    def rule(emit: TinyEmit, op: Op, x: Data, y: Data) -> Value:
        a, b = map(emit.term, with_a_node(emit, (x, y)))
        if a.dtype is I1:
            a, b = cast(a, SI32), cast(b, SI32)
        return emit.settled(formula(a, b))

    return rule


def _in_f32(formula: Callable[[Term], Term], note: str) -> Rule:
    """A function of an fp32 value, for narrower floats between CASTs."""

    def rule(emit: TinyEmit, op: Op, x: Data) -> Value:
        v = cast(emit.term(emit.node(x)), F32)
        emit.note(note)
        return emit.named(cast(formula(v), emit.type.dtype))

    return rule


_EXP = "exp becomes a product of two EXP2 in fp32, within 3 units of the last place"
_LOG = "log becomes a series, in fp32, within 4 units of the last place"
_TANH = "tanh becomes a formula in EXP2, in fp32, within 4 units of the last place"
_ERF = "erf becomes a formula in EXP2, in fp32, within 4 units of the last place of 1"

FUNCTIONS: dict[str, Rule] = {
    "constant": _constant, "neg": same("NEG"), "rsqrt": same("RSQRT"), "reciprocal": _reciprocal, "abs": _abs,
    "exp": _in_f32(formulas.exp, _EXP), "log": _in_f32(formulas.log, _LOG), "tanh": _in_f32(formulas.tanh, _TANH),
    "erf": _in_f32(formulas.erf, _ERF),
    "add": same("ADD"), "sub": same("SUB"), "mul": same("MUL"), "rem": _remainder, "mod": _modulo,
    "div": _division, "maximum": same("MAX"), "minimum": same("MIN"), "clamp": _clamp, "select": _select, "cast": _cast,
    "stop_gradient": _stop_gradient, "compare_gt": _comparison(formulas.above), "compare_ge": _comparison(formulas.at_least),
    "compare_lt": _comparison(lambda x, y: formulas.above(y, x)), "compare_le": _comparison(lambda x, y: formulas.at_least(y, x)),
    "compare_eq": _comparison(formulas.equals), "compare_ne": _comparison(formulas.differs),
}  # fmt: skip
FUNCTIONS |= {name: in_range(FUNCTIONS[name]) for name in WRAPPED}
