"""Rendering of diagnostics: text with the source line and carets, one line each, JSON lines, SARIF, JUnit."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ptir_tools.core.diagnostics import Diagnostic, Fix, Severity
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Source, Span
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import html
    import json
    from urllib import parse
else:
    html = lazy("html")
    json = lazy("json")
    parse = lazy("urllib.parse")

TAB = 4
MAX_WIDTH = 160  # columns of a source line, at most; a longer one is cut around the span
_CONTEXT = 60  # columns to the left of the span when a line is cut
# Control characters, format characters such as those for direction, surrogates, line ends.
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
_CODES = {"error": "1;31", "warning": "1;33", "note": "1;36", "help": "1;32", "bold": "1", "gutter": "1;34"}


@dataclass(slots=True, frozen=True)
class Painter:
    """Wraps text in ANSI colors, or leaves it unchanged."""

    color: bool = False

    def __call__(self, text: str, style: str) -> str:
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m" if self.color and text else text


@dataclass(slots=True, frozen=True)
class _Mark:
    """A span to underline on one line: 0-based code points [start, end), and its label."""

    line: int
    start: int
    end: int
    text: str
    primary: bool


def text(diagnostic: Diagnostic, *, color: bool = False) -> str:
    """The full form: message, place, source lines with carets, notes, help; without a line end."""
    d, paint = diagnostic, Painter(color)
    lines = [paint(f"{d.severity}[{d.code}]", d.severity) + paint(f": {clean(d.message)}", "bold")]
    if d.source is not None:
        where = d.source.name if d.span is None else "{}:{}:{}".format(*d.where)
        marks = _marks(d)
        gutter = len(str(max((m.line for m in marks), default=0)))
        lines.append(f"{' ' * gutter}{paint('-->', 'gutter')} {clean(where)}")
        lines.extend(_snippet(d.source, marks, gutter, paint, d.severity))
    else:
        gutter = 1
    lines.extend(f"{' ' * gutter} {paint('=', 'gutter')} {paint('note', 'bold')}: {clean(n)}" for n in d.notes)
    if d.help:
        first, *rest = d.help.split("\n")
        lines.append(f"{' ' * gutter} {paint('=', 'gutter')} {paint('help', 'help')}: {clean(first)}")
        lines.extend(f"{' ' * gutter}         {clean(r)}" for r in rest)
    return "\n".join(lines)


def short(diagnostic: Diagnostic) -> str:
    """`file:line:col: error[CODE]: message`, on one line."""
    d = diagnostic
    place = "{}:{}:{}: ".format(*d.where) if d.source else ""
    return clean(f"{place}{d.severity}[{d.code}]: {d.message}".replace("\n", " "))


def record(diagnostic: Diagnostic) -> dict[str, object]:
    """The diagnostic as JSON data. Positions are 1-based, in code points; null when there is none."""
    d = diagnostic
    place = _place(d.source, d.span)
    labels = [{"message": label.text, **_place(d.source, label.span)} for label in d.labels]
    more: dict[str, object] = {"labels": labels} if labels else {}
    if d.fix is not None:
        edit, *also = ({"replacement": f.text, **_place(d.source, f.span)} for f in (d.fix, *d.fix.also))
        more["fix"] = {**edit, "safe": d.fix.safe, **({"also": also} if also else {})}
    file = d.source.name if d.source else None
    head = {"severity": str(d.severity), "code": d.code, "message": d.message, "file": file}
    return {**head, **place, "notes": list(d.notes), "help": d.help, **more}


def json_line(diagnostic: Diagnostic) -> str:
    """The diagnostic as one line of JSON."""
    return json.dumps(record(diagnostic), ensure_ascii=False)


def github(diagnostic: Diagnostic) -> str:
    """A workflow command of GitHub Actions, which annotates the line of a change."""
    d = diagnostic
    kinds = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
    about = {"title": d.code}
    if d.source is not None:
        place = _place(d.source, d.span) if d.span is not None else {}
        names = {"line": "line", "end_line": "endLine", "column": "col", "end_column": "endColumn"}
        about = {"file": d.source.name, **{names[k]: str(n) for k, n in place.items()}, **about}
    message = "\n".join([d.message, *d.notes, *([f"help: {d.help}"] if d.help else [])])
    listed = ",".join(f"{k}=" + _command(v, ",:") for k, v in about.items())
    return f"::{kinds[d.severity]} {listed}::{_command(message)}"


def _command(text: str, more: str = "") -> str:
    """Text in a workflow command."""
    return "".join(f"%{ord(c):02X}" if c in "%\r\n" + more else c for c in text)


def sarif(diagnostics: Iterable[Diagnostic], version: str, meanings: Mapping[str, str] | None = None) -> str:
    """All diagnostics as one SARIF 2.1.0 log, with what their codes mean. Columns count UTF-16 code units, as the standard's
    default asks."""
    results: list[dict[str, object]] = []
    codes: dict[str, None] = {}
    for d in diagnostics:
        codes[d.code] = None
        results.append(_sarif_result(d))
    rules = [_rule(code, (meanings or {}).get(code, "")) for code in codes]
    driver = {"name": "ptir", "version": version, "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}
    log = {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
    return json.dumps(log, ensure_ascii=False, indent=2)


def junit(diagnostics: Sequence[Diagnostic], files: Iterable[str]) -> str:
    """A JUnit report: a test case for each of `files`, and for errors of no file one called `ptir`. Its errors are one
    failure; warnings and notes are its output."""
    found: dict[str, list[Diagnostic]] = {name: [] for name in files}
    for d in diagnostics:
        found.setdefault(d.source.name if d.source else "ptir", []).append(d)
    cases = [_junit_case(name, each) for name, each in found.items()]
    failed = sum(any(d.severity is Severity.ERROR for d in each) for each in found.values())
    suite = f'<testsuite name="ptir" tests="{len(found)}" failures="{failed}" errors="0">'
    head = '<?xml version="1.0" encoding="utf-8"?>'
    return "\n".join([head, "<testsuites>", suite, *cases, "</testsuite>", "</testsuites>"])


def _junit_case(name: str, diagnostics: Sequence[Diagnostic]) -> str:
    inside = ""
    if errors := [d for d in diagnostics if d.severity is Severity.ERROR]:
        about = f"type={_quoted(errors[0].code)} message={_quoted(errors[0].message)}"
        inside += f"<failure {about}>{html.escape(clean_lines(_texts(errors)))}</failure>"
    if others := [d for d in diagnostics if d.severity is not Severity.ERROR]:
        inside += f"<system-out>{html.escape(clean_lines(_texts(others)))}</system-out>"
    return f'<testcase classname="ptir" name={_quoted(name)}>{inside}</testcase>'


def _texts(diagnostics: Iterable[Diagnostic]) -> str:
    return "\n\n".join(map(text, diagnostics))


def _quoted(value: str) -> str:
    return f'"{html.escape(clean(value))}"'


def _rule(code: str, meaning: str) -> dict[str, object]:
    if not meaning:
        return {"id": code}
    first = " ".join(meaning.split()).partition(". ")[0].rstrip(".") + "."
    about = {"shortDescription": {"text": first}, "fullDescription": {"text": meaning}}
    return {"id": code, **about, "help": {"text": f"{meaning}\n\n`ptir explain {code}` shows a wrong and a right program."}}


def _sarif_result(d: Diagnostic) -> dict[str, object]:
    message = "\n".join([d.message, *d.notes, *([f"help: {d.help}"] if d.help else [])])
    result: dict[str, object] = {"ruleId": d.code, "level": str(d.severity), "message": {"text": message}}
    if d.source is not None:
        result["locations"] = [_sarif_location(d.source, d.span)]
        related = [_sarif_location(d.source, label.span) | {"message": {"text": label.text}} for label in d.labels]
        result |= {"relatedLocations": related} if related else {}
        if d.fix is not None:
            result["fixes"] = [_sarif_fix(d.source, d.fix, d.help or d.message)]
    return result


def _sarif_fix(source: Source, fix: Fix, about: str) -> dict[str, object]:
    places = [(_sarif_location(source, f.span)["physicalLocation"], f.text) for f in (fix, *fix.also)]
    replacements = [{"deletedRegion": p["region"], "insertedContent": {"text": text}} for p, text in places]
    change = {"artifactLocation": places[0][0]["artifactLocation"], "replacements": replacements}
    return {"description": {"text": about}, "artifactChanges": [change], "properties": {"safe": fix.safe}}


def _sarif_location(source: Source, span: Span | None) -> dict[str, dict[str, object]]:
    physical: dict[str, object] = {"artifactLocation": {"uri": parse.quote(os.fsencode(source.name))}}
    if span is not None:
        (line, column), (end_line, end_column) = _utf16(source, span.start), _utf16(source, span.end)
        region = {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}
        physical["region"] = region
    return {"physicalLocation": physical}


def _utf16(source: Source, offset: int) -> tuple[int, int]:
    line, column = source.position(offset)
    return line, column + sum(ord(c) > 0xFFFF for c in source.line_text(line)[: column - 1])


def _place(source: Source | None, span: Span | None) -> dict[str, int | None]:
    names = ("line", "column", "end_line", "end_column")
    if source is None or span is None:
        return dict.fromkeys(names)
    return dict(zip(names, (*source.position(span.start), *source.position(span.end)), strict=True))


def _marks(d: Diagnostic) -> list[_Mark]:
    """The spans to underline, by line; on one line the primary span comes first."""
    if d.source is None or d.span is None:
        return []
    marks = [_mark(d.source, d.span, "", True)]
    marks.extend(_mark(d.source, label.span, label.text, False) for label in d.labels)
    return sorted(marks, key=lambda m: (m.line, not m.primary, m.start))


def _mark(source: Source, span: Span, label: str, primary: bool) -> _Mark:
    line, column = source.position(span.start)
    length = len(source.line_text(line))
    start = min(column - 1, length)
    end = min(start + max(1, span.end - span.start), max(length, start + 1))
    return _Mark(line, start, end, label, primary)


def _snippet(source: Source, marks: Sequence[_Mark], gutter: int, paint: Painter, severity: Severity) -> Iterator[str]:
    """The marked source lines, each followed by its marks; `...` replaces omitted lines."""
    if not marks:
        return
    bar = paint("|", "gutter")
    empty = f"{' ' * gutter} {bar}"
    yield empty
    last = marks[0].line
    for i, mark in enumerate(marks):
        raw = source.line_text(mark.line)
        cut = _cut(raw, [m for m in marks if m.line == mark.line])
        if i == 0 or mark.line != last:
            if mark.line > last + 1:
                yield paint("...", "gutter")
            yield f"{paint(str(mark.line).rjust(gutter), 'gutter')} {bar} {_show(raw, cut)}".rstrip()
        last = mark.line
        yield f"{empty} {_underline(raw, cut, mark, paint, severity)}"


def _cut(raw: str, marks: Sequence[_Mark]) -> tuple[int, int]:
    """The part of a line to show: all of it, or a window of MAX_WIDTH columns around its first mark."""
    if len(raw) <= MAX_WIDTH and _width(raw, 0) <= MAX_WIDTH:
        return 0, len(raw)
    start, room = min(m.start for m in marks), _CONTEXT
    while start > 0 and (room := room - _char_width(raw[start - 1], 0)) >= 0:
        start -= 1
    end, at = start, 0
    while end < len(raw) and (at := at + _char_width(raw[end], at)) <= MAX_WIDTH:
        end += 1
    return start, end


def _show(raw: str, cut: tuple[int, int]) -> str:
    start, end = cut
    shown = "".join(_glyph(c, at) for c, at in _columns(raw[start:end]))
    return ("…" if start else "") + shown + ("…" if end < len(raw) else "")


def _underline(raw: str, cut: tuple[int, int], mark: _Mark, paint: Painter, severity: Severity) -> str:
    start, end = (min(max(x, cut[0]), cut[1]) for x in (mark.start, mark.end))
    left = _width(raw[cut[0] : start], 0)
    width = max(1, _width(raw[start:end], left))
    pad = " " * (left + (cut[0] > 0))
    line = ("^" if mark.primary else "-") * width
    label = f" {clean(mark.text)}" if mark.text else ""
    return pad + paint(line + label, severity if mark.primary else "gutter")


def _columns(piece: str) -> Iterator[tuple[str, int]]:
    """Each character with its display column."""
    at = 0
    for c in piece:
        yield c, at
        at += _char_width(c, at)


def _width(piece: str, at: int) -> int:
    """Display columns of `piece` when it starts at column `at`."""
    if piece.isascii() and piece.isprintable():
        return len(piece)
    start = at
    for c in piece:
        at += _char_width(c, at)
    return at - start


def _char_width(c: str, at: int) -> int:
    if c == "\t":
        return TAB - at % TAB
    category = unicodedata.category(c)
    if category in _UNSEEN:
        return len(_escape(c))
    if category in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def _glyph(c: str, at: int) -> str:
    """The glyph of a character: blanks for a tab, an escape for a control character."""
    if c == "\t":
        return " " * _char_width(c, at)
    return _escape(c) if unicodedata.category(c) in _UNSEEN else c


def _escape(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{{{ord(c):x}}}"


def clean(message: str) -> str:
    """A line that cannot control the terminal, and that XML can hold: control characters in it are shown as escapes."""
    if message.isascii() and message.isprintable():
        return message
    return "".join(_escape(c) if ord(c) & 0xFFFE == 0xFFFE else _glyph(c, 0) for c in message)


def clean_lines(text: str) -> str:
    """As `clean`, but line ends stay."""
    return text if text.isascii() and text.replace("\n", "").isprintable() else "\n".join(map(clean, text.split("\n")))
