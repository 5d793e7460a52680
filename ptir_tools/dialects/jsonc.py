"""JSON with comments: values at the speed of `json.loads`, a span for every node on demand, and precise syntax errors.

The language is grammars/json.lark. The grammar runs only if a text is refused, to report why. A test checks that both accept the
same texts.
"""

from __future__ import annotations

import marshal
import re
from functools import cache

from ptir_tools import grammars
from ptir_tools.core import decimals
from ptir_tools.core.diagnostics import Diagnostics, Fix
from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.limits import Limits, current, too_many_digits
from ptir_tools.core.source import JsonPath, Source, Span, pack
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import json
    from typing import Unpack

    import lark

    from ptir_tools.core.diagnostics import More
else:
    json = lazy("json")
    lark = lazy("lark")

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
# As the last step of a path: the key itself, not its value.
KEY = "\0key"

_STRING_OR_COMMENT = regex(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*[\s\S]*?\*/')
_BLANKS = regex(r"[ \t\r\n]*")
_COMMA = regex(r"[ \t\r\n]*,?[ \t\r\n]*")
_COLON = regex(r"[ \t\r\n]*:[ \t\r\n]*")
_INTEGER = regex(r"-?[0-9]+")
_SURROGATE = regex(r"\\u[dD][89a-fA-F]")


def parse(source: Source, diagnostics: Diagnostics, *, code: str = "SyntaxError", limits: Limits | None = None) -> Json:
    """The Python value of a JSON text, and `source.json_span` for its nodes; None after errors, which are reported.

    Refused: duplicate keys, NaN and Infinity, numbers beyond float64, lone surrogates. Raises LimitExceeded for a value
    nested too deep and for an integer of too many digits.
    """
    text = blank_comments(source.text) if "/" in source.text else source.text
    source.json_span = Spans(text)
    try:
        value: Json = _decoder().decode(text)
    except (ValueError, RecursionError):
        pass
    else:
        if not (_SURROGATE.search(text) and _has_surrogate(value)):
            return value
    _Diagnosis(source, diagnostics, code, limits or current()).run()
    return None


def blank_comments(text: str) -> str:
    """`text` with blanks in place of its comments: every position stays what it was."""
    return _STRING_OR_COMMENT.sub(lambda m: m[0] if m[0][0] == '"' else _blanks(m[0]), text)


def first_comment(text: str) -> int | None:
    """Where the first comment begins; None where there is none."""
    return next((m.start() for m in _STRING_OR_COMMENT.finditer(text) if m[0][0] == "/"), None) if "/" in text else None


def _blanks(text: str) -> str:
    return "\n".join(" " * len(line) for line in text.split("\n"))


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = {}
    for key, value in pairs:  # most are short: `dict` takes longer
        made[key] = value
    if len(made) != len(pairs):
        raise ValueError("duplicate key")
    return made


def _finite(digits: str) -> float:
    try:
        return decimals.read(digits)
    except OverflowError as error:
        raise ValueError(str(error)) from None


def _refuse(name: str) -> None:
    raise ValueError(name)


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=_unique, parse_float=_finite, parse_constant=_refuse)


def key(value: Any) -> bytes:
    """What equal values alone have in common, kinds and bits of numbers included."""
    try:
        return marshal.dumps(value, 2)
    except ValueError:  # nested too deep for that
        return repr(value).encode()


def _has_surrogate(value: Json) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


