"""Comparing outputs: engines with the reference, programs before and after a change, results with a file."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial

from ptir_tools.core import arrays, symbols
from ptir_tools.core.arrays import Array
from ptir_tools.core.diagnostics import Diagnostics
from ptir_tools.core.dialect import Program, Runner, clone
from ptir_tools.core.dtypes import DType
from ptir_tools.core.errors import EXACT as NO_ERROR
from ptir_tools.core.errors import distances, leaf_dtypes, unit
from ptir_tools.core.evaluate import Context
from ptir_tools.core.expressions import parse, to_dim
from ptir_tools.core.ir import Loop, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded, require_memory, using
from ptir_tools.core.records import NamedTuple, dataclass, field, replace
from ptir_tools.core.typed import cast
from ptir_tools.core.types import NumericType, ShapedType, Sym
from ptir_tools.core.violations import Violation
from ptir_tools.engines import bounds, execute, rejecting, run, specialized
from ptir_tools.engines import signature as ports
from ptir_tools.engines.choose import require_runnable, without_dead
from ptir_tools.engines.inputs import random_inputs
from ptir_tools.engines.options import RunOptions


@dataclass(slots=True, frozen=True)
class Tolerance:
    """An element passes when |expected - actual| <= `absolute` + `relative` * |expected|. `absolute` may be an array. Where it is
    infinite, the check is only that both are finite, or equal. Where `wild` is true, nothing is checked. With `finite`, elements
    whose expected value is NaN or infinite are not compared. `size` is the largest element of the output: a bound of that size
    says nothing. `again` measures the bound once more, with more samples: before an output that differs is reported."""

    absolute: float | Array = 0.0
    relative: float = 0.0
    finite: bool = False
    wild: bool | Array = False
    size: float = math.inf
    again: Callable[[], Tolerance] | None = None

    def __add__(self, other: Tolerance) -> Tolerance:
        """The tolerance of a difference between elements that each have a tolerance."""
        absolute, wild = np.add(self.absolute, other.absolute), np.logical_or(self.wild, other.wild)
        made = replace(self, absolute=absolute, relative=self.relative + other.relative, wild=wild, again=None)
        return made if self.again is other.again is None else replace(made, again=lambda: self.settled() + other.settled())

    def widened(self, other: Tolerance) -> Tolerance:
        """The tolerance of elements that either one lets pass."""
        return replace(self, absolute=np.maximum(self.absolute, other.absolute), wild=np.logical_or(self.wild, other.wild))

    def settled(self) -> Tolerance:
        """The tolerance by more samples, where they can be taken."""
        return self if self.again is None else self.again()

    @property
    def vague(self) -> bool | Array:
        """The mask of elements whose bound is finite but says nothing."""
        return (self.absolute > 0) & (self.absolute >= self.size) & np.isfinite(self.absolute)

    @property
    def largest(self) -> float:
        """The largest finite absolute tolerance of an element."""
        result = np.asarray(self.absolute)
        return float(np.max(result, where=np.isfinite(result), initial=0.0))


EXACT = Tolerance()
UNBOUNDED = (
    "they have no bound; rounding may decide a comparison, overflow, or make a divisor or the operand of a log or root 0; "
    "or the sign of a computed 0 or NaN matters"
)
NOTHING = "nothing was compared: no element of any output has a bound"
_ATTEMPTS = 100
_LEAST = 0.125  # every float dtype can represent it


@dataclass(slots=True, frozen=True)
class Divergence:
    """The first element out of tolerance, and the smallest absolute and relative tolerance that would have passed (None if there
    is no such tolerance: a NaN or infinity on one side only, another dtype or shape)."""

    name: str
    index: tuple[int, ...]
    expected: np.generic | None
    actual: np.generic | None
    count: int
    absolute: float | None
    relative: float | None
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"{self.name}: {self.reason}"
        where = f"{self.name}[{', '.join(map(str, self.index))}]" if self.index else self.name
        ways = (("atol", self.absolute), ("rtol", self.relative))
        needed = " or ".join(f"{name} {least:.3g}" for name, least in ways if least is not None)
        needed = f"; passes with {needed}" if needed else ""
        return f"{where} is {self.actual}, expected {self.expected} ({self.count} elements differ{needed})"


@dataclass(slots=True, frozen=True)
class Nearest:
    """The element whose error is the largest part of its bound."""

    name: str
    index: tuple[int, ...]
    error: float
    bound: float
    value: np.generic

    @property
    def part(self) -> float:
        """The error as a part of the bound; infinite where the bound is 0."""
        return self.error / self.bound if self.bound else float("inf")


@dataclass(slots=True)
class Verdict:
    """The result of a comparison, in a line. `nearest` is None if all elements with a bound are equal. Per output: the number of
    elements, the number not compared for want of a finite bound (`unbounded`), and the number whose bound is as large as the
    largest element (`vague`)."""

    nearest: Nearest | None = None
    elements: Counter[str] = field(default_factory=Counter)
    unbounded: Counter[str] = field(default_factory=Counter)
    vague: Counter[str] = field(default_factory=Counter)
    bounded: int = 0  # elements with a bound
    failed: bool = False

    def compared(
        self, expected: Mapping[str, Array], actual: Mapping[str, Array], tolerances: Mapping[str, Tolerance]
    ) -> list[Divergence]:
        """The result of `compare`, which becomes part of the verdict."""
        for (name, a), b in zip(expected.items(), actual.values(), strict=False):
            found = nearest(name, a, b, tolerances.get(name, EXACT))
            if found is not None and (self.nearest is None or found.part > self.nearest.part):
                self.nearest = found
        divergence = compare(expected, actual, tolerances)
        self.failed |= bool(divergence)
        return divergence

    def count(self, expected: Mapping[str, Array], tolerances: Mapping[str, Tolerance], special: bool = False) -> None:
        """Count the elements of outputs, and those whose bound says nothing. With `special` inputs only the elements are counted,
        because near infinities a bound says nothing about the program."""
        self.elements.update({name: x.size for name, x in expected.items()})
        if special:
            return
        open_ = unbounded(expected, tolerances)
        self.bounded += sum(x.size for x in expected.values()) - sum(open_.values())
        self.unbounded.update(open_)
        vague = {name: _count(tolerances.get(name, EXACT).vague & np.isfinite(_wide(x)), x) for name, x in expected.items()}
        self.vague.update({name: n for name, n in vague.items() if n})

    @property
    def compared_nothing(self) -> bool:
        """Whether there are elements, and none has a bound."""
        return self.elements.total() > 0 and not self.bounded

    @property
    def open(self) -> int:
        """The number of elements whose bound says nothing."""
        return self.unbounded.total() + self.vague.total()

    @property
    def weak(self) -> bool:
        """Whether the bound of more than one element in ten says nothing."""
        return 10 * self.open > self.elements.total()

    def __str__(self) -> str:
        word = "FAIL" if self.failed else "WEAK" if self.weak else "PASS"
        total, free = self.elements.total(), self.unbounded.total()
        said = "the element is equal" if total - free == 1 else f"all {total - free} elements are equal"
        if self.nearest is not None:
            near = self.nearest
            where = f"{near.name}[{', '.join(map(str, near.index))}]" if near.index else near.name
            within = "beyond" if near.part > 1 else "within"
            value = f"{near.value:.6g}" if isinstance(near.value, np.floating) else str(near.value)
            said = f"largest error {near.error:.3g}, {within} a bound of {near.bound:.3g}, at {where} = {value}"
        elif self.failed:
            said = "the outputs differ"
        return f"{word}: {said}{f'; the bound of {self.open} of {total} elements says nothing' if self.open else ''}"


def diverging(name: str, expected: Array, actual: Array, tolerance: Tolerance = EXACT) -> Divergence | None:
    """The first element of `actual` that is not within `tolerance` of `expected`, or None. NaN equals NaN. Integers and i1
    that do not depend on rounding are compared bit for bit."""
    found = _diverging(name, expected, actual, tolerance)
    return found if found is None or tolerance.again is None else _diverging(name, expected, actual, tolerance.again())


def _diverging(name: str, expected: Array, actual: Array, tolerance: Tolerance) -> Divergence | None:
    if (result := _unlike(name, expected, actual)) is not None:
        return result
    a, b = _wide(expected), _wide(actual)
    free = np.isposinf(tolerance.absolute)  # elements that are not compared
    if a.dtype.kind in "iub":
        off, gap, size = a != b, None, None
        if isinstance(tolerance.absolute, np.ndarray):  # a number applies to floats only
            off &= ~(np.abs(a.astype(np.float64) - b.astype(np.float64)) <= tolerance.absolute)
    else:
        with np.errstate(all="ignore"):
            gap, size = np.abs(a - b), np.abs(a)
            same = (a == b) | (np.isnan(a) & np.isnan(b)) | (~np.isfinite(a) if tolerance.finite else False)
            free &= tolerance.wild | (np.isfinite(a) & np.isfinite(b))
            off = ~same & ~free & ~(np.isfinite(gap) & (gap <= tolerance.absolute + tolerance.relative * size))
    if not np.any(off):
        return None
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), a.shape))
    absolute, relative = _needed(gap, size, same | free) if gap is not None and size is not None else (None, None)
    return Divergence(name, at, expected[at], actual[at], int(np.count_nonzero(off)), absolute, relative)


def nearest(name: str, expected: Array, actual: Array, tolerance: Tolerance) -> Nearest | None:
    """The element whose error is the largest part of its bound; None if there is no error, or another dtype or shape."""
    if _unlike(name, expected, actual) is not None or not expected.size:
        return None
    if tolerance.again is not None and _diverging(name, expected, actual, tolerance) is not None:
        tolerance = tolerance.again()
    a, b = _wide(expected), _wide(actual)
    with np.errstate(all="ignore"):
        whole = a.dtype.kind in "iub"
        error = np.abs(a.astype(np.float64) - b.astype(np.float64)) if whole else distances(a, b)
        error = np.where(whole & (a != b) & (error == 0), 1.0, error)  # large integers
        number = isinstance(tolerance.absolute, np.ndarray) or not whole  # a single number applies to floats only
        absolute = tolerance.absolute if number else 0.0
        size = np.zeros(a.shape) if whole else np.abs(np.where(np.isfinite(a), a, 0))
        bound = np.broadcast_to(absolute + tolerance.relative * size, a.shape)
        free = np.isposinf(bound) & (tolerance.wild | np.isfinite(error))
        if tolerance.finite:
            free |= ~np.isfinite(a)
        error = np.where(free, 0.0, error)
        part = np.where(error > 0, np.where(bound > 0, error / bound, np.inf), 0.0)
        part = np.where(np.isposinf(error), np.inf, part)
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(part)), a.shape))
    return Nearest(name, at, float(error[at]), float(bound[at]), expected[at]) if error[at] > 0 else None


def _unlike(name: str, expected: Array, actual: Array) -> Divergence | None:
    if expected.shape == actual.shape and expected.dtype == actual.dtype:
        return None
    got, want = (f"{a.dtype}{list(a.shape)}" for a in (actual, expected))
    return Divergence(name, (), None, None, expected.size, None, None, f"got {got}, expected {want}")


def _wide(array: Array) -> Array:
    kind = array.dtype.kind
    return array if kind in "iub" else array.astype(np.complex128 if kind == "c" else np.float64)


def _not_finite(array: Array) -> int:
    """The number of elements that are NaN or infinite."""
    return int(np.count_nonzero(~np.isfinite(_wide(array)))) if array.dtype.kind not in "iub" else 0


def _floats(array: Array) -> bool:
    return array.dtype.kind not in "iubc" and "int" not in array.dtype.name


def _needed(gap: Array, size: Array, same: Array) -> tuple[float | None, float | None]:
    """The smallest absolute and relative tolerance that pass for all elements; None if there is none."""
    rest, base = gap[~same], size[~same]
    with np.errstate(all="ignore"):
        result = float(np.max(rest, initial=0)), float(np.max(rest / base, initial=0))
    absolute, relative = (x if np.isfinite(x) else None for x in result)
    return absolute, relative


def reference_outputs(
    program: Program,
    inputs: Mapping[str, Array] | Sequence[Array],
    options: RunOptions,
    rounded: frozenset[DType] = frozenset(),
) -> tuple[dict[str, Array], dict[str, Tolerance]]:
    """The reference's outputs, and the tolerance for other engines: per element, by the ops' error rules on the values of this
    run, or by perturbed runs where these bounds are too loose. Constants of the dtypes in `rounded` are known except for one
    rounding. Raises like `engines.run`.
    """
    options = options.on("reference")
    if program.dialect.executor is not None:
        outputs = run(program, inputs, options)
        return outputs, dict.fromkeys(outputs, EXACT)
    with using(options.limits):
        return _reference_outputs(program, inputs, options, rounded)


def _reference_outputs(
    program: Program, inputs: Mapping[str, Array] | Sequence[Array], options: RunOptions, rounded: frozenset[DType]
) -> tuple[dict[str, Array], dict[str, Tolerance]]:
    diagnostics = Diagnostics(program.source)
    given = ports.order(ports.signature(program, options.function), inputs)
    with rejecting(diagnostics, Context()):
        static = specialized(program, given, options)
        require_runnable(static, diagnostics)
    static = without_dead(static, options)
    if any(isinstance(op.defn.control, Loop) and op.defn.control.test is not None for b in static.blocks() for op in b.body):
        run(static, given, options.on("auto"))  # an endless loop reaches the limit in seconds there, and in minutes here
    units = [unit(dtype) for x in static.main.results for dtype in leaf_dtypes(operand_type(x))]

    def approximate(samples: int, turn: int = 0) -> tuple[dict[str, Array], list[bounds.Approximate]]:
        executable = bounds.Executable(static, static.main, options, samples, rounded, turn)
        require_memory(executable.memory)
        return execute(executable, static, given, options, diagnostics), executable.found

    outputs, found = approximate(0)
    proven = [_Bound(x.value, 0.0 if x.error is NO_ERROR else x.error, u) for x, u in zip(found, units, strict=True)]
    if not any(np.any(p.loose) for p in proven):
        return outputs, {name: Tolerance(p.error) for name, p in zip(outputs, proven, strict=True)}

    def tolerances(samples: int, turn: int = 0) -> dict[str, Tolerance]:
        _, found = approximate(samples, turn)
        return {name: p.measured(x) for name, p, x in zip(outputs, proven, found, strict=True)}

    few = tolerances(bounds.SAMPLES)

    @cache
    def settled() -> dict[str, Tolerance]:
        with using(options.limits):
            with suppress(LimitExceeded, MemoryError):
                return tolerances(bounds.MANY)
            made = few  # where there is no room for so many samples at once, they are taken in turns
            with suppress(LimitExceeded, MemoryError):
                for turn in range(1, _TURNS):
                    made = {name: made[name].widened(t) for name, t in tolerances(bounds.SAMPLES, turn).items()}
            return made

    return outputs, {name: replace(t, again=partial(_settled, settled, name)) for name, t in few.items()}


def _settled(tolerances: Callable[[], dict[str, Tolerance]], name: str) -> Tolerance:
    return tolerances()[name]


_TURNS = 4  # runs with few samples each, in place of one with many
_TIGHT = 8  # unit roundoffs of the largest element; a smaller proven error is not measured


@dataclass(slots=True)
class _Bound:
    """An output, its proven error and the unit roundoff of its dtype: 0 for integers and i1."""

    output: Array
    error: Array | float
    unit: float

    @property
    def scale(self) -> float:
        """The largest finite magnitude."""
        size = np.abs(_wide(self.output))
        return float(np.max(size, where=np.isfinite(size), initial=0.0))

    @property
    def loose(self) -> Array:
        """The mask of elements whose proven error is more than a few roundings of the largest element."""
        if not np.any(self.error):
            return np.zeros(self.output.shape, np.bool_)
        return np.asarray(self.error) > _TIGHT * self.unit * self.scale if self.unit else np.isposinf(self.error)

    def measured(self, found: bounds.Approximate) -> Tolerance:
        """The proven error, or the measured one where that is less than the output's own size."""
        measured = np.asarray(0.0 if found.error is NO_ERROR else found.error)
        if self.unit:
            vague = (measured > 0) & (measured >= self.scale) & np.isfinite(_wide(self.output))
            measured = np.where(vague, np.inf, measured)
        absolute = np.where(self.loose, np.minimum(self.error, measured), self.error)
        size = self.scale if self.unit else math.inf
        return Tolerance(absolute, wild=bounds.wild(found) & np.isposinf(self.error), size=size)


