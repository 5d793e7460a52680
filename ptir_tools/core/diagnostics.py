"""Findings about a program: coded, located, collected, and the same bytes every time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.source import Loc, Source, Span

if TYPE_CHECKING:
    from ptir_tools.core import places
    from ptir_tools.core.ir import Op
else:
    places = lazy("ptir_tools.core.places")

_LISTED = 16  # so many names are listed when none is near
_PROPOSED = 3  # so many names that are equally near are proposed
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
    """An edit of the source that mends it: replace `span` by `text`; `also` are further edits that belong to it."""

    span: Span
    text: str
    also: tuple[Fix, ...] = ()


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
        """The piece of the text; looked for when it is asked for, since most notes are never shown."""
        return _span(self.source, self.at)

    @property
    def where(self) -> tuple[str, int, int]:
        """(file, line, column); line and column are 1 when there is no span."""
        name = self.source.name if self.source else "<unknown>"
        span = self.span
        if self.source is None or span is None:
            return name, 1, 1
        return (name, *self.source.position(span.start))


class Place(NamedTuple):
    """A piece of an op's text, as a type rule knows it; `places.find` finds it in the text."""

    kind: str
    key: int | str = 0
    entry: tuple[int, ...] = ()


OP_NAME = Place("op")


def operand(number: int) -> Place:
    """The operand of this number."""
    return Place("operand", number)


def operands(first: int = 0) -> Place:
    """The operands from number `first` on."""
    return Place("operands", first)


def group(name: str) -> Place:
    """All operands of a group of the declaration."""
    return Place("group", name)


def attribute(name: str, *entry: int) -> Place:
    """The value of an attribute, or one entry of a list, or an entry of that."""
    return Place("attribute", name, entry)


def key(name: str, *time: int) -> Place:
    """The name of an attribute; `time` 1 is where it is given again."""
    return Place("key", name, time)


def result(number: int = 0) -> Place:
    """The declared type of a result."""
    return Place("result", number)


RETURNED = Place("returned")  # what a `return` names
LITERAL = Place("literal")  # the constant that an op gives


