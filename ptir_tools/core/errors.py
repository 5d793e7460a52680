"""Error rules: bounds on the error of a result, from the errors of its operands and the values of this run.

An error is an array of the value's shape: a bound on the difference between any correct engine and the reference, per element.
`EXACT` is no error, infinity is no bound. A rule is the field `error` of an op's declaration; most are one of the functions here,
which run the op's own body in float64. Rules are first order in the roundings and exact in the operands' errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import product

from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import CF64, F32, F64, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import CONSTANT, ELEMENTWISE, MOVEMENT, Attribute, Op, OpDef, operand_type
from ptir_tools.core.lazy import np
from ptir_tools.core.records import dataclass
from ptir_tools.core.typed import Any, cast
from ptir_tools.core.types import NumericType, TensorType, TupleType, Type, leaves, tuple_of
from ptir_tools.core.violations import Violation

EXACT = None
Error = Any  # an array, or EXACT
ROUNDING = 2.01  # in unit roundoffs: the reference rounds once; an engine rounds once, and to f32 before a narrower dtype
ACCUMULATED = 2.0**-24  # narrow floats are computed and accumulated in f32
WALK = 4.0  # see `_walked`
_ALIKE = 0.99  # the square of a sum over that of as many equal terms; above, terms are nearly equal
_MOST = 4  # operands with an error for which corners are tried, at most
_TURNS = (1, -1, 1j, -1j)


def unit(dtype: DType) -> float:
    """The unit roundoff of a float or complex dtype; 0 for integers and i1."""
    return 2.0**-dtype.precision if dtype.precision else 0.0


def fine(dtype: DType) -> float:
    """The unit roundoff in which engines compute values of `dtype`: f32's for narrower floats."""
    return min(unit(dtype), ACCUMULATED)