class Precisions(NamedTuple):
    """The float dtypes of two programs that do not have the same. Inputs of both are rounded to each of `shared`, the finest
    first. Constants of the dtypes `before` and `after` may be rounded ones of the other program."""

    shared: tuple[DType, ...] = ()
    before: frozenset[DType] = frozenset()
    after: frozenset[DType] = frozenset()

    @classmethod
    def of(cls, before: Program, after: Program) -> Precisions:
        """The precisions of two programs; empty if they have the same float dtypes."""
        floats = [frozenset(d for d in _dtypes(program) if d.is_float) for program in (before, after)]
        if floats[0] == floats[1]:
            return cls()
        finest = min(map(unit, floats[0] | floats[1]))
        coarse = [frozenset(d for d in each if unit(d) > finest) for each in floats]
        return cls(tuple(sorted(floats[0] | floats[1], key=lambda d: (unit(d), d.name))), *coarse)

    def common(self, x: Array) -> Array:
        """`x`, with elements that every dtype has."""
        if _floats(x):
            for dtype in self.shared:
                x = arrays.narrow(arrays.widen(x), dtype).astype(x.dtype)
        return x


def _dtypes(program: Program) -> set[DType]:
    types = [operand_type(x) for b in program.blocks() for op in b.body for x in (*op.operands, *op.results)]
    types += [p.type for b in program.blocks() for p in b.params]
    return {d for t in types for d in leaf_dtypes(t)}


