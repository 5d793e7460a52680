"""Reads MIND Core IR in both public encodings, one statement per line. Errors in a line do not keep other lines from being
read."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain, count, islice

from ptir_tools import grammars
from ptir_tools.core import places
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.dialect import Program, Scope
from ptir_tools.core.dtypes import SI64, DType
from ptir_tools.core.ir import Function, Literal, Op, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Source, Span, pack
from ptir_tools.core.spelling import attribute_meant, dtype_meant
from ptir_tools.core.typed import TypeVar
from ptir_tools.core.types import POISON, UNTYPED, TensorType, tensor
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import external
from ptir_tools.dialects.mind import DIALECT
from ptir_tools.dialects.mind.check import NO_OUTPUTS
from ptir_tools.dialects.mind.text import syntax
from ptir_tools.dialects.mind.text.attributes import ALIASES, BINARY, OPCODES, Given, constant_text, fill, keys, named
from ptir_tools.dialects.mind.text.syntax import ID_DIGITS, Raw, canonical_id, integer, split_comment
from ptir_tools.dialects.mind.types import DTYPES
from ptir_tools.dialects.synonyms import op_meant
from ptir_tools.grammars.parser import Node, Token, token
from ptir_tools.grammars.repeats import Repeats

T = TypeVar("T")
CODES = DIALECT.codes

_MEANT = regex(r"%(\w+)|(\w+)(?=\s*=)", re.ASCII)  # the value that a line in error would define
SAID = ("opcode", "attributes", "type")  # the parts of a usual instruction that are not names
_DEFINED = regex(r"^[^\S\n]*(%\w+)[^\S\n]*=", re.ASCII | re.MULTILINE)
_STAND_IN = Literal(tensor(SI64), bytes(8))


@dataclass(slots=True)
class Line:
    """A physical line: its statement (None if it was not parsed), the value that it defines, its comment."""

    code: str
    comment: str
    start: int
    statement: Node | None = None
    value: Value | None = None

    @property
    def loc(self) -> Loc:
        """The location of the code."""
        return pack(self.start, self.start + len(self.code))

    @property
    def repeats(self) -> bool:
        """Whether an earlier instruction had the same opcode, attributes and type. Then the line was read without parsing."""
        return self.statement is None and self.value is not None


def lines(source: Source) -> Iterator[Line]:
    """The lines of a text, not yet parsed."""
    at = 0
    for text in source.text.split("\n"):
        code, comment = split_comment(text)
        stripped = code.lstrip()
        yield Line(stripped, comment, at + len(code) - len(stripped))
        at += len(text) + 1


def infer(op: Op) -> None:
    """Infer the omitted type of the result of `op`. If the type rule fails, the type stays missing, and the verifier reports
    why."""
    types = tuple([x.type for x in op.values()])
    if POISON in types or UNTYPED in types:
        return
    with suppress(Violation):
        (op.result.type,) = op.defn.result_types(types, op.attrs, ())


class Reader:
    """Reads one text into a program."""

    def __init__(self, source: Source, diagnostics: Diagnostics, current: bool, roots: Sequence[str] = ()) -> None:
        self.source = source
        self.current = current  # Div is an operation
        self.files = external.Files(os.path.dirname(source.name), roots)
        source.aliases = ALIASES
        self.diagnostics = diagnostics
        self.function = Function("main", loc=pack(0, 0))
        self.scope = Scope(CODES, diagnostics)
        self.names: dict[str, Loc] = {}  # locations of the names of inputs
        self.extra: dict[str, tuple[tuple[str, Raw], ...]] = {}
        self.ended: Loc = 0  # location of the outputs
        self.last_id = -1
        self.sliced = False  # whether an extent may be 0: only a Slice makes one
        self.missing: set[str] = set()  # undefined names that were reported
        self.unread = False  # some line could not be read, so it is not known what it defines
        self.repeats = Repeats(*SAID)
        self.fresh = (f"c{n or ''}" for n in count())  # names of constants that fixes make
        self.inferred = 0  # instructions whose types are inferred

    def read(self, listed: Iterable[Line]) -> Program:
        """The program of the text; values in error have the type POISON."""
        take = grammars.lines("mind").match
        for line in listed:
            if not line.code:
                continue
            found = take(line.code)
            if found is None or self.ended or not self.known(line, found):
                self.statement(line, found)
        if not (self.ended or self.unread):
            self.no_outputs(pack(len(self.source.text), len(self.source.text)))
        for op in self.function.body:
            if op.result.type is UNTYPED:
                infer(op)
        self.function.attrs = {"input_names": list(self.names), "input_locs": dict(self.names)}
        if self.extra:
            self.function.attrs["extra"] = self.extra
        return Program(DIALECT, [self.function], entry="main", source=self.source, format="mind")

    def known(self, line: Line, m: re.Match[str]) -> bool:
        """Read an instruction that repeats an earlier one. False if there is none, or if the line needs a closer look or a
        report."""
        op = self.repeats.op(m, self.scope.values, line.loc)
        if op is None or (name := op.result.name) in self.scope.values:
            return False
        if name.isdecimal() and (canonical_id(m["id"]) != name or not self.in_order(name)):
            return False
        line.value = op.result
        self.function.body.append(op)
        self.scope.define(op.result, pack(line.start, line.start + len(name) + 1))
        return True

    def in_order(self, name: str) -> bool:
        """Whether a numeric value id is not below the last one."""
        if not name.isdecimal() or len(name) > ID_DIGITS:
            return True
        before, self.last_id = self.last_id, max(self.last_id, int(name))
        return before <= int(name)

    def statement(self, line: Line, found: re.Match[str] | None) -> None:
        """Read a line by the grammar. `found`: the line is an instruction in its usual form."""
        reported = len(self.diagnostics.items)
        line.statement = node = syntax.parse(self.source, line.start, line.start + len(line.code), self.diagnostics)
        if node is None:
            self.broken(line)
        elif self.ended:
            labels = [(self.ended, "they are here")]
            self.diagnostics.error(CODES.syntax, "nothing may follow the outputs", line.loc, labels=labels)
        elif (read := _STATEMENTS.get(node.data)) is not None:
            read(self, node, line)
        v = line.value
        if found is not None and v is not None and v.op is not None and len(self.diagnostics.items) == reported:
            self.repeats.learn(found, v.op)

    def broken(self, line: Line) -> None:
        """A line that could not be parsed: the value that it would have defined becomes poison, so that it is not missing."""
        if line.code.startswith("outputs"):
            self.ended = line.loc
            self.function.results.append(self.stand_in(Value(POISON), line.loc))
        elif (found := _MEANT.match(line.code)) is not None:
            name = canonical_id(f"%{found[1] or found[2]}")
            if name not in self.scope.values:
                self.scope.define(self.stand_in(Value(POISON, name), line.loc), line.loc)
            self.unread = self.unread or not found[1] or "=" not in line.code
        else:
            self.unread = True

    def stand_in(self, value: Value, loc: Loc) -> Value:
        """Give a value in error a definition, so that its users know it and stay silent."""
        value.type = POISON
        value.op = Op(OPCODES["ConstI64"], (), (_STAND_IN,), (value,), (), loc)
        self.function.body.append(value.op)
        return value

    def use(self, name: Token, user: str, code: str = CODES.undefined) -> Value | None:
        """The value called `name`. If it is not defined here, this is reported once, and the result is None. It is not reported
        if a line that could not be read may define the name; lines after the outputs define nothing."""
        if (value := self.scope.values.get(name)) is not None or name in self.missing:
            return value
        later = self.later.get(name)
        if self.unread if later is None else self.ended:
            return None
        self.missing.add(name)
        if later is not None:
            message = f"{user} %{name} before its definition"
            self.diagnostics.error(code, message, name.loc, labels=[(later, "defined here")])
        else:
            help, instead = self.diagnostics.proposed(name, self.scope.values)
            message = f"{user} %{name}, which is not defined"
            self.diagnostics.error(code, message, name.loc, help=help, instead=instead)
        return None

    @cached_property
    def later(self) -> dict[str, Loc]:
        """The first definition of every name."""
        found: dict[str, Loc] = {}
        for m in _DEFINED.finditer(self.source.text):
            found.setdefault(canonical_id(m[1]), pack(*m.span(1)))
        return found

    def attempt(self, line: Line, read: Callable[..., T], *arguments: object) -> T | None:
        """The result of `read`; None after a report if the line breaks a rule."""
        try:
            return read(*arguments)
        except Violation as violation:
            self.diagnostics.violation(violation, line.loc)
            return None

    # ---- statements

    def alias(self, node: Node, line: Line) -> None:
        name, of = node.tokens()
        line.value = self.use(of, f"instruction {self.index} (alias) uses") or self.stand_in(Value(POISON, str(name)), line.loc)
        self.scope.define(line.value, name.loc, str(name))

    def outputs(self, node: Node, line: Line) -> None:
        self.ended = self.function.loc = line.loc
        if not node.tokens():
            self.no_outputs(line.loc)
        for i, name in enumerate(node.tokens()):
            value = self.use(name, f"output {i} is", CODES.undefined_result)
            self.function.results.append(value or self.stand_in(Value(POISON, str(name)), line.loc))

    def no_outputs(self, at: Loc) -> None:
        self.diagnostics.error("E4003", NO_OUTPUTS, at, help="end it with `outputs: %id, ...`")
        self.function.results.append(self.stand_in(Value(POISON), at))

    def instruction(self, node: Node, line: Line) -> None:
        name, word = node.tokens()
        if name not in self.scope.values and not self.in_order(name):
            message = f"%{name} is defined after %{self.last_id}; canonical ids ascend"
            self.diagnostics.note("ValueIdOrder", message, name.loc)
        known = self.values_only(node, word, line)
        opcode, given = (self.attempt(line, self.given, node) if known else None) or (word, None)
        self.sliced = self.sliced or opcode == "Slice"
        annotation = node.part("annotation")
        declared = None if annotation is None else self.attempt(line, self.declared, annotation, opcode)
        line.value = value = Value(declared or UNTYPED, str(name))
        if opcode == "Input":
            self.input(node, value, given, line)
        else:
            operands = [self.use(x, f"instruction {self.index} ({word}) uses") for x in node.tokens("arguments")]
            if opcode == "ConstTensor" and annotation is not None and declared is None:
                given = None  # its type is in error, and is needed to read the value
            attrs = (
                None
                if given is None
                else self.attempt(line, fill, opcode, given, declared, node.end, self.diagnostics, self.files)
            )
            if attrs is None or None in operands:
                self.stand_in(value, line.loc)
            else:
                value.op = Op(OPCODES[opcode], tuple(x for x in operands if x is not None), attrs, (value,), (), line.loc)
                self.function.body.append(value.op)
        self.scope.define(value, name.loc)

    @property
    def index(self) -> int:
        """The number of the current instruction."""
        return len(self.function.params) + len(self.function.body)

    def values_only(self, node: Node, opcode: Token, line: Line) -> bool:
        """Whether no operand is a literal; literals are reported."""
        arguments = node.part("arguments")
        defn = OPCODES.get(OPERATION if opcode == "BinOp" else opcode)
        if arguments is None or defn is None or defn.is_constant:
            return True
        attributes = [x for part in node.parts("attributes") for x in part.children]
        spans = list(places.items(self.source.text, arguments.start + 1, arguments.end - 1))
        written = list(zip(arguments.children, spans, strict=False))
        if opcode == "BinOp" and not any(key == "op" for key, _ in attributes):
            operation = next((i for i, (x, _) in enumerate(written) if isinstance(x, str) and not isinstance(x, Token)), None)
            written = [x for i, x in enumerate(written) if i != operation]
        literals = [(i, x, Span(*at)) for i, (x, at) in enumerate(written) if not isinstance(x, Token)]
        if defn.attrs:  # they may be positional attributes
            few = len(written) - len(literals) < len(defn.groups)
            many = len(literals) + len(attributes) > len(defn.attrs)
            literals = [(i, x, at) for i, x, at in literals if few and i < len(defn.groups) and (many or _is_number(x))]
        for i, x, at in literals:
            known = chain((y for y, _ in written if isinstance(y, Token)), (p.name for p in self.function.params))
            dtypes = () if opcode == "Gather" and i else filter(None, map(self.dtype, known))
            self.literal(opcode, x, at, next(iter(dtypes), None), line)
        return not literals

    def literal(self, opcode: str, raw: Raw, at: Span, dtype: DType | None, line: Line) -> None:
        """Report an operand that is a literal. `dtype` is that of the other operands, or inputs."""
        text = self.source.text[at.start : at.end]
        shown = text if len(text) <= 30 else f"{text[:29]}…"
        message = f"`{shown}` is not a value; the operands of {opcode} are values like %0"
        inputs = dict(zip(self.names, (p.name for p in self.function.params), strict=False))
        meant = text if text in self.scope.values else inputs.get(text)
        if meant is not None and isinstance(raw, str):
            self.diagnostics.error("E2007", message, at, instead=f"%{meant}")
            return
        constant = constant_text(raw, text, dtype) or constant_text(raw, text, None)
        if constant is None:
            help = "a constant is an instruction of its own: %c = ConstF32 {value=1.0}"
            self.diagnostics.error("E2007", message, at, help=help)
            return
        name = next(name for name in self.fresh if name not in self.scope.values and name not in self.later)
        constant = f"%{name} = {constant}"
        definition = Fix(Span(line.start, line.start), f"{constant}\n")
        help = f"make a constant of it: {constant}" if len(constant) <= 100 else "make it a ConstTensor"
        self.diagnostics.error("E2007", message, at, help=help, fix=Fix(at, f"%{name}", (definition,)))

    def dtype(self, name: str) -> DType | None:
        """The dtype of the value called `name`, if it is known here."""
        for op in islice(self.function.body, self.inferred, None):
            if op.result.type is UNTYPED:
                infer(op)
        self.inferred = len(self.function.body)
        value = self.scope.values.get(name)
        return value.type.dtype if value is not None and isinstance(value.type, TensorType) else None

    def given(self, node: Node) -> tuple[Token, Given]:
        """The opcode, with BinOp resolved, and its attributes. Unknown attributes are kept separately. Raises Violation."""
        name, opcode = node.tokens()
        if opcode not in (*OPCODES, "Input", "BinOp") or not self.has(opcode):
            raise _unknown(opcode, str(opcode))
        positional = [x for part in node.parts("arguments") for x in part.children if not isinstance(x, Token)]
        given = named(opcode, positional, (x for part in node.parts("attributes") for x in part.children))
        known = keys(opcode)
        unknown = [k for k in given if k not in known]
        for k in unknown:
            at = given[k][1].loc
            meant = attribute_meant(k, [n for n in known if n not in given])
            if meant is not None:  # the misspelled attribute would also be reported as missing
                raise Violation(CODES.unknown_attribute, f"{opcode} has no attribute `{k}`", loc=at, instead=meant)
            self.diagnostics.warning("UnknownAttribute", f"{opcode} has no attribute `{k}`; it is kept", at)
        if unknown:
            self.extra[str(name)] = tuple((k, given[k][0]) for k in unknown)
        if opcode == "BinOp":
            if "op" not in given:
                raise Violation("E4013", f"BinOp needs its operation: {_HAS}", loc=opcode.loc)
            operation, _ = given.pop("op")
            if operation not in BINARY or not self.has(str(operation)):
                raise _unknown(opcode, str(operation))
            opcode = token(opcode.type, str(operation), opcode.start_pos, opcode.end_pos)
        return opcode, given

    def has(self, opcode: str) -> bool:
        """Whether the profile has an operation."""
        return self.current or opcode not in OPCODES or OPCODES[opcode].own is None

    def declared(self, annotation: Node, opcode: str) -> TensorType:
        """The declared type. Raises Violation."""
        is_input, dtype = opcode == "Input", annotation.token("WORD")
        if dtype not in DTYPES:
            message = f"unknown dtype `{dtype}`; MIND has {', '.join(DTYPES)}"
            raise Violation("E4004" if is_input else "E2005", message, loc=dtype.loc, instead=dtype_meant(dtype, DTYPES))
        least = 0 if self.sliced and not is_input else 1
        extents: list[int] = []
        written = annotation.tokens("extents")
        for i, d in enumerate(written):
            if d.type != "NUMBER":
                message = f"extent `{d}` is symbolic; those of Core v1 are positive integers"
                raise Violation("E4004" if is_input else "E3006", message, loc=d.loc)
            extents.append(integer(d))
            if extents[-1] < least:
                shown = ", ".join(map(str, written))
                raise Violation("E3006", f"extent {d} of shape [{shown}], at index {i}, is not positive", loc=d.loc)
        return tensor(DTYPES[dtype], extents)

    def input(self, node: Node, value: Value, given: Given | None, line: Line) -> None:
        """An Input: a parameter of the function."""
        report, opcode = self.diagnostics.error, node.tokens()[1]
        if operands := node.tokens("arguments"):
            report("E2007", f"Input takes no operands, got {len(operands)}", operands[0].loc)
        if given is not None:  # else errors of its attributes have been reported
            name, key = given.get("name", ("", opcode))
            if not isinstance(name, str) or not name:
                report("E4004", "Input needs a `name`, a word or a string", key.loc)
            elif name in self.names:
                labels = [(self.names[name], "first given here")]
                report("E4004", f"input name `{name}` is given twice", key.loc, labels=labels)
            else:
                self.names[name] = key.loc
        if node.part("annotation") is None:
            report("E4004", "Input needs a type", opcode.loc)
        if value.type is UNTYPED:
            value.type = POISON
        if self.function.body:
            message = "Input after other instructions; canonical modules begin with their inputs"
            self.diagnostics.note("InputOrder", message, line.loc)
        self.function.params.append(value)


def _is_number(raw: object) -> bool:
    return isinstance(raw, (int, float)) and not isinstance(raw, bool)


OPERATION = BINARY[0]  # represents every op that BinOp can be
_HAS = "Core v1 has Add, Sub and Mul; with --profile current also Div"


def _unknown(opcode: Token, name: str) -> Violation:
    """The error for an operation that Core v1 does not have, as an opcode or in BinOp."""
    arithmetic = name == "Div" or opcode == "BinOp"
    instead = None if arithmetic else op_meant(name, (*OPCODES, "Input"))
    help = _HAS if arithmetic else None if instead else "`ptir ops` lists the operations"
    message = f"`{name}` is not an operation of Core v1"
    return Violation(CODES.unknown_op, message, loc=opcode.loc, help=help, instead=instead)


_STATEMENTS = {"alias": Reader.alias, "outputs": Reader.outputs, "instruction": Reader.instruction}
