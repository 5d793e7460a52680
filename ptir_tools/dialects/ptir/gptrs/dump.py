"""PTIR as gpt.rs's dump (`program.ptir`): the reader.

A line in its usual form is taken by a regular expression, its type and its operation from memory once they have been seen.
Every other line goes to the grammar.
"""

from __future__ import annotations

import re

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Format, Options, Program
from ptir_tools.core.ir import Literal, Op, Operand, Region, Value, collector_paused
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.source import Loc, Source, join, pack
from ptir_tools.core.typed import Any
from ptir_tools.core.types import TensorType, Type, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.jsonc import blank_comments
from ptir_tools.dialects.ptir.gptrs import dump_items
from ptir_tools.dialects.ptir.gptrs.dump_symbols import settle
from ptir_tools.dialects.ptir.gptrs.dump_writer import write
from ptir_tools.dialects.ptir.gptrs.kinds import ops
from ptir_tools.dialects.ptir.gptrs.serde import Malformed, Payload, read_attrs, read_op
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text.assembly import Assembly

_TENSOR = r"tensor<\w+ x [^<>\n]*>"
_LINE = regex(r"[^\n]*")
_COMMENT = regex(r"(?:^|[ \t])/[/*]", re.MULTILINE)  # gpt.rs prints none, people add some
_BLANK = regex(r"[ \t\r\n\f]*")
_OPERAND = r"%[0-9]+(?:\[[0-9]+\])?"
_RESULT = rf"{_TENSOR}|tuple<{_TENSOR}(?:, {_TENSOR})*>"
_INSTRUCTION = regex(rf"%([0-9]+) = (\w+(?:\([^\"%\n]*?\))??)(?:\(({_OPERAND}(?:, {_OPERAND})*)\))? -> ({_RESULT})$")
_DECLARATION = regex(rf"%((?:arg|res)?[0-9]+) : ({_TENSOR})$")
_SECTION = regex(r"(params|body|hints|results|attrs):$")
_TENSORS = regex(_TENSOR)


def read(source: Source, diagnostics: Diagnostics, options: Options) -> Program | None:
    """The program in a dump; every independent error of it goes to `diagnostics`. Raises LimitExceeded."""
    with collector_paused():
        return _Reader(source, diagnostics, options).program()


