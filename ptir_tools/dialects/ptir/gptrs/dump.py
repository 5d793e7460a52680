"""PTIR as gpt.rs's dump (`program.ptir`): the reader.

Each line is an item. The line reader takes an instruction in its usual form; if it repeats an earlier one, the grammar is not
needed. Every other line is parsed by the grammar, whose rules are the methods of the reader.
"""

from __future__ import annotations

import builtins
import math
import re

from ptir_tools import grammars
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Literal, Op, Operand, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer, integers
from ptir_tools.core.source import Loc, Source, join, pack
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType, Type, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.jsonc import Json, blank_comments
from ptir_tools.dialects.ptir.gptrs.dump_symbols import read_dims, settle
from ptir_tools.dialects.ptir.gptrs.dump_writer import write
from ptir_tools.dialects.ptir.gptrs.forms import Malformed, Where, read_attrs, read_dtype
from ptir_tools.dialects.ptir.gptrs.serde import read_op
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text.assembly import Assembly
from ptir_tools.dialects.ptir.text.literals import decimal
from ptir_tools.dialects.ptir.text.spelling import unquote
from ptir_tools.grammars.parser import Refused, Token
from ptir_tools.grammars.repeats import Repeats

_COMMENT = regex(r"(?:^|[ \t])/[/*]", re.MULTILINE)  # gpt.rs prints no comments, but people add some
_LINE = regex(r"[ \t\r\n\f]*([^\n]*)")
# Names of terminals in diagnostics.
_NAMES = {
    "VALUE": "a value", "WORD": "a word", "NUMBER": "a number", "TENSOR": "a type", "TUPLE": "a tuple type",
    "STRING": "a string", "REGION": "a region", "FUNC": "a function name", "SECTION": "a section", "USES": "a section",
    "INTEGERS": "an array", "PARAMETER": "a value", "LITERAL": "a literal", "SHAPE": "a shape",
}  # fmt: skip
# Structs and wrappers that the JSON does not show.
_TRANSPARENT = ("DimSymbol", "RegionId", "ValueId", "Some")


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in a dump; every independent error of it goes to `diagnostics`. Raises LimitExceeded."""
    with collector_paused():
        return _Reader(source, diagnostics, options).read()


class _Payloads:
    """The rules of what Rust prints with {:?}: they make the plain values that the JSON has."""

    def payload(self, children: list[Json]) -> tuple[str, Json]:
        return "payload", children[0]

    def fields(self, children: list[tuple[str, Json]]) -> tuple[str, Json]:
        """Of an operation that is a struct itself, as the contract writes LayerNorm."""
        return "payload", _members(children)

    def number(self, children: list[Token]) -> Json:
        text = str(children[0])
        return integer(text) if text.lstrip("-").isdigit() else float(decimal(text, "InvalidAttributeValue", text))

    def string(self, children: list[Token]) -> Json:
        return unquote(str(children[0]))

    def integers(self, children: list[Token]) -> Json:
        return [*integers(str(children[0])[1:-1].split(","))]

    def unit(self, children: list[Token]) -> Json:
        """`Name`: a variant without payload, a number that is a word, a boolean."""
        return _UNITS.get(str(children[0]), str(children[0]))

    def variant(self, children: tuple[Token, *tuple[Json, ...]]) -> Json:
        """`Name(a, b)`: the variant of an enum, or a wrapper that is its content."""
        name, *arguments = children
        content: Json = arguments[0] if len(arguments) == 1 else arguments
        return content if name in _TRANSPARENT and len(arguments) == 1 else {str(name): content}

    def struct(self, children: tuple[Token, *tuple[tuple[str, Json], ...]]) -> Json:
        """`Name { a: 1 }`: a struct is its members, a variant with members is tagged."""
        name, *members = children
        return {"Complex": _members(members)} if name == "Complex" else _members(members)

    def member(self, children: tuple[Token, Json]) -> tuple[str, Json]:
        return str(children[0]), children[1]

    def list(self, children: list[Json]) -> Json:
        return children

    def map(self, children: builtins.list[tuple[str, Json]]) -> Json:
        return _members(children)

    def entry(self, children: tuple[Token, Json]) -> tuple[str, Json]:
        return unquote(str(children[0])), _attr_value(children[1])


_UNITS: dict[str, Json] = {"None": None, "true": True, "false": False, "inf": math.inf, "NaN": math.nan}


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """The members of a struct or map by name. Raises Malformed when one is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"`{twice}` is given twice", code="DuplicateAttribute", help="keep one of the two")
    return found


