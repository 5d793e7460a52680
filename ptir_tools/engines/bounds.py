"""Bounds on the difference between an engine and the reference in one run.

`Executable` proves a bound: it is the reference with an error next to every value. Each op is run by its declared body, and its
error by its declared rule (`core.errors`), on the values of this run. Regions are run on values with errors. A branch or loop
whose predicate is uncertain is run both ways, and its results may be either.

A proof assumes the worst case of every op, which gives no useful bound for a deep model. There `measured` estimates one: it runs
the reference several times, and perturbs every result by a multiple of the op's own error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.builder import single_function
from ptir_tools.core.diagnostics import Rejected
from ptir_tools.core.dtypes import DType
from ptir_tools.core.errors import EXACT, Error, Step, distances, errors_of
from ptir_tools.core.evaluate import Context, Data, apply, keywords, last_uses
from ptir_tools.core.evaluate import read as read_plain
from ptir_tools.core.ir import CONSTANT, MOVEMENT, Element, Function, Literal, Op, Operand, Region, Value, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.limits import LimitExceeded
from ptir_tools.core.records import dataclass, field
from ptir_tools.core.typed import TYPE_CHECKING, Any
from ptir_tools.core.types import flatten, nest
from ptir_tools.dialects import load_dialect
from ptir_tools.engines import reference
from ptir_tools.engines.options import RunOptions
from ptir_tools.passes import run_pipeline

if TYPE_CHECKING:
    from ptir_tools.core.dialect import Program


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
    decisions: Decisions = field(default_factory=Decisions)
    given: bool = (
        False  # an input or a constant, or moved elements of these: the signs of zeros and NaN are equal on every engine
    )

    @property
    def shape(self) -> tuple[int, ...]:
        results: tuple[int, ...] = self.value.shape
        return results

    def __getitem__(self, at: int | slice | tuple[int | slice, ...]) -> Approximate:
        return Approximate(self.value[at], EXACT if self.error is EXACT else self.error[at], given=self.given)

    def __bool__(self) -> bool:
        if self.error is EXACT or not np.any(self.error):
            return bool(self.value)
        self.decisions.open += 1
        return bool(self.value) != (self.decisions.flipped and self.decisions.open == 1)

    def __array_function__(
        self, function: Callable[..., Array], types: object, args: tuple[Any, ...], kwargs: dict[str, object]
    ) -> Approximate:
        rows = args[0]
        if all(x.error is EXACT for x in rows):
            return Approximate(function([x.value for x in rows], *args[1:], **kwargs))
        errors = [np.zeros(x.shape) if x.error is EXACT else x.error for x in rows]
        stacked = function([x.value for x in rows], *args[1:], **kwargs)
        return Approximate(stacked, function(errors, *args[1:], **kwargs))


class Executable(reference.Executable):
    """The reference engine, which also records in `errors` the error bound of each leaf of its results."""

    def __init__(self, program: Program, function: Function, options: RunOptions) -> None:
        super().__init__(program, function, options)
        self.walk = Walk(options.strict_fp)
        self.errors: list[Error] = []

    @property
    def memory(self) -> int:
        """The reference's estimate, plus the errors and their intermediates."""
        return 4 * super().memory

    def __call__(self, arguments: Sequence[Data], context: Context) -> tuple[object, ...]:
        given = [
            nest(p.type, (Approximate(leaf, given=True) for leaf in flatten(x)))
            for p, x in zip(self.function.params, arguments, strict=True)
        ]
        results = list(flatten(self.walk.block(self.function, given, context)))
        self.errors = [x.error for x in results]
        values = reference.without_aliases([x.value for x in results], arguments)
        return tuple(nest(operand_type(x), values) for x in self.function.results)


RUNS = 8  # runs of a measurement
MOVED = 4.0  # a result is perturbed by up to this multiple of its op's error
FACTOR = 4.0  # an engine's error may be this multiple of the measured one


@dataclass(slots=True)
class Spread:
    """The measurement of one output. `most` is the largest distance from the reference in any run. `wild` are the elements, or
    parts of complex ones, that were NaN or infinite in only some runs, or infinite with both signs."""

    most: Array
    wild: Array


def measured(
    program: Program, options: RunOptions, outputs: Sequence[Array], run: Callable[[Executable], Sequence[Array]]
) -> list[Spread]:
    """The distances of the outputs of perturbed runs from `outputs`. `run` runs an executable on the same inputs. If a
    perturbed run fails, all distances are unknown."""
    results = [
        Spread(np.zeros(x.shape), ~np.isfinite(x) if x.dtype.kind == "c" else np.zeros(x.shape, np.bool_)) for x in outputs
    ]
    for k in range(RUNS):
        executable = Executable(program, program.main, options)
        executable.walk = Perturbed(k, options.strict_fp)
        try:
            others = run(executable)
        except (Rejected, LimitExceeded):
            return [Spread(np.full(x.shape, np.inf), np.ones(x.shape, np.bool_)) for x in outputs]
        for spread, x, other in zip(results, outputs, others, strict=True):
            a, b = _float(x), _float(other)
            with np.errstate(all="ignore"):
                spread.most = np.maximum(spread.most, distances(a, b))
            turned = np.isinf(a) & np.isinf(b) & (a != b)  # by a factor that may be 0, too
            spread.wild |= (np.isfinite(a) != np.isfinite(b)) | (np.isnan(a) != np.isnan(b)) | turned
    return results


def _float(x: Array) -> Array:
    return x.astype(np.complex128 if x.dtype.kind == "c" else np.float64)


