"""`ptir demo`."""

from __future__ import annotations

import os

from ptir_tools.cli.options import argument, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.files import named
from ptir_tools.tools import demo


@subcommand(argument("folder", default="ptir-demo", metavar="[DIR]"), reads=False)
def command(session: Session, folder: str) -> None:
    """Write a small program of each IR into a folder (ptir-demo), and print commands to try on them. Existing files stay.

    \b
    Examples:
      ptir demo
      ptir demo examples
    """
    made = {os.path.join(folder, name): text for name, text in demo.FILES.items()}
    if existing := [path for path in made if os.path.lexists(path)]:
        raise UsageError(f"{existing[0]} exists already")
    with named(folder):
        os.makedirs(folder, exist_ok=True)
    for path, text in made.items():
        write_text(path, [text])
    write_text(None, [f"{line.format(folder)}\n" for line in demo.TRY])
