"""Programs in another language: built by a command of the user, and run on arrays in files."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterable, Mapping, Sequence

from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostic, Rejected, Severity, UsageError
from ptir_tools.core.dialect import Host
from ptir_tools.core.files import replacing
from ptir_tools.core.lazy import np

SOURCE, BINARY, DATA = "{source}", "{binary}", "data"
_MAIN, _BUILT = "main.cpp", "main"
_SHOWN = 8  # lines of what a command prints


class Project:
    """A folder with a text, the host program that calls what it defines, and a folder of their arrays."""

    def __init__(self, folder: str, host: Host, pieces: Iterable[str]) -> None:
        self.folder, self.host = os.path.abspath(folder), host
        os.makedirs(os.path.join(self.folder, DATA), exist_ok=True)
        self._write(host.kernels, (piece.encode() for piece in pieces))
        self._write(_MAIN, [host.text.encode()])

    def put(self, arrays: Mapping[str, Array]) -> None:
        """Write arrays, by the names of their files."""
        for name, array in arrays.items():
            self._write(os.path.join(DATA, f"{name}.bin"), [np.ascontiguousarray(array).tobytes()])

    def build(self, command: str) -> None:
        """Build the host program. Raises UsageError if the command cannot be run, Rejected if it refuses the program."""
        names = {SOURCE: os.path.join(self.folder, _MAIN), BINARY: os.path.join(self.folder, _BUILT)}
        words = []
        for word in _words(command):
            for name, path in names.items():
                word = word.replace(name, path)
            words.append(word)
        self._do(words, f"`{words[0]}` does not build {names[SOURCE]}")

    def run(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """The memory that the program leaves for these arguments. Raises Rejected if it fails."""
        self.put(self.host.files(arrays))
        folder = os.path.join(self.folder, DATA)
        for file in self.host.memory.values():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, f"{file}.out"))
        self._do([os.path.join(self.folder, _BUILT), folder], "the program that was built fails")
        return {name: self._made(f"{file}.out", arrays[name]) for name, file in self.host.memory.items()}

    def _made(self, file: str, like: Array) -> Array:
        path = os.path.join(self.folder, DATA, file)
        if not os.path.exists(path) or os.path.getsize(path) != like.nbytes:
            raise failed(f"the program that was built leaves no {file} of {like.nbytes} bytes")
        return np.fromfile(path, like.dtype).reshape(like.shape)

    def _write(self, name: str, pieces: Iterable[bytes]) -> None:
        with replacing(os.path.join(self.folder, name)) as file:
            file.writelines(pieces)

    def _do(self, words: list[str], what: str) -> None:
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
        except OSError as error:
            raise UsageError(f"{words[0]}: {(error.strerror or str(error)).lower()}") from None
        if done.returncode:
            lines = [line.strip() for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            notes = [line for line in lines if "error" in line] or lines
            raise failed(f"{what}: exit status {done.returncode}", notes[:_SHOWN])


def failed(what: str, notes: Sequence[str] = ()) -> Rejected:
    """The error of a check that could not be done."""
    return Rejected([Diagnostic(Severity.ERROR, "CheckFailed", what, notes=tuple(notes))])


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command}: {str(error).lower()}") from None
    if not any(SOURCE in word for word in words):
        raise UsageError(f"the command names no {SOURCE}: `{command}`", f"for example 'c++ {SOURCE} -o {BINARY}'")
    return words
