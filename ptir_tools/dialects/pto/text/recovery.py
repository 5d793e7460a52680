"""Recovery after a syntax error: reading continues at the next statement."""

from __future__ import annotations

import re

from ptir_tools import grammars
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import current
from ptir_tools.core.source import Span
from ptir_tools.core.spelling import nearest
from ptir_tools.dialects.pto.names import DTYPES
from ptir_tools.grammars import Fault, mistakes
from ptir_tools.grammars.mistakes import HERE, Mistake

# Statements that begin at a line's start. The text between an error and the next such line is replaced by blanks.
_VALUE = r"%[\w$.#-]+"
_RESULTS = r"%[\w$.#-]+(?::\d+)?(?:\s*,\s*%[\w$.#-]+(?::\d+)?)*"
_START = regex(
    rf"^[ \t]*({_RESULTS}\s*=(?!=)|(?:pto\.(?!memref\s*<|event|tile\s*<)|arith\.|scf\.|func\.)\w|"
    r"(?:return|call|module)\b|\})",
    re.M,
)
_FUNC = "func.func"
_FUNCTION = regex(r"(?:\w+\.)?(?:func?|fun|function|fn|def)(?:\.fun\w*)?")  # what is written for it
_HEADER = regex(r"\s*(?:module|func\.func)\b")
DEFINED = regex(rf"\s*({_RESULTS})\s*=")

_NAMES = {
    "SSA": "a value", "TYPE": "a type", "NAME": "an operation", "SYMBOL": "a name such as @f", "COUNT": "a number of results",
    "OPAQUE": "an attribute", "NUMBER": "a number", "STRING": "a string",
}  # fmt: skip
_QUIET = ("__ANON", "LINES", "PREDICATE", "SCF", "CALL", "FUNC", "OPAQUE", "NUMBER", "PRIVATE", "PUBLIC")


def starts(text: str) -> list[int]:
    """The positions of lines that certainly begin a statement."""
    return [m.start(1) for m in _START.finditer(text)]


def _keyword(written: str) -> str | None:
    """The keyword that is meant before the name of a function."""
    return _FUNC if _FUNCTION.fullmatch(written) else nearest(written, (_FUNC, "func.call"))


_MISTAKES = (
    Mistake(
        rf"{HERE}(?P<shown>!?[\w.]+<(?:[^<>\n%]|<[^<>\n%]*>)*[^<>\n%\s])(?P<wrong>)[ \t]*$",
        r"`>` is missing after `\g<shown>`",
        ">",
        "TYPE",
    ),
    Mistake(  # the arrow's `>` closed it
        rf"(?P<shown>!?[\w.]+<(?:[^<>\n%]|<[^<>\n%]*>)*[^<>\n%\s])(?P<wrong>)[ \t]*->[ \t]*{HERE}[!\w(]",
        r"`>` is missing after `\g<shown>`",
        ">",
    ),
    Mistake(rf"(?P<wrong>){HERE}(?:!?[\w.]+<|!pto\.event\b|index\b|[a-z]+\d)", "expected `:` before the type", ": ", "COLON"),
    Mistake(
        rf"[\w.]+[ \t]+(?:{_VALUE}[ \t]*,[ \t]*)*{_VALUE}(?P<wrong>)[ \t]+(?P<shown>{_VALUE})[ \t]*{HERE}",
        "`,` is missing between two operands",
        ",",
        "COMMA",
    ),
    Mistake(rf"\[[^\[\]\n]*\w(?P<wrong>)[ \t]+{HERE}(?:%|-?\d)", "`,` is missing between two indices", ",", "COMMA"),
    Mistake(
        rf"^[ \t]*(?P<wrong>[\w.]+)[ \t]+{HERE}@",
        f"a function begins with `{_FUNC}`",
        lambda m: meant if (meant := _keyword(m["wrong"])) == _FUNC else None,
        guessed=True,
    ),
    Mistake(
        rf"^[ \t]*(?P<wrong>[\w.]+)[ \t]+{HERE}@",
        "a call begins with `func.call`",
        lambda m: meant if (meant := _keyword(m["wrong"])) != _FUNC else None,
        guessed=True,
    ),
    Mistake(rf"{HERE}(?P<wrong>\w+)", r"`\g<wrong>` is not a type", lambda m: nearest(m["wrong"], DTYPES), "TYPE", guessed=True),
)


