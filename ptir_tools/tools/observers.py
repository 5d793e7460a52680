"""Observers of a pipeline: the program between passes, a Chrome trace of the passes, places in the log of steps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter

from ptir_tools.core.diagnostics import Diagnostics, unknown_name
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import lazy
from ptir_tools.core.source import Source
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.dialects.writing import program_text
from ptir_tools.passes import Hook, PassContext, names
from ptir_tools.rewrite.pipeline import Step
from ptir_tools.rewrite.step_log import Record

if TYPE_CHECKING:
    import difflib
    import json
else:
    difflib = lazy("difflib")
    json = lazy("json")


class Printer(Hook):
    """Shows programs between passes: by `say`, or as numbered files in the folder `tree`.

    `before` and `after` are names of passes (`all`: every one; for `after` also `change`: those that changed something).
    `diff` shows what each pass changed. Raises OSError.
    """

    def __init__(
        self,
        say: Callable[[str], None],
        options: Options,
        before: Sequence[str] = (),
        after: Sequence[str] = (),
        diff: bool = False,
        tree: str | None = None,
    ) -> None:
        self.say, self.options, self.diff, self.tree = say, options, diff, tree
        self.wanted_before, self.wanted_after = _listed(before), _listed(after)
        self.number = 0
        self.text = ""
        if tree is not None:
            os.makedirs(tree, exist_ok=True)

    def begin(self, program: Program) -> None:
        """`program` is about to be changed. Raises UsageError for an unknown pass."""
        _check_names(self.wanted_before, program.dialect.name, "all")
        _check_names(self.wanted_after, program.dialect.name, "all", "change")
        self.text = self._text(program) if self.diff else ""

    def before(self, step: Step, program: Program) -> None:
        """Print before the passes in `before`."""
        if _named(step, self.wanted_before, "all"):
            self._show(f"before {step.name}", program)

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """Print after the passes in `after`, the diff, or a file."""
        self.number += 1
        if _named(step, self.wanted_after, "all", *(["change"] * changed)):
            self._show(f"after {step.name}", program)
        if self.diff:
            self._show_diff(step, self._text(program))
        if self.tree is not None:
            name = f"{self.number:04}_{step.name}.{program.format}"
            with open(os.path.join(self.tree, name), "w", encoding="utf-8", newline="\n") as file:
                file.write(self._text(program))

    def _text(self, program: Program) -> str:
        return "".join(program_text(program, program.format, Diagnostics(program.source), self.options))

    def _show(self, when: str, program: Program) -> None:
        self.say(f"// ----- {when}\n" + self._text(program).rstrip("\n"))

    def _show_diff(self, step: Step, text: str) -> None:
        if shown := "\n".join(difference(self.text, text, f"before {step.name}", f"after {step.name}")):
            self.say(shown)
        self.text = text


def difference(before: str, after: str, first: str, second: str) -> Iterator[str]:
    """The lines of a unified diff, without line ends."""
    return difflib.unified_diff(before.splitlines(), after.splitlines(), first, second, "", "", 3, "")


def _listed(given: Sequence[str]) -> list[str]:
    """The names in texts that may have several, with commas between them."""
    return [name.strip() for text in given for name in text.split(",")]


def _named(step: Step, wanted: Sequence[str], *special: str) -> bool:
    return step.name in wanted or any(word in wanted for word in special)


def _check_names(wanted: Sequence[str], dialect: str, *special: str) -> None:
    known = names(dialect)
    for name in wanted:
        if name not in special and name not in known:
            raise unknown_name("pass", name, known, f" for {dialect} programs")


class Tracer(Hook):
    """A Chrome trace of the passes (about://tracing, Perfetto): the time of each pass and its verification, and its
    statistics."""

    def __init__(self) -> None:
        self.context = PassContext()
        self.zero = perf_counter()
        self.start = self.verified = 0.0
        self.done: Counter[str] = Counter()
        self.events: list[Record] = []

    def begin(self, context: PassContext) -> None:
        """Passes are about to run in `context`."""
        self.context = context

    def before(self, step: Step, program: Program) -> None:
        """Start the clock."""
        self.done = Counter(self.context.statistics.get(step.name))
        self.start, self.verified = perf_counter(), self.context.verifying

    def after(self, step: Step, program: Program, changed: bool) -> None:
        """An event for the pass, one for its verification."""
        ran, verified = self.context.timings[-1][1], self.context.verifying - self.verified
        did = Counter(self.context.statistics.get(step.name)) - self.done
        about = {"pipeline": str(step), "changed": changed, "ops": sum(len(b.body) for b in program.blocks())}
        self._event(step.name, "pass", self.start, ran, about | did)
        self._event(f"verify after {step.name}", "verify", self.start + ran, verified, {})

    def _event(self, name: str, kind: str, start: float, seconds: float, about: Record) -> None:
        at = {"ts": (start - self.zero) * 1e6, "dur": seconds * 1e6}
        self.events.append({"name": name, "cat": kind, "ph": "X", "pid": 0, "tid": 0, **at, "args": about})

    def text(self) -> str:
        """The trace, as JSON."""
        return json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms"}) + "\n"


def located(record: Record, source: Source | None) -> Record:
    """A record of the log for users: `at` is the op's place in the source as `file:line:column`, if it has one."""
    shown = dict(record)
    loc = shown.pop("loc")
    span = source.span(loc) if source is not None and isinstance(loc, int) else None
    if source is not None and span is not None:
        line, column = source.position(span.start)
        shown["at"] = f"{source.name}:{line}:{column}"
    return shown
