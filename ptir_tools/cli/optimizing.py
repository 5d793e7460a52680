"""What `opt` and `canonicalize` share: running a pipeline, and watching it."""

from __future__ import annotations

import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from ptir_tools.cli import checking
from ptir_tools.cli.output import program_text, write_text
from ptir_tools.cli.report import Reporter
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options
from ptir_tools.core.ir import Program, clone
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS
from ptir_tools.core.pipeline import Step
from ptir_tools.dialects import FORMATS
from ptir_tools.passes import Floats, Hook, PassContext, lookup, run_pipeline

if TYPE_CHECKING:
    from ptir_tools.cli import tables
else:
    tables = lazy("ptir_tools.cli.tables")


@dataclass(slots=True)
class Flags:
    """The options of `pass_options`, as click names them."""

    to: str | None
    print_ir_before: tuple[str, ...]
    print_ir_after: tuple[str, ...]
    print_ir_diff: bool
    print_ir_tree: str | None
    timing: bool
    stats: bool
    log_rewrites: str | None
    expensive_checks: bool
    verify_each: bool
    strict_fp: bool
    fast_math: bool
    elide_constants_larger: int | None
    check: bool
    check_runs: int


pass_options = (
    click.option("--to", type=click.Choice(list(FORMATS)), help="Print in this format instead of the input's."),
    click.option("--print-ir-before", metavar="PASS", multiple=True, help="Print the program before the pass (`all`: each)."),
    click.option("--print-ir-after", metavar="PASS", multiple=True, help="… after the pass (`all`; `change`: if it changed)."),
    click.option("--print-ir-diff", is_flag=True, help="Print what each pass changed."),
    click.option("--print-ir-tree", metavar="DIR", help="Write the program after each pass to DIR/0001_PASS.FORMAT."),
    click.option("--timing", is_flag=True, help="Tell how long each pass took."),
    click.option("--stats", is_flag=True, help="Tell what each pass did: rewrites, folds, erased ops, per pattern."),
    click.option("--log-rewrites", metavar="FILE", help="One JSON line per rewrite: pattern, root, before, after."),
    click.option("--expensive-checks", is_flag=True, help="Hold every pattern to its contract (slow)."),
    click.option("--verify-each/--no-verify-each", default=True, help="Verify after every pass (on)."),
    click.option("--strict-fp", is_flag=True, help="No rewrite may change a bit of a floating-point result."),
    click.option("--fast-math", is_flag=True, help="Rewrites may assume finite numbers and reassociate."),
    click.option("--elide-constants-larger", type=int, metavar="N", help="Print constants of more than N elements as dense<?>."),
    *checking.check_options,
)


def optimize_command(session: Session, file: str, output: str | None, pipeline: str | None, flags: Flags) -> None:
    """Read, run the pipeline (None: the dialect's default), compare if asked, print."""
    if flags.strict_fp and flags.fast_math:
        raise UsageError("--strict-fp and --fast-math exclude each other")
    session.set(elide_constants=flags.elide_constants_larger)
    program, diagnostics = session.load(file)
    before = clone(program) if flags.check else None
    form = flags.to or program.format
    with _context(session, program, diagnostics, flags) as context:
        run_pipeline(program, program.dialect.pipeline if pipeline is None else pipeline, context)
    _summaries(session.reporter, context, flags)
    pieces = program_text(program, form, diagnostics, session.options)
    session.reporter.settle(diagnostics)
    if before is not None:
        checking.check(session, before, program, flags.check_runs)
    write_text(output, pieces)


@contextmanager
def _context(session: Session, program: Program, diagnostics: Diagnostics, flags: Flags) -> Iterator[PassContext]:
    limits = session.options.limits
    floats = Floats.STRICT if flags.strict_fp else Floats.FAST if flags.fast_math else Floats.DEFAULT
    context = PassContext(
        diagnostics,
        limits,
        floats,
        verify_each=flags.verify_each,
        expensive_checks=flags.expensive_checks,
        max_iterations=limits.iterations if limits.iterations != LIMITS.iterations else None,
    )
    if _watches(flags):
        context.hooks.append(_Printer(session, program, flags))
    with ExitStack() as stack:
        if flags.log_rewrites:
            log = stack.enter_context(open(flags.log_rewrites, "w", encoding="utf-8"))
            context.log = lambda record: log.writelines([json.dumps(record, ensure_ascii=False), "\n"])
        yield context


def _watches(flags: Flags) -> bool:
    return bool(flags.print_ir_before or flags.print_ir_after or flags.print_ir_diff or flags.print_ir_tree)


class _Printer(Hook):
    """Shows the program between passes: on standard error, or as numbered files."""

    def __init__(self, session: Session, program: Program, flags: Flags) -> None:
        self.say: Callable[[str], None] = session.reporter.say
        self.options: Options = session.options
        self.flags = flags
        self.number = 0
        for name in (*flags.print_ir_before, *flags.print_ir_after):
            _check_name(name, program.dialect.name)
        self.text = "".join(self._text(program)) if flags.print_ir_diff else ""
        if flags.print_ir_tree:
            os.makedirs(flags.print_ir_tree, exist_ok=True)

    def before(self, step: Step, program: Program) -> None:
        if _named(step, self.flags.print_ir_before, "all"):
            self._show(f"before {step.name}", self._text(program))

    def after(self, step: Step, program: Program, changed: bool) -> None:
        self.number += 1
        if _named(step, self.flags.print_ir_after, "all", *(["change"] * changed)):
            self._show(f"after {step.name}", self._text(program))
        if self.flags.print_ir_diff:
            self._diff(step, "".join(self._text(program)))
        if self.flags.print_ir_tree:
            name = f"{self.number:04}_{step.name}.{program.format}"
            write_text(os.path.join(self.flags.print_ir_tree, name), self._text(program))

    def _text(self, program: Program) -> list[str]:
        return program_text(program, program.format, Diagnostics(program.source), self.options)

    def _show(self, when: str, pieces: list[str]) -> None:
        self.say(f"// ----- {when}\n" + "".join(pieces).rstrip("\n"))

    def _diff(self, step: Step, text: str) -> None:
        lines = difflib.unified_diff(
            self.text.splitlines(), text.splitlines(), f"before {step.name}", f"after {step.name}", "", "", 3, ""
        )
        if shown := "\n".join(lines):
            self.say(shown)
        self.text = text


def _named(step: Step, wanted: tuple[str, ...], *special: str) -> bool:
    return step.name in wanted or any(word in wanted for word in special)


def _check_name(name: str, dialect: str) -> None:
    if name in ("all", "change"):
        return
    try:
        lookup(name, dialect)
    except KeyError:
        raise UsageError(f"no pass `{name}` for {dialect} programs") from None


def _summaries(reporter: Reporter, context: PassContext, flags: Flags) -> None:
    if flags.timing:
        times = [(name, f"{seconds * 1e3:.2f}") for name, seconds in context.timings]
        total = ("total", f"{sum(seconds for _, seconds in context.timings) * 1e3:.2f}")
        plain = (f"{ms:>10} ms  {name}\n" for name, ms in (*times, total))
        reporter.tabulate(sys.stderr, plain, lambda: [tables.Table(("pass", "ms"), times, footer=total)])
    if flags.stats:
        done = [(name, what, str(n)) for name, counts in context.statistics.items() for what, n in sorted(counts.items())]
        plain = (f"{n:>10}  {name}: {what}\n" for name, what, n in done)
        reporter.tabulate(sys.stderr, plain, lambda: [tables.Table(("pass", "what", "times"), done)])
