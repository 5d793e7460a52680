"""The command line: one file per subcommand, loaded only when called."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from ptir_tools.cli.commands import COMMANDS, load_plugins, subcommand_of, values_of
from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from ptir_tools.cli import parsing, report
else:
    parsing = lazy("ptir_tools.cli.parsing")
    report = lazy("ptir_tools.cli.report")

UNWRITTEN = (4, 141)  # exit codes after a full disk and a closed pipe
COMPLETE = "_PTIR_COMPLETE"  # set by the completion scripts of shells


def invoke(args: Sequence[str]) -> int:
    """Run one command line (without the program's name) in this process. The exit code; raises nothing."""
    reporter, status = report.Reporter(), 0
    try:
        for form in values_of(args, "--diagnostics"):  # errors in the command line use this reporter
            reporter.form = form if form in report.FORMS else reporter.form
        if any("\0" in word for word in args):
            raise report.usage("an argument has a NUL character")
        if not _plain(args, reporter):
            parsing.invoke(args, reporter)
    except report.Leave as leaving:
        status = leaving.status
    except BaseException as error:
        status = report.report_error(error, args, reporter)
    try:
        sys.stdout.flush()
    except OSError as error:
        status = status if status in UNWRITTEN else report.report_error(error, args, reporter)  # reported once
    try:
        reporter.finish()
    except OSError as error:
        status = report.report_error(error, args, reporter)
    return status


def _plain(args: Sequence[str], reporter: report.Reporter) -> bool:
    """Run a command line of only plain words. False for any other, which needs click."""
    if not args or args[0] not in COMMANDS:
        return False
    load_plugins(args[1:])
    command = subcommand_of(args[0])
    if (given := command.plain(args[1:])) is None:
        return False
    command.run(reporter, *given)
    return True


def main() -> int:
    """The console script."""
    _open_standard_streams()
    if COMPLETE in os.environ:
        return int(parsing.group.main(prog_name="ptir", complete_var=COMPLETE) or 0)
    status = invoke(sys.argv[1:])
    if status in UNWRITTEN:  # the interpreter must not flush the rest again
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return status


def _open_standard_streams() -> None:
    """Use UTF-8 and `\\n` in any locale. A stream that the caller closed fails at its first use, not before."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if name == "stderr" else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif number:
            errors = "strict" if name == "stdout" else "backslashreplace"
            # PYTHONUNBUFFERED: if a pipe or a disk accepts only a part, the rest is lost.
            if isinstance(getattr(sys, name).buffer, io.FileIO):
                buffer = io.BufferedWriter(getattr(sys, name).detach())
                setattr(sys, name, io.TextIOWrapper(buffer, "utf-8", line_buffering=number == 2 or buffer.isatty()))
            getattr(sys, name).reconfigure(encoding="utf-8", errors=errors, newline="\n")
