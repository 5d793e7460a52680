"""PTIR ops to ONNX operators: the table of lowerings. A lowering takes the emitter, the op and its operands' outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan, prod

from ptir_tools.bridges.onnx.emitter import END, Emitter, Tree
from ptir_tools.bridges.onnx.graph import OPERATORS, Extent, Out, refused
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.bridges.onnx.table import NARROW, NUMBERS
from ptir_tools.core import arrays
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    SI4,
    SI8,
    SI16,
    SI32,
    SI64,
    UI4,
    UI8,
    UI16,
    UI32,
    UI64,
    DType,
)  # fmt: skip
from ptir_tools.core.ir import Op
from ptir_tools.core.lazy import np
from ptir_tools.core.types import Dim, Shape, Sym, TensorType, TupleType, flatten, leaves, nest
from ptir_tools.dialects.ptir.composites import bits
from ptir_tools.dialects.ptir.composites.express import EXACT, PAIRS, Rule
from ptir_tools.dialects.ptir.kernels.targets import values_of
from ptir_tools.dialects.ptir.ops import numerics, scalars
from ptir_tools.dialects.ptir.ops.scatter import index_vector_axis, window_extents
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.rewrite import vocabulary
from ptir_tools.rewrite.expression import compare_eq, exp, function, log, maximum, minimum, reciprocal, select

Lowering = Callable[..., Tree]
Axes = tuple[int, ...]
Attributes = dict[str, Attribute]
LOWERINGS: dict[str, Lowering] = {}
CALLS: dict[str, tuple[Lowering, Callable[[Op, int], bool]]] = {}  # by target: the lowering, and whether an operator set has it
UNSIGNED = {SI8: UI8, SI16: UI16, SI32: UI32, SI64: UI64, SI4: UI4}


COMPOSED: dict[str, Rule] = {  # ops that are composites of others before they are written
    **{name: EXACT[name] for name in ("popcount", "count_leading_zeros", "reduce_and", "reduce_or", "reduce_xor")},
    **{name: EXACT[name] for name in ("cumprod", "cummax", "cummin")},
    "atan2": PAIRS["atan2"],
    "pow": lambda site, x, y: None if x.dtype.is_float else bits.power(site, x, y),
}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Declare the lowering of the ops `names`."""

    def declare(lowering: Lowering) -> Lowering:
        LOWERINGS.update({f"ptir.{name}": lowering for name in names})
        return lowering

    return declare


# ---- element by element


def _maps(name: str) -> Callable[..., Out]:
    return lambda e, op, *xs: e(name, *xs, shape=e.shape)


for _name, _operator in OPERATORS.items():
    lowers(_name)(_maps(_operator))
is_nan, is_infinite, divided, signum = map(function, ("IsNaN", "IsInf", "Div", "Sign"))
either, both, floor, _xor = map(function, ("Or", "And", "floor", "BitwiseXor"))


def wide(lowering: Callable[..., Out], least: DType = F32) -> Callable[..., Out]:
    """A lowering to several operators: floats narrower than `least` are computed in `least` and rounded once."""

    def widened(e: Emitter, op: Op, *xs: Out) -> Out:
        dtype = xs[0].dtype
        narrow = dtype.is_float and dtype.bits < least.bits
        return e.cast(lowering(e, op, *(e.cast(x, least) if narrow and x.dtype is dtype else x for x in xs)), dtype)

    return widened


def _composed(names: str, lowering: Callable[..., Out], least: DType = F32) -> None:
    lowers(*names.split())(wide(lowering, least))


_composed("rsqrt", lambda e, op, x: e("Reciprocal", e("Sqrt", x)))
_composed("clamp", lambda e, op, x, lo, hi: e("Min", e("Max", x, lo, shape=e.shape), hi, shape=e.shape))
lowers("compare_ne")(lambda e, op, *xs: e("Not", e("Equal", *xs, shape=e.shape)))
lowers("is_finite")(lambda e, op, x: e("Not", e("Or", e("IsNaN", x), e("IsInf", x))))


def _signs(x: Out) -> Out:
    """1 or -1 by the sign bit of `x`, also for zeros; NaN for a NaN."""
    negative = either(x < 0, both(compare_eq(x, 0), reciprocal(x) < 0))
    return select(is_nan(x), x, select(negative, -1, x.body.graph.scalar(1, x)))


def _sign(e: Emitter, op: Op, x: Out) -> Out:
    return abs(signum(x)) * _signs(x) if x.dtype.is_float else signum(x)


def _round_away(e: Emitter, op: Op, x: Out) -> Out:
    below = floor(abs(x))
    return select(abs(x) - below >= 0.5, below + 1, below) * _signs(x)


_composed("sign", _sign)
_composed("round_away", _round_away)


# A zero keeps its sign in a product. ONNX Runtime's `Where` loses it, so these are not the formulas of `composites`.


def _log1p(e: Emitter, op: Op, x: Out) -> Out:
    u = x + 1
    plain = either(compare_eq(u, 1), is_infinite(u, detect_negative=0))
    return x * select(plain, 1, divided(log(u), u - 1))


def _expm1(e: Emitter, op: Op, x: Out) -> Out:
    x = maximum(x, -100)  # below it is -1
    u = exp(x)
    return x * select(compare_eq(u, 1), 1, select(is_infinite(u), u, divided(u - 1, log(u))))


def _cbrt(e: Emitter, op: Op, x: Out) -> Out:
    size = abs(x)
    y = exp(divided(log(size), 3))
    better = y - divided(y - divided(size, y * y), 3)
    return x * select(either(compare_eq(y, 0), is_infinite(y)), 1, divided(better, size))


_composed("log1p", _log1p, F64)
_composed("expm1", _expm1, F64)
_composed("cbrt", _cbrt, F64)


@lowers("div")
def _div(e: Emitter, op: Op, x: Out, y: Out) -> Out:
    if not x.dtype.is_signed or (y.array is not None and not (y.array == -1).any()):
        return e("Div", x, y, shape=e.shape)
    if (y.spread is not None and y.spread.array is not None) and int(y.spread.array.reshape(-1)[0]) != -1:
        return e("Div", x, y, shape=e.shape)
    minus = compare_eq(y, -1)  # the least number divided by -1 ends ONNX Runtime's process
    quotient = e("Div", x, select(minus, 1, y), shape=e.shape)
    return e("Where", minus, -x, quotient, shape=e.shape)


