"""From the items of a text to a program: names, regions, attributes, and what is said when they do not fit.

The fast path and the grammar both end here. A value in error is defined with the type POISON, so that its users stay silent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import islice

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import WEIGHTS, Options, Program
from ptir_tools.core.ir import (
    ELEMENTWISE,
    Element,
    Function,
    Literal,
    Op,
    OpDef,
    Operand,
    Region,
    Value,
    operand_type,
    result_names,
)
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Loc, Source, Span
from ptir_tools.core.spelling import GUESSED, nearest
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import POISON, TensorType, Type
from ptir_tools.core.violations import Violation, key
from ptir_tools.core.where import Table, define, put_in
from ptir_tools.dialects.external import Files
from ptir_tools.dialects.ptir import DIALECT
from ptir_tools.dialects.ptir import ops as _ops  # noqa: F401  (declares them)
from ptir_tools.dialects.ptir.hints import Hint
from ptir_tools.dialects.ptir.text import forms
from ptir_tools.dialects.ptir.text.attributes import Filling, Given
from ptir_tools.dialects.ptir.text.literals import read_payload
from ptir_tools.grammars.mistakes import closed

if TYPE_CHECKING:
    from typing import Unpack

    from ptir_tools.core import places
    from ptir_tools.core.diagnostics import More
    from ptir_tools.dialects.ptir.text import faults
else:
    faults = lazy("ptir_tools.dialects.ptir.text.faults")
    places = lazy("ptir_tools.core.places")

CODES = DIALECT.codes
SPEC_VERSION = "ptir.v0.4"


class Assembly:
    """A program while it is read. `values` are the names of the block that is open."""

    def __init__(self, source: Source, diagnostics: Diagnostics, options: Options) -> None:
        self.source, self.diagnostics, self.limits = source, diagnostics, options.limits
        self.files = Files(os.path.dirname(source.name), options[WEIGHTS])
        self.program = Program(DIALECT, source=source)
        self.ops: dict[str, OpDef] = DIALECT.ops
        self.values: dict[str, Value] = {}
        self.places: dict[Value, Loc] = {}
        self.unknown: dict[str, tuple[Value, Loc, int]] = {}  # used in the open block before so many names are defined
        self.block: Region | None = None
        self.body: list[Op] = []
        self.hint: Hint | None = None
        self.returned: Loc | None = None
        self.braces: Loc | None = None  # of the program, while it is open
        self.header: Loc = 0  # of the program, where it has one
        self.wrapped = False
        self.damaged = False  # the open block had a header in error: what it defines is not known
        self.holes = False  # an instruction of the open block is in error, and not in its body
        self.unread = False  # what is a statement of the open block is not known
        self.unnamed = False  # a block has no name: which one is missing is not known
        self.lost = False  # after an error outside any block, until the next header
        self.headless = False  # what was opened without being read may still be closed
        self.pending: list[tuple[Op, tuple[str, ...], Loc]] = []
        self.tables: list[tuple[Function, Table, Loc]] = []
        self.marks: list[
            Loc
        ] = []  # of everything that is no op of the program: headers, returns, closing braces, statements in error

    def error(self, code: str, message: str, at: Loc | Span | None, **more: Unpack[More]) -> None:
        self.diagnostics.error(code, message, at, **more)

    def violation(self, violation: Violation, at: Loc) -> None:
        self.diagnostics.violation(violation, at)

    # ---- blocks

    def open_program(self, entry: str | None, version: str | None, at: Loc) -> None:
        self.marks.append(at)
        if self.wrapped or self.program.functions:
            self.error(CODES.syntax, "a file holds one program", at)
            return
        if version is not None:  # people may leave it out
            check_version(self.diagnostics, version, at)
        self.program.entry = entry or ""
        self.wrapped, self.braces, self.header = True, at, at

    def open_function(self, name: str, params: Iterable[tuple[str, Type]], results: Sequence[Type], at: Loc) -> None:
        block = Function(name, result_types=list(results), loc=at)
        self.check_place(block, self.program.functions)
        self.program.functions.append(block)
        self.open_block(block, params)

    def where(self, table: Table, at: Loc) -> None:
        """The open function says which of its symbols are expressions."""
        if isinstance(self.block, Function):
            self.tables.append((self.block, table, at))

    def open_region(self, name: str, params: Iterable[tuple[str, Type]], results: Sequence[Type], at: Loc) -> None:
        block = Region(name, result_types=list(results), loc=at)
        self.check_place(block, self.program.regions)
        self.program.regions.append(block)
        self.open_block(block, params)

    def check_place(self, block: Region, others: Sequence[Region]) -> None:
        """Report a name that another block of the kind has, and what is not the only function of a file that is no program."""
        if (first := next((b for b in others if b.name == block.name), None)) is not None:
            title, labels = self.title(block), [(first.loc, "the first")]
            self.error(CODES.redefined, f"{title} is defined twice", block.loc, labels=labels)
        elif not self.wrapped and (self.program.functions or not isinstance(block, Function)):
            message, help = "a file holds one bare func", "wrap the file in program @name { … }"
            self.error(CODES.syntax, message, block.loc, help=help)
            self.wrapped = self.headless = True

    def open_block(self, block: Region, params: Iterable[tuple[str, Type]] = (), *, damaged: bool = False) -> None:
        if self.block is not None and not (self.damaged or self.unread):
            self.error(CODES.syntax, f"`}}` of {self.title(self.block)} is missing", block.loc, labels=self.opened())
            self.end_unread()
        self.marks.append(block.loc)
        self.leave()
        self.block, self.body, self.damaged, self.holes, self.unread = block, block.body, damaged, False, False
        self.values, self.places, self.unknown = {}, {}, {}
        self.returned, self.hint, self.lost = None, None, False
        for name, t in params:
            p = Value(t, name)
            self.define(p, block.loc)
            block.params.append(p)

    def open_broken(self, at: Loc) -> None:
        """Open a block whose header is in error."""
        self.block, self.unnamed = None, True
        self.open_block(Region(loc=at), damaged=True)

    def open_broken_program(self, at: Loc) -> None:
        """Open a program whose header is in error."""
        self.wrapped, self.unnamed, self.braces = True, True, at

    def end_unread(self) -> None:
        """What the open block says after this is not known."""
        if self.block is not None and self.returned is None:
            self.returns_unknown(self.block.loc)
            self.damaged = True

    def leave(self) -> None:
        """Have done with the open block; one of unknown signature gets a parameter in error, for those who refer to it."""
        for value, at, known in self.unknown.values():
            self.undefined(value.name, at, known)
        self.unknown = {}
        if self.block is not None and self.damaged:
            self.block.params.append(Value(POISON))
        self.block = None

    @property
    def open(self) -> bool:
        """Whether a statement may be here."""
        return self.block is not None and (self.returned is None or self.hint is not None)

    @property
    def ended(self) -> bool:
        """Whether everything that was opened is closed."""
        return self.block is None and self.braces is None and bool(self.program.functions)

    def opened(self) -> list[tuple[Loc, str]]:
        return [(self.block.loc, "opened here")] if self.block is not None else []

    def title(self, block: Region) -> str:
        return f"@{block.name}" if isinstance(block, Function) else f"^{block.name}"

    def close(self, at: Loc) -> None:
        self.marks.append(at)
        if self.hint is not None:
            self.hint = None
            self.body = self.block.body if self.block is not None else []
        elif self.block is not None:
            if self.returned is None and not self.damaged:
                if not self.unread:  # that may have been it
                    message, help = f"{self.title(self.block)} does not end with `return`", "write what it returns"
                    fix = None if self.holes else faults.returning(self.source, self.block, at)
                    self.error(CODES.syntax, message, at, labels=self.opened(), help=help, fix=fix)
                self.returns_unknown(at)
            if len(self.block.body) > self.limits.ops:
                raise LimitExceeded(f"{self.title(self.block)} has {len(self.block.body)} ops", "--max-ops", self.block.loc)
            self.leave()
        elif self.headless:
            self.headless = False
        elif self.braces is not None:
            self.braces = None
        else:
            self.stray("there is nothing to close", at, "drop the brace")

    def stray(self, message: str, at: Loc, help: str | None = None) -> None:
        """Report what is outside any block or section, once until the next header."""
        if not (self.lost or (self.damaged and self.block is not None)):
            self.error(CODES.syntax, message, at, help=help)
        self.headless = self.headless or self.block is None
        self.lost = self.unnamed = self.damaged = True

    def finish(self) -> Program:
        """The program, its region references resolved."""
        end = Span(len(self.source.text), len(self.source.text))
        open_at = self.block.loc if self.block is not None else self.braces
        if open_at is not None:
            if not (self.damaged or self.unread or self.lost):
                labels, both = [(open_at, "opened here")], self.block is not None and self.braces is not None
                fix = closed(self.source.text, 1 + both)
                self.error(CODES.syntax, "`}` is missing at the end", end, labels=labels, help="add it", fix=fix)
            self.end_unread()
            self.unnamed = True
        program = self.program
        self.leave()
        regions = {r.name: r for r in program.regions}
        for op, names, at in self.pending:
            op.regions = tuple(self.region(n, regions, at) for n in names)
        for function, table, at in self.tables:
            try:
                put_in(function, table)
            except Violation as violation:
                self.violation(violation, at)
        define(program)
        if not program.entry and program.functions:
            program.entry = program.functions[0].name
        if program.entry and program.function(program.entry) is None and not (self.damaged or self.unnamed):
            faults.no_entry(program, self.source, self.header, self.diagnostics)
        return program

    def region(self, name: str, regions: dict[str, Region], at: Loc) -> Region:
        if (found := regions.get(name)) is not None:
            return found
        only = next(iter(regions)) if len(regions) == 1 else None
        meant = nearest(name, regions) or only
        instead = None if meant is None else f"^{meant}"
        if not self.unnamed:
            self.violation(Violation("UnknownRegion", f"there is no region ^{name}", at=f"^{name}", instead=instead), at)
        regions[name] = missing = Region(name, params=[Value(POISON)])
        return missing

    # ---- values

    def define(self, value: Value, at: Loc) -> None:
        before = self.values.setdefault(value.name, value)
        if before is value:
            if value.op is None:
                self.places[value] = at
            return
        place = before.op.loc if before.op is not None else self.places.get(before, 0)
        here, first = faults.named(self.source, value.name, at, int(at == place)), faults.named(self.source, value.name, place)
        labels, help = [(first, "first defined here")], "give it a name of its own: the first is not hidden"
        self.error(CODES.redefined, f"%{value.name} is defined twice", here, labels=labels, help=help)
        before.type = POISON  # which of the two is meant is not known

    def poison(self, name: str, at: Loc) -> None:
        """Define `name`, whose statement is in error."""
        self.holes = True
        if name not in self.values:
            self.define(Value(POISON, name), at)

    def value(self, name: str, at: Loc) -> Value:
        """The value called `name`; an unknown one is reported once, when the block is read, and in error."""
        found = self.values.get(name)
        if found is None and name in self.unknown:
            found = self.unknown[name][0]
        elif found is None:
            found = Value(POISON, name)
            if self.block is not None and not (self.damaged or self.unread):
                self.unknown[name] = found, at, len(self.values)
        return found

    def undefined(self, name: str, at: Loc, known: int) -> None:
        """Report a name that the first `known` values of the block do not have."""
        span = self.source.span(at)
        statement = self.source.text[span.start : span.end] if span else ""
        sigil = "%" if f"%{name}" in statement else ""
        help: str | None
        labels, instead = [], None
        if (later := self.values.get(name)) is not None:
            message, help = f"%{name} is used before it is defined", "move its definition up"
            place = self.places.get(later, 0) if later.op is None else later.op.loc
            labels = [(faults.named(self.source, name, place), "defined here")]
        elif name[:1].isdigit() and not sigil and "->" in statement[:GUESSED]:  # JSON calls values by numbers
            message, help = f"`{name}` is a number, not a value", "a number is written as a literal with its type"
            declared = re.search(r"([a-z_]\w*)\s*\(.*->\s*(tensor\s*<[^<>?]*>)\s*\Z", statement[:GUESSED])
            if declared is not None and declared[1] in self.ops and ELEMENTWISE in self.ops[declared[1]].traits:
                instead = f"dense<{name}> : {declared[2]}"
        else:
            message = f"%{name} is not defined here"
            help, instead = self.diagnostics.proposed(name, [*islice(self.values, known)], written=sigil + "{}")
        shown = places.word(self.source, span, sigil + name) if span is not None else None
        self.error(CODES.undefined, message, shown or span, labels=labels, help=help, instead=instead)

    def operand(self, name: str, index: int | None, at: Loc) -> Operand:
        """The value called `name`, or its element; one that is not there is reported, and in error."""
        value = self.value(name, at)
        if index is None:
            return value
        element = Element(value, index)
        try:
            operand_type(element)
        except Violation as violation:
            self.violation(violation, at)
            return Value(POISON, name)
        return element

    def literal(self, payload: str, t: Type, at: Loc) -> Literal | None:
        try:
            if not isinstance(t, TensorType):
                raise Violation("ResultTypeMismatch", f"a literal is a tensor, not {t}")
            return read_payload(payload, t, self.files)
        except Violation as violation:
            self.violation(violation, at)
            return None

    # ---- statements

    def instruction(self, name: str, op: str, operands: tuple[Operand, ...], given: Given, result: Type | None, at: Loc) -> None:
        """Add an op. `result` None is a type in error."""
        made = None
        if self.placed(at):
            if (defn := self.ops.get(op)) is None:
                self.violation(faults.unknown_op(op, self.ops), at)
            elif len(operands) > self.limits.operands:
                raise LimitExceeded(f"an op with {len(operands)} operands", "--max-operands", at)
            elif result is not None:
                made = Filling(self.diagnostics, self.files, defn, operands, result, at).fill(given)
        if made is None or result is None:
            self.marks.append(at)
            self.poison(name, at)
        else:
            attrs, regions = made
            self.add(Op(self.ops[op], operands, attrs, (), (), at), name, result, regions)

    def add(self, op: Op, name: str, t: Type, regions: tuple[str, ...] = ()) -> None:
        """Add an op, whose result has a name and a type, and which names regions."""
        op.results = (Value(t, name, op),)
        self.append(op)
        if regions:
            self.pending.append((self.body[-1], regions, op.loc))

    def append(self, op: Op) -> None:
        """Add an op that has its result."""
        value = op.results[0]
        if self.hint is not None:  # an op of the function again
            op.results = (self.value(value.name, op.loc),)
        elif value.name in self.values:
            self.define(value, op.loc)
        else:
            self.values[value.name] = value
        self.body.append(op)

    def placed(self, at: Loc) -> bool:
        """Whether a statement may be here."""
        if self.block is None:
            self.stray("a statement belongs inside a function or region", at, "move it above the `return` of one")
            return False
        if self.returned is not None and self.hint is None:
            if not self.unread:
                labels = [(self.returned, "returned here")]
                self.error(CODES.syntax, "a statement after `return`", at, labels=labels, help="drop it, or move it up")
            self.unread = True
            return False
        return True

    def returns(self, results: Sequence[Operand | None], at: Loc, names: Sequence[str | None] = ()) -> None:
        """End the open block. `names` are those that `as` gives to results."""
        self.marks.append(at)
        if self.block is None:
            self.stray("`return` belongs inside a function or region", at)
        elif self.returned is not None:
            self.error(CODES.syntax, "a second `return`", at, labels=[(self.returned, "the first")], help="keep one")
        else:
            if results and not self.block.result_types and not self.damaged:
                self.error(CODES.result_type, f"results returned: {len(results)}, declared: 0", at)
            self.returned = self.block.return_loc = at
            self.block.results = [Value(POISON) if x is None else x for x in results]
            if any(names) and isinstance(self.block, Function):
                given = zip(names, result_names(self.block), strict=True)
                self.block.attrs["output_names"] = [name or own for name, own in given]
            elif any(names):
                self.error(CODES.syntax, "a region's result has no name", at, help="drop `as` and what follows it")

    def returns_unknown(self, at: Loc) -> None:
        """End a block whose `return` cannot be read: all its results are in error."""
        if self.block is not None:
            self.returned = self.block.return_loc = at
            self.block.results = [Value(POISON) for _ in self.block.result_types]

    def returns_last(self, count: int, at: Loc) -> None:
        """End a region whose results are its last `count` instructions, as in gpt.rs's dump and JSON."""
        body = self.block.body if self.block is not None else []
        if self.holes or self.damaged:  # which they are is not known
            self.returns([None] * count, at)
        elif count > len(body):
            self.error("RegionSignatureMismatch", f"{count} results, but the body has only {len(body)} instructions", at)
            self.damaged = True
            self.returns([None] * count, at)
        else:
            self.returns([op.results[0] for op in body[len(body) - count :]], at)

    def begin_hint(self, hint: Hint) -> None:
        """Open a hint of the function that is open: what follows is its body."""
        self.marks.append(hint.loc)
        if isinstance(self.block, Function):
            self.hint = hint
            self.block.annotations.append(hint)
            self.body = hint.body

    def open_hint(self, ident: int, kind: str, policy: str, given: Given, at: Loc) -> None:
        if not isinstance(self.block, Function) or self.hint is not None:
            self.error(CODES.syntax, "a hint belongs inside a function, after `return`", at)
            return
        lists: dict[str, Sequence[forms.Plain]] = {"inputs": [], "exports": [], "attrs": [], **dict(given)}
        if unknown := [k for k, _ in given if k not in ("inputs", "exports", "attrs")]:
            message, meant = f"a hint has no `{unknown[0]}`", nearest(unknown[0], ("inputs", "exports", "attrs"))
            self.violation(Violation(CODES.unknown_attribute, message, at=key(unknown[0]), instead=meant), at)
        inputs, exports = (tuple(self.value(str(n), at) for n in lists[k]) for k in ("inputs", "exports"))
        try:
            attrs = forms.read(self.ops["custom_call"].attrs[1], lists["attrs"], None) if lists["attrs"] else ()
        except Violation as violation:
            self.violation(violation, at)
            attrs = ()
        self.begin_hint(Hint(id=ident, kind=kind, policy=policy, inputs=inputs, exports=exports, attrs=attrs, loc=at))


def check_version(diagnostics: Diagnostics, version: str | None, at: Loc | Span) -> None:
    """Report a spec_version that is not ours, is empty, or is not there."""
    if version != SPEC_VERSION:
        found = f"is {version}" if version else "is missing" if version is None else "is empty"
        message = f"spec_version {found}, this is a reader of {SPEC_VERSION}"
        diagnostics.violation(Violation("SpecVersionMismatch", message, at=version or None), at)
