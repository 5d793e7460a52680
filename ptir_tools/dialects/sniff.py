"""Which format a text is in, by its content."""

import re
from collections.abc import Callable

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Code, FormatEntry
from ptir_tools.core.lazy import regex
from ptir_tools.dialects import DIALECTS, FORMATS

EXPLAIN = (
    Code(
        "UnknownFormat",
        "The text is in no known format. Formats are recognized by content, never by a file's name. For a text that is too "
        "damaged to be recognized, `--from FORMAT` gives the format.",
        wrong="hello\n",
        right="func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n}\n",
    ),
    Code(
        "InvalidEncoding",
        "The file is not UTF-8. All formats are UTF-8 text, with or without a byte-order mark; the position is that of "
        "the first byte that cannot be read. Lines end with LF or with CR LF, and no text has a NUL character.",
    ),
)

_JSON_TOKEN = regex(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]|//[^\n]*|/\*.*?(?:\*/|\Z)|#[^\n]*', re.DOTALL)


def sniff(text: str) -> str | None:
    """The name of the format that `text` is in, or None when it begins like none of them. Formats are asked in order of
    registration, ambiguous ones last; the first one decides."""
    start = beginning(text)
    if text.startswith("{", start) and (found := _json(text, start)) is not None:
        return found
    entries = sorted((entry for dialect in DIALECTS.values() for entry in dialect.formats), key=lambda entry: entry.ambiguous)
    return next((entry.name for entry in entries if _begins(entry, text, start)), None)


def sniff_bytes(data: bytes) -> str | None:
    """The name of the binary format that `data` is in, or None. None that has to look at them begins like a text."""
    textual = data[:1] >= b" " or data[:1] in (b"", b"\n", b"\r", b"\t")
    return next((entry.name for entry in FORMATS.values() if _is_binary(entry.binary, data, textual)), None)


def _is_binary(begins: bytes | Callable[[bytes], bool] | None, data: bytes, textual: bool) -> bool:
    if isinstance(begins, bytes):
        return data.startswith(begins)
    return begins is not None and not textual and begins(data)


def _begins(entry: FormatEntry, text: str, start: int) -> bool:
    if isinstance(entry.begins, str):
        try:
            return bool(entry.begins) and re.compile(entry.begins).match(text, start) is not None
        except re.error as error:
            raise UsageError(f"the format `{entry.name}`: `{entry.begins}` is not a regular expression: {error}") from None
    return entry.begins(text, start)


def beginning(text: str) -> int:
    """Where the text begins, after byte-order mark, blanks and the comments of any format."""
    blank = re.compile(_blanks(), re.DOTALL).match(text)
    return blank.end() if blank else 0


def _blanks() -> str:
    """A regular expression for blanks and comments; what is a directive of some format is not a comment."""
    marks = dict.fromkeys(re.escape(entry.comment) for entry in FORMATS.values())
    directives = [f"(?!{entry.directive})" for entry in FORMATS.values() if entry.directive]
    comments = "|".join(f"{mark}[^\\n]*" for mark in marks)
    return rf"(?:[\s\ufeff]+|/\*.*?(?:\*/|\Z)|{''.join(directives)}(?:{comments}))+"


def _json(text: str, start: int) -> str | None:
    """The format of a JSON text: the first of the known keys at its top level, wherever it is."""
    keys = {key: entry.name for entry in FORMATS.values() for key in entry.json_keys}
    depth, before = 0, ""
    for token in _JSON_TOKEN.finditer(text, start):
        piece = token.group()
        if piece[0] in "/#":
            continue
        if piece in "{[":
            depth += 1
        elif piece in "}]":
            depth -= 1
        elif piece == ":" and depth == 1 and before in keys:
            return keys[before]
        if depth == 0:
            return None
        before = piece
    return None
