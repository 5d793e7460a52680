"""Tiny to PTIR: formulas of functions that Tiny lacks are recognized as these functions.

The formula of a function is the output of `ptir_to_tiny`, so it is written once.
"""

from __future__ import annotations

from functools import cache

from ptir_tools.convert.emitter import Match, Pattern, Rule
from ptir_tools.convert.patterns import splat_of
from ptir_tools.convert.ptir_to_tiny.convert import convert
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32, SI32, DType
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect
from ptir_tools.dialects.tiny.immediates import immediate
from ptir_tools.rewrite.templates import matched
from ptir_tools.rewrite.vocabulary import made_by, tensor_type


@cache
def formula(function: str, dtype: DType = F32, divisor: int | None = None) -> tuple[list[Value], Op]:
    """The operands of a function's formula and its last node; `divisor` is its second operand, a value or a number."""
    program, builder = single_function(load_dialect("ptir"))
    t = tensor(dtype, (2,))
    operands = [builder.param(t, "x")]
    if dtype is SI32:
        number = None if divisor is None else immediate(divisor, dtype).data
        operands.append(builder.param(t, "y") if number is None else builder.op("constant", value=Literal(t, number, splat=True)))
    builder.results(builder.op(function, *operands))
    graph = convert(program, Diagnostics(), Options())
    assert graph is not None
    (result,) = graph.main.results
    assert isinstance(result, Value) and result.op is not None
    return graph.main.params, result.op


def _pattern(function: str) -> Pattern:
    def pattern(op: Op, options: Options) -> Match | None:
        (x,), last = formula(function)
        found = matched(last.result, op.result, (x,)) if tensor_type(op.result).dtype is F32 else None
        return None if found is None else Match((found[x],), lambda emit, op, x: emit.last(function, x))

    return pattern


def _division(*functions: str) -> Pattern:
    """Quotients and remainders of i32 by a node or by one number."""

    def pattern(op: Op, options: Options) -> Match | None:
        y = _divisor(op) if tensor_type(op.result).dtype is SI32 else None
        if y is None:
            return None
        for function in functions:
            params, last = formula(function, SI32, splat_of(y) if isinstance(y, Literal) else None)
            found = matched(last.result, op.result, params)
            if found is not None and (len(params) < 2 or found[params[1]] is y):
                return Match((found[params[0]], y), _full(function))
        return None

    return pattern


def _full(function: str) -> Rule:
    return lambda emit, op, x, y: emit.last(function, emit.full(x), emit.full(y))


def _divisor(op: Op) -> Operand | None:
    """b of the nearest `a - q * b` above `op`, of which formulas of quotients have one at most six nodes up."""
    level = [op]
    for _ in range(6):
        for node in level:
            product = made_by(node.operands[1], "MUL") if node.defn.short == "SUB" else None
            if product is not None:
                return product.operands[1]
        level = [x.op for node in level for x in node.operands if isinstance(x, Value) and x.op is not None]
    return None


FORMULAS: dict[str, tuple[Pattern, ...]] = {
    "MUL": (_pattern("exp"),),
    "ADD": (_division("div", "mod"),),
    "SUB": (_division("rem"),),
    "WHERE": (_division("mod"), *map(_pattern, ("log", "tanh", "erf"))),
}
