"""One command line: how it reads programs."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

from ptir_tools.cli.report import Leave, Reporter, report_error, usage
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.files import is_below, named
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import NamedTuple, dataclass, field
from ptir_tools.core.source import Source
from ptir_tools.core.typed import IO, Any, TypeVar
from ptir_tools.dialects import FORMATS

parallel = lazy("ptir_tools.cli.parallel")
reading = lazy("ptir_tools.dialects.reading")
verifier = lazy("ptir_tools.core.verify")

T = TypeVar("T")
STDIN = ("", "-")  # the names of standard input

_ARRAYS = (".npy", ".npz", ".safetensors", ".safetensors.index.json")  # suffixes of files in a folder that are not programs
_PIECE = 1 << 20


def shown(path: str) -> str:
    """A file as messages name it."""
    return "<stdin>" if path in STDIN else path


def _at_most(most: int, file: IO[bytes], name: str) -> bytes:
    """The next `most` bytes, read in pieces, because one large read would allocate all of them. Raises LimitExceeded for an
    endless device, such as /dev/zero."""
    chunks: list[bytes] = []
    while most and (piece := file.read(min(most, _PIECE))):
        if chunks and _is_device(file):
            raise LimitExceeded(f"this is a device, of which no more than {_PIECE} bytes are read", source=Source(name, ""))
        chunks.append(piece)
        most -= len(piece)
    return b"".join(chunks)


def _is_device(file: IO[bytes]) -> bool:
    try:
        return stat.S_ISCHR(os.fstat(file.fileno()).st_mode)
    except io.UnsupportedOperation:  # standard input may be a buffer
        return False


class _Folder:
    """The programs below a folder that a command line names. Each folder is visited once, however many links lead to it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.visited: set[str] = set()
        self.refused: dict[str, str] = {}  # paths that may not be read, and why

    def programs(self, path: str) -> Iterator[str]:
        """The files below `path`; the folder of a trace is one program."""
        real = os.path.realpath(path)
        if real in self.visited:
            return
        if not is_below(real, self.path):
            self.refused[path] = f"this is a link out of the folder {self.path}"
        elif os.path.isdir(path):
            self.visited.add(real)
            if reading.program_file(path) == path:
                names = [name for name in sorted(os.listdir(path)) if not name.startswith(".") and not name.endswith(_ARRAYS)]
                for name in names:
                    yield from self.programs(os.path.join(path, name))
                return
        elif os.path.exists(path) and not os.path.isfile(path):
            self.refused[path] = "this is no regular file"
        yield path


class Given(NamedTuple):
    """A parameter that a command line gives: its name, its spelling (none for an argument), its value."""

    name: str
    spelled: str
    value: Any