@dataclass(slots=True)
class Check:
    """The report of `check`: `diverged` is empty when before and after agree, `tolerance` is that of its first divergence. From
    the last run: the `inputs` of each program by its own names, and the `expected` outputs by the names of the program after.
    `sizes` are the numbers chosen for open symbols. `skipped`, by output: the elements that were not compared because they were
    NaN or infinite.
    """

    diverged: list[Divergence] = field(default_factory=list)
    tolerance: Tolerance = EXACT
    inputs: dict[str, Array] = field(default_factory=dict)
    inputs_after: dict[str, Array] = field(default_factory=dict)
    expected: dict[str, Array] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    runs: int = 0

    @property
    def elements(self) -> Counter[str]:
        """The number of elements of each output, in all runs."""
        return self.verdict.elements

    @property
    def unbounded(self) -> Counter[str]:
        """The number of elements of each output that had no finite bound."""
        return self.verdict.unbounded

    @property
    def compared_nothing(self) -> bool:
        """Whether there are outputs, and no element of any had a finite bound in any run."""
        return self.verdict.compared_nothing


def check(
    before: Program,
    after: Program,
    runs: int = 3,
    seed: int = 0,
    options: RunOptions | None = None,
    constants: Mapping[str, Array] | None = None,
    finite: bool = False,
    carried: bool = False,
    execute: Runner | None = None,
    engine: str = "reference",
    judge: Runner | None = None,
    mixed: bool = False,
    within: Tolerance | None = None,
) -> Check:
    """Run both programs on the same random inputs, `runs` times, and compare outputs by position.

    Unbound symbols get distinct small sizes. If there are several runs, and no peer, the inputs of the last have special values
    (`random_inputs`); between dialects, whose integers differ in width, only floats do. `constants` are inputs with known values,
    by name. Floats are drawn again, all positive, if more elements are then compared: fewer without a bound, then fewer NaN.
    `finite`: the change assumes finite numbers, so elements that are not finite before are not compared. `carried`: integers may
    have a wider dtype after, as in another dialect. `mixed`: dtypes may differ, of floats, too; where the programs compute in
    other float dtypes, the tolerance is the sum of both. `within` replaces the computed tolerances. The program before runs on
    the reference engine, or by `judge`, another peer. The program after runs on `engine`, or by `execute`, which is a peer. Stops
    at the first run that differs. Raises like `engines.run`: a program that cannot run has not been checked.
    """
    options, constants = options or RunOptions(), constants or {}
    precisions = Precisions.of(before, after) if mixed else Precisions()
    report = Check(sizes=common_sizes(before, after, options.bindings))
    options = replace(options, bindings={**options.bindings, **report.sizes})
    names = {p.name for p in ports.signature(before, options.function)}
    fixed = {name: x for name, x in constants.items() if name in names}
    numbers = dict(options.bindings)
    with rejecting(Diagnostics(before.source), Context()):
        symbols.infer(before, numbers)
        symbols.derive(after.main, numbers, after.dialect.codes.extent)
    for i in range(runs):
        with using(options.limits), rejecting(Diagnostics(before.source), Context()):
            drawn = random_inputs(before, seed + i, fixed, options.function, options.bindings)
            special = 0 < i == runs - 1 and execute is None and not precisions.shared
            if special:
                drawn = _with_specials(before, after, drawn, seed + i, fixed, options)
        drawn = {name: precisions.common(x) for name, x in drawn.items()}
        inputs, expected, tolerances = _comparable_inputs(before, drawn, fixed, options, precisions.before)
        given = arguments(after, {name: x for name, x in inputs.items() if name not in fixed}, constants, numbers, mixed)
        if precisions.shared:
            actual, others = reference_outputs(after, given, options, precisions.after)
            pairs = zip(tolerances.items(), others.values(), strict=False)
            tolerances |= {name: t + other for (name, t), other in pairs}
        else:
            actual = run(after, given, options.on(engine)) if execute is None else execute(given)
        if judge is not None:
            own = expected
            expected = dict(zip(own, judge(inputs).values(), strict=True))
            tolerances = {name: tolerances.get(name, EXACT) + t for name, t in for_peer(own, tolerances).items()}
        if within is not None:
            tolerances = dict.fromkeys(expected, within)
        if after.dialect.outputs(after.main):
            actual = _results(actual, expected)
        report.runs, report.inputs, report.inputs_after = i + 1, inputs, given
        report.expected = dict(zip(actual, expected.values(), strict=False))
        report.verdict.count(expected, tolerances, special)
        if finite:
            tolerances = {name: _where_finite(t) for name, t in tolerances.items()}
            report.skipped.update({name: n for name, x in expected.items() if (n := _not_finite(x))})
        if mixed:
            expected, actual = ({name: arrays.widen(x) for name, x in each.items()} for each in (expected, actual))
        if carried or mixed or before.dialect is not after.dialect:
            expected |= dict(zip(expected, map(_carried, expected.values(), actual.values()), strict=False))
        if execute is not None:
            tolerances = for_peer(expected, tolerances)
        report.diverged = report.verdict.compared(expected, actual, tolerances)
        if report.diverged:
            report.tolerance = tolerances.get(report.diverged[0].name, EXACT)
            break
    return report


