"""The spans of the parts of an op in its text, computed only for diagnostics.

Readers keep the span of a whole statement. Its parts are located in the text on demand, which costs nothing without errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from ptir_tools.core.dtypes import INDEX
from ptir_tools.core.ir import SEGMENTS, Element, Literal, Op, Operand
from ptir_tools.core.lazy import regex
from ptir_tools.core.source import Source, Span
from ptir_tools.core.types import TensorType
from ptir_tools.core.violations import Place

_SIGILS = ("%", "^", "@")
_OPEN, _CLOSE = "([{<", ")]}>"
_TOKEN = regex(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)|->|[%@^#$]?[\w.$]+(?:-[\w$.]+)*|\S')
_HEAD = regex(r"\s*(?:(?![\w.]+\s+%)[%\w$.,: -]*?=\s*)?\"?([\w.]+)")  # `scf.for %i = 0` has no result


def find(source: Source, span: Span, at: str | Place, op: Op | None = None) -> Span | None:
    """The place `at` within the text `span` of `op`; None if it is not in the text. A `str` is found as the last complete
    word, or, if it names an attribute of `op`, as the attribute's value."""
    if isinstance(at, str):
        named = op is not None and at in op.defn.attr_index
        return (find(source, span, Place("attribute", at), op) if named else None) or word(source, span, at)
    text = source.text[span.start : span.end]
    if text.startswith("{") and at.kind in source.keys:  # a node in JSON
        entry = (int(at.key),) if at.kind == "operand" else ()
        result = _attribute(text, Place("attribute", source.keys[at.kind], entry), op)
    else:
        aliases = source.aliases.get(op.defn.short, {}) if op is not None else {}
        written = [at, *(at._replace(key=alias) for alias, name in aliases.items() if name == at.key)]
        result = next(filter(None, (_FINDERS[at.kind](text, each, op) for each in written)), None)
    return None if result is None else Span(span.start + result[0], span.start + result[1])


def word(source: Source, span: Span, needle: str) -> Span | None:
    """The last occurrence of `needle` as a complete word within `span`: operands and attributes come after the result."""
    before = r"(?<![\w$])" if _joins(needle[:1]) else ""
    after = r"(?![\w$]|\.[\w$])" if needle[:1] in _SIGILS else r"(?!\w)" if _joins(needle[-1:]) else ""
    last = None
    for last in re.compile(f"{before}{re.escape(needle)}{after}").finditer(source.text, span.start, span.end):  # noqa: B007
        pass
    return None if last is None else Span(*last.span())


def _joins(char: str) -> bool:
    return char.isalnum() or char == "_"


# ---- text

Found = tuple[int, int] | None


def _tokens(text: str, start: int = 0) -> Iterator[re.Match[str]]:
    return (m for m in _TOKEN.finditer(text, start) if not m[0].startswith(("//", "/*")))


def _operand(text: str, at: Place, op: Op | None) -> Found:
    """Operand number `at.key`."""
    n = int(at.key)
    return _written_at(text, op, n + 1)[n] if op is not None and 0 <= n < len(op.operands) else None


def _written_at(text: str, op: Op, count: int) -> list[Found]:
    """The spans of the first `count` operands. Operands are written in order, so the search for each begins after the previous
    one."""
    head = _HEAD.match(text)
    start = begin = head.end(1) if head else 0
    places, patterns = list[Found](), dict[Operand, re.Pattern[str]]()
    for x in op.operands[:count]:
        if (pattern := patterns.get(x)) is None:
            pattern = patterns[x] = _written(x)
        match = pattern.search(text, start) or pattern.search(text, begin)
        if match is None:
            places.append(None)
            continue
        if match.start() >= start:
            start = match.end()
        places.append((match.start(), closed(text, match.end()) if match[0].endswith("<") else match.end()))
    return places


def _written(x: Operand) -> re.Pattern[str]:
    """How an operand is written."""
    if isinstance(x, Literal):
        index = x.data is not None and isinstance(x.type, TensorType) and not x.type.shape and x.type.dtype is INDEX
        number = str(int.from_bytes(x.data or b"", "little", signed=True)) if index else ""
        return re.compile(rf"(?<![\w.$%-]){number}(?![\w.])" if index else r"\bdense\s*<")
    name = f"{x.value.name}[{x.index}]" if isinstance(x, Element) else x.name
    return re.compile(rf"(?<![\w.$%^@])%?{re.escape(name)}(?![\w$])")


def _group(text: str, at: Place, op: Op | None) -> Found:
    """All operands of a group, from the first to the last, or one of them."""
    members = list(_members(op, str(at.key))) if op is not None else []
    return _around(text, op, [members[i] for i in at.entry if i < len(members)] if at.entry else members)


def _operands(text: str, at: Place, op: Op | None) -> Found:
    """All operands from number `at.key` on; the op's name where there is none."""
    return _around(text, op, range(int(at.key), 0 if op is None else len(op.operands))) or _op(text, at, op)


def _around(text: str, op: Op | None, numbers: Sequence[int]) -> Found:
    """The span around the operands of these numbers; None if none of them is in the text."""
    places = _written_at(text, op, max(numbers) + 1) if op is not None and numbers else []
    spans = [p for n in numbers if (p := places[n]) is not None]
    return (min(p[0] for p in spans), max(p[1] for p in spans)) if spans else None