@lowers("rem", "mod")
def _mod(e: Emitter, op: Op, x: Out, y: Out) -> Out:
    floor = op.defn.short == "mod"
    dtype = x.dtype
    if dtype.is_integer:
        if dtype.is_signed:
            y = select(compare_eq(y, -1), 1, y)
        return e("Mod", x, y, shape=e.shape, fmod=int(not floor))
    if dtype in NARROW:
        x, y = (e.cast(v, F32) for v in (x, y))
    left = e("Mod", x, y, shape=e.shape, fmod=1)
    if floor:
        other = both(e("Not", compare_eq(left, 0)), e("Xor", left < 0, y < 0, shape=e.shape))
        left = select(other, left + y, left)
    return e.cast(left, dtype)


lowers("pow")(wide(_maps("Pow")))


@lowers("cast")
def _cast(e: Emitter, op: Op, x: Out) -> Out:
    return converted(e, x, op.attr("dtype"))


def converted(e: Emitter, x: Out, target: DType, exact: bool = False) -> Out:
    """`x` converted by PTIR's cast table: to integers it saturates, and NaN gives 0. With `lossy`, and of floats
    that were in a model, by ONNX's `Cast`, which leaves values out of range open, unless `exact`."""
    source = x.dtype
    if source is target:
        return x
    if x.spread is not None and not x.made:
        return e.expand(converted(e, x.spread, target), x.shape)
    open_ = e.lossy or (e.as_onnx and source.is_float and target.bits > 4)
    if not target.is_integer or source is I1 or (open_ and not exact):
        return e.cast(x, target)
    if source.is_integer:
        low, high = max(target.min, source.min), min(target.max, source.max)
        if low > source.min:
            x = e("Max", x, e.scalar(low, x))
        if high < source.max:
            x = e("Min", x, e.scalar(high, x))
        return e.cast(x, target)
    if source in NARROW:
        x = e.cast(x, F32)
    if target.bits == 4:  # ONNX Runtime rounds to 4 bits, and truncates to 8
        x = minimum(maximum(x, target.min), target.max)
        return e.cast(converted(e, x, SI8 if target is SI4 else UI8, exact), target)
    # Numbers in range are cast; the others are found by comparison, since the highest integer is not a float.
    low_, high_ = e.scalar(float(target.min), x), e.scalar(2.0 ** (target.bits - target.is_signed), x)
    inside = e.cast(select(both(x >= low_, x < high_), x, e.scalar(0, x)), target)
    above = select(x >= high_, target.max, inside)
    return select(x < low_, target.min, above) if target.min else above


# ---- bits


def _bits(on_i1: str, operator: str) -> Lowering:
    return lambda e, op, *xs: e(on_i1 if xs[0].dtype is I1 else operator, *xs, shape=e.shape)


lowers("bitwise_and")(_bits("And", "BitwiseAnd"))
lowers("bitwise_or")(_bits("Or", "BitwiseOr"))
lowers("bitwise_xor")(_bits("Xor", "BitwiseXor"))
lowers("bitwise_not")(_bits("Not", "BitwiseNot"))


def _unsigned(e: Emitter, x: Out) -> Out:
    """The bits of `x` zero-extended to ui8, ui32 or ui64."""
    dtype = x.dtype
    if dtype in (SI4, UI4):
        return e("BitwiseAnd", e.cast(x, UI8), e.scalar(15, UI8))
    same = e.cast(x, UNSIGNED.get(dtype, dtype))
    return e.cast(same, UI32) if same.dtype is UI16 else same


def _of_bits(e: Emitter, bits: Out, dtype: DType) -> Out:
    if dtype in (SI4, UI4):
        bits = e("BitwiseAnd", bits, e.scalar(15, bits))
        if dtype is SI4:
            bits = _xor(e.cast(bits, SI8), 8) - 8
    elif dtype in (SI16, UI16):
        bits = e.cast(bits, UI16)
    return e.cast(bits, dtype)


def _shifted(direction: str, signed: bool = False) -> Lowering:
    """A shift by at most the width; with `signed`, negative numbers are complemented before it and after it."""

    def lowering(e: Emitter, op: Op, x: Out, by: Out) -> Out:
        bits = x.dtype.bits
        a, b = _unsigned(e, x), _unsigned(e, by)
        held = minimum(b, bits - 1)
        moved = a.op("BitShift", a, held, direction=direction)
        if not signed:
            return _of_bits(e, select(b < bits, moved, 0), x.dtype)
        turned = _xor(a, (1 << bits) - 1)
        filled = _xor(turned.op("BitShift", turned, held, direction=direction), (1 << bits) - 1)
        return _of_bits(e, select(a >= 1 << bits - 1, filled, moved), x.dtype)

    return lowering


lowers("shift_left")(_shifted("LEFT"))
lowers("shift_right_logical")(_shifted("RIGHT"))
lowers("shift_right_arithmetic")(_shifted("RIGHT", signed=True))


@lowers("bitcast")
def _bitcast(e: Emitter, op: Op, x: Out) -> Out:
    target = e.type.dtype
    if x.dtype.is_integer and target.is_integer and x.dtype.bits == target.bits > 4:
        return e.cast(x, target)
    if x.dtype.bits != target.bits or target.bits == 4:
        raise refused(f"ONNX has no bitcast of {x.dtype} to {target}: the widths differ")
    return e("BitCast", x, result=target, to=NUMBERS[target])


@lowers("reduce_precision")
def _reduce_precision(e: Emitter, op: Op, x: Out) -> Out:
    if (op.attr("exponent_bits"), op.attr("mantissa_bits")) != (8, 7) or x.dtype not in (F32, BF16):
        raise refused("ONNX rounds only to its own floats: 8 exponent bits and 7 mantissa bits are bf16")
    return e.cast(e.cast(x, BF16), x.dtype)


# ---- reductions


def _ordered(e: Emitter, x: Out) -> Out:
    """`x` in a dtype that reductions take, in the same order."""
    return e.cast(_xor(x, 1 << 63), SI64) if x.dtype is UI64 else x


def _unordered(e: Emitter, y: Out, dtype: DType) -> Out:
    return _xor(e.cast(y, UI64), 1 << 63) if dtype is UI64 else y


def _with_nan(e: Emitter, y: Out, x: Out, marked: Callable[[Out], Out]) -> Out:
    """`y`, or NaN where `marked` of the NaN flags of `x` (si32) is set: ONNX does not define reductions of NaN."""
    if e.as_onnx or not x.dtype.is_float:
        return y
    return select(marked(e.cast(is_nan(x), SI32)) > 0, nan, y)