def _where_finite(tolerance: Tolerance) -> Tolerance:
    made = replace(tolerance, finite=True, again=None)
    return made if tolerance.again is None else replace(made, again=lambda: _where_finite(tolerance.settled()))


def _with_specials(
    before: Program,
    after: Program,
    drawn: dict[str, Array],
    seed: int,
    fixed: Mapping[str, Array],
    options: RunOptions,
) -> dict[str, Array]:
    special = random_inputs(before, seed, fixed, options.function, options.bindings, special=True)
    return {name: special[name] if _floats(x) or before.dialect is after.dialect else x for name, x in drawn.items()}


def entries(before: Program, after: Program) -> list[tuple[Program, Program]]:
    """A pair of both programs per function that both have and no function calls, with that function as the entry. Their own
    entries come first."""
    ops = (op for program in (before, after) for block in program.blocks() for op in block.body)
    called = {op.attr("callee") for op in ops if "callee" in op.defn.attr_index}
    names = [f.name for f in before.functions if f.name not in {before.entry, *called} and after.function(f.name) is not None]
    return [(before, after), *((replace(before, entry=n), replace(after, entry=n)) for n in names)]


def _results(memory: Mapping[str, Array], expected: Mapping[str, Array]) -> dict[str, Array]:
    """The results of a program that stores them in memory: its last outputs. Memory of one element may be a result of rank 0."""
    last = list(memory.items())[max(len(memory) - len(expected), 0) :]
    if len(last) < len(expected):
        return dict(last)
    pairs = zip(expected.values(), last, strict=True)
    return {
        name: x[: e.size].reshape(e.shape) if x.shape == (1,) and (not e.shape or not e.size) else x for e, (name, x) in pairs
    }


