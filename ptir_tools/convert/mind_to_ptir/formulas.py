"""MIND to PTIR: formulas of functions that Core v1 lacks are recognized as these functions.

The formula of a function is the output of `ptir_to_mind`, so it is written once. It agrees with the function for infinities and
NaNs, and within rounding for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from ptir_tools.convert.emitter import Match, Pattern, Rule
from ptir_tools.convert.ptir_to_mind.convert import convert
from ptir_tools.convert.ptir_to_mind.formulas import is_number
from ptir_tools.convert.to_ptir import PtirEmit, same
from ptir_tools.core.arrays import from_literal, numpy_dtype, to_literal
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32, F64, I1, DType
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.types import tensor
from ptir_tools.core.walks import holds
from ptir_tools.dialects import load_dialect
from ptir_tools.rewrite.templates import matched
from ptir_tools.rewrite.vocabulary import tensor_type

# Kinds of operands: any value, a constant without NaN, a value that is not negative by its definition, a mask of 0 and 1.
ANY, NUMBER, UNSIGNED, MASK = "any", "number", "unsigned", "mask"
_PLAIN = frozenset({"Sum", "Mean", "Add", "Mul", "Reshape", "ExpandDims", "Squeeze", "Transpose", "Slice", "Index", "Gather"})
_CLEAR = frozenset({"maximum", "minimum", "div", "reciprocal", "rsqrt"})
Form = tuple[str, tuple[str, ...]]  # a function, and the kinds of its operands
_COMPARISONS = tuple(f"compare_{kind}" for kind in ("gt", "lt", "ge", "le", "eq", "ne"))


@dataclass(slots=True, frozen=True)
class Formula:
    """A function and its formula: the kinds of its operands, the operands, and the last op."""

    function: str
    kinds: tuple[str, ...]
    operands: tuple[Value, ...]
    last: Op


@cache
def formula(function: str, dtype: DType, kinds: tuple[str, ...]) -> Formula:
    """The formula that `ptir_to_mind` makes of a function with operands of these kinds."""
    program, builder = single_function(load_dialect("ptir"))
    shape = tensor(dtype, (2,))
    given: list[Value] = []
    for i, kind in enumerate(kinds):
        name = f"operand{i}"
        if kind == NUMBER:
            value = to_literal(np.full(2, 0.6180339 + i, numpy_dtype(dtype)), shape)
            given.append(builder.op("constant", value=value, name=name))
        elif kind == ANY:
            given.append(builder.param(shape, name))
        else:
            inner = [builder.param(shape, f"inner{i}_{k}") for k in range(1 if kind == UNSIGNED else 2)]
            given.append(builder.op("exp" if kind == UNSIGNED else "compare_gt", *inner, name=name))
    result = builder.op(function, *given, name="result")
    if function in _COMPARISONS:  # a mask by itself has no form in MIND
        result = builder.op("cast", result, dtype=dtype, name="kept")
    builder.results(result)
    output = convert(program, Diagnostics(), Options(lossy=True))
    assert output is not None
    values = {v.name: v for op in output.main.body for v in op.results} | {p.name: p for p in output.main.params}
    op = values["result"].op
    assert op is not None
    return Formula(function, kinds, tuple(values[f"operand{i}"] for i in range(len(kinds))), op)


def _matched(output: Formula, op: Op) -> tuple[Operand, ...] | None:
    """The operands of a formula whose last instruction `op` is."""
    result = matched(output.last.results[0], op.results[0], output.operands)
    if result is None or any(x not in result for x in output.operands):
        return None
    operands = tuple(result[x] for x in output.operands)
    fits = zip(operands, output.kinds, strict=True)
    return operands if all(_is_kind(x, kind) for x, kind in fits) else None


def _is_kind(x: Operand, kind: str) -> bool:
    if kind == ANY:
        return True
    if not isinstance(x, Value):
        return False
    return is_number(x) if kind == NUMBER else unsigned(x) if kind == UNSIGNED else is_mask(x)


def unsigned(x: Operand) -> bool:
    """Whether `x` is never below 0, and never -0.0, by what defines it: exponentials, squares, constants and what these give."""
    return holds(x, _is_unsigned)


def _is_unsigned(x: Operand) -> bool | Sequence[Operand]:
    if not isinstance(x, Value) or x.op is None:
        return False
    short, operands = x.op.defn.short, x.op.operands
    if x.op.defn.is_constant:
        literal = x.op.attr("value")
        return literal.data is not None and not np.signbit(from_literal(literal)).any()
    if short in ("Exp", "Relu") or (short == "Mul" and operands[0] is operands[1]):
        return True
    result = _matched_any(x.op)
    if result is not None:  # a function of these
        function, parts = result
        return function in _CLEAR and parts
    return short in _PLAIN and operands[: 1 if short == "Gather" else None]


def is_mask(x: Value) -> bool:
    """Whether `x` is 0 or 1 by what defines it: a comparison, or a constant."""
    if x.op is None:
        return False
    if x.op.defn.is_constant:
        literal = x.op.attr("value")
        return literal.data is not None and bool(np.isin(from_literal(literal), (0, 1)).all())
    return compared(x.op) is not None


def compared(op: Op) -> Match | None:
    """The comparison that `op` is the mask of."""
    return _found(op, _MASKS.get(op.defn.short, ()))


def _comparison(name: str) -> Rule:
    def rule(emit: PtirEmit, op: Op, x: Value, y: Value) -> Value:
        return emit.last("cast", emit(name, emit.full(x), emit.full(y)), dtype=emit.type.dtype)

    return rule


def _select(emit: PtirEmit, op: Op, mask: Value, x: Value, y: Value) -> Value:
    """By the i1 that the mask was made of."""
    assert mask.op is not None
    if mask.op.defn.short == "constant":
        truth = from_literal(mask.op.attr("value")) != 0
        pred: Operand = emit("constant", value=to_literal(truth, tensor(I1, truth.shape)))
    else:
        (pred,) = mask.op.operands
    return emit.last("select", emit.full(pred), emit.full(x), emit.full(y))


def _function_of(op: Op, forms: Sequence[Form]) -> tuple[str, tuple[Operand, ...]] | None:
    """The function that `op` is the last instruction of, and its operands."""
    dtype = tensor_type(op.results[0]).dtype
    if dtype not in (F32, F64):
        return None
    for function, kinds in forms:
        if function == "erf" and dtype is F64:
            continue
        operands = _matched(formula(function, dtype, kinds), op)
        if operands is not None:
            return function, operands
    return None


def _matched_any(op: Op) -> tuple[str, tuple[Operand, ...]] | None:
    return _function_of(op, _FORMS_BY_LAST.get(op.defn.short, ()))


def _found(op: Op, forms: Sequence[Form]) -> Match | None:
    result = _function_of(op, forms)
    if result is None:
        return None
    function, operands = result
    rule = _comparison(function) if function in _COMPARISONS else _select if function == "select" else same(function)
    return Match(operands, rule)


def _pairs(*functions: str) -> Iterator[Form]:
    for function in functions:
        yield from ((function, kinds) for kinds in ((ANY, ANY), (ANY, NUMBER), (NUMBER, ANY)))


def _pattern(op: Op, options: Options) -> Match | None:
    return _found(op, _FORMS_BY_LAST[op.defn.short]) or compared(op)


# By the opcode of the last instruction, which a test holds to the formulas.
_MASKS: dict[str, list[Form]] = {
    "Sub": list(_pairs("compare_gt", "compare_lt", "compare_ne")),
    "Mul": list(_pairs("compare_ge", "compare_le", "compare_eq")),
}
_FORMS_BY_LAST: dict[str, list[Form]] = {
    "Add": [*_pairs("maximum", "minimum"), *(("select", (MASK, x, y)) for x in (ANY, NUMBER) for y in (ANY, NUMBER)),
            ("abs", (ANY,)), ("rsqrt", (ANY,)), ("erf", (ANY,))],
    "Mul": [("div", (ANY, ANY)), ("div", (ANY, UNSIGNED)), ("reciprocal", (ANY,)), ("reciprocal", (UNSIGNED,))],
    "Sub": [("tanh", (ANY,))],
}  # fmt: skip

FORMULAS: dict[str, tuple[Pattern, ...]] = dict.fromkeys(_FORMS_BY_LAST, (_pattern,))
