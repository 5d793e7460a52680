"""The fast path of the reader. The line reader takes runs of statements in their usual form out of a text, and the grammar parses
the rest. One statement of each skeleton, its text without names and indices, is read by the grammar, too: as the plan of all."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from ptir_tools import grammars
from ptir_tools.core.declare import OPS
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.ir import Literal, Op, OpDef, Operand, Region, Value
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
    from ptir_tools.grammars.parser import Token

TAKEN = "\0"  # in place of what the line reader has taken
# What differs between statements of one skeleton: a name without its `%`, a number in a list.
_HOLE = regex(r"((?<=%)[A-Za-z0-9_$.-]+(?:#\d+)?|(?<=\[)-?[0-9]+(?=[,\]])|(?<=, )-?[0-9]+(?=[,\]]))")
_NAMES = regex(r"%[^\s,]+(?:, %[^\s,]+)*")
_NUMBER = regex(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(slots=True, frozen=True)
class Plan:
    """What statements of one skeleton make of operands of certain types. An operand is the number of an operand hole, or a
    literal."""

    defn: OpDef
    operands: tuple[int | Literal, ...]
    attrs: tuple[Any, ...]
    types: tuple[Type, ...]


@dataclass(slots=True)
class Skeleton:
    """Which holes are operands, and the plans by the texts of all others and the types of operands."""

    operands: tuple[int, ...]
    fixed: tuple[int, ...]
    plans: dict[tuple[object, ...], Plan] = field(default_factory=dict)


@dataclass(slots=True)
class Usual:
    """The usual statements of a text, by the place where a run is taken out, and their skeletons."""

    runs: dict[int, list[re.Match[str]]] = field(default_factory=dict)
    skeletons: dict[tuple[str, ...], Skeleton] = field(default_factory=dict)

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
        known = self.names
        if any(n in known for n in names) or (len(names) > 1 and len({*names}) < len(names)):
            return None
        parts = _HOLE.split(given)
        kind, holes = (listed and str(len(names)), name, types, *parts[::2]), parts[1::2]
        skeleton = self.found.skeletons.get(kind)
        if skeleton is None and (skeleton := self.skeleton(m, parts, kind)) is None:
            return None
        operands: list[Value | Literal] = []
        for k in skeleton.operands:
            x = _operand(parts, k, known)
            if x is None:
                return None
            operands.append(x)
        key = (*[holes[k] for k in skeleton.fixed], *[x.type for x in operands])
        plan = skeleton.plans.get(key)
        if plan is None:
            if (plan := self.plan(m, parts, skeleton, operands)) is None:
                return None
            skeleton.plans[key] = plan
        start = _start(m)
        op = Op(plan.defn, tuple([operands[x] if isinstance(x, int) else x for x in plan.operands]), plan.attrs)
        op.loc = pack(start, m.end("types"))
        op.results = tuple([Value(t, n, op) for t, n in zip(plan.types, names, strict=True)])
        for v in op.results:
            end = start + 1 + len(v.name)
            known[v.name] = (v, pack(start, end))
            start = end + 2
        self.visible += names
        self.ever.update(names)
        return op

    def skeleton(self, m: re.Match[str], parts: list[str], kind: tuple[str, ...]) -> Skeleton | None:
        """The skeleton of a statement; None when there is something to report of it."""
        candidates = {k: x for k in range(len(parts) // 2) if (x := _operand(parts, k, self.names)) is not None}
        if (made := self.planned(m, parts, candidates)) is None:
            return None
        _, used = made
        skeleton = Skeleton(used, tuple(k for k in range(len(parts) // 2) if k not in used))
        self.found.skeletons[kind] = skeleton
        return skeleton

    def plan(self, m: re.Match[str], parts: list[str], skeleton: Skeleton, operands: list[Value | Literal]) -> Plan | None:
        """What a statement makes of operands of these types; None when there is something to report."""
        made = self.planned(m, parts, dict(zip(skeleton.operands, operands, strict=True)))
        return None if made is None else made[0]

    def planned(
        self, m: re.Match[str], parts: list[str], operands: dict[int, Value | Literal]
    ) -> tuple[Plan, tuple[int, ...]] | None:
        """A plan, and the holes that are operands; None when there is something to report."""
        name, given = m.group("op", "given")
        if name in TERMINATORS:
            return None
        try:
            if short_name(name) == "constant" and _NUMBER.fullmatch(given):
                return _constant(m), ()
            ends = list(accumulate(map(len, parts), initial=m.start("given")))[2::2]
            quiet, reader_of = Diagnostics(), {ends[k]: (k, Value(x.type)) for k, x in operands.items()}
            reader = _StandIns(self, quiet, reader_of)
            op = reader.statement(_statement(m, _start(m)))
        except Violation:
            return None
        if op is None or quiet.items:
            return None
        used = tuple(sorted(reader.used))
        numbers: dict[object, int] = {id(reader_of[ends[k]][1]): i for i, k in enumerate(used)}
        made = tuple([x if isinstance(x, Literal) else numbers[id(x)] for x in op.operands])
        return Plan(op.defn, made, op.attrs, tuple(v.type for v in op.results)), used


class _StandIns(Reader):
    """Reads one statement whose operands are given, by where they end in the text, with their numbers; `used` are the numbers of
    those that it has."""

    def __init__(self, outer: Reader, diagnostics: Diagnostics, given: dict[int, tuple[int, Value]]) -> None:
        super().__init__(diagnostics, set(), outer.limits)
        self.given = given
        self.used: set[int] = set()

    def use(self, token: Token) -> Value:
        """The operand at a place. Raises Violation for a name that is not defined."""
        if (found := self.given.get(token.end_pos)) is None:
            raise Violation("UndefinedValue", f"{token} is not defined")
        self.used.add(found[0])
        return found[1]

    def operand(self, token: Token) -> Operand:
        """The operand at a place, or a number."""
        return literals.index(token) if token.type != "SSA" and token.end_pos not in self.given else self.use(token)


def _constant(m: re.Match[str]) -> Plan:
    """The plan of a constant. Raises Violation."""
    listed, given, types = m.group("results", "given", "types")
    if not listed or "," in listed:
        raise Violation("ParseError", "a constant has one result")
    defn = OPS["pto.constant"]
    attrs = defn.fill({"value": literals.scalar(token("NUMBER", given, 0, 0), parse_type(types))})
    return Plan(defn, (), attrs, tuple(defn.result_types((), attrs, ())))


def _operand(parts: list[str], hole: int, known: dict[str, tuple[Value, Any]]) -> Value | Literal | None:
    """The value or number in a hole; None for a name that is not defined, and for what is not an index."""
    text = parts[2 * hole + 1]
    if parts[2 * hole].endswith("%"):
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