def _carried(x: Array, like: Array) -> Array:
    """Integers and truth values `x` in the integer dtype of `like`, where it has all their values."""
    if like.dtype.kind not in "iu" or not (_integer(x) or x.dtype.kind == "b"):
        return x
    carried = x.astype(like.dtype)
    return carried if like.dtype.itemsize >= x.dtype.itemsize or np.array_equal(carried, x) else x


def _integer(x: Array) -> bool:
    return x.dtype.kind in "iu" or "int" in x.dtype.name


def arguments(
    program: Program,
    shared: Mapping[str, Array],
    constants: Mapping[str, Array],
    sizes: Mapping[str, int],
    mixed: bool = False,
) -> dict[str, Array]:
    """The arguments of a program: `constants` by name, the rest from `shared` by name if it has them all, else in order. Memory
    for results starts as zeros; `sizes` are those of all symbols. `mixed`: floats are converted to the dtype of the parameter."""
    given, rest, bound = dict[str, "Array"](), iter(shared.values()), ports.signature(program)
    named, numbers = shared.keys() >= {p.name for p in bound} - constants.keys(), dict(sizes)
    arrays_of: list[Array | None] = []
    for p in bound:
        if (x := constants.get(p.name)) is None:
            x = shared[p.name] if named else next(rest, None)
        arrays_of.append(x)
        if x is not None and isinstance(p.type, ShapedType) and p.type.rank == x.ndim:
            numbers |= {d.name: n for d, n in zip(p.type.shape, x.shape, strict=True) if isinstance(d, Sym)}
    symbols.infer(program, numbers)
    sized, lookup = ports.given_extents(bound, numbers, sizes), symbols.lookup_in(program, numbers)
    for p, x in zip(bound, arrays_of, strict=True):
        x = sized.get(p.name, x)
        t = symbols.substitute(p.type, lookup)
        assert isinstance(t, NumericType)
        kind = arrays.numpy_dtype(t.dtype)
        if x is None or not (x.size or 0 in t.extents):
            given[p.name] = np.zeros(cast("tuple[int, ...]", t.extents), kind)
            continue
        zero = np.zeros((), kind)
        x = arrays.narrow(arrays.widen(x), t.dtype) if mixed and _floats(x) and _floats(zero) else x
        given[p.name] = _carried(x, zero)
    return given


