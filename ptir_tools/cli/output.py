"""Where results go: to files, which are written completely or not at all, or to standard output, but never binary to a
terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.files import named, replacing, require_writable
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.render import clean_lines
from ptir_tools.core.source import Source
from ptir_tools.core.typed import IO, TYPE_CHECKING
from ptir_tools.dialects import FORMATS, writable

if TYPE_CHECKING:
    import difflib

    from ptir_tools.core import arrayfiles
    from ptir_tools.core.arrays import Array
    from ptir_tools.dialects import weights
    from ptir_tools.tools import splitting
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")
    weights = lazy("ptir_tools.dialects.weights")
    difflib = lazy("difflib")
    splitting = lazy("ptir_tools.tools.splitting")


def to_stdout(path: str | None) -> bool:
    """Whether `-o` means standard output."""
    return path in (None, "", "-")


def is_folder(path: str | None) -> bool:
    """Whether `-o` names a folder."""
    return not to_stdout(path) and (str(path).endswith("/") or os.path.isdir(str(path)))


def form_of(form: str | None, path: str | None, forms: Iterable[str], default: str) -> str:
    """The format of `--to`; else of the suffix of the -o FILE; else `default`."""
    suffix = os.path.splitext(path or "")[1].removeprefix(".").lower()
    return form or (suffix if suffix in forms else default)


def format_of(path: str | None) -> str:
    """The format of programs that is named by the suffix of the -o FILE. Raises UsageError if there is none, or more than one."""
    name = os.path.basename(path or "").lower()
    found = [f for f in writable() if name.endswith((f".{f}", FORMATS[f].suffix or f".{f}"))]
    own = [f for f in found if name.endswith(f".{f}")] or found
    if len(own) != 1:
        several = (
            f"{' and '.join(found)} have the suffix of {path}" if found else "it is not known from the suffix of the -o FILE"
        )
        raise UsageError(f"no format is given: {several}", "name it with --to FORMAT")
    return own[0]


def require_one_end(output: str | None, in_place: bool, **looks: bool) -> None:
    """Raise UsageError if more than one of --in-place, -o and the options that write no file is given."""
    named = [f"--{name}" for name, is_set in {"in-place": in_place, **looks}.items() if is_set]
    if in_place and len(named) > 1:
        raise UsageError(f"--in-place writes files, and {named[1]} only reads: give one of them")
    if output is not None and named:
        raise UsageError(f"-o is for one text that is printed, and {named[0]} prints none")


def print_diff(path: str, before: str, after: str, what: str) -> None:
    """Print the differences as a unified diff. Only a newline ends a line; `splitlines` would split at more characters."""
    result = difflib.unified_diff(_lines(before), _lines(after), path, f"{path} ({what})")
    lines = [line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in result]
    write_text(None, lines)


def _lines(text: str) -> list[str]:
    *whole, last = text.split("\n")
    return [f"{line}\n" for line in whole] + [last] * bool(last)


def distinct(read: Sequence[str], **paths: str | None) -> None:
    """Raise UsageError if two options, by their names, write one file, or if an option except `output` writes a file that is
    read."""
    owners: dict[str, str] = {}
    sources = {os.path.realpath(path) for path in read if path != "-"}
    for name, path in paths.items():
        if path is None or to_stdout(path) or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        flag = "--" + name.replace("_", "-")
        if name != "output" and os.path.realpath(path) in sources:
            raise UsageError(f"{flag} would overwrite {path}, which is read")
        if (before := owners.setdefault(os.path.realpath(path), flag)) != flag:
            raise UsageError(f"{before} and {flag} name one file, {path}")


def write_text(path: str | None, pieces: Iterable[str]) -> None:
    """Write `pieces` to the file `path`, or to standard output (None and `-`). Raises OSError."""
    if to_stdout(path):
        sys.stdout.writelines(map(clean_lines, pieces) if sys.stdout.isatty() else pieces)
        return
    with replacing(path) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)


def write_programs(path: str | None, programs: Sequence[Iterable[str] | Iterable[bytes]], join: Callable[..., list[str]]) -> None:
    """Write programs: texts joined by `join`, or one program of bytes. Raises OSError, and UsageError for several of bytes, or
    for bytes and a terminal."""
    written = [list(pieces) for pieces in programs]
    data = [piece for pieces in written for piece in pieces if isinstance(piece, bytes)]
    if not data:
        write_text(path, join(written))
    elif len(written) > 1:
        raise UsageError("a binary file holds one program")
    else:
        write_bytes(path, lambda file: file.writelines(data))


def write_bytes(path: str | None, write: Callable[[IO[bytes]], object]) -> None:
    """Write bytes with `write` to the file `path` (`-`: standard output). Raises OSError, and UsageError for a terminal."""
    if not to_stdout(path):
        with replacing(path) as file:
            write(file)
    elif sys.stdout.isatty():
        raise UsageError("binary output is not written to a terminal; give a file with -o")
    else:
        write(sys.stdout.buffer)


@contextlib.contextmanager
def logging(path: str) -> Iterator[Callable[[str], None]]:
    """Write texts to the file `path` (`-`: standard output) immediately, so that they remain after a crash. An earlier file
    stays until the first text, or until the block ends without an error. Raises OSError."""
    if to_stdout(path):
        yield lambda text: print(text, end="")
        return
    require_writable(path)
    with named(path):
        file = open(path, "a", encoding="utf-8", newline="\n")  # noqa: SIM115  (closed below, under its name)
    fresh = os.path.isfile(path)  # not of a pipe or a device

    def write(text: str) -> None:
        nonlocal fresh
        with named(path):
            if fresh:
                file.truncate(0)
            fresh = False
            file.write(text)

    try:
        yield write
        write("")
    finally:
        with named(path):
            file.close()


def move_weights(session: Session, program: Program, form: str, path: str | None, output: str | None) -> dict[str, Array]:
    """Write constants to the file at `path`, to which the text then refers. Without `path`, arrays that were read from files
    stay there, and a text that is written to `output` refers to them. Raises UsageError for another format."""
    has_weights = FORMATS[form].has_weights
    if path is None:
        if has_weights:
            session.set(outside=weights.kept(program, "" if to_stdout(output) else os.path.dirname(output or "")))
        return {}
    if not has_weights:
        raise UsageError(f"--weights-to is for text PTIR and MIND; {form} holds its constants itself")
    references, arrays = weights.outside(program, path)
    session.set(outside=references)
    return arrays


def write_weights(path: str | None, arrays: Mapping[str, Array]) -> None:
    """Write the file, if there is one. Raises OSError."""
    if path is not None:
        write_bytes(path, lambda file: arrayfiles.save(path, file, arrays))


class Results(NamedTuple):
    """The results for each program of a file; `status` is the highest exit code."""

    source: Source
    texts: list[Iterable[str] | Iterable[bytes]]
    status: int

    def write(self, output: str | None, to: str | None) -> None:
        """Write the results in format `to` (None: the input's), and end the command if `status` is not 0. If a program was
        refused, nothing is printed for it, and its file is not changed. Raises OSError."""
        if not self.status or to_stdout(output):
            write_programs(output, self.texts, lambda texts: splitting.with_parts_replaced(texts, self.source, to))
        if self.status:
            raise Leave(self.status)


def each_program(session: Session, file: str, split: bool, make: Callable[[Source], Iterable[str] | Iterable[bytes]]) -> Results:
    """The result of `make` for the program in `file`, or with `split` for each of its programs. If one is refused or hits a
    limit, the others are still reported."""
    source = session.opened(file)
    if not split:
        return Results(source, [make(source)], 0)
    texts: list[Iterable[str] | Iterable[bytes]] = []

    def one(part: Source) -> int:
        session.reporter.reads(part)
        texts.append([])
        texts[-1] = make(part)
        return 0

    status = session.highest(splitting.programs(source), one)
    return Results(source, texts, status)


def only_one(what: str, flag: bool, **files: str | None) -> None:
    """Raise UsageError if `what` is given together with an option whose file is for one program."""
    for name, path in files.items():
        if flag and path is not None:
            raise UsageError(f"--{name.replace('_', '-')} is for one program; it does not go with {what}")


def _is_below(file: str, folder: str) -> bool:
    """Whether the path of `file` begins with that of `folder`."""
    return os.path.isabs(file) == os.path.isabs(folder) and os.path.commonpath([folder, file]) == os.path.normpath(folder)


def places_of(files: Sequence[str], given: Sequence[str], folder: str | None) -> Iterator[tuple[str, str | None]]:
    """Where the result of each of `files` goes: below `folder` at its place below `given`; else standard output. Raises
    UsageError if `folder` is a file, OSError."""
    if to_stdout(folder):
        yield from ((file, None) for file in files)
        return
    folder = folder or ""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise UsageError(f"{folder} is a file; what is made of several programs goes to a folder")
    used: set[str] = set()
    for file in files:
        root = next((g for g in given if os.path.isdir(g) and _is_below(file, g)), "")
        place = os.path.join(folder, os.path.relpath(file, root) if root else os.path.basename(file))
        if place in used:
            raise UsageError(f"two programs would be written to {place}")
        used.add(place)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        yield file, place
