"""The assembler's text as a format: reading it into a program of PTO IR, and writing one."""

from __future__ import annotations

from ptir_tools import grammars
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Value, operand_type
from ptir_tools.core.source import Source
from ptir_tools.core.types import UNKNOWN
from ptir_tools.dialects.pto import DIALECT
from ptir_tools.dialects.pto.names import inner
from ptir_tools.dialects.pto.ptoas.fifos import check_peers
from ptir_tools.dialects.pto.ptoas.reader import Reserved, entries, read_function
from ptir_tools.dialects.pto.ptoas.statements import statement
from ptir_tools.dialects.pto.ptoas.table import CORES
from ptir_tools.dialects.pto.ptoas.writer import write
from ptir_tools.dialects.pto.structure import BLOCK_DIM, is_call
from ptir_tools.dialects.pto.text.format import entry
from ptir_tools.dialects.pto.text.literals import unquoted
from ptir_tools.dialects.pto.types import MemRefType, memref
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
        shared: list[Reserved] = []
        _collect(root, program, functions)
        launched = any(unquoted(e.token()) == BLOCK_DIM for node in functions for e in entries(node))
        for node in functions:
            if not node.parts("block"):
                continue  # a declaration
            function = read_function(node, diagnostics, statement, shared, launched)
            if program.function(function.name) is not None:
                diagnostics.error("RedefinedValue", f"@{function.name} is defined twice", function.loc)
                continue
            program.functions.append(function)
        if not program.functions:
            diagnostics.error("ParseError", "the module has no function", 0)
            return None
        for _ in program.functions:  # as often as calls can nest
            _pass_pointers(program)
            _pass_numbers(program)
        check_peers(shared, diagnostics)
        program.entry = entry(program)
        main = program.function(program.entry)
        if main is not None and main.result_types:
            message = f"@{main.name} is an entry, which returns nothing"
            diagnostics.error("TypeMismatch", message, main.return_loc or main.loc, help="store the results into memory")
        return program


def _pass_numbers(program: Program) -> None:
    """Pass the numbers of the core to a called function that takes them: its caller takes them, too."""
    for f in program.functions:
        for op in (op for op in f.ops() if is_call(op)):
            callee = program.function(op.attr("callee"))
            missing = callee.params[len(op.operands) :] if callee is not None else []
            if not all(p.name in CORES.values() for p in missing):
                continue
            for p in missing:
                own = next((x for x in f.params if x.name == p.name), None)
                if own is None:
                    f.params.append(own := Value(p.type, p.name))
                op.operands = (*op.operands, own)


def _pass_pointers(program: Program) -> None:
    """Give a pointer that a function only passes on the type that it has in the called one, or in the calling one."""
    for op in (op for f in program.functions for op in f.ops() if is_call(op)):
        callee = program.function(op.attr("callee"))
        for p, x in zip(callee.params if callee is not None else (), op.operands, strict=False):
            t, own = p.type, operand_type(x)
            if isinstance(x, Value) and isinstance(t, MemRefType) and isinstance(own, MemRefType) and t is not own:
                if own is memref(t.dtype, (UNKNOWN,)):
                    x.type = t
                elif t is memref(own.dtype, (UNKNOWN,)):
                    p.type = own


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


FORMAT = Format("ptoas", "pto", read, write)
