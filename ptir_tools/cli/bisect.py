"""`ptir bisect`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

from ptir_tools.cli import checking
from ptir_tools.cli.opt import Pipeline, allow_writes_option, floats, pass_context, pipeline_option
from ptir_tools.cli.options import (
    check_engine_option,
    check_runs_option,
    check_timeout_option,
    file_argument,
    float_options,
    option,
    output_option,
    subcommand,
)
from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import Leave
from ptir_tools.cli.session import Given, Session
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.writing import program_text
from ptir_tools.tools.bisect import Good, Guilty, bisect, runs_as_before
from ptir_tools.tools.check_command import CheckCommand
from ptir_tools.tools.observers import difference, located

if TYPE_CHECKING:
    from ptir_tools import engines
    from ptir_tools.core.arrays import Array
else:
    engines = lazy("ptir_tools.engines")


_OWN = frozenset({"output", "check", "check_runs", "timeout"})  # options that `ptir opt` does not have, or with another meaning


@dataclass(slots=True)
class Flags:
    """The options of the command, as click names them."""

    output: str | None
    pipeline: str | None
    allow_writes: bool
    check: str | None
    check_runs: int
    engine: str | None
    timeout: float | None
    strict_fp: bool
    fast_math: bool


@subcommand(
    file_argument,
    output_option,
    pipeline_option,
    allow_writes_option,
    option("--check", metavar="CMD", help="CMD exits with 0 for a good program; its file is {} in CMD, or last."),
    check_runs_option,
    check_engine_option,
    check_timeout_option,
    *float_options,
    flags=Flags,
)
def command(session: Session, file: str, flags: Flags) -> None:
    """Find the step of a pipeline that makes a program go wrong.

    A step is one rewrite or fold, one merge of `cse`, or all changes of another pass. The pipeline is run with fewer steps until
    the first step is found that makes the program bad. It is printed with its pass, its pattern, its place, the op before and
    after, and its changes of the program.

    --check CMD decides: exit code 0 means good, anything else (a timeout, too) bad. Without --check a program is good
    if it gives the outputs of the original on random inputs, on the engine of --engine. A pass that crashes is bad.

    The exit code is 1 if a step was found, 0 if none is guilty.

    \b
    Examples:
      ptir bisect model.ptir -p canonicalize,cse,dce
      ptir bisect model.ptir --check 'ptir run {} --inputs in.npz --expect right.npz'
    """
    floats(flags)
    program, _ = session.load(file)

    def text(result: Program) -> str:
        diagnostics = Diagnostics(result.source)
        pieces = program_text(result, result.format, diagnostics, session.options)
        diagnostics.raise_if_errors()
        return "".join(pieces)

    check = None if flags.check is None else CheckCommand(flags.check, program.format, flags.timeout)
    pipeline = Pipeline.from_option(session, flags.pipeline, flags.allow_writes).of(program)
    with nullcontext() if check is None else check.explained():
        diagnostics = bisect(
            program,
            pipeline,
            _criterion(session, program, flags, check, text),
            context=lambda: pass_context(Diagnostics(program.source), flags),
            progress=session.reporter.tell,
        )
    if diagnostics is None:
        tested = "" if check is not None else f"; {checking.tested('passes', flags.engine or 'reference')}"
        session.reporter.tell(f"no step is guilty: the program is good after all of them{tested}")
        return
    write_text(flags.output, [line + "\n" for line in _report(session, program, diagnostics, text)])
    raise Leave(1)


def _criterion(
    session: Session,
    program: Program,
    flags: Flags,
    check: CheckCommand | None,
    text: Callable[[Program], str],
) -> Good:
    """The check command, or the comparison of runs."""
    if check is None:
        options = engines.RunOptions(bindings=session.bindings)
        return runs_as_before(program, flags.check_runs, options, flags.fast_math, flags.engine or "reference")

    def good(result: Program, known: dict[str, Array]) -> bool:
        return check(text(result))

    return good


def _report(session: Session, program: Program, result: Guilty, text: Callable[[Program], str]) -> Iterator[str]:
    """The report about the guilty step."""
    guilty, record = result.step, located(result.record, program.source) if result.record else {}
    yield f"step {guilty} is guilty"
    yield f"  pass     {record.get('pass') or result.crash.partition(':')[0]}"
    for title in ("pattern", "at", "before"):
        if record.get(title):
            yield f"  {title:8} {record[title]}"
    yield from (f"  after    {line}" for line in record.get("after") or ())
    if result.crash:
        yield f"  crash    {result.crash}"
    yield f"  replay   {_replay_command(guilty, session.said)}"
    if result.before is not None and result.after is not None:
        yield from difference(text(result.before), text(result.after), f"after step {guilty - 1}", f"after step {guilty}")


def _replay_command(guilty: int, message: Sequence[Given]) -> str:
    """The command that stops after the guilty step, with the options that `ptir opt` has, too."""
    words = ["ptir", "opt"]
    for name, spelled, given in message:
        for value in () if name in _OWN else given if isinstance(given, tuple) else [given]:
            words += [spelled] * bool(spelled) + [_spelled(value)] * (value is not True)
    return shlex.join([*words, "--bisect-limit", str(guilty)])


def _spelled(value: object) -> str:
    return "=".join(map(str, value)) if isinstance(value, tuple) else str(value)
