"""Several PTIR ops as one ONNX operator.

An idiom takes the emitter and the last op. It returns the output of one operator, or None where it does not match. Nodes of the
other ops stay only where they have other uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, isfinite, prod

from ptir_tools.bridges.onnx.emitter import Emitter, Out
from ptir_tools.bridges.onnx.lowerings import quantizes, steps
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F16, F32, F64, SI8, SI32, SI64, UI8, DType
from ptir_tools.core.ir import Op, Operand, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.types import TensorType
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.typerules import default_accum

Idiom = Callable[[Emitter, Op], "Out | None"]
IDIOMS: dict[str, list[Idiom]] = {}
_FLOATS = (F16, F32, F64)


def idiom(*names: str) -> Callable[[Idiom], Idiom]:
    """Declare an idiom that ends with one of the ops `names`."""

    def declare(function: Idiom) -> Idiom:
        for name in names:
            IDIOMS.setdefault(f"ptir.{name}", []).append(function)
        return function

    return declare


def _made(x: Operand, *names: str) -> Op | None:
    """The defining op of `x`, when its name is in `names`."""
    op = x.op if isinstance(x, Value) else None
    return op if op is not None and op.defn.short in names else None


def _number(e: Emitter, x: Operand) -> float | None:
    """The number that `x` is a splat of, infinities included; None for everything else."""
    array = _known(e, x)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def _known(e: Emitter, x: Operand) -> Array | None:
    """The array that `x` is a broadcast of; None where `x` is not constant."""
    result = e.read(x)
    if not isinstance(result, Out):
        return None
    return result.spread.array if result.spread is not None else result.array


def _with_number(e: Emitter, op: Op | None) -> tuple[Operand, float] | None:
    """Of a binary op with a splat operand: the other operand, and the splat's number."""
    if op is None:
        return None
    for x, y in (op.operands, op.operands[::-1]):
        if (n := _number(e, y)) is not None:
            return x, n
    return None


def _scaled(e: Emitter, x: Operand) -> tuple[Operand, float] | None:
    """The value that `x` is a multiple of, and the factor."""
    if (result := _with_number(e, _made(x, "mul"))) is not None:
        return result
    if (op := _made(x, "div")) is not None and (n := _number(e, op.operands[1])):
        return op.operands[0], 1 / n
    return None


def _dtype(op: Op) -> DType | None:
    return getattr(op.result.type, "dtype", None)


# ---- activations


@idiom("select")
def _sqrt(e: Emitter, op: Op) -> Out | None:
    """`x * rsqrt(x)`, and `x` where that is 0 or infinite."""
    zero, x, other = op.operands
    inner = _made(other, "select")
    if inner is None or inner.operands[1] is not x:
        return None
    flags = {_flag(e, flag, x) for flag in (zero, inner.operands[0])}
    product = _made(inner.operands[2], "mul")
    if flags != {0.0, inf} or product is None or x not in product.operands:
        return None
    root = _made(next((y for y in product.operands if y is not x), x), "rsqrt")
    return e("Sqrt", e.tensor(x)) if root is not None and root.operands[0] is x else None


def _flag(e: Emitter, flag: Operand, x: Operand) -> float | None:
    """The number that the comparison `flag` compares `x` with."""
    equal = _made(flag, "compare_eq")
    result = _with_number(e, equal)
    return result[1] if result is not None and result[0] is x else None


@idiom("select")
def _leaky(e: Emitter, op: Op) -> Out | None:
    """`alpha * x` below zero."""
    below, less, x = op.operands
    flag, scaled = _made(below, "compare_lt"), _scaled(e, less)
    if flag is None or scaled is None or scaled[0] is not x or flag.operands[0] is not x or _dtype(op) not in (F16, F32):
        return None
    return e("LeakyRelu", e.tensor(x), alpha=scaled[1]) if _number(e, flag.operands[1]) == 0 else None


@idiom("select")
def _elu(e: Emitter, op: Op) -> Out | None:
    """`alpha * expm1(x)` below zero. ONNX Runtime subtracts one from the exponential, which is not exact next to zero."""
    above, x, less = op.operands
    flag = _made(above, "compare_gt")
    scaled = _scaled(e, less) or (less, 1.0)
    power = _made(scaled[0], "expm1")
    if not e.as_onnx or flag is None or power is None or power.operands[0] is not x or flag.operands[0] is not x:
        return None
    return e("Elu", e.tensor(x), alpha=scaled[1]) if _number(e, flag.operands[1]) == 0 else None