@dataclass(slots=True)
class Step:
    """One op of a run: its operands and results on the reference, and the error of each operand."""

    op: Op
    operands: Sequence[Array]
    errors: Sequence[Error]
    results: Sequence[Array]
    keywords: dict[str, Attribute]
    analyze: Callable[
        [str], tuple[list[Array], list[Error]] | None
    ]  # results of the ops of a lowering pass; None: of the op itself
    strict: bool = False  # engines compute this op as written
    given: Sequence[bool] = ()  # which operands are inputs or constants: all engines have equal bits
    sampled: bool = False  # samples measure the effect of operand errors on an op without an error rule

    @property
    def ieee(self) -> bool:
        """Whether all engines give the same bits: one rounding of real operands without errors, all of the dtype of the
        result."""
        dtype = self.dtypes[0]
        same = all(leaf_dtypes(operand_type(x)) == [dtype] for x in self.op.operands)
        return self.strict and not self.sampled and dtype.is_float and same and all(e is EXACT for e in self.errors)

    @property
    def dtypes(self) -> list[DType]:
        """The dtypes of the results' leaves."""
        return [leaf for v in self.op.results for leaf in leaf_dtypes(v.type)]

    @property
    def operand_dtypes(self) -> list[DType]:
        """The dtypes of the operands."""
        return [leaf_dtypes(operand_type(x))[0] for x in self.op.operands]

    @property
    def accumulator(self) -> float:
        """The unit roundoff of the accumulator of sums."""
        declared = self.op.attr("accum_dtype") if "accum_dtype" in self.op.defn.attr_index else None
        kept = [leaf_dtypes(operand_type(x))[0] for x in self.op.operands]
        floats = [fine(d) for d in kept if d.precision]
        return unit(declared) if declared is not None else max(floats, default=fine(self.dtypes[0]))

    @property
    def most(self) -> float:
        """The largest number of the accumulator of sums; infinite for integers, which wrap."""
        declared = self.op.attr("accum_dtype") if "accum_dtype" in self.op.defn.attr_index else None
        if declared is not None and declared.is_integer:
            return np.inf
        return largest(declared or self.accumulator_dtype)

    @property
    def accumulator_dtype(self) -> DType:
        """The dtype in which sums are accumulated if no attribute gives another: F64 or F32."""
        return F64 if self.accumulator < ACCUMULATED else F32

    def run(self, operands: Sequence[Data], **given: Attribute) -> list[Array]:
        """The leaves of the body's results on other operands, with floats in float64 and `given` instead of attributes. For
        real operands (magnitudes, errors) they are real, even if the result of the op is complex."""
        wide = {name: _wide(x) for name, x in (self.keywords | given).items()}
        d = self.op.defn
        with np.errstate(all="ignore"):
            answer = d.body(*d.split(self.op.attrs, operands), **wide)
        outputs = [np.asarray(x) for x in (answer if isinstance(answer, tuple) else (answer,))]
        return outputs if any(map(np.iscomplexobj, operands)) else [x.real if np.iscomplexobj(x) else x for x in outputs]

    def sizes(self, operands: Sequence[object], **given: object) -> Array:
        """The results of the body on real numbers that are not negative; the body may return its own complex dtype."""
        result = self.run(operands, **given)[0]
        return result.real if result.dtype.kind == "c" else result

    def absolute(self, k: int, finite: bool = False) -> Array:
        """The magnitudes of an operand in float64; with `finite`, 0 for those that are not finite."""
        x = arrays.widen(self.operands[k])
        size = np.abs(x) if x.dtype.kind in "fc" else np.abs(x.astype(np.float64))
        return np.where(np.isfinite(size), size, 0) if finite else size

    def computed(self, k: int) -> bool:
        """Whether an operand is float or complex, and neither an input nor a constant."""
        return not (self.given and self.given[k]) and bool(leaf_dtypes(operand_type(self.op.operands[k]))[0].precision)

    def sign_may_flip(self, k: int) -> bool:
        """Whether a zero in an operand may have the other sign on another engine."""
        x = self.operands[k]
        if self.strict or not self.computed(k):
            return False
        return bool(np.any((x.real == 0) | (x.imag == 0)) if x.dtype.kind == "c" else np.any(arrays.widen(x) == 0))

    def error(self, k: int) -> Array:
        """The errors of an operand as an array."""
        e = self.errors[k]
        return np.zeros(self.operands[k].shape) if e is EXACT else e


Rule = Callable[[Step], list[Error]]


def leaf_dtypes(t: Type) -> list[DType]:
    """The dtypes of a type's leaves."""
    return [leaf.dtype for leaf in leaves(t) if isinstance(leaf, NumericType)]


def _wide(x: Attribute) -> Attribute:
    """A dtype, or the dtypes of a type, in the precision of the reference."""
    if isinstance(x, DType):
        return F64 if x.is_float else CF64 if x.is_complex else x
    if isinstance(x, TensorType):
        return x.with_dtype(_wide(x.dtype))
    if isinstance(x, TupleType):
        return tuple_of(map(_wide, x.elements))
    return tuple(map(_wide, x)) if type(x) is tuple else x


def rule_of(d: OpDef) -> Rule:
    """The declared rule, or the one that follows from the algebra or the traits; `opaque` for anything else."""
    if d.error is not None:
        return cast("Rule", d.error)
    if d.algebra.monotone == "increasing" and d.traits & ELEMENTWISE:
        return rising(exact=d.algebra.idempotent)
    if d.traits & MOVEMENT:
        return moved()
    if d.traits & CONSTANT:
        return exact
    return pointwise() if d.traits & ELEMENTWISE else opaque


def errors_of(step: Step) -> list[Error]:
    """The error of each leaf of the results. Integers from exact operands are exact. If an index may differ, there is no
    bound."""
    rule = rule_of(step.op.defn)
    if rule is not bits and all(e is EXACT for e in step.errors) and not any(d.precision for d in step.dtypes):
        return [EXACT] * len(step.dtypes)
    try:
        with np.errstate(all="ignore"):
            errors = rule(step)
    except Violation:  # an index or a divisor that is invalid
        return unknown(step)
    if not step.op.defn.traits & (MOVEMENT | CONSTANT):
        errors = [_parts(r, e) for r, e in zip(step.results, errors, strict=True)]
    return [e if e is EXACT or np.any(e) else EXACT for e in errors]


