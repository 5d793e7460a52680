"""Findings about a program: coded, located, collected, and the same bytes every time."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from ptir_tools.core.lazy import lazy, regex
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.source import Loc, Source, Span
from ptir_tools.core.spelling import did_you_mean, near_names, proposed
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Place, Violation

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from ptir_tools.core import places
    from ptir_tools.core.ir import Annotation, Op
else:
    places = lazy("ptir_tools.core.places")

_LISTED = 16  # names that are listed if none is similar
_SIMILAR = 4  # names that are suggested, at most
_BEGUN = 5  # letters of a name that suggest the names that begin with them
_COMPARED = 50_000  # pairs of names that are compared, at most: about a second
_LISTS = {
    kind: f"`{command}` lists them"
    for kind, command in (("command", "ptir --help"), ("code", "ptir explain"), ("op", "ptir ops"))
}


class Severity(StrEnum):
    """Notes and warnings do not change the exit code, unless `--strict` is given."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Label(NamedTuple):
    """A related place that explains the diagnostic."""

    span: Span
    text: str


class Fix(NamedTuple):
    """An edit of the source that corrects the error: replace `span` by `text`; `also` are further edits that belong to it.

    A `safe` edit corrects only the spelling of syntax. Any other one guesses what was meant: another op, name or value.
    """

    span: Span
    text: str
    also: tuple[Fix, ...] = ()
    safe: bool = False


@dataclass(slots=True, frozen=True)
class Diagnostic:
    """One finding. `code` is of the program's IR; `at` is None when the finding is about the whole file."""

    severity: Severity
    code: str
    message: str
    source: Source | None = None
    at: Loc | Span | None = None
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    fix: Fix | None = None

    @property
    def span(self) -> Span | None:
        """The span of the text, located on demand, since most notes are never shown."""
        return _span(self.source, self.at)

    @property
    def where(self) -> tuple[str, int, int]:
        """(file, line, column); line and column are 1 when there is no span."""
        name = self.source.name if self.source else "<unknown>"
        span = self.span
        if self.source is None or span is None:
            return name, 1, 1
        return (name, *self.source.position(span.start))


class Rejected(Exception):
    """A program was refused: the diagnostics say why. Raised only at the Python API's boundary."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        first = next((d for d in self.diagnostics if d.severity is Severity.ERROR), None)
        super().__init__("rejected" if first is None else "{}:{}:{}: {}".format(*first.where, first.message))


class UsageError(Exception):
    """Wrong usage by the caller: an unknown pass, an input that is missing or of the wrong shape. Exit code 2. `help` suggests a
    command line.
    """

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.help = help


class PluginFault(UsageError):
    """An addition of a plug-in breaks its contract. The message begins with the file and line of its `function`."""

    def __init__(self, function: object, message: str) -> None:
        code = getattr(getattr(function, "func", function), "__code__", None)
        super().__init__(message if code is None else f"{code.co_filename}:{code.co_firstlineno}: {message}")


PLUGIN_FILES: list[str] = []  # the real paths of plug-ins; those of packages are folders, and end with a separator


def is_plugin(path: str) -> bool:
    """Whether the file at `path` belongs to a plug-in."""
    real = os.path.realpath(path)
    return any(real == place or (place.endswith(os.sep) and real.startswith(place)) for place in PLUGIN_FILES)


def _inserted(text: str, statement: Span, operand: Span, op: str) -> Fix | None:
    """The edit that writes `op` on an operand before a statement, and uses its result there."""
    old = text[operand.start : operand.end]
    if not old.startswith("%"):
        return None
    new = f"{re.sub(r'[^%A-Za-z0-9_]', '_', old).rstrip('_')}_{op.partition('(')[0].partition('_')[0]}"
    while re.search(rf"{new}\b", text):
        new += "_"
    indent = text[text.rfind("\n", 0, statement.start) + 1 : statement.start]
    if indent.strip():
        return None
    definition = Fix(Span(statement.start, statement.start), f"{new} = {op.format(old)}\n{indent}")
    return Fix(operand, new, (definition,))


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> UsageError:
    """The error for a name that is not one of `known`; those that begin with it, or the nearest, are suggested. `where` follows
    the name in the message."""
    names = list(dict.fromkeys(known))
    begun = [n for n in names if len(name) >= _BEGUN and n.lower().startswith(name.lower())]
    similar = begun if 0 < len(begun) <= _SIMILAR else near_names(name, names)
    listed = f" (there are: {', '.join(names)})" if len(names) <= _LISTED else ""
    quoted = [f"`{n}`" for n in similar]
    suggested = len(quoted) == 1 or (not listed and 0 < len(quoted) <= _SIMILAR)
    hint = f"; did you mean {' or '.join(quoted)}?" if suggested else listed
    return UsageError(f"no {kind} `{name}`{where}{hint}", None if hint else _LISTS.get(kind))


_WORDS = regex(r"\w+|[^\w\s,()\[\]{}<>%:;\"'`=]")


def _keeps_words(text: str, fix: Fix, code: str) -> bool:
    """Whether an edit changes only punctuation, or the case of letters outside of the program's own names."""
    before, after = (_WORDS.findall(t.replace("->", " ")) for t in (text[fix.span.start : fix.span.end], fix.text))
    if code.startswith("Undefined") or fix.text.startswith(("%", "^", "@")):
        return before == after
    return [w.casefold() for w in before] == [w.casefold() for w in after]


