"""Differential fuzzing: random programs through engines, passes, formats and translations; a disagreement is a finding.

A campaign is a sequence of cases, each made from a seed: a random program of one IR and the probes to try on it. A probe is a
line such as `opt cse,dce` or `translate tiny`, so that it can be tried again on any program: that is how findings are reduced.
Probes run in a child process; one that crashes, hangs or takes too much memory is a finding, too.
"""

from __future__ import annotations

import gc
import os
import random
import re
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial

from ptir_tools import convert, passes
from ptir_tools.core import arrays, symbols
from ptir_tools.core.choices import Seeded
from ptir_tools.core.diagnostics import Diagnostics, Rejected, Severity, UsageError
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.dtypes import SI4, UI4
from ptir_tools.core.ir import Literal
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import NamedTuple, dataclass, field, replace
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING, TypeVar
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import DIALECTS, FORMATS, load_dialect, load_format, reading
from ptir_tools.tools.isolation import Announce, Died, isolated
from ptir_tools.tools.reduce import reduced

T = TypeVar("T")

if TYPE_CHECKING:
    from ptir_tools import engines
    from ptir_tools.core.arrays import Array
    from ptir_tools.engines import compare, compiled, inputs, thresholds
    from ptir_tools.engines import options as run_options
    from ptir_tools.engines.native import library
else:
    engines = lazy("ptir_tools.engines")
    compare = lazy("ptir_tools.engines.compare")
    compiled = lazy("ptir_tools.engines.compiled")
    inputs = lazy("ptir_tools.engines.inputs")
    library = lazy("ptir_tools.engines.native.library")
    thresholds = lazy("ptir_tools.engines.thresholds")
    run_options = lazy("ptir_tools.engines.options")

# The kinds of findings. `refused`: a program is accepted before and refused after, or on one engine and not on another.
KINDS = ("wrong-number", "internal", "refused", "not-idempotent", "round-trip", "signal", "hang", "memory")
_LONGEST_PIPELINE = 4
_FAULTY = 4  # one program in so many may end in a run-time error
_BATCH = 500  # cases of one IR per child process, which shares its loaded modules and caches
_NETWORKS = 20  # networks per child process, each with another instruction set
# Probes that run the program as `run` does, under other circumstances.
_RUNS = ("near", "poison", "lowered", "threads", "session", "optimized")
_UNITS = 16  # units in the last place of the largest element: a smaller difference needs no bounds
_NATIVE = "ptir_tools._native"
_SHARE = 0.3  # share of the optional probes that a case gets
_BOUNDED = 0.1  # the same for probes of a network that compute bounds, which take longest
_REDUCING = 60.0  # seconds to make one finding smaller
_REFUSALS = (Rejected, Violation, LimitExceeded, UsageError)

# An independent evaluator: the error of a run of a verified program on these inputs, if any.
Oracle = Callable[[Program, "Mapping[str, Array]"], str | None]


class Problem(NamedTuple):
    """A problem found by a probe: one of KINDS, and the first error. `place` distinguishes problems of one kind."""

    kind: str
    message: str
    place: str = ""


@dataclass(slots=True)
class Finding:
    """A problem, the program that has it and the probe that shows it. `text` is empty when no program could be made."""

    ir: str
    seed: int
    probe: str
    problem: Problem
    text: str
    path: str = ""
    isa: str = ""  # the instruction set of the native engine, if it was chosen

    @property
    def signature(self) -> tuple[str, ...]:
        """A key that is mostly equal for findings with one cause."""
        message = re.sub(r"[%@^]?\b[\w.]*\d[\w.]*", "N", self.problem.message)[:60]
        probe = self.probe.partition(" ")[0]
        return self.ir, "run" if probe in _RUNS else probe, self.problem.kind, self.problem.place or message

    def __str__(self) -> str:
        isa = f" (PTIR_ISA={self.isa})" if self.isa else ""
        return f"{self.ir} {self.seed}: {self.problem.kind} in `{self.probe}`{isa}: {self.problem.message}"