def _parts(result: Array, error: Error) -> Error:
    """`error`, but infinite where a complex result is not finite: which of its parts is NaN or infinite is not defined."""
    if result.dtype.kind != "c" or (finite := np.isfinite(result)).all():
        return error
    return np.where(finite, 0.0 if error is EXACT else error, np.inf)


def exact(step: Step) -> list[Error]:
    """No error: equal bits on every engine."""
    return [EXACT] * len(step.results)


def unknown(step: Step) -> list[Error]:
    """No bound on the result."""
    return [np.full(r.shape, np.inf) for r in step.results]


def pointwise(
    ulp: float = 0.0, pole: int | None = None, exact: bool = False, near: float = 0.0, signed: tuple[int, ...] = ()
) -> Rule:
    """Elementwise, and monotone in every operand within its error: the worst of all corners. `ulp`: the units in the last place
    of f32 (or of its own dtype, where that is wider) by which a kernel may be off, of the result and of `near`. `pole`: the
    operand at whose 0 the result jumps. `signed`: more operands whose sign of zero is visible in real results; in complex results
    the sign of every zero is. `exact`: the result needs no rounding."""
    showing = (*signed, *([] if pole is None else [pole]))

    def rule(step: Step) -> list[Error]:
        shown = range(len(step.operands)) if step.dtypes[0].is_complex else showing
        turning = [k for k in shown if step.sign_may_flip(k)]
        off = [k for k, e in enumerate(step.errors) if e is not EXACT or k in turning]
        result = step.results[0]
        if len(off) > _MOST:
            return unknown(step)
        if step.ieee and not ulp:
            return [EXACT]
        results = []
        corners = [[*_shifted(step.operands[k], step.errors[k])] for k in off]
        corners = [[*_with_zeros_flipped(c)] if k in turning else c for k, c in zip(off, corners, strict=True)]
        for corner in [] if not off else product(*corners):
            operands = list(map(arrays.widen, step.operands))
            for k, x in zip(off, corner, strict=True):
                operands[k] = x
            results.append(step.run(operands)[0])
        error: Error = _spread(step, result, results, ulp, rounds=not exact) if results or not exact else EXACT
        if near:
            error = error + near * 2 * ulp * fine(step.dtypes[0])
        if pole is not None and step.errors[pole] is not EXACT:
            error = np.where(step.absolute(pole) <= step.errors[pole], np.inf, error)
        return [error]

    return rule


def _with_zeros_flipped(corner: list[Array]) -> Iterator[Array]:
    """Each of `corner`, also with the other sign of its zeros; for complex elements, each part separately."""
    for x in corner:
        yield x
        if x.dtype.kind == "c":
            yield np.where(x.real == 0, -x.conj(), x)
            yield np.where(x.imag == 0, x.conj(), x)
        else:
            yield np.where(x == 0, -x, x)


def _shifted(x: Array, e: Error, finite: bool = True) -> Iterator[Array]:
    """`x` plus and minus its error. A float without a bound may be any number: also NaN, or 0 where it is NaN here; with `finite`
    also 0 where it is infinite."""
    if e is EXACT:
        return iter((arrays.widen(x),))
    if x.dtype.kind == "b":
        return iter((x & (e == 0), x | (e > 0)))
    wide = arrays.widen(x)
    if wide.dtype.kind in "iu":
        info = np.iinfo(wide.dtype)
        return iter(
            [np.clip(wide.astype(np.float64) + s * e, info.min, float(info.max) / 1.001).astype(wide.dtype) for s in (-1, 1)]
        )
    unknown = np.isposinf(e)
    around = np.where(unknown, 0, wide)
    corners = [around + s * e for s in (_TURNS if wide.dtype.kind == "c" else (-1, 1))]
    if unknown.any():
        corners.append(np.where(unknown, np.where(np.isnan(wide), 0, np.nan), wide))
        if finite and (endless := unknown & np.isinf(wide)).any():
            corners.append(np.where(endless, 0, wide))
    return iter(corners)


