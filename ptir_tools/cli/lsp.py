"""`ptir lsp`: the language server. Extra: pip install 'ptir-tools[lsp]'."""

from __future__ import annotations

import logging
import os
import sys

from ptir_tools.cli.options import int_range, option, subcommand
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import UsageError
from ptir_tools.tools.server import Messages, serve


@subcommand(
    option("--tcp", metavar="PORT", type=int_range(0, 65535), help="Listen on a port of this machine, not on stdio."),
)
def command(session: Session, tcp: int | None) -> None:
    """Run the language server for editors: diagnostics, types, manuals, definitions, renaming, completion, formatting, fixes.

    It speaks the Language Server Protocol on standard input and output. docs/editors.md has the settings of editors.

    \b
    Examples:
      ptir lsp
      ptir lsp --tcp 2087
    """
    try:
        result = serve(session.options)
    except ModuleNotFoundError as missing:
        raise UsageError(f"`ptir lsp` needs the package {missing.name}", "pip install 'ptir-tools[lsp]'") from None
    logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)  # a wrong message is answered, and not logged
    if tcp is None:
        with os.fdopen(os.dup(0), "rb") as given, os.fdopen(os.dup(1), "wb") as answers:  # the server closes them
            sys.stdout = sys.stderr  # only the protocol is on standard output
            result.start_io(Messages(given, session.options.limits.file_bytes), answers)
    else:
        result.start_tcp("127.0.0.1", tcp)
