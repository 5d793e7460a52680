"""Which format a text is in, told by its content."""

import re

from ptir_tools.core.dialect import Code

EXPLAIN = (
    Code(
        "UnknownFormat",
        "The text begins like no format that can be read. Formats are recognized by content, never by a file's name; "
        "when a text is too damaged to be recognized, `--from FORMAT` says what it is meant to be.",
        wrong="hello\n",
        right="func @f(%x: tensor<f32>) -> tensor<f32> {\n  return %x\n}\n",
    ),
    Code(
        "InvalidEncoding",
        "The file is not UTF-8. All formats are UTF-8 text, with or without a byte-order mark; the position is that of "
        "the first byte that cannot be read.",
    ),
)

_BLANK = re.compile(r"(?:[\s\ufeff]+|//[^\n]*|/\*.*?(?:\*/|\Z)|#(?!pto\b)[^\n]*)+", re.DOTALL)
_PROGRAM = re.compile(r"program\b")
# In a program: the first function or region. Its parameters stand in parentheses in text, in `params:` in a dump.
_HEADER = re.compile(r"^[ \t]*(?:[^\n{]*\{)?[ \t]*(?:func|region)\s*[@^]?[^\s({]*\s*(?P<open>\()?", re.MULTILINE)
# Each row: what the text begins with, and the format it then is in. The first that fits decides.
_BEGINNINGS = (
    (re.compile(r"(?:%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=\s*)?\"?[A-Za-z_]\w*\.[A-Za-z_]"), "pto"),
    (re.compile(r"module\b|#pto\b"), "pto"),
    (re.compile(r"(?:func(?:tion)?|region)\s*[@^\w(]"), "ptir"),
    (re.compile(r"%[\w$.-]+\s*=\s*(?:[A-Z%]|$)|(?:inputs|outputs)\s*:"), "mind"),
)
_JSON_KEYS = {'"uops"': "tiny", '"functions"': "ptir-json", '"spec_version"': "ptir-json"}
_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]:]|//[^\n]*|/\*.*?(?:\*/|\Z)|#[^\n]*', re.DOTALL)


def sniff(text: str) -> str | None:
    """The name of the format that `text` is in, or None when it begins like none of them."""
    start = beginning(text)
    if text.startswith("{", start):
        return _json(text, start)
    if _PROGRAM.match(text, start):
        header = _HEADER.search(_without_comments(text, start))
        return "ptir" if header and header["open"] else "ptir-dump"
    return next((name for pattern, name in _BEGINNINGS if pattern.match(text, start)), None)


def beginning(text: str) -> int:
    """Where the text begins, after byte-order mark, blanks and comments."""
    blank = _BLANK.match(text)
    return blank.end() if blank else 0


def _without_comments(text: str, start: int) -> str:
    """As much of `text` as the first header certainly stands in, comments blanked."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", text[start : start + (1 << 16)], flags=re.DOTALL)


def _json(text: str, start: int) -> str | None:
    """The format of a JSON text: the first of the known keys at its top level, wherever it stands."""
    depth, key = 0, ""
    for token in _JSON_TOKEN.finditer(text, start):
        piece = token.group()
        if piece[0] in "/#":
            continue
        if piece in "{[":
            depth += 1
        elif piece in "}]":
            depth -= 1
        elif piece == ":" and depth == 1 and key in _JSON_KEYS:
            return _JSON_KEYS[key]
        if depth == 0:
            return None
        key = piece
    return None