def lipschitz(ulp: float = 0.0) -> Rule:
    """Elementwise, of one operand, with Lipschitz constant 1. Complex operands are tried at their corners."""
    corners = pointwise(ulp)

    def rule(step: Step) -> list[Error]:
        if step.dtypes[0].is_complex:
            return corners(step)
        return [_spread(step, step.results[0], [], ulp) + step.error(0)]

    return rule


def unless(broken: Callable[[Step], Error], rule: Rule) -> Rule:
    """The error by `rule`, but infinite if an operand has an error and `broken` holds, because a jump or pole may be in
    between."""

    def guarded(step: Step) -> list[Error]:
        result = rule(step)
        if all(e is EXACT for e in step.errors):
            return result
        off = np.logical_or.reduce([step.error(k) > 0 for k in range(len(step.operands))])
        return [np.where(off & broken(step), np.inf, 0.0 if e is EXACT else e) for e in result]

    return guarded


def discrete(step: Step) -> list[Error]:
    """Exact for exact operands; otherwise no bound, if no samples show one."""
    known = all(e is EXACT for e in step.errors) or (step.sampled and all(d.precision for d in step.dtypes))
    if known or not step.op.defn.traits & ELEMENTWISE or any(x.shape != step.results[0].shape for x in step.operands):
        return exact(step) if known else unknown(step)
    off = np.logical_or.reduce([step.error(k) > 0 for k in range(len(step.operands))])
    return [np.where(off, np.inf, 0.0)]


def opaque(step: Step) -> list[Error]:
    """An unknown function whose body every engine runs. Exact operands give an exact result, unless it depends on the sign of
    a zero that rewrites may flip. Otherwise there is no bound."""
    turning = [k for k in range(len(step.operands)) if step.sign_may_flip(k)]
    if not turning or any(e is not EXACT for e in step.errors):
        return discrete(step)
    errors: list[Error] = list(exact(step))
    wide = list(map(arrays.widen, step.operands))
    as_is = step.run(wide)
    for zero in (0.0, -0.0):
        others = step.run([np.where(x == 0, zero, x) if k in turning else x for k, x in enumerate(wide)])
        for i, (a, b) in enumerate(zip(as_is, others, strict=True)):
            if np.any(gap := distances(a, b)):
                rounding = ROUNDING * unit(step.dtypes[i]) * np.where(np.isfinite(a), np.abs(a), 0)
                errors[i] = np.maximum(0.0 if errors[i] is EXACT else errors[i], np.where(gap > 0, gap + rounding, 0))
    return errors


def bits(step: Step) -> list[Error]:
    """The bits of one operand: like `discrete`, but a computed NaN may have any bits, and a zero the other sign."""
    (x,), (result,) = step.operands, step.results
    if step.errors[0] is not EXACT or not step.computed(0):
        return discrete(step)
    wide = arrays.widen(x)
    open_ = np.isnan(wide) | (wide == 0) if step.sign_may_flip(0) else np.isnan(wide)
    if x.shape == result.shape[: x.ndim] and x.dtype.kind != "c":
        open_ = open_.reshape((*x.shape, *[1] * (result.ndim - x.ndim)))
        return [np.broadcast_to(np.where(open_, np.inf, 0.0), result.shape)]
    return unknown(step) if step.sign_may_flip(0) or open_.any() else discrete(step)


def as_written(d: OpDef) -> bool:
    """Whether an op computes with the bits of its operands, or by a body of which nothing is known."""
    rule = rule_of(d)
    return rule in (bits, discrete, opaque) or hasattr(rule, "pipeline")


def monotone(step: Step) -> list[Error]:
    """Each result increases with every operand, or is one of the elements: all errors up, and all down. No rounding."""
    return rising(exact=True)(step)


