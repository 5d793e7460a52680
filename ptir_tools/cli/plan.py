"""`ptir plan`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

from ptir_tools.cli.options import (
    choice,
    file_argument,
    finite,
    int_range,
    mesh_options,
    option,
    output_option,
    parsed,
    sharding_of,
    size,
    subcommand,
)
from ptir_tools.cli.output import form_of, to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core import symbols
from ptir_tools.core.collector import collector_paused
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Function, Region
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import DIALECTS, jsonc
from ptir_tools.dialects.pto import TARGET
from ptir_tools.plan import Plan, plan, to_csv, to_json, to_svg, to_text
from ptir_tools.plan.check import faults
from ptir_tools.plan.intervals import read_csv
from ptir_tools.plan.mesh import Mesh, Spec
from ptir_tools.plan.order import ORDERS, least_peak
from ptir_tools.plan.record import ALGORITHMS, ALIGN, Method, plan_intervals
from ptir_tools.plan.write import blocks, columns, heading, rows, shown

if TYPE_CHECKING:
    from ptir_tools import convert, passes
    from ptir_tools.cli import tables
else:
    convert = lazy("ptir_tools.convert")
    passes = lazy("ptir_tools.passes")
    tables = lazy("ptir_tools.cli.tables")

_WRITERS = {"text": to_text, "json": to_json, "svg": to_svg, "csv": to_csv}
_NAMED = 8  # the number of live values that are named at the peak


@dataclass(slots=True)
class Flags:
    """The options of the command, as click names them."""

    output: str | None
    to: str | None
    align: int | None
    limit: int | None
    algorithm: str
    time_limit: float
    order: str
    check_plan: str | None
    mesh: Mesh | None
    shard: tuple[tuple[str, Spec], ...]


@subcommand(
    file_argument,
    output_option,
    option(
        "--to",
        type=choice(list(_WRITERS)),
        help="The output format (from the suffix of the -o FILE; else text).",
    ),
    option("--align", type=int_range(1), metavar="BYTES", help=f"Alignment of every buffer ({ALIGN}; of raw intervals 1)."),
    option("--limit", type=parsed(size), metavar="BYTES", help="Fail with exit code 3 if the peak is higher."),
    option("--algorithm", type=choice(ALGORITHMS), default="auto", help="The algorithm that finds offsets (auto)."),
    option(
        "--time-limit",
        type=finite(0),
        default=10.0,
        metavar="S",
        help="exact: stop after S seconds of CPU per arena (10).",
    ),
    option("--order", type=choice(ORDERS), default="program", help="The order of the ops: as written, or a better one."),
    option("--check-plan", metavar="PLAN.json", help="Check this plan instead of making one."),
    *mesh_options,
    flags=Flags,
    also_from=("csv",),
)
def command(session: Session, file: str, flags: Flags) -> None:
    """Give every value a place in memory: buffers with live ranges and offsets, the arena's peak, the lower bound.

    The lower bound is the largest sum of buffers live at once; the ratio of peak and bound measures the plan (1 is the
    best). Every extent must be a number: --bind gives symbols numbers.

    --from csv plans raw intervals, one `id,lower,upper,size` per line under that header; ranges are half-open.

    A PTO program has a plan per memory space of its target, with the share that it uses. The values that are live at once
    must fit. With --target, any program is first translated to the tiles of that target.

    --check-plan prints nothing if the plan, as --to json writes it, is correct. Every value must be in it with its bytes, and be
    live for as long as the program needs it. Values that are live at the same time must not overlap.

    With --mesh the plan is that of one device. --shard says how inputs, results and values are cut. Values computed from
    them are cut in the same way, where the ops allow it.

    \b
    Examples:
      ptir plan model.ptir
      ptir plan model.ptir --bind N=8 --to json -o plan.json
      ptir plan model.ptir --bind N=8 --check-plan plan.json
      ptir plan model.ptir --limit 64M
      ptir plan model.ptir --target a3
      ptir plan --from csv intervals.csv --to svg -o plan.svg
      ptir plan model.ptir --mesh x=4,y=2 --shard input=x,- --shard weight=-,y
    """
    if session.form == "csv" and flags.mesh is not None:
        raise UsageError("--mesh is for programs, not for intervals")
    session.set(room=True)
    with collector_paused():
        result = _plan_intervals(session, file, flags) if session.form == "csv" else _plan_program(session, file, flags)
        if flags.check_plan is not None:
            _check(session, flags.check_plan, result)
            return
        if flags.limit is not None:
            _check_limit(result, flags.limit)
        _write(session, flags, result)


def _plan_intervals(session: Session, file: str, given: Flags) -> Plan:
    """The plan of the intervals in a CSV file."""
    source = session.opened(file)
    diagnostics = Diagnostics(source)
    live = read_csv(source, diagnostics)
    session.reporter.settle(diagnostics)
    with _method(session, given) as method:
        return plan_intervals(live, align=given.align or 1, method=method)


@contextmanager
def _method(session: Session, given: Flags) -> Iterator[Method]:
    """The method that finds offsets; a terminal shows its progress."""
    with session.reporter.progress() as show:

        def watch(peak: int, bound: int) -> None:
            show(f"searching: peak {peak}, lower bound {bound} ({peak / max(bound, 1):.4f})")

        yield Method(given.algorithm, given.time_limit, given.limit or 0, watch)


def _plan_program(session: Session, file: str, given: Flags) -> Plan:
    """The plan of the program. Bindings and the program's own `dims` make extents numbers."""
    program, diagnostics = session.load(file)
    if session.options[TARGET] is not None and not program.dialect.targets():
        program = _tiled(session, program, diagnostics)
    try:
        symbols.specialize(program, {**program.attrs.get("dims", {}), **session.bindings})
        if given.order == "min-peak":
            _reorder(session, program)
        sharding = sharding_of(given.mesh, given.shard)
        with _method(session, given) as method:
            return plan(program, align=given.align or ALIGN, method=method, sharding=sharding)
    except Violation as violation:
        diagnostics.violation(violation, None)
        session.reporter.settle(diagnostics)
        raise


