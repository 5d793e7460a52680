"""`ptir reduce`."""

from __future__ import annotations

from ptir_tools.cli.options import check_timeout_option, file_argument, option, output_option, subcommand
from ptir_tools.cli.output import to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.tools.check_command import CheckCommand
from ptir_tools.tools.reduce import Smaller, reduced


@subcommand(
    file_argument,
    output_option,
    option(
        "--check",
        metavar="CMD",
        required=True,
        help="CMD exits with 0 for an interesting program; its file is {} in CMD, or last.",
    ),
    check_timeout_option,
    option("--allow-invalid", is_flag=True, help="Try programs that do not verify, too."),
)
def command(session: Session, file: str, output: str | None, check: str, timeout: float | None, allow_invalid: bool) -> None:
    """Make a program as small as possible while it stays interesting: CMD exits with 0 for it.

    Functions, outputs, ops and inputs are dropped, many at a time at first. Users of a dropped op get one of its operands,
    zeros or a new input instead, and a function may return what an earlier op computes. Then constants become zeros, extents
    and numbers smaller. Programs that do not verify are not tried, unless --allow-invalid is given. The same program and
    CMD give the same result. The smallest program so far is always in the -o FILE; without one, it is printed at the end,
    or when the command is interrupted. A given program that is not interesting is wrong usage: exit code 2, with the output
    of CMD.

    \b
    Examples:
      ptir reduce crash.ptir --check 'ptir opt {} 2>&1 | grep -q IndexError' -o small.ptir
      ptir reduce model.ptir --check '! ptir run {} --random 0 --compare reference'
    """
    program, _ = session.load(file, verify=not allow_invalid)
    interesting = CheckCommand(check, program.format, timeout)
    smallest: list[str] = []

    def progress(result: Smaller) -> None:
        if smallest:
            session.reporter.tell(f"{result.ops:>8} ops, {len(result.text)} bytes after {interesting.runs} runs: {result.what}")
        smallest[:] = [result.text]
        if not to_stdout(output):
            write_text(output, smallest)

    try:
        with interesting.explained():
            reduced(
                program,
                interesting,
                options=session.options,
                bindings=session.bindings,
                allow_invalid=allow_invalid,
                progress=progress,
            )
    finally:
        if to_stdout(output):
            write_text(output, smallest)
