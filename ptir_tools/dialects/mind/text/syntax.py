"""A line of MIND text as a statement, by the grammar."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from ptir_tools import grammars
from ptir_tools.core import decimals
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.source import Span
from ptir_tools.core.spelling import GUESSED
from ptir_tools.core.typed import Any
from ptir_tools.dialects.mind.text.statements import (
    WORDS,
    Alias,
    Call,
    Inputs,
    Instruction,
    Name,
    Outputs,
    Range,
    Statement,
    TypeText,
    canonical_id,
)
from ptir_tools.grammars.parser import Parser, Refused, Token

SYNTAX = "E1007"

# How an error says the terminals.
NAMES = {
    "VID": "a value id", "WORD": "a word", "NUMBER": "a number", "STRING": "a string", "SYMBOL": "`?`", "TENSOR": "`tensor<`",
    "OUTPUTS": "`outputs:`", "INPUTS": "`inputs:`",
}  # fmt: skip
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "\\": "\\", '"': '"'}
_INTEGER = regex(r"-?[0-9]+")
_FLOAT = regex(r"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|-inf|-nan")


class LexicalError(Exception):
    """A token that is none: `start` counts from the beginning of the parsed text."""

    def __init__(self, code: str, message: str, start: int, end: int) -> None:
        super().__init__(message)
        self.code, self.message, self.start, self.end = code, message, start, end


def parse(code: str, start: int, diagnostics: Diagnostics) -> Statement | None:
    """The statement of one line of code that begins at `start` of the source, or None after reporting what is wrong."""
    grammars.check_depth(code, LIMITS)
    parser, actions = _parser()
    actions.start = start
    try:
        found: Statement = parser.parse(code, "line")
    except LexicalError as error:
        diagnostics.error(error.code, error.message, Span(start + error.start, start + error.end))
    except Refused:
        _report(code, start, diagnostics)
    else:
        return found
    return None


def _report(code: str, start: int, diagnostics: Diagnostics) -> None:
    error = grammars.refused("mind", code, "line")
    if _mistake(code, start, diagnostics):
        return
    if grammars.is_character(error):
        _bad_character(code, error.pos_in_stream or 0, start, diagnostics)  # type: ignore[attr-defined]
    else:
        grammars.report("mind", error, diagnostics, SYNTAX, NAMES, offset=start, end=start + len(code))


def _typed(found: re.Match[str]) -> str:
    extents = re.findall(r"[^\sx,]+", found["extents"])
    return f"tensor<{found['dtype']}[{', '.join(extents)}]>"


def _attributes(found: re.Match[str]) -> str:
    operands = f"({found['operands'].rstrip(', ')})" if found["operands"] else ""
    return f"{operands} {{{found['attributes']}}}"


def _operands(found: re.Match[str]) -> str:
    return f"({', '.join(re.findall('%[^ ,]+', found[0]))})"


# What people write in other ways, in one place of a line: the message, and what to write instead.
_PHRASES = [
    (r"(?<=: )\s*(?P<dtype>[a-z]\w*)\[(?P<extents>[^\[\]]*)\]$", "a type is written tensor<dtype[extents]>", _typed),
    (r"[Tt]ensor\s*<\s*(?P<extents>(?:[\d?]\w*?x)+)(?P<dtype>[a-z]\w*)\s*>", "the dtype comes before the extents", _typed),
    (r"[Tt]ensor\s*<\s*(?P<dtype>[a-z]\w*)\s*,\s*(?P<extents>[\d?x]+)\s*>", "extents are a list in brackets", _typed),
    (r"(?<=\w)\s*\("
     r"(?P<operands>(?:%\w+\s*,?\s*)*?),?\s*(?P<attributes>[a-z]\w*\s*=[^()]*)\)", "attributes are in braces", _attributes),
    (r"(?<=\w )\s*%\w+(?:[\s,]+%\w+)*(?=\s*(?:[{:]|$))", "operands are in parentheses", _operands),
    (r"(?<=^outputs:)\s*\((?P<names>[^()]*)\)$", "outputs are listed without parentheses", lambda m: f" {m['names']}"),
]  # fmt: skip
# The same for a whole line: the message, the group to point at, the first that is replaced, and what to write instead.
_MISTAKES = [
    (r"(%\w+\s*=\s*\w+)(\s*\{[^}]*\})(\s*)(\([^()]*\))([\s\S]*)", "operands come before attributes", 4, 2, "{3}{4}{2}"),
    (r"(%\w+\s*=\s*\w+\s*(?:\([^()]*\))?\s*(?:\{[^}]*\})?\s*)(->)(\s*[Tt]ensor\b[\s\S]*)", "a type follows `:`", 2, 2, ":"),
    (r"(return)(\s+)(%\w+(?:\s*,\s*%\w+)*)()()", "a module ends with `outputs:`", 1, 1, "outputs:"),
    (r"(output)(\s*:[\s\S]*)()()()", "a module ends with `outputs:`", 1, 1, "outputs"),
    (r"(outputs)()(\s+%[\s\S]*)()()", "`:` is missing after `outputs`", 1, 2, ":"),
    (r"([\s\S]*[^;\s])(\s*;)()()()", "statements need no semicolon", 2, 2, ""),
    (r"()(//)([\s\S]*)()()", "a comment begins with #", 2, 2, "#"),
]


def _mistake(code: str, start: int, diagnostics: Diagnostics) -> bool:
    """Report what people write in other ways, with its edit; False when it is something else, or too long."""
    if len(code) > GUESSED:
        return False
    for pattern, message, shown, first, instead in _MISTAKES:
        if (found := re.fullmatch(pattern, code)) is None:
            continue
        pieces = ["", *(found[i + 1] or "" for i in range(found.re.groups))]
        last = max(first, shown)
        edit = Fix(Span(start + found.start(first), start + found.end(last)), instead.format(*pieces))
        at = Span(start + found.start(shown), start + found.end(shown))
        help = f"write `{edit.text.strip()}`" if edit.text.strip() else "drop it"
        diagnostics.error(SYNTAX, message, at, help=help, fix=edit)
        return True
    for pattern, message, write in _PHRASES:
        if (found := re.search(pattern, code)) is not None:
            text = write(found)
            blank = len(found[0]) - len(found[0].lstrip())
            at = Span(start + found.start() + blank, start + found.end())
            diagnostics.error(SYNTAX, message, at, help=f"write `{text.strip()}`", fix=Fix(at, text.lstrip() if blank else text))
            return True
    return False


def _bad_character(code: str, at: int, start: int, diagnostics: Diagnostics) -> None:
    if code[at] == '"':
        diagnostics.error("E1003", "the string is not closed on its line", Span(start + at, start + len(code)))
        return
    diagnostics.error("E1002", f"character {code[at]!r} has no meaning here", Span(start + at, start + at + 1))


@cache
def _parser() -> tuple[Parser, _Actions]:
    actions = _Actions()
    return grammars.parser("mind", actions), actions


class _Actions:
    """Builds the statements while the line is parsed; one method per rule of the grammar."""

    start = 0

    def name(self, token: Token) -> Name:
        at = self.start + token.start_pos
        return Name(canonical_id(token) if token.type == "VID" else str(token), Span(at, at + len(token)))

    def line(self, parts: Sequence[Any]) -> Statement:
        statement: Statement = parts[0]
        return statement

    def instruction(self, parts: Sequence[Any]) -> Instruction:
        made = Instruction(self.name(parts[0]), self.name(parts[1]))
        for kind, content in parts[2:]:
            if kind == "arguments":
                made.operands = [x for x in content if isinstance(x, Name)]
                made.positional = [x for x in content if not isinstance(x, Name)]
            elif kind == "attributes":
                made.attributes = content
            else:
                made.type = content
        return made

    def alias(self, parts: Sequence[Any]) -> Alias:
        return Alias(self.name(parts[0]), self.name(parts[1]))

    def outputs(self, parts: Sequence[Any]) -> Outputs:
        return Outputs(tuple(map(self.name, parts[1:])))

    def inputs(self, parts: Sequence[object]) -> Inputs:
        return Inputs(str(parts[0]))

    def arguments(self, parts: Sequence[object]) -> tuple[str, list[Any]]:
        return "arguments", list(parts)

    def attributes(self, parts: Sequence[object]) -> tuple[str, list[Any]]:
        return "attributes", list(parts)

    def attribute(self, parts: Sequence[Any]) -> tuple[Name, Any]:
        return self.name(parts[0]), parts[1]

    def reference(self, parts: Sequence[Any]) -> Name:
        return self.name(parts[0])

    def word(self, parts: Sequence[object]) -> Any:
        return WORDS.get(str(parts[0]), str(parts[0]))

    def number(self, parts: Sequence[Any]) -> int | float:
        return _number(parts[0])

    def string(self, parts: Sequence[Any]) -> str:
        return _string(parts[0])

    def brackets(self, parts: Sequence[object]) -> object:
        return [*parts]

    def parens(self, parts: Sequence[object]) -> object:
        return (*parts,)

    def call(self, parts: Sequence[object]) -> Call:
        return Call(str(parts[0]), parts[1])

    def bounds(self, parts: Sequence[Any]) -> Range:
        return Range(*(_integer(p) for p in parts), *[1] * (3 - len(parts)))

    def extent(self, parts: Sequence[Any]) -> int | str:
        return _integer(parts[0]) if parts[0].type == "NUMBER" else str(parts[0])

    def extents(self, parts: Sequence[object]) -> Any:
        return (*parts,)

    def annotation(self, parts: Sequence[Any]) -> object:
        head, dtype, *extents = parts
        if len(extents) == 2:
            at = head.start_pos
            raise LexicalError(SYNTAX, "the type has two lists of extents", at, at + len(head))
        name = self.name(dtype)
        return "type", TypeText(name, extents[0] if extents else (), Span(self.name(head).span.start, name.span.end))


def _fault(token: Token, code: str, message: str, at: int = 0, width: int | None = None) -> LexicalError:
    start = token.start_pos + at
    return LexicalError(code, message, start, start + (len(token) if width is None else width))


def _number(token: Token) -> int | float:
    if _INTEGER.fullmatch(token):
        return _integer(token)
    if _FLOAT.fullmatch(token):
        try:
            return decimals.read(token)
        except OverflowError:
            raise _fault(token, "E4005", f"{token[:40]} is out of the range of f64") from None
    raise _fault(token, "E1005", f"`{token}` is not a number")


def _integer(token: Token) -> int:
    if not _INTEGER.fullmatch(token):
        raise _fault(token, "E1005", f"`{token}` is not an integer")
    if len(token) > LIMITS.integer_digits:
        raise _fault(token, "E1005", f"an integer of {len(token)} digits is too long")
    return int(token)


def _string(token: Token) -> str:
    pieces: list[str] = []
    text, at = str(token)[1:-1], 0
    while (found := text.find("\\", at)) >= 0:
        if (escaped := text[found + 1]) not in _ESCAPES:
            message = f'Invalid escape sequence `\\{escaped}`; a string knows \\n \\r \\t \\\\ and \\"'
            raise _fault(token, "E1004", message, found + 1, 2)
        pieces += (text[at:found], _ESCAPES[escaped])
        at = found + 2
    return "".join((*pieces, text[at:]))
