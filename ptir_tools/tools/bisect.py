"""Bisection: the step of a pipeline that breaks a program."""

from __future__ import annotations

from collections.abc import Callable

from ptir_tools.core.diagnostics import Rejected, UsageError
from ptir_tools.core.dialect import Program, clone
from ptir_tools.core.lazy import lazy
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.passes import PassContext, run_pipeline
from ptir_tools.rewrite.step_log import Record

if TYPE_CHECKING:
    from ptir_tools import engines
    from ptir_tools.core.arrays import Array
    from ptir_tools.engines import compare
else:
    engines = lazy("ptir_tools.engines")
    compare = lazy("ptir_tools.engines.compare")

# Whether a program is good; the arrays are the values that the pipeline assumed for parameters.
Good = Callable[[Program, "dict[str, Array]"], bool]


class Guilty(NamedTuple):
    """The first step that makes the program bad: its number, its record in the step log, the error of a pass
    that crashed, and the program before and after (None after a crash)."""

    step: int
    record: Record
    crash: str
    before: Program | None
    after: Program | None


def runs_as_before(
    program: Program,
    runs: int = 3,
    options: engines.RunOptions | None = None,
    finite: bool = False,
    engine: str = "reference",
) -> Good:
    """A check: a program is good if on `engine` it gives the outputs of `program` on random inputs (`compare.check`). It raises
    UsageError if no element of any output has a bound."""

    def good(result: Program, known: dict[str, Array]) -> bool:
        checks = [
            compare.check(
                first,
                second,
                runs=runs,
                options=options,
                constants=known if first is program else None,
                finite=finite,
                engine=engine,
            )
            for first, second in compare.entries(program, result)
        ]
        diverged = any(entry.diverged for entry in checks)
        if not diverged and any(entry.compared_nothing for entry in checks):
            raise UsageError(compare.NOTHING)
        return not diverged

    return good


def bisect(
    program: Program,
    pipeline: str,
    good: Good,
    *,
    context: Callable[[], PassContext] = PassContext,
    progress: Callable[[str], None] = lambda line: None,
) -> Guilty | None:
    """The guilty step of `pipeline`, or None if the program is good after all of them. A step is one rewrite or fold, one merge
    of `cse`, or a whole other pass; a pass that crashes is bad. `context` makes the context of each run of the passes. Raises
    UsageError if `program` itself is bad.
    """
    trial = _Trial(program, pipeline, good, context)
    if not trial.good(0):
        raise UsageError("the program is bad before any step; no step can be found")
    steps = trial.count()
    progress(f"{steps} step{'s' * (steps != 1)}")
    if trial.good(steps) and not trial.crash:
        return None
    low, high = 0, steps
    while high - low > 1:
        middle = (low + high) // 2
        fine = trial.good(middle)
        progress(f"{middle:>8} {'good' if fine else 'bad'}")
        low, high = (middle, high) if fine else (low, middle)
    before, after = trial.run(high - 1), trial.run(high)
    return Guilty(high, trial.records[high - 1] if high <= len(trial.records) else {}, trial.crash, before, after)


class _Trial:
    """Runs the pipeline on copies of the program, with a limit on steps."""

    def __init__(self, program: Program, pipeline: str, good: Good, context: Callable[[], PassContext]) -> None:
        self.program, self.pipeline, self.check, self.context = program, pipeline, good, context
        self.records: list[Record] = []
        self.known: dict[str, Array] = {}  # the values that the last run assumed for parameters
        self.crash = ""

    def run(self, steps: int | None, log: Callable[[Record], None] | None = None) -> Program | None:
        """The program after `steps` steps (None: all); None, and `crash`, when a pass fails."""
        result, context = clone(self.program), self.context()
        context.step_limit, context.log = steps, log
        self.crash = ""
        try:
            run_pipeline(result, self.pipeline, context)
        except (UsageError, Rejected, LimitExceeded, MemoryError, OSError):
            raise
        except Exception as error:
            self.crash = f"{context.running}: {type(error).__name__}: {error}"
            return None
        self.known = context.known
        return result

    def count(self) -> int:
        """The number of steps of the pipeline; one that crashes counts."""
        self.run(None, lambda record: None if record["event"] == "erased" else self.records.append(record))
        return len(self.records) + bool(self.crash)

    def good(self, steps: int) -> bool:
        """Whether the program is good after `steps` steps."""
        result = self.run(steps)
        return result is not None and self.check(result, self.known)
