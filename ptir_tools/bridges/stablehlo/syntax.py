"""StableHLO text to statements, by the rules of the grammar. `reader` resolves names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LimitExceeded, current, integer
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc, Source, Span, pack
from ptir_tools.core.typed import Any
from ptir_tools.core.violations import Violation
from ptir_tools.grammars.mistakes import HERE, Mistake, reported
from ptir_tools.grammars.parser import Children, Parser, Refused, Token, located, token

NAMES = {
    "BLOCK": "`{`", "RESULT": "`%name =`", "BINDING": "`%name =`", "SSA": "`%name`", "NAME": "an op", "QUOTED": "an op",
    "TYPE": "a type", "LABEL": "`^label`", "SYMBOL": "`@name`", "CLAUSE": "`cond`", "TIMES": "`x`", "DENSE": "`dense<…>`",
    "TYPE_ALIAS": "`!name =`", "ATTR_ALIAS": "`#name =`", "ARRAY": "`array<…>`", "OPAQUE": "`#attribute`",
}  # fmt: skip


@dataclass(slots=True)
class Typed:
    """A value of a dictionary with the type that is written after it, or None."""

    value: object
    type: Token | None = None


@dataclass(slots=True)
class Product:
    """`[0] x [1]`, `[b, f]x[i, o]->[b, f]`: values side by side."""

    factors: list[object]


@dataclass(slots=True)
class Parameter:
    """A parameter of a function or block, or a result of a function: its name (None has none), type and attributes."""

    name: Token | None
    type: Token
    attrs: dict[str, Typed] = field(default_factory=dict)

    @property
    def called(self) -> Token:
        """The name. Raises Violation where there is none: a function with a body must name its parameters."""
        if self.name is None:
            raise Violation("SyntaxError", f"a parameter of type {self.type} has no name")
        return self.name


@dataclass(slots=True)
class Block:
    """A region: the parameters of its block, and its statements."""

    params: list[Parameter]
    body: list[Statement]


@dataclass(slots=True)
class Binding:
    """`%inner = %outer` of a while loop, or `%x init: %y` of a reduction."""

    first: Token
    second: Token
    init: bool = False


@dataclass(slots=True)
class Keyed:
    """`key = value` between the operands of a pretty form."""

    key: Token
    value: object


@dataclass(slots=True)
class Statement:
    """One op as written: its name without quotes, its results, and what follows the name. `given` and `returned` are the types
    before and after the arrow of its signature; one list alone is `given`."""

    name: str
    at: Token
    results: list[tuple[str, int]]
    pieces: list[object]
    given: list[Token] | None = None
    returned: list[Token] | None = None
    tails: list[object] = field(default_factory=list)
    start: int = 0
    end: int = 0

    @property
    def loc(self) -> Loc:
        """Its place; of one with regions, the place of its name."""
        return pack(self.start, self.at.end_pos if next(self.regions(), None) else self.end)

    def regions(self) -> Iterator[Block]:
        """Its regions, in the order of the text."""
        for piece in (*self.pieces, *self.tails):
            if isinstance(piece, Block):
                yield piece
            elif isinstance(piece, list):
                yield from (x for x in piece if isinstance(x, Block))


@dataclass(slots=True)
class FunctionText:
    """A function as written; `body` is None for a declaration."""

    name: str
    at: Token
    visibility: str
    params: list[Parameter]
    results: list[Parameter]
    body: Block | None
    loc: Loc


@dataclass(slots=True)
class ModuleText:
    """A module as written: its name, and what is in it."""

    name: str
    content: list[Item]


@dataclass(slots=True)
class Alias:
    """`!name = type` or `#name = attribute`."""

    name: Token
    value: Typed


Item = FunctionText | ModuleText | Statement  # of a file or module


class Values(list[object]):
    """The items of `[…]`."""


class Angle(dict[str, Typed]):
    """The entries of `{…}` or `<{…}>`."""


@dataclass(slots=True)
class Clause:
    """A clause of a statement: parameters, results, a signature, a tail."""

    field: str
    value: Any  # by name


def symbol(token: Token) -> str:
    """The name of `@name`."""
    return token[1:].strip('"')


def _results(token: Token) -> list[tuple[str, int]]:
    """`%a:2, %b =` as names with counts."""
    results = []
    for part in token[:-1].split(","):
        name, _, count = part.strip().partition(":")
        results.append((name[1:], int(count or 1)))
    return results


def _alias(items: Children) -> Alias:
    name, value, *text = items
    if text:  # `affine_map<…>`
        value = token("OPAQUE", f"{value}{text[0]}", value.start_pos, text[0].end_pos)
    cut = token(name.type, name[:-1].rstrip(), name.start_pos, name.end_pos)
    return Alias(cut, value if isinstance(value, Typed) else Typed(value))


def _module(items: Children) -> ModuleText:
    name = next((str(x).lstrip("@") for x in items if isinstance(x, Token) and x.type in ("SYMBOL", "NAME")), "")
    return ModuleText(name, [x for x in items if isinstance(x, (FunctionText, ModuleText, Statement))])


@located
def _function(items: Children, start: int, end: int) -> FunctionText:
    parts = {x.field: x.value for x in items if isinstance(x, Clause)}
    tokens = {x.type: x for x in items if isinstance(x, Token)}
    body = next((x for x in items if isinstance(x, Block)), None)
    name, seen = tokens["SYMBOL"], str(tokens.get("VISIBILITY", ""))
    place = pack(start, name.end_pos)
    return FunctionText(symbol(name), name, seen, parts.get("params", []), parts.get("results", []), body, place)


def _region(items: Children) -> Block:
    params: list[Parameter] = next((x.value for x in items if isinstance(x, Clause)), [])
    return Block(params, [x for x in items if isinstance(x, Statement)])


@located
def _op(items: Children, start: int, end: int) -> Statement:
    results = _results(items.pop(0)) if items[0].type == "RESULT" else []
    result = Statement(items[0].strip('"'), items[0], results, [], start=start, end=end)
    pieces = result.pieces
    for x in items[1:]:
        if isinstance(x, Clause) and x.field == "signature":
            (result.given, result.returned), pieces = x.value, result.tails
        elif x is not None:
            pieces.append(x)
    return result


def _signature(items: Children) -> Clause:
    groups = [x for x in items if isinstance(x, list)]
    return Clause("signature", (groups[0], groups[1] if len(groups) > 1 else None))


def _product(items: Children) -> object:
    kept = [x for x in items if not (isinstance(x, Token) and x.type in ("TIMES", "ARROW"))]
    return kept[0] if len(kept) == 1 else Product(kept)


def _binding(items: Children) -> Binding:
    name, value = items
    return Binding(token("SSA", name[:-1].rstrip(), name.start_pos, name.end_pos), value)


# One action per rule of the grammar; what has none is the list of its parts.
_ACTIONS = {
    "alias": _alias, "module": _module, "func": _function, "region": _region, "op": _op, "signature": _signature,
    "product": _product, "binding": _binding, "properties": Angle, "dict": Angle, "list": Values,
    "parameters": lambda items: Clause("params", items),
    "results": lambda items: Clause("results", items),
    "named": lambda items: Parameter(*items),
    "unnamed": lambda items: Parameter(None, *items),
    "keyed": lambda items: Keyed(*items),
    "init": lambda items: Binding(items[0], items[1], init=True),
    "applies": lambda items: Keyed(items[0], items[0]),
    "entry": lambda items: (items[0].strip('"'), items[1] if len(items) > 1 else Typed(None)),
    "typed": lambda items: Typed(*items),
    "range": lambda items: tuple(map(integer, items)),
    "function": lambda items: Product([x for x in items if isinstance(x, list)]),
}  # fmt: skip


@cache
def _parser() -> Parser:
    return grammars.parser("stablehlo", SimpleNamespace(**_ACTIONS))


_RECORDS = (Alias, Typed, Product, Parameter, Block, Binding, Keyed, Statement, FunctionText, ModuleText, Clause)
_NAMED = regex(r"[!#][\w.$]+")


class _Aliases:
    """Aliases and their values, which replace the names. An alias is defined before its uses."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        self.values: dict[str, Typed] = {}
        self.characters = 0

    def define(self, alias: Alias) -> None:
        """Define an alias; a duplicate is reported."""
        if alias.name in self.values:
            message = f"{alias.name} is defined twice"
            self.diagnostics.error("RedefinedValue", message, pack(alias.name.start_pos, alias.name.end_pos))
        self.resolve(alias)
        self.values.setdefault(str(alias.name), alias.value)

    def resolve(self, whole: object) -> None:
        """Replace the names of aliases in a tree by their values. Raises LimitExceeded."""
        todo: list[object] = [whole]
        while todo:
            x = todo.pop()
            if isinstance(x, (list, dict)):
                for k, part in enumerate(x) if isinstance(x, list) else list(x.items()):
                    x[k] = self.valued(part)
                todo += x if isinstance(x, list) else x.values()
            elif isinstance(x, _RECORDS):
                for name in type(x).__slots__:
                    setattr(x, name, self.valued(getattr(x, name)))
                    todo.append(getattr(x, name))

    def valued(self, x: object) -> object:
        """`x`, a part of a tree, with aliases replaced by their values. Raises LimitExceeded."""
        if isinstance(x, Typed) and isinstance(x.value, Token) and x.type is None and x.value in self.values:
            result = self.values[x.value]
            return Typed(self.valued(x.value), result.type)
        if not isinstance(x, Token) or x.type not in ("TYPE", "OPAQUE"):
            return x
        whole = self.values.get(x)
        if whole is not None and not isinstance(whole.value, Token):
            return whole.value
        text = _NAMED.sub(lambda m: str(v.value) if isinstance((v := self.values.get(m[0], _NONE)).value, Token) else m[0], x)
        if text == x:
            return x
        self.characters += len(text)
        if self.characters > current().file_bytes:
            raise LimitExceeded(f"the values of aliases are longer than {current().file_bytes} characters", "--max-file-bytes")
        try:
            grammars.check_depth(text, current())
        except LimitExceeded as limit:  # its span is in the value of an alias
            limit.loc = x.loc
            raise
        kind = x.type if whole is None or not isinstance(whole.value, Token) else whole.value.type
        return token(kind, text, x.start_pos, x.end_pos)


