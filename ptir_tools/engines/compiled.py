"""Programs that run more than once: passes, plan and steps are prepared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from sys import getrefcount

from ptir_tools.core.arrays import Array, copied, fill
from ptir_tools.core.cpython import RLock
from ptir_tools.core.diagnostics import Diagnostics, Rejected
from ptir_tools.core.dialect import Program
from ptir_tools.core.evaluate import Context
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded, require_memory, using
from ptir_tools.core.typed import cast
from ptir_tools.core.types import flatten, nest
from ptir_tools.core.violations import Violation
from ptir_tools.dialects.ptir import DIALECT as PTIR
from ptir_tools.engines import rejecting, specialized
from ptir_tools.engines import signature as ports
from ptir_tools.engines.choose import prepare
from ptir_tools.engines.numpy import Bound, Executable, owner
from ptir_tools.engines.options import CHECKED, RunOptions
from ptir_tools.engines.ranged import Ranged, Symbolic, ranged
from ptir_tools.engines.thresholds import at
from ptir_tools.engines.trace import Latest, hooked, is_traced, traced

MOST_FAILURES = 3  # ranges that could not be made: then there is no other attempt
LENDERS = 2  # sets of results; a caller may keep one while another is written


class Lender:
    """A bound call whose large results are lent to the caller. It may run again when they are no longer in use."""

    def __init__(self, bound: Bound, lends: bool = True) -> None:
        self.bound = bound
        self.lent = [lends and a.nbytes > at.lent for a in bound.results]
        self.owners = [owner(a) for a, lent in zip(bound.results, self.lent, strict=True) if lent]
        self.references: list[int] = []  # reference counts of the lent arrays when they are unused

    def is_free(self) -> bool:
        """Whether no result of the previous call is in use: every view of an array refers to its owner."""
        return not self.references or self.counted() == self.references

    def counted(self) -> list[int]:
        return [getrefcount(x) for x in self.owners]

    def __call__(self, context: Context) -> list[Array]:
        """The results: lent arrays, and copies of the others."""
        result = self.bound(context)
        if not self.owners:
            return [copied(a) if a.nbytes > at.lent else np.array(a) for a in result]
        self.references = self.counted()
        return [a.view() if lent else copied(a) for a, lent in zip(result, self.lent, strict=True)]


class Compiled:
    """A verified program, ready to be called with inputs by name or in order; gives outputs by name, as `engines.run` does.

    It is prepared on the first call. When the shapes of inputs change from call to call, it is prepared once more for a range of
    them (see `ranged`), or for each where that is not possible. Shapes that come twice in a row are prepared, too. A large input
    that is the same array in every call is not copied; once it is another array, it is copied from then on. Outputs belong to the
    caller: a call writes only to memory that is no longer in use. With `reuse` the outputs of the previous call are overwritten.
    Calls from several threads are serialized. Later changes of the program are not seen.
    """

    def __init__(self, program: Program, options: RunOptions | None = None, reuse: bool = False) -> None:
        self.program = program
        self.options = options or RunOptions()
        self.reuse = reuse
        self.signature = ports.signature(program, self.options.function)
        self.turn = RLock()  # there is one arena
        self.shapes: list[tuple[int, ...]] | None = None
        self.bound: list[Array] = []
        self.call: Callable[[Context], Sequence[Array]] | None = None
        self.lenders: list[Lender] = []  # used instead of `call` if the caller owns the results
        self.copied: list[bool] | None = None  # whether each array of `bound` is a copy; None before the first run
        self.expected: list[tuple[str, np.dtype, tuple[int, ...]]] | None = None  # the inputs, when they are ready
        self.context: Context | None = None  # reused from the last run, if it succeeded
        self.latest: list[tuple[int, ...]] | None = None  # the shapes of the previous call
        self.symbolic: Symbolic | None = None  # once shapes have changed
        self.ranged: Ranged | None = None  # the program for a range of shapes
        self.numbers: dict[str, int] = {}
        self.failures = 0  # how often there was no range

    def __repr__(self) -> str:
        return f"<compiled {self.program!r}>"

    def __call__(self, inputs: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
        """Raises as `engines.run` does."""
        with self.turn:
            return self._called(inputs)

    def _called(self, inputs: Mapping[str, Array] | Sequence[Array]) -> dict[str, Array]:
        if (again := self._as_before(inputs)) is not None:
            self.latest = self.shapes
            return self._run(again)
        given = ports.order(self.signature, inputs)
        shapes = [a.shape for a in given]
        if shapes == self.shapes and not is_traced(self.options):
            self.latest = shapes
            return self._run(given)
        with using(self.options.limits):
            if (call := self._in_range(given, shapes)) is not None:
                return self._ran(call)
            return self._prepared(given, shapes)

    def _in_range(self, given: Sequence[Array], shapes: list[tuple[int, ...]]) -> Ranged | None:
        """The program, prepared for a range of extents and ready for these inputs, if their extents are others than those of the
        previous call. None if it has to be prepared for them alone."""
        changing = self.shapes is not None and shapes != self.latest
        self.latest = shapes
        plain = self.options.engine in ("auto", *CHECKED) and self.options.observe is None and not is_traced(self.options)
        if not changing or not plain or self.program.dialect is not PTIR or self.failures >= MOST_FAILURES:
            return None
        try:
            if self.symbolic is None:
                self.symbolic = Symbolic(self.program, self.options)
                self.numbers = self.symbolic.numbers(cast("list[tuple[int, ...]]", self.shapes))
            numbers = self.symbolic.numbers(shapes)
            if self.ranged is None or not self.ranged.fits(numbers) or not self.ranged.ready(given, numbers):
                self.ranged = ranged(self.symbolic, self.numbers, numbers, self.options)
                if self.ranged is None or not self.ranged.ready(given, numbers):
                    self.ranged = None
                    self.failures += 1
        except (Violation, Rejected, LimitExceeded):
            return None  # which is reported when it is prepared
        self.numbers = numbers
        return self.ranged

    def _prepared(self, given: Sequence[Array], shapes: list[tuple[int, ...]]) -> dict[str, Array]:
        """Run with tracing, or with other shapes than the previous run."""
        if shapes != self.shapes:
            self._specialize(given)
        with traced(self.ran, given, self.options) as (watched, execution):
            if shapes != self.shapes:
                self._prepare(watched)
                self.shapes = shapes
                self.expected = [(p.name, a.dtype, a.shape) for p, a in zip(self.signature, given, strict=True)]
            outputs = self._run(given)
            if execution is not None:
                execution.outputs = outputs
        return outputs

    def _as_before(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array] | None:
        """The inputs in order, if they are arrays like those of the previous call; None if they must be checked."""
        if self.expected is None or type(inputs) is not dict or len(inputs) != len(self.expected) or is_traced(self.options):
            return None
        given: list[Array] = []
        for name, dtype, shape in self.expected:
            a = inputs.get(name)
            if type(a) is not np.ndarray or a.dtype is not dtype or a.shape != shape or not a.flags.aligned:
                return None
            given.append(a)
        return given

    def _run(self, given: Sequence[Array]) -> dict[str, Array]:
        self._bind(given)
        call = self._lender() if self.lenders else self.call
        assert call is not None
        return self._ran(call)

    def _ran(self, call: Callable[[Context], Sequence[Array]]) -> dict[str, Array]:
        context = self.context or self._new_context()
        self.context = None
        context.start()
        try:
            result = call(context)
        except (Violation, LimitExceeded):
            with rejecting(Diagnostics(self.program.source), context, self.static.dialect.codes.run_time):
                raise
        if isinstance(self.executable, Executable):
            self.context = context
        return dict(zip(self.names, result, strict=True))

    def _lender(self) -> Lender:
        """A bound call whose results are not in use. If the results of two calls are in use, later ones probably will be, too:
        from then on results are copied."""
        for entry in self.lenders:
            if entry.is_free():
                return entry
        result = Lender(self.lenders[0].bound.another(), lends=len(self.lenders) < LENDERS)
        self.lenders = [*self.lenders, result] if result.owners else [result]
        return result

    def _new_context(self) -> Context:
        options = self.options
        context = Context(seed=options.seed, limits=options.limits, timeout=options.timeout, streams=self.streams)
        context.timer = options.timer
        return context

    def _specialize(self, given: Sequence[Array]) -> None:
        with rejecting(Diagnostics(self.program.source), Context()):
            self.static = self.ran = specialized(self.program, given, self.options)
        self.shapes, self.expected, self.context = None, None, None

    def _prepare(self, options: RunOptions) -> None:
        diagnostics, latest = Diagnostics(self.program.source), Latest(self.static)
        with rejecting(diagnostics, Context()):
            self.executable = prepare(self.static, hooked(options, latest), diagnostics)
        self.ran = latest.program
        require_memory(self.executable.memory)
        self.streams = self.static.streams()
        self.names = [p.name for p in ports.results(self.static)]
        self.copied = None

    def _bind(self, given: Sequence[Array]) -> None:
        """Bind inputs that do not change; small and changing inputs are bound as copies, which are refreshed."""
        if self.copied is None:
            return self._rebind(given, [a.nbytes <= at.lent for a in given])
        for a, b, own in zip(given, self.bound, self.copied, strict=True):
            if own:
                fill(b, a)
            elif a is not b:
                return self._rebind(given, [own or x is not y for x, y, own in zip(given, self.bound, self.copied, strict=True)])
        return None

    def _rebind(self, given: Sequence[Array], owned: list[bool]) -> None:
        """The call on these arrays, or on their copies."""
        # While they are removed, the arena is free, and an interrupted call is prepared again.
        self.copied, self.call, self.bound, self.lenders = None, None, [], []
        bound = [copied(a) if own else a for a, own in zip(given, owned, strict=True)]
        leaves = iter(bound)
        self.call = self._bound([nest(p.type, leaves) for p in self.static.main.params])
        self.lenders = [Lender(self.call)] if isinstance(self.call, Bound) and not self.reuse else []
        self.copied, self.bound = owned, bound

    def _bound(self, arguments: Sequence[object]) -> Callable[[Context], Sequence[Array]]:
        executable = self.executable
        if isinstance(executable, Executable):
            return executable.bind(arguments)

        def call(context: Context) -> list[Array]:
            with np.errstate(all="ignore"):
                return [np.asarray(a) for a in flatten(executable(arguments, context))]

        return call