def _returned(text: str, at: Place, op: Op | None) -> Found:
    """The operands of a `return` or an output list; the complete statement if there are none."""
    match = re.match(r"\s*+[\w.]++(?:\s*+:)?\s*+\(?([^:)]*[^:)\s])", text)
    return match.span(1) if match else (0, len(text))


def _literal(text: str, at: Place, op: Op | None) -> Found:
    """A constant: the value of the attribute `value`, or what is written `dense<…>`."""
    if (result := _attribute(text, Place("attribute", "value"), op)) is not None:
        return result
    inline = re.search(r"\bdense\s*<", text)
    return None if inline is None else (inline.start(), closed(text, inline.end()))


def _members(op: Op, group: str) -> Iterator[int]:
    d = op.defn
    lengths = op.attrs[-1] if SEGMENTS in d.attr_index else d.lengths(op.attrs, len(op.operands)) or ()
    start = 0
    for g, n in zip(d.groups, lengths, strict=False):
        if g.name == group:
            yield from range(start, start + n)
        start += n


def _key(text: str, at: Place, op: Op | None) -> Found:
    """The name of an attribute; with an entry, where it is given for that time."""
    pattern = rf"(?<![\w.$%^@#])\"?{re.escape(str(at.key))}\"?(?=\s*(?:[=:\[]|,|\}}))"
    matches = [m.span() for m in re.finditer(pattern, text)]
    return matches[min(at.entry[0] if at.entry else 0, len(matches) - 1)] if matches else None


def _attribute(text: str, at: Place, op: Op | None) -> Found:
    """The value of an attribute, or one entry of it, or an entry of that."""
    match = re.search(rf"(?<![\w.$%^@#])\"?{re.escape(str(at.key))}\"?\s*([=:\[])\s*", text)
    if match is None:
        return None
    if match[1] == "[":  # as text PTIR writes it
        start, end = match.end(), closed(text, match.start(1) + 1) - 1
    else:
        start = match.end()
        end = next((p for p in _ends(text, start)), len(text))
    value = (start, start + len(text[start:end].rstrip()))
    whole = match[1] == "["  # the brackets around the value are not part of it
    for entry in at.entry:
        if not whole and text[value[0] : value[0] + 1] not in ("[", "("):
            return value
        pieces = list(items(text, *(value if whole else (value[0] + 1, value[1] - 1))))
        if not 0 <= entry < len(pieces):
            return value
        value, whole = pieces[entry], False
    return value


def closed(text: str, start: int) -> int:
    """The offset after the bracket that closes the one open before `start`."""
    depth = 1
    for m in _tokens(text, start):
        depth += (m[0] in _OPEN) - (m[0] in _CLOSE)
        if depth == 0:
            return m.end()
    return len(text)


def _ends(text: str, start: int) -> Iterator[int]:
    """The end of a value that begins at `start`: the next comma or closing bracket outside of its own brackets."""
    depth = 0
    for m in _tokens(text, start):
        depth += (m[0] in _OPEN) - (m[0] in _CLOSE)
        if depth < 0 or (depth == 0 and m[0] == ","):
            yield m.start()


def items(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The pieces between commas of text[start:end], without blanks around them."""
    begin = start
    for stop in [*(p for p in _commas(text, start, end)), end]:
        piece = text[begin:stop]
        left = len(piece) - len(piece.lstrip())
        if piece.strip():
            yield begin + left, begin + left + len(piece.strip())
        begin = stop + 1


def _commas(text: str, start: int, end: int) -> Iterator[int]:
    depth = 0
    for m in _tokens(text, start):
        if m.start() >= end:
            return
        depth += (m[0] in _OPEN) - (m[0] in _CLOSE)
        if depth == 0 and m[0] == ",":
            yield m.start()


def _op(text: str, at: Place, op: Op | None) -> Found:
    """The name of the op."""
    match = _HEAD.match(text)
    return None if match is None else match.span(1)


def _result(text: str, at: Place, op: Op | None) -> Found:
    """The declared type of a result: what follows the last arrow, colon or `to` outside of brackets."""
    depth, start, arrow = 0, None, False
    for m in _tokens(text):
        if depth == 0 and (m[0] in ("->", "to") or (m[0] == ":" and not arrow)):
            start, arrow = m.end(), m[0] != ":"
        depth += (m[0] in _OPEN) - (m[0] in _CLOSE)
        if depth == 0 and m[0] == "{" and arrow:
            break
    if start is None:
        return None
    pieces = list(items(text, start, len(text)))
    wanted = int(at.key)
    count = len(op.results) if op is not None else 1
    if not arrow and len(pieces) > count:  # types of operands come before those of results
        wanted += len(pieces) - count
    return pieces[wanted] if 0 <= wanted < len(pieces) else pieces[-1] if pieces else None


_FINDERS: dict[str, Callable[[str, Place, Op | None], Found]] = {
    "operand": _operand, "operands": _operands, "group": _group, "key": _key, "attribute": _attribute, "op": _op,
    "result": _result, "returned": _returned, "literal": _literal,
}  # fmt: skip
