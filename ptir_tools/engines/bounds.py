"""Bounds on the difference between an engine and the reference in one run.

`Executable` is the reference with an error next to every value: each op is run by its declared body, and its error by its
declared rule (`core.errors`), on the values of this run. Regions are run on values with errors. A branch or loop whose predicate
is uncertain is run both ways, and its results may be either.

`Proven` assumes the worst of what each op does to the errors of its operands. That doubles with every layer of a model. So
`Measured` also carries samples: runs in which every result is moved at random, as rounding moves it. The spread of the samples
measures the effect of earlier errors on a value. It replaces the worst case wherever no decision and no pole is within the error.

What overflows its dtype does so on every engine where it is an output, but inside a kernel it may not. So as an operand it has no
bound, unless floats are strict. Half of the samples keep what overflows; the spread shows where that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.builder import single_function
from ptir_tools.core.dtypes import F64, DType
from ptir_tools.core.errors import (
    EXACT,
    Error,
    Step,
    as_written,
    distances,
    errors_of,
    largest,
    leaf_dtypes,
    normal,
    rule_of,
    unit,
)
from ptir_tools.core.evaluate import Context, Data, apply, keywords, last_uses
from ptir_tools.core.evaluate import read as read_plain
from ptir_tools.core.ir import (
    CONSTANT,
    ELEMENTWISE,
    MOVEMENT,
    Element,
    Function,
    Literal,
    Op,
    Operand,
    Region,
    Value,
    operand_type,
)
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass, field, replace
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import flatten, nest
from ptir_tools.core.violations import Violation
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import reference
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import run_pipeline

if TYPE_CHECKING:
    from ptir_tools.core.dialect import Program

SAMPLES = 8
MANY = 64  # samples for outputs that 8 find too far away: the mean of few is at times far too small
ROUNDED = 0.7  # the largest part of half the distance between two floats by which a rounded result is moved
MOVED = 0.25  # the largest part of an op's own error by which its result is moved; samples are not rounded, the reference is
DEVIATIONS = 4.0  # an engine's error may be this multiple of the samples' root mean square distance,
FACTORS = {SAMPLES: 2.0, MANY: 1.8}  # and this multiple of the largest, which is the closer to its limit the more there are
# Part of an elementwise op's worst case that always counts: operands may cancel in all samples, but not on an engine.
_LEAST = 0.125
_JUMP = 4.0  # roundings; a smaller difference is not a jump


@dataclass(slots=True)
class Decisions:
    """The predicates of one op with regions, and the one to flip."""

    flipped: bool = False
    open: int = 0


@dataclass(slots=True, eq=False)
class Approximate:
    """An array and its error, for bodies with regions, which slice it, stack it and test whether it is true."""

    value: Array
    error: Error = EXACT
    samples: tuple[Array, ...] = ()  # empty: all samples equal the value
    given: bool = (
        False  # an input or a constant, or moved elements of these: the signs of zeros and NaN are equal on every engine
    )
    decisions: Decisions = field(default_factory=Decisions)
    over: Array | None = None  # which elements overflowed their dtype, if any did

    @property
    def opened(self) -> Error:
        """The error of an operand: what overflowed may not have, in a kernel."""
        return self.error if self.over is None else np.where(self.over, np.inf, 0.0 if self.error is EXACT else self.error)

    @property
    def shape(self) -> tuple[int, ...]:
        results: tuple[int, ...] = self.value.shape
        return results

    def sample(self, k: int) -> Array:
        """The value in sample `k`."""
        return self.samples[k] if self.samples else self.value

    def __getitem__(self, at: int | slice | tuple[int | slice, ...]) -> Approximate:
        error = EXACT if self.error is EXACT else self.error[at]
        over = None if self.over is None else self.over[at]
        return Approximate(self.value[at], error, tuple(x[at] for x in self.samples), self.given, over=over)

    def __bool__(self) -> bool:
        if self.error is EXACT or not np.any(self.error):
            return bool(self.value)
        self.decisions.open += 1
        return bool(self.value) != (self.decisions.flipped and self.decisions.open == 1)

    def __array_function__(
        self, function: Callable[..., Array], types: object, args: tuple[Data, ...], kwargs: dict[str, object]
    ) -> Approximate:
        def stacked(parts: list[Array]) -> Array:
            return function(parts, *args[1:], **kwargs)

        rows: list[Approximate] = args[0]
        errors: Error = EXACT
        if any(x.error is not EXACT for x in rows):
            errors = stacked([np.zeros(x.shape) if x.error is EXACT else x.error for x in rows])
        over = None
        if any(x.over is not None for x in rows):
            over = stacked([np.zeros(x.shape, np.bool_) if x.over is None else x.over for x in rows])
        count = max(len(x.samples) for x in rows)
        samples = tuple(stacked([x.sample(k) for x in rows]) for k in range(count))
        return Approximate(stacked([x.value for x in rows]), errors, samples, over=over)


class Executable(reference.Executable):
    """The reference engine, which also records in `found` each leaf of its results with its error. With `samples` it is measured,
    else proven. Constants of the dtypes in `rounded` are known to one rounding. Each `turn` draws other samples."""

    def __init__(
        self,
        program: Program,
        function: Function,
        options: RunOptions,
        samples: int = 0,
        rounded: frozenset[DType] = frozenset(),
        turn: int = 0,
    ) -> None:
        super().__init__(program, function, options)
        self.samples = samples
        self.walk = Measured(options.strict_fp, rounded, samples, turn) if samples else Proven(options.strict_fp, rounded)
        self.found: list[Approximate] = []

    @property
    def memory(self) -> int:
        """The reference's estimate, plus the errors and their intermediates."""
        return (4 + self.samples) * super().memory

    @property
    def errors(self) -> list[Error]:
        """The error of each leaf of the results."""
        return [x.error for x in self.found]

    def __call__(self, arguments: Sequence[Data], context: Context) -> tuple[object, ...]:
        given = [
            nest(p.type, (Approximate(leaf, given=True) for leaf in flatten(x)))
            for p, x in zip(self.function.params, arguments, strict=True)
        ]
        self.found = list(flatten(self.walk.block(self.function, given, context)))
        values = reference.without_aliases([x.value for x in self.found], arguments)
        return tuple(nest(operand_type(x), values) for x in self.function.results)


