"""What goes to standard error: diagnostics in the chosen form, and the errors that are not of a program."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TextIO

import click

from ptir_tools import __version__
from ptir_tools.core.diagnostics import Diagnostic, Diagnostics, Severity
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Loc, Source

if TYPE_CHECKING:
    from ptir_tools.cli import tables
    from ptir_tools.core import render
else:
    render = lazy("ptir_tools.core.render")
    tables = lazy("ptir_tools.cli.tables")


def wants_color(choice: str, stream: TextIO) -> bool:
    """Whether to color: `auto` does on a terminal unless NO_COLOR is set or the terminal is dumb."""
    if choice != "auto":
        return choice == "always"
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


@dataclass(slots=True)
class Reporter:
    """How findings are shown. One per command line; the options of `options.py` set it."""

    color: str = "auto"
    form: str = "text"
    max_errors: int = 20
    quiet: bool = False
    verbose: bool = False
    strict: bool = False
    notes: bool = False  # notes are shown without -v (verify)
    sources: list[Source] = field(default_factory=list)  # what was read; the reproducer holds the last
    comment: str = "//"  # how the program that was read begins one
    reproducer: str = ""  # what a command knows better than the source to reproduce an internal error
    held: list[Diagnostic] = field(default_factory=list)  # SARIF is one document at the end
    shown: int = 0  # diagnostics written so far; an empty line stands between them

    def settle(self, diagnostics: Diagnostics) -> None:
        """Show what was found and forget it; leave with exit code 1 when there were errors (notes and warnings with --strict)."""
        if self.status(diagnostics):
            raise click.exceptions.Exit(1)

    def status(self, diagnostics: Diagnostics) -> int:
        """Show what was found and forget it; 1 when there were errors (notes and warnings with --strict), else 0."""
        found = [replace(d, severity=Severity.ERROR) for d in diagnostics.sorted()] if self.strict else diagnostics.sorted()
        diagnostics.items.clear()
        diagnostics.errors = 0
        self.show(found)
        return int(any(d.severity is Severity.ERROR for d in found))

    def show(self, found: Iterable[Diagnostic]) -> None:
        """Write those of `found` that the user wants to see: at most `max_errors` errors, and, for people, as many notes and
        warnings of each code."""
        wanted = [d for d in found if self._wanted(d)]
        left: Counter[tuple[Severity, str]] = Counter()
        for d in wanted:
            kind = (d.severity, "" if d.severity is Severity.ERROR else d.code)
            left[kind] += 1
            if left[kind] <= self.max_errors or (kind[1] and self.form in ("json", "sarif")):
                self._write(d)
        for (severity, code), n in left.items():
            if n > self.max_errors and self.form == "text" and not code:
                self.say(f"{n - self.max_errors} more errors; --max-errors {n} shows them")
            elif n > self.max_errors and self.form in ("text", "short") and code:
                self.say(f"... and {n - self.max_errors} more {code} {severity}s")

    def fail(self, code: str, message: str, help: str | None = None) -> None:
        """Tell an error that is not of the program: usage, limits, files."""
        diagnostic = Diagnostic(Severity.ERROR, code, message, help=help)
        if self.form in ("json", "sarif"):
            self._write(diagnostic)
        else:
            told = f"error: {message}" + (f"\n  = help: {help}" if help and self.form == "text" else "")
            self.say("\n".join(map(render.clean, told.split("\n"))))
        self.finish()

    def place(self, loc: Loc) -> str:
        """` at file:line:column` of the program that was read last, where `loc` is in it; else nothing."""
        span = self.sources[-1].span(loc) if self.sources else None
        return "" if span is None else " at {}:{}:{}".format(self.sources[-1].name, *self.sources[-1].position(span.start))

    def say(self, line: str) -> None:
        """A line on standard error that was asked for: a summary, a timing."""
        sys.stderr.write(line + "\n")

    def tell(self, line: str) -> None:
        """A line of progress on standard error; not with -q."""
        if not self.quiet:
            self.say(line)

    def tabulate(self, stream: TextIO, plain: Iterable[str], drawn: Callable[[], Iterable[tables.Table]]) -> None:
        """Tables on a terminal, the plain lines anywhere else. What is not wanted is not made."""
        if stream.isatty() and os.environ.get("TERM") != "dumb":
            tables.draw(stream, drawn(), wants_color(self.color, stream))
        else:
            stream.writelines(plain)

    def finish(self) -> None:
        """Write what was held back."""
        if self.form == "sarif":
            sys.stderr.write(render.sarif(self.held, __version__) + "\n")
            self.held.clear()
        sys.stderr.flush()

    def _wanted(self, d: Diagnostic) -> bool:
        if d.severity is Severity.ERROR:
            return True
        shown = self.notes or self.verbose or d.severity is Severity.WARNING
        return shown and not self.quiet

    def _write(self, d: Diagnostic) -> None:
        if self.form == "sarif":
            self.held.append(d)
        elif self.form == "json":
            self.say(render.json_line(d))
        elif self.form == "short":
            self.say(render.short(d))
        else:
            self.say("\n" * (self.shown > 0) + render.text(d, color=wants_color(self.color, sys.stderr)))
        self.shown += 1


def reporter_of(ctx: click.Context) -> Reporter:
    """The reporter of the command line that `ctx` belongs to."""
    root = ctx.find_root()
    if root.obj is None:
        root.obj = Reporter()
    return root.obj  # type: ignore[no-any-return]
