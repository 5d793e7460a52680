"""What `opt` and `canonicalize` share: running a pipeline, and watching it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click

from ptir_tools.cli import checking, weights
from ptir_tools.cli.following import Printer, Tracer, located
from ptir_tools.cli.options import Decorator, titled
from ptir_tools.cli.output import distinct, logging, program_text, require_format
from ptir_tools.cli.report import Reporter
from ptir_tools.cli.reproducing import Position, describe
from ptir_tools.cli.session import Session
from ptir_tools.cli.splitting import each_program, only_one, split_option
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.ir import Program, clone
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LIMITS, LimitExceeded
from ptir_tools.core.source import Source
from ptir_tools.dialects import FORMATS
from ptir_tools.passes import Floats, PassContext, parse_pipeline, run_pipeline

if TYPE_CHECKING:
    import json

    from ptir_tools.cli import tables
else:
    json = lazy("json")
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
    trace: str | None
    log_rewrites: str | None
    bisect_limit: int | None
    expensive_checks: bool
    verify_each: bool
    strict_fp: bool
    fast_math: bool
    elide_constants_larger: int | None
    weights: str | None
    split_input: bool
    check: bool
    check_runs: int


def _once(_: click.Context, option: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The text that was given, if any. Of two, neither is to be forgotten."""
    if len(given) > 1:
        raise click.BadParameter("given more than once; commas separate passes", param=option)
    return given[0] if given else None


pipeline_option = click.option(
    "-p",
    "--pipeline",
    multiple=True,
    callback=_once,
    metavar="PIPELINE",
    help="The passes: `name,name{option=value}`, or @FILE that holds them (@-: stdin).",
)
float_options = (
    click.option("--strict-fp", is_flag=True, help="No rewrite may change a bit of a floating-point result."),
    click.option("--fast-math", is_flag=True, help="Rewrites may assume finite numbers and reassociate."),
)
pass_options: tuple[Decorator, ...] = (
    click.option("--to", type=click.Choice(list(FORMATS)), help="Print in this format instead of the input's."),
    *float_options,
    click.option(
        "--elide-constants-larger",
        type=click.IntRange(0),
        metavar="N",
        help="Print constants of more than N elements as dense<?>.",
    ),
    weights.weights_option,
    split_option,
    *titled(
        "Watching",
        click.option(
            "--print-ir-before", metavar="PASS", multiple=True, help="Print the program before PASS[,PASS] (`all`: each)."
        ),
        click.option(
            "--print-ir-after", metavar="PASS", multiple=True, help="… after PASS[,PASS] (`all`; `change`: if it changed)."
        ),
        click.option("--print-ir-diff", is_flag=True, help="Print what each pass changed."),
        click.option("--print-ir-tree", metavar="DIR", help="Write the program after each pass to DIR/0001_PASS.FORMAT."),
        click.option("--timing", is_flag=True, help="Tell how long each pass took."),
        click.option("--stats", is_flag=True, help="Tell what each pass did: rewrites, folds, erased ops, per pattern."),
        click.option("--trace", metavar="FILE", help="Write a Chrome trace of the passes."),
        click.option("--log-rewrites", metavar="FILE", help="One JSON line per step: pass, pattern, root, before, after, at."),
        click.option("--bisect-limit", type=click.IntRange(0), metavar="N", help="Stop after N steps (see `ptir bisect`)."),
    ),
    *titled(
        "Checking",
        click.option("--verify-each/--no-verify-each", default=True, help="Verify after every pass (on)."),
        click.option("--expensive-checks", is_flag=True, help="Hold every pattern to its contract (slow)."),
        *checking.check_options,
    ),
)


def optimize_command(session: Session, file: str, output: str | None, pipeline: str | None, flags: Flags) -> None:
    """Read, run the pipeline (None: the dialect's default), compare if asked, print."""
    only_one(flags.split_input, weights=flags.weights)
    distinct(output=output, weights=flags.weights, trace=flags.trace, log_rewrites=flags.log_rewrites)
    session.set(elide_constants=flags.elide_constants_larger)
    with ExitStack() as stack:
        optimizer = _Optimizer(session, Pipeline.asked(session, pipeline), output, flags, stack)
        made = each_program(session, file, flags.split_input, optimizer.optimized)
    made.write(output, flags.to)


class Pipeline(NamedTuple):
    """The pipeline that was asked for: None is the dialect's own; `path` is the file that it stands in, if it does in one."""

    text: str | None
    path: str = ""

    @classmethod
    def asked(cls, session: Session, given: str | None) -> Pipeline:
        """What `-p` says; that of `@FILE` stands in the file, `-` is standard input. Raises OSError, UsageError."""
        if given is None or not given.startswith("@"):
            return cls(given)
        if given == "@":
            raise UsageError("-p @FILE needs the name of the file")
        path, data = session.read(given[1:])
        try:
            return cls(data.decode("utf-8-sig").replace("\r\n", "\n"), path)
        except UnicodeDecodeError:
            raise UsageError(f"{path}: not UTF-8") from None

    def of(self, program: Program) -> str:
        """The text for `program`. Raises UsageError when what stands in a file makes no sense."""
        if self.text is None:
            return program.dialect.pipeline
        try:
            parse_pipeline(self.text, program.dialect.name)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}" if self.path else str(error)) from None
        return self.text