@dataclass(slots=True)
class Campaign:
    """The options of a campaign. `count` cases of each of `irs`, or as many as fit into `minutes`; with neither, 100. `folder`
    gets a golden case for each finding, reduced unless `reduce` is false; `oracle` checks runs of the reference engine.
    `progress(cases, findings)` is called after each case. With `networks` the programs are networks, which run on the default
    engine, a few of them at a time on each instruction set of this machine.
    """

    irs: Sequence[str] = tuple(DIALECTS)
    seed: int = 0
    count: int | None = None
    minutes: float | None = None
    steps: int = 12
    folder: str | None = None
    reduce: bool = True
    oracle: Oracle | None = None
    progress: Callable[[int, int], None] | None = None
    networks: bool = False

    def probes(self, ir: str, seed: int) -> Iterator[str]:
        """The probes of a case."""
        return network_probes(ir, seed) if self.networks else probes(ir, seed)


@dataclass(slots=True)
class Report:
    """The report of a campaign: cases and probes by IR, one finding of each signature, and the count of each signature."""

    cases: Counter[str] = field(default_factory=Counter)
    probes: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    often: Counter[tuple[str, ...]] = field(default_factory=Counter)

    def of(self, ir: str) -> int:
        """The number of findings of an IR, duplicates included."""
        return sum(n for signature, n in self.often.items() if signature[0] == ir)


def generators(networks: bool = False) -> tuple[str, ...]:
    """The IRs that random programs, or networks, can be made of."""
    return tuple(name for name, d in DIALECTS.items() if (d.networks if networks else d.generate) is not None)


def generated(ir: str, seed: int, steps: int = 12, networks: bool = False) -> Program:
    """A random valid program of `ir` of at most `steps` steps, the same one every time; a run of one in four may fail. With
    `networks` a network. Raises UsageError for an IR without a generator."""
    if networks:
        return load_dialect(ir).random(Seeded(seed), size=steps, networks=True)
    if ir not in DIALECTS or DIALECTS[ir].generate is None:
        raise UsageError(f"no generator makes {ir} programs")
    size = random.Random(f"size {seed}").randint(min(2, steps), steps)
    return load_dialect(ir).random(Seeded(seed), size=size, faults=seed % _FAULTY == 0)


def campaign(asked: Campaign) -> Report:
    """Run a campaign. The same seed and count give the same cases and findings. Raises UsageError, OSError."""
    for ir in asked.irs:
        if ir not in (known := generators(asked.networks)):
            what = "networks" if asked.networks else "programs"
            raise UsageError(f"no generator makes {ir} {what} (there are: {', '.join(known)})")
    if asked.folder is not None:
        os.makedirs(asked.folder, exist_ok=True)
    lazy("ptir_tools.engines.numpy").__name__, lazy("ml_dtypes").__name__
    report = Report()
    end = None if asked.minutes is None else time.monotonic() + 60 * asked.minutes
    cases = asked.count if asked.count is not None else 100 if end is None else sys.maxsize
    for ir, seed, done in _cases(asked, cases, end):
        for finding in done:
            _note(report, asked, finding)
        report.cases[ir] += 1
        report.probes[ir] += len(list(asked.probes(ir, seed)))
        if asked.progress is not None:
            asked.progress(report.cases.total(), len(report.findings))
    return report


def _cases(asked: Campaign, count: int, end: float | None) -> Iterator[tuple[str, int, list[Finding]]]:
    """(IR, seed, findings) of each case. Many cases share a child process, and so its loaded modules and caches."""
    size, isas = (_NETWORKS, _isas()) if asked.networks else (_BATCH, [""])
    for number, first in enumerate(range(asked.seed, asked.seed + count, size)):
        seeds = range(first, min(first + size, asked.seed + count))
        for ir in asked.irs:
            if end is not None and time.monotonic() > end:
                return
            yield from ((ir, seed, finding) for seed, finding in _batch(asked, ir, seeds, end, isas[number % len(isas)]))