class _Reader:
    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.text = blank_comments(source.text) if _COMMENT.search(source.text) else source.text
        self.diagnostics = diagnostics
        self.assembly = Assembly(source, diagnostics, options)
        self.types: dict[str, Type] = {}
        self.operations: dict[str, Payload] = {}
        self.at_section = ""
        self.results: list[tuple[str, Type, Loc]] = []
        self.attrs: dict[str, Any] = {}

    def program(self) -> Program:
        at, size = 0, len(self.text)
        while (at := _end(_BLANK, self.text, at)) < size:
            end = _end(_LINE, self.text, at)
            line = self.text[at:end].rstrip()
            if not self.plain(line, at):
                grammars.check_depth(line, self.assembly.limits)
                if not dump_items.parse(self, self.diagnostics, line, at):
                    self.broken(line, at)
            at = end
        program = self.assembly.finish()
        if "?" in self.text:
            settle(program, self.diagnostics)
        return program

    def broken(self, line: str, at: int) -> None:
        """What a line with a syntax error would have defined or opened is in error, silently."""
        assembly, here = self.assembly, pack(at, at + len(line))
        if not assembly.wrapped:
            assembly.wrapped, assembly.unnamed, assembly.braces = True, True, here
        elif line.startswith(("func", "region")) or (assembly.block is None and line.endswith("{")):
            assembly.block, assembly.unnamed = None, True
            self.begin()
            assembly.open_block(Region(loc=here), damaged=True)
        elif assembly.block is None:
            assembly.lost = True
        elif m := re.match(r"%([0-9]+) =", line):
            assembly.poison(m[1], here)
        else:
            assembly.damaged = assembly.unread = True

    def plain(self, line: str, at: int) -> bool:
        """Take a line in its usual form; False when it needs the grammar."""
        if (m := _INSTRUCTION.match(line)) is not None:
            t, payload = self.type_of(m[4]), self.operation(m[2])
            if t is None or payload is None:
                return False
            operands = [x.removesuffix("]").partition("[") for x in m[3].split(", ")] if m[3] else []
            loc = pack(at, at + len(line))
            self.add(m[1], payload, [(n[1:], integer(i) if i else None) for n, _, i in operands], t, loc)
        elif (m := _DECLARATION.match(line)) is not None:
            t = self.type_of(m[2])
            if t is None:
                return False
            self.declare(m[1], t, pack(at, at + len(line)))
        elif (m := _SECTION.match(line)) is not None:
            self.section(m[1], pack(at, at + len(line)))
        elif line == "}":
            self.close(pack(at, at + 1))
        else:
            return False
        return True

    def type_of(self, text: str) -> Type | None:
        """A type without nesting; None when the grammar has to say what is wrong."""
        found = self.types.get(text)
        if found is None:
            try:
                parts = [dump_items.read_tensor(t) for t in _TENSORS.findall(text)]
            except Malformed:
                return None
            found = self.types[text] = tuple_of(parts) if text.startswith("tuple") else parts[0]
        return found

    def operation(self, text: str) -> Payload | None:
        found = self.operations.get(text)
        if found is None:
            try:
                raw = dump_items.parse_operation(text)
                found = read_op(raw) if raw is not None else None
            except Malformed:  # the whole line is read again, to say where
                return None
            if found is not None and found.defn.short != "constant":
                self.operations[text] = found
        return found

    # ---- items, from the plain lines and from the grammar

    def open_program(self, name: str, version: str, at: Loc) -> None:
        self.assembly.open_program(name, version, at)

    def open_function(self, name: str, at: Loc) -> None:
        self.begin()
        self.assembly.open_function(name, (), (), at)

    def open_region(self, name: str, at: Loc) -> None:
        self.begin()
        self.assembly.open_region(name, (), (), at)

    def begin(self) -> None:
        self.at_section, self.results = "", []

    def section(self, name: str, at: Loc) -> None:
        if self.assembly.block is None:
            self.assembly.stray(f"`{name}:` is inside a function or region", at)
        self.at_section = name

    def declare(self, name: str, t: Type, at: Loc) -> None:
        block = self.assembly.block
        if block is None or self.at_section not in ("params", "results"):
            self.assembly.stray("a declaration is under `params:` or `results:`", at)
        elif self.at_section == "results":
            self.results.append((name, t, at))
        else:
            p = Value(t, name.removeprefix("arg"))
            self.assembly.define(p, at)
            block.params.append(p)

    def instruction(self, name: str, operation: object, operands: list[object], t: Type, at: Loc) -> None:
        try:
            payload = read_op(operation)
        except Malformed as bad:
            self.diagnostics.violation(Violation(bad.code, bad.message, help=bad.help, at=bad.wrong, instead=bad.meant), at)
            self.assembly.poison(name, at)
            return
        self.add(name, payload, operands, t, at)

    def add(self, name: str, payload: Payload, operands: list[object], t: Type, at: Loc) -> None:
        if self.assembly.block is None:
            self.assembly.stray("an instruction is inside a function or region", at)
            return
        found = tuple([self.operand(x, at) for x in operands])
        op = Op(payload.defn, found, payload.attrs, (), (), at)
        self.assembly.add(op, name, t)
        if payload.regions:
            self.assembly.pending.append((op, tuple(f"r{n}" for n in payload.regions), at))

    def operand(self, x: Any, at: Loc) -> Operand:
        return Literal(x, None) if isinstance(x, TensorType) else self.assembly.operand(x[0], x[1], at)

    def open_hint(self, ident: int, kind: str, policy: str, at: Loc) -> None:
        self.attrs = {}
        self.assembly.begin_hint(Hint(id=ident, kind=kind, policy=policy, loc=at))

    def uses(self, which: str, names: list[str], at: Loc) -> None:
        if (hint := self.assembly.hint) is None:
            self.assembly.stray(f"`{which}:` is inside a hint", at)
            return
        values = tuple(self.assembly.value(n, at) for n in names)
        if which == "inputs":
            hint.inputs = values
        else:
            hint.exports = values

    def hint_attr(self, key: str, value: object, at: Loc) -> None:
        hint, made = self.assembly.hint, Payload(ops()["custom_call"], (), ())
        if hint is None:
            self.assembly.stray("an attribute is inside a hint", at)
            return
        if key in dict(hint.attrs):
            self.diagnostics.error("DuplicateAttribute", f"`{key}` is given twice", at, help="keep one of the two")
            return
        try:
            hint.attrs = tuple(sorted((*hint.attrs, *read_attrs({key: value}, made.defn.attrs[1], made))))
        except Malformed as bad:
            self.diagnostics.violation(Violation(bad.code, bad.message, help=bad.help, at=bad.wrong, instead=bad.meant), at)

    def close(self, at: Loc) -> None:
        assembly, block = self.assembly, self.assembly.block
        if block is not None and assembly.hint is None:
            block.result_types = [t for _, t, _ in self.results]
            listed = join(self.results[0][2], self.results[-1][2]) if self.results else at
            if block in assembly.program.regions:
                assembly.returns_last(len(self.results), listed)
            else:
                assembly.returns([assembly.value(n, loc) for n, _, loc in self.results], listed)
        assembly.close(at)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at


FORMAT = Format("ptir-dump", "ptir", read, write)
