"""Reproducers of crashes in passes: the program before the pass, the pipeline that is left, the version; and their replay."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from ptir_tools import __version__
from ptir_tools.cli.output import program_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.ir import Program
from ptir_tools.core.pipeline import Step
from ptir_tools.core.source import Source
from ptir_tools.passes import Hook, PassContext, run_pipeline

_HEADER = re.compile(r"(?://|#) (version|pipeline|flags): (.*)")
_BOUND = re.compile(r"--max-iterations ([0-9]{1,18})\b")
FLAGS = ("strict_fp", "fast_math", "expensive_checks")  # what beside the pipeline decides what passes do


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


def describe(session: Session, source: Source, pipeline: str, position: Position, context: PassContext, flags: Any) -> str:
    """The reproducer, without what is said about the error. The program before the pass is made once more from its source."""
    text, left = source.text, " ".join(pipeline.split())
    program, found = session.parse(source, Diagnostics(source)), Diagnostics(source)
    if program is not None and position.step is not None and session.verify(program, found):
        again = PassContext(
            limits=context.limits, floats=context.floats, max_iterations=context.max_iterations, verify_each=False
        )
        again.hooks.append(Position(position.begun))
        try:
            run_pipeline(program, pipeline, again)
        except _Here:
            pieces = program_text(program, program.format, found, session.options)
            if not found.errors:
                text, left = "".join(pieces), str(position.step)
    asked = [f"--{name.replace('_', '-')}" for name in FLAGS if getattr(flags, name)]
    if context.max_iterations is not None:
        asked.append(f"--max-iterations {context.max_iterations}")
    head = (f"version: {__version__}", f"pipeline: {left}", f"flags: {' '.join(asked)}")
    return "".join(f"{session.reporter.comment} {line}\n" for line in head) + text


class Replay(NamedTuple):
    """What a reproducer asks for."""

    version: str
    pipeline: str
    flags: dict[str, Any]
    max_iterations: int | None


def read(source: Source) -> Replay:
    """What the comments at the head of `source` ask for. Raises UsageError when it is no reproducer of a pipeline."""
    head: dict[str, str] = {}
    for line in source.text.split("\n"):
        if not line.startswith(("//", "#")):
            break
        if m := _HEADER.match(line):
            head.setdefault(m[1], m[2])
    if "pipeline" not in head:
        raise UsageError(f"{source.name} is no reproducer: its comments name no pipeline")
    flags = head.get("flags", "")
    words, bound = flags.split(), _BOUND.search(flags)
    on = {name: f"--{name.replace('_', '-')}" in words for name in FLAGS}
    return Replay(head.get("version", "?"), head["pipeline"], on, int(bound[1]) if bound else None)