@idiom("add")
def _softplus(e: Emitter, op: Op) -> Out | None:
    """`max(x, 0) + log1p(exp(-|x|))`. ONNX Runtime adds one to the exponential, which is not exact next to zero."""
    for a, b in (op.operands, op.operands[::-1]):
        top, log = _with_number(e, _made(a, "maximum")), _made(b, "log1p")
        chain, x = log, b
        for name in ("exp", "neg", "abs"):
            if chain is not None:
                x = chain.operands[0]
                chain = _made(x, name)
        if e.as_onnx and chain is not None and top is not None and top[1] == 0 and chain.operands[0] is top[0]:
            return e("Softplus", e.tensor(top[0]))
    return None


@idiom("compare_ne")
def _nan(e: Emitter, op: Op) -> Out | None:
    x, y = op.operands
    return e("IsNaN", e.tensor(x)) if x is y and e.tensor(x).dtype in _FLOATS else None


@idiom("reciprocal", "div")
def _sigmoid(e: Emitter, op: Op) -> Out | None:
    """`1 / (1 + exp(-x))`."""
    if op.defn.short == "div" and _number(e, op.operands[0]) != 1:
        return None
    total = _with_number(e, _made(op.operands[-1], "add"))
    power = _made(total[0], "exp") if total is not None and total[1] == 1 else None
    minus = _made(power.operands[0], "neg") if power is not None else None
    return e("Sigmoid", e.tensor(minus.operands[0])) if minus is not None and _dtype(op) in _FLOATS else None


def _bounds(e: Emitter, op: Op | None) -> tuple[Operand, float, float] | None:
    """A value clamped by two numbers: the value and both bounds."""
    if op is None:
        return None
    if op.defn.short == "clamp":
        low, high = (_number(e, x) for x in op.operands[1:])
        return None if low is None or high is None else (op.operands[0], low, high)
    outer = _with_number(e, op)
    inner = _with_number(e, _made(outer[0], "maximum", "minimum")) if outer is not None else None
    if outer is None or inner is None or _made(outer[0], op.defn.short) is not None:
        return None
    low, high = (outer[1], inner[1]) if op.defn.short == "maximum" else (inner[1], outer[1])
    return (inner[0], low, high) if low <= high else None


def _hard_sigmoid(e: Emitter, x: Operand) -> tuple[Operand, float, float] | None:
    """Where `x` is a hard sigmoid: its operand, slope and offset."""
    bounded = _bounds(e, _made(x, "minimum", "maximum", "clamp"))
    if bounded is None or bounded[1:] != (0, 1):
        return None
    moved = _with_number(e, _made(bounded[0], "add"))
    scaled = _scaled(e, moved[0]) if moved is not None else None
    return None if moved is None or scaled is None else (scaled[0], scaled[1], moved[1])


@idiom("mul")
def _hard_swish(e: Emitter, op: Op) -> Out | None:
    for x, gate in (op.operands, op.operands[::-1]):
        result = _hard_sigmoid(e, gate)
        same = result is not None and result[0] is x and abs(result[1] - 1 / 6) < 1e-7 and result[2] == 0.5
        if same and e.has("HardSwish") and _dtype(op) is F32:
            return e("HardSwish", e.tensor(x))
    return None


@idiom("minimum", "maximum", "clamp")
def _bounded(e: Emitter, op: Op) -> Out | None:
    """`HardSigmoid`, `Clip` or `Relu`."""
    if _dtype(op) not in _FLOATS:
        return None
    if _dtype(op) is F32 and (hard := _hard_sigmoid(e, op.result)) is not None:
        return e("HardSigmoid", e.tensor(hard[0]), alpha=hard[1], beta=hard[2])
    bounds = _bounds(e, op)
    if bounds is not None and isfinite(bounds[1]) and isfinite(bounds[2]):  # ONNX Runtime's bounds are finite
        x = e.tensor(bounds[0])
        return e("Clip", x, e.scalar(bounds[1], x), e.scalar(bounds[2], x))
    top = _with_number(e, op) if op.defn.short == "maximum" else None
    return e("Relu", e.tensor(top[0])) if top is not None and top[1] == 0 else None


# ---- products


def _only_here(e: Emitter, x: Operand) -> bool:
    """Whether `x` has one use, so that its op is not computed twice."""
    return isinstance(x, Value) and e.reads[x] == 1


