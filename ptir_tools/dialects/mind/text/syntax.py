"""Text to statements: what the rules of the grammar make of a line of MIND text."""

from __future__ import annotations

import re
from functools import cache

from ptir_tools import grammars
from ptir_tools.core import decimals
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import current
from ptir_tools.core.records import NamedTuple, dataclass
from ptir_tools.core.source import Loc, Source, Span, pack
from ptir_tools.core.typed import Any, TypeAlias
from ptir_tools.core.violations import Violation
from ptir_tools.grammars.mistakes import Mistake, reported
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token, token

ID_DIGITS = 18  # a longer value id is a name, not a number
# Words that are values.
WORDS: dict[str, bool | float] = {
    "true": True,
    "True": True,
    "false": False,
    "False": False,
    "inf": float("inf"),
    "nan": float("nan"),
}
_CODE = regex(r'(?:[^"#]+|"(?:[^"\\]|\\.)*"?)*')
SYNTAX = "E1007"

# How an error says the terminals.
NAMES = {
    "VID": "a value id", "WORD": "a word", "NUMBER": "a number", "STRING": "a string", "SYMBOL": "`?`", "TENSOR": "`tensor<`",
    "OUTPUTS": "`outputs:`", "INPUTS": "`inputs:`",
}  # fmt: skip
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_INTEGER = regex(r"-?[0-9]+")
_FLOAT = regex(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|-inf|-nan")


@dataclass(slots=True, frozen=True)
class Call:
    """`word(value)`: Custom padding."""

    word: str
    value: Raw


@dataclass(slots=True, frozen=True)
class Range:
    """`start:end:step`, an item of Slice's positional attribute."""

    start: int
    end: int
    step: int


Raw: TypeAlias = "bool | int | float | str | list[Raw] | tuple[Raw, ...] | Call | Range"  # a value as written


class TypeText(NamedTuple):
    """A type as written; an extent is a number or the text of a symbol."""

    dtype: Token
    extents: tuple[int | str, ...]
    loc: Loc


@dataclass(slots=True)
class Instruction:
    """`%id = Opcode (operands, positional attributes) {attributes} : type`. The token of a value id is without its `%`."""

    id: Token
    opcode: Token
    operands: list[Token]
    positional: list[Raw]
    attributes: list[tuple[Token, Raw]]
    type: TypeText | None


Statement: TypeAlias = "Instruction | Node"  # a node: an alias (two ids), the outputs (ids), or a line of inputs


def canonical_id(token: str) -> str:
    """A value id without its `%`; `%007` is `%7`."""
    text = str(token[1:])
    return text.lstrip("0") or "0" if text.isdecimal() else text


def split_comment(line: str) -> tuple[str, str]:
    """The line without its comment and the space before that, and the comment with its `#` (empty when there is none)."""
    if '"' not in line and "#" not in line:
        return line.rstrip(), ""
    found = _CODE.match(line)
    end = found.end() if found else 0
    return line[:end].rstrip(), line[end:].rstrip()


def parse(source: Source, start: int, end: int, diagnostics: Diagnostics) -> Statement | None:
    """The statement of the code source.text[start:end] of one line, or None after reporting what is wrong."""
    code = source.text[start:end]
    grammars.check_depth(code, current(), start)
    try:
        found: Statement = _parser().parse(source.text, "line", at=start, end=end)
    except Violation as violation:
        diagnostics.violation(violation, None)
    except Refused:
        _report(code, start, diagnostics)
    else:
        return found
    return None


def _report(code: str, start: int, diagnostics: Diagnostics) -> None:
    fault = grammars.refused("mind", code, "line")
    at, end = start + fault.at, start + len(code)
    if reported(_MISTAKES, fault, diagnostics, SYNTAX, start, end, at):
        return
    if not fault.is_character:
        grammars.report("mind", fault, diagnostics, SYNTAX, NAMES, offset=start, end=end)
    elif fault.found == '"':
        diagnostics.error("E1003", "the string is not closed on its line", Span(at, end))
    else:
        diagnostics.error("E1002", f"character {fault.found!r} has no meaning here", Span(at, at + 1))


def _typed(found: re.Match[str]) -> str:
    extents = re.findall(r"[^\sx,]+", found["extents"])
    return f"tensor<{found['dtype']}[{', '.join(extents)}]>"


def _attributes(found: re.Match[str]) -> str:
    operands = f"({found['operands'].rstrip(', ')})" if found["operands"] else ""
    return f"{operands} {{{found['attributes']}}}"


# What people write in other ways.
_HEAD = r"^%\w+\s*=\s*\w+"
_MISTAKES = (
    Mistake(
        rf"{_HEAD}(?P<wrong>(?P<attributes>\s*\{{[^}}]*\}})(?P<blank>\s*)(?P<shown>\([^()]*\)))",
        "operands come before attributes",
        r"\g<blank>\g<shown>\g<attributes>",
    ),
    Mistake(rf"{_HEAD}\s*(?:\([^()]*\))?\s*(?:\{{[^}}]*\}})?\s*(?P<wrong>->)(?=\s*[Tt]ensor\b)", "a type follows `:`", ":"),
    Mistake(r"^(?P<wrong>return)(?=\s+%\w+(?:\s*,\s*%\w+)*$)", "a module ends with `outputs:`", "outputs:"),
    Mistake(r"^(?P<wrong>output)(?=\s*:)", "a module ends with `outputs:`", "outputs"),
    Mistake(r"^(?P<shown>outputs)(?P<wrong>)(?=\s+%)", "`:` is missing after `outputs`", ":"),
    Mistake(r"(?<=[^;\s])(?P<wrong>\s*;)$", "statements need no semicolon", ""),
    Mistake(r"^(?P<wrong>//)", "a comment begins with #", "#"),
    Mistake(
        r"(?<=: )\s*(?P<wrong>(?P<dtype>[a-z]\w*)\[(?P<extents>[^\[\]]*)\])$", "a type is written tensor<dtype[extents]>", _typed
    ),
    Mistake(
        r"(?P<wrong>[Tt]ensor\s*<\s*(?P<extents>(?:[\d?]\w*?x)+)(?P<dtype>[a-z]\w*)\s*>)",
        "the dtype comes before the extents",
        _typed,
    ),
    Mistake(
        r"(?P<wrong>[Tt]ensor\s*<\s*(?P<dtype>[a-z]\w*)\s*,\s*(?P<extents>[\d?x]+)\s*>)", "extents are a list in brackets", _typed
    ),
    Mistake(
        r"(?<=\w)\s*(?P<wrong>\((?P<operands>(?:%\w+\s*,?\s*)*?),?\s*(?P<attributes>[a-z]\w*\s*=[^()]*)\))",
        "attributes are in braces",
        _attributes,
    ),
    Mistake(
        r"(?<=\w )\s*(?P<wrong>%\w+(?:[\s,]+%\w+)*)(?=\s*(?:[{:]|$))",
        "operands are in parentheses",
        lambda m: f"({', '.join(re.findall('%[^ ,]+', m['wrong']))})",
    ),
    Mistake(r"^outputs:\s*(?P<wrong>\((?P<names>[^()]*)\))$", "outputs are listed without parentheses", r" \g<names>"),
)


@cache
def _parser() -> Parser:
    return grammars.parser("mind", _Actions())


class _Actions(Nodes):
    """What the rules of the grammar make; a rule without a method is a Node, and part of the statement around it."""

    def line(self, parts: list[Statement]) -> Statement:
        return parts[0]

    def instruction(self, parts: list[Any]) -> Instruction:
        made = Instruction(_name(parts[0]), parts[1], [], [], [], None)
        for part in parts[2:]:
            if isinstance(part, TypeText):
                made.type = part
            elif part.data == "arguments":
                made.operands = [x for x in part.children if isinstance(x, Token)]
                made.positional = [x for x in part.children if not isinstance(x, Token)]
            else:
                made.attributes = part.children
        return made

    def alias(self, parts: list[Token]) -> Node:
        return Node("alias", [*map(_name, parts)])

    def outputs(self, parts: list[Token]) -> Node:
        return Node("outputs", [*map(_name, parts[1:])])

    def attribute(self, parts: list[Any]) -> tuple[Token, Raw]:
        return parts[0], parts[1]

    def reference(self, parts: list[Token]) -> Token:
        return _name(parts[0])

    def word(self, parts: list[Token]) -> Raw:
        return WORDS.get(parts[0], str(parts[0]))

    def number(self, parts: list[Token]) -> int | float:
        return _number(parts[0])

    def string(self, parts: list[Token]) -> str:
        return _string(parts[0])

    def brackets(self, parts: list[Raw]) -> Raw:
        return parts

    def parens(self, parts: list[Raw]) -> Raw:
        return (*parts,)

    def call(self, parts: list[Any]) -> Call:
        return Call(str(parts[0]), parts[1])

    def bounds(self, parts: list[Token]) -> Range:
        return Range(*(_integer(p) for p in parts), *[1] * (3 - len(parts)))

    def extent(self, parts: list[Token]) -> int | str:
        return _integer(parts[0]) if parts[0].type == "NUMBER" else str(parts[0])

    def annotation(self, parts: list[Any]) -> TypeText:
        head, dtype, *extents = parts
        if len(extents) == 2:
            raise Violation(SYNTAX, "the type has two lists of extents", loc=head.loc)
        shape = tuple(extents[0].children) if extents else ()
        return TypeText(dtype, shape, head.to(dtype))


def _name(id: Token) -> Token:
    """A value id without its `%`, at its place."""
    return token("VID", canonical_id(id), id.start_pos, id.end_pos)


def _number(token: Token) -> int | float:
    if _INTEGER.fullmatch(token):
        return _integer(token)
    if _FLOAT.fullmatch(token):
        try:
            return decimals.read(token)
        except OverflowError:
            raise Violation("E4005", f"{token[:40]} is out of the range of f64", loc=token.loc) from None
    raise Violation("E1005", f"`{token}` is not a number", loc=token.loc)


def _integer(token: Token) -> int:
    if not _INTEGER.fullmatch(token):
        raise Violation("E1005", f"`{token}` is not an integer", loc=token.loc)
    if len(token) > current().most_digits:
        raise Violation("E1005", f"an integer of {len(token)} digits is too long", loc=token.loc)
    return int(token)


def _string(token: Token) -> str:
    pieces: list[str] = []
    text, at = str(token)[1:-1], 0
    while (found := text.find("\\", at)) >= 0:
        if (escaped := text[found + 1]) not in _ESCAPES:
            message = f'Invalid escape sequence `\\{escaped}`; a string knows \\n \\r \\t \\\\ and \\"'
            at = token.start_pos + found + 1
            raise Violation("E1004", message, loc=pack(at, at + 2))
        pieces += (text[at:found], _ESCAPES[escaped])
        at = found + 2
    return "".join((*pieces, text[at:]))
