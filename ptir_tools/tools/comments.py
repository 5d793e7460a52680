"""Comments in translations: where both formats have them, they are next to the translation of their statement."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Source
from ptir_tools.dialects import FORMATS

_STRING = r'"(?:\\.|[^"\\\n])*"'
_SLASHES = regex(rf"{_STRING}|//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/", re.DOTALL)


@dataclass(slots=True)
class _Kept:
    """Comments of one statement: on lines before it, and after it on its own line."""

    before: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


def keep_comments(lines: Sequence[str], form: str, before: Program, after: Program) -> list[str]:
    """`lines`, the text of `after` in format `form`, with the comments of the text that `before` was read from.

    Those of a statement without a translation are at the next one, those before the first one at the top.
    """
    to, source = FORMATS[form], before.source
    if to.lines_before is None or source is None or before.format not in FORMATS or not FORMATS[before.format].comments_found:
        return list(lines)
    body, mark, first = after.main.body, to.comment, to.lines_before(after.main)
    places = _places(before, source, body, first)
    kept: dict[int, _Kept] = {}
    for text, line, trails in _comments(source, before.format):
        start, end = _place(places, line, otherwise=0 if line < places[0][0] else first + len(body))
        note = kept.setdefault(end if trails else start, _Kept())
        (note.behind if trails and end >= first else note.before).append(f"{mark} {text}")
    return list(_woven(lines, kept))


def _places(before: Program, source: Source, body: Sequence[Op], first: int) -> list[tuple[int, int, int]]:
    """Per op of the source's text, in order: its line, and the first and last line of its translation in `lines`."""
    became: dict[int, list[int]] = {}
    for i, op in enumerate(body):
        became.setdefault(op.loc, []).append(first + i)
    results, following = [], first + len(body)
    spans = [(span.start, op.loc) for op in before.main.body if (span := source.span(op.loc)) is not None]
    for start, loc in sorted(set(spans), reverse=True):
        at = became.get(loc, [following])
        following = at[0]
        results.append((source.position(start)[0], at[0], at[-1]))
    return results[::-1] or [(_last_line(source) + 1, 0, 0)]


def _place(places: Sequence[tuple[int, int, int]], line: int, otherwise: int) -> tuple[int, int]:
    """The first and the last line of the statement on `line` of the source."""
    return next(((start, end) for at, start, end in places if at == line), (otherwise, otherwise))


def _comments(source: Source, form: str) -> Iterator[tuple[str, int, bool]]:
    """Per line of each comment: its text, the line of the statement that it is about, and whether it trails that."""
    blank = list(source.text)
    mark = FORMATS[form].comment
    pattern = _SLASHES if mark == "//" else re.compile(rf"{_STRING}|{re.escape(mark)}(?P<line>[^\n]*)")
    matches = [m for m in pattern.finditer(source.text) if not m[0].startswith('"')]
    for m in matches:
        blank[m.start() : m.end()] = re.sub(r"[^\n]", " ", m[0])
    first, beyond = source.position(0)[0], _last_line(source) + 1
    code = [first + i for i, text in enumerate("".join(blank).split("\n")) if text.strip(" \t\r[]{},")]
    for m in matches:
        line, column = source.position(m.start())
        trails = bool(source.line_text(line)[: column - 1].strip(" \t[]{},"))
        about = line if trails else next((n for n in code if n > line), beyond)
        text = m["line"] if m["line"] is not None else m.groupdict()["block"]
        yield from ((part.strip(" \t*"), about, trails) for part in text.split("\n") if part.strip(" \t*"))


def _last_line(source: Source) -> int:
    return source.position(len(source.text))[0]


def _woven(lines: Sequence[str], kept: dict[int, _Kept]) -> Iterator[str]:
    for i, text in enumerate(lines):
        note = kept.get(i, _Kept())
        indent = text[: len(text) - len(text.lstrip())]
        yield from (f"{indent}{comment}\n" for comment in note.before)
        yield f"{text.rstrip()}  {' '.join(note.behind)}\n" if note.behind else text
