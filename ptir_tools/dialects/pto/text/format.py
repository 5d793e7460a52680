"""The text format of PTO: reading it into a program."""

from __future__ import annotations

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Function
from ptir_tools.core.source import Source, pack
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.fmt import format_text
from ptir_tools.dialects.pto.text.reader import Reader
from ptir_tools.dialects.pto.text.syntax import File, parse
from ptir_tools.dialects.pto.text.writer import write

__all__ = ["FORMAT", "format_text", "read"]


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`. A bare list of ops is the function `main`. Errors go to `diagnostics`."""
    with collector_paused():
        file = parse(source, diagnostics)
        if file is None:
            return None
        program = Program(DIALECT, source=source, format="pto")
        program.attrs = {literals.unquoted(e.token()): literals.attribute(e) for e in file.attributes}
        for text in file.functions:
            function = Reader(diagnostics, file, options.limits).function(text)
            if program.function(function.name) is not None:
                diagnostics.error("RedefinedValue", f"@{function.name} is defined twice", function.loc)
                continue
            program.functions.append(function)
        if file.statements or not file.functions:
            program.functions.append(_bare(file, program, diagnostics, options))
        program.entry = entry(program)
        return program


def _bare(file: File, program: Program, diagnostics: Diagnostics, options: Options) -> Function:
    """The statements outside of functions, as a function without parameters."""
    reader = Reader(diagnostics, file, options.limits)
    function = Function("main", loc=pack(0, len(program.source.text) if program.source else 0))
    if program.functions:
        first = file.statements[0]
        at = pack(first.start, first.children[0][0].end("types")) if first.data == "lines" else first.loc
        diagnostics.error("ParseError", "statements are either all in functions or all outside, not both", at)
    if file.statements:
        reader.block(function, file.statements, "return")
        reader.report_unknown(function)
    return function


def entry(program: Program) -> str:
    """The function to run: the one marked `pto.entry`, otherwise the first that no other calls."""
    marked = [f.name for f in program.functions if "pto.entry" in f.attrs]
    called = {op.attr("callee") for f in program.functions for op in f.ops() if op.name == "pto.func.call"}
    free = [f.name for f in program.functions if f.name not in called]
    return (marked or free or [f.name for f in program.functions])[0]


FORMAT = Format("pto", "pto", read, write, format_text)
