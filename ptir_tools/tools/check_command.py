"""A shell command that decides whether a program is good (`bisect`) or interesting (`reduce`)."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Iterator

from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.typed import IO
from ptir_tools.dialects import FORMATS

PLACE = "{}"
_LINES, _SHOWN = 8, 4000  # the most lines and bytes of its output that are shown
_OPERATORS = frozenset("();<>|&")


class CheckCommand:
    """Runs `command` on program texts: `{}` in it is the path of a file with the text, which is on standard input, too.

    A command with shell operators (`|`, `&&`, `>`, a first `!` …) is run by `sh`. Any other without a shell, and the path comes
    last if there is no `{}`. Its output for the first program is kept. Raises UsageError when it cannot be run.
    """

    def __init__(self, command: str, form: str, timeout: float | None = None) -> None:
        self.words = _words(command)
        self.suffix = FORMATS[form].suffix.lstrip(".") or form
        self.timeout = timeout
        self.runs = 0
        self.said = ""  # of the first program: the command's status and the end of its output

    def __call__(self, text: str) -> bool:
        """Whether the command exits with 0 for a program of this text."""
        self.runs += 1
        with tempfile.TemporaryDirectory(prefix="ptir-") as folder:
            path = os.path.join(folder, f"program.{self.suffix}")
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.write(text)
            words = [word.replace(PLACE, path) for word in self.words]
            with (
                open(path, "rb") as given,
                open(os.path.join(folder, "printed") if self.runs == 1 else os.devnull, "wb+") as printed,
            ):
                status = self._run(words, given, printed)
                if self.runs == 1:
                    self.said = _ended(status, printed, folder)
            return status == 0

    @contextlib.contextmanager
    def explained(self) -> Iterator[None]:
        """Context manager that adds the command's output to an error about the refused first program."""
        try:
            yield
        except UsageError as error:
            if self.runs == 1 and self.said and error.help is None:
                raise UsageError(str(error), self.said) from None
            raise

    def _run(self, words: list[str], given: IO[bytes], printed: IO[bytes]) -> int | None:
        """The exit code; None after the timeout. The command's own child processes are ended, too."""
        try:
            child = subprocess.Popen(words, stdin=given, stdout=printed, stderr=printed, start_new_session=True)
        except OSError as error:
            raise UsageError(f"--check {words[0]}: {(error.strerror or str(error)).lower()}") from None
        with child:
            try:
                return child.wait(self.timeout)
            except BaseException as error:
                with contextlib.suppress(ProcessLookupError):  # it has already ended
                    os.killpg(child.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    return None
                raise


def _ended(status: int | None, printed: IO[bytes], folder: str) -> str:
    """The status of the command, and the end of its output."""
    printed.seek(max(0, printed.seek(0, os.SEEK_END) - _SHOWN))
    text = printed.read().decode("utf-8", "replace").replace(folder + os.sep, "")
    how = "the command did not end in time" if status is None else f"the command ended with exit code {status}"
    last = text.rstrip().split("\n")[-_LINES:]
    return "\n".join([f"{how} and printed {'this' if text.strip() else 'nothing'}", *(last if text.strip() else [])])


def _words(command: str) -> list[str]:
    """The words of the command, with the placeholder of the path unless `sh` runs it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        tokens, words = list(lexer), shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--check {command}: {str(error).lower()}") from None
    if not words:
        raise UsageError("--check needs a command")
    if words[0] == "!" or any(_OPERATORS.issuperset(token) for token in tokens):
        return ["sh", "-c", command]
    return words if any(PLACE in word for word in words) else [*words, PLACE]