def rising(exact: bool = False) -> Rule:
    """Each result increases with every operand: all errors up, and all down. An operand without a bound may also be NaN."""

    def rule(step: Step) -> list[Error]:
        wide = map(arrays.widen, step.operands)
        corners = [[*_shifted(x, e, finite=False), x] for x, e in zip(wide, step.errors, strict=True)]
        count = 0 if all(e is EXACT for e in step.errors) else max(map(len, corners)) - 1
        ends = [step.run([c[min(k, len(c) - 1)] for c in corners]) for k in range(count)]
        if (exact or step.ieee) and not ends:
            return [EXACT] * len(step.results)
        results = []
        for i, r in enumerate(step.results):
            results.append(_spread(step, r, [e[i] for e in ends], 0.0, rounds=not exact, at=i))
        return results

    return rule


def _spread(step: Step, r: Array, results: list[Array], ulp: float, rounds: bool = True, at: int = 0) -> Array:
    """The largest distance of `results` from the result `r`, plus the rounding of each."""
    dtype = step.dtypes[at]
    wide = arrays.widen(r)
    if not dtype.precision:
        worst = np.zeros(r.shape)
        for f in results:
            worst = np.maximum(worst, np.abs(np.subtract(f, wide, dtype=np.float64)))
        return worst
    relative = (
        max(ROUNDING * unit(dtype), unit(dtype) + 2 * ulp * fine(dtype)) * (4 if dtype.is_complex else 1) if rounds else 0.0
    )
    most = largest(dtype)
    worst = np.zeros(r.shape)
    for f in results or [wide]:
        size = np.abs(f)
        finite = np.isfinite(wide)
        over = np.isinf(wide) & (size * (1 - relative) > most)  # the result overflows on every engine, to the same side
        over &= True if dtype.is_complex else np.signbit(f) == np.signbit(wide)
        gap = np.where(over, 0.0, distances(f, wide)) + relative * np.where(np.isfinite(size), size, 0)
        worst = np.maximum(worst, np.where(finite & (size * (1 + relative) > most), np.inf, gap))
    # The relative error of a number next to the smallest one of f64 is 0 in f64.
    return worst + 2 * smallest(dtype) * ((worst > 0) | (wide != 0)) if rounds else worst


def distances(a: Array, b: Array) -> Array:
    """The distances of wide elements: 0 for equal ones (two NaN are equal), infinite if only one is NaN or infinite."""
    gap = np.abs(a - b)
    return np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.where(np.isnan(gap), np.inf, gap))


def largest(dtype: DType) -> float:
    """The largest finite number of a float dtype, or of a part of a complex one."""
    return float(_info(dtype).max)


def smallest(dtype: DType) -> float:
    """The smallest positive number of a float dtype."""
    return float(_info(dtype).smallest_subnormal)


def normal(dtype: DType) -> float:
    """The smallest positive number of a float dtype that is not subnormal."""
    return float(_info(dtype).smallest_normal)


@cache
def _info(dtype: DType) -> np.finfo:
    kind = arrays.numpy_dtype(dtype)
    return np.finfo(kind) if dtype.is_complex else arrays.float_info(kind)


def moved(data: tuple[int, ...] | None = None, **fill: Attribute) -> Rule:
    """Movement: errors move with their elements. `data`: the operands that are moved (all); others are indices. `fill` are
    attributes that add elements, and values that make them 0."""
    return linear(data, rounds=False, **fill)


