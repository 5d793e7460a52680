"""Makes a program smaller while it stays interesting."""

from __future__ import annotations

from collections.abc import Callable, Sized
from functools import partial
from itertools import product

from ptir_tools.core import symbols
from ptir_tools.core.diagnostics import Diagnostics, UsageError
from ptir_tools.core.dialect import Options, Program, clone
from ptir_tools.core.ir import Region
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.source import Source
from ptir_tools.core.verify import verify
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_format, reading
from ptir_tools.tools import shrinking

_REPLACEMENTS = (shrinking.by_operand, shrinking.by_constant, shrinking.by_parameter)
Interesting = Callable[[str], bool]


class Smaller(NamedTuple):
    """A smaller program: its text, its number of ops, and the edit that made it."""

    text: str
    ops: int
    what: str


def reduced(
    program: Program,
    interesting: Interesting,
    *,
    options: Options | None = None,
    bindings: dict[str, int] | None = None,
    allow_invalid: bool = False,
    progress: Callable[[Smaller], None] | None = None,
) -> str:
    """The text of the smallest program found for which `interesting` is true, in the format of `program`.

    Functions, outputs, ops and inputs are dropped, then constants become zeros, extents and numbers smaller. Programs that do
    not verify are not tried unless `allow_invalid`. The result is the same every time. `progress` is called with the first and
    with each smaller one. Raises UsageError if `interesting` is false for `program` itself, as it is printed.
    """
    reducer = Reducer(program, interesting, options or Options(), bindings or {}, allow_invalid, progress)
    if not interesting(reducer.text):
        raise UsageError("the program is not interesting: the check fails for it (as ptir prints it)")
    reducer.run()
    return reducer.text


class Reducer:
    """Makes a program smaller, step by step."""

    def __init__(
        self,
        program: Program,
        interesting: Interesting,
        options: Options,
        bindings: dict[str, int],
        allow_invalid: bool,
        progress: Callable[[Smaller], None] | None,
    ) -> None:
        self.program, self.interesting, self.options, self.bindings = program, interesting, options, bindings
        self.allow_invalid, self.progress = allow_invalid, progress
        self.text = self.written(program) or ""
        self.tried, self.read = {self.text}, {self.text}

    def run(self) -> None:
        """Make it smaller until nothing helps."""
        self.report("the program")
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
        """The number of functions and shared regions."""
        return len(self.program.functions) + len(self.program.regions)

    def block(self, number: int) -> None:
        """Drop results, ops and parameters of one block, then zero its constants."""

        def block() -> Region | None:
            return next((b for i, b in enumerate(self.program.blocks()) if i == number), None)

        def size(of: Callable[[Region], Sized]) -> Callable[[], int]:
            return lambda: 0 if (b := block()) is None else len(of(b))

        self.sweep("without outputs", size(lambda b: b.results), partial(shrinking.without_results, number))
        for replace in _REPLACEMENTS:
            self.sweep("without ops", size(lambda b: b.body), partial(shrinking.without_ops, number, replace))
        self.shorten(number, size(lambda b: b.body))
        self.sweep("without inputs", size(lambda b: b.params), partial(shrinking.without_parameters, number))
        self.sweep("zeros in", size(lambda b: b.body), partial(shrinking.zeroed, number))

    def shorten(self, number: int, count: Callable[[], int]) -> None:
        """Let a function end with an earlier op; a binary search finds the earliest."""
        low, high = 0, count()
        while low < high:
            middle = (low + high) // 2
            if self.attempt(f"returning op {middle}", shrinking.returning(number, middle)):
                high = count() - 1
            else:
                low = middle + 1

    def sweep(self, what: str, count: Callable[[], int], edit: Callable[[range], shrinking.Edit]) -> None:
        """Try `edit` on all, on halves, on quarters … on each of `count()` items, last to first."""
        size = count()
        while size:
            at = count()
            while at > 0:
                span = range(max(at - size, 0), at)
                self.attempt(f"{what} {span.start}-{span.stop - 1}", edit(span))
                at = min(span.start, count())
            size //= 2

    def extents(self) -> None:
        """Make extents smaller, biggest first, each at all its places."""
        for old in shrinking.extents(self.program):
            for new, attributes in product(shrinking.below(old), (True, False)):
                if self.attempt(f"extent {old} as {new}", shrinking.resized(old, new, attributes)):
                    break

    def numbers(self) -> None:
        """Make numbers in the text smaller, until none can get smaller."""
        while any(self.try_text(what, text) for what, text in shrinking.smaller_numbers(self.text)):
            pass

    def attempt(self, what: str, edit: shrinking.Edit) -> bool:
        """Apply `edit` to a copy of the program, and keep it if it is interesting."""
        result = clone(self.program)
        if not edit(result) or not self.sound(result):
            return False
        return self.keep(what, result)

    def try_text(self, what: str, text: str) -> bool:
        """Keep the program of `text` if it is interesting."""
        if text in self.read:
            return False
        self.read.add(text)
        diagnostics = Diagnostics()
        try:
            result = reading.read(Source("<reduced>", text), diagnostics, self.options, self.program.format)
        except LimitExceeded:
            return False
        if result is None or diagnostics.errors:
            return False
        symbols.bind(result, self.bindings)
        return self.sound(result) and self.keep(what, result)

    def sound(self, result: Program) -> bool:
        """Whether `result` verifies; always true if invalid programs are allowed."""
        if self.allow_invalid:
            return True
        diagnostics = Diagnostics(result.source)
        try:
            return verify(result, diagnostics, self.options) and not diagnostics.errors
        except LimitExceeded:
            return False

    def keep(self, what: str, result: Program) -> bool:
        """Continue with `result` if it is interesting."""
        text = self.written(result)
        if text is None or text in self.tried:
            return False
        self.tried.add(text)
        if not self.interesting(text):
            return False
        self.program, self.text = result, text
        self.report(what)
        return True

    def report(self, what: str) -> None:
        """Report the smallest program so far."""
        if self.progress is not None:
            self.progress(Smaller(self.text, sum(len(b.body) for b in self.program.blocks()), what))

    def written(self, result: Program) -> str | None:
        """The text of `result`; None if its format cannot express it."""
        diagnostics, write = Diagnostics(result.source), load_format(result.format).write
        if write is None:
            raise UsageError(f"{result.format} can be read, not written")
        try:
            text = "".join(write(result, diagnostics, self.options))
        except Violation:  # the program was not verified
            return None
        return None if diagnostics.errors else text
