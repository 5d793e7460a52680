"""Checks of a text as LLVM's FileCheck has them: `CHECK`, `-NEXT`, `-SAME`, `-NOT`, `-DAG`, `-LABEL`, `-EMPTY`, `-COUNT-N`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence

from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Source, Span

_BLANKS = regex(r"[ \t]+")
# A piece of a pattern: {{regex}}, [[NAME:regex]], [[NAME]], [[@LINE+1]]; a class of characters in brackets may be inside.
_PIECE = regex(r"\{\{(.*?)\}\}|\[\[(\w+):((?:\[[^]]*\]|.)*?)\]\]|\[\[(\w+)\]\]|\[\[#?@LINE([+-]\d+)?\]\]")
_SHOWN = 3  # lines of the output in a message


class Check(NamedTuple):
    """A check of a file: its kind (empty for `CHECK`), how often it must match, its pattern and place, and its line."""

    kind: str
    times: int
    pattern: str
    span: Span
    line: int


class _Failed(Exception):
    """A check does not hold: why, and the place in the output where the search began."""

    def __init__(self, check: Check, why: str, at: int) -> None:
        super().__init__(why)
        self.check, self.at = check, at


def checks(source: Source, prefixes: Sequence[str] = ("CHECK",)) -> Iterator[Check]:
    """The checks in a file."""
    named = "|".join(map(re.escape, prefixes))
    kinds = r"NEXT|SAME|NOT|DAG|LABEL|EMPTY|COUNT-(\d{1,6})"
    for m in re.finditer(rf"(?<![\w-])(?:{named})(?:-({kinds}))?:[^\S\n]*(.*?)[^\S\n]*$", source.text, re.MULTILINE):
        kind = "COUNT" if m[2] else m[1] or ""
        place = Span(*m.span(3)) if m[3] else Span(*m.span())
        yield Check(kind, int(m[2] or 1), m[3], place, source.position(m.start())[0])


def compare(wanted: Sequence[Check], text: str, diagnostics: Diagnostics) -> None:
    """Report the first of the checks that `text` does not meet. Runs of blanks are equal."""
    matcher = _Matcher(_BLANKS.sub(" ", text.replace("\r\n", "\n")))
    try:
        matcher.run(wanted)
    except _Failed as failed:
        diagnostics.error("TestFailed", str(failed), failed.check.span, notes=matcher.notes(failed))
    except re.error as error:
        diagnostics.error("InvalidTest", f"this is not a regular expression: {error}", matcher.current.span)


class _Matcher:
    """The output, the end of the last match, and the values of variables."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.known: dict[str, str] = {}
        self.current: Check

    def run(self, wanted: Sequence[Check]) -> None:
        """Match all checks. Labels divide the text first."""
        ends, at = list[int](), 0
        for check in (c for c in wanted if c.kind == "LABEL"):
            m = self.find(check, at, len(self.text))
            ends.append(m.start())
            at = m.end()
        ends.append(len(self.text))
        dags, nots = list[tuple[int, int]](), list[Check]()
        for i, check in enumerate(wanted):
            if check.kind == "NOT":
                nots.append(check)
                continue
            ended = check.kind == "LABEL"
            limit = ends.pop(0) if ended else ends[0]
            if check.kind == "DAG":
                if nots or not dags:  # a new group
                    self.position, dags = max([self.position, *(end for _, end in dags)]), []
                m = self.find_dag(check, limit, dags)
                dags.append(m.span())
                begins, end = m.start(), self.position
            else:
                self.position, dags = max([self.position, *(end for _, end in dags)]), []
                begins, end = (limit, limit) if ended else self.match(check, limit, first=i == 0)
            self.exclude(nots, begins)
            nots = []
            self.position = self.find(check, limit, len(self.text)).end() if ended else end
        self.position = max([self.position, *(end for _, end in dags)])
        self.exclude(nots, ends[-1])

    def match(self, check: Check, limit: int, first: bool) -> tuple[int, int]:
        """The beginning and end of what a check matches next."""
        if first and check.kind in ("NEXT", "SAME", "EMPTY"):
            raise _Failed(check, f"CHECK-{check.kind} follows another check, and there is none before", 0)
        if check.kind == "EMPTY":
            if not (m := re.compile(r"[^\n]*\n(?=\n|\Z)").match(self.text, self.position)):
                raise _Failed(check, "the next line is not empty", self.position)
            return m.start(), m.end()
        begins = end = self.position
        for k in range(check.times):
            m = self.find(check, end, limit)
            begins = m.start() if k == 0 else begins
            lines = self.text.count("\n", end, m.start())
            if check.kind == "NEXT" and lines != 1:
                raise _Failed(check, f"found {_lines(lines)}, and not on the next line", end)
            if check.kind == "SAME" and lines:
                raise _Failed(check, f"found {_lines(lines)}, and not on the same line", end)
            end = m.end()
        return begins, end

    def find(self, check: Check, start: int, limit: int) -> re.Match[str]:
        """The first match in a part of the text; its variables are set."""
        m = self.compiled(check).search(self.text, start, limit)
        if m is None:
            raise _Failed(check, "this is not in the output", start)
        self.known.update(m.groupdict())
        return m

    def find_dag(self, check: Check, limit: int, taken: Sequence[tuple[int, int]]) -> re.Match[str]:
        """The first match that overlaps none of `taken`."""
        start = self.position
        while True:
            m = self.find(check, start, limit)
            if all(m.end() <= a or m.start() >= b for a, b in taken):
                return m
            start = m.start() + 1

    def exclude(self, nots: Sequence[Check], end: int) -> None:
        """None of `nots` is between the last match and `end`."""
        for check in nots:
            if m := self.compiled(check).search(self.text, self.position, end):
                raise _Failed(check, "this is in the output", m.start())

    def compiled(self, check: Check) -> re.Pattern[str]:
        """The regular expression of a check, with the values of variables."""
        self.current = check
        given, pattern, last, own = _BLANKS.sub(" ", check.pattern), "", 0, set[str]()
        for m in _PIECE.finditer(given):
            pattern += re.escape(given[last : m.start()])
            last = m.end()
            if m[1] is not None:
                pattern += f"(?:{m[1]})"
            elif m[2]:
                pattern += f"(?P<{m[2]}>{m[3]})"
                own.add(m[2])
            elif m[4]:
                if m[4] not in own and m[4] not in self.known:
                    raise _Failed(check, f"no check before gives [[{m[4]}]] a value", self.position)
                pattern += f"(?P={m[4]})" if m[4] in own else re.escape(self.known[m[4]])
            else:
                pattern += str(check.line + int(m[5] or 0))
        return re.compile(pattern + re.escape(given[last:]), re.MULTILINE)

    def notes(self, failed: _Failed) -> list[str]:
        """Where the search began, and the line that is most like the check."""
        line = self.text.count("\n", 0, failed.at) + 1
        lines = self.text.split("\n")
        shown = [f"{line + k}: {x}" for k, x in enumerate(lines[line - 1 : line - 1 + _SHOWN])]
        like = difflib.get_close_matches(failed.check.pattern, lines[line - 1 :], 1)
        here = f"the search begins at line {line} of the output"
        return [here, *shown, *(f"this line is similar: {x.strip()}" for x in like if failed.check.kind != "NOT")]


def _lines(count: int) -> str:
    return "on the same line" if count == 0 else f"{count} line{'s' * (count > 1)} below"