if TYPE_CHECKING:

    class More(TypedDict, total=False):
        """Keywords of `Diagnostics.report`."""

        labels: Iterable[tuple[Loc | Span, str]]
        notes: Iterable[str]
        help: str | None
        fix: Fix | None
        instead: str | None
        source: Source | None


@dataclass(slots=True)
class Diagnostics:
    """Collects diagnostics. Code that finds errors reports them and continues."""

    source: Source | None = None
    items: list[Diagnostic] = field(default_factory=list)
    errors: int = 0
    compared: int = 0  # known names with which unknown ones were compared

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.items)

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep `diagnostic`."""
        self.items.append(diagnostic)
        self.errors += diagnostic.severity is Severity.ERROR

    def extend(self, others: Iterable[Diagnostic]) -> None:
        """Keep all of `others`."""
        for other in others:
            self.add(other)

    def proposed(
        self, name: str, known: Collection[str], shown: str = "%{}", written: str = "%{}"
    ) -> tuple[str | None, str | None]:
        """Like `spelling.proposed`. If a file has very many unknown names, nothing is proposed for the last of them."""
        self.compared += len(known)
        if len(known) < self.compared > _COMPARED:
            return None, None
        return proposed(name, known, shown, written)

    def report(
        self,
        severity: Severity,
        code: str,
        message: str,
        at: Loc | Span | None = None,
        *,
        labels: Iterable[tuple[Loc | Span, str]] = (),
        notes: Iterable[str] = (),
        help: str | None = None,
        fix: Fix | None = None,
        instead: str | None = None,
        source: Source | None = None,
    ) -> None:
        """Add a diagnostic about the place `at` of the source. `instead` is the text that must be written there. An edit is safe
        if it corrects an error and is known to be safe, or changes punctuation or the case of letters only."""
        source = source or self.source
        if instead is not None and (span := _span(source, at)) is not None:
            fix = fix or Fix(span, instead)
            help = help or did_you_mean([instead.strip('"')])
        if fix is not None and severity is Severity.ERROR and source is not None:
            fix = fix._replace(safe=fix.safe or all(_keeps_words(source.text, f, code) for f in (fix, *fix.also)))
        shown = tuple(Label(s, text) for where, text in labels if (s := _span(source, where)) is not None)
        self.add(Diagnostic(severity, code, message, source, at, shown, tuple(notes), help, fix))

    def error(self, code: str, message: str, at: Loc | Span | None = None, **more: Unpack[More]) -> None:
        """Keep an error. Keywords are those of `report`."""
        self.report(Severity.ERROR, code, message, at, **more)

    def warning(self, code: str, message: str, at: Loc | Span | None = None, **more: Unpack[More]) -> None:
        """Keep a warning. Keywords are those of `report`."""
        self.report(Severity.WARNING, code, message, at, **more)

    def note(self, code: str, message: str, at: Loc | Span | None = None, **more: Unpack[More]) -> None:
        """Keep a note. Keywords are those of `report`."""
        self.report(Severity.NOTE, code, message, at, **more)

    def violation(
        self, violation: Violation, at: Loc | Span | None, op: Op | None = None, severity: Severity = Severity.ERROR
    ) -> None:
        """Add a diagnostic for a broken rule of the op at `at`. Its span is the part of the op's text that `violation` names."""
        v, source = violation, self.source
        whole = _span(source, v.loc or at)

        def piece(of: Loc | str | Place) -> Span | None:
            if isinstance(of, int):
                return _span(source, of)
            return places.find(source, whole, of, op) if source is not None and whole is not None else None

        place = whole if v.at is None else piece(v.at)
        labels = [(span, text) for of, text in v.labels if (span := piece(of)) is not None and span != place]
        instead = v.instead if place is not None else None
        if instead is not None and v.was is not None and source is not None and place is not None:
            written, was = ("".join(text.split()) for text in (source.text[place.start : place.end], v.was))
            instead = instead if written == was else None
        fix = Fix(place, instead, safe=True) if instead is not None and v.was is not None and place is not None else None
        if v.through is not None and source is not None and whole is not None and place is not None and source.inserts:
            fix = _inserted(source.text, whole, place, v.through)
        self.report(severity, v.code, v.message, place or whole, labels=labels, help=v.help, instead=instead, fix=fix)

    def dropped(self, annotation: Annotation, why: str) -> None:
        """Report that an annotation was dropped, and `why`: a warning if it is required, else a note."""
        if annotation.code:
            severity = Severity.WARNING if annotation.required else Severity.NOTE
            self.report(severity, annotation.code, f"{annotation.title} is dropped: {why}", annotation.loc)

    def sorted(self) -> list[Diagnostic]:
        """In order of position. Diagnostics without a position come last; equal positions keep the order in which they were
        reported."""

        def place(d: Diagnostic) -> tuple[bool, int]:
            span = d.span
            return span is None, span.start if span else 0

        return sorted(self.items, key=place)

    def raise_if_errors(self) -> None:
        """Raise Rejected when there is an error."""
        if self.errors:
            raise Rejected(self.sorted())


def _span(source: Source | None, at: Loc | Span | None) -> Span | None:
    if at is None or isinstance(at, Span):
        return at
    return source.span(at) if source is not None else None