def _isas() -> Sequence[str]:
    """The instruction sets of the native engine on this machine; only the one in use when this process has loaded it."""
    if _NATIVE in sys.modules or not library.available():
        return [""]
    return [isa for isa in isolated(lambda announce: library.kernels().ISAS) if isinstance(isa, str)] or [""]


def _choose(isa: str) -> None:
    """Let the native engine, when this process loads it, use an instruction set."""
    if isa and _NATIVE not in sys.modules:
        os.environ["PTIR_ISA"] = isa


def _batch(asked: Campaign, ir: str, seeds: range, end: float | None, isa: str) -> Iterator[tuple[int, list[Finding]]]:
    """The findings of each seed; after a crash a new child goes on with the next seed."""
    left = seeds
    while left:
        seed, text, done = left.start, "", list[Finding]()
        for what in isolated(partial(_work, asked=asked, ir=ir, seeds=left, isa=isa)):
            if isinstance(what, Died):
                done.append(Finding(ir, seed, what.during, Problem(what.kind, what.message), text, isa=isa))
            elif isinstance(what, str):
                text = what
            elif isinstance(what, Finding):
                done.append(what)
            else:
                yield seed, done
                seed, text, done = seed + 1, "", []
                if end is not None and time.monotonic() > end:
                    return
        if done:
            yield seed, done
            seed += 1
        left = range(seed, seeds.stop)


def _work(announce: Announce, asked: Campaign, ir: str, seeds: range, isa: str) -> Iterator[object]:
    """The child's work for each seed: yields the text of the program, its findings, None at the end."""
    _choose(isa)
    gc.freeze()
    for seed in seeds:
        announce("generate")
        try:
            yield (text := "".join(_texts(generated(ir, seed, asked.steps, asked.networks), ir)))
        except Exception as error:
            yield Finding(ir, seed, "generate", _internal(error), "")
        else:
            for probe in asked.probes(ir, seed):
                announce(probe)
                if (problem := tried_on(text, ir, probe, asked.oracle)) is not None:
                    yield Finding(ir, seed, probe, problem, text, isa=isa)
        _program.cache_clear()
        _expected.cache_clear()
        gc.collect()  # the memory limit is for one case: programs are cyclic garbage, which is seldom collected
        yield None


def _note(report: Report, asked: Campaign, finding: Finding) -> None:
    """Keep the first finding of a signature, reduced and written."""
    report.often[finding.signature] += 1
    if report.often[finding.signature] > 1:
        return
    if asked.reduce and finding.text:
        finding.text = smaller(finding, asked.oracle)
    if asked.folder is not None and finding.text:
        finding.path = write_case(finding, asked.folder)
    report.findings.append(finding)


def probes(ir: str, seed: int) -> Iterator[str]:
    """The probes of a case: always one engine and one pipeline, and a random share of all others. So a campaign meets every pair
    of probes many times, in much less time than all probes would take on each program."""
    draw = random.Random(f"{ir} {seed}")
    pipelines = [f"{way}{_pipeline(ir, draw)}" for way in ("opt ", "opt ", "expensive ")] + ["opt"]
    draw.shuffle(pipelines)
    yield "verify"
    yield f"run {draw.choice(_ways(ir))}"
    yield pipelines[0]
    yield from (probe for probe in (*pipelines[1:], *_others(ir, draw)) if draw.random() < _SHARE)


def network_probes(ir: str, seed: int) -> Iterator[str]:
    """The probes of a network: always the default engine, a random share of all others, and a smaller share of those that compute
    bounds."""
    draw = random.Random(f"networks {ir} {seed}")
    yield "verify"
    yield f"{'run' if draw.random() < _BOUNDED else 'near'} auto"
    yield from ("poison auto", "lowered auto")
    others = ["threads 1", "threads 2", "session auto", "near numpy", "optimized", f"optimized {_pipeline(ir, draw)}"]
    yield from (probe for probe in others if draw.random() < _SHARE)
    yield from (probe for probe in ("special auto", "strict auto", "opt") if draw.random() < _BOUNDED)


