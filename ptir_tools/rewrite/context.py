"""The context of passes: options, limits, steps, statistics, and the rewriters that passes share. `ptir_tools.passes` finds and
runs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum

from ptir_tools.core.diagnostics import Diagnostics, Severity
from ptir_tools.core.dialect import Program
from ptir_tools.core.ir import Attribute, Function, Op, Region
from ptir_tools.core.limits import Expansion, Limits, current
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.source import Loc
from ptir_tools.core.typed import TYPE_CHECKING, Any, TypeAlias
from ptir_tools.core.walks import post_order
from ptir_tools.rewrite.driver import GreedyConfig, GreedyStats, apply_patterns_and_fold_greedily
from ptir_tools.rewrite.pattern_set import FrozenPatternSet
from ptir_tools.rewrite.patterns import Effect
from ptir_tools.rewrite.pipeline import Step
from ptir_tools.rewrite.rewriter import Rewriter
from ptir_tools.rewrite.step_log import Log, Unnamed, op_text

if TYPE_CHECKING:
    from ptir_tools.core.arrays import Array

Run: TypeAlias = "Callable[[Mapping[str, Array]], Mapping[str, Array]]"
Ready: TypeAlias = "Callable[[Program], Run]"  # a program, ready to be called with inputs by name


class Floats(StrEnum):
    """What rewrites may change in floating point: nothing; the sign of a zero and NaN payloads; roundings and more."""

    STRICT = "strict"
    DEFAULT = "default"
    FAST = "fast"


EFFECTS = {Floats.STRICT: Effect.EXACT, Floats.DEFAULT: Effect.ORDER, Floats.FAST: Effect.RANGE}


class PassFailure(Exception):
    """A pass made a program that does not verify: a bug of the toolkit. `faults` are the verifier's diagnostics."""

    def __init__(self, name: str, faults: Diagnostics) -> None:
        first = next((d.message for d in faults if d.severity is Severity.ERROR), "?")
        super().__init__(f"after pass `{name}`: {first}")
        self.name = name
        self.faults = faults


class Hook:
    """Observes a pipeline; the methods do nothing unless overridden. A hook that does not read `changed` says so: to find edits
    that a pass made without a rewriter takes time."""

    reads_changed = True

    def before(self, step: Step, program: Program) -> None:
        """`step` is about to run."""

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """`step` has run; `changed` says whether it edited anything."""


