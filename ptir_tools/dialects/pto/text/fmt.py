"""`ptir fmt` for PTO: it changes indentation and blanks, nothing else."""

from __future__ import annotations

import re

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source, pack
from ptir_tools.dialects.pto.text import syntax
from ptir_tools.dialects.pto.text.reader import DEPTH

_STRING_OR_COMMENT = regex(r'"(?:[^"\\\n]|\\.)*"|(?://|;)[^\n]*')
_CONTINUES = regex(
    r"(?::|->|to\b|wait\b|,|\{\s*(?:loc|layout|valid|\w+\s*=)|tile<|!|pto\.memref\s*<|iter_args\b|attributes\b|\)|%[\w$.-]+\s*:)"
)


def format_text(source: Source, diagnostics: Diagnostics) -> str | None:
    """The formatted text of `source`; None after reporting syntax errors. Formatting it again changes nothing. Raises
    LimitExceeded where blocks nest too deep."""
    before = diagnostics.errors
    if syntax.parse(source, diagnostics) is None or diagnostics.errors > before:
        return None
    out: list[str] = []
    depth, open_brackets, end = 0, 0, -1
    for line in source.text.split("\n"):
        start, end = end + 1, end + 1 + len(line)
        text = tidy(line)
        code = _STRING_OR_COMMENT.sub(_blank, text)
        if not text:
            if out and out[-1]:
                out.append("")
            continue
        closing = len(code) - len(code.lstrip("}"))
        continues = open_brackets > 0 or _CONTINUES.match(code) is not None
        out.append("  " * max(depth - closing, 0) + ("    " if continues else "") + text)
        depth += code.count("{") - code.count("}")
        if depth > DEPTH + 2:  # a module and a function
            raise LimitExceeded(f"blocks nest deeper than {DEPTH}", loc=pack(start, end))
        open_brackets = max(0, open_brackets + sum(code.count(c) for c in "([") - sum(code.count(c) for c in ")]"))
    return "\n".join(out).strip("\n") + "\n"


def tidy(line: str) -> str:
    """A line without blanks at its ends, and with single blanks inside. Strings and comments do not change."""
    parts: list[str] = []
    at = 0
    text = line.strip()
    for m in _STRING_OR_COMMENT.finditer(text):
        parts += [re.sub(r"[ \t]+", " ", text[at : m.start()]), m[0].rstrip()]
        at = m.end()
    parts.append(re.sub(r"[ \t]+", " ", text[at:]))
    return "".join(parts)


def _blank(m: re.Match[str]) -> str:
    return '""' if m[0].startswith('"') else ""
