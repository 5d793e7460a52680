"""What ops that compute give, by hand: a function of operands and attributes for each, its answer a `Want`."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from tests.oracles.check import Want, default_accum, saturated, wide
from tests.ptir.oracle import COMPLEX, FLOATS, INTEGERS, NAME, NUMPY, rounded, wrap

Meaning = Callable[..., Any]
MEANING: dict[str, Meaning] = {}


def means(names: str) -> Callable[[Meaning], Meaning]:
    """Declare the meaning of the ops `names`."""

    def declare(meaning: Meaning) -> Meaning:
        MEANING.update(dict.fromkeys(names.split(), meaning))
        return meaning

    return declare


def each(function: Callable[..., Any], *xs: np.ndarray) -> np.ndarray:
    """`function` of Python numbers, element by element."""
    out = np.empty(xs[0].shape, object)
    out.reshape(-1)[:] = [function(*v) for v in zip(*(x.reshape(-1).tolist() for x in xs), strict=True)]
    return out


def numbers(x: np.ndarray) -> np.ndarray:
    """The elements as Python numbers, which never warn."""
    return each(lambda v: v, wide(x))


def name_of(dtype: Any, default: str) -> str:
    """The name of a dtype attribute, `default` for None."""
    return default if dtype is None else str(dtype)


def larger(a: Any, b: Any) -> Any:
    """The larger number; NaN when either is."""
    return a if a != a or a > b else b


def smaller(a: Any, b: Any) -> Any:
    """The smaller number; NaN when either is."""
    return a if a != a or a < b else b


def quotient(a: int, b: int) -> int:
    """Integer division toward zero."""
    return abs(a) // abs(b) * (-1 if (a < 0) != (b < 0) else 1)


# ---- elementwise

LIBRARY = {"exp": np.exp, "log": np.log, "tanh": np.tanh, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / x}
EXACT = {
    "neg": lambda x: -x, "abs": abs, "add": lambda x, y: x + y, "sub": lambda x, y: x - y, "mul": lambda x, y: x * y,
    "maximum": larger, "minimum": smaller, "clamp": lambda x, a, b: smaller(larger(x, a), b),
}  # fmt: skip
COMPARE = {
    "compare_lt": lambda a, b: a < b, "compare_le": lambda a, b: a <= b, "compare_eq": lambda a, b: a == b,
    "compare_ge": lambda a, b: a >= b, "compare_gt": lambda a, b: a > b, "compare_ne": lambda a, b: a != b,
}  # fmt: skip


def _library(function: Callable[..., Any]) -> Meaning:
    def meaning(x: np.ndarray) -> Want:
        with np.errstate(all="ignore"):
            value = function(wide(x))
        return Want(value, NAME[x.dtype], 6, np.abs(value))

    return meaning


def _exact(function: Callable[..., Any]) -> Meaning:
    return lambda *xs: Want(_numbers(each(function, *map(wide, xs)), NAME[xs[0].dtype]), NAME[xs[0].dtype])


def _compared(function: Callable[..., Any]) -> Meaning:
    return lambda x, y: each(function, wide(x), wide(y)).astype(np.bool_)


def _numbers(value: np.ndarray, dtype: str) -> np.ndarray:
    """Python numbers as the array that `Want` holds."""
    kind = np.complex128 if dtype in COMPLEX else np.float64 if dtype in FLOATS else object
    return np.asarray(value, object).astype(kind)


MEANING |= {name: _library(f) for name, f in LIBRARY.items()}
MEANING |= {name: _exact(f) for name, f in EXACT.items()}
MEANING |= {name: _compared(f) for name, f in COMPARE.items()}


@means("erf")
def erf(x: np.ndarray) -> Want:
    """The C library's."""
    value = each(math.erf, wide(x)).astype(np.float64)
    return Want(value, NAME[x.dtype], 8, np.abs(value))


@means("div")
def div(x: np.ndarray, y: np.ndarray) -> Want:
    """IEEE, or toward zero."""
    if NAME[x.dtype] in INTEGERS:
        return Want(each(quotient, wide(x), wide(y)), NAME[x.dtype])
    with np.errstate(all="ignore"):
        return Want(wide(x) / wide(y), NAME[x.dtype])


