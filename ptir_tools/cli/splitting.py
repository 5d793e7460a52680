"""`--split-input`: several programs in one file, divided by lines `// -----` (`# -----`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

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
    boundary = f"\n{'#' if to == 'mind' or (to is None and own and own[1] == '#') else '//'} -----\n\n"
    return [piece for i, text in enumerate(texts) for piece in ([boundary] * (i > 0) + [*text])]


def write_programs(
    session: Session, file: str, output: str | None, split: bool, to: str | None, make: Callable[[Source], Iterable[str]]
) -> None:
    """Write what `make` makes, in format `to` (None: the input's), of the program in `file`, or with `split` of each of its
    programs.

    One that is refused or hits a limit leaves its place empty on standard output, and a file as it was; the others are told of
    all the same, and the command ends with the highest exit code.
    """
    source = session.opened(file)
    if not split:
        write_text(output, make(source))
        return
    made: list[Iterable[str]] = []

    def one(part: Source) -> int:
        session.reporter.sources.append(part)
        made.append([])
        made[-1] = make(part)
        return 0

    status = session.highest(programs(source), one)
    if not status or to_stdout(output):
        write_text(output, joined(made, source, to))
    if status:
        raise click.exceptions.Exit(status)


def only_one(split: bool, **files: str | None) -> None:
    """Raise UsageError when `split` is asked for together with a file that holds something of one program."""
    for name, path in files.items():
        if split and path is not None:
            raise UsageError(f"--{name} is for one program; it does not go with --split-input")
