"""Reproducers of crashes in passes: the program before the pass, the remaining pipeline, the version; and their replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ptir_tools import __version__
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program
from ptir_tools.core.lazy import regex
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.dialects.writing import program_text
from ptir_tools.passes import Hook, PassContext, run_pipeline
from ptir_tools.rewrite.pipeline import Step

_HEADER = regex(r"(?://|#) (version|pipeline|flags): (.*)")
_BOUND = regex(r"--(max-iterations|bisect-limit) ([0-9]{1,18})\b")
FLAGS = ("strict_fp", "fast_math", "expensive_checks")  # options that, next to the pipeline, decide the effect of passes


class _Here(Exception):
    """The pass that crashed is about to run."""


class Position(Hook):
    """Counts the passes begun. With `until`, stops before that one."""

    def __init__(self, until: int | None = None) -> None:
        self.until = until
        self.begun = 0
        self.step: Step | None = None

    def before(self, step: Step, program: Program) -> None:
        """One more pass."""
        self.begun, self.step = self.begun + 1, step
        if self.begun == self.until:
            raise _Here


def describe(
    source: Source,
    parse: Callable[[Source, Diagnostics], Program | None],
    pipeline: str,
    position: Position,
    context: PassContext,
    *,
    options: Options,
    flags: Iterable[str] = (),
    comment: str = "//",
) -> str:
    """The reproducer, without the part about the error.

    `parse` makes the program before the pass again from its source. `flags` are the given options of `FLAGS`; `comment` begins
    a comment of the program's format.
    """
    text, left, limit = source.text, " ".join(pipeline.split()), context.step_limit
    program, diagnostics = parse(source, Diagnostics(source)), Diagnostics(source)
    if program is not None and position.step is not None and verify(program, diagnostics, options):
        again = PassContext(limits=context.limits, floats=context.floats, max_iterations=context.max_iterations)
        again.verify_each, again.step_limit = False, limit
        again.hooks.append(Position(position.begun))
        try:
            run_pipeline(program, pipeline, again)
        except _Here:
            pieces = program_text(program, program.format, diagnostics, options)
            if not diagnostics.errors:
                text, left, limit = "".join(pieces), str(position.step), again.steps_left
    arguments = [f"--{name.replace('_', '-')}" for name in flags]
    bounds = {"--max-iterations": context.max_iterations, "--bisect-limit": limit}
    arguments += [f"{flag} {n}" for flag, n in bounds.items() if n is not None]
    head = (f"version: {__version__}", f"pipeline: {left}", f"flags: {' '.join(arguments)}")
    return "".join(f"{comment} {line}\n" for line in head) + text


class Replay(NamedTuple):
    """The contents of a reproducer: pipeline and flags."""

    version: str
    pipeline: str
    flags: dict[str, bool | int]  # options of the passes, by the names of click
    max_iterations: int | None


def read(source: Source) -> Replay:
    """The pipeline and flags in the comments at the head of `source`. Raises UsageError if it is not a reproducer of a
    pipeline."""
    head: dict[str, str] = {}
    for line in source.text.split("\n"):
        if not line.startswith(("//", "#")):
            break
        if m := _HEADER.match(line):
            head.setdefault(m[1], m[2])
    if "pipeline" not in head:
        raise UsageError(f"{source.name} is not a reproducer: its comments name no pipeline")
    flags = head.get("flags", "")
    words, bounds = flags.split(), {name: int(n) for name, n in _BOUND.findall(flags)}
    on: dict[str, bool | int] = {name: True for name in FLAGS if f"--{name.replace('_', '-')}" in words}
    if "bisect-limit" in bounds:
        on["bisect_limit"] = bounds["bisect-limit"]
    return Replay(head.get("version", "?"), head["pipeline"], on, bounds.get("max-iterations"))
