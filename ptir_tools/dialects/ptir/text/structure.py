"""The grammar's side of reading text PTIR: what the rules of grammars/ptir.lark make."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.dtypes import F32
from ptir_tools.core.ir import Operand
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import integer
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Loc, Span
from ptir_tools.core.spelling import nearest
from ptir_tools.core.typed import Any
from ptir_tools.core.types import POISON, Type, tensor, tuple_of
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.text.assembly import CODES, Assembly
from ptir_tools.dialects.ptir.text.attributes import FROM_RESULT, Filling
from ptir_tools.dialects.ptir.text.forms import Call, Items, Payload, Plain, atom
from ptir_tools.dialects.ptir.text.spelling import read_tensor, unquote
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token

# Terminals in the words of a diagnostic.
NAMES = {
    "VALUE": "a value", "WORD": "a word", "NUMBER": "a number", "TENSOR": "a type", "TUPLE": "a tuple type", "DENSE": "a literal",
    "REGION": "a region", "SYMBOL": "a symbol", "STRING": "a string", "FUNC": "a function name", "FUNCTION_KEYWORD": "`func`",
}  # fmt: skip


class Ended(Exception):
    """Everything that was opened is closed."""


def parse(assembly: Assembly, start: int, end: int) -> tuple[int, bool]:
    """Read text[start:end], whole items, into `assembly`, up to the brace that closes the last that is open.

    Returns where what was read ends, and whether an item with a syntax error follows, which is reported.
    """
    text = assembly.source.text[start:end]
    grammars.check_depth(text, assembly.limits)
    items, parser = _parser()
    items.assembly, items.whole = assembly, start
    try:
        parser.parse(assembly.source.text, "items", keep=True, at=start, end=end)
    except Ended:
        return items.whole, False
    except Refused:
        error = grammars.refused("ptir", text[items.whole - start :], "items")
        last = start + len(text.rstrip()) if end < len(assembly.source.text) else None
        if not _usual_mistake(assembly, items.whole, start + len(text.rstrip()), error):
            found = assembly.diagnostics
            grammars.report("ptir", error, found, CODES.syntax, NAMES, offset=items.whole, end=last, help=_help(error))
        return items.whole, True
    return end, False


def attributes(text: str) -> list[tuple[str, list[Plain]]] | None:
    """The names and values of attributes; None when there is something to report of them."""
    try:
        return _given(_values().parse(text, "attributes").children)
    except (Refused, Violation):
        return None


def type_of(text: str) -> Type | None:
    """The type in a text; None when there is something to report of it."""
    try:
        found: _Typed = _values().parse(text, "type")
    except (Refused, Violation):
        return None
    return found.type


@cache
def _parser() -> tuple[_Items, Parser]:
    return (items := _Items()), grammars.parser("ptir", items)


@cache
def _values() -> Parser:
    return grammars.parser("ptir", _Values())


# Mistakes that people make, as they are found in the text of an item around the place where the grammar gave up: what is
# right before that place, what is there, the message, and what to write instead of the latter.
_MISTAKES = [
    (r"\A\s*return\b[^\n]*\Z", r":[^\n]*", "`return` lists values, without their types", ""),
    (r"=\s*\Z", r"\"([\w.]+)\"(?=\s*\()", "the name of an operation has no quotes", r"\1"),
    (r"[\])%\w]\s*\Z", r":(?=\s*[Tt]ensor\s*<)", "a result type follows `->`", "->"),
    (r"[\])%\w]\s*\Z", r"=>(?=\s*[Tt]ensor\s*<)", "a result type follows `->`", "->"),
    (r"[\])]\s*\Z", r"(?=[Tt]ensor\s*<)", "`->` is missing before the result type", "-> "),
    (r"\A\s*(?:func|region)\b[^{]*[(,]\s*%[\w.$]+\s*\Z", r"(?=[Tt]ensor\s*<)", "`:` is missing before the type", ": "),
    (r"\w\s*=\Z", r"=", "a name and its operation are joined by one `=`", ""),
    (r"", r";", "statements need no semicolon", ""),
    (r"\w\[[^\[\]]*\Z", r"x(?=[\d?])", "extents in brackets are separated by commas", ", "),
    (r"\w\s*\Z", r"=\s*(?=\[)", "an attribute is written name[value], without `=`", ""),
    (r"[\s,]\Z", r"#([^\n]*)", "a comment begins with //", r"//\1"),
    (r"\A", r"#([^\n]*)", "a comment begins with //", r"//\1"),
    (r"\A", r"ret\b", "a function ends with `return`", "return"),
]
_BRACKETED = regex(r"([a-z]\w*)\[([\d?\w\s,]*)\]")  # a type as Python's array libraries show it
# The same for what begins before that place: the text of the item from its beginning, in groups (before, wrong).
_BROKEN = [
    (r"([\s\S]*[\])])(\s+)[Tt]ensor\s*\Z", "`->` is missing before the result type", " -> "),
    (r"([\s\S]*?\(\s*%[^()]*[\w\]])()\s*\Z", "`)` is missing after the operands", ")"),
]


def _usual_mistake(assembly: Assembly, start: int, end: int, error: object) -> bool:
    """Report a mistake that people make, in their words, with its edit; False when it is another."""
    text = assembly.source.text
    token = getattr(error, "token", None)
    at = end if token is not None and token.type == "$END" else start + (getattr(error, "pos_in_stream", None) or 0)
    if token is not None and token.type != "$END":
        at = start + (token.start_pos or 0)
    before, expected = (
        text[start:at].rstrip("\n"),
        {*(getattr(error, "accepts", None) or ()), *(getattr(error, "expected", None) or ())},
    )
    if at == end and "__ANON_0" in expected and "EQUAL" not in expected and re.search(r"=\s*\w+\s*\(.*[)\]]\s*\Z", before):
        implied, last = _implied_type(assembly, before), Span(max(start, end - 1), end)
        help = f"write `-> {implied}`" if implied else "a statement ends with its result type: -> tensor<f32, 4>"
        fix = Fix(Span(end, end), f" -> {implied}") if implied else None
        assembly.error(CODES.syntax, "`->` and the result type are missing", last, help=help, fix=fix)
        return True
    for left, wrong, message, instead in _MISTAKES:
        found = re.compile(wrong).match(text, at)
        if found is not None and found.end() <= end and re.search(left, before):
            return _mistaken(assembly, message, Span(*found.span()), found.expand(instead))
    if before.endswith("dense") and (value := re.compile(r"<[^<>:\n]*[^<>:\s](?=\s*:)").match(text, at)) is not None:
        return _mistaken(assembly, "`>` is missing at the end of the value", Span(value.end(), value.end()), ">")
    if text.startswith("->", at) or text.startswith("<", at):
        for pattern, message, instead in _BROKEN:
            found = re.match(pattern, before)
            if found is not None and (found[2] or "RPAR" in expected):
                return _mistaken(assembly, message, Span(start + found.start(2), start + found.end(2)), instead, at)
    if before.rstrip(" \t")[-1:].isalnum() and text.startswith("%", at) and "COMMA" in expected:
        place = start + len(before.rstrip())
        return _mistaken(assembly, "`,` is missing between two operands", Span(place, place), ",", at)
    if re.search(r"\[[^\[\]]*\w\s+\Z", before) and re.match(r"-?\d|\?", text[at : at + 2]) and "COMMA" in expected:
        place = start + len(before.rstrip())
        return _mistaken(assembly, "`,` is missing between two entries", Span(place, place), ",", at)
    begun = re.fullmatch(r"\s*(\w+)\s+", before)
    if begun is not None and text.startswith("%", at) and nearest(begun[1], ("return",)):
        span = Span(start + begun.start(1), start + begun.end(1))
        return _mistaken(assembly, f"there is no statement `{begun[1]}`", span, "return")
    if text.startswith("@", at) and (word := re.fullmatch(r"\s*(\w+)\s+", before)) is not None:
        return _mistaken(assembly, "a function begins with `func`", Span(start + word.start(1), start + word.end(1)), "func")
    if (shape := re.compile(r"[Tt]ensor\s*<\s*\w+\s*,\s*(\([\d\s,?\w]*\))\s*>").match(text, at)) is not None:
        extents = "x".join(part.strip() for part in shape[1].strip("()").split(",") if part.strip())
        return _mistaken(assembly, f"`{shape[1]}` is a list of extents", Span(*shape.span(1)), extents)
    if (listed := _BRACKETED.match(text, at)) is not None and re.search(r"(:|->|,|\()\s*\Z", before):
        extents = "x".join(part.strip() for part in listed[2].split(",") if part.strip())
        meant = f"tensor<{listed[1]}, {extents}>" if extents else f"tensor<{listed[1]}>"
        return _mistaken(assembly, f"`{listed[0]}` is not a type", Span(*listed.span()), meant)
    if (opened := re.compile(r"[Tt]ensor\s*<\s*\w+(?:\s*,\s*[\w?]+)?(?![\w?])(?!\s*[>,x(\"?])").match(text, at)) is not None:
        return _mistaken(assembly, "`>` is missing at the end of the type", Span(opened.end(), opened.end()), ">")
    return False


def _implied_type(assembly: Assembly, statement: str) -> Type | None:
    """The type that the type rule of an op gives for a statement without one; None where it alone does not say it."""
    found = grammars.lines("ptir").match(f"{statement.strip()} -> tensor<f32>")
    defn = assembly.ops.get(found["op"]) if found else None
    if found is None or defn is None or defn.regions or defn.short in FROM_RESULT or any(a.kind == "Literal" for a in defn.attrs):
        return None
    listed = found["operands"] or found["bare"]
    operands = [assembly.values.get(name) for name in listed[1:].split(", %")] if listed else []
    known = tuple(x for x in operands if x is not None and x.type is not POISON)
    given = attributes(found["attrs"]) if found["attrs"] else []
    quiet = Filling(Diagnostics(assembly.source), assembly.files)
    filled = None if given is None or len(known) < len(operands) else quiet.attributes(defn, given, known, tensor(F32, ()), 0)
    try:
        types = defn.result_types(tuple(x.type for x in known), filled[0]) if filled else ()
    except Violation:
        return None
    return types[0] if len(types) == 1 and types[0] is not POISON else None


def _mistaken(assembly: Assembly, message: str, span: Span, instead: str, at: int | None = None) -> bool:
    shown = span if span.end > span.start and at is None else Span(at or span.start, (at or span.start) + 1)
    if at is not None and (tensor := re.search(r"[Tt]ensor\s*\Z", assembly.source.text[:at])) and ">" in instead:
        shown = Span(tensor.start(), tensor.start() + 6)
    done = f"write `{instead.strip()}`" if instead.strip() else "drop it"
    assembly.error(CODES.syntax, message, shown, help=done, fix=Fix(span, instead))
    return True


def _help(error: object) -> str | None:
    """What to write instead of other mistakes."""
    found = str(getattr(error, "token", "")) or str(getattr(error, "char", ""))
    expected = getattr(error, "accepts", None) or getattr(error, "expected", None) or ()
    if "__ANON_0" in expected and "EQUAL" not in expected and getattr(getattr(error, "token", None), "type", "") == "$END":
        return "a statement ends with its result type: -> tensor<f32, 4>"
    if found == "%":
        return "a name follows the %"
    if found == "{" and "WORD" in expected:
        return "attributes are written name[value]"
    return None


@dataclass(slots=True, frozen=True)
class _Typed:
    """A type with its last token; `type` None is in error. `listed` are the parts of a type in parentheses, which is the
    result list in a header."""

    type: Type | None
    last: Token
    listed: tuple[Type | None, ...]


@dataclass(slots=True, frozen=True)
class _Operand:
    """A name with an index, or a payload with its type."""

    name: str
    index: int | None
    last: Token
    type: Type | None = None
    is_literal: bool = False


@dataclass(slots=True, frozen=True)
class _Label:
    """The name of a result; None when it is in error."""

    name: str | None
    last: Token


class _Items(Nodes):
    """What the rules of the grammar make; an item is given to the assembly, a rule without a method is a Node, and part of it."""

    assembly: Assembly
    whole: int  # where the last whole item ends

    def item(self, first: Token, last: Token) -> Loc:
        """The place of a whole item."""
        self.whole = last.end_pos
        return first.to(last)

    def guarded(self, token: Token, read: Callable[[Token], Any], otherwise: object = None) -> Any:
        """What `read` makes of the token, or `otherwise` after reporting what is wrong with it."""
        try:
            return read(token)
        except Violation as violation:
            self.assembly.violation(violation, token.loc)
            return otherwise

    # ---- types

    def tensor(self, children: list[Token]) -> _Typed:
        t = self.guarded(children[0], read_tensor)
        return _Typed(t, children[0], (t,))

    def parenthesized(self, children: list[Any]) -> _Typed:
        *parts, last = children
        return _Typed(_tuple(parts), last, tuple(p.type for p in parts))

    def tuple_type(self, children: list[Any]) -> _Typed:
        *parts, last = children
        t = _tuple(parts)
        return _Typed(t, last, (t,))

    # ---- headers

    def program(self, children: list[Any]) -> None:
        name = next((_function_name(c) for c in children if getattr(c, "type", "") == "FUNC"), None)
        version = next((str(c.children[-1]) for c in children if isinstance(c, Node)), None)
        self.assembly.open_program(name, version, self.item(children[0], children[-1]))

    def function(self, children: list[Any]) -> None:
        keyword, name, params, results, last = children
        if keyword.type == "FUNCTION_KEYWORD":
            span = Span(keyword.start_pos, keyword.end_pos)
            self.assembly.error(CODES.syntax, "a function begins with `func`", span, help="write func", fix=Fix(span, "func"))
        self.open(self.assembly.open_function, _function_name(name), params, results, self.item(keyword, last))

    def region(self, children: list[Any]) -> None:
        keyword, name, params, results, last = children
        self.open(self.assembly.open_region, str(name)[1:], params, results, self.item(keyword, last))

    def open(self, opener: Callable[..., None], name: str, params: Node, results: _Typed, at: Loc) -> None:
        whole = [(n, t) for n, t in params.children if t is not None]
        opener(name, whole, [] if None in results.listed else results.listed, at)
        self.assembly.damaged = len(whole) < len(params.children) or None in results.listed

    def param(self, children: list[Any]) -> tuple[str, Type | None]:
        return _name(children[0]), children[1].type

    def hint(self, children: list[Any]) -> None:
        keyword, ident, kind, policy, *given, last = children
        at = self.item(keyword, last)
        self.assembly.open_hint(_index(ident), str(kind), str(policy), _given(given), at)

    def close(self, children: list[Token]) -> None:
        self.assembly.close(self.item(children[0], children[0]))
        if self.assembly.ended:
            raise Ended

    # ---- statements

    def name(self, children: list[Token]) -> Token:
        return children[0]

    def statement(self, children: list[Any]) -> None:
        target, op, *arguments, typed = children
        at = self.item(target, typed.last)
        given = _given(x for x in arguments if isinstance(x, Node))
        operands = [self.found(x, at) for x in arguments if isinstance(x, _Operand)]
        whole = tuple(x for x in operands if x is not None)
        t = typed.type if len(whole) == len(operands) else None
        self.assembly.instruction(_name(target), str(op), whole, given, t, at)

    def found(self, x: _Operand, at: Loc) -> Operand | None:
        if not x.is_literal:
            return self.assembly.operand(x.name, x.index, at)
        return None if x.type is None else self.assembly.literal(x.name, x.type, at)

    def returned(self, children: list[Any]) -> None:
        keyword, *operands = children
        last = operands[-1] if operands else keyword
        at = self.item(keyword, getattr(last, "last", last))
        labels = dict(enumerate(x for x in operands if x is not None))
        results = [(x, labels.get(i + 1)) for i, x in labels.items() if isinstance(x, _Operand)]
        names = [x.name if isinstance(x, _Label) else None for _, x in results]
        self.assembly.returns([self.found(x, at) for x, _ in results], at, names)

    def label(self, children: list[Token]) -> _Label:
        *_, name = children
        return _Label(self.guarded(name, unquote) if name.type == "STRING" else str(name), name)

    def operand(self, children: list[Token]) -> _Operand:
        index = _index(children[1]) if len(children) > 1 else None
        return _Operand(_name(children[0]), index, children[-1])

    def bare(self, children: list[Token]) -> _Operand:
        if len(children) > 1:
            message = "an element of a tuple is an operand in parentheses only"
            shown = f"{children[0]}[{children[1]}]"
            self.assembly.error(CODES.syntax, message, children[0].to(children[-1]), help=f"write ({shown})")
            return _Operand("", None, children[-1], None, True)
        return self.operand(children)

    def literal(self, children: list[Token]) -> _Operand:
        dense, typed = children
        return _Operand(_payload(dense), None, typed, self.guarded(typed, read_tensor), True)

    # ---- attributes

    def atom(self, children: list[Token]) -> object:
        return self.guarded(children[0], atom, 0.0)

    def value_name(self, children: list[Token]) -> str:
        return _name(children[0])

    def string(self, children: list[Token]) -> str:
        return str(self.guarded(children[0], unquote, ""))

    def payload(self, children: list[Token]) -> Payload:
        return Payload(_payload(children[0]))

    def list(self, children: list[Any]) -> Any:
        return children

    def group(self, children: Any) -> Any:
        return tuple(children)

    def call(self, children: Any) -> Call:
        return Call(str(children[0]), tuple(children[1:]))

    def entries(self, children: Any) -> Items:
        return Items(tuple(children))

    def entry(self, children: Any) -> Any:
        key, value, *said = children
        name = str(self.guarded(key, unquote, "")) if key.type == "STRING" else str(key)
        return name, value, str(said[0]) if said else None


class _Values(_Items):
    """Types and attributes by themselves; what is wrong with them is raised."""

    def guarded(self, token: Token, read: Callable[[Token], Any], otherwise: object = None) -> Any:
        return read(token)


def _given(attributes: Iterable[Node]) -> list[tuple[str, list[Plain]]]:
    """The names and values of attributes."""
    return [(str(a.children[0]), a.children[1:]) for a in attributes]


def _tuple(parts: list[_Typed]) -> Type | None:
    types = [p.type for p in parts if p.type is not None]
    return tuple_of(types) if len(types) == len(parts) else None


def _name(token: Token) -> str:
    return str(token).removeprefix("%")


def _index(token: Token) -> int:
    """A number that counts; another one is out of every range."""
    return integer(token) if token.isdigit() else -1


def _function_name(token: Token) -> str:
    text = _name(token).removeprefix("@")
    return unquote(text) if text.startswith('"') else text


def _payload(token: Token) -> str:
    return str(token)[token.index("<") + 1 : -1]
