"""Several PTIR ops as one ONNX operator.

An idiom takes the emitter and the last op. It returns the output of one operator, or None where it does not match. Nodes of the
other ops stay only where they have other uses. Activations are found by the formulas by which they are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite, prod

from ptir_tools.bridges.onnx.emitter import Emitter, Tree
from ptir_tools.bridges.onnx.graph import Out
from ptir_tools.bridges.onnx.lowerings import convolved, in_bytes, linear, packed, points, quantizes, sliced
from ptir_tools.bridges.onnx.ops.elementwise import ACTIVATIONS, Attributes, bounded
from ptir_tools.bridges.onnx.ops.quantize import by_range
from ptir_tools.bridges.onnx.protocols import Attribute
from ptir_tools.core.arrays import Array
from ptir_tools.core.dtypes import F16, F32, F64, SI8, SI32, SI64, UI8, DType
from ptir_tools.core.ir import Op, Operand, Region, Value
from ptir_tools.core.lazy import np
from ptir_tools.core.records import NamedTuple
from ptir_tools.core.transforms import window_of
from ptir_tools.core.types import TensorType, tensor
from ptir_tools.dialects.ptir.builder.build import Graph, Tensor
from ptir_tools.dialects.ptir.composites.rounding import sqrt
from ptir_tools.dialects.ptir.kernels.examples import Example
from ptir_tools.dialects.ptir.ops import scalars
from ptir_tools.dialects.ptir.ops.typerules import default_accum
from ptir_tools.rewrite.constants import scalar_of
from ptir_tools.rewrite.expression import compare_eq, compare_ne, exp, reciprocal, rsqrt, select
from ptir_tools.rewrite.vocabulary import made_by

Idiom = Callable[[Emitter, Op], "Tree | None"]
Formula = Callable[[Attributes, Tensor], Tensor]
Group = Callable[[Emitter, Op, Region], None]
IDIOMS: dict[str, list[Idiom]] = {}
GROUPS: dict[str, list[Group]] = {}  # what finds the values that an operator of several outputs makes, by the last op


def idiom(*names: str) -> Callable[[Idiom], Idiom]:
    """Declare an idiom that ends with one of the ops `names`."""

    def declare(function: Idiom) -> Idiom:
        for name in names:
            IDIOMS.setdefault(f"ptir.{name}", []).append(function)
        return function

    return declare


def known(e: Emitter, x: Operand) -> Array | None:
    """The array that `x` is a broadcast of; None where `x` is not constant."""
    result = e.read(x)
    if not isinstance(result, Out):
        return None
    return result.spread.array if result.spread is not None else result.array


def _scaled(x: Operand) -> tuple[Operand, float] | None:
    """The value that `x` is a multiple of, and the factor."""
    if (op := made_by(x, "mul")) is not None:
        for v, y in (op.operands, op.operands[::-1]):
            if (n := scalar_of(y)) is not None:
                return v, n
    if (op := made_by(x, "div")) is not None and (n := scalar_of(op.operands[1])):
        return op.operands[0], 1 / n
    return None


def _dtype(op: Op) -> DType | None:
    return getattr(op.result.type, "dtype", None)


# ---- activations


class Activation(NamedTuple):
    """An operator of one tensor. `attrs` are numbers of its formula: attributes of the operator, or with `operands` constants
    that it reads. With `open`, ONNX Runtime may differ where ONNX leaves the result open. `forms` are the formulas, by default
    the one by which the operator is read. With `products` their products match in any grouping."""

    name: str
    attrs: tuple[str, ...] = ()
    dtypes: tuple[DType, ...] = (F16, F32)
    open: bool = False
    operands: bool = False
    products: bool = True
    forms: tuple[Formula, ...] = ()


def _logistic(n: Attributes, x: Tensor) -> Tensor:
    return reciprocal(exp(-x) + 1.0)


def _quotient(n: Attributes, x: Tensor) -> Tensor:
    return 1.0 / (exp(-x) + 1.0)


def _zero_first(n: Attributes, x: Tensor) -> Tensor:
    """The square root as a product, with its two special cases."""
    return select(compare_eq(x, 0), x, select(compare_eq(x, float("inf")), x, x * rsqrt(x)))


def _infinity_first(n: Attributes, x: Tensor) -> Tensor:
    """The same with the cases in the other order."""
    return select(compare_eq(x, float("inf")), x, select(compare_eq(x, 0), x, x * rsqrt(x)))


_ALL = (F16, F32, F64)
ACTIVATED = (
    Activation("HardSwish", dtypes=(F32,)),
    Activation("HardSwish", dtypes=(F32,), open=True, forms=(lambda n, x: x * bounded(x + 3.0, 0.0, 6.0) / 6.0,)),
    Activation("HardSigmoid", ("alpha", "beta"), (F32,), products=False, forms=(
        ACTIVATIONS["HardSigmoid"], lambda n, x: (n.attr("alpha") * x + n.attr("beta")).clamp(0.0, 1.0),
    )),
    Activation("LeakyRelu", ("alpha",)),
    Activation("Selu", ("alpha", "gamma"), (F32,), open=True),
    Activation("Elu", ("alpha",), open=True),
    Activation("Softplus", open=True),
    Activation("Softsign", dtypes=(F32,)),
    Activation("ThresholdedRelu", ("alpha",), (F32,)),
    Activation("Sigmoid", dtypes=_ALL, forms=(ACTIVATIONS["Sigmoid"], _logistic, _quotient)),
    Activation("Sqrt", dtypes=_ALL, forms=(lambda n, x: sqrt(x), _zero_first, _infinity_first)),
    Activation("IsNaN", dtypes=_ALL, forms=(lambda n, x: compare_ne(x, x),)),
    Activation("Clip", ("low", "high"), _ALL, operands=True, forms=(
        lambda n, x: x.maximum(n.attr("low")).minimum(n.attr("high")),
        lambda n, x: x.minimum(n.attr("high")).maximum(n.attr("low")),
        lambda n, x: x.clamp(n.attr("low"), n.attr("high")),
    )),
    Activation("Relu", dtypes=_ALL),
)  # fmt: skip


class _Given(Attributes):
    """The attributes of an activation as parameters of its kernel."""

    def __init__(self, graph: Graph, names: Sequence[str]) -> None:
        self.block, self.x = graph, graph.input("x", "f64", (2, 3))
        self.numbers = {name: graph.input(name, "f64", ()) for name in names}

    def attr(self, name: str) -> Tensor:
        """The parameter, repeated as a constant would be."""
        return self.numbers[name].broadcast_like(self.x)


def _example(activation: Activation, form: Formula) -> Example:
    graph = Graph(activation.name)
    given = _Given(graph, activation.attrs)
    return Example(graph.returns(form(given, given.x)).main, products=activation.products)


def _activated(activation: Activation, example: Example, e: Emitter, op: Op) -> Out | None:
    """The operator where `op` ends its formula."""
    if (activation.open and not e.as_onnx) or not e.has(activation.name):
        return None
    if (bound := example.search.solve(op)) is None:
        return None
    found = {p.name: bound[p] for p in example.kernel.params if p in bound}
    x = e.tensor(found["x"])
    numbers: dict[str, Attribute] = {name: float(scalar_of(found[name])) if name in found else 1.0 for name in activation.attrs}
    if x.dtype not in activation.dtypes or x.shape != e.shape or not all(map(isfinite, numbers.values())):
        return None
    if not activation.operands:
        return e(activation.name, x, **numbers)
    if list(numbers.values()) != sorted(numbers.values()):
        return None  # the bounds of Clip are in order
    return e(activation.name, x, *(e.scalar(n, x) for n in numbers.values()))


for _activation in ACTIVATED:
    for _form in _activation.forms or (ACTIVATIONS[_activation.name],):
        _found = _example(_activation, _form)
        idiom(*(name.removeprefix("ptir.") for name in _found.roots))(partial(_activated, _activation, _found))


@idiom("select")
def _prelu(e: Emitter, op: Op) -> Out | None:
    """`PRelu`: where a tensor is negative, its product with a slope."""
    negative, scaled, x = op.operands
    less, product = made_by(negative, "compare_lt"), made_by(scaled, "mul")
    if less is None or product is None or less.operands[0] is not x or scalar_of(less.operands[1]) != 0 or _dtype(op) is not F32:
        return None
    slope = next((b for a, b in (product.operands, product.operands[::-1]) if a is x), None)
    if slope is None or e.tensor(x).shape != e.shape:
        return None
    y = e.tensor(slope)
    return e("PRelu", e.tensor(x), y.spread if y.spread is not None and not y.made else y)


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
        product, alpha = _scaled(total) or (total, 1.0)
        dot = made_by(product, "dot_general")
        if dot is None or dtype not in (F32, F64) or not (_only_here(e, product) and _only_here(e, total)):
            continue
        accum = dot.attr("accum_dtype") or default_accum(dtype)
        sums = [dot.attr("contract_lhs"), dot.attr("contract_rhs")]
        if any(e.tensor(x).rank != 2 or e.tensor(x).dtype is not dtype for x in dot.operands) or accum is not dtype:
            continue
        if dot.attr("batch_lhs") or any(len(axes) != 1 for axes in sums):
            continue
        spread = made_by(more, "broadcast_to")
        term, beta = _scaled(spread.operands[0] if spread is not None else more) or (more, 1.0)
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


def _convolved(e: Emitter, product: Operand, bias: Sequence[Out | None]) -> Out | None:
    """Patches times a weight matrix, with one or three spatial axes, or of integers; others are recognized by a pass."""
    dot = made_by(product, "dot_general")
    patches = made_by(dot.operands[0], "extract_patches") if dot is not None else None
    if dot is None or patches is None or (dtype := _dtype(dot)) not in (F32, SI32):
        return None
    x, weight = e.tensor(patches.operands[0]), e.tensor(dot.operands[1])
    plain = (
        weight.rank == 2 and not dot.attr("batch_lhs") and (dot.attr("accum_dtype") or dtype) is x.dtype is weight.dtype is dtype
    )
    sums = [a % r for axes, r in (("contract_lhs", x.rank), ("contract_rhs", 2)) for a in dot.attr(axes)]
    if (x.rank not in (3, 5) and dtype is F32) or not plain or sums != [x.rank - 1, 0] or 0 in (*x.shape, *weight.shape):
        return None
    pads = [n for pair in patches.attr("padding") for n in pair]
    if np.any(scalars.element(patches.attr("pad_value"), x.dtype)) or min(pads) < 0 or not isinstance(x.shape[-1], int):
        return None
    assert isinstance(product, Value) and isinstance(product.type, TensorType)
    values = {name: patches.attr(name) for name in ("window", "strides", "dilation")} | {"padding": pads}
    kernel = packed(e, values, weight, 1)
    if dtype is SI32:
        left, right = in_bytes(e, x), in_bytes(e, kernel)
        if bias or left is None or right is None or left[0].dtype is not UI8:  # others ONNX Runtime lacks
            return None
        x, kernel, bias = left[0], right[0], points(left[1], right[1])
    return convolved(e, values, x, kernel, 1, bias, product.type.shape)


@idiom("dot_general")
def _convolution(e: Emitter, op: Op) -> Out | None:
    return _convolved(e, op.result, ())


@idiom("add")
def _convolution_with_bias(e: Emitter, op: Op) -> Out | None:
    """A convolution, and a number per channel; its axes may have another order before."""
    for product, more in (op.operands, op.operands[::-1]):
        turned = made_by(product, "transpose")
        inner = turned.operands[0] if turned is not None else product
        if not (_only_here(e, product) and _only_here(e, inner)) or made_by(inner, "dot_general") is None:
            continue
        perm = [a % len(e.shape) for a in (turned.attr("perm") if turned is not None else range(len(e.shape)))]
        bias = per_channel(e, more, perm.index(len(perm) - 1))
        if bias is not None and (y := _convolved(e, inner, (bias,))) is not None:
            return e.transpose(y, perm)
    return None


def per_channel(e: Emitter, x: Operand, axis: int) -> Out | None:
    """The vector that `x` is a broadcast of, along an axis with more than one element."""
    whole = e.tensor(x)
    if whole.rank <= axis:
        return None
    y = whole.spread if whole.spread is not None and not whole.made else whole
    shape = (*[1] * (whole.rank - y.rank), *y.shape)
    count = whole.shape[axis]
    only = count != 1 and shape == tuple(count if a == axis else 1 for a in range(len(shape)))
    return e.reshape(y, (count,)) if only else None


@idiom("cast", "dot_general")
def _spectrum(e: Emitter, op: Op) -> Out | None:
    """`STFT` or `DFT`: frames of an f32 signal times the matrix of a Fourier transform, in f64, as f32."""
    ends = op.defn.short == "cast"
    cut = made_by(op.operands[0], "slice") if ends else None
    parts = made_by((cut or op).operands[0], "reshape") if ends else None
    dot = made_by((parts or cut or op).operands[0], "dot_general") if ends else op
    if dot is None or not e.as_onnx or not e.has("STFT") or _dtype(op) is not F32:
        return None
    frames, matrix = dot.operands[0].type if isinstance(dot.operands[0], Value) else None, known(e, dot.operands[1])
    if not isinstance(frames, TensorType) or frames.dtype is not F64 or matrix is None or matrix.ndim != 2:
        return None
    matrix = matrix if dot.attr("contract_rhs") == (0,) else matrix.T
    length = len(matrix)
    is_last = dot.attr("contract_lhs") == (frames.rank - 1,) and frames.shape[-1] == length and not dot.attr("batch_lhs")
    if not is_last or (cut is not None and parts is None) or (window := window_of(matrix)) is None:
        return None
    y: Out
    shape = (*frames.shape[:-1], length // 2 + 1, 2)
    if (patches := made_by(dot.operands[0], "extract_patches")) is not None:
        x = _of_f32(e, patches.operands[0])
        if x is None or x.rank != 3 or x.shape[-1] != 1 or np.any(patches.attr("padding")) or patches.attr("dilation") != (1,):
            return None
        (step,) = patches.attr("strides")
        numbers = (e.scalar(step, SI64), e.constant(window.astype(np.float32)), e.scalar(length, SI64))
        y = e("STFT", x, *numbers, onesided=1, shape=shape)
    elif (window == 1).all() and e.opset >= 20 and (x := _of_f32(e, dot.operands[0])) is not None:
        column = e.reshape(x, (*x.shape, 1))
        y = e("DFT", column, e.scalar(length, SI64), e.scalar(x.rank - 1, SI64), onesided=1, shape=shape)
    else:
        return None
    return e.reshape(y, e.shape) if cut is None else sliced(e, cut, y)


def _moved(e: Emitter, moves: Sequence[Op], x: Out) -> Out:
    """`x` after reshapes and transposes, of which the last is first."""
    for op in reversed(moves):
        assert isinstance(op.result.type, TensorType)
        reshapes = op.defn.short == "reshape"
        x = e.reshape(x, op.result.type.shape) if reshapes else e.transpose(x, [a % x.rank for a in op.attr("perm")])
    return x


def _of_f32(e: Emitter, x: Operand) -> Out | None:
    """The f64 value `x` in f32; None where its elements do not come from f32, moved."""
    source, moves = x, list[Op]()
    while (op := made_by(source, "reshape", "transpose", "pad", "slice")) is not None:
        source = op.operands[0]
        moves.append(op)
    cast = made_by(source, "cast")
    if cast is None or e.tensor(cast.operands[0]).dtype is not F32:
        return None
    if any(op.defn.short in ("pad", "slice") for op in moves):
        return e.cast(e.tensor(x), F32)
    return _moved(e, moves, e.tensor(cast.operands[0]))


# ---- means and pools


@idiom("div", "mul")
def _mean(e: Emitter, op: Op) -> Out | None:
    """A sum divided by the number of its terms: a reduction, or a window reduction."""
    result = None
    for sum_, y in (op.operands, op.operands[::-1]) if op.defn.short == "mul" else (op.operands,):
        total = made_by(sum_, "reduce_sum", "reduce_window")
        counts = known(e, y)
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
        if x.rank > 3 and sorted(axes) == list(range(2, x.rank)) and total.attr("keepdims") and x.dtype is F32:
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


@idiom("reduce_sum")
def _squares(e: Emitter, op: Op) -> Out | None:
    """A sum of squares, which may be moved before they are added."""
    source, moves = op.operands[0], list[Op]()
    while _only_here(e, source) and (move := made_by(source, "reshape", "transpose")) is not None:
        source = move.operands[0]
        moves.append(move)
    square = made_by(source, "mul")
    if square is None or square.operands[0] is not square.operands[1] or not _only_here(e, source):
        return None
    x = _moved(e, moves, e.tensor(square.operands[0]))
    axes = [a % x.rank for a in op.attr("axes")]
    if not axes or (op.attr("accum_dtype") or F32) is not F32 or x.dtype is not F32 or any(x.shape[a] == 0 for a in axes):
        return None
    return e.reduce("ReduceSumSquare", x, axes, op.attr("keepdims"), e.shape) if _dtype(op) is F32 else None


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


def _negative() -> Example:
    """An index, plus the extent where it is negative."""
    graph = Graph("negative")
    at, count = graph.input("at", "si64", (2, 3)), graph.input("count", "si64", ())
    return Example(graph.returns(select(at < 0, at + count.broadcast_like(at), at)).main)


_NEGATIVE = _negative()


@idiom("take", "gather")
def _gathered(e: Emitter, op: Op) -> Out | None:
    """A gather whose negative indices count from the end, as in ONNX."""
    x, at = op.operands
    bound = _NEGATIVE.search.solve(at.op) if isinstance(at, Value) and at.op is not None else None
    if bound is None:
        return None
    plain, count = (bound[p] for p in _NEGATIVE.kernel.params)
    axis = op.attr("axis") % e.tensor(x).rank if op.defn.short == "gather" else 0
    if scalar_of(count) != e.tensor(x).shape[axis]:
        return None
    name = "GatherElements" if op.defn.short == "gather" else "Gather"
    return e(name, e.tensor(x), e.cast(e.tensor(plain), SI64), axis=axis, shape=e.shape)


@idiom("sub")
def _centered(e: Emitter, op: Op) -> Out | None:
    """8-bit integers without their zero point."""
    x, zero = map(e.tensor, op.operands)
    zero = zero if zero.spread is None else zero.spread
    small = x.widened
    if small is None or any(d != 1 for d in zero.shape):
        return None
    point, number = zero.widened, zero.array.item() if zero.array is not None else None
    if number is not None and small.dtype.min <= number <= small.dtype.max:
        point = e.scalar(number, small)
    if point is None or point.dtype is not small.dtype:
        return None
    y: Out = e("Sub", x, zero, shape=e.shape)
    y.centered = small, e.reshape(point, ())
    return y


def _ranged() -> tuple[Example, list[Operand]]:
    """Bytes by the range of floats, which may be read in another shape for it; the bytes, the scale and the zero point."""
    graph = Graph("ranged")
    made = by_range(*(graph.input(name, "f64", (2, 3)) for name in "xy"))
    return Example(graph.returns(made[0]).main), [y.operand for y in made]


_RANGED = _ranged()


def _by_range(e: Emitter, op: Op, block: Region) -> None:
    """`DynamicQuantizeLinear`: bytes, their scale and their zero point."""
    example, (_, scale, zero) = _RANGED
    if not e.as_onnx or _dtype(op) is not UI8 or (bound := example.search.solve(op)) is None:
        return
    x, y = (bound[p] for p in example.kernel.params)
    if not (_same_elements(x, y) and isinstance(zero, Value) and zero.op is not None and isinstance(scale, Value)):
        return
    point = bound[zero.op.values()[0]]
    outs: list[Out] = []

    def made(k: int) -> Out:
        if not outs:
            source = e.tensor(x)
            outs.extend(e.node("DynamicQuantizeLinear", [source], [tensor(UI8, source.shape), tensor(F32), tensor(UI8)]))
            outs[0].ranged = source, outs[1]
        return outs[k]

    for v in (bound[scale], *(op.result for op in block.body if op.defn is zero.op.defn and op.operands[0] is point)):
        if isinstance(v, Value) and v.type in (tensor(F32), tensor(UI8)):
            e.parts[v] = partial(made, 1 if v.type is tensor(F32) else 2)
    e.parts[op.result] = partial(made, 0)


GROUPS[_RANGED[0].root.name] = [_by_range]


def _same_elements(x: Operand, y: Operand) -> bool:
    """Whether both have the same elements, in some order."""
    sources = []
    for v in (x, y):
        while (op := made_by(v, "reshape", "transpose")) is not None:
            v = op.operands[0]
        sources.append(v)
    return sources[0] is sources[1]


@idiom("quantize")
def _quantized(e: Emitter, op: Op) -> Out | None:
    """A quotient in f32, rounded to whole numbers."""
    quotient, target = made_by(op.operands[0], "div"), op.attr("output_dtype")
    plain = set(op.attr("scales")) == {1.0} and quantizes(e, "QuantizeLinear", target)
    if quotient is None or _dtype(quotient) is not F32 or not plain:
        return None
    x, scale = e.tensor(quotient.operands[0]), known(e, quotient.operands[1])
    if scale is None or scale.size != max(scale.shape, default=1) or not (scale > 0).all():
        return None
    axis = _axis(scale.shape, x.rank) if scale.size > 1 else op.attr("axis")
    if scale.size > 1 and op.attr("axis") not in (None, axis):
        return None
    return e.nan_is_zero(linear(e, "QuantizeLinear", x, scale, op.attr("zero_points"), target, axis, target), x)


@idiom("mul")
def _dequantized(e: Emitter, op: Op) -> Out | None:
    """Integers of 32 bits as floats, times a scale; others have an op."""
    for x, y in (op.operands, op.operands[::-1]):
        cast, scale = made_by(x, "cast"), known(e, y)
        if cast is None or scale is None or _dtype(op) is not F32 or scale.size != max(scale.shape, default=1):
            continue
        q = e.tensor(cast.operands[0])
        if q.dtype is SI32 and q.shape == e.shape:
            axis = _axis(scale.shape, q.rank) if scale.size > 1 else None
            return linear(e, "DequantizeLinear", q, scale, (), SI32, axis, F32)
    return None


def _axis(shape: Sequence[int], rank: int) -> int:
    """The axis, of `rank`, along which numbers of `shape` differ."""
    return rank - len(shape) + next(a for a, d in enumerate(shape) if d > 1)