class Proven:
    """Runs a program on values with errors. `strict`: engines do the same ops in the same order. Constants of the dtypes in
    `rounded` are known except for one rounding."""

    def __init__(self, strict: bool = False, rounded: frozenset[DType] = frozenset()) -> None:
        self.strict, self.rounded = strict, rounded

    def block(self, block: Region, arguments: Sequence[Data], context: Context) -> tuple[Data, ...]:
        """Like `evaluate.run_block`, on values with errors."""
        context.check_time()
        local: Env = dict(zip(block.params, arguments, strict=True))
        if (last := context.ends.get(block)) is None:
            context.ends[block] = last = last_uses(block)
        for i, op in enumerate(block.body):
            results = self.step(op, [self.read(x, local) for x in op.operands], context)
            local.update(zip(op.results, results, strict=True))
            for v in last.get(i, ()):
                local.pop(v, None)
        return tuple(self.read(x, local) for x in block.results)

    def read(self, x: Operand, env: Env) -> Data:
        """The value of an operand, with its error."""
        if isinstance(x, Literal):
            return self.constant(read_plain(x, {}), x.type.dtype)
        return env[x.value][x.index] if isinstance(x, Element) else env[x]

    def constant(self, value: Array, dtype: DType) -> Approximate:
        """A constant, with its error."""
        if dtype not in self.rounded:
            return Approximate(value, given=True)
        return Approximate(value, unit(dtype) * np.abs(_float(value)))

    def step(self, op: Op, operands: list[Data], context: Context) -> list[Data]:
        """The results of one op, with their errors."""
        if op.regions:
            return self._branching(op, operands, context)
        if op.defn.family == "compare" and op.operands[0] is op.operands[1] and operands[0].over is None:
            operands = [Approximate(x.value, given=x.given) for x in operands]  # equal whatever the error, or NaN
        named = keywords(op, context, _never)
        values = apply(op, [x.value for x in operands], named, context)
        outputs = [np.asarray(x) for x in flatten(tuple(values))]
        if op.defn.is_constant and self.rounded:
            return [self.constant(x, d) for v, x in zip(op.results, outputs, strict=True) for d in leaf_dtypes(v.type)]

        def analyze(pipeline: str) -> tuple[list[Array], list[Error]] | None:
            if (block := _rewritten(op, pipeline)) is None:
                return None
            results = list(flatten(self.block(block, operands, context)))
            return [x.value for x in results], [x.error for x in results]

        given = [x.given for x in operands]
        seen = Step(op, [x.value for x in operands], [x.opened for x in operands], outputs, named, analyze, self.strict, given)
        whole = bool(op.defn.traits & (MOVEMENT | CONSTANT)) and all(given)
        leaves = iter(self.leaves(seen, operands, whole, context))
        return [nest(v.type, leaves) for v in op.results]

    def leaves(self, seen: Step, operands: list[Approximate], whole: bool, context: Context) -> list[Approximate]:
        """The leaves of the results of a step, with their errors. With `whole`, all leaves are `given`."""
        found = [Approximate(x, e, given=whole) for x, e in zip(seen.results, errors_of(seen), strict=True)]
        if not self.strict and any(map(_may_overflow, seen.results, seen.dtypes)):
            exact = _kept(seen, _unrounded(seen, list(seen.operands), context), context)
            for x, dtype, wide in zip(found, seen.dtypes, exact, strict=True):
                x.over = _overflowed(x.value, dtype, [wide])
        return found

    def _branching(self, op: Op, operands: list[object], context: Context) -> list[object]:
        """An op with regions: its body is run on values with errors. If one predicate was uncertain, it is run again with the
        other decision."""
        observe, context.observe = context.observe, None
        try:
            result, open_ = self._run(op, operands, context, Decisions())
            if not open_:
                return result
            other = self._run(op, operands, context, Decisions(flipped=True))[0] if open_ == 1 else None
        finally:
            context.observe = observe
        leaves = list(flatten(tuple(result)))
        others = list(flatten(tuple(other))) if other is not None else [None] * len(leaves)
        joined = iter([self.either(a, b) for a, b in zip(leaves, others, strict=True)])
        return [nest(v.type, joined) for v in op.results]

    def _run(self, op: Op, operands: list[object], context: Context, decisions: Decisions) -> tuple[list[object], int]:
        def call(region: Region) -> Callable[..., tuple[object, ...]]:
            return lambda *arguments: tuple(map(deciding, self.block(region, list(arguments), context)))

        def deciding(x: object) -> object:
            return replace(x, decisions=decisions) if isinstance(x, Approximate) else x

        results = apply(op, list(map(deciding, operands)), keywords(op, context, call), context)
        result = (x if isinstance(x, Approximate) else Approximate(np.asarray(x)) for x in flatten(tuple(results)))
        return [nest(v.type, result) for v in op.results], decisions.open

    def either(self, a: Approximate, b: Approximate | None) -> Approximate:
        """`a`, with an error that includes `b`; no bound if there is no `b`."""
        if b is None:
            return Approximate(a.value, np.full(a.shape, np.inf))
        with np.errstate(all="ignore"):
            gap = distances(_float(a.value), _float(b.value))
        sides = [0.0 if x.error is EXACT else x.error for x in (a, b)]
        return Approximate(a.value, np.maximum(sides[0], gap + sides[1]))


