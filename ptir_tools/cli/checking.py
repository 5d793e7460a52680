"""`--check`: run the program before and after, on random inputs, and compare the outputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from ptir_tools.cli.output import write_text
from ptir_tools.cli.report import REJECTED, Leave
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import BIND, OPTIONS, SHAPES, Program, Runner
from ptir_tools.core.files import replacing
from ptir_tools.core.lazy import lazy
from ptir_tools.core.records import replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects import FORMATS
from ptir_tools.dialects.writing import program_pieces, program_text

if TYPE_CHECKING:
    import tempfile

    from ptir_tools import convert, engines
    from ptir_tools.core import arrayfiles
    from ptir_tools.core import arrays as literals
    from ptir_tools.core.arrays import Array
    from ptir_tools.dialects import reading
    from ptir_tools.engines import compare
else:
    convert = lazy("ptir_tools.convert")
    arrayfiles = lazy("ptir_tools.core.arrayfiles")
    literals = lazy("ptir_tools.core.arrays")
    reading = lazy("ptir_tools.dialects.reading")
    compare = lazy("ptir_tools.engines.compare")
    engines = lazy("ptir_tools.engines")
    tempfile = lazy("tempfile")


_WHOLE: dict[str, object] = {
    "elide_constants": None,
    "outside": {},
    "data": None,
}  # formats with the complete program in one file


def written(session: Session, program: Program, form: str, pieces: Sequence[str] | Sequence[bytes]) -> Program:
    """Read `pieces` back; `form` is their format. The result is `program` itself if the format cannot be read. If the pieces
    cannot be read or do not verify, the command ends with exit code 1."""
    if not FORMATS[form].readable:
        return program
    options = session.options
    if any(options[OPTIONS[name]] for name in _WHOLE):
        options = options.having(None, **_WHOLE)
        pieces = program_pieces(program, form, Diagnostics(), options)
    data = b"".join(p if isinstance(p, bytes) else p.encode() for p in pieces)
    options = options.having(
        replace(
            options.limits, **{name: max(getattr(options.limits, name), len(data)) for name in ("file_bytes", "binary_bytes")}
        ),
        **{option.name: option.default for entry in FORMATS.values() if entry.name != form for option in entry.options},
        **{option.name: option.default for option in (BIND, SHAPES)},  # already applied
    )
    diagnostics = Diagnostics()
    source = reading.decode(data, f"<{form}>", diagnostics, options.limits, form)
    again = None if source is None else reading.read(source, diagnostics, options, form)
    if again is not None and (sidecar := FORMATS[form].sidecar) is not None:
        sidecar.fill(again, program)
    if again is not None:
        session.verify(again, diagnostics)
    if again is None or diagnostics.errors:  # its warnings are not about the given program
        session.reporter.settle(diagnostics)
    assert again is not None
    return again


def check(
    session: Session,
    before: Program,
    after: Program,
    runs: int,
    *,
    finite: bool = False,
    strict: bool = False,
    known: Mapping[str, Array] | None = None,
    peer: str = "",
    execute: Runner | None = None,
    judge: Runner | None = None,
    engine: str = "reference",
    option: str = "--check",
    mixed: bool = False,
    within: compare.Tolerance | None = None,
    explain: Callable[[Program, Program, compare.Check], None] | None = None,
) -> compare.Check:
    """The check of the last function. End the command with exit code 1 if outputs differ, and keep the inputs next to a command
    that repeats the run.

    `finite`: elements that are NaN or infinite before are not compared. `strict`: no rounding may change. `known`: values of
    inputs of the entry that the change depends on. `execute` runs the program after on `peer`, its name for `--compare`; without
    it `engine` does. `judge` gives what is expected, else the reference does. Every function that both programs have and nothing
    calls is run, on a peer only the entry. `option` is the option that asked for the check, for messages. `mixed`: dtypes may
    differ. `within` replaces the computed bounds. `explain` is called before a difference is reported.
    """
    options = engines.RunOptions(bindings=session.bindings, strict_fp=strict)
    kept = session.options[convert.CONSTANTS] or {}
    constants = {name: literals.from_literal(x) for name, x in kept.items()}
    for first, second in compare.entries(before, after) if execute is None else [(before, after)]:
        is_entry = first.entry == before.entry
        params = {p.name for p in first.main.params}
        own = constants or known if is_entry else {n: x for n, x in constants.items() if n not in params}
        result = compare.check(
            first,
            second,
            runs=runs,
            options=options,
            constants=own,
            finite=finite,
            execute=execute,
            judge=judge,
            engine=engine,
            mixed=mixed,
            within=within,
        )
        if result.diverged and explain is not None:
            explain(first, second, result)
        _report(session, first, second, result, peer, finite, option if is_entry else f"{option} of @{first.entry}", engine)
    return result


def tested(what: str, engine: str) -> str:
    """For a message: what a check of `what` on an engine tested."""
    alone = "no other engine ran" if engine == "reference" else "compared with the reference engine"
    return f"it tested the {what}, on the engine {engine}; {alone}"


def _report(
    session: Session,
    before: Program,
    after: Program,
    result: compare.Check,
    peer: str,
    finite: bool,
    what: str,
    engine: str,
) -> None:
    """Report the result of a check. `what` names the option that asked for it, and the function. End the command if outputs
    differ, or if nothing was compared."""
    say = session.reporter.say
    if result.sizes:
        say(f"{what} chose {listed(result.sizes)}")
    say_unbounded(session, what, result.verdict)
    assumes = "--lossy" if session.options[convert.LOSSY] else "--fast-math"
    for name, n in result.skipped.items():
        say(f"{what} did not compare {n} elements of {name} that are NaN or infinite: {assumes} may change them")
    diagnostics = Diagnostics(before.source)
    if result.compared_nothing and not result.diverged:
        diagnostics.error("CheckFailed", f"{what}: {compare.NOTHING}")
    if result.diverged:
        folder = tempfile.mkdtemp(prefix="ptir-check-")
        commands = _keep(folder, session, before, after, result, engine)
        if peer:
            commands = [f"{commands[0]} --compare {peer}"]
        notes = [f"the programs and the inputs are in {folder}", *(f"see it again: {c}" for c in commands)]
        if finite:
            notes.append(f"{assumes} assumes finite numbers: integers and i1 computed from a NaN or an infinity may differ, too")
        diagnostics.error("CheckFailed", f"{what} run {result.runs}: {result.diverged[0]}", notes=notes)
    if not diagnostics.errors:
        return
    if what.split()[0] == "--check":
        session.reporter.settle(diagnostics)
    end(session, diagnostics, result.verdict)


def say_unbounded(session: Session, what: str, verdict: compare.Verdict) -> None:
    """Say how many elements of which outputs `what` did not compare."""
    for name, n in verdict.unbounded.items():
        elements = f"{n} of {verdict.elements[name]} elements of {name}"
        session.reporter.say(f"{what} did not compare {elements}: {compare.UNBOUNDED}")
    for name, n in verdict.vague.items():
        elements = f"{n} of {verdict.elements[name]} elements of {name}"
        session.reporter.say(f"{what} compared {elements} within a bound that is as large as the largest of them")


def end(session: Session, diagnostics: Diagnostics, verdict: compare.Verdict) -> None:
    """Show the diagnostics of a comparison and its verdict. With errors, and if it is weak and --strict is given, the command
    ends with exit code 1."""
    failed = session.reporter.status(diagnostics)
    verdict.failed |= bool(failed)
    session.reporter.tell(str(verdict))
    if verdict.failed or (verdict.weak and session.reporter.strict):
        raise Leave(REJECTED)


def listed(sizes: Mapping[str, int]) -> str:
    """`M=2, K=3`."""
    return ", ".join(f"{name}={n}" for name, n in sizes.items())


def _keep(folder: str, session: Session, before: Program, after: Program, result: compare.Check, engine: str) -> list[str]:
    """Keep both programs, the inputs and the expected outputs in `folder`; the result is the commands that run them again."""
    options = session.options.having(elide_constants=None, outside={})  # formats of programs that need no other file
    commands = []
    for stem, program, inputs in (("before", before, result.inputs), ("after", after, result.inputs_after)):
        form = program.format or program.dialect.name
        path, given = os.path.join(folder, f"{stem}.{form}"), os.path.join(folder, f"{stem}-inputs.npz")
        write_text(path, program_text(program, form, Diagnostics(program.source), options))
        _save(given, inputs)
        sizes = (f"--bind {name}={n}" for name, n in result.sizes.items())
        ran = engine if stem == "after" else "reference"
        commands.append(" ".join([f"ptir run {path} --inputs {given} --engine {ran}", *sizes]))
    expected, within = os.path.join(folder, "expected.npz"), result.tolerance
    _save(expected, result.expected)
    commands[1] += f" --expect {expected} --atol {within.largest:.3g} --rtol {within.relative:.3g}"
    return commands


def _save(path: str, arrays: Mapping[str, Array]) -> None:
    with replacing(path) as file:
        arrayfiles.save(path, file, arrays)
