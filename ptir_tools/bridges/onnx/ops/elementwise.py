"""Elementwise operators."""

from __future__ import annotations

import math
from collections.abc import Callable

from ptir_tools.bridges.extents import as_dims, settled, vector
from ptir_tools.bridges.onnx import folding
from ptir_tools.bridges.onnx.protocols import Attribute, Datum
from ptir_tools.bridges.onnx.table import HANDLERS, Node, back, dtype_of, fixed, handles, paired, refused, together, wide
from ptir_tools.core.dtypes import F32, F64, I1, SI32, SI64, UI8, DType
from ptir_tools.core.typed import Protocol
from ptir_tools.dialects.ptir.builder.build import Block, Tensor

Map = Callable[[Tensor], Tensor]

# Operators that are one op of PTIR, on broadcast operands.
DIRECT = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Ceil": "ceil",
    "Cos": "cos", "Cosh": "cosh", "Div": "div", "Equal": "compare_eq", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Greater": "compare_gt", "GreaterOrEqual": "compare_ge", "Less": "compare_lt", "LessOrEqual": "compare_le", "Log": "log",
    "Mul": "mul", "Neg": "neg", "Reciprocal": "reciprocal", "Round": "round_even", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Sub": "sub", "Tan": "tan", "Tanh": "tanh",
}  # fmt: skip


def _direct(node: Node) -> Tensor:
    xs = paired(node) if len(node) == 2 else node.all()
    if node.name == "Abs" and not xs[0].dtype.is_signed and xs[0].dtype.is_integer:
        return xs[0]
    return node.op(DIRECT[node.name], *xs)


HANDLERS.update({("", name): _direct for name in DIRECT})


def logical(op: str, x: Tensor, y: Tensor) -> Tensor:
    """`and`, `or` or `xor` of i1."""
    if op == "xor":
        return x.compare_ne(y)
    return x.select(y, False) if op == "and" else x.select(True, y)


@handles("And", "Or", "Xor")
def boolean(node: Node) -> Tensor:
    """Logic on flags."""
    return logical(node.name.lower(), *paired(node))


@handles("Not")
def invert(node: Node) -> Tensor:
    """Not."""
    return flags(node, node[0], False)


def flags(node: Node, x: Tensor, value: bool) -> Tensor:
    """Whether each i1 equals `value`."""
    return x.compare_eq(node.block.full(value, x))


def _sqrt(x: Tensor) -> Tensor:
    """The square root. `x * rsqrt(x)` would be NaN at zero and infinity."""
    special = (x.compare_eq(0), x.compare_eq(math.inf))
    return special[0].select(x, special[1].select(x, x * x.rsqrt()))


@handles("Sqrt")
def root(node: Node) -> Tensor:
    """The square root."""
    return back(_sqrt(wide(node[0])), node[0])


def sqrt(x: Tensor) -> Tensor:
    """The square root of a float."""
    return _sqrt(x)


@handles("Max", "Min")
def extremum(node: Node) -> Tensor:
    """Max or Min of the operands."""
    first, *rest = together(*node.all())
    for x in rest:
        first = node.op("maximum" if node.name == "Max" else "minimum", first, x)
    return first


@handles("Sum", "Mean")
def summed(node: Node) -> Tensor:
    """Sum or Mean of the operands."""
    xs = together(*node.all())
    total = wide(xs[0])
    for x in xs[1:]:
        total = total + wide(x)
    return back(total if node.name == "Sum" else total / float(len(xs)), xs[0])


@handles("Pow")
def power(node: Node) -> Tensor:
    """Pow, in the dtype of `x`. Small constant exponents become products."""
    x, datum = node[0], node.array(1)
    if datum is not None and datum.size == 1 and datum.ndim <= x.rank and datum.dtype != object:
        exponent = float(datum.reshape(()))
        if x.dtype.is_float and exponent in _POWERS:
            node.idle("axis", "broadcast")
            return back(_POWERS[exponent](wide(x)), x)
    x, y = paired(node)
    if x.dtype is y.dtype:
        return x.pow(y)
    common = _common(x.dtype, y.dtype)
    return x.cast(common).pow(y.cast(common)).cast(x.dtype)


def _common(a: DType, b: DType) -> DType:
    """The dtype in which a power is computed: a float if one is a float, f64 for wide integers."""
    if a.is_float or b.is_float:
        return F64 if max(a.bits, b.bits) == 64 or F64 in (a, b) else F32
    return SI64


_POWERS: dict[float, Map] = {
    1.0: lambda x: x,
    2.0: lambda x: x * x,
    3.0: lambda x: x * x * x,
    0.5: _sqrt,
    -1.0: lambda x: x.reciprocal(),
    -0.5: lambda x: x.rsqrt(),
}


