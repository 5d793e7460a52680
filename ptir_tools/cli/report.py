"""Diagnostics in the chosen format and at the chosen place, other errors, and the exit codes."""

from __future__ import annotations

import errno
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from ptir_tools import __version__
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, PluginFault, Rejected, Severity, UsageError
from ptir_tools.core.files import replacing
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import tempfile
    import traceback

    from ptir_tools import plugins
    from ptir_tools.cli import tables
    from ptir_tools.core import render
    from ptir_tools.tools import explanations
else:
    render = lazy("ptir_tools.core.render")
    tables = lazy("ptir_tools.cli.tables")
    explanations = lazy("ptir_tools.tools.explanations")
    plugins = lazy("ptir_tools.plugins")
    tempfile = lazy("tempfile")
    traceback = lazy("traceback")

OK, REJECTED, USAGE, LIMIT, IO, INTERNAL, INTERRUPTED, PIPE = 0, 1, 2, 3, 4, 70, 130, 141

_MEANINGS = {
    OK: "success",
    REJECTED: "the program was rejected, it failed at run time, or a comparison failed",
    USAGE: "wrong usage: an option, a pass or an input is missing or does not fit",
    LIMIT: "a limit was hit",
    IO: "a file cannot be read or written",
    INTERNAL: "internal error",
    INTERRUPTED: "interrupted",
    PIPE: "the reader of a pipe closed it",
}

