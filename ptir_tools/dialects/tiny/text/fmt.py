"""`ptir fmt` for Tiny: one node to a line, blanks and breaks made regular, every token and comment kept."""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Source
from ptir_tools.dialects import jsonc

_TOKEN = regex(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*[\s\S]*?\*/|[{}\[\],:]|[^\s{}\[\],:/"]+|\n')
LINE_DEPTH = 2  # open brackets around an item that begins a line of its own: `{"uops":[`


@collector_paused()
def format_text(source: Source, diagnostics: Diagnostics) -> str | None:
    """`source` in canonical layout: the same tokens and comments, at most one blank line between nodes. Formatting again changes
    nothing. None after a syntax error."""
    before = diagnostics.errors
    jsonc.parse(source, diagnostics)
    if diagnostics.errors > before:
        return None
    return "".join(_Layout(_TOKEN.findall(source.text)).pieces())


class _Layout:
    """A walk over tokens; `depth` counts open brackets."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens
        self.depth = 0
        self.broken = [True]  # per open bracket: whether its items are on lines of their own

    def pieces(self) -> Iterator[str]:
        at_start, breaks, last = True, 0, ""
        for i, token in enumerate(self.tokens):
            if token == "\n":
                breaks += 1
                continue
            comment = token.startswith(("//", "/*"))
            if token in "}]":
                self.depth -= 1
            if at_start or self.new_line(token, last, breaks, comment):
                blank = breaks > 1 and not at_start and token not in "}]" and last not in ("{", "[")
                yield "" if at_start else "\n" * (1 + blank) + "  " * max(self.depth, 0) * (self.depth > 0)
            else:
                yield self.gap(token, last, comment)
            yield token.rstrip()
            if token in "}]":
                self.broken.pop()
            elif token in "{[":
                self.depth += 1
                self.broken.append(self.opens_lines(i))
            at_start, breaks, last = False, 0, token
        yield "\n"

    def opens_lines(self, i: int) -> bool:
        """Whether the items of the bracket at token `i` get lines of their own: in the graph itself, and in a list of nodes."""
        if self.depth == 1:
            return True
        if self.depth != LINE_DEPTH:
            return False
        following = (self.tokens[k] for k in range(i + 1, len(self.tokens)))
        return next((t for t in following if t != "\n" and not t.startswith(("//", "/*"))), "") == "{"

    def new_line(self, token: str, last: str, breaks: int, comment: bool) -> bool:
        if last.startswith("//"):
            return True
        if comment:
            return breaks > 0 and (last in ("{", "[", ",") or last.startswith("/*") or self.broken[-1])
        if token in "}]":
            return self.broken[-1]
        if token == "," or token == ":" or last == ":":
            return False
        return self.broken[-1] and (last in ("{", "[", ",") or (last.startswith("/*") and breaks > 0))

    def gap(self, token: str, last: str, comment: bool) -> str:
        if comment:
            return "  " if token.startswith("//") else " "
        return " " if last == "," or last.startswith("/*") else ""