def _comparable_inputs(
    program: Program, drawn: dict[str, Array], fixed: dict[str, Array], options: RunOptions, rounded: frozenset[DType]
) -> tuple[dict[str, Array], dict[str, Array], dict[str, Tolerance]]:
    """The random inputs or their magnitudes, whichever leave fewer elements without a bound, then fewer NaN; and the results of
    the reference on them."""
    order = [p.name for p in ports.signature(program, options.function)]
    magnitudes = {name: np.maximum(np.abs(x), np.asarray(_LEAST, x.dtype)) if _floats(x) else x for name, x in drawn.items()}
    tried: list[tuple[tuple[int, int], tuple[dict[str, Array], dict[str, Array], dict[str, Tolerance]]]] = []
    for values in (drawn, magnitudes):
        inputs = {name: {**fixed, **values}[name] for name in order}
        outputs, tolerances = reference_outputs(program, inputs, options, rounded)
        nans = sum(int(np.count_nonzero(np.isnan(_wide(x)))) for x in outputs.values() if _floats(x))
        tried.append(((sum(unbounded(outputs, tolerances).values()), nans), (inputs, outputs, tolerances)))
        if tried[-1][0] == (0, 0):
            break
    return min(tried, key=lambda t: t[0])[1]


def unbounded(outputs: Mapping[str, Array], tolerances: Mapping[str, Tolerance]) -> dict[str, int]:
    """The number of elements of each output without a finite tolerance; outputs without such elements are omitted."""
    counts = {name: _count(np.isposinf(tolerances.get(name, EXACT).absolute), x) for name, x in outputs.items()}
    return {name: n for name, n in counts.items() if n}