@means("cast")
def cast(x: np.ndarray, dtype: Any) -> Any:
    """The contract's table, and `x != 0` for i1."""
    return converted(wide(x), NAME[x.dtype], str(dtype))


def converted(values: np.ndarray, source: str, target: str) -> Any:
    """Numbers of one dtype in another, by the same table."""
    if target == "i1":
        return each(lambda v: v != 0, values).astype(np.bool_)
    if target in FLOATS or target in COMPLEX:
        return integer_to_float(values, target) if source in INTEGERS else Want(values, target)
    if source in FLOATS:
        values = each(truncated, values)
    return saturated(values, target)


def truncated(v: float) -> int:
    """Toward zero; 0 for NaN, and more than any integer dtype holds for infinities."""
    return 0 if v != v else int(math.copysign(1 << 99, v)) if math.isinf(v) else math.trunc(v)


def integer_to_float(values: np.ndarray, target: str) -> Want:
    """The nearest, ties to even. What is under the leading 53 bits only matters as more than nothing: it becomes one odd bit."""

    def sticky(v: int) -> float:
        shift = max(abs(v).bit_length() - 53, 0)
        kept = abs(v) >> shift
        return math.copysign((kept | (abs(v) != kept << shift)) << shift, v)

    if target in ("f64", "cf64"):
        return Want(each(float, values), target)
    return Want(each(sticky, values).astype(np.float64), target)


# ---- reductions and contractions


def fold(x: np.ndarray, axes: tuple[int, ...], keepdims: bool, step: Callable[[Any, Any], Any], start: Any) -> np.ndarray:
    """The elements combined over `axes`, in row-major order."""
    gone = {a % x.ndim for a in axes} if x.ndim else set()
    out = np.full([1 if i in gone else n for i, n in enumerate(x.shape)], start, object)
    for at, v in zip(np.ndindex(x.shape), x.reshape(-1).tolist(), strict=True):
        to = tuple(0 if a in gone else k for a, k in enumerate(at))
        out[to] = step(out[to], v)
    return out if keepdims else out.reshape([n for i, n in enumerate(x.shape) if i not in gone])


def plus(a: Any, b: Any) -> Any:
    """The sum."""
    return a + b


def start_of(kind: str, dtype: str) -> Any:
    """What a reduction of nothing gives."""
    if kind == "sum":
        return 0
    if dtype in FLOATS:
        edge = math.inf if kind == "min" else -math.inf
        return math.nan if dtype == "fp8_e4m3" else edge  # which has no infinity
    return int(saturated(np.array([(1 << 99) * (1 if kind == "min" else -1)], object), dtype)[0])


def combined(kind: str, reduce: Callable[[np.ndarray, Any, Any], np.ndarray], x: np.ndarray, accum: Any, out: Any) -> Want:
    """A reduction of `x`: `reduce(elements, step, start)` says over what. Integers wrap in `accum` and saturate in `out`."""
    dtype = NAME[x.dtype]
    accum, out = name_of(accum, default_accum(dtype)), name_of(out, dtype)
    values = numbers(x)
    if kind == "sum":
        total = reduce(values, plus, 0)
        counts = reduce(each(lambda v: 1, values), plus, 0)
        scale = reduce(each(abs, values), plus, 0).astype(np.float64)
        steps = float(max(counts.reshape(-1).tolist(), default=0)) + 1
    else:
        first = {"max": -math.inf, "min": math.inf}[kind] if dtype in FLOATS else start_of(kind, dtype)
        total, scale, steps = reduce(values, {"max": larger, "min": smaller}[kind], first), 0.0, 0.0
    if dtype in INTEGERS:
        return converted(wide(wrap(total, accum)), accum, out)
    if out in (*INTEGERS, "i1"):
        return converted(wide(rounded(_numbers(total, dtype), accum)), accum, out)
    return Want(_numbers(total, dtype), out, steps, scale, accum)


@means("reduce_sum reduce_max reduce_min")
def reduced(
    x: np.ndarray, *, name: str, axes: Any, keepdims: bool = False, accum_dtype: Any = None, out_dtype: Any = None
) -> Want:
    """Over axes."""
    return combined(name[7:], lambda v, step, start: fold(v, axes, keepdims, step, start), x, accum_dtype, out_dtype)