def linear(
    data: tuple[int, ...] | None = None, rounds: bool = True, terms: Callable[[Step], Error] | None = None, **fill: object
) -> Rule:
    """Sums of elements of the operands `data`: errors add up, and each addition rounds in the accumulator. `terms`: the number of
    terms of which the result is the mean. `fill` as in `moved`."""

    def rule(step: Step) -> list[Error]:
        chosen = range(len(step.operands)) if data is None else data
        if any(e is not EXACT for k, e in enumerate(step.errors) if k not in chosen):
            return unknown(step)
        error: Error = 0.0
        if any(step.errors[k] is not EXACT for k in chosen):
            error = step.sizes([step.error(k) if k in chosen else x for k, x in enumerate(step.operands)], **fill)
            error = np.where(np.isnan(error), np.inf, error)
        if rounds and step.dtypes[0].precision:
            error = error + _summed(step, chosen, terms, fill)
        return [error if np.shape(error) == step.results[0].shape else np.broadcast_to(error, step.results[0].shape)]

    return rule


def _summed(step: Step, chosen: Sequence[int], terms: Callable[[Step], Error] | None, fill: dict[str, object]) -> Array:
    def total(power: int = 1, finite: bool = False) -> Array:
        return step.sizes([step.absolute(k, finite) ** power if k in chosen else x for k, x in enumerate(step.operands)], **fill)

    ones = [np.ones(x.shape) if k in chosen else x for k, x in enumerate(step.operands)]
    count = step.sizes(ones, **fill) if terms is None else terms(step)
    by = 1 if terms is None else count
    sizes, walked = _walked(
        step, count, lambda: total() * by, lambda: total(power=2) * by, np.abs(arrays.widen(step.results[0])) * by
    )
    error = _accumulated(step, walked / np.maximum(by, 1), sizes / np.maximum(by, 1))
    return np.where(_overflowing(step, sizes, lambda: total(finite=True) * by), np.inf, error)


def _walked(
    step: Step, terms: Error, total: Callable[[], Array], squares: Callable[[], Array], result: Array
) -> tuple[Array, Array]:
    """The sum of the magnitudes of `terms` numbers, or a bound on it, and the error of adding them up in any order: at most the
    sum of magnitudes times `terms` roundings.

    Rounding errors do not reach the worst case: each addition is off by a rounding of the partial sum, and the total error is a
    random walk.  With terms in random order, the root mean square of the partial sums is below r = sqrt(`result`^2 + `squares`).
    The standard deviation of the error is then below 0.3 sqrt(n) roundings of r. The bound of `WALK` sqrt(n) roundings of r is 13
    times that. If terms are nearly equal, their roundings are, too, and the worst case holds.
    """
    most = np.max(terms, initial=0)
    if most <= WALK**2 or step.accumulator < ACCUMULATED or not np.isfinite(result).all():
        sizes = total()
        return sizes, sizes * np.minimum(terms, np.inf if most <= WALK**2 else WALK * np.sqrt(terms)) * step.accumulator
    power = squares()
    sizes = np.sqrt(power * terms)  # an upper bound of the sum of the magnitudes
    alike = result**2 > _ALIKE * power * terms
    walk = np.where(alike, np.inf, WALK * np.sqrt(terms * (result**2 + power)))
    if not np.all(sizes <= step.most):
        sizes = total()
    return sizes, np.minimum(sizes * terms, walk) * step.accumulator


def _overflowing(step: Step, total: Array, finite: Callable[[], Array]) -> bool | Array:
    """Where the accumulator may overflow in some order: magnitudes sum up to `total`, the finite ones to `finite`."""
    return False if np.all(total <= step.most) else ~(finite() <= step.most)


def _accumulated(step: Step, error: Array, total: Array) -> Array:
    """`error` of a sum whose magnitudes sum up to `total`, with the rounding of the result; infinite where it may overflow."""
    dtype = step.dtypes[0]
    wide = arrays.widen(step.results[0])
    narrowed = max((unit(dtype) - unit(leaf_dtypes(operand_type(x))[0]) for x in step.op.operands[:1]), default=0.0)
    if narrowed > 0:
        error = error + 2 * narrowed * total  # a source that is cast before the sum
    # In f64 the reference rounds as often as an engine.
    error = error * (2 if dtype.is_complex or fine(dtype) < ACCUMULATED else 1)
    rounding = (ROUNDING * unit(dtype) + 2 * step.accumulator) * np.abs(wide)
    error = np.where(np.isfinite(wide), error + rounding, 0) + 2 * smallest(dtype)
    may_overflow = np.where(np.isfinite(wide), np.abs(wide) + error > largest(dtype), total * (1 - 1e-6) <= largest(dtype))
    undecided = may_overflow & ~np.isnan(wide)
    partly = ~np.isfinite(wide) & ~np.isfinite(total)  # an operand is infinite or NaN, and so is the result
    return np.where(undecided & ~partly, np.inf, error)


