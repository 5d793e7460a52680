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
from ptir_tools.core.typed import Any, TypeVar
from ptir_tools.dialects.pto.text import recovery
from ptir_tools.grammars.parser import Parser, Refused, Token, located

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


@dataclass(slots=True)
class _Block:
    statements: list[Statement | Lines]


@dataclass(slots=True)
class _Part:
    """A clause of a statement, until the statement is put together."""

    field: str
    value: Any


T = TypeVar("T")


def _all(kind: type[T], items: list[object]) -> list[T]:
    return [x for x in items if isinstance(x, kind)]


def _statements(items: list[object]) -> list[Statement | Lines]:
    return [x for x in items if isinstance(x, (Statement, Lines))]


def _tokens(items: list[object], kind: str) -> list[Token]:
    return [x for x in items if isinstance(x, Token) and x.type == kind]


class _Transform:
    """One method per rule of the grammar, called with its children when the rule is complete."""

    def file(self, items: list[object]) -> File:
        found = File()
        for x in items:
            if isinstance(x, File):
                found.functions += x.functions
                found.statements += x.statements
                found.attributes += x.attributes
        found.functions += _all(FunctionText, items)
        found.statements += _statements(items)
        return found

    def module(self, items: list[object]) -> File:
        entries = [e for part in _all(_Part, items) for e in part.value]
        return File(_all(FunctionText, items), _statements(items), entries)

    @located
    def func(self, items: list[object], start: int, end: int) -> FunctionText:
        by = {p.field: p.value for p in _all(_Part, items)}
        name = _tokens(items, "SYMBOL")[0]
        body = _all(_Block, items)[0].statements
        return FunctionText(name, by.get("parameters", []), by.get("types", []), by.get("attributes", []), body, start, end)

    def parameters(self, items: list[Any]) -> _Part:
        return _Part("parameters", items)

    def parameter(self, items: list[object]) -> tuple[Any, Any]:
        return items[0], items[1]

    def block(self, items: list[Any]) -> _Block:
        return _Block(items)

    @located
    def op(self, items: list[Any], start: int, end: int) -> Statement:
        return _statement(items, _tokens(items, "NAME")[0], start, end)

    @located
    def lines(self, items: list[Any], start: int, end: int) -> Lines:
        return Lines(start, items[-1].start_pos)

    @located
    def call(self, items: list[object], start: int, end: int) -> Statement:
        made = _statement(items, "func.call", start, end)
        made.symbol = _tokens(items, "SYMBOL")[0]
        return made

    @located
    def scf_for(self, items: list[object], start: int, end: int) -> Statement:
        made = _statement(items, "scf.for", start, end)
        made.induction = _tokens(items, "SSA")[0]
        made.operands = _all(Operand, items)
        return made

    @located
    def scf_if(self, items: list[object], start: int, end: int) -> Statement:
        made = _statement(items, "scf.if", start, end)
        made.operands = _all(Operand, items)
        made.after = made.before
        return made

    @located
    def scf_while(self, items: list[object], start: int, end: int) -> Statement:
        made = _statement(items, "scf.while", start, end)
        made.carried = _all(tuple, items)
        return made

    def label(self, items: list[object]) -> _Part:
        return next(iter(_all(_Part, items)), _Part("parameters", []))

    @located
    def condition(self, items: list[object], start: int, end: int) -> Statement:
        made = _statement(items, "scf.condition", start, end)
        made.operands = [*_all(Operand, items), *made.operands]
        return made

    def carried(self, items: list[object]) -> _Part:
        return _Part("carried", items)

    def binding(self, items: list[object]) -> tuple[object, object]:
        return items[0], items[1]

    def results(self, items: list[Any]) -> _Part:
        return _Part("results", items)

    def operands(self, items: list[object]) -> _Part:
        return _Part("operands", items)

    def operand(self, items: list[Any]) -> Operand:
        return Operand(items[0], items[1:])

    def subscript(self, items: list[object]) -> list[object]:
        return items

    def index(self, items: list[Any]) -> Any:
        return items[0]

    def wait(self, items: list[object]) -> _Part:
        return _Part("waits", items)

    def signature(self, items: list[object]) -> _Part:
        lists = [p.value for p in _all(_Part, items) if p.field == "types"]
        return _Part("signature", (lists[0], lists[1] if len(lists) > 1 else None))

    def arrow(self, items: list[object]) -> None:
        return None

    def types(self, items: list[object]) -> _Part:
        return _Part("types", items)

    def attributes(self, items: list[object]) -> _Part:
        return _Part("attributes", items)

    def entry(self, items: list[Any]) -> Entry:
        return Entry(items[0], items[1] if len(items) > 1 else None)

    def number(self, items: list[object]) -> Any:
        return items[0]

    def values(self, items: list[Any]) -> list[Any]:
        return items

    def item(self, items: list[Any]) -> Any:
        return items[0]


def _statement(items: list[object], name: Token | str, start: int, end: int) -> Statement:
    made = Statement(name, start=start, end=end)
    for part in _all(_Part, items):
        if part.field == "signature":
            made.before, made.after = part.value
        elif part.field == "types":
            made.before = part.value
        elif part.field == "carried":
            *pairs, types = part.value
            made.carried, made.before = pairs, types.value
        elif part.field in ("attributes", "waits"):
            getattr(made, part.field).extend(part.value)
        else:
            setattr(made, part.field, part.value)
    made.blocks = [b.statements for b in _all(_Block, items)]
    return made


# Rules that Python's own words are the names of.
_KEYWORDS = {"for": _Transform.scf_for, "if": _Transform.scf_if, "while": _Transform.scf_while, "list": _Transform.values}
for _rule, _method in _KEYWORDS.items():
    setattr(_Transform, _rule, _method)


@cache
def _parser() -> Parser:
    return grammars.parser("pto", _Transform())


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