class Walk:
    """Runs a program on values with errors. `strict`: engines do the same ops in the same order."""

    def __init__(self, strict: bool = False) -> None:
        self.strict = strict

    def kept(self, value: Array, error: Error, dtype: DType, given: bool) -> Approximate:
        """A result with this error; `given` as in `Approximate`."""
        return Approximate(value, error, given=given)

    def block(self, block: Region, arguments: Sequence[Any], context: Context) -> tuple[Any, ...]:
        """Like `evaluate.run_block`, on values with errors."""
        context.check_time()
        local: Env = dict(zip(block.params, arguments, strict=True))
        if (last := context.ends.get(block)) is None:
            context.ends[block] = last = last_uses(block)
        for i, op in enumerate(block.body):
            results = self.step(op, [read(x, local) for x in op.operands], context)
            local.update(zip(op.results, results, strict=True))
            for v in last.get(i, ()):
                local.pop(v, None)
        return tuple(read(x, local) for x in block.results)

    def step(self, op: Op, operands: list[Any], context: Context) -> list[Any]:
        """The results of one op, with their errors."""
        if op.regions:
            return self._branching(op, operands, context)
        named = keywords(op, context, _never)
        values = apply(op, [x.value for x in operands], named, context)
        outputs = [np.asarray(x) for x in flatten(tuple(values))]

        def analyze(pipeline: str) -> tuple[list[Array], list[Error]] | None:
            if (block := _rewritten(op, pipeline)) is None:
                return None
            results = list(flatten(self.block(block, operands, context)))
            return [x.value for x in results], [x.error for x in results]

        given = [x.given for x in operands]
        seen = Step(op, [x.value for x in operands], [x.error for x in operands], outputs, named, analyze, self.strict, given)
        whole = bool(op.defn.traits & (MOVEMENT | CONSTANT)) and all(given)
        leaves = iter([self.kept(*one, whole) for one in zip(outputs, errors_of(seen), seen.dtypes, strict=True)])
        return [nest(v.type, leaves) for v in op.results]

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
        joined = iter([_either(a, b) for a, b in zip(leaves, others, strict=True)])
        return [nest(v.type, joined) for v in op.results]

    def _run(self, op: Op, operands: list[object], context: Context, decisions: Decisions) -> tuple[list[object], int]:
        def call(region: Region) -> Callable[..., tuple[object, ...]]:
            return lambda *arguments: tuple(map(deciding, self.block(region, list(arguments), context)))

        def deciding(x: object) -> object:
            return Approximate(x.value, x.error, decisions, x.given) if isinstance(x, Approximate) else x

        results = apply(op, list(map(deciding, operands)), keywords(op, context, call), context)
        result = (x if isinstance(x, Approximate) else Approximate(np.asarray(x)) for x in flatten(tuple(results)))
        return [nest(v.type, result) for v in op.results], decisions.open


class Perturbed(Walk):
    """Perturbs every result by up to `MOVED` times its error, instead of recording the error.

    In run 0 all are moved up, in run 1 all down, in other runs each element at random. If the error is infinite, results are
    infinite, NaN or unchanged. A computed NaN, and a zero whose sign rewrites may change, is positive in run 0 and negative in
    run 1.
    """

    def __init__(self, run: int, strict: bool = False) -> None:
        super().__init__(strict)
        self.up = (1.0, -1.0)[run] if run < 2 else None
        self.wild = (np.inf, -np.inf, np.nan)[run] if run < 3 else None
        self.random = np.random.Generator(np.random.Philox(run))

    def kept(self, value: Array, error: Error, dtype: DType, given: bool) -> Approximate:
        """The perturbed value."""
        if not dtype.precision or given:
            return Approximate(value, given=given)
        wide = _float(value)
        with np.errstate(all="ignore"):
            if error is not EXACT:
                known = np.isfinite(error)
                wide = wide + MOVED * self._turns(value) * np.where(known, error, 0.0)
                wide = wide if known.all() else np.where(known, wide, self._wild(_float(value)))
            return Approximate(arrays.narrow(self._signed(wide), dtype))

    def _signed(self, x: Array) -> Array:
        """`x` with the signs of this run for its NaN and zeros."""
        if x.dtype.kind == "c":
            turned = np.empty_like(x)
            turned.real, turned.imag = self._signed(x.real), self._signed(x.imag)
            return turned
        free = np.isnan(x) if self.strict else np.isnan(x) | (x == 0)
        if not free.any():
            return x
        negative = self.random.random(x.shape) < 0.5 if self.up is None else self.up < 0
        return np.where(free, np.copysign(x, np.where(negative, -1.0, 1.0)), x)

    def _turns(self, value: Array) -> Array | float:
        if self.up is not None:
            return self.up
        turns = self.random.uniform(-1, 1, value.shape)
        return turns * np.exp(2j * np.pi * self.random.random(value.shape)) if value.dtype.kind == "c" else turns

    def _wild(self, value: Array) -> float | Array:
        if self.wild is not None:
            return self.wild
        chosen = self.random.integers(0, 4, value.shape)
        return np.choose(chosen, [value, np.nan, np.inf, -np.inf])


Env = dict[Value, Any]


def read(x: Operand, env: Env) -> Any:
    """The value of an operand, with its error."""
    if isinstance(x, Literal):
        return Approximate(read_plain(x, {}), given=True)
    return env[x.value][x.index] if isinstance(x, Element) else env[x]


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


def _either(a: Approximate, b: Approximate | None) -> Approximate:
    """`a`, with an error that includes `b`; no bound if there is no `b`."""
    if b is None:
        return Approximate(a.value, np.full(a.shape, np.inf))
    wide = [x.value.astype(np.complex128 if x.value.dtype.kind == "c" else np.float64) for x in (a, b)]
    with np.errstate(all="ignore"):
        gap = distances(*wide)
    sides = [0.0 if x.error is EXACT else x.error for x in (a, b)]
    return Approximate(a.value, np.maximum(sides[0], gap + sides[1]))
