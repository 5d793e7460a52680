"""The part of YAML in which conformance cases are written, with the place of everything that is read.

Mappings and lists by indentation, literal blocks (`|`, `|-`), flow lists and mappings, quoted and plain scalars, comments.
Whatever else YAML has (anchors, tags, several documents, folded text) is refused, so that no text is read as what it is not.
"""

from __future__ import annotations

import json
import re

from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Span

_KEY = re.compile(r"""(?P<key>[A-Za-z_][\w-]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*')[ \t]*:(?=[ \t\r\n]|$)""")
_BLANK = re.compile(r"(?:[ \t\r]|(?:(?<=\s)|(?<![^\n]))#[^\n]*)*")
_FLOW_BLANK = re.compile(r"(?:\s|(?<=\s)#[^\n]*)*")
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*'""")
_PLAIN = re.compile(r"(?:(?!\s#|:(?:[ \t]|$))[^\n\r])+", re.MULTILINE)
_FLOW_PLAIN = re.compile(r"(?:(?![ \t]#|:[ \t])[^\n\r,\[\]{}])+")
_BLOCK = re.compile(r"\|([-+]?)[ \t]*(?:#[^\n]*)?\r?$", re.MULTILINE)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d*)")
_FLOAT = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "~": None,
    ".nan": float("nan"),
    ".inf": float("inf"),
    "-.inf": -float("inf"),
}
_DEEPEST = 64

Scalar = str | int | float | bool | None


@dataclass(slots=True, eq=False)
class Node:
    """A value and the part of the text that says it."""

    value: dict[str, Node] | list[Node] | Scalar
    span: Span


class Malformed(Exception):
    """What cannot be read, and where."""

    def __init__(self, message: str, at: int, end: int | None = None) -> None:
        super().__init__(message)
        self.span = Span(at, at + 1 if end is None else end)


def read(text: str) -> Node:
    """The value of a text. Raises Malformed."""
    return _Reader(text).whole()