FORMS = ("text", "short", "json", "sarif", "github", "junit")  # of diagnostics
MACHINE = FORMS[2:]  # for programs
_DOCUMENTS = ("sarif", "junit")  # of which all diagnostics are one, written at the end
_PAUSE = 0.1  # seconds between two lines of progress
_COLUMNS = 80  # of a terminal of unknown width


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether to use color. `auto` does on a terminal, unless NO_COLOR is set or the terminal is dumb."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Leave(Exception):
    """The command ends here with an exit code, and all messages are written."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@dataclass(slots=True)
class Reporter:
    """Shows findings. There is one per command line; the options of `options.py` set it."""

    color: str = "auto"
    form: str = "text"
    max_errors: int = 20
    quiet: bool = False
    verbose: bool = False
    strict: bool = False
    notes: bool = False  # notes are shown without -v (verify)
    sources: list[Source] = field(default_factory=list)  # all that were read; the reproducer has the last
    comment: str = "//"  # the mark of a comment in the program that was read
    reproducer: str = ""  # the command's own contents for the reproducer of an internal error
    held: list[Diagnostic] = field(default_factory=list)  # of a form that is one document
    read: dict[str, bool] = field(default_factory=dict)  # the names of all files that were read; whether there are errors
    path: str | None = None  # the file that gets the diagnostics
    texts: list[str] = field(default_factory=list)  # its lines
    prints: bool = True  # whether the command prints results, so that diagnostics for programs go to standard error
    shown: int = 0  # diagnostics written so far; an empty line separates them
    gap: str = ""  # written before the first diagnostic
    showing: bool = False  # whether a line of progress is on the terminal

    def settle(self, diagnostics: Diagnostics) -> None:
        """Show the diagnostics and forget them. Leave with exit code 1 if there were errors (with --strict notes and warnings,
        too)."""
        if self.status(diagnostics):
            raise Leave(REJECTED)

    def status(self, diagnostics: Diagnostics) -> int:
        """Show the diagnostics and forget them. 1 if there were errors (with --strict notes and warnings, too), else 0."""
        shown = [replace(d, severity=Severity.ERROR) for d in diagnostics.sorted()] if self.strict else diagnostics.sorted()
        diagnostics.items.clear()
        diagnostics.errors = 0
        self.show(shown)
        failed = [d for d in shown if d.severity is Severity.ERROR]
        self.read.update({d.source.name: True for d in failed if d.source is not None})
        return int(bool(failed))

    def show(self, results: Iterable[Diagnostic]) -> None:
        """Write the diagnostics that the options select: at most `max_errors` errors, and in formats for people as many notes
        and warnings of each code."""
        wanted = [d for d in results if self._wanted(d)]
        left: Counter[tuple[Severity, str]] = Counter()
        for d in wanted:
            kind = (d.severity, "" if d.severity is Severity.ERROR else d.code)
            left[kind] += 1
            if left[kind] <= self.max_errors or (kind[1] and self.form in MACHINE):
                self._write(d)
        for (severity, code), n in left.items():
            if n > self.max_errors and self.form == "text" and not code:
                self.say(f"{n - self.max_errors} more errors; --max-errors {n} shows them")
            elif n > self.max_errors and self.form in ("text", "short") and code:
                self.say(f"... and {n - self.max_errors} more {code} {severity}s")

    def fail(self, code: str, message: str, help: str | None = None) -> None:
        """Report an error that does not concern a file: usage, an interrupt, an internal error."""
        diagnostic = Diagnostic(Severity.ERROR, code, message, help=help)
        if self.form in MACHINE:
            self._write(diagnostic)
        else:
            shown = f"error: {message}" + (f"\n  = help: {help}" if help and self.form == "text" else "")
            self.say(shown)

    def reads(self, source: Source) -> None:
        """Note that `source` is being read. A part of a text is a source of its own."""
        self.read.setdefault(source.name, False)
        if not self.sources or self.sources[-1] is not source:
            self.sources.append(source)

    def say(self, line: str) -> None:
        """Write a requested line to standard error: a summary, a timing."""
        self._put(render.clean_lines(line))

    def _put(self, line: str) -> None:
        self._clear()
        sys.stderr.write(line + "\n")

    def tell(self, line: str) -> None:
        """Write a line of progress to standard error; not with -q."""
        if not self.quiet:
            self.say(line)

    @contextmanager
    def progress(self, *, prints: bool = False) -> Iterator[Callable[[str], None]]:
        """A function that shows the current state in one line. The next state replaces the line; the end clears it. It shows
        nothing with -q, if standard error is not a terminal, or if the command `prints` to a terminal."""
        shown = sys.stderr.isatty() and not self.quiet and os.environ.get("TERM") != "dumb"
        if not shown or (prints and sys.stdout.isatty()):
            yield lambda line: None
            return
        columns, due = os.get_terminal_size(sys.stderr.fileno()).columns or _COLUMNS, 0.0

        def show(line: str) -> None:
            nonlocal due
            if (now := time.monotonic()) >= due:
                due = now + _PAUSE
                self._clear()
                sys.stderr.write(render.clean(line)[: columns - 1])  # a line that wraps could not be cleared
                sys.stderr.flush()
                self.showing = True

        try:
            yield show
        finally:
            self._clear()

    def _clear(self) -> None:
        if self.showing:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
            self.showing = False

    def tabulate(self, stream: TextIO, plain: Iterable[str], drawn: Callable[[], Iterable[tables.Table]]) -> None:
        """Tables on a terminal, plain lines elsewhere. Only one of them is computed."""
        if stream.isatty() and os.environ.get("TERM") != "dumb":
            tables.draw(stream, drawn(), wants_color(self.color, stream))
        else:
            stream.writelines(map(render.clean_lines, plain))

    def finish(self) -> None:
        """Write what is held once, at the end of a command line: a document, also after an error, and the file of
        --diagnostics-to. Raises OSError."""
        if self.form == "sarif":
            meanings = {code.code: code.meaning for _, code in explanations.all_codes()} if self.held else {}
            self._emit(render.sarif(self.held, __version__, meanings))
        elif self.form == "junit":
            self._emit(render.junit(self.held, self.read))
        self.held.clear()
        path, self.path = self.path, None
        if path is not None:
            with replacing(path) as file:
                file.writelines(text.encode("utf-8", "backslashreplace") for text in self.texts)
        (sys.stdout if self.form in _DOCUMENTS and not self.prints else sys.stderr).flush()

    def _emit(self, text: str) -> None:
        """Write a diagnostic or a document: to the file of --diagnostics-to; a form for programs to standard output, if the
        command prints nothing else there; else to standard error."""
        if self.path is not None:
            self.texts.append(text + "\n")
        elif self.form in MACHINE and not self.prints:
            sys.stdout.write(text + "\n")
        else:
            self._put(text)

    def _wanted(self, d: Diagnostic) -> bool:
        if d.severity is Severity.ERROR:
            return True
        shown = self.notes or self.verbose or d.severity is Severity.WARNING
        return shown and not self.quiet

    def _write(self, d: Diagnostic) -> None:
        if self.form in _DOCUMENTS:
            self.held.append(d)
        elif self.form == "json":
            self._emit(render.json_line(d))
        elif self.form == "short":
            self._emit(render.short(d))
        elif self.form == "github":
            self._emit(render.github(d))
        else:
            colored = self.path is None and wants_color(self.color, sys.stderr)
            self._emit(("\n" if self.shown else self.gap) + render.text(d, color=colored))
        self.shown += 1


def meanings() -> list[tuple[str, str]]:
    """The exit codes and what they mean, for --help."""
    return [(str(code), meaning) for code, meaning in _MEANINGS.items()]


def report_error(error: BaseException, args: Sequence[str] = (), reporter: Reporter | None = None) -> int:
    """Report `error` to the user. The exit code."""
    reporter = reporter or Reporter()
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        return PIPE
    if isinstance(error, KeyboardInterrupt):
        reporter.fail("Interrupted", "interrupted")
        return INTERRUPTED
    try:
        return _report_error(error, args, reporter)
    except OSError as gone:  # standard error, too
        return PIPE if isinstance(gone, BrokenPipeError) else IO


def _report_error(error: BaseException, args: Sequence[str], reporter: Reporter) -> int:
    if isinstance(error, Rejected):
        reporter.show(error.diagnostics)
        return REJECTED
    if isinstance(error, UsageError):
        reporter.fail("PluginError" if isinstance(error, PluginFault) else "UsageError", str(error), error.help)
        return USAGE
    if isinstance(error, (LimitExceeded, MemoryError)):
        reporter.show([_limit(error, reporter)])
        return LIMIT
    if isinstance(error, OSError):
        reporter.show([_unreadable(error)])
        return IO
    if "ptir_tools.plugins" in sys.modules and (at := plugins.place(error)) is not None:
        reporter.fail("PluginError", f"{at}: {type(error).__name__}: {error}")
        return USAGE
    path = _reproducer(error, args, reporter)
    replay = f"; see it again: ptir opt --run-reproducer {path}" if reporter.reproducer else ""
    text = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    message = " ".join(f"internal error: {text}".split())
    reporter.fail("InternalError", message, f"a reproducer is in {path}{replay}")
    return INTERNAL


def usage(message: str, command: str = "") -> UsageError:
    """An error in the command line of `command`."""
    return UsageError(message, f"ptir {command} --help lists the options" if command else None)


def _limit(error: LimitExceeded | MemoryError, reporter: Reporter) -> Diagnostic:
    """The diagnostic, in the program that was read last if the error names none."""
    last, message = (reporter.sources[-1] if reporter.sources else None), str(error) or "out of memory"
    if isinstance(error, MemoryError):
        return Diagnostic(Severity.ERROR, "LimitExceeded", message, last)
    help = f"raise the limit with {error.flag}" if error.flag else None
    return Diagnostic(Severity.ERROR, "LimitExceeded", message, error.source or last, error.loc or None, help=help)


def _unreadable(error: OSError) -> Diagnostic:
    """The diagnostic: the file, and what is wrong with it, without errno."""
    what = error.strerror or str(error)
    what = what[:1].lower() + what[1:]
    name = error.filename
    if name is None:
        return Diagnostic(Severity.ERROR, "IOError", f"standard output: {what}")
    return Diagnostic(Severity.ERROR, "IOError", what, Source(os.fsdecode(name), ""))


def _reproducer(error: BaseException, args: Sequence[str], reporter: Reporter) -> str:
    """Write a file that reproduces the internal error. Its path. The file is a program; everything else is in comments."""
    lines = [f"ptir {__version__}, Python {sys.version.split()[0]}", "ptir " + " ".join(args)]
    lines += "".join(traceback.format_exception(error)).splitlines()
    with tempfile.NamedTemporaryFile("w", prefix="ptir-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.writelines(f"{reporter.comment} {line}\n" for line in lines)
        file.writelines([reporter.reproducer] if reporter.reproducer else [source.text for source in reporter.sources[-1:]])
    return file.name
