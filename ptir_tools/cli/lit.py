"""`ptir lit`."""

from __future__ import annotations

from ptir_tools.cli.opt import allow_writes_option
from ptir_tools.cli.options import files_argument, option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.tools import lit


@subcommand(
    files_argument,
    option("-p", "--pipeline", metavar="PIPELINE", help="The passes that are tested (the default pipeline)."),
    allow_writes_option,
)
def command(session: Session, files: tuple[str, ...], pipeline: str | None, allow_writes: bool) -> None:
    """Run gpt.rs's fixtures: passes must turn each INPUT into EXPECTED, and must change it.

    A fixture is any number of tests, each `META:` (optional), `EXPECTED:` and a program, `INPUT:` and a program, `run_test`.
    Programs are compared by structure: ids and layout are ignored. A line `pipeline: …` under META says which passes that
    test runs; without it and -p, `dedup.lit` runs cse and any other file the default pipeline. `roles: Arg, Param` says which
    parameters are weights: values that depend on only one of them are folded first (the pass param-fold), as in gpt.rs's test
    with zeros. Differences are printed as a diff.

    \b
    Examples:
      ptir lit crates/gpt-rs/tests/fixtures/*.lit
      ptir lit -p cse,dce tests/fixtures/cse.lit
    """

    def check(path: str) -> int:
        diagnostics = Diagnostics()
        source = session.source(path, diagnostics)
        if source is None:
            return session.reporter.status(diagnostics)
        status = tests = failed = 0
        outcomes = lit.run(source, diagnostics, pipeline, options=session.options, parse=session.parse, writes=allow_writes)
        for outcome in outcomes:
            status = max(status, session.reporter.status(diagnostics))
            write_text(None, outcome.lines)
            tests, failed = tests + 1, failed + (not outcome.passed)
        status = max(status, session.reporter.status(diagnostics))
        if not session.reporter.quiet:
            session.reporter.say(f"{path or '<stdin>'}: {tests - failed} of {tests} passed")
        return max(status, int(failed > 0))

    session.each(files, check)
