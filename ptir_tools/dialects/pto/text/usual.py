"""From usual statements to ops: the first of a kind is read as a statement, the others are made like it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ptir_tools.core.diagnostics import Diagnostics, Violation
from ptir_tools.core.ir import Literal, Op, OpDef, Region, Value
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.types import Type
from ptir_tools.dialects.pto.text import literals
from ptir_tools.dialects.pto.text.lines import Line
from ptir_tools.dialects.pto.text.reader import Reader
from ptir_tools.dialects.pto.text.syntax import Statement

if TYPE_CHECKING:
    from ptir_tools.grammars.parser import Token


@dataclass(slots=True, frozen=True)
class Plan:
    """What statements of one skeleton make of operands of certain types. An operand is the number of an operand hole, or a
    literal."""

    defn: OpDef
    operands: tuple[int | Literal, ...]
    attrs: tuple[Any, ...]
    types: tuple[Type, ...]


class LineReader(Reader):
    """Reads one function of statements and lines."""

    def unread(self, statements: list[Any], into: Region) -> Iterator[tuple[Statement, bool]]:
        body = into.body
        for i, s in enumerate(statements):
            if not isinstance(s, Line):
                yield s, i == len(statements) - 1
            elif (op := self.usual(s)) is not None:
                body.append(op)
            else:
                yield s.statement(), i == len(statements) - 1

    def usual(self, line: Line) -> Op | None:
        """The op of a line, its results bound; None when it must be read as a statement, or there is something to report."""
        skeleton, names, known = line.skeleton, line.parts[1::2], self.names
        found: list[Value | Literal] = []
        for k in skeleton.operands:
            text = names[k]
            x = _value(text, known) if text[0] == "%" else _number(text)
            if x is None:
                return None
            found.append(x)
        results = [name[1:] for name in names[: skeleton.results]]
        if any(name in known for name in results) or len({*results}) < len(results):
            return None
        key = (*[names[k] for k in skeleton.fixed], *[x.type for x in found])
        if (plan := skeleton.plans.get(key)) is None:
            if (plan := self.plan(line, found)) is None:
                return None
            skeleton.plans[key] = plan
        operands = tuple([found[x] if isinstance(x, int) else x for x in plan.operands])
        op = Op(plan.defn, operands, plan.attrs, (), (), line.loc)
        op.results = tuple([Value(t, name, op) for t, name in zip(plan.types, results, strict=True)])
        at = line.start
        for k, v in enumerate(op.results):
            at += len(line.parts[2 * k])
            known[v.name] = (v, pack(at, at := at + len(names[k])))
        self.visible += results
        self.ever.update(results)
        return op

    def plan(self, line: Line, found: list[Value | Literal]) -> Plan | None:
        """What a line makes of operands of the types of `found`; None when there is something to report."""
        ends = list(accumulate(map(len, line.parts), initial=line.start))[2::2]
        stand_ins = {ends[k]: Value(x.type) for k, x in zip(line.skeleton.operands, found, strict=True)}
        quiet = Diagnostics()
        try:
            op = _StandIns(self, quiet, stand_ins).statement(line.statement())
        except Violation:
            return None
        if op is None or quiet.items:
            return None
        numbers: dict[object, int] = {id(v): k for k, v in enumerate(stand_ins.values())}
        operands = tuple([x if isinstance(x, Literal) else numbers[id(x)] for x in op.operands])
        return Plan(op.defn, operands, op.attrs, tuple(v.type for v in op.results))


class _StandIns(Reader):
    """Reads one statement whose operands are given, by where they end in the text."""

    def __init__(self, outer: Reader, diagnostics: Diagnostics, given: dict[int, Value]) -> None:
        super().__init__(diagnostics, set(), outer.limits)
        self.given = given

    def use(self, token: Token) -> Value:
        return self.given[token.end_pos or 0]

    def operand(self, token: Token) -> Value | Literal:
        found = self.given.get(token.end_pos or 0)
        return literals.index(token) if found is None else found


def _value(text: str, known: dict[str, tuple[Value, Loc]]) -> Value | None:
    """The value that a name stands for; None for one that is not defined."""
    bound = known.get(text[1:])
    return None if bound is None else bound[0]


def _number(text: str) -> Literal | None:
    """A number as an operand; None for what is no index."""
    try:
        return literals.index(text)
    except Violation:
        return None
