"""`ptir reduce`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import click

from ptir_tools.cli import resizing, shrinking
from ptir_tools.cli.judging import Judge, timeout_option
from ptir_tools.cli.options import file_argument, output_option, subcommand
from ptir_tools.cli.output import program_text, to_stdout, write_text
from ptir_tools.cli.session import Session
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.ir import Program, Region, clone
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.source import Source

_REPLACEMENTS = (shrinking.by_operand, shrinking.by_constant, shrinking.by_parameter)


@subcommand(
    file_argument,
    output_option,
    click.option(
        "--check",
        metavar="CMD",
        required=True,
        help="The judge: exits with 0 for an interesting program, whose file is {} in CMD, or last.",
    ),
    timeout_option,
    click.option("--allow-invalid", is_flag=True, help="Try programs that do not verify, too."),
)
def command(session: Session, file: str, output: str | None, check: str, timeout: float | None, allow_invalid: bool) -> None:
    """Make a program as small as can be while it stays interesting: exit code 0 of CMD, and nothing else, is interesting.

    Functions, outputs, ops and inputs are dropped, many at a time at first; what needs a dropped op gets one of its operands,
    zeros or a new input instead, and a function may return what an earlier op computes. Then constants become zeros, extents
    and numbers smaller. What does not verify is not tried, unless --allow-invalid. The same program and judge give the same
    result. The smallest so far is always in the -o FILE; without one, it is printed at the end, or when the command is
    interrupted.

    \b
    Examples:
      ptir reduce crash.ptir --check 'ptir opt {} 2>&1 | grep -q IndexError' -o small.ptir
      ptir reduce model.ptir --check '! ptir run {} --random 0 --compare reference'
    """
    program, _ = session.load(file, verify=not allow_invalid)
    reducer = Reducer(session, program, Judge(check, program.format, timeout), allow_invalid, output)
    if not reducer.judge(reducer.text):
        raise UsageError("the program is not interesting: CMD does not exit with 0 for it (as ptir prints it)")
    try:
        reducer.run()
    finally:
        if to_stdout(output):
            write_text(output, [reducer.text])


class Reducer:
    """A program on its way down."""

    def __init__(self, session: Session, program: Program, judge: Judge, allow_invalid: bool, output: str | None) -> None:
        self.session, self.program, self.judge = session, program, judge
        self.allow_invalid, self.output = allow_invalid, output
        self.text = self.written(program) or ""
        self.judged, self.read = {self.text}, {self.text}

    def run(self) -> None:
        """Make it smaller until nothing helps."""
        self.save()
        before = ""
        while before != self.text:
            before = self.text
            self.sweep("without functions", self.blocks, shrinking.without_functions)
            self.attempt("without hints", shrinking.without_hints)
            for number in reversed(range(len(list(self.program.blocks())))):
                self.block(number)
            self.extents()
            self.numbers()

    def blocks(self) -> int:
        """How many functions and shared regions there are."""
        return len(self.program.functions) + len(self.program.regions)

    def block(self, number: int) -> None:
        """Drop results, ops and parameters of one block, then zero its constants."""

        def block() -> Region | None:
            return next((b for i, b in enumerate(self.program.blocks()) if i == number), None)

        def size(of: Callable[[Region], list[Any]]) -> Callable[[], int]:
            return lambda: 0 if (b := block()) is None else len(of(b))

        self.sweep("without outputs", size(lambda b: b.results), partial(shrinking.without_results, number))
        for replace in _REPLACEMENTS:
            self.sweep("without ops", size(lambda b: b.body), partial(shrinking.without_ops, number, replace))
        self.shorten(number, size(lambda b: b.body))
        self.sweep("without inputs", size(lambda b: b.params), partial(shrinking.without_parameters, number))
        self.sweep("zeros in", size(lambda b: b.body), partial(shrinking.zeroed, number))

    def shorten(self, number: int, count: Callable[[], int]) -> None:
        """Let a function end with an op before the last, the earliest that a binary search finds."""
        low, high = 0, count()
        while low < high:
            middle = (low + high) // 2
            if self.attempt(f"returning op {middle}", shrinking.returning(number, middle)):
                high = count() - 1
            else:
                low = middle + 1

    def sweep(self, what: str, count: Callable[[], int], edit: Callable[[range], shrinking.Edit]) -> None:
        """Try `edit` on all, on halves, on quarters … on each of `count()` things, last to first."""
        size = count()
        while size:
            at = count()
            while at > 0:
                span = range(max(at - size, 0), at)
                self.attempt(f"{what} {span.start}-{span.stop - 1}", edit(span))
                at = min(span.start, count())
            size //= 2

    def extents(self) -> None:
        """Make extents smaller, each wherever it stands, biggest first."""
        for old in resizing.extents(self.program):
            for new, attributes in product(resizing.below(old), (True, False)):
                if self.attempt(f"extent {old} as {new}", resizing.resized(old, new, attributes)):
                    break

    def numbers(self) -> None:
        """Make numbers in the text smaller, as long as one can be."""
        while any(self.try_text(what, text) for what, text in resizing.smaller_numbers(self.text)):
            pass

    def attempt(self, what: str, edit: shrinking.Edit) -> bool:
        """Keep what `edit` makes of the program when it is interesting."""
        made = clone(self.program)
        if not edit(made) or not self.sound(made):
            return False
        return self.keep(what, made)

    def try_text(self, what: str, text: str) -> bool:
        """Keep the program that `text` says when it is interesting."""
        if text in self.read:
            return False
        self.read.add(text)
        found = Diagnostics()
        made = self.session.parse(Source("<reduced>", text), found)
        return made is not None and not found.errors and self.sound(made) and self.keep(what, made)

    def sound(self, made: Program) -> bool:
        """Whether `made` verifies, where it has to."""
        if self.allow_invalid:
            return True
        found = Diagnostics(made.source)
        try:
            return self.session.verify(made, found) and not found.errors
        except LimitExceeded:
            return False

    def keep(self, what: str, made: Program) -> bool:
        """Go on from `made` when the judge finds it interesting."""
        text = self.written(made)
        if text is None or text in self.judged:
            return False
        self.judged.add(text)
        if not self.judge(text):
            return False
        self.program, self.text = made, text
        self.save()
        ops = sum(len(b.body) for b in made.blocks())
        self.session.reporter.tell(f"{ops:>8} ops, {len(text)} bytes after {self.judge.runs} runs: {what}")
        return True

    def save(self) -> None:
        """Write the program to the file that is its place. Raises OSError."""
        if not to_stdout(self.output):
            write_text(self.output, [self.text])

    def written(self, made: Program) -> str | None:
        """The text of `made`; None when its format cannot say it."""
        found = Diagnostics(made.source)
        pieces = program_text(made, made.format, found, self.session.options)
        return None if found.errors else "".join(pieces)