class _Optimizer:
    """What is done to each program of the input, and what watches it; the files of that are closed with `stack`."""

    def __init__(self, session: Session, pipeline: Pipeline, output: str | None, flags: Flags, stack: ExitStack) -> None:
        self.session, self.pipeline, self.output, self.flags = session, pipeline, output, flags
        printed = flags.print_ir_before or flags.print_ir_after or flags.print_ir_diff or flags.print_ir_tree is not None
        self.printer = Printer(session, flags) if printed else None
        self.log = None if flags.log_rewrites is None else stack.enter_context(logging(flags.log_rewrites))
        self.tracer = None if flags.trace is None else Tracer()
        if flags.trace is not None and self.tracer is not None:
            stack.callback(self.tracer.write, flags.trace)

    def optimized(self, source: Source) -> Iterable[str]:
        """The pieces of the program in `source` after the pipeline."""
        session, flags = self.session, self.flags
        program, diagnostics = session.program(source)
        before = clone(program) if flags.check else None
        form = flags.to or program.format
        require_format(program, form)
        context = self.context(program, diagnostics)
        _run(session, program, self.pipeline.of(program), context, flags)
        _summaries(session.reporter, context, flags)
        arrays = weights.taken_out(session, program, form, flags.weights, self.output)
        pieces = program_text(program, form, diagnostics, session.options)
        session.reporter.settle(diagnostics)
        if before is not None:
            checking.check(session, before, program, flags.check_runs, finite=flags.fast_math, known=context.known)
        weights.write(flags.weights, arrays)
        return pieces

    def context(self, program: Program, diagnostics: Diagnostics) -> PassContext:
        """What the passes are given."""
        context, flags = pass_context(self.session, diagnostics, self.flags), self.flags
        context.verify_each, context.expensive_checks = flags.verify_each, flags.expensive_checks
        context.step_limit = flags.bisect_limit
        if (log := self.log) is not None:
            context.log = lambda record: log(json.dumps(located(record, program.source), ensure_ascii=False) + "\n")
        if self.printer is not None:
            self.printer.begin(program)
            context.hooks.append(self.printer)
        if self.tracer is not None:
            self.tracer.begin(context)
            context.hooks.append(self.tracer)
        return context


def _run(session: Session, program: Program, pipeline: str, context: PassContext, flags: Flags) -> None:
    """Run the passes. When one crashes, the reporter gets what the reproducer says; the crash goes on."""
    position = Position()
    context.hooks.insert(0, position)
    try:
        run_pipeline(program, pipeline, context)
    except (UsageError, Rejected, LimitExceeded, MemoryError, OSError):
        raise
    except Exception:
        if program.source is not None:
            with suppress(Exception):  # the crash itself matters more
                session.reporter.reproducer = describe(session, program.source, pipeline, position, context, flags)
        raise


class FloatFlags(Protocol):
    """The options of `float_options`."""

    strict_fp: bool
    fast_math: bool


def floats(flags: FloatFlags) -> Floats:
    """What rewrites may change. Raises UsageError when both flags are given."""
    if flags.strict_fp and flags.fast_math:
        raise UsageError("--strict-fp and --fast-math exclude each other")
    return Floats.STRICT if flags.strict_fp else Floats.FAST if flags.fast_math else Floats.DEFAULT


def pass_context(session: Session, diagnostics: Diagnostics, flags: FloatFlags) -> PassContext:
    """A context with the limits and the floats that were asked for."""
    limits = session.options.limits
    bound = limits.iterations if limits.iterations != LIMITS.iterations else None
    return PassContext(diagnostics, limits, floats(flags), max_iterations=bound)


def _summaries(reporter: Reporter, context: PassContext, flags: Flags) -> None:
    if flags.timing:
        spent = [*context.timings, *([("--verify-each", context.verifying)] if context.verify_each else [])]
        times = [(name, f"{seconds * 1e3:.2f}") for name, seconds in spent]
        total = ("total", f"{sum(seconds for _, seconds in spent) * 1e3:.2f}")
        plain = (f"{ms:>10} ms  {name}\n" for name, ms in (*times, total))
        reporter.tabulate(sys.stderr, plain, lambda: [tables.Table(("pass", "ms"), times, footer=total)])
    if flags.stats:
        done = [(name, what, str(n)) for name, counts in context.statistics.items() for what, n in sorted(counts.items())]
        plain = (f"{n:>10}  {name}: {what}\n" for name, what, n in done)
        reporter.tabulate(sys.stderr, plain, lambda: [tables.Table(("pass", "what", "times"), done)])
