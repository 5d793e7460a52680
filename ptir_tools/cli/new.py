"""`ptir new`."""

from __future__ import annotations

import os

from ptir_tools.cli.options import argument, choice, option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.core.files import named
from ptir_tools.tools import templates


@subcommand(
    argument("kind", type=choice(list(templates.KINDS)), metavar="pass|rule|op|dialect"),
    argument("name", metavar="NAME"),
    option("-o", "--output", default=".", metavar="DIR", help="The folder for the plug-in (the current one)."),
    reads=False,
)
def command(session: Session, kind: str, name: str, output: str) -> None:
    """Write a plug-in to begin with: NAME.py, and a test that passes. Existing files stay.

    \b
    Examples:
      ptir new pass count-ops
      ptir lit --load count_ops.py tests/
    """
    made = {os.path.join(output, path): text for path, text in templates.files(kind, name).items()}
    if existing := [path for path in made if os.path.lexists(path)]:
        raise UsageError(f"{existing[0]} exists already")
    for path, text in made.items():
        with named(path):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        write_text(path, [text])
    code, test = made
    session.reporter.tell(f"wrote {code} and {test}; test it: ptir lit --load {code} {test}")
