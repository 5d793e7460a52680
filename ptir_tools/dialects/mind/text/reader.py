"""Reads MIND Core IR: one statement a line, both public encodings; every line is read, whatever is wrong with others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from itertools import islice

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, Scope
from ptir_tools.core.dtypes import SI64
from ptir_tools.core.ir import Function, Literal, Op, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import LENGTH_BITS, Loc, Source, pack
from ptir_tools.core.spelling import attribute_meant, dtype_meant
from ptir_tools.core.types import POISON, UNTYPED, TensorType, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.check import NO_OUTPUTS
from ptir_tools.dialects.mind.text import syntax
from ptir_tools.dialects.mind.text.attributes import ALIASES, BINARY, OPCODES, Given, fill, keys, named
from ptir_tools.dialects.mind.text.syntax import ID_DIGITS, Instruction, Raw, Statement, TypeText, canonical_id, split_comment
from ptir_tools.dialects.mind.types import DTYPES
from ptir_tools.dialects.synonyms import op_meant
from ptir_tools.grammars.parser import Token
from ptir_tools.grammars.repeats import Repeats

CODES = DIALECT.codes

_MEANT = regex(r"%(\w+)|(\w+)(?=\s*=)", re.ASCII)  # the value that a line in error would define
SAID = ("opcode", "attributes", "type")  # of a usual instruction, what says more than names
_EXTENT = regex(r"-?\w+|\?\w*")
_DEFINED = regex(r"(%\w+)\s*=", re.ASCII)
_STAND_IN = Literal(tensor(SI64), bytes(8))


@dataclass(slots=True)
class Line:
    """A physical line: its statement (None where it was not parsed), the value that it defines, its comment."""

    code: str
    comment: str
    loc: Loc
    statement: Statement | None = None
    value: Value | None = None

    @property
    def start(self) -> int:
        """Where the code begins."""
        return (self.loc >> LENGTH_BITS) - 1

    @property
    def repeats(self) -> bool:
        """Whether an instruction before it had the same opcode, attributes and type: it was read without being parsed."""
        return self.statement is None and self.value is not None


def lines(source: Source) -> Iterator[Line]:
    """The lines of a text, not yet parsed."""
    at = 0
    for text in source.text.split("\n"):
        code, comment = split_comment(text)
        start = at + len(code) - len(code.lstrip())
        yield Line(code.strip(), comment, pack(start, at + len(code)))
        at += len(text) + 1


def infer(op: Op) -> None:
    """Give the result of `op` the type that was left out. It stays out where the rule gives none: the verifier tells why."""
    types = tuple([x.type for x in op.values()])
    if POISON in types or UNTYPED in types:
        return
    with suppress(Violation):
        (op.result.type,) = op.defn.result_types(types, op.attrs, ())


class Reader:
    """One text on its way to a program."""

    def __init__(self, source: Source, diagnostics: Diagnostics) -> None:
        self.source = source
        source.aliases = ALIASES
        self.diagnostics = diagnostics
        self.function = Function("main", loc=pack(0, 0))
        self.scope = Scope(CODES, diagnostics)
        self.names: dict[str, Loc] = {}  # of the inputs
        self.extra: dict[str, tuple[tuple[str, Raw], ...]] = {}
        self.outputs: Loc = 0
        self.index = 0  # of the instruction
        self.last_id = -1
        self.sliced = False  # may an extent be 0 by now? only a Slice makes one
        self.missing: set[str] = set()  # names that are not defined where they were used, and reported
        self.unread = False  # what a line defines, or whether it is the outputs, is not known
        self.repeats = Repeats(*SAID)

    def read(self, listed: Iterable[Line]) -> Program:
        """The program that the lines of the text are; what is in error in it has the type POISON."""
        take = grammars.lines("mind").match
        for line in listed:
            if not line.code:
                continue
            found = take(line.code)
            if found is None or self.outputs or not self.known(line, found):
                line.statement = syntax.parse(self.source, line.start, line.start + len(line.code), self.diagnostics)
                self.statement(line, found)
        if not (self.outputs or self.unread):
            self.no_outputs(pack(len(self.source.text), len(self.source.text)))
        for op in self.function.body:
            if op.result.type is UNTYPED:
                infer(op)
        self.function.attrs = {"input_names": list(self.names), "input_locs": dict(self.names)}
        if self.extra:
            self.function.attrs["extra"] = self.extra
        return Program(DIALECT, [self.function], entry="main", source=self.source, format="mind")

    @cached_property
    def later(self) -> dict[str, Loc]:
        """Where every name is defined first."""
        found: dict[str, Loc] = {}
        for line in lines(self.source):
            if m := _DEFINED.match(line.code):
                found.setdefault(canonical_id(m[1]), pack(line.start, line.start + len(m[1])))
        return found

    def known(self, line: Line, m: re.Match[str]) -> bool:
        """Read an instruction that repeats one before; False when there is none, or anything to look at or to report."""
        op = self.repeats.op(m, self.scope.values, line.loc)
        if op is None or (name := op.result.name) in self.scope.values:
            return False
        if name.isdecimal():
            number = int(name) if len(name) <= ID_DIGITS else -1
            if number < self.last_id or name != str(number):
                return False
            self.last_id = number
        line.value = value = op.result
        self.function.body.append(op)
        self.scope.values[name], self.scope.places[name] = value, pack(line.start, line.start + len(name) + 1)
        self.index += 1
        return True

    def statement(self, line: Line, found: re.Match[str] | None) -> None:
        """Read what a line says. `found`: it is an instruction in its usual form."""
        statement = line.statement
        if self.outputs and statement is not None:
            self.diagnostics.error(
                CODES.syntax, "nothing may follow the outputs", line.loc, labels=[(self.outputs, "they are here")]
            )
            return
        if isinstance(statement, Instruction):
            reported = len(self.diagnostics.items)
            self.instruction(statement, line)
            self.index += 1
            v = line.value
            if found is not None and v is not None and v.op is not None and len(self.diagnostics.items) == reported:
                self.repeats.learn(found, v.op)
        elif statement is None:
            self.broken(line)
        elif statement.data == "alias":
            self.alias(line, *statement.tokens())
        elif statement.data == "outputs":
            self.finish(statement.tokens(), line)

    def broken(self, line: Line) -> None:
        """A line that could not be parsed: what it would have defined is in error, and is not missing."""
        if line.code.startswith("outputs"):
            self.outputs = line.loc
            self.function.results.append(self.stand_in(Value(POISON), line.loc))
        elif (found := _MEANT.match(line.code)) is not None:
            name = canonical_id(f"%{found[1] or found[2]}")
            if self.scope.values.get(name) is None:
                self.scope.define(self.stand_in(Value(POISON, name), line.loc), line.loc)
            self.unread = self.unread or not found[1] or "=" not in line.code
        else:
            self.unread = True

    def alias(self, line: Line, name: Token, of: Token) -> None:
        line.value = self.use(of, "alias") or self.stand_in(Value(POISON, str(name)), line.loc)
        self.scope.define(line.value, name.loc, str(name))

    def finish(self, names: list[Token], line: Line) -> None:
        self.outputs = self.function.loc = line.loc
        if not names:
            self.no_outputs(line.loc)
        for i, name in enumerate(names):
            if (value := self.scope.values.get(name)) is None:
                if name not in self.later and self.unknown(name):  # a line behind the outputs is reported itself
                    help, instead = self.diagnostics.proposed(name, self.scope.values)
                    message = f"output {i} is %{name}, which is not defined"
                    self.diagnostics.error("E4003", message, name.loc, help=help, instead=instead)
                value = self.stand_in(Value(POISON, str(name)), line.loc)
            self.function.results.append(value)

    def no_outputs(self, at: Loc) -> None:
        self.diagnostics.error("E4003", NO_OUTPUTS, at, help="end it with `outputs: %id, ...`")
        self.function.results.append(self.stand_in(Value(POISON), at))

    def instruction(self, statement: Instruction, line: Line) -> None:
        self.watch_order(statement.id)
        opcode = self.opcode(statement) or ""
        if opcode == "Input":
            self.input(statement, line)
            return
        line.value = value = Value(POISON, str(statement.id))
        self.sliced = self.sliced or opcode == "Slice"
        defn = OPCODES.get(opcode)
        operands = [self.use(x, str(statement.opcode)) for x in statement.operands]
        declared = self.declared(statement.type, opcode)
        given = self.named(statement, opcode) if defn is not None else None
        attrs = None if given is None else fill(statement, opcode, given, declared, self.diagnostics)
        if defn is None or attrs is None or None in operands:
            self.stand_in(value, line.loc)
        else:
            value.type = declared or UNTYPED
            value.op = Op(defn, tuple(x for x in operands if x is not None), attrs, (value,), (), line.loc)
            self.function.body.append(value.op)
        self.scope.define(value, statement.id.loc)

    def stand_in(self, value: Value, loc: Loc) -> Value:
        """Give a value in error a definition, so that its users know it and stay silent."""
        value.op = Op(OPCODES["ConstI64"], (), (_STAND_IN,), (value,), (), loc)
        self.function.body.append(value.op)
        return value

    def watch_order(self, name: Token) -> None:
        if not name.isdecimal() or len(name) > ID_DIGITS or name in self.scope.values:
            return
        if int(name) < self.last_id:
            message = f"%{name} is defined after %{self.last_id}; canonical ids ascend"
            self.diagnostics.note("ValueIdOrder", message, name.loc)
        self.last_id = max(self.last_id, int(name))

    def opcode(self, statement: Instruction) -> str | None:
        """The opcode, BinOp resolved; None after reporting one that Core v1 does not have."""
        name = str(statement.opcode)
        if name == "BinOp":
            given = next((raw for key, raw in statement.attributes if key == "op"), None)
            statement.attributes = [a for a in statement.attributes if a[0] != "op"]
            if given is None and statement.positional:
                given = statement.positional.pop(0)
            if given is None:
                self.diagnostics.error("E4013", "BinOp needs its operation: Add, Sub or Mul", statement.opcode.loc)
                return None
            if given in BINARY:
                return str(given)
            name = str(given)
        elif name in OPCODES or name == "Input":
            return name
        instead = None if name == "Div" else op_meant(name, [*OPCODES, "Input"])
        help = "Core v1 has Add, Sub and Mul" if name == "Div" else None if instead else "`ptir ops` lists the operations"
        message, at = f"`{name}` is not an operation of Core v1", statement.opcode.loc
        self.diagnostics.error(CODES.unknown_op, message, at, help=help, instead=instead)
        return None

    def use(self, name: Token, user: str) -> Value | None:
        """The value called `name`, or None after reporting that it is not defined here."""
        value = self.scope.values.get(name)
        if value is not None or not self.unknown(name):
            return value
        if (later := self.later.get(name)) is not None:
            message = f"instruction {self.index} ({user}) uses %{name} before its definition"
            self.diagnostics.error(CODES.undefined, message, name.loc, labels=[(later, "defined here")])
        else:
            message = f"instruction {self.index} ({user}) uses %{name}, which is not defined"
            help, instead = self.diagnostics.proposed(name, self.scope.values)
            self.diagnostics.error(CODES.undefined, message, name.loc, help=help, instead=instead)
        return None

    def unknown(self, name: str) -> bool:
        """Whether to report that `name` is not defined: once, and not where a line that cannot be read may define it."""
        if name in self.missing or (self.unread and name not in self.later):
            return False
        self.missing.add(name)
        return True

    def declared(self, text: TypeText | None, opcode: str) -> TensorType | None:
        """The declared type; None when there is none, or after reporting what is wrong with it."""
        if text is None:
            return None
        is_input = opcode == "Input"
        if (dtype := DTYPES.get(text.dtype)) is None:
            message = f"unknown dtype `{text.dtype}`; MIND has {', '.join(DTYPES)}"
            code, meant = "E4004" if is_input else "E2005", dtype_meant(text.dtype, DTYPES)
            self.diagnostics.error(code, message, text.dtype.loc, instead=meant)
            return None
        least = 0 if self.sliced and not is_input else 1
        for k, d in enumerate(text.extents):
            if isinstance(d, str):
                message = f"extent `{d}` is symbolic; those of Core v1 are positive integers"
                self.diagnostics.error("E4004" if is_input else "E3006", message, self.extent(text, k))
                return None
            if d < least:
                self.diagnostics.error("E3006", f"extent {d} is not positive", self.extent(text, k))
                return None
        return tensor(dtype, tuple(d for d in text.extents if isinstance(d, int)))

    def extent(self, text: TypeText, k: int) -> Loc:
        """Where extent number `k` of a type is written."""
        after = _EXTENT.finditer(self.source.text, self.source.span(text.dtype.loc).end)
        return next((pack(*m.span()) for m in islice(after, k, None)), text.loc)

    def input(self, statement: Instruction, line: Line) -> None:
        """An Input: a parameter of the function."""
        report, at = self.diagnostics.error, statement.opcode.loc
        given = self.named(statement, "Input")
        name, where = given.get("name", (None, at)) if given is not None else (None, at)
        declared = self.declared(statement.type, "Input")
        if statement.operands:
            report("E2007", f"Input takes no operands, got {len(statement.operands)}", statement.operands[0].loc)
        if given is None:
            pass  # what is wrong with its attributes is reported
        elif not isinstance(name, str) or not name:
            report("E4004", "Input needs a `name`, a word or a string", where)
        elif name in self.names:
            report("E4004", f"input name `{name}` is given twice", where, labels=[(self.names[name], "first given here")])
        else:
            self.names[name] = where
        if statement.type is None:
            report("E4004", "Input needs a type", at)
        if self.function.body:
            self.diagnostics.note(
                "InputOrder", "Input after other instructions; canonical modules begin with their inputs", line.loc
            )
        line.value = value = Value(declared or POISON, str(statement.id))
        self.function.params.append(value)
        self.scope.define(value, statement.id.loc)

    def named(self, statement: Instruction, opcode: str) -> Given | None:
        """All attributes by name; those that the opcode does not have are kept aside. None after reporting a fault."""
        given = named(statement, opcode, self.diagnostics)
        unknown = [k for k in given or () if k not in keys(opcode)]
        if given is None or not unknown:
            return given
        for k in unknown:
            meant = attribute_meant(k, [n for n in keys(opcode) if n not in given])
            if meant is not None:  # it is the one that would be reported as missing
                self.diagnostics.error(CODES.unknown_attribute, f"{opcode} has no attribute `{k}`", given[k][1], instead=meant)
                return None
            self.diagnostics.warning("UnknownAttribute", f"{opcode} has no attribute `{k}`; it is kept", given[k][1])
        self.extra[str(statement.id)] = tuple((k, given[k][0]) for k in unknown)
        return given