@handles("Mod")
def modulo(node: Node) -> Tensor:
    """Mod: the remainder has the sign of the divisor, or with `fmod` that of `x`."""
    return node.op("rem" if node.attr("fmod") else "mod", *together(node[0], node[1]))


@handles("BitShift")
def shift(node: Node) -> Tensor:
    """BitShift, left or right; a signed integer keeps its sign."""
    x, y = together(node[0], node[1])
    right = "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
    return node.op("shift_left" if node.attr("direction") == "LEFT" else right, x, y)


@handles("BitCast")
def bitcast(node: Node) -> Tensor:
    """BitCast: the bits as another dtype of the same size."""
    target = dtype_of(node.attr("to"))
    if I1 in (target, node[0].dtype) and 8 in (target.bits, node[0].dtype.bits):
        return node[0].cast(UI8).bitcast(target) if target is not I1 else node[0].bitcast(UI8).cast(I1)
    if target.bits != node[0].dtype.bits:
        raise refused(f"BitCast of {node[0].dtype} to {target} changes the size of an element")
    return node[0].bitcast(dtype=target)


@handles("Where")
def where(node: Node) -> Tensor:
    """Where."""
    which, x, y = together(node[0], node[1], node[2])
    return which.select(x, y)


@handles("Clip")
def clip(node: Node) -> Tensor:
    """Clip; both bounds are optional."""
    x = node[0]
    bounds = [node.get(1), node.get(2)]
    for k, name in enumerate(("min", "max")):
        if (number := node.attr(name)) is not None:
            bounds[k] = node.constant(number, x.dtype)
    for bound, op in zip(bounds, ("maximum", "minimum"), strict=True):
        if bound is not None:
            x = node.op(op, *together(x, bound if bound.rank == 0 else bound.reshape([])))
    return x


def sigmoid(x: Tensor) -> Tensor:
    """The logistic function, without overflow or cancellation."""
    return ((x * 0.5).tanh() + 1.0) * 0.5 if x.dtype is F64 else (1.0 + (-x).exp()).reciprocal()


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    e = (-x.abs()).exp()
    return x.maximum(0.0) + e.log1p()


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return x.maximum(0)