def _others(ir: str, draw: random.Random) -> Iterator[str]:
    """The probes of a case, except pipelines."""
    ways = _ways(ir)
    yield from (f"write {f.name}" for f in DIALECTS[ir].formats if not f.imported)
    yield "fmt"
    yield "oracle"
    yield f"run {draw.choice(ways)}"
    yield f"special {draw.choice(ways)}"
    if DIALECTS[ir].executor is None:
        yield f"strict {draw.choice(ways)}"
    yield from (f"translate {target}" for target in DIALECTS if convert.route(ir, target))
    if DIALECTS[ir].executor is None:
        yield f"poison {draw.choice(ways)}"


def _pipeline(ir: str, draw: random.Random) -> str:
    """Passes in random order."""
    known = [name for name in passes.names(ir) if not _is_special(name, ir)]
    return ",".join(draw.choices(known, k=draw.randint(1, _LONGEST_PIPELINE)))


def _ways(ir: str) -> Sequence[str]:
    """The engines, or with several orders of execution the orders, that are compared with the reference."""
    return run_options.ORDERS[1:] if DIALECTS[ir].executor is not None else run_options.OWN[1:]


def _is_special(name: str, ir: str) -> bool:
    """Whether a pass changes the program's results: it needs an argument (a file, inputs), or computes with less precision."""
    return passes.measured(name, ir) or any(value == "" for value in passes.options_of(name, ir).values())


def tried_on(text: str, ir: str, probe: str, oracle: Oracle | None = None) -> Problem | None:
    """The problem that `probe` finds in the program `text`, in this process; None without a problem, and for an invalid
    program."""
    what, _, how = probe.partition(" ")
    try:
        program = _program(text, ir)
        if program is None:
            return Problem("refused", "what the generator made does not verify") if what == "verify" else None
        if what == "oracle":
            return _compared(program, oracle)
        return _PROBES[what](program, how)
    except MemoryError:
        raise
    except Exception as error:
        return _internal(error)


@lru_cache(maxsize=1)
def _program(text: str, ir: str) -> Program | None:
    """The program of a case, read once for all its probes: none of them changes it."""
    return _read(text, ir)


def smaller(finding: Finding, oracle: Oracle | None = None, seconds: float = _REDUCING) -> str:
    """A smaller text of `finding` with the same problem. Each trial runs in a child process."""
    end = time.monotonic() + seconds

    def tried(text: str) -> list[Problem | None]:
        _choose(finding.isa)
        return [tried_on(text, finding.ir, finding.probe, oracle)]

    def same(text: str) -> bool:
        if time.monotonic() > end:
            return False
        problems = isolated(lambda announce: tried(text))
        again = next((p for p in problems if p is not None), None)
        return (
            again is not None
            and again[0] == finding.problem.kind
            and (isinstance(again, Died) or again.place == finding.problem.place)
        )

    program = _read(finding.text, finding.ir)
    if program is None:
        return finding.text
    try:
        return reduced(program, same)
    except Exception:  # the finding matters more; a finding that depends on the original text is not reduced
        return finding.text


def write_case(finding: Finding, folder: str) -> str:
    """Write `finding` as a golden case, ready for testdata/, and give its path. Raises OSError."""
    form = DIALECTS[finding.ir].formats[0]
    mark, name = form.comment, f"{finding.ir}_{finding.problem.kind}_{finding.seed}_{finding.probe.split()[0]}"
    path = os.path.join(folder, name + form.suffix)
    message = " ".join(finding.problem.message.split())
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        settings = f"{mark} PTIR_ISA={finding.isa}\n" if finding.isa else ""
        settings += f"{mark} PTIR_THRESHOLDS=low\n" if finding.probe.startswith("lowered ") else ""
        file.write(f"{mark} RUN: {command(finding)}\n{settings}{mark} {finding.problem.kind}: {message}\n{finding.text}")
    return path


