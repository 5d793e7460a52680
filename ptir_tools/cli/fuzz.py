"""`ptir fuzz`."""

from __future__ import annotations

import sys

from ptir_tools.cli.options import choice, finite, int_range, option, subcommand
from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Session
from ptir_tools.dialects import DIALECTS
from ptir_tools.tools.fuzz import Campaign, Report, campaign, generators


@subcommand(
    option("--ir", "irs", type=choice(DIALECTS), multiple=True, help="Programs of this IR (all that have a generator)."),
    option("--seed", type=int, default=0, metavar="N", help="The seed of the first case (0)."),
    option("--count", type=int_range(1), metavar="N", help="The number of cases of each IR (100)."),
    option("--minutes", type=finite(0, min_open=True), metavar="N", help="The time limit; with --count, whichever ends first."),
    option("--networks", is_flag=True, help="Networks in place of programs of single ops, on the default engine."),
    option("--steps", type=int_range(1, 10_000), default=12, metavar="N", help="The number of steps of a program (12)."),
    option("-o", "--output", metavar="DIR", help="Write each finding to this folder, reduced, as a golden case."),
    option("--reduce/--no-reduce", default=True, help="Reduce findings (on)."),
    reads=False,
)
def command(
    session: Session,
    irs: tuple[str, ...],
    seed: int,
    count: int | None,
    minutes: float | None,
    networks: bool,
    steps: int,
    output: str | None,
    reduce: bool,
) -> None:
    """Search for faults of the toolkit: random programs run through engines, passes, formats and translations.

    Each program is written, read and formatted again, run on every engine (PTO: in every order of completion), optimized by
    the default pipeline and by random ones, and translated to another IR and back; results are compared. A finding is a
    difference, an exception, a crash, 10 s without an answer, or 1 GB of memory. One finding of each kind and place is
    kept. The same seed and count give the same cases.

    With `--networks` the programs are those of `ptir gen --networks`. They run on the default engine with each instruction set of
    this machine, one and two threads, changing inputs and after passes.

    The exit code is 1 if there are findings.

    \b
    Examples:
      ptir fuzz --count 1000
      ptir fuzz --minutes 10 --ir ptir --ir tiny -o findings
      ptir fuzz --networks --count 1000
    """
    chosen = tuple(dict.fromkeys(irs or generators(networks)))
    with session.reporter.progress() as show:

        def progress(cases: int, findings: int) -> None:
            show(f"{cases} cases, {findings} findings")

        asked = Campaign(chosen, seed, count, minutes, steps, output, reduce, progress=progress, networks=networks)
        report = campaign(asked)
    _summarize(report)
    if report.findings:
        raise Leave(1)


def _summarize(report: Report) -> None:
    for ir, cases in report.cases.items():
        sys.stdout.write(f"{ir}: {cases} cases, {report.probes[ir]} probes, {report.of(ir)} findings\n")
    for finding in report.findings:
        times = report.often[finding.signature]
        where = f" -> {finding.path}" if finding.path else ""
        sys.stdout.write(f"{finding}{f' ({times} times)' if times > 1 else ''}{where}\n")
