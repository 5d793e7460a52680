"""PTIR ops to JAX: the table of lowerings. Floats narrower than f32 are computed in f32 and rounded once, 4-bit integers in 8
bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product

from ptir_tools.bridges.xla.tracing import Lowering, Tracing, dtype_of
from ptir_tools.core import arrays
from ptir_tools.core.dtypes import F32, F64, I1, SI8, SI32, UI8, DType
from ptir_tools.core.evaluate import Data
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import lazy, np
from ptir_tools.core.typed import TYPE_CHECKING
from ptir_tools.core.types import TensorType, TupleType
from ptir_tools.dialects.ptir.ops import numerics, scalars
from ptir_tools.dialects.ptir.ops.scatter import index_vector_axis, window_extents
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.rewrite import vocabulary

if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax import Array as X
    from jax import lax
else:
    jax = lazy("jax")
    jnp = lazy("jax.numpy")
    lax = lazy("jax.lax")

LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Callable[..., object]], object]:
    """Declare the lowering of the ops `names`: a function of the op, the trace and the operands."""

    def declare(function: Callable[..., object]) -> object:
        LOWERINGS.update({f"ptir.{name}": lambda op, xs, t: function(op, t, *xs) for name in names})
        return function

    return declare


# ---- dtypes


def widened(dtype: DType) -> DType:
    """The dtype in which JAX computes `dtype`."""
    if dtype.is_float:
        return F64 if dtype is F64 else F32
    if dtype.bits == 4:
        return SI8 if dtype.is_signed else UI8
    return dtype


def wide(x: X, dtype: DType) -> X:
    """`x`, of `dtype`, in the dtype in which it is computed."""
    return x.astype(arrays.numpy_dtype(widened(dtype)))


def narrow(x: X, dtype: DType) -> X:
    """A computed value converted to `dtype`: floats are rounded, integers wrap."""
    if dtype.bits == 4:
        low = x.astype(jnp.int8) & 15
        x = (low ^ 8) - 8 if dtype.is_signed else low
    return x.astype(arrays.numpy_dtype(dtype))


def widest(kind: str) -> np.dtype:
    """The widest dtype of a kind (`int`, `uint`, `float`) that JAX is allowed to use."""
    result: np.dtype = jnp.dtype(f"{kind}{64 if jax.config.jax_enable_x64 else 32}")
    return result


def result_of(op: Op) -> TensorType:
    """The type of the result, one tensor."""
    t = op.results[0].type
    assert isinstance(t, TensorType)
    return t


def cast(x: X, source: DType, target: DType) -> X:
    """By the cast table of the contract: to integers saturated, NaN is 0; to i1 `x != 0`."""
    if source is target:
        return x
    if target is I1:
        return wide(x, source) != 0 if source is not I1 else x
    if target.is_complex:
        return x.astype(arrays.numpy_dtype(target))
    if target.is_float:
        return narrow(wide(x, source) if source is not I1 else x, target)
    if source is I1:
        return x.astype(arrays.numpy_dtype(target))
    if source.is_float:
        value = jnp.where(jnp.isnan(x), jnp.zeros((), x.dtype), x)
        value = wide(value, source)
        result = narrow(value.astype(arrays.numpy_dtype(widened(target))), target)
        result = jnp.where(value >= float(target.max), jnp.asarray(target.max, result.dtype), result)
        return jnp.where(value <= float(target.min), jnp.asarray(target.min, result.dtype), result)
    value = wide(x, source)
    low, high = max(target.min, widened(source).min), min(target.max, widened(source).max)
    return jnp.clip(value, jnp.asarray(low, value.dtype), jnp.asarray(high, value.dtype)).astype(arrays.numpy_dtype(target))


# ---- element by element


def _in_one_rounding(x: X) -> X:
    """`x`; complex numbers in twice the precision where JAX may, since products of their parts may overflow."""
    return x.astype(np.complex128) if x.dtype == np.complex64 and jax.config.jax_enable_x64 else x


def maps(name: str, function: Callable[..., X]) -> None:
    """Lower the op `name` to `function`, elementwise; a Boolean result stays i1."""

    def lowering(op: Op, xs: Sequence[X], t: Tracing) -> X:
        result = function(*(_in_one_rounding(wide(x, dtype_of(op, i))) for i, x in enumerate(xs)))
        return result if result.dtype == bool else narrow(result, result_of(op).dtype)

    LOWERINGS[f"ptir.{name}"] = lowering


def _even(x: X) -> X:
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


# Functions of `jax.numpy` and of `jax.lax` that are one op, element by element.
_OF_NUMPY = {
    "neg": "negative", "abs": "abs", "exp": "exp", "log": "log", "tanh": "tanh", "add": "add",
    "sub": "subtract", "mul": "multiply", "maximum": "maximum", "minimum": "minimum", "compare_lt": "less",
    "compare_le": "less_equal", "compare_eq": "equal", "compare_ge": "greater_equal", "compare_gt": "greater",
    "compare_ne": "not_equal", "sin": "sin", "cos": "cos", "tan": "tan", "asin": "arcsin", "acos": "arccos", "atan": "arctan",
    "sinh": "sinh", "cosh": "cosh", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "log1p": "log1p",
    "expm1": "expm1", "cbrt": "cbrt", "floor": "floor", "ceil": "ceil", "is_finite": "isfinite", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "bitwise_not": "bitwise_not", "real": "real", "imag": "imag",
}  # fmt: skip
_OF_LAX = ("erf", "atan2", "erf_inv", "lgamma", "digamma", "complex")
for _name, _called in _OF_NUMPY.items():
    maps(_name, lambda *xs, called=_called: getattr(jnp, called)(*xs))
for _name in _OF_LAX:
    maps(_name, lambda *xs, called=_name: getattr(lax, called)(*xs))
maps("reciprocal", lambda x: 1 / x)
maps("rsqrt", lambda x: 1 / jnp.sqrt(x))
maps("clamp", lambda x, lo, hi: jnp.minimum(jnp.maximum(x, lo), hi))
maps("round_even", _even)
maps("round_away", lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO))
maps("sign", lambda x: jnp.where(x == 0, x, jnp.sign(x)))


def _divided(function: Callable[[X, X], X]) -> Callable[..., X]:
    def lowering(op: Op, t: Tracing, *xs: X) -> X:
        dtype = dtype_of(op)
        x, y = (_in_one_rounding(wide(v, dtype)) for v in xs)
        if dtype.is_integer:
            t.fails_where(y == 0)
        return narrow(function(x, y), dtype)

    return lowering


def _mod(x: X, y: X) -> X:
    left = lax.rem(x, y)
    result = jnp.where((left != 0) & ((left < 0) != (y < 0)), left + y, left)
    return jnp.where(left == 0, jnp.copysign(left, y), result) if jnp.issubdtype(x.dtype, jnp.floating) else result


lowers("div")(_divided(lambda x, y: lax.div(x, y)))
lowers("rem")(_divided(lambda x, y: lax.rem(x, y)))
lowers("mod")(_divided(_mod))


@lowers("pow")
def _pow(op: Op, t: Tracing, *xs: X) -> X:
    dtype = dtype_of(op)
    x, y = (wide(v, dtype) for v in xs)
    if not dtype.is_integer:
        return narrow(lax.pow(x, y), dtype)
    result, base = jnp.ones_like(x), x
    for bit in range(dtype.bits):
        result = jnp.where((y >> bit) & 1 != 0, result * base, result)
        base = base * base
    if dtype.is_signed:
        inverse = jnp.where((x == 1) | ((x == -1) & (y % 2 == 0)), 1, jnp.where(x == -1, -1, 0)).astype(x.dtype)
        result = jnp.where(y < 0, inverse, result)
    return narrow(result, dtype)


# ---- bits


def _unsigned(x: X, dtype: DType) -> X:
    """The bits of integers in an unsigned dtype of at least 8 bits."""
    if dtype.bits == 4:
        return (x.astype(jnp.int8) & 15).astype(jnp.uint8)
    return lax.bitcast_convert_type(x, f"uint{dtype.bits}")


def _of_bits(bits: X, dtype: DType) -> X:
    return narrow(bits, dtype) if dtype.bits == 4 else lax.bitcast_convert_type(bits, arrays.numpy_dtype(dtype))


def _shift(function: Callable[[X, X, DType], X]) -> Callable[..., X]:
    def lowering(op: Op, t: Tracing, *xs: X) -> X:
        dtype = dtype_of(op)
        x, by = (_unsigned(v, dtype) for v in xs)
        return _of_bits(function(x, by, dtype), dtype)

    return lowering


def _arithmetic(x: X, by: X, dtype: DType) -> X:
    spare = max(8 - dtype.bits, 0)  # a 4-bit integer is shifted to the top of its byte and back
    signed = lax.bitcast_convert_type(x << spare, f"int{max(dtype.bits, 8)}") >> spare
    moved = signed >> jnp.minimum(by, dtype.bits - 1).astype(signed.dtype)
    return lax.bitcast_convert_type(moved, x.dtype)


lowers("shift_left")(_shift(lambda x, by, d: jnp.where(by < d.bits, x << jnp.minimum(by, d.bits - 1), 0)))
lowers("shift_right_logical")(_shift(lambda x, by, d: jnp.where(by < d.bits, x >> jnp.minimum(by, d.bits - 1), 0)))
lowers("shift_right_arithmetic")(_shift(_arithmetic))


@lowers("count_leading_zeros")
def _zeros(op: Op, t: Tracing, *xs: X) -> X:
    dtype = dtype_of(op)
    result = lax.clz(_unsigned(xs[0], dtype))
    return narrow(result - (4 if dtype.bits == 4 else 0), dtype)


@lowers("bitcast")
def _bitcast(op: Op, t: Tracing, *xs: X) -> X:
    source, target = dtype_of(op), result_of(op).dtype
    if 4 not in (source.bits, target.bits) or source.bits == target.bits == 4:
        same = source.bits == 4
        return narrow(xs[0].astype(jnp.int8), target) if same else lax.bitcast_convert_type(xs[0], arrays.numpy_dtype(target))
    bits = lax.bitcast_convert_type(xs[0], f"uint{source.bits}") if source.bits > 4 else _unsigned(xs[0], source)
    if target.bits == 4:
        parts = [(bits >> jnp.asarray(4 * k, bits.dtype)) & jnp.asarray(15, bits.dtype) for k in range(source.bits // 4)]
        return narrow(jnp.stack(parts, -1), target)
    word = f"uint{target.bits}"
    joined = sum(bits[..., k].astype(word) << jnp.asarray(4 * k, word) for k in range(target.bits // 4))
    return lax.bitcast_convert_type(joined, arrays.numpy_dtype(target))


@lowers("nextafter")
def _nextafter(op: Op, t: Tracing, *xs: X) -> X:
    dtype = dtype_of(op)
    word = f"uint{dtype.bits}"
    a, b = (wide(x, dtype) for x in xs)
    bits, toward = (lax.bitcast_convert_type(x, word) for x in xs)
    top = jnp.asarray(1 << dtype.bits - 1, word)
    size, sign = bits & ~top, bits & top
    up = (a < b) == (a > 0)
    moved = jnp.where(size == 0, (toward & top) | 1, jnp.where(up, size + 1, size - 1) | sign)
    result = jnp.where(a == b, xs[1], lax.bitcast_convert_type(moved, arrays.numpy_dtype(dtype)))
    return jnp.where(jnp.isnan(a) | jnp.isnan(b), jnp.asarray(np.nan, arrays.numpy_dtype(dtype)), result)


@lowers("reduce_precision")
def _reduce_precision(op: Op, t: Tracing, *xs: X) -> X:
    dtype = dtype_of(op)
    own, word = dtype.precision - 1, f"uint{dtype.bits}"
    exponents, exponent_bits, drop = (
        dtype.bits - dtype.precision,
        op.attr("exponent_bits"),
        max(own - op.attr("mantissa_bits"), 0),
    )
    bits = lax.bitcast_convert_type(xs[0], word)
    top = jnp.asarray(1 << dtype.bits - 1, word)
    size, sign = bits & ~top, bits & top
    if drop:
        size = (size + (1 << drop - 1) - 1 + (size >> drop & 1)) >> drop << drop
    infinite = lax.bitcast_convert_type(jnp.asarray(np.asarray(np.inf).astype(arrays.numpy_dtype(dtype))), word) & ~top
    if exponent_bits < exponents:
        most = (1 << exponent_bits - 1) - 1
        exponent = (size >> own).astype(jnp.int32) - ((1 << exponents - 1) - 1)
        size = jnp.where(exponent > most, infinite, jnp.where(exponent < 1 - most, jnp.zeros((), word), size))
    result = lax.bitcast_convert_type(jnp.minimum(size, infinite) | sign, arrays.numpy_dtype(dtype))
    return jnp.where(jnp.isnan(wide(xs[0], dtype)), xs[0], result)


# ---- reductions


def _accumulated(kind: str, combine: Callable[..., X]) -> Callable[..., X]:
    def lowering(op: Op, t: Tracing, *xs: X) -> X:
        source, out = dtype_of(op), result_of(op).dtype
        accum = op.attr("accum_dtype") or default_accum(source)
        x = wide(cast(xs[0], source, accum), accum)
        axes = vocabulary.axes(op.attr("axes"), x.ndim)
        start = jnp.asarray(numerics.identity(kind, accum if kind in ("sum", "prod") else source), x.dtype)
        total = combine(x, axis=axes, keepdims=op.attr("keepdims"), initial=start)
        return cast(narrow(total.astype(x.dtype), accum), accum, out)

    return lowering


lowers("reduce_sum")(_accumulated("sum", lambda x, **how: jnp.sum(x, dtype=x.dtype, **how)))
lowers("reduce_prod")(_accumulated("prod", lambda x, **how: jnp.prod(x, dtype=x.dtype, **how)))
lowers("reduce_max")(_accumulated("max", lambda x, **how: jnp.max(x, **how)))
lowers("reduce_min")(_accumulated("min", lambda x, **how: jnp.min(x, **how)))


def _over_bits(combine: Callable[[X, X], X], start: int) -> Callable[..., X]:
    def lowering(op: Op, t: Tracing, *xs: X) -> X:
        out = result_of(op)
        x = wide(xs[0], out.dtype)
        first = jnp.asarray(start, widest("int")).astype(x.dtype)
        reduced = lax.reduce(x, first, combine, vocabulary.axes(op.attr("axes"), x.ndim))
        return narrow(reduced, out.dtype).reshape(out.static_shape)

    return lowering


lowers("reduce_and")(_over_bits(lambda a, b: a & b, -1))
lowers("reduce_or")(_over_bits(lambda a, b: a | b, 0))
lowers("reduce_xor")(_over_bits(lambda a, b: a ^ b, 0))


@lowers("argmax", "argmin")
def _located(op: Op, t: Tracing, *xs: X) -> X:
    find = lax.argmax if op.defn.short == "argmax" else lax.argmin
    x = wide(xs[0], dtype_of(op))
    return find(x, op.attr("axis") % x.ndim, arrays.numpy_dtype(op.attr("output_dtype"))).reshape(result_of(op).static_shape)


@lowers("cumsum", "cumprod", "cummax", "cummin")
def _cumulative(op: Op, t: Tracing, *xs: X) -> X:
    dtype, kind = dtype_of(op), op.defn.short.removeprefix("cum")
    run = {"sum": lax.cumsum, "prod": lax.cumprod, "max": lax.cummax, "min": lax.cummin}[kind]
    x = wide(xs[0], dtype)
    axis, reverse = op.attr("axis") % x.ndim, op.attr("reverse")
    if op.attr("exclusive") and x.shape[axis]:
        start = jnp.asarray(numerics.identity(kind, dtype), x.dtype)
        widths = [((0, 1, 0) if reverse else (1, 0, 0)) if a == axis else (0, 0, 0) for a in range(x.ndim)]
        padded, n = lax.pad(x, start, widths), x.shape[axis]
        x = lax.slice_in_dim(padded, 1, n + 1, axis=axis) if reverse else lax.slice_in_dim(padded, 0, n, axis=axis)
    return narrow(run(x, axis, reverse), dtype)


@lowers("dot_general")
def _dot(op: Op, t: Tracing, *xs: X) -> X:
    source, out = dtype_of(op), result_of(op).dtype
    accum = op.attr("accum_dtype") or default_accum(source)
    x, y = (wide(cast(v, source, accum), accum) for v in xs)
    contract = vocabulary.axes(op.attr("contract_lhs"), x.ndim), vocabulary.axes(op.attr("contract_rhs"), y.ndim)
    batch = vocabulary.axes(op.attr("batch_lhs"), x.ndim), vocabulary.axes(op.attr("batch_rhs"), y.ndim)
    result = lax.dot_general(x, y, (contract, batch), precision=lax.Precision.HIGHEST, preferred_element_type=x.dtype)
    return cast(narrow(result, accum), accum, out)


@lowers("layer_norm")
def _layer_norm(op: Op, t: Tracing, *xs: X) -> X:
    dtype, axis = dtype_of(op), op.attr("feature_axis")
    x, gamma, beta = (wide(v, dtype) for v in xs)
    along = [-1 if i == axis % x.ndim else 1 for i in range(x.ndim)]
    centered = x - x.sum(axis, keepdims=True) / max(x.shape[axis], 1)
    variance = jnp.square(centered).sum(axis, keepdims=True) / max(x.shape[axis], 1)
    return narrow(centered / jnp.sqrt(variance + op.attr("epsilon")) * gamma.reshape(along) + beta.reshape(along), dtype)


# ---- constants and movement


@lowers("iota")
def _iota(op: Op, t: Tracing, *xs: X) -> X:
    out = result_of(op)
    count = lax.broadcasted_iota(widest("int"), out.static_shape, op.attr("axis") % out.rank)
    return narrow(count, out.dtype) if out.dtype.is_integer else count.astype(arrays.numpy_dtype(out.dtype))


@lowers("pad")
def _pad(op: Op, t: Tracing, *xs: X) -> X:
    fill = jnp.asarray(scalars.element(op.attr("pad_value"), dtype_of(op)))
    return lax.pad(xs[0], fill, list(zip(op.attr("low"), op.attr("high"), op.attr("interior"), strict=True)))


@lowers("extract_patches")
def _patches(op: Op, t: Tracing, *xs: X) -> X:
    (x,), out = xs, result_of(op).static_shape
    fill = jnp.asarray(scalars.element(op.attr("pad_value"), dtype_of(op)))
    x = lax.pad(x, fill, [(0, 0, 0), *((low, high, 0) for low, high in op.attr("padding")), (0, 0, 0)])
    strides, dilation = (1, *op.attr("strides"), 1), (1, *op.attr("dilation"), 1)
    places, taps = (*out[:-1], x.shape[-1]), []
    if 0 in out:
        return jnp.zeros(out, x.dtype)
    for tap in product(*map(range, op.attr("window"))):
        start = [k * d for k, d in zip((0, *tap, 0), dilation, strict=True)]
        stop = [a + (n - 1) * s + 1 for a, n, s in zip(start, places, strides, strict=True)]
        taps.append(lax.slice(x, start, stop, strides))
    return jnp.stack(taps, -2).reshape(out)


@lowers("reduce_window")
def _window(op: Op, t: Tracing, *xs: X) -> X:
    source, kind = dtype_of(op), op.attr("reduce")
    accum = op.attr("accum_dtype") or default_accum(source)
    x = wide(cast(xs[0], source, accum), accum)
    start = np.asarray(numerics.identity(kind, source), x.dtype)
    if 0 in (*x.shape, *result_of(op).static_shape):
        total = jnp.full(result_of(op).static_shape, start)
    else:
        combine = {"sum": lax.add, "max": lax.max, "min": lax.min}[kind]
        lists = [op.attr(name) for name in ("window_dims", "strides", "padding", "base_dilation", "window_dilation")]
        total = lax.reduce_window(x, start[()], combine, *lists)
    return cast(narrow(total, accum), accum, source)


# Ops without a check, which are one expression.
_PLAIN: dict[str, Callable[..., X]] = {
    "select": lambda op, which, x, y: jnp.where(which, x, y),
    "cast": lambda op, x: cast(x, dtype_of(op), op.attr("dtype")),
    "stop_gradient": lambda op, x: lax.stop_gradient(x),
    "popcount": lambda op, x: narrow(lax.population_count(_unsigned(x, dtype_of(op))), dtype_of(op)),
    "constant": lambda op: jnp.asarray(arrays.from_literal(op.attrs[0])),
    "reshape": lambda op, x: jnp.reshape(x, result_of(op).static_shape),
    "broadcast_to": lambda op, x: jnp.broadcast_to(x, result_of(op).static_shape),
    "transpose": lambda op, x: jnp.transpose(x, vocabulary.axes(op.attr("perm"), x.ndim)),
    "slice": lambda op, x: lax.slice(x, op.attr("starts"), np.add(op.attr("starts"), op.attr("sizes"))),
    "concat": lambda op, *xs: jnp.concatenate(xs, op.attr("axis")),
    "tile": lambda op, x: jnp.tile(x, op.attr("repeats")),
    "dynamic_slice": lambda op, x, start: lax.dynamic_slice(x, _started(x, start, op), op.attr("sizes")) if x.ndim else x,
    "dynamic_update_slice": lambda op, x, update, start: (
        lax.dynamic_update_slice(x, update, _started(x, start, op)) if x.ndim else update
    ),
}
for _name, _function in _PLAIN.items():
    lowers(_name)(lambda op, t, *xs, function=_function: function(op, *xs))


# ---- indices


def _bounded(index: X, extent: int, t: Tracing) -> X:
    """Indices clamped to their range; one out of range makes the run fail."""
    t.fails_where((index < 0) | (index >= extent))
    return jnp.clip(index, 0, max(extent - 1, 0))


@lowers("take")
def _take(op: Op, t: Tracing, x: X, index: X) -> X:
    if not x.shape[0]:
        t.fails_where(jnp.ones(index.shape, bool))
        return jnp.zeros(result_of(op).static_shape, x.dtype)
    return jnp.take(x, _bounded(index, x.shape[0], t), axis=0, mode="clip")


@lowers("gather")
def _gather(op: Op, t: Tracing, x: X, index: X) -> X:
    axis = op.attr("axis") % x.ndim
    if not x.shape[axis] or not index.size:
        t.fails_where(jnp.ones(index.shape, bool))
        return jnp.zeros(index.shape, x.dtype)
    return jnp.take_along_axis(x, _bounded(index, x.shape[axis], t), axis, mode="clip")


def _started(x: X, start: X, op: Op) -> list[X]:
    return [jnp.clip(start[k], 0, n - size) for k, (n, size) in enumerate(zip(x.shape, op.attr("sizes"), strict=True))]


def _placed(x: X, at: Sequence[X], updates: X, kind: str, dtype: DType) -> X:
    """`updates` combined into `x` at these indices; an index out of range is dropped."""
    if not updates.size or not x.size:
        return x
    if kind in ("and", "or", "xor"):
        return _placed_bits(x, at, updates, kind, dtype)
    held = [
        jnp.where((a < 0) | (a >= n), n, a) for a, n in zip(at, x.shape, strict=True)
    ]  # a negative one would count from the end
    if kind == "replace":
        return x.at[tuple(held)].set(updates, mode="drop")
    places = wide(x, dtype).at[tuple(held)]
    combine = {"add": places.add, "mul": places.multiply, "max": places.max, "min": places.min}[kind]
    return narrow(combine(wide(updates, dtype), mode="drop"), dtype)


def _placed_bits(x: X, at: Sequence[X], updates: X, kind: str, dtype: DType) -> X:
    """Bit by bit: `and` is the minimum, `or` the maximum, `xor` the sum modulo 2."""
    width = dtype.bits
    shifts = jnp.arange(width, dtype=widest("uint"))

    def bits(v: X) -> X:
        whole = v.astype(widest("uint")) if v.dtype == bool else _unsigned(v, dtype).astype(widest("uint"))
        return ((whole[..., None] >> shifts) & 1).astype(jnp.int32)

    index = [jnp.broadcast_to(a[..., None], (*a.shape, width)) for a in at]
    index.append(jnp.broadcast_to(jnp.arange(width), index[0].shape if index else (width,)))
    result = _placed(bits(x), index, bits(updates), {"and": "min", "or": "max", "xor": "add"}[kind], SI32) & 1
    whole = jnp.sum(result.astype(widest("uint")) << shifts, -1, dtype=widest("uint"))
    return whole.astype(bool) if x.dtype == bool else _of_bits(whole.astype(_unsigned(x, dtype).dtype), dtype)


@lowers("scatter_reduce")
def _scatter_reduce(op: Op, t: Tracing, x: X, index: X, updates: X) -> X:
    axis = op.attr("axis") % x.ndim
    at = [lax.broadcasted_iota(widest("int"), index.shape, k) for k in range(x.ndim)]
    at[axis] = _bounded(index.astype(widest("int")), x.shape[axis], t)
    return _placed(x, at, updates, op.attr("reduce"), dtype_of(op))


@lowers("scatter_add", "scatter")
def _scatter(op: Op, t: Tracing, x: X, indices: X, updates: X) -> X:
    kind, drop = (op.attr("reduce"), op.attr("drop")) if op.defn.short == "scatter" else ("add", False)
    window = sorted(a % updates.ndim for a in op.attr("update_window_dims"))
    inserted = vocabulary.axes(op.attr("inserted_window_dims"), max(x.ndim, 1))
    kept = [a for a in range(x.ndim) if a not in inserted]
    batch = [a for a in range(updates.ndim) if a not in window]
    extent = window_extents(x.shape, updates.shape, op.attr("update_window_dims"), op.attr("inserted_window_dims"))
    at = index_vector_axis(op.attr("index_vector_dim"), indices.ndim)
    parts = jnp.moveaxis(indices, at, -1) if at < indices.ndim else indices[..., None]
    parts = parts.astype(widest("int"))
    start = [jnp.zeros(parts.shape[:-1], widest("int"))] * x.ndim
    for k, axis in enumerate(op.attr("scatter_dims_to_operand_dims")):
        result = parts[..., k]
        start[axis % x.ndim] = result if drop else _bounded(result, x.shape[axis] - extent[axis] + 1, t)
    ordered = jnp.transpose(updates, (*batch, *window))
    places = []
    for axis in range(x.ndim):
        lead = start[axis].reshape(start[axis].shape + (1,) * len(window))
        if axis in kept:
            lead = lead + jnp.arange(extent[axis]).reshape([-1 if k == axis else 1 for k in kept])
        places.append(jnp.broadcast_to(lead, ordered.shape))
    return _placed(x, places, ordered, kind, dtype_of(op))


@lowers("segment_reduce")
def _segment_reduce(op: Op, t: Tracing, data: X, ids: X) -> X:
    source, kind = dtype_of(op), op.attr("kind")
    accum = op.attr("accum_dtype") or default_accum(source)
    x = wide(cast(data, source, accum), accum)
    total = jnp.full(result_of(op).static_shape, np.asarray(numerics.identity(kind, source), x.dtype))
    if x.size and total.size:
        places = total.at[_bounded(ids, op.attr("num_segments"), t)]
        total = places.add(x) if kind == "sum" else places.max(x)
    else:
        _bounded(ids, op.attr("num_segments"), t)
    return cast(narrow(total, accum), accum, source)


# ---- order


def _sorted(xs: Sequence[X], axis: int, keys: int, descending: bool) -> tuple[X, ...]:
    """A stable sort; a descending one sorts the reversed axis and reverses the result."""
    ordered = [jnp.flip(x, axis) for x in xs] if descending else list(xs)
    result = lax.sort(tuple(ordered), dimension=axis, is_stable=True, num_keys=keys)
    return tuple(jnp.flip(x, axis) for x in result) if descending else tuple(result)


@lowers("sort")
def _sort(op: Op, t: Tracing, *xs: X) -> object:
    keys, axis = op.attr("keys"), op.attr("axis") % xs[0].ndim
    known = [wide(x, dtype_of(op, i)) for i, x in enumerate(xs[:keys])]
    place = lax.broadcasted_iota(widest("int"), xs[0].shape, axis)
    order = _sorted([*known, place], axis, keys, op.attr("descending"))[-1]
    results = tuple(jnp.take_along_axis(x, order, axis) if x.size else x for x in xs)
    return results if len(results) > 1 else results[0]


@lowers("top_k")
def _top_k(op: Op, t: Tracing, *xs: X) -> Data:
    (x,), axis = xs, op.attr("axis") % xs[0].ndim
    place = lax.broadcasted_iota(widest("int"), x.shape, axis)
    order = _sorted([wide(x, dtype_of(op)), place], axis, 1, op.attr("largest"))[-1]
    best = lax.slice_in_dim(order, 0, op.attr("k"), axis=axis)
    values = jnp.take_along_axis(x, best, axis) if best.size else jnp.zeros(best.shape, x.dtype)
    return values, best.astype(arrays.numpy_dtype(op.attr("indices_dtype")))


# ---- quantization


def _along(values: Sequence[object], x: X, axis: int | None, missing: float) -> X:
    if not values:
        return jnp.asarray(missing, widest("float"))
    shape = () if axis is None else [-1 if a == axis % x.ndim else 1 for a in range(x.ndim)]
    return jnp.asarray(values, widest("float")).reshape(shape)


def _to_steps(real: X, axis: int | None, scales: Sequence[float], zeros: Sequence[int], dtype: DType) -> X:
    # XLA would multiply by the inverse of a constant, which rounds differently. It cannot fold this 0 (no count is above 64).
    zero = (lax.population_count(lax.bitcast_convert_type(real, f"uint{8 * real.dtype.itemsize}")) >> 8).astype(real.dtype)
    scaled = real / (_along(scales, real, axis, 1) + zero)
    if dtype.is_float:
        return scaled.astype(arrays.numpy_dtype(dtype))
    return cast(_even(scaled) + _along(zeros, real, axis, 0), F64, dtype)


def _from_steps(q: X, dtype: DType, axis: int | None, scales: Sequence[float], zeros: Sequence[int]) -> X:
    real = wide(q, dtype).astype(widest("float"))
    return (real - _along(zeros, real, axis, 0)) * _along(scales, real, axis, 1)


@lowers("quantize", "dequantize", "requantize")
def _quantized(op: Op, t: Tracing, x: X) -> X:
    source, out, axis, kind = dtype_of(op), result_of(op).dtype, op.attr("axis"), op.defn.short
    to = "output_" if kind == "requantize" else ""
    if not op.attr("scales") and not op.attr(f"{to}scales"):
        return cast(x, source, out)
    known = op.attr("scales"), op.attr("zero_points")
    real = x.astype(widest("float")) if kind == "quantize" else _from_steps(x, source, axis, *known)
    if kind == "dequantize":
        return real.astype(arrays.numpy_dtype(out))
    return _to_steps(real, axis, op.attr(f"{to}scales"), op.attr(f"{to}zero_points"), out)


# ---- control flow


def packed(op: Op, results: Sequence[Data]) -> Data:
    """The result of a control-flow op: one value, or a tuple."""
    return tuple(results) if isinstance(op.results[0].type, TupleType) else results[0]


@lowers("cond")
def _cond(op: Op, t: Tracing, *xs: X) -> object:
    holds, fails = map(t.region, op.regions)
    results, failed = lax.cond(xs[0], holds, fails, *xs[1:])
    t.fails_where(failed)
    return packed(op, results)


@lowers("while")
def _while(op: Op, t: Tracing, *xs: X) -> Data:
    test, body = map(t.region, op.regions)

    def step(state: Data) -> Data:
        _, kept, count, failed = state
        carry, first = body(*kept)
        (flag, *again), second = test(*carry)
        return flag, tuple(again), count + 1, failed | first | second

    (flag, *kept), failed = test(*xs)
    state = lax.while_loop(
        lambda s: s[0] & (s[2] < t.iterations) & ~s[3], step, (flag, tuple(kept), jnp.zeros((), widest("int")), failed)
    )
    t.fails_where(state[3] | state[0])
    return packed(op, state[1])


@lowers("scan")
def _scan(op: Op, t: Tracing, *xs: X) -> Data:
    count, body = op.attr("carry_count"), t.region(op.regions[0])

    def step(state: Data, row: Data) -> Data:
        carry, failed = state
        results, wrong = body(*carry, *row)
        return (tuple(results[:count]), failed | wrong), tuple(results[count:])

    (carry, failed), stacks = lax.scan(step, (tuple(xs[:count]), jnp.zeros((), bool)), tuple(xs[count:]))
    t.fails_where(failed)
    return packed(op, [*carry, *stacks])