def command(finding: Finding) -> str:
    """A command line that reproduces `finding` on the file `%s`: with the same sizes, inputs and options."""
    what, _, how = finding.probe.partition(" ")
    ir, program = finding.ir, _read(finding.text, finding.ir)
    sizes = compare.small_sizes(program, {}) if program is not None and symbols.symbols(program) else {}
    run = " ".join(["ptir run --random 0", *(f"--bind {name}={n}" for name, n in sizes.items())])
    chosen = f"--{'engine' if DIALECTS[ir].executor is None else 'order'} {how} "
    way = f"{'' if how == 'auto' else chosen}--compare reference"
    pipeline = f" -p {how}" if how else ""
    return {
        "generate": "ptir verify %s",
        "verify": "ptir verify %s",
        "write": f"ptir translate --to {how} %s | ptir translate --to {ir} -",
        "fmt": "ptir fmt %s | ptir fmt -",
        "oracle": f"{run} --engine reference %s",
        "run": f"{run} {way} %s",
        "near": f"{run} {way} %s",
        "poison": f"{run} {way} --check-memory %s",
        "lowered": f"{run} {way} --check-memory %s",
        "threads": f"{run} --threads {how} --compare reference %s",
        "session": f"{run} {way} %s",
        "optimized": f"ptir opt{pipeline} %s | {run} --compare reference -",
        "special": f"{run} --special {way} %s",
        "strict": f"{run} --strict-fp {way} %s",
        "opt": f"ptir opt --check{pipeline} %s",
        "expensive": f"ptir opt --check --expensive-checks{pipeline} %s",
        "translate": f"ptir translate --check --to {how} %s | ptir translate --to {ir} -",
    }[what]


# ---- probes: a verified program, which is not changed, and how


def _write(program: Program, form: str) -> Problem | None:
    """Round trip: a program that is written and read is written the same again, also in the IR's own format."""
    entry, own = FORMATS[form], program.dialect.name
    try:
        first = "".join(_texts(program, form))
    except _REFUSALS:
        return None if form != own else Problem("refused", f"cannot be written as {form}")
    if not entry.readable:
        return None
    again = _read(first, form)
    if again is None:
        return Problem("round-trip", f"what is written as {form} is refused: {_first_error(first, form)}")
    return _same_text(first, "".join(_texts(again, form)), "round-trip", f"written as {form}, read and written")


def _fmt(program: Program, _: str) -> Problem | None:
    """Formatting keeps the program, and is idempotent."""
    form = program.dialect.name
    layout = load_format(form).layout
    if layout is None:
        return None
    text = "".join(_texts(program, form))
    once = layout(Source("<once>", text), Diagnostics())
    if once is None or (read := _read(once, form)) is None:
        return Problem("round-trip", "the formatted text is refused")
    twice = layout(Source("<twice>", once), Diagnostics())
    result = _same_text(once, twice or "", "not-idempotent", "laid out twice")
    return result or _same_text(text, "".join(_texts(read, form)), "round-trip", "laid out")


def _run(program: Program, way: str, special: bool = False, strict: bool = False) -> Problem | None:
    """Another engine, or another order of completion, gives the reference's numbers, or fails as it does: in another order, an
    error of another op may come first. It has run on other inputs before, so that stale memory shows. `special`: inputs have
    limits of dtypes, infinities and NaN; `strict`: every rounding is as the program writes it."""
    expected = _expected(program, special, strict)
    ordered = program.dialect.executor is not None
    options = run_options.RunOptions(order=way) if ordered else run_options.RunOptions(engine=way, strict_fp=strict)
    return _judged(expected, options, ordered, screened=False)


def _near(program: Program, way: str, threads: int = 0, poison: bool = False) -> Problem | None:
    """As `_run`, but bounds, which take longest, are computed only if the difference is not tiny. With `poison`, dead memory is
    overwritten after each step."""
    return _judged(_expected(program), run_options.RunOptions(engine=way, threads=threads, poison=poison))


def _lowered(program: Program, way: str) -> Problem | None:
    """As `_near` with poison, and with all thresholds of the engine lowered."""
    with thresholds.lowered():
        return _near(program, way, poison=True)


