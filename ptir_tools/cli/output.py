"""Where results go: files that appear whole or not at all, standard output, never binary on a terminal."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING

from ptir_tools.core.diagnostics import Diagnostics, UsageError, Violation
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.dialects import FORMATS, load_format

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = lazy("tempfile")


def to_stdout(path: str | None) -> bool:
    """Whether `-o` means standard output."""
    return path in (None, "", "-")


def distinct(**paths: str | None) -> None:
    """Raise UsageError when two options, by their names, would write one file."""
    taken: dict[str, str] = {}
    for name, path in paths.items():
        if path is None or to_stdout(path) or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        flag = "--" + name.replace("_", "-")
        if (before := taken.setdefault(os.path.realpath(path), flag)) != flag:
            raise UsageError(f"{before} and {flag} name one file, {path}")


def write_text(path: str | None, pieces: Iterable[str]) -> None:
    """Write `pieces` to the file `path` (None and `-`: to standard output). Raises OSError."""
    if to_stdout(path):
        sys.stdout.writelines(pieces)
        return
    with replacing(path) as file:
        file.writelines(piece.encode("utf-8") for piece in pieces)


def write_bytes(path: str | None, write: Callable[[IO[bytes]], object]) -> None:
    """Let `write` fill the file `path` (`-`: standard output). Raises OSError, and UsageError for a terminal."""
    if not to_stdout(path):
        with replacing(path) as file:
            write(file)
    elif sys.stdout.isatty():
        raise UsageError("binary output is not written to a terminal; give a file with -o")
    else:
        write(sys.stdout.buffer)


@contextlib.contextmanager
def logging(path: str) -> Iterator[Callable[[str], None]]:
    """Writes texts to the file `path` (`-`: to standard output) as they come: what was told before a crash is there.

    Raises OSError.
    """
    if to_stdout(path):
        yield lambda text: print(text, end="")
        return
    with named(path):
        file = open(path, "w", encoding="utf-8", newline="\n")  # noqa: SIM115  (closed below, under its name)

    def write(text: str) -> None:
        with named(path):
            file.write(text)

    try:
        yield write
    finally:
        with named(path):
            file.close()


@contextlib.contextmanager
def replacing(path: str | None) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends well; after an error the old one stands.

    A symbolic link is followed and the mode kept; a pipe or a device is written directly.
    """
    target = os.path.realpath(path or "")
    with named(path):
        mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        with named(path), open(target, "wb") as direct:
            yield direct
        return
    with named(path):
        handle, beside = tempfile.mkstemp(prefix=".ptir-", dir=os.path.dirname(target))
    try:
        with named(path), open(handle, "wb") as file:
            yield file
        os.chmod(beside, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(beside, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise


@contextlib.contextmanager
def named(path: str | None) -> Iterator[None]:
    """An OSError inside tells of `path`, not of the temporary name beside it, nor of nothing."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None


def _mode(path: str) -> int | None:
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def require_format(program: Program, form: str) -> None:
    """Raise UsageError when `form` is a format of another IR."""
    if FORMATS[form].dialect != program.dialect.name:
        raise UsageError(f"a {program.dialect.name} program is not written as {form}; ptir translate --to {form} converts it")


def program_text(program: Program, form: str, diagnostics: Diagnostics, options: Options) -> list[str]:
    """The pieces of `program` in format `form`; what it cannot say goes to `diagnostics`. Raises UsageError."""
    require_format(program, form)
    writer = load_format(form).write
    if writer is None:
        raise UsageError(f"{form} can be read, not written")
    try:
        return list(writer(program, diagnostics, options))
    except Violation as violation:  # of a program that was not verified
        diagnostics.violation(violation, None)
        return []