def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, exact for small `x`."""
    return x.expm1()


def positive(x: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """`yes` where `x > 0`, else `no`."""
    return (x > 0).select(yes, no)


def bounded(x: Tensor, low: float, high: float) -> Tensor:
    """`x` in [low, high]."""
    return x.maximum(low).minimum(high)


def gelu(x: Tensor, approximate: str) -> Tensor:
    """x times the normal distribution at x, or its approximation."""
    if approximate == "tanh":
        return 0.5 * x * (1.0 + (math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))).tanh())
    return 0.5 * x * (1.0 + (x * math.sqrt(0.5)).erf())


def mish(x: Tensor) -> Tensor:
    """x tanh(softplus(x))."""
    return x * softplus(x).tanh()


class Attributes(Protocol):
    """The attributes of an activation, and the block that gets its ops."""

    block: Block

    def attr(self, name: str) -> Attribute:
        """A number, or a tensor of equal numbers."""


# Activations: a function of the attributes and the widened operand. They are written by the same formulas (`idioms.py`).
ACTIVATIONS: dict[str, Callable[[Attributes, Tensor], Tensor]] = {
    "Celu": lambda n, x: relu(x) + (n.attr("alpha") * expm1(x / n.attr("alpha"))).minimum(0.0),
    "Elu": lambda n, x: positive(x, x, n.attr("alpha") * expm1(x)),
    "Gelu": lambda n, x: gelu(x, n.attr("approximate")),
    "HardSigmoid": lambda n, x: bounded(n.attr("alpha") * x + n.attr("beta"), 0.0, 1.0),
    "HardSwish": lambda n, x: x * bounded(x / 6.0 + 0.5, 0.0, 1.0),
    "LeakyRelu": lambda n, x: (x < 0).select(n.attr("alpha") * x, x),
    "Mish": lambda n, x: mish(x),
    "Relu": lambda n, x: relu(x),
    "Selu": lambda n, x: n.attr("gamma") * positive(x, x, n.attr("alpha") * expm1(x)),
    "Sigmoid": lambda n, x: sigmoid(x),
    "Softplus": lambda n, x: softplus(x),
    "Softsign": lambda n, x: x / (x.abs() + 1.0),
    "Swish": lambda n, x: x * sigmoid(n.attr("alpha") * x),
    "ThresholdedRelu": lambda n, x: (x > n.attr("alpha")).select(x, n.block.full(0.0, x)),
}


def _activation(node: Node) -> Tensor:
    x = node[0]
    return back(ACTIVATIONS[node.name](node, wide(x)), x)


HANDLERS.update({("", name): _activation for name in ACTIVATIONS})


@handles("Shrink")
def shrink(node: Node) -> Tensor:
    """Shrink: moved toward zero by `bias`; zero within `lambd`."""
    x, bias, lambd = node[0], node.attr("bias"), node.attr("lambd")
    number = (lambda v: v) if x.dtype.is_float else int
    zero = node.block.full(0, x)
    low = x < number(-lambd) if x.dtype.is_signed or x.dtype.is_float else None
    high = (x > number(lambd)).select(x - number(bias), zero)
    return high if low is None else low.select(x + number(bias), high)


@handles("PRelu")
def prelu(node: Node) -> Tensor:
    """`slope * x` where `x < 0`. Before operator set 7 a slope of rank 1 has an element per channel."""
    x, slope = node[0], node[1]
    if node.opset < 7 and slope.rank == 1 and slope.shape != (1,) and x.rank > 1:
        slope = slope.reshape([slope.shape[0], *[1] * (x.rank - 2)])
    x, slope = together(x, slope)
    if not (x.dtype.is_signed or x.dtype.is_float):
        return x
    return (x < 0).select(slope * x, x)


@handles("IsNaN")
def is_nan(node: Node) -> Tensor:
    """IsNaN."""
    x = node[0]
    return x.compare_ne(x)


@handles("IsInf")
def is_infinite(node: Node) -> Tensor:
    """IsInf, for the signs that the attributes select."""
    x = node[0]
    above = x.compare_eq(math.inf)
    below = x.compare_eq(-math.inf)
    both = [f for f, attribute in ((above, "detect_positive"), (below, "detect_negative")) if node.attr(attribute)]
    if not both:
        return x < x
    return both[0] if len(both) == 1 else logical("or", *both)


@handles("Cast", "CastLike")
def cast(node: Node) -> Datum:
    """Cast. Values that are known while reading stay known."""
    target = dtype_of(node.attr("to")) if node.name == "Cast" else node[1].dtype
    y, datum = node[0], node.array(0)
    if datum is not None and datum.dtype == object and target in (F32, F64, SI32):
        y = y.cast(target)
        node.scope.importer.counts[y.operand] = as_dims(datum)
        return y
    counts = node.scope.importer.counted(node.datum(0)) if target is SI64 and datum is None else None
    if counts is not None:
        return settled(vector(counts).reshape([fixed(d) for d in y.shape]))
    if node.name == "CastLike" and datum is not None and datum.size <= 1 << 12 and target.is_integer:
        result = folding.cast(datum, target)
        if result is not None:
            return result
    return converted(node[0], target, bool(node.attr("saturate", 1)))


def converted(x: Tensor, target: DType, saturate: bool = True) -> Tensor:
    """`x` as ONNX casts it: integers and floats to 4-bit integers wrap, floats to fp8 saturate if `saturate`."""
    source = x.dtype
    if source is target:
        return x
    if target.is_float and target.bits == 8:
        return _to_fp8(x, target, saturate)
    if target.is_integer:
        if source.is_integer and source.bits == target.bits > 4:
            return x.bitcast(target)
        if source.is_integer and not (target.min <= source.min and source.max <= target.max):
            return wrapped(x, target) if source.bits >= target.bits else wrapped(x.cast(SI64), target)
        if source.is_float and target.bits == 4:
            return wrapped(x.cast(SI32), target)
    return x.cast(target)


def wrapped(x: Tensor, target: DType) -> Tensor:
    """An integer tensor modulo the range of a narrower integer dtype."""
    half, size = 1 << (target.bits - 1), 1 << target.bits
    low = x.bitwise_and(_mask(x, size - 1)).cast(SI64)  # 0 ≤ low < size
    return ((low >= half).select(low - size, low) if target.is_signed else low).cast(target)


def _mask(x: Tensor, bits: int) -> Tensor:
    return x.block.full(bits if bits <= x.dtype.max else bits - (1 << x.dtype.bits), x)


def _to_fp8(x: Tensor, target: DType, saturate: bool) -> Tensor:
    largest = 448.0 if target.name == "fp8_e4m3" else 57344.0
    if not x.dtype.is_float or x.dtype.bits == 8:
        x = x.cast(F32)
    if not saturate:
        return x.cast(target)
    return bounded(x, -largest, largest).cast(target)