class _Expected:
    """The inputs of a case, the reference's outputs on them, and the tolerances when needed."""

    def __init__(self, program: Program, special: bool, strict: bool, seed: int) -> None:
        self.static, self.given = _inputs(program, special, seed)
        self.options = run_options.RunOptions(engine="reference", strict_fp=strict)
        self.bounds: tuple[dict[str, Array], dict[str, compare.Tolerance]] | str | None = None
        self.values: dict[str, Array] | str | None = None

    def outputs(self) -> dict[str, Array] | str:
        """The outputs, or the error."""
        if self.values is None:
            self.values = _outcome(lambda: engines.run(self.static, self.given, self.options))
        return self.values

    def bounded(self) -> tuple[dict[str, Array], dict[str, compare.Tolerance]] | str:
        """The outputs with their tolerances, or the error."""
        if self.bounds is None:
            self.bounds = _outcome(lambda: compare.reference_outputs(self.static, self.given, self.options))
        return self.bounds


@lru_cache(maxsize=4)
def _expected(program: Program, special: bool = False, strict: bool = False, seed: int = 0) -> _Expected:
    """The reference's outputs of a program, computed once for all probes of a case."""
    return _Expected(program, special, strict, seed)


def _judged(expected: _Expected, options: run_options.RunOptions, ordered: bool = False, screened: bool = True) -> Problem | None:
    """The difference between an engine, which has run on other inputs before, and the reference."""
    ready = compiled.Compiled(expected.static, options)
    _outcome(lambda: ready(inputs.random_inputs(expected.static, 1)))
    return _differs(expected, _outcome(lambda: ready(expected.given)), options.engine, ordered, screened)


def _differs(
    expected: _Expected, got: dict[str, Array] | str, way: str, ordered: bool = False, screened: bool = True
) -> Problem | None:
    if screened and not isinstance(got, str):
        values = expected.outputs()
        if not isinstance(values, str) and not compare.compare(values, got, {name: _tiny(x) for name, x in values.items()}):
            return None
    want = expected.bounded()
    if isinstance(want, str) or isinstance(got, str):
        both = isinstance(want, str) and isinstance(got, str)
        return None if ordered and both else _unlike_failures(want, got, "the reference", way)
    outputs, tolerances = want
    result = compare.compare(outputs, got, tolerances)
    return Problem("wrong-number", str(result[0])) if result else None


def _tiny(x: Array) -> compare.Tolerance:
    """A tolerance of some units in the last place of the largest element."""
    if x.dtype.kind in "iubc" or arrays.holds(x, SI4, UI4) or not x.size:
        return compare.EXACT
    wide = np.abs(x.astype(np.float64))
    scale = float(np.max(wide, where=np.isfinite(wide), initial=0.0))
    return compare.Tolerance(_UNITS * float(arrays.float_info(x.dtype).eps) * scale)


def _session(program: Program, way: str) -> Problem | None:
    """Prepared once, and called with changing inputs: an engine gives the reference's numbers for all of them. Inputs that come
    again give the same bits, and earlier results and the inputs stay as they were."""
    cases = [_expected(program), _expected(program, seed=1)]
    ready = compiled.Compiled(cases[0].static, run_options.RunOptions(engine=way))
    kept: list[tuple[dict[str, Array] | str, object]] = []
    for n in (0, 1, 1, 0, 1, 0):
        given = {name: x.copy() for name, x in cases[n].given.items()} if n else cases[n].given
        got = _outcome(partial(ready, given))
        if len(kept) < 2 and (problem := _differs(cases[n], got, way)):
            return problem
        kept.append((got, _bits(got)))
        if _bits(got) != kept[n][1]:
            return Problem("wrong-number", f"call {len(kept)} of a session differs from call {n + 1}, which had the same inputs")
        if any(_bits(x) != bits for x, bits in kept):
            return Problem("wrong-number", f"call {len(kept)} of a session changes the results of another one")
    fresh = inputs.random_inputs(cases[0].static, 0)
    return None if _bits(fresh) == _bits(cases[0].given) else Problem("wrong-number", "a call of a session changes its inputs")


def _bits(found: dict[str, Array] | str) -> object:
    return found if isinstance(found, str) else {name: x.tobytes() for name, x in found.items()}


