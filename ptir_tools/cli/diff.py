"""`ptir diff`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

from ptir_tools.cli import checking
from ptir_tools.cli.options import argument, check_runs_option, finite, json_option, option, subcommand
from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Session
from ptir_tools.core import arrayfiles
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.tools.diff import differences

if TYPE_CHECKING:
    from ptir_tools import convert, engines
    from ptir_tools.cli import tables
    from ptir_tools.engines import compare
    from ptir_tools.tools import graph, values
else:
    convert = lazy("ptir_tools.convert")
    tables = lazy("ptir_tools.cli.tables")
    compare = lazy("ptir_tools.engines.compare")
    engines = lazy("ptir_tools.engines")
    graph = lazy("ptir_tools.tools.graph")
    values = lazy("ptir_tools.tools.values")


@dataclass(slots=True)
class Flags:
    """The options of the command."""

    run: bool
    all_values: bool
    as_json: bool
    rtol: float | None
    atol: float | None
    check_runs: int
    picture: str | None


@subcommand(
    argument("before", metavar="A"),
    argument("after", metavar="B"),
    option("--run", is_flag=True, help="Compare the results of the programs instead of their text."),
    option("--all-values", is_flag=True, help="With --run: show all values, not only those around the first that differs."),
    json_option,
    option("--rtol", type=finite(0), help="The relative tolerance, instead of computed bounds (files of values: 1e-5)."),
    option("--atol", type=finite(0), help="The absolute tolerance, instead of computed bounds (files of values: 1e-6)."),
    check_runs_option,
    option("--picture", metavar="FILE.html", help="With --run: draw both programs, colored by the errors of their values."),
    flags=Flags,
)
def command(session: Session, before: str, after: str, flags: Flags) -> None:
    """Show how two programs differ in structure. Names, comments and layout are ignored. The exit code is 1 if they differ.

    With --run both run on the same inputs, and their results are compared. Formats, dtypes and precisions may differ. If results
    differ, a table shows the values around the first one that does: its largest error, the same as a part of its largest element,
    the bound, and the growth of the relative error. Values correspond by name, else by structure. A or B, or both, may be a file
    that `ptir run --save-values` wrote. --picture draws the programs side by side, on one page.

    \b
    Examples:
      ptir diff old.ptir new.ptir
      ptir diff --run net.mind.ir net.ptir
      ptir diff --run --all-values net.onnx net_f16.ptir
      ptir diff --run --picture errors.html net.onnx net_f16.ptir
      ptir diff values.npz other.npz
    """
    Comparison(session, before, after, flags).go()


class Comparison:
    """One `ptir diff`."""

    def __init__(self, session: Session, before: str, after: str, flags: Flags) -> None:
        self.session, self.names, self.flags = session, (before, after), flags
        given = flags.rtol is not None or flags.atol is not None
        self.within = compare.Tolerance(flags.atol or 0.0, flags.rtol or 0.0) if given else None

    def go(self) -> None:
        """Compare, show the differences, end with exit code 1 if there are any."""
        files = [name.endswith(arrayfiles.SUFFIXES) for name in self.names]
        if self.flags.picture is not None and (any(files) or not self.flags.run):
            raise UsageError("--picture goes with --run, and two programs")
        if all(files):
            self.end(values.of_files(*self.names, self.within or compare.Tolerance(1e-6, 1e-5)), None)
        elif any(files):
            at = files.index(False)
            program, _ = self.session.load(self.names[at])
            self.end(values.with_file(program, self.names[1 - at], self.options(), self.within, first=at == 0), program.source)
        elif self.flags.run:
            self.run()
        else:
            self.text()

    def text(self) -> None:
        """Compare the texts of the programs."""
        first, second = (self.session.load(name)[0] for name in self.names)
        lines = differences(first, second, self.names, self.session.options)
        write_text(None, lines)
        if lines:
            raise Leave(1)

    def run(self) -> None:
        """Compare the results of the programs, and their values if they differ."""
        first, second = (self.session.load(name)[0] for name in self.names)
        whole = self.flags.all_values or self.flags.as_json or self.flags.picture is not None
        if whole:
            self.explain(first, second, compare.check(first, second, 1, options=self.options(), mixed=True, within=self.within))
        done = checking.check(
            self.session,
            first,
            second,
            self.flags.check_runs,
            option="--run",
            mixed=True,
            within=self.within,
            explain=None if whole else self.explain,
        )
        checking.end(self.session, Diagnostics(first.source), done.verdict)

    def options(self) -> engines.RunOptions:
        """How both programs run."""
        return engines.RunOptions(bindings=self.session.bindings)

    def explain(self, first: Program, second: Program, check: compare.Check) -> None:
        """Show the values of two programs on the inputs of a check."""
        try:
            a, b, report = values.of_check(first, second, check, self.options(), self.within)
            if self.flags.picture is not None:
                self.draw(a, b, report)
            self.show(report, first.source)
        except (LimitExceeded, Rejected, UsageError) as error:
            self.session.reporter.say(f"--run: {error}")

    def draw(self, first: Program, second: Program, report: values.Report) -> None:
        """Write the page of `--picture`."""
        parts = [{row.label.name: row.part for row in report.rows}, {row.label.other: row.part for row in report.rows}]
        errors = {
            v: min(known[v.name], _MOST)
            for program, known in zip((first, second), parts, strict=True)
            for op in program.main.body
            for v in op.results
            if v.name in known
        }
        drawing = graph.side_by_side(first, second, errors)
        title = " and ".join(map(os.path.basename, self.names))
        write_text(self.flags.picture, graph.page(title, [graph.Stage("both", drawing)]))

    def show(self, report: values.Report, source: Source | None) -> None:
        """Print values: all of them, or the ones around the first that differs."""
        if self.flags.as_json:
            write_text(None, [json.dumps(report.record(), indent=2), "\n"])
            return
        rows, first = report.rows, report.first
        if not self.flags.all_values:
            at = 0 if first is None else rows.index(first)
            rows = rows[max(at - _BEFORE, 0) : at + _AFTER] if first is not None else []
        if rows:
            cells = [_cells(row, source) for row in rows]
            self.session.reporter.tabulate(sys.stdout, _plain(cells), lambda: [tables.Table(_COLUMNS, cells, one_line=True)])
        write_text(None, [f"{line}\n" for line in _summary(report, len(rows), source)])

    def end(self, report: values.Report, source: Source | None) -> None:
        """Show values and end with their verdict."""
        if report.verdict.failed or self.flags.all_values or self.flags.as_json:
            self.show(report, source)
        diagnostics = Diagnostics(source)
        if not report.rows:
            diagnostics.error("CheckFailed", "nothing was compared: no value of one has the name of a value of the other")
        checking.end(self.session, diagnostics, report.verdict)


_COLUMNS = ("value", "op", "line", "error", "relative", "bound", "growth", "")
_MOST = 1e9  # times the bound; JSON has no infinity
_BEFORE, _AFTER = 3, 10  # rows around the first value that differs


def _cells(row: values.Row, source: Source | None) -> list[str]:
    label, near = row.label, row.near
    line = _place(label.op, source).partition(":")[0]
    name = label.name if label.name == label.other else f"{label.name} = {label.other}"
    bound = "-" if near is None else f"{near.bound:.3g}"
    growth = "" if row.growth is None else f"x{row.growth:.3g}"
    said = "differs" if row.differs is not None else "no bound" if row.open else ""
    op = "" if label.op is None else label.op.defn.short
    return [name, op, line, f"{row.error:.3g}", f"{row.relative:.3g}", bound, growth, said]


def _place(op: Op | None, source: Source | None) -> str:
    """`line:column` of an op; empty if it is unknown."""
    span = source.span(op.loc) if source is not None and op is not None and op.loc else None
    return "" if span is None or source is None else "{}:{}".format(*source.position(span.start))


def _summary(report: values.Report, shown: int, source: Source | None) -> Iterator[str]:
    """Lines about the first and the worst value, and the ones that are not shown."""
    rows = {"first": report.first, "worst": report.worst if report.worst is not report.first else None}
    for what, row in rows.items():
        if row is not None and row.differs is not None:
            place = _place(row.label.op, source)
            made = f", by `{row.label.op.defn.short}`{f' at {place}' if place else ''}" if row.label.op else ""
            yield f"{what} to differ{made}: {row.differs}"
    hidden, (a, b) = len(report.rows) - shown, report.left
    if hidden:
        yield f"not shown (--all-values): {hidden}"
    if a or b:
        yield f"without a counterpart: {a} of A, {b} of B"


def _plain(cells: list[list[str]]) -> Iterator[str]:
    rows = [list(_COLUMNS), *cells]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    for row in rows:
        ends = "<<>>>>><"
        yield "  ".join(f"{c:{e}{w}}" for c, e, w in zip(row, ends, widths, strict=True)).rstrip() + "\n"