def _accumulated(operator: str) -> Lowering:
    """A reduction in the accumulator's dtype, then a cast. ONNX Runtime sums f16 in f32, as the default accumulator says."""
    kind = operator.removeprefix("Reduce").lower()

    def lowering(e: Emitter, op: Op, x: Out) -> Out:
        accum, out = op.attr("accum_dtype") or default_accum(x.dtype), e.type.dtype
        axes = vocabulary.axes(op.attr("axes"), x.rank)
        if not axes:
            return converted(e, converted(e, x, accum), out)
        if any(x.shape[a] == 0 for a in axes):
            return e.expand(e.scalar(numerics.identity(kind, accum if kind in ("sum", "prod") else x.dtype), out), e.shape)
        native = x.dtype is F16 and accum is F32 and out is F16
        y = x if native else converted(e, x, accum)
        keepdims = op.attr("keepdims")
        if kind in ("sum", "prod"):
            return converted(e, e.reduce(operator, y, axes, keepdims, e.shape), out)
        total = e.reduce(operator, _ordered(e, y), axes, keepdims, e.shape)
        total = _with_nan(e, total, y, lambda flags: e.reduce("ReduceMax", flags, axes, keepdims, e.shape))
        return converted(e, _unordered(e, total, y.dtype), out)

    return lowering


for _kind in ("Sum", "Prod", "Max", "Min"):
    lowers(f"reduce_{_kind.lower()}")(_accumulated(f"Reduce{_kind}"))


def _static(d: Dim, what: str) -> int:
    if isinstance(d, Sym):
        raise refused(f"the {what} extent {d} is not a number", f"bind it: --bind {d.name}=8")
    return d


@lowers("argmax", "argmin")
def _located(e: Emitter, op: Op, x: Out) -> Out:
    axis, keepdims = op.attr("axis") % x.rank, op.attr("keepdims")
    kept = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    if x.dtype.is_float and not e.as_onnx:
        if x.dtype in NARROW:
            x = e.cast(x, F32)
        flags = e.cast(e("IsNaN", x), SI32)
        some = e("Greater", e.reduce("ReduceMax", flags, [axis], True, kept), e.scalar(0, SI32))
        sign = 1 if op.defn.short == "argmax" else -1
        x = e("Where", some, e("Mul", e.cast(flags, x.dtype), e.scalar(sign, x)), x, shape=x.shape)
    name = "ArgMax" if op.defn.short == "argmax" else "ArgMin"
    return e.cast(e(name, _ordered(e, x), axis=axis, keepdims=int(keepdims), shape=e.shape), op.attr("output_dtype"))


@lowers("cumsum")
def _cumulative(e: Emitter, op: Op, x: Out) -> Out:
    axis = e.constant(np.int64(op.attr("axis") % x.rank))
    how: Attributes = {name: int(op.attr(name)) for name in ("exclusive", "reverse")}
    return e.cast(e("CumSum", e.cast(x, F32) if x.dtype in NARROW else x, axis, shape=e.shape, **how), x.dtype)


# ---- products


@lowers("dot_general")
def _dot(e: Emitter, op: Op, x: Out, y: Out) -> Out:
    source, out = x.dtype, e.type.dtype
    accum = op.attr("accum_dtype") or default_accum(source)
    if not (source is F16 and accum is F32 and out is F16):
        x, y = converted(e, x, accum), converted(e, y, accum)
    batch, contract = vocabulary.axes(op.attr("batch_lhs"), x.rank), vocabulary.axes(op.attr("contract_lhs"), x.rank)
    other_batch, other = vocabulary.axes(op.attr("batch_rhs"), y.rank), vocabulary.axes(op.attr("contract_rhs"), y.rank)
    free = [a for a in range(x.rank) if a not in (*batch, *contract)]
    columns = [a for a in range(y.rank) if a not in (*other_batch, *other)]
    lead: list[Extent] = [x.shape[a] for a in batch]
    m, k, n = (tuple(v.shape[a] for a in axes) for v, axes in ((x, free), (x, contract), (y, columns)))
    left = e.transpose(x, [*batch, *free, *contract])
    right = e.transpose(y, [*other_batch, *other, *columns])
    rows: list[Extent] = [*m] if not batch and m else [m]  # MatMul takes a stack of matrices with one matrix
    if len(k) != 1 or len(rows) != len(m):
        left = e.reshape(left, [*lead, *rows, k])
    if len(k) != 1 or len(n) != 1:
        right = e.reshape(right, [*lead, k, n])
    shape = (*left.shape[:-1], *right.shape[-1:])
    a, b = (in_bytes(e, v) if accum is SI32 else None for v in (left, right))
    if a is not None and b is not None:
        product = e("MatMulInteger", a[0], b[0], *points(a[1], b[1]), shape=shape, result=SI32)
    else:
        product = e("MatMul", left, right, shape=shape)
    product = product if shape == e.shape and len(n) == 1 else e.reshape(product, e.shape)
    return converted(e, product, out)


def in_bytes(e: Emitter, x: Out, dtype: DType = UI8) -> tuple[Out, Out] | None:
    """8-bit integers and their zero point, whose difference is `x` of si32; None where there are none. Those of a constant have
    the dtype `dtype`."""
    if x.centered is not None:
        return x.centered
    if x.widened is not None and x.widened.dtype in (SI8, UI8):
        return x.widened, e.scalar(0, x.widened)
    if x.array is not None and x.array.size:
        low, high = int(x.array.min()), int(x.array.max())
        zero = 0 if dtype.min <= low and high <= dtype.max else dtype.min - low
        fits = dtype.min <= zero <= dtype.max and high + zero <= dtype.max
        return (e.constant(x.array + zero, dtype), e.scalar(zero, dtype)) if fits else None
    source = x.moved[0] if x.moved is not None else x.laid
    found = in_bytes(e, source, dtype) if source is not None else None
    if found is None:
        return None
    return e.transpose(found[0], x.moved[1]) if x.moved is not None else e.reshape(found[0], x.shape), found[1]


def points(left: Out, right: Out) -> list[Out | None]:
    """The zero points of two operands, without those at the end that are 0."""
    found = [None if v.array is not None and not v.array.any() else v for v in (left, right)]
    return found if found[1] is not None else [v for v in found if v is not None]


