"""A command of the user's that judges programs: `--check CMD` of `ptir bisect` and `ptir reduce`."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile

import click

from ptir_tools.cli.output import write_text
from ptir_tools.core.diagnostics import UsageError

PLACE = "{}"
_SUFFIXES = {"ptir-json": "json", "tiny": "json", "mind": "mind.ir"}
timeout_option = click.option(
    "--timeout", type=click.FloatRange(0, min_open=True), metavar="S", help="Give up on CMD after S seconds: it fails."
)


class Judge:
    """Runs `command` on program texts: `{}` in it is the path of a file with the text, which comes last when there is none.

    No shell is involved; `sh -c '…'` is one. What the command prints is not shown. Raises UsageError when it cannot be run.
    """

    def __init__(self, command: str, form: str, timeout: float | None = None) -> None:
        try:
            self.words = shlex.split(command)
        except ValueError as error:
            raise UsageError(f"--check {command}: {str(error).lower()}") from None
        if not self.words:
            raise UsageError("--check needs a command")
        if not any(PLACE in word for word in self.words):
            self.words.append(PLACE)
        self.suffix = _SUFFIXES.get(form, form)
        self.timeout = timeout
        self.runs = 0

    def __call__(self, text: str) -> bool:
        """Whether the command exits with 0 for a program of this text."""
        self.runs += 1
        with tempfile.TemporaryDirectory(prefix="ptir-") as folder:
            path = os.path.join(folder, f"program.{self.suffix}")
            write_text(path, [text])
            return self._exit_code([word.replace(PLACE, path) for word in self.words]) == 0

    def _exit_code(self, words: list[str]) -> int | None:
        """None for a command that took too long."""
        quiet = subprocess.DEVNULL
        try:
            return subprocess.run(words, stdin=quiet, stdout=quiet, stderr=quiet, timeout=self.timeout, check=False).returncode
        except subprocess.TimeoutExpired:
            return None
        except OSError as error:
            raise UsageError(f"--check {words[0]}: {(error.strerror or str(error)).lower()}") from None
