"""Elementwise operators."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from functools import partial, reduce
from types import MappingProxyType

from ptir_tools.bridges.extents import as_dims, settled, vector
from ptir_tools.bridges.onnx import folding
from ptir_tools.bridges.onnx.protocols import Attribute, Datum
from ptir_tools.bridges.onnx.table import (
    HANDLERS,
    Node,
    back,
    dtype_of,
    fixed,
    handles,
    paired,
    refused,
    stretched,
    together,
    wide,
)
from ptir_tools.core.dtypes import F32, F64, I1, SI32, SI64, UI8, DType
from ptir_tools.core.typed import Protocol
from ptir_tools.dialects.ptir.builder.build import Tensor
from ptir_tools.dialects.ptir.composites import layers
from ptir_tools.dialects.ptir.composites.rounding import sqrt

Map = Callable[[Tensor], Tensor]

# Operators that are one op of PTIR, on broadcast operands.
DIRECT = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Add": "add", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseAnd": "bitwise_and", "BitwiseNot": "bitwise_not", "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor", "Ceil": "ceil",
    "Cos": "cos", "Cosh": "cosh", "Div": "div", "Equal": "compare_eq", "Erf": "erf", "Exp": "exp", "Floor": "floor",
    "Greater": "compare_gt", "GreaterOrEqual": "compare_ge", "Less": "compare_lt", "LessOrEqual": "compare_le", "Log": "log",
    "Mul": "mul", "Neg": "neg", "Reciprocal": "reciprocal", "Round": "round_even", "Sign": "sign", "Sin": "sin",
    "Sinh": "sinh", "Sub": "sub", "Tan": "tan", "Tanh": "tanh", "Where": "select",
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
    return node[0].compare_eq(False)


@handles("Max", "Min")
def extremum(node: Node) -> Tensor:
    """Max or Min of the operands."""
    return reduce(partial(node.op, "maximum" if node.name == "Max" else "minimum"), together(*node.all()))


@handles("Sum", "Mean")
def summed(node: Node) -> Tensor:
    """Sum or Mean of the operands."""
    xs = together(*node.all())
    total = reduce(operator.add, map(wide, xs))
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
    0.5: sqrt,
    -1.0: lambda x: x.reciprocal(),
    -0.5: lambda x: x.rsqrt(),
}


@handles("Mod")
def modulo(node: Node) -> Tensor:
    """Mod: the remainder has the sign of the divisor, or with `fmod` that of `x`."""
    return node.op("rem" if node.attr("fmod") else "mod", node[0], node[1])


@handles("BitShift")
def shift(node: Node) -> Tensor:
    """BitShift, left or right; a signed integer keeps its sign."""
    x, y = node[0], node[1]
    right = "shift_right_arithmetic" if x.dtype.is_signed else "shift_right_logical"
    return node.op("shift_left" if node.attr("direction") == "LEFT" else right, x, y)


@handles("BitCast")
def bitcast(node: Node) -> Tensor:
    """BitCast: the bits as another dtype of the same size."""
    target = dtype_of(node.attr("to"), "to")
    if I1 in (target, node[0].dtype) and 8 in (target.bits, node[0].dtype.bits):
        return node[0].cast(UI8).bitcast(target) if target is not I1 else node[0].bitcast(UI8).cast(I1)
    if target.bits != node[0].dtype.bits:
        raise refused(f"BitCast of {node[0].dtype} to {target} changes the size of an element")
    return node[0].bitcast(dtype=target)


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
            x = node.op(op, x, bound.reshape([]) if bound.rank else bound)
    return x


def sigmoid(x: Tensor) -> Tensor:
    """The logistic function, without overflow or cancellation."""
    return ((x * 0.5).tanh() + 1.0) * 0.5 if x.dtype is F64 else (1.0 + (-x).exp()).reciprocal()


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    return x.maximum(0.0) + (-x.abs()).exp().log1p()


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return x.maximum(0)


def bounded(x: Tensor, low: float, high: float | Tensor) -> Tensor:
    """`x` in [low, high]."""
    return x.maximum(low).minimum(high)


class Attributes(Protocol):
    """The attributes of an activation."""

    def attr(self, name: str) -> Attribute:
        """A number, or a tensor of equal numbers."""


class _Numbers(dict[str, float]):
    """Parameters of an activation that is no node."""

    def attr(self, name: str) -> float:
        """A parameter."""
        return self[name]


# Activations: a function of the attributes and the widened operand. They are written by the same formulas (`idioms.py`).
ACTIVATIONS: dict[str, Callable[[Attributes, Tensor], Tensor]] = {
    "Celu": lambda n, x: relu(x) + (n.attr("alpha") * (x / n.attr("alpha")).expm1()).minimum(0.0),
    "Elu": lambda n, x: (x > 0).select(x, n.attr("alpha") * x.expm1()),
    "Gelu": lambda n, x: layers.gelu_tanh(x) if n.attr("approximate") == "tanh" else layers.gelu(x),
    "HardSigmoid": lambda n, x: bounded(n.attr("alpha") * x + n.attr("beta"), 0.0, 1.0),
    "HardSwish": lambda n, x: x * bounded(x / 6.0 + 0.5, 0.0, 1.0),
    "LeakyRelu": lambda n, x: (x < 0).select(n.attr("alpha") * x, x),
    "Mish": lambda n, x: x * softplus(x).tanh(),
    "Relu": lambda n, x: relu(x),
    "Selu": lambda n, x: n.attr("gamma") * (x > 0).select(x, n.attr("alpha") * x.expm1()),
    "Sigmoid": lambda n, x: sigmoid(x),
    "Softplus": lambda n, x: softplus(x),
    "Softsign": lambda n, x: x / (x.abs() + 1.0),
    "Sqrt": lambda n, x: sqrt(x),
    "Swish": lambda n, x: x * sigmoid(n.attr("alpha") * x),
    "ThresholdedRelu": lambda n, x: (x > n.attr("alpha")).select(x, 0.0),
}


# Activations that recurrent and fused operators name, and the defaults of their parameters.
NAMED: dict[str, dict[str, float]] = {
    "Affine": {"alpha": 1.0, "beta": 0.0}, "Clip": {"alpha": -math.inf, "beta": math.inf}, "Elu": {"alpha": 1.0}, "FastGelu": {},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5}, "Identity": {}, "LeakyRelu": {"alpha": 0.01}, "Relu": {},
    "ScaledTanh": {"alpha": 1.0, "beta": 1.0}, "Sigmoid": {}, "Silu": {}, "Softplus": {}, "Softsign": {}, "SquaredRelu": {},
    "Tanh": {}, "ThresholdedRelu": {"alpha": 1.0},
}  # fmt: skip
_ONLY_NAMED: dict[str, Callable[[Attributes, Tensor], Tensor]] = {
    "Affine": lambda n, x: x * n.attr("alpha") + n.attr("beta"),
    "Clip": lambda n, x: bounded(x, n.attr("alpha"), n.attr("beta")),
    "FastGelu": lambda n, x: layers.gelu_tanh(x),
    "Identity": lambda n, x: x,
    "ScaledTanh": lambda n, x: (x * n.attr("beta")).tanh() * n.attr("alpha"),
    "Silu": lambda n, x: x * sigmoid(x),
    "SquaredRelu": lambda n, x: relu(x) * relu(x),
    "Tanh": lambda n, x: x.tanh(),
}


def named(name: str) -> str:
    """The activation of that name, in any case of letters. Raises Violation."""
    if (found := next((k for k in NAMED if k.lower() == name.lower()), None)) is None:
        raise refused(f"there is no activation `{name}`")
    return found


def activated(name: str, given: Mapping[str, float | None] = MappingProxyType({})) -> Map:
    """The activation of that name; `given` are its parameters. Raises Violation."""
    name = named(name)
    numbers = _Numbers(NAMED[name], **{k: v for k, v in given.items() if v is not None})
    return partial((ACTIVATIONS | _ONLY_NAMED)[name], numbers)


def _activation(node: Node) -> Tensor:
    x = node[0]
    return back(ACTIVATIONS[node.name](node, wide(x)), x)


HANDLERS.update({("", name): _activation for name in ACTIVATIONS})


@handles("Shrink")
def shrink(node: Node) -> Tensor:
    """Shrink: moved toward zero by `bias`; zero within `lambd`."""
    x, bias, lambd = node[0], node.attr("bias"), node.attr("lambd")
    number = (lambda v: v) if x.dtype.is_float else int
    low = x < number(-lambd) if x.dtype.is_signed or x.dtype.is_float else None
    high = (x > number(lambd)).select(x - number(bias), 0)
    return high if low is None else low.select(x + number(bias), high)


@handles("PRelu")
def prelu(node: Node) -> Tensor:
    """`slope * x` where `x < 0`. Before operator set 7 a slope of rank 1 has an element per channel."""
    x, slope = node[0], node[1]
    if node.opset < 7 and slope.rank == 1 and slope.shape != (1,) and x.rank > 1:
        slope = slope.reshape([slope.shape[0], *[1] * (x.rank - 2)])
    return (x < 0).select(slope * x, x) if x.dtype.is_signed or x.dtype.is_float else x


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
    target = dtype_of(node.attr("to"), "to") if node.name == "Cast" else node[1].dtype
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
    mask = size - 1 if size - 1 <= x.dtype.max else -1
    low = x.bitwise_and(mask).cast(SI64)  # 0 ≤ low < size
    return ((low >= half).select(low - size, low) if target.is_signed else low).cast(target)


def centered(x: Tensor, zero: Tensor | None, shape: list[int] | None = None) -> Tensor:
    """Integers minus their zero point, in si32; `shape` is that of one zero point per index of an axis."""
    if zero is None:
        return x.cast(SI32)
    z = zero.cast(SI32)
    z = z.reshape(shape) if shape is not None and z.rank == 1 and z.shape != (1,) else scalar(z)
    return x.cast(SI32) - stretched(z, x.shape)


def scalar(z: Tensor) -> Tensor:
    """A tensor of shape [1] as rank 0."""
    return z.reshape([]) if z.shape == (1,) else z


def _to_fp8(x: Tensor, target: DType, saturate: bool) -> Tensor:
    largest = 448.0 if target.name == "fp8_e4m3" else 57344.0
    if not x.dtype.is_float or x.dtype.bits == 8:
        x = x.cast(F32)
    if not saturate:
        return x.cast(target)
    return bounded(x, -largest, largest).cast(target)
