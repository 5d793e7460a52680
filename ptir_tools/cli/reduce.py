"""`ptir reduce`."""

from __future__ import annotations

from ptir_tools.cli.options import file_argument, judge_timeout_option, option, output_option, subcommand
from ptir_tools.cli.output import to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.tools.judging import Judge
from ptir_tools.tools.reduce import Smaller, reduced


@subcommand(
    file_argument,
    output_option,
    option(
        "--check",
        metavar="CMD",
        required=True,
        help="The judge: exits with 0 for an interesting program, whose file is {} in CMD, or last.",
    ),
    judge_timeout_option,
    option("--allow-invalid", is_flag=True, help="Try programs that do not verify, too."),
)
def command(session: Session, file: str, output: str | None, check: str, timeout: float | None, allow_invalid: bool) -> None:
    """Make a program as small as can be while it stays interesting: exit code 0 of CMD, and nothing else, is interesting.

    Functions, outputs, ops and inputs are dropped, many at a time at first; what needs a dropped op gets one of its operands,
    zeros or a new input instead, and a function may return what an earlier op computes. Then constants become zeros, extents
    and numbers smaller. What does not verify is not tried, unless --allow-invalid. The same program and judge give the same
    result. The smallest so far is always in the -o FILE; without one, it is printed at the end, or when the command is
    interrupted. A program that is not interesting as it is given is wrong usage: exit code 2, with what CMD printed.

    \b
    Examples:
      ptir reduce crash.ptir --check 'ptir opt {} 2>&1 | grep -q IndexError' -o small.ptir
      ptir reduce model.ptir --check '! ptir run {} --random 0 --compare reference'
    """
    program, _ = session.load(file, verify=not allow_invalid)
    judge = Judge(check, program.format, timeout)
    smallest: list[str] = []

    def progress(made: Smaller) -> None:
        if smallest:
            session.reporter.tell(f"{made.ops:>8} ops, {len(made.text)} bytes after {judge.runs} runs: {made.what}")
        smallest[:] = [made.text]
        if not to_stdout(output):
            write_text(output, smallest)

    try:
        with judge.explained():
            reduced(
                program,
                judge,
                options=session.options,
                bindings=session.bindings,
                allow_invalid=allow_invalid,
                progress=progress,
            )
    finally:
        if to_stdout(output):
            write_text(output, smallest)
