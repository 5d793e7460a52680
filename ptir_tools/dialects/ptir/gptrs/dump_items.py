"""The grammar's side of reading gpt.rs's dump: grammars/ptir_dump.lark, and the plain values it makes of payloads."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache

from ptir_tools import grammars
from ptir_tools.core import decimals
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.source import Loc, pack
from ptir_tools.core.typed import Any, Protocol
from ptir_tools.core.types import Dim, TensorType, Type, sym, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.gptrs import debug
from ptir_tools.dialects.ptir.gptrs.serde import Malformed, read_dtype
from ptir_tools.dialects.ptir.text.spelling import unquote
from ptir_tools.grammars.parser import Parser, Refused, Token

NAMES = {
    "VALUE": "a value", "WORD": "a word", "NUMBER": "a number", "TENSOR": "a type", "TUPLE": "a tuple type",
    "STRING": "a string", "REGION": "a region", "FUNC": "a function name", "SECTION": "a section", "USES": "a section",
    "INTEGERS": "an array", "PARAMETER": "a value", "LITERAL": "a literal", "SHAPE": "a shape",
}  # fmt: skip

_ENDED = regex(r"x[0-9?]|$")
_DIM = regex(r"(?:([0-9]+)|\?(.+?))(?=x[0-9?]|$)")


class Sink(Protocol):
    """What takes the items of a dump."""

    def open_program(self, name: str, version: str, at: Loc) -> None: ...
    def open_function(self, name: str, at: Loc) -> None: ...
    def open_region(self, name: str, at: Loc) -> None: ...
    def section(self, name: str, at: Loc) -> None: ...
    def declare(self, name: str, t: Type, at: Loc) -> None: ...
    def instruction(self, name: str, operation: object, operands: list[object], t: Type, at: Loc) -> None: ...
    def open_hint(self, ident: int, kind: str, policy: str, at: Loc) -> None: ...
    def uses(self, which: str, names: list[str], at: Loc) -> None: ...
    def hint_attr(self, key: str, value: object, at: Loc) -> None: ...
    def close(self, at: Loc) -> None: ...


def parse(sink: Sink, diagnostics: Diagnostics, text: str, offset: int) -> bool:
    """Give the items of `text`, which is at `offset` of the source, to `sink`; False after a syntax error."""
    items, parser = _parser()
    items.sink, items.offset = sink, offset
    try:
        parser.parse(text, "items")
    except Refused:
        error = grammars.refused("ptir_dump", text, "items")
        grammars.report("ptir_dump", error, diagnostics, "SyntaxError", NAMES, offset=offset)
        return False
    except Malformed as bad:
        violation = Violation(bad.code, bad.message, help=bad.help, at=bad.wrong, instead=bad.meant)
        diagnostics.violation(violation, pack(offset, offset + len(text)))
        return False
    return True


def parse_operation(text: str) -> object:
    """The plain value of an operation's text, or None when it is none; memory of it is the caller's. Raises Malformed."""
    try:
        return _parser()[1].parse(text, "operation")
    except Refused:
        return None


@cache
def _parser() -> tuple[_Items, Parser]:
    return (items := _Items()), grammars.parser("ptir_dump", items)


class _Items:
    """The grammar's transformer: its methods are called like the rules, bottom up."""

    sink: Sink
    offset: int

    def at(self, first: Token, last: Token) -> Loc:
        return pack(self.offset + first.start_pos, self.offset + last.end_pos)

    def items(self, children: list[Any]) -> None:
        """Everything has been given away."""

    # ---- items

    def program(self, children: list[Token]) -> None:
        self.sink.open_program(str(children[1])[1:], str(children[2]), self.at(children[0], children[-1]))

    def function(self, children: list[Token]) -> None:
        self.sink.open_function(str(children[1])[1:], self.at(children[0], children[-1]))

    def region(self, children: list[Token]) -> None:
        self.sink.open_region(str(children[1])[1:], self.at(children[0], children[-1]))

    def section(self, children: list[Token]) -> None:
        self.sink.section(str(children[0])[:-1], self.at(children[0], children[0]))

    def declaration(self, children: list[Any]) -> None:
        name, (t, last) = children
        self.sink.declare(str(name)[1:], t, self.at(name, last))

    def instruction(self, children: list[Any]) -> None:
        name, word, *rest, (t, last) = children
        payload = [x for kind, x in rest if kind == "payload"]
        operands = [x for kind, x in rest if kind == "operands"]
        operation = self.operation([word, *(("payload", x) for x in payload)])
        self.sink.instruction(str(name)[1:], operation, operands[0] if operands else [], t, self.at(name, last))

    def hint(self, children: list[Token]) -> None:
        keyword, ident, kind, policy, last = children
        self.sink.open_hint(_natural(ident), str(kind), str(policy), self.at(keyword, last))

    def uses(self, children: list[Token]) -> None:
        which, *names = children
        self.sink.uses(str(which)[:-1], [str(n)[1:] for n in names], self.at(which, children[-1]))

    def hint_attr(self, children: list[Any]) -> None:
        self.sink.hint_attr(str(children[0]), debug.attr_value(children[1]), self.at(children[0], children[0]))

    def close(self, children: list[Token]) -> None:
        self.sink.close(self.at(children[0], children[0]))

    # ---- types and operands

    def tensor(self, children: list[Token]) -> tuple[Type, Token]:
        return read_tensor(str(children[0])), children[0]

    def tuple_type(self, children: list[Any]) -> tuple[Type, Token]:
        *parts, last = children
        return tuple_of([t for t, _ in parts]), last

    def operands(self, children: list[object]) -> tuple[str, list[Any]]:
        return "operands", children

    def operand(self, children: list[Token]) -> tuple[str, int | None]:
        return str(children[0])[1:], _natural(children[1]) if len(children) > 1 else None

    def literal(self, children: list[Token]) -> TensorType:
        return tensor(read_dtype(str(children[0])), read_dims(str(children[1]).removeprefix("shape=")))

    # ---- payloads

    def operation(self, children: list[Any]) -> object:
        word, *payload = children
        return {str(word): payload[0][1]} if payload else str(word)

    def payload(self, children: list[object]) -> tuple[str, object]:
        return "payload", children[0]

    def fields(self, children: list[Any]) -> tuple[str, object]:
        """Of an operation that is a struct itself, as the contract writes LayerNorm."""
        return "payload", _members(children)

    def number(self, children: list[Token]) -> int | float:
        text = str(children[0])
        try:
            return integer(text) if text.lstrip("-").isdigit() else float(decimals.read(text))
        except OverflowError as error:
            raise Malformed(str(error), code="InvalidAttributeValue") from None

    def string(self, children: list[Token]) -> str:
        return unquote(str(children[0]))

    def integers(self, children: list[Token]) -> list[int]:
        return list(map(integer, str(children[0])[1:-1].split(",")))

    def unit(self, children: list[Token]) -> Any:
        return debug.unit(str(children[0]))

    def variant(self, children: list[object]) -> object:
        return debug.variant(str(children[0]), children[1:])

    def struct(self, children: list[Any]) -> Any:
        return debug.struct(str(children[0]), _members(children[1:]))

    def member(self, children: list[object]) -> tuple[str, object]:
        return str(children[0]), children[1]

    def list(self, children: Any) -> Any:
        return children

    def map(self, children: Any) -> Any:
        return _members(children)

    def entry(self, children: Any) -> Any:
        return unquote(str(children[0])), debug.attr_value(children[1])


