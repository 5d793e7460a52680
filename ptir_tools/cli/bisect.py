"""`ptir bisect`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ptir_tools.cli.following import Record, difference, located
from ptir_tools.cli.judging import Judge, timeout_option
from ptir_tools.cli.optimizing import Pipeline, float_options, floats, pass_context, pipeline_option
from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.output import program_text, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, Rejected, UsageError
from ptir_tools.core.ir import Program, clone
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.passes import run_pipeline

if TYPE_CHECKING:
    from ptir_tools import engines
    from ptir_tools.core.arrays import Array
    from ptir_tools.engines import compare
else:
    engines = lazy("ptir_tools.engines")
    compare = lazy("ptir_tools.engines.compare")


_OWN = frozenset({"output", "check", "check_runs", "timeout"})  # what `ptir opt` has not, or means another thing by


@dataclass(slots=True)
class Flags:
    """The options of the command, as click names them."""

    output: str | None
    pipeline: str | None
    check: str | None
    check_runs: int
    timeout: float | None
    strict_fp: bool
    fast_math: bool


@subcommand(
    file_argument,
    output_option,
    pipeline_option,
    click.option("--check", metavar="CMD", help="The judge: exits with 0 for a good program, whose file is {} in CMD, or last."),
    click.option("--check-runs", type=click.IntRange(1), default=3, metavar="N", help="Without --check: how many runs (3)."),
    timeout_option,
    *float_options,
)
def command(session: Session, file: str, **flags: Any) -> None:
    """Find the step of a pipeline that makes a program go wrong.

    A step is one rewrite or fold, one merge of `cse`, or all that another pass does. The pipeline is run with fewer steps until
    one is found that the judge is content without and not with; it is printed with its pass, its pattern, its place, the op
    before and after, and what it changed in the program.

    The judge is --check CMD: exit code 0 means good, anything else (a timeout, too) bad. Without --check a program is good
    when it runs to the outputs of the original on random inputs. A pass that crashes is bad.

    Exit code 1 when a step was found, 0 when none is guilty.

    \b
    Examples:
      ptir bisect model.ptir -p canonicalize,cse,dce
      ptir bisect model.ptir --check 'ptir run {} --inputs in.npz --expect right.npz'
    """
    given = Flags(**flags)
    floats(given)
    program, _ = session.load(file)
    trial = Trial(session, program, given)
    if not trial.good(0):
        raise UsageError("the judge is not content with the program as it is; nothing can be found")
    steps = trial.count()
    session.reporter.tell(f"{steps} step{'s' * (steps != 1)}")
    if trial.good(steps) and not trial.crash:
        session.reporter.tell("no step is guilty: the judge is content after all of them")
        return
    guilty = _search(steps, trial, session.reporter.tell)
    write_text(given.output, [line + "\n" for line in _report(trial, guilty)])
    raise click.exceptions.Exit(1)


def _search(steps: int, trial: Trial, say: Callable[[str], None]) -> int:
    """The number of a step that is good to stop before and bad to stop after."""
    good, bad = 0, steps
    while bad - good > 1:
        middle = (good + bad) // 2
        fine = trial.good(middle)
        say(f"{middle:>8} {'good' if fine else 'bad'}")
        good, bad = (middle, bad) if fine else (good, middle)
    return bad


class Trial:
    """The pipeline, run on copies of the program with so many steps."""

    def __init__(self, session: Session, program: Program, flags: Flags) -> None:
        self.session, self.program, self.flags = session, program, flags
        self.pipeline = Pipeline.asked(session, flags.pipeline).of(program)
        self.judge = Judge(flags.check, program.format, flags.timeout) if flags.check is not None else None
        self.records: list[Record] = []
        self.known: dict[str, Array] = {}  # what the last run took parameters to be
        self.crash = ""

    def run(self, steps: int | None, log: Callable[[Record], None] | None = None) -> Program | None:
        """The program after `steps` steps (None: all); None, and `crash`, when a pass fails."""
        made = clone(self.program)
        context = pass_context(self.session, Diagnostics(self.program.source), self.flags)
        context.step_limit, context.log = steps, log
        self.crash = ""
        try:
            run_pipeline(made, self.pipeline, context)
        except (UsageError, Rejected, LimitExceeded, MemoryError, OSError):
            raise
        except Exception as error:
            self.crash = f"{context.running}: {type(error).__name__}: {error}"
            return None
        self.known = context.known
        return made

    def count(self) -> int:
        """How many steps the pipeline takes; one that crashes counts."""
        self.run(None, lambda record: None if record["event"] == "erased" else self.records.append(record))
        return len(self.records) + bool(self.crash)

    def text(self, steps: int) -> str | None:
        """The program after `steps` steps; None when a pass failed."""
        made = self.run(steps)
        if made is None:
            return None
        found = Diagnostics(made.source)
        pieces = program_text(made, made.format, found, self.session.options)
        found.raise_if_errors()
        return "".join(pieces)

    def good(self, steps: int) -> bool:
        """What the judge says of it."""
        if self.judge is not None:
            text = self.text(steps)
            return text is not None and self.judge(text)
        made = self.run(steps)
        return made is not None and self._same(made)

    def _same(self, made: Program) -> bool:
        options = engines.RunOptions(bindings=self.session.bindings, limits=self.session.options.limits)
        runs, finite = self.flags.check_runs, self.flags.fast_math
        found = compare.check(self.program, made, runs=runs, options=options, constants=self.known, finite=finite)
        return not found.diverged


def _report(trial: Trial, guilty: int) -> Iterator[str]:
    """What there is to say about the guilty step."""
    before, after = trial.text(guilty - 1), trial.text(guilty)
    crash = trial.crash
    record = located(trial.records[guilty - 1], trial.program.source) if guilty <= len(trial.records) else {}
    yield f"step {guilty} is guilty"
    yield f"  pass     {record.get('pass') or crash.partition(':')[0]}"
    for title in ("pattern", "at", "before"):
        if record.get(title):
            yield f"  {title:8} {record[title]}"
    yield from (f"  after    {line}" for line in record.get("after") or ())
    if crash:
        yield f"  crash    {crash}"
    yield f"  replay   {_again(guilty, trial.session.ctx)}"
    if before is not None and after is not None:
        yield from difference(before, after, f"after step {guilty - 1}", f"after step {guilty}")


def _again(guilty: int, ctx: click.Context) -> str:
    """The command that stops after the guilty step: what was given here and means the same to `ptir opt`."""
    words = ["ptir", "opt"]
    for p in ctx.command.params:
        name = p.name or ""
        if name in _OWN or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        for value in given if isinstance(given := ctx.params[name], tuple) else [given]:
            words += [p.opts[0]] * isinstance(p, click.Option) + [_spelled(value)] * (value is not True)
    return shlex.join([*words, "--bisect-limit", str(guilty)])


def _spelled(value: Any) -> str:
    return "=".join(map(str, value)) if isinstance(value, tuple) else str(value)
