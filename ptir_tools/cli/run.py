"""`ptir run`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ptir_tools.cli import checking
from ptir_tools.cli.options import (
    choice,
    file_argument,
    finite,
    int_range,
    mesh_options,
    option,
    parsed,
    sharding_of,
    strict_fp_option,
    subcommand,
    titled,
)
from ptir_tools.cli.output import distinct, write_bytes, write_text
from ptir_tools.cli.report import Reporter
from ptir_tools.cli.session import Session
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import SHAPES, Program
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import late, lazy, np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass, replace
from ptir_tools.core.render import clean
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import ShapedType, Type
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import FORMATS
from ptir_tools.dialects.ptir import assignment
from ptir_tools.engines import ENGINES, RunOptions, run
from ptir_tools.engines.options import CHECKED, ORDERS, PEERS, UNDEF, poisons
from ptir_tools.engines.signature import entry, results, signature
from ptir_tools.tools.inputs import Inputs
from ptir_tools.tools.profile import COLUMNS, Profile, roof

if TYPE_CHECKING:
    import json
    import signal

    from ptir_tools.bridges.xla.hosts import Hosts
    from ptir_tools.cli import tables
    from ptir_tools.core import arrayfiles
    from ptir_tools.engines import compare, compiled, tracefolder
    from ptir_tools.engines.tracefolder import TraceFolder
    from ptir_tools.plan.mesh import Mesh, Spec
    from ptir_tools.tools import compare as outcome
    from ptir_tools.tools import debug
else:
    arrayfiles = lazy("ptir_tools.core.arrayfiles")
    compare = lazy("ptir_tools.engines.compare")
    compiled = lazy("ptir_tools.engines.compiled")
    debug = lazy("ptir_tools.tools.debug")
    json = lazy("json")
    outcome = lazy("ptir_tools.tools.compare")
    signal = lazy("signal")
    tables = lazy("ptir_tools.cli.tables")
    tracefolder = lazy("ptir_tools.engines.tracefolder")


@dataclass(slots=True)
class Flags:
    """The options of the command, as click names them."""

    inputs_given: tuple[tuple[str, str], ...]
    inputs_files: tuple[str, ...]
    weights: tuple[str, ...]
    random: int | None
    special: bool
    cast_inputs: bool
    output: str | None
    full: bool
    precision: int
    engine: str | None
    function: str | None
    threads: int
    seed: int
    other_engine: str | None
    all_values: bool
    expect: str | None
    rtol: float
    atol: float
    save_inputs: str | None
    check_nan: bool
    check_memory: bool
    print_values: str
    save_values: str | None
    timing: bool
    timing_to: str | None
    trace: str | None
    report: bool
    repeat: int
    timeout: float | None
    strict_fp: bool
    order: str
    undef: str
    no_verify: str | None
    dump_dir: str | None
    mesh: Mesh | None
    shard: tuple[tuple[str, Spec], ...]
    hosts: Hosts | None


_engine = choice(ENGINES)
_others = choice([*ENGINES, *PEERS])
_orders = choice(ORDERS)
_undef = choice(UNDEF)


@subcommand(
    file_argument,
    option("-o", "--output", metavar="FILE", help="Write the outputs to FILE.npz, .safetensors, or a single one to .npy."),
    option("--full", is_flag=True, help="Print all values."),
    option("--precision", type=int_range(0, 17), default=6, metavar="N", help="Digits printed (6)."),
    *titled(
        "Inputs",
        option(
            "--input",
            "inputs_given",
            type=parsed(assignment),
            metavar="NAME=SPEC",
            multiple=True,
            help="An input, see above; it overrides files. Repeatable.",
        ),
        option(
            "--inputs",
            "inputs_files",
            metavar="FILE",
            multiple=True,
            help="Inputs by name, a .npz or .safetensors file. Repeatable.",
        ),
        option(
            "--weights",
            metavar="FILE",
            multiple=True,
            help="Weights by name, a .npz or .safetensors file or the index of several: inputs, and constants dense<@FILE:KEY>. "
            "Other arrays are ignored. Repeatable.",
        ),
        option("--random", type=int, metavar="SEED", help="Draw all other inputs at random."),
        option("--special", is_flag=True, help="With --random: also infinities, NaN, zeros, limits of dtypes."),
        option("--cast-inputs", is_flag=True, help="Convert arrays of another dtype by the cast table."),
        option("--save-inputs", metavar="FILE", help="Write the inputs to FILE.npz or .safetensors."),
    ),
    *titled(
        "Execution",
        option("--engine", type=_engine, help="The engine that executes (the fastest that supports it)."),
        option("--function", metavar="NAME", help="The function to run (the entry)."),
        option("--threads", type=int_range(0), default=0, metavar="N", help="Threads of native (one per core)."),
        option("--seed", type=int, default=0, metavar="N", help="Seed of the random ops, and of --order and --undef random."),
        strict_fp_option,
        option("--timeout", type=finite(0, min_open=True), metavar="S", help="Stop after S seconds; exit code 3."),
        option("--repeat", type=int_range(1), default=1, metavar="N", help="Run N times; --timing shows the spread."),
    ),
    *mesh_options,
    *titled(
        "Several devices",
        option(
            "--hosts",
            type=parsed(late("ptir_tools.bridges.xla.hosts", "hosts_of")),
            metavar="HOST:PORT,N,I",
            help="Run together with N - 1 other processes; this is process I. Process 0 listens at HOST:PORT and reports.",
        ),
    ),
    *titled(
        "Comparing",
        option("--compare", "other_engine", type=_others, help="Run on this engine, too, and compare."),
        option("--all-values", is_flag=True, help="With --compare: report the first value that differs, not only outputs."),
        option(
            "--expect",
            metavar="FILE",
            help="Compare the outputs with FILE, by name if there are names.",
        ),
        option("--rtol", type=finite(0), default=1e-5, help="Relative tolerance of --expect (1e-5)."),
        option("--atol", type=finite(0), default=1e-6, help="Absolute tolerance of --expect (1e-6)."),
    ),
    *titled(
        "Watching",
        option("--check-nan", is_flag=True, help="Stop at the first op that makes a NaN or an infinity."),
        option(
            "--check-memory",
            is_flag=True,
            help="Overwrite dead memory after each step. Fail if an output depends on it, or an input or constant changes.",
        ),
        option("--print-values", default="", metavar="%x,%y", help="Print these values when they are computed."),
        option(
            "--save-values",
            metavar="FILE",
            help="Write the inputs and all values of the function, computed op by op, to FILE.npz or .safetensors; none of its "
            "regions. `ptir diff` compares them.",
        ),
        option("--timing", is_flag=True, help="Show how long each step took, fused ops as one, after a warm-up."),
        option("--timing-to", metavar="FILE", help="Write the same to FILE.json, or as a flame graph to FILE.svg."),
        option("--trace", metavar="FILE", help="Write a Chrome trace to FILE.json; of PTO its pipes in modelled cycles."),
        option("--dump-dir", metavar="DIR", help="Write the program that ran, and each pass before it, as gpt.rs's trace."),
    ),
    *titled(
        "PTO",
        option("--order", type=_orders, default="sequential", help="The order in which asynchronous ops complete."),
        option("--undef", type=_undef, default="error", help="The effect of storing an undefined element."),
        option("--report", is_flag=True, help="Show bytes per space, busy cycles per pipe, stalls and the critical path."),
        option("--no-verify", type=choice(["hazards"]), help="Run programs that only the hazard check refuses."),
    ),
    flags=Flags,
)
def command(session: Session, file: str, flags: Flags) -> None:
    """Execute a program and print its outputs, or write them to a file.

    An input is NAME=SPEC. NAME is the parameter's name; 3 is position 3, %3 the value 3. SPEC is @file.npy, @file.npz:key,
    @file.safetensors:key, a number for all elements, a list such as [1,2,3], iota, random or random(lo,hi).

    --check-nan stops at the first NaN, and names the op that computed it, or the input or constant that contains it. It
    also stops at an op that computes an infinity from finite operands. An infinity in an input is only reported.

    \b
    Examples:
      ptir run model.ptir --random 0
      ptir run model.ptir --input x=@x.npy --input scale=0.5 -o out.npz
      ptir run graph.json --bind M=64 --bind K=32 --random 0 --compare reference
      ptir run model.ptir --inputs in.npz --expect out.npz --rtol 1e-4
      ptir run model.ptir --random 0 --engine xla --mesh x=4,y=2 --shard input=x,- --shard weight=-,y
    """
    Execution(session, flags).go(file)


class Execution:
    """One `ptir run`."""

    def __init__(self, session: Session, flags: Flags) -> None:
        self.session = session
        self.flags = flags
        if flags.output not in (None, "-") and not str(flags.output).endswith(arrayfiles.SUFFIXES):
            raise UsageError(f"{flags.output}: outputs are written to {', '.join(arrayfiles.SUFFIXES)} files")
        if flags.check_memory and flags.engine not in (None, "auto", *CHECKED):
            raise UsageError(f"--check-memory is for the engines {' and '.join(CHECKED)}")
        session.set(hazards=flags.no_verify != "hazards")

    def go(self, file: str) -> None:
        """Read, execute, report."""
        distinct(
            [file],
            output=self.flags.output,
            save_inputs=self.flags.save_inputs,
            save_values=self.flags.save_values,
            trace=self.flags.trace,
            timing_to=self.flags.timing_to,
        )
        if self.flags.timing_to and not self.flags.timing_to.endswith((".json", ".svg")):
            raise UsageError(f"{self.flags.timing_to}: times are written to .json and .svg files")
        names = {name for name, _ in self.flags.inputs_given}.union(
            *(arrayfiles.Archive(f).names for f in self.flags.inputs_files)
        )
        self.session.set(given=names)
        program, self.diagnostics = self.session.load(file)
        if self.flags.check_memory and program.dialect.executor is not None:
            raise UsageError(f"--check-memory is for the engines {' and '.join(CHECKED)}; {program.dialect.name} runs on neither")
        inputs = self.inputs(program)
        if self.flags.save_inputs:
            _save(self.flags.save_inputs, inputs)
        watch = Watch(self.session.reporter, program, self.flags, self.diagnostics)
        watch.given(inputs)
        outputs = self.execute(program, inputs, watch)
        if self.diagnostics.errors:  # the run continued, so its outputs are useful
            self.deliver(program, outputs)
        self.session.reporter.settle(self.diagnostics)
        watch.finish()
        self.compare(program, inputs, outputs)
        self.deliver(program, outputs)

    def deliver(self, program: Program, outputs: dict[str, Array]) -> None:
        """Write or print the outputs; with several hosts only the first does."""
        if self.flags.hosts is not None and self.flags.hosts.index:
            return
        if self.flags.output is not None:
            _save(self.flags.output, outputs)
        elif not self.flags.expect:
            _summarize(program, outputs, self.flags)

    def inputs(self, program: Program) -> dict[str, Array]:
        """The arrays that the command line gives."""
        f = self.flags
        given = Inputs(
            f.inputs_given,
            f.inputs_files,
            f.random,
            f.cast_inputs,
            f.function,
            self.session.bindings,
            self.session.options[SHAPES],
            f.special,
            f.weights,
        )
        try:
            return given.arrays(program)
        except Violation as violation:
            self.diagnostics.violation(violation, None)
            self.session.reporter.settle(self.diagnostics)
            raise

    def options(self, watch: Watch | None = None, trace: TraceFolder | None = None) -> RunOptions:
        """The options of the engine."""
        f = self.flags
        return RunOptions(
            engine=f.engine or "auto",
            function=f.function,
            seed=f.seed,
            threads=f.threads,
            strict_fp=f.strict_fp,
            bindings=self.session.bindings,
            order=f.order,
            undef=f.undef,
            chosen=self.session.options,
            timeline=watch.timeline if watch else None,
            observe=watch.observe if watch and watch.observes else None,
            timer=watch.profile.step if watch and watch.times else None,
            timeout=f.timeout,
            trace=trace,
            sharding=sharding_of(f.mesh, f.shard),
            hosts=f.hosts,
            poison=f.check_memory or poisons(),
        )

    def execute(self, program: Program, inputs: dict[str, Array], watch: Watch) -> dict[str, Array]:
        """Run `--repeat` times. The outputs of the last run."""
        outputs: dict[str, Array] = {}
        f = self.flags
        trace = tracefolder.TraceFolder(f.dump_dir, self.session.options) if f.dump_dir is not None else None
        options = self.options(watch, trace)
        with _deadline(f.timeout):
            plain = run(program, inputs, self.options()) if watch.observes and self.fuses(program) else None
            again: compiled.Compiled | None = None
            if watch.times and not watch.observes and trace is None:  # prepared once, including lazy work
                again = ready = compiled.Compiled(program, options, reuse=True)
                watch.profile.warmed(lambda: ready(inputs))
            for _ in range(f.repeat):
                with watch.profile.run():
                    outputs = run(program, inputs, options, self.diagnostics) if again is None else again(inputs)
        if plain is None:
            return outputs
        for d in outcome.observed_as_run(program, inputs, plain, outputs, options):
            self.diagnostics.error("OutputMismatch", f"only when ops are fused, {d}", notes=[_FUSED])
        return plain

    def fuses(self, program: Program) -> bool:
        """Whether a run without observers differs from this one: it has passes and fused ops."""
        return program.dialect.executor is None and self.flags.engine != "reference"

    def compare(self, program: Program, inputs: dict[str, Array], outputs: dict[str, Array]) -> None:
        """Do --compare and --expect, and print the verdict. A difference ends the command with exit code 1. A difference that
        --check-memory finds is a fault of the engine."""
        f = self.flags
        if f.check_memory:
            plain = run(program, inputs, replace(self.options(), poison=False))
            if different := compare.compare(plain, outputs, {}):
                raise AssertionError(f"the outputs depend on dead memory: {different[0]}")
        if f.all_values and f.other_engine is None:
            raise UsageError("--all-values says which value differs from another engine's: it needs --compare")
        if f.other_engine is None and f.expect is None:
            return
        verdict, entries = compare.Verdict(), list[compare.Divergence]()
        if f.other_engine is not None:
            entries, verdict = outcome.across_engines(program, inputs, outputs, f.other_engine, self.options())
            checking.say_unbounded(self.session, "--compare", verdict)
            if not entries and verdict.compared_nothing:
                self.diagnostics.error("CheckFailed", f"--compare: {compare.NOTHING}")
        if f.all_values and f.other_engine is not None:
            first = outcome.first_diverging(program, inputs, f.other_engine, self.options())
            if first is not None:
                named = first.engine if first.engine in PEERS else f"the engine {first.engine}"
                engine = "the default engine" if first.engine == "auto" else named
                only = self.fuses(program) and outcome.only_fused(program, inputs, first.engine, self.options())
                message = f"the first value that differs on {engine}: {first.divergence}"
                self.diagnostics.error("OutputMismatch", message, first.op.loc, notes=[_FUSED] if only else [])
        if f.expect is not None:
            unnamed = program.format in FORMATS and not FORMATS[program.format].named
            if unnamed:
                self.session.reporter.say(f"--expect compares by position: {program.format} has no names for results")
            tolerance = compare.Tolerance(f.atol, f.rtol)
            entries += outcome.against_file(f.expect, outputs, tolerance, verdict, by_position=unnamed)
        for divergence in entries:
            self.diagnostics.error("OutputMismatch", str(divergence))
        checking.end(self.session, self.diagnostics, verdict)


_FUSED = "op by op, the engine agrees with the reference; only with fused ops it does not: this is a fault of the engine"


def _save(path: str, arrays: dict[str, Array]) -> None:
    """Write arrays to a file; `-` is standard output, as .npz."""
    write_bytes(path, lambda file: arrayfiles.save("-.npz" if path == "-" else path, file, arrays))


class Watch:
    """The observers of the options: printed values, the check for NaN, and the profile."""

    def __init__(self, reporter: Reporter, program: Program, flags: Flags, diagnostics: Diagnostics) -> None:
        self.reporter = reporter
        self.program = program
        self.flags = flags
        self.nonfinite = debug.NonFinite(program, flags.function, diagnostics) if flags.check_nan else None
        self.profile = Profile(program)
        self.wanted = {name.strip().removeprefix("%") for name in flags.print_values.split(",") if name.strip()}
        self.observes = bool(flags.check_nan or self.wanted or flags.save_values)
        self.values: dict[str, Array] = {}
        self.body = {*entry(program, flags.function).body} if flags.save_values else set[Op]()
        self.others = {op for block in program.blocks() for op in block.body} if flags.save_values else set[Op]()
        self.saved = {v.name for op in self.body for v in op.results}
        timeline = program.dialect.timeline
        if flags.report and timeline is None:
            raise UsageError("--report is for programs with pipes", help="for other programs use `ptir run --timing`")
        self.timeline = timeline() if timeline is not None and (flags.report or flags.trace) else None
        self.times = bool(flags.timing or flags.timing_to or (flags.trace and timeline is None))
        known = {v.name for block in program.blocks() for op in block.body for v in op.results}
        if unknown := sorted(self.wanted - known):
            raise UsageError(f"no op defines %{unknown[0]}")

    def saves(self, op: Op, name: str) -> bool:
        """Whether --save-values has this value. An engine that converts the program runs other ops, with the same names."""
        return op in self.body or (op not in self.others and name in self.saved)

    def given(self, inputs: Mapping[str, Array]) -> None:
        """Check the inputs of the run. Raises Rejected for a NaN with --check-nan."""
        if self.flags.save_values:
            self.values.update(inputs)
        if self.nonfinite is not None:
            self.nonfinite.given(inputs)

    def observe(self, op: Op, results: Sequence[Array]) -> None:
        """Print the requested values. Raises Rejected for a NaN or an infinity with --check-nan."""
        for v, data in zip(op.results, results, strict=False):
            if self.saves(op, v.name) and not isinstance(data, tuple):
                self.values[v.name] = data.copy()
            if v.name in self.wanted:
                shown = _values(data, self.flags) if not isinstance(data, tuple) else str(data)
                self.reporter.say(f"%{v.name}: {self.program.dialect.type_text(v.type)}\n{shown}")
        if self.nonfinite is not None:
            self.nonfinite.ran(op, results)

    def finish(self) -> None:
        """Write the values, the tables and the trace."""
        if self.flags.save_values:
            _save(self.flags.save_values, self.values)
        source = self.program.source
        if self.timeline is not None and self.flags.report:
            outputs = list(self.timeline.report(source))
            drawn = [tables.Table(columns, rows, title) for title, columns, rows in outputs]
            self.reporter.tabulate(sys.stderr, _listed(outputs), lambda: drawn)
        if self.flags.timing or self.flags.timing_to:
            self.profile.roof = roof()
        if self.flags.timing:
            rows, total = self.profile.rows(), self.profile.per_run()
            title = f"{total[0]} us {total[6]}"
            self.reporter.tabulate(sys.stderr, _plain(rows, total), lambda: [tables.Table(COLUMNS, rows, title, one_line=True)])
        if self.flags.trace:
            traced = self.timeline.chrome_trace(source) if self.timeline is not None else self.profile.chrome_trace()
            write_text(self.flags.trace, [json.dumps(traced), "\n"])
        if self.flags.timing_to:
            pictured = self.flags.timing_to.endswith(".svg")
            data = self.profile.flame_graph() if pictured else [json.dumps(self.profile.record(), indent=2), "\n"]
            write_text(self.flags.timing_to, data)


def _listed(outputs: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]]) -> Iterator[str]:
    """Tables as lines, with a blank line between them; numbers are aligned to the right."""
    for k, (title, columns, rows) in enumerate(outputs):
        yield f"\n{title}\n" if k else f"{title}\n"
        shapes = [
            f"{'>' if cells[-1][:1].isdigit() else '<'}{max(map(len, cells))}" for cells in zip(columns, *rows, strict=True)
        ]
        for row in (columns, *rows):
            yield f"  {'  '.join(map(format, row, shapes)).rstrip()}\n"


def _plain(rows: list[tuple[str, ...]], total: tuple[str, ...]) -> Iterator[str]:
    yield f"{'us':>12} {'share':>6} {'calls':>6} {'GFLOP/s':>8} {'GB/s':>8} {'roof':>5}  step\n"
    for spent, share, n, flops, traffic, limit, *about in rows:
        yield f"{spent:>12} {share:>6} {n:>6} {flops:>8} {traffic:>8} {limit:>5}  {' '.join(about).rstrip()}\n"
    yield f"{total[0]:>12} us {total[6]}\n"


@contextmanager
def _deadline(seconds: float | None) -> Iterator[None]:
    """Raise LimitExceeded inside after so many seconds, with any engine. Without signals, engines check the clock between ops."""
    if seconds is None or not hasattr(signal, "setitimer"):
        yield
        return

    def ring(*_: object) -> None:
        raise LimitExceeded(f"stopped after {seconds} s", "--timeout")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _summarize(program: Program, outputs: Mapping[str, Array], style: Flags) -> None:
    """Name, type and values of each output, on standard output."""
    types = {p.name: p.type for p in (*signature(program, style.function), *results(program, style.function))}
    for name, array in outputs.items():
        title = clean(f"{name}: {program.dialect.type_text(_shaped(types.get(name), array))}")
        sys.stdout.write(f"{title}\n{_values(array, style)}\n")


def _values(array: Array, style: Flags) -> str:
    """The elements as NumPy prints them."""
    threshold = sys.maxsize if style.full else 1000
    with np.printoptions(precision=style.precision, threshold=threshold, linewidth=120, suppress=False):
        return str(array)


def _shaped(t: Type | None, array: Array) -> Type:
    """The declared type with the extents of the array."""
    return t.with_shape(array.shape) if isinstance(t, ShapedType) else t  # type: ignore[return-value]