def _tiled(session: Session, program: Program, diagnostics: Diagnostics) -> Program:
    """The program on the tiles of --target. What is symbolic gets the numbers of --bind first."""
    symbols.specialize(program, {**program.attrs.get("dims", {}), **session.bindings})
    options = session.options.having(None, **{convert.CONSTANTS.name: {}})  # only the places matter
    after = convert.translate(program, next(d.name for d in DIALECTS.values() if d.targets()), diagnostics, options)
    session.reporter.settle(diagnostics)
    if after is None:
        raise UsageError(f"there is no conversion from {program.dialect.name} to the tiles of a target")
    return after


def _reorder(session: Session, program: Program) -> None:
    """Replace the order of the ops by one with a lower peak. Raises UsageError."""
    if program.dialect.keeps_order:
        raise UsageError(f"the order of a {program.dialect.name} program is its own: --order program")
    changed = []
    with session.reporter.progress() as show:
        for block in program.blocks():
            show(f"ordering {_named(block)}: {len(block.body)} ops")
            if (order := least_peak(block)) is not None:
                block.body[:] = order
                changed.append(block)
    if changed and not session.reporter.quiet:
        named = ", ".join(map(_named, changed))
        sorts = "min-peak" in passes.names(program.dialect.name)
        how = "ptir opt -p min-peak writes this order" if sorts else "the program runs in its own order"
        session.reporter.say(f"hypothetical: {named} in another order; {how}")


def _named(block: Region) -> str:
    return ("@" if isinstance(block, Function) else "^") + block.name


def _check(session: Session, path: str, needed: Plan) -> None:
    """End the command with exit code 1 if the plan in `path` is not a correct plan of the program."""
    source = session.opened(path)
    diagnostics = Diagnostics(source)
    given = jsonc.parse(source, diagnostics)
    if not diagnostics.errors:
        for fault in faults(given, needed):
            diagnostics.error("InvalidPlan", fault)
    session.reporter.settle(diagnostics)
    if sys.stderr.isatty() and not session.reporter.quiet:
        session.reporter.say(f"{path}: ok")


def _write(session: Session, given: Flags, result: Plan) -> None:
    form = form_of(given.to, given.output, _WRITERS, "text")
    pieces = _WRITERS[form](result)
    if form == "text" and to_stdout(given.output):
        session.reporter.tabulate(sys.stdout, pieces, lambda: _drawn(result))
    else:
        write_text(given.output, pieces)


def _drawn(result: Plan) -> Iterator[tables.Table]:
    for title, block in blocks(result):
        yield tables.Table(columns(block), list(rows(block)), "\n".join(heading(title, block)))


def _check_limit(result: Plan, limit: int) -> None:
    """Raise LimitExceeded if the arena of a function is larger than `limit`, with the values that are live at its peak."""
    for title, block in blocks(result):
        if block.peak > limit:
            alive = block.alive_at_peak()
            named = ", ".join(f"{shown(b)} ({b.nbytes})" for b in islice(alive, _NAMED))
            more = f" and {len(alive) - _NAMED} more" if len(alive) > _NAMED else ""
            what = f"{title} needs" if title else "the intervals need"
            raise LimitExceeded(f"{what} {block.peak} bytes, the limit is {limit}; alive at the peak: {named}{more}", "--limit")