def _count(mask: bool | Array, output: Array) -> int:
    return int(np.count_nonzero(np.broadcast_to(mask, output.shape)))


def for_peer(outputs: Mapping[str, Array], tolerances: Mapping[str, Tolerance]) -> dict[str, Tolerance]:
    """The tolerances for a peer's outputs: larger by 2 units in the last place of the largest value. Its kernels approximate
    functions (logistic, expm1) to within units of 1, not of the result."""
    return {name: _approximated(x, tolerances.get(name, EXACT)) for name, x in outputs.items()}


def _approximated(output: Array, tolerance: Tolerance) -> Tolerance:
    if not _floats(output):
        return tolerance
    size = _Bound(output, 0.0, 0.0).scale
    with np.errstate(over="ignore"):
        step = np.spacing(output.dtype.type(size)) if np.isfinite(output.dtype.type(size)) else 0.0
        made = replace(tolerance, absolute=tolerance.absolute + 2 * float(step), again=None)
    return made if tolerance.again is None else replace(made, again=lambda: _approximated(output, tolerance.settled()))


def compare(expected: Mapping[str, Array], actual: Mapping[str, Array], tolerances: Mapping[str, Tolerance]) -> list[Divergence]:
    """The outputs that differ, compared by position, with the expected names. A missing or additional output differs, too. For
    elements without a bound, only shape and dtype are compared."""
    if len(expected) != len(actual):
        reason = f"{len(actual)} outputs, expected {len(expected)}"
        return [Divergence("outputs", (), None, None, 0, None, None, reason)]
    pairs = zip(expected.items(), actual.values(), strict=True)
    divergence = (diverging(name, a, b, tolerances.get(name, EXACT)) for (name, a), b in pairs)
    return [d for d in divergence if d is not None]