def _optimized(program: Program, pipeline: str) -> Problem | None:
    """The program after passes gives the same numbers on the default engine as on the reference."""
    result, context = clone(program), passes.PassContext(Diagnostics(program.source))
    try:
        passes.run_pipeline(result, pipeline or passes.default_pipeline(program), context)
    except _REFUSALS:
        return None
    if context.diagnostics.errors:
        return None
    return _judged(_Expected(result, False, False, 0), run_options.RunOptions())


def _unlike_failures(want: object, got: object, here: str, there: str) -> Problem | None:
    """Whether two outcomes differ as failures: only one fails, or they fail differently."""
    first, second = (x.partition(":")[0] if isinstance(x, str) else "" for x in (want, got))
    if first == second:
        return None
    outcomes = [x if isinstance(x, str) else "runs" for x in (want, got)]
    return Problem("refused", f"{here}: {outcomes[0]}; {there}: {outcomes[1]}")


def _opt(program: Program, pipeline: str, expensive: bool = False) -> Problem | None:
    """After passes the program verifies and gives the same numbers."""
    chosen = pipeline or passes.default_pipeline(program)
    result, context = clone(program), passes.PassContext(Diagnostics(program.source))
    context.expensive_checks = expensive
    try:
        passes.run_pipeline(result, chosen, context)
    except _REFUSALS as error:
        return None if pipeline else Problem("refused", f"the default pipeline: {error}")
    if context.diagnostics.errors:
        return None if pipeline else Problem("refused", f"the default pipeline: {context.diagnostics.sorted()[0].message}")
    text = "".join(_texts(result, result.dialect.name))
    if _read(text, result.dialect.name) is None:
        return Problem(
            "refused", f"the result of the passes is refused when it is read: {_first_error(text, result.dialect.name)}"
        )
    return _agree(program, result, context.known)


def _translate(program: Program, target: str) -> Problem | None:
    """A translation verifies and gives the same numbers, and so does the translation back, if there is one."""
    kept: dict[str, Literal] | None = {} if DIALECTS[target].constants_given else None
    result = _translated(program, target, kept)
    if result is None:
        return None
    known = {name: arrays.from_literal(x) for name, x in (kept or {}).items()}
    diagnostics = Diagnostics(result.source)
    if not verify(result, diagnostics):
        return Problem("refused", f"what was translated to {target} does not verify: {diagnostics.sorted()[0].message}")
    text = "".join(_texts(result, target))
    if (read := _read(text, target)) is None:
        return Problem("round-trip", f"what was translated to {target} is refused: {_first_error(text, target)}")
    if problem := _agree(program, read, known):
        return problem
    back = _translated(read, program.dialect.name) if convert.route(target, program.dialect.name) else None
    if back is None:
        return None
    if not verify(back, diagnostics := Diagnostics(back.source)):
        return Problem("refused", f"what came back from {target} does not verify: {diagnostics.sorted()[0].message}")
    return _agree(program, back, carried=True)


_PROBES: dict[str, Callable[[Program, str], Problem | None]] = {
    "verify": lambda program, _: None,
    "write": _write,
    "fmt": _fmt,
    "run": _run,
    "near": _near,
    "poison": lambda program, way: _near(program, way, poison=True),
    "lowered": _lowered,
    "threads": lambda program, count: _near(program, "auto", int(count)),
    "session": _session,
    "optimized": _optimized,
    "special": lambda program, way: _run(program, way, special=True),
    "strict": lambda program, way: _run(program, way, strict=True),
    "opt": _opt,
    "expensive": lambda program, pipeline: _opt(program, pipeline, True),
    "translate": _translate,
}


def _compared(program: Program, oracle: Oracle | None) -> Problem | None:
    """The problem that the caller's evaluator reports."""
    if oracle is None:
        return None
    static, given = _inputs(program)
    try:
        wrong = oracle(static, given)
    except _REFUSALS:  # the program fails when it runs
        return None
    return Problem("wrong-number", wrong) if wrong else None


