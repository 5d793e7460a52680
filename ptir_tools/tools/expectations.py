"""`verify --verify-diagnostics`: comments in a program list its expected diagnostics."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ptir_tools.core.diagnostics import Diagnostic, Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Source, Span

_EXPECTED = regex(r"expected-(error|warning|note)(?:@([+-]\d{1,6}))?[ \t]*\{\{(.*?)\}\}")


@dataclass(slots=True)
class _Expected:
    severity: str
    line: int
    pattern: str
    span: Span
    met: bool = False

    def fits(self, d: Diagnostic, line: int) -> bool:
        return d.severity == self.severity and line == self.line and re.search(self.pattern, f"{d.code}: {d.message}") is not None


def compare(source: Source, diagnostics: Diagnostics) -> None:
    """Replace diagnostics by mismatches: an expectation that was not met, an unexpected diagnostic. A pattern is searched in
    `CODE: message`. A diagnostic without a location is on line 1.
    """
    expected = list(_expected(source, errors := Diagnostics(source)))
    for d in diagnostics.sorted():
        line = d.where[1]
        match = next((e for e in expected if not e.met and e.fits(d, line)), None)
        if match is not None:
            match.met = True
        elif d.code != "JsonComment":  # JSON has expectations only in comments
            errors.error("UnexpectedDiagnostic", f"unexpected {d.severity}: {d.code}: {d.message}", d.span)
    for e in expected:
        if not e.met:
            errors.error("MissingDiagnostic", f"no {e.severity} on line {e.line} matches {e.pattern!r}", e.span)
    diagnostics.items[:], diagnostics.errors = errors.items, errors.errors


def _expected(source: Source, diagnostics: Diagnostics) -> Iterator[_Expected]:
    for match in _EXPECTED.finditer(source.text):
        severity, offset, pattern = match.groups()
        span = Span(*match.span())
        try:
            re.compile(pattern)
        except re.error as error:
            diagnostics.error("InvalidExpectation", f"{{{{{pattern}}}}} is not a regular expression: {error}", span)
            continue
        yield _Expected(severity, source.position(match.start())[0] + int(offset or 0), pattern, span)
