"""The command line: one file per subcommand, loaded only when called."""

from __future__ import annotations

import gc
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import cast

import click

from ptir_tools import __version__
from ptir_tools.core.lazy import lazy

diagnostics = lazy("ptir_tools.core.diagnostics")
plugins = lazy("ptir_tools.plugins")
report = lazy("ptir_tools.cli.report")

# In the order in which --help lists them. Each is the attribute `command` of the module of that name.
COMMANDS = (
    "verify", "fmt", "opt", "canonicalize", "translate", "plan", "run", "bench", "info", "explain", "ops",
    "diff", "stats", "graph", "hash", "lit", "conform", "gen", "fuzz", "fix", "bisect", "reduce", "targets", "completion", "lsp",
)  # fmt: skip
_SENTENCE = re.compile(r"[.:;](?:\s|$)")  # ends the first clause of a help
UNWRITTEN = (4, 141)  # the exit codes of a full disk and of a closed pipe
_COLLECTED = 100_000  # new objects between two collections: loading modules makes many, and nearly all of them stay
COMPLETE = "_PTIR_COMPLETE"  # set by the completion scripts of shells


class Commands(click.Group):
    """The subcommands. A module is imported when its command is called or its help is listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return cast(click.Command, import_module(f"ptir_tools.cli.{cmd_name}").command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl([(name, _SENTENCE.split(c.help or "")[0]) for name, c in commands if c])  # python -OO: no help
        with formatter.section("Exit codes"):
            formatter.write_dl(report.meanings())

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            raise click.UsageError(f"no command\n\n{self.get_help(ctx)}")
        if args[:1] == ["help"]:  # as `git help COMMAND`
            args = [*args[1:2], "--help"]
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            raise diagnostics.unknown_name("command", args[0], COMMANDS)
        plugins.load_installed()  # before the command is imported, whose options list what there is
        for path in _loads(args[1:]):
            plugins.load(path)
        return super().resolve_command(ctx, args)


def _loads(args: Sequence[str]) -> Iterator[str]:
    """What `--load` names."""
    for i, word in enumerate(args):
        if word == "--":
            return
        if word == "--load" and i + 1 < len(args):
            yield args[i + 1]
        elif word.startswith("--load="):
            yield word.partition("=")[2]


@click.group(cls=Commands, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="ptir", message="%(prog)s %(version)s")
def group() -> None:
    """Verify, optimize, translate, plan and run tensor programs in PTIR, PTO IR, MIND Core IR and Tiny IR.

    A program is read from a file or from standard input, its format recognized by content; results go to standard
    output, everything else to standard error. `ptir COMMAND --help` lists a command's options with examples.
    """


def invoke(args: Sequence[str]) -> int:
    """Run one command line (without the program's name) in this process. Returns its exit code; raises nothing."""
    root, status = None, 0
    try:
        with group.make_context("ptir", list(args)) as root:
            group.invoke(root)
    except click.exceptions.Exit as error:
        status = error.exit_code
    except BaseException as error:
        status = report.told(error, args, root and root.obj)
    try:
        sys.stdout.flush()
    except OSError as error:
        status = status if status in UNWRITTEN else report.told(error)  # told once
    return status


def main() -> int:
    """The console script."""
    gc.set_threshold(_COLLECTED)
    _open_standard_streams()
    if COMPLETE in os.environ:
        return int(group.main(prog_name="ptir", complete_var=COMPLETE) or 0)
    status = invoke(sys.argv[1:])
    if status in UNWRITTEN:  # keep the interpreter from flushing what is left once more
        for stream in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    return status


def _open_standard_streams() -> None:
    """UTF-8 and `\\n` whatever the locale; a stream that the caller closed fails when it is used, not before."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            mode = "w" if name == "stderr" else "r"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
        elif number:
            errors = "strict" if name == "stdout" else "backslashreplace"
            if isinstance(getattr(sys, name).buffer, io.FileIO):  # PYTHONUNBUFFERED: what a pipe or a disk takes in part is lost
                buffer = io.BufferedWriter(getattr(sys, name).detach())
                setattr(sys, name, io.TextIOWrapper(buffer, "utf-8", line_buffering=number == 2 or buffer.isatty()))
            getattr(sys, name).reconfigure(encoding="utf-8", errors=errors, newline="\n")
