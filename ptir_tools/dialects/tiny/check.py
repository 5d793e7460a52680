"""The checks of a graph that need numbers for its symbols, from "dims" or bindings."""

from __future__ import annotations

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.types import POISON
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.tiny.symbols import infer, put_dims


def check(program: Program, diagnostics: Diagnostics, options: Options) -> None:
    """Bind "dims" and the symbols that follow from them in a copy, note what was inferred, and check every type rule on the
    copy."""
    if any(p.type is POISON for p in program.main.params):
        return  # the reader has reported the error
    try:
        numbers = dict(program.attrs.get("dims", {}))
        if not infer(program.main, numbers) and not numbers:
            return
        found = put_dims(clone(program), {})
    except Violation as violation:
        diagnostics.violation(violation, None)
        return
    for inferred in found:
        op = inferred.op
        message = f"{op.defn.short} {op.result.name} gives {inferred.name} = {inferred.value}"
        diagnostics.note("InferredSymbol", message, op.loc)
