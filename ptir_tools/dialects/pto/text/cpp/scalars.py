"""Scalar ops as C++ expressions."""

from __future__ import annotations

from ptir_tools.core.ir import Op, Operand, operand_type
from ptir_tools.dialects.pto.text.cpp.kernel import Kernel
from ptir_tools.dialects.pto.text.cpp.spelling import value_type

# Expressions of the operands {0}, {1}, {2}; {t} is the type of the result, {u} that of operand 0 without a sign.
_FORMS = {
    "addi": "{0} + {1}", "subi": "{0} - {1}", "muli": "{0} * {1}", "divsi": "{0} / {1}", "remsi": "{0} % {1}",
    "divui": "({t})(({u}){0} / ({u}){1})", "remui": "({t})(({u}){0} % ({u}){1})",
    "floordivsi": "{0} / {1} - ({0} % {1} != 0 && ({0} < 0) != ({1} < 0))",
    "ceildivsi": "{0} / {1} + ({0} % {1} != 0 && ({0} < 0) == ({1} < 0))",
    "minsi": "{0} < {1} ? {0} : {1}", "maxsi": "{0} > {1} ? {0} : {1}",
    "minui": "({u}){0} < ({u}){1} ? {0} : {1}", "maxui": "({u}){0} > ({u}){1} ? {0} : {1}",
    "andi": "{0} & {1}", "ori": "{0} | {1}", "xori": "{0} ^ {1}",
    "shli": "{0} << {1}", "shrsi": "{0} >> {1}", "shrui": "({t})(({u}){0} >> {1})",
    "addf": "{0} + {1}", "subf": "{0} - {1}", "mulf": "{0} * {1}", "divf": "{0} / {1}", "select": "{0} ? {1} : {2}",
    "block_idx": "get_block_idx()", "subblock": "get_subblockid()",
    "maximumf": "{0} != {0} || {0} > {1} ? {0} : {1}", "minimumf": "{0} != {0} || {0} < {1} ? {0} : {1}",
} | dict.fromkeys(("index_cast", "extsi", "trunci", "extf", "truncf", "sitofp", "fptosi"), "({t}){0}")  # fmt: skip
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}


def expression(kernel: Kernel, op: Op) -> str:
    """The expression of a scalar op."""
    short, given = op.defn.short, [kernel.scalar(x) for x in op.operands]
    if short in ("cmpi", "cmpf"):
        return _comparison(str(op.attr("predicate")), f"({_unsigned(op.operands[0])})" if short == "cmpi" else "", *given)
    form = _FORMS.get(short)
    if form is None:
        kernel.refuse(f"{short} has no form in C++", op.loc)
        return "0"
    unsigned = _unsigned(op.operands[0]) if "{u}" in form else ""
    return form.format(*given, t=value_type(op.result.type).strip(), u=unsigned)


def _comparison(predicate: str, unsigned: str, a: str, b: str) -> str:
    cast = unsigned if predicate[0] == "u" else ""
    sign = _COMPARISONS[predicate if predicate in _COMPARISONS else predicate[1:]]
    test = f"{cast}{a} {sign} {cast}{b}"
    return f"{test} && {a} == {a} && {b} == {b}" if predicate == "one" else test


def _unsigned(x: Operand) -> str:
    t = value_type(operand_type(x)).strip()
    return t if t.startswith("u") else f"u{t}"