@dataclass(slots=True)
class Session:
    """The reporter of a command, the options of readers and verifiers, and the given format and bindings."""

    command: str
    reporter: Reporter
    said: Sequence[Given] = ()  # the given parameters, in the order of the declarations
    options: Options = field(default_factory=Options)
    form: str | None = None
    bindings: dict[str, int] = field(default_factory=dict)
    took_stdin: bool = False
    refused: dict[str, str] = field(default_factory=dict)  # the files of folders that are not read, and why

    def set(self, **changes: object) -> None:
        """Change `options`: a command's own flags that readers and verifiers read."""
        self.options = self.options.having(None, **changes)

    def source(self, path: str, diagnostics: Diagnostics) -> Source | None:
        """The text of a file or of standard input. Raises OSError, LimitExceeded."""
        name, data = self.read(path)
        source: Source | None = reading.decode(data, name, diagnostics, self.options.limits, self.form)
        if source is not None:
            self.reporter.reads(source)
        return source

    def parse(self, source: Source, diagnostics: Diagnostics) -> Program | None:
        """The program in `source`, symbols bound, not verified."""
        self.reporter.reads(source)
        program: Program | None = reading.read(source, diagnostics, self.options, self.form)
        if program is not None:
            self.reporter.comment = FORMATS[program.format].comment
        return program

    def verify(self, program: Program, diagnostics: Diagnostics) -> bool:
        """Verify `program`. If the text has errors, the part that was read is verified, too, so that all errors are reported
        in one run."""
        return bool(verifier.verify(program, diagnostics, self.options))

    def opened(self, path: str) -> Source:
        """The text of a file or of standard input. If it is not UTF-8, the command ends. Raises OSError, LimitExceeded."""
        diagnostics = Diagnostics()
        source = self.source(path, diagnostics)
        self.reporter.settle(diagnostics)
        if source is None:  # the error was reported
            raise ValueError("no source and no diagnostics")
        return source

    def load(self, path: str, *, verify: bool = True) -> tuple[Program, Diagnostics]:
        """Read, bind and verify the program in a file or on standard input, as `program` does."""
        return self.program(self.opened(path), verify=verify)

    def program(self, source: Source, *, verify: bool = True) -> tuple[Program, Diagnostics]:
        """Read, bind and verify. Findings are shown; errors end the command. The garbage collector runs again afterwards."""
        diagnostics = Diagnostics(source)
        program = self.parse(source, diagnostics)
        if program is not None and verify:
            self.verify(program, diagnostics)
        self.reporter.settle(diagnostics)
        if program is None:  # a reader without errors returns a program
            raise ValueError("no program and no diagnostics")
        return program, diagnostics

    def read(self, path: str) -> tuple[str, bytes]:
        """The name and the bytes of a file, at most one more than the limit. Raises OSError, UsageError."""
        if path in self.refused:
            raise OSError(errno.EPERM, self.refused[path], path)
        if path not in STDIN:
            path = reading.program_file(path)
            with named(path), open(path, "rb") as file:
                return os.fspath(path), self._limited(file, path)
        if sys.stdin.isatty():
            raise usage(f"{'' if path else 'no FILE, and '}standard input is a terminal", self.command)
        if self.took_stdin:
            raise UsageError("standard input can be read once only")
        self.took_stdin = True
        return shown(path), self._limited(sys.stdin.buffer, shown(path))

    def _limited(self, file: IO[bytes], name: str) -> bytes:
        """The bytes of a file, at most one more than the limit of its kind, text or binary."""
        limits = self.options.limits
        data = _at_most(limits.file_bytes + 1, file, name)
        if len(data) > limits.file_bytes and reading.sniff_bytes(data) is not None:
            data += _at_most(max(0, limits.binary_bytes + 1 - len(data)), file, name)
        return data

    def each(self, paths: Sequence[str], action: Callable[[str], int], jobs: int = 1) -> None:
        """Do `action` (which gives an exit code) for every file, or standard input if there is none; end with the highest
        code. With `jobs`, that many files at once, in child processes; their output comes in the order of the files."""
        files = self.files(paths)
        if jobs > 1 and len(files) > 1 and hasattr(os, "fork"):
            status = parallel.run(self.reporter, files, lambda file: self._status(file, action), jobs)
        else:
            status = self.highest(files, action)
        if status:
            raise Leave(status)

    def files(self, paths: Sequence[str]) -> list[str]:
        """The files that `paths` name. A folder that is not a trace means every file below it in the order of names,
        except hidden files and arrays. Raises UsageError for a folder without any."""
        found = {path: [path] for path in paths or ["-"]}
        for path in filter(os.path.isdir, found):
            folder = _Folder(path)
            found[path] = list(folder.programs(path))
            self.refused.update(folder.refused)
            if not found[path]:
                raise UsageError(f"{path}: there is no program in this folder or below")
        return [file for path in paths or ["-"] for file in found[path]]

    def highest(self, things: Iterable[T], action: Callable[[T], int]) -> int:
        """The highest exit code of `action`. If it ends for one of the things, the others still run."""
        return max((self._status(thing, action) for thing in things), default=0)

    def _status(self, thing: T, action: Callable[[T], int]) -> int:
        try:
            return action(thing)
        except Leave as leaving:
            return leaving.status
        except BrokenPipeError:
            raise
        except (OSError, LimitExceeded) as error:
            return report_error(error, (), self.reporter)
