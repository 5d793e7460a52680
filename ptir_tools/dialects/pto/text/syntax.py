"""Text to statements: what the rules of the grammar make, and how reading goes on after a syntax error.

Statements are what the text says, unresolved; `reader` makes ops of them.
"""

from __future__ import annotations

import re
from functools import cache

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc, Source, pack
from ptir_tools.core.typed import Any
from ptir_tools.dialects.pto.text import recovery
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token, located

MAX_ERRORS = 100
_MARK = regex(r'("(?:[^"\\\n]|\\.)*")|\0')  # a NUL outside strings; the parser takes NULs for what the line reader took out


@dataclass(slots=True)
class Operand:
    """An operand as written: a name with its subscripts, a number, a predicate or an attribute."""

    token: Token
    subscripts: list[list[Token]] = field(default_factory=list)


@dataclass(slots=True)
class Entry:
    """`key = value` of an attribute dictionary; a key alone has the value None. A list is a list of tokens."""

    key: Token
    value: Any = None


@dataclass(slots=True)
class Statement:
    """One op as written. `before` and `after` are the type tokens on either side of the signature's arrow."""

    name: Token | str = ""
    results: list[Token] = field(default_factory=list)
    operands: list[Operand] = field(default_factory=list)
    attributes: list[Entry] = field(default_factory=list)
    waits: list[Token] = field(default_factory=list)
    before: list[Token] | None = None
    after: list[Token] | None = None
    symbol: Token | None = None
    induction: Token | None = None
    carried: list[tuple[Token, Operand]] = field(default_factory=list)
    blocks: list[list[Statement | Lines]] = field(default_factory=list)
    parameters: list[tuple[Token, Token]] = field(default_factory=list)  # of the last block
    start: int = 0
    end: int = 0

    @property
    def loc(self) -> Loc:
        return pack(self.start, self.end)


@dataclass(slots=True)
class Lines:
    """Statements that the line reader has taken, from `taken` on."""

    start: int
    taken: int


@dataclass(slots=True)
class FunctionText:
    """A function as written."""

    name: Token
    parameters: list[tuple[Token, Token]]
    results: list[Token]
    attributes: list[Entry]
    body: list[Statement | Lines]
    start: int
    end: int


@dataclass(slots=True)
class File:
    """What a file holds: functions, or a bare list of statements, and the attributes of its module."""

    functions: list[FunctionText] = field(default_factory=list)
    statements: list[Statement | Lines] = field(default_factory=list)
    attributes: list[Entry] = field(default_factory=list)
    lost: set[str] = field(default_factory=set)  # names that statements with syntax errors would have defined


class _Actions(Nodes):
    """What the rules of the grammar make; a rule without a method is a Node, and part of the statement around it."""

    def file(self, items: list[Any]) -> File:
        modules = [x for x in items if isinstance(x, File)]
        functions = [f for m in modules for f in m.functions] + _functions(items)
        statements = [s for m in modules for s in m.statements] + _statements(items)
        return File(functions, statements, [e for m in modules for e in m.attributes])

    def module(self, items: list[Any]) -> File:
        return File(_functions(items), _statements(items), _part(items, "attributes"))

    @located
    def func(self, items: list[Any], start: int, end: int) -> FunctionText:
        name = next(x for x in items if isinstance(x, Token) and x.type == "SYMBOL")
        types, attributes = _part(items, "types"), _part(items, "attributes")
        return FunctionText(name, _part(items, "parameters"), types, attributes, _part(items, "block"), start, end)

    def parameter(self, items: list[Any]) -> tuple[Token, Token]:
        return items[0], items[1]

    @located
    def lines(self, items: list[Any], start: int, end: int) -> Lines:
        return Lines(start, items[-1].start_pos)

    @located
    def op(self, items: list[Any], start: int, end: int) -> Statement:
        name = next(x for x in items if isinstance(x, Token))
        return _statement(items, name, start, end)

    @located
    def call(self, items: list[Any], start: int, end: int) -> Statement:
        made = _statement(items, "func.call", start, end)
        made.symbol = next(x for x in items if isinstance(x, Token) and x.type == "SYMBOL")
        return made

    @located
    def loop(self, items: list[Any], start: int, end: int) -> Statement:
        made = _statement(items, "scf.for", start, end)
        made.induction = next(x for x in items if isinstance(x, Token))
        return made

    @located
    def branch(self, items: list[Any], start: int, end: int) -> Statement:
        made = _statement(items, "scf.if", start, end)
        made.after = made.before
        return made

    @located
    def repeat(self, items: list[Any], start: int, end: int) -> Statement:
        return _statement(items, "scf.while", start, end)

    @located
    def condition(self, items: list[Any], start: int, end: int) -> Statement:
        return _statement(items, "scf.condition", start, end)

    def binding(self, items: list[Any]) -> tuple[Token, Operand]:
        return items[0], items[1]

    def operand(self, items: list[Any]) -> Operand:
        return Operand(items[0], [x.children for x in items[1:]])

    def index(self, items: list[Any]) -> Any:
        return items[0]

    def entry(self, items: list[Any]) -> Entry:
        return Entry(items[0], items[1] if len(items) > 1 else None)

    def number(self, items: list[Any]) -> Any:
        return items[0]

    def elements(self, items: list[Any]) -> list[Any]:
        return items

    def item(self, items: list[Any]) -> Any:
        return items[0]


