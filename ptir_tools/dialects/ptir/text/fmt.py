"""Laying out text PTIR: indentation, blanks and spelling. Names, order, aliases, defaults and comments stay.

The reader says where the items are; between them stand only blanks and comments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import count, pairwise

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Function
from ptir_tools.core.lazy import regex
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import LENGTH_MASK, Source, Span
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir.text.assembly import CODES, Assembly
from ptir_tools.dialects.ptir.text.reader import assemble
from ptir_tools.dialects.ptir.text.spelling import DTYPES, NAME, QUOTED, SYMBOL, TENSOR, WORD, read_tensor

_TOKEN = regex(
    rf"(?P<blank>[ \t\r\n\f]+)|(?P<comment>//[^\n]*|/\*[\s\S]*?\*/)|(?P<tensor>{TENSOR})"
    rf"|(?P<dense>dense[ \t]*<(?:[^<>\"]|\"[^\"]*\")*>)|(?P<text>{QUOTED}|@(?:{NAME}|{QUOTED})|\^{WORD}|{SYMBOL})"
    rf"|(?P<value>%{NAME})|(?P<number>[+-]?[0-9][\w.+-]*|[+-](?:inf|nan)\b)|(?P<word>{WORD})|(?P<mark>->|[\s\S])"
)
_COMMENT = regex(r"//[^\n]*|/\*[\s\S]*?\*/")
_VALUE = regex(rf"(%{NAME})")
_HOLE = regex(r"\{\{")


class _Token(NamedTuple):
    kind: str
    text: str


def format_text(source: Source, diagnostics: Diagnostics) -> str | None:
    """The text laid out, or None after reporting why it cannot be read. Formatting twice is formatting once.

    Errors other than of syntax, such as a name that is not defined, do not keep a text from being laid out.
    """
    if hole := _HOLE.search(source.text):
        message, help = "a snippet is laid out once its placeholders are filled", "ptir translate --to ptir --set name=value"
        diagnostics.error("UnfilledPlaceholder", message, Span(*hole.span()), help=help)
        return None
    found = Diagnostics(source)
    assembly = assemble(source, found, Options())
    assembly.finish()
    places = _places(source, assembly)
    if found.errors and (any(d.code == CODES.syntax for d in found) or not _whole(source.text, places)):
        diagnostics.extend(found)
        return None
    return "\n".join([*_lines(source, places), ""])


def _whole(text: str, places: list[Span]) -> bool:
    """Whether the items are apart, with only blanks and comments between them."""
    ends = [0, *(p.end for p in places)]
    starts = [*(p.start for p in places), len(text)]
    return all(a <= b and not _COMMENT.sub("", text[a:b]).strip() for a, b in zip(ends, starts, strict=True))


def _places(source: Source, assembly: Assembly) -> list[Span]:
    """The items of the text in order. Raises LimitExceeded for one that is too long to have a place."""
    locs = list(assembly.marks)
    for block in assembly.program.blocks():
        locs += [op.loc for op in block.body]
        if isinstance(block, Function):
            locs += [op.loc for hint in block.annotations for op in hint.body]
    locs.sort()
    if (long := next((loc for loc in locs if loc & LENGTH_MASK == LENGTH_MASK), None)) is not None:
        raise LimitExceeded(f"a statement of {LENGTH_MASK} characters", loc=long)
    return [span for loc in locs if (span := source.span(loc)) is not None]


def _lines(source: Source, places: list[Span]) -> list[str]:
    lines: list[str] = []
    known: dict[str, str] = {}  # forms of items, by their text without the names of values
    depth, at = 0, 0
    for start, end in places:
        text = source.text[start:end]
        _gap(lines, source.text[at:start], "  " * depth, text)
        depth -= text[0] == "}"
        indent = "  " * depth
        if "/" in text or "$" in text or text[-1] == "{":
            *comments, item = _laid_out(text)
            lines += [indent + comment for comment in comments]
        else:
            parts = _VALUE.split(text)
            shape = "%".join(parts[::2])
            if shape not in known:
                known[shape] = _form(text)
            item = known[shape].format(*parts[1::2])
        lines.append(indent + item)
        depth += text[-1] == "{"
        at = end
    _gap(lines, source.text[at:], "", "}")
    return lines


def _form(text: str) -> str:
    """For `format`: the layout of what differs from an item without comments in the names of values alone."""
    numbers = count()
    (item,) = _laid_out(_VALUE.sub(lambda m: f"%${next(numbers)}", text))
    return re.sub(r"%\$([0-9]+)", r"{\1}", item.replace("{", "{{").replace("}", "}}"))


def _gap(lines: list[str], text: str, indent: str, following: str) -> None:
    """Add what is between two items: a comment on the line of the item before stays there, any other has a line of its
    own. Of several blank lines one stays, none inside the braces of a block."""
    newlines, at = 0 if lines else 1, 0
    for m in _COMMENT.finditer(text):
        newlines += text.count("\n", at, m.start())
        if newlines == 0:
            lines[-1] += " " + m[0]
        else:
            lines += [""] * (newlines > 1 and not lines[-1].endswith("{")) if lines else []
            lines.append(indent + m[0])
        newlines, at = 0, m.end()
    newlines += text.count("\n", at)
    if newlines > 1 and lines and following[0] != "}" and not lines[-1].endswith("{"):
        lines.append("")


# ---- items


def _laid_out(text: str) -> list[str]:
    """The comments of an item, then the item."""
    tokens = [_Token(str(m.lastgroup), m[0]) for m in _TOKEN.finditer(text)]
    comments = [t.text for t in tokens if t.kind == "comment"]
    return [*comments, _item([t for t in tokens if t.kind not in ("blank", "comment")])]


def _item(tokens: list[_Token]) -> str:
    first, last = tokens[0].text, tokens[-1].text
    if len(tokens) > 1 and tokens[1].text == "=":
        return _statement(tokens)
    if first == "return":
        operands = [t for t in tokens[1:] if t.text != ";"]
        return f"return {_names(operands)}" if operands else "return"
    if first == "program":
        return "program " + " ".join(_joined(group) for group in _groups(tokens[1:]))
    if first == "hint":
        return " ".join([t.text for t in tokens[:4]] + [_attribute(*g) for g in _attributes(tokens[4:-1])] + ["{"])
    if last == "{":
        return _header(tokens)
    return first


def _statement(tokens: list[_Token]) -> str:
    """`%name = op(operands) attr[value] -> type`."""
    arrow = max(i for i, t in enumerate(tokens) if t.text == "->")
    operands: list[str] = []
    attrs: list[str] = []
    rest = tokens[3:arrow]
    at = 0
    while at < len(rest):
        t = rest[at]
        end = _matching(rest, at + (t.kind == "word"))
        if t.kind == "word":
            attrs.append(" " + _attribute(t, rest[at + 2 : end]))
        elif t.text == "(":
            operands.append(_names(rest[at + 1 : end]))
        elif t.text != ",":
            operands.append(_sigil(t))
        at = end + 1
    shown = f"{tokens[2].text}({', '.join(operands)}){''.join(attrs)}"
    return f"{_sigil(tokens[0])} = {shown} -> {_joined(tokens[arrow + 1 :])}"


def _header(tokens: list[_Token]) -> str:
    """`func @name(%x: type) -> type {`, a region alike."""
    name = tokens[1].text if tokens[1].text[0] in "@^" else f"@{tokens[1].text.removeprefix('%')}"
    end = _matching(tokens, 2)
    params = [t._replace(text=_sigil(t)) if u.text == ":" else t for t, u in pairwise(tokens[3 : end + 1])]
    rest = tokens[end + 2 : -1]
    at = next((i for i, t in enumerate(rest) if t.text == "where"), len(rest))
    return f"{tokens[0].text} {name}({_joined(params)}) -> {_joined(rest[:at])}{_table(rest[at:])} {{"


def _table(tokens: list[_Token]) -> str:
    """` where ?T = ?past + ?new`: blanks between all tokens, except inside of parentheses and before a comma."""
    shown, before = "", ""
    for text in (x for t in tokens for x in (re.split(r"([+-])", t.text) if t.kind == "number" else [t.text]) if x):
        tight = text in "),;" or before == "(" or (text == "(" and before in ("min", "max"))
        shown, before = f"{shown}{'' if tight else ' '}{text}", text
    return shown


def _attributes(tokens: list[_Token]) -> Iterator[tuple[_Token, list[_Token]]]:
    at = 0
    while at < len(tokens):
        end = _matching(tokens, at + 1)
        yield tokens[at], tokens[at + 2 : end]
        at = end + 1


def _attribute(name: _Token, values: list[_Token]) -> str:
    if name.text.endswith("dtype"):
        values = [t._replace(text=DTYPES[t.text.lower()].name) if t.text.lower() in DTYPES else t for t in values]
    return f"{name.text}[{_joined(values, colon=' : ')}]"


def _groups(tokens: list[_Token]) -> Iterator[list[_Token]]:
    """Tokens, and what is in brackets with its brackets."""
    at = 0
    while at < len(tokens):
        end = _matching(tokens, at) if tokens[at].text == "(" else at
        yield tokens[at : end + 1]
        at = end + 1


def _matching(tokens: list[_Token], at: int) -> int:
    """The index of the bracket that closes the one at `at`; `at` itself when there is none."""
    depth = 0
    for i in range(at, len(tokens)):
        depth += (tokens[i].text in ("(", "[", "{")) - (tokens[i].text in (")", "]", "}"))
        if depth <= 0:
            return i
    return len(tokens) - 1


def _sigil(t: _Token) -> str:
    return f"%{t.text}" if t.kind in ("word", "number") else t.text


def _names(tokens: Iterable[_Token]) -> str:
    """Operands: every name with its sigil, an index without."""
    named: list[_Token] = []
    for t in tokens:
        index = bool(named) and named[-1].text == "["
        if named and named[-1].text == " as ":
            named.append(t)
        elif t.text == "as" and named and named[-1].text != ",":
            named.append(t._replace(text=" as "))
        else:
            named.append(t if index else t._replace(text=_sigil(t)))
    return _joined(named, colon=" : ")


def _joined(tokens: Iterable[_Token], colon: str = ": ") -> str:
    spaced = {",": ", ", ":": colon, "=": " = "}
    return "".join(spaced.get(t.text) or _spelled(t) for t in tokens).replace(", )", ")")


def _spelled(t: _Token) -> str:
    if t.kind == "tensor":
        try:
            return str(read_tensor(t.text))
        except Violation:
            return t.text
    if t.kind != "dense":
        return t.text
    payload = t.text[t.text.index("<") + 1 : -1].strip()
    plain = not re.search(r"[\"/\n]", payload)
    return f"dense<{re.sub(r'[ ]*,[ ]*', ', ', payload) if plain else payload}>"
