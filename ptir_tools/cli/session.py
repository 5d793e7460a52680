"""One command line at work: how it reads programs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import click

from ptir_tools.cli.report import Reporter, told
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source

reading = lazy("ptir_tools.dialects.reading")
sniff = lazy("ptir_tools.dialects.sniff")
symbols = lazy("ptir_tools.core.symbols")
verifier = lazy("ptir_tools.core.verify")

T = TypeVar("T")
STDIN = ("", "-")  # the names of standard input


@contextlib.contextmanager
def named(path: str | None) -> Iterator[None]:
    """An OSError inside tells of `path`, not of a temporary name, nor of nothing."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


@dataclass(slots=True)
class Session:
    """What a command works with: its reporter, the options for readers and verifiers, the format and bindings asked for."""

    ctx: click.Context
    reporter: Reporter
    options: Options = field(default_factory=Options)
    form: str | None = None
    bindings: dict[str, int] = field(default_factory=dict)
    took_stdin: bool = False

    def set(self, **changes: Any) -> None:
        """Change `options` (a command's own flags that readers and verifiers look at)."""
        self.options = replace(self.options, **changes)

    def source(self, path: str, diagnostics: Diagnostics) -> Source | None:
        """The text of a file or of standard input. Raises OSError, LimitExceeded."""
        name, data = self.read(path)
        source: Source | None = reading.decode(data, name, diagnostics, self.options.limits, self.form)
        if source is not None:
            self.reporter.sources.append(source)
        return source

    def parse(self, source: Source, diagnostics: Diagnostics) -> Program | None:
        """The program in `source`, symbols bound, not verified."""
        program: Program | None = reading.read(source, diagnostics, self.options, self.form)
        if program is not None:
            self.reporter.comment = "#" if program.format == "mind" else "//"
        if program is not None and self.bindings:
            symbols.bind(program, self.bindings)
        return program

    def verify(self, program: Program, diagnostics: Diagnostics) -> bool:
        """Verify `program`; what a reader saved of a text with errors is verified, too, so that all are told at once."""
        return bool(verifier.verify(program, diagnostics, self.options))

    def opened(self, path: str) -> Source:
        """The text of a file or of standard input; one that is not UTF-8 ends the command. Raises OSError, LimitExceeded."""
        diagnostics = Diagnostics()
        source = self.source(path, diagnostics)
        self.reporter.settle(diagnostics)
        if source is None:  # what cannot be decoded is reported
            raise ValueError("no source and no diagnostics")
        return source

    def load(self, path: str, *, verify: bool = True) -> tuple[Program, Diagnostics]:
        """Read, bind and verify the program in a file or on standard input, as `program` does."""
        return self.program(self.opened(path), verify=verify)

    def program(self, source: Source, *, verify: bool = True) -> tuple[Program, Diagnostics]:
        """Read, bind and verify. Findings are shown; errors end the command. The collector goes on with what follows."""
        diagnostics = Diagnostics(source)
        program = self.parse(source, diagnostics)
        if program is not None and verify:
            self.verify(program, diagnostics)
        self.reporter.settle(diagnostics)
        if program is None:  # a reader that finds nothing wrong gives a program
            raise ValueError("no program and no diagnostics")
        return program, diagnostics

    def read(self, path: str) -> tuple[str, bytes]:
        """The name and the bytes of a file, at most one more than a program may have. Raises OSError, UsageError."""
        if path not in STDIN:
            path = reading.program_file(path)
            with named(path), open(path, "rb") as file:
                return os.fspath(path), file.read(self.options.limits.file_bytes + 1)
        if sys.stdin.isatty():
            raise click.UsageError(f"{'' if path else 'no FILE, and '}standard input is a terminal", self.ctx)
        if self.took_stdin:
            raise UsageError("standard input can be read once only")
        self.took_stdin = True
        return "<stdin>", sys.stdin.buffer.read(self.options.limits.file_bytes + 1)

    def each(self, paths: Sequence[str], action: Callable[[str], int]) -> None:
        """Do `action` (which gives an exit code) for every file, standard input for none; end with the highest code. For a folder
        that is no trace, every program below it is taken, in the order of names."""
        files = [file for path in paths for file in self.programs_below(path)] if paths else ["-"]
        if status := self.highest(files, action):
            raise click.exceptions.Exit(status)

    def programs_below(self, path: str) -> Iterator[str]:
        """`path`, or when it is a folder the programs below it; files of no known format are named on standard error. Raises
        UsageError for a folder without programs."""
        if path in STDIN or not os.path.isdir(path) or reading.program_file(path) != path:
            yield path
            return
        found = False
        for folder, folders, files in os.walk(path):
            folders[:] = [f for f in sorted(folders) if not f.startswith(".")]
            if reading.is_traced(folder):
                folders[:], files = [], []
                found = True
                yield folder
            for file in (os.path.join(folder, f) for f in sorted(files) if not f.startswith(".")):
                if self.form is not None or self.recognized(file):
                    found = True
                    yield file
                else:
                    self.reporter.tell(f"{file}: not a program of a known format")
        if not found:
            raise UsageError(f"{path}: there is no program in this folder")

    def recognized(self, path: str) -> bool:
        """Whether a file begins like a program; one that cannot be opened is left to whoever reads it."""
        try:
            with open(path, "rb") as file:
                text = file.read(self.options.limits.file_bytes + 1).decode("utf-8", "replace")
        except OSError:
            return True
        return sniff.sniff(text.removeprefix(reading.BOM)) is not None

    def highest(self, things: Iterable[T], action: Callable[[T], int]) -> int:
        """The highest exit code that `action` gives; what ends it for one of the things does not end it for the others."""
        return max((self._status(thing, action) for thing in things), default=0)

    def _status(self, thing: T, action: Callable[[T], int]) -> int:
        try:
            return action(thing)
        except click.exceptions.Exit as error:
            return error.exit_code
        except BrokenPipeError:
            raise
        except (OSError, LimitExceeded) as error:
            return told(error, (), self.reporter)
