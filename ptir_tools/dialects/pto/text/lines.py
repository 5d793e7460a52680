"""The fast path of the reader. The line reader takes runs of statements in their usual form out of a text, and the grammar parses
the rest. Of usual statements that are alike but for names and indices one is read by the grammar, too: as the plan of all."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptir_tools import grammars
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Literal, Op, OpDef, Region, Value
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import Type
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.pto.text import literals, recovery
from ptir_tools.dialects.pto.text.forms import short_name
from ptir_tools.dialects.pto.text.reader import TERMINATORS, Reader
from ptir_tools.dialects.pto.text.syntax import File, Lines, Statement, parse_piece
from ptir_tools.dialects.pto.text.types import parse_type
from ptir_tools.grammars.parser import token

if TYPE_CHECKING:
    from ptir_tools.core.limits import Limits

TAKEN = "\0"  # in place of what the line reader has taken
# What differs between statements that are alike: a name without its `%`, a number in a list.
_HOLE = regex(r"((?<=%)[A-Za-z0-9_$.-]+(?:#\d+)?|(?<=\[)-?[0-9]+(?=[,\]])|(?<=, )-?[0-9]+(?=[,\]]))")
_NAMES = regex(r"%[^\s,]+(?:, %[^\s,]+)*")
_NUMBER = regex(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(slots=True, frozen=True)
class Plan:
    """What statements that are alike make of operands of certain types. An operand is the number of a hole, or a literal."""

    defn: OpDef
    operands: tuple[int | Literal, ...]
    attrs: tuple[Any, ...]
    types: tuple[Type, ...]


@dataclass(slots=True)
class Usual:
    """The usual statements of a text, by the place where a run is taken out, and their plans, by the text between the holes and
    the types of what is in these."""

    runs: dict[int, list[re.Match[str]]] = field(default_factory=dict)
    plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)

    def first(self, s: Statement | Lines) -> Loc:
        """The place of a statement, or of the first that was taken."""
        return s.loc if isinstance(s, Statement) else pack(s.start, self.runs[s.taken][0].end("types"))


def scan(text: str) -> tuple[File, Usual] | None:
    """What `text` says, runs of usual statements apart; None when the grammar must read it whole."""
    if TAKEN in text:
        return None
    match, found, pieces, done = grammars.lines("pto").match, Usual(), list[str](), 0
    start = recovery.start(text, 0)
    while start is not None:
        run, m = list[re.Match[str]](), match(text, start)
        while m is not None:
            run.append(m)
            m = match(text, m.end())
        if run:  # the results of its first statement stay: they may belong to what is before
            first, end = run[0].start("op"), run[-1].end("types")
            found.runs[first] = run
            pieces += text[done:first], TAKEN * (end - first)
            done = end
        start = recovery.start(text, max(done, start + 1))
    file = parse_piece("".join((*pieces, text[done:])))
    return None if file is None else (file, found)


class LineReader(Reader):
    """Reads one function of statements and runs of usual ones."""

    def __init__(self, diagnostics: Diagnostics, lost: set[str], limits: Limits, found: Usual) -> None:
        super().__init__(diagnostics, lost, limits)
        self.found = found

    def unread(self, statements: list[Statement | Lines], into: Region) -> Iterator[tuple[Statement, bool]]:
        """The statements that are not usual, or about which there is something to report; the ops of all others are added."""
        body = into.body
        for i, s in enumerate(statements):
            last = i == len(statements) - 1
            if isinstance(s, Statement):
                yield s, last
                continue
            run = self.found.runs[s.taken]
            for m in run:
                whole = m is not run[0] or m.start() == s.start  # else some of its results are before what was taken
                if whole and (op := self.usual(m)) is not None:
                    body.append(op)
                else:
                    yield _statement(m, m.start() if whole else s.start), last and m is run[-1]

    def usual(self, m: re.Match[str]) -> Op | None:
        """The op of a statement, its results bound; None when there is something to report, or it ends a block."""
        listed, name, given, types = m.group("results", "op", "given", "types")
        names = listed[1:].split(", %") if listed else []
        if listed and "," in listed and not _NAMES.fullmatch(listed):
            return None
        known = self.values
        if any(n in known for n in names) or (len(names) > 1 and len({*names}) < len(names)):
            return None
        parts = _HOLE.split(given)
        operands = [_operand(before, text, known) for before, text in zip(parts[::2], parts[1::2], strict=False)]
        if None in operands:
            return None
        key = (len(names), name, types, *parts[::2], *[x.type for x in operands if x])
        plan = self.found.plans.get(key)
        if plan is None:
            if (plan := self.plan(m, parts, [x.type for x in operands if x], len(names))) is None:
                return None
            self.found.plans[key] = plan
        start = _start(m)
        op = Op(plan.defn, tuple([operands[x] if isinstance(x, int) else x for x in plan.operands]), plan.attrs)  # type: ignore[misc]
        op.loc = pack(start, m.end("types"))
        op.results = tuple([Value(t, n, op) for t, n in zip(plan.types, names, strict=True)])
        for v in op.results:
            end = start + 1 + len(v.name)
            known[v.name] = (v, pack(start, end))
            start = end + 2
        self.ever.update(names)
        return op

    def plan(self, m: re.Match[str], parts: list[str], operands: list[Type], results: int) -> Plan | None:
        """What a statement makes of operands of these types; None when there is something to report, or one is not an operand of
        the op. The grammar reads it with a name for each, its number."""
        name, given, types = m.group("op", "given", "types")
        if name in TERMINATORS:
            return None
        named = ", ".join(f"%r{k}" for k in range(results)) + " = " * (results > 0)
        filled = "".join(f"{before.removesuffix('%')}%{k}" for k, before in enumerate(parts[:-1:2])) + parts[-1]
        reader, holes = Reader(Diagnostics(), set(), self.limits), {Value(t, str(k)): k for k, t in enumerate(operands)}
        reader.values = {v.name: (v, 0) for v in holes}
        try:
            if short_name(name) == "constant" and _NUMBER.fullmatch(given):
                return _constant(m)
            file = parse_piece(f"{named}{name} {filled} : {types}")
            op = reader.statement(file.statements[0]) if file is not None and isinstance(file.statements[0], Statement) else None
        except Violation:
            return None
        if op is None or reader.diagnostics.items or not holes.keys() <= {*op.operands}:
            return None
        made = tuple([x if isinstance(x, Literal) else holes[x] for x in op.operands])
        return Plan(op.defn, made, op.attrs, tuple(v.type for v in op.results))


def _constant(m: re.Match[str]) -> Plan:
    """The plan of a constant. Raises Violation."""
    listed, given, types = m.group("results", "given", "types")
    if not listed or "," in listed:
        raise Violation("ParseError", "a constant has one result")
    defn = OPS["pto.constant"]
    attrs = defn.fill({"value": literals.scalar(token("NUMBER", given, 0, 0), parse_type(types))})
    return Plan(defn, (), attrs, tuple(defn.result_types((), attrs, ())))


def _operand(before: str, text: str, known: dict[str, tuple[Value, Any]]) -> Value | Literal | None:
    """The value or number in a hole; None for a name that is not defined, and for what is not an index."""
    if before.endswith("%"):
        bound = known.get(text)
        return None if bound is None else bound[0]
    try:
        return literals.index(text)
    except Violation:
        return None


def _start(m: re.Match[str]) -> int:
    """Where a usual statement begins."""
    return m.start("results") if m["results"] else m.start("op")


def _statement(m: re.Match[str], start: int) -> Statement:
    """A usual statement that begins at `start`, as the grammar reads it."""
    file = parse_piece(m.string, start, m.end("types"))
    assert file is not None
    statement = file.statements[0]
    assert isinstance(statement, Statement)
    return statement