_NONE = Typed(None)


def parse(source: Source, diagnostics: Diagnostics, code: str, lost: set[str] | None = None) -> list[Item] | None:
    """The modules, functions and statements of `source`, in which values have replaced aliases; None after reporting a syntax
    error with `code` that keeps the rest from being read. With `lost`, a statement in error is left out if it is a line of its
    own, and `lost` gets the names that it would define. Raises LimitExceeded when the values are too long."""
    items: list[Item | Alias] | None = None
    text = source.text
    while items is None:
        try:
            items = _parser().parse(text, "file")
        except Refused:
            fault = grammars.refused("stablehlo", text, "file")
            if not (_reported_unopened if text[fault.at : fault.at + 1] == "}" else _reported_unclosed)(
                text, fault.at, diagnostics, code
            ) and not _reported_habit(text, fault, diagnostics, code):
                grammars.report("stablehlo", fault, diagnostics, code, NAMES)
            place = diagnostics.items[-1].span
            line = None if lost is None or place is None or diagnostics.errors > _RETRIES else _alone(text, place.start)
            if line is None or lost is None:
                return None
            lost.update(re.findall(r"%([\w$.-]+)", line[0].partition("=")[0]) if "=" in line[0] else ())
            text = text[: line.start()] + " " * len(line[0]) + text[line.end() :]
    aliases = _Aliases(diagnostics)
    for item in items:
        if isinstance(item, Alias):
            aliases.define(item)
    rest = [item for item in items if not isinstance(item, Alias)]
    if aliases.values:
        aliases.resolve(rest)
    return rest