@lowers("layer_norm")
def _layer_norm(e: Emitter, op: Op, x: Out, gamma: Out, beta: Out) -> Out:
    axis, epsilon, dtype = op.attr("feature_axis") % x.rank, op.attr("epsilon"), x.dtype
    last = x.rank - 1
    perm = [a for a in range(x.rank) if a != axis] + [axis]
    back = [perm.index(a) for a in range(x.rank)]
    y = e.transpose(x, perm)
    if dtype is not F64 and e.has("LayerNormalization"):
        return e.transpose(e("LayerNormalization", y, gamma, beta, axis=-1, epsilon=float(epsilon)), back)
    if dtype in NARROW:
        y, gamma, beta = (e.cast(v, F32) for v in (y, gamma, beta))
    kept = (*y.shape[:-1], 1)
    centered = e("Sub", y, e.reduce("ReduceMean", y, [last], True, kept))
    variance = e.reduce("ReduceMean", e("Mul", centered, centered), [last], True, kept)
    normal = e("Div", centered, e("Sqrt", e("Add", variance, e.scalar(epsilon, y))))
    return e.transpose(e.cast(e("Add", e("Mul", normal, gamma), beta), dtype), back)


# ---- constants and movement


lowers("constant")(lambda e, op: e.literal(op.attrs[0], e.stem))


@lowers("iota")
def _iota(e: Emitter, op: Op) -> Out:
    axis, dtype = op.attr("axis") % len(e.shape), e.type.dtype
    n = e.shape[axis]
    along: list[Dim] = [n if a == axis else 1 for a in range(axis, len(e.shape))]
    if isinstance(n, int) and n <= 1 << 16:
        count = np.arange(n, dtype=np.float64 if dtype.is_float else np.int64)
        result = e.constant(arrays.narrow(count, dtype).reshape([d for d in along if isinstance(d, int)]), dtype)
    else:
        stop = e.reshape(e.extent(n), ())
        result = e("Range", e.constant(np.int64(0)), stop, e.constant(np.int64(1)), shape=(n,))
        result = e.reshape(e.cast(result, dtype), along)
    return e.expand(result, e.shape)


lowers("reshape")(lambda e, op, x: e.reshape(x, e.shape))
lowers("broadcast_to")(lambda e, op, x: e.expand(x, e.shape))
lowers("transpose")(lambda e, op, x: e.transpose(x, op.attr("perm")))
lowers("tile")(lambda e, op, x: e("Tile", x, e.ints(op.attr("repeats")), shape=e.shape))


def sliced(e: Emitter, op: Op, x: Out) -> Out:
    """The part of `x` that the slice `op` reads."""
    starts, sizes = op.attr("starts"), op.attr("sizes")
    if all(isinstance(d, int) for d in x.shape):
        source, perm = x.moved or (x, tuple(range(x.rank)))
        part = e.window(source, tuple((starts[k], 1, sizes[k]) for k in map(perm.index, range(x.rank))))
        return e.transpose(part, perm)
    axes = [a for a, (start, size, d) in enumerate(zip(starts, sizes, x.shape, strict=True)) if start or size != d]
    first, stop = e.ints([starts[a] for a in axes]), e.ints([starts[a] + sizes[a] for a in axes])
    y: Out = e("Slice", x, first, stop, e.ints(axes), shape=e.shape)
    return y


lowers("slice")(sliced)


@lowers("concat")
def _concat(e: Emitter, op: Op, *xs: Out) -> Out:
    return xs[0] if len(xs) == 1 else e("Concat", *xs, axis=op.attr("axis") % xs[0].rank, shape=e.shape)


@lowers("pad")
def _pad(e: Emitter, op: Op, x: Out) -> Out:
    fill = e.constant(scalars.element(op.attr("pad_value"), x.dtype), x.dtype)
    y = _spread(e, x, [n + 1 for n in op.attr("interior")], fill)
    y = e.pad(y, op.attr("low"), op.attr("high"), fill, e.shape)
    if y is not x and fill.array is not None and not fill.array.any():
        y.padded = (x, op.attr("low"), op.attr("interior"), op.attr("high"))
    return y


def _spread(e: Emitter, x: Out, steps: Sequence[int], fill: Out) -> Out:
    """`x` with its elements `steps` apart, `fill` between them."""
    for axis, step in enumerate(steps):
        n = x.shape[axis]
        if step == 1 or n == 0:
            continue
        before, after = x.shape[:axis], x.shape[axis + 1 :]
        parts = e.reshape(x, (*before, n, 1, *after))
        high = [step - 1 if a == axis + 1 else 0 for a in range(parts.rank)]
        parts = e.pad(parts, [0] * parts.rank, high, fill, (*before, n, step, *after))
        joined = e.reshape(parts, (*before, (n, step), *after))
        extent = (n - 1) * step + 1 if isinstance(n, int) else joined.shape[axis]
        x = e.slice(joined, axis, 0, extent if isinstance(extent, int) else 1 - step, extent=extent)
    return x


def _tap(e: Emitter, x: Out, axis: int, offset: int, span: int, stride: int, places: Dim) -> Out:
    """The elements along an axis that the tap at `offset` of a window of extent `span` reads in every placement."""
    rest = span - 1 - offset
    if isinstance(places, int):
        return e.slice(x, axis, offset, offset + (places - 1) * stride + 1, stride, extent=places)
    return e.slice(x, axis, offset, -rest if rest else END, stride, extent=places)


def _framed(e: Emitter, x: Out, pads: Sequence[tuple[int, int]], fill: Out) -> Out:
    """`x` padded by a pair for each axis."""
    extents = tuple(d + sum(p) if isinstance(d, int) else d for d, p in zip(x.shape, pads, strict=True))
    return e.pad(x, [low for low, _ in pads], [high for _, high in pads], fill, extents)


@lowers("reduce_window")
def _window(e: Emitter, op: Op, x: Out) -> Out:
    kind, source = op.attr("reduce"), x.dtype
    accum = op.attr("accum_dtype") or default_accum(source)
    if 0 in (*x.shape, *e.shape):
        return e.expand(e.scalar(numerics.identity(kind, source), source), e.shape)
    y = converted(e, x, accum)
    start = e.scalar(numerics.identity(kind, source), y)
    y = _spread(e, y, op.attr("base_dilation"), start)
    y = _framed(e, y, op.attr("padding"), start)
    windows = zip(op.attr("window_dims"), op.attr("strides"), op.attr("window_dilation"), e.shape, strict=True)
    for axis, (size, stride, dilation, places) in enumerate(windows):
        span = (size - 1) * dilation + 1
        if size == 1 and stride == 1:
            continue
        taps = [_tap(e, y, axis, k * dilation, span, stride, places) for k in range(size)]
        if kind == "sum":
            y = taps[0]
            for tap in taps[1:]:
                y = e("Add", y, tap)
        else:
            y = taps[0] if size == 1 else e("Max" if kind == "max" else "Min", *taps)
    return converted(e, y, source)