def products(terms: Callable[[Step], int]) -> Rule:
    """Sums of `terms` products of one element of each operand: `|a| eb + ea |b| + n u |a| |b|`."""

    def rule(step: Step) -> list[Error]:
        a, b = step.absolute(0), step.absolute(1)
        if not step.dtypes[0].precision:
            return [EXACT] if all(e is EXACT for e in step.errors) else unknown(step)
        n = terms(step)
        size = np.abs(arrays.widen(step.results[0]))
        total, error = _walked(step, n, lambda: step.sizes([a, b]), lambda: step.sizes([a**2, b**2]), size)
        underflows = (total > 0) * smallest(step.accumulator_dtype)
        error = error + 2 * n * underflows
        if step.errors[0] is not EXACT:
            error = error + step.sizes([step.errors[0], b + step.error(1)])
        if step.errors[1] is not EXACT:
            error = error + step.sizes([a, step.errors[1]])
        error = np.where(np.isnan(error), np.inf, error)
        error = _accumulated(step, np.where(np.isfinite(total), error, 0), total)
        overflowing = _overflowing(
            step, total, lambda: step.sizes([step.absolute(0, finite=True), step.absolute(1, finite=True)])
        )
        return [np.where(overflowing | _open(step, a, b), np.inf, error)]

    return rule


def _open(step: Step, a: Array, b: Array) -> bool | Array:
    """Where a term may have any value: a factor has no bound, or an infinity is multiplied by a value that may be 0 or of either
    sign. Not where another term makes the sum NaN on every engine."""
    open_: bool | Array = False

    def met(k: int, x: Array, other: Array) -> Array:
        pair = [x.astype(np.float64), other.astype(np.float64)]
        return step.sizes(pair if k == 0 else pair[::-1]) > 0

    sides = ((0, a, b), (1, b, a))
    for k, x, other in sides:
        if step.errors[k] is not EXACT and (unknown := np.isposinf(step.error(k))).any():
            open_ = open_ | met(k, unknown, np.ones(other.shape))
        if step.errors[1 - k] is not EXACT and np.isinf(x).any():
            open_ = open_ | met(k, np.isinf(x), np.asarray(other <= step.error(1 - k)))
    if open_ is not False:
        for k, x, other in sides:
            open_ = open_ & ~met(k, np.isnan(x) & np.isfinite(step.error(k)), np.ones(other.shape))
    return open_


def by(name: str, **rules: Rule) -> Rule:
    """The rule selected by the value of the attribute `name`; `monotone` for any other."""
    return lambda step: rules.get(step.op.attr(name), monotone)(step)


def through(pipeline: str, otherwise: Rule = unknown) -> Rule:
    """The errors of the ops to which `pipeline` lowers this one; `otherwise` if it leaves the op unchanged."""

    def rule(step: Step) -> list[Error]:
        if (result := step.analyze(pipeline)) is None:
            return otherwise(step)
        pairs = zip(step.results, *result, strict=True)
        return [distances(arrays.widen(value), arrays.widen(r)) + (0.0 if e is EXACT else e) for r, value, e in pairs]

    rule.__dict__["pipeline"] = pipeline
    return rule


def multiplied(data: tuple[int, ...] = (0,)) -> Rule:
    """Products of elements of the operands `data`: relative errors add up, and each multiplication rounds in the accumulator.
    No bound where, in some order, a partial product overflows or is subnormal."""

    def rule(step: Step) -> list[Error]:
        others = [e for k, e in enumerate(step.errors) if k not in data]
        return unknown(step) if any(e is not EXACT for e in others) else _multiplied(step, data)

    return rule