def _attr_value(raw: Json) -> Json:
    """`I64(3)` of a map of attributes, as the JSON has it."""
    if isinstance(raw, dict) and len(raw) == 1:
        kind, value = next(iter(raw.items()))
        return {"kind": kind, "value": value}
    return raw


class _Reader(_Payloads):
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.text = blank_comments(source.text) if _COMMENT.search(source.text) else source.text
        self.diagnostics = diagnostics
        self.assembly = Assembly(source, diagnostics, options)
        self.parser = grammars.parser("ptir_dump", self)
        self.repeats = Repeats("operation", "type")
        self.at_section = ""
        self.declared: list[tuple[str, Type, Loc]] = []  # results

    def read(self) -> Program:
        assembly, match, like = self.assembly, grammars.lines("ptir_dump").fullmatch, self.repeats.op
        at, size = 0, len(self.text)
        while (found := _LINE.match(self.text, at)) is not None and at < size:
            line, start, at = found[1].rstrip(), found.start(1), found.end()
            here = pack(start, start + len(line))
            m = match(line) if assembly.block is not None else None
            op = None if m is None else like(m, assembly.values, here)
            if op is not None:
                assembly.append(op)
            elif line:
                grammars.check_depth(line, assembly.limits, start)
                reported = len(self.diagnostics.items)
                if not self.parse(start, start + len(line)):
                    self.broken(line, here)
                elif m is not None and len(self.diagnostics.items) == reported:
                    self.repeats.learn(m, assembly.body[-1])
        program = assembly.finish()
        if "?" in self.text:
            settle(program, self.diagnostics)
        return program

    def parse(self, start: int, end: int) -> bool:
        """Give a line to the grammar; False after a syntax error."""
        try:
            self.parser.parse(self.text, "items", at=start, end=end)
        except Refused:
            fault = grammars.refused("ptir_dump", self.text[start:end], "items")
            grammars.report("ptir_dump", fault, self.diagnostics, "SyntaxError", _NAMES, offset=start)
            return False
        except Violation as bad:
            self.diagnostics.violation(bad, pack(start, end))
            return False
        return True

    def broken(self, line: str, here: Loc) -> None:
        """The value or block of a line with a syntax error becomes poison, without further reports."""
        assembly = self.assembly
        if not assembly.wrapped:
            assembly.open_broken_program(here)
        elif line.startswith(("func", "region")) or (assembly.block is None and line.endswith("{")):
            self.begin()
            assembly.open_broken(here)
        elif assembly.block is None:
            assembly.lost = True
        elif m := re.match(r"%([0-9]+) =", line):
            assembly.poison(m[1], here)
        else:
            assembly.damaged = assembly.unread = True

    # ---- blocks

    def program(self, children: list[Token]) -> None:
        self.assembly.open_program(children[1][1:], str(children[2]), children[0].to(children[-1]))

    def function(self, children: list[Token]) -> None:
        self.begin()
        self.assembly.open_function(children[1][1:], (), (), children[0].to(children[-1]))

    def region(self, children: list[Token]) -> None:
        self.begin()
        self.assembly.open_region(children[1][1:], (), (), children[0].to(children[-1]))

    def begin(self) -> None:
        self.at_section, self.declared = "", []

    def section(self, children: list[Token]) -> None:
        name = children[0]
        if self.assembly.block is None:
            self.assembly.stray(f"`{name}` is inside a function or region", name.loc)
        self.at_section = name[:-1]

    def declaration(self, children: tuple[Token, tuple[Type, Token]]) -> None:
        token, (t, last) = children
        name, at, block = token[1:], token.to(last), self.assembly.block
        if block is None or self.at_section not in ("params", "results"):
            self.assembly.stray("a declaration is under `params:` or `results:`", at)
        elif self.at_section == "results":
            self.declared.append((name, t, at))
        else:
            p = Value(t, name.removeprefix("arg"))
            self.assembly.define(p, at)
            block.params.append(p)

    def close(self, children: list[Token]) -> None:
        assembly, block, at = self.assembly, self.assembly.block, children[0].loc
        if block is not None and assembly.hint is None:
            block.result_types = [t for _, t, _ in self.declared]
            listed = join(self.declared[0][2], self.declared[-1][2]) if self.declared else at
            if block in assembly.program.regions:
                assembly.returns_last(len(self.declared), listed)
            else:
                assembly.returns([assembly.value(n, loc) for n, _, loc in self.declared], listed)
        assembly.close(at)

    # ---- instructions

    def instruction(self, children: list[Any]) -> None:
        token, word, *rest, (t, last) = children
        name, at, given = token[1:], token.to(last), dict(rest)
        try:
            payload = read_op({str(word): given["payload"]} if "payload" in given else str(word))
        except Malformed as bad:
            self.diagnostics.violation(bad, at)
            self.assembly.poison(name, at)
            return
        if self.assembly.block is None:
            self.assembly.stray("an instruction is inside a function or region", at)
            return
        operands = tuple([self.operand_of(x, at) for x in given.get("operands", [])])
        self.assembly.add(Op(payload.defn, operands, payload.attrs, (), (), at), name, t, payload.regions)

    def operand_of(self, x: TensorType | tuple[str, int | None], at: Loc) -> Operand:
        """The operand of a name with its index; a literal has its type alone, its payload is not there."""
        return Literal(x, None) if isinstance(x, TensorType) else self.assembly.operand(x[0], x[1], at)

    def tensor(self, children: list[Token]) -> tuple[Type, Token]:
        dtype, _, dims = children[0][7:-1].partition(" x ")
        return tensor(read_dtype(dtype), read_dims(dims)), children[0]

    def tuple_type(self, children: tuple[*tuple[tuple[Type, Token], ...], Token]) -> tuple[Type, Token]:
        *parts, last = children
        return tuple_of([t for t, _ in parts]), last

    def operands(self, children: list[object]) -> tuple[str, list[Any]]:
        return "operands", children

    def operand(self, children: list[Token]) -> tuple[str, int | None]:
        return children[0][1:], children[1].natural if len(children) > 1 else None

    def literal(self, children: list[Token]) -> TensorType:
        return tensor(read_dtype(str(children[0])), read_dims(children[1].removeprefix("shape=")))

    # ---- hints

    def hint(self, children: list[Token]) -> None:
        keyword, ident, kind, policy, last = children
        at = keyword.to(last)
        self.assembly.begin_hint(Hint(id=ident.natural, kind=str(kind), policy=str(policy), loc=at))

    def uses(self, children: list[Token]) -> None:
        which, *names = children
        at = which.to(children[-1])
        if (hint := self.assembly.hint) is None:
            self.assembly.stray(f"`{which}` is inside a hint", at)
            return
        values = tuple(self.assembly.value(n[1:], at) for n in names)
        if which == "inputs:":
            hint.inputs = values
        else:
            hint.exports = values

    def hint_attr(self, children: tuple[Token, Json]) -> None:
        key, value = str(children[0]), _attr_value(children[1])
        at, hint = children[0].loc, self.assembly.hint
        if hint is None:
            self.assembly.stray("an attribute is inside a hint", at)
        elif key in dict(hint.attrs):
            self.diagnostics.error("DuplicateAttribute", f"`{key}` is given twice", at, help="keep one of the two")
        else:
            try:
                hint.attrs = tuple(sorted((*hint.attrs, *read_attrs({key: value}, Where(key, [])))))
            except Malformed as bad:
                self.diagnostics.violation(bad, at)


FORMAT = Format("ptir-dump", "ptir", read, write)