def _functions(items: list[Any]) -> list[FunctionText]:
    return [x for x in items if isinstance(x, FunctionText)]


def _statements(items: list[Any]) -> list[Statement | Lines]:
    return [x for x in items if isinstance(x, (Statement, Lines))]


def _part(items: list[Any], rule: str) -> list[Any]:
    """What a rule holds that is among `items`."""
    return next((x.children for x in items if isinstance(x, Node) and x.data == rule), [])


def _statement(items: list[Any], name: Token | str, start: int, end: int) -> Statement:
    made = Statement(name, start=start, end=end)
    made.operands = [x for x in items if isinstance(x, Operand)]
    made.carried = [x for x in items if type(x) is tuple]
    for part in items:
        if not isinstance(part, Node):
            continue
        rule, children = part
        if rule == "results":
            made.results = children
        elif rule == "operands":
            made.operands += children
        elif rule == "attributes":
            made.attributes += children
        elif rule == "wait":
            made.waits += children
        elif rule == "types":
            made.before = children
        elif rule == "signature":
            made.before, made.after = children[0].children, children[-1].children if len(children) > 1 else None
        elif rule == "carried":
            *made.carried, types = children
            made.before = types.children
        elif rule == "label":
            made.parameters = _part(children, "parameters")
        elif rule == "block":
            made.blocks.append(children)
    return made


@cache
def _parser() -> Parser:
    return grammars.parser("pto", _Actions())


def parse_piece(text: str, at: int = 0, end: int | None = None) -> File | None:
    """What text[at:end] holds by itself; None when that is not whole statements."""
    try:
        found: File = _parser().parse(text, "file", at=at, end=end)
    except Refused:
        return None
    return found


def parse(source: Source, diagnostics: Diagnostics) -> File | None:
    """The statements of `source`; every syntax error is reported, and the statement that holds it is left out.

    None when nothing can be made of the rest.
    """
    text = _MARK.sub(lambda m: m[1] or "\1", source.text) if "\0" in source.text else source.text
    lost, seen = set[str](), set[int]()
    while len(seen) < MAX_ERRORS:
        try:
            found: File = _parser().parse(text, "file")
        except Refused:
            error: Any = grammars.refused("pto", text, "file")
            at = len(text) if error.pos_in_stream is None or recovery.at_end(error) else error.pos_in_stream
            again = at in seen
            if not again:
                recovery.report(error, diagnostics, at)
            seen.add(at)
            chunk = recovery.broken(text, at, again)
            if chunk is None:
                return None
            start, end = chunk
            if (names := recovery.DEFINED.match(text, start, end)) is not None:
                lost.update(re.findall(r"%([\w$.-]+)", names[1]))
            text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
        else:
            found.lost = lost
            return found
    return None