@means("reduce_window")
def window_reduced(
    x: np.ndarray,
    *,
    window_dims: Any,
    strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
    reduce: str,
    accum_dtype: Any = None,
) -> Want:
    """Over every placement of a window, tap by tap."""
    count = [
        0 if (n, p) == (0, (0, 0)) else (((n - 1) * b + 1 if n else 0) + sum(p) - ((w - 1) * d + 1)) // s + 1
        for n, w, s, p, b, d in zip(x.shape, window_dims, strides, padding, base_dilation, window_dilation, strict=True)
    ]

    def under(values: np.ndarray, step: Callable[[Any, Any], Any], start: Any) -> np.ndarray:
        out = np.full(count, start, object)
        for at in np.ndindex(out.shape):
            for tap in product(*map(range, window_dims)):
                place = [i * s + t * d - p[0] for i, s, t, d, p in zip(at, strides, tap, window_dilation, padding, strict=True)]
                if all(w % b == 0 and 0 <= w // b < n for w, b, n in zip(place, base_dilation, x.shape, strict=True)):
                    out[at] = step(out[at], values[tuple(w // b for w, b in zip(place, base_dilation, strict=True))])
        return out

    return combined(reduce, under, x, accum_dtype, None)


@means("segment_reduce")
def segmented(data: np.ndarray, ids: np.ndarray, *, kind: str, num_segments: int, accum_dtype: Any = None, **_: Any) -> Want:
    """Row by row into the segments."""

    def rows(values: np.ndarray, step: Callable[[Any, Any], Any], start: Any) -> np.ndarray:
        out = np.full((num_segments, *data.shape[1:]), start, object)
        for row, segment in enumerate(ids.tolist()):
            for at in np.ndindex(data.shape[1:]):
                out[(segment, *at)] = step(out[(segment, *at)], values[(row, *at)])
        return out

    return combined(kind, rows, data, accum_dtype, None)


@means("argmax")
def argmax(x: np.ndarray, *, axis: int, keepdims: bool = False, output_dtype: Any = None) -> np.ndarray:
    """The first of the largest; a NaN is larger than all."""
    rows = np.moveaxis(wide(x), axis, -1)
    out = np.empty(rows.shape[:-1], NUMPY[name_of(output_dtype, "si32")])
    for at in np.ndindex(out.shape):
        row = rows[at].tolist()
        out[at] = max(range(len(row)), key=lambda i: (row[i] != row[i], row[i] if row[i] == row[i] else 0, -i))
    return np.expand_dims(out, axis) if keepdims else out


@means("top_k")
def top_k(x: np.ndarray, *, k: int, axis: int = -1, largest: bool = True, indices_dtype: Any = None) -> tuple[Any, Any]:
    """Sorted by number, NaN above all, then by index."""
    moved, rows = np.moveaxis(x, axis, -1), np.moveaxis(wide(x), axis, -1)
    values = np.empty((*rows.shape[:-1], k), x.dtype)
    places = np.empty(values.shape, NUMPY[name_of(indices_dtype, "si32")])
    for at in np.ndindex(rows.shape[:-1]):
        row = rows[at].tolist()
        numbered = [(v != v, 0 if v != v else v) for v in row]
        order = sorted(range(len(row)), key=lambda i: numbered[i], reverse=largest)  # stable, in reverse too
        places[at] = order[:k]
        values[at] = moved[at][order[:k]]
    return np.moveaxis(values, -1, axis), np.moveaxis(places, -1, axis)


@means("dot_general")
def dot_general(
    x: np.ndarray,
    y: np.ndarray,
    *,
    batch_lhs: Any,
    batch_rhs: Any,
    contract_lhs: Any,
    contract_rhs: Any,
    accum_dtype: Any = None,
    out_dtype: Any = None,
) -> Want:
    """Every product of every sum."""
    dtype, letters = NAME[x.dtype], iter("abcdefghijklmnop")
    left, right = [""] * x.ndim, [""] * y.ndim
    for i, j in zip((*batch_lhs, *contract_lhs), (*batch_rhs, *contract_rhs), strict=True):
        left[i] = right[j] = next(letters)
    left, right = [s or next(letters) for s in left], [s or next(letters) for s in right]
    summed = {left[i] for i in contract_lhs}
    free = [s for s in left if s not in summed and s not in right], [s for s in right if s not in left]
    spec = f"{''.join(left)},{''.join(right)}->{''.join([left[i] for i in batch_lhs] + free[0] + free[1])}"
    accum, out = name_of(accum_dtype, default_accum(dtype)), name_of(out_dtype, dtype)
    values = [wide(v) for v in (x, y)]
    total = np.asarray(np.einsum(spec, *values))
    if dtype in INTEGERS:
        return converted(wide(wrap(total, accum)), accum, out)
    if out in (*INTEGERS, "i1"):
        return converted(wide(rounded(total, accum)), accum, out)
    depth = math.prod(x.shape[i] for i in contract_lhs)
    return Want(total, out, depth + 1, np.einsum(spec, *map(np.abs, values)), accum)


@means("layer_norm")
def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, epsilon: float, feature_axis: int) -> Want:
    """Row by row, with the biased variance."""
    rows, g, b = np.moveaxis(wide(x), feature_axis, -1), wide(gamma), wide(beta)
    value, scale = np.empty_like(rows), np.empty_like(rows)
    for at in np.ndindex(rows.shape[:-1]):
        row = rows[at].tolist()
        with np.errstate(all="ignore"):
            centered = rows[at] - sum(row) / max(len(row), 1)
            deviation = np.sqrt(sum(np.square(centered)) / max(len(row), 1) + epsilon)
            value[at] = centered / deviation * g + b
            scale[at] = np.abs(g) * max(map(abs, row), default=0) / deviation * 2 + np.abs(b)
    steps = 8.0 + rows.shape[-1]
    return Want(np.moveaxis(value, -1, feature_axis), NAME[x.dtype], steps, np.moveaxis(scale, -1, feature_axis))


# ---- quantization


def along(values: tuple[Any, ...], x: np.ndarray, axis: int | None, missing: Any) -> np.ndarray:
    """For every element of `x`, its scale or zero point."""
    out = np.empty(x.shape, object)
    for at in np.ndindex(x.shape):
        out[at] = values[0 if axis is None else at[axis]] if values else missing
    return out


def to_steps(real: np.ndarray, axis: int | None, scales: Any, zeros: Any, dtype: str) -> Any:
    """The nearest steps, ties to even, saturated; 0 for NaN. A float result has no steps."""
    if dtype in FLOATS:
        with np.errstate(all="ignore"):
            return Want(real / along(scales, real, axis, 1.0).astype(np.float64), dtype)

    def step(v: float, scale: float, zero: int) -> int:
        q = v / scale
        return 0 if q != q else (round(q) + zero if math.isfinite(q) else truncated(q))

    return saturated(each(step, real, along(scales, real, axis, 1.0), along(zeros, real, axis, 0)), dtype)


@means("quantize")
def quantize(x: np.ndarray, *, output_dtype: Any, axis: int | None = None, scales: Any = (), zero_points: Any = ()) -> Any:
    """A cast without scales."""
    return to_steps(wide(x), axis, scales, zero_points, str(output_dtype)) if scales else cast(x, output_dtype)


@means("dequantize")
def dequantize(
    x: np.ndarray, *, output_dtype: Any = None, axis: int | None = None, scales: Any = (), zero_points: Any = ()
) -> Want:
    """What the steps mean."""
    if not scales:
        return cast(x, name_of(output_dtype, "f32"))
    values = wide(x)
    real = each(lambda q, s, z: float(q - z) * s, values, along(scales, values, axis, 1.0), along(zero_points, values, axis, 0))
    return Want(real.astype(np.float64), name_of(output_dtype, "f32"), 4, np.abs(real.astype(np.float64)))


@means("requantize")
def requantize(
    x: np.ndarray,
    *,
    output_dtype: Any,
    axis: int | None = None,
    scales: Any = (),
    zero_points: Any = (),
    output_scales: Any = (),
    output_zero_points: Any = (),
) -> Any:
    """What the steps mean, quantized again."""
    if not scales and not output_scales:
        return cast(x, output_dtype)
    values = wide(x)
    real = each(lambda q, s, z: float(q - z) * s, values, along(scales, values, axis, 1.0), along(zero_points, values, axis, 0))
    return to_steps(real, axis, output_scales, output_zero_points, str(output_dtype))