def _members(pairs: list[tuple[str, Any]]) -> dict[str, object]:
    """The members of a struct or map by name. Raises Malformed when one is given twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Malformed(f"`{twice}` is given twice", code="DuplicateAttribute", help="keep one of the two")
    return found


def _natural(token: Token) -> int:
    """A number that counts; another one is out of every range."""
    return integer(token) if token.isdigit() else -1


def read_tensor(text: str) -> TensorType:
    """The type printed `tensor<F32 x 2x?N>`. Raises Malformed."""
    dtype, _, dims = text[7:-1].partition(" x ")
    return tensor(read_dtype(dtype), read_dims(dims))


def read_dims(text: str, names: Collection[str] = ()) -> list[Dim]:
    """Extents as the dump prints them: `2x?Nx4`, `[]`. A symbol is the longest of `names` that can stand there, else it ends
    at the first x that a digit or `?` follows. Raises Malformed."""
    if text == "[]":
        return []
    dims: list[Dim] = []
    at = 0
    while True:
        m = _DIM.match(text, at)
        if m is None:
            raise Malformed(f"`{text}` is not a shape")
        symbol = _longest(text, at + 1, names) or m[2] if m[2] else None
        dims.append(sym(symbol) if symbol else integer(m[1]))
        at = at + 1 + len(symbol) if symbol else m.end()
        if at == len(text):
            return dims
        at += 1


def _longest(text: str, at: int, names: Collection[str]) -> str | None:
    """The longest of `names` that is in `text` at `at` and may end there."""
    return max((n for n in names if text.startswith(n, at) and _ENDED.match(text, at + len(n))), key=len, default=None)
