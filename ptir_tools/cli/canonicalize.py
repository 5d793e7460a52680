"""`ptir canonicalize`."""

from __future__ import annotations

from ptir_tools.cli.opt import Flags, Pipeline, optimize_command, pass_options
from ptir_tools.cli.options import files_argument, output_tree_option, subcommand
from ptir_tools.cli.session import Session


@subcommand(files_argument, output_tree_option, *pass_options, flags=Flags)
def command(session: Session, files: tuple[str, ...], output: str | None, flags: Flags) -> None:
    """Print the canonical form that the program's specification requires.

    This is `ptir opt` with the default pipeline.

    \b
    Examples:
      ptir canonicalize graph.mind.ir
      ptir canonicalize --check --check-runs 10 model.ptir
    """
    optimize_command(session, files, output, Pipeline(), flags)