_MOST_TAPS = 8  # of one axis that are slices; more are read by their indices
_MOST_INDICES = 1 << 14  # that are a constant


def _windows(e: Emitter, op: Op, x: Out) -> Out:
    """The windows of the padded signal `x`, by their indices."""
    (size,), (stride,), (dilation,) = (op.attr(name) for name in ("window", "strides", "dilation"))
    places, taps = e.shape[1], np.arange(size) * dilation
    if isinstance(places, int) and places * size <= _MOST_INDICES:
        at = e.constant(np.arange(places)[:, None] * stride + taps)
    else:
        count = e("Shape", x, start=1, end=2, shape=(1,))
        stop = e.reshape(e("Sub", count, e.ints([taps[-1]])), ())
        first = e("Range", e.constant(np.int64(0)), stop, e.constant(np.int64(stride)), shape=(places,))
        at = e("Add", e.reshape(first, (places, 1)), e.constant(taps[None]), shape=(places, size))
    return e.reshape(e("Gather", x, at, axis=1, shape=(x.shape[0], places, size, x.shape[2])), e.shape)


@lowers("extract_patches")
def _patches(e: Emitter, op: Op, x: Out) -> Out:
    fill = e.constant(scalars.element(op.attr("pad_value"), x.dtype), x.dtype)
    parts = [_framed(e, x, [(0, 0), *op.attr("padding"), (0, 0)], fill)]
    if x.rank == 3 and op.attr("window")[0] > _MOST_TAPS:
        return _windows(e, op, parts[0])
    geometry = zip(op.attr("window"), op.attr("strides"), op.attr("dilation"), e.shape[1:-1], strict=True)
    for axis, (size, stride, dilation, places) in enumerate(geometry, 1):
        span = (size - 1) * dilation + 1
        if size > 1 or stride > 1:
            parts = [_tap(e, p, axis, k * dilation, span, stride, places) for p in parts for k in range(size)]
    return parts[0] if len(parts) == 1 else e("Concat", *parts, axis=x.rank - 1, shape=e.shape)


# ---- indices


@lowers("take")
def _take(e: Emitter, op: Op, x: Out, indices: Out) -> Out:
    if indices.array is not None and indices.rank == 1:
        source, perm = x.moved or (x, tuple(range(x.rank)))
        return e.transpose(e.picked(source, perm[0], indices.array), perm)
    return e("Gather", x, indices, axis=0, shape=e.shape)


lowers("gather")(lambda e, op, x, at: e("GatherElements", x, at, axis=op.attr("axis") % x.rank, shape=e.shape))


def _starts(e: Emitter, x: Out, start: Out, sizes: Sequence[int]) -> Out:
    """The starts of a window, clamped so that it is inside `x`."""
    spare = [d - s for d, s in zip(x.shape, sizes, strict=True) if isinstance(d, int)]
    most = e.ints(spare) if len(spare) == x.rank else e("Sub", e.extents(x.shape), e.ints(sizes))
    return e("Max", e("Min", e.cast(start, SI64), most), e.ints([0] * x.rank))


@lowers("dynamic_slice")
def _dynamic_slice(e: Emitter, op: Op, x: Out, start: Out) -> Out:
    sizes = op.attr("sizes")
    if not x.rank or sizes == x.shape:
        return x
    first = _starts(e, x, start, sizes)
    return e("Slice", x, first, e("Add", first, e.ints(sizes)), e.ints(range(x.rank)), shape=e.shape)


@lowers("dynamic_update_slice")
def _dynamic_update_slice(e: Emitter, op: Op, x: Out, update: Out, start: Out) -> Out:
    sizes = op.attr("sizes")
    axes = [a for a, (d, s) in enumerate(zip(x.shape, sizes, strict=True)) if d != s]
    if not axes:
        return update
    if 0 in sizes:
        return x
    depth = axes[-1] + 1  # from here on whole rows are replaced
    places = np.moveaxis(np.indices(sizes[:depth]), 0, -1)
    first = e("Slice", _starts(e, x, start, sizes), e.ints([0]), e.ints([depth]), e.ints([0]), shape=(depth,))
    return e("ScatterND", x, e.constant(places) + first, update)