def _agree(before: Program, after: Program, known: Mapping[str, Array] | None = None, carried: bool = False) -> Problem | None:
    """The difference: the numbers, or that only one of them fails; within one IR, how they fail, too. `carried`: the second
    program comes back from another IR, where integers may be wider."""
    static, given = _inputs(before)
    options = run_options.RunOptions(engine="reference")
    want = _outcome(lambda: engines.run(static, given, options))
    if isinstance(want, str):
        sizes = compare.small_sizes(before, {})
        bound = compare.arguments(after, given, known or {}, sizes)
        got = _outcome(lambda: engines.run(after, bound, replace(options, bindings=sizes)))
        if carried or before.dialect is not after.dialect:
            lost = not isinstance(got, str) and want.partition(":")[0] not in before.dialect.codes.untranslated
            return Problem("refused", f"before: {want}; after: runs") if lost else None
        return _unlike_failures(want, got, "before", "after")
    try:
        result = compare.check(before, after, runs=1, constants=known, carried=carried)
    except _REFUSALS as error:
        return Problem("refused", f"it ran before, and now: {_said(error)}")
    return Problem("wrong-number", str(result.diverged[0])) if result.diverged else None


def _inputs(program: Program, special: bool = False, seed: int = 0) -> tuple[Program, dict[str, Array]]:
    """The program with small sizes for its symbols, and random inputs. Raises Violation when there are no such sizes."""
    static = clone(program)
    if symbols.symbols(static):
        symbols.specialize(static, compare.small_sizes(program, {}))
    return static, inputs.random_inputs(static, seed, special=special)


def _outcome(run: Callable[[], T]) -> T | str:
    """The outputs of a run, or its error message."""
    try:
        return run()
    except _REFUSALS as error:
        return _said(error)


def _said(error: Exception) -> str:
    if isinstance(error, Rejected) and error.diagnostics:
        return f"{error.diagnostics[0].code}: {error.diagnostics[0].message}"
    return str(error)


def _texts(program: Program, form: str) -> Iterator[str]:
    """The text of `program` in a format, in pieces. Raises Rejected when the format cannot express it."""
    write, diagnostics = load_format(form).write, Diagnostics(program.source)
    if write is not None:
        yield from write(program, diagnostics, Options())
    diagnostics.raise_if_errors()


def _read(text: str, form: str) -> Program | None:
    """The program in `text`, verified, or None."""
    diagnostics = Diagnostics()
    try:
        program = reading.read(Source("<fuzz>", text), diagnostics, Options(), form)
        return program if program is not None and verify(program, diagnostics) and not diagnostics.errors else None
    except LimitExceeded:
        return None


def _first_error(text: str, form: str) -> str:
    diagnostics = Diagnostics()
    try:
        if (program := reading.read(Source("<fuzz>", text), diagnostics, Options(), form)) is not None:
            verify(program, diagnostics)
    except LimitExceeded as error:
        return str(error)
    return next((f"{d.code}: {d.message}" for d in diagnostics.sorted() if d.severity is Severity.ERROR), "?")


def _translated(program: Program, target: str, constants: dict[str, Literal] | None = None) -> Program | None:
    """`program` in another IR; None when it cannot be translated. `constants` gets those that the IR stores outside."""
    return convert.translate(program, target, Diagnostics(program.source), Options(constants=constants))


def _same_text(one: str, other: str, kind: str, what: str) -> Problem | None:
    if one == other:
        return None
    at = next((pair for pair in zip(one.splitlines(), other.splitlines(), strict=False) if pair[0] != pair[1]), ("", ""))
    return Problem(kind, f"{what}: `{at[0].strip()[:120]}` becomes `{at[1].strip()[:120]}`")


def _internal(error: Exception) -> Problem:
    """An unexpected exception, with its location in the package."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "ptir_tools" in f.filename or "passes" in f.filename]
    place = f"{os.path.basename(frames[-1].filename)} {frames[-1].name}" if frames else ""
    return Problem("internal", f"{type(error).__name__}: {error} ({place})"[:300], f"{type(error).__name__} {place}")
