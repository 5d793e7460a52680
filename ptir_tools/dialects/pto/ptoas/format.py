"""The assembler's text as a format: reading it into a program of PTO IR."""

from __future__ import annotations

from ptir_tools import grammars
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.source import Source
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.ptoas.reader import entries, read_function
from ptir_tools.dialects.pto.ptoas.statements import statement
from ptir_tools.dialects.pto.text.format import entry
from ptir_tools.dialects.pto.text.literals import unquoted
from ptir_tools.grammars.parser import Node, Nodes, Refused

_NAMES = {
    "SSA": "a value", "TYPE": "a type", "NAME": "an operation", "SYMBOL": "a name such as @f", "OPAQUE": "an attribute",
    "NUMBER": "a number", "STRING": "a string", "RESULT": "a result", "WORD": "a word", "BINDING": "a name", "LABEL": "a label",
}  # fmt: skip


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`. Errors go to `diagnostics`; a syntax error ends the reading."""
    text = source.text
    with collector_paused():
        grammars.check_depth(text, options.limits)
        try:
            root: Node = grammars.parser("ptoas", Nodes()).parse(text, "file")
        except Refused:
            fault = grammars.refused("ptoas", text, "file")
            grammars.report("ptoas", fault, diagnostics, "ParseError", _NAMES)
            return None
        program = Program(DIALECT, source=source, format="ptoas")
        functions: list[Node] = []
        _collect(root, program, functions)
        for node in functions:
            if not node.parts("block"):
                continue  # a declaration
            function = read_function(node, diagnostics, statement)
            if program.function(function.name) is not None:
                diagnostics.error("RedefinedValue", f"@{function.name} is defined twice", function.loc)
                continue
            program.functions.append(function)
        if not program.functions:
            diagnostics.error("ParseError", "the module has no function", 0)
            return None
        program.entry = entry(program)
        return program


def _collect(node: Node, program: Program, functions: list[Node]) -> None:
    """The functions of a module and of those in it. The first target that a module states is the program's."""
    for x in node.children:
        if isinstance(x, Node) and x.data == "module":
            stated = {unquoted(e.token()): e for e in entries(x)}
            for key, e in stated.items():
                if key.startswith("pto.") and key not in program.attrs:
                    program.attrs[key] = inner(str(e.children[1])) if len(e.children) > 1 else None
            _collect(x, program, functions)
        elif isinstance(x, Node) and x.data == "func":
            functions.append(x)


FORMAT = Format("ptoas", "pto", read, None)