# What is missing in a line, or is spelled as in other languages.
_MISTAKES = (
    Mistake(rf"\[[^\]\n]*\w(?P<wrong>\s+){HERE}(?=-?\d)", "`,` is missing between the numbers", ", "),
    Mistake(rf"=\s*\[[-\w\s,]*\w(?P<wrong>)\s*:\s*{HERE}(?=\()", "`]` is missing after the list", "]"),
    Mistake(rf"\)\s*(?P<wrong>){HERE}(?=(?:tensor|tuple|complex)<)", "`->` is missing before the result type", "-> "),
    Mistake(
        rf"[%)\]}}>][\w#.-]*\s+(?P<wrong>)(?P<shown>(?:tensor|tuple)<[^\n]*{HERE}[^\n>]*>)",
        "`:` is missing before the type", ": ",
    ),
    Mistake(
        rf"^\s*{HERE}(?P<shown>%[\w$.-]+)(?P<wrong>\s+)(?=\"?\w+\.\w+)", "`=` is missing after the name of the result", " = ",
    ),
    Mistake(
        rf"^\s*(?P<wrong>(?!func\.func\b)func\.\w+|func|fn|def|define)\s+@[\w$.-]+\([^\n]*{HERE}",
        "a function begins with `func.func`", "func.func",
    ),
)  # fmt: skip


def _reported_habit(text: str, fault: grammars.Fault, diagnostics: Diagnostics, code: str) -> bool:
    """Report what is missing or spelled otherwise in the line of a fault; False when it is nothing that is known."""
    begin, end = text.rfind("\n", 0, fault.at) + 1, text.find("\n", fault.at)
    return reported(_MISTAKES, fault, diagnostics, code, begin, end if end >= 0 else len(text), fault.at)


_RETRIES = 8  # syntax errors after which the rest of a text is not read
_LINE = regex(r"^[^\S\n]*(?:%[^=\n]*=|\"?\w+\.)[^\n]*$", re.MULTILINE)
_NEXT = regex(r"\s*(?:%|\}|\"?\w+\.|return\b|func\b|\^|//|\Z)")  # what may follow a line that is a whole statement


