"""How a command ends when it does not simply end: which exit code, and what is said."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click

from ptir_tools import __version__
from ptir_tools.cli.report import Reporter
from ptir_tools.core.diagnostics import Rejected, UsageError
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded

if TYPE_CHECKING:
    import difflib
    import tempfile
else:
    difflib = lazy("difflib")
    tempfile = lazy("tempfile")

OK, REJECTED, USAGE, LIMIT, IO, INTERNAL, INTERRUPTED, PIPE = 0, 1, 2, 3, 4, 70, 130, 141

_LISTED = 12  # so many names are listed when none is near
_LISTS = {
    kind: f"`{command}` lists them"
    for kind, command in (("command", "ptir --help"), ("code", "ptir explain"), ("op", "ptir ops"))
}
_MEANINGS = {
    OK: "fine",
    REJECTED: "the program was rejected, failed at run time, or a comparison did",
    USAGE: "wrong usage: an option, a pass, an input that is missing or unfit",
    LIMIT: "a limit was hit",
    IO: "a file cannot be read or written",
    INTERNAL: "internal error",
    INTERRUPTED: "interrupted",
    PIPE: "the reader of a pipe went away",
}


def meanings() -> list[tuple[str, str]]:
    """The exit codes and what they mean, for --help."""
    return [(str(code), meaning) for code, meaning in _MEANINGS.items()]


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not one of `known`; the nearest is suggested."""
    names = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), names, 1)
    listed = f" (there are: {', '.join(names.values())})" if len(names) <= _LISTED else ""
    hint = f"; did you mean `{names[near[0]]}`?" if near else listed
    return UsageError(f"no {kind} `{name}`{hint}", None if hint else _LISTS.get(kind))


def told(error: BaseException, args: Sequence[str] = (), reporter: Reporter | None = None) -> int:
    """Tell the user about `error`; the exit code that it means."""
    reporter = reporter or Reporter()
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno == errno.EPIPE):
        return PIPE
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        reporter.fail("Interrupted", "interrupted")
        return INTERRUPTED
    try:
        return _told(error, args, reporter)
    except OSError as gone:  # standard error, too
        return PIPE if isinstance(gone, BrokenPipeError) else IO


def _told(error: BaseException, args: Sequence[str], reporter: Reporter) -> int:
    if isinstance(error, Rejected):
        reporter.show(error.diagnostics)
        reporter.finish()
        return REJECTED
    if isinstance(error, (click.ClickException, UsageError)):
        reporter.fail("UsageError", *_usage(error))
        return USAGE
    if isinstance(error, (LimitExceeded, MemoryError)):
        flag = getattr(error, "flag", None)
        message = (str(error) or "out of memory") + reporter.place(getattr(error, "loc", 0))
        reporter.fail("LimitExceeded", message, f"raise the limit with {flag}" if flag else None)
        return LIMIT
    if isinstance(error, OSError):
        reporter.fail("IOError", os_error_text(error))
        return IO
    path = _reproducer(error, args, reporter)
    replay = f"; see it again: ptir opt --run-reproducer {path}" if reporter.reproducer else ""
    told = ", ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
    message = " ".join(f"internal error: {told}".split())
    reporter.fail("InternalError", message, f"a reproducer is in {path}{replay}")
    return INTERNAL


def _usage(error: click.ClickException | UsageError) -> tuple[str, str | None]:
    """(message, help) of wrong usage."""
    if isinstance(error, UsageError):
        return str(error), error.help
    ctx = getattr(error, "ctx", None)
    help = f"{ctx.command_path} --help tells the options" if ctx and ctx.parent else None
    return error.format_message(), help


def os_error_text(error: OSError) -> str:
    """`name: what is wrong`, without errno."""
    name = error.filename
    what = (error.strerror or str(error)).lower()
    return f"{os.fsdecode(name)}: {what}" if name is not None else f"standard output: {what}"


def _reproducer(error: BaseException, args: Sequence[str], reporter: Reporter) -> str:
    """Write what one needs to see the internal error again; the file's path. It reads as a program: the rest is comments."""
    said = [f"ptir {__version__}, Python {sys.version.split()[0]}", "ptir " + " ".join(args)]
    said += "".join(traceback.format_exception(error)).splitlines()
    with tempfile.NamedTemporaryFile("w", prefix="ptir-", suffix=".txt", delete=False, encoding="utf-8") as file:
        file.writelines(f"{reporter.comment} {line}\n" for line in said)
        file.writelines([reporter.reproducer] if reporter.reproducer else [source.text for source in reporter.sources[-1:]])
    return file.name
