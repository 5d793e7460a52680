"""Tiny to PTIR: formulas of functions that Tiny lacks are recognized as these functions.

The formula of a function is the output of `ptir_to_tiny`, so it is written once.
"""

from __future__ import annotations

from functools import cache

from ptir_tools.convert.emitter import Match, Pattern
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
from ptir_tools.rewrite.vocabulary import tensor_type


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


def division(op: Op, options: Options) -> Match | None:
    """A quotient of i32 by a node or by one number."""
    if tensor_type(op.result).dtype is not SI32:
        return None
    second = _made_by(_made_by(op.operands[0], "ADD"), "CAST", 1)
    quotient = _made_by(_made_by(second, "FDIV"), "CAST")
    product = _made_by(_made_by(quotient, "SUB"), "MUL", 1)
    if product is None:
        return None
    y = product.operands[1]
    params, last = formula("div", SI32, splat_of(y) if isinstance(y, Literal) else None)
    found = matched(last.result, op.result, params)
    if found is None:
        return None
    return Match((found[params[0]], y), lambda emit, op, x, y: emit.last("div", emit.full(x), emit.full(y)))


def _made_by(x: Op | Operand | None, uop: str, at: int = 0) -> Op | None:
    """The defining node of `x`, or of operand `at` of the node `x`, where it is of this UOp."""
    x = x.operands[at] if isinstance(x, Op) else x
    result = x.op if isinstance(x, Value) else None
    return result if result is not None and result.defn.short == uop else None


FORMULAS: dict[str, tuple[Pattern, ...]] = {
    "MUL": (_pattern("exp"),),
    "SUB": (division,),
    "WHERE": tuple(map(_pattern, ("log", "tanh", "erf"))),
}