def _alone(text: str, at: int) -> re.Match[str] | None:
    """The line of the token before `at`, if it is a whole statement; None for a header, a return, and parts of a statement."""
    begin = text.rfind("\n", 0, at) + 1
    if not text[begin:at].strip():  # what ends too early is before it
        begin = text.rfind("\n", 0, len(text[:begin].rstrip())) + 1
    line = _LINE.match(text, begin)
    if line is None or len(text) > _LONG or re.match(r"\s*(?:func|\w+)\.(?:func|return|module)\b", line[0]):
        return None
    return line if line[0].count("{") == line[0].count("}") and _NEXT.match(text, line.end()) else None


_LONG = 1 << 20  # characters of a text of which one syntax error is reported
_OPENING = regex(r"([!#]?[A-Za-z_][\w.$]*)\s*<(?!\{)")
_NAME_AT_END = regex(r"[!#]?[A-Za-z_][\w.$]*\s*\Z")
# The header of a function without its brace, before a line that is a statement.
_HEADER = regex(r"func\.func\b[^\n]*?@([\w$.-]+)\([^\n]*[^\s{](?=[^\S\n]*\n\s*(?:%|return\b|\"?\w+\.(?!func\b)))")
_SHOWN = 40  # characters of a type in a message
# What goes on with a type, besides what is in `<…>`: of a tensor, of a tuple, and of the dialects' types and attributes.
_IN_TENSOR = r"""[^\s<>,()\[\]{}="-]+|-(?!>)|"[^"\n]*"(?!\s*=)|,\s*(?:(?=[#"])|\{[^{}<>]*\})"""
_IN_TUPLE = rf"{_IN_TENSOR}|\s*,\s*"
_IN_OTHERS = r"""[^\n<>,:()\[\]{}"%-]+|(?<!\s):|-(?!>)|->(?=\[)|"[^"\n]*"|,\s*|[\[({][^\[\](){}<>]*[\])}]"""
_GOES_ON = (
    (regex(r"(?:tensor|complex|vector|memref)\s*\Z"), regex(_IN_TENSOR)),
    (regex(r"\btuple\s*\Z"), regex(_IN_TUPLE)),
    (regex(""), regex(_IN_OTHERS)),
)


def _reported_unclosed(text: str, at: int, diagnostics: Diagnostics, code: str) -> bool:
    """Report the type or attribute at `at`, where the grammar gave up, whose `<` nothing closes; False when there is none."""
    start = max(0, at - 80) if text[at : at + 1] == "<" else at
    if start < at and (name := _NAME_AT_END.search(text[start:at])) is not None:
        at = start + name.start()
    opening = _OPENING.match(text, at)
    if opening is None or (place := _unclosed(text, opening.end() - 1)) is None:
        return False
    opened, end = place
    begin = max(at, *(text.rfind(c, 0, opened) + 1 for c in " <,(\n"))
    written = text[begin:end] if end - begin <= _SHOWN else f"{text[begin : begin + _SHOWN]}…"
    diagnostics.error(
        code,
        f"`>` is missing after `{written}`",
        Span(end, min(len(text), end + 1)),
        labels=[(Span(opened, opened + 1), "opened here")],
        help="write `>`",
        fix=Fix(Span(end, end), ">"),
    )
    return True


def _reported_unopened(text: str, at: int, diagnostics: Diagnostics, code: str) -> bool:
    """Report the header of a function before the `}` at `at` that lacks its `{`; False when there is none."""
    header = next(reversed([*_HEADER.finditer(text, 0, at)]), None)
    if header is None:
        return False
    place = Span(header.end() - 1, header.end())
    labels = [(Span(at, at + 1), "closed here")]
    fix = Fix(Span(header.end(), header.end()), " {", safe=True)
    diagnostics.error(code, f"`{{` is missing after the header of @{header[1]}", place, labels=labels, help="write `{`", fix=fix)
    return True


def _unclosed(text: str, at: int) -> tuple[int, int] | None:
    """The first `<` that is not closed, of the one at `at` and those inside of it, and where its `>` belongs; None when all
    are closed."""
    opened: list[tuple[int, re.Pattern[str]]] = []
    while True:
        if text[at : at + 1] == "<":
            kind = next(goes_on for name, goes_on in _GOES_ON if name.search(text[max(0, at - 20) : at]))
            opened.append((at, kind))
            at += 1
        elif text[at : at + 1] == ">":
            opened.pop()
            at += 1
            if not opened:
                return None
        elif (m := opened[-1][1].match(text, at)) is not None and m.end() > at:
            at = m.end()
        else:
            return opened[-1][0], len(text[:at].rstrip(", \t\r\n"))