def small_sizes(program: Program, bindings: Mapping[str, int]) -> dict[str, int]:
    """Distinct small sizes for the open symbols of `program` (not in `bindings` or `dims`) with which its types are valid:
    symbols of its inputs first, then others. Symbols that stay open are left to the run."""
    if program.dialect.extents is not None:
        return program.dialect.extents.sizes(program, bindings)
    bound = {**program.attrs.get("dims", {}), **bindings}
    names = [n for n in symbols.symbols(program) if n not in bound]
    if not names:
        return {}
    given = {s.name for p in program.main.params for s in symbols.mentioned(p.type)}
    inputs = [n for n in names if n in given]
    rng = random.Random(0)
    for free in (inputs, names):
        upward = range(2, 2 + len(free))
        spread = max(12, len(free))
        if _derive_numbers(program, {**bound, **dict(zip(free, upward, strict=True))}, free) is not None:
            return dict(zip(free, upward, strict=True))
        for _ in range(_ATTEMPTS):
            sizes = dict(zip(rng.sample(free, len(free)), rng.sample(range(1, spread + 1), len(free)), strict=True))
            if (result := _choose_numbers(program, bound, sizes)) is not None:
                return {n: result[n] for n in free}
    return dict(zip(names, range(2, 2 + len(names)), strict=True))


def common_sizes(before: Program, after: Program, bindings: Mapping[str, int]) -> dict[str, int]:
    """The `small_sizes` of `before` with which `after` is valid, too. A symbol of `after` may be named like an expression of
    `before`, such as `2*M`, and has its value."""
    extents, sizes = after.dialect.extents, dict[str, int]()
    if extents is not None and before.dialect.extents is None:
        sizes = extents.sizes(after, bindings)
        numbers = {**bindings, **sizes}
        for name in symbols.symbols(before):
            with suppress(Violation):  # the name is not an expression
                d = to_dim(parse(name))
                n = extents.value(d, numbers) if isinstance(d, Sym) else d
                if name not in numbers and isinstance(n, int):
                    sizes[name] = n
    return {**sizes, **small_sizes(before, {**bindings, **sizes})}


def _choose_numbers(program: Program, bound: dict[str, int], sizes: dict[str, int]) -> dict[str, int] | None:
    """A number for each symbol of `sizes`: derived from earlier ones, else as given; None if they do not fit."""
    known: dict[str, int] | None = dict(bound)
    for name, size in sizes.items():
        if known is None:
            return None
        if name not in known:
            known = _derive_numbers(program, {**known, name: size}, [n for n in sizes if n not in known and n != name])
    return None if known is None else _derive_numbers(program, known)


def _derive_numbers(program: Program, numbers: dict[str, int], left: Sequence[str] = ()) -> dict[str, int] | None:
    """`numbers` and all derived ones; None if a type of `program` is then invalid, or depends on a symbol outside `numbers`
    and `left`."""
    static = clone(program)
    known = dict(numbers)
    try:
        symbols.specialize(static, known)
    except Violation as violation:
        return known if violation.code == "UnboundSymbol" and any(n not in known for n in left) else None
    return known
