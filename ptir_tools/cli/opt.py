"""`ptir opt`: runs a pipeline, shows its steps and checks them. `canonicalize` and `bisect` use it, too."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress

from ptir_tools import __version__
from ptir_tools.cli import checking
from ptir_tools.cli.options import (
    Parameter,
    check_engine_option,
    check_options,
    choice,
    elide_option,
    files_argument,
    float_options,
    in_place_option,
    int_range,
    jobs_option,
    option,
    output_tree_option,
    split_option,
    subcommand,
    titled,
    weights_option,
)
from ptir_tools.cli.output import (
    distinct,
    each_program,
    logging,
    move_weights,
    only_one,
    places_of,
    to_stdout,
    write_text,
    write_weights,
)
from ptir_tools.cli.report import Reporter
from ptir_tools.cli.session import STDIN, Session
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.lazy import late, lazy
from ptir_tools.core.limits import LIMITS, LimitExceeded, Limits, current, using
from ptir_tools.core.records import NamedTuple, dataclass, replace
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING, Protocol
from ptir_tools.dialects import DIALECTS, writable
from ptir_tools.dialects.writing import program_pieces, require_format
from ptir_tools.passes import Floats, PassContext, default_pipeline, measured, parse_pipeline, run_pipeline, written
from ptir_tools.tools import reproduce
from ptir_tools.tools.observers import Printer, Tracer, located
from ptir_tools.tools.splitting import divider

if TYPE_CHECKING:
    import json
    import textwrap

    from ptir_tools import engines, passes
    from ptir_tools.cli import tables
    from ptir_tools.tools import compare as outcome
else:
    json = lazy("json")
    engines = lazy("ptir_tools.engines")
    outcome = lazy("ptir_tools.tools.compare")
    textwrap = lazy("textwrap")
    passes = lazy("ptir_tools.passes")
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
    weights_to: str | None
    split_input: bool
    in_place: bool
    jobs: int
    check: bool
    check_runs: int
    engine: str | None


def _once(_: object, option: object, given: tuple[str, ...]) -> str | None:
    """The text of an option that may be given only once."""
    if len(given) > 1:
        raise ValueError("given more than once; commas separate passes")
    return given[0] if given else None


pipeline_option = option(
    "-p",
    "--pipeline",
    multiple=True,
    callback=_once,
    metavar="PIPELINE",
    help="The passes: `name,name{option=value}`, or @FILE that holds them (@-: stdin).",
)
allow_writes_option = option("--allow-writes", is_flag=True, help="Let passes of a pipeline that is in a file write files.")
pass_options: tuple[Parameter, ...] = (
    option("--to", type=choice(writable()), help="Print in this format instead of the input's."),
    *float_options,
    elide_option,
    weights_option,
    split_option,
    in_place_option,
    jobs_option,
    *titled(
        "Watching",
        option("--print-ir-before", metavar="PASS", multiple=True, help="Print the program before PASS[,PASS] (`all`: each)."),
        option("--print-ir-after", metavar="PASS", multiple=True, help="… after PASS[,PASS] (`all`; `change`: if it changed)."),
        option("--print-ir-diff", is_flag=True, help="Print what each pass changed."),
        option("--print-ir-tree", metavar="DIR", help="Write the program after each pass to DIR/0001_PASS.FORMAT."),
        option("--timing", is_flag=True, help="Show how long each pass took."),
        option("--stats", is_flag=True, help="Show what each pass did: rewrites, folds, erased ops, per pattern."),
        option("--trace", metavar="FILE", help="Write a Chrome trace of the passes."),
        option("--log-rewrites", metavar="FILE", help="One JSON line per step: pass, pattern, root, before, after, at."),
        option("--bisect-limit", type=int_range(0), metavar="N", help="Stop after N steps (see `ptir bisect`)."),
    ),
    *titled(
        "Checking",
        option("--verify-each/--no-verify-each", default=True, help="Verify after every pass (on)."),
        option("--expensive-checks", is_flag=True, help="Check every pattern against its contract (slow)."),
        *check_options,
        check_engine_option,
    ),
)


@subcommand(
    files_argument,
    output_tree_option,
    pipeline_option,
    allow_writes_option,
    option("--list-passes", is_flag=True, help="List the passes of every IR with their options, and exit."),
    option("--run-reproducer", is_flag=True, help="FILE is a reproducer of a crash: run its pipeline with its flags."),
    *pass_options,
    flags=Flags,
)
def command(
    session: Session,
    files: tuple[str, ...],
    output: str | None,
    pipeline: str | None,
    allow_writes: bool,
    list_passes: bool,
    run_reproducer: bool,
    flags: Flags,
) -> None:
    """Run passes on a program and print it in its own format.

    Without -p, the default pipeline of the program's IR runs. A pass of another IR is wrong usage. `fixpoint{n=4}(name,name)`
    repeats the passes until nothing changes. -p @FILE reads the pipeline from a file, in which line ends also separate
    passes, and `#` begins a comment.

    \b
    Examples:
      ptir opt model.ptir
      ptir opt -p canonicalize,cse,dce --check model.ptir
      ptir opt -p 'canonicalize{max-iterations=4}' --print-ir-diff --stats model.ptir
      ptir opt -p @passes.txt --trace passes.json model.ptir
      ptir translate graph.json --to ptir | ptir opt --timing
    """
    if list_passes:
        return _list(session)
    if run_reproducer:
        replayed, limits = _replay(session, files, pipeline, flags, allow_writes)
        with using(limits):
            return optimize_command(session, files, output, replayed, flags)
    return optimize_command(session, files, output, Pipeline.from_option(session, pipeline, allow_writes), flags)


def optimize_command(session: Session, files: Sequence[str], output: str | None, pipeline: Pipeline, flags: Flags) -> None:
    """For each file: read it, run the pipeline, compare if `--check` is given, and print."""
    only_one("--split-input", flags.split_input, weights_to=flags.weights_to)
    only_one("several files", several := len(files) > 1 or any(map(os.path.isdir, files)), weights_to=flags.weights_to)
    only_one("--jobs", flags.jobs > 1, log_rewrites=flags.log_rewrites, trace=flags.trace, print_ir_tree=flags.print_ir_tree)
    distinct(files, output=output, weights_to=flags.weights_to, trace=flags.trace, log_rewrites=flags.log_rewrites)
    if flags.in_place and (output is not None or flags.to is not None or not files):
        raise UsageError("--in-place rewrites files in their own format: it excludes -o and --to")
    session.set(elide_constants=flags.elide_constants_larger)
    places = dict(places_of(session.files(files), files, output)) if several else {}
    written: list[Callable[[], None]] = []  # of one file: when all observers of the passes have written their files
    with ExitStack() as stack:
        optimizer = _Optimizer(session, pipeline, output, flags, stack)

        def one(path: str) -> int:
            result = each_program(session, path, flags.split_input, optimizer.optimized)
            target = path if flags.in_place else places.get(path, output)
            if several and to_stdout(target) and path != next(iter(places)):
                sys.stdout.write(divider(flags.to or optimizer.form))
            if several:
                result.write(target, flags.to)
            else:
                written.append(lambda: result.write(target, flags.to))
            return 0

        session.each(files, one, flags.jobs)
    for write in written:
        write()


class Pipeline(NamedTuple):
    """The given pipeline; None is the dialect's default. `path` is its file, if it is in one: then passes may write files only
    with `writes`."""

    text: str | None = None
    path: str = ""
    writes: bool = False

    @classmethod
    def from_option(cls, session: Session, given: str | None, writes: bool = False) -> Pipeline:
        """The pipeline of `-p`; `@FILE` reads it from a file, `@-` from standard input. Raises OSError, UsageError."""
        if given is None or not given.startswith("@"):
            return cls(given)
        if given == "@":
            raise UsageError("-p @FILE needs the name of the file")
        path, data = session.read(given[1:])
        try:
            return cls(data.decode("utf-8-sig").replace("\r\n", "\n"), path, writes)
        except UnicodeDecodeError:
            raise UsageError(f"{path}: not UTF-8") from None

    def of(self, program: Program) -> str:
        """The text for `program`. Raises UsageError if the text of a file is not a pipeline."""
        if self.text is None:
            return default_pipeline(program)
        try:
            parse_pipeline(self.text, program.dialect.name)
        except UsageError as error:
            raise UsageError(f"{self.path}: {error}" if self.path else str(error)) from None
        if self.path and not self.writes and (writing := written(self.text, program.dialect.name)) is not None:
            message = f"{self.path}: a pipeline from a file writes no files, and this one has {writing}"
            raise UsageError(message, "--allow-writes allows it, if you trust the file")
        return self.text


class _Optimizer:
    """Processes each program of the input with observers; `stack` closes their files."""

    def __init__(self, session: Session, pipeline: Pipeline, output: str | None, flags: Flags, stack: ExitStack) -> None:
        self.session, self.pipeline, self.output, self.flags = session, pipeline, output, flags
        self.form = ""  # of the program that was printed last
        printed = flags.print_ir_before or flags.print_ir_after or flags.print_ir_diff or flags.print_ir_tree is not None
        between = (flags.print_ir_before, flags.print_ir_after, flags.print_ir_diff, flags.print_ir_tree)
        self.printer = Printer(session.reporter.say, session.options, *between) if printed else None
        self.log = None if flags.log_rewrites is None else stack.enter_context(logging(flags.log_rewrites))
        self.tracer = None if flags.trace is None else Tracer()
        if flags.trace is not None and self.tracer is not None:
            tracer = self.tracer
            stack.callback(lambda: write_text(flags.trace, [tracer.text()]))

    def optimized(self, source: Source) -> Iterable[str] | Iterable[bytes]:
        """The pieces of the program in `source` after the pipeline."""
        session, flags = self.session, self.flags
        program, diagnostics = session.program(source)
        pipeline = self.pipeline.of(program)
        moves = measured(pipeline, program.dialect.name)
        before = clone(program) if flags.check or moves else None
        self.form = form = flags.to or program.format
        require_format(program, form)
        context = self.context(program, diagnostics)
        _run(session, program, pipeline, context, flags)
        _summaries(session.reporter, context, flags)
        for line in context.measures:
            session.reporter.say(line)
        arrays = move_weights(session, program, form, flags.weights_to, self.output)
        pieces = program_pieces(program, form, diagnostics, session.options)
        session.reporter.settle(diagnostics)
        if before is not None and moves:
            for line in outcome.moved(before, program, engines.RunOptions(bindings=session.bindings)):
                session.reporter.say(line)
        if before is not None and flags.check:
            strict, finite = flags.strict_fp, flags.fast_math
            after = checking.written(session, program, form, pieces)
            tested = checking.check(
                session,
                before,
                after,
                flags.check_runs,
                finite=finite,
                strict=strict,
                known=context.known,
                engine=flags.engine or "reference",
            )
            session.reporter.tell(f"--check: {tested.runs} runs agree; {checking.tested('passes', flags.engine or 'reference')}")
        write_weights(flags.weights_to, arrays)
        return pieces

    def context(self, program: Program, diagnostics: Diagnostics) -> PassContext:
        """The context of the passes."""
        context, flags = pass_context(diagnostics, self.flags), self.flags
        context.verify_each, context.expensive_checks = flags.verify_each, flags.expensive_checks
        context.step_limit, context.ready = flags.bisect_limit, late("ptir_tools.engines.compiled", "Compiled")
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
    """Run the passes. If one crashes, the reporter gets the comments of the reproducer, and the error is raised again."""
    position = reproduce.Position()
    context.hooks.insert(0, position)
    try:
        run_pipeline(program, pipeline, context)
    except (UsageError, Rejected, LimitExceeded, MemoryError, OSError):
        raise
    except Exception:
        if program.source is not None:
            with suppress(Exception):  # the crash itself matters more
                session.reporter.reproducer = reproduce.describe(
                    program.source,
                    session.parse,
                    pipeline,
                    position,
                    context,
                    options=session.options,
                    flags=[name for name in reproduce.FLAGS if getattr(flags, name)],
                    comment=session.reporter.comment,
                )
        raise


class FloatFlags(Protocol):
    """The options of `float_options`."""

    strict_fp: bool
    fast_math: bool


def floats(flags: FloatFlags) -> Floats:
    """What rewrites may change in floating point. Raises UsageError if both flags are given."""
    if flags.strict_fp and flags.fast_math:
        raise UsageError("--strict-fp and --fast-math exclude each other")
    return Floats.STRICT if flags.strict_fp else Floats.FAST if flags.fast_math else Floats.DEFAULT


def pass_context(diagnostics: Diagnostics, flags: FloatFlags) -> PassContext:
    """A context with the current limits and the floating-point flags."""
    bound = current().iterations
    return PassContext(diagnostics, floats=floats(flags), max_iterations=bound if bound != LIMITS.iterations else None)


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


def _replay(session: Session, files: Sequence[str], pipeline: str | None, flags: Flags, writes: bool) -> tuple[Pipeline, Limits]:
    """The pipeline of the reproducer in `files`, and its limits; sets its flags in `flags`. Raises UsageError."""
    if len(files) != 1 or files[0] in STDIN or pipeline is not None:
        raise UsageError("--run-reproducer takes the reproducer of a crash, and its pipeline")
    (file,) = files
    arguments = reproduce.read(session.opened(file))
    for name, given in arguments.flags.items():
        setattr(flags, name, given)
    if arguments.version != __version__:
        session.reporter.tell(f"{file} is of ptir {arguments.version}, this is {__version__}")
    bound = arguments.max_iterations
    return Pipeline(arguments.pipeline, file, writes), current() if bound is None else replace(current(), iterations=bound)


def _list(session: Session) -> None:
    """Print every pass with its IR, its help and its options; with -v its complete manual."""
    if session.reporter.verbose:
        for dialect in DIALECTS:
            for name in passes.names(dialect):
                options = _options(name, dialect)
                manual = textwrap.indent(passes.manual(name, dialect), "    ")
                sys.stdout.write(f"{dialect} {name}{f' [{options}]' if options else ''}\n{manual}\n\n")
        return
    rows = [(d, name, passes.help_of(name, d), _options(name, d)) for d in DIALECTS for name in passes.names(d)]
    fixpoint = "Run the passes in parentheses again until they change nothing, at most n times each."
    rows += [("all", passes.FIXPOINT, fixpoint, _options(passes.FIXPOINT, "ptir"))]
    plain = (f"{d:5} {name:28} {help}{f' [{options}]' if options else ''}\n" for d, name, help, options in rows)
    session.reporter.tabulate(sys.stdout, plain, lambda: [tables.Table(("IR", "pass", "does", "options"), rows)])


def _options(name: str, dialect: str) -> str:
    """`name=default` for every option; a number without a default is `n`."""
    return ", ".join(f"{option}={_shown(default)}" for option, default in passes.options_of(name, dialect).items())


def _shown(default: object) -> str:
    if default is None:
        return "n"
    return str(default).lower() if isinstance(default, bool) else str(default)
