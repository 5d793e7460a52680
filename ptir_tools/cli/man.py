"""`ptir man`: the help of every command as manual pages, in the macros of man(7)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import click

from ptir_tools import __version__
from ptir_tools.cli import parsing
from ptir_tools.cli.commands import COMMANDS
from ptir_tools.cli.options import argument, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.files import named

_SECTIONS = {
    "Options": "OPTIONS",
    "Commands": "COMMANDS",
    "Exit codes": "EXIT STATUS",
}  # other titles are parts of these sections
_CODE = re.compile(r"`([^`]*)`")
_METAVAR = re.compile(r"([A-Z](?:[\w.]*\w)?)")
_ESCAPES = {"\\": r"\e", "-": r"\-", "'": r"\(aq", '"': r"\(dq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti"}


@subcommand(argument("folder", metavar="DIR"), reads=False)
def command(session: Session, folder: str) -> None:
    """Write the manual pages: ptir.1, and one for each command, such as ptir-verify.1.

    Their text is that of --help. DIR is created if it does not exist.

    \b
    Examples:
      ptir man ~/.local/share/man/man1
      ptir man pages && man -l pages/ptir-verify.1
    """
    with named(folder):
        os.makedirs(folder, exist_ok=True)
    for name in ("", *COMMANDS):
        write_text(os.path.join(folder, f"{_title(name)}.1"), [page(name)])


def page(name: str) -> str:
    """The manual page of the command `name`; the empty name is `ptir` itself. ASCII. Raises KeyError."""
    ctx = click.Context(parsing.group, info_name="ptir", **parsing.group.context_settings)
    result: click.Command | None = parsing.group
    if name:
        result = parsing.group.get_command(ctx, name)
        if result is None:
            raise KeyError(name)
        ctx = click.Context(result, parent=ctx, info_name=name)
    output = Page()
    output.write_lines(f'.TH {_escaped(_title(name).upper())} 1 "" "ptir {__version__}" "User Commands"', ".SH NAME")
    output.write(f"{_title(name)} - {parsing.summary(ctx.command)}")
    ctx.command.format_help(ctx, output)
    output.write_end([_title(other) for other in COMMANDS] if not name else ["ptir"])
    return output.getvalue()


def _title(name: str) -> str:
    return f"ptir-{name}" if name else "ptir"


class Page(click.HelpFormatter):
    """Writes a help as roff. The buffer has lines; the examples are kept for the end of the page."""

    def __init__(self) -> None:
        super().__init__(width=80)
        self.examples: list[str] = []

    def getvalue(self) -> str:
        return "".join(f"{line}\n" for line in self.buffer)

    def write_lines(self, *lines: str) -> None:
        """Lines of roff."""
        self.buffer.extend(lines)

    def write(self, string: str) -> None:
        """Text that is filled; code in backquotes is bold."""
        lines = _styled(_CODE, string, "B").splitlines()
        self.buffer.extend(_protected(line.strip()) for line in lines if line.strip())

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        self.write_lines(".SH SYNOPSIS", f".B {_escaped(prog)}", _styled(_METAVAR, args, "I"))

    def write_paragraph(self) -> None:
        pass  # every section and every paragraph of a text begins with its own macro

    def write_text(self, text: str) -> None:
        self.write_lines(".SH DESCRIPTION")
        for i, paragraph in enumerate(re.split(r"\n\n+", text.strip())):
            unfilled = paragraph.startswith("\b\n")
            head, _, rest = paragraph.removeprefix("\b\n").partition("\n")
            if unfilled and head == "Examples:":
                self.examples += rest.splitlines()
                continue
            self.write_lines(*[".PP"] * bool(i))
            if unfilled:
                self.write_unfilled([head, *rest.splitlines()])
            else:
                self.write(paragraph)

    def write_unfilled(self, lines: Iterable[str]) -> None:
        """Lines that are not filled."""
        self.write_lines(".nf", *(_protected(_escaped(line)) for line in lines), ".fi")

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        for term, meaning in rows:
            self.write_lines(".TP", " ".join(_word(word, i == 0) for i, word in enumerate(term.split())))
            self.write(meaning)

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        self.write_lines(f".SH {_SECTIONS[name]}" if name in _SECTIONS else f".SS {_escaped(name)}")
        yield

    def write_end(self, others: list[str]) -> None:
        """The examples, and the related pages."""
        if self.examples:
            self.write_lines(".SH EXAMPLES")
            self.write_unfilled(line.removeprefix("  ") for line in self.examples)
        self.write_lines(".SH SEE ALSO")
        self.write_lines(*(f".BR {_escaped(other)} (1){',' * (other != others[-1])}" for other in others))


def _word(word: str, first: bool) -> str:
    """A word of a term of a list: names are bold, placeholders are italic."""
    if first or word.startswith("-"):
        bare = word.rstrip(",")
        return f"\\fB{_escaped(bare)}\\fR{word[len(bare) :]}"
    if word[0] in "[/":
        return _escaped(word).replace("|", "|\\:")  # a long choice may be broken there
    return f"\\fI{_escaped(word)}\\fR"


def _styled(pattern: re.Pattern[str], text: str, font: str) -> str:
    """The text, with the matched group of `pattern` in another font."""
    pieces = enumerate(pattern.split(text))
    return "".join(f"\\f{font}{_escaped(piece)}\\fR" if i % 2 else _escaped(piece) for i, piece in pieces)


def _escaped(text: str) -> str:
    """The text with escapes for roff's special characters and for non-ASCII characters."""
    return "".join(_ESCAPES.get(c) or (c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text)


def _protected(line: str) -> str:
    """A line of text that is not a macro."""
    return f"\\&{line}" if line.startswith(".") else line