def _matrix(e: Emitter, x: Operand, contracted: int) -> tuple[Out, bool]:
    """A matrix whose axis `contracted` is contracted, and whether that is its first axis."""
    y = e.tensor(x)
    if y.moved is not None and y.moved[1] == (1, 0):
        return y.moved[0], contracted == 1
    return y, contracted == 0


@idiom("add")
def _gemm(e: Emitter, op: Op) -> Out | None:
    """`alpha A B + beta C` of matrices."""
    dtype = _dtype(op)
    for total, more in (op.operands, op.operands[::-1]):
        product, alpha = _scaled(e, total) or (total, 1.0)
        dot = _made(product, "dot_general")
        if dot is None or dtype not in (F32, F64) or not (_only_here(e, product) and _only_here(e, total)):
            continue
        accum = dot.attr("accum_dtype") or default_accum(dtype)
        sums = [dot.attr("contract_lhs"), dot.attr("contract_rhs")]
        if any(e.tensor(x).rank != 2 or e.tensor(x).dtype is not dtype for x in dot.operands) or accum is not dtype:
            continue
        if dot.attr("batch_lhs") or any(len(axes) != 1 for axes in sums):
            continue
        spread = _made(more, "broadcast_to")
        term, beta = _scaled(e, spread.operands[0] if spread is not None else more) or (more, 1.0)
        c = e.tensor(term)
        c = c.spread if c.spread is not None and not c.made else c
        if c.rank > 2 or any(d not in (1, full) for d, full in zip(c.shape[::-1], e.shape[::-1], strict=False)):
            continue
        fits_f32 = all(isfinite(n) and n and (dtype is F32 or float(np.float32(n)) == n) for n in (alpha, beta))  # ONNX has f32
        if not fits_f32 or any(0 in e.tensor(x).shape for x in dot.operands):
            continue
        (a, left), (b, right) = (_matrix(e, x, axes[0] % 2) for x, axes in zip(dot.operands, sums, strict=True))
        how: dict[str, Attribute] = {"transA": int(left), "transB": int(not right), "alpha": alpha, "beta": beta}
        plain = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
        return e("Gemm", a, b, c, shape=e.shape, **{k: v for k, v in how.items() if v != plain[k]})
    return None


def _convolved(e: Emitter, product: Operand, bias: Sequence[Out]) -> Out | None:
    """Patches times a weight matrix, with one or three spatial axes; two are recognized by another idiom."""
    dot = _made(product, "dot_general")
    patches = _made(dot.operands[0], "extract_patches") if dot is not None else None
    if dot is None or patches is None or _dtype(dot) is not F32:
        return None
    x, weight = e.tensor(patches.operands[0]), e.tensor(dot.operands[1])
    plain = weight.rank == 2 and not dot.attr("batch_lhs") and (dot.attr("accum_dtype") or F32) is x.dtype is weight.dtype is F32
    sums = [a % r for axes, r in (("contract_lhs", x.rank), ("contract_rhs", 2)) for a in dot.attr(axes)]
    if x.rank not in (3, 5) or not plain or sums != [x.rank - 1, 0] or 0 in (*x.shape, *weight.shape):
        return None
    taps, channels, outputs = list(patches.attr("window")), x.shape[-1], weight.shape[1]
    n, pads = len(taps), patches.attr("padding")
    if np.any(scalars.element(patches.attr("pad_value"), F32)) or any(min(p) < 0 for p in pads):
        return None
    if not isinstance(channels, int) or not isinstance(product, Value) or not isinstance(product.type, TensorType):
        return None
    how: dict[str, Attribute] = {"kernel_shape": taps}
    for name, attr in (("strides", "strides"), ("dilations", "dilation")):
        if any(d != 1 for d in patches.attr(attr)):
            how[name] = list(patches.attr(attr))
    if any(map(any, pads)):
        how["pads"] = [p[k] for k in (0, 1) for p in pads]
    kernel = e.transpose(e.reshape(weight, (*taps, channels, outputs)), [n + 1, n, *range(n)])
    shape = product.type.shape
    first = e.transpose(x, [0, n + 1, *range(1, n + 1)])
    y = e("Conv", first, kernel, *bias, shape=(shape[0], outputs, *shape[1:-1]), **how)
    return e.transpose(y, [0, *range(2, n + 2), 1])


@idiom("dot_general")
def _convolution(e: Emitter, op: Op) -> Out | None:
    return _convolved(e, op.result, ())


