"""`ptir completion`."""

from __future__ import annotations

import sys

from click.shell_completion import get_completion_class

from ptir_tools.cli import COMPLETE, parsing
from ptir_tools.cli.options import argument, choice, subcommand
from ptir_tools.cli.session import Session


@subcommand(argument("shell", type=choice(["bash", "zsh", "fish"])), reads=False)
def command(session: Session, shell: str) -> None:
    """Print the script that makes a shell complete `ptir` command lines.

    \b
    Examples:
      ptir completion bash > ~/.local/share/bash-completion/completions/ptir
      ptir completion zsh > ~/.zfunc/_ptir
      ptir completion fish > ~/.config/fish/completions/ptir.fish
    """
    if (result := get_completion_class(shell)) is not None:
        sys.stdout.write(result(parsing.group, {}, "ptir", COMPLETE).source() + "\n")