class Spans:
    """Where the nodes of a valid JSON text are. Each container is looked into once, when first asked about."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.scan = json.JSONDecoder().raw_decode
        self.children: dict[int, dict[str | int, tuple[Span, Span]]] = {}
        self.root: Span | None = None

    def __call__(self, path: JsonPath) -> Span | None:
        """The span of the node at `path`, or of its nearest ancestor that exists; None in a text that is not JSON."""
        try:
            if self.root is None:
                self.root = self._value(_end(_BLANKS, self.text, 0))
            key = found = self.root
            for step in path:
                if step == KEY:
                    return key
                child = self._inside(found).get(step)
                if child is None:
                    break
                key, found = child
            return found
        except (ValueError, RecursionError):
            return None

    def _value(self, at: int) -> Span:
        return Span(at, self.scan(self.text, at)[1])

    def _inside(self, span: Span) -> dict[str | int, tuple[Span, Span]]:
        """(span of the key, span of the value) of every child; an element is its own key."""
        if span.start in self.children:
            return self.children[span.start]
        found: dict[str | int, tuple[Span, Span]] = {}
        closing = {"{": "}", "[": "]"}.get(self.text[span.start])
        at = _end(_BLANKS, self.text, span.start + 1)
        while closing and self.text[at] != closing:
            name: str | int = len(found)
            key = value = self._value(at)
            if closing == "}":
                name, value = json.loads(self.text[at : key.end]), self._value(_end(_COLON, self.text, key.end))
            found[name] = key, value
            at = _end(_COMMA, self.text, value.end)
        self.children[span.start] = found
        return found


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    matched = pattern.match(text, at)
    return matched.end() if matched else at


_SUPPLIED = 1000  # so many missing commas are reported
_NAMES = {
    "STRING": "a string", "NUMBER": "a number", "INTEGERS": "an array", "CONSTANT": "a number", "TRAILING": "`,`",
    "_BLANK": "a blank",
}  # fmt: skip


class _Diagnosis:
    """One reading of a refused text by the grammar: everything that is wrong with it, at its place.

    It is the parser's transformer: the methods called like rules and terminals check what the grammar leaves open.
    """

    def __init__(self, source: Source, diagnostics: Diagnostics, code: str, limits: Limits) -> None:
        self.source, self.diagnostics, self.code, self.limits = source, diagnostics, code, limits
        self.blanked, self.supplied = blank_comments(source.text), 0

    def run(self) -> None:
        grammars.check_depth(self.blanked, self.limits)
        self.diagnostics.source = self.diagnostics.source or self.source
        before = self.diagnostics.errors
        try:
            grammars.load("json", self).parse(self.source.text, on_error=self.recover)
        except lark.exceptions.UnexpectedInput as error:
            if self.diagnostics.errors == before and not self.quoted(error):  # else it follows from what was reported
                fault = grammars.fault(error, self.source.text)
                grammars.report("json", fault, self.diagnostics, self.code, _NAMES)
        if self.diagnostics.errors == before:
            self.error("this is not a JSON value that can be read", Span(0, 1))

    def recover(self, error: Exception) -> bool:
        """A missing comma is supplied; nothing else is guessed."""
        if not isinstance(error, lark.exceptions.UnexpectedToken) or "_COMMA" not in error.accepts:
            return False
        token = error.token
        if token.type in ("$END", "COLON", "RBRACE", "RSQB", "_COMMA", "TRAILING") or self.supplied == _SUPPLIED:
            return False
        self.supplied += 1
        end: int = token.start_pos
        while self.blanked[end - 1].isspace():
            end -= 1
        message = f"`,` is missing before `{str(token)[:20]}`"
        self.error(message, Span(end - 1, end), help="separate members and elements by commas", fix=Fix(Span(end, end), ","))
        error.interactive_parser.feed_token(lark.Token("_COMMA", ","))
        error.interactive_parser.feed_token(token)
        return True

    def quoted(self, error: Exception) -> bool:
        """Report a key without quotes, or a string in single quotes as in Python. The edit corrects all that follow, too."""
        text, at = self.source.text, getattr(error, "pos_in_stream", None)
        if at is not None and (key := re.compile(r"([A-Za-z_]\w*)\s*:").match(text, at)) is not None:
            span = Span(*key.span(1))
            self.error("keys are in double quotes", span, help=f'write `"{key[1]}"`', fix=Fix(span, f'"{key[1]}"'))
            return True
        string = re.compile(r"'[^'\"\n]*'").match(text, at) if at is not None else None
        if string is None:
            return False
        end = text.rindex("'") + 1
        fix = Fix(Span(string.start(), end), re.sub(r"'([^'\"\n]*)'", r'"\1"', text[string.start() : end]))
        self.error("strings are in double quotes", Span(*string.span()), help='write `"`', fix=fix)
        return True

    def error(self, message: str, span: Span, **more: Unpack[More]) -> None:
        self.diagnostics.error(self.code, message, span, **more)

    def object(self, children: list[lark.Token]) -> None:
        seen: dict[str, lark.Token] = {}
        for key in (c for c in children if c.type == "STRING"):
            if (first := seen.setdefault(json.loads(key), key)) is not key:
                self.error(f"the key {key} is given twice", _span(key), labels=[(_span(first), "first given here")])

    def pair(self, children: list[lark.Token]) -> lark.Token:
        return children[0]

    def TRAILING(self, token: lark.Token) -> lark.Token:
        span = _span(token)
        self.error("a comma before the closing bracket", span, help="drop the comma", fix=Fix(span, ""))
        return token

    def CONSTANT(self, token: lark.Token) -> lark.Token:
        self.error(f"JSON has no {token}", _span(token), help="gpt.rs writes null for a float that is not finite")
        return token

    def NUMBER(self, token: lark.Token) -> lark.Token:
        if _INTEGER.fullmatch(token):
            self.check_length(token, _span(token).start)
        elif float(token) in (float("inf"), float("-inf")):
            self.error(f"{token} is beyond float64", _span(token))
        return token

    def INTEGERS(self, token: lark.Token) -> lark.Token:
        if len(token) > self.limits.most_digits:
            for digits in _INTEGER.finditer(token):
                self.check_length(digits[0], _span(token).start + digits.start())
        return token

    def check_length(self, digits: str, start: int) -> None:
        if len(digits) > self.limits.most_digits:
            raise too_many_digits(len(digits), pack(start, start + len(digits)))

    def STRING(self, token: lark.Token) -> lark.Token:
        if _SURROGATE.search(token) and _has_surrogate(json.loads(token)):
            self.error("half of a surrogate pair", _span(token), help=r"write both halves: \ud83d\ude00")
        return token


def _span(token: lark.Token) -> Span:
    start = token.start_pos or 0
    return Span(start, start + len(token))