@idiom("add")
def _convolution_with_bias(e: Emitter, op: Op) -> Out | None:
    """A convolution, and a number per channel."""
    for product, more in (op.operands, op.operands[::-1]):
        if not _only_here(e, product) or _made(product, "dot_general") is None:
            continue
        spread = _made(more, "broadcast_to")
        bias = e.tensor(spread.operands[0]) if spread is not None else None
        if bias is not None and bias.rank == 1 and bias.shape[0] == e.shape[-1] != 1:
            return _convolved(e, product, (bias,))
    return None


# ---- means and pools


@idiom("div", "mul")
def _mean(e: Emitter, op: Op) -> Out | None:
    """A sum divided by the number of its terms: a reduction, or a window reduction."""
    result = None
    for sum_, y in (op.operands, op.operands[::-1]) if op.defn.short == "mul" else (op.operands,):
        total = _made(sum_, "reduce_sum", "reduce_window")
        counts = _known(e, y)
        if total is not None and counts is not None and (total.attr("accum_dtype") or _dtype(op)) is _dtype(op) in (F32, F64):
            result = total, np.asarray(counts, np.float64) if op.defn.short == "div" else 1 / np.asarray(counts, np.float64)
    if result is None:
        return None
    total, counts = result
    x = e.tensor(total.operands[0])
    if total.defn.short == "reduce_sum":
        axes = [a % x.rank for a in total.attr("axes")]
        whole = [d for a in axes if isinstance(d := x.shape[a], int)]
        if not axes or len(whole) != len(axes) or not (counts == prod(whole)).all():
            return None
        if x.rank > 2 and sorted(axes) == list(range(2, x.rank)) and total.attr("keepdims") and x.dtype is F32:
            return e("GlobalAveragePool", x, shape=e.shape)
        return e.reduce("ReduceMean", x, axes, total.attr("keepdims"), e.shape)
    if total.attr("reduce") != "sum" or (how := pooled(total, x)) is None:
        return None
    taps = float(prod(how["kernel_shape"]))
    if (counts == taps).all():
        return e("AveragePool", x, shape=e.shape, **how, count_include_pad=1)
    inside = _inside(total, x)
    if inside is None or counts.ndim > inside.ndim or not np.array_equal(np.broadcast_to(counts, inside.shape), inside):
        return None
    return e("AveragePool", x, shape=e.shape, **how)


def pooled(op: Op, x: Out) -> dict[str, Attribute] | None:
    """The attributes of a pool operator for a `reduce_window`; None where no pool has such windows."""
    window, strides, dilation = op.attr("window_dims"), op.attr("strides"), op.attr("window_dilation")
    pads = op.attr("padding")
    lead = all(window[a] == strides[a] == 1 and pads[a] == (0, 0) for a in (0, 1)) if x.rank > 2 else False
    spans = [(n - 1) * d + 1 for n, d in zip(window, dilation, strict=True)]
    small = all(max(p) < n and min(p) >= 0 for p, n in zip(pads[2:], window[2:], strict=True))
    fits = all(not isinstance(d, int) or d + sum(p) >= s for d, p, s in zip(x.shape, pads, spans, strict=True))
    if not lead or not small or not fits or x.rank > 5 or any(n != 1 for n in op.attr("base_dilation")) or 0 in x.shape:
        return None
    how: dict[str, Attribute] = {"kernel_shape": list(window[2:]), "strides": list(strides[2:])}
    if any(map(any, pads)):
        how["pads"] = [p[k] for k in (0, 1) for p in pads[2:]]
    if any(n != 1 for n in dilation):
        if op.attr("reduce") == "sum":  # of an average since operator set 19
            return None
        how["dilations"] = list(dilation[2:])
    return how


def _inside(op: Op, x: Out) -> Array | None:
    """The number of taps of each window of a `reduce_window` that are not padding; None where an extent is a symbol."""
    counts = np.ones((), np.float64)
    assert isinstance(op.result.type, TensorType)
    spaces = zip(x.shape[2:], op.result.type.shape[2:], strict=True)
    for a, (n, places) in enumerate(spaces, 2):
        if not isinstance(n, int) or not isinstance(places, int):
            return None
        at = np.arange(places)[:, None] * op.attr("strides")[a] - op.attr("padding")[a][0] + np.arange(op.attr("window_dims")[a])
        counts = counts[..., None] * ((at >= 0) & (at < n)).sum(1)
    return counts


