"""Tiny to PTIR: the formulas of functions that Tiny does not have become these functions again.

The formula of a function is what `ptir_to_tiny` makes of it, so that there is no second place where it is written.
"""

from __future__ import annotations

from functools import cache

from ptir_tools.convert.emitter import Match, Pattern, tensor_type
from ptir_tools.convert.ptir_to_tiny.convert import convert
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.types import tensor
from ptir_tools.dialects import load_dialect


@cache
def formula(function: str) -> tuple[Value, Op]:
    """The operand of the formula of a function, and its last node."""
    program, builder = single_function(load_dialect("ptir"))
    builder.results(builder.op(function, builder.param(tensor(F32, (2,)), "x")))
    graph = convert(program, Diagnostics(), Options())
    assert graph is not None
    (result,) = graph.main.results
    assert isinstance(result, Value) and result.op is not None
    return graph.main.params[0], result.op


def _is(a: Operand, b: Operand, found: dict[Value, Operand]) -> bool:
    """Whether `b` is what `a` of a formula is, where its values are those `found`; adds to these."""
    if isinstance(a, Literal) or isinstance(b, Literal):
        return isinstance(a, Literal) and isinstance(b, Literal) and a.same(b)
    assert isinstance(a, Value)
    if a in found:
        return found[a] is b
    mine, other = a.op, b.op if isinstance(b, Value) else None
    if mine is not None and (other is None or other.defn is not mine.defn or other.attrs != mine.attrs):
        return False
    found[a] = b
    if mine is None or other is None:
        return True
    return len(mine.operands) == len(other.operands) and all(
        _is(x, y, found) for x, y in zip(mine.operands, other.operands, strict=True)
    )


def _pattern(function: str) -> Pattern:
    def pattern(op: Op, options: Options) -> Match | None:
        x, last = formula(function)
        found: dict[Value, Operand] = {}
        if tensor_type(op.result).dtype is not F32 or not _is(last.result, op.result, found):
            return None
        return Match((found[x],), lambda emit, op, x: emit.last(function, x))

    return pattern


FORMULAS: dict[str, tuple[Pattern, ...]] = {
    "MUL": (_pattern("exp"),),
    "WHERE": tuple(map(_pattern, ("log", "tanh", "erf"))),
}
