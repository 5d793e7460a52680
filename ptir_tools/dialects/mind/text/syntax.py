"""Parses a line of MIND text into a statement, by the rules of the grammar."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, islice

from ptir_tools import grammars
from ptir_tools.core import decimals
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dtypes import F32
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import current
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Source, Span, pack
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeAlias
from ptir_tools.core.violations import Violation
from ptir_tools.grammars.mistakes import Mistake, reported
from ptir_tools.grammars.parser import Node, Nodes, Parser, Refused, Token, token

if TYPE_CHECKING:
    import json
else:
    json = lazy("json")

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

# Names of the terminals in messages.
NAMES = {
    "VID": "a value id", "WORD": "a word", "NUMBER": "a number", "STRING": "a string", "SYMBOL": "`?`", "TENSOR": "`tensor<`",
    "_OUTPUTS": "`outputs:`", "INPUTS": "`inputs:`",
}  # fmt: skip
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_INTEGER = regex(r"-?[0-9]+")
_FLOAT = regex(r"-?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][+-]?[0-9]+)?|-inf|-nan")
_ESCAPE = regex(r"\\(.)", re.DOTALL)


@dataclass(slots=True, frozen=True)
class Call:
    """`word(value)`: Custom padding."""

    word: str
    value: Raw


# A value as written; a slice, `start:end:step`, is an item of Slice's positional attribute.
Raw: TypeAlias = "bool | int | float | str | list[Raw] | tuple[Raw, ...] | Call | slice"


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


def parse(source: Source, start: int, end: int, diagnostics: Diagnostics) -> Node | None:
    """The statement of the code source.text[start:end] of one line, or None after reporting its errors. Value ids have no `%`.
    Values are converted: an argument that is still a Token is an id.
    """
    code = source.text[start:end]
    grammars.check_depth(code, current(), start)
    try:
        found: Node = _parser().parse(source.text, "line", at=start, end=end)
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


# Common misspellings of syntax.
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
    """Actions of the rules for ids and values; every other rule makes a Node."""

    def id(self, parts: list[Token]) -> Token:
        (name,) = parts
        return token("VID", canonical_id(name), name.start_pos, name.end_pos)

    def attribute(self, parts: tuple[Token, Raw]) -> tuple[Token, Raw]:
        return parts[0], parts[1]

    def word(self, parts: list[Token]) -> Raw:
        return WORDS.get(parts[0], str(parts[0]))

    def number(self, parts: list[Token]) -> int | float:
        (digits,) = parts
        if not _FLOAT.fullmatch(digits):
            return integer(digits, "a number")
        try:
            return decimals.read(digits)
        except OverflowError:
            raise Violation("E4005", f"{digits[:40]} is out of the range of f64", loc=digits.loc) from None

    def numbers(self, parts: list[Token]) -> list[Raw]:
        tree: list[Any] = json.loads(parts[0], parse_float=str)
        rows = [*_rows(tree)]
        texts = [*chain.from_iterable(rows)]
        kinds = {*map(type, texts)}
        if kinds == {int}:
            return tree
        values = iter(
            decimals.read_all(texts, F32) if kinds == {str} else [x if type(x) is int else decimals.read(x) for x in texts]
        )
        for row in rows:
            row[:] = islice(values, len(row))
        return tree

    def string(self, parts: list[Token]) -> str:
        (quoted,) = parts
        return _ESCAPE.sub(lambda found: _unescaped(found, quoted.start_pos), quoted)[1:-1]

    def brackets(self, parts: list[Raw]) -> Raw:
        return parts

    def parens(self, parts: list[Raw]) -> Raw:
        return tuple(parts)

    def call(self, parts: tuple[Token, tuple[Raw, ...]]) -> Call:
        return Call(str(parts[0]), parts[1])

    def bounds(self, parts: list[Token]) -> slice:
        start, end, *step = map(integer, parts)
        return slice(start, end, *step or [1])


def _rows(tree: list[Any]) -> Iterator[list[Any]]:
    """The lists of numbers in nested lists that are as deep everywhere."""
    if type(tree[0]) is not list:
        yield tree
        return
    for part in tree:
        yield from _rows(part)


def integer(digits: Token, what: str = "an integer") -> int:
    """The integer of a NUMBER. Raises Violation("E1005") if it is too long or does not fit `what`."""
    if not _INTEGER.fullmatch(digits):
        raise Violation("E1005", f"`{digits}` is not {what}", loc=digits.loc)
    if len(digits) > current().most_digits:
        raise Violation("E1005", f"an integer of {len(digits)} digits is too long", loc=digits.loc)
    return int(digits)


def _unescaped(found: re.Match[str], start: int) -> str:
    """The character of an escape sequence in the string that begins at `start`."""
    if (escaped := found[1]) not in _ESCAPES:
        message = f'Invalid escape sequence `\\{escaped}`; a string knows \\n \\r \\t \\\\ and \\"'
        raise Violation("E1004", message, loc=pack(start + found.start(), start + found.end()))
    return _ESCAPES[escaped]
