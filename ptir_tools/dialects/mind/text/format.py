"""The text form of MIND Core IR: reading, the canonical print, and layout that keeps what the author wrote."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ptir_tools import grammars
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import PROFILE, WEIGHTS, Format, Options, Program
from ptir_tools.core.ir import Literal, Value
from ptir_tools.core.source import Source
from ptir_tools.core.types import POISON
from ptir_tools.dialects import weights
from ptir_tools.dialects.mind.ops.common import CURRENT
from ptir_tools.dialects.mind.text.reader import CODES, SAID, Line, Reader, lines
from ptir_tools.dialects.mind.text.writer import (
    attribute_texts,
    extras,
    input_names,
    instruction,
    outputs,
    tail,
    value_text,
    write,
)


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in `source`; with errors it is partial, and values in error have the type POISON."""
    with collector_paused():
        return Reader(source, diagnostics, options[PROFILE] == CURRENT, options[WEIGHTS]).read(lines(source))


def format_text(source: Source, diagnostics: Diagnostics) -> str | None:
    """The text in canonical layout and spelling; order, ids, comments, aliases and omitted types stay as they are.

    Runs of blank lines become one. None when the text has errors of syntax, which are reported. Of a line with another error,
    such as an unknown operation, attributes and type stay as they are.
    """
    found, listed = Diagnostics(source), list(lines(source))
    program = Reader(source, found, current=True).read(listed)
    unread = any(line.code and line.statement is None and not line.repeats for line in listed)
    if unread or any(d.code == CODES.syntax for d in found):
        diagnostics.extend(found)
        return None
    outside = weights.kept(program, os.path.dirname(source.name))
    params, given = program.main.params, input_names(program.main)
    names = dict(zip(params, given, strict=True)) if len(params) == len(given) else {}  # an Input in error has none
    shown: list[str] = []
    tails: dict[tuple[str | None, ...], str] = {}
    for line in listed:
        text = _repeated(line, tails, outside) if line.repeats else _layout(line, program, names, outside)
        if line.comment:
            text = "  ".join(filter(None, (text, line.comment)))
        if text or (shown and shown[-1]):
            shown.append(text)
    return "\n".join(shown).rstrip("\n") + "\n"


def _repeated(line: Line, tails: dict[tuple[str | None, ...], str], outside: Mapping[Literal, str]) -> str:
    """The layout of an instruction that repeats the opcode, attributes and type of another; `tails` has the texts that follow
    operands."""
    found = grammars.lines("mind").match(line.code)
    assert found is not None and line.value is not None and line.value.op is not None
    name, operands, *said = found.group("id", "operands", *SAID)
    key = tuple(said)
    if (last := tails.get(key)) is None:
        last = tails[key] = tail(attribute_texts(line.value.op, outside), line.value.type if found["type"] is not None else None)
    opcode = line.value.op.defn.short
    return f"{name} = {opcode} ({operands}){last}" if operands else f"{name} = {opcode}{last}"


def _layout(line: Line, program: Program, names: dict[Value, str], outside: Mapping[Literal, str]) -> str:
    statement, value = line.statement, line.value
    if statement is None:
        return ""
    tokens = [*map(str, statement.tokens())]
    if statement.data == "outputs":
        return outputs(tokens)
    if statement.data == "alias":
        return "%{} = %{}".format(*tokens)
    if statement.data == "inputs" or value is None:
        return tokens[0]
    operands = [*map(str, statement.tokens("arguments"))]
    if value.type is POISON or (value.op is None and value not in names):  # what follows the operands stays as it is
        rest = line.code.rstrip().partition(")")[2].strip()
        shown = ", ".join(f"%{x}" for x in operands)
        return f"%{tokens[0]} = {tokens[1]} ({shown}) {rest}".rstrip() if operands else line.code.rstrip()
    attributes = attribute_texts(value.op, outside) if value.op else {"name": value_text(names[value])}
    t = value.type if statement.part("annotation") is not None else None
    opcode = value.op.defn.short if value.op else "Input"
    return instruction(tokens[0], opcode, operands, attributes | extras(program.main, value), t)


FORMAT = Format("mind", "mind", read, write, format_text)
