"""`ptir fix`."""

from __future__ import annotations

from ptir_tools.cli.options import diff_option, files_argument, in_place_option, option, output_option, subcommand
from ptir_tools.cli.output import print_diff, require_one_end, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.tools.fix import fixed_text


@subcommand(
    files_argument,
    output_option,
    in_place_option,
    diff_option,
    option("--unsafe", is_flag=True, help="Apply all proposed edits, also those that may change what the program means."),
)
def command(session: Session, files: tuple[str, ...], output: str | None, in_place: bool, diff: bool, unsafe: bool) -> None:
    """Apply the safe edits that diagnostics propose, and print the edited text. Other diagnostics are reported.

    A safe edit corrects the spelling of syntax: an arrow, comma, bracket, `%`, colon or quote, the case of letters, or a
    declared result type. Another op, name, value or dtype is a guess, which needs --unsafe.

    \b
    Examples:
      ptir fix broken.json
      ptir fix --in-place a.ptir b.ptir
    """
    if len(files) > 1 and not (in_place or diff):
        raise UsageError("several files need --in-place or --diff")
    require_one_end(output, in_place, diff=diff)

    def one(path: str) -> int:
        diagnostics = Diagnostics()
        source = session.source(path, diagnostics)
        if source is None:
            return session.reporter.status(diagnostics)
        if source.data is not None:
            raise UsageError(f"{source.name} is in a binary format: it has no text to edit")
        after = fixed_text(source, session.parse, diagnostics, session.options, unsafe)
        changed = after != source.text
        if diff and changed:
            print_diff(path, source.written, after, "fixed")
        elif in_place and changed:
            write_text(path, [after])
        elif not (diff or in_place):
            write_text(output, [after])
        return session.reporter.status(diagnostics)

    session.each(files, one)