_COMBINES = {"replace": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _combined(e: Emitter, op: Op, kind: str, x: Out, updates: Out, scatter: Callable[[Out, Out, Attributes], Out]) -> Out:
    """A scatter: `scatter(x, updates, reduction)` in a dtype in which ONNX combines; NaNs are propagated."""
    dtype = x.dtype
    if kind in ("and", "or", "xor"):
        if dtype is not I1 or kind == "xor":
            raise refused(f"a scatter of ONNX does not combine {dtype} by {kind}")
        y = scatter(e.cast(x, SI32), e.cast(updates, SI32), e.reduction("min" if kind == "and" else "max"))
        return e.cast(y, dtype)
    reduction = e.reduction(_COMBINES[kind])
    if kind == "replace":
        return scatter(x, updates, reduction)
    least = F32 if dtype in NARROW else SI32 if dtype in (SI4, UI4, SI8, UI8, SI16, UI16) else dtype
    a, b = e.cast(x, least), e.cast(updates, least)
    if kind in ("max", "min"):
        a, b = _ordered(e, a), _ordered(e, b)
    y = scatter(a, b, reduction)
    if kind in ("max", "min") and a.dtype.is_float and not e.as_onnx:
        y = select(scatter(e.cast(is_nan(a), SI32), e.cast(is_nan(b), SI32), e.reduction("max")) > 0, nan, y)
    return e.cast(_unordered(e, y, least) if kind in ("max", "min") else y, dtype)


@lowers("scatter_reduce")
def _scatter_reduce(e: Emitter, op: Op, x: Out, indices: Out, updates: Out) -> Out:
    axis = op.attr("axis") % x.rank
    return _combined(
        e, op, op.attr("reduce"), x, updates,
        lambda a, b, how: e("ScatterElements", a, indices, b, axis=axis, **how),
    )  # fmt: skip


@lowers("scatter_add", "scatter")
def _scatter(e: Emitter, op: Op, x: Out, indices: Out, updates: Out) -> Out:
    kind = "add" if op.defn.short == "scatter_add" else op.attr("reduce")
    drop = op.defn.short == "scatter" and op.attr("drop")
    window = tuple(sorted(vocabulary.axes(op.attr("update_window_dims"), updates.rank)))
    inserted = vocabulary.axes(op.attr("inserted_window_dims"), x.rank)
    scattered = vocabulary.axes(op.attr("scatter_dims_to_operand_dims"), x.rank)
    at = index_vector_axis(op.attr("index_vector_dim"), indices.rank)
    batch = [a for a in range(updates.rank) if a not in window]
    ordered = e.transpose(updates, [*batch, *window])
    parts = e.cast(indices, SI64)
    if at < indices.rank:
        parts = e.transpose(parts, [*(a for a in range(indices.rank) if a != at), at])
    else:
        parts = e.reshape(parts, (*indices.shape, 1))
    rows = tuple(range(len(scattered)))
    extents = window_extents(x.shape, updates.shape, window, inserted)
    whole = all(extents[a] == x.shape[a] for a in range(len(rows), x.rank))
    if scattered == rows == tuple(sorted(inserted)) and whole and not drop:
        return _combined(e, op, kind, x, ordered, lambda a, b, how: e("ScatterND", a, parts, b, **how))
    return _scattered_flat(e, op, kind, drop, x, parts, ordered, (scattered, inserted, extents))


def _scattered_flat(
    e: Emitter, op: Op, kind: str, drop: bool, x: Out, parts: Out, ordered: Out, numbers: tuple[Axes, Axes, Sequence[Dim]]
) -> Out:
    """A scatter into flattened `x` by linear index; dropped updates go to one more element at its end."""
    scattered, inserted, extents = numbers
    shape = [_static(d, "scattered") for d in x.shape]
    sizes = [_static(d, "window") for d in extents]
    lead, count = parts.shape[:-1], prod(shape)
    kept = [a for a in range(x.rank) if a not in inserted]
    full: Shape = (*lead, *(sizes[a] for a in kept))
    total: Out = e.constant(np.zeros((), np.int64))
    inside: Out | None = None
    for a, n in enumerate(shape):
        place: Out | None = None
        if a in scattered:
            k = scattered.index(a)
            place = e.reshape(e.slice(parts, len(lead), k, k + 1), (*lead, *[1] * len(kept)))
        if a in kept:
            along = [sizes[a] if b == a else 1 for b in kept]
            offset = e.constant(np.arange(sizes[a], dtype=np.int64).reshape(along))
            place = offset if place is None else e("Add", place, offset)
        if place is None:
            continue
        if drop and a in scattered:
            low = e("GreaterOrEqual", place, e.scalar(0, SI64))
            good = e("And", low, e("Less", place, e.scalar(n, SI64)))
            inside = good if inside is None else e("And", inside, good)
        total = e("Add", total, e("Mul", place, e.scalar(prod(shape[a + 1 :]), SI64)))
    if inside is not None:
        total = e("Where", inside, total, e.scalar(count, SI64))
    total = e.expand(total, full)
    places = e.reshape(total, (*full, 1))
    flat: Shape = (count + int(drop),)

    def scatter(a: Out, b: Out, how: Attributes) -> Out:
        row = e.reshape(a, (count,))
        row = e.pad(row, [0], [int(drop)], e.scalar(0, row), flat)
        y = e("ScatterND", row, places, b, shape=flat, **how)
        return e.reshape(e.slice(y, 0, 0, count) if drop else y, x.shape)

    return _combined(e, op, kind, x, ordered, scatter)


def _ranks(e: Emitter, x: Out) -> Out:
    """Sort keys for TopK in PTIR's order: a NaN is larger than all numbers."""
    if x.dtype is I1:
        return e.cast(x, UI8)
    if not x.dtype.is_float or e.as_onnx:
        return _ordered(e, x)
    if x.dtype is not F64:
        x = e.cast(x, F64 if x.dtype is F32 else F32)
    most = e.scalar(float(np.finfo(arrays.numpy_dtype(x.dtype)).max), x)  # more than every number of the narrower dtype
    return e("Where", e("IsNaN", x), e.scalar(float("inf"), x), e("Min", x, most))


def _top(e: Emitter, x: Out, k: Out, axis: int, largest: bool, shape: Shape) -> tuple[Out, Out]:
    values, indices = e.several("TopK", 2, x, k, axis=axis, largest=int(largest), sorted=1, shape=shape)
    return values, indices


@lowers("top_k")
def _top_k(e: Emitter, op: Op, x: Out) -> tuple[Out, Out]:
    axis, k = op.attr("axis") % x.rank, op.attr("k")
    assert op.result.type and isinstance(op.result.type, TupleType)
    first = op.result.type.elements[0]
    assert isinstance(first, TensorType)
    ranks = _ranks(e, x)
    values, indices = _top(e, ranks, e.ints([k]), axis, op.attr("largest"), first.shape)
    if ranks is not x:
        values = e("GatherElements", x, indices, axis=axis, shape=first.shape)
    return values, e.cast(indices, op.attr("indices_dtype"))


@lowers("sort")
def _sort(e: Emitter, op: Op, *xs: Out) -> tuple[Out, ...] | Out:
    axis, shape = op.attr("axis") % xs[0].rank, xs[0].shape
    count = e.extent(shape[axis])
    order: Out | None = None
    for key in reversed(xs[: op.attr("keys")]):
        key = key if order is None else e("GatherElements", key, order, axis=axis)
        _, again = _top(e, _ranks(e, key), count, axis, op.attr("descending"), shape)
        order = again if order is None else e("GatherElements", order, again, axis=axis)
    results = tuple(e("GatherElements", x, order, axis=axis) for x in xs)
    return results if len(results) > 1 else results[0]


@lowers("segment_reduce")
def _segments(e: Emitter, op: Op, data: Out, ids: Out) -> Out:
    kind, dtype = op.attr("kind"), data.dtype
    accum = op.attr("accum_dtype") or default_accum(dtype)
    x = converted(e, data, accum)
    start = e.expand(e.scalar(numerics.identity(kind, dtype), accum), e.shape)
    places = e.reshape(e.cast(ids, SI64), (*ids.shape, 1))
    kind = "add" if kind == "sum" else kind
    return converted(e, _combined(e, op, kind, start, x, lambda a, b, how: e("ScatterND", a, places, b, **how)), dtype)


# ---- quantization


def _along(e: Emitter, values: Sequence[object], rank: int, axis: int | None) -> Out:
    shape = () if axis is None else [-1 if a == axis % rank else 1 for a in range(rank)]
    return e.constant(np.asarray(values, np.float64).reshape(shape))


def _to_steps(e: Emitter, real: Out, axis: int | None, scales: Sequence[float], zeros: Sequence[int], dtype: DType) -> Out:
    scaled = e("Div", real, _along(e, scales, real.rank, axis)) if scales else real
    if dtype.is_float:
        return e.cast(scaled, dtype)
    moved = e("Round", scaled)
    moved = e("Add", moved, _along(e, zeros, real.rank, axis)) if any(zeros) else moved
    return converted(e, moved, dtype, exact=True)


def _from_steps(e: Emitter, q: Out, axis: int | None, scales: Sequence[float], zeros: Sequence[int]) -> Out:
    real = e.cast(q, F64)
    real = e("Sub", real, _along(e, zeros, q.rank, axis)) if any(zeros) else real
    return e("Mul", real, _along(e, scales, q.rank, axis)) if scales else real


def linear(
    e: Emitter, name: str, x: Out, scales: Array, zeros: Sequence[int], dtype: DType, axis: int | None, result: DType
) -> Out:
    """`QuantizeLinear` or `DequantizeLinear` by scales and by zero points of `dtype`, one or several along `axis`."""
    points = np.asarray(zeros or [0], np.int64)
    count = max(scales.size, points.size)
    shape = () if axis is None or count == 1 else (count,)
    by = (
        np.broadcast_to(v.reshape(-1), (count,)).reshape(shape) for v in (scales.astype(np.float32), arrays.narrow(points, dtype))
    )
    more = {} if axis is None else {"axis": axis % x.rank}
    return e(name, x, *map(e.constant, by, (F32, dtype)), result=result, shape=x.shape, **more)


def quantizes(e: Emitter, name: str, dtype: DType) -> bool:
    """Whether the operator `name` of the operator set has integers of this dtype; those of 4 bits came with those of 16."""
    from_schema = e.schema(name)
    return dtype in (SI8, UI8) or (dtype in (SI16, UI16, SI4, UI4) and "tensor(int16)" in from_schema.inputs[2].types)


@lowers("quantize")
def _quantize(e: Emitter, op: Op, x: Out) -> Out:
    axis, scales, zeros, out = op.attr("axis"), op.attr("scales"), op.attr("zero_points"), op.attr("output_dtype")
    if not scales:
        return converted(e, x, out)
    whole = all(scale == 1 for scale in scales)
    if (e.lossy or whole) and x.dtype is F32 and quantizes(e, "QuantizeLinear", out):  # it divides in f32
        return e.nan_is_zero(linear(e, "QuantizeLinear", x, np.asarray(scales), zeros, out, axis, out), x)
    return _to_steps(e, e.cast(x, F64), axis, scales, zeros, out)


@lowers("dequantize")
def _dequantize(e: Emitter, op: Op, x: Out) -> Out:
    axis, scales, zeros, out = op.attr("axis"), op.attr("scales"), op.attr("zero_points"), e.type.dtype
    if not scales:
        return converted(e, x, out)
    exact = all(float(np.float32(s)) == s for s in scales)
    if out is F32 and (exact or e.lossy) and quantizes(e, "DequantizeLinear", x.dtype):
        return _stored(e, x, np.asarray(scales), zeros, axis, out)
    return e.cast(_from_steps(e, x, axis, scales, zeros), out)


def _stored(e: Emitter, x: Out, scales: Array, zeros: Sequence[int], axis: int | None, out: DType) -> Out:
    """`DequantizeLinear`. Where a constant is moved, its integers are, so that the operator stays next to its reader."""
    y = linear(e, "DequantizeLinear", x, scales, zeros, x.dtype, axis, out)
    if x.array is not None:
        y.stored = x, None if axis is None else axis % x.rank, lambda q, a: _stored(e, q, scales, zeros, a, out)
    return y


@lowers("requantize")
def _requantize(e: Emitter, op: Op, x: Out) -> Out:
    axis, out = op.attr("axis"), op.attr("output_dtype")
    if not op.attr("scales") and not op.attr("output_scales"):
        return converted(e, x, out)
    real = _from_steps(e, x, axis, op.attr("scales"), op.attr("zero_points"))
    return _to_steps(e, real, axis, op.attr("output_scales"), op.attr("output_zero_points"), out)


# ---- control flow


def _types(op: Op) -> list[TensorType]:
    return [t for t in leaves(op.result.type) if isinstance(t, TensorType)]


def _several(op: Op, outs: Sequence[Out]) -> Tree:
    return nest(op.result.type, iter(outs))


@lowers("cond")
def _cond(e: Emitter, op: Op, pred: Out, *arguments: Tree) -> Tree:
    then, otherwise = (e.graph(region, arguments) for region in op.regions)
    return _several(op, e.node("If", [pred], _types(op), then_branch=then, else_branch=otherwise))


@lowers("while")
def _while(e: Emitter, op: Op, *carry: Tree) -> Tree:
    test, body = op.regions
    flag, *kept = e.block(test, carry)
    assert isinstance(flag, Out)
    return _several(op, e.node("Loop", ["", flag, *flatten(tuple(kept))], _types(op), body=e.loop(test, body)))


@lowers("scan")
def _scan(e: Emitter, op: Op, *operands: Tree) -> Tree:
    (body,) = op.regions
    carries = op.attr("carry_count")
    inputs = len(operands) - carries
    first = operands[carries]
    assert isinstance(first, Out)
    if first.shape[0] == 0:  # ONNX Runtime takes no such input
        stacks = [e.expand(e.scalar(0, t.dtype), t.shape) for t in _types(op)[len([*flatten(operands[:carries])]) :]]
        return _several(op, [*flatten(operands[:carries]), *stacks])
    return _several(op, e.node("Scan", flatten(operands), _types(op), body=e.graph(body, None), num_scan_inputs=inputs))


# ---- custom calls


def calls(target: str, where: Callable[[Op, int], bool] = lambda op, opset: True) -> Callable[[Lowering], Lowering]:
    """Declare the lowering of a custom call where the operator set has one; elsewhere its decomposition is translated."""

    def declare(lowering: Lowering) -> Lowering:
        CALLS[target] = (lowering, where)
        return lowering

    return declare


@lowers("custom_call")
def _custom(e: Emitter, op: Op, *xs: Out) -> Tree:
    target = op.attr("target")
    if target not in CALLS:
        raise refused(f"ONNX has no `{target}`")
    return CALLS[target][0](e, op, values_of(target, op.attr("attrs")), *xs)


def _is(*dtypes: DType) -> Callable[[Op, int], bool]:
    return lambda op, opset: isinstance(t := op.result.type, TensorType) and t.dtype in dtypes


@calls("gpt_rs.triton.fused_softmax_last_axis.f32.v1")
@calls("ptir.softmax.v1", _is(F16, F32, F64, BF16))
def _softmax(e: Emitter, op: Op, values: dict[str, Attribute], x: Out) -> Out:
    return e("Softmax", x, axis=values["axis"] % x.rank)


@calls("ptir.log_softmax.v1", _is(F16, F32, F64, BF16))
def _log_softmax(e: Emitter, op: Op, values: dict[str, Attribute], x: Out) -> Out:
    return e("LogSoftmax", x, axis=values["axis"] % x.rank)


@calls(
    "ptir.gelu.v1", lambda op, opset: opset >= 20 and _is(F16, F32, BF16)(op, opset) and "sigmoid" not in str(op.attr("attrs"))
)
def _gelu(e: Emitter, op: Op, values: dict[str, Attribute], x: Out) -> Out:
    return e("Gelu", x, approximate=values["approximate"])


@calls("ptir.silu.v1", _is(F32, F64))
def _silu(e: Emitter, op: Op, values: dict[str, Attribute], x: Out) -> Out:
    return e("Mul", x, e("Sigmoid", x))


@calls("ptir.attention.v1", _is(F32, F64))
def _attention(e: Emitter, op: Op, values: dict[str, Attribute], q: Out, k: Out, v: Out, *mask: Out) -> Out:
    """`softmax(q k^T * scale + mask) v`."""
    last = q.rank - 2
    swapped = e.transpose(k, [*range(last), last + 1, last])
    shape = (*q.shape[:-1], k.shape[-2])
    scores = e("MatMul", q, swapped, shape=shape)
    if values["scale"] != 1:
        scores = e("Mul", scores, e.scalar(values["scale"], q))
    for m in mask:
        if m.dtype is I1:
            scores = e("Where", m, scores, e.scalar(values.get("masked", -inf), q), shape=shape)
        else:
            scores = e("Add", scores, m)
    return e("MatMul", e("Softmax", scores, axis=q.rank - 1), v, shape=e.shape)


@calls("gpt_rs.c.conv2d.nhwc.f32.v1")
@calls("gpt_rs.faer.conv2d.nhwc.f32.v1")
@calls("ptir.conv2d.nhwc.v1", _is(F16, F32, BF16))
def _convolution(e: Emitter, op: Op, values: dict[str, Attribute], x: Out, weight: Out, *bias: Out) -> Out:
    """Weights [window * channels / groups, outputs]."""
    groups = values.get("groups", 1)
    return convolved(e, values, x, packed(e, values, weight, groups), groups, bias, e.shape)


@calls("gpt_rs.faer.depthwise_conv2d.nhwc.f32.v1")
def _depthwise(e: Emitter, op: Op, values: dict[str, Attribute], x: Out, weight: Out, *bias: Out) -> Out:
    """Weights [channels, window]."""
    channels = _static(weight.shape[0], "channel")
    return convolved(e, values, x, e.reshape(weight, (channels, 1, *values["window"])), channels, bias, e.shape)


def packed(e: Emitter, values: Mapping[str, Attribute], weight: Out, groups: int) -> Out:
    """Weights [window * channels, outputs] as those of `Conv`."""
    n, (rows, outputs) = len(values["window"]), weight.shape
    channels = _static(rows, "weight's") // prod(values["window"])
    return e.transpose(e.reshape(weight, (*values["window"], channels, outputs)), [n + 1, n, *range(n)])


def convolved(
    e: Emitter, values: Mapping[str, Attribute], x: Out, kernel: Out, groups: int, bias: Sequence[Out | None], shape: Shape
) -> Out:
    """A convolution of x [N, places…, C] to this shape: transposes to channels-first and back are around it. `padding` has a
    pair for each axis. 8-bit integers have zero points for a bias."""
    n = len(values["window"])
    first = e.transpose(x, [0, n + 1, *range(1, n + 1)])
    low, high = values["padding"][::2], values["padding"][1::2]
    shape = (shape[0], shape[-1], *shape[1:-1])
    y = _transposed(e, values, first, kernel, groups, bias, shape)
    if y is None:
        how = {
            "kernel_shape": values["window"],
            "strides": values["strides"],
            "dilations": values["dilation"],
            "pads": [*low, *high],
        }
        name = "ConvInteger" if x.dtype.is_integer else "Conv"
        y = e(name, first, kernel, *bias, shape=shape, result=SI32, **_unusual(how, groups))
    return e.transpose(y, [0, *range(2, n + 2), 1])


def _unusual(how: Mapping[str, Sequence[int]], groups: int) -> dict[str, Attribute]:
    """The attributes of a convolution that are not the defaults."""
    usual = {"strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
    found: dict[str, Attribute] = {k: list(v) for k, v in how.items() if any(n != usual.get(k) for n in v)}
    return found if groups == 1 else {**found, "group": groups}


def _transposed(
    e: Emitter, values: Mapping[str, Attribute], x: Out, kernel: Out, groups: int, bias: Sequence[Out | None], shape: Shape
) -> Out | None:
    """`ConvTranspose`: a convolution of elements that are spread apart, by the flipped weights. None for any other."""
    if x.padded is None or x.dtype is not F32 or any(n != 1 for n in values["strides"]):
        return None
    source, low, interior, high = x.padded
    reach = [(k - 1) * d for k, d in zip(values["window"], values["dilation"], strict=True)]
    begins, ends = (
        [r - n - p for r, n, p in zip(reach, side[2:], values["padding"][k::2], strict=True)]
        for k, side in enumerate((low, high))
    )
    steps = [n + 1 for n in interior[2:]]
    outside = any(side[a] for side in x.padded[1:] for a in (0, 1))
    if max(steps) == 1 or outside or min(begins) < 0 or any(-n >= s for n, s in zip(ends, steps, strict=True)):
        return None
    outputs, part, *taps = (_static(d, "weight's") for d in kernel.shape)
    for axis, extent in enumerate(taps, 2):
        kernel = e.picked(kernel, axis, np.arange(extent)[::-1])
    kernel = e.reshape(kernel, (groups, outputs // groups, part, *taps))
    kernel = e.reshape(e.transpose(kernel, [0, 2, 1, *range(3, kernel.rank)]), (groups * part, outputs // groups, *taps))
    how = {
        "kernel_shape": taps, "strides": steps, "pads": [*begins, *(max(n, 0) for n in ends)],
        "output_padding": [max(-n, 0) for n in ends], "dilations": values["dilation"],
    }  # fmt: skip
    return e("ConvTranspose", source, kernel, *bias, shape=shape, **_unusual(how, groups))
