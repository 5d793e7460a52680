"""Raise counts of thresholds, which dialects without quantization use, to `quantize` and `requantize`.

The scale is the number with the same thresholds that has the fewest decimal digits. It is verified by running the body of the op.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptir_tools.core.arrays import Array, from_literal
from ptir_tools.core.dtypes import F32, PTIR_DTYPES, SI32, DType
from ptir_tools.core.ir import Attribute, Operand
from ptir_tools.core.lazy import np
from ptir_tools.dialects.ptir.ops.quantize import to_quantized
from ptir_tools.dialects.ptir.rewrites import helpers
from ptir_tools.dialects.ptir.rewrites.contractions import trace
from ptir_tools.rewrite.constants import literal_of, scalar_of
from ptir_tools.rewrite.patterns import OpView, Pattern, rewrites

_SLACK = 1e-13  # of the ends of the interval, which are rounded
Fit = tuple[float, int, int]  # the width of a step, the zero point of steps, and that of the numbers


@rewrites("ptir.select", operands=["ptir.compare_eq"], at=0, depth=9)
def raise_quantize(op: OpView) -> bool:
    """A count of the thresholds that a float reaches, 0 for a NaN, is `quantize`."""
    test = op.defined_by(op.pred, "compare_eq")
    if test is None or scalar_of(op.on_false) != 0 or test.root.operands[0] is not test.root.operands[1]:
        return False
    count = op.defined_by(op.on_true, "add")
    found = count and _threshold_count(count)
    if not found or found[0] is not test.root.operands[0] or helpers.dtype(found[0]) is not F32:
        return False
    x, table, axis, dtype = found
    low = np.nextafter(table, np.float32(-np.inf))
    fits = [_fit(a, b, dtype, False) for a, b in zip(low, table, strict=True)]
    if any(fit is None for fit in fits):
        return False
    scales, zeros, _ = zip(*(fit for fit in fits if fit), strict=True)
    made = op.rw.build(
        op.root, "quantize", x, output_dtype=dtype, axis=axis, scales=scales, zero_points=zeros if any(zeros) else ()
    )
    return op.replace(op.rw.build(op.root, "cast", made, dtype=SI32))


@rewrites("ptir.add", operands=["ptir.reduce_sum"], depth=7)
def raise_requantize(op: OpView) -> bool:
    """A count of the thresholds that an integer reaches is `requantize`."""
    found = _threshold_count(op)
    if found is None or helpers.dtype(found[0]) is not SI32:
        return False
    x, table, axis, dtype = found
    wide = table.astype(np.int64)
    fits = [_fit(row - 1, row, dtype, True) for row in wide]
    if any(fit is None for fit in fits):
        return False
    widths, outer, inner = zip(*(fit for fit in fits if fit), strict=True)
    attrs: dict[str, Attribute] = {"scales": widths}
    if any(inner):
        attrs["zero_points"] = inner
    if any(outer):
        attrs |= {"output_scales": (1.0,) * len(widths), "output_zero_points": outer}
    made = op.rw.build(op.root, "requantize", x, output_dtype=dtype, axis=axis, **attrs)
    return op.replace(op.rw.build(op.root, "cast", made, dtype=SI32))


def _threshold_count(op: OpView) -> tuple[Operand, Array, int | None, DType] | None:
    """The compared operand, the thresholds [channels, steps], the axis of the channels (None: there is one), and the dtype whose
    lowest value is added to the count."""
    for total, least in ((op.x, op.y), (op.y, op.x)):
        reduce = op.defined_by(total, "reduce_sum")
        cast = op.defined_by(reduce.x, "cast") if reduce is not None else None
        if reduce is None or cast is None or helpers.dtype(cast.root) is not SI32 or reduce.keepdims:
            continue
        last = helpers.rank(reduce.x) - 1
        sides = _compared(op, cast.x)
        lowest = scalar_of(least)
        if sides is None or lowest is None or helpers.axes(reduce.axes, last + 1) != (last,):
            continue
        n = helpers.shape(reduce.x)[last]
        dtype = next((d for d in PTIR_DTYPES if d.is_integer and d.bits <= 8 and d.min == lowest and d.max - d.min == n), None)
        table, x = trace(sides[0]), trace(sides[1])
        literal = literal_of(table.source)
        if dtype is None or literal is None or literal.data is None or helpers.shape(x.source) != helpers.shape(total):
            continue
        own = [i for i in range(last) if table.reads(i)]
        if not table.reads(last) or len(own) > 1 or x.reads(last) or any(a not in (i, None) for i, a in enumerate(x.axes)):
            continue
        found = from_literal(literal)
        order = [a for i in (*own, last) if (a := table.axes[i]) is not None]
        found = found.reshape([d for d in found.shape if d != 1]) if len(order) != found.ndim else found.transpose(order)
        if found.ndim != len(order):
            continue
        return x.source, found.reshape(-1, found.shape[-1]), own[0] if own else None, dtype
    return None


def _compared(op: OpView, mask: Operand) -> tuple[Operand, Operand] | None:
    """The thresholds and the compared operand, where `mask` says that no threshold is above it."""
    if (within := op.defined_by(mask, "compare_le")) is not None:
        return within.root.operands[0], within.root.operands[1]
    negated = op.defined_by(mask, "compare_eq")
    if negated is None or scalar_of(negated.root.operands[1]) is not False:
        return None
    above = op.defined_by(negated.root.operands[0], "compare_gt")
    return None if above is None else (above.root.operands[0], above.root.operands[1])


def _fit(low: Array, high: Array, dtype: DType, scaled: bool) -> Fit | None:
    """A scale and zero points for which step k begins above `low` and at most at `high`; None where none is found.

    `scaled`: the numbers are integers that a scale multiplies, else a scale divides them.
    """
    least, most = low.astype(np.float64), high.astype(np.float64)
    if scaled:
        least[high <= SI32.min] = -np.inf
        most[high >= SI32.max] = np.inf
    k = np.arange(dtype.min + 1, dtype.max + 1)
    known = np.flatnonzero(np.isfinite(least) & np.isfinite(most))
    if len(known) < 2:
        return None
    a, b = known[0], known[-1]
    width = (most[b] - most[a]) / (b - a)
    for outer, inner in _zero_point_candidates(k[a], most[a], width, dtype, scaled):
        m = k - outer - 0.5
        with np.errstate(all="ignore"):
            ends = np.stack([(least - inner) / m, (most - inner) / m])
        bottom, top = float(ends.min(0).max()) * (1 - _SLACK), float(ends.max(0).min()) * (1 + _SLACK)
        if not 0 < bottom <= top < np.inf:
            continue
        number = _shortest(1 / top, 1 / bottom) if scaled else _shortest(bottom, top)
        if _has_thresholds(number, outer, inner, low, high, k, dtype, scaled):
            return number, outer, inner
    return None


def _zero_point_candidates(k: int, at: float, width: float, dtype: DType, scaled: bool) -> Iterator[tuple[int, int]]:
    """Candidate zero points of the result and of the operand for which step `k` begins near `at`; first those without one of the
    operand."""
    plain = round(k - 0.5 - at / width)
    yield from ((z, 0) for z in (plain, plain - 1, plain + 1) if dtype.min <= z <= dtype.max)
    if scaled:
        for z in sorted(range(dtype.min, dtype.max + 1), key=abs):
            middle = round(at - (k - z - 0.5) * width)
            # Thresholds and width are whole numbers near the real ones.
            yield from ((z, middle + off) for off in (0, -1, 1, -2, 2))


def _shortest(low: float, high: float) -> float:
    """The number from `low` to `high` of the fewest decimal digits."""
    middle = (low + high) / 2
    return next((x for digits in range(1, 18) if low <= (x := float(f"{middle:.{digits}g}")) <= high), middle)


def _has_thresholds(number: float, outer: int, inner: int, low: Array, high: Array, k: Array, dtype: DType, scaled: bool) -> bool:
    """Whether each step begins between its bounds."""

    def step(x: Array) -> Array:
        real = (x.astype(np.float64) - inner) * (number if scaled else 1.0)
        return to_quantized(real, None, (1.0 if scaled else number,), (outer,), dtype).astype(np.int64)

    reached, open_ = high < SI32.max if scaled else np.isfinite(high), high > SI32.min if scaled else np.isfinite(high)
    return bool((step(high) >= k)[reached].all() and (step(low) < k)[open_].all())


STEPS: tuple[Pattern, ...] = (raise_quantize, raise_requantize)
