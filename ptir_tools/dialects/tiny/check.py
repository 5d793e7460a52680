"""What only numbers can tell about a graph whose "dims" or bindings give them."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program, clone
from ptir_tools.dialects.tiny.symbols import infer, recheck


def check(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Put "dims" and what follows from them into a copy, note what was inferred, and check every type rule on it again."""
    copy = clone(program)
    numbers = dict(program.attrs.get("dims", {}))
    try:
        for found in infer(copy.main, numbers):
            message = f"{found.op.defn.short} {found.op.result.name} gives {found.name} = {found.value}"
            diagnostics.note("InferredSymbol", message, found.op.loc)
    except Violation as violation:
        diagnostics.violation(violation, None)
        return
    if not numbers:
        return
    for op in copy.main.body:
        try:
            recheck(op, numbers)
        except Violation as violation:
            diagnostics.violation(violation, op.loc)
            return