def plain(node: Node) -> object:
    """The value of a node, without places."""
    if isinstance(node.value, dict):
        return {key: plain(x) for key, x in node.value.items()}
    return [plain(x) for x in node.value] if isinstance(node.value, list) else node.value


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0  # where the next line, or the rest of this one, begins

    def whole(self) -> Node:
        if (indent := self._next()) is None:
            raise Malformed("the file is empty", 0)
        node = self._block(indent, 0)
        if self._next() is not None:
            raise Malformed("the indentation fits nothing above", self.at)
        return node

    def _next(self) -> int | None:
        """Move to the next line that says something; its indentation, or None at the end."""
        while self.at < len(self.text):
            end = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
            if end < len(self.text) and self.text[end] != "\n":
                if "\t" in self.text[self.at : end]:
                    raise Malformed("a tab in the indentation", self.at, end)
                indent, self.at = end - self.at, end
                return indent
            self.at = end + 1
        return None

    def _ended(self) -> None:
        """Nothing but a comment may follow on this line."""
        end = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
        if end < len(self.text) and self.text[end] != "\n":
            raise Malformed("unexpected text after a value", end)
        self.at = end + 1

    def _block(self, indent: int, depth: int) -> Node:
        if depth > _DEEPEST:
            raise Malformed(f"nested more than {_DEEPEST} deep", self.at)
        start = self.at
        listed = self._dash()
        found: dict[str, Node] = {}
        items: list[Node] = []
        here: int | None = indent
        while here == indent and self._dash() == listed:
            if listed:
                self.at += 1
                items.append(self._item(indent, depth))
            else:
                self._entry(found, indent, depth)
            end = self.at
            here = self._next()
            if here is not None and here != indent:
                self.at -= here
        return Node(items if listed else found, Span(start, min(end, len(self.text))))

    def _dash(self) -> bool:
        return re.compile(r"-(?=[ \n\r]|$)").match(self.text, self.at) is not None

    def _item(self, indent: int, depth: int) -> Node:
        """What follows a dash: a mapping that begins on its line, or one value."""
        line = self.text.rfind("\n", 0, self.at) + 1
        self.at = _BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
        if self.at < len(self.text) and self.text[self.at] != "\n" and _KEY.match(self.text, self.at):
            return self._block(self.at - line, depth + 1)
        return self._value(indent, depth)

    def _entry(self, found: dict[str, Node], indent: int, depth: int) -> None:
        if (m := _KEY.match(self.text, self.at)) is None:
            raise Malformed("expected `key: value`", self.at)
        key = str(_scalar(m["key"], self.at))
        if key in found:
            raise Malformed(f"`{key}` is given twice", *m.span("key"))
        self.at = _BLANK.match(self.text, m.end()).end()  # type: ignore[union-attr]
        found[key] = self._value(indent, depth)

    def _value(self, indent: int, depth: int) -> Node:
        """The value that begins here, on this line or below it; afterwards the reader is behind its last line."""
        start = self.at
        if start >= len(self.text) or self.text[start] == "\n":
            self.at = start + 1
            inner = self._next()
            if inner is not None and (inner > indent or (inner == indent and self._dash())):
                return self._block(inner, depth + 1)
            self.at -= inner or 0
            return Node(None, Span(start, start))
        if m := _BLOCK.match(self.text, start):
            self.at = m.end() + 1
            return self._literal(indent, m[1])
        node = self._flow(depth) if self.text[start] in "[{" else self._scalar(_PLAIN)
        self._ended()
        return node

    def _literal(self, indent: int, chomp: str) -> Node:
        """The lines below that are indented deeper, as they are; their span begins with the first one's text."""
        lines, start, own = list[str](), self.at, 0
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)].removesuffix("\r")
            depth = len(line) - len(line.lstrip(" "))
            if line.strip() and depth <= indent:
                break
            own = own or (depth if line.strip() else 0)
            if line.strip() and depth < own:
                raise Malformed("a line of this text is indented less than its first", self.at)
            lines.append(line[own:])
            self.at = end + 1 if end >= 0 else len(self.text)
        text = "\n".join(lines).rstrip("\n") + "\n" * (chomp != "-")
        return Node(text if lines else "", Span(start, self.at))

    def _flow(self, depth: int) -> Node:
        """`[…]`, `{…}` or a scalar in one."""
        text, start = self.text, self.at
        if depth > _DEEPEST:
            raise Malformed(f"nested more than {_DEEPEST} deep", start)
        opening = text[start] if start < len(text) else ""
        if opening not in ("[", "{"):
            return self._scalar(_FLOW_PLAIN)
        items: list[Node] = []
        found: dict[str, Node] = {}
        closing = "]" if opening == "[" else "}"
        self.at += 1
        while not self._closes(closing, start):
            if opening == "{":
                if (m := _KEY.match(text, self.at)) is None:
                    raise Malformed("expected `key: value`", self.at)
                key = str(_scalar(m["key"], self.at))
                if key in found:
                    raise Malformed(f"`{key}` is given twice", *m.span("key"))
                self.at = _FLOW_BLANK.match(text, m.end()).end()  # type: ignore[union-attr]
                found[key] = self._flow(depth + 1)
            else:
                items.append(self._flow(depth + 1))
            self.at = _FLOW_BLANK.match(text, self.at).end()  # type: ignore[union-attr]
            if text[self.at : self.at + 1] == ",":
                self.at += 1
            elif text[self.at : self.at + 1] != closing:
                raise Malformed(f"expected `,` or `{closing}`", min(self.at, len(text)))
        return Node(items if opening == "[" else found, Span(start, self.at))

    def _scalar(self, plain: re.Pattern[str]) -> Node:
        """A quoted text, or what `plain` matches."""
        text, start = self.text, self.at
        first = text[start : start + 1]
        m = _QUOTED.match(text, start) or (plain.match(text, start) if first not in tuple("\"'") else None)
        if m is None:
            raise Malformed("a string that is not closed" if first in ("'", '"') else "expected a value", start)
        if first in tuple("&*!>%@`|"):
            raise Malformed(f"`{first}` of YAML is not read here", start)
        self.at = m.end()
        word = m[0].rstrip()
        return Node(_scalar(word, start), Span(start, start + len(word)))

    def _closes(self, closing: str, opened: int) -> bool:
        self.at = _FLOW_BLANK.match(self.text, self.at).end()  # type: ignore[union-attr]
        if self.at >= len(self.text):
            raise Malformed(f"`{self.text[opened]}` is not closed", opened)
        if self.text[self.at] != closing:
            return False
        self.at += 1
        return True


def _scalar(word: str, at: int) -> Scalar:
    """What a scalar says: quoted, a word of YAML, a number, or text."""
    if word[0] == '"':
        try:
            return str(json.loads(word))
        except ValueError:
            raise Malformed("an escape that JSON does not have", at, at + len(word)) from None
    if word[0] == "'":
        return word[1:-1].replace("''", "'")
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if len(word) <= 4000 and _INTEGER.fullmatch(word):
        return int(word)
    return float(word) if _FLOAT.fullmatch(word) else word