@dataclass(slots=True)
class PassContext:
    """The context of a run of passes.

    `options` are those of the pass that runs. `statistics[pass]` counts rewrites, folds, erased ops and each rule by name. `log`
    is called with a record per step. `seed` shuffles the greedy driver's worklist (tests).

    A step is a rewrite or fold of the greedy driver, one that a pass counts by `step`, or else the whole pass. After `step_limit`
    steps nothing more is done; `bisect` uses that to find the guilty step.
    """

    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    limits: Limits = field(default_factory=current)  # the limits in force where it is made
    floats: Floats = Floats.DEFAULT
    options: dict[str, Attribute] = field(default_factory=dict)
    verify_each: bool = True
    expensive_checks: bool = False
    max_iterations: int | None = None
    seed: int | None = None
    log: Log | None = None
    hooks: list[Hook] = field(default_factory=list)
    statistics: dict[str, Counter[str]] = field(default_factory=dict)
    timings: list[tuple[str, float]] = field(default_factory=list)
    verifying: float = 0.0  # seconds that `verify_each` took
    running: str = ""
    edits: int = 0
    known: dict[str, Array] = field(default_factory=dict, repr=False)  # values that passes assumed for parameters, by name
    steps: int = 0
    step_limit: int | None = None
    unnamed: Unnamed = field(default_factory=dict, repr=False)  # of the current pass, for the log
    undefined: set[tuple[str, str]] | None = field(default=None, repr=False)  # before the pass: (function, symbol)
    expansion: Expansion | None = None
    measures: list[str] = field(default_factory=list)  # lines that passes tell the user: how far outputs have moved
    ready: Ready | None = None  # how passes run programs, for those that measure
    kept: dict[Region, Rewriter] = field(default_factory=dict, repr=False)  # while a pipeline runs: passes share them

    def __post_init__(self) -> None:
        self.floats = Floats(self.floats)  # from Python also by its name

    def expanding(self, program: Program) -> Expansion:
        """The count of ops that copies of regions make, in all passes on `program`."""
        if self.expansion is None:
            self.expansion = Expansion(sum(len(block.body) for block in program.blocks()))
        return self.expansion

    def count(self, what: str, n: int = 1) -> None:
        """Add `n` to the statistic `what` of the current pass."""
        self.statistics.setdefault(self.running, Counter())[what] += n

    def took(self, steps: int) -> None:
        """Count steps."""
        self.steps += steps

    @property
    def steps_left(self) -> int | None:
        """How many more steps may be taken; None: any number."""
        return None if self.step_limit is None else max(self.step_limit - self.steps, 0)

    def greedy(self, **more: Any) -> GreedyConfig:
        """The configuration of a greedy driver in this context; keywords are further fields."""
        given = (self.max_iterations, self.options.get("max-iterations"), self.steps_left)
        more.setdefault("effect", EFFECTS[self.floats])
        return GreedyConfig(
            max_iterations=min((n for n in given if n is not None), default=None),
            expensive_checks=self.expensive_checks,
            seed=self.seed,
            log=self.log and self.record,
            **more,
        )

    def apply(self, program: Program, patterns: FrozenPatternSet, **more: object) -> None:
        """Drive `patterns` over every function and region, and count what was done; keywords as for `greedy`."""
        for rw in self.rewriters(program):
            self.tally(self.drive(rw, patterns, self.greedy(**more)))

    def tally(self, stats: GreedyStats) -> None:
        """Add the driver's counts to the statistics of the current pass."""
        self.count("rewrites", stats.rewrites)
        self.count("folds", stats.folds)
        self.count("erased", stats.erased)
        for name, n in stats.patterns.items():
            self.count(name, n)

    def drive(self, rw: Rewriter, patterns: FrozenPatternSet, config: GreedyConfig) -> GreedyStats:
        """Run the greedy driver; its rewrites and folds are steps. Warns when `max_iterations` may have stopped it."""
        stats = apply_patterns_and_fold_greedily(rw, patterns, config)
        done = stats.rewrites + stats.folds
        self.took(done)
        if done == config.max_iterations and self.steps_left != 0:
            where = f"{'@' if isinstance(rw.block, Function) else '^'}{rw.block.name}"
            self.unfinished(f"`{self.running}` stopped in {where}: max-iterations is {done}; more may match", rw.block.loc)
        return stats

    def unfinished(self, message: str, at: Loc = 0) -> None:
        """Warn that a limit stopped a pass that may not have finished."""
        self.diagnostics.warning("NoFixpoint", message, at)

    def step(self, name: str, root: Op, *after: Op) -> bool:
        """Count a step that a pass is about to take without the driver: `root` becomes `after`. False if no step is left."""
        if self.steps_left == 0:
            return False
        self.took(1)
        if self.log is not None:
            text, texts = op_text(root, self.unnamed), [op_text(op, self.unnamed) for op in after]
            step = {"event": "changed op", "pattern": name, "root": text, "before": text, "after": texts}
            self.record(step | {"loc": root.loc})
        return True

    def record(self, step: dict[str, object]) -> None:
        """Write a step to the log, with the pass that took it."""
        if self.log is not None:
            self.log({"pass": self.running, **step})

    def rewriters(self, program: Program, *, live: bool = False) -> Iterator[Rewriter]:
        """Yields a rewriter for each function and shared region, and finishes it; regions come before the blocks that run them.
        `live`: dead ops may be left out from the start (`Rewriter.erase_dead` counts them)."""
        for block in innermost_first(program):
            with self.rewriter(program, block, live=live) as rewriter:
                yield rewriter
                self.edits += rewriter.edits

    def rewriter(self, program: Program, block: Region, *, live: bool = False) -> Rewriter:
        """A rewriter of one block that reports dropped annotations here; the previous pass's rewriter is reused."""
        rewriter = self.kept.get(block)
        if rewriter is None or not rewriter.resume():
            rewriter = Rewriter(block, program.dialect, self.diagnostics, live=live, program=program)
            if program.dialect.legalize is None:  # else the verifier may edit the program
                self.kept[block] = rewriter
        return rewriter


def innermost_first(program: Program) -> list[Region]:
    """The functions and shared regions, each after the shared regions that its ops run."""
    if not program.regions:
        return list(program.functions)
    shared = set(program.regions)

    def runs(block: Region) -> list[Region]:
        return [r for op in block.body for r in op.regions if r in shared]

    return post_order([*program.functions, *program.regions], runs)