class Violation(Exception):
    """A rule that a program breaks, raised by type rules and bodies; whoever knows the op turns it into a diagnostic.

    `at` is the piece of the op's own text to point at: a `Place`, or the text itself; None is the whole op. `instead` is what
    must be written there, where only one thing can be right; with `was`, only where that is there now. `loc` is the op's place
    where the raiser knows it and the catcher may not; `labels` are other places that have to do with it.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        help: str | None = None,
        at: str | Place | None = None,
        instead: str | None = None,
        was: str | None = None,
        loc: Loc = 0,
        labels: Iterable[tuple[Loc | str | Place, str]] = (),
    ) -> None:
        super().__init__(f"{code}: {message}")
        if help is not None:
            self.add_note(f"help: {help}")
        self.code = code
        self.message = message
        self.help = help
        self.at = at
        self.instead = instead
        self.was = was
        self.loc = loc
        self.labels = tuple(labels)


def require(condition: object, code: str, message: str, *, help: str | None = None, at: str | Place | None = None) -> None:
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


class PluginFault(UsageError):
    """What a plug-in added does not do what is asked of it. The message begins with the file and line of its `function`."""

    def __init__(self, function: object, message: str) -> None:
        code = getattr(getattr(function, "func", function), "__code__", None)
        super().__init__(message if code is None else f"{code.co_filename}:{code.co_firstlineno}: {message}")


def unknown_name(kind: str, name: str, known: Iterable[str], where: str = "") -> UsageError:
    """The error for a name that is not one of `known`; the nearest is suggested. `where` follows the name in the message."""
    names = list(dict.fromkeys(known))
    near = nearest(name, names)
    listed = f" (there are: {', '.join(names)})" if len(names) <= _LISTED else ""
    hint = f"; did you mean `{near}`?" if near else listed
    return UsageError(f"no {kind} `{name}`{where}{hint}", None if hint else _LISTS.get(kind))


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The one name of `known` that `name` most likely was meant to be; None when there is none, or there are several."""
    near = near_names(name, known)
    return near[0] if len(near) == 1 else None


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """The names of `known` that are fewest edits away from `name`, and few for its length. Of those, the ones with the same
    letters, or else that share the longest beginning with it. The same letters in another case come first."""
    lower, best = name.lower(), list[str]()
    least = max(1, (len(name) + 1) // 3) if len(name) > 1 else 0
    for each in dict.fromkeys(known):
        if each == name or abs(len(each) - len(name)) > least:
            continue
        distance = 0 if each.lower() == lower else edits(lower, each.lower(), least)
        if distance <= least:
            best = [*(best if distance == least else []), each]
            least = distance
    if len(best) < 2:
        return best
    if swapped := [each for each in best if sorted(each.lower()) == sorted(lower)]:
        best = swapped
    shared = [next((i for i, (x, y) in enumerate(zip(lower, each.lower(), strict=False)) if x != y), len(lower)) for each in best]
    return [each for each, n in zip(best, shared, strict=True) if n == max(shared)]


def edits(a: str, b: str, most: int) -> int:
    """How many letters to add, drop, change or swap with their neighbor between `a` and `b`; `most + 1` for more than `most`."""
    before, row = list[int](), list(range(len(b) + 1))
    for i, x in enumerate(a):
        older, before, row = before, row, [i + 1]
        for j, y in enumerate(b):
            cost = min(before[j] + (x != y), before[j + 1] + 1, row[j] + 1)
            if i and j and x == b[j - 1] and a[i - 1] == y:
                cost = min(cost, older[j - 1] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


def did_you_mean(near: Sequence[str], otherwise: str | None = None) -> str | None:
    """The help that names what may have been meant."""
    if not 1 <= len(near) <= _PROPOSED:
        return otherwise
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}?"


def proposed(name: str, known: Iterable[str], shown: str = "%{}", written: str = "%{}") -> tuple[str | None, str | None]:
    """(the help, the edit) for a name that is not among those that are known: how each is shown, and how it is written."""
    near = near_names(name, known)
    return did_you_mean([shown.format(x) for x in near]), written.format(near[0]) if len(near) == 1 else None


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
        instead: str | None = None,
        source: Source | None = None,
    ) -> None:
        """Keep a finding about the place `at` of the source. `instead` is what must be written there."""
        source = source or self.source
        if instead is not None and (span := _span(source, at)) is not None:
            fix = fix or Fix(span, instead)
            help = help or did_you_mean([instead.strip('"')])
        shown = tuple(Label(s, text) for where, text in labels if (s := _span(source, where)) is not None)
        self.add(Diagnostic(severity, code, message, source, at, shown, tuple(notes), help, fix))

    def error(self, code: str, message: str, at: Loc | Span | None = None, **more: object) -> None:
        """Keep an error. Keywords are those of `report`."""
        self.report(Severity.ERROR, code, message, at, **more)  # type: ignore[arg-type]

    def warning(self, code: str, message: str, at: Loc | Span | None = None, **more: object) -> None:
        """Keep a warning. Keywords are those of `report`."""
        self.report(Severity.WARNING, code, message, at, **more)  # type: ignore[arg-type]

    def note(self, code: str, message: str, at: Loc | Span | None = None, **more: object) -> None:
        """Keep a note. Keywords are those of `report`."""
        self.report(Severity.NOTE, code, message, at, **more)  # type: ignore[arg-type]

    def violation(self, violation: Violation, at: Loc | Span | None, op: Op | None = None) -> None:
        """Keep an error for a broken rule of the op at `at`, pointing at the piece of its text that `violation` names."""
        v, source = violation, self.source
        whole = _span(source, v.loc or at)

        def piece(of: Loc | str | Place) -> Span | None:
            if isinstance(of, int):
                return _span(source, of)
            return places.find(source, whole, of, op) if source is not None and whole is not None else None

        found = None if v.at is None else piece(v.at)
        labels = [(span, text) for of, text in v.labels if (span := piece(of)) is not None and span != found]
        instead = v.instead if found is not None else None
        if instead is not None and v.was is not None and source is not None and found is not None:
            written, was = ("".join(text.split()) for text in (source.text[found.start : found.end], v.was))
            instead = instead if written == was else None
        self.error(v.code, v.message, found or whole, labels=labels, help=v.help, instead=instead)

    def sorted(self) -> list[Diagnostic]:
        """In order of position; what has none comes last, and equal positions keep the order of discovery."""

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