class Measured(Proven):
    """Runs a program on values with errors and samples.

    A result's error is `FACTORS[count]` times the largest distance of a sample from the value, plus the op's own error. If the
    op's worst case for the errors of its operands is smaller, it is used instead. Only the worst case is used for integers and
    i1, and where an operand of these is uncertain. The same holds at poles, and where the result jumps (floor, sign) and no
    sample jumped. There the samples are set apart by it.
    """

    def __init__(
        self, strict: bool = False, rounded: frozenset[DType] = frozenset(), count: int = SAMPLES, turn: int = 0
    ) -> None:
        super().__init__(strict, rounded)
        self.count = count  # of samples
        self.made = turn << 32  # results so far, from which random numbers are made

    def constant(self, value: Array, dtype: DType) -> Approximate:
        """A constant, with its error and samples."""
        found = super().constant(value, dtype)
        if found.error is EXACT:
            return found
        exact = arrays.widen(value)
        return self._rounded(value, found.error, dtype, exact, exact, whole=False)

    def leaves(self, seen: Step, operands: list[Approximate], whole: bool, context: Context) -> list[Approximate]:
        """The leaves of the results with errors and samples."""
        if all(e is EXACT for e in seen.errors):
            errors = errors_of(seen)
            rounds = not whole and any(
                e is not EXACT or _may_overflow(x, d) for e, x, d in zip(errors, seen.results, seen.dtypes, strict=True)
            )
            rounds = rounds and any(d.precision for d in seen.dtypes)
            exact = _unrounded(seen, [x.value for x in operands], context) if rounds else seen.results
            kept = _kept(seen, exact, context) if rounds and not self.strict else exact
            return [self._rounded(*one, whole) for one in zip(seen.results, errors, seen.dtypes, exact, kept, strict=True)]
        if (made := self._rewritten(seen, operands, context)) is not None:
            return made
        worst = opened = errors_of(replace(seen, sampled=True))
        if any(x.over is not None for x in operands):
            worst = errors_of(replace(seen, errors=[x.error for x in operands], sampled=True))
        d = seen.op.defn
        one = sum(x.error is not EXACT for x in operands) == 1 or (d.algebra.monotone and d.algebra.idempotent)
        own = errors_of(replace(seen, errors=[EXACT] * len(operands), sampled=True))
        direct = all(e is EXACT for e in own) or bool(d.traits & ELEMENTWISE and one)  # an op that does not round moves elements
        calm = worst
        if any(x.error is not EXACT and not _inexact(x.value) for x in operands):
            errors = [EXACT if not _inexact(x.value) else x.error for x in operands]
            calm = errors_of(replace(seen, errors=errors, sampled=True))
        samples = [_unrounded(seen, [x.sample(k) for x in operands], context) for k in range(self.count)]
        if not self.strict:
            samples[1::2] = [_kept(seen, x, context) for x in samples[1::2]]
        elementwise = bool(d.traits & ELEMENTWISE)
        return [
            self._joined(x, dtype, own[i], worst[i], opened[i], calm[i], [made[i] for made in samples], direct, elementwise)
            for i, (x, dtype) in enumerate(zip(seen.results, seen.dtypes, strict=True))
        ]

    def _rewritten(self, seen: Step, operands: list[Approximate], context: Context) -> list[Approximate] | None:
        """The results of the ops to which the op's rule lowers it, if it does."""
        pipeline = getattr(rule_of(seen.op.defn), "pipeline", "")
        block = _rewritten(seen.op, pipeline) if pipeline else None
        if block is None:
            return None
        made = list(flatten(self.block(block, operands, context)))
        results = []
        for r, x in zip(seen.results, made, strict=True):
            with np.errstate(all="ignore"):
                gap = distances(_float(x.value), _float(r))
            results.append(Approximate(r, gap + (0.0 if x.error is EXACT else x.error), x.samples, over=x.over))
        return results

    def _rounded(self, value: Array, error: Error, dtype: DType, exact: Array, kept: Array, whole: bool) -> Approximate:
        """A result of exact operands, whose samples differ by its own error; `exact` is the result before it is rounded, `kept`
        is `_kept` of it."""
        samples: tuple[Array, ...] = ()
        if not whole and dtype.precision and (error is not EXACT or self._free(value) or _may_overflow(value, dtype)):
            samples = tuple(self._moved([exact, kept] * (self.count // 2), error, dtype))
        elif not whole and error is not EXACT:
            samples = tuple(self._apart([value] * self.count, value, error, np.asarray(error) > 0))
        return Approximate(value, error, samples, whole, over=self._over(value, dtype, samples))

    def _over(self, value: Array, dtype: DType, samples: Sequence[Array]) -> Array | None:
        return None if self.strict else _overflowed(value, dtype, samples)

    def _joined(
        self,
        value: Array,
        dtype: DType,
        own: Error,
        worst: Error,
        opened: Error,
        calm: Error,
        samples: list[Array],
        direct: bool,
        elementwise: bool,
    ) -> Approximate:
        """A result with its error and its samples; `direct`: no two errors meet in an element. `opened` is `worst` where
        what overflowed may not have."""
        if not dtype.precision:
            apart = self._apart(samples, value, opened, np.asarray(opened) > 0) if opened is not EXACT else samples
            return Approximate(value, opened, tuple(apart))
        wide, base = _float(value), np.zeros(value.shape) if own is EXACT else own
        with np.errstate(all="ignore"):
            over = _may_overflow(value, dtype)
            gaps = [distances(_in_range(_float(x), dtype) if over else _float(x), wide) for x in samples]
            spread = np.maximum.reduce(gaps)
            likely = _likely(gaps, FACTORS[self.count] * spread) + base
            open_: Array = np.zeros(value.shape, np.bool_)
            if worst is EXACT:
                error = likely
            else:
                open_ = open_ | np.isposinf(worst)
                if direct:  # all samples agree, but the worst case is far: a jump
                    open_ |= (spread == 0) & (worst > 2 * base + _JUMP * unit(dtype) * np.abs(wide))
                if calm is not worst:
                    open_ |= worst > (0.0 if calm is EXACT else calm)
                if elementwise:
                    likely = np.maximum(likely, _LEAST * worst)
                error = worst if direct else np.where(open_, worst, np.minimum(worst, likely))
            if opened is not worst:
                least = 0.0 if worst is EXACT else worst
                error = np.maximum(error, np.where(opened > least, np.minimum(opened, likely), 0.0))
            moved = self._moved(samples, own, dtype)
            if open_.any():
                moved = self._apart(moved, value, error, open_)
        return Approximate(value, error if np.any(error) else EXACT, tuple(moved), over=self._over(value, dtype, moved))

    def _moved(self, samples: list[Array], error: Error, dtype: DType) -> list[Array]:
        """The samples, each element moved at random by part of `error`, and with a sign of its own if it is NaN or 0. Equal
        elements are moved alike, as by an engine."""
        self.made += 1
        results = []
        with np.errstate(all="ignore"):
            for k, x in enumerate(samples):
                wide = _float(x)
                if error is not EXACT:
                    known = np.isfinite(error)
                    wide = wide + _moves(wide, np.where(known, error, 0.0), dtype) * self._turns(wide, k)
                    wide = wide if known.all() else np.where(known, wide, self._wild(wide, k))
                keeps = bool(k % 2) and not self.strict
                results.append(self._signed(_in_range(wide, dtype, keeps), k))
        return results

    def _apart(self, samples: list[Array], value: Array, error: Error, at: Array) -> list[Array]:
        """The samples, but set apart from the value by `error` where `at` is true: i1 are flipped, numbers are moved to either
        side. Elements without a bound become infinite or NaN or stay unchanged; integers stay unchanged."""
        self.made += 1
        results = []
        for k, x in enumerate(samples):
            if value.dtype.kind == "b":
                results.append(np.where(at, value ^ (k % 2 == 0), x))
                continue
            wide = _float(value)
            known = np.isfinite(error)
            with np.errstate(all="ignore"):
                turned = wide + (-1.0 if k % 2 else 1.0) * np.where(known, error, 0.0)
                turned = turned if known.all() or not _inexact(value) else np.where(known, turned, self._wild(wide, k))
                if not _inexact(value):
                    info = np.iinfo(value.dtype) if value.dtype.kind in "iu" else None
                    turned = turned if info is None else np.clip(turned, info.min, float(info.max) / 1.001)
                results.append(np.where(at, turned if _inexact(value) else turned.astype(value.dtype), x))
        return results

    def _free(self, x: Array) -> bool:
        """Whether the sign of an element of a computed result is free."""
        wide = _float(x)
        return bool(np.isnan(wide).any() if self.strict else (np.isnan(wide) | (wide == 0)).any())

    def _signed(self, x: Array, k: int) -> Array:
        """`x` with the signs of sample `k` for its NaN and zeros."""
        if x.dtype.kind == "c":
            turned = np.empty_like(x)
            turned.real, turned.imag = self._signed(x.real, k), self._signed(x.imag, k)
            return turned
        free = np.isnan(x) if self.strict else np.isnan(x) | (x == 0)
        return np.where(free, np.copysign(x, -1.0 if k % 2 else 1.0), x) if free.any() else x

    def _turns(self, x: Array, k: int) -> Array:
        """Random numbers in [-1, 1); equal elements of `x` get equal numbers."""
        if x.dtype.kind == "c":
            size, turn = self._turns(x.real, k), self._turns(x.imag, k + self.count)
            return size * np.exp(1j * np.pi * turn)
        seed = (self.made * 2 * self.count + k + 1) * 0x9E3779B97F4A7C15 % 2**64
        mixed = np.array(x + 0.0, np.float64, order="C").view(np.uint64) ^ np.uint64(seed)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        mixed ^= mixed >> np.uint64(31)
        return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1

    def _wild(self, value: Array, k: int) -> Array:
        return np.broadcast_to((value, np.nan, np.inf, -np.inf)[k % 4], value.shape)

    def either(self, a: Approximate, b: Approximate | None) -> Approximate:
        """As in `Proven`, with samples of both."""
        joined = super().either(a, b)
        if b is None:
            open_ = np.ones(a.shape, np.bool_)
            joined.samples = tuple(self._apart([a.value] * self.count, a.value, joined.error, open_))
            return joined
        joined.samples = tuple((a, b)[k % 2].sample(k) for k in range(self.count))
        return joined


def _moves(value: Array, error: Array, dtype: DType) -> Array:
    """By how much samples of `value` are moved at most: a part of its own error, and what rounding alone may do just above a
    power of two, where floats are farthest apart for their size."""
    if unit(dtype) <= unit(F64):
        return 2 * MOVED * error  # the reference has rounded these already
    apart = np.ldexp(unit(dtype), np.frexp(np.abs(value))[1] - 1)
    most: Array = np.minimum(error, np.maximum(MOVED * error, ROUNDED * apart))
    return most


def _unrounded(step: Step, operands: list[Array], context: Context) -> list[Array]:
    """The results of an op on other operands, before they are rounded. Where it fails, they are NaN, or as on the reference."""
    mixed = any(d.is_complex for d in step.dtypes) and not any(map(np.iscomplexobj, operands))
    try:
        with np.errstate(all="ignore"):
            if mixed or as_written(step.op.defn):
                given = [arrays.narrow(x, dtype) for x, dtype in zip(operands, step.operand_dtypes, strict=True)]
                made = list(map(np.asarray, flatten(tuple(apply(step.op, given, step.keywords, context)))))
            else:
                made = step.run(list(map(arrays.widen, operands)))
    except Violation:
        made = [np.full(x.shape, np.nan) if _inexact(x) else x for x in step.results]
    return [arrays.widen(x) if d.precision else arrays.narrow(x, d) for x, d in zip(made, step.dtypes, strict=True)]


def _kept(step: Step, made: Sequence[Array], context: Context) -> list[Array]:
    """What `_unrounded` made. In f64 what overflowed is the largest number."""
    wide = [unit(d) <= unit(F64) and _may_overflow(x, d) for x, d in zip(made, step.dtypes, strict=True)]
    if not any(wide):
        return list(made)
    small = [np.where(np.isfinite(_float(x)), np.asarray(0.5, x.dtype), x) if _inexact(x) else x for x in step.operands]
    calm = _unrounded(step, small, context)
    return [
        np.where(np.isfinite(y) & ~np.isfinite(x), np.nan_to_num(x), x) if w else x
        for x, y, w in zip(made, calm, wide, strict=True)
    ]


def _may_overflow(x: Array, dtype: DType) -> bool:
    """Whether elements of a float or complex result are not finite."""
    return bool(dtype.precision and not np.isfinite(_float(x)).all())


def _overflowed(value: Array, dtype: DType, samples: Sequence[Array]) -> Array | None:
    """The elements that are not finite, and finite in samples before they are rounded; None if there are none."""
    if not samples or not _may_overflow(value, dtype):
        return None
    over: Array = ~np.isfinite(_float(value)) & np.logical_or.reduce([np.isfinite(_float(x)) for x in samples])
    return over if over.any() else None


def _in_range(x: Array, dtype: DType, keeps: bool = False) -> Array:
    """`x` in float64, with infinities and subnormal numbers where `dtype` has them; `keeps`: with what overflows."""
    if unit(dtype) <= unit(F64):
        return x
    size = np.abs(x)
    edge = size < normal(dtype)
    edge = edge if keeps else edge | ~(size < largest(dtype) * (1 - unit(dtype)))
    return np.where(edge, arrays.widen(arrays.narrow(x, dtype)), x) if edge.any() else x


def _likely(gaps: list[Array], most: Array) -> Array:
    """The distance that an engine may have: at least `most`, and as the distances of samples say. Few samples may be close to
    each other by chance, so half of their mean square is the row's median."""
    square: Array = np.mean(np.square(gaps), axis=0)
    if square.ndim and square.size and len(gaps) < MANY:
        square = (square + np.median(square, axis=-1, keepdims=True)) / 2
    result: Array = np.maximum(DEVIATIONS * np.sqrt(square), most)
    return result


def wild(found: Approximate) -> Array:
    """The elements, or parts of complex ones, that are NaN or infinite in only some samples, or infinite with both signs."""
    a = _float(found.value)
    result = ~np.isfinite(a) if a.dtype.kind == "c" else np.zeros(a.shape, np.bool_)
    for x in found.samples:
        b = _float(x)
        turned = np.isinf(a) & np.isinf(b) & (a != b)  # the factor may also be 0
        result |= (np.isfinite(a) != np.isfinite(b)) | (np.isnan(a) != np.isnan(b)) | turned
    return result


def _float(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


def _inexact(x: Array) -> bool:
    return x.dtype.kind not in "iub" and "int" not in x.dtype.name


Env = dict[Value, Data]


def _never(region: Region) -> Callable[..., tuple[object, ...]]:
    raise AssertionError(region)


_REWRITTEN: dict[object, Region | None] = {}


def _rewritten(op: Op, pipeline: str) -> Region | None:
    """A block of the ops to which `pipeline` lowers `op`; None if it leaves the op unchanged."""
    types = tuple(map(operand_type, op.operands))
    key = (pipeline, op.name, types, op.defn.key(op.attrs))
    if key not in _REWRITTEN:
        program, b = single_function(load_dialect(op.name.partition(".")[0]))
        result = Op(op.defn, tuple(b.param(t, f"p{i}") for i, t in enumerate(types)), op.attrs, (), (), 0)
        result.results = tuple(Value(v.type, f"r{i}", result) for i, v in enumerate(op.results))
        program.main.body.append(result)
        program.main.results = list(result.results)
        run_pipeline(program, pipeline)
        kept = any(x.defn is op.defn for x in program.main.body)
        _REWRITTEN[key] = None if kept else program.main
    return _REWRITTEN[key]