@idiom("reduce_window")
def _max_pool(e: Emitter, op: Op) -> Out | None:
    """The maximum of each window. ONNX does not define pools of NaNs: a second pool finds them."""
    x = e.tensor(op.operands[0])
    accum = op.attr("accum_dtype") or default_accum(x.dtype)
    if op.attr("reduce") != "max" or x.dtype not in (F32, F64, SI8, UI8) or accum not in (x.dtype, default_accum(x.dtype)):
        return None
    if (how := pooled(op, x)) is None:
        return None
    y: Out = e("MaxPool", x, shape=e.shape, **how)
    if not x.dtype.is_float or e.as_onnx:
        return y
    flags = e("MaxPool", e.cast(e("IsNaN", x), UI8), shape=e.shape, **how)
    return e("Where", e("Greater", flags, e.scalar(0, UI8)), e.scalar(float("nan"), x), y, shape=e.shape)


# ---- indices and quantization


@idiom("take", "gather")
def _gathered(e: Emitter, op: Op) -> Out | None:
    """A gather whose negative indices count from the end, as in ONNX."""
    x, at = op.operands
    chosen = _made(at, "select")
    if chosen is None:
        return None
    flag, moved = _made(chosen.operands[0], "compare_lt"), _with_number(e, _made(chosen.operands[1], "add"))
    plain = chosen.operands[2]
    axis = op.attr("axis") % e.tensor(x).rank if op.defn.short == "gather" else 0
    same = flag is not None and flag.operands[0] is plain and _number(e, flag.operands[1]) == 0
    if not same or moved is None or moved[0] is not plain or moved[1] != e.tensor(x).shape[axis]:
        return None
    name = "GatherElements" if op.defn.short == "gather" else "Gather"
    return e(name, e.tensor(x), e.cast(e.tensor(plain), SI64), axis=axis, shape=e.shape)


@idiom("quantize")
def _quantized(e: Emitter, op: Op) -> Out | None:
    """A quotient in f32, rounded to whole numbers."""
    quotient, target = _made(op.operands[0], "div"), op.attr("output_dtype")
    if (
        quotient is None
        or _dtype(quotient) is not F32
        or set(op.attr("scales")) != {1.0}
        or not quantizes(e, "QuantizeLinear", target)
    ):
        return None
    x, scale = e.tensor(quotient.operands[0]), _known(e, quotient.operands[1])
    if scale is None or scale.size != max(scale.shape, default=1) or not (scale > 0).all():
        return None
    axis = _axis(scale.shape, x.rank) if scale.size > 1 else op.attr("axis")
    if scale.size > 1 and op.attr("axis") not in (None, axis):
        return None
    zeros = np.asarray(op.attr("zero_points") or [0], np.int64)
    return e.nan_is_zero(_linear(e, "QuantizeLinear", x, (scale.reshape(-1), zeros), target, axis, target), x)


@idiom("mul")
def _dequantized(e: Emitter, op: Op) -> Out | None:
    """Integers of 32 bits as floats, times a scale; others have an op."""
    for x, y in (op.operands, op.operands[::-1]):
        cast, scale = _made(x, "cast"), _known(e, y)
        if cast is None or scale is None or _dtype(op) is not F32 or scale.size != max(scale.shape, default=1):
            continue
        q = e.tensor(cast.operands[0])
        if q.dtype is SI32 and q.shape == e.shape:
            axis = _axis(scale.shape, q.rank) if scale.size > 1 else None
            return _linear(e, "DequantizeLinear", q, (scale.reshape(-1), np.zeros(1, np.int64)), SI32, axis, F32)
    return None


def _axis(shape: Sequence[int], rank: int) -> int:
    """The axis, of `rank`, along which numbers of `shape` differ."""
    return rank - len(shape) + next(a for a, d in enumerate(shape) if d > 1)


def _linear(e: Emitter, name: str, x: Out, by: tuple[Array, Array], dtype: DType, axis: int | None, result: DType) -> Out:
    """`QuantizeLinear` or `DequantizeLinear` by scales and by zero points of `dtype`."""
    count = max(v.size for v in by)
    scales, zeros = (np.broadcast_to(v.reshape(-1), (count,)).tolist() for v in by)
    more = {} if axis is None else {"axis": axis % x.rank}
    operands = steps(e, scales, zeros, axis if count > 1 else None, dtype)
    return e(name, x, *operands, result=result, shape=x.shape, **more)
