"""`--split-input`: several programs in one file, divided by lines `// -----` (`# -----`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import click

from ptir_tools.cli.output import to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.source import Source
from ptir_tools.dialects.sniff import beginning

_BOUNDARY = re.compile(r"^[ \t]*(//|#)[ \t]*-----[ \t]*$", re.MULTILINE)

split_option = click.option("--split-input", is_flag=True, help="Lines `// -----` (`# -----`) divide the file into programs.")


def parts(source: Source) -> list[Source]:
    """What stands between the boundaries of `source`; lines and columns are those of the file."""
    found = [m.span() for m in _BOUNDARY.finditer(source.text)]
    starts = (0, *(end for _, end in found))
    ends = (*(start for start, _ in found), len(source.text))
    return [source.part(start, end) for start, end in zip(starts, ends, strict=True)]


def is_blank(source: Source) -> bool:
    """Whether `source` holds nothing but blanks and comments."""
    return beginning(source.text) == len(source.text)


def programs(source: Source) -> list[Source]:
    """The parts of `source` that are more than comments, or say in these what should be found; the first, if none is."""
    found = parts(source)
    return [p for p in found if not is_blank(p) or "expected-" in p.text] or found[:1]


def joined(texts: Sequence[Iterable[str]], source: Source, to: str | None = None) -> list[str]:
    """The pieces of one text in format `to` (None: that of `source`) that has `texts` where `source` has its parts."""
    own = _BOUNDARY.search(source.text)
    return divided(texts, "#" if to == "mind" or (to is None and own and own[1] == "#") else "//")


def divided(texts: Iterable[Iterable[str]], comment: str) -> list[str]:
    """The pieces of one text that has `texts` one after the other, boundaries between them."""
    boundary = f"\n{comment} -----\n\n"
    return [piece for i, text in enumerate(texts) for piece in ([boundary] * (i > 0) + [*text])]


class Made(NamedTuple):
    """What was made of each program of a file; `status` is the highest exit code."""

    source: Source
    texts: list[Iterable[str]]
    status: int

    def write(self, output: str | None, to: str | None) -> None:
        """Write it, in format `to` (None: the input's); end the command when `status` says so.

        What was refused leaves its place empty on standard output, and a file as it was. Raises OSError.
        """
        if not self.status or to_stdout(output):
            write_text(output, joined(self.texts, self.source, to))
        if self.status:
            raise click.exceptions.Exit(self.status)


def each_program(session: Session, file: str, split: bool, make: Callable[[Source], Iterable[str]]) -> Made:
    """What `make` makes of the program in `file`, or with `split` of each of its programs: of these, one that is refused or hits
    a limit does not keep the others from being told of."""
    source = session.opened(file)
    if not split:
        return Made(source, [make(source)], 0)
    texts: list[Iterable[str]] = []

    def one(part: Source) -> int:
        session.reporter.sources.append(part)
        texts.append([])
        texts[-1] = make(part)
        return 0

    status = session.highest(programs(source), one)
    return Made(source, texts, status)


def only_one(split: bool, **files: str | None) -> None:
    """Raise UsageError when `split` is asked for together with a file that holds something of one program."""
    for name, path in files.items():
        if split and path is not None:
            raise UsageError(f"--{name} is for one program; it does not go with --split-input")
