"""The names of the commands. A command is imported when it is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module

from ptir_tools.core.lazy import lazy
from ptir_tools.core.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from ptir_tools import plugins
    from ptir_tools.cli.options import Subcommand
else:
    plugins = lazy("ptir_tools.plugins")

# In the order of --help, by what they are for. Each is the attribute `command` of the module of that name.
GROUPS = {
    "Read and write": ("verify", "fmt", "fix", "translate"),
    "Optimize": ("opt", "canonicalize", "bisect"),
    "Run and plan": ("run", "bench", "plan"),
    "Look and compare": ("info", "stats", "graph", "diff", "hash"),
    "Look up": ("explain", "ops", "targets"),
    "Test": ("lit", "conform", "gen", "fuzz", "reduce"),
    "Set up": ("demo", "new", "completion", "man", "lsp"),
}
COMMANDS = tuple(name for names in GROUPS.values() for name in names)


def subcommand_of(name: str) -> Subcommand:
    """The command `name` of COMMANDS."""
    command: Subcommand = import_module(f"ptir_tools.cli.{name}").command
    return command


def load_plugins(words: Sequence[str]) -> None:
    """Load the installed plug-ins, and those named after a command name. This is before the command is imported, because its
    options list their additions. Raises UsageError."""
    plugins.load_installed()
    for path in values_of(words, "--load"):
        plugins.load(path)


def values_of(args: Sequence[str], option: str) -> Iterator[str]:
    """The values of an option that has an effect before the command line is parsed."""
    for i, word in enumerate(args):
        if word == "--":
            return
        if word == option and i + 1 < len(args):
            yield args[i + 1]
        elif word.startswith(f"{option}="):
            yield word.partition("=")[2]