def _multiplied(step: Step, data: tuple[int, ...]) -> list[Error]:
    dtype = step.dtypes[0]
    if not dtype.precision:
        return discrete(step)

    def products(factor: Callable[[int], Array]) -> Array:
        return step.sizes([factor(k) if k in data else x for k, x in enumerate(step.operands)])

    def logs(k: int) -> Array:
        x = step.absolute(k)
        return np.log2(np.where((x > 0) & np.isfinite(x), x, 1))

    def summed(values: Callable[[int], Array], scale: float) -> Array:
        """Sums of numbers that are not negative, by the op's own products: 2**(a + b) is 2**a * 2**b."""
        return np.log2(products(lambda k: np.exp2(values(k) * scale))) / scale

    total, most = products(step.absolute), products(lambda k: step.absolute(k) + step.error(k))
    count = summed(lambda k: np.ones(step.operands[k].shape), 2.0**-12)
    info = _info(step.accumulator_dtype)
    high, low = summed(lambda k: np.maximum(logs(k), 0), 2.0**-8), summed(lambda k: np.maximum(-logs(k), 0), 2.0**-8)
    unknown_factors = summed(lambda k: np.isposinf(step.error(k)).astype(np.float64), 2.0**-12) > 0
    leaves = unknown_factors | ~((high < info.maxexp - 2) & (low < -info.minexp - 2))
    off = most - total + count * step.accumulator * most
    error = np.where(np.isfinite(most), off, np.where(np.isfinite(total), np.inf, 0))
    return [np.where(leaves, np.inf, _accumulated(step, np.where(np.isnan(error), 0, error), total))]


def together(step: Step) -> list[Error]:
    """The maximum of all operands' errors: the result consists of their elements."""
    return [exact(step)[0] if all(e is EXACT for e in step.errors) else sum(step.error(k) for k in range(len(step.operands)))]


def ordered(keys: str) -> Rule:
    """A sort of operands along an axis by the first `keys` of them: sorted elements increase with the keys."""

    def rule(step: Step) -> list[Error]:
        if all(e is EXACT for e in step.errors[: step.op.attr(keys)]):
            moved = step.run([x if k < step.op.attr(keys) else step.error(k) for k, x in enumerate(step.operands)])
            return [EXACT if e is EXACT else m for e, m in zip(step.errors, moved, strict=True)]
        return monotone(step) if len(step.operands) == 1 else unknown(step)

    return rule


def ranked(axis: str = "axis", places: int = 0, largest: bool = True) -> Rule:
    """Indices of the `largest` (or smallest) elements along the attribute `axis`, in leaf `places`; leaf 0 of two has the
    elements."""

    def rule(step: Step) -> list[Error]:
        x, e = arrays.widen(step.operands[0]), step.errors[0]
        x = x if largest else -x.astype(np.float64)
        if e is EXACT:
            return [EXACT] * len(step.results)
        at = step.op.attr(axis) % x.ndim
        low, high = (np.sort(side, axis=at) for side in [*_shifted(x, e)][:2])
        # Where intervals of the sorted axis overlap, the indices may differ.
        touching = np.any(np.take(high, range(x.shape[at] - 1), at) >= np.take(low, range(1, x.shape[at]), at), at, keepdims=True)
        wrong = np.where(touching, np.inf, 0.0) if places else _contested(x, e, at)
        kept = np.broadcast_to(wrong if places or step.op.attr("keepdims") else np.squeeze(wrong, at), step.results[places].shape)
        return [*monotone(step)[:places], kept]

    return rule


def _contested(x: Array, e: Array, at: int) -> Array:
    """Infinite if more than one element along an axis may be the largest."""
    best = np.max(x - e, axis=at, keepdims=True)
    many = np.sum(x + e >= best, axis=at, keepdims=True) > 1
    return np.where(many | np.isnan(best), np.inf, 0.0)