def report(fault: Fault, diagnostics: Diagnostics) -> None:
    """Report a syntax error: a known mistake, or the tokens that could be there instead."""
    at, text = fault.at, diagnostics.source.text if diagnostics.source else ""
    line = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    if fault.found == "=" and (last := complete(text, at)) is not None:
        diagnostics.error("ParseError", "an operand is missing at the end of this statement", Span(last - 1, last))
        return
    if mistakes.reported(_MISTAKES, fault, diagnostics, "ParseError", line, len(text) if end < 0 else end, at):
        return
    if (unclosed := _parameters(text, at)) is not None:
        opening, body = unclosed
        place = body - 1 if text[body - 1] == " " else body
        labels, fix = [(Span(opening, opening + 1), "opened here")], Fix(Span(place, place), ")")
        diagnostics.error(
            "ParseError", "`)` is missing before `{`", Span(body, body + 1), labels=labels, help="write `)`", fix=fix
        )
        return
    if not fault.found and (opened := _open(text, "{}")):
        labels = [(Span(p, p + 1), "opened here") for p in opened[-1:]]
        closing = mistakes.closed(text, len(opened)) if len(opened) <= current().nesting else None
        diagnostics.error("ParseError", "`}` is missing at the end", Span(at, at), labels=labels, help="add it", fix=closing)
        return
    wanted = {x for x in fault.expected if len(fault.expected) == 1 or not x.startswith(_QUIET)}
    grammars.report("pto", fault._replace(expected=wanted), diagnostics, "ParseError", _NAMES)


def _parameters(text: str, at: int) -> tuple[int, int] | None:
    """The start of the parameters of a header and of its body, if the `(` of the parameters is open at the body."""
    body = at - 1
    while body >= 0 and text[body].isspace():
        body -= 1
    if text[body : body + 1] != "{" or "\n" not in text[body:at]:
        return None
    open_ = _open(text[:at], "(){}")
    return (open_[-2], body) if len(open_) > 1 and text[open_[-2]] == "(" else None


def _open(text: str, brackets: str) -> list[int]:
    """The positions of brackets that are not closed. Only those named count."""
    found: list[int] = []
    for m in re.finditer(rf'"(?:\\.|[^"\\\n])*"|//[^\n]*|[{brackets}]', text):
        if m[0] in ("(", "{"):
            found.append(m.start())
        elif m[0] in (")", "}") and found:
            found.pop()
    return found


def complete(text: str, at: int) -> int | None:
    """The end of the statement before the one whose `=` is at `at`. Its operands were followed by names of the next statement,
    so it has the error. None where the names before the `=` do not begin a line."""
    line = text.rfind("\n", 0, at) + 1
    before = re.sub(r"//[^\n]*|;[^\n]*", lambda m: " " * len(m[0]), text[:line]).rstrip()
    return len(before) if before and re.fullmatch(rf"[ \t]*{_RESULTS}\s*", text[line:at]) else None


def broken(text: str, at: int, again: bool) -> tuple[int, int] | None:
    """The range of the statement with the error at `at`; None for a header, or when nothing is left to read. An error at the
    start of a statement belongs to the one before, until it occurs `again`."""
    begins = starts(text)
    if text[at : at + 1] == "=" and (end := complete(text, at)) is not None:
        at = end
    before = [b for b in begins if b < at or (b == at and again)]
    if not before or at >= len(text) or _HEADER.match(text, before[-1]):
        return None
    start = before[-1]
    end = next((b for b in begins if b >= at and b > start), len(text))
    return start, _balanced(text, start, end)


def _balanced(text: str, start: int, end: int) -> int:
    """`end`, moved after the brace that closes the open ones of text[start:end]."""
    depth = text.count("{", start, end) - text.count("}", start, end)
    if text[start] == "}":
        return start + 1
    while depth > 0 and end < len(text):
        depth += (text[end] == "{") - (text[end] == "}")
        end += 1
    return end
