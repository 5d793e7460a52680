"""What a program's author is told: coded, located, collected, and the same bytes every time."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Source, Span

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")

_LISTED = 12  # so many names are listed when none is near
_LISTS = {
    kind: f"`{command}` lists them"
    for kind, command in (("command", "ptir --help"), ("code", "ptir explain"), ("op", "ptir ops"))
}


class Severity(StrEnum):
    """How bad it is. Notes and warnings change no exit code unless `--strict`."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Label(NamedTuple):
    """A second place that explains the first."""

    span: Span
    text: str


class Fix(NamedTuple):
    """An edit of the source that would mend it: replace `span` by `text`; `also` are further edits without which it would not."""

    span: Span
    text: str
    also: tuple["Fix", ...] = ()


@dataclass(slots=True, frozen=True)
class Diagnostic:
    """One finding. `code` is of the program's IR; `span` is None when the finding is about the whole file."""

    severity: Severity
    code: str
    message: str
    source: Source | None = None
    span: Span | None = None
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    fix: Fix | None = None

    @property
    def where(self) -> tuple[str, int, int]:
        """(file, line, column); line and column are 1 when there is no span."""
        name = self.source.name if self.source else "<unknown>"
        if self.source is None or self.span is None:
            return name, 1, 1
        return (name, *self.source.position(self.span.start))


class Violation(Exception):
    """A rule that a program breaks, raised by type rules and bodies; whoever knows the op turns it into a diagnostic.

    `at` is the piece of the op's own text to point at: an operand's name, an attribute's name; None is the whole op.
    `loc` is the op's place where the raiser knows it and the catcher may not; `labels` are other places that have to do with it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        help: str | None = None,
        at: str | None = None,
        loc: Loc = 0,
        labels: Iterable[tuple[Loc, str]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        if help is not None:
            self.add_note(f"help: {help}")
        self.code = code
        self.message = message
        self.help = help
        self.at = at
        self.loc = loc
        self.labels = tuple(labels)


def require(condition: object, code: str, message: str, *, help: str | None = None, at: str | None = None) -> None:
    """Raise Violation(code, message) unless `condition` holds."""
    if not condition:
        raise Violation(code, message, help=help, at=at)


class Rejected(Exception):
    """A program was refused: the diagnostics say why. Raised only at the Python API's boundary."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        first = next((d for d in self.diagnostics if d.severity is Severity.ERROR), None)
        super().__init__("rejected" if first is None else "{}:{}:{}: {}".format(*first.where, first.message))


class UsageError(Exception):
    """The caller asked for what cannot be: an unknown pass, an input that is missing or of the wrong shape. Exit code 2.

    `help` tells a command line that would do.
    """

    def __init__(self, message: str, help: str | None = None) -> None:
        super().__init__(message)
        self.help = help


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> UsageError:
    """The error for a name that is not one of `known`; the nearest is suggested. `where` follows the name in the message."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, 1)
    listed = f" (there are: {', '.join(names.values())})" if len(names) <= _LISTED else ""
    hint = f"; did you mean `{names[near[0]]}`?" if near else listed
    return UsageError(f"no {kind} `{name}`{where}{hint}", None if hint else _LISTS.get(kind))


@dataclass(slots=True)
class Diagnostics:
    """A collector. Everything that finds faults is handed one and goes on."""

    source: Source | None = None
    items: list[Diagnostic] = field(default_factory=list)
    errors: int = 0

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self.items)

    def add(self, diagnostic: Diagnostic) -> None:
        """Keep `diagnostic`."""
        self.items.append(diagnostic)
        self.errors += diagnostic.severity is Severity.ERROR

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
        source: Source | None = None,
    ) -> None:
        """Keep a finding about the place `at` of the source."""
        source = source or self.source
        shown = tuple(Label(s, text) for where, text in labels if (s := _span(source, where)) is not None)
        self.add(Diagnostic(severity, code, message, source, _span(source, at), shown, tuple(notes), help, fix))

    def error(self, code: str, message: str, at: Loc | Span | None = None, **more: object) -> None:
        """Keep an error. Keywords are those of `report`."""
        self.report(Severity.ERROR, code, message, at, **more)  # type: ignore[arg-type]

    def warning(self, code: str, message: str, at: Loc | Span | None = None, **more: object) -> None:
        """Keep a warning. Keywords are those of `report`."""
        self.report(Severity.WARNING, code, message, at, **more)  # type: ignore[arg-type]

    def note(self, code: str, message: str, at: Loc | Span | None = None, **more: object) -> None:
        """Keep a note. Keywords are those of `report`."""
        self.report(Severity.NOTE, code, message, at, **more)  # type: ignore[arg-type]

    def violation(self, violation: Violation, at: Loc | Span | None) -> None:
        """Keep an error for a broken rule of the op at `at`, pointing at the piece of its text that `violation` names."""
        span = _span(self.source, violation.loc or at)
        if violation.at and span is not None and self.source is not None:
            span = find_in(self.source, span, violation.at) or span
        self.error(violation.code, violation.message, span, labels=violation.labels, help=violation.help)

    def sorted(self) -> list[Diagnostic]:
        """In order of position; what has none comes last, and equal positions keep the order of discovery."""
        return sorted(self.items, key=lambda d: (d.span is None, d.span.start if d.span else 0))

    def raise_if_errors(self) -> None:
        """Raise Rejected when there is an error."""
        if self.errors:
            raise Rejected(self.sorted())


def _span(source: Source | None, at: Loc | Span | None) -> Span | None:
    if at is None or isinstance(at, Span):
        return at
    return source.span(at) if source is not None else None


def find_in(source: Source, span: Span, needle: str) -> Span | None:
    """Where the whole word `needle` last starts within `span` (operands and attributes stand right of the result)."""
    text, at = source.text, source.text.rfind(needle, span.start, span.end)
    while at >= 0:
        end = at + len(needle)
        if not (end < len(text) and (text[end].isalnum() or text[end] == "_")):
            return Span(at, end)
        at = text.rfind(needle, span.start, at)
    return None
